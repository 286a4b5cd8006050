"""Find storms: half hours in which nearly all steps of a queue or an agent fail, because infrastructure does."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.columns import Flags, Integers
from buildframe.metrics.grouping import compact_codes

PERIOD, STORM = "period", "n_storm"
PLACES = ("queue", "agent_id")
PERIOD_EDGES = np.array([0, 1_800_000_000])
"""Half an hour in microseconds: an outage of an hour fills at least one."""

MIN_STEPS = 5
"""With fewer steps in a period, a few flaky ones look like a storm."""

MIN_COMMITS = 2
"""A single commit at which all steps fail is broken; infrastructure fails whatever the commit."""

MIN_SHARE = 0.8
"""A storm is when a larger share of the steps fails."""

_MIN_FAILED = 0.5
"""Smallest share of failed attempts in a storm, below which steps are not even compared."""

_FAILED = 1 - nw.col("passes")

_MAX_RANGES = 20
"""More ranges of time take a filter longer than the rows between them."""


def suspicious_periods(attempts: nw.LazyFrame[Any], place: str) -> nw.LazyFrame[Any]:
    """Return the periods of a place with so many failures that they may be a storm; either may be null."""
    if place != "queue":  # of many places, passes take longer to count than to look at again
        attempts = attempts.filter(nw.col("passes") == 0)
    periods = attempts.group_by(place, PERIOD).agg(nw.col("passes").sum(), tries=nw.len())
    periods = periods.with_columns(failed=nw.col("tries") - nw.col("passes"))
    return periods.filter(_may_be_storm()).select(place, PERIOD)


def join_periods(periods: Integers) -> list[tuple[int, int]]:
    """Return few ranges of time that contain these periods: the first microsecond of each, and that after its end.

    They contain others, too, if the periods have many gaps.
    """
    numbers = np.unique(periods)
    gaps = np.diff(numbers)
    widest = np.argsort(-gaps, kind="stable")[: _MAX_RANGES - 1]
    last = np.sort(widest[gaps[widest] > 1])
    starts, ends = numbers[np.append(0, last + 1)], numbers[np.append(last, -1)] + 1
    return [(int(start), int(end)) for start, end in np.stack([starts, ends], axis=1) * PERIOD_EDGES[1]]


def stormy_periods(attempts: nw.LazyFrame[Any], place: str, step: list[str], commit: str) -> nw.LazyFrame[Any]:
    """Return the periods of a place in which nearly all steps failed and never passed, at several commits."""
    failing = attempts.with_columns(first=nw.when(nw.col("passes") == 0).then(nw.col(commit)))
    failing = failing.with_columns(last=nw.col("first"))
    steps = failing.group_by(place, PERIOD, *step).agg(
        nw.col("passes").sum(), nw.col("first").min(), nw.col("last").max(), tries=_FAILED.sum()
    )
    steps = steps.with_columns(has_failed=(nw.col("passes") == 0).cast(nw.Int64), steps=nw.lit(1))
    commits = nw.col("first").min(), nw.col("last").max()
    failures = {"failed": nw.col("tries").sum(), "never": nw.col("has_failed").sum()}
    periods = steps.group_by(place, PERIOD).agg(*commits, nw.col("passes", "steps").sum(), **failures)
    is_storm = (nw.col("steps") >= MIN_STEPS) & (nw.col("never") > MIN_SHARE * nw.col("steps"))
    has_commits = nw.col("first") != nw.col("last")  # MIN_COMMITS, without a list of all of them
    return periods.filter(is_storm & has_commits & _may_be_storm()).select(place, PERIOD)


def _may_be_storm() -> nw.Expr:
    failed = nw.col("failed")
    return (failed >= MIN_STEPS) & (failed >= _MIN_FAILED * (failed + nw.col("passes")))


def find_storms(places: pd.Series[Any], period: Integers, step: Integers, commit: Integers, has_passed: Flags) -> Flags:
    """Return which attempts are in a storm of their place; without a place or time they are in none.

    An unknown commit is -1. Names of places are slow to compare, so only those of periods with enough failures are.
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
        failed = own[~passed[own] & (commit[rows[own]] >= 0)]
        stormy[rows[own]] = (is_storm & _fail_at_several(cell[failed], commit[rows[failed]], n_cells))[cell[own]]
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
    return (steps >= MIN_STEPS) & (failing > MIN_SHARE * steps)


def _fail_at_several(cell: Integers, commit: Integers, n_cells: int) -> Flags:
    """Return for each period of a place whether attempts failed at several commits."""
    many = int(commit.max(initial=0)) + 1
    return np.bincount(np.unique(cell * many + commit) // many, minlength=n_cells) >= MIN_COMMITS
