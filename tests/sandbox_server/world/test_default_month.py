"""The default world: a month of builds, with all that happens to builds, and the planted anomalies are found again."""

from __future__ import annotations

from collections import defaultdict
from statistics import median

import numpy as np
import pytest

from buildframe.spec import Moment
from tests import worlds

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def world():
    with worlds.sandbox() as ci:
        yield ci.sandbox


def test_the_default_world_is_large_and_lasts_a_month(world, runs):
    acme = [build for build in runs if build.pipeline_key.startswith("acme/")]
    assert len(acme) >= 2000
    assert sum(len(build.jobs) for build in acme) >= 40_000
    assert len({build.pipeline_key for build in acme}) >= 6
    assert len(runs) == pytest.approx(2600, rel=0.1)
    assert min(build.created for build in runs) >= Moment.parse("2026-10-01T00:00:00Z").us
    assert world.clock.now() == Moment.parse("2026-10-30T15:00:00Z")
    assert max(build.created for build in runs) <= world.clock.now().us


def test_no_agent_idles_while_jobs_wait(world, attempts, queue_of):
    """Whenever a job waited noticeably, all agents of its queue were busy, about to start or lost."""
    busy, waited = defaultdict(list), []
    for build, job in attempts:
        if job.started is None:
            continue
        queue = queue_of(build, job)
        away = 16 * 60e6 if job.signal_reason == "agent_lost" else 0
        busy[queue].append((job.started - 3e6, (job.finished or float("inf")) + away))
        if job.started - job.runnable > 10e6:
            waited.append((queue, job.runnable + 1e6))
    agents = {
        (each.slug, queue): n for each in world._simulator.world.organizations for queue, n in each.agents.items()
    }
    assert len(waited) > 500
    spans = {queue: np.array(of_queue).T for queue, of_queue in busy.items()}
    for queue, timestamp in waited[::25]:
        starts, ends = spans[queue]
        assert ((starts <= timestamp) & (timestamp < ends)).sum() >= agents[queue]


def test_a_repeated_job_reopens_a_finished_build(runs):
    reopened = [build for build in runs if build.reopened and build.finished]
    moved = [build for build in reopened if build.started > min(job.started for job in build.jobs if job.started)]
    assert len(moved) > 10
    assert {build.state for build in reopened} >= {"passed", "failed"}


def test_all_kinds_of_ends_occur(runs, attempts):
    reasons = {build.cancel_reason.split()[1] for build in runs if build.cancel_reason}
    assert reasons == {"because", "manually"}
    assert any(build.state == "canceled" and build.started is not None for build in runs)
    ends = {"passed", "failed", "timed_out", "canceled", "broken", "skipped", "blocked", "unblocked", "waiting_failed"}
    assert ends <= {job.state for _, job in attempts}
    assert {"passed", "failed", "canceled", "skipped", "not_run"} <= {build.state for build in runs}
    assert any(build.finished is None for build in runs)
    assert {job.signal_reason for _, job in attempts} == {None, "agent_lost", "cancel"}
    assert {build.commit.source for build in runs} == {"webhook", "api", "ui", "schedule", "trigger_job"}


def test_a_rebuild_repeats_the_commit(runs):
    by_id = {build.id: build for build in runs}
    rebuilds = [build for build in runs if build.rebuilt_from]
    assert len(rebuilds) > 5
    for build in rebuilds:
        original = by_id[build.rebuilt_from[0]]
        assert (build.commit.sha, build.pipeline_key) == (original.commit.sha, original.pipeline_key)
        assert build.created > original.created


def run_seconds(runs, line, step, keep):
    return [
        (job.finished - job.started) / 1e6
        for build in runs
        if build.pipeline_key == line and keep(build)
        for job in build.jobs
        if job.step == step and job.state == "passed"
    ]


def test_the_slower_step_became_slower_on_its_day(world, runs):
    slow = world.truth.slower_steps[0]
    line = f"{slow.organization}/{slow.pipeline}"
    before = run_seconds(runs, line, slow.step_key, lambda build: build.created < slow.at.us)
    after = run_seconds(runs, line, slow.step_key, lambda build: build.created >= slow.at.us)
    assert min(len(before), len(after)) > 100
    assert median(after) / median(before) == pytest.approx(slow.factor, rel=0.05)


def test_the_flaky_step_fails_at_its_rate_and_others_do_not(world, attempts):
    flaky = world.truth.flaky_steps[0]
    rates = defaultdict(list)
    for build, job in attempts:
        if job.exit_status not in (None, -1):
            rates[build.pipeline_key, job.step].append(job.state == "failed")
    shares = {key: sum(ends) / len(ends) for key, ends in rates.items() if len(ends) > 200}
    planted = f"{flaky.organization}/{flaky.pipeline}", flaky.step_key
    assert shares.pop(planted) == pytest.approx(flaky.rate, abs=0.03)
    assert max(shares.values()) < flaky.rate / 2


def test_the_short_queue_waits_longest_and_drains(world, attempts, queue_of):
    short = world.truth.short_queues[0]
    waits = defaultdict(list)
    for build, job in attempts:
        if job.started is not None:
            waits[queue_of(build, job)].append((job.started - job.runnable) / 60e6)
    p95 = {queue: sorted(found)[int(len(found) * 0.95)] for queue, found in waits.items()}
    longest = p95.pop((short.organization, short.queue))
    assert longest > 20
    assert longest > 4 * max(p95.values())
    assert max(waits[short.organization, short.queue]) < 6 * 60
    spans = [
        (job.runnable, job.started or job.finished or world.clock.now().us)
        for build, job in attempts
        if job.runnable and queue_of(build, job) == (short.organization, short.queue)
    ]
    for morning in range(Moment.parse("2026-10-02T05:00:00Z").us, world.clock.now().us, 86_400_000_000):
        assert not any(runnable <= morning < taken for runnable, taken in spans)


def test_the_broken_branch_fails_throughout_and_passes_after(world, runs):
    broken = world.truth.broken_branches[0]
    on_branch = [
        build
        for build in sorted(runs, key=lambda build: build.seq)
        if build.pipeline_key == f"{broken.organization}/{broken.pipeline}" and build.commit.branch == broken.branch
    ]
    inside = [build for build in on_branch if broken.since.us <= build.created < broken.until.us]
    after = [build for build in on_branch if build.created >= broken.until.us]
    before = [build for build in on_branch if build.created < broken.since.us]
    assert len(inside) >= 3
    assert {build.latest()[broken.step_key].state for build in inside} == {"failed"}
    assert {build.state for build in inside} == {"failed"}
    assert (before[-1].state, after[0].state) == ("passed", "passed")
    assert (broken.commit_before, broken.commit_after) == (before[-1].commit.sha, inside[0].commit.sha)
