"""The dashboard as a page of Voila in a real web browser, on a live sandbox."""

from __future__ import annotations

import datetime as dt
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from buildframe.sandbox_server import SCOPES
from buildframe.workspace import Workspace
from tests import worlds
from tests.jupyter.hostile import INJECTED_ELEMENTS, NAMES
from tests.jupyter.lab import Page, voila
from tests.widgets.widget_helpers import wait_until

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "06_a_dashboard.ipynb"
OF_VOILA = "https://cdn.jsdelivr.net/npm/@fortawesome/"
"""Style sheets that Voila's own page requests; the dashboard does not need them."""
GROUND = "() => getComputedStyle(document.body).getPropertyValue('--jp-layout-color1').trim()"
TOO_WIDE = "() => document.documentElement.scrollWidth - document.documentElement.clientWidth"


@pytest.fixture
def ci() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300, world="odd") as workspace:
        for name in NAMES[:4]:
            workspace.pipeline("web").create_build(
                commit="HEAD", branch=name, message=name, ignore_pipeline_branch_filters=True
            )
        workspace.sandbox.push("api", 2)
        workspace.sandbox.clock.advance(dt.timedelta(minutes=1))
        yield workspace


def test_all_widgets_in_both_themes(ci: Workspace, browser: Browser, screenshots: Path, tmp_path: Path) -> None:
    token, key = ci.sandbox.token(SCOPES), secrets.token_hex(16)
    environment = {"BUILDFRAME_URL": ci.sandbox.url, "BUILDFRAME_TOKEN": token, "BUILDFRAME_ORG": "acme"}
    with voila(NOTEBOOK, tmp_path, environment, f"--token={key}") as address:
        page = Page(browser.new_page(viewport={"width": 1200, "height": 1500}), address, screenshots)
        frames = record_frames(page)
        page.page.goto(address)
        log_in(page, key)
        show_running_builds(page, ci)
        select_a_build(page)
        search_flaky_tests(page, ci)
        assert_text_is_escaped(page)
        page.check_accessibility()
        shoot(page, "dashboard-light")
        assert any(NAMES[0] in frame or "alert(1)" in frame for frame in frames)
        assert [frame for frame in frames if token in frame] == []
        assert token not in page.page.content()
        page.page.goto(f"{address}/?theme=dark")
        wait_until(lambda: "Kernel shutdown" in (tmp_path / ".server.log").read_text())  # of the page before
        page.wait("flaky tests of the suite", 60)
        select_a_build(page)
        assert page.page.evaluate(GROUND) == "#212121"
        page.check_accessibility()
        shoot(page, "dashboard-dark")
        assert page.dialogs == []
        assert [address for address in page.external_requests if not address.startswith(OF_VOILA)] == []
        page.page.close()


def record_frames(page: Page) -> list[str]:
    """Record the frames that the websocket receives."""
    frames: list[str] = []

    def keep(payload: Any) -> None:
        frames.append(payload if isinstance(payload, str) else payload.decode("utf-8", "replace"))

    page.page.on("websocket", lambda socket: socket.on("framereceived", keep))
    return frames


def log_in(page: Page, key: str) -> None:
    """Log in with the key of the page."""
    page.page.locator("#password_input").first.fill(key)
    page.page.locator("#login_submit").first.click()
    page.page.get_by_role("heading", name="CI at a glance").wait_for(timeout=60_000)


def part(page: Page, label: str) -> Any:
    return page.find(f".bf-grid[aria-label^='{label}']")


def show_running_builds(page: Page, ci: Workspace) -> None:
    part(page, "Waiting and running builds").locator(".bf-row", has_text="running").first.wait_for(timeout=60_000)
    running = ci.builds(state="running", created_from="1d", progress=False)
    page.find(".bf-hint", has_text=f"{len(running)} builds running").first.wait_for(timeout=30_000)


def select_a_build(page: Page) -> None:
    page.wait("builds, complete", 60)
    part(page, "Builds").last.locator(".bf-body .bf-row", has_text=NAMES[3]).first.click()
    page.find(".bf-properties caption").first.wait_for(timeout=30_000)
    page.find(".bf-grid[aria-label*=Jobs] .bf-body .bf-row").first.wait_for(timeout=30_000)


def search_flaky_tests(page: Page, ci: Workspace) -> None:
    found = ci.flaky_tests("rspec", search="alert", period="28days", progress=False)
    assert len(found)
    page.fill("Name or scope contains", "alert")
    page.press("Search")
    page.wait(re.compile(f"^{len(found)} flaky tests?.*“alert”"), 60)
    shown = part(page, "Flaky tests").locator(".bf-body .bf-name").first
    assert "<script>alert" in shown.get_attribute("title")


def assert_text_is_escaped(page: Page) -> None:
    assert {NAMES[1], NAMES[3]} <= {cell for row in page.rows() for cell in row}
    assert page.find(INJECTED_ELEMENTS).count() == 0


def shoot(page: Page, name: str) -> None:
    for width in (1200, 900):
        page.page.set_viewport_size({"width": width, "height": 3000})
        page.page.screenshot(path=page.screenshots / f"{name}-{width}.png")
        assert page.page.evaluate(TOO_WIDE) == 0
