"""Control the share of false discoveries among many groups. Knows p-values only."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from buildframe.metrics.columns import Flags, Floats

RATE = 0.05
"""Share of the notable groups that may be there by chance."""

NIGHTS, ALARMS = 60, 0.1
NIGHTLY = ALARMS / NIGHTS
"""Probability of any notable change in a nightly report if nothing changed: in 60 nights at most one in ten has any."""


def are_notable(p: npt.ArrayLike, level: float = RATE) -> Flags:
    """Return which p-values remain significant among all (Benjamini and Hochberg 1995); NaN is no test.

    If nothing changed, any is notable with at most the probability `level`.
    """
    values: Floats = np.asarray(p, np.float64)
    order = np.argsort(values)  # NaN last
    n = int(np.isfinite(values).sum())
    is_below = values[order][:n] <= level * np.arange(1, n + 1) / max(n, 1)
    notable = np.zeros(len(values), bool)
    notable[order[: int(np.flatnonzero(is_below).max(initial=-1)) + 1]] = True
    return notable
