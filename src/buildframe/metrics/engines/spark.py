"""Adapt summaries to PySpark: checks, expressions and joins that narwhals does not cover."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput, StoreFailed

_UTC = re.compile(r"(Etc/)?(UTC|GMT|UCT|Zulu)|Z|[+-]00:?00", re.IGNORECASE)
_REFUSED = re.compile(r"buildframe\.errors\.BadInput: (.*)")
_GONE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST\][^\n]*? file (.+?)\. ")
_DAY = 86_400_000_000  # microseconds
FRAMES = (nw.Implementation.PYSPARK, nw.Implementation.PYSPARK_CONNECT)


def is_spark(found: nw.LazyFrame[Any]) -> bool:
    """Return whether the frame is one of PySpark, connected or not."""
    return found.implementation in FRAMES


def check(frame: Any) -> None:
    """Raise BadInput if two columns have one name, or the session's time zone is not UTC."""
    check_session(frame.sparkSession)
    if twice := sorted({name for name in frame.columns if frame.columns.count(name) > 1}):
        raise BadInput(f"Two columns of the frame are called {twice[0]!r}, as after a join; rename or drop one.")


def check_names(names: Iterable[str]) -> None:
    """Raise BadInput for the first column whose name Spark would parse as something else."""
    for name in names:
        if "." in name or "`" in name:
            raise BadInput(
                f"The column {name!r} has a dot or a backtick in its name, which Spark reads as a field of another; "
                f"rename it: frame.withColumnRenamed({name!r}, {re.sub('[.`]', '_', name)!r})."
            )


def check_session(session: Any) -> None:
    """Raise BadInput unless the session's time zone is UTC; otherwise days and texts of times would follow its zone."""
    zone = session.conf.get("spark.sql.session.timeZone")
    if not _UTC.fullmatch(zone):
        raise BadInput(
            f"The Spark session's time zone is {zone!r}, so its days would differ from those in the store. "
            'Use session.conf.set("spark.sql.session.timeZone", "UTC").'
        )


def microseconds(name: str) -> Any:
    """Return the timestamps of a column as whole microseconds since 1970."""
    from pyspark.sql import functions

    return functions.unix_micros(functions.col(f"`{name}`"))


def utc_day(name: str) -> Any:
    """Return the UTC days of timestamps independently of the session's zone, which Spark Connect reads later."""
    from pyspark.sql import functions

    ticks = f"unix_micros(`{name}`)"
    return functions.expr(f"date_from_unix_date(int(({ticks} - pmod({ticks}, {_DAY})) div {_DAY}))")


def with_hash(frame: Any, names: Sequence[str], name: str) -> Any:
    """Add a hash of these columns."""
    from pyspark.sql import functions

    return frame.withColumn(name, functions.xxhash64(*(f"`{one}`" for one in names)))


def semi_join(frame: Any, name: str, values: pd.Series[Any]) -> Any:
    """Return the rows that have one of the values in this column."""
    small = broadcast(frame.sparkSession, pd.DataFrame({name: values.astype("Int64")}))
    return frame.join(small, on=name, how="left_semi")


def broadcast(session: Any, small: pd.DataFrame) -> Any:
    """Create a small frame in the session and broadcast it to each worker."""
    from pyspark.sql import functions

    return functions.broadcast(session.createDataFrame(pa.Table.from_pandas(small, preserve_index=False)))


def null_safe_equal(names: Mapping[str, str]) -> list[Any]:
    """Compare columns of these names with the others, null equal to null."""
    from pyspark.sql import functions

    return [functions.col(f"`{one}`").eqNullSafe(functions.col(f"`{other}`")) for one, other in names.items()]


def map_partitions(
    frame: Any, by: Sequence[str], of: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> Any:
    """Apply `of` to each partition, sorted by the columns `by`, with equal rows together."""
    from pyspark.sql.pandas.types import from_arrow_schema

    names = [f"`{name}`" for name in by]
    return frame.repartition(*names).sortWithinPartitions(*names).mapInArrow(of, from_arrow_schema(schema))


def collect_table(frame: Any) -> pa.Table:
    """Collect the rows; raise errors of workers and missing files as errors of this package."""
    try:
        table: pa.Table = frame.toArrow()
    except Exception as why:  # of Spark, or of Java behind it
        if error := _translate_error(str(why)):
            raise error from None
        raise
    return table


def _translate_error(message: str) -> Exception | None:
    """Translate a message of Spark; None if it is unknown."""
    if refused := _REFUSED.search(message):
        return BadInput(refused[1])
    if gone := _GONE.search(message):
        return StoreFailed(
            f"The file {gone[1]} is gone, because a cleanup removes the files of old versions. "
            "Create the frames again with store.spark(session)."
        )
    return None
