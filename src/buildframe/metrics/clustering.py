"""Measure how much information dependent rows hold: jobs of a busy day wait together, builds of a day fail together."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.metrics.columns import Floats
from buildframe.metrics.confidence import variance_ratio
from buildframe.metrics.engines.rows import Days, GroupedRows
from buildframe.metrics.time_buckets import Buckets

_FEW = 2
"""With fewer hits or misses their spread over days is unknown."""

_MIN_FREEDOM = 4
"""With fewer degrees of freedom nothing is known about how a single day differs from others."""

_LEAST = 0.1
"""Lower limit of a spread: that days are more alike than chance makes them means nothing."""


DAY = "number of day"


def with_days(rows: GroupedRows, at: str, tz: str) -> tuple[GroupedRows, Days]:
    """Add the number of the day (`DAY`) of each row's time in the zone; rows without a time are a day of their own."""
    buckets = Buckets.of(rows, [at], "1D", tz, fetched=at)
    numbered = buckets.with_bucket_numbers(rows, at, DAY)
    day = nw.col(DAY).cast(nw.Int64).fill_null(len(buckets))
    return numbered.with_columns(**{DAY: day}), Days(DAY, len(buckets) + 1)


def sum_by_day(rows: GroupedRows, *counted: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sum these columns per group and day; returns rows and keys as `number_groups` does."""
    counts = rows.frame.select(*rows.by, DAY, **{name: nw.col(name).cast(nw.Int64) for name in counted})
    summed = counts.group_by(*rows.by, DAY).agg(nw.col(*counted).sum())
    days = summed.with_columns(nw.col(*counted).cast(nw.Int64))  # sums are decimals in DuckDB
    return rows.engine.number_groups(replace(rows, frame=days), *counted)


@dataclass(frozen=True)
class Spread:
    """How days of each group spread: number of `rows` and `days`, and variance `ratio`.

    `ratio` is the variance of the share of hits between days, divided by the variance of independent rows; NaN if
    unknown.
    """

    rows: Floats
    days: Floats
    ratio: Floats

    @property
    def freedom(self) -> Floats:
        """Degrees of freedom of the ratio."""
        return np.where(np.isnan(self.ratio), 0.0, self.days - 1)


def measure_spread(hits: npt.ArrayLike, sizes: npt.ArrayLike) -> tuple[float, float, float]:
    """Return rows, days and ratio of a group with `hits` of `sizes` rows per day, treating days as clusters."""
    hits, sizes = np.asarray(hits, np.float64), np.asarray(sizes, np.float64)
    share = hits.sum() / max(sizes.sum(), 1)
    return sizes.sum(), len(sizes), float(measure_ratio(sizes, hits, share * (1 - share)))


def measure_ratio(n: npt.NDArray[Any], hits: Floats, variance: Any) -> Floats:
    """Return the ratio of a `Spread` from rows and hits of each day (last axis); `variance` is that of a row."""
    total, n_hits = n.sum(-1), hits.sum(-1)
    is_known = ((n > 0).sum(-1) >= 2) & (np.minimum(n_hits, total - n_hits) >= _FEW)
    return np.where(is_known, variance_ratio(n, hits, variance), np.nan)


def effective_sizes(now: Spread, before: Spread, confidence: float) -> tuple[Floats, Floats, Floats]:
    """Return as how many independent rows those of two periods count, per group, and the degrees of freedom of that.

    The variance between days is at least that of single rows, that of both periods of the group, and that which they
    share with the other groups (moderated variances: Smyth 2004, Statistical Applications in Genetics and Molecular
    Biology 3: 3). Few days widen intervals as Student's t does (Korn and Graubard 1998, Survey Methodology 24:
    193-201). A single day counts if other days or groups show how much days vary; otherwise its size is NaN.
    """
    from scipy.special import stdtrit

    freedom = now.freedom + before.freedom
    weighted = np.nan_to_num(now.ratio) * now.freedom + np.nan_to_num(before.ratio) * before.freedom
    own = np.divide(weighted, freedom, out=np.zeros_like(weighted), where=freedom > 0)
    usual, weight = _estimate_prior(own[freedom > 0], freedom[freedom > 0])
    if np.isinf(weight):
        moderated = np.full_like(own, usual)
    else:
        total_freedom = np.maximum(weight + freedom, 1e-9)
        moderated = (weight * usual + freedom * own) / total_freedom
    effect = np.maximum(1.0, np.maximum(own, moderated))
    known = np.where(weight + freedom > 0, weight + freedom, np.maximum(now.days + before.days - 2, 1))
    tail = (1 + confidence) / 2
    sizes = []
    for side in (now, before):
        enough = (side.rows >= 2) & ((side.days >= 2) | (known >= _MIN_FREEDOM))
        wider = stdtrit(np.where(enough, side.rows - 1, 1), tail) / stdtrit(np.minimum(known, 1e9), tail)
        sizes.append(np.where(enough, side.rows / effect * np.minimum(wider, 1) ** 2, np.nan))
    return sizes[0], sizes[1], known


def _estimate_prior(ratios: Floats, freedom: Floats) -> tuple[float, float]:
    """Return the ratio that groups share, and how many degrees of freedom it is worth (Smyth 2004)."""
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
