"""Find storms: half hours in which nearly all steps of a queue or an agent fail.

Infrastructure fails then, not the steps. Knows attempts by number, not jobs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from buildframe.metrics.columns import NAT, TEXT, Flags, Integers
from buildframe.metrics.grouping import compact_codes

PLACES = ("queue", "agent_id")
"""Columns of the places that can have a storm."""

HALF_HOUR = 1_800_000_000
"""Microseconds of a period: an outage of an hour fills at least one."""

_MIN_STEPS = 5
"""With fewer steps in a period, a few flaky ones look like a storm."""

_MIN_COMMITS = 2
"""A single commit at which all steps fail is broken; infrastructure fails whatever the commit."""

_MIN_SHARE = 0.8
"""A storm is when a larger share of the steps fails."""

_MIN_FAILED = 0.5
"""Smallest share of failed attempts in a storm, below which steps are not even compared."""


def find_storms(attempts: pd.DataFrame) -> pd.DataFrame:
    """Return the storms among attempts: `place` (TEXT), its `kind` (of `PLACES`), and `period`.

    They have `queue`, `agent_id`, `finished_at` (microseconds), `outcome` (0 is a pass, others are
    failures), the numbers `step` and `commit`, and `is_known`: whether the commit is. They are all
    attempts of their half hours.
    """
    period = _number_periods(attempts)
    storms = [_find_storms_of(kind, attempts, period) for kind in PLACES]
    return pd.concat(storms, ignore_index=True)


def flag_storms(attempts: pd.DataFrame, storms: pd.DataFrame) -> Flags:
    """Return which attempts are in one of these storms of their queue or agent."""
    is_stormy = np.zeros(len(attempts), bool)
    if storms.empty:
        return is_stormy
    period = _number_periods(attempts)
    for kind, of_kind in storms.groupby("kind"):
        rows = np.flatnonzero(np.isin(period, of_kind["period"]))  # few texts are compared
        places = attempts[kind].take(rows).astype(TEXT)
        candidates = pd.MultiIndex.from_arrays([places, period[rows]])
        is_stormy[rows] |= candidates.isin(pd.MultiIndex.from_frame(of_kind[["place", "period"]]))
    return is_stormy


def _number_periods(attempts: pd.DataFrame) -> Integers:
    """Return the number of the half hour in which each attempt ended, `NAT` without a time."""
    times = attempts["finished_at"].to_numpy(np.int64)
    return np.where(times == NAT, NAT, times // HALF_HOUR)


def _find_storms_of(kind: str, attempts: pd.DataFrame, period: Integers) -> pd.DataFrame:
    """Return the storms of queues, or those of agents."""
    rows = _find_suspicious_rows(attempts[kind], period, (attempts["outcome"] == 0).to_numpy())
    suspicious = attempts[["step", "commit", "is_known"]].take(rows)
    suspicious["passes"] = attempts["outcome"].take(rows) == 0
    suspicious["place"] = attempts[kind].take(rows).astype(TEXT)
    suspicious["period"] = period[rows]

    passes = suspicious.groupby(["place", "period", "step"])["passes"]
    never_passed = ~passes.any()
    steps = never_passed.groupby(["place", "period"]).agg(n="size", n_failing="sum")
    failures = suspicious[~suspicious["passes"] & suspicious["is_known"]]
    n_commits = failures.groupby(["place", "period"])["commit"].nunique()

    nearly_all_fail = (steps["n"] >= _MIN_STEPS) & (steps["n_failing"] > _MIN_SHARE * steps["n"])
    at_several_commits = n_commits.reindex(steps.index, fill_value=0) >= _MIN_COMMITS
    is_storm = nearly_all_fail & at_several_commits
    storms: pd.DataFrame = steps.index[is_storm].to_frame(index=False)
    return storms.assign(kind=pd.Series(kind, storms.index, dtype=TEXT))


def _find_suspicious_rows(places: pd.Series[Any], period: Integers, has_passed: Flags) -> Integers:
    """Return the attempts of places and half hours with enough failures for a storm.

    Names of places are slow to compare, so only those of half hours with enough failures are.
    """
    failing = np.flatnonzero(~has_passed & (period != NAT))
    first = int(period[failing].min()) if len(failing) else 0
    cells, n_periods = _number_cells(places.take(failing), period[failing] - first)
    failed_cells, n_failed = np.unique(cells[cells >= 0], return_counts=True)
    stormy_periods = failed_cells[n_failed >= _MIN_STEPS] % n_periods + first

    rows = np.flatnonzero(np.isin(period, stormy_periods))
    cells, _ = _number_cells(places.take(rows), period[rows] - first)
    rows, cells = rows[cells >= 0], cells[cells >= 0]
    cells, n_cells = compact_codes(cells, int(cells.max(initial=-1)) + 1)
    n_attempts = np.bincount(cells, minlength=n_cells)
    n_failed = np.bincount(cells[~has_passed[rows]], minlength=n_cells)
    is_suspicious = (n_failed >= _MIN_STEPS) & (n_failed >= _MIN_FAILED * n_attempts)
    return rows[is_suspicious[cells]]


def _number_cells(places: pd.Series[Any], period: Integers) -> tuple[Integers, int]:
    """Return a number for the place and half hour of each row, -1 without a place.

    The remainder of its division by the second result is the half hour.
    """
    codes, _ = pd.factorize(places)
    n_periods = int(period.max(initial=0)) + 1
    cells = codes * n_periods
    cells += period
    cells[codes < 0] = -1
    return cells, n_periods
