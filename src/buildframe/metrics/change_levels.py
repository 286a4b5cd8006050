"""Compare the segments of time between changes: their levels, with intervals that allow for dependence within a day.

Knows counts of rows per day, or per other unit, and not what they measure.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from buildframe.metrics.columns import Floats, Integers
from buildframe.metrics.confidence import share_interval
from buildframe.metrics.rates import wilson

CONFIDENCE = 0.95


class Level(NamedTuple):
    """Value of a segment, and its 95 % interval."""

    value: Floats
    low: Floats
    high: Floats


class Segments(NamedTuple):
    """Counts of segments: rows `n` and `hits` of each unit (such as a day), and the segment to which it belongs."""

    segment: Integers
    n: Floats
    hits: Floats
    many: int

    def total(self, counts: Floats | None = None) -> Floats:
        """Return the sums over the units of each segment, or their number."""
        return np.bincount(self.segment, counts, self.many).astype(np.float64)

    def sizes(self, before: Integers, inflation: Floats) -> tuple[Floats, Floats]:
        """Return as how many independent rows the two segments of each change count; `before` is the first of them.

        How much units vary is pooled over both, so that a segment of two days borrows from the other (Korn, E. L., and
        Graubard, B. I. (1998). Survey Methodology 24, 193-201).
        """
        from scipy.special import ndtri, stdtrit

        n, units, share = self.total(self.n), self.total(), self.total(self.hits) / self.total(self.n)
        residuals = self.hits - share[self.segment] * self.n
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = units / (units - 1) * self.total(residuals**2) / (n * share * (1 - share))
        freedom = np.where((units > 1) & (share > 0) & (share < 1), units - 1, 0.0)
        ratio = np.where(freedom > 0, ratio, 0.0)
        both = freedom[before] + freedom[before + 1]
        pooled = (ratio * freedom)[before] + (ratio * freedom)[before + 1]
        effect = np.maximum(1.0, np.divide(pooled, both, out=np.ones_like(both), where=both > 0) * inflation)
        level = (1 + CONFIDENCE) / 2
        wider = np.where(both > 0, ndtri(level) / stdtrit(np.maximum(both, 1.0), level), 1.0) ** 2
        return n[before] / effect * wider, n[before + 1] / effect * wider


def find_median_ranks(n: Floats, sizes: Floats) -> Integers:
    """Return the ranks of the rows that enclose the medians of segments with n rows; 0 if there is none."""
    low, high = share_interval(0.5, sizes, CONFIDENCE)
    ranks = np.column_stack([np.floor(n * low), np.ceil(n * high) + 1])
    is_inside = (ranks[:, 0] >= 1) & (ranks[:, 1] <= n)
    return np.where(is_inside[:, None], np.nan_to_num(ranks), 0).astype(np.int64)


def estimate_rate(share: Floats, sizes: Floats) -> Level:
    """Return rates with Wilson's interval."""
    return Level(share, *wilson(share * sizes, sizes, CONFIDENCE))


def subtract(after: Level, before: Level) -> Level:
    """Return differences of independent values (Zou, G. Y., and Donner, A. (2008). Statistics in Medicine 27)."""
    change = after.value - before.value
    return Level(
        change,
        change - np.hypot(after.value - after.low, before.high - before.value),
        change + np.hypot(after.high - after.value, before.value - before.low),
    )
