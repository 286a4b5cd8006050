"""The build browser with its buttons and its form, without a web browser, on a live sandbox."""

from __future__ import annotations

import datetime as dt
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler

import ipywidgets
import pandas as pd
import pytest

import buildframe as bf
from buildframe import spec, widgets
from buildframe.sandbox_server import SCOPES
from buildframe.widgets.build_browser import BuildBrowser
from buildframe.widgets.build_list import CREATED
from buildframe.workspace import PipelineWorkspace, Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.widgets.widget_helpers import (
    css_classes,
    displayed_rows,
    press_enter,
    running_threads,
    set_views,
    visible_text,
    wait_for,
    wait_until,
    workspace_of,
)

pytestmark = pytest.mark.usefixtures("without_timeline")

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        yield workspace


@pytest.fixture
def browser(live: Workspace) -> Iterator[BuildBrowser]:
    other = widgets.BuildBrowser(live, created_from="10d")
    wait_for(other)
    yield other
    other.close()


def select(browser: BuildBrowser, place: int) -> None:
    browser.table.selected = place
    wait_for(browser.details)


def numbers(browser: BuildBrowser) -> list[int]:
    """Return the numbers in the order of the page."""
    return [row[0] for row in sorted(displayed_rows(browser.table), key=lambda row: row[CREATED], reverse=True)]


def test_it_lists_all_builds(live: Workspace, browser: BuildBrowser) -> None:
    expected = live.builds(created_from="10d", progress=False)
    assert numbers(browser) == expected["number"].tolist()
    assert (browser.table.columns[CREATED]["title"], browser.table.sort_order) == ("Created (UTC)", [CREATED, True])
    as_of = f"{pd.Timestamp(expected.attrs['as_of']):%H:%M:%S} UTC"
    assert visible_text(browser.status) == f"{len(expected)} builds, complete, as of {as_of}."
    assert browser.stop_button.disabled
    assert set(browser.filters.pipeline.options) == set(live.pipelines()["slug"])


def test_filters_of_the_service(live: Workspace, browser: BuildBrowser) -> None:
    name, id = live.members()[["name", "id"]].iloc[0]
    browser.filters.pipeline.value, browser.filters.branch.value, browser.filters.creator.value = "web", "main", name
    browser.load_button.click()
    wait_for(browser)
    expected = live.pipeline("web").builds(created_from="10d", branch="main", creator=id, progress=False)
    assert numbers(browser) == expected["number"].tolist()
    browser.filters.state.value = "passed"
    browser.load_button.click()
    wait_for(browser)
    assert {row[1] for row in browser.table.rows} <= {"passed"}
    assert "filtered by state, which changes" in visible_text(browser.status)


def test_time_comes_before_texts_and_one_pipeline_needs_no_column(live: Workspace, browser: BuildBrowser) -> None:
    titles = [column["title"] for column in browser.table.columns]
    assert titles[3:7] == ["Branch", "Took", "Created (UTC)", "Message"]
    never_left_out = [column["title"] for column in browser.table.columns if column["rank"] == 0]
    assert never_left_out == ["Number", "State", "Took", "Created (UTC)"]
    (last_to_go,) = [column["title"] for column in browser.table.columns if column["rank"] == 1]
    assert last_to_go == "Branch"
    other = widgets.BuildBrowser(live.pipeline("web"), created_from="1d")
    optional, of_one = (
        {column["title"] for column in each.table.columns if column["optional"]} for each in (browser, other)
    )
    assert of_one - optional == {"Pipeline"}
    other.close()


def test_a_closed_build_leaves_the_width_to_the_table(browser: BuildBrowser, focused: list[str]) -> None:
    assert "bf-has-build" not in css_classes(browser.details)
    select(browser, 2)
    assert "bf-has-build" in css_classes(browser.details)
    browser.details.close_button.click()
    assert "bf-has-build" not in css_classes(browser.details)
    assert (browser.table.selected, browser.details.loaded) == (-1, None)
    assert focused == [".bf-browser-columns .bf-grid"], "the button that had the focus is hidden"
    assert "Select a build in the table" in visible_text(browser.details.status)
    select(browser, 2)
    assert browser.details.loaded is not None


def test_invalid_filters_are_reported(browser: BuildBrowser) -> None:
    rows, filters = browser.table.rows, browser.filters
    for field, value, message in (
        ("created_from", "yesterdayish", "created_from='yesterdayish' is not a valid time. Use '2026-10-01'"),
        ("created_to", "2020-01-01", "The time range is empty"),
        ("creator", "somebody", "Creator somebody is unknown. Choose a name from the list, or enter a user's UUID."),
        ("pipeline", "no/slug", "pipeline='no/slug' is not a slug"),
        ("pipeline", "nowhere", "404: No pipeline found"),
    ):
        before = getattr(filters, field).value
        getattr(filters, field).value = value
        browser.load_button.click()
        wait_for(browser)
        assert 'role="alert"' in browser.status.value
        assert message in visible_text(browser.status)
        assert "Showing previous results (created from 10d), as of " in visible_text(browser.status)
        assert browser.stop_button.disabled
        assert (browser.table.rows, browser.table.is_stale) == (rows, True)
        browser.stop()  # so that the next change is not one of the click
        filters.state.value = "failed"
        assert message in visible_text(browser.status)
        assert "Filters changed. Press Load to apply them." in visible_text(browser.status)
        filters.state.value, getattr(filters, field).value = "", before


def test_an_empty_result_names_the_filters(browser: BuildBrowser) -> None:
    browser.filters.branch.value = HOSTILE
    assert "Filters changed. Press Load to apply them." in visible_text(browser.status)
    browser.load_button.click()
    wait_for(browser)
    assert visible_text(browser.status).startswith("0 builds, complete, as of ")
    assert f"No build matches: branch {HOSTILE}, created from 10d." in visible_text(browser.status)
    assert "<img" not in browser.status.value
    assert (browser.table.rows, browser.table.is_stale) == ([], False)


def test_enter_in_a_filter_loads(live: Workspace, browser: BuildBrowser) -> None:
    browser.filters.branch.value = "main"
    press_enter(browser.filters.branch)
    wait_for(browser)
    assert len(browser.builds) == len(live.builds(created_from="10d", branch="main", progress=False))


def test_a_value_that_arrives_after_the_click_counts(browser: BuildBrowser) -> None:
    browser.load_button.click()
    browser.filters.branch.value = "main"
    wait_for(browser)
    assert set(browser.builds["branch"]) == {"main"}


def test_rows_of_the_request_before_are_not_added(browser: BuildBrowser, monkeypatch: pytest.MonkeyPatch) -> None:
    browser.load_button.click()
    read = browser.filters.read
    monkeypatch.setattr(browser.filters, "read", lambda: (wait_for(browser), read())[1])
    browser.filters.branch.value = "none-such"
    wait_for(browser)
    assert browser.builds.empty


@pytest.mark.long
def test_the_selected_build_stays_selected_when_newer_ones_arrive(live: Workspace, browser: BuildBrowser) -> None:
    select(browser, 3)
    chosen, found = browser.table.rows[3], browser.details.loaded
    live.sandbox.push("api")
    browser.load_button.click()
    wait_for(browser)
    assert browser.table.rows[browser.table.selected] == chosen
    assert browser.table.selected > 3
    assert browser.details.loaded is found


def test_tokens_with_fewer_scopes(live: Workspace) -> None:
    tokens = {
        live.sandbox.token(["read_builds"]): ("builds, complete", ""),
        live.sandbox.token(["read_pipelines"]): ("Use a token that has the scope read_builds.", ""),
        "nobodyknowsthisone": (
            "401: Authentication required",
            "No suggestions; type pipelines and creators in full: 401",
        ),
    }
    for token, (message, hint) in tokens.items():
        other = widgets.BuildBrowser(bf.connect("acme", base_url=live.sandbox.url, token=token))
        wait_for(other)
        assert message in visible_text(other.status)
        assert visible_text(other.filters.hint).startswith(hint)
        assert bool(visible_text(other.filters.hint)) == bool(hint)
        other.close()


@pytest.mark.long
def test_one_pipeline(live: Workspace) -> None:
    other = widgets.BuildBrowser(live.pipeline("web"), created_from="30d")
    wait_for(other)
    expected = live.pipeline("web").builds(created_from="30d", progress=False)
    assert other.builds["number"].tolist() == expected["number"].tolist()
    assert other.filters.creator.options
    select(other, 0)
    assert other.details.loaded is not None
    other.close()


def test_the_selected_build_with_jobs_and_log(live: Workspace, browser: BuildBrowser) -> None:
    place = next(place for place, row in enumerate(browser.table.rows) if row[1] == "failed")
    select(browser, place)
    number, slug = browser.table.rows[place][0], browser.table.rows[place][2]
    assert f"{slug} #{number}" in visible_text(browser.details.properties)
    assert displayed_rows(browser.details.jobs)[browser.details.jobs.selected][0] in {"failed", "timed_out"}
    assert browser.details.actions.cancel.disabled
    browser.details.log_button.click()
    wait_for(browser.details)
    assert "<pre" in browser.details.log_view.value
    assert "\x1b" not in browser.details.log_view.value


def test_a_new_build_appears_whatever_the_filters(live: Workspace, browser: BuildBrowser) -> None:
    values = {"commit": "HEAD", "branch": HOSTILE, "message": HOSTILE}
    for name, value in values.items():
        browser.form.fields[name].input.value = value
    browser.form.fields["ignore_pipeline_branch_filters"].input.value = True
    browser.form.pipeline.value = "web"
    browser.form.create.click()
    wait_for(browser)
    number = int(live.pipeline("web").builds(created_from="1h", branch=HOSTILE, progress=False)["number"].iloc[0])
    assert numbers(browser)[0] == number
    assert [browser.table.rows[-1][place] for place in (2, 3, 6)] == ["web", HOSTILE, HOSTILE]
    assert f"web #{number} updated; it may not match the filters." in visible_text(browser.status)
    select(browser, len(browser.builds) - 1)
    assert HOSTILE not in browser.details.properties.value
    assert HOSTILE in visible_text(browser.details.properties)


@pytest.mark.long
def test_a_late_row_update_does_not_join_a_newer_list(live: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    live.sandbox.push("web", 2)
    live.sandbox.clock.advance(dt.timedelta(minutes=1))
    browser = widgets.BuildBrowser(live.pipeline("web"), created_from="1h")
    wait_for(browser)
    select(browser, 0)
    load_row, newer_list_is_loaded = PipelineWorkspace.history_of, threading.Event()
    monkeypatch.setattr(
        PipelineWorkspace, "history_of", lambda *build: (newer_list_is_loaded.wait(30), load_row(*build))[1]
    )
    browser.details.actions.cancel.click()
    browser.details.actions.yes.click()
    wait_for(browser.details.actions)
    browser.filters.state.value = "running"
    browser.load_button.click()
    wait_until(lambda: visible_text(browser.status).startswith("1 build, complete"))
    newer_list_is_loaded.set()
    wait_for(browser)
    assert {row[1] for row in browser.table.rows} == {"running"}
    assert visible_text(browser.status).startswith("1 build, complete")
    browser.close()


def test_canceling_updates_the_row_also_after_a_new_build_was_deleted(
    live: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted: list[int] = []
    live.sandbox.push("web")
    live.sandbox.clock.advance(dt.timedelta(minutes=1))
    browser = widgets.BuildBrowser(live.pipeline("web"), created_from="1h")
    wait_for(browser)
    create = PipelineWorkspace.create_build

    def create_and_delete(pipeline: PipelineWorkspace, **values: object) -> spec.Build:
        build = create(pipeline, **values)
        pipeline.cancel(build.number)
        live.sandbox.forget("web", [build.number])
        deleted.append(build.number)
        return build

    monkeypatch.setattr(PipelineWorkspace, "create_build", create_and_delete)
    browser.form.fields["branch"].input.value = "main"
    browser.form.create.click()
    wait_for(browser)
    message = visible_text(browser.status)
    assert message.startswith(f"{len(browser.builds)} builds, complete")
    assert f"The row of web #{deleted[0]} could not be updated. 404" in message
    select(browser, 0)
    browser.details.actions.cancel.click()
    browser.details.actions.yes.click()
    wait_for(browser)
    assert (browser.table.rows[0][1], browser.table.selected) == ("canceled", 0)
    assert "404" not in visible_text(browser.status)
    browser.close()


def test_an_unreachable_server_is_reported(live: Workspace, browser: BuildBrowser) -> None:
    live.sandbox.stop()
    browser.load_button.click()
    wait_for(browser)
    assert visible_text(browser.status).startswith(f"No response from {live.sandbox.url}")
    assert browser.stop_button.disabled


@pytest.fixture
def hanging(scripted: Callable[..., Scripted]) -> Iterator[Scripted]:
    """A server that blocks requests for the branch `slow`, and returns an empty list for others."""
    gate, hung = threading.Event(), list[str]()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        if "slow" in handler.path:
            hung.append(handler.path)
            gate.wait(60)
        says(b"[]")(handler)

    yield scripted(answer)
    gate.set()
    assert hung


def test_a_hanging_request_blocks_nothing(hanging: Scripted) -> None:
    ws = workspace_of(hanging)
    other = widgets.BuildBrowser(ws, created_from="2026-10-01")
    wait_for(other)
    other.filters.branch.value = "slow"
    other.load_button.click()
    assert visible_text(other.status).startswith("Loading …")
    assert not other.stop_button.disabled
    wait_until(lambda: any("slow" in path for path in hanging.requests))
    other.stop_button.click()
    assert visible_text(other.status).startswith("Stopped: 0 builds loaded, others are missing")
    wait_for(other)
    for _ in range(3):
        other.load_button.click()
    other.filters.branch.value = "quick"
    other.load_button.click()
    wait_until(lambda: "complete" in visible_text(other.status))
    assert "No build matches: branch quick" in visible_text(other.status)
    other.close()


def test_stop_ends_a_wait_and_sends_nothing_more(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b"", 503, Retry_After="50"))
    other = widgets.BuildBrowser(workspace_of(server), created_from="2026-10-01")
    wait_until(lambda: "Waiting 50 s: the service returned 503." in visible_text(other.status))
    other.stop_button.click()
    other.filters.close()
    wait_for(other)
    assert len(server.requests) == 2
    assert visible_text(other.status).startswith("Stopped: 0 builds loaded, others are missing")
    other.close()


def test_loading_stops_without_a_view_and_leaves_no_thread(live: Workspace) -> None:
    other = widgets.BuildBrowser(live, created_from="30d")
    set_views(other, 1)
    set_views(other, 0)
    wait_for(other)
    assert "complete" not in visible_text(other.status)
    other.close()
    assert running_threads() == []


def test_the_state_contains_no_token(live: Workspace) -> None:
    token = live.sandbox.token(SCOPES)
    ws = bf.connect("acme", base_url=live.sandbox.url, token=token)
    other = widgets.BuildBrowser(ws, created_from="10d")
    wait_for(other)
    select(other, 0)
    assert token not in json.dumps(ipywidgets.Widget.get_manager_state(), default=str)
    other.close()


def test_invalid_arguments_are_named(live: Workspace) -> None:
    with pytest.raises(bf.BadInput, match=r"'created_form'.*'created_from'"):
        widgets.BuildBrowser(live, created_form="7d")
    with pytest.raises(bf.BadInput, match="ws='acme'"):
        widgets.BuildBrowser("acme")
    with pytest.raises(bf.BadInput, match="created_from=7"):
        widgets.BuildBrowser(live, created_from=7)
    everywhere = bf.connect(base_url=live.sandbox.url, token=live.sandbox.token())
    with pytest.raises(bf.BadInput, match="of all organizations"):
        widgets.BuildBrowser(everywhere)
