"""The board of flaky tests in JupyterLab in a real web browser, on a live sandbox and a store."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import expect

import buildframe as bf
from buildframe.sandbox_server import SCOPES
from buildframe.workspace import Workspace
from tests.jupyter.lab import Lab, Page, write_notebook

pytestmark = pytest.mark.long

CELL = """import buildframe as bf
from buildframe import widgets
widgets.FlakyBoard(bf.connect("acme"), "rspec", store=bf.Store("history"))"""
HOSTILE = "escapes <script>alert('hi')</script>"  # a name that the sandbox has


@pytest.fixture
def ci(lab: Lab, tmp_path: Path) -> Iterator[Workspace]:
    """A service some hours after the last of four syncs."""
    with bf.sandbox(builds=60, days=2, path=tmp_path / "sandbox.db", world="odd") as ws:
        for _ in range(4):
            bf.Store(lab.folder / "history").sync(ws, since="1d", suites=["rspec"], progress=False)
            ws.sandbox.clock.advance(dt.timedelta(hours=50))
        yield ws


def test_search_select_and_show_history(ci: Workspace, lab: Lab, page: Page, tmp_path: Path) -> None:
    notebook = lab.folder / "board.ipynb"
    write_notebook(notebook, CELL)
    token = ci.sandbox.token(SCOPES)
    lab.set_environment(BUILDFRAME_URL=ci.sandbox.url, BUILDFRAME_TOKEN=token)
    page.run_all(notebook.name)
    page.wait("History from the store", 60)
    show_hostile_text_escaped(page, ci)
    search(page, ci)
    filter_by_status(page)
    select_by_keyboard(page, ci, bf.Store(lab.folder / "history"))
    cut = "cells => cells.filter(cell => cell.scrollWidth > cell.clientWidth).map(cell => cell.textContent)"
    assert page.find(".bf-body :is(.bf-name, .bf-path)").evaluate_all(cut) == []
    assert page.find(".bf-body .bf-path", has_text=re.compile(r"^….*_spec\.rb:\d+$")).count(), "the line is visible"
    page.take_screenshots("flaky-board")
    page.page.set_viewport_size({"width": 720, "height": 1500})
    page.take_screenshots("flaky-board-720")
    page.check_accessibility()
    survive_a_server_outage(page, ci, tmp_path)
    page.save()
    assert (page.dialogs, page.external_requests) == ([], [])
    assert token not in notebook.read_text()


def show_hostile_text_escaped(page: Page, ci: Workspace) -> None:
    field(page, "Name or scope contains").fill(HOSTILE)
    page.press("Search")
    page.wait("contains “escapes <script>alert")
    page.find(".bf-body .bf-row").first.wait_for()
    assert all(HOSTILE in row[1] for row in page.rows())
    page.find(".bf-body .bf-row").first.click()
    page.find(".bf-properties caption", has_text=HOSTILE).wait_for()
    assert page.find(".bf-grid script, .bf-two-columns script, .bf-status script").count() == 0


def search(page: Page, ci: Workspace) -> None:
    """Search with Enter, and sort by another column."""
    expected = ci.flaky_tests("rspec", period="28days", search="tax", branch="main", progress=False)
    field(page, "Name or scope contains").fill("tax")
    field(page, "Branch").fill("main")
    field(page, "Branch").press("Enter")
    message = page.wait("contains “tax” and that flaked at least once on branch “main”, as of")
    assert message.startswith(f"{len(expected)} flaky tests of the suite rspec")
    page.wait("History from the store")  # which changes statuses; loading has removed the message of the search before
    page.find(".bf-body .bf-row", has_text="Backend").first.wait_for()  # names of owners arrive last
    page.find(".bf-foot", has_text=f"{len(expected)} rows").wait_for()
    page.find(".bf-sort-button", has_text="Status").click()
    page.find("[role=columnheader][aria-sort=ascending]", has_text="Status").wait_for()
    assert [row[2] for row in page.rows()] == sorted(row[2] for row in page.rows())
    page.find(".bf-sort-button", has_text="Rank").click()
    page.find("[role=columnheader][aria-sort=ascending]", has_text="Rank").wait_for()


def filter_by_status(page: Page) -> None:
    shown = page.rows()
    for status in ("resolved", "active"):
        field(page, "Status").select_option(status)
        rows = [row for row in shown if (row[2] == "resolved") == (status == "resolved")]
        page.find(".bf-foot", has_text=f"{len(rows)} of {len(shown)} loaded rows").wait_for()
        assert page.rows() == rows
        field(page, "Status").select_option("all")
        page.find(".bf-foot", has_text=f"{len(shown)} rows").wait_for()  # both statuses may have as many rows
    assert {row[6] for row in shown} >= {"Backend", ""}, "owners"


def select_by_keyboard(page: Page, ci: Workspace, store: bf.Store) -> None:
    """Select the test that changed most, and open its states with Enter."""
    states = store.flaky_tests("rspec", history=True)
    matching = states[
        states["id"].isin(ci.flaky_tests("rspec", period="28days", search="tax", branch="main", progress=False)["id"])
    ]
    id, number = next(iter(matching["id"].value_counts().items()))
    test = matching[matching["id"] == id].iloc[-1]
    place = next(n for n, row in enumerate(page.rows()) if row[1].endswith(test["name"]) and row[7] == test["location"])
    page.find(".bf-grid").focus()
    for key in ("Home", *["ArrowDown"] * place):
        page.page.keyboard.press(key)
    page.find(".bf-properties td", has_text=test["location"]).wait_for()
    link = page.find(".bf-properties a")
    now = ci.flaky_tests("rspec", period="28days", progress=False).set_index("id")
    assert link.get_attribute("href") == now.loc[id, "web_url"]
    assert number > 1
    expect(page.find(".bf-history-chart circle")).to_have_count(number)  # arrives after the properties
    assert page.find(".bf-history-chart svg").get_attribute("role") == "img"
    page.find(".bf-two-columns summary").focus()
    page.page.keyboard.press("Enter")
    shown = page.find(".bf-history-table tbody tr td:nth-child(2)").all_inner_texts()
    assert shown == [str(n) for n in matching[matching["id"] == id].sort_values("valid_from")["instances"]]


def survive_a_server_outage(page: Page, ci: Workspace, folder: Path) -> None:
    port = urlsplit(ci.sandbox.url).port
    ci.sandbox.stop()
    field(page, "Branch").fill("")
    page.press("Search")
    assert "could not be loaded" in page.wait("No response from http://127.0.0.1", 120)
    assert page.rows() == []
    page.take_screenshots("flaky-board-no-server")
    with bf.sandbox(path=folder / "sandbox.db", port=port) as again:
        page.press("Search")
        page.wait(f"{len(again.flaky_tests('rspec', period='28days', search='tax', progress=False))} flaky tests", 60)
        page.wait("History from the store", 60)
        page.find(".bf-body .bf-row").first.wait_for()


def field(page: Page, label: str) -> Any:
    return page.page.get_by_label(label, exact=True).first
