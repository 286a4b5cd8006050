"""A notebook saved with the state of its widgets, opened again and exported to HTML, with hostile names."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from buildframe.sandbox_server import SCOPES
from tests import worlds
from tests.jupyter.hostile import INJECTED_ELEMENTS, NAMES, create_hostile_builds
from tests.jupyter.lab import Lab, Page, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long

CELLS = (
    """import buildframe as bf
from buildframe import widgets
ci = bf.connect("acme")
browser = widgets.BuildBrowser(ci, created_from="2d")
browser""",
    "monitor = widgets.BuildMonitor(ci)\nmonitor",
    "board = widgets.FlakyBoard(ci, 'rspec')\nboard",
)
STATE = "application/vnd.jupyter.widget-state+json"
READ_STATE = f"""() => JSON.parse(document.querySelector('script[type="{STATE}"]').textContent)"""


def test_saved_state_has_no_token_and_runs_no_script(lab: Lab, own_page: Page, browser: Browser) -> None:
    notebook = lab.folder / "saved.ipynb"
    write_notebook(notebook, *CELLS)
    with worlds.sandbox(builds=300) as ci:
        number, token = create_hostile_builds(ci), ci.sandbox.token(SCOPES)
        lab.set_environment(BUILDFRAME_URL=ci.sandbox.url, BUILDFRAME_TOKEN=token)
        own_page.run_all_alone(lab, notebook.name)
        show_hostile_build(own_page, number)
        own_page.command("@jupyter-widgets/jupyterlab-manager:saveWidgetState")
        own_page.save()
        open_again_without_kernel(own_page)
        own_page.take_screenshots("opened-again")
        assert (own_page.dialogs, own_page.external_requests) == ([], [])
    state = saved_state(notebook, token)
    export(notebook)
    page = Page(browser.new_page(), "file://", own_page.screenshots)
    open_exported(page, notebook.with_suffix(".html"), state, token)
    page.page.close()


def show_hostile_build(page: Page, number: int) -> None:
    page.wait("builds, complete", 60)
    page.wait("flaky tests of the suite", 60)
    page.fill("Pipeline", "hostile")
    page.press("Load")
    page.wait("1 build, complete", 60)
    page.select(number)
    page.find(".bf-grid[aria-label*=Jobs] .bf-body .bf-row").first.wait_for(timeout=30_000)
    page.fill("Pipeline", "")
    page.press("Load")
    page.wait(re.compile(r"^\d\d+ builds, complete"), 60)
    assert_text_is_escaped(page)


def assert_text_is_escaped(page: Page) -> None:
    texts = [cell for row in page.rows() for cell in row]
    assert len(set(NAMES) & set(texts)) > 10
    assert page.find(INJECTED_ELEMENTS).count() == 0
    assert page.find("script, iframe, object, base, meta, form").count() == 0


def open_again_without_kernel(page: Page) -> None:
    """Without a kernel, all content comes from the file."""
    page.page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")
    page.page.reload()
    page.find(".bf-body .bf-row").first.wait_for(timeout=60_000)
    assert_text_is_escaped(page)


def saved_state(notebook: Path, token: str) -> Any:
    saved = json.loads(notebook.read_text())
    assert token not in notebook.read_text()
    assert "Bearer" not in notebook.read_text()
    state = saved["metadata"]["widgets"][STATE]
    assert json.dumps(state).count("alert(1)") > 10  # as text
    return state


def export(notebook: Path) -> None:
    command = [sys.executable, "-m", "nbconvert", "--to", "html", str(notebook)]
    subprocess.run(command, check=True, capture_output=True)


def open_exported(page: Page, file: Path, state: Any, token: str) -> None:
    """Open the page without network access: only the content of the file."""
    assert token not in file.read_text()
    page.page.goto(file.as_uri())
    assert page.page.evaluate(READ_STATE) == state
    assert page.page.locator(INJECTED_ELEMENTS).count() == 0
    assert page.page.locator("iframe, object, base, form").count() == 0
    running = page.page.locator("script:not([type*=json])").all_inner_texts()
    assert [script for script in running if "alert(" in script] == []
    assert {address for address in page.external_requests if "evil" in address} == set()
    assert page.dialogs == []
