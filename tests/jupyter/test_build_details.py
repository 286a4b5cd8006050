"""Buttons, details and form in JupyterLab in a real web browser, operated by keyboard."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from buildframe.sandbox_server import SCOPES
from buildframe.workspace import Workspace
from tests import worlds
from tests.jupyter.lab import Lab, Page, write_notebook
from tests.widgets.widget_helpers import BLOCK_STEPS

pytestmark = pytest.mark.long

HOSTILE = "<img src=x onerror=alert(1)>"
SETUP = """import buildframe as bf
from buildframe import widgets
from buildframe.widgets.build_details import BuildDetails
from buildframe.widgets.create_build_form import CreateBuildForm
ws = bf.connect("acme")"""


@pytest.fixture
def ci(tmp_path: Path) -> Iterator[Workspace]:
    with worlds.sandbox(builds=300, path=tmp_path / "sandbox.db", world="odd") as workspace:
        workspace.sandbox.push("web")
        repository = "git@git.example.com:acme/x.git"
        workspace.create_pipeline(name="Gate", cluster_id=None, repository=repository, configuration=BLOCK_STEPS)
        workspace.pipeline("gate").create_build(commit="HEAD", branch="main")
        workspace.sandbox.clock.advance(dt.timedelta(minutes=2))
        yield workspace


def number_of(ci: Workspace, state: str) -> int:
    return int(ci.pipeline("web").builds(created_from="30d", state=state, progress=False)["number"].iloc[0])


def test_operation_by_keyboard(ci: Workspace, lab: Lab, page: Page) -> None:
    running, failed, passed = (number_of(ci, state) for state in ("running", "failed", "passed"))
    notebook = lab.folder / "detail.ipynb"
    write_notebook(
        notebook,
        SETUP,
        f'widgets.actions(ws.pipeline("web").build({running}))',
        f'widgets.actions(ws.pipeline("web").build({passed}))',
        f'detail = BuildDetails(ws)\ndetail.load("web", {failed})\ndetail',
        "CreateBuildForm(ws)",
        'blocked = BuildDetails(ws)\nblocked.load("gate", 1)\nblocked',
    )
    token = ci.sandbox.token(SCOPES)
    lab.set_environment(BUILDFRAME_URL=ci.sandbox.url, BUILDFRAME_TOKEN=token)
    page.run_all(notebook.name, height=2400)
    page.find(".bf-field-commit input").wait_for(timeout=60_000)
    page.find(".bf-timeline-bars").nth(1).wait_for(timeout=60_000)
    cancel(page, ci, running)
    rebuild(page, ci, passed)
    open_a_log(page)
    create(page, ci)
    unblock(page, ci)
    page.take_screenshots("detail")
    page.page.set_viewport_size({"width": 720, "height": 3000})
    page.take_screenshots("detail-720")
    page.check_accessibility()
    page.save()
    assert (page.dialogs, page.external_requests) == ([], [])
    assert token not in notebook.read_text()


def focused(page: Page) -> str:
    return str(page.page.evaluate("() => document.activeElement.textContent"))


def tab_to(page: Page, words: str) -> None:
    """Press Tab until the button with this label has the focus."""
    for _ in range(80):
        if focused(page).startswith(words) and page.page.evaluate("() => document.activeElement.tagName") == "BUTTON":
            return
        page.page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {words!r}")


def wait_focus(page: Page, words: str) -> None:
    page.wait_until("words => document.activeElement.textContent.startsWith(words)", arg=words)


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.page.keyboard.press(key)


def cancel(page: Page, ci: Workspace, number: int) -> None:
    page.find("button:visible", has_text="Rebuild").first.focus()
    press(page, "Shift+Tab")
    assert focused(page) == "Cancel…"
    press(page, "Enter")
    page.wait(f"Cancel build web #{number}?")
    wait_focus(page, "Keep running")
    page.take_screenshots("detail-question")
    page.find("button:visible", has_text="Keep running").focus()
    press(page, "Escape")
    wait_focus(page, "Cancel…")
    assert page.find(".bf-yes:visible").count() == 0
    assert ci.pipeline("web").build(number).state == "running"
    press(page, "Enter")
    wait_focus(page, "Keep running")
    press(page, "Shift+Tab")
    assert focused(page) == "Yes, cancel it"
    press(page, "Enter")
    page.wait(f"web #{number} is canceled")
    wait_focus(page, "Rebuild")
    assert ci.pipeline("web").build(number).state == "canceled"


def rebuild(page: Page, ci: Workspace, number: int) -> None:
    """Press Enter twice, which creates one build; the next time a confirmation appears."""
    page.page.keyboard.press("Tab")
    tab_to(page, "Rebuild")
    press(page, "Enter", "Enter")
    again = re.search(r"web #(\d+) was created", page.wait("was created"))
    assert again
    assert ci.pipeline("web").build(int(again[1])).rebuilt_from.number == number
    if page.find(".bf-no:visible").count() == 0:
        tab_to(page, "Rebuild again…")
        press(page, "Enter")
    page.wait("Rebuild it again?")
    wait_focus(page, "No")
    press(page, "Enter")
    wait_focus(page, "Rebuild again…")
    made = ci.pipeline("web").builds(created_from="1h", progress=False)
    assert (made["rebuilt_from"] == number).sum() == 1


def open_a_log(page: Page) -> None:
    page.find(".bf-jobs .bf-grid").first.focus()
    for key, state in (("ArrowDown", "passed"), ("Home", "failed")):
        press(page, key)
        page.find(f".bf-jobs [aria-selected=true] [data-state={state}]").wait_for()
        name = page.find(".bf-jobs [aria-selected=true] .bf-text").first.inner_text()
        page.find("button:enabled", has_text=f"Show log: {name}").wait_for()
    tab_to(page, f"Show log: {name}")
    press(page, "Enter")
    log = page.page.get_by_role("region", name=f"Log of {name}")
    log.wait_for()
    assert "<config>" in log.inner_text()
    assert log.evaluate("log => Math.abs(log.scrollTop) < 2 && log.scrollHeight > log.clientHeight")
    search_the_log(page, log)
    for name in ("^Timeline of web #", "^What web #.* spent its time on: .* in all"):
        assert page.page.get_by_role("img", name=re.compile(name)).count() == 1


def search_the_log(page: Page, log: Any) -> None:
    """Jump from match to match, also into a folded group, and to the lines with errors."""
    page.find("details:not([open]) summary", has_text="Prepare the checkout").wait_for()
    search = page.page.get_by_label("Search this log").first
    search.fill("GIT CHECKOUT")
    status = page.find(".bf-log-tools-status").first
    status.get_by_text("1 match", exact=True).wait_for()
    assert page.page.evaluate("() => [...CSS.highlights.get('bf-match')].map(String)") == ["git checkout"]
    press(page, "Enter")
    status.get_by_text("Match 1 of 1").wait_for()
    page.find("details[open] summary", has_text="Prepare the checkout").wait_for()
    page.wait_until(IS_MATCH_VISIBLE)
    search.fill("no such text")
    status.get_by_text("0 matches").wait_for()
    page.page.get_by_label("Next error line").first.click()
    error = page.find(".bf-current-error")
    assert error.inner_text() == "1 failure: expected 3, got <b>4</b>"
    assert error.locator(".bf-fg-1").inner_text() == "1 failure"
    status.get_by_text("Error line 1 of 2").wait_for()
    page.press("Fold all")
    page.find("details[open]").first.wait_for(state="detached")
    page.press("Unfold all")
    assert log.locator("details:not([open])").count() == 0
    page.check_accessibility()


IS_MATCH_VISIBLE = """() => {
    const [range] = CSS.highlights.get('bf-current-match');
    const log = document.querySelector('.bf-log').getBoundingClientRect();
    const { top, bottom } = range.getBoundingClientRect();
    return top >= log.top && bottom <= log.bottom }"""


def described(page: Page, label: str) -> str:
    """Return the description of an input for screen readers."""
    message = "field => document.getElementById(field.getAttribute('aria-describedby')).textContent"
    return str(page.page.get_by_label(label, exact=True).evaluate(message))


def create(page: Page, ci: Workspace) -> None:
    page.page.get_by_label("Pipeline", exact=True).focus()
    page.page.keyboard.type("web")
    tab_to(page, "Create this build")
    press(page, "Enter")
    page.wait("Nothing was sent. Correct 1 marked field")
    page.wait_until("() => document.activeElement.getAttribute('aria-invalid') === 'true'")
    assert described(page, "Branch") == "Branch is missing"
    page.take_screenshots("detail-form")
    page.page.get_by_label("Branch", exact=True).focus()
    page.page.keyboard.type(HOSTILE)
    assert page.page.get_by_label("Branch", exact=True).input_value() == HOSTILE
    page.find(".bf-field-branch [aria-invalid=false]").wait_for()
    assert described(page, "Branch").startswith("Required: branch")
    tab_to(page, "More options")
    press(page, "Enter")
    page.check_accessibility()
    page.page.get_by_label("Build branches that the pipeline filters out", exact=True).select_option("yes")
    tab_to(page, "Create this build")
    press(page, "Enter")
    message = page.wait(re.compile(r"^Build #\d+ was created"))
    build = ci.pipeline("web").build(int(re.search(r"#(\d+)", message)[1]))
    assert (build.branch, build.commit) == (HOSTILE, "HEAD")
    assert page.page.get_by_label("Branch", exact=True).input_value() == ""


def unblock(page: Page, ci: Workspace) -> None:
    """Open the form of a block step, fill in its fields, and submit it."""
    tab_to(page, "Unblock Deploy?…")
    press(page, "Enter")
    page.page.get_by_label("Reason", exact=True).wait_for()
    page.wait_until("() => document.activeElement.matches('.bf-unblock-fields input')")
    page.page.keyboard.type("It works")
    page.page.get_by_label("Region", exact=True).select_option("America")
    page.take_screenshots("detail-unblock")
    tab_to(page, "Unblock")
    press(page, "Enter")
    page.wait("was unblocked with 2 values.")
    build = ci.pipeline("gate").build(1)
    assert build.meta_data == {"reason": "It works", "region": "us"}
    assert build.state == "running"
