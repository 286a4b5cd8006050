"""Find storms: half hours in which nearly all steps of a queue or an agent fail, because infrastructure does."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.metrics.columns import Flags, Integers

PERIOD, STORM = "period", "storm"
PLACES = ("queue", "agent_id")
PERIOD_EDGES = np.array([0, 1_800_000_000])
"""Half an hour in microseconds: an outage of an hour fills at least one."""

MIN_STEPS = 5
"""With fewer steps in a period, one broken commit looks like a storm."""

MIN_SHARE = 0.8
"""A storm is when a larger share of the steps fails."""

_MIN_FAILED = 0.25
"""Smallest share of failed attempts in a storm, below which steps are not even compared."""


def suspicious_periods(attempts: nw.LazyFrame[Any], place: str) -> nw.LazyFrame[Any]:
    """Return the periods of a place with so many failures that they may be a storm."""
    periods = attempts.group_by(place, PERIOD).agg(nw.col("passes", "failures", "lost").sum())
    failed = nw.col("failures") + nw.col("lost")
    is_suspicious = (failed >= MIN_STEPS) & (failed >= _MIN_FAILED * (failed + nw.col("passes")))
    return periods.filter(is_suspicious & ~nw.col(place).is_null() & ~nw.col(PERIOD).is_null()).select(place, PERIOD)


def stormy_periods(attempts: nw.LazyFrame[Any], place: str, step: list[str]) -> nw.LazyFrame[Any]:
    """Return the periods of a place in which nearly all steps failed and never passed."""
    steps = attempts.group_by(place, PERIOD, *step).agg(nw.col("passes").sum())
    steps = steps.with_columns(failed=(nw.col("passes") == 0).cast(nw.Int64), steps=nw.lit(1))
    periods = steps.group_by(place, PERIOD).agg(nw.col("failed", "steps").sum())
    is_storm = (nw.col("steps") >= MIN_STEPS) & (nw.col("failed") > MIN_SHARE * nw.col("steps"))
    return periods.filter(is_storm).select(place, PERIOD)


def find_storms(places: pd.Series[Any], period: Integers, step: Integers, has_passed: Flags) -> Flags:
    """Return which attempts are in a storm of their place; without a place or time they are in none."""
    stormy = np.zeros(len(period), bool)
    failing = np.flatnonzero(~has_passed)
    own, _ = pd.factorize(places.take(failing))
    if np.bincount(own[own >= 0]).max(initial=0) < MIN_STEPS:  # as with an agent for each job
        return stormy
    codes, _ = pd.factorize(places)
    is_known = (codes >= 0) & (period >= 0)
    cells = codes * (period.max(initial=0) + 1) + period
    candidates = _suspicious_cells(cells, has_passed, is_known)
    rows = np.flatnonzero(is_known & np.isin(cells, candidates))
    if not len(rows):
        return stormy
    own_cells, n_steps = np.searchsorted(candidates, cells[rows]), step.max(initial=0) + 1
    pairs, place = np.unique(own_cells * n_steps + step[rows], return_inverse=True)
    steps = np.bincount(pairs // n_steps, minlength=len(candidates))
    passed = np.bincount(place, has_passed[rows], len(pairs)) > 0
    failed = np.bincount(pairs // n_steps, ~passed, len(candidates))
    stormy[rows] = ((steps >= MIN_STEPS) & (failed > MIN_SHARE * steps))[own_cells]
    return stormy


def _suspicious_cells(cells: Integers, has_passed: Flags, is_known: Flags) -> npt.NDArray[Any]:
    """Return the cells (periods of a place) of `suspicious_periods`, in order."""
    candidates, failed = np.unique(cells[~has_passed & is_known], return_counts=True)
    candidates, failed = candidates[failed >= MIN_STEPS], failed[failed >= MIN_STEPS]
    passing = cells[has_passed & is_known]
    passing = passing[np.isin(passing, candidates)]
    passed = np.bincount(np.searchsorted(candidates, passing), minlength=len(candidates))
    return candidates[failed >= _MIN_FAILED * (failed + passed)]
