"""Run summaries as queries, for engines that plan before they read. Knows narwhals, no single engine."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.metrics.columns import column, require_columns, timestamps
from buildframe.metrics.durations import NEVER_RUNNABLE, RowMetric, Span, span_of
from buildframe.metrics.engines import attribution, expressions, running_sums
from buildframe.metrics.engines.dtypes import check_zones, micros_column, to_typed_pandas, typed_columns
from buildframe.metrics.engines.pandas import with_texts
from buildframe.metrics.engines.protocol import (
    AT,
    BALANCE,
    COUNT,
    GROUP,
    Engine,
    Floats,
    Frame,
    FrameCoverage,
    FrameFunction,
    GroupedRows,
    GroupSums,
    Integers,
    IntervalKind,
    Levels,
    NestedGroups,
    Rows,
    TimeWindow,
)
from buildframe.metrics.grouping import By, Key, as_key_list, check_distinct_names, find_groups, join_keys

_OTHERS = "{} of the other"


class LazyEngine(Engine):
    """Shared part of the engines that run queries. Subclasses add what narwhals does not cover."""

    # What an engine adds

    @abstractmethod
    def join_nulls_equal(self, rows: Rows, others: Rows, names: Mapping[str, str]) -> Rows:
        """Join rows with others on pairs of columns, null equal to null."""

    @abstractmethod
    def bring(self, rows: Rows, small: pd.DataFrame) -> Rows:
        """Move a small frame into the engine of the rows."""

    def read(self, frame: Frame) -> Rows:
        """Return the rows of a frame for narwhals."""
        rows: Rows = nw.from_native(frame).lazy()
        return rows

    def to_arrow(self, rows: Rows) -> pa.Table:
        """Run the query."""
        return rows.collect().to_arrow()

    def check_names(self, names: Iterable[str]) -> None:
        """Raise BadInput for a column's name that the engine would read as something else."""

    # Columns

    def column_names(self, frame: Frame) -> list[str]:
        return self.read(frame).collect_schema().names()

    def select_columns(self, frame: Frame, needs: Sequence[str], wants: Sequence[str] = ()) -> Rows:
        rows = self.read(frame)
        schema = rows.collect_schema()
        require_columns(schema, needs)
        return rows.select(*typed_columns(schema, [*needs, *(name for name in wants if name in schema)]))

    def collect(self, rows: Rows) -> pd.DataFrame:
        return to_typed_pandas(self.to_arrow(rows))

    def combinations(self, rows: Rows, names: Sequence[str]) -> pd.DataFrame:
        return self.collect(rows.select(*names).unique())

    def with_micros(self, rows: Rows, names: Sequence[str]) -> Rows:
        check_zones(rows, names)
        return rows.with_columns(
            nw.col(name).dt.timestamp("us").alias(micros_column(name)) for name in dict.fromkeys(names)
        )

    def time_ranges(self, rows: Rows, names: Sequence[str]) -> list[tuple[Any, Any]]:
        check_zones(rows, names)
        ends = {f"{end} {name}": getattr(nw.col(name), end)() for name in names for end in ("min", "max")}
        limits = self.collect(rows.select(**ends))
        return [(timestamps(limits, f"min {name}")[0], timestamps(limits, f"max {name}")[0]) for name in names]

    def with_durations(self, frame: Frame, metrics: Sequence[RowMetric], created: str, *, of_jobs: bool) -> Frame:
        return column(frame, created)  # raises BadInput: only pandas and PySpark can compute steps

    # Groups

    def group_rows(
        self, frame: Frame, needs: Collection[str], by: By = None, wants: Collection[str] = (), **more: Any
    ) -> GroupedRows:
        rows = self.read(frame)
        schema = rows.collect_schema()  # DuckDB runs a query for it
        names = [key if isinstance(key, str) else getattr(key, "__name__", "group") for key in as_key_list(by)]
        check_distinct_names(names)
        require_columns(schema, [*needs, *names])
        self.check_names([*needs, *names])
        for name in names:
            if schema[name].is_nested():
                raise BadInput(f"The column {name!r} cannot be grouped by: it holds {schema[name]}.")
        keys = {f"{GROUP} {i}": key for i, key in enumerate(typed_columns(schema, names))} or {GROUP: nw.lit(0)}
        selected = typed_columns(schema, [*needs, *(name for name in wants if name in schema)])
        return GroupedRows(self, rows.select(*selected, **keys, **more), list(keys), names)

    def measure(self, frame: Frame, of: RowMetric | str, by: By = None, needs: tuple[str, ...] = ()) -> GroupedRows:
        rows, span = self.read(frame), span_of(of)
        schema = rows.collect_schema()
        name = of if isinstance(of, str) else f"{getattr(of, '__name__', 'of')}_s"
        if name in schema or span is None or isinstance(of, str):
            require_columns(schema, [name])
            self.check_names([name])
            value = expressions.stored_seconds(name, schema[name])
            value = value if span is None else expressions.unless_blocked(value, span, schema)
        else:
            require_columns(schema, span.needs)
            frame = self.with_micros(rows, (span.start, span.end)).to_native()
            value = expressions.seconds_of(span, schema)
        if span is None or (isinstance(of, str) and not set(span.needs) <= set(schema)):
            return self.group_rows(frame, needs, by, value=value)
        grouped = self.group_rows(frame, (*needs, *span.needs), by, span.wants, value=value)
        grouped = grouped.with_columns(censored=_censored(span, schema))
        return self.filter_groups(grouped, expressions.is_script()) if span.scripts_only else grouped

    def filter_groups(self, rows: GroupedRows, chosen: nw.Expr) -> GroupedRows:
        return replace(rows, frame=rows.frame.filter(chosen))

    def nested_groups(self, frame: Frame, needs: Collection[str], levels: Sequence[Sequence[Key]]) -> NestedGroups:
        rows = self.group_rows(frame, needs, [key for keys in levels for key in keys])
        sizes = np.cumsum([len(keys) for keys in levels])
        return NestedGroups(rows, [rows.by[:size] for size in reversed(sizes)], {}, rows.names[: sizes[0]])

    def deliver(
        self, groups: NestedGroups, rows: Rows, names: Sequence[str], texts: Mapping[str, Sequence[str]]
    ) -> Frame:
        by = groups.by[0]
        result = self.collect(rows.sort(by, nulls_last=True)).reset_index(drop=True)
        return join_keys(result[by].set_axis(groups.rows.names, axis=1), with_texts(result[[*names]], texts))

    def group_sums(self, rows: GroupedRows, **counts: nw.Expr) -> GroupSums:
        sums = {name: count.cast(nw.Int64).sum().cast(nw.Int64) for name, count in counts.items()}  # DuckDB's: decimals
        table = self.to_arrow(rows.frame.group_by(*rows.by).agg(**sums))
        table = table.sort_by([(name, "ascending") for name in rows.by])
        groups, summed = (to_typed_pandas(table.select(names)) for names in (rows.by, list(counts)))
        keys = groups.set_axis(rows.names, axis=1) if rows.names else pd.DataFrame(index=groups.index)
        return GroupSums(keys, groups, summed.fillna(0))

    def number_groups(self, rows: GroupedRows, *names: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        table = self.collect(rows.frame.select(*rows.by, *names))
        codes, keys = find_groups(table, rows.by)
        return table.assign(**{GROUP: codes}), keys.set_axis(rows.names, axis=1) if rows.names else keys[[]]

    def with_group_values(
        self, rows: GroupedRows, groups: pd.DataFrame, values: Mapping[str, Floats | Integers]
    ) -> GroupedRows:
        small = self.bring(rows.frame, groups.assign(**values))
        return replace(rows, frame=self._joined(rows.frame, small, rows.by))

    def _joined(self, rows: Rows, others: Rows, on: Sequence[str]) -> Rows:
        names = {name: _OTHERS.format(name) for name in on}
        return self.join_nulls_equal(rows, others.rename(names), names).drop(*names.values(), strict=False)

    def map_groups(self, rows: GroupedRows, names: Sequence[str], of: FrameFunction) -> pd.DataFrame:
        of_groups = functools.partial(_with_keys, rows.by, of)
        result = self.map_whole_groups(rows.frame.select(*rows.by, *names), rows.by, of_groups)
        result = result.sort_values(rows.by, kind="stable", ignore_index=True)
        keys = result[rows.by].set_axis(rows.names, axis=1) if rows.names else result[[]]
        return join_keys(keys, result.drop(columns=rows.by))

    # Time

    def with_bucket_numbers(self, rows: Rows, at: str, edges: Integers, name: str = GROUP) -> Rows:
        number = bucket_number(nw.col(micros_column(at)), edges, _when)
        return self.with_micros(rows, [at]).with_columns(number.alias(name))

    def count_by_bucket(self, rows: GroupedRows, at: Mapping[str, str], edges: Integers) -> GroupSums:
        each = [
            self._bucket_numbers(rows.frame, stamp, edges, {name: int(name == own) for name in at})
            for own, stamp in at.items()
        ]
        together = replace(rows, frame=nw.concat(each), by=[GROUP])
        return self.group_sums(together, **{name: nw.col(name) for name in at})

    def _bucket_numbers(self, rows: Rows, at: str, edges: Integers, constants: Mapping[str, int]) -> Rows:
        """Return the number of the bucket of each row that has this time, and constants."""
        numbered = self.with_bucket_numbers(rows.filter(~nw.col(at).is_null()), at, edges)
        return numbered.select(GROUP, **{name: nw.lit(one) for name, one in constants.items()})

    def intervals(self, frame: Frame, by: By, kind: IntervalKind) -> GroupedRows:
        return running_sums.intervals(self, frame, by, kind)

    def coverage(self, intervals: GroupedRows) -> FrameCoverage:
        limits = self.to_arrow(running_sums.limits(intervals))
        return FrameCoverage(*(column[0].as_py() for column in limits.columns))

    def levels(self, intervals: GroupedRows, window: TimeWindow) -> Levels:
        return running_sums.levels(intervals, window)

    def agent_sums(self, frame: Frame, by: By) -> GroupSums:
        return running_sums.agent_sums(self, frame, by)

    def clearest_changes(self, rows: GroupedRows) -> pd.DataFrame:
        by, columns = rows.by, [AT, BALANCE, COUNT]
        times = self._balanced(rows).group_by(*by, AT).agg(nw.col(BALANCE).sum().cast(nw.Int64), nw.len().alias(COUNT))
        cumulative = [nw.col(name).cum_sum().over(*by, order_by=AT).cast(nw.Int64) for name in (BALANCE, COUNT)]
        after = nw.col(AT).shift(-1).over(*by, order_by=AT)
        changes = times.with_columns(*cumulative, after.alias(AT)).filter(~nw.col(AT).is_null())
        changes = changes.with_columns(nw.col(BALANCE).abs())
        clearest = changes.filter(nw.col(BALANCE) == nw.col(BALANCE).max().over(*by))
        return self.collect(clearest.group_by(*by).agg(nw.col(*columns).min())).astype(dict.fromkeys(columns, "Int64"))

    def _balanced(self, rows: GroupedRows) -> Rows:
        """Add to each row the number of smaller values of its group minus the number of larger ones."""
        by = rows.by
        values = rows.frame.group_by(*by, "value").agg(nw.len().cast(nw.Int64).alias(COUNT))
        cumulative = nw.col(COUNT).cum_sum().over(*by, order_by="value").cast(nw.Int64)
        more = nw.col(COUNT).sum().over(*by).cast(nw.Int64) - cumulative
        balances = values.select(*by, "value", (cumulative - nw.col(COUNT) - more).alias(BALANCE))
        return self._joined(rows.frame, balances, [*by, "value"])

    def attribute_run_time(self, jobs: Frame, by: By) -> GroupedRows:
        return attribution.attribute_run_time(self, jobs, by)


def bucket_number(time: Any, edges: Integers, either: Callable[[Any, Any, Any], Any]) -> Any:
    """Express the number of a time's bucket, with a branch for each run of buckets of equal length."""
    if not len(edges):  # no time is known
        return time
    widths = np.diff(edges)
    number = _in_run(time, edges, widths, 0)
    for start in (np.flatnonzero(np.diff(widths)) + 1).tolist():
        number = either(time >= int(edges[start]), _in_run(time, edges, widths, start), number)
    return number


def _in_run(time: Any, edges: Integers, widths: Integers, start: int) -> Any:
    return (time - int(edges[start])) // int(widths[start]) + start


def _when(condition: nw.Expr, one: nw.Expr, other: nw.Expr) -> nw.Expr:
    return nw.when(condition).then(one).otherwise(other)


def _with_keys(by: Sequence[str], of: FrameFunction, rows: pd.DataFrame) -> pd.DataFrame:
    codes, keys = find_groups(rows, list(by))
    result = of(rows.assign(**{GROUP: codes}))
    return join_keys(keys.take(result.pop(GROUP).to_numpy(np.int64)).reset_index(drop=True), result)


def _censored(span: Span, available: Collection[str]) -> nw.Expr:
    """Return whether a row began and was not seen to end: still under way when fetched, or canceled before.

    A blocked build is censored even if it has an end. For `dependency_wait`, rows that can never become runnable
    (broken, skipped) are not.
    """
    has_no_end = nw.col(span.end).is_null()
    if span.unless_blocked:
        has_no_end |= expressions.is_blocked(available)
    open_ended = ~nw.col(span.start).is_null() & has_no_end
    if span.end == "runnable_at" and "state" in available:
        open_ended &= ~nw.col("state").is_in(NEVER_RUNNABLE).fill_null(False)
    return open_ended & expressions.is_script() if span.scripts_only else open_ended
