"""Compute confidence intervals of rows that depend on each other, from sums over equal spans of time.

Rows close in time share a queue, an outage or a commit, so n of them say less than n independent rows. How much less
shows in how much sums vary between spans. Knows numbers of rows, not their values.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from buildframe.metrics.columns import Floats, Integers

_MIN_SPANS = 5
"""With rows in fewer spans, how these vary says nothing."""


def design_effect(n: Integers, sums: Floats, variance: Floats) -> Floats:
    """Return how many times the variance of a mean is that of independent rows; at least 1, NaN if unknown.

    `n` and `sums` are the rows and their sum in each span (last axis), and `variance` is that of a row.
    """
    effect = variance_ratio(n, sums, variance)
    return np.where(_used_spans(n) < _MIN_SPANS, np.nan, np.where(variance > 0, np.maximum(effect, 1.0), 1.0))


def variance_ratio(n: Integers, sums: Floats, variance: Floats) -> Any:
    """Return the variance of a mean between spans or days, divided by that of independent rows; as `design_effect`."""
    total, used = n.sum(-1), _used_spans(n)
    with np.errstate(invalid="ignore", divide="ignore"):
        residuals = sums - (sums.sum(-1) / total)[..., None] * n
        return used / (used - 1) * (residuals**2).sum(-1) / (total * variance)


def size_for_interval(n_effective: Floats, n: Integers, confidence: float) -> Floats:
    """Return the effective number of rows for an interval: fewer, because a variance from few spans is uncertain."""
    from scipy.special import ndtri, stdtrit

    level, spans = (1 + confidence) / 2, np.maximum(_used_spans(n), 2)
    size: Floats = n_effective * (ndtri(level) / stdtrit(spans - 1.0, level)) ** 2
    return size


def share_interval(p: float, size: Floats, confidence: float, correction: float = 1.0) -> tuple[Floats, Floats]:
    """Return the shares of rows between which the percentile p of all rows lies, for this effective number of rows.

    With a `correction` of 1 the interval is Clopper and Pearson's, with .5 it is Jeffreys's, which is shorter.
    """
    from scipy.special import betaincinv

    tail, rest = (1 - confidence) / 2, 1 - correction
    with np.errstate(invalid="ignore"):
        below, above = (
            betaincinv(size * p + rest, size * (1 - p) + correction, tail),
            betaincinv(size * p + correction, size * (1 - p) + rest, 1 - tail),
        )
    return np.asarray(below, np.float64), np.asarray(above, np.float64)


def survival_interval(share: Floats, variance: Floats, n: Integers, confidence: float) -> tuple[Floats, Floats]:
    """Return the interval of a share that lasts, on the scale of log(-log(share)) [1]; `variance` is that of its log.

    [1] Kalbfleisch, J. D., and Prentice, R. L. (2002). The Statistical Analysis of Failure Time Data. Wiley. Page 18.
    """
    from scipy.special import stdtrit

    factor = stdtrit(np.maximum(_used_spans(n), 2) - 1.0, (1 + confidence) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        width = factor * np.sqrt(variance) / -np.log(share)
        low, high = share ** np.exp(width), share ** np.exp(-width)
    is_known = np.isfinite(width) & (share > 0) & (share < 1)
    return np.where(is_known, low, np.nan), np.where(is_known, high, np.nan)


def _used_spans(n: Integers) -> Any:
    return (n > 0).sum(-1)
