"""Find storms: half hours in which nearly all steps of a queue or an agent fail, because infrastructure does."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.columns import Flags, Integers
from buildframe.metrics.grouping import compact_codes

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
    """Return which attempts are in a storm of their place; without a place or time they are in none.

    Names of places are slow to compare, so only those of periods with enough failures of one place are.
    """
    stormy = np.zeros(len(period), bool)
    failing = np.flatnonzero(~has_passed & (period >= 0))
    cells, failed, n_periods = _count_cells(places.take(failing), period[failing])
    often = np.unique(cells[failed >= MIN_STEPS] % n_periods)
    if not len(often):  # as with an agent for each job
        return stormy
    is_often = np.zeros(n_periods + 1, bool)
    is_often[often] = True
    rows = np.flatnonzero(is_often[np.clip(period, -1, n_periods)])
    codes, _ = pd.factorize(places.take(rows))
    rows, codes = rows[codes >= 0], codes[codes >= 0]
    cell, n_cells = compact_codes(codes * n_periods + period[rows], n_periods * (int(codes.max(initial=0)) + 1))
    passed, steps = has_passed[rows], step[rows]
    n, n_passed = (np.bincount(own, minlength=n_cells) for own in (cell, cell[passed]))
    suspicious = (n - n_passed >= MIN_STEPS) & (n - n_passed >= _MIN_FAILED * n)
    own = np.flatnonzero(suspicious[cell])
    if len(own):
        is_storm = _find_storms(cell[own], steps[own], passed[own], n_cells)
        stormy[rows[own]] = is_storm[cell[own]]
    return stormy


def _count_cells(places: pd.Series[Any], period: Integers) -> tuple[Integers, Integers, int]:
    """Return the periods of places that occur, as numbers, how often they do, and the number of periods."""
    codes, _ = pd.factorize(places)
    n_periods = int(period.max(initial=0)) + 1
    cells, counts = np.unique(codes[codes >= 0] * n_periods + period[codes >= 0], return_counts=True)
    return cells, counts, n_periods


def _find_storms(cell: Integers, step: Integers, passed: Flags, n_cells: int) -> Flags:
    """Return for each period of a place whether nearly all steps failed and never passed."""
    n_steps = int(step.max()) + 1
    pairs, place = np.unique(cell * n_steps + step, return_inverse=True)
    failed = np.bincount(place, passed, len(pairs)) == 0
    steps, failing = (np.bincount(own // n_steps, minlength=n_cells) for own in (pairs, pairs[failed]))
    is_storm: Flags = (steps >= MIN_STEPS) & (failing > MIN_SHARE * steps)
    return is_storm
