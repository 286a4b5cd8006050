"""The operations that summaries ask of an engine.

`Engine` implements them by queries of narwhals. A class for each engine adds what narwhals lacks, and replaces what the
engine does better: pandas most of it, in numpy. All give equal results. A summary works on any engine through these
operations and never asks which one it has.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.metrics import failure_causes, job_ends
from buildframe.metrics.columns import Floats, Integers, check_are_builds, column, require_columns, timestamps
from buildframe.metrics.durations import RowMetric, Span, check_column_of, span_of
from buildframe.metrics.engines import attribution, expressions, storms
from buildframe.metrics.engines.dtypes import (
    check_zones,
    concat_aligned,
    micros_column,
    to_typed_pandas,
    typed_columns,
    with_texts,
)
from buildframe.metrics.engines.group_map import with_keys
from buildframe.metrics.engines.intervals import (
    AT,
    IS_KNOWN,
    LEVEL,
    FrameCoverage,
    IntervalKind,
    TimeWindow,
    query_levels,
)
from buildframe.metrics.engines.normal_scores import with_normal_scores
from buildframe.metrics.engines.rows import (
    GROUP,
    PLACE,
    ROWS,
    SEEN_FOR,
    Days,
    Frame,
    FrameFunction,
    GroupedRows,
    GroupSums,
    RankedFunction,
    RankedRows,
    RankedValues,
    Rows,
    SplitBy,
)
from buildframe.metrics.grouping import By, Key, as_key_list, check_distinct_names, find_groups, join_keys


class Engine(ABC):
    """What a summary can ask for, implemented by queries. Engines keep no state.

    Rows are narwhals frames: lazy in engines that plan queries. Results of groups are ordered by key, null keys last.
    """

    # What narwhals lacks

    @abstractmethod
    def join_nulls_equal(self, rows: Rows, others: Rows, names: Mapping[str, str]) -> Rows:
        """Join rows with others on pairs of columns, null equal to null."""

    @abstractmethod
    def bring(self, rows: Rows, small: pd.DataFrame) -> Rows:
        """Move a small frame into the engine of the rows."""

    @abstractmethod
    def rank_rows(self, rows: GroupedRows, counts: GroupSums, span: Span | None, at: SplitBy) -> RankedRows:
        """Rank the entries of `value` in each group; `counts` are those of `count_values`.

        With a `span`, censored rows are counted, too. `at` is by what rows can be split.
        """

    def read(self, frame: Frame) -> Rows:
        """Return the rows of a frame for narwhals."""
        rows: Rows = nw.from_native(frame).lazy()
        return rows

    def to_arrow(self, rows: Rows) -> pa.Table:
        """Run the query."""
        return rows.collect().to_arrow()

    def check_names(self, names: Iterable[str]) -> None:  # noqa: B027
        """Raise BadInput for a column's name that the engine would read as something else."""

    # Columns

    def column_names(self, frame: Frame) -> list[str]:
        """Return the names of the columns."""
        return self.read(frame).columns

    def select_columns(self, frame: Frame, needs: Sequence[str], wants: Sequence[str] = ()) -> Rows:
        """Select columns with their dtypes when fetched: all of `needs`, and those of `wants` that exist."""
        rows = self.read(frame)
        schema = rows.collect_schema()
        require_columns(schema, needs)
        return rows.select(*typed_columns(schema, [*needs, *(name for name in wants if name in schema)]))

    def collect(self, rows: Rows) -> pd.DataFrame:
        """Return rows as pandas with the dtypes of fetched frames."""
        return to_typed_pandas(self.to_arrow(rows))

    def collect_columns(self, frame: Frame, needs: Sequence[str], wants: Sequence[str] = ()) -> pd.DataFrame:
        """Return the columns that `select_columns` selects as pandas."""
        return self.collect(self.select_columns(frame, needs, wants))

    def with_steps(self, jobs: Frame) -> Frame:
        """Add the column `step` if it is missing; only pandas can, since it takes whole builds."""
        require_columns(self.column_names(jobs), ["step"])
        return jobs

    def with_ends(self, jobs: Frame) -> Frame:
        """Replace `finished_at` of jobs by when they ended, and add `job_ends.IS_OVER` and `job_ends.SEEN_UNTIL`."""
        rows = self.read(jobs)
        schema = rows.collect_schema()
        names = [name for name in job_ends.COLUMNS if name in schema]
        if not {*names} & {*job_ends.STAMPS}:
            return jobs
        added = {job_ends.IS_OVER: job_ends.is_over(names), job_ends.SEEN_UNTIL: job_ends.seen_until(names)}
        if "finished_at" in names:
            added["finished_at"] = job_ends.ended_at(names)
        return rows.with_columns(*typed_columns(schema, names)).with_columns(**added).to_native()

    def with_queue_identities(self, jobs: Frame) -> Frame:
        """Replace `queue` by what separates queues: the id, or the key if there is no id."""
        rows = self.read(jobs)
        if "queue_id" not in rows.collect_schema():
            return jobs
        return rows.with_columns(queue=nw.coalesce(nw.col("queue_id"), nw.col("queue"))).to_native()

    def with_key_column(self, frame: Frame, key: Key) -> tuple[Frame, str]:
        """Return a frame with a column for a key, and its name."""
        name = key if isinstance(key, str) else getattr(key, "__name__", "group")
        require_columns(self.column_names(frame), [name])  # only pandas computes keys
        self.check_names([name])
        return frame, name

    def append(self, rows: Rows, others: Rows) -> Frame:
        """Return both in one frame; columns that only one of them has are null in the other."""
        return concat_aligned(rows, others).to_native()

    def combinations(self, rows: Rows, names: Sequence[str]) -> pd.DataFrame:
        """Return each combination of values of these columns at least once."""
        counts = rows.group_by(*names).agg(nw.len().alias(ROWS))  # `unique` numbers all rows in DuckDB
        return self.collect(counts.select(*names))

    def encode_texts(self, frame: Frame, names: Sequence[str], usual: Sequence[str]) -> tuple[Frame, dict[str, Any]]:
        """Return a frame whose columns are encoded if that makes flags faster, and at least the values not `usual`."""
        is_unusual = nw.any_horizontal(*(~expressions.is_any_of(name, *usual) for name in names), ignore_nulls=False)
        values = self.combinations(self.select_columns(frame, names).filter(is_unusual), names)
        return frame, {name: values[name].unique().tolist() for name in names}

    def with_micros(self, rows: Rows, names: Sequence[str]) -> Rows:
        """Add timestamps as whole microseconds: engines differ in what a difference of timestamps is."""
        check_zones(rows, names)
        return rows.with_columns(
            nw.col(name).dt.timestamp("us").alias(micros_column(name)) for name in dict.fromkeys(names)
        )

    def time_ranges(self, rows: Rows, names: Sequence[str]) -> list[tuple[Any, Any]]:
        """Return the first and the last timestamp of each column; NaT if there is none."""
        check_zones(rows, names)
        ends = {f"{end} {name}": getattr(nw.col(name), end)() for name in names for end in ("min", "max")}
        limits = self.collect(rows.select(**ends))
        return [(timestamps(limits, f"min {name}")[0], timestamps(limits, f"max {name}")[0]) for name in names]

    def with_durations(self, frame: Frame, metrics: Sequence[RowMetric], created: str, *, of_jobs: bool) -> Frame:
        """Add the seconds of row metrics, the day of `created`, and for jobs the step."""
        return column(frame, created)  # raises BadInput: only pandas and PySpark can compute these

    # Groups

    def group_rows(
        self, frame: Frame, needs: Collection[str], by: By = None, wants: Collection[str] = (), **more: Any
    ) -> GroupedRows:
        """Return the columns that a summary needs, those of `wants` that exist, and `more`, grouped by keys.

        `more` are a Series or array in pandas, and an expression in lazy engines.
        """
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
        wanted = (name for name in wants if name in schema and name not in needs)
        selected = typed_columns(schema, [*needs, *wanted])
        return GroupedRows(self, rows.select(*selected, **keys, **more), list(keys), names)

    def measure(self, frame: Frame, of: RowMetric | str, by: By = None, needs: tuple[str, ...] = ()) -> GroupedRows:
        """Return rows with `value` (float64 seconds or null) and, if known, `censored`: not seen to end.

        Censoring is unknown for custom metrics and columns, and without the timestamps. For a metric of script jobs
        only their rows remain, so the null queue of a trigger job is no group.
        """
        span, available = span_of(of), self.column_names(frame)
        check_column_of(of, available)
        if span is not None and not span.is_of_builds:
            frame = self.with_ends(frame)
        frame, value = self.measure_rows(frame, of, span)
        if span is None or (isinstance(of, str) and not set(span.needs) <= set(available)):
            return self.group_rows(frame, needs, by, value=value)
        grouped = self.group_rows(
            frame, [*dict.fromkeys((*needs, *span.needs))], by, (*span.wants, *span.seen), value=value
        )
        grouped = grouped.with_columns(censored=expressions.is_censored(span, available))
        if not span.scripts_only:
            return grouped
        names = ("value", "censored", *needs, span.start, *span.seen)
        used = [name for name in names if name in grouped.frame.columns]
        return self.filter_groups(grouped, expressions.IS_SCRIPT, used)

    def measure_rows(self, frame: Frame, of: RowMetric | str, span: Span | None) -> tuple[Frame, Any]:
        """Return a frame, and the seconds of its rows for `group_rows`; a stored column is read, if there is one."""
        rows = self.read(frame)
        schema = rows.collect_schema()
        if span is not None and span.unless_blocked:
            check_are_builds(schema.names(), "wall_time")
        name = of if isinstance(of, str) else f"{getattr(of, '__name__', 'of')}_s"
        if name in schema or span is None or isinstance(of, str):
            require_columns(schema, [name])
            self.check_names([name])
            value = expressions.stored_seconds(name, schema[name])
            return frame, value if span is None else expressions.unless_blocked(value, span, schema)
        require_columns(schema, span.needs)
        return self.with_micros(rows, (span.start, span.end)).to_native(), expressions.seconds_of(span, schema)

    def filter_groups(self, rows: GroupedRows, chosen: nw.Expr, names: Iterable[str] = ()) -> GroupedRows:
        """Return the chosen rows with these columns, by default all, and only the groups that have some of them."""
        filtered = replace(rows, frame=rows.frame.filter(chosen), source=rows.frame)
        return filtered.select(*dict.fromkeys(names)) if names else filtered

    def nested_groups(self, frame: Frame, needs: Collection[str], levels: Sequence[Sequence[Key]]) -> GroupedRows:
        """Return rows grouped by the keys of all levels, coarsest first, for `without_level`."""
        return self.group_rows(frame, needs, [key for keys in levels for key in keys])

    def encode_keys(self, rows: GroupedRows) -> GroupedRows:
        """Return rows whose texts in keys are encoded if the engine groups them faster then; results have texts."""
        return rows

    def gather(self, rows: GroupedRows, n_keys: int) -> GroupedRows:
        """Return rows that are grouped by these first keys and more, then by these alone, and by fewer at last."""
        return rows

    def without_level(self, rows: GroupedRows, level: Sequence[Key]) -> GroupedRows:
        """Return rows of nested groups grouped without the keys of their finest level."""
        return replace(rows, by=rows.by[: -len(level)], names=rows.names[: -len(level)])

    def split_groups(self, rows: GroupedRows, part: str, size: int) -> GroupedRows:
        """Group rows by a column of numbers within their groups too; rows without a number below `size` are dropped."""
        names = [*rows.names, part]
        kept = rows.frame.filter(nw.col(part) < size)
        return replace(rows, frame=kept, by=[*rows.by[: len(rows.names)], part], names=names)

    def deliver(self, rows: GroupedRows, names: Sequence[str], texts: Mapping[str, Sequence[str]]) -> Frame:
        """Return results of groups that are as long as the data: pandas, or a lazy frame of PySpark.

        `names` are columns of the results. Those in `texts` hold indices of texts, which replace them.
        """
        result = self.collect(rows.frame.sort(rows.by, nulls_last=True)).reset_index(drop=True)
        return join_keys(rows.name_keys(result), with_texts(result[[*names]], texts))

    def group_sums(self, rows: GroupedRows, **counts: nw.Expr) -> GroupSums:
        """Sum flags or whole numbers in each group."""
        table = self._sum_by(rows.frame, rows.by, counts)
        table = table.sort_by([(name, "ascending") for name in rows.by])
        groups, summed = (to_typed_pandas(table.select(names)) for names in (rows.by, list(counts)))
        return GroupSums(rows.name_keys(groups), groups, summed.fillna(0))

    def _sum_by(self, rows: Rows, names: list[str], counts: Mapping[str, nw.Expr]) -> pa.Table:
        sums = {name: count.cast(nw.Int64).sum().cast(nw.Int64) for name, count in counts.items()}  # DuckDB's: decimals
        return self.to_arrow(rows.group_by(*names).agg(**sums))

    def _sum_flags(self, flags: nw.Expr) -> nw.Expr:
        return flags.sum().cast(nw.Int64)

    def part_sums(self, rows: GroupedRows, part: str, size: int, **counts: nw.Expr) -> tuple[GroupSums, pd.DataFrame]:
        """Sum flags in each group, and in each part of it: for each value of a column from 0 to size - 1.

        Of parts, returns those that have rows, with the place of their group (`PLACE`) and the value, `size` if null.
        """
        each = {name: self._sum_flags(count) for name, count in counts.items()}
        table = self.to_arrow(rows.frame.group_by(*rows.by, part).agg(**each))
        codes, groups = find_groups(to_typed_pandas(table.select(rows.by)), rows.by)
        numbers: pd.DataFrame = table.drop_columns(rows.by).to_pandas()  # plain ones, which take less time
        parts = {name: numbers[name].fillna(0).to_numpy(np.int64) for name in counts}
        of_groups = {name: np.bincount(codes, own, len(groups)).astype(np.int64) for name, own in parts.items()}
        sums = GroupSums(rows.name_keys(groups), groups, pd.DataFrame(of_groups, groups.index, dtype="Int64"))
        values = {PLACE: codes, part: numbers[part].fillna(size).to_numpy(np.int64)}
        return sums, pd.DataFrame(parts | values)

    def count_values(self, rows: GroupedRows, span: Span | None, at: SplitBy) -> GroupSums:
        """Count values (`n`), negative ones and, with a `span`, censored rows in each group, to rank them."""
        value = nw.col("value")
        censored = {} if span is None else {"n_censored": nw.col("censored")}
        return self.group_sums(rows, n=~value.is_null(), n_negative=value < 0, **censored)

    def map_ranked(
        self, rows: GroupedRows, counts: GroupSums, of: RankedFunction, span: Span | None = None, at: SplitBy = None
    ) -> Floats:
        """Apply `of` to ranked rows: all, or if there are many groups some at a time; places are those in `counts`."""
        return of(self.rank_rows(rows, counts, span, at), np.arange(len(counts.groups)))

    def rank_values(self, rows: GroupedRows, counts: GroupSums) -> RankedValues:
        """Rank the entries of `value` in each group, for several calls."""
        return self.rank_rows(rows, counts, None, None)

    def ranking_columns(self, rows: GroupedRows, span: Span | None, at: SplitBy) -> Rows:
        """Return the columns that ranking needs: those of groups, `value`, `AT` to split rows, and `SEEN_FOR`.

        `span` is that of `value` if some rows were censored: for these, `SEEN_FOR` has seconds, if known.
        """
        names = rows.frame.columns
        stamps = [at] if isinstance(at, str) else []
        columns = {} if at is None else {AT: nw.col(at.column if isinstance(at, Days) else micros_column(at))}
        if span is not None:
            stamps += [name for name in (span.start, *span.seen) if name in names and name not in stamps]
            unseen = nw.col("censored") & nw.col("value").is_null()
            columns |= {
                SEEN_FOR: nw.when(unseen).then(expressions.seen_seconds(span, names)),
                "censored": nw.col("censored"),
            }
        return self.with_micros(rows.frame, stamps).select(*rows.by, "value", **columns)

    def number_groups(self, rows: GroupedRows, *names: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return columns as pandas with the number of each row's group (`GROUP`), and the keys of the groups."""
        table = self.collect(rows.frame.select(*rows.by, *names))
        codes, keys = find_groups(table, rows.by)
        return table.assign(**{GROUP: codes}), rows.name_keys(keys)

    def with_group_values(
        self, rows: GroupedRows, groups: pd.DataFrame, values: Mapping[str, Floats | Integers]
    ) -> GroupedRows:
        """Add columns with the values of each row's group; rows of other groups are dropped.

        `groups` are rows of `GroupSums.groups`, and the values are in their order.
        """
        small = self.bring(rows.frame, groups.assign(**values))
        return replace(rows, frame=self._joined(rows.frame, small, rows.by))

    def _joined(self, rows: Rows, others: Rows, on: Sequence[str]) -> Rows:
        names = {name: f"{name} of the other" for name in on}
        return self.join_nulls_equal(rows, others.rename(names), names).drop(*names.values(), strict=False)

    def run_first(self, rows: Rows) -> Rows:
        """Return rows that are joined to many others; an engine may run their query first, if that joins faster."""
        return rows

    def merge_equal(self, rows: Rows, names: Sequence[str]) -> Rows:
        """Return rows of which those equal in these columns may be merged, with the least of each other column."""
        return rows

    def map_groups(self, rows: GroupedRows, names: Sequence[str], of: FrameFunction) -> pd.DataFrame:
        """Return group columns, and beside them the result of `of` for the columns `names`.

        `of` receives rows with the number of their group in the column `GROUP`. Its result has this column, too.
        """
        of_groups = functools.partial(with_keys, rows.by, of)
        result = self.map_whole_groups(rows.frame.select(*rows.by, *names), rows.by, of_groups)
        result = result.sort_values(rows.by, kind="stable", ignore_index=True)
        return join_keys(rows.name_keys(result), result.drop(columns=rows.by))

    def map_whole_groups(self, rows: Rows, by: Sequence[str], of: FrameFunction) -> pd.DataFrame:
        """Apply `of` to all rows, in no order; rows equal in the columns `by` are always in one call."""
        return of(self.collect(rows))

    def map_values(
        self, frame: Frame, needs: Sequence[str], by: str, of: Callable[[pd.DataFrame], pd.Series[Any]]
    ) -> Any:
        """Apply `of`, which returns a Series by the values of the column `by`, in their order.

        Rows with equal `by` are mostly adjacent already, such as the jobs of a build in a store's files. Returns a
        Series, or in PySpark a lazy frame with seconds in place of timedeltas.
        """
        return of(self.collect_columns(frame, [by, *needs]))

    # Time

    def with_bucket_numbers(self, rows: Rows, at: str, edges: Integers, name: str = GROUP) -> Rows:
        """Add the number of the bucket between `edges` (microseconds) of each row's time.

        Without a time it is null, or the number of buckets.
        """
        number = expressions.bucket_number(nw.col(micros_column(at)), edges)
        return self.with_micros(rows, [at]).with_columns(number.alias(name))

    def count_by_bucket(self, rows: GroupedRows, at: Mapping[str, str], edges: Integers) -> GroupSums:
        """Count the rows that have a time in each bucket; `at` maps names of counts to columns of times."""
        n_buckets = max(len(edges) - 1, 0)
        counts = {name: np.zeros(n_buckets, np.int64) for name in at}
        for name, stamp in at.items():
            numbered = self._bucket_numbers(rows.frame.filter(~nw.col(stamp).is_null()), stamp, edges)
            table = self.to_arrow(numbered.group_by(GROUP).agg(nw.len().cast(nw.Int64).alias(ROWS)))
            counts[name][table[GROUP].to_numpy()] = table[ROWS].to_numpy()
        return GroupSums.numbered(pd.DataFrame(index=range(n_buckets)), counts)

    def _bucket_numbers(self, rows: Rows, at: str, edges: Integers) -> Rows:
        """Return the number of the bucket of each row, all of which have this time."""
        return self.with_bucket_numbers(rows, at, edges).select(GROUP)

    def intervals(self, frame: Frame, by: By, kind: IntervalKind) -> tuple[GroupedRows, FrameCoverage]:
        """Return the intervals of jobs in groups, for `levels`, and which times the frame covers."""
        rows = self.group_rows(frame, [*kind.stamps, *(["type"] if kind.scripts_only else [])], by)
        begin, finish = nw.col(micros_column(kind.begins)), nw.coalesce(*map(micros_column, kind.ends))
        begin = nw.when(expressions.IS_SCRIPT).then(begin) if kind.scripts_only else begin
        rows = rows.with_micros(kind.stamps).with_columns(begin=begin, finish=finish)
        created, fetched = (nw.col(micros_column(name)) for name in ("build_created_at", "fetched_at"))
        lasting = nw.when(IS_KNOWN).then(nw.col("finish") - created)
        limits = rows.frame.select(latest=fetched.max(), first=created.min(), last=created.max(), lasting=lasting.max())
        return rows, FrameCoverage(*(column[0].as_py() for column in self.to_arrow(limits).columns))

    def levels(self, rows: GroupedRows, window: TimeWindow) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Count the intervals of each group that hold at once, at each change and at the limits of the window.

        Returns the keys of the groups, and beside them the time `AT` (microseconds) of each change, the number `LEVEL`
        from then on, and `n_negative`, how many intervals of the group end before they begin.
        """
        rows = replace(rows, frame=rows.frame.filter(IS_KNOWN)).select("begin", "finish")
        steps = self.collect(query_levels(rows.frame, rows.by, window).sort(*rows.by, AT, nulls_last=True))
        negative = self.group_sums(rows, n_negative=nw.col("finish") < nw.col("begin"))
        codes, groups = find_groups(steps, rows.by)
        counts = pd.concat([negative.groups, negative.sums], axis=1)
        of_steps = groups.merge(counts, how="left", on=rows.by).take(codes).reset_index(drop=True)
        return rows.name_keys(of_steps), steps[[AT, LEVEL]].join(of_steps["n_negative"])

    def agent_sums(self, frame: Frame, by: By) -> GroupSums:
        """Sum over the agents of each group: `agents`, and microseconds `busy` and `seen` from first start to last end.

        Only script jobs count. Also counts them: `started`, `n_running`, `n_no_end`, `n_no_agent` and `n_negative`.
        """
        columns = ("agent_id", "type", "started_at", "finished_at", job_ends.IS_OVER)
        rows = self.group_rows(self.with_ends(frame), columns, by)
        rows = rows.with_micros(("started_at", "finished_at"))
        of_scripts = nw.when(expressions.IS_SCRIPT).then(nw.col(micros_column("started_at")))
        rows = rows.with_columns(begin=of_scripts, finish=nw.col(micros_column("finished_at")))
        begin, finish, needs = nw.col("begin"), nw.col("finish"), ["agent_id", "begin", "finish"]
        is_over = nw.col(job_ends.IS_OVER)
        started, has_agent = ~begin.is_null(), ~nw.col("agent_id").is_null()
        ended = started & ~finish.is_null()
        counted = self.group_sums(
            rows,
            started=started,
            n_running=started & ~is_over,
            n_no_end=started & is_over & finish.is_null(),
            n_no_agent=ended & ~has_agent,
            n_negative=(ended & has_agent & (finish < begin)).fill_null(False),
        )
        ran = rows.select(*needs).frame.drop_nulls(needs).with_columns(busy=finish - begin)
        agents = ran.group_by(*rows.by, "agent_id").agg(nw.col("busy").sum(), begin.min(), finish.max())
        agents = agents.with_columns(agents=nw.lit(1), seen=finish - begin)
        sums = {name: nw.col(name) for name in ("agents", "busy", "seen")}
        busy = self.group_sums(replace(rows, frame=agents), **sums)
        return replace(counted, sums=pd.concat([counted.sums, counted.align(busy)], axis=1))

    def with_normal_scores(self, rows: GroupedRows) -> GroupedRows:
        """Add the normal score (`SCORE`) of `value`, which is not null, in its group; ties score equally."""
        return replace(rows, frame=with_normal_scores(rows.frame, rows.by))

    def filter_times(self, rows: Rows, at: str, ranges: Sequence[tuple[int, int]]) -> Rows:
        """Return the rows whose time is in one of these ranges (microseconds), which do not contain their ends."""
        time = nw.col(micros_column(at))
        is_in = (((time >= start) & (time < end)) for start, end in ranges)
        return self.with_micros(rows, [at]).filter(nw.any_horizontal(*is_in, ignore_nulls=True))

    # Attempts, and builds of jobs

    def with_causes(self, rows: GroupedRows) -> GroupedRows:
        """Add the number of the cause of failures (`failure_causes.CAUSE`)."""
        names = rows.frame.collect_schema().names()
        return rows.with_columns(**{failure_causes.CAUSE: failure_causes.number_cause(names)})

    def mark_storms(self, attempts: GroupedRows, n_keys: int) -> GroupedRows | None:
        """Add whether each attempt is in a storm (`STORM`, 1 or 0): half an hour in which a queue or an agent fails.

        Attempts have 1 in `passes`, or else in `failures` or `lost`, and `finished_at`. The first `n_keys` keys
        identify a step, and are a level of their own; the next is the commit. Returns None if there is no storm.
        """
        step, commit, at = attempts.by[:n_keys], attempts.by[n_keys], storms.PERIOD_EDGES
        rows = self.with_bucket_numbers(attempts.frame, "finished_at", at, storms.PERIOD)
        marks: list[nw.Expr] = []
        periods: set[int] = set()
        for place in storms.PLACES:
            suspicious = self.collect(storms.suspicious_periods(rows, place)).dropna()
            if suspicious.empty:
                continue
            ranges = storms.join_periods(suspicious[storms.PERIOD].to_numpy(np.int64))
            few = self.filter_times(rows, "finished_at", ranges)
            own = few.join(self.bring(rows, suspicious), on=[place, storms.PERIOD], how="inner")
            stormy = self.collect(storms.stormy_periods(own, place, step, commit))
            marks += [
                (nw.col(place) == name) & nw.col(storms.PERIOD).is_in(of_place.tolist())
                for name, of_place in stormy.groupby(place)[storms.PERIOD]
            ]
            periods |= {*stormy[storms.PERIOD].tolist()}
        if not marks:
            return None
        is_stormy = nw.col(storms.PERIOD).is_in([*periods])
        mark = nw.when(is_stormy).then(nw.any_horizontal(*marks, ignore_nulls=True).cast(nw.Int64)).otherwise(nw.lit(0))
        return replace(attempts, frame=rows.with_columns(**{storms.STORM: mark}))

    def sum_run_time(self, jobs: Frame, by: By) -> GroupSums:
        """Sum the run time of jobs as `metrics.waste` splits it: microseconds of each of `CLASSES`.

        Also counts the jobs that ran (`n`), those that are running (`n_running`), those that ended at an unknown time
        (`n_no_end`), and negative run times. Only script jobs run.
        """
        jobs = self.with_ends(jobs)
        fetched = [name for name in self.column_names(jobs) if name == "fetched_at"]
        rows = self.group_rows(jobs, (*attribution.NEEDS, *fetched), by, build=nw.col("build_id"))
        rows = rows.with_micros(("started_at", "finished_at", *fetched))
        started = micros_column("started_at")
        rows = rows.with_columns(**{started: nw.when(expressions.IS_SCRIPT).then(nw.col(started))})
        return attribution.sum_run_time(rows, is_dated=bool(fetched))
