"""The form for a new build: every property, problems at their fields, and no input lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator

import pytest

import buildframe as bf
from buildframe import spec
from buildframe.sandbox_server import SCOPES, Fault
from buildframe.widgets.create_build_form import CreateBuildForm, FormField
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.widgets.widget_helpers import (
    HOSTILE_TEXTS,
    accessibility,
    is_safe,
    is_shown,
    parts,
    visible_text,
    wait_for,
    workspace_of,
)

ALL = {
    "commit": "HEAD",
    "branch": " main ",
    "message": "One\n\n  two",
    "author.name": "Zoe Example",
    "author.email": "zoe@example.com",
    "clean_checkout": False,
    "ignore_pipeline_branch_filters": True,
    "env": "CACHE=v2\nEMPTY=\nA=b=c \n",
    "meta_data": '{"lines": "one\\ntwo"}',
    "pull_request_id": " 7 ",
    "pull_request_base_branch": "main",
    "pull_request_repository": "https://git.example.com/acme/web.git",
}


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=50) as workspace:
        yield workspace


def inputs(form: CreateBuildForm) -> dict[str, FormField]:
    fields = [each for field in form.fields.values() for each in field.with_parts()]
    return {field.name: field for field in fields if field.input is not None}


def fill(form: CreateBuildForm, **values: object) -> None:
    for name, value in values.items():
        inputs(form)[name].input.value = value


def send(form: CreateBuildForm) -> None:
    form.create.click()
    wait_for(form)


def newest(live: Workspace, slug: str) -> spec.Build:
    return live.pipeline(slug).build(int(live.pipeline(slug).builds(created_from="1h", progress=False)["number"].max()))


def count(live: Workspace) -> int:
    return len(live.builds(created_from="1h", progress=False))


def test_it_has_a_labeled_input_for_every_property(live: Workspace) -> None:
    form = CreateBuildForm(live)
    assert tuple(form.fields) == ("pipeline", *spec.create_build.property_names)
    assert set(inputs(form)) == {"pipeline", *ALL}
    labels = [field.input.description for field in inputs(form).values()]
    assert len(set(labels)) == len(labels)
    assert not [label for label in labels if "_" in label or not label[0].isupper()]
    assert set(inputs(CreateBuildForm(live.pipeline("web")))) == set(ALL)

    assert {id(field.input) for field in inputs(form).values()} <= {id(widget) for widget in parts(form)}


def test_all_values_are_sent_and_no_is_false(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b'{"id": "b", "number": 9, "state": "scheduled"}', 201))
    form = CreateBuildForm(workspace_of(server).pipeline("web"))
    fill(form, **ALL)
    send(form)
    assert json.loads(server.bodies[0]) == {
        "commit": "HEAD",
        "branch": "main",
        "message": "One\n\n  two",
        "author": {"name": "Zoe Example", "email": "zoe@example.com"},
        "clean_checkout": False,
        "ignore_pipeline_branch_filters": True,
        "env": {"CACHE": "v2", "EMPTY": "", "A": "b=c "},
        "meta_data": {"lines": "one\ntwo"},
        "pull_request_id": 7,
        "pull_request_base_branch": "main",
        "pull_request_repository": "https://git.example.com/acme/web.git",
    }
    fill(form, commit="HEAD", branch="main")
    send(form)
    assert json.loads(server.bodies[1]) == {"commit": "HEAD", "branch": "main"}


def test_it_creates_one_build_and_clears_the_fields(live: Workspace) -> None:
    changed: list[spec.Build] = []
    form = CreateBuildForm(live, on_change=changed.append)
    form.prepare(["web", "api"], "web")
    wait_for(form)
    fill(form, **ALL)
    form.create.click()
    send(form)
    send(form)
    build = newest(live, "web")
    assert count(live) == 1
    assert (build.message, build.branch, build.meta_data) == ("One\n\n  two", "main", {"lines": "one\ntwo"})
    assert f"#{build.number} was created, {changed[0].state}" in visible_text(form.status)
    assert build.web_url in form.status.value
    kept = {name: field.input.value for name, field in inputs(form).items() if field.input.value}
    assert kept == {"pipeline": "web", "commit": "HEAD", "branch": "main"}


def test_it_starts_with_the_newest_commit_of_the_default_branch(live: Workspace) -> None:
    live.pipeline("api").update(default_branch="trunk")
    form = CreateBuildForm(live)
    assert (inputs(form)["commit"].input.value, inputs(form)["branch"].input.value) == ("HEAD", "")
    form.prepare(["web", "api"], "web")
    wait_for(form)
    assert inputs(form)["branch"].input.value == "main"
    form.pipeline.value = "api"
    wait_for(form)
    assert inputs(form)["branch"].input.value == "trunk"
    fill(form, branch="mine")
    form.pipeline.value = "web"
    wait_for(form)
    assert inputs(form)["branch"].input.value == "mine", "what the user typed stays"
    other = CreateBuildForm(live.pipeline("api"))
    other.prepare()
    wait_for(other)
    assert inputs(other)["branch"].input.value == "trunk"


def test_an_unknown_default_branch_is_left_to_the_user(live: Workspace) -> None:
    form = CreateBuildForm(live)
    form.prepare([], "nowhere")
    wait_for(form)
    assert (inputs(form)["branch"].input.value, form.status.value) == ("", "")


def test_options_are_folded_until_they_are_needed(live: Workspace) -> None:
    form = CreateBuildForm(live.pipeline("web"))
    assert not is_shown(form.more)
    form.more_button.click()
    assert (is_shown(form.more), form.more_button.description) == (True, "Fewer options")
    assert accessibility(form)[".bf-more"] == {"aria-expanded": "true"}
    form.more_button.click()
    fill(form, branch="main", env="no sign")
    send(form)
    assert is_shown(form.more), "the field with the problem is visible"


def test_problems_appear_at_their_fields_until_these_are_edited(live: Workspace, focused: list[str]) -> None:
    form = CreateBuildForm(live)
    wrong = {
        "commit": "",
        "env": "A=1\nno sign",
        "meta_data": "A=1\nA=2",
        "pull_request_id": "seven",
        "author.email": "x",
    }
    fill(form, **wrong)
    send(form)
    problems = {name: visible_text(field.hint) for name, field in inputs(form).items() if field.problem}
    assert problems == {
        "pipeline": "Pipeline is missing",
        "commit": "Commit is missing",
        "branch": "Branch is missing",
        "env": "Environment variables has no NAME=value in line 2",
        "meta_data": "Meta-data contains A twice, again in line 2",
        "pull_request_id": "Pull request number must be a whole number",
    }
    assert visible_text(form.status) == "Nothing was sent. Correct 6 marked fields."
    assert focused == [".bf-field-pipeline :is(input, textarea, select)"]
    assert accessibility(form)[focused[0]]["aria-invalid"] == "true"
    fill(form, pipeline="web", env="A=1")
    assert (inputs(form)["env"].problem, inputs(form)["pipeline"].problem) == ("", "")
    assert accessibility(form)[focused[0]]["aria-invalid"] == "false"
    assert inputs(form)["commit"].problem
    assert not form.create.disabled
    assert count(live) == 0


def test_input_that_cannot_be_parsed_is_reported(live: Workspace) -> None:
    form = CreateBuildForm(live.pipeline("web"))
    problems = [
        ("env", '{"A": 1}', "must be text"),
        ("env", '{"A": ', "is not valid JSON: Expecting value: line 1 column 7 (char 6)"),
        ("env", "=1", "has no NAME=value in line 1"),
        ("env", '{"A": "1", "B": "2", "A": "3"}', "contains A twice"),
        ("meta_data", '{"A": "1", "A": "1"}', "contains A twice"),
        ("pull_request_id", "7" * 5000, "has 5,000 digits, which is too many"),
        ("pull_request_id", "--7", "must be a whole number"),
    ]
    for name, typed, problem in problems:
        field = inputs(form)[name]
        fill(form, commit="HEAD", branch="main", **{name: typed})
        send(form)
        assert visible_text(field.hint) == f"{field.label} {problem}"
        assert visible_text(form.status) == "Nothing was sent. Correct 1 marked field."
        fill(form, **{name: ""})
    assert count(live) == 0


def test_descriptions_are_linked_to_their_inputs_for_screen_readers(live: Workspace) -> None:
    form = CreateBuildForm(live)
    for field in inputs(form).values():
        attributes = accessibility(form)[field.selector]
        assert f'id="{attributes["aria-describedby"]}"' in field.hint.value
        assert attributes["aria-required"] == ("true" if field.name in {"pipeline", "commit", "branch"} else "false")
    assert visible_text(inputs(form)["env"].hint).endswith('One NAME=value per line, or JSON such as {"A": "1"}.')


def test_it_opens_folded_again_unless_a_folded_property_was_changed(live: Workspace) -> None:
    form = CreateBuildForm(live)
    form.more_button.click()
    form.prepare(["web"], "web")
    assert not is_shown(form.more)
    fill(form, env="A=1")
    form.more_button.click()
    form.prepare(["web"], "web")
    assert is_shown(form.more)


def test_a_misspelt_pipeline_is_answered_with_the_nearest(live: Workspace) -> None:
    form = CreateBuildForm(live)
    form.prepare(["web", "api"], "wbe")
    fill(form, pipeline="wbe", commit="HEAD", branch="main", message="Mine")
    send(form)
    assert "Did you mean web?" in visible_text(inputs(form)["pipeline"].hint)


def test_an_unknown_pipeline_is_reported(live: Workspace) -> None:
    form = CreateBuildForm(live)
    for slug, message, at_field in (
        ("nowhere", "404: No pipeline found", "Pipeline does not exist, or this token cannot see it"),
        ("..", "..", "Pipeline is not valid"),
    ):
        fill(form, pipeline=slug, commit="HEAD", branch="main", message="Mine")
        send(form)
        assert message in visible_text(form.status)
        assert at_field in visible_text(inputs(form)["pipeline"].hint)
    fill(form, pipeline="web")
    assert inputs(form)["message"].input.value == "Mine"
    send(form)
    assert newest(live, "web").message == "Mine"


def test_a_refusal_says_why_and_keeps_the_input(live: Workspace) -> None:
    form = CreateBuildForm(live.pipeline("web"))
    fill(form, commit="HEAD", branch="nowhere/else", message="Mine")
    send(form)
    assert "422" in visible_text(form.status)
    assert inputs(form)["message"].input.value == "Mine"
    assert not form.create.disabled
    fill(form, ignore_pipeline_branch_filters=True)
    send(form)
    assert newest(live, "web").branch == "nowhere/else"


def test_field_errors_of_the_service_appear_at_their_fields(scripted: Callable[..., Scripted]) -> None:
    refusal = {"message": "Validation Failed", "errors": [{"field": "commit", "code": "is not <b>there</b>"}]}
    server = scripted(says(json.dumps(refusal).encode(), 422))
    form = CreateBuildForm(workspace_of(server).pipeline("web"))
    fill(form, commit="HEAD", branch="main")
    send(form)
    assert visible_text(inputs(form)["commit"].hint) == "Commit is not <b>there</b>"
    assert is_safe(inputs(form)["commit"].hint.value)


def test_a_missing_scope_is_named_and_the_input_is_kept(live: Workspace) -> None:
    token = live.sandbox.token([scope for scope in SCOPES if scope != "write_builds"])
    form = CreateBuildForm(bf.connect("acme", base_url=live.sandbox.url, token=token).pipeline("web"))
    fill(form, commit="HEAD", branch="main")
    send(form)
    assert "Use a token that has the scope write_builds" in visible_text(form.status)
    assert (inputs(form)["branch"].input.value, form.create.disabled) == ("main", False)


def test_an_unknown_outcome_is_not_sent_again_before_an_edit(live: Workspace) -> None:
    live.sandbox.fault(Fault("reset", route="create_build", times=1))
    form = CreateBuildForm(live.pipeline("web"))
    fill(form, commit="HEAD", branch="main")
    send(form)
    send(form)
    assert "Look for it among the newest" in visible_text(form.status)
    assert count(live) == 1
    assert form.create.disabled
    fill(form, message="Another")
    assert not form.create.disabled


def test_a_second_press_creates_no_other_build_before_an_edit(live: Workspace) -> None:
    form = CreateBuildForm(live.pipeline("web"))
    form.prepare()
    wait_for(form)
    send(form)
    assert form.create.disabled
    send(form)
    assert count(live) == 1
    fill(form, message="Another")
    send(form)
    assert (count(live), newest(live, "web").message) == (2, "Another")


def test_edits_during_a_submission_are_kept(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()

    def late(handler: object) -> None:
        gate.wait(10)
        says(b'{"id": "b", "number": 9, "state": "scheduled"}', 201)(handler)

    server = scripted(late)
    form = CreateBuildForm(workspace_of(server).pipeline("web"))
    fill(form, **ALL)
    form.create.click()
    fill(form, message="The next one", clean_checkout="", **{"author.name": "Yann Example"})
    assert form.create.disabled
    gate.set()
    wait_for(form)
    kept = {name: field.input.value for name, field in inputs(form).items() if field.input.value}
    assert kept == {"commit": "HEAD", "message": "The next one", "author.name": "Yann Example"}
    assert not form.create.disabled
    assert len(server.requests) == 1


def test_a_wait_for_the_rate_limit_is_shown(scripted: Callable[..., Scripted], report_all_waits: None) -> None:
    made = says(b'{"id": "b", "number": 9, "state": "scheduled"}', 201)
    server, texts = scripted(says(b"{}", 429, Retry_After="1"), made), []
    form = CreateBuildForm(workspace_of(server).pipeline("web"))
    form.status.observe(lambda change: texts.append(visible_text(form.status)), "value")
    fill(form, commit="HEAD", branch="main")
    send(form)
    assert texts[0] == "Creating the build …"
    assert texts[1].startswith("Creating the build …Waiting 1 s: ")
    assert texts[-1].startswith("Build #9 was created")


def test_a_number_out_of_range_is_left_to_the_service(live: Workspace) -> None:
    form = CreateBuildForm(live.pipeline("web"))
    for number in (-3, 0):
        fill(form, commit="HEAD", branch="main", pull_request_id=str(number))
        send(form)
        assert "422" in visible_text(form.status)
        assert visible_text(inputs(form)["pull_request_id"].hint).startswith("Pull request number must be from 1 to ")


def test_text_is_escaped(scripted: Callable[..., Scripted]) -> None:
    server = scripted(lambda handler: None)
    form, unsafe = CreateBuildForm(workspace_of(server).pipeline("web")), []
    for hostile in HOSTILE_TEXTS:
        build = {"id": "b", "number": 9, "state": hostile, "web_url": hostile}
        errors = [{"field": "commit", "code": hostile}, {"field": hostile, "code": "x"}]
        refusal = {"message": hostile, "errors": errors}
        server.responses = [says(json.dumps(build).encode(), 201), says(json.dumps(refusal).encode(), 422)]
        for _ in range(2):
            fill(form, commit="HEAD", branch="main", env=f"{hostile}=1\n{hostile}=2", message=hostile)
            send(form)
            fill(form, env="")
            send(form)
            shown = [form.status.value, *(field.hint.value for field in inputs(form).values())]
            unsafe += [page for page in shown if not is_safe(page)]
    assert unsafe == []


def test_invalid_arguments_are_named() -> None:
    with pytest.raises(bf.BadInput, match="ws=7"):
        CreateBuildForm(7)
