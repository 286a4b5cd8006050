"""Events of builds that webhooks receive: each once, in the order of causes, with the bodies of that time."""

from __future__ import annotations

import socket

import msgspec
import pytest

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.world.steps import Trigger
from tests.sandbox_server.planted_pipelines import FAILS, SOMEONE, Planted, block, job_of, runs_of, step, wait

TINY = {"builds": 20, "days": 1, "seed": 8}


@pytest.fixture
def settings():
    return {}


@pytest.fixture
def plant(api_client, settings):
    """Plants pipelines in a sandbox with someone who listens."""
    with Sandbox(**TINY, **settings) as sandbox, socket.create_server(("127.0.0.1", 0)) as silent:
        sandbox.webhook(f"http://127.0.0.1:{silent.getsockname()[1]}/", token="t")
        yield lambda *steps, **record: Planted(api_client(sandbox), *steps, **record)


def bodies(pipeline):
    """Event and body, in order, of the builds of planted pipelines."""
    rows = pipeline.db.query("SELECT event, body FROM deliveries WHERE body IS NOT NULL ORDER BY seq")
    read = [(event, msgspec.json.decode(body)) for event, body in rows if event != "ping"]
    return [(event, body) for event, body in read if body["pipeline"]["slug"] in ("planted", "parent", "child")]


def event_lines(pipeline):
    """Event, state of the build, and step and state of the job, in order."""
    for event, body in bodies(pipeline):
        assert_of_its_moment(event, body)
    return [line_of(event, body) for event, body in bodies(pipeline)]


def line_of(event, body):
    job = body.get("job")
    return f"{event} {body['build']['state']}" + (f" {job['step_key']} {job['state']}" if job else "")


def assert_of_its_moment(event, body):
    build, is_over = body["build"], body["build"]["state"] in ("passed", "failed", "canceled", "blocked")
    assert (build["finished_at"] is not None) == is_over, (event, build)
    assert build["blocked"] == (build["state"] == "blocked")
    if event == "job.finished":
        assert body["job"]["finished_at"]


def unblock(pipeline, run, key):
    pipeline.simulator.unblock(run.id, job_of(pipeline.get(run), key)["id"], SOMEONE)


def test_a_normal_end(plant):
    pipeline = plant(step("a"), wait("w"), step("b"))
    pipeline.ended()
    assert event_lines(pipeline) == [
        "build.scheduled scheduled",
        "job.scheduled scheduled a scheduled",
        "job.started running a running",
        "build.running running",
        "job.finished running a passed",
        "job.scheduled running b scheduled",
        "job.started running b running",
        "job.finished passed b passed",
        "build.finished passed",
    ]


def test_a_failure_while_others_run(plant):
    pipeline = plant(step("a", seconds=300.0), step("bad", "a", **FAILS), step("c", "a", seconds=3000.0))
    pipeline.ended()
    assert event_lines(pipeline)[4:] == [
        "job.finished running a passed",
        "job.scheduled running bad scheduled",
        "job.scheduled running c scheduled",
        *sorted(each for each in event_lines(pipeline) if each in (
            "job.started running bad running", "job.started running c running",
        )),
        "job.finished failing bad timed_out",
        "build.failing failing",
        "job.finished failed c passed",
        "build.finished failed",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("settings", "state"), [({}, "canceled"), ({"cancels_at_once": False}, "canceling")], ids=["at once", "in a while"]
)
def test_a_cancel(plant, state):
    pipeline = plant(step("a", seconds=3000.0), step("b", queue="nowhere"), step("c", "b"), block("d"))
    run = pipeline.create()
    pipeline.after(run, minutes=1)
    pipeline.simulator.cancel(run.id)
    pipeline.after(run, minutes=1)
    assert event_lines(pipeline)[3:] == [
        "job.started running a running",
        "build.running running",
        f"job.finished {state} b canceled",
        "job.finished canceled a canceled",
        "build.finished canceled",
    ]


def test_a_cancel_before_anything_began(plant):
    pipeline = plant(block("a"), step("b"))
    pipeline.simulator.cancel(pipeline.create().id)
    assert event_lines(pipeline) == ["build.scheduled scheduled", "build.finished canceled"]


def test_a_block_and_its_unblocking(plant):
    pipeline = plant(step("a"), block("b"), step("c"))
    run = pipeline.create()
    pipeline.after(run)
    before = event_lines(pipeline)
    assert before[-2:] == ["job.finished blocked a passed", "build.finished blocked"]
    unblock(pipeline, run, "b")
    assert event_lines(pipeline)[len(before) :] == [
        "job.activated running b unblocked",
        "build.running running",
        "job.scheduled running c scheduled",
    ]
    pipeline.after(run)
    assert event_lines(pipeline)[-2:] == ["job.finished passed c passed", "build.finished passed"]


def test_blocks_at_the_beginning_and_at_the_end(plant):
    pipeline = plant(block("a"), block("b"))
    run = pipeline.create()
    pipeline.after(run)
    unblock(pipeline, run, "a")
    unblock(pipeline, run, "b")
    assert event_lines(pipeline) == [
        "build.scheduled scheduled",
        "build.finished blocked",
        "job.activated blocked a unblocked",
        "job.activated passed b unblocked",
        "build.finished passed",
    ]


def test_an_automatic_retry(plant):
    pipeline = plant(step("bad", retries=1, **FAILS))
    pipeline.ended()
    assert event_lines(pipeline) == [
        "build.scheduled scheduled",
        "job.scheduled scheduled bad scheduled",
        "job.started running bad running",
        "build.running running",
        "job.finished running bad timed_out",
        "job.scheduled running bad scheduled",
        "job.started running bad running",
        "job.finished failed bad timed_out",
        "build.finished failed",
    ]
    jobs = [body["job"] for event, body in bodies(pipeline) if event == "job.finished"]
    assert [(job["retried"], job["retry_type"]) for job in jobs] == [(True, "automatic"), (False, None)]


def test_a_retry_by_hand_reopens_a_build(plant):
    pipeline = plant(step("bad", **FAILS))
    run = pipeline.create()
    pipeline.after(run)
    before = event_lines(pipeline)
    (failed,) = next(each for each in runs_of(pipeline.sandbox) if each.id == run.id).jobs
    pipeline.simulator.retry(run.id, failed.id)
    pipeline.after(run)
    assert event_lines(pipeline)[len(before) :] == [
        "build.running running",
        "job.scheduled running bad scheduled",
        "job.started running bad running",
        "job.finished failed bad timed_out",
        "build.finished failed",
    ]


def test_a_skip_by_a_newer_build(plant):
    pipeline = plant(step("a", queue="nowhere"), step("b", "a"), block("c"), skip_queued_branch_builds=True)
    first, second = pipeline.create(), pipeline.create()
    assert event_lines(pipeline) == [
        "build.scheduled scheduled",
        "job.scheduled scheduled a scheduled",
        "job.finished skipped a skipped",
        "build.skipped skipped",
        "build.scheduled scheduled",
        "job.scheduled scheduled a scheduled",
    ]
    numbers = [body["build"]["number"] for _, body in bodies(pipeline)]
    assert numbers == [first.number] * 4 + [second.number] * 2


def test_a_build_that_is_not_run(plant):
    pipeline = plant(step("a", branches="dev"))
    pipeline.ended()
    assert [event for event, _ in bodies(pipeline)] == ["build.scheduled", "build.finished"]
    assert bodies(pipeline)[-1][1]["build"]["state"] == "not_run"


def test_a_trigger_and_what_it_triggers(plant):
    child = plant(step("work"), slug="child")
    parent = plant(step("call", kind="trigger", trigger=Trigger(slug="child")), slug="parent")
    parent.ended()
    assert [(body["pipeline"]["slug"], event) for event, body in bodies(child)] == [
        ("parent", "build.scheduled"),
        ("parent", "job.scheduled"),
        ("parent", "build.running"),
        ("child", "build.scheduled"),
        ("child", "job.scheduled"),
        ("child", "job.started"),
        ("child", "build.running"),
        ("child", "job.finished"),
        ("child", "build.finished"),
        ("parent", "job.finished"),
        ("parent", "build.finished"),
    ]


def test_every_event_of_a_build_is_sent_once(plant):
    pipeline = plant(step("a"), block("b"), step("bad", **FAILS), step("c", seconds=120.0))
    run = pipeline.create()
    pipeline.after(run)
    unblock(pipeline, run, "b")
    pipeline.after(run)
    events = [tuple(each.split()) for each in event_lines(pipeline)]
    assert [each for each in events if each[0].startswith("build.")] == [
        ("build.scheduled", "scheduled"),
        ("build.running", "running"),
        ("build.finished", "blocked"),
        ("build.running", "running"),
        ("build.failing", "failing"),
        ("build.finished", "failed"),
    ]
    assert sorted((each[0], each[2]) for each in events if each[0].startswith("job.")) == [
        ("job.activated", "b"),
        *((f"job.{what}", key) for what in ("finished", "scheduled", "started") for key in ("a", "bad", "c")),
    ]
