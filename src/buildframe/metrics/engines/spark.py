"""Run summaries on frames of PySpark, in its workers. Results that are as long as the data stay there."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput, StoreFailed
from buildframe.metrics import job_ends
from buildframe.metrics.columns import DAY_LENGTH, require_columns
from buildframe.metrics.durations import BLOCKED, SPANS, RowMetric
from buildframe.metrics.engines import expressions, group_map
from buildframe.metrics.engines.dtypes import check_zones, micros_column, to_typed_pandas, typed_columns
from buildframe.metrics.engines.ranks import CountingEngine
from buildframe.metrics.engines.rows import Frame, FrameFunction, GroupedRows, Rows

_UTC = re.compile(r"(Etc/)?(UTC|GMT|UCT|Zulu)|Z|[+-]00:?00", re.IGNORECASE)
_BAD_INPUT = re.compile(r"buildframe\.errors\.BadInput: (.*)")
_MISSING_FILE = re.compile(r"FAILED_READ_FILE\.FILE_NOT_EXIST\][^\n]*? file (.+?)\. ")

_RECORDED_END = "finished_at as recorded"
_MAX_BROADCAST = 2_000_000
"""Rows that are collected to be broadcast. Two million ids of builds fit into Spark's default heap of 1 GiB."""


class SparkEngine(CountingEngine):
    """Engine for PySpark, connected or not."""

    def read(self, frame: Frame) -> Rows:
        rows = super().read(frame)
        check_session(frame.sparkSession)
        if duplicates := sorted({name for name in frame.columns if frame.columns.count(name) > 1}):
            raise BadInput(
                f"Two columns of the frame are called {duplicates[0]!r}, as after a join. Rename or drop one."
            )
        return rows

    def to_arrow(self, rows: Rows) -> pa.Table:
        return collect_table(rows.to_native())

    def check_names(self, names: Iterable[str]) -> None:
        for name in names:
            if "." in name or "`" in name:
                raise BadInput(
                    f"The column {name!r} has a dot or a backtick in its name, which Spark reads as a field of "
                    f"another. Rename it: frame.withColumnRenamed({name!r}, {re.sub('[.`]', '_', name)!r})."
                )

    def join_nulls_equal(self, rows: Rows, others: Rows, names: Mapping[str, str]) -> Rows:
        from pyspark.sql import functions

        pairs = ((functions.col(f"`{name}`"), functions.col(f"`{other}`")) for name, other in names.items())
        return self.read(rows.to_native().join(others.to_native(), on=[one.eqNullSafe(other) for one, other in pairs]))

    def bring(self, rows: Rows, small: pd.DataFrame) -> Rows:
        table = pa.Table.from_pandas(small, preserve_index=False)
        return self.read(_broadcast(rows.to_native().sparkSession, table))

    def gather(self, rows: GroupedRows, n_keys: int) -> GroupedRows:
        """Shuffle once for all groups of the keys, as most groups have one row."""
        return replace(rows, frame=self.read(rows.frame.to_native().repartition(*rows.by[:n_keys])))

    def run_first(self, rows: Rows) -> Rows:
        """Broadcast few rows, so that the many are not shuffled."""
        table = collect_table(rows.head(_MAX_BROADCAST + 1).to_native())
        if table.num_rows > _MAX_BROADCAST:
            return rows
        return self.read(_broadcast(rows.to_native().sparkSession, table))

    def merge_equal(self, rows: Rows, names: Sequence[str]) -> Rows:
        """Group by texts, because Spark sorts all rows to find the least text of a group.

        Rows that are equal in the first column are then in one partition, which later groupings by it use.
        """
        others = [name for name in rows.columns if name not in names]
        merged = rows.group_by(*names).agg(nw.col(*others).min())
        return self.read(merged.to_native().repartition(names[0]))

    def with_micros(self, rows: Rows, names: Sequence[str]) -> Rows:
        from pyspark.sql import functions

        check_zones(rows, names)
        added = {micros_column(name): functions.unix_micros(functions.col(f"`{name}`")) for name in names}
        return self.read(rows.to_native().withColumns(added))

    def deliver(self, rows: GroupedRows, names: Sequence[str], texts: Mapping[str, Sequence[str]]) -> Frame:
        keys = {name: nw.col(key) for name, key in zip(rows.names, rows.by, strict=True)}
        results = {name: _choose_text(name, texts[name]) if name in texts else nw.col(name) for name in names}
        return rows.frame.select(**keys, **results).to_native()

    def map_whole_groups(self, rows: Rows, by: Sequence[str], of: FrameFunction) -> pd.DataFrame:
        return to_typed_pandas(collect_table(_map_lazily(rows, by, of)))

    def map_values(
        self, frame: Frame, needs: Sequence[str], by: str, of: Callable[[pd.DataFrame], pd.Series[Any]]
    ) -> Any:
        return _map_lazily(self.select_columns(frame, [by, *needs]), [by], functools.partial(_in_seconds, by, of))

    def with_durations(self, frame: Frame, metrics: Sequence[RowMetric], created: str, *, of_jobs: bool) -> Frame:
        """Compute durations and days in Spark. Fetched and stored jobs have their steps, which need whole builds."""
        rows = self.read(frame)
        schema = rows.collect_schema()
        spans = {of.__name__: SPANS[of] for of in metrics}
        stamps = sorted({stamp for span in spans.values() for stamp in (span.start, span.end)})
        needs = [*stamps, *(("build_created_at", "type", "step") if of_jobs else ())]
        require_columns(schema, needs)
        wants = [name for name in (job_ends.COLUMNS if of_jobs else BLOCKED) if name in schema]
        typed_rows = rows.with_columns(*typed_columns(schema, dict.fromkeys([*needs, *wants])))
        typed_rows = typed_rows.with_columns(**{_RECORDED_END: nw.col("finished_at")})
        if of_jobs:
            typed_rows = typed_rows.with_columns(finished_at=job_ends.ended_at(wants))
        seconds = {f"{name}_s": expressions.seconds_of(span, schema) for name, span in spans.items()}
        measured = self.with_micros(typed_rows, stamps).with_columns(**seconds, finished_at=nw.col(_RECORDED_END))
        native = measured.drop(_RECORDED_END, *map(micros_column, stamps)).to_native()
        return native.withColumns({"day": _utc_day(created)})


def check_session(session: Any) -> None:
    """Raise BadInput unless the session's time zone is UTC; otherwise days and texts of times would follow its zone."""
    zone = session.conf.get("spark.sql.session.timeZone")
    if not _UTC.fullmatch(zone):
        raise BadInput(
            f"The Spark session's time zone is {zone!r}, so its days would differ from those in the store. "
            'Use session.conf.set("spark.sql.session.timeZone", "UTC").'
        )


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


def _broadcast(session: Any, table: pa.Table) -> Any:
    """Create a small frame in the session and broadcast it to each worker."""
    from pyspark.sql import functions

    return functions.broadcast(session.createDataFrame(table))


def _choose_text(name: str, texts: Sequence[str]) -> nw.Expr:
    text = nw.lit(str(texts[0]))
    for i, own in enumerate(texts[1:], 1):
        text = nw.when(nw.col(name) == i).then(nw.lit(str(own))).otherwise(text)
    return text


def _map_lazily(rows: Rows, by: Sequence[str], of: FrameFunction) -> Any:
    """Apply `of` to each partition, with equal rows together, as a lazy frame of PySpark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    empty = rows.collect_schema().to_arrow().empty_table()
    schema = pa.Schema.from_pandas(of(to_typed_pandas(empty)), preserve_index=False).remove_metadata()
    names = [f"`{name}`" for name in by]
    partitions = rows.to_native().repartition(*names).sortWithinPartitions(*names)
    return partitions.mapInArrow(functools.partial(group_map.map_to_arrow, by, of, schema), from_arrow_schema(schema))


def _in_seconds(by: str, of: Callable[[pd.DataFrame], pd.Series[Any]], table: pd.DataFrame) -> pd.DataFrame:
    result = of(table)
    if pd.api.types.is_timedelta64_dtype(result.dtype):
        result = result.dt.total_seconds().rename(f"{result.name}_s")
    return result.reset_index().astype({by: "str"})


def _utc_day(name: str) -> Any:
    """Return the UTC days of timestamps independently of the session's zone, which Spark Connect reads later."""
    from pyspark.sql import functions

    ticks = f"unix_micros(`{name}`)"
    return functions.expr(f"date_from_unix_date(int(({ticks} - pmod({ticks}, {DAY_LENGTH})) div {DAY_LENGTH}))")
