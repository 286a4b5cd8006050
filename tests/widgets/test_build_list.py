"""Rows of builds page by page, without a web browser."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest

from buildframe import widgets
from buildframe.formatting import escape_invisible
from buildframe.sandbox_server import Fault
from buildframe.widgets import build_list
from buildframe.widgets.build_browser import BuildBrowser
from buildframe.widgets.build_list import BuildList
from buildframe.widgets.data_table import DataTable
from buildframe.workspace import Workspace
from tests import worlds
from tests.report.untrusted import UNTRUSTED
from tests.widgets.widget_helpers import displayed_rows, send_content, wait_for


@pytest.fixture
def live() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        yield workspace


def newest_first(browser: BuildBrowser) -> list[int]:
    """Return the numbers in the order of the page."""
    return [
        row[0] for row in sorted(displayed_rows(browser.table), key=lambda row: row[build_list.CREATED], reverse=True)
    ]


@pytest.mark.long
def test_rows_are_added_per_page_and_sent_once(live: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    batch_sizes, messages, assignments = [], [], []
    with_rows = build_list.with_rows
    monkeypatch.setattr(build_list, "_UPDATE_INTERVAL", 0.0)
    live.sandbox.fault(Fault("latency", seconds=0.2))  # so that the first page is shown before others are there
    monkeypatch.setattr(build_list, "with_rows", lambda builds: (batch_sizes.append(len(builds)), with_rows(builds))[1])
    monkeypatch.setattr(DataTable, "send", lambda table, content, buffers=None: messages.append(content))
    browser = widgets.BuildBrowser(live, created_from="30d")
    browser.table.observe(assignments.append, "rows")
    wait_for(browser)
    expected = live.builds(created_from="30d", columns=build_list.COLUMNS, progress=False)
    assert len(batch_sizes) >= 2
    assert sum(batch_sizes) == len(expected)
    assert len(assignments) <= 1
    pd.testing.assert_frame_equal(browser.builds.drop(columns="fetched_at"), expected.drop(columns="fetched_at"))
    assert newest_first(browser) == expected["number"].tolist()
    send_content(browser.table, {"loaded": 250})
    (message,) = messages
    assert (message["offset"], [row[0] for row in message["rows"]]) == (
        250,
        [row[0] for row in browser.table.rows[250:]],
    )
    browser.close()


def test_names_in_the_table_are_one_line_of_text() -> None:
    names = ["pipeline", "branch", "message", "creator", "commit"]
    builds = pd.DataFrame([build("a", "passed", 1) | dict.fromkeys(names, text) for text in UNTRUSTED], dtype=object)
    cells = [cell for row in build_list.with_rows(builds)["row"] for cell in row]
    assert {type(cell) for cell in cells} <= {str, int, type(None)}
    assert [cell for cell in cells if isinstance(cell, str) and cell != escape_invisible(cell)] == []


def build(id: str, state: str, second: int) -> dict[str, object]:
    """Return a build as fetched at a second of one minute."""
    noon = pd.Timestamp("2026-10-01 12:00", tz="UTC")
    names = {"id": id, "number": 1, "pipeline": "web", "state": state, "branch": "main", "message": "m", "commit": "c"}
    times = {"created_at": noon, "finished_at": pd.NaT, "fetched_at": noon + pd.Timedelta(seconds=second)}
    return dict.fromkeys(build_list.COLUMNS) | names | times


def test_a_blocked_build_has_no_duration() -> None:
    ended = {"finished_at": pd.Timestamp("2026-10-01 12:10", tz="UTC")}
    builds = pd.DataFrame([build("a", "passed", 1) | ended | {"blocked": blocked} for blocked in (False, True)])
    rows = build_list.with_rows(builds)["row"].tolist()
    assert [(row[1], row[4]) for row in rows] == [("passed", 600), ("blocked", None)]


def test_a_build_loaded_twice_shows_its_latest_state_in_its_place() -> None:
    metadata = {"complete": True, "as_of": "2026-10-01T12:00:09Z", "note": None, "why": None}
    listing = BuildList("all builds")
    first = [build("a", "running", 1), build("b", "passed", 1)]
    listing.add(build_list.with_rows(pd.DataFrame(first)), 0.5, metadata)
    assert listing.status_text == "Loading … 2 builds, 50 % of the time range"
    listing.update(build_list.with_rows(pd.DataFrame([build("a", "passed", 5)])))
    later = [build("a", "running", 3), build("c", "failed", 3)]
    listing.add(build_list.with_rows(pd.DataFrame(later)), 1.0, metadata)
    assert [(row["id"], row["state"], row["row"][1]) for row in listing.builds.to_dict("records")] == [
        ("a", "passed", "passed"), ("b", "passed", "passed"), ("c", "failed", "failed"),
    ]  # fmt: skip
    listing.state = "complete"
    updated = "web #1 updated; it may not match the filters."
    assert listing.status_text == f"3 builds, complete, as of 12:00:09 UTC. {updated}"


def test_an_incomplete_list_says_why() -> None:
    listing = BuildList("all builds")
    metadata = {"complete": False, "as_of": None, "note": None, "why": "the list is out of order"}
    listing.add(build_list.with_rows(pd.DataFrame([build("a", "running", 1)])), 1.0, metadata)
    listing.state = "complete"
    assert listing.status_text == "1 build, incomplete: the list is out of order."
