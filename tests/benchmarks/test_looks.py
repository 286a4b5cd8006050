"""Nightly reports alarm seldom in worlds in which nothing changes, and report what is planted."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from buildframe import metrics
from buildframe.report.measurements import find_changes
from buildframe.report.periods import Period
from buildframe.report.reported_changes import reported
from tests.benchmarks.looks import BEFORE, PLANTED, START, STATIONARY, World, measure_night, prepare

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("name", STATIONARY)
def test_nights_in_which_nothing_changes_have_no_findings(name: str) -> None:
    """A week apart, so that the reports share only history; each would alarm in one of 600."""
    builds, jobs = prepare(STATIONARY[name].create(5, nights=29))
    assert [measure_night(builds, jobs, START + pd.Timedelta(BEFORE + night, "D")) for night in (0, 14, 28)] == [[]] * 3


def test_a_slow_fall_of_success_is_not_silent() -> None:
    """From 88 to 68 % in 28 days: one finding about the pipeline, at the latest by the comparison of four weeks."""
    world, _ = PLANTED["success falls from 88 to 68 %"]
    builds, jobs = prepare(replace(world, builds=20.0).create(2, nights=29))
    found = measure_night(builds, jobs, START + pd.Timedelta(BEFORE + 28, "D"))
    (finding,) = [one for one in found if one.subject == "p0"]
    assert finding.bad
    assert finding.question == "reliability"


def test_a_much_slower_step_is_reported_after_a_week() -> None:
    builds, jobs = prepare(World(day=0.1, slower=2.0).create(3, nights=8))
    found = measure_night(builds, jobs, START + pd.Timedelta(BEFORE + 7, "D"))
    assert [(one.subject, one.bad) for one in found if one.question == "speed"][:1] == [("p0: s0", True)]
    assert {one.subject.split(":")[0] for one in found} == {"p0"}


@pytest.mark.parametrize("seed", range(3))
def test_findings_are_the_changes_that_tables_report(seed: int) -> None:
    """Of worlds with several changes, in other directions and at other times."""
    world = World(day=0.1, at=BEFORE - 3 * seed, slower=(1.6, 0.5, 1.3)[seed], failing_then=(0.5, 0.02, 0.4)[seed])
    builds, jobs = prepare(world.create(seed, nights=8))
    now = START + pd.Timedelta(BEFORE + 7, "D")
    period = Period.last(now, 7)
    found = measure_night(builds, jobs, now)
    tables, _ = find_changes(builds[builds["finished_at"] < now], jobs[jobs["finished_at"] < now], period, None)
    subjects = [(one.question, one.subject) for one in found]
    assert len(set(subjects)) == len(subjects) > 0
    for question, name in (("speed", "wall_time"), ("reliability", "success")):
        rows = reported(tables, name, period)
        direction = "direction" if name == "success" else "p50_direction"
        bad = {"down"} if name == "success" else {"up"}
        told = {
            one.subject: (one.bad, one.since) for one in found if one.question == question and ":" not in one.subject
        }
        changed = rows[rows[direction] != ""]
        assert told == {
            row["pipeline"]: (row[direction] in bad, None if pd.isna(row["since"]) else row["since"])
            for row in changed.to_dict("records")
        }
        assert changed["pipeline"].is_unique
        is_first = rows[direction].ne("").to_numpy()
        assert is_first.tolist() == sorted(is_first.tolist(), reverse=True)


def test_days_to_see_are_those_after_which_a_change_is_marked() -> None:
    """Of 40 series, each its own world: four of five are marked then, and few at half of the days."""
    random_worlds = World(pipelines=40, steps=1, builds=12.0, day=0.1, flaky=0.0, failing=0.0)
    _, jobs = random_worlds.create(7, nights=28)
    is_late = jobs["started_at"] >= START + pd.Timedelta(BEFORE, "D")
    seconds = metrics.run_time(jobs).dt.total_seconds() * is_late.map({True: 1.3, False: 1.0})
    jobs = jobs.assign(x_s=seconds)
    before = jobs[~is_late & (jobs["started_at"] >= START + pd.Timedelta(28, "D"))]
    expected = metrics.days_to_see(before, "x_s", "pipeline", 0.3, at="started_at")["days_to_see"]
    days, p = int(expected.median()), metrics.NIGHTLY / 40
    share = {after: _share_marked(jobs, after, p) for after in (round(0.7 * days), round(1.25 * days))}
    assert share[round(1.25 * days)] >= 0.8 - 0.1
    assert share[round(0.7 * days)] < 0.8
