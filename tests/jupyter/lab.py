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

from tests.chromium import chromium

THEMED = "theme => document.body.dataset.jpThemeName === theme && !document.getElementById('jupyterlab-splash')"
RESTORED = "() => window.jupyterapp?.restored.then(() => true)"
READY = "() => window.jupyterapp?.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'"
CLOSE = """async () => {
    const { shell, serviceManager } = window.jupyterapp
    shell.currentWidget?.dispose()
    await serviceManager.sessions.shutdownAll()
}"""


class Lab:
    """A JupyterLab server; notebooks and files of the test that runs are in the folder."""

    def __init__(self, folder: Path, address: str, token: str) -> None:
        self.folder, self.address, self.token = folder, address, token

    def set_environment(self, **variables: str) -> None:
        """Set environment variables of the kernels that start from now on."""
        command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        kernel = {"argv": command, "display_name": "Python 3", "language": "python", "env": variables}
        path = self.folder / ".JUPYTER_PATH/kernels/python3/kernel.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(kernel))


@contextmanager
def jupyterlab(folder: Path) -> Iterator[Lab]:
    """Run JupyterLab. Its kernels share the worlds of tests."""
    token = secrets.token_hex(16)
    options = [
        "--port=0",
        "--ip=127.0.0.1",
        "--allow-root",
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",  # without requests to the package index
        f"--IdentityProvider.token={token}",
        f"--ServerApp.root_dir={folder}",
    ]
    settings = folder / ".JUPYTER_CONFIG_DIR/lab/user-settings/@jupyterlab/apputils-extension"
    settings.mkdir(parents=True)
    # A notification would cover screenshots. A lookup of updates without an answer would delay the end of the server.
    quiet = {"fetchNews": "false", "checkForUpdates": False}
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(quiet))
    environment = {"IPYTHONDIR": os.environ["IPYTHONDIR"], "JUPYTER_PATH": str(folder / ".JUPYTER_PATH")}
    with serving(["jupyterlab", *options], folder, environment, r"http://127.0.0.1:(\d+)/lab") as port:
        yield Lab(folder, f"http://127.0.0.1:{port}", token)


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
        try:
            server.wait(30)
        finally:
            server.kill()


def find_port(log_file: Path, server: subprocess.Popen[bytes], pattern: str) -> str:
    deadline = time.monotonic() + 120
    while server.poll() is None and time.monotonic() < deadline:
        if match := re.search(pattern, log_file.read_text()):
            return match[1]
        time.sleep(0.05)
    raise AssertionError(log_file.read_text())


KEPT = "BUILDFRAME_SCREENSHOTS"
"""Environment variable with the folder for screenshots that are kept."""


def screenshot_folder(folder: Path) -> Path:
    """Return the folder for screenshots: that of the environment, otherwise this one."""
    kept = Path(os.environ.get(KEPT, folder))
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
        self.theme, self.next_theme = "light", "light"  # of the page, and of its next check
        self._own = (address, "data:", "blob:")
        page.on("request", self._note_request)
        page.on("dialog", self._note)

    def _note_request(self, request: Any) -> None:
        if not request.url.startswith(self._own):
            self.external_requests.append(request.url)

    def _note(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def wait_until(self, condition: str, *, arg: object = None, seconds: float = 60) -> None:
        """Wait until a function of JavaScript returns true, without calling it in each frame of the page."""
        self.page.wait_for_function(condition, arg=arg, polling=100, timeout=1000 * seconds)

    def load(self, lab: Lab, path: str = "") -> None:
        """Load JupyterLab, and hide its list of files."""
        self.page.goto(f"{lab.address}/lab{path}?token={lab.token}")
        self.wait_until(RESTORED)
        self.command("application:toggle-left-area")

    def open(self, name: str, height: int = 1500) -> None:
        """Open a notebook, and wait for its kernel."""
        self.page.set_viewport_size({"width": 1200, "height": height})
        self.command("docmanager:open", path=name)
        self.wait_until(READY)

    def close(self) -> None:
        """Close the notebook, if one is open, end all kernels, and return to the light theme."""
        self.page.evaluate(CLOSE)
        self.set_theme("light")
        self.external_requests.clear()
        self.dialogs.clear()

    def run_all(self, name: str, height: int = 1500) -> None:
        self.open(name, height)
        self.command("notebook:run-all-cells")

    def run_all_alone(self, lab: Lab, name: str, height: int = 3200) -> None:
        """Load JupyterLab with a notebook in its own workspace, which opens again when the page is reloaded.

        The page has room for all cells, because JupyterLab draws only those in view.
        """
        self.page.set_viewport_size({"width": 1200, "height": height})
        self.load(lab, f"/workspaces/{Path(name).stem}/tree/{name}")
        self.wait_until(READY)
        self.command("notebook:run-all-cells")

    def save(self) -> None:
        """Save the notebook, and wait until it is saved."""
        self.command("docmanager:save")
        self.wait_until("() => !window.jupyterapp.shell.currentWidget.context.model.dirty")

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
        """Take one in each theme if they are kept. The next check of accessibility is in the other theme."""
        other = other_theme(self.next_theme)
        if KEPT in os.environ:
            for theme in (self.theme, other_theme(self.theme)):
                self.set_theme(theme)
                self.page.screenshot(path=self.screenshots / f"{name}-{theme}.png")
        self.next_theme = other

    def check_accessibility(self) -> None:
        """Check that axe-core finds no serious or critical violation in the outputs, and no id that occurs twice."""
        from axe_playwright_python.sync_playwright import Axe

        self.set_theme(self.next_theme)
        options = {"resultTypes": ["violations", "incomplete"]}
        found = Axe().run(self.page, ".jp-OutputArea-output", options).response
        rules = [rule for rule in found["violations"] if rule["impact"] in ("serious", "critical")]
        rules += [rule for rule in found["incomplete"] if rule["id"] == "duplicate-id-aria"]
        problems = [f"{rule['id']}: {node['html']}" for rule in rules for node in rule["nodes"]]
        assert not problems, "\n".join(problems)

    def set_theme(self, theme: str) -> None:
        """Change the theme and wait for it, because input may be lost meanwhile."""
        if theme != self.theme:
            named = f"JupyterLab {theme.title()}"
            self.command("apputils:change-theme", theme=named)
            self.wait_until(THEMED, arg=named)
        self.theme = self.next_theme = theme


def other_theme(theme: str) -> str:
    return {"light": "dark", "dark": "light"}[theme]


ROWS = """() => [...document.querySelectorAll('.jp-OutputArea-output .bf-body .bf-row')]
    .map(row => [...row.children].map(cell => cell.matches('.bf-name, .bf-path') ? cell.title : cell.textContent))
    .map(cells => cells.join('\\t'))"""
