"""Count how many intervals hold at once: in numpy, and by queries.

Each start counts 1 and each end counts -1, so the running sum is the level. All sums are of integers, so every engine
gives the same result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np

from buildframe.metrics.columns import Flags, Integers

AT, LEVEL = "at this time", "level"
IS_KNOWN = ~nw.col("begin").is_null() & ~nw.col("finish").is_null()
_CHANGE, _FIRST = "change", "is first"


class TimeWindow(NamedTuple):
    """Limits of a time window in microseconds; None if open."""

    start: int | None
    end: int | None


class IntervalKind(NamedTuple):
    """Intervals of jobs after `with_ends`: from the timestamp `begins` to the first of `ends` that is not null."""

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


class StepFunction(NamedTuple):
    """Number of intervals (`level`) of a group that cover the time from `at` on; ordered by group and time."""

    group: Integers
    at: Integers
    level: Integers

    def filter(self, chosen: Flags) -> StepFunction:
        """Return the chosen changes."""
        return StepFunction(*(column[chosen] for column in self))


def count_intervals(
    window: TimeWindow, codes: Integers, begin: Integers, finish: Integers, n_groups: int
) -> StepFunction:
    """Return the changes in each group within the window, and rows at its limits."""
    for edge in window:
        if edge is not None:
            nonempty = np.flatnonzero(np.bincount(codes, minlength=n_groups))
            codes = np.concatenate([codes, nonempty])
            begin, finish = (np.concatenate([one, np.full(len(nonempty), edge)]) for one in (begin, finish))
    steps = _count_all(codes, _clip(begin, window), _clip(finish, window), n_groups)
    is_first, is_change = (np.diff(one, prepend=-1) != 0 for one in (steps.group, steps.level))
    if window.end is None:
        return steps.filter(is_first | is_change)
    return steps.filter((is_first | is_change | (steps.at == window.end)) & (steps.at <= window.end))


def _clip(times: Integers, window: TimeWindow) -> Integers:
    """Clip times to the window; later ones become the microsecond after its end."""
    after = None if window.end is None else window.end + 1
    return times if window == (None, None) else np.clip(times, window.start, after)


def _count_all(codes: Integers, begin: Integers, finish: Integers, n_groups: int) -> StepFunction:
    """Count the intervals of each group that cover each time at which one starts or ends."""
    order = np.argsort(codes.astype(np.int16) if n_groups < 2**15 else codes, kind="stable")  # int16: radix sort
    begin, finish = 2 * begin[order] + 1, 2 * finish[order]  # the last bit says that one begins
    changes, sizes = np.empty(2 * len(codes), np.int64), np.bincount(codes, minlength=n_groups)
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        part = changes[2 * (stop - size) : 2 * stop]
        np.concatenate([begin[stop - size : stop], finish[stop - size : stop]], out=part)
        part.sort()
    group, at = np.repeat(np.arange(n_groups), 2 * sizes), changes >> 1
    is_last = np.append((at[1:] != at[:-1]) | (group[1:] != group[:-1]), True)[: len(at)]
    return StepFunction(group, at, np.cumsum(2 * (changes & 1) - 1)).filter(is_last)


def query_levels(rows: nw.LazyFrame[Any], by: Sequence[str], window: TimeWindow) -> nw.LazyFrame[Any]:
    """Return the level of each group at each change and at the limits of the window."""
    summed = _changes(rows, by, window).group_by(*by, AT).agg(nw.col(_CHANGE).sum())
    summed = summed.with_columns(nw.col(_CHANGE).cast(nw.Int64))  # sums are decimals in DuckDB
    steps = summed.with_columns(
        nw.col(_CHANGE).cum_sum().over(*by, order_by=AT).cast(nw.Int64).alias(LEVEL),
        nw.col(AT).shift(1).over(*by, order_by=AT).is_null().alias(_FIRST),
    )
    retained = nw.col(_FIRST) | (nw.col(_CHANGE) != 0)
    if window.end is not None:
        retained = (retained | (nw.col(AT) == window.end)) & (nw.col(AT) <= window.end)
    return steps.filter(retained).select(*by, AT, LEVEL)


def _changes(rows: nw.LazyFrame[Any], by: Sequence[str], window: TimeWindow) -> nw.LazyFrame[Any]:
    """Return a row per start and end within the window, and a row without a change at each of its limits."""
    groups = rows.select(*by).unique()
    changes = [(groups, nw.lit(edge), 0) for edge in window if edge is not None]
    begin, finish = nw.col("begin"), nw.max_horizontal("begin", "finish")
    if window.start is not None:
        rows = rows.filter(finish > window.start)
        begin = nw.when(begin < window.start).then(nw.lit(window.start)).otherwise(begin)
    if window.end is not None:
        rows = rows.filter(nw.col("begin") <= window.end)
    selected = (
        each.select(*by, at.cast(nw.Int64).alias(AT), nw.lit(change).cast(nw.Int64).alias(_CHANGE))
        for each, at, change in [(rows, begin, 1), (rows, finish, -1), *changes]
    )
    return nw.concat([*selected])
