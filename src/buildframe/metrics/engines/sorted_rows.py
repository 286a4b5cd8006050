"""Rank the rows of groups in memory, in numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from buildframe.metrics.columns import NAT, Floats, Integers
from buildframe.metrics.engines.protocol import N_SPANS, PLACE, ROWS, SECOND, SEEN_FOR, SPAN, RankedRows, Splits


class SortedRows(RankedRows):
    """Rows in memory, of groups that are numbered by their place; rows with larger numbers are left out.

    `times` are microseconds (`NAT` if missing), `seen` the seconds for which censored rows were seen, NaN for others.
    """

    def __init__(
        self, codes: Integers, values: Floats, n: Integers, times: Integers | None = None, seen: Floats | None = None
    ) -> None:
        self.n = n
        self._sizes = np.bincount(codes, minlength=len(n))[: len(n)]
        self._starts = np.cumsum(self._sizes) - self._sizes
        order = _order_by_group(codes)[: self._sizes.sum()]
        self._values = values[order]
        self._times = None if times is None else times[order]
        self._sorted = self._values.copy()
        for start, size in zip(self._starts.tolist(), self._sizes.tolist(), strict=True):
            self._sorted[start : start + size].sort()  # NaN last
        self._seen = None if seen is None else seen[order]
        self.leaving = self._count_leaving()

    def values_at(self, ranks: Integers) -> Floats:
        is_there = (ranks > 0) & (self.n > 0)[:, None]
        places = np.where(is_there, self._starts[:, None] + ranks - 1, -1)
        return np.where(is_there, np.append(self._sorted, np.nan)[places], np.nan)

    def count_before(self, group: Integers, second: Integers) -> Integers:
        """Search all groups together, by bisection."""
        start = self._starts[group]
        low, high = start, start + self.n[group]
        while (is_open := low < high).any():
            middle = (low + high) // 2
            is_less = is_open & (np.append(self._sorted, np.nan)[np.where(is_open, middle, -1)] < second)
            low, high = np.where(is_less, middle + 1, low), np.where(is_open & ~is_less, middle, high)
        return low - start

    def split_at(self, ranks: Integers, others: Integers) -> tuple[Floats, Splits | None]:
        values = self.values_at(others)
        if self._times is None:
            return values, None
        spans = self._find_spans(self._times)
        return values, Splits(*self._count_hits(spans, self.values_at(ranks)), self._count_leaving(spans))

    def _count_hits(self, spans: Integers, limits: Floats) -> tuple[Integers, Integers]:
        """Count the values in each span, and those up to each limit, from the number of limits that each exceeds."""
        n_limits = limits.shape[1]
        n_zones = n_limits + 2
        order = np.argsort(limits, axis=1)  # NaN last
        cells = spans * n_zones
        for limit in np.take_along_axis(limits, order, axis=1).T:
            cells += self._values > np.repeat(limit, self._sizes)
        if len(self._values) > self.n.sum():
            cells[np.isnan(self._values)] += n_limits + 1
        counts = np.bincount(cells, minlength=(len(self.n) * N_SPANS + 1) * n_zones)[: len(self.n) * N_SPANS * n_zones]
        up_to = counts.reshape(len(self.n), N_SPANS, n_zones)[..., :-1].cumsum(axis=2)
        hits = np.empty((len(self.n), n_limits, N_SPANS), np.int64)
        np.put_along_axis(hits, order[:, :, None], up_to[..., :n_limits].transpose(0, 2, 1), axis=1)
        hits[np.isnan(limits)] = 0
        return up_to[..., -1], hits

    def _find_spans(self, times: Integers) -> Integers:
        """Number the spans of all groups, those of each group after the other; rows without a time are in the last."""
        used = self._sizes > 0
        known = times != NAT
        if len(self._values) > self.n.sum():  # rows that neither ended nor were seen
            known &= ~np.isnan(self._values) | (False if self._seen is None else ~np.isnan(self._seen))
        first, length = np.zeros((2, len(self.n)), np.int64)
        starts = self._starts[used]
        if len(starts):
            early, late = (
                (times, times) if known.all() else (np.where(known, times, -NAT - 1), np.where(known, times, NAT))
            )
            first[used] = np.minimum.reduceat(early, starts)
            with np.errstate(over="ignore"):  # of groups without times
                length[used] = np.maximum.reduceat(late, starts) - first[used] + 1
        scale = span_scale(length)
        spans = ((times - np.repeat(first, self._sizes)) * np.repeat(scale, self._sizes)).astype(np.int64)
        spans += np.repeat(np.arange(len(self.n)) * N_SPANS, self._sizes)
        return spans if known.all() else np.where(known, spans, len(self.n) * N_SPANS)

    def _count_leaving(self, spans: Integers | None = None) -> pd.DataFrame:
        is_censored = np.zeros(len(self._values), bool) if self._seen is None else ~np.isnan(self._seen)
        rows = np.flatnonzero(is_censored)
        columns: dict[str, Any] = {PLACE: np.searchsorted(self._starts, rows, "right") - 1}
        if spans is not None:
            rows, place = rows[keep := spans[rows] < len(self.n) * N_SPANS], columns[PLACE][keep]
            columns = {PLACE: place, SPAN: spans[rows] - place * N_SPANS}
        seen = np.zeros(0) if self._seen is None else self._seen[rows]
        columns |= {SECOND: np.floor(seen).astype(np.int64) + 1, SEEN_FOR: seen}
        by = [name for name in columns if name != SEEN_FOR]
        each = pd.DataFrame(columns).groupby(by)[SEEN_FOR]
        return each.agg(["size", "max"]).set_axis([ROWS, SEEN_FOR], axis=1).reset_index()


def span_scale(length: Integers) -> Floats:
    """Return the factor that makes microseconds since a group's first row to the number of their span."""
    return N_SPANS / np.maximum(length, 1)


def _order_by_group(codes: Integers) -> Integers:
    """Return a stable order of rows by group: a sort of small numbers compares nothing."""
    small = codes.astype(np.int16) if codes.max(initial=0) < 2**15 else codes
    if len(codes) < 2 or (small[1:] >= small[:-1]).all():
        return np.arange(len(codes))
    return np.argsort(small, kind="stable")
