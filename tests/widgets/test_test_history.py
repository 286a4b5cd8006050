"""What the board of flaky tests tells of a store: what became of a test, and how its instances rose."""

from __future__ import annotations

import datetime as dt
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import buildframe as bf
from buildframe import metrics
from buildframe.widgets.flaky_board import COLUMNS, KEPT_COLUMNS, FlakyBoard
from buildframe.workspace import Workspace
from tests.conftest import Scripted, says
from tests.report.untrusted import UNTRUSTED
from tests.widgets.faces_read import settled, words
from tests.widgets.test_html import Seen


class Kept(NamedTuple):
    """A service some hours after its last sync, and its store."""

    ws: Workspace
    store: bf.Store


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with bf.sandbox(builds=60, days=2) as ws:
        store = bf.Store(tmp_path_factory.mktemp("history") / "store")
        for day in range(4):
            ws.sandbox.clock.advance(dt.timedelta(days=3 * bool(day)))
            store.sync(ws, since="1d", suites=["rspec"], progress=False)
        ws.sandbox.clock.advance(dt.timedelta(hours=30))
        yield Kept(ws, store)


def board_of(ws: Workspace, store: bf.Store, search: str = "") -> FlakyBoard:
    board = FlakyBoard(ws, "rspec", store=store)
    board.search.value = search
    board.load_button.click()
    settled(board._lane)
    return board


def titles(board: FlakyBoard) -> list[str]:
    return [column["title"] for column in board.table.columns]


def choose(board: FlakyBoard, id: str) -> str:
    board.table.chosen = board.board["id"].tolist().index(id)
    return words(board.history)


def test_what_became_of_each(kept: Kept) -> None:
    board = board_of(*kept)
    tests = metrics.flaky_lifecycle(kept.store.flaky_tests("rspec", history=True)).set_index("id")
    listed = board.board["id"].isin(tests.index)
    assert titles(board) == [column.title for column in KEPT_COLUMNS]
    expected = tests.loc[board.board["id"][listed], "status"].tolist()
    assert [row[6] for row in board.table.rows if row[6] != "not kept"] == expected
    assert {"active", "resolved", "reopened", "not kept"} <= {row[6] for row in board.table.rows}
    assert [row[6] == "not kept" for row in board.table.rows] == (~listed).tolist()
    assert f"History from the store at {kept.store._location.url}" in words(board.said_of_store)
    assert f"to that of {kept.store.as_of:%Y-%m-%d %H:%M:%S} UTC" in words(board.said_of_store)
    assert "does not know this test" in choose(board, board.board["id"][~listed].iloc[0])
    board.close()


def test_ages_reach_as_far_as_the_store(kept: Kept) -> None:
    board = board_of(*kept)
    states = kept.store.flaky_tests("rspec", history=True)
    now = kept.ws.flaky_tests("rspec", progress=False).set_index("id")
    first = states[["latest_occurrence_at", "last_resolved_at"]].min(axis=1).groupby(states["id"]).min()
    signs = now[["latest_occurrence_at", "last_resolved_at"]].assign(first=first).min(axis=1)
    expected = (now["fetched_at"] - signs).dt.total_seconds()
    assert board.board.set_index("id")["age_at_least_s"].sort_index().tolist() == expected.sort_index().tolist()
    without = metrics.flaky_board(now.reset_index()).set_index("id")["age_at_least_s"].sort_index()
    assert (expected.sort_index() > without).any()
    assert set(board.board["id"]) == set(now.index)
    board.close()


def test_a_search_makes_nothing_vanish(kept: Kept) -> None:
    whole, cut = board_of(*kept), board_of(*kept, search="Tax")
    of_whole = dict(zip(whole.board["id"], (row[4:] for row in whole.table.rows), strict=True))
    of_cut = dict(zip(cut.board["id"], (row[4:] for row in cut.table.rows), strict=True))
    assert 0 < len(of_cut) < len(of_whole)
    assert of_cut == {id: of_whole[id] for id in of_cut}
    whole.close()
    cut.close()


def test_new_instances_since_the_readings(kept: Kept) -> None:
    board = board_of(*kept)
    then = kept.store.flaky_tests("rspec").set_index("id")["instances"]
    states = kept.store.flaky_tests("rspec", history=True).sort_values("valid_from")
    first = states.drop_duplicates("id").set_index("id")["instances"]
    now = board.board.set_index("id")["instances"]
    grown = (now - then).dropna().sort_values(ascending=False)
    id = str(grown.index[0])
    assert grown.iloc[0] > 0
    said = choose(board, id)
    assert f"+{now[id] - then[id]} since the last reading ({then[id]} then, {now[id]} now)" in said
    assert f"+{now[id] - first[id]} since it was first listed ({first[id]} then, {now[id]} now)" in said
    same = str(grown[grown == 0].index[0])
    assert f"none since the last reading ({now[same]} then, {now[same]} now)" in choose(board, same)
    board.close()


# --- what a store cannot tell


def test_a_suite_that_was_not_synced(kept: Kept) -> None:
    board = FlakyBoard(kept.ws, "jest", store=kept.store)
    settled(board._lane)
    assert board.table.rows
    assert titles(board) == [column.title for column in COLUMNS]
    said = words(board.said_of_store)
    assert "suite='jest' is not in the store." in said
    assert f"buildframe sync {kept.store._location.url} --suite jest" in said
    assert "store.sync(ws, suites=['jest'])" in said
    board.close()


def test_no_store_yet(kept: Kept, tmp_path: Path) -> None:
    board = board_of(kept.ws, bf.Store(tmp_path / "none"))
    assert "There is no store at" in words(board.said_of_store)
    assert board.table.rows
    board.close()


def test_a_store_that_cannot_be_read_leaves_the_list(kept: Kept, tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(kept.store._location.url, folder)
    store = bf.Store(folder)
    for file in store.files("flaky_tests"):
        Path(file).write_bytes(b"PAR1, it says")
    board = board_of(kept.ws, store)
    assert f"No history. The store at {folder} could not be read" in words(board.said_of_store)
    assert len(board.table.rows) == len(kept.ws.flaky_tests("rspec", progress=False))
    board.close()


def test_another_service_of_that_name_is_not_mixed_in(kept: Kept) -> None:
    with bf.sandbox(builds=20, days=1, seed=2) as other:
        board = board_of(other, kept.store)
        assert "knows none of these tests: it is of another service" in words(board.said_of_store)
        assert titles(board) == [column.title for column in COLUMNS]
        board.table.chosen = 0
        assert (board.history.value, len(board.table.rows[0])) == ("", len(COLUMNS))
        board.close()


def test_another_organization_is_not_mixed_in(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    """Also where a test has the same id, as in a copy of an organization."""
    service = Service()
    server = scripted(service)
    store = bf.Store(tmp_path / "store")
    service.read(1, a=3)
    store.sync(bf.connect("acme", base_url=server.url, token="t" * 20), suites=["rspec"], progress=False)
    board = board_of(bf.connect("globex", base_url=server.url, token="t" * 20), store)
    assert "holds no flaky test of suite 'rspec' of organization 'globex'" in words(board.said_of_store)
    assert titles(board) == [column.title for column in COLUMNS]
    board.close()


# --- the picture


class Service:
    """A service that has no builds, and these flaky tests."""

    def __init__(self) -> None:
        self.tests: list[dict[str, Any]] = []
        self.day = 1

    def read(self, day: int, **instances: int | None) -> None:
        self.day = day
        occurred = {"scope": "Cart", "location": "a.rb:3", "latest_occurrence_at": "2026-10-01T11:00:00Z"}
        self.tests = [{"id": id, "name": f"is {id}", "instances": n, **occurred} for id, n in instances.items()]

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.dumps(self.tests if "flaky-tests" in handler.path else []).encode("utf-8", "surrogatepass")
        says(body, date=f"{dt.datetime(2026, 10, self.day, 12):%a, %d %b %Y %H:%M:%S GMT}")(handler)


Readings = Sequence[dict[str, int | None]]


def synced(scripted: Callable[..., Scripted], folder: Path, readings: Readings) -> tuple[FlakyBoard, Service]:
    """The board of a service whose list was read so, a day after the other, and once more just now."""
    service = Service()
    ws = bf.connect("acme", base_url=scripted(service).url, token="t" * 20)
    store = bf.Store(folder / "store")
    for day, tests in enumerate(readings, 1):
        service.read(day, **tests)
        store.sync(ws, suites=["rspec"], progress=False)
    return board_of(ws, store), service


def test_the_picture_has_every_state_at_its_place(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    readings: Readings = [{"b": 1, "a": 2}, {"b": 1, "a": 6}, {"b": 1}, {"b": 1, "a": 8}, {"b": 2, "a": 8}]
    board, _ = synced(scripted, tmp_path, readings)
    said = choose(board, "a")
    drawn = Seen(board.history.value).tags
    dots = [(float(str(of["cx"])), float(str(of["cy"]))) for tag, of in drawn if tag == "circle"]
    assert dots == [(44.0, 72.0), (150.0, 32.0), (362.0, 12.0)]  # days 1, 2, 4 of 1 to 5; 2, 6, 8 of 0 to 8
    lines = [of["d"] for tag, of in drawn if tag == "path" and of.get("class") == "bf-step"]
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
        "Instances by reading: 2 by that of 2026-10-01 12:00:00 UTC, 8 by that of 2026-10-04 12:00:00 UTC; "
        "3 states, all in the table below."
    )
    assert "Statusreopened" in said
    assert "Reopened1 time, as far as readings tell" in said
    board.close()


def test_a_single_reading_and_what_is_unknown(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    board, service = synced(scripted, tmp_path, [{"a": 3, "b": None}])
    choose(board, "a")
    assert [of["cx"] for tag, of in Seen(board.history.value).tags if tag == "circle"] == ["44.0"]
    said = choose(board, "b")
    assert [tag for tag, _ in Seen(board.history.value).tags if tag == "circle"] == []
    assert "Instances by reading: none is known." in board.history.value
    assert "New instances" not in said
    assert "unknown" in said
    service.read(2, a=3)
    board.load()
    settled(board._lane)
    assert "the first reading that is kept: may be older" in choose(board, "a")
    board.close()


def test_one_that_the_last_reading_lacked(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    board, service = synced(scripted, tmp_path, [{"a": 3, "b": 1}, {"b": 1}])
    service.read(3, a=4, b=1)
    board.load()
    settled(board._lane)
    said = choose(board, "a")
    assert "Not listed from2026-10-02 12:00:00 UTC" in said
    assert "Statusresolved: no longer listed, so perhaps deleted or renamed" in said
    assert "the last reading did not list it; +1 since it was first listed (3 then, 4 now)" in said
    board.close()


def test_text_of_a_store_stays_text(scripted: Callable[..., Scripted], tmp_path: Path) -> None:
    service = Service()
    ws = bf.connect("acme", base_url=scripted(service).url, token="t" * 20)
    store = bf.Store(tmp_path / "store")
    service.tests = [
        {"id": text, **dict.fromkeys(["name", "scope", "location", "web_url"], text), "instances": 1}
        for text in UNTRUSTED
        if text.isprintable()
    ]
    store.sync(ws, suites=["rspec"], progress=False)
    board = board_of(ws, store)
    assert len(board.table.rows) == len(service.tests), words(board.said)
    for place in range(len(service.tests)):
        board.table.chosen = place
        assert {tag for tag, _ in Seen(board.history.value).tags} == {
            "div", "table", "caption", "tr", "th", "td", "figure", "svg", "path", "circle", "title", "text",
            "figcaption", "details", "summary", "thead", "tbody",
        }  # fmt: skip
    board.close()
