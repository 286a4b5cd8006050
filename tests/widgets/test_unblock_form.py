"""Unblocking from the widgets: the fields of a block step, what is sent, and refusals."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator

import pytest

import buildframe as bf
from buildframe import spec
from buildframe.sandbox_server import Fault
from buildframe.widgets.block_fields import find_block_step
from buildframe.widgets.build_details import BuildDetails
from buildframe.widgets.unblock_form import UnblockForm
from buildframe.workspace import Workspace
from tests import worlds
from tests.report.untrusted import UNTRUSTED
from tests.widgets.widget_helpers import is_safe, visible_text, wait_for

STEPS = """\
steps:
  - command: make
  - wait
  - block: ":rocket: Deploy?"
    key: deploy
    prompt: Fill in the form
    fields:
      - {text: Reason, key: reason, hint: for the log}
      - select: Region
        key: region
        default: eu
        options: [{label: Europe, value: eu}, {label: America, value: us}]
      - select: Teams
        key: teams
        multiple: true
        required: false
        options: [{label: Web, value: web}, {label: Data, value: data}]
      - {text: Note, key: note, required: false}
  - command: make deploy
"""


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=50) as workspace:
        workspace.create_pipeline(
            name="Gate", cluster_id=None, repository="git@git.example.com:acme/x.git", configuration=STEPS
        )
        yield workspace


@pytest.fixture
def detail(live: Workspace) -> Iterator[BuildDetails]:
    """Show a build that waits at its block step."""
    build = live.pipeline("gate").create_build(commit="HEAD", branch="main")
    live.sandbox.clock.advance(dt.timedelta(hours=1))
    made = BuildDetails(live)
    made.load("gate", build.number)
    wait_for(made._tasks)
    yield made
    made.close()


def is_shown(widget: object) -> bool:
    return widget.layout.display != "none"


def open_form(form: UnblockForm) -> None:
    form.start.click()
    wait_for(form._tasks)


def submit(detail: BuildDetails) -> None:
    detail.unblock.submit.click()
    wait_for(detail.unblock._tasks, detail._tasks)


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
    wait_for(other._tasks)
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
    wait_for(detail._tasks)
    assert not detail.unblock.submit.disabled


def test_other_builds_have_no_form(live: Workspace, detail: BuildDetails) -> None:
    number = int(live.pipeline("web").builds(state="passed", progress=False)["number"].max())
    detail.load("web", number)
    assert not is_shown(detail.unblock.choice)
    wait_for(detail._tasks)
    assert not is_shown(detail.unblock.choice)


@pytest.mark.parametrize(
    "configuration", [None, "", "a: [", "steps: 7", "- 1\n- [2]", "&a [*a]", "steps: [{group: x}]"]
)
def test_a_configuration_without_the_step(configuration: str | None) -> None:
    assert find_block_step(configuration, "deploy", "Deploy") is None


def test_steps_in_groups_and_without_keys() -> None:
    grouped = "steps: [{group: g, steps: [{block: Deploy, fields: [{text: A, key: a}, 7, {text: no key}]}]}]"
    step = find_block_step(grouped, None, "Deploy")
    assert step is not None
    assert [field.key for field in step.fields] == ["a"]
    assert find_block_step("[{input: One}, {input: Two, key: two}]", "two", "Two") == ("", ())


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_texts_are_escaped(ci: Workspace, hostile: str) -> None:
    form = UnblockForm(ci)
    step = find_block_step("[{block: x, key: k, prompt: y, fields: [{text: z, key: z}]}]", "k", "x")
    assert step is not None
    fields = (step.fields[0]._replace(label=hostile, hint=hostile, default=(hostile,)),)
    job = {"id": "1", "type": "manual", "state": "blocked", "unblockable": True, "label": hostile, "step_key": hostile}
    form.show("web", [job])
    form._show_form(job, step._replace(prompt=hostile, fields=fields))
    assert is_safe(form.prompt.value)
    assert "<" not in form.start.description + form.inputs["z"].description + form.inputs["z"].value
    form.close()
