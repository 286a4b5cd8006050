"""The history of flaky tests on the board: status, changes, chart and table."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import pytest

import buildframe as bf
from buildframe import metrics
from buildframe.widgets.flaky_board import TABLE_COLUMNS, FlakyBoard
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.report.untrusted import UNTRUSTED
from tests.widgets.widget_helpers import html_tags, visible_text, wait_for, workspace_of


class RecordedSuite(NamedTuple):
    """A service some hours after its last sync, and the store in this folder."""

    ws: Workspace
    store: bf.Store
    folder: Path


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RecordedSuite]:
    with bf.sandbox(builds=60, days=2) as ws:
        folder = tmp_path_factory.mktemp("history") / "store"
        store = bf.Store(folder)
        for day in range(4):
            ws.sandbox.clock.advance(dt.timedelta(days=3 * bool(day)))
            store.sync(ws, since="1d", suites=["rspec"], progress=False)
        ws.sandbox.clock.advance(dt.timedelta(hours=30))
        yield RecordedSuite(ws, store, folder)


def board_of(ws: Workspace, store: bf.Store, search: str = "") -> FlakyBoard:
    board = FlakyBoard(ws, "rspec", store=store)
    board.search.value = search
    board.load_button.click()
    wait_for(board)
    return board


def titles(board: FlakyBoard) -> list[str]:
    return [column["title"] for column in board.table.columns]


def select(board: FlakyBoard, id: str) -> str:
    board.table.selected = board.board["id"].tolist().index(id)
    return visible_text(board.history)


@pytest.mark.long
def test_status_of_each_test(recorded: RecordedSuite) -> None:
    board = board_of(recorded.ws, recorded.store)
    tests = metrics.flaky_lifecycle(recorded.store.flaky_tests("rspec", history=True)).set_index("id")
    listed = board.board["id"].isin(tests.index)
    shown = pd.Series([row[2] for row in board.table.rows], board.board["id"])
    assert (shown == "resolved").tolist() == board.board["is_resolved"].tolist()
    known = tests["status"].reindex(shown.index[shown != "resolved"]).dropna()
    seen_lately = board.board.set_index("id")["last_seen_s"] <= 14 * 86_400
    known = known[(known != "resolved") & ~((known == "quiet") & seen_lately.reindex(known.index))]
    assert shown[known.index].tolist() == known.tolist()
    assert {"active", "resolved", "reopened"} <= set(shown)
    assert not listed.all()
    assert f"History from the store at {recorded.folder}" in visible_text(board.store_status)
    assert f"to {recorded.store.as_of:%Y-%m-%d %H:%M:%S} UTC" in visible_text(board.store_status)
    assert "has no history of this test" in select(board, board.board["id"][~listed].iloc[0])
    board.close()


@pytest.mark.long
def test_ages_use_the_stored_history(recorded: RecordedSuite) -> None:
    board = board_of(recorded.ws, recorded.store)
    states = recorded.store.flaky_tests("rspec", history=True)
    now = recorded.ws.flaky_tests("rspec", period="28days", progress=False).set_index("id")
    first = states[["latest_occurrence_at", "last_resolved_at"]].min(axis=1).groupby(states["id"]).min()
    signs = now[["latest_occurrence_at", "last_resolved_at"]].assign(first=first).min(axis=1)
    expected = (now["fetched_at"] - signs).dt.total_seconds()
    assert board.board.set_index("id")["age_at_least_s"].sort_index().tolist() == expected.sort_index().tolist()
    without = metrics.flaky_board(now.reset_index()).set_index("id")["age_at_least_s"].sort_index()
    assert (expected.sort_index() > without).any()
    assert set(board.board["id"]) == set(now.index)
    board.close()


@pytest.mark.long
def test_a_search_changes_no_history(recorded: RecordedSuite) -> None:
    whole, cut = board_of(recorded.ws, recorded.store), board_of(recorded.ws, recorded.store, search="Tax")
    of_whole = dict(zip(whole.board["id"], (row[4:] for row in whole.table.rows), strict=True))
    of_cut = dict(zip(cut.board["id"], (row[4:] for row in cut.table.rows), strict=True))
    assert 0 < len(of_cut) < len(of_whole)
    assert of_cut == {id: of_whole[id] for id in of_cut}
    whole.close()
    cut.close()


@pytest.mark.long
def test_new_instances_since_the_snapshots(recorded: RecordedSuite) -> None:
    board = board_of(recorded.ws, recorded.store)
    then = recorded.store.flaky_tests("rspec").set_index("id")["instances"]
    states = recorded.store.flaky_tests("rspec", history=True).sort_values("valid_from")
    first = states.drop_duplicates("id").set_index("id")["instances"]
    now = board.board.set_index("id")["instances"]
    grown = (now - then).dropna().sort_values(ascending=False)
    id = str(grown.index[0])
    assert grown.iloc[0] > 0
    message = select(board, id)
    assert f"+{now[id] - then[id]} since the last snapshot ({then[id]} then, {now[id]} now)" in message
    assert f"+{now[id] - first[id]} since it was first listed ({first[id]} then, {now[id]} now)" in message
    same = str(grown[grown == 0].index[0])
    assert f"none since the last snapshot ({now[same]} then, {now[same]} now)" in select(board, same)
    board.close()


# Stores without history


@pytest.mark.long
def test_a_suite_that_was_not_synced(recorded: RecordedSuite) -> None:
    board = FlakyBoard(recorded.ws, "jest", store=recorded.store)
    wait_for(board)
    assert board.table.rows
    assert titles(board) == [column.title for column in TABLE_COLUMNS]
    message = visible_text(board.store_status)
    assert "suite='jest' is not in the store." in message
    assert f"buildframe sync {recorded.folder} --suite jest" in message
    assert "store.sync(ws, suites=['jest'])" in message
    board.close()


@pytest.mark.long
def test_no_store_yet(recorded: RecordedSuite, tmp_path: Path) -> None:
    board = board_of(recorded.ws, bf.Store(tmp_path / "none"))
    assert "There is no store at" in visible_text(board.store_status)
    assert board.table.rows
    board.close()


@pytest.mark.long
def test_an_unreadable_store_keeps_the_list(recorded: RecordedSuite, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(recorded.folder, folder)
    store = bf.Store(folder)
    for file in store.files("flaky_tests"):
        Path(file).write_bytes(b"PAR1, it says")
    board = board_of(recorded.ws, store)
    assert f"No test history. The store at {folder} is damaged: flaky_tests/" in visible_text(board.store_status)
    assert len(board.table.rows) == len(recorded.ws.flaky_tests("rspec", period="28days", progress=False))
    board.close()


@pytest.mark.long
def test_the_store_of_another_service_is_rejected(recorded: RecordedSuite) -> None:
    with bf.sandbox(builds=20, days=1, seed=2) as other:
        board = board_of(other, recorded.store)
        assert "contains none of these tests. It belongs to another service" in visible_text(board.store_status)
        assert titles(board) == [column.title for column in TABLE_COLUMNS]
        board.table.selected = 0
        assert (board.history.value, len(board.table.rows[0])) == ("", len(TABLE_COLUMNS))
        board.close()


def test_the_store_of_another_organization_is_rejected(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    """Even if a test has the same id, as in a copy of an organization."""
    service = Service()
    server = scripted(service)
    store = bf.Store(tmp_path / "store")
    service.read(1, a=3)
    store.sync(workspace_of(server), suites=["rspec"], progress=False)
    board = board_of(bf.connect("globex", base_url=server.url, token="a-test-token" * 20), store)
    assert "contains no flaky test of suite 'rspec' of organization 'globex'" in visible_text(board.store_status)
    assert titles(board) == [column.title for column in TABLE_COLUMNS]
    board.close()


# Chart and table


class Service:
    """A service without builds, and with these flaky tests."""

    def __init__(self) -> None:
        self.tests: list[dict[str, Any]] = []
        self.day = 1

    def read(self, day: int, **instances: int | None) -> None:
        """Set the day and the tests, which all flaked at 11:00 on October 1."""
        self.day = day
        occurred = {"scope": "Cart", "location": "a.rb:3", "latest_occurrence_at": "2026-10-01T11:00:00Z"}
        self.tests = [{"id": id, "name": f"is {id}", "instances": n, **occurred} for id, n in instances.items()]

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.dumps(self.tests if "flaky-tests" in handler.path else []).encode("utf-8", "surrogatepass")
        time = dt.datetime(2026, 9, 30, 12) + dt.timedelta(days=self.day)
        says(body, date=f"{time:%a, %d %b %Y %H:%M:%S GMT}")(handler)


Readings = Mapping[int, dict[str, int | None]]


def synced(scripted: Callable[..., Scripted], folder: Path, readings: Readings) -> tuple[FlakyBoard, Service]:
    """Return the board of a service after syncs of these lists, by day."""
    service = Service()
    ws = workspace_of(scripted(service))
    store = bf.Store(folder / "store")
    for day, tests in readings.items():
        service.read(day, **tests)
        store.sync(ws, suites=["rspec"], progress=False)
    return board_of(ws, store), service


@pytest.mark.long
def test_the_chart_shows_every_state(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    readings: list[dict[str, int | None]] = [
        {"b": 1, "a": 2}, {"b": 1, "a": 6}, {"b": 1}, {"b": 1, "a": 8}, {"b": 2, "a": 8},
    ]  # fmt: skip
    board, _ = synced(scripted, tmp_path, dict(enumerate(readings, 1)))
    message = select(board, "a")
    drawn = html_tags(board.history.value)
    dots = [(float(str(of["cx"])), float(str(of["cy"]))) for tag, of in drawn if tag == "circle"]
    assert dots == [(44.0, 72.0), (150.0, 32.0), (362.0, 12.0)]  # days 1, 2, 4 of 1 to 5; 2, 6, 8 of 0 to 8
    lines = [of["d"] for tag, of in drawn if tag == "path" and of.get("class") == "bf-history-line"]
    assert lines == ["M44.0 72.0H150.0", "M150.0 32.0H256.0", "M362.0 12.0H468.0"]  # not listed from 3 to 4: no line
    assert re.findall(r"<title>(.*?)</title>", board.history.value) == [
        "2026-10-01 12:00:00 UTC: 2 instances", "2026-10-02 12:00:00 UTC: 6 instances",
        "2026-10-04 12:00:00 UTC: 8 instances",
    ]  # fmt: skip
    rows = re.findall(r"<tr><td>(.*?)</tr>", board.history.value)
    assert [re.sub(r"<[^>]*>", "|", row).split("||")[:2] for row in rows[-4:]] == [
        ["2026-10-01 12:00:00", "2"], ["2026-10-02 12:00:00", "6"], ["2026-10-03 12:00:00", "not listed|"],
        ["2026-10-04 12:00:00", "8"],
    ]  # fmt: skip
    (label,) = [of["aria-label"] for tag, of in drawn if tag == "svg"]
    assert label == (
        "Instances by snapshot: 2 on 2026-10-01 12:00:00 UTC, 8 on 2026-10-04 12:00:00 UTC; 3 states. "
        "The table below has all of them."
    )
    assert "Statusactive: listed, and neither new, resolved, reopened nor quiet" in message  # it was never resolved
    assert "Quiet for4 days" in message  # from the 1st at 11:00 to the 5th at 12:00
    assert "Reopened0 times in the recorded snapshots" in message
    board.close()


@pytest.mark.long
def test_a_test_that_flakes_after_it_was_resolved(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    service = Service()
    ws = workspace_of(scripted(service))
    store = bf.Store(tmp_path / "store")
    service.read(3, a=2)
    service.tests[0]["last_resolved_at"] = "2026-10-02T09:00:00Z"
    store.sync(ws, suites=["rspec"], progress=False)
    board = board_of(ws, store)
    message = select(board, "a")
    assert "Statusresolved: marked as resolved, and not seen since" in message
    assert "Since2026-10-02 09:00:00 UTC" in message
    service.day = 4
    service.tests[0] |= {"instances": 3, "latest_occurrence_at": "2026-10-04T10:00:00Z"}
    store.sync(ws, suites=["rspec"], progress=False)
    board.load()
    wait_for(board)
    message = select(board, "a")
    assert board.table.rows[0][2] == "reopened"
    assert "Statusreopened: was resolved, and then flaked or was listed again" in message
    assert "Since2026-10-04 10:00:00 UTC" in message
    assert "Quiet for0 days" in message
    assert "Reopened1 time in the recorded snapshots" in message
    board.close()


def test_a_single_snapshot_and_unknown_instances(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    board, service = synced(scripted, tmp_path, {1: {"a": 3, "b": None}})
    select(board, "a")
    assert [of["cx"] for tag, of in html_tags(board.history.value) if tag == "circle"] == ["44.0"]
    message = select(board, "b")
    assert [tag for tag, _ in html_tags(board.history.value) if tag == "circle"] == []
    assert "Instances by snapshot: unknown." in board.history.value
    assert "New instances" not in message
    assert "unknown" in message
    service.read(2, a=3)
    board.load()
    wait_for(board)
    assert "the first snapshot; the test may be older" in select(board, "a")
    board.close()


QUIET = "quiet: no longer listed; it was quiet, deleted or renamed"
LONG_AGO = "resolved: marked as resolved, and not seen since; or not seen for more than 56 days"


@pytest.mark.long
@pytest.mark.parametrize(
    ("last", "status", "shown"), [(2, QUIET, "active"), (56, QUIET, "quiet"), (57, LONG_AGO, "quiet")]
)
def test_a_test_that_is_not_in_the_last_snapshot(
    scripted: Callable[..., Scripted], tmp_path: Path, last: int, status: str, shown: str
) -> None:
    """
    It flaked on day 1 at 11:00, the snapshot of this day at 12:00 lists it, and that of another day does not.

    The table shows what is true of the list of the next day, which has it again: it is quiet after 14 days.
    """
    board, service = synced(scripted, tmp_path, {1: {"a": 3, "b": 1}, last: {"b": 1}})
    service.read(last + 1, a=4, b=1)
    board.load()
    wait_for(board)
    message = select(board, "a")
    assert board.table.rows[board.table.selected][2] == shown
    assert f"Not listed from{dt.date(2026, 9, 30) + dt.timedelta(days=last)} 12:00:00 UTC" in message
    assert f"Status{status}" in message
    assert f"Quiet for{last - 1} day" in message
    assert "not in the last snapshot; +1 since it was first listed (3 then, 4 now)" in message
    board.close()


@pytest.mark.long
def test_text_of_a_store_is_escaped(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    service = Service()
    ws = workspace_of(scripted(service))
    store = bf.Store(tmp_path / "store")
    service.tests = [
        {"id": text, **dict.fromkeys(["name", "scope", "location", "web_url"], text), "instances": 1}
        for text in UNTRUSTED
        if text.isprintable()
    ]
    store.sync(ws, suites=["rspec"], progress=False)
    board = board_of(ws, store)
    assert len(board.table.rows) == len(service.tests), visible_text(board.status)
    for place in range(len(service.tests)):
        board.table.selected = place
        assert "Quiet forunknown" in visible_text(board.history), "they have no time of an occurrence"
        assert {tag for tag, _ in html_tags(board.history.value)} == {
            "div", "table", "caption", "tr", "th", "td", "figure", "svg", "path", "circle", "title", "text",
            "figcaption", "details", "summary", "thead", "tbody",
        }  # fmt: skip
    board.close()
