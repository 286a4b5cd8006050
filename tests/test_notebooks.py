"""The notebooks in JupyterLab in a real browser, as a user opens them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.widgets.jupyter import browsing, lab, screenshot_folder

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
PROGRESS = ".jp-OutputArea-output .widget-hprogress, .jp-OutputArea-output progress"
FAILED = ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """JupyterLab with a copy of the notebooks, their outputs cleared; its address and its token."""
    folder = tmp_path_factory.mktemp("served") / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns(".*"))
    for name in NOTEBOOKS:
        clear_outputs(folder / name)
    with lab(folder, {}) as place:
        yield place


def clear_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    path.write_text(json.dumps(notebook))


def test_every_notebook_is_tried() -> None:
    assert {path.name for path in (ROOT / "notebooks").glob("*.ipynb")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_top_to_bottom_in_jupyterlab(name: str, served: tuple[str, str], tmp_path: Path) -> None:
    address, token = served
    many, words = NOTEBOOKS[name]
    screenshots = screenshot_folder(tmp_path)
    with browsing(address, screenshots, height=9000) as lab_page:
        lab_page.run_all(address, token, name)
        page = lab_page.page
        page.wait_for_function(DONE, timeout=120_000)
        assert page.locator(FAILED).count() == 0
        page.wait_for_function(SHOWN, arg=[words, many], timeout=180_000)
        page.screenshot(path=screenshots / f"{name}.png", full_page=True)
        assert "Traceback" not in "\n".join(page.locator(".jp-OutputArea-output").all_inner_texts())
        assert page.locator(FAILED).count() == 0
        if many:  # a widget's progress goes when all is there
            assert page.locator(PROGRESS).count() >= 1
        page.evaluate("() => window.jupyterapp.serviceManager.sessions.shutdownAll()")


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_saved_outputs_hold_no_token_and_no_path_of_a_machine(name: str) -> None:
    saved = (ROOT / "notebooks" / name).read_text()
    assert "/home/" not in saved
    assert "/root/" not in saved
    assert "Bearer" not in saved
    assert "widgets" not in json.loads(saved)["metadata"]  # the state of widgets would hold what they showed
