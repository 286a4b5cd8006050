"""The form for a new build: every property, what is wrong at its field, nothing lost on a refusal."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator

import ipywidgets
import pytest

import buildframe as bf
from buildframe import spec
from buildframe.sandbox_server import SCOPES, Fault
from buildframe.widgets.form import CreateForm, Field
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.report.untrusted import UNTRUSTED
from tests.widgets.faces_read import is_harmless, settled, words

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


def at(form: CreateForm) -> dict[str, Field]:
    return {field.name: field for field in form._every() if field.input is not None}


def fill(form: CreateForm, **values: object) -> None:
    for name, value in values.items():
        at(form)[name].input.value = value


def send(form: CreateForm) -> None:
    form.create.click()
    settled(form._lane)


def newest(live: Workspace, slug: str) -> spec.Build:
    return live.pipeline(slug).build(int(live.pipeline(slug).builds(created_from="1h", progress=False)["number"].max()))


def count(live: Workspace) -> int:
    return len(live.builds(created_from="1h", progress=False))


def test_it_has_every_property_of_the_document_and_a_label_for_each(live: Workspace) -> None:
    form = CreateForm(live)
    assert tuple(form.fields) == spec.create_build.property_names
    assert set(at(form)) == {"pipeline", *ALL}
    assert {field.input.description for field in at(form).values()} == set(at(form))
    assert set(at(CreateForm(live.pipeline("web")))) == set(ALL)

    def within(widget: ipywidgets.Widget) -> Iterator[ipywidgets.Widget]:
        yield widget
        for child in getattr(widget, "children", ()):
            yield from within(child)

    assert {id(field.input) for field in at(form).values()} <= {id(widget) for widget in within(form)}


def test_all_of_it_is_sent_and_an_explicit_no_is_no(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b'{"id": "b", "number": 9, "state": "scheduled"}', 201))
    form = CreateForm(bf.connect("acme", base_url=server.url, token="t" * 20).pipeline("web"))
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


def test_it_creates_once_and_is_empty_then(live: Workspace) -> None:
    told: list[spec.Build] = []
    form = CreateForm(live, acted=told.append)
    form.offer(["web", "api"], "web")
    fill(form, **ALL)
    form.create.click()
    send(form)
    send(form)
    build = newest(live, "web")
    assert count(live) == 1
    assert (build.message, build.branch, build.meta_data) == ("One\n\n  two", "main", {"lines": "one\ntwo"})
    assert f"#{build.number} was created, {told[0].state}" in words(form.said)
    assert build.web_url in form.said.value
    assert {field.input.value for name, field in at(form).items() if name != "pipeline"} == {""}
    assert form.pipeline.value == "web"


def test_what_is_wrong_stands_at_its_field_and_goes_as_one_types(live: Workspace, focused: list[str]) -> None:
    form = CreateForm(live)
    wrong = {"env": "A=1\nno sign", "meta_data": "A=1\nA=2", "pull_request_id": "seven", "author.email": "x"}
    fill(form, **wrong)
    send(form)
    problems = {name: words(field.hint) for name, field in at(form).items() if field.problem}
    assert problems == {
        "pipeline": "pipeline is missing",
        "commit": "commit is missing",
        "branch": "branch is missing",
        "env": "env has no NAME=value in line 2",
        "meta_data": "meta_data has A twice, again in line 2",
        "pull_request_id": "pull_request_id must be a whole number",
    }
    assert words(form.said) == "Nothing was sent: 6 of the fields cannot be used; see there."
    assert focused == [".bf-at-pipeline :is(input, textarea, select)"]
    assert form._guide.attributes[focused[0]]["aria-invalid"] == "true"
    fill(form, pipeline="web", env="A=1")
    assert (at(form)["env"].problem, at(form)["pipeline"].problem) == ("", "")
    assert form._guide.attributes[focused[0]]["aria-invalid"] == "false"
    assert at(form)["commit"].problem
    assert not form.create.disabled
    assert count(live) == 0


@pytest.mark.parametrize(("text", "problem"), [
    ('{"A": 1}', "must be text"),
    ('{"A": ', "is no JSON"),
    ("=1", "has no NAME=value in line 1"),
])  # fmt: skip
def test_maps_that_are_none(live: Workspace, text: str, problem: str) -> None:
    form = CreateForm(live.pipeline("web"))
    fill(form, commit="HEAD", branch="main", env=text)
    send(form)
    assert problem in words(at(form)["env"].hint)
    assert count(live) == 0


def test_hints_are_tied_to_their_inputs_for_screen_readers(live: Workspace) -> None:
    form = CreateForm(live)
    for field in at(form).values():
        told = form._guide.attributes[field.selector]
        assert f'id="{told["aria-describedby"]}"' in field.hint.value
        assert told["aria-required"] == ("true" if field.name in {"pipeline", "commit", "branch"} else "false")
    assert words(at(form)["env"].hint).endswith('One NAME=value a line; or JSON, such as {"A": "1"}.')


@pytest.mark.parametrize(("slug", "told", "at_field"), [
    ("nowhere", "404: No pipeline found", "pipeline is not known to the service"),
    ("..", "..", "pipeline cannot be used"),
])  # fmt: skip
def test_a_pipeline_that_is_none_is_told(live: Workspace, slug: str, told: str, at_field: str) -> None:
    form = CreateForm(live)
    fill(form, pipeline=slug, commit="HEAD", branch="main", message="Mine")
    send(form)
    assert told in words(form.said)
    assert at_field in words(at(form)["pipeline"].hint)
    fill(form, pipeline="web")
    assert at(form)["message"].input.value == "Mine"
    send(form)
    assert newest(live, "web").message == "Mine"


def test_a_refusal_says_why_and_loses_nothing(live: Workspace) -> None:
    form = CreateForm(live.pipeline("web"))
    fill(form, commit="HEAD", branch="nowhere/else", message="Mine")
    send(form)
    assert "422" in words(form.said)
    assert at(form)["message"].input.value == "Mine"
    assert not form.create.disabled
    fill(form, ignore_pipeline_branch_filters=True)
    send(form)
    assert newest(live, "web").branch == "nowhere/else"


def test_what_the_service_says_of_a_field_stands_there(scripted: Callable[..., Scripted]) -> None:
    refusal = {"message": "Validation Failed", "errors": [{"field": "commit", "code": "is not <b>there</b>"}]}
    server = scripted(says(json.dumps(refusal).encode(), 422))
    form = CreateForm(bf.connect("acme", base_url=server.url, token="t" * 20).pipeline("web"))
    fill(form, commit="HEAD", branch="main")
    send(form)
    assert words(at(form)["commit"].hint) == "commit is not <b>there</b>"
    assert is_harmless(at(form)["commit"].hint.value)


def test_without_the_scope_it_says_which_one_and_loses_nothing(live: Workspace) -> None:
    token = live.sandbox.token([scope for scope in SCOPES if scope != "write_builds"])
    form = CreateForm(bf.connect("acme", base_url=live.sandbox.url, token=token).pipeline("web"))
    fill(form, commit="HEAD", branch="main")
    send(form)
    assert "Use a token that has the scope write_builds" in words(form.said)
    assert (at(form)["branch"].input.value, form.create.disabled) == ("main", False)


def test_an_unknown_outcome_is_not_sent_again_before_something_was_changed(live: Workspace) -> None:
    live.sandbox.fault(Fault("reset", route="create_build", times=1))
    form = CreateForm(live.pipeline("web"))
    fill(form, commit="HEAD", branch="main")
    send(form)
    send(form)
    assert "Look for it among the newest" in words(form.said)
    assert count(live) == 1
    assert form.create.disabled
    fill(form, message="Another")
    assert not form.create.disabled


def test_what_one_types_while_it_sends_stays(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()

    def late(handler: object) -> None:
        gate.wait(10)
        says(b'{"id": "b", "number": 9, "state": "scheduled"}', 201)(handler)

    server = scripted(late)
    form = CreateForm(bf.connect("acme", base_url=server.url, token="t" * 20).pipeline("web"))
    fill(form, **ALL)
    form.create.click()
    fill(form, message="The next one", clean_checkout="", **{"author.name": "Yann Example"})
    assert form.create.disabled
    gate.set()
    settled(form._lane)
    kept = {name: field.input.value for name, field in at(form).items() if field.input.value}
    assert kept == {"message": "The next one", "author.name": "Yann Example"}
    assert not form.create.disabled
    assert len(server.asked) == 1


def test_a_wait_for_the_limit_is_told_until_the_outcome_comes(
    scripted: Callable[..., Scripted], each_wait_is_told: None
) -> None:
    made = says(b'{"id": "b", "number": 9, "state": "scheduled"}', 201)
    server, heard = scripted(says(b"{}", 429, Retry_After="1"), made), []
    form = CreateForm(bf.connect("acme", base_url=server.url, token="t" * 20).pipeline("web"))
    form.said.observe(lambda change: heard.append(words(form.said)), "value")
    fill(form, commit="HEAD", branch="main")
    send(form)
    assert heard[0] == "Creating the build …"
    assert heard[1].startswith("Creating the build …Waiting 1 s: ")
    assert heard[-1].startswith("Build #9 was created")


@pytest.mark.parametrize(("name", "typed", "told"), [
    ("pull_request_id", "7" * 5000, "has 5,000 digits, which is too long a number"),
    ("pull_request_id", "--7", "must be a whole number"),
    ("env", '{"A": "1", "B": "2", "A": "3"}', "has A twice"),
    ("meta_data", '{"A": "1", "A": "1"}', "has A twice"),
])  # fmt: skip
def test_what_cannot_be_sent_as_it_was_typed_is_told(live: Workspace, name: str, typed: str, told: str) -> None:
    form = CreateForm(live.pipeline("web"))
    fill(form, commit="HEAD", branch="main", **{name: typed})
    send(form)
    assert words(at(form)[name].hint) == f"{name} {told}"
    assert "Nothing was sent" in words(form.said)


@pytest.mark.parametrize("number", [-3, 0])
def test_a_number_that_the_service_may_refuse_is_sent(live: Workspace, number: int) -> None:
    form = CreateForm(live.pipeline("web"))
    fill(form, commit="HEAD", branch="main", pull_request_id=str(number))
    send(form)
    assert "422" in words(form.said)
    assert words(at(form)["pull_request_id"].hint).startswith("pull_request_id must be from 1 to ")


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_texts_stay_texts(scripted: Callable[..., Scripted], hostile: str) -> None:
    build = {"id": "b", "number": 9, "state": hostile, "web_url": hostile}
    refusal = {"message": hostile, "errors": [{"field": "commit", "code": hostile}, {"field": hostile, "code": "x"}]}
    server = scripted(says(json.dumps(build).encode(), 201), says(json.dumps(refusal).encode(), 422))
    form = CreateForm(bf.connect("acme", base_url=server.url, token="t" * 20).pipeline("web"))
    shown = []
    for _ in range(2):
        fill(form, commit="HEAD", branch="main", env=f"{hostile}=1\n{hostile}=2", message=hostile)
        send(form)
        fill(form, env="")
        send(form)
        shown += [form.said.value, *(field.hint.value for field in at(form).values())]
    assert all(map(is_harmless, shown))


def test_what_is_no_argument_is_refused_by_name(live: Workspace) -> None:
    with pytest.raises(TypeError, match="actde"):
        CreateForm(live, actde=print)
    with pytest.raises(bf.BadInput, match="ws=7"):
        CreateForm(7)
