"""The explorer of builds in JupyterLab and Voila in a real web browser."""

from __future__ import annotations

import datetime as dt
import json
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from playwright.sync_api import expect

from buildframe import plots
from tests.jupyter.hostile import INJECTED_ELEMENTS, NAMES
from tests.jupyter.lab import Lab, Page, voila, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.long

START = dt.datetime(2026, 11, 2, tzinfo=dt.UTC)
OF_VOILA = "https://cdn.jsdelivr.net/npm/@fortawesome/"  # style sheets of Voila's own page
N = 60
CELL = """import ipywidgets
import pandas as pd
from buildframe import plots
builds = pd.read_pickle("builds.pkl")
explorer = plots.explore(builds)
numbers = ipywidgets.Label("nothing yet")
explorer.observe(lambda change: numbers.set_trait("value", f"numbers {change.new['number'].tolist()}"), "selected")
ipywidgets.VBox([explorer, numbers])"""


def frame(address: str) -> pd.DataFrame:
    """One build an hour, the latest first; the first one has a URL that must not be opened."""
    states = ["passed"] * 6 + ["failed", "canceled", "passed", "failed"]
    created = pd.Series([START + dt.timedelta(hours=k) for k in range(N)], dtype="datetime64[us, UTC]")
    minutes = pd.to_timedelta([3 + (7 * k) % 40 + 300 * (k % 9 == 4) for k in range(N)], unit="min")
    rows = pd.DataFrame(
        {
            "pipeline": [NAMES[k % len(NAMES)] if k % 3 == 0 else "web" for k in range(N)],
            "number": pd.array(range(1, N + 1), "Int64"),
            "branch": [NAMES[k % len(NAMES)] if k % 2 == 0 else "main" for k in range(N)],
            "state": [states[k % len(states)] for k in range(N)],
            "message": [NAMES[-1 - k % len(NAMES)] for k in range(N)],
            "web_url": ["javascript:alert(1)", *(f"{address}/api?build={k + 1}" for k in range(1, N))],
            "created_at": created,
            "finished_at": (created + minutes).where(created.index < N - 3),
            "fetched_at": created.iloc[-1] + dt.timedelta(minutes=50),
        }
    )
    return rows.assign(state=rows["state"].where(rows["finished_at"].notna(), "running")).iloc[::-1]


class Explorer:
    """The explorer in a page; builds are named by their number."""

    def __init__(self, page: Page, builds: pd.DataFrame) -> None:
        sent = plots.explore(builds).get_state(["_points"])["_points"]
        self.page, self.content = page, json.loads(zlib.decompress(sent))
        self.root = page.find(".bf-explorer-root")
        self.root.wait_for(timeout=60_000)
        self.plot, self.status = self.root.locator(".bf-explorer-plot"), self.root.get_by_role("status")

    def place(self, number: float) -> tuple[float, float]:
        """Where a build is in the page; 3.5 is halfway between the third and the fourth."""
        box = self.root.locator(".bf-explorer-area").bounding_box()
        (low, high), first = self.content["range"], int(number) - 1
        created = self.content["created"][first] + (number - int(number)) * 3600e6
        y = box["height"] * (1 - self.content["y"][first])
        return box["x"] + box["width"] * (created - low) / (high - low), box["y"] + y

    def bottom(self) -> float:
        box = self.root.locator(".bf-explorer-area").bounding_box()
        return float(box["y"] + box["height"])

    def drag(self, start: float, end: float) -> None:
        mouse = self.page.page.mouse
        mouse.move(*self.place(start))
        mouse.down()
        mouse.move(*self.place(end), steps=5)
        mouse.up()

    def point_at(self, number: int) -> Any:
        """Return the card with the details of a build."""
        self.page.page.mouse.move(*self.place(number))
        return self.root.locator(".bf-explorer-card")


def test_point_open_and_select(lab: Lab, page: Page) -> None:
    builds = frame(lab.address)
    builds.to_pickle(lab.folder / "builds.pkl")
    write_notebook(lab.folder / "explore.ipynb", CELL)
    lab.set_environment()
    page.run_all("explore.ipynb", height=800)
    explorer = Explorer(page, builds)
    expect(explorer.status).to_contain_text("No period is selected.")
    point_and_click(page, explorer)
    select_by_mouse(page, explorer)
    select_by_keyboard(page, explorer)
    assert page.find(INJECTED_ELEMENTS).count() == 0
    assert (page.dialogs, page.external_requests) == ([], [])


def point_and_click(page: Page, explorer: Explorer) -> None:
    card = explorer.point_at(13)
    name = NAMES[12]
    expect(card).to_contain_text(f"{name} #13")
    assert card.inner_text().split("\n")[1] == "passed, took 7 min"
    assert card.inner_text().split("\n")[3] == "created 2026-11-02 12:00:00 UTC"
    assert f"branch {name}" in card.inner_text()
    expect(explorer.point_at(59)).to_contain_text("running, seen for 1 h 50 min")
    n_tabs = len(page.page.context.pages)
    with page.page.context.expect_page() as popup:
        page.page.mouse.click(*explorer.place(14))
    popup.value.wait_for_load_state()
    assert popup.value.url == explorer.content["url"][13]
    assert popup.value.evaluate("() => window.opener") is None
    popup.value.close()
    page.page.mouse.click(*explorer.place(1))  # javascript:
    x, _ = explorer.place(30)
    page.page.mouse.click(x, explorer.bottom() - 2)  # no build
    explorer.drag(30, 34)
    page.page.get_by_role("button", name="Clear selection").click()
    assert len(page.page.context.pages) == n_tabs


def select_by_mouse(page: Page, explorer: Explorer) -> None:
    explorer.drag(23.5, 10.5)
    expect(explorer.status).to_have_text(
        re.compile(r"^13 builds of 60 selected, created from 2026-11-02 09:\d\d:\d\d to 2026-11-02 22:\d\d:\d\d UTC\.$")
    )
    expect(page.find(".widget-label")).to_have_text(f"numbers {list(range(23, 10, -1))}")
    explorer.point_at(18)
    page.take_screenshots("explore")
    page.page.get_by_role("button", name="Clear selection").click()
    expect(explorer.status).to_contain_text("No period is selected.")
    expect(page.find(".widget-label")).to_have_text(f"numbers {list(range(60, 0, -1))}")


def select_by_keyboard(page: Page, explorer: Explorer) -> None:
    plot, spoken = explorer.plot, explorer.root.locator("[aria-live=polite]")
    expect(plot).to_be_focused()
    expect(plot).to_have_accessible_name(
        re.compile(r"^Plot of builds\. 60 builds created 2026-11-02 00:00 to .*: \d+ passed")
    )
    expect(plot).to_have_accessible_description(re.compile("^Arrow keys move between builds, Enter opens one"))
    for key in ("Home", "ArrowRight"):
        page.page.keyboard.press(key)
    expect(spoken).to_contain_text("web #2")
    with page.page.context.expect_page() as popup:
        page.page.keyboard.press("Enter")
    popup.value.close()
    for _ in range(3):
        page.page.keyboard.press("Shift+ArrowRight")
    expect(explorer.status).to_contain_text("4 builds of 60 selected, created from 2026-11-02 01:00:00 to")
    expect(page.find(".widget-label")).to_have_text("numbers [5, 4, 3, 2]")
    page.page.keyboard.press("Escape")
    expect(explorer.status).to_contain_text("No period is selected.")


def test_it_works_in_voila(browser: Browser, screenshots: Path, tmp_path: Path) -> None:
    builds = frame("http://127.0.0.1")
    builds.to_pickle(tmp_path / "builds.pkl")
    write_notebook(tmp_path / "explore.ipynb", CELL)
    with voila(tmp_path / "explore.ipynb", tmp_path, {}, "--token=") as address:
        page = Page(browser.new_page(viewport={"width": 700, "height": 620}), address, screenshots)
        page.page.goto(f"{address}/?theme=dark")
        explorer = Explorer(page, builds)
        expect(explorer.point_at(13)).to_contain_text("#13")
        explorer.drag(10.5, 23.5)
        expect(page.find(".widget-label")).to_have_text(f"numbers {list(range(23, 10, -1))}")
        page.page.screenshot(path=page.screenshots / "explore-voila-dark.png")
        assert page.dialogs == []
        assert [one for one in page.external_requests if not one.startswith(OF_VOILA)] == []
        page.page.close()
