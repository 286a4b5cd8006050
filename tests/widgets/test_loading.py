"""Rows as they come, page by page, without a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest

from buildframe import widgets
from buildframe.formatting import visible
from buildframe.sandbox_server import Fault
from buildframe.widgets import loading
from buildframe.widgets.browser import BuildBrowser
from buildframe.widgets.loading import Got, Listing
from buildframe.widgets.tables import Table
from buildframe.workspace import Workspace
from tests import worlds
from tests.report.untrusted import UNTRUSTED
from tests.widgets.faces_read import settled


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        yield workspace


def newest_first(browser: BuildBrowser) -> list[int]:
    """The numbers as the page sorts them."""
    return [row[0] for row in sorted(browser.table.visible_rows(), key=lambda row: row[6], reverse=True)]


def test_rows_are_added_as_they_come_and_sent_once(live: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    made, asked_for, whole = [], [], []
    with_rows = loading.with_rows
    monkeypatch.setattr(loading, "_PAUSE", 0.0)
    live.sandbox.fault(Fault("latency", seconds=0.2))  # so that the first page is shown before others are there
    monkeypatch.setattr(loading, "with_rows", lambda builds: (made.append(len(builds)), with_rows(builds))[1])
    monkeypatch.setattr(Table, "send", lambda table, content, buffers=None: asked_for.append(content))
    browser = widgets.BuildBrowser(live, created_from="30d")
    browser.table.observe(whole.append, "rows")
    settled(browser._lane)
    expected = live.builds(created_from="30d", columns=loading.COLUMNS, progress=False)
    assert len(made) >= 2
    assert sum(made) == len(expected)
    assert len(whole) <= 1
    pd.testing.assert_frame_equal(browser.builds.drop(columns="fetched_at"), expected.drop(columns="fetched_at"))
    assert newest_first(browser) == expected["number"].tolist()
    browser.table._handle_custom_msg({"have": 250}, [])
    (answer,) = asked_for
    assert (answer["at"], [row[0] for row in answer["more"]]) == (250, [row[0] for row in browser.table.rows[250:]])
    browser.close()


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_names_in_the_table_are_texts_in_one_line(hostile: str) -> None:
    build = dict.fromkeys(loading.COLUMNS) | {"created_at": pd.Timestamp("2026-10-01", tz="UTC"), "finished_at": pd.NaT}
    build |= dict.fromkeys(["pipeline", "branch", "message", "creator", "commit"], hostile)
    row = loading.with_rows(pd.DataFrame([build], dtype=object))["row"].iloc[0]
    assert {type(cell) for cell in row} <= {str, int, type(None)}
    assert all(cell == visible(cell) for cell in row if isinstance(cell, str))


def build(id: str, state: str, second: int) -> dict[str, object]:
    """As it was read at that second of a minute."""
    noon = pd.Timestamp("2026-10-01 12:00", tz="UTC")
    named = {"id": id, "number": 1, "pipeline": "web", "state": state, "branch": "main", "message": "m", "commit": "c"}
    times = {"created_at": noon, "finished_at": pd.NaT, "fetched_at": noon + pd.Timedelta(seconds=second)}
    return dict.fromkeys(loading.COLUMNS) | named | times


def test_a_blocked_build_has_no_time_yet() -> None:
    ended = {"finished_at": pd.Timestamp("2026-10-01 12:10", tz="UTC")}
    made = pd.DataFrame([build("a", "passed", 1) | ended | {"blocked": blocked} for blocked in (False, True)])
    rows = loading.with_rows(made)["row"].tolist()
    assert [(row[1], row[5]) for row in rows] == [("passed", 600), ("blocked", None)]


def test_of_a_build_that_was_read_twice_the_last_reading_counts_and_keeps_its_place() -> None:
    told = {"complete": True, "as_of": "2026-10-01T12:00:09Z", "note": None, "why": None}
    listing = Listing("all builds")
    first = [build("a", "running", 1), build("b", "passed", 1)]
    listing.add(Got(loading.with_rows(pd.DataFrame(first)), 0.5, told))
    assert listing.told == "Loading … 2 builds so far, 50 % of the time asked for"
    listing.read_again(loading.with_rows(pd.DataFrame([build("a", "passed", 5)])))
    listing.add(Got(loading.with_rows(pd.DataFrame([build("a", "running", 3), build("c", "failed", 3)])), 1.0, told))
    assert [(row["id"], row["state"], row["row"][1]) for row in listing.builds.to_dict("records")] == [
        ("a", "passed", "passed"), ("b", "passed", "passed"), ("c", "failed", "failed"),
    ]  # fmt: skip
    listing.standing = "complete"
    assert listing.told == "3 builds, complete, as of 12:00:09 UTC. web #1 updated; it may not match the filters."


def test_what_is_not_complete_after_all_says_why() -> None:
    listing = Listing("all builds")
    told = {"complete": False, "as_of": None, "note": None, "why": "the list is out of order"}
    listing.add(Got(loading.with_rows(pd.DataFrame([build("a", "running", 1)])), 1.0, told))
    listing.standing = "complete"
    assert listing.told == "1 build, not complete: the list is out of order."
