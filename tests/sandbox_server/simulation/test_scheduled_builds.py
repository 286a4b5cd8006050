"""Every new build is scheduled at first, whatever its steps are, and can be canceled as long as it is."""

from __future__ import annotations

import re

import pytest

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES
from buildframe.sandbox_server.world.steps import Trigger
from tests.sandbox_server.planted_pipelines import (
    HOUR,
    Planted,
    assert_whole,
    block,
    job_of,
    jobs_of,
    step,
    wait,
)

CALL = {"kind": "trigger", "trigger": Trigger(slug="child", is_async=True)}
STEPS = {
    "block": ([block("a"), step("b")], "passed", True),
    "wait": ([wait("a")], "not_run", False),
    "wait, then a script": ([wait("a"), step("b")], "passed", False),
    "trigger": ([step("a", **CALL)], "passed", False),
    "wait, then a trigger": ([wait("a"), step("b", **CALL)], "passed", False),
    "skipped": ([step("a", skip=True), step("b", skip=True)], "passed", False),
    "skipped, then a block": ([step("a", skip=True), block("b", "a")], "passed", True),
    "left out": ([step("a", branches="dev"), block("b", branches="dev")], "not_run", False),
    "left out or skipped": ([step("a", branches="dev"), step("b", skip=True)], "passed", False),
    "script": ([step("a")], "passed", False),
}
TINY = {"builds": 20, "days": 1, "seed": 8}


@pytest.fixture
def api(api_client):
    with Sandbox(**TINY) as sandbox:
        yield api_client(sandbox, sandbox.token(SCOPES))
        assert_whole(sandbox)


def planted(api):
    """The pipelines by name."""
    Planted(api, step("work"), slug="child")
    return {name: Planted(api, *steps, slug=re.sub("[, ]+", "-", name)) for name, (steps, _, _) in STEPS.items()}


def test_what_is_created_or_rebuilt_is_scheduled_at_first(api):
    builds = {}
    for name, pipeline in planted(api).items():
        created = api.http.post(pipeline.path, json={"commit": "HEAD", "branch": "main"}).json()
        rebuilt = api.http.put(f"{created['url']}/rebuild").json()
        builds[name] = created, rebuilt
        for build in builds[name]:
            assert (build["state"], build["blocked"], build["started_at"], build["finished_at"]) == (
                "scheduled", False, None, None,
            )  # fmt: skip
        assert pipeline.numbers(state="scheduled") == [rebuilt["number"], created["number"]]
    assert_whole(api.sandbox)
    api.sandbox.clock.advance(2 * HOUR)
    ends = {}
    for name, both in builds.items():
        over = [api.http.get(build["url"]).json() for build in both]
        ends[name] = [(build["state"], build["blocked"]) for build in over]
    assert ends == {name: [(state, blocked)] * 2 for name, (_, state, blocked) in STEPS.items()}


def test_until_it_begins_it_can_be_canceled(api):
    runs = {name: (pipeline, pipeline.create()) for name, pipeline in planted(api).items()}
    for name, (pipeline, run) in runs.items():
        canceled = api.http.put(f"{pipeline.path}/{run.number}/cancel")
        assert (canceled.status_code, canceled.json()["state"]) == (200, "canceled"), name
    assert_whole(api.sandbox)
    before = {name: pipeline.get(run) for name, (pipeline, run) in runs.items()}
    assert {build["state"] for build in before.values()} == {"canceled"}
    api.sandbox.clock.advance(2 * HOUR)
    assert {name: pipeline.get(run) for name, (pipeline, run) in runs.items()} == before


def test_until_it_begins_nothing_can_be_unblocked_and_a_newer_build_skips_it(api):
    pipeline = Planted(api, block("a"), step("b"), skip_queued_branch_builds=True)
    first = pipeline.create()
    job = job_of(pipeline.get(first), "a")
    assert (job["state"], job["unblockable"]) == ("waiting", False)
    assert api.http.put(job["unblock_url"]).status_code == 422
    second = pipeline.create()
    assert (pipeline.get(first)["state"], pipeline.get(second)["state"]) == ("skipped", "scheduled")
    assert pipeline.after(second)["blocked"]
    assert jobs_of(pipeline.get(first)) == {"a": "skipped", "b": "skipped"}


def test_it_begins_also_when_the_sandbox_was_stopped_before(api_client, tmp_path):
    path = tmp_path / "world.db"
    with Sandbox(path, **TINY) as sandbox:
        pipeline = Planted(api_client(sandbox), block("a"), step("b"))
        run = pipeline.create()
    with Sandbox(path) as again:
        assert_whole(again)
        again.clock.advance(HOUR)
        build = api_client(again)(f"/organizations/acme/pipelines/planted/builds/{run.number}").json()
        assert (build["blocked"], jobs_of(build)) == (True, {"a": "blocked", "b": "waiting"})
        unblock = api_client(again, again.token(SCOPES)).http.put(job_of(build, "a")["unblock_url"])
        assert unblock.json()["state"] == "unblocked"
        assert_whole(again)


def test_a_running_clock_lets_it_begin(api_client):
    with Sandbox(**TINY, speed=100) as sandbox:
        pipeline = Planted(api_client(sandbox, sandbox.token(SCOPES)), block("a"))
        created = pipeline.api.http.post(pipeline.path, json={"commit": "HEAD", "branch": "main"}).json()
        assert created["state"] == "scheduled"
        sandbox.clock.advance(HOUR)
        assert pipeline.api.http.get(created["url"]).json()["blocked"]
