"""What is particular to frames of PySpark."""

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
    """Whether it is a frame of PySpark, connected or not."""
    return found.implementation in FRAMES


def check(frame: Any) -> None:
    """BadInput where two of its columns have one name, or its session another zone than UTC."""
    check_session(frame.sparkSession)
    if twice := sorted({name for name in frame.columns if frame.columns.count(name) > 1}):
        raise BadInput(f"Two columns of the frame are called {twice[0]!r}, as after a join; rename or drop one.")


def check_names(names: Iterable[str]) -> None:
    """BadInput for the first column whose name Spark takes for something else than a name."""
    for name in names:
        if "." in name or "`" in name:
            raise BadInput(
                f"The column {name!r} has a dot or a backtick in its name, which Spark reads as a field of another; "
                f"rename it: frame.withColumnRenamed({name!r}, {re.sub('[.`]', '_', name)!r})."
            )


def check_session(session: Any) -> None:
    """BadInput unless the session's time zone is UTC: else it takes days and texts of times for those of its zone."""
    zone = session.conf.get("spark.sql.session.timeZone")
    if not _UTC.fullmatch(zone):
        raise BadInput(
            f"The Spark session's time zone is {zone!r}, so that days would be other than in the store; "
            'set it: session.conf.set("spark.sql.session.timeZone", "UTC").'
        )


def microseconds(name: str) -> Any:
    """The times of a column as whole microseconds since 1970."""
    from pyspark.sql import functions

    return functions.unix_micros(functions.col(f"`{name}`"))


def day(name: str) -> Any:
    """The UTC days of a column's times, whatever the session's zone is later: Spark Connect looks only then."""
    from pyspark.sql import functions

    ticks = f"unix_micros(`{name}`)"
    return functions.expr(f"date_from_unix_date(int(({ticks} - pmod({ticks}, {_DAY})) div {_DAY}))")


def hashed(frame: Any, names: Sequence[str], name: str) -> Any:
    """The frame with a number for what stands in these columns."""
    from pyspark.sql import functions

    return frame.withColumn(name, functions.xxhash64(*(f"`{one}`" for one in names)))


def among(frame: Any, name: str, values: pd.Series[Any]) -> Any:
    """The rows that have one of the values in the column of this name."""
    few = brought(frame.sparkSession, pd.DataFrame({name: values.astype("Int64")}))
    return frame.join(few, on=name, how="left_semi")


def brought(session: Any, few: pd.DataFrame) -> Any:
    """A small frame for the session, of which each worker gets all."""
    from pyspark.sql import functions

    return functions.broadcast(session.createDataFrame(pa.Table.from_pandas(few, preserve_index=False)))


def alike(names: Mapping[str, str]) -> list[Any]:
    """That columns of these names have the same values as the others, null for null."""
    from pyspark.sql import functions

    return [functions.col(f"`{one}`").eqNullSafe(functions.col(f"`{other}`")) for one, other in names.items()]


def mapped(
    frame: Any, by: Sequence[str], of: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]], schema: pa.Schema
) -> Any:
    """What `of` makes of the rows of each partition, which come sorted by the columns `by`, equal ones together."""
    from pyspark.sql.pandas.types import from_arrow_schema

    names = [f"`{name}`" for name in by]
    return frame.repartition(*names).sortWithinPartitions(*names).mapInArrow(of, from_arrow_schema(schema))


def collected(frame: Any) -> pa.Table:
    """The rows of a frame; what a worker refused, or that a file is gone, as the error that it is."""
    try:
        table: pa.Table = frame.toArrow()
    except Exception as why:  # of Spark, or of Java behind it
        if told := _told(str(why)):
            raise told from None
        raise
    return table


def _told(said: str) -> Exception | None:
    """What Spark said, in a sentence; None where it is not known."""
    if refused := _REFUSED.search(said):
        return BadInput(refused[1])
    if gone := _GONE.search(said):
        return StoreFailed(
            f"The file {gone[1]} that Spark was to read is gone: a cleaning removes the files of old versions. "
            "Make the frames again, by store.spark(session), and what was made of them."
        )
    return None
