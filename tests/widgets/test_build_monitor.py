"""The build monitor without a web browser, on a live sandbox."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import ipywidgets
import pytest

import buildframe as bf
from buildframe import metrics, widgets
from buildframe.http.client import Client
from buildframe.widgets import build_tracker, monitor_formatting
from buildframe.widgets.build_monitor import BuildMonitor
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.widgets.widget_helpers import is_shown, visible_text, wait_for, workspace_of

HOSTILE = "<img src=x onerror=alert(1)>"
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        workspace.sandbox.push("web")
        workspace.sandbox.clock.advance(4 * MINUTE)
        yield workspace


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the requests that are sent."""
    really, sent = Client._exchange, []

    def watched(client: Client, request: Any) -> Any:
        sent.append(request.target)
        return really(client, request)

    monkeypatch.setattr(Client, "_exchange", watched)
    return sent


@pytest.fixture
def monitor(live: Workspace) -> Iterator[BuildMonitor]:
    made = widgets.BuildMonitor(live)
    wait_for(made)
    yield made
    made.close()


def refreshed(monitor: BuildMonitor) -> BuildMonitor:
    monitor.refresh_button.click()
    wait_for(monitor)
    return monitor


def number_of(monitor: BuildMonitor) -> int:
    assert len(monitor.table.rows) == 1
    return int(monitor.table.rows[0][0])


def test_running_builds_show_their_progress(live: Workspace, monitor: BuildMonitor) -> None:
    builds = live.pipeline("web").builds(created_from="14d", progress=False)
    build = builds[builds["state"] == "running"].iloc[0]
    left = metrics.remaining_time(builds).iloc[0]
    (row,) = monitor.table.rows
    assert [*row[:3], *row[5:]] == [
        *build[["number", "state", "pipeline"]],
        round((build["fetched_at"] - build["started_at"]).total_seconds()),
        round((build["started_at"] - build["created_at"]).total_seconds()),
        build["branch"],
        build["message"].splitlines()[0],
    ]
    share = 100 * left["elapsed_s"] / (left["elapsed_s"] + left["p50_s"])
    assert row[3].startswith(f"{share:.0f} %, ")
    assert row[3].endswith(" left")
    assert row[4] == left["n"]
    assert visible_text(monitor.schedule).startswith(f"As of {build['fetched_at']:%H:%M:%S} UTC")
    monitor.table.selected = 0
    assert f"In the last 14 days, {left['n']} builds of this pipeline ran longer than" in visible_text(
        monitor.properties
    )
    assert build["web_url"] in monitor.properties.value


def test_waiting_builds_are_counted_by_pipeline(live: Workspace, monitor: BuildMonitor) -> None:
    assert "1 build running, 0 waiting." in visible_text(monitor.queue)
    live.sandbox.push("web", 2)
    live.sandbox.push("docs")
    refreshed(monitor)
    assert "1 build running, 3 waiting: web 2, docs 1." in visible_text(monitor.queue)
    assert "Waiting at the last 2 refreshes: first 0, maximum 3, now 3 ▁█" in visible_text(monitor.queue)
    assert {row[3] for row in monitor.table.rows if row[1] == "scheduled"} == {"waiting to start"}


def test_a_build_is_followed_to_its_end_with_few_requests(
    live: Workspace, monitor: BuildMonitor, requests: list[str]
) -> None:
    number = number_of(monitor)
    monitor.table.selected = 0
    refreshed(monitor)
    assert len(requests) == 1
    assert {"exclude_jobs=true", "state%5B%5D=running", "state%5B%5D=scheduled"} <= set(
        requests[0].split("?")[1].split("&")
    )
    live.sandbox.clock.advance(60 * MINUTE)
    refreshed(monitor)
    assert len(requests) == 3
    build = live.pipeline("web").build(number)
    assert monitor.table.rows == []
    assert visible_text(monitor.finished).endswith(monitor_formatting.finish_text(build))
    assert f'<div role="status"><div><a href="{build.web_url}"' in monitor.finished.value
    assert build.web_url in monitor.finished.value
    assert monitor_formatting.finish_text(build) in visible_text(monitor.properties)
    assert (monitor.actions.cancel.disabled, monitor.actions.rebuild.disabled) == (True, False)


def test_cancel_and_the_confirmation_outlives_a_refresh(live: Workspace, monitor: BuildMonitor) -> None:
    number = number_of(monitor)
    assert not is_shown(monitor.actions)
    monitor.table.selected = 0
    monitor.actions.cancel.click()
    refreshed(monitor)
    assert is_shown(monitor.actions.confirmation)
    monitor.actions.yes.click()
    wait_for(monitor)
    assert live.pipeline("web").build(number).state == "canceled"
    assert f"web #{number} was canceled after" in visible_text(monitor.finished)
    assert f"#{number} is canceled" in visible_text(monitor.actions.status)


def test_the_selected_build_stays_selected_when_newer_ones_arrive(live: Workspace, monitor: BuildMonitor) -> None:
    number = number_of(monitor)
    monitor.table.selected = 0
    live.sandbox.push("docs", 2)
    refreshed(monitor)
    assert monitor.table.selected == 2
    assert monitor.table.rows[2][0] == number
    assert f"web #{number}" in visible_text(monitor.properties)


def test_an_unreachable_server_that_comes_back(tmp_path: Path) -> None:
    with worlds.sandbox(builds=300, path=tmp_path / "sandbox.db") as ci:
        ci.sandbox.push("web")
        monitor = widgets.BuildMonitor(ci)
        wait_for(monitor)
        port, message = urlsplit(ci.sandbox.url).port, visible_text(monitor.schedule)
        ci.sandbox.stop()
        refreshed(monitor)
        assert visible_text(monitor.status).startswith("No response from")
        assert 'role="alert"' in monitor.status.value
        assert (visible_text(monitor.schedule), monitor.table.is_stale) == (message, True)
        number_of(monitor)
        with bf.sandbox(path=tmp_path / "sandbox.db", port=port):
            refreshed(monitor)
        assert (visible_text(monitor.status), monitor.table.is_stale) == ("", False)
        monitor.close()


def test_builds_beyond_the_loaded_list_do_not_count_as_finished(
    live: Workspace, monitor: BuildMonitor, requests: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_tracker, "_MAX_REQUESTS", 1)
    live.sandbox.push("docs", 110)
    refreshed(monitor)
    assert len(requests) == 1  # web's build was not looked up
    assert "Only the newest 100 are shown" in visible_text(monitor.queue)
    assert "No build has finished" in visible_text(monitor.finished)


def test_a_limited_history_says_so(live: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_tracker, "_MAX_HISTORY_REQUESTS", 2)  # the first one reads the service's time
    live.sandbox.push("docs", 110)
    live.sandbox.clock.advance(240 * MINUTE)
    live.sandbox.push("docs")
    live.sandbox.clock.advance(MINUTE)
    monitor = widgets.BuildMonitor(live)
    wait_for(monitor)
    monitor.table.selected = 0
    assert "In the last 4 h 1 min (only the newest 100 builds were loaded), " in visible_text(monitor.properties)
    monitor.close()


def test_a_build_that_was_deleted(live: Workspace, monitor: BuildMonitor) -> None:
    number = number_of(monitor)
    monitor.table.selected = 0
    assert "open build" in visible_text(monitor.properties)
    live.sandbox.forget("web", [number])
    assert visible_text(refreshed(monitor).finished).endswith(f"web #{number} was deleted")
    assert visible_text(monitor.properties) == f"web #{number}Finishedweb #{number} was deleted"
    assert "href" not in monitor.finished.value
    assert not is_shown(monitor.actions)
    assert '<div role="status"></div>' in refreshed(monitor).finished.value


def test_one_pipeline(live: Workspace) -> None:
    live.sandbox.push("docs")
    monitor = widgets.BuildMonitor(live.pipeline("docs"))
    wait_for(monitor)
    assert [row[2] for row in monitor.table.rows] == ["docs"]
    live.sandbox.clock.advance(30 * MINUTE)
    assert "docs #" in visible_text(refreshed(monitor).finished)
    monitor.close()


ROW = {"state": "running", "history": "the last 14 days", "n": 7, "n_sooner": 3, "elapsed_s": 60.0, "p50_s": 180.0}


def test_progress_texts() -> None:
    cases = [
        ({}, "25 %, 3 min left"),
        ({"p50_s": 1199.0}, "5 %, 20 min left"),
        ({"n": 0, "p50_s": None, "n_sooner": 1200}, "100 %, longest so far"),
        ({"n": 1, "p50_s": None}, "too few earlier builds"),
        ({"n": 0, "p50_s": None, "n_sooner": 0}, "too few earlier builds"),
        ({"history": None}, "history not loaded yet"),
        ({"n": None}, "unknown"),
        ({"elapsed_s": 8e6, "p50_s": 86_340.0}, "99 %, 23 h 59 min left"),
        ({"state": "canceling"}, "being canceled"),
        ({"state": "scheduled", "history": None}, "waiting to start"),
    ]
    rows = [{**ROW, "p90_s": None, **changes} for changes, _ in cases]
    assert [monitor_formatting.progress_text(row) for row in rows] == [text for _, text in cases]
    assert all(monitor_formatting.progress_sentence(row).endswith(".") for row in rows)
    assert 7.7 * max(len(text) for _, text in cases) + 12 <= 190, "pixels of its column at least: no number is cut"


def test_finish_texts() -> None:
    begun = bf.spec.Moment(2026, 10, 30, tzinfo=dt.UTC)
    stamps = {"started_at": begun, "finished_at": bf.spec.Moment.of(begun + dt.timedelta(seconds=65))}
    cases = [
        ({"state": "passed"}, "web #3 passed after 1 min 5 s"),
        ({"state": "failed"}, "web #3 failed after 1 min 5 s"),
        ({"state": "passed", "blocked": True}, "web #3 is blocked; passed so far"),
        ({"state": "canceled", "started_at": None}, "web #3 was canceled"),
        ({"state": "skipped", "started_at": None, "finished_at": None}, "web #3 was skipped"),
        ({"state": "new to us", "finished_at": None}, "web #3 is new to us"),
    ]
    pipeline = bf.spec.Pipeline(slug="web")
    builds = [bf.spec.Build(id="x", number=3, pipeline=pipeline, **{**stamps, **changes}) for changes, _ in cases]
    assert list(map(monitor_formatting.finish_text, builds)) == [text for _, text in cases]


def hostile(state: str) -> dict[str, Any]:
    return {
        "id": "x", "number": 1, "state": state, "branch": HOSTILE, "message": HOSTILE, "web_url": "javascript:alert(1)",
        "created_at": "2026-11-01T11:00:00Z", "started_at": "2026-11-01T11:00:00Z", "pipeline": {"slug": HOSTILE},
    }  # fmt: skip


def test_text_of_the_service_is_escaped(scripted: Callable[..., Scripted]) -> None:
    running = says(json.dumps([hostile("running")]).encode())
    server = scripted(running, says(b"[]"), says(b"[]"), says(b"[]"), says(json.dumps(hostile("<b>")).encode()))
    monitor = widgets.BuildMonitor(workspace_of(server).pipeline("web"))
    wait_for(monitor)
    monitor.table.selected = 0
    assert HOSTILE in visible_text(monitor.properties)
    refreshed(monitor)
    for face in (monitor.properties, monitor.finished, monitor.queue):
        assert "<img" not in face.value
        assert "<b>&" not in face.value
        assert "javascript" not in face.value
    assert "is <b>" in visible_text(monitor.finished)
    assert "a-test-token" not in json.dumps(ipywidgets.Widget.get_manager_state(), default=str)
    monitor.close()
