"""Properties of every world, in the responses of its sandbox; the planted anomalies are found again."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import defaultdict
from itertools import pairwise
from statistics import median

import numpy as np
import pytest

from buildframe.errors import BadInput
from buildframe.sandbox_server import Sandbox
from buildframe.spec import Moment
from tests import worlds
from tests.sandbox_server.planted_pipelines import runs_of

HOUR = dt.timedelta(hours=1)
STARTED_LATER = dt.timedelta(seconds=3)  # dispatch takes a little, and not the same for each


@pytest.fixture(scope="module")
def default():
    """The world as it comes, and the exact state of its builds."""
    with worlds.sandbox() as ci:
        yield ci.sandbox


@pytest.fixture(scope="module")
def runs(default):
    return runs_of(default)


@pytest.fixture(scope="module")
def attempts(runs):
    return [(build, job) for build in runs for job in build.jobs]


@pytest.fixture(scope="module")
def plans(default):
    return default._db.pipelines.plans


@pytest.fixture(scope="module")
def queue_of(plans):
    return lambda build, job: (build.pipeline_key.split("/")[0], plans[build.plan].slots[job.step].step.queue)


def test_the_default_world_is_large_and_lasts_a_month(default, runs):
    acme = [build for build in runs if build.pipeline_key.startswith("acme/")]
    assert len(acme) >= 2000
    assert sum(len(build.jobs) for build in acme) >= 40_000
    assert len({build.pipeline_key for build in acme}) >= 6
    assert len(runs) == pytest.approx(2600, rel=0.1)
    assert min(build.created for build in runs) >= Moment.parse("2026-10-01T00:00:00Z").us
    assert default.clock.now() == Moment.parse("2026-10-30T15:00:00Z")
    assert max(build.created for build in runs) <= default.clock.now().us


def test_moments_are_in_order(runs, attempts):
    for build in runs:
        stamps = [build.created, build.started, build.finished]
        assert in_order(stamps), build
    for build, job in attempts:
        assert build.created <= job.created
        assert in_order([job.created, job.runnable, job.started, job.finished]), job


def in_order(stamps):
    known = [stamp for stamp in stamps if stamp is not None]
    return known == sorted(known)


def test_an_agent_runs_one_job_at_a_time(runs, attempts):
    by_agent = defaultdict(list)
    for build, job in attempts:
        if job.started is not None:
            agent = build.pipeline_key.split("/")[0], job.agent
            by_agent[agent].append((job.started, job.finished or float("inf")))
    assert len(by_agent) > 10
    for spans in by_agent.values():
        assert all(one[1] <= other[0] for one, other in pairwise(sorted(spans)))


def test_queues_are_first_come_first_served(plans, attempts, queue_of):
    in_line = defaultdict(list)
    for build, job in attempts:
        if job.started is not None:
            priority = plans[build.plan].slots[job.step].step.priority
            in_line[queue_of(build, job), priority].append((job.runnable, job.started))
    slack = STARTED_LATER.total_seconds() * 1e6
    for served in in_line.values():
        latest = 0
        for runnable, started in sorted(served):
            assert started > latest - slack, runnable
            latest = max(latest, started)


@pytest.mark.long
def test_no_agent_idles_while_jobs_wait(default, attempts, queue_of):
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
        (each.slug, queue): n for each in default._simulator.world.organizations for queue, n in each.agents.items()
    }
    assert len(waited) > 500
    spans = {queue: np.array(of_queue).T for queue, of_queue in busy.items()}
    for queue, timestamp in waited[::25]:
        starts, ends = spans[queue]
        assert ((starts <= timestamp) & (timestamp < ends)).sum() >= agents[queue]


def test_builds_follow_from_their_jobs(runs):
    for build in runs:
        last = [job.state for job in build.jobs if job.retried_in is None]
        if build.state == "passed":
            hard = {job.state for job in build.jobs if job.retried_in is None and not job.soft_failed}
            waits = {"blocked", "waiting"} if build.blocked else set()
            assert hard <= {"passed", "broken", "skipped", "unblocked"} | waits
        elif build.state == "failed":
            assert {"failed", "timed_out"} & set(last)
            assert set(last) <= {"passed", "failed", "timed_out", "broken", "skipped", "waiting_failed", "unblocked"}
        elif build.state == "canceled":
            assert build.cancel_reason
            assert not set(last) & {"waiting", "scheduled", "assigned", "running", "canceling"}
        assert (build.finished is not None) == (build.state in ("passed", "failed", "canceled"))


def test_a_build_ends_with_its_last_job(runs):
    for build in runs:
        if build.finished is not None and not build.cancel_reason:
            assert build.finished == max(job.finished for job in build.jobs if job.finished)


def test_jobs_wait_for_what_they_need(plans, runs):
    for build in runs:
        latest = build.latest()
        for key, needs in plans[build.plan].needs.items():
            job = latest.get(key)
            if job is not None and job.started is not None and not build.reopened:
                before = [latest[need] for need in needs if latest[need].state not in ("broken", "skipped")]
                done = [other.unblocked_at or other.finished for other in before]
                assert all(end is not None and end <= job.runnable for end in done), (build.number, key)


def test_uploaded_jobs_inherit_the_builds_creation(builds):
    late = [
        (build, job)
        for build in builds
        for job in build["jobs"]
        if job["type"] == "script" and job["step_key"] != "upload" and build["pipeline"]["slug"] != "release"
    ]
    assert all(job["scheduled_at"] == build["created_at"] for build, job in late)
    assert all(job["scheduled_at"] < job["created_at"] for _, job in late)


def test_retries_are_chained(attempts):
    by_id = {job.id: job for _, job in attempts}
    assert len(by_id) == len(attempts)
    kinds = set()
    for _, job in attempts:
        if job.retried_in:
            follower = by_id[job.retried_in]
            assert (follower.retry_of, follower.attempt) == (job.id, job.attempt + 1)
            assert job.state in {"failed", "timed_out"}
            assert follower.created >= job.finished
            kinds.add((follower.retry_type, job.exit_status == -1))
    assert {("automatic", True), ("automatic", False), ("manual", False)} <= kinds


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


def test_numbers_grow_with_gaps(runs):
    numbers = [build.number for build in sorted(runs, key=lambda build: build.seq) if build.pipeline_key == "acme/web"]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] > len(numbers)


def test_windows_meet_without_gap_or_overlap_at_the_exact_moment(default, runs, api_client):
    api, path = api_client(default), "/organizations/acme/pipelines/web/builds"
    of_web = sorted((build.created, build.id) for build in runs if build.pipeline_key == "acme/web")
    created, id = of_web[len(of_web) // 2]
    stamp = Moment.from_us(created).text()
    later = api(path, created_from=stamp, per_page=100, page=len(of_web) // 200 + 1).json()
    earlier = api(path, created_to=stamp, per_page=1, exclude_jobs="true").json()
    assert id in {build["id"] for build in later}
    assert earlier[0]["id"] == of_web[len(of_web) // 2 - 1][1]


# --- what was planted


def run_seconds(runs, line, step, keep):
    return [
        (job.finished - job.started) / 1e6
        for build in runs
        if build.pipeline_key == line and keep(build)
        for job in build.jobs
        if job.step == step and job.state == "passed"
    ]


def test_the_slower_step_became_slower_on_its_day(default, runs):
    slow = default.truth.slower_steps[0]
    line = f"{slow.organization}/{slow.pipeline}"
    before = run_seconds(runs, line, slow.step_key, lambda build: build.created < slow.at.us)
    after = run_seconds(runs, line, slow.step_key, lambda build: build.created >= slow.at.us)
    assert min(len(before), len(after)) > 100
    assert median(after) / median(before) == pytest.approx(slow.factor, rel=0.05)


def test_the_flaky_step_fails_at_its_rate_and_others_do_not(default, attempts):
    flaky = default.truth.flaky_steps[0]
    rates = defaultdict(list)
    for build, job in attempts:
        if job.exit_status not in (None, -1):
            rates[build.pipeline_key, job.step].append(job.state == "failed")
    shares = {key: sum(ends) / len(ends) for key, ends in rates.items() if len(ends) > 200}
    planted = f"{flaky.organization}/{flaky.pipeline}", flaky.step_key
    assert shares.pop(planted) == pytest.approx(flaky.rate, abs=0.03)
    assert max(shares.values()) < flaky.rate / 2


def test_the_short_queue_waits_longest_and_drains(default, attempts, queue_of):
    short = default.truth.short_queues[0]
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
        (job.runnable, job.started or job.finished or default.clock.now().us)
        for build, job in attempts
        if job.runnable and queue_of(build, job) == (short.organization, short.queue)
    ]
    for morning in range(Moment.parse("2026-10-02T05:00:00Z").us, default.clock.now().us, 86_400_000_000):
        assert not any(runnable <= morning < taken for runnable, taken in spans)


def test_the_broken_branch_fails_throughout_and_passes_after(default, runs):
    broken = default.truth.broken_branches[0]
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


# --- seeds and time


def fingerprint(sandbox):
    return hashlib.sha256(b"\n".join(worlds.read_bodies(sandbox._db))).hexdigest()


TINY = {"builds": 60, "days": 2}


def test_the_same_seed_makes_the_same_answers_and_another_does_not():
    prints = []
    for seed in (5, 5, 6):
        with Sandbox(seed=seed, **TINY) as sandbox:
            prints.append(fingerprint(sandbox))
    assert prints[0] == prints[1] != prints[2]


def test_time_in_steps_is_the_same_as_time_at_once():
    with Sandbox(seed=5, **TINY) as steps, Sandbox(seed=5, **TINY) as once:
        for _ in range(24):
            steps.clock.advance(HOUR)
        once.clock.set(steps.clock.now())
        assert fingerprint(steps) == fingerprint(once)


def test_the_clock_moves_the_world_and_never_back(api_client):
    with Sandbox(seed=5, **TINY) as sandbox:
        api = api_client(sandbox)
        before = {build["id"]: build for build in api.all_pages("/builds")}
        active = [build for build in before.values() if build["state"] in ("running", "scheduled", "failing")]
        then = sandbox.clock.now()
        assert sandbox.clock.advance(12 * HOUR) == then + 12 * HOUR == sandbox.clock.now()
        after = {build["id"]: build for build in api.all_pages("/builds")}
        assert after.keys() > before.keys()
        assert active
        assert all(after[build["id"]]["finished_at"] for build in active)
        with pytest.raises(BadInput, match="before"):
            sandbox.clock.set(then)


def test_pushed_commits_are_built(api_client):
    with Sandbox(seed=5, **TINY) as sandbox:
        api = api_client(sandbox)
        numbers = sandbox.push("docs", 3)
        path = "/organizations/acme/pipelines/docs/builds"
        listed = api(path).json()[:3]
        assert [build["number"] for build in listed] == numbers[::-1]
        assert all(build["finished_at"] is None for build in listed)
        sandbox.clock.advance(6 * HOUR)
        assert {api(f"{path}/{number}").json()["state"] for number in numbers} <= {"passed", "failed", "canceled"}
        with pytest.raises(BadInput):
            sandbox.push("nothing")


def test_pipelines_count_what_is_under_way(api_client):
    with Sandbox(seed=5, **TINY) as sandbox:
        api = api_client(sandbox)
        sandbox.push("docs", 40)
        sandbox.clock.advance(dt.timedelta(minutes=4))
        pipeline = api("/organizations/acme/pipelines/docs").json()
        builds = api.all_pages("/organizations/acme/pipelines/docs/builds")
        jobs = [job for build in builds for job in build["jobs"]]
        for state, key in (("running", "running_jobs_count"), ("scheduled", "scheduled_jobs_count")):
            assert pipeline[key] >= sum(job.get("state") == state for job in jobs) > 0
        assert pipeline["scheduled_builds_count"] == sum(build["state"] == "scheduled" for build in builds)
