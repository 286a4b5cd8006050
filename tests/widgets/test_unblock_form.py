"""Unblocking from the widgets: the fields of a block step, what is sent, and refusals."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator

import pytest

import buildframe as bf
from buildframe import spec
from buildframe.sandbox_server import Fault
from buildframe.widgets.block_fields import find_block_step
from buildframe.widgets.build_details import BuildDetails
from buildframe.widgets.unblock_form import UnblockForm
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.widgets.widget_helpers import (
    BLOCK_STEPS,
    HOSTILE_TEXTS,
    is_safe,
    is_shown,
    visible_text,
    wait_for,
    workspace_of,
)

pytestmark = pytest.mark.usefixtures("without_timeline")


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=50) as workspace:
        workspace.create_pipeline(
            name="Gate", cluster_id=None, repository="git@git.example.com:acme/x.git", configuration=BLOCK_STEPS
        )
        yield workspace


@pytest.fixture
def detail(live: Workspace) -> Iterator[BuildDetails]:
    """Show a build that waits at its block step."""
    build = live.pipeline("gate").create_build(commit="HEAD", branch="main")
    live.sandbox.clock.advance(dt.timedelta(minutes=5))
    made = BuildDetails(live)
    made.load("gate", build.number)
    wait_for(made)
    yield made
    made.close()


def open_form(form: UnblockForm) -> None:
    form.start.click()
    wait_for(form)


def submit(detail: BuildDetails) -> None:
    detail.unblock.submit.click()
    wait_for(detail)


def block_job(live: Workspace) -> spec.Job:
    (job,) = [job for job in live.pipeline("gate").build(1).jobs if job.type == "manual"]
    return job


def test_the_fields_of_the_configuration_are_sent(live: Workspace, detail: BuildDetails) -> None:
    form = detail.unblock
    assert is_shown(form.choice)
    assert form.start.description == "Unblock Deploy?…"
    assert not is_shown(form.form)
    open_form(form)
    assert [each.description for each in form.inputs.values()] == [
        "Reason", "Region", "Teams (optional)", "Note (optional)",
    ]  # fmt: skip
    assert "Fill in the form" in visible_text(form.prompt)
    assert form.inputs["region"].value == "eu"
    submit(detail)
    assert visible_text(form.status) == "Deploy? of build gate #1: Reason is missing. Nothing was sent."
    assert block_job(live).state == "blocked"
    form.inputs["reason"].value, form.inputs["region"].value = "It is Friday", "us"
    form.inputs["teams"].value = ("web", "data")
    submit(detail)
    assert block_job(live).state == "unblocked"
    meta_data = live.pipeline("gate").build(1).meta_data
    assert meta_data == {"reason": "It is Friday", "region": "us", "teams": "web\ndata"}
    assert visible_text(form.status) == "Deploy? of build gate #1 was unblocked with 3 values."
    assert not is_shown(form.choice)
    assert "blocked" not in [row[0] for row in detail.jobs.rows], "the build was loaded again"


def test_it_can_be_declined(live: Workspace, detail: BuildDetails, focused: list[str]) -> None:
    open_form(detail.unblock)
    detail.unblock.decline.click()
    assert not is_shown(detail.unblock.form)
    assert focused[-1] == ".bf-unblock"
    assert block_job(live).state == "blocked"
    assert not detail.unblock.start.disabled


def test_a_step_that_the_configuration_does_not_have_accepts_any_fields(live: Workspace, detail: BuildDetails) -> None:
    live.pipeline("gate").update(configuration="steps:\n  - command: make\n")
    open_form(detail.unblock)
    assert "does not describe this step" in visible_text(detail.unblock.prompt)
    detail.unblock.inputs[""].value = "no sign"
    submit(detail)
    assert "has no NAME=value in line 1" in visible_text(detail.unblock.status)
    detail.unblock.inputs[""].value = "reason=why not"
    submit(detail)
    assert live.pipeline("gate").build(1).meta_data == {"reason": "why not"}


@pytest.mark.long
def test_a_token_that_reads_no_pipelines_can_unblock(live: Workspace, detail: BuildDetails) -> None:
    token = live.sandbox.token(["read_builds", "write_builds"])
    ws = bf.connect("acme", base_url=live.sandbox.url, token=token)
    other = BuildDetails(ws)
    other.load("gate", 1)
    wait_for(other)
    open_form(other.unblock)
    assert "403" in visible_text(other.unblock.prompt)
    submit(other)
    assert block_job(live).state == "unblocked"
    other.close()


def test_a_lost_response_is_not_repeated_until_the_build_is_loaded(live: Workspace, detail: BuildDetails) -> None:
    live.sandbox.fault(Fault("reset", route="unblock_job", times=1))
    open_form(detail.unblock)
    detail.unblock.inputs["reason"].value = "x"
    submit(detail)
    assert "an unblocked job has a time in unblocked_at" in visible_text(detail.unblock.status)
    assert detail.unblock.submit.disabled
    detail.reload.click()
    wait_for(detail)
    assert not detail.unblock.submit.disabled


def test_other_builds_have_no_form(live: Workspace, detail: BuildDetails) -> None:
    number = int(live.pipeline("web").builds(state="passed", progress=False)["number"].max())
    detail.load("web", number)
    assert not is_shown(detail.unblock.choice)
    wait_for(detail)
    assert not is_shown(detail.unblock.choice)


def test_a_configuration_without_the_step() -> None:
    configurations = [None, "", "a: [", "steps: 7", "- 1\n- [2]", "&a [*a]", "steps: [{group: x}]"]
    found = {text: find_block_step(text, "deploy", "Deploy") for text in configurations}
    assert found == dict.fromkeys(configurations)


def test_steps_in_groups_and_without_keys() -> None:
    grouped = "steps: [{group: g, steps: [{block: Deploy, fields: [{text: A, key: a}, 7, {text: no key}]}]}]"
    step = find_block_step(grouped, None, "Deploy")
    assert step is not None
    assert [field.key for field in step.fields] == ["a"]
    assert find_block_step("[{input: One}, {input: Two, key: two}]", "two", "Two") == ("", ())


def test_texts_are_escaped(scripted: Callable[..., Scripted]) -> None:
    server = scripted(lambda handler: None)
    form, unsafe = UnblockForm(workspace_of(server)), []
    for number, hostile in enumerate(text.encode("utf-8", "replace").decode() for text in HOSTILE_TEXTS):
        field = {"text": hostile, "key": "z", "hint": hostile, "default": hostile}
        step = {"block": hostile, "key": "k", "prompt": hostile, "fields": [field]}
        pipeline = {"id": "p", "slug": "gate", "configuration": json.dumps([step])}
        server.responses = [says(json.dumps(pipeline).encode())]
        job = {"id": str(number), "type": "manual", "state": "blocked", "unblockable": True}
        form.show("gate", [job | {"label": hostile, "step_key": "k", "name": None}])
        open_form(form)
        shown = form.inputs["z"]
        unsafe += [] if is_safe(form.prompt.value) else [form.prompt.value]
        unsafe += [text for text in (form.start.description, shown.description, shown.value) if "<" in text]
    assert unsafe == []
