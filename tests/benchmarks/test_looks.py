"""Nightly reports alarm seldom in worlds in which nothing changes, and report what is planted."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from buildframe import metrics
from buildframe.metrics.discoveries import NIGHTLY
from buildframe.report.periods import Period
from buildframe.report.reported_changes import reported
from tests.benchmarks.looks import BEFORE, PLANTED, START, STATIONARY, World, find_all_changes, measure_night

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", STATIONARY)
def test_nights_in_which_nothing_changes_have_no_findings(name: str) -> None:
    """Four weeks apart; each would alarm in one of 600."""
    builds, jobs = STATIONARY[name].create(5, nights=29)
    assert [measure_night(builds, jobs, START + pd.Timedelta(BEFORE + night, "D")) for night in (0, 28)] == [[]] * 2


def test_a_slow_fall_of_success_is_not_silent() -> None:
    """From 88 to 68 % in 28 days: one finding about the pipeline, at the latest by the comparison of four weeks."""
    world, _ = PLANTED["success falls from 88 to 68 %"]
    builds, jobs = replace(world, builds=20.0).create(2, nights=29)
    found = measure_night(builds, jobs, START + pd.Timedelta(BEFORE + 28, "D"))
    (finding,) = [one for one in found if one.subject == "p0"]
    assert finding.bad
    assert finding.question == "reliability"


def test_a_much_slower_step_is_reported_after_a_week() -> None:
    builds, jobs = World(day=0.1, slower=2.0).create(3, nights=8)
    found = measure_night(builds, jobs, START + pd.Timedelta(BEFORE + 7, "D"))
    assert [(one.subject, one.bad) for one in found if one.question == "speed"][:1] == [("p0: s0", True)]
    assert {one.subject.split(":")[0] for one in found} == {"p0"}


@pytest.mark.parametrize("seed", range(3))
def test_findings_are_the_changes_that_tables_report(seed: int) -> None:
    """Of worlds with several changes, in other directions and at other times."""
    world = World(day=0.1, at=BEFORE - 3 * seed, slower=(1.8, 0.5, 1.1)[seed], failing_then=(0.6, 0.02, 0.2)[seed])
    builds, jobs = world.create(seed, nights=8)
    now = START + pd.Timedelta(BEFORE + 7, "D")
    period = Period.last(now, 7)
    found = measure_night(builds, jobs, now)
    tables = find_all_changes(builds, jobs, period)
    subjects = [(one.question, one.subject) for one in found]
    assert len(set(subjects)) == len(subjects)
    assert bool(subjects) == (seed < 2)
    for question, name in (("speed", "wall_time"), ("reliability", "success")):
        rows = reported(tables, name, period)
        direction = "direction" if name == "success" else "p50_direction"
        bad = {"down"} if name == "success" else {"up"}
        own = [one for one in found if one.question == question and ":" not in one.subject]
        changed = rows[rows[direction] != ""]
        assert {one.subject: (one.bad, one.since) for one in own} == {
            row["pipeline"]: (row[direction] in bad, None if pd.isna(row["since"]) else row["since"])
            for row in changed.to_dict("records")
        }
        assert changed["pipeline"].is_unique
        is_reported = rows[direction].ne("").tolist()
        assert is_reported == sorted(is_reported, reverse=True)


def test_days_to_see_are_those_after_which_a_change_is_marked() -> None:
    """Of 40 series, each a world of its own: four of five are marked after a quarter more days."""
    _, jobs = World(pipelines=40, steps=1, day=0.1, flaky=0.0, failing=0.0).create(7, nights=28)
    is_late = jobs["started_at"] >= START + pd.Timedelta(BEFORE, "D")
    seconds = metrics.run_time(jobs).dt.total_seconds()
    jobs = jobs.assign(x_s=seconds * is_late.map({True: 1.3, False: 1.0}))
    before = jobs[~is_late & (jobs["started_at"] >= START + pd.Timedelta(28, "D"))]
    expected = metrics.days_to_see(before, "x_s", "pipeline", 0.3, at="started_at")["days_to_see"]
    days = int(expected.median())
    assert _share_marked(jobs, round(1.25 * days)) >= 0.7
    assert _share_marked(jobs, round(0.7 * days)) < 0.8


def _share_marked(jobs: pd.DataFrame, after: int) -> float:
    """Return the share of series that a report of this day marks, each at the level of a nightly report of 40 tests."""
    end, level, marked = START + pd.Timedelta(BEFORE + after, "D"), NIGHTLY / 40, set()
    for days in (7, 28):
        now, before = (
            jobs[jobs["started_at"].between(end - pd.Timedelta(stop, "D"), end - pd.Timedelta(start, "D"))]
            for start, stop in ((0, days), (days, 2 * days))
        )
        change = metrics.percentile_change(now, before, "x_s", "pipeline", at="started_at")
        marked |= set(change.loc[change["p50_change_p"] <= level, "pipeline"])
    changes = metrics.change_points(now, "x_s", "pipeline", at="started_at")
    return len(marked | set(changes.loc[changes["p"] <= level, "pipeline"])) / 40
