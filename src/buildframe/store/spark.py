"""A version of the store as frames of PySpark."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from buildframe.errors import BadInput, MissingExtra, StoreFailed
from buildframe.metrics.spark import check_session
from buildframe.store.lake import Table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DELTA_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")

_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Spark looks up each file that is named by a task of its own, unless this says how many tasks there are to be."""

_WHOLE = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}
"""Else a setting of the session would leave rows out in silence."""

_PATTERN = re.compile(r"[][{}*?\\]")
_LONGEST = 600


def check(session: Any) -> None:
    """BadInput for what is no session of Spark, or one whose days are not those of UTC."""
    try:
        import pyspark  # noqa: F401
    except ImportError:
        raise MissingExtra("store.spark()", "spark") from None
    if type(session).__name__ != "SparkSession":  # that of Spark Connect is another class of this name
        raise BadInput(
            f"A {type(session).__name__} is no session of Spark; pass what SparkSession.builder.getOrCreate() gives."
        )
    check_session(session)


def frames(tables: Mapping[str, Table], session: SparkSession) -> dict[str, DataFrame]:
    """The tables as frames, by name; the session has been checked."""
    with _few_tasks(session):
        return {name: _opened(table, session) for name, table in tables.items()}


@contextmanager
def _few_tasks(session: SparkSession) -> Iterator[None]:
    before = session.conf.get(_LISTING_TASKS)
    assert before is not None  # it has a default
    session.conf.set(_LISTING_TASKS, "100")
    try:
        yield
    finally:
        session.conf.set(_LISTING_TASKS, before)


def _opened(table: Table, session: SparkSession) -> DataFrame:
    try:
        return _by_delta(table, session) if _knows_delta(session) else _by_files(table, session)
    except Exception as why:  # of Spark, of Java behind it, or of a server that it is connected to
        said = " ".join(str(why).split("\n\tat ")[0].split())[:_LONGEST]
        raise StoreFailed(
            f"Spark could not open the table {table.name!r} at {table.place.url}: {said} "
            "(each machine of a cluster must reach that place; an object store takes settings of Spark's own)"
        ) from None


def _knows_delta(session: SparkSession) -> bool:
    return any("delta" in (session.conf.get(name, "") or "").lower() for name in _DELTA_SETTINGS)


def _by_delta(table: Table, session: SparkSession) -> DataFrame:
    reader = session.read.format("delta").option("versionAsOf", table.version)
    return reader.load(_address(table.place.of_table(table.name)))


def _by_files(table: Table, session: SparkSession) -> DataFrame:
    """With the table's own schema: Spark need not look into the files, and columns that older ones lack are null."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema, files = from_arrow_schema(table.schema), table.uris()
    if not files:
        return session.createDataFrame([], schema)
    reader = session.read.schema(schema).option("basePath", _address(table.place.of_table(table.name)))
    reader = reader.options(**_WHOLE)
    return reader.parquet(*(_PATTERN.sub(r"\\\g<0>", _address(file)) for file in files))


def _address(path: str) -> str:
    """With its scheme, since a path without one lies in the cluster's own file system."""
    return path if "://" in path else f"file://{path}"
