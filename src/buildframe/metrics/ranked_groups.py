"""Rank the durations of groups, and count how their rows lie in time, in numpy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from buildframe.metrics.columns import NAT, Floats, Integers
from buildframe.metrics.input_frames import RowGroups

N_SPANS = 8
"""Number of equal spans into which the time of a group is divided."""

SPAN, PLACE, SECOND, ROWS = "span", "place", "second", "rows"
"""Columns that count censored rows: in which part of its time, in which group, by which second they left, how many."""

_BLOCK = 2**16
"""Rows that fit into the cache of a processor."""


class SpanCounts(NamedTuple):
    """How the rows of groups lie in the spans or days by which they are split.

    `ended` counts the rows with a value (groups x spans), and `hits` those up to some ranks (groups
    x ranks x spans). `leaving` is that of `RankedGroups`, divided by the column `SPAN`.
    """

    ended: Integers
    hits: Integers
    leaving: pd.DataFrame


class _OpenRows(NamedTuple):
    """Censored rows that were seen for a known time: their groups, the seconds, and their times."""

    codes: Integers
    seen: Floats
    times: Integers | None


class RankedGroups:
    """The rows of groups in order of their durations, and those that were not seen to end.

    `n` is the number of durations of each group. `leaving` counts the censored rows by `PLACE` and
    `SECOND`, in this order: they have left their group by this whole second, and were seen in the
    one before. Ranks have a row per group, 1 being the smallest duration; 0 is none.
    """

    def __init__(self, rows: RowGroups, at: str | None = None, n_days: int | None = None) -> None:
        """Rank the rows of `measure_rows`.

        `at` is the column of their times, which are divided into equal spans, or, with `n_days`, of
        the numbers of their days.
        """
        values = rows.columns["value"].to_numpy(np.float64)
        times = None if at is None else rows.columns[at].to_numpy(np.int64)
        codes, n_groups = rows.codes, len(rows.keys)
        is_missing = np.isnan(values)
        self._n_days = n_days
        self.n = np.bincount(codes[~is_missing] if is_missing.any() else codes, minlength=n_groups)
        self._starts = np.cumsum(self.n) - self.n
        codes = np.where(is_missing, n_groups, codes) if is_missing.any() else codes
        order = _order_by_group(codes, int(self.n.sum()))
        self._values, self._times = values[order], None if times is None else times[order]
        milliseconds = _to_milliseconds(self._values)
        self._unit = 1 if milliseconds is None else 1000
        self._sorted: Floats | NDArray[np.int32] = self._values.copy() if milliseconds is None else milliseconds
        for start, size in zip(self._starts.tolist(), self.n.tolist(), strict=True):
            self._sorted[start : start + size].sort()
        self._open = _find_open_rows(rows, times)
        self.leaving = _count_leaving(self._open, {})

    def values_at(self, ranks: Integers) -> Floats:
        is_there = (ranks > 0) & (self.n > 0)[:, None]
        values = np.full(ranks.shape, np.nan)
        values[is_there] = self._sorted[(self._starts[:, None] + ranks - 1)[is_there]] / self._unit
        return values

    def count_before(self, group: Integers, second: Integers) -> Integers:
        """Search all groups together, by bisection."""
        start, limit = self._starts[group], second * self._unit
        low, high = start, start + self.n[group]
        while (is_open := low < high).any():
            middle = (low + high) // 2
            is_less = is_open & (self._sorted[np.where(is_open, middle, 0)] < limit)
            low, high = np.where(is_less, middle + 1, low), np.where(is_open & ~is_less, middle, high)
        return low - start

    def seconds_at(self, ranks: Integers) -> Floats:
        return np.floor(self.values_at(ranks)) + 1

    def split_at(self, ranks: Integers, others: Integers) -> tuple[Floats, SpanCounts | None]:
        values = self.values_at(others)
        if self._times is None or self._open.times is None:
            return values, None
        of_span, of_censored = self._span_numbers(self._times, self._open.times)
        n_spans = self._n_days or N_SPANS
        leaving = _count_leaving(self._open, {SPAN: of_censored})
        leaving = leaving[leaving[SPAN] < n_spans]
        return values, SpanCounts(*self._count_hits(of_span, n_spans, self.values_at(ranks)), leaving)

    def _span_numbers(
        self, times: Integers, of_censored: Integers
    ) -> tuple[Callable[[slice, Integers], Integers], Integers]:
        """Return a function for the spans or days of a slice of rows in these groups, and those of censored rows."""
        if self._n_days is not None:
            return lambda rows, _: times[rows], of_censored
        first, scale = self._find_limits(times, of_censored)
        codes = self._open.codes
        return (
            lambda rows, groups: _number_spans(times[rows], first[groups], scale[groups]),
            _number_spans(of_censored, first[codes], scale[codes]),
        )

    def _count_hits(
        self, of_span: Callable[[slice, Integers], Integers], n_spans: int, limits: Floats
    ) -> tuple[Integers, Integers]:
        """Count the values in each span, and those up to each limit, from the number of limits that each exceeds."""
        n_groups, n_limits = limits.shape
        order = np.argsort(limits, axis=1)  # NaN last
        ordered = np.take_along_axis(limits, order, axis=1).T
        counts = np.zeros((n_groups, n_spans + 1, n_limits + 1), np.int64)
        for rows, groups in self._blocks():
            cells = (groups - groups[0]) * (n_spans + 1) + of_span(rows, groups)
            cells *= n_limits + 1
            for limit in ordered:
                cells += self._values[rows] > limit[groups]
            own = counts[groups[0] : groups[-1] + 1]
            own += np.bincount(cells, minlength=own.size).reshape(own.shape)
        up_to = counts[:, :n_spans].cumsum(axis=2)
        hits = np.empty((n_groups, n_limits, n_spans), np.int64)
        np.put_along_axis(hits, order[:, :, None], up_to[..., :n_limits].transpose(0, 2, 1), axis=1)
        hits[np.isnan(limits)] = 0
        return up_to[..., -1], hits

    def _blocks(self) -> Iterator[tuple[slice, Integers]]:
        """Yield slices of rows that fit into the cache of a processor, and the group of each of their rows."""
        for start in range(0, len(self._values), _BLOCK):
            rows = slice(start, min(start + _BLOCK, len(self._values)))
            first, last = np.searchsorted(self._starts, [rows.start, rows.stop - 1], side="right") - 1
            groups = np.arange(first, last + 1)
            ends = np.clip(self._starts[groups] + self.n[groups], rows.start, rows.stop)
            yield rows, np.repeat(groups, np.diff(ends, prepend=rows.start))

    def _find_limits(self, times: Integers, of_censored: Integers) -> tuple[Integers, Floats]:
        """Return the first time of each group, and the factor that makes spans."""
        first, last = np.full(len(self.n), -NAT - 1), np.full(len(self.n), NAT)
        has_rows = self.n > 0
        if has_rows.any():
            starts = self._starts[has_rows]
            is_known = times != NAT
            early = times if is_known.all() else np.where(is_known, times, -NAT - 1)
            first[has_rows], last[has_rows] = np.minimum.reduceat(early, starts), np.maximum.reduceat(times, starts)
        is_known = of_censored != NAT
        np.minimum.at(first, self._open.codes[is_known], of_censored[is_known])
        np.maximum.at(last, self._open.codes[is_known], of_censored[is_known])
        is_timed = last >= first
        return np.where(is_timed, first, 0), N_SPANS / (np.where(is_timed, last - first, 0) + 1)


def _number_spans(times: Integers, first: Integers, scale: Floats) -> Integers:
    """Return the span of each row, or the number of spans if its time is missing."""
    is_missing = times == NAT
    with np.errstate(over="ignore", invalid="ignore"):
        spans: Integers = ((times - first) * scale).astype(np.int64)
    spans[is_missing] = N_SPANS
    return spans


def _count_leaving(rows: _OpenRows, more: dict[str, Any]) -> pd.DataFrame:
    """Count censored rows by group, by the second by which they have left, and by `more`."""
    keys = {PLACE: rows.codes, SECOND: np.floor(rows.seen).astype(np.int64) + 1, **more}
    order = np.lexsort([*reversed(keys.values())])
    ordered = {name: own[order] for name, own in keys.items()}
    starts = np.flatnonzero(
        np.append(True, np.any([np.diff(own) != 0 for own in ordered.values()], axis=0))[: len(order)]
    )
    counted = {name: own[starts] for name, own in ordered.items()}
    return pd.DataFrame(counted | {ROWS: np.diff(starts, append=len(order))})


def _to_milliseconds(seconds: Floats) -> NDArray[np.int32] | None:
    """Return small whole numbers if all values are such: they sort in half the time of floats."""
    milliseconds = np.empty(len(seconds), np.int32)
    for start in range(0, len(seconds), _BLOCK):
        values = seconds[start : start + _BLOCK]
        with np.errstate(invalid="ignore"):
            part = np.rint(values * 1000).astype(np.int32)
        if (part / 1000 != values).any():
            return None
        milliseconds[start : start + _BLOCK] = part
    return milliseconds


def _order_by_group(codes: Integers, n_rows: int) -> Integers | slice:
    """Return a stable order of the first rows by group: a sort of small numbers compares nothing."""
    small = codes.astype(np.int16) if codes.max(initial=0) < 2**15 else codes
    if (small[1:] >= small[:-1]).all():
        return slice(n_rows)
    return np.argsort(small, kind="stable")[:n_rows]


def _find_open_rows(rows: RowGroups, times: Integers | None) -> _OpenRows:
    if "seen" not in rows.columns:
        nothing = np.zeros(0, np.int64)
        return _OpenRows(nothing, nothing.astype(np.float64), None if times is None else nothing)
    seen = rows.columns["seen"].to_numpy(np.float64)
    place = np.flatnonzero(~np.isnan(seen))
    return _OpenRows(rows.codes[place], seen[place], None if times is None else times[place])
