"""The rows and results that summaries and engines exchange."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.columns import Flags, Floats, Integers

if TYPE_CHECKING:
    from buildframe.metrics.engines.protocol import Engine

Frame = Any
"""A frame of pandas, Polars (eager or lazy), DuckDB (a relation) or PySpark."""

Rows = nw.LazyFrame[Any]
"""Rows of a frame for narwhals: lazy in engines that plan queries."""

FrameFunction = Callable[[pd.DataFrame], pd.DataFrame]
"""A function of whole groups; for no rows it returns the same columns and no rows."""

GROUP = "in group"
"""Column with the number of each row's group; in lazy engines the columns of keys have this name and a number."""

SPAN, N_SPANS = "span", 8
"""Column with the part of its group's time in which a row lies, and the number of these equal parts."""


@dataclass(frozen=True)
class GroupedRows:
    """Columns of a frame, and the columns `by` that identify its groups.

    `names` are the names of the keys in a result. If groups are numbered (pandas), `keys` has a frame for each level of
    keys, coarsest first, with a row per group of that level. `source` has at least as many rows, which are sooner
    counted.
    """

    engine: Engine
    frame: Rows
    by: list[str]
    names: list[str]
    keys: Sequence[pd.DataFrame] = ()
    source: Rows | None = None

    def select(self, *names: str) -> GroupedRows:
        """Return the same rows with these columns, and those that identify groups."""
        return replace(self, frame=self.frame.select(*self.by, *names))

    def with_columns(self, **columns: nw.Expr) -> GroupedRows:
        """Return the same rows with more columns."""
        return replace(self, frame=self.frame.with_columns(**columns))

    def name_keys(self, groups: pd.DataFrame) -> pd.DataFrame:
        """Return the keys of groups, which columns `by` of a frame identify; no column if all rows are one group."""
        if not self.keys or not self.names:
            return groups[self.by].set_axis(self.names, axis=1) if self.names else groups[[]]
        places = np.unravel_index(groups[GROUP].to_numpy(np.intp), [max(len(keys), 1) for keys in self.keys])
        of_groups = (keys.take(own).reset_index(drop=True) for keys, own in zip(self.keys, places, strict=True))
        return pd.concat(of_groups, axis=1)

    def with_micros(self, names: Sequence[str]) -> GroupedRows:
        """Add the timestamps of these columns as whole microseconds, named by `micros_column`."""
        return replace(self, frame=self.engine.with_micros(self.frame, names))


@dataclass(frozen=True)
class GroupSums:
    """Sums of groups, row by row: `keys` for users, `groups` as the engine identifies them, and `sums` (Int64).

    If the engine made them for ranks, `seconds` has counts of the same rows by the place of their group and by second,
    and `ranked` the rows.
    """

    keys: pd.DataFrame
    groups: pd.DataFrame
    sums: pd.DataFrame
    seconds: pd.DataFrame | None = None
    ranked: RankedRows | None = None

    @classmethod
    def numbered(cls, keys: pd.DataFrame, sums: Mapping[str, Any]) -> GroupSums:
        """Return the sums of groups that are numbered in the order of their keys."""
        return cls(keys, pd.DataFrame({GROUP: range(len(keys))}), pd.DataFrame(sums, dtype="Int64"))

    @property
    def n_values(self) -> Integers:
        """Number of values of each group."""
        return self.sums["n"].to_numpy(np.int64)

    def filter(self, chosen: Flags) -> GroupSums:
        """Return the sums of the chosen groups."""
        keys, groups, sums = (one[chosen].reset_index(drop=True) for one in (self.keys, self.groups, self.sums))
        return GroupSums(keys, groups, sums)

    def align(self, other: GroupSums) -> pd.DataFrame:
        """Return the sums of the same groups in another result, 0 for groups that it lacks."""
        known = pd.concat([other.groups, other.sums], axis=1)
        merged = self.groups.merge(known, how="left", on=list(self.groups.columns))
        return merged[list(other.sums)].fillna(0).astype("Int64")


PLACE, SECOND, SEEN_FOR, ROWS = "place", "second", "seen for", "rows"
"""Columns that count censored rows: the place of their group, when they leave it, how long they were seen, how many."""


class Days(NamedTuple):
    """A column with the number of each row's day, and the number of days."""

    column: str
    n: int


SplitBy = str | Days | None
"""By what rows are split: times, of which those of a group are divided into `N_SPANS` equal spans, days, or nothing."""


class Splits(NamedTuple):
    """How the rows of groups lie in the spans or days by which they are split.

    `ended` counts the rows with a value (groups x spans), and `hits` those up to some ranks (groups x ranks x spans).
    `leaving` is that of `RankedRows`, divided by the column `SPAN`.
    """

    ended: Integers
    hits: Integers
    leaving: pd.DataFrame


class RankedValues(ABC):
    """The values of groups in order. Ranks have a row per group, 1 being the smallest value; 0 is none."""

    @abstractmethod
    def values_at(self, ranks: Integers) -> Floats:
        """Return the values at these ranks; NaN if the rank is 0."""


class RankedRows(RankedValues):
    """The rows of groups in order of their values, and those that were not seen to end.

    `n` is the number of values of each group. `leaving` counts the censored rows by `PLACE` and `SECOND`, in
    this order: they have left their group by this whole second, and were seen in the one before.
    """

    n: Integers
    leaving: pd.DataFrame

    @abstractmethod
    def count_before(self, group: Integers, second: Integers) -> Integers:
        """Return how many values of each group (by its place) are less than a whole number of seconds."""

    @abstractmethod
    def seconds_at(self, ranks: Integers) -> Floats:
        """Return the first whole second after the value of each rank; NaN if the rank is 0."""

    @abstractmethod
    def split_at(self, ranks: Integers, others: Integers) -> tuple[Floats, Splits | None]:
        """Return the values at `others`, and how the rows up to `ranks` are split; None if rows have no time."""


RankedFunction = Callable[[RankedRows, Integers], Floats]
"""A function of ranked rows, and of the places of their groups, that returns a row per group."""
