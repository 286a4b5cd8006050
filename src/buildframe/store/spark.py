"""Open one version of the store as PySpark DataFrames. Does not know syncs or pandas frames."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from buildframe.errors import BadInput, MissingExtra, StoreFailed
from buildframe.metrics.engines.spark import check_session
from buildframe.store.delta import TableVersion

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DELTA_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")

_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Number of tasks that list files. By default Spark starts one task for each path that it receives."""

_FAIL_ON_BAD_FILES = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Override session settings that would silently skip rows of corrupt or missing files."""

_GLOB_CHARACTER = re.compile(r"[][{}*?\\]")
_MAX_MESSAGE = 600


def check(session: Any) -> None:
    """Raise BadInput unless `session` is a SparkSession whose time zone is UTC."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise MissingExtra("store.spark()", "spark") from None
    if type(session).__name__ != "SparkSession":  # Spark Connect has its own class of this name
        raise BadInput(
            f"session is a {type(session).__name__}, not a SparkSession. Pass SparkSession.builder.getOrCreate()."
        )
    check_session(session)


def frames(tables: Mapping[str, TableVersion], session: SparkSession) -> dict[str, DataFrame]:
    """Open tables as Spark DataFrames by name. Call `check` first."""
    with _limited_listing_tasks(session):
        return {name: _open_table(table, session) for name, table in tables.items()}


@contextmanager
def _limited_listing_tasks(session: SparkSession) -> Iterator[None]:
    before = session.conf.get(_LISTING_TASKS)
    assert before is not None  # Spark has a default
    session.conf.set(_LISTING_TASKS, "100")
    try:
        yield
    finally:
        session.conf.set(_LISTING_TASKS, before)


def _open_table(table: TableVersion, session: SparkSession) -> DataFrame:
    try:
        return _open_delta(table, session) if _has_delta(session) else _open_parquet(table, session)
    except Exception as why:  # from Spark, the JVM or a Spark Connect server
        message = " ".join(str(why).split("\n\tat ")[0].split())[:_MAX_MESSAGE]
        raise StoreFailed(
            f"Spark could not open the table {table.name!r} at {table.location.url}: {message} "
            "(every machine of the cluster must reach this location; an object store needs its own Spark settings)"
        ) from None


def _has_delta(session: SparkSession) -> bool:
    return any("delta" in (session.conf.get(name, "") or "").lower() for name in _DELTA_SETTINGS)


def _open_delta(table: TableVersion, session: SparkSession) -> DataFrame:
    reader = session.read.format("delta").option("versionAsOf", table.version)
    return reader.load(_uri(table.location.table_url(table.name)))


def _open_parquet(table: TableVersion, session: SparkSession) -> DataFrame:
    """Open the Parquet files with the table schema, so that Spark reads no footers and missing columns are null."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema, files = from_arrow_schema(table.schema), table.uris()
    if not files:
        return session.createDataFrame([], schema)
    reader = session.read.schema(schema).option("basePath", _uri(table.location.table_url(table.name)))
    reader = reader.options(**_FAIL_ON_BAD_FILES)
    return reader.parquet(*(_GLOB_CHARACTER.sub(r"\\\g<0>", _uri(file)) for file in files))


def _uri(path: str) -> str:
    """Return a URI with a scheme, because Spark resolves bare paths in the default file system of the cluster."""
    return path if "://" in path else f"file://{path}"
