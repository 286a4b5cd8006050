"""Widgets when a cell runs again, the kernel restarts, or the page is reloaded or closed."""

from __future__ import annotations

import ast
import datetime as dt
import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from buildframe.sandbox_server import SCOPES, Fault
from buildframe.workspace import Workspace
from tests import worlds
from tests.jupyter.lab import READY, Lab, Page, write_notebook
from tests.widgets.widget_helpers import wait_until

pytestmark = pytest.mark.long

CELLS = (
    """import os, threading
import buildframe as bf
from buildframe import widgets
ci = bf.connect("acme")
monitors, browsers = globals().get("monitors", []), globals().get("browsers", [])
def beat():
    for monitor in monitors:
        if monitor.is_refreshing:
            monitor._on_timer()
def answered():
    return monitors[-1].table.pong == monitors[-1].table.ping
def read_status():
    return {
        "pid": os.getpid(),
        "on": [monitor.is_refreshing for monitor in monitors],
        "messages": [monitor.status.value for monitor in monitors],
        "busy": [browser.stop_button.disabled is False for browser in browsers],
        "threads": [thread.name for thread in threading.enumerate() if thread.name.startswith("buildframe")],
    }""",
    "monitors.append(widgets.BuildMonitor(ci))\nmonitors[-1]",
    "browsers.append(widgets.BuildBrowser(ci))\nbrowsers[-1]",
)
NAME = "kernels.ipynb"
RUN = "() => [...document.querySelectorAll('.jp-CodeCell .jp-InputPrompt')].at(-1)?.innerText === '[{}]:'"


class Kernel:
    """A second connection to the kernel, and the number of requests that the sandbox received."""

    def __init__(self, folder: Path, ci: Workspace) -> None:
        self.folder, self.ci = folder, ci
        self.control = ci.sandbox.token(["sandbox"])
        ci.sandbox.fault(Fault("latency", seconds=0))  # which counts all requests

    def read_status(self, expression: str = "read_status()") -> Any:
        (file,) = (self.folder / ".JUPYTER_RUNTIME_DIR").glob("kernel-*.json")
        client = BlockingKernelClient(connection_file=str(file))
        client.load_connection_file()
        client.start_channels()
        try:
            client.wait_for_ready(timeout=30)
            answer = client.execute(
                "", user_expressions={"value": expression}, store_history=False, reply=True, timeout=30
            )
        finally:
            client.stop_channels()
        return ast.literal_eval(answer["content"]["user_expressions"]["value"]["data"]["text/plain"])

    def requests(self) -> int:
        headers = {"Authorization": f"Bearer {self.control}"}
        request = urllib.request.Request(f"{self.ci.sandbox.url}/sandbox/faults", headers=headers)
        with urllib.request.urlopen(request, timeout=30) as response:
            (fault,) = json.load(response)
        return int(fault["happened"])

    def rests(self) -> bool:
        """Return whether no thread runs and nothing loads."""
        status = self.read_status()
        return status["threads"] == [] and not any(status["busy"])


@pytest.fixture
def ci() -> Iterator[Workspace]:
    with worlds.sandbox(builds=300) as workspace:
        workspace.sandbox.push("web", 2)
        workspace.sandbox.clock.advance(dt.timedelta(minutes=1))
        yield workspace


def test_widgets_stop_with_their_page(ci: Workspace, lab: Lab, own_page: Page) -> None:
    write_notebook(lab.folder / NAME, *CELLS)
    lab.set_environment(BUILDFRAME_URL=ci.sandbox.url, BUILDFRAME_TOKEN=ci.sandbox.token(SCOPES))
    kernel = Kernel(lab.folder, ci)
    own_page.run_all_alone(lab, NAME)
    run_to(own_page, 3)
    run_again(own_page, kernel)
    restart(own_page, kernel)
    load_page_again(own_page, kernel)
    close_page(own_page, kernel)


def run_to(page: Page, count: int) -> None:
    """Wait until the last cell has this execution count, and builds are loaded."""
    page.wait_until(RUN.replace("{}", str(count)))
    page.wait("builds, complete", 60)


def run_again(page: Page, kernel: Kernel) -> None:
    """Run the cells again: the widgets before stop, because nothing displays them."""
    page.command("notebook:run-all-cells")
    run_to(page, 6)
    wait_until(lambda: kernel.read_status()["on"] == [False, True])
    wait_until(kernel.rests)
    assert "Stopped because the widget was not displayed" in kernel.read_status()["messages"][0]


def restart(page: Page, kernel: Kernel) -> None:
    """Restart the kernel: buttons of the old widgets send nothing, and new widgets work."""
    pid = kernel.read_status()["pid"]
    page.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.restartKernel()")
    page.wait_until(READY)
    assert not Path(f"/proc/{pid}").exists()
    before = kernel.requests()
    page.press("Load")
    page.press("Refresh now")
    assert page.find(".bf-body .bf-row").count() > 0
    assert kernel.requests() == before
    page.command("notebook:run-all-cells")
    run_to(page, 3)
    wait_until(kernel.rests)
    status = kernel.read_status()
    assert (status["pid"] == pid, len(status["on"])) == (False, 1)
    assert kernel.requests() > before


def load_page_again(page: Page, kernel: Kernel) -> None:
    """Reload the page: the widgets work, and stop when their cells run again."""
    page.save()
    page.page.reload()
    page.wait_until(READY)
    page.find(".bf-body .bf-row").first.wait_for(timeout=60_000)
    before = kernel.requests()
    page.press("Load")
    wait_until(lambda: kernel.requests() > before)
    wait_until(kernel.rests)
    page.command("notebook:run-all-cells")
    run_to(page, 6)
    beat(kernel)
    assert kernel.read_status()["on"] == [False, True]


def beat(kernel: Kernel) -> None:
    """Fire the timer three times; an open page answers each time."""
    for _ in range(3):
        kernel.read_status("beat()")
        wait_until(lambda: kernel.read_status("answered()"))


def close_page(page: Page, kernel: Kernel) -> None:
    """Close the page. The kernel is not notified, but the monitor finds that no page answers."""
    page.page.close()
    for _ in range(3):
        kernel.read_status("beat()")
    wait_until(lambda: kernel.read_status()["on"] == [False, False])
    wait_until(kernel.rests)
    assert "Stopped because the widget was not displayed" in kernel.read_status()["messages"][1]
