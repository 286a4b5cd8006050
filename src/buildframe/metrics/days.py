"""How much rows tell that depend on each other: jobs of a busy day wait together, builds of a bad day fail together."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.metrics.buckets import zoned
from buildframe.metrics.columns import moments
from buildframe.metrics.engines import Integers


def day_of(table: pd.DataFrame, at: str, tz: str) -> Integers:
    """The number of the day in the zone on which each row's time lies; -1 without one."""
    local: pd.Series[Any] = zoned(moments(table, at), tz)
    numbers, _ = pd.factorize(local.dt.tz_localize(None).dt.normalize())
    return np.asarray(numbers, np.int64)


def effective_size(hits: npt.ArrayLike, sizes: npt.ArrayLike, confidence: float) -> float:
    """How many rows that do not depend on each other would tell a share as surely as these, which come in days.

    `hits` of `sizes` rows a day. The variance is that of a share from clusters, the days, and is taken to be no less
    than that of single rows; that it is known from few days widens intervals as Student's t does (Korn and Graubard
    1998, Survey Methodology 24: 193-201). NaN with fewer than two days.
    """
    from scipy.special import stdtrit

    hits, sizes = np.asarray(hits, np.float64), np.asarray(sizes, np.float64)
    n, days = sizes.sum(), len(sizes)
    if days < 2:
        return np.nan
    share = hits.sum() / n
    single = share * (1 - share) / n
    together = days / (days - 1) * np.sum((hits - share * sizes) ** 2) / n**2
    effect = max(1.0, together / single) if single > 0 else 1.0
    tail = (1 + confidence) / 2
    return float(n / effect * (stdtrit(n - 1, tail) / stdtrit(days - 1, tail)) ** 2)
