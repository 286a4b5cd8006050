"""Properties of every world: the order of its moments, and what its seed and its clock decide."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections import defaultdict
from itertools import pairwise

import pytest

from buildframe.errors import BadInput
from buildframe.sandbox_server import Sandbox
from buildframe.spec import Moment
from tests import worlds

HOUR = dt.timedelta(hours=1)
STARTED_LATER = dt.timedelta(seconds=3)  # dispatch takes a little, and not the same for each


@pytest.fixture(scope="module")
def world():
    with worlds.sandbox(builds=700, days=14) as ci:
        yield ci.sandbox


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


def test_numbers_grow_with_gaps(runs):
    numbers = [build.number for build in sorted(runs, key=lambda build: build.seq) if build.pipeline_key == "acme/web"]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] > len(numbers)


def test_windows_meet_without_gap_or_overlap_at_the_exact_moment(world, runs, api_client):
    api, path = api_client(world), "/organizations/acme/pipelines/web/builds"
    of_web = sorted((build.created, build.id) for build in runs if build.pipeline_key == "acme/web")
    created, id = of_web[len(of_web) // 2]
    stamp = Moment.from_us(created).text()
    later = api(path, created_from=stamp, per_page=100, page=len(of_web) // 200 + 1).json()
    earlier = api(path, created_to=stamp, per_page=1, exclude_jobs="true").json()
    assert id in {build["id"] for build in later}
    assert earlier[0]["id"] == of_web[len(of_web) // 2 - 1][1]


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


@pytest.mark.long
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
