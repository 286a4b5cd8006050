"""The lives of builds with all kinds of steps, as GET returns them."""

from __future__ import annotations

import pytest

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.simulation.rules import MAX_TRIGGERED
from buildframe.sandbox_server.world.steps import Trigger
from tests.sandbox_server.planted_pipelines import (
    FAILS,
    HOUR,
    SOMEONE,
    Planted,
    assert_whole,
    block,
    job_of,
    jobs_of,
    step,
    wait,
)


@pytest.fixture(scope="module")
def api(api_client):
    with Sandbox(builds=20, days=1, seed=9) as sandbox:
        yield api_client(sandbox)
        assert_whole(sandbox)


@pytest.fixture
def plant(api, request):
    """Plants pipelines that no other test has."""
    planted = []

    def make(*steps, **record):
        slug = f"{request.node.name.replace('_', '-').replace('[', '-').rstrip(']')}-{len(planted)}".lower()
        planted.append(Planted(api, *steps, slug=slug, **record))
        return planted[-1]

    return make


def test_a_block_step_holds_a_build_until_someone_unblocks_it(plant):
    pipeline = plant(step("test"), block("ship"), step("deploy"))
    run = pipeline.create()
    held = pipeline.after(run)
    assert (held["state"], held["blocked"], held["blocked_state"]) == ("passed", True, "passed")
    assert held["finished_at"] is not None
    assert jobs_of(held) == {"test": "passed", "ship": "blocked", "deploy": "waiting"}
    assert job_of(held, "ship").keys() == {
        "id", "graphql_id", "type", "label", "state", "step_key", "unblockable", "unblock_url", "unblocked_by",
        "unblocked_at", "web_url", "build_url",
    }  # fmt: skip
    for state in ("blocked", "finished", "passed"):
        assert pipeline.numbers(state=state) == [run.number]

    pipeline.simulator.unblock(run.id, job_of(held, "ship")["id"], SOMEONE)
    going = pipeline.get(run)
    assert (going["state"], going["blocked"], going["finished_at"]) == ("running", False, None)
    assert job_of(going, "ship")["unblocked_by"]["id"] == SOMEONE.id
    assert (job_of(going, "ship")["unblockable"], jobs_of(going)["deploy"]) == (False, "assigned")
    assert pipeline.numbers(state="blocked") == []

    over = pipeline.after(run)
    assert (over["state"], over["blocked"]) == ("passed", False)
    assert over["finished_at"] > held["finished_at"]


def test_a_failed_build_may_be_blocked_too(plant):
    build = plant(step("bad", **FAILS), step("good"), block("go", "good"), step("after")).ended()
    assert (build["state"], build["blocked"], build["blocked_state"]) == ("failed", True, "failed")
    assert build["failing_at"] is not None


def test_a_block_step_that_is_barred_blocks_nothing(plant):
    build = plant(step("bad", **FAILS), block("go"), step("after")).ended()
    assert (build["state"], build["blocked"]) == ("failed", False)
    assert jobs_of(build) == {"bad": "timed_out", "go": "waiting_failed", "after": "waiting_failed"}


def test_a_build_may_begin_with_a_block_step(plant):
    pipeline = plant(block("go"), step("after"))
    run = pipeline.create()
    held = pipeline.after(run, seconds=2)
    assert (held["state"], held["blocked"], held["started_at"]) == ("passed", True, None)
    pipeline.simulator.unblock(run.id, job_of(held, "go")["id"], SOMEONE)
    assert pipeline.get(run)["state"] == "running"
    assert pipeline.after(run)["state"] == "passed"


def test_a_job_whose_time_is_up_has_timed_out(plant):
    build = plant(step("slow", **FAILS)).ended()
    job = job_of(build, "slow")
    assert (build["state"], job["state"], job["exit_status"], job["soft_failed"]) == ("failed", "timed_out", -1, False)


def test_a_soft_failure_holds_nothing_up(plant):
    build = plant(step("bad", soft_fail=True, **FAILS), wait("w"), step("after")).ended()
    assert (build["state"], build["failing_at"]) == ("passed", None)
    assert jobs_of(build) == {"bad": "timed_out", "after": "passed"}
    assert job_of(build, "bad")["soft_failed"] is True


def test_a_wait_step_may_go_on_after_failures(plant):
    for goes_on, after in ((True, "passed"), (False, "waiting_failed")):
        steps = step("bad", **FAILS), step("next", "bad"), wait("w", continue_on_failure=goes_on), step("after")
        build = plant(*steps).ended()
        assert build["state"] == "failed"
        assert jobs_of(build) == {"bad": "timed_out", "next": "waiting_failed", "after": after}


def test_a_failure_is_repeated_as_often_as_the_step_allows(plant):
    build = plant(step("bad", retries=2, **FAILS)).ended()
    assert [(job["state"], job["retry_type"], job["retries_count"]) for job in build["jobs"]] == [
        ("timed_out", "automatic", None), ("timed_out", "automatic", 1), ("timed_out", None, 2),
    ]  # fmt: skip
    first, second, _ = (job["id"] for job in build["jobs"])
    assert [job["retry_source"] for job in build["jobs"]] == [
        None, {"job_id": first, "retry_type": "automatic"}, {"job_id": second, "retry_type": "automatic"},
    ]  # fmt: skip


def test_steps_that_are_left_out_let_others_go_on(plant):
    steps = step("a", skip=True), step("b", "a", branches="dev/*"), block("c", "b", branches="dev/*"), step("d", "c")
    build = plant(*steps).ended()
    assert build["state"] == "passed"
    assert jobs_of(build) == {"a": "skipped", "b": "broken", "c": "broken", "d": "passed"}


def test_a_build_whose_branch_has_no_steps_is_not_run(plant):
    pipeline = plant(step("a", branches="main"), wait("w"), block("b", branches="main"))
    build = pipeline.ended(branch="dev")
    assert (build["state"], build["started_at"], build["finished_at"]) == ("not_run", None, None)
    assert jobs_of(build) == {"a": "broken", "b": "broken"}
    assert pipeline.numbers(state="not_run") == [build["number"]]
    assert pipeline.numbers(state="finished") == []


def test_parallel_and_matrix_steps_make_several_jobs(plant):
    matrix = {"os": ("linux", "mac"), "python": ("3.11",)}
    build = plant(
        labeled("test %n/%t", key="test", parallelism=2),
        labeled("build {{matrix.os}}", key="build", matrix=matrix),
    ).ended()
    job_fields = [
        (job["name"], job["parallel_group_index"], job["parallel_group_total"], job["matrix"]) for job in build["jobs"]
    ]
    assert job_fields == [
        ("test 1/2", 0, 2, None), ("test 2/2", 1, 2, None),
        ("build linux", None, None, {"os": "linux", "python": "3.11"}),
        ("build mac", None, None, {"os": "mac", "python": "3.11"}),
    ]  # fmt: skip
    assert {job["step_key"] for job in build["jobs"]} == {"test", "build"}
    ids = [job["step"]["id"] for job in build["jobs"]]
    assert ids[0] == ids[1] != ids[2] == ids[3]  # the jobs of a step share its id


def test_steps_without_a_key_have_ids_that_their_attempts_share(plant):
    failing = {"retries": 1, "seconds": 600.0, "timeout_in_minutes": 1}
    build = plant(step("linux", has_key=False, **failing), step("windows", has_key=False), wait("w")).ended()
    ids = {}
    for job in build["jobs"]:
        if job["type"] == "script":
            assert job["step_key"] is None
            ids.setdefault(job["name"], []).append(job["step"]["id"])
    assert {name: len(of_name) for name, of_name in ids.items()} == {"linux": 2, "windows": 1}
    assert {name: len(set(of_name)) for name, of_name in ids.items()} == {"linux": 1, "windows": 1}
    assert ids["linux"][0] != ids["windows"][0]


def labeled(label, **more):
    from buildframe.sandbox_server.world.steps import PipelineStep

    return PipelineStep(label=label, seconds=5.0, **more)


def test_a_job_that_no_agent_fits_waits(plant):
    build = plant(step("a", queue="nowhere"), step("b", agent_query_rules=("os=plan9",)), step("c")).ended()
    assert jobs_of(build) == {"a": "scheduled", "b": "scheduled", "c": "passed"}
    assert [job["agent_query_rules"] for job in build["jobs"]] == [
        ["queue=nowhere"],
        ["queue=default", "os=plan9"],
        ["queue=default"],
    ]


def test_a_queue_that_is_not_there_has_no_address(plant):
    cluster = plant(step("x")).api("/organizations/acme/pipelines/web").json()["cluster_id"]
    pipeline = plant(step("a", queue="nowhere"), step("b"), cluster_id=cluster)
    nowhere, there = pipeline.get(pipeline.create())["jobs"]
    assert (nowhere["cluster_queue_id"], nowhere["cluster_queue_url"]) == (None, None)
    assert (nowhere["cluster_id"], nowhere["cluster_url"]) == (cluster, there["cluster_url"])
    for url in (there["cluster_url"], there["cluster_queue_url"]):
        assert pipeline.api.http.get(url).status_code == 200


# --- trigger steps


def trigger(key, slug, *needs, **more):
    return step(key, *needs, kind="trigger", trigger=Trigger(slug=slug, **more))


def test_a_trigger_step_waits_for_the_build_it_made(plant):
    target = plant(step("work", seconds=600.0))
    slug = target.pipeline_key.pipeline.slug
    pipeline = plant(
        step("first"), trigger("call", slug, "first", message="Called", env={"A": "1"}), wait("w"), step("last")
    )
    run = pipeline.create(branch="dev")
    during = pipeline.after(run, minutes=5)
    assert jobs_of(during) == {"first": "passed", "call": "running", "last": "waiting"}
    link = job_of(during, "call")["triggered_build"]
    child = pipeline.api.http.get(link["url"]).json()
    assert {key: child[key] for key in link} == link
    assert {key: child[key] for key in ("source", "message", "branch", "commit", "env")} == {
        "source": "trigger_job", "message": "Called", "branch": "dev", "commit": "c" * 40, "env": {"A": "1"},
    }  # fmt: skip
    assert child["triggered_from"] == {
        "build_id": run.id, "build_number": run.number, "build_pipeline_slug": pipeline.pipeline_key.pipeline.slug,
    }  # fmt: skip
    over = pipeline.after(run)
    assert (over["state"], jobs_of(over)["call"]) == ("passed", "passed")
    assert job_of(over, "call")["finished_at"] == pipeline.api.http.get(link["url"]).json()["finished_at"]


def test_a_trigger_step_fails_with_its_build_unless_it_does_not_wait(plant):
    target = plant(step("bad", **FAILS))
    for is_async, state in ((False, "failed"), (True, "passed")):
        build = plant(trigger("call", target.pipeline_key.pipeline.slug, is_async=is_async)).ended()
        assert (build["state"], jobs_of(build)["call"], job_of(build, "call")["async"]) == (state, state, is_async)


def test_a_blocked_build_keeps_who_triggered_it_waiting(plant):
    target = plant(block("go"))
    pipeline = plant(trigger("call", target.pipeline_key.pipeline.slug))
    run = pipeline.create()
    during = pipeline.after(run)
    assert (during["state"], jobs_of(during)["call"]) == ("running", "running")
    child = pipeline.api.http.get(job_of(during, "call")["triggered_build"]["url"]).json()
    pipeline.simulator.unblock(child["id"], child["jobs"][0]["id"], SOMEONE)
    assert pipeline.get(run)["state"] == "passed"


def test_what_cannot_be_triggered_fails_the_step(plant):
    archived, empty = plant(step("a"), archived_at=1), plant()
    for slug in ("no-such-pipeline", archived.pipeline_key.pipeline.slug, empty.pipeline_key.pipeline.slug):
        build = plant(trigger("call", slug)).ended()
        assert (build["state"], job_of(build, "call")["triggered_build"]) == ("failed", None)


def test_pipelines_that_trigger_each_other_come_to_an_end(plant):
    pipeline = plant(step("a"))
    slug = pipeline.pipeline_key.pipeline.slug
    pipeline.change(steps=(trigger("again", slug),))
    assert pipeline.ended()["state"] == "failed"
    assert len(pipeline.numbers()) == 11


@pytest.mark.parametrize("is_async", [True, False])
def test_a_build_brings_forth_so_many_others_and_no_more(plant, is_async):
    pipeline = plant(step("a"))
    slug = pipeline.pipeline_key.pipeline.slug
    pipeline.change(steps=tuple(trigger(key, slug, is_async=is_async) for key in ("one", "two", "three")))
    first, second = pipeline.create(), pipeline.create()
    pipeline.after(second)
    assert len(pipeline.numbers()) == 2 * (1 + MAX_TRIGGERED)
    jobs = [job for build in pipeline.api.all_pages(pipeline.path) for job in build["jobs"]]
    assert {job["state"] for job in jobs if job["triggered_build"] is None} == {"failed"}
    assert len([job for job in jobs if job["triggered_build"] is not None]) == 2 * MAX_TRIGGERED
    assert first.number in pipeline.numbers()


def test_what_a_deleted_build_began_brings_forth_no_more(plant):
    pipeline = plant(step("a"))
    pipeline.change(steps=(trigger("again", pipeline.pipeline_key.pipeline.slug, is_async=True),))
    root = pipeline.create()
    pipeline.after(root, seconds=4)
    before = pipeline.numbers()
    pipeline.simulator.delete_builds(pipeline.pipeline_key, [root.number])
    pipeline.api.sandbox.clock.advance(HOUR)
    assert pipeline.numbers() == before[:-1]


def test_a_build_that_its_own_trigger_step_cancels_stays_canceled(plant):
    pipeline = plant(step("a"), cancel_running_branch_builds=True)
    pipeline.change(steps=(trigger("again", pipeline.pipeline_key.pipeline.slug, is_async=True),))
    run = pipeline.create()
    build = pipeline.after(run)
    assert (build["state"], jobs_of(build)) == ("canceled", {"again": "canceled"})


# --- newer builds of a branch


def test_a_newer_build_skips_those_that_have_not_started(plant):
    pipeline = plant(
        step("a", queue="nowhere"), skip_queued_branch_builds=True, skip_queued_branch_builds_filter="!main"
    )
    first, other, main, second, again = (pipeline.create(branch=each) for each in ("dev", "fix", "main", "dev", "main"))
    states = {run.number: pipeline.get(run)["state"] for run in (first, other, main, second, again)}
    assert list(states.values()) == ["skipped", "scheduled", "scheduled", "scheduled", "scheduled"]
    skipped = pipeline.get(first)
    assert (jobs_of(skipped), skipped["finished_at"]) == ({"a": "skipped"}, None)
    assert pipeline.numbers(state="skipped") == [first.number]


def test_a_newer_build_cancels_those_that_run(plant):
    record = {"cancel_running_branch_builds": True, "cancel_running_branch_builds_filter": "dev"}
    pipeline = plant(step("a", seconds=3000.0), **record)
    running, other = pipeline.create(branch="dev"), pipeline.create(branch="main")
    pipeline.after(running, minutes=5)
    newer, last = pipeline.create(branch="dev"), pipeline.create(branch="dev")
    pipeline.create(branch="main")
    states = [pipeline.get(run)["state"] for run in (running, other, newer, last)]
    assert states == ["canceled", "running", "scheduled", "scheduled"]
    assert str(newer.number) in pipeline.get(running)["cancel_reason"]
