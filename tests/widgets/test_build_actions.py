"""The buttons of a build: when they are enabled, confirmations, requests and outcomes."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator

import pandas as pd
import pytest
import tenacity

import buildframe as bf
from buildframe import spec, widgets
from buildframe.errors import BadInput
from buildframe.http import retry
from buildframe.sandbox_server import SCOPES, Fault
from buildframe.widgets.build_actions import BuildActions
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.widgets.widget_helpers import (
    HOSTILE_TEXTS,
    html_tags,
    is_busy,
    is_safe,
    is_shown,
    running_threads,
    visible_text,
    wait_for,
    workspace_of,
)


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        workspace.sandbox.push("web")
        workspace.sandbox.clock.advance(dt.timedelta(minutes=1))
        yield workspace


def in_state(live: Workspace, state: str) -> spec.Build:
    row = live.builds(created_from="30d", state=state, progress=False).iloc[0]
    return live.pipeline(row["pipeline"]).build(int(row["number"]))


def click(buttons: BuildActions, *names: str) -> None:
    for name in names:
        getattr(buttons, name).click()
        wait_for(buttons)


def asks_for_confirmation(buttons: BuildActions) -> bool:
    return is_shown(buttons.confirmation)


def rebuilt(live: Workspace, build: spec.Build) -> list[int]:
    made = live.pipeline(build.pipeline.slug).builds(created_from="1h", progress=False)
    return sorted(made[made["rebuilt_from"] == build.number]["number"].tolist())


def test_cancel_asks_for_confirmation_and_focuses_the_safe_answer(live: Workspace, focused: list[str]) -> None:
    build = in_state(live, "running")
    of, buttons = live.pipeline(build.pipeline.slug), widgets.actions(build, live)
    assert buttons.cancel.button_style == ""  # white on orange cannot be read
    click(buttons, "yes")
    assert not asks_for_confirmation(buttons)
    click(buttons, "cancel")
    assert f"Cancel build {of.slug} #{build.number}?" in visible_text(buttons.question)
    assert asks_for_confirmation(buttons)
    click(buttons, "no")
    assert not asks_for_confirmation(buttons)
    assert focused == [".bf-no", ".bf-cancel"]
    assert of.build(build.number).state == "running"
    click(buttons, "cancel")
    buttons.yes.click()
    buttons.yes.click()
    wait_for(buttons)
    assert f"#{build.number} is canceled" in visible_text(buttons.status)
    assert of.build(build.number).state == "canceled"
    assert (buttons.cancel.disabled, buttons.rebuild.disabled) == (True, False)
    assert "this one is canceled" in buttons.cancel.tooltip
    assert focused[2:] == [".bf-no", ".bf-rebuild"]


def test_a_refusal_shows_the_reason_and_updates_the_buttons(live: Workspace) -> None:
    build, changed = in_state(live, "running"), []
    buttons = BuildActions(live, build, on_change=changed.append)
    live.sandbox.clock.advance(dt.timedelta(hours=6))
    click(buttons, "cancel", "yes")
    state = live.pipeline(build.pipeline.slug).build(build.number).state
    prefix = f"{build.pipeline.slug} #{build.number}: "
    assert visible_text(buttons.status).startswith(f"{prefix}422: Build can't be canceled because it's already {state}")
    assert 'role="alert"' in buttons.status.value
    assert (buttons.cancel.disabled, buttons.rebuild.disabled) == (True, False)
    assert [(one.id, one.state) for one in changed] == [(build.id, state)]


def test_cancel_is_disabled_for_finished_builds() -> None:
    ws = bf.connect("acme", token="an-invented-token")
    states = ["scheduled", "running", "failing", "canceling", "passed", "failed", "canceled"]
    buttons = {state: BuildActions(ws, spec.Build(id="a", number=1, state=state)) for state in states}
    assert [state for state in states if not buttons[state].cancel.disabled] == ["scheduled", "running", "failing"]
    assert [state for state in states if buttons[state].rebuild.disabled] == []
    assert [state for state in states[3:] if f"this one is {state}" not in buttons[state].cancel.tooltip] == []
    click(buttons["passed"], "cancel")
    assert not asks_for_confirmation(buttons["passed"])
    assert BuildActions(ws).rebuild.disabled


def test_a_double_click_rebuilds_once_and_again_after_confirmation(live: Workspace) -> None:
    build, changed = in_state(live, "passed"), []
    of = live.pipeline(build.pipeline.slug)
    buttons = BuildActions(of, build, on_change=changed.append)
    buttons.rebuild.click()
    buttons.rebuild.click()
    wait_for(buttons)
    (again,) = rebuilt(live, build)
    assert f"{of.slug} #{again} was created" in visible_text(buttons.status)
    links = [attributes["href"] for tag, attributes in html_tags(buttons.status.value) if tag == "a"]
    assert links == [of.build(again).web_url]
    assert [one.number for one in changed] == [again]
    buttons.show(of.build(build.number))
    assert buttons.rebuild.description == "Rebuild again…"
    click(buttons, "rebuild")
    assert f"was already rebuilt as #{again}. Rebuild it again?" in visible_text(buttons.question)
    click(buttons, "no")
    assert rebuilt(live, build) == [again]
    click(buttons, "rebuild", "yes", "yes")
    assert len(rebuilt(live, build)) == 2


def test_a_second_click_that_waited_for_the_kernel_sends_nothing(live: Workspace) -> None:
    build = in_state(live, "passed")

    async def kernel() -> None:
        buttons = BuildActions(live, build)
        buttons.rebuild.click()
        while is_busy(buttons):
            await asyncio.sleep(0.01)
        buttons.rebuild.click()  # it waited in the queue until the response arrived
        assert asks_for_confirmation(buttons)
        wait_for(buttons)

    asyncio.run(asyncio.wait_for(kernel(), 30))
    assert len(rebuilt(live, build)) == 1


def test_an_unknown_outcome_says_how_to_check_and_disables_the_button(live: Workspace) -> None:
    build, other = in_state(live, "passed"), in_state(live, "failed")
    buttons = BuildActions(live, build)
    live.sandbox.fault(Fault("reset", route="rebuild_build", times=1))
    click(buttons, "rebuild")
    assert visible_text(buttons.status).startswith(f"{build.pipeline.slug} #{build.number}: ")
    assert f"whose rebuilt_from is {build.number}" in visible_text(buttons.status)
    assert buttons.rebuild.disabled
    assert "Check the newest builds" in buttons.rebuild.tooltip
    buttons.show(build)
    assert buttons.rebuild.disabled
    buttons.show(other)
    assert not buttons.rebuild.disabled
    buttons.show(build)
    assert buttons.rebuild.disabled
    assert len(rebuilt(live, build)) == 1


def test_a_missing_scope_is_named_and_the_button_stays_enabled(live: Workspace) -> None:
    build = in_state(live, "running")
    token = live.sandbox.token([scope for scope in SCOPES if scope != "write_builds"])
    buttons = BuildActions(bf.connect("acme", base_url=live.sandbox.url, token=token), build)
    for _ in range(2):
        click(buttons, "cancel", "yes")
        assert "Use a token that has the scope write_builds" in visible_text(buttons.status)
        assert not buttons.cancel.disabled
    click(buttons, "rebuild")
    assert "403" in visible_text(buttons.status)
    assert buttons.rebuild.description == "Rebuild"


def test_an_unreachable_server_is_reported_and_the_button_stays_enabled(
    live: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())
    build = in_state(live, "passed")
    buttons = BuildActions(live, build)
    live.sandbox.stop()
    click(buttons, "rebuild")
    about = f"{build.pipeline.slug} #{build.number}"
    assert visible_text(buttons.status).startswith(f"{about}: No response from {live.sandbox.url}")
    assert (buttons.rebuild.disabled, buttons.rebuild.description) == (False, "Rebuild")


def response(hostile: str, **more: object) -> bytes:
    build = {"id": "b", "number": 41, "state": hostile, "web_url": hostile}
    return json.dumps({**build, "pipeline": {"slug": "web", "name": hostile}, **more}).encode()


def test_the_outcome_for_a_build_that_is_no_longer_shown_names_it(
    scripted: Callable[..., Scripted],
) -> None:
    gate = threading.Event()

    def late(handler: object) -> None:
        gate.wait(10)
        says(response("scheduled", number=99, id="new"))(handler)

    ws = workspace_of(scripted(late))
    first, second, third = (spec.Build(id=id, number=n, state="passed") for id, n in (("a", 1), ("b", 2), ("c", 3)))
    buttons = BuildActions(ws.pipeline("web"), first)
    buttons.rebuild.click()
    for build in (None, second, third, None, second):
        buttons.show(build)
        assert (buttons.rebuild.disabled, visible_text(buttons.status)) == (
            True,
            "Rebuilding build #1 …",
        )
    gate.set()
    wait_for(buttons)
    assert "web #99 was created" in visible_text(buttons.status)
    assert (buttons.rebuild.disabled, buttons.rebuild.description) == (False, "Rebuild")
    buttons.show(first)
    assert buttons.rebuild.description == "Rebuild again…"
    assert "web #99 was created" in visible_text(buttons.status)
    buttons.show(None)
    buttons.show(first)
    assert "web #99 was created" in visible_text(buttons.status)
    buttons.show(third)
    assert visible_text(buttons.status) == ""


def test_the_same_outcome_twice_is_shown_twice(scripted: Callable[..., Scripted]) -> None:
    server = scripted(*[says(b'{"message": "No"}', 403)] * 2)
    ws = workspace_of(server)
    first, second = (spec.Build(id=id, number=1, state="passed") for id in "ab")
    buttons = BuildActions(ws.pipeline("web"), first)
    click(buttons, "rebuild")
    buttons.show(second)
    click(buttons, "rebuild")
    buttons.show(first)
    assert visible_text(buttons.status).startswith("#1: 403: No")


def test_a_wait_for_the_rate_limit_is_shown(scripted: Callable[..., Scripted], report_all_waits: None) -> None:
    server = scripted(says(b"{}", 429, Retry_After="1"), says(response("scheduled", number=99)))
    ws = workspace_of(server)
    buttons, texts = BuildActions(ws.pipeline("web"), spec.Build(id="a", number=1, state="passed")), []
    buttons.status.observe(lambda change: texts.append(visible_text(buttons.status)), "value")
    click(buttons, "rebuild")
    waits = [text for text in texts if "Waiting" in text]
    assert all(text.startswith("Rebuilding build #1 …Waiting ") for text in waits)
    assert waits
    assert "the rate limit is used up. Continues automatically." in waits[0]
    assert visible_text(buttons.status).startswith("Build web #99 was created")


def test_text_of_the_service_is_escaped(scripted: Callable[..., Scripted]) -> None:
    server = scripted(lambda handler: None)
    buttons, unsafe = BuildActions(workspace_of(server)), []
    for number, hostile in enumerate(HOSTILE_TEXTS):
        refusal = json.dumps({"message": hostile}).encode()
        server.responses = [says(response(hostile)), says(refusal, 422), says(response(hostile))]
        pipeline = spec.Pipeline(id="p", slug="web", name=hostile)
        buttons.show(spec.Build(id=str(number), number=41, state="running", pipeline=pipeline))
        click(buttons, "rebuild")
        shown = [buttons.status.value]
        click(buttons, "cancel")
        shown.append(buttons.question.value)
        click(buttons, "yes")
        assert 'role="alert"' in buttons.status.value
        unsafe += [page for page in (*shown, buttons.status.value) if not is_safe(page)]
    assert unsafe == []


def test_invalid_arguments_are_named() -> None:
    build, ws = spec.Build(id="a", number=1), bf.connect("acme", token="an-invented-token")
    with pytest.raises(bf.BadInput, match=r"'bulid'.*'build'"):
        widgets.actions(bulid=None)
    with pytest.raises(bf.BadInput, match="ws='acme'"):
        widgets.actions(build, "acme")
    with pytest.raises(bf.BadInput, match="build=41"):
        widgets.actions(41, ws)


def test_without_a_workspace_it_connects_from_the_environment(live: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    build = in_state(live, "running")
    monkeypatch.setenv("BUILDFRAME_TOKEN", live.sandbox.token(SCOPES))
    with pytest.raises(bf.BadInput, match=r"http://127.0.0.1.*Pass its workspace"):
        widgets.actions(build)
    monkeypatch.setenv("BUILDFRAME_URL", live.sandbox.url)
    click(widgets.actions(build), "cancel", "yes")
    assert live.pipeline(build.pipeline.slug).build(build.number).state == "canceled"


def test_closed_buttons_leave_no_thread(live: Workspace) -> None:
    buttons = BuildActions(live, in_state(live, "passed"))
    buttons.rebuild.click()
    buttons.close()
    wait_for(buttons)
    assert running_threads() == []


def test_what_is_not_a_build_is_named_briefly() -> None:
    ws = bf.connect("acme", token="an-invented-token")
    row = pd.Series({"pipeline": "web", "number": 41, "message": "x" * 5000})
    of_row = "build= is a row of builds. Pass the build itself: ws.pipeline('web').build(41)."
    of_frame = "build=<DataFrame> is not a build. Pass one, such as ws.pipeline(...).build(41)."
    swapped = "build and ws are swapped: call actions(build, ws)."
    for arguments, message in (
        ((row,), of_row),
        ((row.to_frame(),), of_frame),
        ((ws, row), f"{swapped} {of_row}"),
        ((ws, row.to_frame()), f"{swapped} {of_frame}"),
        ((ws, spec.Build(id="a", number=1)), swapped),
    ):
        with pytest.raises(BadInput) as caught:
            widgets.actions(*arguments)
        assert str(caught.value) == message
