"""Estimate what is saved per build between two predictions of the same builds, with intervals by day."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from buildframe.metrics.columns import Floats, Integers

_MIN_DAYS = 3
"""With fewer days, how these vary says nothing."""


class Saving(NamedTuple):
    """Mean seconds saved per build, its 95 % interval (NaN if unknown), and the number of builds."""

    mean: float
    low: float
    high: float
    builds: int

    def hours(self) -> tuple[float, float, float]:
        """Return the hours saved in all builds, with their interval."""
        mean, low, high = (value * self.builds / 3600 for value in self[:3])
        return mean, low, high


def estimate_saving(saved: Floats, day: Integers) -> Saving:
    """Estimate the mean of paired differences; builds of a day depend on each other, so days are the sample.

    Builds with an unknown difference (NaN) are left out. The mean is a ratio of sums over days: its
    variance follows from the residuals of days (Cochran 1977, Sampling Techniques, chapter 6).
    """
    from scipy.special import stdtrit

    is_known = ~np.isnan(saved)
    n = int(is_known.sum())
    if not n:
        return Saving(math.nan, math.nan, math.nan, 0)
    mean = float(saved[is_known].mean())
    _, number = np.unique(day[is_known], return_inverse=True)
    residuals = np.bincount(number, saved[is_known] - mean)
    days = len(residuals)
    if days < _MIN_DAYS:
        return Saving(mean, math.nan, math.nan, n)
    error = math.sqrt(days / (days - 1) * float((residuals**2).sum())) / n
    width = float(stdtrit(days - 1, 0.975)) * error
    return Saving(mean, mean - width, mean + width, n)
