"""The notebooks in JupyterLab in a real browser, as a user opens them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.widgets.jupyter import READY, Page, browsing, lab, screenshot_folder

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
NOTEBOOKS = {
    "01_a_month_of_ci.ipynb": (4, ["complete: True", "found api integration", "100%"]),
    "02_where_does_the_time_go.ipynb": (5, ["for agents of 'macos'", "significantly slower: integration", "100%"]),
    "03_what_can_no_longer_be_trusted.ipynb": (3, ["web / e2e flips at 11%", "came_back", "100%"]),
    "04_what_the_service_forgets.ipynb": (3, ["equal: True", "integration", "reopened", "100%"]),
    "05_your_own_report.ipynb": (2, ["complete", "steps that changed: integration", "macos significantly exceeds"]),
    "06_a_dashboard.ipynb": (0, ["builds, complete", "running", "flaky tests"]),
}
"""How many images they show, and words of their outputs."""
OUTPUTS = "[...document.querySelectorAll('.jp-OutputArea-output')]"
DONE = "() => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].at(-1)?.innerText.match(/\\[\\d+\\]/)"
SHOWN = f"""([words, many]) => words.every(word => {OUTPUTS}.some(one => one.innerText.includes(word)))
    && document.querySelectorAll('.jp-OutputArea-output img').length === many"""
CLOSE = """async () => {
    const { shell, serviceManager } = window.jupyterapp
    shell.currentWidget.dispose()
    await serviceManager.sessions.shutdownAll()
}"""
PROGRESS = ".jp-OutputArea-output .widget-hprogress, .jp-OutputArea-output progress"
FAILED = ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']"


@pytest.fixture(scope="module")
def lab_page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page of JupyterLab with a copy of the notebooks, their outputs cleared; kernels share the worlds of tests."""
    folder = tmp_path_factory.mktemp("served") / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns(".*"))
    for name in NOTEBOOKS:
        clear_outputs(folder / name)
    screenshots = screenshot_folder(folder.parent)
    environment = {"IPYTHONDIR": os.environ["IPYTHONDIR"]}
    with lab(folder, environment) as (address, token), browsing(address, screenshots, height=9000) as page:
        page.page.goto(f"{address}/lab?token={token}")
        page.page.wait_for_function("() => window.jupyterapp?.restored.then(() => true)", timeout=60_000)
        page.command("application:toggle-left-area")
        yield page


@pytest.fixture
def notebook(request: pytest.FixtureRequest, lab_page: Page) -> Iterator[str]:
    """Open the notebook in the page; close it and end its kernel after the test."""
    try:
        lab_page.command("docmanager:open", path=request.param)
        lab_page.page.wait_for_function(READY, timeout=60_000)
        yield request.param
    finally:
        lab_page.page.evaluate(CLOSE)


def clear_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    path.write_text(json.dumps(notebook))


def test_every_notebook_is_tried() -> None:
    assert {path.name for path in (ROOT / "notebooks").glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("notebook", NOTEBOOKS, indirect=True)
def test_a_notebook_runs_top_to_bottom_in_jupyterlab(notebook: str, lab_page: Page) -> None:
    many, words = NOTEBOOKS[notebook]
    page = lab_page.page
    lab_page.command("notebook:run-all-cells")
    page.wait_for_function(DONE, timeout=120_000)
    assert page.locator(FAILED).count() == 0
    page.wait_for_function(SHOWN, arg=[words, many], timeout=180_000)
    page.screenshot(path=lab_page.screenshots / f"{notebook}.png", full_page=True)
    assert "Traceback" not in "\n".join(page.locator(".jp-OutputArea-output").all_inner_texts())
    assert page.locator(FAILED).count() == 0
    if many:  # a widget's progress goes when all is there
        assert page.locator(PROGRESS).count() >= 1


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_saved_outputs_hold_no_token_and_no_path_of_a_machine(name: str) -> None:
    saved = (ROOT / "notebooks" / name).read_text()
    assert "/home/" not in saved
    assert "/root/" not in saved
    assert "Bearer" not in saved
    assert "widgets" not in json.loads(saved)["metadata"]  # the state of widgets would hold what they showed
