"""Check frames of PySpark, and collect their rows with the errors of this package. Does not know metrics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa

from buildframe.errors import BadInput, StoreFailed
from buildframe.metrics.columns import DAY_LENGTH, require_columns

_UTC = re.compile(r"(Etc/)?(UTC|GMT|UCT|Zulu)|Z|[+-]00:?00", re.IGNORECASE)
_BAD_INPUT = re.compile(r"buildframe\.errors\.BadInput: (.*)")
_MISSING_FILE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST\][^\n]*? file (.+?)\. ")

_SHARD_ROWS = 500_000


def check_session(session: Any) -> None:
    """Raise BadInput unless the session's time zone is UTC, because days and texts of times follow its zone."""
    zone = session.conf.get("spark.sql.session.timeZone")
    if not _UTC.fullmatch(zone):
        raise BadInput(
            f"The Spark session's time zone is {zone!r}, so its days would differ from those in the store. "
            'Use session.conf.set("spark.sql.session.timeZone", "UTC").'
        )


def check_frame(frame: Any) -> list[str]:
    """Return the names of the columns; raise BadInput for a repeated name, and a session in another zone."""
    check_session(frame.sparkSession)
    names = list(frame.columns)
    if duplicates := sorted({name for name in names if names.count(name) > 1}):
        raise BadInput(f"Two columns of the frame are called {duplicates[0]!r}, as after a join. Rename or drop one.")
    return names


def check_names(names: Iterable[str]) -> None:
    """Raise BadInput for a column's name that Spark would read as something else."""
    for name in names:
        if "." in name or "`" in name:
            raise BadInput(
                f"The column {name!r} has a dot or a backtick in its name, which Spark reads as a field of "
                f"another. Rename it: frame.withColumnRenamed({name!r}, {re.sub('[.`]', '_', name)!r})."
            )


def check_keys(frame: Any, names: Iterable[str]) -> None:
    """Raise BadInput for a column whose values have no order."""
    for name in names:
        kind = frame.schema[name].dataType
        if kind.typeName() in ("array", "map", "struct", "variant"):
            raise BadInput(f"The column {name!r} cannot be grouped by: it holds {kind.simpleString()}.")


def read_limits(frame: Any, names: Sequence[str]) -> pa.Table:
    """Return two rows with the least and the greatest value of each column."""
    from pyspark.sql import functions

    require_columns(check_frame(frame), names)
    check_names(names)
    ends = []
    for function in (functions.min, functions.max):
        limits = frame.select(*(function(functions.col(name)).alias(name) for name in names))
        ends.append(collect_table(limits))
    return pa.concat_tables(ends)


def read_distinct(frame: Any, names: Sequence[str]) -> pa.Table:
    """Return each combination of values of columns once."""
    check_names(names)
    return collect_table(frame.select(*names).distinct())


def read_matching(frame: Any, key: str, values: Sequence[str], names: Sequence[str]) -> pa.Table:
    """Return columns of the rows whose key is one of the values."""
    check_names(names)
    keys = pa.table({key: pa.array(values, pa.string())})
    chosen = frame.sparkSession.createDataFrame(keys)
    return collect_table(frame.select(*names).join(chosen, key, "leftsemi"))


def read_repeated(frame: Any, name: str) -> pa.Table:
    """Return a value that a column has several times, or no row."""
    counts = frame.select(name).dropna().groupBy(name).count()
    return collect_table(counts.filter("count > 1").limit(1).select(name))


def with_days(frame: Any, name: str, times: Sequence[str]) -> Any:
    """Add a column with the number of each row's day in UTC, by the first known of some times."""
    from pyspark.sql import functions

    check_names(times)
    known = functions.coalesce(*(functions.col(time).cast("timestamp") for time in times))
    return frame.withColumn(name, functions.floor(functions.unix_micros(known) / DAY_LENGTH))


def with_shards(frame: Any, name: str, keys: Sequence[str]) -> Any:
    """Add a column that groups rows for workers: rows with equal keys are in one shard.

    A shard has many small groups, because each call of Python takes as long as thousands of rows.
    """
    from pyspark.sql import functions

    check_names(keys)
    counted = frame.select(functions.count("*").alias("rows"))
    n_shards = collect_table(counted)["rows"][0].as_py() // _SHARD_ROWS + 1
    return frame.withColumn(name, functions.pmod(functions.xxhash64(*keys), n_shards))


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
    if bad_input := _BAD_INPUT.search(message):
        return BadInput(bad_input[1])
    if missing := _MISSING_FILE.search(message):
        return StoreFailed(
            f"The file {missing[1]} is gone, because a cleanup removes the files of old versions. "
            "Create the frames again with store.spark(session)."
        )
    return None
