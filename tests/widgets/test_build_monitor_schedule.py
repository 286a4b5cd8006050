"""When the build monitor refreshes, on an event loop like that of a kernel."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import buildframe as bf
from buildframe import widgets
from buildframe.widgets.build_monitor import BuildMonitor
from tests.conftest import Scripted, says
from tests.widgets.widget_helpers import running_threads, set_views, visible_text, wait_for, workspace_of


class Timers:
    """Replaces the timers of a loop, so that the test controls time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.all: list[tuple[float, asyncio.Handle]] = []
        self._loop = loop
        loop.call_later = self._call_later

    def _call_later(self, delay: float, act: Callable[[], None], *_: Any, **__: Any) -> asyncio.Handle:
        self.all.append((delay, asyncio.Handle(act, (), self._loop)))
        return self.all[-1][1]

    @property
    def pending(self) -> list[float]:
        """The delays of pending timers."""
        return [delay for delay, timer in self.all if not timer.cancelled()]

    def fire(self) -> None:
        """Fire all pending timers."""
        for _, timer in [entry for entry in self.all if not entry[1].cancelled()]:
            timer._run()
            timer.cancel()


async def delivered(monitor: BuildMonitor) -> None:
    """Wait until the task has ended and its result was delivered on this loop."""
    wait_for(monitor)
    await asyncio.sleep(0)


def answer_ping(change: Any) -> None:
    """Answer as a page that shows the table."""
    change.owner.pong = change.new


def on_a_loop(server: Scripted, act: Callable[[BuildMonitor, Timers], Any], **arguments: Any) -> None:
    """Test a displayed monitor whose first refresh has ended."""

    async def kernel() -> None:
        timers = Timers(asyncio.get_running_loop())
        monitor = widgets.BuildMonitor(workspace_of(server), **arguments)
        set_views(monitor, 1)
        monitor.table.observe(answer_ping, "ping")
        await delivered(monitor)
        await act(monitor, timers)
        monitor.close()
        wait_for(monitor)
        assert timers.pending == []

    asyncio.run(kernel())
    assert running_threads() == []


@pytest.fixture
def server(scripted: Callable[..., Scripted]) -> Iterator[Scripted]:
    return scripted(says(b"[]"))


def test_it_refreshes_every_ten_seconds_without_a_waiting_thread(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        for count in (1, 2, 3):
            assert len(server.requests) == count
            assert timers.pending == [10]
            assert running_threads() == []
            assert visible_text(monitor.schedule) == "As of 12:00:00 UTC, refreshes every 10 s"
            timers.fire()
            await delivered(monitor)

    on_a_loop(server, act)


def test_a_refresh_in_progress_is_not_started_again(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()

    def late(handler: object) -> None:
        gate.wait(10)
        says(b"[]")(handler)

    server = scripted(says(b"[]"), late)

    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        timers.fire()
        monitor.refresh_button.click()
        monitor.refresh_button.click()
        gate.set()
        await delivered(monitor)
        assert len(server.requests) == 2
        assert timers.pending == [10]

    on_a_loop(server, act)


def test_it_stops_without_a_view_and_resumes_with_one(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        set_views(monitor, 0)
        assert timers.pending == []
        assert visible_text(monitor.status).startswith("Stopped because the widget was not displayed")
        set_views(monitor, 1)
        assert visible_text(monitor.status) == ""
        await delivered(monitor)
        assert (len(server.requests), timers.pending) == (2, [10])

    on_a_loop(server, act)


def test_a_monitor_that_is_never_displayed_refreshes_once(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        other = widgets.BuildMonitor(workspace_of(server))
        await delivered(other)
        monitor.pause()
        timers.fire()
        await delivered(other)
        assert visible_text(other.status).startswith("Stopped because the widget was not displayed")
        assert (len(server.requests), timers.pending) == (2, [])
        other.close()

    on_a_loop(server, act)


def test_a_pause_lasts_until_resume(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        monitor.toggle.click()
        assert (monitor.toggle.description, timers.pending) == ("Resume", [])
        set_views(monitor, 0)
        set_views(monitor, 1)
        monitor.refresh_button.click()
        await delivered(monitor)
        assert visible_text(monitor.status).startswith("Paused. Press Resume to refresh again.")
        assert (len(server.requests), timers.pending) == (2, [])
        monitor.toggle.click()
        await delivered(monitor)
        assert (monitor.toggle.description, timers.pending) == ("Pause", [10])
        assert visible_text(monitor.status) == ""

    on_a_loop(server, act)


def test_it_stops_after_the_maximum_time(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        monitor._resumed_at -= 30
        timers.fire()
        assert visible_text(monitor.status).startswith("Stopped after 30 s")
        assert (len(server.requests), timers.pending, monitor.toggle.description) == (1, [], "Resume")

    on_a_loop(server, act, for_at_most="30s")


def test_it_continues_after_an_error(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b"[]"), says(b'{"message": "No"}', 403), says(b"[]"))

    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        timers.fire()
        await delivered(monitor)
        assert "403" in visible_text(monitor.status)
        assert timers.pending == [10]
        timers.fire()
        await delivered(monitor)
        assert visible_text(monitor.status) == ""

    on_a_loop(server, act)


def test_invalid_arguments_are_named(server: Scripted) -> None:
    ws = workspace_of(server)
    for workspace, arguments, message in (
        (ws, {"evry": "20s"}, "'evry'.*'every'"),
        (ws, {"every": "9s"}, "every='9s'.* 10 s"),
        (ws, {"every": "soon"}, "every='soon'"),
        (ws, {"for_at_most": 3600}, "for_at_most=3600"),
        (ws, {"for_at_most": "19s", "every": "20s"}, "for_at_most='19s'.* 20 s"),
        ("acme", {}, "ws='acme'"),
        (bf.connect(None, base_url=server.url, token="a-test-token"), {}, "all organizations"),
    ):
        with pytest.raises(bf.BadInput, match=message):
            widgets.BuildMonitor(workspace, **arguments)
    assert server.requests == []


def test_it_stops_after_its_page_is_closed_and_resumes_with_another(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        monitor.table.unobserve(answer_ping, "ping")
        for _ in range(2):
            timers.fire()
            await delivered(monitor)
            assert monitor.is_refreshing
        timers.fire()
        await asyncio.sleep(0)
        assert "Stopped because the widget was not displayed" in visible_text(monitor.status)
        assert (timers.pending, len(server.requests)) == ([], 3)
        monitor.table.pong = monitor.table.ping
        await delivered(monitor)
        assert monitor.is_refreshing
        assert len(server.requests) == 4

    on_a_loop(server, act)


RUNNING = b"""[{"id": "b1", "number": 7, "state": "running", "created_at": "2026-11-01T11:59:00Z",
  "started_at": "2026-11-01T11:59:01Z", "pipeline": {"id": "p1", "slug": "web"}}]"""


def test_a_selection_made_while_the_kernel_was_busy_survives_a_refresh(scripted: Callable[..., Scripted]) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        assert monitor.snapshot is not None
        assert monitor.properties.value == ""
        page = threading.Thread(target=lambda: setattr(monitor.table, "selected", 0))
        page.start()
        page.join()
        assert monitor.properties.value == ""  # it waits for the kernel
        monitor._show(monitor.snapshot)
        assert monitor.table.selected == 0
        assert visible_text(monitor.properties).startswith("web #7")

    on_a_loop(scripted(says(RUNNING)), act)
