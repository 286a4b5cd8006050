"""Nightly reports alarm seldom in worlds in which nothing changes, and report what is planted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from buildframe.report.findings import findings
from buildframe.report.periods import Period
from buildframe.report.reported_changes import reported
from tests.benchmarks.looks import BEFORE, PLANTED, START, STATIONARY, World, Worlds, find_all_changes, measure_night

pytestmark = pytest.mark.long


def test_nights_in_which_nothing_changes_have_no_findings() -> None:
    """Four weeks apart; each would alarm in one of 600."""
    nights = [START + pd.Timedelta(BEFORE + night, "D") for night in (0, 28)]
    found = {}
    for name in (name for name, world in STATIONARY.items() if not world.persists):
        builds, jobs = STATIONARY[name].create(5, nights=29)
        found[name] = [measure_night(builds, jobs, night) for night in nights]
    assert found
    assert {name: findings for name, findings in found.items() if findings != [[], []]} == {}


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


def test_findings_are_the_changes_that_tables_report() -> None:
    """Of worlds with several changes, in other directions and at other times."""
    for seed in range(3):
        assert_findings_are_the_reported_changes(seed)


def assert_findings_are_the_reported_changes(seed: int) -> None:
    world = World(day=0.1, at=BEFORE - 3 * seed, slower=(1.8, 0.5, 1.1)[seed], failing_then=(0.6, 0.02, 0.2)[seed])
    builds, jobs = world.create(seed, nights=8)
    now = START + pd.Timedelta(BEFORE + 7, "D")
    period = Period.last(now, 7)
    tables = find_all_changes(builds, jobs, period)
    found = findings(tables, period)
    subjects = [(one.question, one.subject) for one in found]
    assert len(set(subjects)) == len(subjects)
    assert bool(subjects) == (seed < 2)
    for question, name in (("speed", "wall_time"), ("reliability", "success")):
        rows = reported(tables.tables(), name)
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


def test_worlds_that_are_measured_together_have_the_reports_of_each() -> None:
    """No change in them is near the limit of significance, at which other worlds matter."""
    world = World(2, 2, day=0.1, slower=2.0)
    together = Worlds(world, range(2, 4), nights=8).measure_night(7)
    now = START + pd.Timedelta(BEFORE + 7, "D")
    each = [measure_night(*world.create(seed, nights=8), now) for seed in range(2, 4)]
    own, alone = (
        [[(one.since, one.text.split(" (")[0]) for one in found if one.subject == "p0: s0"] for found in reports]
        for reports in (together, each)
    )
    assert own == alone
    assert all(own)


def test_persistent_days_are_correlated() -> None:
    _, jobs = World(1, 1, 200.0, day=0.5, persists=0.6).create(4, nights=244)
    days = np.log(metrics.run_time(jobs).dt.total_seconds()).groupby(jobs["created_at"].dt.floor("D")).mean()
    assert days.autocorr() == pytest.approx(0.6, abs=0.1)
    assert days.std() == pytest.approx(0.5, rel=0.2)


def test_days_to_see_are_those_after_which_reports_show_a_change() -> None:
    """Of 8 stores: four of five reports show it after a quarter more days, and not after a third fewer."""
    worlds = Worlds(World(2, 1, day=0.1, slower=1.3, flaky=0.0, failing=0.0), range(7, 15), nights=36)
    period = Period.last(START + pd.Timedelta(BEFORE, "D"), 7)
    before = period.history.of(worlds.jobs, "finished_at")
    before = before[before["pipeline"].str.endswith("p0")]
    expected = metrics.days_to_see(before, metrics.run_time, "pipeline", 0.3, at="finished_at", tests=2 * 2 * 8)
    days = int(expected["days_to_see"].fillna(28).median())
    assert 10 < days < 28
    assert _share_shown(worlds, round(1.25 * days)) >= 0.7
    assert _share_shown(worlds, round(0.67 * days)) < 0.8


def _share_shown(worlds: Worlds, after: int) -> float:
    """Return the share of worlds whose report of this day shows that the step, or its pipeline, is slower."""
    nights = worlds.measure_night(after)
    return sum(any((one.question, one.subject[:2]) == ("speed", "p0") for one in own) for own in nights) / len(nights)
