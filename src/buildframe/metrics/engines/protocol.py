"""The operations that summaries ask of an engine, and the rows and results that these exchange.

Each engine implements `Engine` once: pandas in numpy, and Polars, DuckDB and PySpark by queries. All give equal
results. A summary works on any engine through these operations and never asks which one it has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.metrics.durations import RowMetric
from buildframe.metrics.grouping import By, Key

Frame = Any
"""A frame of pandas, Polars (eager or lazy), DuckDB (a relation) or PySpark."""

Rows = nw.LazyFrame[Any]
"""Rows of a frame for narwhals: lazy in engines that plan queries."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

FrameFunction = Callable[[pd.DataFrame], pd.DataFrame]
"""A function of whole groups; for no rows it returns the same columns and no rows."""

GROUP = "in group"
"""Column with the number of each row's group; in lazy engines the columns of keys have this name and a number."""

AT, BALANCE, COUNT = "at this time", "balance", "count"
"""Columns of `Engine.clearest_changes`."""


@dataclass(frozen=True)
class GroupedRows:
    """Columns of a frame, and the columns `by` that identify its groups.

    `keys` has one row per group if groups are numbered (pandas). Otherwise `names` are the names of the columns `by`
    in a result.
    """

    engine: Engine
    frame: Rows
    by: list[str]
    names: list[str]
    keys: pd.DataFrame | None = None

    def select(self, *names: str) -> GroupedRows:
        """Return the same rows with these columns, and those that identify groups."""
        return replace(self, frame=self.frame.select(*self.by, *names))

    def with_columns(self, **columns: nw.Expr) -> GroupedRows:
        """Return the same rows with more columns."""
        return replace(self, frame=self.frame.with_columns(**columns))

    def with_micros(self, names: Sequence[str]) -> GroupedRows:
        """Add the timestamps of these columns as whole microseconds, named by `micros_column`."""
        return replace(self, frame=self.engine.with_micros(self.frame, names))


@dataclass(frozen=True)
class GroupSums:
    """Sums of groups, row by row: `keys` for users, `groups` as the engine identifies them, and `sums` (Int64)."""

    keys: pd.DataFrame
    groups: pd.DataFrame
    sums: pd.DataFrame

    def align(self, other: GroupSums) -> pd.DataFrame:
        """Return the sums of the same groups in another result, 0 for groups that it lacks."""
        known = pd.concat([other.groups, other.sums], axis=1)
        merged = self.groups.merge(known, how="left", on=list(self.groups.columns))
        return merged[list(other.sums)].fillna(0).astype("Int64")


@dataclass(frozen=True)
class NestedGroups:
    """Rows grouped at several levels of keys, finest first.

    `by` holds the column names of each level. `numbers` are columns to add to results of the finest level before they
    are grouped further, and `keys` are the values behind the numbers (pandas).
    """

    rows: GroupedRows
    by: Sequence[list[str]]
    numbers: Mapping[str, nw.Expr]
    names: list[str]
    keys: Sequence[pd.DataFrame] = ()


class TimeWindow(NamedTuple):
    """Limits of a time window in microseconds; None if open."""

    start: int | None
    end: int | None


class IntervalKind(NamedTuple):
    """Intervals of jobs: from the timestamp `begins` to the first of `ends` that is not null."""

    name: str
    begins: str
    ends: tuple[str, ...]
    scripts_only: bool = False

    @property
    def stamps(self) -> list[str]:
        """Columns of timestamps that are needed to count these intervals."""
        return list(dict.fromkeys([self.begins, *self.ends, "fetched_at", "build_created_at"]))


class FrameCoverage(NamedTuple):
    """Latest `fetched_at`, first and last creation of builds, and how long after it their last job ended.

    In microseconds; None if unknown.
    """

    latest: int | None
    first: int | None
    last: int | None
    lasting: int | None


class Levels(NamedTuple):
    """Changes of a step function: key columns, time, intervals at once from then on, and negative ones in the group."""

    keys: pd.DataFrame
    at: Integers
    level: Integers
    n_negative: pd.Series[int]


class Engine(ABC):
    """What a summary can ask for. Implementations keep no state.

    Rows are narwhals frames: lazy in engines that plan queries. Results of groups are ordered by key, null keys last.
    """

    # Columns

    @abstractmethod
    def column_names(self, frame: Frame) -> list[str]:
        """Return the names of the columns."""

    @abstractmethod
    def select_columns(self, frame: Frame, needs: Sequence[str], wants: Sequence[str] = ()) -> Rows:
        """Select columns with their dtypes when fetched: all of `needs`, and those of `wants` that exist."""

    @abstractmethod
    def collect(self, rows: Rows) -> pd.DataFrame:
        """Return rows as pandas with the dtypes of fetched frames."""

    def collect_columns(self, frame: Frame, needs: Sequence[str], wants: Sequence[str] = ()) -> pd.DataFrame:
        """Return the columns that `select_columns` selects as pandas."""
        return self.collect(self.select_columns(frame, needs, wants))

    @abstractmethod
    def combinations(self, rows: Rows, names: Sequence[str]) -> pd.DataFrame:
        """Return each combination of values of these columns at least once."""

    @abstractmethod
    def with_micros(self, rows: Rows, names: Sequence[str]) -> Rows:
        """Add timestamps as whole microseconds: engines differ in what a difference of timestamps is."""

    @abstractmethod
    def time_ranges(self, rows: Rows, names: Sequence[str]) -> list[tuple[Any, Any]]:
        """Return the first and the last timestamp of each column; NaT if there is none."""

    @abstractmethod
    def with_durations(self, frame: Frame, metrics: Sequence[RowMetric], created: str, *, of_jobs: bool) -> Frame:
        """Add the seconds of row metrics, the day of `created`, and for jobs the step."""

    # Groups

    @abstractmethod
    def group_rows(
        self, frame: Frame, needs: Collection[str], by: By = None, wants: Collection[str] = (), **more: Any
    ) -> GroupedRows:
        """Return the columns that a summary needs, those of `wants` that exist, and `more`, grouped by keys.

        `more` are a Series or array in pandas, and an expression in lazy engines.
        """

    @abstractmethod
    def measure(self, frame: Frame, of: RowMetric | str, by: By = None, needs: tuple[str, ...] = ()) -> GroupedRows:
        """Return rows with `value` (float64 seconds or null) and, if known, `censored`: not seen to end.

        Censoring is unknown for custom metrics and columns, and without the timestamps. For a metric of script jobs
        only their rows remain, so the null queue of a trigger job is no group.
        """

    @abstractmethod
    def filter_groups(self, rows: GroupedRows, chosen: nw.Expr) -> GroupedRows:
        """Return the chosen rows, and only the groups that have some of them."""

    @abstractmethod
    def nested_groups(self, frame: Frame, needs: Collection[str], levels: Sequence[Sequence[Key]]) -> NestedGroups:
        """Return rows grouped by the keys of all levels, of all but the last, and so on."""

    @abstractmethod
    def deliver(
        self, groups: NestedGroups, rows: Rows, names: Sequence[str], texts: Mapping[str, Sequence[str]]
    ) -> Frame:
        """Return results of the finest level that are as long as the data: pandas, or a lazy frame of PySpark.

        `names` are columns of the results. Those in `texts` hold indices of texts, which replace them.
        """

    @abstractmethod
    def group_sums(self, rows: GroupedRows, **counts: nw.Expr) -> GroupSums:
        """Sum flags or whole numbers in each group."""

    @abstractmethod
    def number_groups(self, rows: GroupedRows, *names: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return columns as pandas with the number of each row's group (`GROUP`), and the keys of the groups."""

    @abstractmethod
    def with_group_values(
        self, rows: GroupedRows, groups: pd.DataFrame, values: Mapping[str, Floats | Integers]
    ) -> GroupedRows:
        """Add columns with the values of each row's group; rows of other groups are dropped.

        `groups` are rows of `GroupSums.groups`, and the values are in their order.
        """

    @abstractmethod
    def values_at_ranks(self, rows: GroupedRows, groups: pd.DataFrame, n: Integers, ranks: Integers) -> Floats:
        """Return the entries of `value` at these ranks of each group, 1 being the smallest; NaN if the rank is 0.

        `groups` and `n` (number of values that are not null) are those of `group_sums`; `ranks` has a row per group.
        """

    @abstractmethod
    def map_groups(self, rows: GroupedRows, names: Sequence[str], of: FrameFunction) -> pd.DataFrame:
        """Return group columns, and beside them the result of `of` for the columns `names`.

        `of` receives rows with the number of their group in the column `GROUP`. Its result has this column, too.
        """

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

    @abstractmethod
    def with_bucket_numbers(self, rows: Rows, at: str, edges: Integers, name: str = GROUP) -> Rows:
        """Add the number of the bucket between `edges` (microseconds) of each row's time.

        Without a time it is null, or the number of buckets.
        """

    @abstractmethod
    def count_by_bucket(self, rows: GroupedRows, at: Mapping[str, str], edges: Integers) -> GroupSums:
        """Count the rows that have a time in each bucket; `at` maps names of counts to columns of times."""

    @abstractmethod
    def intervals(self, frame: Frame, by: By, kind: IntervalKind) -> GroupedRows:
        """Return the intervals of jobs in groups, for `coverage` and `levels`."""

    @abstractmethod
    def coverage(self, intervals: GroupedRows) -> FrameCoverage:
        """Return which times the frame covers."""

    @abstractmethod
    def levels(self, intervals: GroupedRows, window: TimeWindow) -> Levels:
        """Return how many intervals of each group hold at once, at each change and at the limits of the window."""

    @abstractmethod
    def agent_sums(self, frame: Frame, by: By) -> GroupSums:
        """Sum over the agents of each group: `agents`, and microseconds `busy` and `seen` from first start to last end.

        Also counts jobs: `started`, `n_running`, `n_no_agent` and `n_negative`.
        """

    @abstractmethod
    def clearest_changes(self, rows: GroupedRows) -> pd.DataFrame:
        """Return per group the first of its clearest changes of `value` in order of the column `AT` (microseconds).

        Int64 columns: `AT` is the time after the change. `BALANCE` and `COUNT` are sums over the rows before it: of
        the number of smaller values minus that of larger ones, and of rows.
        """

    # Builds of jobs

    @abstractmethod
    def attribute_run_time(self, jobs: Frame, by: By) -> GroupedRows:
        """Return jobs with their run time as `metrics.waste` splits it.

        Columns: `span` in microseconds, flags `ran` and `running`, the part of the span that is `late` (after the
        build's first failure), and the flag `repeated` of its build.
        """
