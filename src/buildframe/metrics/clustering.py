"""Measure how much information dependent rows hold, and compare levels with regard to that.

Jobs of a busy day wait together, and builds of a day fail together. Knows counts of rows per day,
or per other unit, and not what they measure.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from buildframe.metrics.columns import Floats, Integers
from buildframe.metrics.confidence import share_interval, variance_ratio
from buildframe.metrics.rates import wilson

CONFIDENCE = 0.95

_FEW = 2
"""With fewer hits or misses their spread over days is unknown."""

_MIN_FREEDOM = 4
"""With fewer degrees of freedom nothing is known about how a single day differs from others."""

_LEAST = 0.1
"""Lower limit of a spread: that days are more alike than chance makes them means nothing."""


class Level(NamedTuple):
    """Value of a segment or period, and its 95 % interval."""

    value: Floats
    low: Floats
    high: Floats


class Segments(NamedTuple):
    """Counts of segments of time or of groups.

    `n` are the rows and `hits` the hits of each unit (such as a day), and `segment` is the number
    of the segment to which it belongs, of `n_segments`.
    """

    segment: Integers
    n: Floats
    hits: Floats
    n_segments: int

    def total(self, counts: Floats | None = None) -> Floats:
        """Return the sums over the units of each segment, or their number."""
        return np.bincount(self.segment, counts, self.n_segments).astype(np.float64)

    def variance_ratios(self) -> Floats:
        """Return the variance of the share of hits, divided by that of independent rows.

        NaN for a single unit, and for a share of 0 or 1.
        """
        n, units = self.total(self.n), self.total()
        with np.errstate(invalid="ignore", divide="ignore"):
            share = self.total(self.hits) / n
            residuals = self.hits - share[self.segment] * self.n
            return units / (units - 1) * self.total(residuals**2) / (n * share * (1 - share))

    def spread(self) -> Spread:
        """Return how the units of each segment spread."""
        n, hits, units = self.total(self.n), self.total(self.hits), self.total()
        is_known = (units >= 2) & (np.minimum(hits, n - hits) >= _FEW)
        return Spread(n, units, np.where(is_known, self.variance_ratios(), np.nan))

    def sizes(self, before: Integers, inflation: Floats) -> tuple[Floats, Floats]:
        """Return as how many independent rows the two segments of each change count.

        `before` is the first of them. How much units vary is pooled over both, so that a segment of
        two days borrows from the other (Korn, E. L., and Graubard, B. I. (1998). Survey Methodology
        24, 193-201).
        """
        from scipy.special import ndtri, stdtrit

        n = self.total(self.n)
        units = self.total()
        share = self.total(self.hits) / n
        after = before + 1
        freedom = np.where((units > 1) & (share > 0) & (share < 1), units - 1, 0.0)
        ratio = np.where(freedom > 0, self.variance_ratios(), 0.0)
        both = freedom[before] + freedom[after]
        pooled = (ratio * freedom)[before] + (ratio * freedom)[after]
        mean_ratio = np.divide(pooled, both, out=np.ones_like(both), where=both > 0)
        effect = np.maximum(1.0, mean_ratio * inflation)
        level = (1 + CONFIDENCE) / 2
        student_t = stdtrit(np.maximum(both, 1.0), level)
        wider = np.where(both > 0, ndtri(level) / student_t, 1.0) ** 2
        return n[before] / effect * wider, n[after] / effect * wider


class Spread(NamedTuple):
    """How days of each group spread: number of `rows` and `days`, and variance `ratio`.

    `ratio` is the variance of the share of hits between days, divided by that of independent rows;
    NaN if unknown.
    """

    rows: Floats
    days: Floats
    ratio: Floats

    @property
    def freedom(self) -> Floats:
        """Degrees of freedom of the ratio."""
        return np.where(np.isnan(self.ratio), 0.0, self.days - 1)


def find_median_ranks(n: Floats, sizes: Floats) -> Integers:
    """Return the ranks of the rows that enclose the medians of segments with n rows; 0 for none."""
    low, high = share_interval(0.5, sizes, CONFIDENCE)
    ranks = np.column_stack([np.floor(n * low), np.ceil(n * high) + 1])
    is_inside = (ranks[:, 0] >= 1) & (ranks[:, 1] <= n)
    return np.where(is_inside[:, None], np.nan_to_num(ranks), 0).astype(np.int64)


def estimate_rate(share: Floats, sizes: Floats) -> Level:
    """Return rates with Wilson's interval."""
    return Level(share, *wilson(share * sizes, sizes, CONFIDENCE))


def subtract(after: Level, before: Level) -> Level:
    """Return differences of independent values.

    Zou, G. Y., and Donner, A. (2008). Statistics in Medicine 27.
    """
    change = after.value - before.value
    return Level(
        change,
        change - np.hypot(after.value - after.low, before.high - before.value),
        change + np.hypot(after.high - after.value, before.value - before.low),
    )


def measure_ratio(n: npt.NDArray[Any], hits: Floats, variance: Any) -> Floats:
    """Return the ratio of a `Spread` from rows and hits of each day, which are the last axis.

    `variance` is that of a row.
    """
    total, n_hits = n.sum(-1), hits.sum(-1)
    is_known = ((n > 0).sum(-1) >= 2) & (np.minimum(n_hits, total - n_hits) >= _FEW)
    return np.where(is_known, variance_ratio(n, hits, variance), np.nan)


def effective_sizes(
    now: Spread,
    before: Spread,
    confidence: float,
) -> tuple[Floats, Floats, Floats]:
    """Return as how many independent rows those of two periods count, per group.

    Returns also the degrees of freedom of that. The variance between days is at least that of
    single rows, that of both periods of the group, and that which they share with the other groups
    (moderated variances: Smyth 2004, Statistical Applications in Genetics and Molecular Biology 3:
    3). Few days widen intervals as Student's t does (Korn and Graubard 1998, Survey Methodology 24:
    193-201). A single day counts if other days or groups show how much days vary; otherwise its
    size is NaN.
    """
    freedom = now.freedom + before.freedom
    weighted = np.nan_to_num(now.ratio) * now.freedom + np.nan_to_num(before.ratio) * before.freedom
    ratio = np.divide(weighted, freedom, out=np.zeros_like(weighted), where=freedom > 0)
    usual, weight = _estimate_prior(ratio[freedom > 0], freedom[freedom > 0])
    if np.isinf(weight):
        moderated = np.full_like(ratio, usual)
    else:
        moderated = (weight * usual + freedom * ratio) / np.maximum(weight + freedom, 1e-9)
    effect = np.maximum(1.0, np.maximum(ratio, moderated))
    of_days = np.maximum(now.days + before.days - 2, 1)
    total_freedom = np.where(weight + freedom > 0, weight + freedom, of_days)
    size_now = _effective_size(now, effect, total_freedom, confidence)
    size_before = _effective_size(before, effect, total_freedom, confidence)
    return size_now, size_before, total_freedom


def _effective_size(period: Spread, effect: Floats, freedom: Floats, confidence: float) -> Floats:
    from scipy.special import stdtrit

    level = (1 + confidence) / 2
    enough = (period.rows >= 2) & ((period.days >= 2) | (freedom >= _MIN_FREEDOM))
    of_rows = stdtrit(np.where(enough, period.rows - 1, 1), level)
    wider = of_rows / stdtrit(np.minimum(freedom, 1e9), level)
    return np.where(enough, period.rows / effect * np.minimum(wider, 1) ** 2, np.nan)


def _estimate_prior(ratios: Floats, freedom: Floats) -> tuple[float, float]:
    """Return the ratio that groups share, and its worth in degrees of freedom (Smyth 2004)."""
    from scipy.special import digamma, polygamma

    n_groups = len(ratios)
    if n_groups < 3:
        return 1.0, 0.0
    logs = np.log(np.maximum(ratios, _LEAST)) - digamma(freedom / 2) + np.log(freedom / 2)
    excess = np.var(logs, ddof=1) - np.mean(polygamma(1, freedom / 2))
    if excess <= 0:
        return float(np.exp(logs.mean())), np.inf
    weight = 2 * _invert_trigamma(float(excess))
    return float(np.exp(logs.mean() + digamma(weight / 2) - np.log(weight / 2))), weight


def _invert_trigamma(value: float) -> float:
    """Invert the trigamma function by Newton's method, as in Smyth 2004."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x
