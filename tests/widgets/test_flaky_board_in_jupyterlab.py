"""The board of flaky tests in JupyterLab in a real browser, against a live sandbox and a store."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import buildframe as bf
from buildframe.sandbox_server import SCOPES
from buildframe.workspace import Workspace
from tests.widgets.jupyter import Page, browsing, lab, pictures_in, write_notebook

CELL = """import buildframe as bf
from buildframe import widgets
widgets.FlakyBoard(bf.connect("acme"), "rspec", store=bf.Store("history"))"""
HOSTILE = "escapes <script>alert('hi')</script>"  # a name that the sandbox has


@pytest.fixture
def ci(tmp_path: Path) -> Iterator[Workspace]:
    """A service some hours after the last of four syncs."""
    with bf.sandbox(builds=60, days=2, path=tmp_path / "sandbox.db") as ws:
        for _ in range(4):
            bf.Store(tmp_path / "lab" / "history").sync(ws, since="1d", suites=["rspec"], progress=False)
            ws.sandbox.clock.advance(dt.timedelta(hours=50))
        yield ws


def test_search_choose_and_look_back(ci: Workspace, tmp_path: Path) -> None:
    folder = tmp_path / "lab"
    write_notebook(folder / "board.ipynb", CELL)
    token = ci.sandbox.token(SCOPES)
    environment = {"BUILDFRAME_URL": ci.sandbox.url, "BUILDFRAME_TOKEN": token}
    with lab(folder, environment) as (address, of_lab), browsing(address, pictures_in(tmp_path)) as page:
        page.run_all(address, of_lab, "board.ipynb")
        page.wait("History from the store", 60)
        show_hostile_text_as_text(page, ci)
        search(page, ci)
        choose_by_keys(page, ci, bf.Store(folder / "history"))
        page.shoot("flaky-board")
        page.page.set_viewport_size({"width": 900, "height": 1500})
        page.shoot("flaky-board-900")
        lose_the_server_and_go_on(page, ci, tmp_path)
        page.command("docmanager:save")
        page.page.wait_for_function("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")
        assert (page.dialogs, page.strangers) == ([], [])
        assert token not in (folder / "board.ipynb").read_text()


def show_hostile_text_as_text(page: Page, ci: Workspace) -> None:
    field(page, "Name or scope contains").fill(HOSTILE)
    page.press("Search")
    page.wait("contains “escapes <script>alert")
    page.find(".bf-body .bf-row").first.wait_for()
    assert all(HOSTILE in row[1] for row in page.rows())
    page.find(".bf-body .bf-row").first.click()
    page.find(".bf-facts caption", has_text=HOSTILE).wait_for()
    assert page.find(".bf-grid script, .bf-halves script, .bf-told script").count() == 0


def search(page: Page, ci: Workspace) -> None:
    """By the key Enter; and sorted by another column."""
    expected = ci.flaky_tests("rspec", search="tax", branch="main", progress=False)
    field(page, "Name or scope contains").fill("tax")
    field(page, "Branch").fill("main")
    field(page, "Branch").press("Enter")
    said = page.wait("contains “tax” and that flaked at least once on branch “main”, as of")
    assert said.startswith(f"{len(expected)} flaky tests of the suite rspec")
    page.find(".bf-foot", has_text=f"{len(expected)} rows").wait_for()
    page.find(".bf-sorter", has_text="Status").click()
    page.find("[role=columnheader][aria-sort=ascending]", has_text="Status").wait_for()
    assert [row[6] for row in page.rows()] == sorted(row[6] for row in page.rows())
    page.find(".bf-sorter", has_text="Rank").click()
    page.find("[role=columnheader][aria-sort=ascending]", has_text="Rank").wait_for()


def choose_by_keys(page: Page, ci: Workspace, store: bf.Store) -> None:
    """The one that changed most, and its states by the key Enter on the summary."""
    states = store.flaky_tests("rspec", history=True)
    asked = states[states["id"].isin(ci.flaky_tests("rspec", search="tax", branch="main", progress=False)["id"])]
    id = asked["id"].value_counts().index[0]
    test = asked[asked["id"] == id].iloc[-1]
    place = next(n for n, row in enumerate(page.rows()) if row[1].endswith(test["name"]) and row[7] == test["location"])
    page.find(".bf-grid").focus()
    for key in ("Home", *["ArrowDown"] * place):
        page.page.keyboard.press(key)
    page.find(".bf-facts td", has_text=test["location"]).wait_for()
    link = page.find(".bf-facts a")
    now = ci.flaky_tests("rspec", progress=False).set_index("id")
    assert link.get_attribute("href") == now.loc[id, "web_url"]
    assert page.find(".bf-steps circle").count() == len(asked[asked["id"] == id]) > 1
    assert page.find(".bf-steps svg").get_attribute("role") == "img"
    page.find(".bf-halves summary").focus()
    page.page.keyboard.press("Enter")
    shown = page.find(".bf-readings tbody tr td:nth-child(2)").all_inner_texts()
    assert shown == [str(n) for n in asked[asked["id"] == id].sort_values("valid_from")["instances"]]


def lose_the_server_and_go_on(page: Page, ci: Workspace, folder: Path) -> None:
    port = urlsplit(ci.sandbox.url).port
    ci.sandbox.stop()
    field(page, "Branch").fill("")
    page.press("Search")
    assert "could not be loaded" in page.wait("No response from http://127.0.0.1", 120)
    assert page.rows() == []
    page.shoot("flaky-board-no-server")
    with bf.sandbox(path=folder / "sandbox.db", port=port) as again:
        page.press("Search")
        page.wait(f"{len(again.flaky_tests('rspec', search='tax', progress=False))} flaky tests", 60)
        page.wait("History from the store", 60)
        page.find(".bf-body .bf-row").first.wait_for()


def field(page: Page, label: str) -> Any:
    return page.page.get_by_label(label, exact=True).first
