"""The faces of the build browser, its buttons and its form, without a browser, against a live sandbox."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Iterator

import ipywidgets
import pytest

import buildframe as bf
from buildframe import spec, widgets
from buildframe.service import SCOPES
from buildframe.widgets.browser import BuildBrowser
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.widgets.faces_read import settled, words

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def live() -> Iterator[Workspace]:
    with bf.sandbox(builds=300) as workspace:
        yield workspace


@pytest.fixture
def browser(live: Workspace) -> Iterator[BuildBrowser]:
    made = widgets.BuildBrowser(live, created_from="10d")
    settled(made._lane, made._names)
    yield made
    made.close()


def choose(browser: BuildBrowser, place: int) -> None:
    browser.table.chosen = place
    settled(browser.detail._lane)


def test_all_builds_are_there(live: Workspace, browser: BuildBrowser) -> None:
    expected = live.builds(created_from="10d", progress=False)
    assert [row[0] for row in browser.table.rows] == expected["number"].tolist()
    assert words(browser.said) == f"{len(expected)} builds, complete."
    assert browser.stop_button.disabled
    assert set(browser.pipeline.options) == set(live.pipelines()["slug"])


def test_filters_of_the_service(live: Workspace, browser: BuildBrowser) -> None:
    name, id = next(iter(browser._creators.items()))
    browser.pipeline.value, browser.branch.value, browser.creator.value = "web", "main", name
    browser.load_button.click()
    settled(browser._lane)
    expected = live.pipeline("web").builds(created_from="10d", branch="main", creator=id, progress=False)
    assert [row[0] for row in browser.table.rows] == expected["number"].tolist()
    browser.state.value = "passed"
    browser.load_button.click()
    settled(browser._lane)
    assert {row[1] for row in browser.table.rows} <= {"passed"}
    assert "filtered by state, which changes" in words(browser.said)


def test_message_and_commit_are_looked_for_among_the_loaded(browser: BuildBrowser) -> None:
    build = browser.builds.iloc[5]
    browser.message.value = build["message"].upper()
    assert {row[4] for row in browser.table.visible_rows()} == {build["message"].splitlines()[0]}
    browser.commit.value = build["commit"][:12]
    assert build["number"] in [row[0] for row in browser.table.visible_rows()]
    browser.commit.value = "no such"
    assert browser.table.visible_rows() == []


@pytest.mark.parametrize(("field", "value", "told"), [
    ("created_from", "yesterdayish", "created_from"),
    ("creator", "somebody", "creator"),
    ("pipeline", "no/slug", "slug"),
    ("pipeline", "nowhere", "404"),
])  # fmt: skip
def test_what_cannot_be_asked_is_told(browser: BuildBrowser, field: str, value: str, told: str) -> None:
    getattr(browser, field).value = value
    browser.load_button.click()
    settled(browser._lane)
    assert 'role="alert"' in browser.said.value
    assert told in words(browser.said)
    assert browser.stop_button.disabled


def test_a_chosen_build_with_its_jobs_and_log(live: Workspace, browser: BuildBrowser) -> None:
    place = next(place for place, row in enumerate(browser.table.rows) if row[1] == "failed")
    choose(browser, place)
    number, slug = browser.table.rows[place][0], browser.table.rows[place][2]
    assert f"{slug} #{number}" in words(browser.detail.facts)
    assert browser.detail.jobs.label.startswith(("failed", "timed_out"))
    assert 'alt="Timeline' in browser.detail.timeline.value
    assert browser.detail.actions.cancel.disabled
    browser.detail.log_button.click()
    settled(browser.detail._logs)
    assert "<pre" in browser.detail.log_text.value
    assert "\x1b" not in browser.detail.log_text.value


def in_state(live: Workspace, state: str) -> spec.Build:
    if state == "running":
        live.sandbox.push("web")
        live.sandbox.clock.advance(dt.timedelta(minutes=1))
    row = live.builds(created_from="30d", state=state, progress=False).iloc[0]
    return live.pipeline(row["pipeline"]).build(int(row["number"]))


def test_cancel_asks_first_and_sends_once(live: Workspace) -> None:
    build = in_state(live, "running")
    of = live.pipeline(build.pipeline.slug)
    buttons = widgets.actions(live, build)
    buttons.yes.click()
    assert not buttons._lane.busy
    buttons.cancel.click()
    assert f"Cancel build {of.slug} #{build.number}?" in words(buttons.asked)
    buttons.no.click()
    assert buttons.question.layout.display == "none"
    buttons.cancel.click()
    buttons.yes.click()
    buttons.yes.click()
    settled(buttons._lane)
    assert f"#{build.number} is canceled" in words(buttons.said)
    assert of.build(build.number).state == "canceled"
    assert buttons.cancel.disabled


def test_a_refusal_shows_the_reason(live: Workspace) -> None:
    build = in_state(live, "running")
    buttons = widgets.actions(live, build)
    live.sandbox.clock.advance(dt.timedelta(hours=6))
    buttons.cancel.click()
    buttons.yes.click()
    settled(buttons._lane)
    assert "422: Build can't be canceled because it's already" in words(buttons.said)
    assert 'role="alert"' in buttons.said.value


@pytest.mark.parametrize("state", ["passed", "failed", "canceled"])
def test_cancel_is_dead_where_nothing_can_be_canceled(live: Workspace, state: str) -> None:
    buttons = widgets.actions(live, in_state(live, state))
    assert (buttons.cancel.disabled, buttons.rebuild.disabled) == (True, False)
    assert widgets.actions(live).rebuild.disabled


def test_rebuild_clicked_twice_builds_once(live: Workspace) -> None:
    build = in_state(live, "passed")
    of = live.pipeline(build.pipeline.slug)
    buttons = widgets.actions(of, build)
    buttons.rebuild.click()
    buttons.rebuild.click()
    settled(buttons._lane)
    buttons.show(of.build(build.number))
    buttons.rebuild.click()
    settled(buttons._lane)
    made = of.builds(created_from="1h", progress=False)
    again = made[made["rebuilt_from"] == build.number]["number"].tolist()
    assert len(again) == 1
    assert f"#{again[0]} was created" in words(buttons.said)
    assert of.build(again[0]).web_url in buttons.said.value


def test_the_form_has_every_property(browser: BuildBrowser) -> None:
    assert tuple(browser.form.fields) == spec.create_build.property_names
    named = {each.name for each in browser.form._every()}
    assert {"author.name", "author.email"} <= named


def test_the_form_sends_nothing_that_is_wrong(live: Workspace, browser: BuildBrowser) -> None:
    before = len(live.builds(created_from="1h", progress=False))
    fields = browser.form.fields
    fields["env"].input.value, fields["pull_request_id"].input.value = "no sign", "seven"
    browser.form.create.click()
    assert "Nothing was sent: 4 of the fields" in words(browser.form.said)
    assert "commit is missing" in words(fields["commit"].hint)
    assert "env must be an object of text" in words(fields["env"].hint)
    assert len(live.builds(created_from="1h", progress=False)) == before


def test_the_form_creates(live: Workspace, browser: BuildBrowser) -> None:
    values = {
        "commit": "HEAD",
        "branch": HOSTILE,
        "message": HOSTILE,
        "meta_data": "a=1\nb=x=y",
        "pull_request_id": "7",
    }
    for name, value in values.items():
        browser.form.fields[name].input.value = value
    browser.form.fields["ignore_pipeline_branch_filters"].input.value = True
    browser.form.fields["author"].inner[0].input.value = "Zoe"
    browser.form.pipeline.value = "web"
    browser.form.create.click()
    browser.form.create.click()
    settled(browser.form._lane, browser._lane)
    made = live.pipeline("web").builds(created_from="1h", branch=HOSTILE, progress=False)
    assert len(made) == 1
    build = live.pipeline("web").build(int(made["number"].iloc[0]))
    assert (build.message, build.meta_data) == (HOSTILE, {"a": "1", "b": "x=y"})
    assert f"#{build.number} was created" in words(browser.form.said)
    assert browser.table.rows[0][0] == build.number
    choose(browser, 0)
    assert HOSTILE not in browser.detail.facts.value
    assert HOSTILE in words(browser.detail.facts)


def test_a_server_that_is_gone_is_told(live: Workspace, browser: BuildBrowser) -> None:
    live.sandbox.stop()
    browser.load_button.click()
    settled(browser._lane)
    assert words(browser.said).startswith(f"No answer from {live.sandbox.url}")
    assert browser.stop_button.disabled


def test_stopping_keeps_what_is_there(scripted: object) -> None:
    gate = threading.Event()

    def late(handler: object) -> None:
        gate.wait(10)
        says(b"[]")(handler)

    server: Scripted = scripted(late)
    made = widgets.BuildBrowser(bf.connect("acme", base_url=server.url, token="t" * 20))
    assert not made.stop_button.disabled
    made.stop_button.click()
    assert words(made.said).startswith("Stopped: 0 builds, others are missing")
    gate.set()
    settled(made._lane, made._names)
    assert words(made.said).startswith("Stopped")
    made.close()


def test_when_nobody_looks_loading_stops_and_no_thread_is_left(live: Workspace) -> None:
    made = widgets.BuildBrowser(live, created_from="30d")
    made._view_count = 1
    made._view_count = 0
    settled(made._lane, made._names)
    assert "complete" not in words(made.said)
    made.close()
    assert not [thread for thread in threading.enumerate() if thread.name == "buildframe-widget"]


def test_no_state_holds_the_token(live: Workspace) -> None:
    token = live.sandbox.token(SCOPES)
    ws = bf.connect("acme", base_url=live.sandbox.url, token=token)
    made = widgets.BuildBrowser(ws, created_from="10d")
    settled(made._lane, made._names)
    choose(made, 0)
    assert token not in json.dumps(ipywidgets.Widget.get_manager_state(), default=str)
    made.close()


def test_what_is_no_argument_is_refused_by_name(live: Workspace) -> None:
    with pytest.raises(TypeError, match="created_form"):
        widgets.BuildBrowser(live, created_form="7d")
    with pytest.raises(bf.BadInput, match="workspace"):
        widgets.BuildBrowser("acme")
