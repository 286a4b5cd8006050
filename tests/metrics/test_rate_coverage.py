"""The 95 % intervals of rates contain the true rate, also if builds of one day pass or fail together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from metric_frames import START

from buildframe import metrics

WORLDS, DAYS, A_DAY = 400, 14, 15
DAY_EFFECTS = [0.0, 0.1]
"""Share of the variance that days make, as of a branch that is broken for a day (intraclass correlation)."""


def worlds(rate: float, day_effect: float, seed: int) -> pd.DataFrame:
    """Outcomes (`hit`) of all worlds by working hours; the rate of a day is drawn from a beta distribution."""
    random = np.random.default_rng(seed)
    n = random.poisson(A_DAY, WORLDS * DAYS)
    spread = 1 / day_effect - 1 if day_effect else np.inf
    of_day = random.beta(rate * spread, (1 - rate) * spread, len(n)) if day_effect else np.full(len(n), rate)
    day = np.repeat(np.arange(len(n)), n)
    hours = 24 * (day % DAYS) + random.uniform(8, 18, len(day))
    times = (START + pd.to_timedelta(hours, unit="h")).astype("datetime64[us, UTC]")
    return pd.DataFrame({"world": day // DAYS, "at": times, "hit": random.random(len(day)) < of_day[day]})


def as_builds(rows: pd.DataFrame) -> pd.DataFrame:
    state = pd.Series(np.where(rows["hit"], "passed", "failed"), dtype="str")
    return rows.assign(state=state, blocked=False, created_at=rows["at"])


def as_jobs(rows: pd.DataFrame) -> pd.DataFrame:
    texts = dict.fromkeys(["id", "retried_in_job_id", "retry_type"], pd.Series(None, rows.index, dtype="str"))
    return rows.assign(**texts, type="script", state="failed", started_at=rows["at"], retried=rows["hit"])


def covered(summary: pd.DataFrame, rate: float) -> float:
    known = summary.dropna(subset="low")
    assert len(known) > 0.95 * WORLDS
    assert (known["n_effective"] <= known["n"] + 1e-9).all()
    return ((known["low"] <= rate) & (rate <= known["high"])).mean()


@pytest.mark.parametrize("day_effect", DAY_EFFECTS)
@pytest.mark.parametrize("rate", [0.5, 0.75, 0.95, 0.99])
def test_success_rates(rate, day_effect):
    summary = metrics.success_rate(as_builds(worlds(rate, day_effect, seed=1)), by="world")
    assert covered(summary, rate) >= 0.92
    low, high = metrics.wilson(summary["passed"], summary["n"])
    if day_effect and rate < 0.99:
        assert covered(summary.assign(low=low, high=high), rate) < 0.9, "builds taken for independent"


@pytest.mark.parametrize("day_effect", DAY_EFFECTS)
def test_retry_rates(day_effect):
    summary = metrics.retry_rate(as_jobs(worlds(0.05, day_effect, seed=2)), by="world")
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
    assert ((trend["low"] <= 0.75) & (trend["high"] >= 0.75)).mean() >= 0.92


def test_every_pass_leaves_an_interval_below_one():
    summary = metrics.success_rate(as_builds(worlds(0.75, 0.0, seed=5).assign(hit=True)), by="world")
    assert (summary["n_effective"] == summary["n"]).all()
    assert ((summary["low"] < metrics.wilson(summary["n"], summary["n"])[0]) & (summary["high"] == 1)).all()


def as_attempts(rows: pd.DataFrame) -> pd.DataFrame:
    """Attempts of a step for each world at one commit per row, which fail first if the row is a hit."""
    texts = {"organization": "acme", "step_key": "e2e", "name": None, "matrix": None, "signal": None, "type": "script"}
    shared = {name: pd.Series(text, rows.index, dtype="str") for name, text in texts.items()}
    shared |= {"pipeline": rows["world"].astype("str"), "commit": pd.Series(rows.index, rows.index).astype("str")}
    ended = rows.assign(**shared, parallel_group_index=pd.array([pd.NA] * len(rows), "Int64"), finished_at=rows["at"])
    ended = ended.assign(soft_failed=pd.array([False] * len(rows), "boolean"), state="passed", exit_status=0)
    failed = ended[rows["hit"]].assign(state="failed", exit_status=1)
    passed = ended.assign(finished_at=ended["finished_at"] + pd.Timedelta("5min"))
    frame = pd.concat([failed, passed], ignore_index=True)
    return frame.astype({"state": "str", "exit_status": "Int64"}).drop(columns=["world", "at", "hit"])


@pytest.mark.parametrize("day_effect", DAY_EFFECTS)
def test_flake_rates_of_commits(day_effect):
    """Commits flip more on some days, as when an agent is overloaded."""
    summary = metrics.flips(as_attempts(worlds(0.1, day_effect, seed=6)))
    summary = summary.rename(columns={"commits_passed": "n"})
    assert len(summary) == WORLDS
    assert covered(summary, 0.1) >= 0.92
    low, high = metrics.wilson(summary["flaky"], summary["n"])
    assert not day_effect or covered(summary.assign(low=low, high=high), 0.1) < 0.88, "commits taken for independent"
