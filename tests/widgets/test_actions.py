"""The buttons of a build: when they are live, what they ask, what they send, what they say."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator

import pytest
import tenacity

import buildframe as bf
from buildframe import spec, widgets
from buildframe.http import retry
from buildframe.sandbox_server import SCOPES, Fault
from buildframe.widgets.buttons import Actions
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.report.untrusted import UNTRUSTED
from tests.widgets.faces_read import is_harmless, settled, words


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        workspace.sandbox.push("web")
        workspace.sandbox.clock.advance(dt.timedelta(minutes=1))
        yield workspace


def in_state(live: Workspace, state: str) -> spec.Build:
    row = live.builds(created_from="30d", state=state, progress=False).iloc[0]
    return live.pipeline(row["pipeline"]).build(int(row["number"]))


def click(buttons: Actions, *names: str) -> None:
    for name in names:
        getattr(buttons, name).click()
        settled(buttons._lane)


def is_asking(buttons: Actions) -> bool:
    return buttons.question.layout.display != "none"


def rebuilt(live: Workspace, build: spec.Build) -> list[int]:
    made = live.pipeline(build.pipeline.slug).builds(created_from="1h", progress=False)
    return sorted(made[made["rebuilt_from"] == build.number]["number"].tolist())


def test_cancel_asks_first_and_the_focus_goes_to_what_is_harmless(live: Workspace, focused: list[str]) -> None:
    build = in_state(live, "running")
    of, buttons = live.pipeline(build.pipeline.slug), widgets.actions(build, live)
    assert buttons.cancel.button_style == ""  # white on orange cannot be read
    click(buttons, "yes")
    assert not is_asking(buttons)
    click(buttons, "cancel")
    assert f"Cancel build {of.slug} #{build.number}?" in words(buttons.asked)
    assert is_asking(buttons)
    click(buttons, "no")
    assert not is_asking(buttons)
    assert focused == [".bf-no", ".bf-cancel"]
    assert of.build(build.number).state == "running"
    click(buttons, "cancel")
    buttons.yes.click()
    buttons.yes.click()
    settled(buttons._lane)
    assert f"#{build.number} is canceled" in words(buttons.said)
    assert of.build(build.number).state == "canceled"
    assert (buttons.cancel.disabled, buttons.rebuild.disabled) == (True, False)
    assert "this one is canceled" in buttons.cancel.tooltip
    assert focused[2:] == [".bf-no", ".bf-rebuild"]


def test_a_refusal_shows_the_reason_and_the_buttons_are_true_again(live: Workspace) -> None:
    build, told = in_state(live, "running"), []
    buttons = Actions(live, build, acted=told.append)
    live.sandbox.clock.advance(dt.timedelta(hours=6))
    click(buttons, "cancel", "yes")
    state = live.pipeline(build.pipeline.slug).build(build.number).state
    told_of = f"{build.pipeline.slug} #{build.number}: "
    assert words(buttons.said).startswith(f"{told_of}422: Build can't be canceled because it's already {state}")
    assert 'role="alert"' in buttons.said.value
    assert (buttons.cancel.disabled, buttons.rebuild.disabled) == (True, False)
    assert [(one.id, one.state) for one in told] == [(build.id, state)]


@pytest.mark.parametrize("state", ["passed", "failed", "canceled"])
def test_cancel_is_dead_where_nothing_can_be_canceled(live: Workspace, state: str) -> None:
    buttons = widgets.actions(in_state(live, state), live)
    assert (buttons.cancel.disabled, buttons.rebuild.disabled) == (True, False)
    assert state in buttons.cancel.tooltip
    click(buttons, "cancel")
    assert not is_asking(buttons)
    assert Actions(live).rebuild.disabled


def test_rebuild_by_a_click_twice_builds_once_and_once_more_when_asked(live: Workspace) -> None:
    build, told = in_state(live, "passed"), []
    of = live.pipeline(build.pipeline.slug)
    buttons = Actions(of, build, acted=told.append)
    buttons.rebuild.click()
    buttons.rebuild.click()
    settled(buttons._lane)
    (again,) = rebuilt(live, build)
    assert f"{of.slug} #{again} was created" in words(buttons.said)
    assert of.build(again).web_url in buttons.said.value
    assert [one.number for one in told] == [again]
    buttons.show(of.build(build.number))
    assert buttons.rebuild.description == "Rebuild once more…"
    click(buttons, "rebuild")
    assert f"was built again already, as #{again}. Once more?" in words(buttons.asked)
    click(buttons, "no")
    assert rebuilt(live, build) == [again]
    click(buttons, "rebuild", "yes", "yes")
    assert len(rebuilt(live, build)) == 2


def test_the_second_click_of_two_sends_nothing_however_late_a_busy_kernel_hears_it(live: Workspace) -> None:
    build = in_state(live, "passed")

    async def kernel() -> None:
        buttons = Actions(live, build)
        buttons.rebuild.click()
        for _ in range(600):
            if not buttons._lane.busy:
                break
            await asyncio.sleep(0.01)
        buttons.rebuild.click()  # it lay in the queue until the answer was there
        assert is_asking(buttons)
        settled(buttons._lane)

    asyncio.run(kernel())
    assert len(rebuilt(live, build)) == 1


def test_an_unknown_outcome_tells_how_to_look_and_the_button_stays_dead(live: Workspace) -> None:
    build, other = in_state(live, "passed"), in_state(live, "failed")
    buttons = Actions(live, build)
    live.sandbox.fault(Fault("reset", route="rebuild_build", times=1))
    click(buttons, "rebuild")
    assert words(buttons.said).startswith(f"{build.pipeline.slug} #{build.number}: ")
    assert f"whose rebuilt_from is {build.number}" in words(buttons.said)
    assert buttons.rebuild.disabled
    assert "look at the newest builds" in buttons.rebuild.tooltip
    buttons.show(build)
    assert buttons.rebuild.disabled
    buttons.show(other)
    assert not buttons.rebuild.disabled
    buttons.show(build)
    assert buttons.rebuild.disabled
    assert len(rebuilt(live, build)) == 1


def test_without_the_scope_it_says_which_one_and_one_may_try_again(live: Workspace) -> None:
    build = in_state(live, "running")
    token = live.sandbox.token([scope for scope in SCOPES if scope != "write_builds"])
    buttons = Actions(bf.connect("acme", base_url=live.sandbox.url, token=token), build)
    for _ in range(2):
        click(buttons, "cancel", "yes")
        assert "Use a token that has the scope write_builds" in words(buttons.said)
        assert not buttons.cancel.disabled
    click(buttons, "rebuild")
    assert "403" in words(buttons.said)
    assert buttons.rebuild.description == "Rebuild"


def test_a_server_that_is_gone_is_told_and_one_may_try_again(live: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_BACKOFF", tenacity.wait_none())
    build = in_state(live, "passed")
    buttons = Actions(live, build)
    live.sandbox.stop()
    click(buttons, "rebuild")
    about = f"{build.pipeline.slug} #{build.number}"
    assert words(buttons.said).startswith(f"{about}: No response from {live.sandbox.url}")
    assert (buttons.rebuild.disabled, buttons.rebuild.description) == (False, "Rebuild")


def answer(hostile: str, **more: object) -> bytes:
    build = {"id": "b", "number": 41, "state": hostile, "web_url": hostile}
    return json.dumps({**build, "pipeline": {"slug": "web", "name": hostile}, **more}).encode()


def test_what_comes_for_a_build_that_is_no_longer_shown_is_told_by_its_name(
    scripted: Callable[..., Scripted],
) -> None:
    gate = threading.Event()

    def late(handler: object) -> None:
        gate.wait(10)
        says(answer("scheduled", number=99, id="new"))(handler)

    ws = bf.connect("acme", base_url=scripted(late).url, token="t" * 20)
    first, second, third = (spec.Build(id=id, number=n, state="passed") for id, n in (("a", 1), ("b", 2), ("c", 3)))
    buttons = Actions(ws.pipeline("web"), first)
    buttons.rebuild.click()
    for build in (None, second, third, None, second):
        buttons.show(build)
        assert (buttons.rebuild.disabled, words(buttons.said)) == (True, "Asking the service to rebuild build #1 …")
    gate.set()
    settled(buttons._lane)
    assert "web #99 was created" in words(buttons.said)
    assert (buttons.rebuild.disabled, buttons.rebuild.description) == (False, "Rebuild")
    buttons.show(first)
    assert buttons.rebuild.description == "Rebuild once more…"
    assert "web #99 was created" in words(buttons.said)
    buttons.show(None)
    buttons.show(first)
    assert "web #99 was created" in words(buttons.said)
    buttons.show(third)
    assert words(buttons.said) == ""


def test_the_same_outcome_twice_is_told_twice(scripted: Callable[..., Scripted]) -> None:
    server = scripted(*[says(b'{"message": "No"}', 403)] * 2)
    ws = bf.connect("acme", base_url=server.url, token="t" * 20)
    first, second = (spec.Build(id=id, number=1, state="passed") for id in "ab")
    buttons = Actions(ws.pipeline("web"), first)
    click(buttons, "rebuild")
    buttons.show(second)
    click(buttons, "rebuild")
    buttons.show(first)
    assert words(buttons.said).startswith("#1: 403: No")


def test_a_wait_for_the_limit_is_told_until_the_outcome_comes(
    scripted: Callable[..., Scripted], each_wait_is_told: None
) -> None:
    server = scripted(says(b"{}", 429, Retry_After="1"), says(answer("scheduled", number=99)))
    ws = bf.connect("acme", base_url=server.url, token="t" * 20)
    buttons, heard = Actions(ws.pipeline("web"), spec.Build(id="a", number=1, state="passed")), []
    buttons.said.observe(lambda change: heard.append(words(buttons.said)), "value")
    click(buttons, "rebuild")
    waits = [told for told in heard if "Waiting" in told]
    assert all(told.startswith("Asking the service to rebuild build #1 …Waiting ") for told in waits)
    assert waits
    assert "the rate limit is used up. Then it goes on." in waits[0]
    assert words(buttons.said).startswith("Build web #99 was created")


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_texts_of_the_service_stay_texts(scripted: Callable[..., Scripted], hostile: str) -> None:
    refusal = json.dumps({"message": hostile}).encode()
    server = scripted(says(answer(hostile)), says(refusal, 422), says(answer(hostile)))
    ws = bf.connect("acme", base_url=server.url, token="t" * 20)
    build = spec.Build(id="b", number=41, state="running", pipeline=spec.Pipeline(id="p", slug="web", name=hostile))
    buttons = Actions(ws, build)
    click(buttons, "rebuild")
    shown = [buttons.said.value]
    click(buttons, "cancel")
    shown.append(buttons.asked.value)
    click(buttons, "yes")
    assert 'role="alert"' in buttons.said.value
    assert all(map(is_harmless, [*shown, buttons.said.value]))


def test_what_is_no_argument_is_refused_by_name(live: Workspace) -> None:
    with pytest.raises(bf.BadInput, match=r"actions\(\) has no option 'bulid'. Did you mean 'build'"):
        widgets.actions(bulid=None)
    with pytest.raises(bf.BadInput, match="ws='acme'"):
        widgets.actions(in_state(live, "passed"), "acme")
    with pytest.raises(bf.BadInput, match="build=41"):
        widgets.actions(41, live)


def test_without_a_workspace_it_is_that_of_the_environment(live: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    build = in_state(live, "running")
    monkeypatch.setenv("BUILDFRAME_TOKEN", live.sandbox.token(SCOPES))
    with pytest.raises(bf.BadInput, match=r"is of http://127.0.0.1.*pass its workspace"):
        widgets.actions(build)
    monkeypatch.setenv("BUILDFRAME_URL", live.sandbox.url)
    click(widgets.actions(build), "cancel", "yes")
    assert live.pipeline(build.pipeline.slug).build(build.number).state == "canceled"


def test_closed_buttons_leave_no_thread(live: Workspace) -> None:
    buttons = Actions(live, in_state(live, "passed"))
    buttons.rebuild.click()
    buttons.close()
    settled(buttons._lane)
    assert not [thread for thread in threading.enumerate() if thread.name == "buildframe-widget"]
