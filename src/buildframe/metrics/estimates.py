"""Estimate percentiles of groups, with intervals that allow for dependence and for rows that were not seen to end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from buildframe.metrics.columns import Flags, Floats, Integers
from buildframe.metrics.confidence import design_effect, share_interval, size_for_interval
from buildframe.metrics.kaplan_meier import Curves, Leaving
from buildframe.metrics.ranked_groups import PLACE, ROWS, SECOND, SPAN, RankedGroups, SpanCounts

_ROUNDING = 1e-12


class Estimates(NamedTuple):
    """Percentiles of groups (groups x percentiles), in seconds.

    `at_least` is a lower bound if too many rows were not seen to end for an estimate; NaN otherwise: the percentile if
    these rows had ended when they were last seen, in whole seconds. `n_effective` is at most the number of rows that
    ended, and NaN without an interval.
    """

    value: Floats
    low: Floats
    high: Floats
    at_least: Floats
    n_effective: Floats


class Located(NamedTuple):
    """Percentiles of groups (groups x percentiles): values, lower bounds, the ranks of some shares, their splits."""

    value: Floats
    at_least: Floats
    ranks: Integers
    splits: SpanCounts | None


class SplitHits(NamedTuple):
    """Rows `n` by span or day (groups x spans), those up to ranks (groups x ranks x spans), and the variance of one."""

    n: Integers
    hits: Floats
    variance: Floats


class Sample:
    """Ranked rows of groups, with the curves of how long they last."""

    def __init__(self, rows: RankedGroups) -> None:
        self.rows, self.n = rows, rows.n
        leaving = rows.leaving
        place, second, left = (leaving[name].to_numpy(np.int64) for name in (PLACE, SECOND, ROWS))
        self._before = rows.count_before(place, second) if len(leaving) else np.zeros(0, np.int64)
        self.curves = Curves(self.n, Leaving(place, left, self._before))
        n_censored = np.bincount(place, left, len(self.n)).astype(np.int64)
        self.is_censored, self.total = n_censored > 0, self.n + n_censored

    def estimate(self, q: Sequence[float], confidence: float) -> Estimates:
        """Estimate percentiles with intervals."""
        shares = list(dict.fromkeys([*q, 0.5]))  # the median's effective size decides on intervals
        value, at_least, ranks, splits = self.locate(q, shares)
        if splits is None:
            unknown = np.full(value.shape, np.nan)
            return Estimates(value, unknown, unknown, at_least, unknown)
        n_effective, sizes = self._effective_sizes(ranks, splits, shares, confidence)
        is_known = ~np.isnan(value)
        ends = self._find_ends(q, sizes[:, : len(q)], sizes[:, shares.index(0.5)], is_known, confidence)
        shown = np.where(np.isnan(ends[0]), np.nan, np.minimum(n_effective[:, : len(q)], self.n[:, None]))
        return Estimates(value, *ends, at_least, shown)

    def locate(self, q: Sequence[float], shares: Sequence[float]) -> Located:
        """Find percentiles, and split the rows up to these shares, of which the first are `q`."""
        ranks = self.curves.first_ranks(np.tile(1 - np.array(shares), (len(self.n), 1)))
        own = ranks[:, : len(q)]
        below, above, between = self._find_neighbors(own, q)
        enough = has_enough_rows(self.total, q)
        is_known = enough & (own > 0)
        ended, seen = self._find_bounds(np.where(enough & ~is_known, np.ceil(self.total[:, None] * q - _ROUNDING), 0))
        values, splits = self.rows.split_at(ranks, np.concatenate([below, above, ended], axis=1))
        low, high, bound = np.split(values, 3, axis=1)
        value = np.where(is_known, low + (high - low) * between, np.nan)
        return Located(value, np.where(np.isnan(seen), bound, seen), ranks, splits)

    def _find_bounds(self, ranks: Floats) -> tuple[Integers, Floats]:
        """Find these ranks among all rows, as if censored ones had ended in the second in which they were last seen.

        Returns the rank among the rows that ended, or 0 and the second of a censored row. A rank of 0 gives 0 and NaN.
        """
        ended, seen = np.zeros(ranks.shape, np.int64), np.full(ranks.shape, np.nan)
        if not ranks.any():
            return ended, seen
        leaving = self.rows.leaving
        place, second, left = (leaving[name].to_numpy(np.int64) for name in (PLACE, SECOND, ROWS))
        first = np.searchsorted(place, np.arange(len(self.n) + 1))
        left_before = np.cumsum(left) - left
        left_before -= left_before[first[place]]
        begin = self.rows.count_before(place, second - 1) + left_before
        for i, rank in enumerate(ranks.T):
            is_passed = begin + left < rank[place]
            following = first[:-1] + np.bincount(place, is_passed, len(self.n)).astype(np.int64)
            own = np.minimum(following, len(place) - 1)
            is_seen = (following < first[1:]) & (begin[own] < rank)
            seen[:, i] = np.where(is_seen, second[own] - 1, np.nan)
            ended[:, i] = np.where(is_seen, 0, rank - np.bincount(place, left * is_passed, len(self.n)))
        return ended, seen

    def _find_neighbors(self, ranks: Integers, q: Sequence[float]) -> tuple[Integers, Integers, Floats]:
        """Return the ranks between which percentiles lie, and the share of the way; one rank in censored groups."""
        neighbors, between = _find_neighbors(self.n, q)
        below, above = np.split(neighbors, 2, axis=1)
        own = self.is_censored[:, None]
        return np.where(own, ranks, below), np.where(own, ranks, above), np.where(own, 0.0, between)

    def _effective_sizes(
        self, ranks: Integers, splits: SpanCounts, shares: Sequence[float], confidence: float
    ) -> tuple[Floats, Floats]:
        """Return the effective number of rows for each share, and that for its interval."""
        effect, n = self.design_effects(ranks, splits)
        share, greenwood = self.curves.at_ranks(ranks)
        spread = np.array([p * (1 - p) for p in shares])
        with np.errstate(invalid="ignore", divide="ignore"):
            n_effective = np.minimum(spread / (share**2 * greenwood * effect), n.sum(-1)[:, None])
        return n_effective, size_for_interval(n_effective, n[:, None], confidence)

    def design_effects(self, ranks: Integers, splits: SpanCounts) -> tuple[Floats, Integers]:
        """Return how many times the variance of the share up to each rank is that of independent rows, and the rows."""
        n, hits, variance = self.split_hits(ranks, splits)
        return design_effect(n[:, None], hits, variance), n

    def split_hits(self, ranks: Integers, splits: SpanCounts) -> SplitHits:
        """Count the rows up to each rank, with a censored row that left before as the share that ends between."""
        n, hits = splits.ended.copy(), splits.hits.astype(np.float64)
        n_hits, n_ended = splits.hits.sum(-1), splits.ended.sum(-1)
        columns = [splits.leaving[name].to_numpy(np.int64) for name in (PLACE, SECOND, SPAN, ROWS)]
        order = np.lexsort([*reversed(columns[:3])])  # so that sums round equally for rows in any order
        place, second, part, rows = (column[order] for column in columns)
        known = self._find_leaving(place, second)
        np.add.at(n, (place, part), rows)
        share, _ = self.curves.at_ranks(ranks)
        left = self._before[known][:, None] < ranks[place]
        lasting = self.curves.share[self.curves.position[known]][:, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            ends = np.where(left, 1 - share[place] / lasting, 0.0)
            np.add.at(hits.transpose(0, 2, 1), (place, part), ends * rows[:, None])
            mean = hits.sum(-1) / n.sum(-1)[:, None]
            squares = n_hits * (1 - mean) ** 2 + (n_ended[:, None] - n_hits) * mean**2
            np.add.at(squares, place, rows[:, None] * (ends - mean[place]) ** 2)
            return SplitHits(n, hits, squares / n.sum(-1)[:, None])

    def _find_leaving(self, place: Integers, second: Integers) -> Integers:
        """Return the places in `rows.leaving` of these groups and seconds, all of which it has."""
        of_all = [self.rows.leaving[name].to_numpy(np.int64) for name in (PLACE, SECOND)]
        first, last = of_all[1].min(initial=0), of_all[1].max(initial=0)
        keys, own = (group * (last - first + 1) + at - first for group, at in (of_all, (place, second)))
        return np.asarray(np.searchsorted(keys, own), np.int64)

    def _find_ends(
        self, q: Sequence[float], sizes: Floats, middle: Floats, is_known: Flags, confidence: float
    ) -> tuple[Floats, Floats]:
        """Return the ends of the interval of each percentile, which are values of rows; NaN if one is unknown."""
        levels = np.full((2, len(self.n), len(q)), np.nan)
        middle = np.where(np.isnan(middle), np.inf, middle)  # not even the median is known
        for i, p in enumerate(q):
            has_ends = is_known[:, i] & (np.minimum(sizes[:, i], middle) * min(p, 1 - p) >= 1)
            levels[:, :, i] = np.where(has_ends, share_interval(p, sizes[:, i], confidence), np.nan)
        ends = self.values_around(*levels)
        is_inside = ~np.isnan(ends).any(axis=0)
        low, high = np.where(is_inside, ends, np.nan)
        return low, high

    def values_around(self, below: Floats, above: Floats) -> Floats:
        """Return the values of rows that enclose percentiles between these shares; NaN outside the rows."""
        low, high = (np.where(np.isnan(share), 0, self._first_ranks_of(share)) for share in (below, above))
        share, _ = self.curves.at_ranks(low)
        low -= (low > 0) & (share < 1 - below - _ROUNDING)
        high = np.where((high > 0) & (high < self.n[:, None]), high + 1, 0)
        return np.stack(np.split(self.rows.values_at(np.concatenate([low, high], axis=1)), 2, axis=1))

    def _first_ranks_of(self, share: Floats) -> Integers:
        """Return the first rank by which this share has ended; 0 if it never has."""
        return self.curves.first_ranks(1 - np.nan_to_num(share))


def _find_neighbors(n: Integers, q: Sequence[float]) -> tuple[Integers, Floats]:
    """Return the ranks below and above each percentile, and the fraction of the way between them."""
    ranks = np.where(n[:, None] > 0, 1 + (n[:, None] - 1) * np.asarray(q), 0.0)
    below = np.floor(ranks)
    return np.concatenate([below, np.ceil(ranks)], axis=1).astype(np.int64), ranks - below


def has_enough_rows(n: Integers, q: Sequence[float]) -> Any:
    """Return whether n rows support a percentile: on average one of them lies beyond it."""
    tail = np.minimum(q, 1 - np.asarray(q))
    return n[:, None] * tail >= 1 - 1e-9  # 10 * (1 - .9) is a little below 1
