"""Control the share of false discoveries among many groups. Knows p-values only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from buildframe.metrics.columns import Flags, Floats

RATE = 0.05
"""Share of the notable groups that may be there by chance."""

NIGHTS, ALARMS = 60, 0.1
NIGHTLY = ALARMS / NIGHTS
"""Probability of any notable change in a nightly report if nothing changed: in 60 nights at most one in ten has any.

Days that depend on the day before have more.
"""


def are_notable(p: npt.ArrayLike, level: float = RATE) -> Flags:
    """Return which p-values remain significant among all (Benjamini and Hochberg 1995); NaN is no test.

    If nothing changed, any is notable with at most the probability `level`.
    """
    return adjust(p) <= level


def adjust(p: npt.ArrayLike) -> Floats:
    """Return the smallest rate of false discoveries at which each p-value is significant; NaN is no test."""
    values: Floats = np.asarray(p, np.float64)
    order = np.argsort(values)[::-1]  # NaN first
    n = int(np.isfinite(values).sum())
    tested = order[len(values) - n :]
    adjusted = np.full(len(values), np.nan)
    adjusted[tested] = np.minimum.accumulate(np.minimum(values[tested] * n / np.arange(n, 0, -1), 1))
    return adjusted
