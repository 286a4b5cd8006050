"""The notebooks in JupyterLab in a real browser, as a user opens them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.jupyter.lab import Lab, Page

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
IN_BROWSER = {
    "01_a_month_of_ci.ipynb": (4, ["complete: True", "api integration on", "100%"]),
    "06_a_dashboard.ipynb": (0, ["builds, complete", "running", "flaky tests"]),
    "07_what_if.ipynb": (2, ["off by", "saved by two more agents of macos", "No change.", "100%"]),
}
"""The first one and those with widgets: how many images they show, and words of their outputs. nbval runs all."""
OUTPUTS = "[...document.querySelectorAll('.jp-OutputArea-output')]"
DONE = "() => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].at(-1)?.innerText.match(/\\[\\d+\\]/)"
SHOWN = f"""([words, many]) => words.every(word => {OUTPUTS}.some(one => one.innerText.includes(word)))
    && document.querySelectorAll('.jp-OutputArea-output img').length === many"""
PROGRESS = ".jp-OutputArea-output .widget-hprogress, .jp-OutputArea-output progress"
FAILED = ".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']"


@pytest.fixture(scope="module")
def folder(lab: Lab) -> Path:
    """Copy the notebooks, their outputs cleared."""
    folder = lab.folder / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns(".*"))
    for name in IN_BROWSER:
        clear_outputs(folder / name)
    return folder


def clear_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    path.write_text(json.dumps(notebook))


def test_nbval_compares_outputs_of_every_notebook_that_prints() -> None:
    silent = {"06_a_dashboard.ipynb"}
    assert {name for name in NOTEBOOKS if "nbval-check-output" in (ROOT / "notebooks" / name).read_text()} == {
        *NOTEBOOKS
    } - silent


@pytest.mark.long
@pytest.mark.parametrize("name", IN_BROWSER)
def test_a_notebook_runs_top_to_bottom_in_jupyterlab(name: str, lab: Lab, page: Page, folder: Path) -> None:
    many, words = IN_BROWSER[name]
    lab.set_environment()
    page.run_all(f"{folder.name}/{name}", height=9000)
    page.wait_until(DONE, seconds=120)
    assert page.page.locator(FAILED).count() == 0
    page.wait_until(SHOWN, arg=[words, many], seconds=180)
    page.page.screenshot(path=page.screenshots / f"{name}.png", full_page=True)
    assert "Traceback" not in "\n".join(page.page.locator(".jp-OutputArea-output").all_inner_texts())
    assert page.page.locator(FAILED).count() == 0
    if many:  # a widget's progress goes when all is there
        assert page.page.locator(PROGRESS).count() >= 1


def test_a_page_that_runs_nothing_has_a_screenshot_of_each_widget() -> None:
    with_widgets = set()
    for name in NOTEBOOKS:
        cells = json.loads((ROOT / "notebooks" / name).read_text())["cells"]
        shown = [cell for cell in cells if "".join(cell["source"]).startswith("widgets.")]
        assert all(cell["outputs"] for cell in shown), name
        assert all("image/png" in output["data"] for cell in shown for output in cell["outputs"]), name
        with_widgets |= {name[:2]} if shown else set()
    assert with_widgets == {"06", "07"}


def test_saved_outputs_hold_no_token_and_no_path_of_a_machine() -> None:
    for name in NOTEBOOKS:
        saved = (ROOT / "notebooks" / name).read_text()
        assert [word for word in ("/home/", "/root/", "Bearer") if word in saved] == [], name
        assert "widgets" not in json.loads(saved)["metadata"], name  # their state would hold what they showed
