"""What a user sees first, in a real web browser: a widget and a plot in JupyterLab, and the page of a report.

These are the tests of this folder that run in the first lane, so one notebook and one small world serve them.
"""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

import buildframe as bf
from buildframe import report
from buildframe.sandbox_server import SCOPES
from buildframe.workspace import Workspace
from tests import worlds
from tests.jupyter.lab import Lab, Page, write_notebook

if TYPE_CHECKING:
    from playwright.sync_api import Browser

CELLS = (
    """import buildframe as bf
from buildframe import plots, widgets
ci = bf.connect("acme")""",
    'widgets.BuildBrowser(ci, created_from="1d")',
    'plots.trend(ci.builds(created_from="14d", progress=False), col="pipeline");',
)
PLOT = ".jp-OutputArea-output img"
IS_DRAWN = f"() => document.querySelector('{PLOT}')?.naturalWidth > 0"
LINE_COLOR = (0, 114, 178)
TOO_WIDE = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
IMAGE_SIZES = """[...document.querySelectorAll('img')].filter(it => it.offsetParent)
    .map(it => [it.clientWidth, it.clientHeight, it.naturalWidth])"""


@pytest.fixture(scope="module")
def ci() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        yield workspace


@pytest.fixture(scope="module")
def notebook(ci: Workspace, lab: Lab, loaded_page: Page) -> Iterator[Page]:
    """A notebook whose cells have run: the second one shows a widget, the third one a plot."""
    write_notebook(lab.folder / "first.ipynb", *CELLS)
    lab.set_environment(BUILDFRAME_URL=ci.sandbox.url, BUILDFRAME_TOKEN=ci.sandbox.token(SCOPES))
    loaded_page.run_all("first.ipynb", height=2500)
    yield loaded_page
    loaded_page.close()


def test_a_widget_shows_its_rows_and_a_click_opens_a_build(ci: Workspace, notebook: Page) -> None:
    builds = ci.builds(created_from="1d", progress=False)
    notebook.wait(f"{len(builds)} builds, complete", 60)
    columns = ["number", "state", "pipeline", "branch"]
    assert [row[:4] for row in notebook.rows()] == builds[columns].astype(str).to_numpy().tolist()
    number = int(builds["number"].iloc[3])
    notebook.select(number)
    build = builds.iloc[3]
    properties = notebook.find(".bf-properties").inner_text()
    assert [text for text in (build["state"], build["branch"], build["commit"]) if text not in properties] == []
    assert notebook.find(".bf-grid[aria-label*=Jobs] .bf-body .bf-row").count() > 0
    assert (notebook.dialogs, notebook.external_requests) == ([], [])


def test_a_plot_for_each_pipeline_is_drawn_as_jupyter_shows_it(notebook: Page) -> None:
    """The kernel cuts the figure to what is drawn, and the page fits the image into the width of the output."""
    notebook.wait_until(IS_DRAWN)
    shown = notebook.page.locator(PLOT)
    png = base64.b64decode(shown.get_attribute("src").removeprefix("data:image/png;base64,"))
    image = np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)
    height, width, _ = image.shape
    assert 900 < width < 1500
    assert 500 < height < 1200
    box = shown.bounding_box()
    assert 700 < box["width"] <= width
    assert abs(box["height"] / box["width"] - height / width) < 0.01
    is_ink = (image != image[0, 0]).any(axis=2)
    assert 0.01 < is_ink.mean() < 0.2
    assert not any(edge.any() for edge in (is_ink[0], is_ink[-1], is_ink[:, 0], is_ink[:, -1])), "nothing is cut off"
    is_line = (abs(image - LINE_COLOR) < 8).all(axis=2)
    cells = [cell for row in np.array_split(is_line, 3) for cell in np.array_split(row, 3, axis=1)]
    assert [bool(cell.sum() > 100) for cell in cells] == 6 * [True] + [False, True, False]


def test_the_page_of_a_report_can_be_read(ci: Workspace, browser: Browser, tmp_path: Path) -> None:
    """Its style sheet and its images, which its own policy has to allow, are applied, and it requests nothing else."""
    bf.Store(tmp_path / "store").sync(ci, since="5d", progress=False)
    path = tmp_path / "report.html"
    path.write_text(report.render(report.read(tmp_path / "store", days=2)), encoding="utf-8")
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    problems: list[str] = []
    requests: list[str] = []
    page.on("console", lambda message: problems.append(message.text))
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    assert page.title() == "CI of acme, Wed 28 to Thu 29 Oct 2026"
    assert page.locator("h1").inner_text().startswith("CI of acme")
    assert page.get_by_text("COMPLETE", exact=False).first.bounding_box()["y"] < 200
    assert page.evaluate(TOO_WIDE) == 0
    assert page.evaluate("getComputedStyle(document.querySelector('td')).fontVariantNumeric") == "tabular-nums"
    sizes = page.evaluate(IMAGE_SIZES)
    assert len(sizes) == 4
    assert [size for size in sizes if not 300 < size[0] <= size[2] or not size[1] > 100] == []
    assert page.locator("table").count() > 8
    assert problems == []
    assert [url for url in requests if not url.startswith(("file:", "data:"))] == []
    page.close()
