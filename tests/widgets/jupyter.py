"""Run JupyterLab or Voila on loopback, and control a page of it in headless Chromium."""

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
    """Run JupyterLab; yield its address and its token. Its kernels get the environment."""
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
    # Otherwise a notification covers screenshots.
    (settings / "notification.jupyterlab-settings").write_text('{"fetchNews": "false"}')
    with serving(["jupyterlab", *options], folder, environment, r"http://127.0.0.1:(\d+)/lab") as port:
        yield f"http://127.0.0.1:{port}", token


@contextmanager
def voila(notebook: Path, folder: Path, environment: Mapping[str, str], *options: str) -> Iterator[str]:
    """Serve a notebook with Voila; yield its address. The log is `.server.log` in the folder."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        chosen = free.getsockname()[1]
    command = ["voila", str(notebook), "--Voila.ip=127.0.0.1", f"--port={chosen}", "--Voila.port_retries=0", *options]
    with serving(command, folder, environment, r"http://127.0.0.1:(\d+)/") as port:
        yield f"http://127.0.0.1:{port}"


@contextmanager
def serving(module: list[str], folder: Path, environment: Mapping[str, str], pattern: str) -> Iterator[str]:
    """Run a Jupyter server; yield its port, which its log contains in the form `pattern`. Needs a web browser."""
    chromium()
    homes = {
        name: str(folder / f".{name}") for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
    }
    log_file = folder / ".server.log"
    with log_file.open("w") as log:
        everything = {**os.environ, **homes, "IPYTHONDIR": str(folder / ".ipython"), **environment}
        command = [sys.executable, "-m", *module, "--no-browser"]
        server = subprocess.Popen(command, stdout=log, stderr=log, env=everything)
    try:
        yield find_port(log_file, server, pattern)
    finally:
        server.terminate()
        server.wait(30)


def find_port(log_file: Path, server: subprocess.Popen[bytes], pattern: str) -> str:
    deadline = time.monotonic() + 120
    while server.poll() is None and time.monotonic() < deadline:
        if match := re.search(pattern, log_file.read_text()):
            return match[1]
        time.sleep(0.05)
    raise AssertionError(log_file.read_text())


def screenshot_folder(folder: Path) -> Path:
    """Return the folder for screenshots: BUILDFRAME_SCREENSHOTS if it is set, otherwise this one."""
    kept = Path(os.environ.get("BUILDFRAME_SCREENSHOTS", folder))
    kept.mkdir(parents=True, exist_ok=True)
    return kept


def write_notebook(path: Path, *cells: str) -> None:
    made = [{"cell_type": "code", "source": cell, "metadata": {}, "outputs": [], "execution_count": None, "id": f"c{n}"}
            for n, cell in enumerate(cells)]  # fmt: skip
    kernel = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    path.write_text(json.dumps({"cells": made, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}))


class Page:
    """A page of the browser; `external_requests` go to other addresses, and scripts have opened `dialogs`."""

    def __init__(self, page: Any, address: str, screenshots: Path) -> None:
        self.page, self.screenshots = page, screenshots
        self.external_requests: list[str] = []
        self.dialogs: list[str] = []
        page.route(lambda url: not url.startswith((address, "data:", "blob:")), self._refuse)
        page.on("dialog", self._note)

    def _refuse(self, route: Any) -> None:
        self.external_requests.append(route.request.url)
        route.abort()

    def _note(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def run_all(self, address: str, token: str, name: str) -> None:
        workspace = Path(name).stem  # in which no other notebook is open
        self.page.goto(f"{address}/lab/workspaces/{workspace}/tree/{name}?token={token}")
        self.page.wait_for_function(READY, timeout=60_000)
        self.command("application:toggle-left-area")
        self.command("notebook:run-all-cells")

    def command(self, name: str, **arguments: Any) -> None:
        """Run a command of JupyterLab until it ends, without its result, which may be a whole widget."""
        self.page.evaluate("async ([n, a]) => { await window.jupyterapp.commands.execute(n, a) }", [name, arguments])

    def find(self, selector: str, **more: Any) -> Any:
        """Find elements in outputs only, because the source of a cell may contain the same text."""
        return self.page.locator(".jp-OutputArea-output").locator(selector, **more)

    def press(self, words: str) -> None:
        self.find("button:visible", has_text=words).first.click()

    def wait(self, words: str | re.Pattern[str], seconds: float = 30) -> str:
        """Wait for a message that contains the text, and return it."""
        message = self.find(".bf-status:visible, .bf-error:visible", has_text=words).first
        message.wait_for(timeout=1000 * seconds)
        return str(message.inner_text())

    def fill(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).first.fill(text)
        self.page.get_by_label(label, exact=True).first.press("Tab")

    def rows(self) -> list[list[str]]:
        return [row.split("\t") for row in self.page.evaluate(ROWS)]

    def select(self, number: int) -> None:
        self.find(
            ".bf-body .bf-row", has=self.page.locator(".bf-number", has_text=re.compile(f"^{number}$"))
        ).first.click()
        self.find(".bf-properties caption", has_text=re.compile(f"#{number}$")).wait_for(timeout=30_000)

    def take_screenshots(self, name: str) -> None:
        for theme in ("light", "dark"):
            self.set_theme(theme)
            self.page.screenshot(path=self.screenshots / f"{name}-{theme}.png")
        self.set_theme("light")

    def set_theme(self, theme: str) -> None:
        """Change the theme and wait for it, because input may be lost meanwhile."""
        named = f"JupyterLab {theme.title()}"
        self.command("apputils:change-theme", theme=named)
        self.page.wait_for_function(THEMED, arg=named)


ROWS = """() => [...document.querySelectorAll('.jp-OutputArea-output .bf-body .bf-row')]
    .map(row => [...row.children].map(cell => cell.textContent).join('\\t'))"""


@contextmanager
def browsing(address: str, screenshots: Path, width: int = 1200, height: int = 1500) -> Iterator[Page]:
    with launched() as browser:
        yield Page(browser.new_page(viewport={"width": width, "height": height}), address, screenshots)
