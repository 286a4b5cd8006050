"""The 95 % intervals of rates contain the true rate, also if builds of one day pass or fail together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from buildframe.metrics.rates import wilson
from tests.metrics.each_case import for_each
from tests.metrics.simulated_worlds import START, as_attempts, as_builds, as_executions, coverage, outcomes

WORLDS, A_DAY = 400, 15
CORRELATIONS = [0.0, 0.1]


def worlds(rate: float, correlation: float, seed: int) -> pd.DataFrame:
    return outcomes(np.random.default_rng(seed), WORLDS, rate, correlation, a_day=A_DAY)


def covered(summary: pd.DataFrame, rate: float) -> float:
    known = summary.dropna(subset="low")
    assert len(known) > 0.95 * WORLDS
    assert (known["n_effective"] <= known["n"] + 1e-9).all()
    return coverage(known["low"], known["high"], rate).covered


@for_each({f"{rate} {correlation}": (rate, correlation) for rate in (0.5, 0.95, 0.99) for correlation in CORRELATIONS})
def test_success_rates(case):
    rate, correlation = case
    summary = metrics.success_rate(as_builds(worlds(rate, correlation, seed=1)), by="world")
    assert covered(summary, rate) >= 0.92
    low, high = wilson(summary["passed"], summary["n"])
    if correlation and rate < 0.99:
        assert covered(summary.assign(low=low, high=high), rate) < 0.9, "builds taken for independent"


@for_each({str(correlation): correlation for correlation in CORRELATIONS})
def test_retry_rates(correlation):
    summary = metrics.retry_rate(as_executions(worlds(0.05, correlation, seed=2)), by="world")
    assert covered(summary.rename(columns={"executions": "n"}), 0.05) >= 0.92


def test_independent_builds_count_almost_fully():
    summary = metrics.success_rate(as_builds(worlds(0.75, 0.0, seed=3)), by="world")
    assert (summary["n_effective"] / summary["n"]).median() > 0.9
    together = metrics.success_rate(as_builds(worlds(0.75, 0.2, seed=3)), by="world")
    expected = 1 / (1 + (A_DAY - 1) * 0.2)  # Kish's design effect
    assert (together["n_effective"] / together["n"]).median() == pytest.approx(expected, rel=0.25)


def test_intervals_of_weekly_buckets():
    """A week of half a year is a world, too."""
    rows = worlds(0.75, 0.1, seed=4).assign(created_at=lambda rows: rows["at"] + rows["world"] * pd.Timedelta("14D"))
    builds = as_builds(rows.assign(at=rows["created_at"]))[rows["world"] < 100].assign(fetched_at=START)
    trend = metrics.success_trend(builds, freq="W-SUN")
    assert len(trend) == 200
    assert coverage(trend["low"], trend["high"], 0.75).covered >= 0.92


def test_every_pass_leaves_an_interval_below_one():
    summary = metrics.success_rate(as_builds(worlds(0.75, 0.0, seed=5).assign(hit=True)), by="world")
    assert (summary["n_effective"] == summary["n"]).all()
    assert ((summary["low"] < wilson(summary["n"], summary["n"])[0]) & (summary["high"] == 1)).all()


@pytest.mark.long
@for_each({str(correlation): correlation for correlation in CORRELATIONS})
def test_flake_rates_of_commits(correlation):
    """Commits flip more on some days, as when an agent is overloaded."""
    summary = metrics.flips(as_attempts(worlds(0.1, correlation, seed=6)))
    summary = summary.rename(columns={"commits_passed": "n"})
    assert len(summary) == WORLDS
    assert covered(summary, 0.1) >= 0.92
    low, high = wilson(summary["flaky"], summary["n"])
    assert not correlation or covered(summary.assign(low=low, high=high), 0.1) < 0.88, "commits taken for independent"
