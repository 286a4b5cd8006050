"""Actions: cancel, rebuild, unblock, forget, rename, delete; and which of them are rejected."""

from __future__ import annotations

import datetime as dt
import hashlib
import re
import sqlite3

import pytest

from buildframe.sandbox_server import SCOPES, Sandbox
from buildframe.sandbox_server.simulation.rules import ActionRejected
from buildframe.sandbox_server.world.steps import Trigger
from tests import worlds
from tests.refusals import refusal
from tests.sandbox_server.planted_pipelines import (
    FAILS,
    SOMEONE,
    Planted,
    assert_whole,
    block,
    job_of,
    jobs_of,
    runs_of,
    step,
)

HOUR, DAY = dt.timedelta(hours=1), dt.timedelta(days=1)
TINY = {"builds": 20, "days": 1, "seed": 8}


@pytest.fixture
def api(api_client):
    with Sandbox(**TINY) as sandbox:
        yield api_client(sandbox)
        assert_whole(sandbox)


UNWANTED = step("a", branches="dev")


def slow(api, **record):
    return Planted(api, step("a", seconds=3000.0), step("b", seconds=3000.0), **record)


# --- cancel


def test_a_build_is_canceled_at_once(api):
    pipeline = slow(api)
    run = pipeline.create()
    pipeline.after(run, minutes=5)
    assert pipeline.simulator.cancel(run.id).state == "canceled"
    build = pipeline.get(run)
    assert (build["state"], jobs_of(build)) == ("canceled", {"a": "canceled", "b": "canceled"})
    assert build["finished_at"] == job_of(build, "a")["finished_at"]
    assert (job_of(build, "a")["exit_status"], job_of(build, "a")["signal_reason"]) == (-1, "cancel")


def test_the_hosted_way_of_canceling_takes_some_seconds(api_client):
    with Sandbox(**TINY, cancels_at_once=False) as sandbox:
        pipeline = slow(api_client(sandbox))
        run = pipeline.create()
        pipeline.after(run, minutes=5)
        assert pipeline.simulator.cancel(run.id).state == "canceling"
        build = pipeline.get(run)
        assert (build["state"], build["finished_at"], set(jobs_of(build).values())) == (
            "canceling", None, {"canceling"},
        )  # fmt: skip
        assert_whole(sandbox)
        with pytest.raises(ActionRejected, match="already canceling"):
            pipeline.simulator.cancel(run.id)
        over = pipeline.after(run, seconds=10)
        assert (over["state"], over["finished_at"] is not None) == ("canceled", True)
        assert_whole(sandbox)


def test_what_is_over_cannot_be_canceled(api):
    for place, (step_of_build, state) in enumerate(
        [(step("a"), "passed"), (step("a", **FAILS), "failed"), (block("a"), "passed"), (UNWANTED, "not run")]
    ):
        pipeline = Planted(api, step_of_build, slug=f"over-{place}")
        run = pipeline.create()
        before = pipeline.after(run)
        said = refusal(pipeline.simulator.cancel, run.id, error=ActionRejected)
        assert said == f"Build can't be canceled because it's already {state}."
        assert pipeline.get(run) == before


# --- create and rebuild


def test_a_build_that_is_not_wanted_is_refused(api):
    for why, steps, record in (
        ("archived", [step("a")], {"archived_at": 1}),
        ("no steps", [], {}),
        ("Branch main", [step("a")], {"branch_configuration": "release/*"}),
    ):
        pipeline = Planted(api, *steps, slug=why.replace(" ", "-").lower(), **record)
        assert why in refusal(pipeline.create, error=ActionRejected)
        assert pipeline.numbers() == []
    assert pipeline.after(pipeline.create(ignore=True))["state"] == "passed"
    assert pipeline.after(pipeline.create(branch="release/1"))["state"] == "passed"


def test_a_rebuild_may_be_refused(api):
    pipeline = Planted(api, step("a"))
    run = pipeline.create()
    for record in ({"archived_at": 1}, {"archived_at": None, "allow_rebuilds": False}):
        pipeline.change(**record)
        assert refusal(pipeline.simulator.rebuild, run.id, SOMEONE, error=ActionRejected)
        assert pipeline.numbers() == [run.number]
    pipeline.change(allow_rebuilds=True)
    assert pipeline.simulator.rebuild(run.id, SOMEONE).number > run.number


def test_simulated_people_leave_requested_builds_alone(api):
    pipeline = Planted(api, *[step(f"bad-{n}", **FAILS) for n in range(20)], step("good"), block("b", "good"))
    build = pipeline.after(pipeline.create(branch="dev"), days=3)
    assert {job["state"] for job in build["jobs"]} == {"timed_out", "passed", "blocked"}
    assert len(pipeline.numbers()) == 1


# --- what changes while builds run


def test_a_build_keeps_the_plan_that_it_was_created_with(api):
    pipeline = Planted(api, step("a"), step("b", "a"))
    run = pipeline.create()
    pipeline.change(steps=(step("c"),))
    assert jobs_of(pipeline.after(run)) == {"a": "passed", "b": "passed"}
    assert jobs_of(pipeline.after(pipeline.create())) == {"c": "passed"}


def test_a_renamed_pipeline_is_found_at_its_new_address_only(api):
    child = Planted(api, step("work"), slug="child")
    parent = Planted(api, step("call", kind="trigger", trigger=Trigger(slug="child")), slug="parent")
    run = parent.create()
    parent.after(run)
    before = api(child.path).text
    old = child.path
    child.change(slug="other", name="Other")
    assert api(old).status_code == 404
    assert re.sub(r'"name":"Other"|"name":"child"', "", api(child.path).text).replace("/other", "/child") == (
        re.sub(r'"name":"Other"|"name":"child"', "", before).replace('"slug":"child"', '"slug":"other"')
    )
    link = job_of(parent.get(run), "call")["triggered_build"]
    assert link["url"].endswith("/pipelines/other/builds/" + str(link["number"]))
    parent.change(slug="caller")
    (of_child,) = api(child.path).json()
    assert of_child["triggered_from"]["build_pipeline_slug"] == "caller"


def test_a_name_that_is_taken_changes_nothing(api):
    one, other = Planted(api, step("a"), slug="one"), Planted(api, step("a"), slug="other")
    one.after(one.create())
    before = api(one.path).text
    for record in ({"slug": "other"}, {"slug": "new", "name": "other"}):
        with pytest.raises(sqlite3.IntegrityError):
            one.change(**record)
        assert (api(one.path).text, one.pipeline_key.pipeline.slug) == (before, "one")
    assert other.numbers() == []


def test_a_rename_that_fails_changes_nothing(api, monkeypatch):
    pipeline = Planted(api, step("a"))
    pipeline.after(pipeline.create())
    before = api(pipeline.path).text

    def full(*_):
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.db, "_put_builds", full)
        with pytest.raises(sqlite3.OperationalError):
            pipeline.change(slug="new")
    assert api(pipeline.path).text == before


# --- forget and delete


def test_builds_that_are_forgotten_are_gone_and_their_numbers_are_not_given_again(api):
    pipeline = slow(api)
    runs = [pipeline.create(meta_data={"a": "b"}) for _ in range(4)]
    pipeline.after(runs[0], minutes=5)
    pipeline.simulator.delete_builds(pipeline.pipeline_key, [run.number for run in runs[1:]])
    assert pipeline.numbers() == [runs[0].number]
    assert pipeline.numbers(**{"meta_data[a]": "b"}) == [runs[0].number]
    assert api(f"{pipeline.path}/{runs[1].number}").status_code == 404
    assert pipeline.create().number > runs[-1].number
    assert_whole(api.sandbox)


def test_a_pipeline_that_is_deleted_takes_its_builds_with_it(api):
    pipeline, others = slow(api), {run.id for run in runs_of(api.sandbox)}
    for _ in range(3):
        run = pipeline.create(meta_data={"a": "b"})
    pipeline.after(run, minutes=5)
    grown = {run.id for run in runs_of(api.sandbox) if run.pipeline_key != pipeline.key}
    path, entry = pipeline.path, pipeline.pipeline_key
    pipeline.simulator.delete_pipeline(entry)
    assert api(path).status_code == 404
    assert {run.id for run in runs_of(api.sandbox)} == grown >= others
    seqs = "SELECT count(*) FROM {} WHERE build NOT IN (SELECT seq FROM builds)"
    assert [pipeline.db.query(seqs.format(table)) for table in ("jobs", "meta_data")] == [[(0,)], [(0,)]]
    assert_whole(api.sandbox)


def test_a_pipeline_of_the_world_can_be_deleted_and_nobody_pushes_to_it(api):
    editor = type(api)(api.sandbox, api.sandbox.token(SCOPES))
    for slug in ("web", "api", "release"):
        assert editor.http.delete(f"/organizations/acme/pipelines/{slug}").status_code == 204
    Planted(api, step("a"), slug="web")
    api.sandbox.clock.advance(4 * DAY)
    assert api("/organizations/acme/pipelines/web/builds").json() == []
    assert not {run.pipeline_key for run in runs_of(api.sandbox)} & {"acme/web", "acme/api", "acme/release"}


def test_who_waits_for_a_build_that_vanishes_fails(api):
    child = Planted(api, step("work", seconds=3000.0), slug="child")
    parent = Planted(api, step("call", kind="trigger", trigger=Trigger(slug="child")), slug="parent")
    for vanish in (
        lambda: child.simulator.delete_builds(child.pipeline_key, child.numbers()),
        lambda: child.simulator.delete_pipeline(child.pipeline_key),
    ):
        run = parent.create()
        assert parent.after(run, minutes=1)["state"] == "running"
        vanish()
        assert parent.get(run)["state"] == "failed"


def test_an_archived_pipeline_gets_no_more_builds(api):
    path = "/organizations/acme/pipelines/platform"
    editor = type(api)(api.sandbox, api.sandbox.token(SCOPES))
    assert editor.http.post(f"{path}/archive").status_code == 200
    before = len(api.all_pages(f"{path}/builds"))
    api.sandbox.clock.advance(4 * DAY)
    assert len(api.all_pages(f"{path}/builds")) == before


# --- the same again


def everything_done(api_client, path=None, reopen=False):
    def opened():
        return Sandbox(path, **TINY) if path else Sandbox(**TINY)

    sandbox = opened()
    pipeline = Planted(api_client(sandbox), step("a"), block("b"), step("c", parallelism=2), slug="planted")
    runs = [pipeline.create(branch=branch) for branch in ("main", "dev", "dev")]
    sandbox.clock.advance(2 * HOUR)
    if reopen:
        sandbox.stop()
        sandbox = opened()
    http = api_client(sandbox, sandbox.token(SCOPES)).http
    held = http.get(f"{pipeline.path}/{runs[0].number}").json()
    assert http.put(job_of(held, "b")["unblock_url"]).status_code == 200
    assert http.put(f"{pipeline.path}/{runs[1].number}/rebuild").status_code == 200
    sandbox.forget("planted", [runs[2].number])
    sandbox.clock.advance(2 * HOUR)
    bodies = worlds.read_bodies(sandbox._db)
    sandbox.stop()
    return hashlib.sha256(b"\n".join(bodies)).hexdigest()


def test_the_same_seed_and_actions_give_the_same_bodies(api_client, tmp_path):
    first = everything_done(api_client)
    assert first == everything_done(api_client)
    assert first == everything_done(api_client, tmp_path / "world.db", reopen=True)
