"""The notebooks in JupyterLab in a real browser, as a user opens them."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = {
    "01_a_month_of_ci.ipynb": (4, ["complete: True", "found api integration", "100%"]),
    "02_where_does_the_time_go.ipynb": (5, ["for agents of 'macos'", "slower beyond chance: integration", "100%"]),
    "03_what_can_no_longer_be_trusted.ipynb": (3, ["web / e2e flips at 11%", "came_back", "100%"]),
    "04_what_the_service_forgets.ipynb": (3, ["equal: True", "integration", "reopened", "100%"]),
    "05_a_report_of_ones_own.ipynb": (2, ["complete", "of its steps integration", "macos surely takes"]),
}
"""How many pictures they show, and words of their outputs."""
DONE = "() => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].at(-1)?.innerText.match(/\\[\\d+\\]/)"
READY = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"


def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        if os.environ.get("CI"):
            pytest.fail("there is no Chromium: apt-get install chromium")
        pytest.skip("there is no Chromium: apt-get install chromium")
    return found


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """JupyterLab on loopback with a copy of the notebooks, their outputs cleared; gives its address and its token."""
    folder = tmp_path / "notebooks"
    shutil.copytree(ROOT / "notebooks", folder, ignore=shutil.ignore_patterns(".*"))
    for name in NOTEBOOKS:
        clear_outputs(folder / name)
    token = secrets.token_hex(16)
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"]
    options = [
        "--LabApp.expose_app_in_browser=True",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
    ]
    homes = {name: str(tmp_path / name) for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")}
    server = subprocess.Popen(
        [*command, *options],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **homes, "IPYTHONDIR": str(tmp_path)},
    )
    try:
        assert server.stderr is not None
        port = next(match[1] for line in server.stderr if (match := re.search(r"http://127.0.0.1:(\d+)/lab", line)))
        yield f"http://127.0.0.1:{port}", token
    finally:
        server.terminate()
        server.wait(30)


def clear_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    path.write_text(json.dumps(notebook))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_top_to_bottom_in_jupyterlab(name: str, lab: tuple[str, str], tmp_path: Path) -> None:
    from playwright.sync_api import sync_playwright

    address, token = lab
    many, words = NOTEBOOKS[name]
    pictures = Path(os.environ.get("BUILDFRAME_SCREENSHOTS", tmp_path))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        page = browser.new_page(viewport={"width": 1200, "height": 9000})
        page.route(lambda url: not url.startswith(address), lambda route: route.abort())
        page.goto(f"{address}/lab/tree/{name}?token={token}")
        page.wait_for_function(READY, timeout=60_000)
        page.evaluate("() => window.jupyterapp.commands.execute('notebook:run-all-cells')")
        last = page.locator(".jp-CodeCell").last.locator(".jp-InputPrompt")
        page.wait_for_function(DONE, timeout=120_000)
        page.wait_for_timeout(1_000)
        page.screenshot(path=pictures / f"{name}.png", full_page=True)
        outputs = page.locator(".jp-OutputArea-output")
        texts = "\n".join(outputs.all_inner_texts())
        assert re.search(r"\[\d+\]", last.inner_text())
        assert page.locator(".jp-OutputArea-output[data-mime-type='application/vnd.jupyter.error']").count() == 0
        assert "Traceback" not in texts
        assert [word for word in words if word not in texts] == []
        assert page.locator(".jp-OutputArea-output .widget-hprogress, .jp-OutputArea-output progress").count() >= 1
        assert page.locator(".jp-OutputArea-output img").count() == many
        browser.close()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_saved_outputs_hold_no_token_and_no_path_of_a_machine(name: str) -> None:
    saved = (ROOT / "notebooks" / name).read_text()
    assert "/home/" not in saved
    assert "/root/" not in saved
    assert "Bearer" not in saved
