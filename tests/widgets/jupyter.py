"""JupyterLab on loopback and a page of it in a headless Chromium, for the tests of widgets."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.test_notebooks import READY, chromium


@contextmanager
def lab(folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Its address and its token; the kernels that it starts have the environment."""
    token = secrets.token_hex(16)
    homes = {
        name: str(folder / f".{name}") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0", "--allow-root"]
    options = [
        "--LabApp.expose_app_in_browser=True",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
    ]
    said = folder / ".lab.log"
    with said.open("w") as log:
        everything = {**os.environ, **homes, "IPYTHONDIR": str(folder / ".ipython"), **environment}
        server = subprocess.Popen([*command, *options], stderr=log, env=everything)
    try:
        yield f"http://127.0.0.1:{port_in(said, server)}", token
    finally:
        server.terminate()
        server.wait(30)


def port_in(said: Path, server: subprocess.Popen[bytes]) -> str:
    while server.poll() is None:
        if match := re.search(r"http://127.0.0.1:(\d+)/lab", said.read_text()):
            return match[1]
    raise AssertionError(said.read_text())


def write_notebook(path: Path, *cells: str) -> None:
    made = [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None, "id": f"c{n}"}
            for n, cell in enumerate(cells)]  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


class Page:
    """A page of the browser; `strangers` are requests to elsewhere, `dialogs` what scripts have opened."""

    def __init__(self, page: Any, address: str, pictures: Path) -> None:
        self.page, self.pictures = page, pictures
        self.strangers: list[str] = []
        self.dialogs: list[str] = []
        page.route(lambda url: not url.startswith((address, "data:", "blob:")), self._refuse)
        page.on("dialog", self._note)

    def _refuse(self, route: Any) -> None:
        self.strangers.append(route.request.url)
        route.abort()

    def _note(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def run_all(self, address: str, token: str, name: str) -> None:
        self.page.goto(f"{address}/lab/tree/{name}?token={token}")
        self.page.wait_for_function(READY, timeout=60_000)
        self.command("application:toggle-left-area")
        self.command("notebook:run-all-cells")

    def command(self, name: str, **arguments: Any) -> None:
        self.page.evaluate("([n, a]) => window.jupyterapp.commands.execute(n, a)", [name, arguments])

    def find(self, selector: str, **more: Any) -> Any:
        """Only inside of outputs: the source of a cell may hold the same words."""
        return self.page.locator(".jp-OutputArea-output").locator(selector, **more)

    def press(self, words: str) -> None:
        self.find("button:visible", has_text=words).first.click()

    def wait(self, words: str | re.Pattern[str], seconds: float = 30) -> str:
        """Until a message holds the words; the message."""
        message = self.find(".bf-told:visible, .bf-failed:visible", has_text=words).first
        message.wait_for(timeout=1000 * seconds)
        return str(message.inner_text())

    def fill(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).first.fill(text)
        self.page.get_by_label(label, exact=True).first.press("Tab")

    def rows(self) -> list[list[str]]:
        return [row.split("\t") for row in self.page.evaluate(ROWS)]

    def choose(self, number: int) -> None:
        self.find(
            ".bf-body .bf-row", has=self.page.locator(".bf-number", has_text=re.compile(f"^{number}$"))
        ).first.click()
        self.find(".bf-facts caption", has_text=re.compile(f"#{number}$")).wait_for(timeout=30_000)

    def shoot(self, name: str) -> None:
        for theme in ("JupyterLab Light", "JupyterLab Dark"):
            self.command("apputils:change-theme", theme=theme)
            self.page.wait_for_timeout(1200)
            self.page.screenshot(path=self.pictures / f"{name}-{theme.split()[1].lower()}.png")
        self.command("apputils:change-theme", theme="JupyterLab Light")


ROWS = """() => [...document.querySelectorAll('.jp-OutputArea-output .bf-body .bf-row')]
    .map(row => [...row.children].map(cell => cell.textContent).join('\\t'))"""


@contextmanager
def browsing(address: str, pictures: Path, width: int = 1200) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        )
        yield Page(browser.new_page(viewport={"width": width, "height": 1500}), address, pictures)
        browser.close()
