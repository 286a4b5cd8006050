"""Test the rules alone, on constructed builds."""

from __future__ import annotations

import pytest

from buildframe.sandbox_server.simulation import rules
from buildframe.sandbox_server.world.build_state import BuildRun, Commit, JobRun
from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.work_hours import activity, busy_hours
from buildframe.spec import Moment


def build(*states, started=1, cancel_reason=None, branch="main", seq=1, state="running"):
    jobs = [JobRun(id=str(place), step=str(place), attempt=0, state=one, created=0) for place, one in enumerate(states)]
    commit = Commit(sha="a" * 40, branch=branch, message="", source="webhook")
    return BuildRun(
        seq,
        str(seq),
        "acme/web",
        "plan",
        seq,
        state,
        commit,
        0,
        started=started,
        cancel_reason=cancel_reason,
        jobs=jobs,
    )


def test_a_build_follows_from_its_jobs():
    for states, expected, more in (
        (["scheduled"], "scheduled", {"started": None}),
        (["running", "waiting"], "running", {}),
        (["passed", "scheduled"], "running", {}),
        (["failed", "running"], "failing", {}),
        (["failed", "waiting_failed"], "failed", {}),
        (["passed", "broken", "passed"], "passed", {}),
        (["passed", "canceling"], "canceling", {"cancel_reason": "manually"}),
        (["failed", "canceled"], "canceled", {"cancel_reason": "manually"}),
    ):
        assert rules.build_state(build(*states, **more))[0] == expected, states


def test_a_retried_failure_no_longer_counts():
    one = build("failed", "passed")
    assert rules.build_state(one)[0] == "failed"
    one.jobs[0].retried_in = "1"
    assert rules.build_state(one)[0] == "passed"


def test_a_job_waits_for_what_it_needs():
    expected = {
        (): "ready",
        ("passed", "broken"): "ready",
        ("passed", "running"): "waiting",
        ("failed", "running"): "failed",
    }
    latest = {states: build(*states).latest() for states in expected}
    assert {states: rules.readiness(tuple(jobs), jobs) for states, jobs in latest.items()} == expected


def test_automatic_retries():
    """By whether its agent was lost, the attempts that were lost and that failed before, and those allowed."""
    expected = {
        (False, 0, 0, 0): False,
        (False, 0, 0, 1): True,
        (False, 0, 1, 1): False,
        (True, 0, 5, 0): True,
        (True, 2, 0, 9): False,
    }
    assert {attempts: rules.should_retry(*attempts) for attempts in expected} == expected


def test_jobs_wait_by_priority_then_by_time():
    one = build("scheduled", "scheduled", "scheduled")
    for job, runnable in zip(one.jobs, (30, 20, 10), strict=True):
        job.runnable = runnable
    places = [rules.queue_position(priority, one, job) for priority, job in zip((5, 0, 0), one.jobs, strict=True)]
    assert sorted(places) == [places[0], places[2], places[1]]


def test_only_earlier_running_builds_of_the_branch_are_superseded():
    new = build(seq=5, branch="fix/a")
    others = [
        build(seq=1, branch="fix/a"),
        build(seq=2, branch="fix/b"),
        build(seq=3, branch="fix/a", state="passed"),
        build(seq=6, branch="fix/a"),
        new,
    ]
    assert rules.superseded(new, others) == [others[0]]


def test_chance_depends_on_seed_and_key_alone():
    assert SeededRandom(1).uniform("a", 1) == SeededRandom(1).uniform("a", 1)
    assert (
        len(
            {
                SeededRandom(1).uniform("a"),
                SeededRandom(2).uniform("a"),
                SeededRandom(1).uniform("b"),
                SeededRandom(1).uniform("a", ""),
            }
        )
        == 4
    )


def test_events_happen_with_their_probability():
    draws = [SeededRandom(1).lognormal(100, 0.3, n) for n in range(4001)]
    assert sorted(draws)[2000] == pytest.approx(100, rel=0.03)
    assert sum(SeededRandom(1).happens(0.12, n) for n in range(10_000)) == pytest.approx(1200, abs=120)
    assert sum(SeededRandom(1).exponential(5, n) for n in range(10_000)) / 10_000 == pytest.approx(5, rel=0.05)


def test_people_work_by_day_and_on_weekdays():
    friday, saturday, night = (Moment.parse(f"2026-10-{text}:00Z").us for text in ("30T10:00", "31T10:00", "30T02:00"))
    assert activity(friday) == 1.0
    assert activity(saturday) < 0.1
    assert activity(night) < 0.1
    assert busy_hours(friday, friday + 90 * 60_000_000) == pytest.approx(1.5)
