"""JupyterLab or Voila on loopback and a page of it in a headless Chromium, for the tests of widgets."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.chromium import chromium, launched

THEMED = "theme => document.body.dataset.jpThemeName === theme && !document.getElementById('jupyterlab-splash')"
READY = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"


@contextmanager
def lab(folder: Path, environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Its address and its token; the kernels that it starts have the environment."""
    token = secrets.token_hex(16)
    options = [
        "--port=0",
        "--ip=127.0.0.1",
        "--allow-root",
        "--LabApp.expose_app_in_browser=True",
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
    ]
    settings = folder / ".JUPYTER_CONFIG_DIR/lab/user-settings/@jupyterlab/apputils-extension"
    settings.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')  # else it asks, amid pictures
    with serving(["jupyterlab", *options], folder, environment, r"http://127.0.0.1:(\d+)/lab") as port:
        yield f"http://127.0.0.1:{port}", token


@contextmanager
def voila(notebook: Path, folder: Path, environment: Mapping[str, str], *options: str) -> Iterator[str]:
    """The address at which Voila serves a notebook; what it says goes to `.server.log` in the folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        chosen = free.getsockname()[1]
    command = ["voila", str(notebook), "--Voila.ip=127.0.0.1", f"--port={chosen}", "--Voila.port_retries=0", *options]
    with serving(command, folder, environment, r"http://127.0.0.1:(\d+)/") as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def serving(module: list[str], folder: Path, environment: Mapping[str, str], told: str) -> Iterator[str]:
    """The port of a server of Jupyter, which it tells as `told` describes; none is started without a browser."""
    chromium()
    homes = {
        name: str(folder / f".{name}") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    said = folder / ".server.log"
    with said.open("w") as log:
        everything = {**os.environ, **homes, "IPYTHONDIR": str(folder / ".ipython"), **environment}
        command = [sys.executable, "-m", *module, "--no-browser"]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=everything)
    try:
        yield port_in(said, server, told)
    finally:
        server.terminate()
        server.wait(30)


def port_in(said: Path, server: subprocess.Popen[bytes], told: str) -> str:
    deadline = time.monotonic() + 120
    while server.poll() is None and time.monotonic() < deadline:
        if match := re.search(told, said.read_text()):
            return match[1]
        time.sleep(0.05)
    raise AssertionError(said.read_text())


def pictures_in(folder: Path) -> Path:
    """Where screenshots are kept: where BUILDFRAME_SCREENSHOTS says, else in the folder."""
    kept = Path(os.environ.get("BUILDFRAME_SCREENSHOTS", folder))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


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
        workspace = Path(name).stem  # one of its own, in which no other notebook is open
        self.page.goto(f"{address}/lab/workspaces/{workspace}/tree/{name}?token={token}")
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
        for theme in ("light", "dark"):
            self.wear(theme)
            self.page.screenshot(path=self.pictures / f"{name}-{theme}.png")
        self.wear("light")

    def wear(self, theme: str) -> None:
        """Change to the theme, and wait until it is there: what is typed meanwhile may be lost."""
        named = f"JupyterLab {theme.title()}"
        self.command("apputils:change-theme", theme=named)
        self.page.wait_for_function(THEMED, arg=named)


ROWS = """() => [...document.querySelectorAll('.jp-OutputArea-output .bf-body .bf-row')]
    .map(row => [...row.children].map(cell => cell.textContent).join('\\t'))"""


@contextmanager
def browsing(address: str, pictures: Path, width: int = 1200, height: int = 1500) -> Iterator[Page]:
    with launched() as browser:
        yield Page(browser.new_page(viewport={"width": width, "height": height}), address, pictures)
