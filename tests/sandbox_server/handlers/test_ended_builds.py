"""Builds that are over: retry, unblock and delete them."""

from __future__ import annotations

import datetime as dt

import httpx
import pytest

import buildframe as bf
from tests.refusals import refusal

STEPS = [{"type": "manual", "label": "Ship?"}, {"type": "manual", "label": "Announce?"}]


@pytest.fixture(scope="module")
def ci():
    with bf.sandbox(builds=200, days=4) as workspace:
        yield workspace


def failed_job(ci):
    jobs = ci.jobs(state="failed", progress=False)
    return jobs[(jobs["state"] == "failed") & ~jobs["retried"] & ~jobs["soft_failed"]].iloc[0]


def test_a_retry_reopens_a_build_that_ended_long_ago(ci):
    job = failed_job(ci)
    slug, number = job["pipeline"], int(job["build_number"])
    before = ci.pipeline(slug).build(number)
    ci.sandbox.clock.advance(dt.timedelta(days=2))
    ci.sandbox.retry(slug, number, job["id"])
    again = ci.pipeline(slug).build(number)
    assert (again.state, again.finished_at) == ("running", None)
    repeated = next(one for one in again.jobs if one.id == job["id"])
    assert repeated.retried
    with pytest.raises(bf.BadInput, match="retried already"):
        ci.sandbox.retry(slug, number, job["id"])
    ci.sandbox.clock.advance(dt.timedelta(hours=5))
    assert ci.pipeline(slug).build(number).finished_at > before.finished_at


def test_an_unblocking_moves_the_end_of_a_build_though_nothing_runs_after_it(ci):
    cluster = ci.pipeline("web").get().cluster_id
    made = ci.create_pipeline(name="Ask twice", repository="git@example.com:a/b.git", cluster_id=cluster, steps=STEPS)
    line = ci.pipeline(made.slug)
    number = line.create_build(commit="HEAD", branch="main").number
    ends = []
    headers = {"Authorization": f"Bearer {ci.sandbox.token(['write_builds'])}"}
    for _ in range(2):
        ci.sandbox.clock.advance(dt.timedelta(hours=1))
        build = line.build(number)
        assert build.blocked
        ends.append(build.finished_at)
        url = next(job.unblock_url for job in build.jobs if job.unblockable)
        assert httpx.put(url, headers=headers).is_success
    done = line.build(number)
    assert (done.state, done.blocked) == ("passed", False)
    assert ends[0] < ends[1] < done.finished_at == ci.sandbox.clock.now()


def test_a_build_is_forgotten_whatever_its_state(ci):
    number = ci.pipeline("web").create_build(commit="HEAD", branch="main").number
    ci.sandbox.forget("web", [number])
    with pytest.raises(bf.NotFound):
        ci.pipeline("web").build(number)


def test_what_is_not_there(ci):
    service, number = ci.sandbox, int(ci.pipeline("web").builds(progress=False)["number"].iloc[0])
    messages = [
        refusal(service.retry, "nowhere", 1, "x"),
        refusal(service.retry, "web", 10**9, "x"),
        refusal(service.retry, "web", number, "none"),
        refusal(service.forget, "web", [10**9]),
        refusal(service.forget, "web", [1], organization="nobody"),
    ]
    assert [message.startswith("There is no ") for message in messages] == [True] * len(messages)
    assert messages[2].startswith("There is no job")
