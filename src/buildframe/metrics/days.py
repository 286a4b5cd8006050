"""How much rows tell that depend on each other: jobs of a busy day wait together, builds of a bad day fail together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.metrics.buckets import Buckets
from buildframe.metrics.engines import Floats, Rows, numbered

_FEW = 2
"""Hits, or misses: of fewer it cannot be told how they spread over days."""

_LEAST = 0.1
"""Spreads below this are one: that days are more alike than chance makes them says nothing."""


DAY = "number of day"


def dated(found: Rows, at: str, tz: str) -> Rows:
    """The rows with the number of the day in the zone on which each one's time lies (`DAY`)."""
    days = Buckets.of(found.frame, [at], "1D", tz, seen=at)
    return replace(found, frame=days.numbered(found.frame, at, DAY))


def by_days(found: Rows, *counted: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Sums of each group's days, of rows that are `dated`, as `numbered` gives rows and keys."""
    counts = found.frame.select(*found.by, DAY, **{name: nw.col(name).cast(nw.Int64) for name in counted})
    summed = counts.group_by(*found.by, DAY).agg(nw.col(*counted).sum())
    days = summed.with_columns(nw.col(*counted).cast(nw.Int64))  # DuckDB's are decimals
    return numbered(replace(found, frame=days), *counted)


@dataclass(frozen=True)
class Spread:
    """Of groups, how days spread: how many `rows` and `days`, and the variance of the share of hits between days.

    `ratio` is that variance by the one that rows have which do not depend on each other; NaN where it is not known.
    """

    rows: Floats
    days: Floats
    ratio: Floats

    @property
    def freedom(self) -> Floats:
        """Of how many independent differences between days the ratio is told."""
        return np.where(np.isnan(self.ratio), 0.0, self.days - 1)


def spread_of(hits: npt.ArrayLike, sizes: npt.ArrayLike) -> tuple[float, float, float]:
    """Rows, days and ratio of a group with `hits` of `sizes` rows a day: the variance of a share from clusters."""
    hits, sizes = np.asarray(hits, np.float64), np.asarray(sizes, np.float64)
    n, days = sizes.sum(), len(sizes)
    if days < 2 or min(hits.sum(), n - hits.sum()) < _FEW:
        return n, days, np.nan
    share = hits.sum() / n
    together = days / (days - 1) * np.sum((hits - share * sizes) ** 2) / n**2
    return n, days, together / (share * (1 - share) / n)


def effective_sizes(now: Spread, before: Spread, confidence: float) -> tuple[Floats, Floats]:
    """As how many rows that do not depend on each other those of two periods tell a share, group by group.

    The variance between days is taken to be no less than that of single rows, than what both periods of the group tell,
    and than what they tell together with the other groups (moderated variances: Smyth 2004, Statistical Applications
    in Genetics and Molecular Biology 3: 3). That it is known from few days widens intervals as Student's t does (Korn
    and Graubard 1998, Survey Methodology 24: 193-201). NaN with fewer than two days in a period.
    """
    from scipy.special import stdtrit

    freedom = now.freedom + before.freedom
    told = np.nan_to_num(now.ratio) * now.freedom + np.nan_to_num(before.ratio) * before.freedom
    own = np.divide(told, freedom, out=np.zeros_like(told), where=freedom > 0)
    usual, weight = _usual(own[freedom > 0], freedom[freedom > 0])
    if np.isinf(weight):
        moderated = np.full_like(own, usual)
    else:
        all_told = np.maximum(weight + freedom, 1e-9)
        moderated = (weight * usual + freedom * own) / all_told
    effect = np.maximum(1.0, np.maximum(own, moderated))
    known = np.where(weight + freedom > 0, weight + freedom, np.maximum(now.days + before.days - 2, 1))
    tail = (1 + confidence) / 2
    sizes = []
    for side in (now, before):
        enough = (side.days >= 2) & (side.rows >= 2)
        wider = stdtrit(np.where(enough, side.rows - 1, 1), tail) / stdtrit(np.minimum(known, 1e9), tail)
        sizes.append(np.where(enough, side.rows / effect * np.minimum(wider, 1) ** 2, np.nan))
    return sizes[0], sizes[1]


def _usual(ratios: Floats, freedom: Floats) -> tuple[float, float]:
    """What groups have in common: the usual ratio, and as how many degrees of freedom it is worth (Smyth 2004)."""
    from scipy.special import digamma, polygamma

    many = len(ratios)
    if many < 3:
        return 1.0, 0.0
    logs = np.log(np.maximum(ratios, _LEAST)) - digamma(freedom / 2) + np.log(freedom / 2)
    excess = np.var(logs, ddof=1) - np.mean(polygamma(1, freedom / 2))
    if excess <= 0:
        return float(np.exp(logs.mean())), np.inf
    weight = 2 * _trigamma_inverse(float(excess))
    return float(np.exp(logs.mean() + digamma(weight / 2) - np.log(weight / 2))), weight


def _trigamma_inverse(value: float) -> float:
    """By Newton's method, as in Smyth 2004."""
    from scipy.special import polygamma

    x = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(polygamma(1, x))
        step = trigamma * (1 - trigamma / value) / float(polygamma(2, x))
        x += step
        if -step / x < 1e-8:
            break
    return x
