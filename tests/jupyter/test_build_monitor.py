"""The build monitor in JupyterLab in a real web browser, on a live sandbox."""

from __future__ import annotations

import datetime as dt
import re

import pytest

from buildframe.sandbox_server import SCOPES
from buildframe.workspace import Workspace
from tests import worlds
from tests.jupyter.lab import Lab, Page, write_notebook

pytestmark = pytest.mark.long

CELL = """import buildframe as bf
from buildframe import widgets
monitor = widgets.BuildMonitor(bf.connect("acme"))
monitor"""
LONG = """from buildframe.widgets.data_table import DataTable
from buildframe.widgets.monitor_formatting import TABLE_COLUMNS
table = DataTable("Long durations", TABLE_COLUMNS)
table.set_rows([[1, "running", "long", "0 %", 7, 400_000, 11_062, "main", "three hours"]])
table"""
BARS = "cells => cells.map(cell => [cell.textContent, cell.style.getPropertyValue('--bf-percent')])"
HOSTILE = "<img src=x onerror=alert(1)>"


def test_follow_builds_until_they_finish(lab: Lab, page: Page) -> None:
    write_notebook(lab.folder / "monitor.ipynb", CELL, "monitor.is_refreshing", LONG)
    with worlds.sandbox(builds=300) as ci:
        (number,) = ci.sandbox.push("web")
        ci.sandbox.push("api")
        ci.sandbox.clock.advance(dt.timedelta(minutes=4))
        ci.pipeline("docs").create_build(commit="HEAD", branch=HOSTILE, message=HOSTILE)
        lab.set_environment(BUILDFRAME_URL=ci.sandbox.url, BUILDFRAME_TOKEN=ci.sandbox.token(SCOPES))
        page.run_all("monitor.ipynb")
        show_running_builds(page, number)
        cancel(page, ci)
        show_a_finished_build(page, ci, number)
        stop_without_a_view(page)
        assert (page.dialogs, page.external_requests) == ([], [])


def show_running_builds(page: Page, number: int) -> None:
    page.find(".bf-percent", has_text=re.compile(r"^\d+ %, .* left$")).nth(1).wait_for(timeout=60_000)
    rows = {row[2]: row for row in page.rows()}
    assert rows["web"][:2] == [str(number), "running"]
    assert rows["docs"][7:] == [HOSTILE, HOSTILE]
    assert page.find("img[src='x']").count() == 0
    assert re.search(r"2 builds running, 1 waiting: docs 1\.", page.find(".bf-hint b").inner_text())
    bars = page.find(".bf-percent").evaluate_all(BARS)
    assert [bar.removesuffix("%") for _, bar in bars] == ["0", *(words.split(" %")[0] for words, _ in bars[1:])]
    page.select(number)
    page.find(".bf-properties td", has_text=re.compile("builds of this pipeline ran longer than 3 min 58 s")).wait_for()
    page.take_screenshots("monitor")
    page.check_accessibility()
    page.page.set_viewport_size({"width": 720, "height": 1500})
    page.take_screenshots("monitor-720")
    show_long_durations(page)
    page.page.set_viewport_size({"width": 1200, "height": 1500})


def show_long_durations(page: Page) -> None:
    """A duration fits also into a column that the user made narrow."""
    grid = ".bf-grid[aria-label='Long durations']"
    durations = page.find(f"{grid} .bf-seconds")
    assert durations.all_inner_texts() == ["4d 15h", "3h 04m"]
    assert [cell.get_attribute("title") for cell in durations.all()] == ["4d 15h 06m 40s", "3h 04m 22s"]
    page.find(f"{grid} .bf-sort-button", has_text="Waited").focus()
    for _ in range(4):
        page.page.keyboard.press("Shift+ArrowLeft")
    page.find(f"{grid} .bf-seconds", has_text=re.compile("^3h$")).wait_for()
    assert not durations.evaluate_all("cells => cells.some(cell => cell.scrollWidth > cell.clientWidth)")


def cancel(page: Page, ci: Workspace) -> None:
    number = next(int(row[0]) for row in page.rows() if row[2] == "api")
    page.select(number)
    page.press("Cancel…")
    page.press("Yes, cancel it")
    page.find(".bf-finished a", has_text=f"api #{number} was canceled after").wait_for(timeout=30_000)
    assert ci.pipeline("api").build(number).state == "canceled"


def show_a_finished_build(page: Page, ci: Workspace, number: int) -> None:
    """The next refresh shows it, without a click."""
    ci.sandbox.clock.advance(dt.timedelta(hours=1))
    end = page.find(".bf-finished a", has_text=re.compile(f"^web #{number} (passed|failed) after"))
    end.wait_for(timeout=30_000)
    assert end.get_attribute("href") == ci.pipeline("web").build(number).web_url
    page.take_screenshots("monitor-ended")


def stop_without_a_view(page: Page) -> None:
    page.command("notebook:clear-all-cell-outputs")
    page.page.evaluate("() => { window.jupyterapp.shell.currentWidget.content.activeCellIndex = 1; }")
    for _ in range(20):  # the page reports the change with a delay
        page.command("notebook:run-cell")
        page.page.wait_for_timeout(300)
        if page.find("pre", has_text="False").count():
            return
    raise AssertionError("it still refreshes without a view")
