"""The faces of the build monitor, without a browser, against a live sandbox."""

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
from buildframe.widgets import build_tracker, monitor_rows
from buildframe.widgets.monitor import BuildMonitor
from buildframe.workspace import Workspace
from tests import worlds
from tests.conftest import Scripted, says
from tests.widgets.faces_read import settled, words

HOSTILE = "<img src=x onerror=alert(1)>"
MINUTE = dt.timedelta(minutes=1)


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        workspace.sandbox.push("web")
        workspace.sandbox.clock.advance(4 * MINUTE)
        yield workspace


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is sent from now on."""
    really, sent = Client._exchange, []

    def watched(client: Client, request: Any) -> Any:
        sent.append(request.target)
        return really(client, request)

    monkeypatch.setattr(Client, "_exchange", watched)
    return sent


@pytest.fixture
def monitor(live: Workspace) -> Iterator[BuildMonitor]:
    made = widgets.BuildMonitor(live)
    settled(made._lane)
    yield made
    made.close()


def refreshed(monitor: BuildMonitor) -> BuildMonitor:
    monitor.again.click()
    settled(monitor._lane)
    return monitor


def number_of(monitor: BuildMonitor) -> int:
    assert len(monitor.table.rows) == 1
    return int(monitor.table.rows[0][0])


def test_what_runs_with_the_share_of_its_expected_time(live: Workspace, monitor: BuildMonitor) -> None:
    builds = live.pipeline("web").builds(created_from="14d", progress=False)
    build = builds[builds["state"] == "running"].iloc[0]
    left = metrics.remaining_time(builds).iloc[0]
    (row,) = monitor.table.rows
    assert [*row[:3], *row[4:]] == [
        *build[["number", "state", "pipeline"]],
        round((build["fetched_at"] - build["started_at"]).total_seconds()),
        round((build["started_at"] - build["created_at"]).total_seconds()),
        build["branch"],
        build["message"].splitlines()[0],
    ]
    share = 100 * left["elapsed_s"] / (left["elapsed_s"] + left["p50_s"])
    assert row[3].startswith(f"{share:.0f} %, ")
    assert row[3].endswith(f" left (n = {left['n']})")
    assert words(monitor.told).startswith(f"As of {build['fetched_at']:%H:%M:%S} UTC")
    monitor.table.chosen = 0
    assert f"In the last 14 days, {left['n']} builds of this pipeline ran longer than" in words(monitor.facts)
    assert build["web_url"] in monitor.facts.value


def test_builds_that_wait_are_counted_by_pipeline(live: Workspace, monitor: BuildMonitor) -> None:
    assert "1 build runs; 0 builds wait to be started." in words(monitor.queue)
    live.sandbox.push("web", 2)
    live.sandbox.push("docs")
    refreshed(monitor)
    assert "1 build runs; 3 builds wait to be started: web 2, docs 1." in words(monitor.queue)
    assert "at the last 2 looks: 0 at first, 3 at most, 3 now ▁█" in words(monitor.queue)
    assert {row[3] for row in monitor.table.rows if row[1] == "scheduled"} == {"waits to be started"}


def test_a_build_is_followed_to_its_end_with_few_requests(
    live: Workspace, monitor: BuildMonitor, asked: list[str]
) -> None:
    number = number_of(monitor)
    monitor.table.chosen = 0
    refreshed(monitor)
    assert len(asked) == 1
    assert {"exclude_jobs=true", "state%5B%5D=running", "state%5B%5D=scheduled"} <= set(
        asked[0].split("?")[1].split("&")
    )
    live.sandbox.clock.advance(60 * MINUTE)
    refreshed(monitor)
    assert len(asked) == 3
    build = live.pipeline("web").build(number)
    assert monitor.table.rows == []
    assert words(monitor.ended).endswith(build_tracker.told(build))
    assert f'<div role="status"><div><a href="{build.web_url}"' in monitor.ended.value
    assert build.web_url in monitor.ended.value
    assert build_tracker.told(build) in words(monitor.facts)
    assert (monitor.actions.cancel.disabled, monitor.actions.rebuild.disabled) == (True, False)


def test_cancel_from_here_and_the_question_outlives_a_refresh(live: Workspace, monitor: BuildMonitor) -> None:
    number = number_of(monitor)
    assert monitor.actions.layout.display == "none"
    monitor.table.chosen = 0
    monitor.actions.cancel.click()
    refreshed(monitor)
    assert monitor.actions.question.layout.display is None
    monitor.actions.yes.click()
    settled(monitor.actions._lane, monitor._lane)
    assert live.pipeline("web").build(number).state == "canceled"
    assert f"web #{number} was canceled after" in words(monitor.ended)
    assert f"#{number} is canceled" in words(monitor.actions.said)


def test_the_chosen_one_stays_chosen_when_others_come(live: Workspace, monitor: BuildMonitor) -> None:
    number = number_of(monitor)
    monitor.table.chosen = 0
    live.sandbox.push("docs", 2)
    refreshed(monitor)
    assert monitor.table.chosen == 2
    assert monitor.table.rows[2][0] == number
    assert f"web #{number}" in words(monitor.facts)


def test_a_server_that_is_gone_and_comes_back(tmp_path: Path) -> None:
    with worlds.sandbox(builds=300, path=tmp_path / "sandbox.db") as ci:
        ci.sandbox.push("web")
        monitor = widgets.BuildMonitor(ci)
        settled(monitor._lane)
        port, told = urlsplit(ci.sandbox.url).port, words(monitor.told)
        ci.sandbox.stop()
        refreshed(monitor)
        assert words(monitor.said).startswith("No response from")
        assert 'role="alert"' in monitor.said.value
        assert (words(monitor.told), monitor.table.former) == (told, True)
        number_of(monitor)
        with bf.sandbox(path=tmp_path / "sandbox.db", port=port):
            refreshed(monitor)
        assert (words(monitor.said), monitor.table.former) == ("", False)
        monitor.close()


def test_what_is_not_read_is_not_taken_for_ended(
    live: Workspace, monitor: BuildMonitor, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build_tracker, "_MOST_PAGES", 1)
    live.sandbox.push("docs", 110)
    refreshed(monitor)
    assert len(asked) == 1  # web's build was not looked for
    assert "Only the newest 100 are shown" in words(monitor.queue)
    assert "None of the builds" in words(monitor.ended)


def test_a_history_that_was_cut_says_so(live: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_tracker, "_PAGES_OF_PAST", 2)  # one of them asks for the time
    live.sandbox.push("docs", 110)
    live.sandbox.clock.advance(240 * MINUTE)
    live.sandbox.push("docs")
    live.sandbox.clock.advance(MINUTE)
    monitor = widgets.BuildMonitor(live)
    settled(monitor._lane)
    monitor.table.chosen = 0
    assert "In the last 4 h 1 min, as only its newest 100 builds were read, " in words(monitor.facts)
    monitor.close()


def test_a_build_that_was_deleted(live: Workspace, monitor: BuildMonitor) -> None:
    number = number_of(monitor)
    monitor.table.chosen = 0
    assert "open build" in words(monitor.facts)
    live.sandbox.forget("web", [number])
    assert words(refreshed(monitor).ended).endswith(f"web #{number} was deleted")
    assert words(monitor.facts) == f"web #{number}Endedweb #{number} was deleted"
    assert "href" not in monitor.ended.value
    assert monitor.actions.layout.display == "none"
    assert '<div role="status"></div>' in refreshed(monitor).ended.value


def test_of_one_pipeline(live: Workspace) -> None:
    live.sandbox.push("docs")
    monitor = widgets.BuildMonitor(live.pipeline("docs"))
    settled(monitor._lane)
    assert [row[2] for row in monitor.table.rows] == ["docs"]
    live.sandbox.clock.advance(30 * MINUTE)
    assert "docs #" in words(refreshed(monitor).ended)
    monitor.close()


ROW = {"state": "running", "since": "the last 14 days", "n": 7, "n_sooner": 3, "elapsed_s": 60.0, "p50_s": 180.0}


@pytest.mark.parametrize(("known", "told"), [
    ({}, "25 %, 3 min left (n = 7)"),
    ({"p50_s": 1199.0}, "5 %, 20 min left (n = 7)"),
    ({"n": 0, "p50_s": float("nan"), "n_sooner": 1200}, "100 %, longer than all 1,200 before"),
    ({"n": 1, "p50_s": float("nan")}, "too few before ran as long"),
    ({"n": 0, "p50_s": float("nan"), "n_sooner": 0}, "too few before ran as long"),
    ({"since": None}, "history not read yet"),
    ({"n": None}, "unknown"),
    ({"state": "canceling"}, "is being canceled"),
    ({"state": "scheduled", "since": None}, "waits to be started"),
])  # fmt: skip
def test_words_of_expectation(known: dict[str, Any], told: str) -> None:
    row = {**ROW, "p90_s": float("nan"), **known}
    assert monitor_rows.expected(row) == told
    assert monitor_rows.explained(row).endswith(".")


@pytest.mark.parametrize(("known", "told"), [
    ({"state": "passed"}, "web #3 passed after 1 min 5 s"),
    ({"state": "failed"}, "web #3 failed after 1 min 5 s"),
    ({"state": "passed", "blocked": True}, "web #3 waits at a block step, passed so far"),
    ({"state": "canceled", "started_at": None}, "web #3 was canceled"),
    ({"state": "skipped", "started_at": None, "finished_at": None}, "web #3 was skipped"),
    ({"state": "new to us", "finished_at": None}, "web #3 is new to us"),
])  # fmt: skip
def test_words_of_an_end(known: dict[str, Any], told: str) -> None:
    begun = bf.spec.Moment(2026, 10, 30, tzinfo=dt.UTC)
    stamps = {"started_at": begun, "finished_at": bf.spec.Moment.of(begun + dt.timedelta(seconds=65))}
    build = bf.spec.Build(id="x", number=3, pipeline=bf.spec.Pipeline(slug="web"), **{**stamps, **known})
    assert build_tracker.told(build) == told


def hostile(state: str) -> dict[str, Any]:
    return {
        "id": "x", "number": 1, "state": state, "branch": HOSTILE, "message": HOSTILE, "web_url": "javascript:alert(1)",
        "created_at": "2026-11-01T11:00:00Z", "started_at": "2026-11-01T11:00:00Z", "pipeline": {"slug": HOSTILE},
    }  # fmt: skip


def test_texts_of_the_service_stay_texts(scripted: Callable[..., Scripted]) -> None:
    running = says(json.dumps([hostile("running")]).encode())
    server = scripted(running, says(b"[]"), says(b"[]"), says(b"[]"), says(json.dumps(hostile("<b>")).encode()))
    monitor = widgets.BuildMonitor(bf.connect("acme", base_url=server.url, token="t" * 20).pipeline("web"))
    settled(monitor._lane)
    monitor.table.chosen = 0
    assert HOSTILE in words(monitor.facts)
    refreshed(monitor)
    for face in (monitor.facts, monitor.ended, monitor.queue):
        assert "<img" not in face.value
        assert "<b>&" not in face.value
        assert "javascript" not in face.value
    assert "is <b>" in words(monitor.ended)
    assert "t" * 20 not in json.dumps(ipywidgets.Widget.get_manager_state(), default=str)
    monitor.close()
