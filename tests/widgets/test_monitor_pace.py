"""When the build monitor asks, and when it does not, on an event loop as a kernel has one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import buildframe as bf
from buildframe import widgets
from buildframe.widgets.background_tasks import Lane
from buildframe.widgets.monitor import BuildMonitor
from tests.conftest import Scripted, says
from tests.widgets.faces_read import settled, words


class Timers:
    """Stands in for the loop's timers, so that time passes when a test says so."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.all: list[tuple[float, asyncio.Handle]] = []
        self._loop = loop
        loop.call_later = self._call_later

    def _call_later(self, delay: float, act: Callable[[], None], *_: Any, **__: Any) -> asyncio.Handle:
        self.all.append((delay, asyncio.Handle(act, (), self._loop)))
        return self.all[-1][1]

    @property
    def to_come(self) -> list[float]:
        """The delays of those that were not canceled and have not gone off."""
        return [delay for delay, timer in self.all if not timer.cancelled()]

    def go_off(self) -> None:
        """Those that are to come."""
        for _, timer in [entry for entry in self.all if not entry[1].cancelled()]:
            timer._run()
            timer.cancel()


async def handed_back(lane: Lane) -> None:
    """Until what is under way has ended and was handed back on this loop."""
    settled(lane)
    await asyncio.sleep(0)


def monitor_page(change: Any) -> None:
    """A page that shows the table answers."""
    change.owner.answered = change.new


def on_a_loop(server: Scripted, act: Callable[[BuildMonitor, Timers], Any], **arguments: Any) -> None:
    """Do something with a monitor that somebody looks at, and whose first refresh has ended."""

    async def kernel() -> None:
        timers = Timers(asyncio.get_running_loop())
        monitor = widgets.BuildMonitor(bf.connect("acme", base_url=server.url, token="t"), **arguments)
        monitor._view_count = 1
        monitor.table.observe(monitor_page, "calls")
        await handed_back(monitor._lane)
        await act(monitor, timers)
        monitor.close()
        settled(monitor._lane)
        assert timers.to_come == []

    asyncio.run(kernel())
    assert not [thread for thread in threading.enumerate() if thread.name == "buildframe-widget"]


@pytest.fixture
def server(scripted: Callable[..., Scripted]) -> Iterator[Scripted]:
    return scripted(says(b"[]"))


def test_it_asks_every_ten_seconds_and_no_thread_waits_meanwhile(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        for looks in (1, 2, 3):
            assert len(server.asked) == looks
            assert timers.to_come == [10]
            assert not [thread for thread in threading.enumerate() if thread.name == "buildframe-widget"]
            assert words(monitor.told) == "As of 12:00:00 UTC, refreshed every 10 s"
            timers.go_off()
            await handed_back(monitor._lane)

    on_a_loop(server, act)


def test_a_refresh_under_way_is_not_started_again(scripted: Callable[..., Scripted]) -> None:
    gate = threading.Event()

    def late(handler: object) -> None:
        gate.wait(10)
        says(b"[]")(handler)

    server = scripted(says(b"[]"), late)

    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        timers.go_off()
        monitor.again.click()
        monitor.again.click()
        gate.set()
        await handed_back(monitor._lane)
        assert len(server.asked) == 2
        assert timers.to_come == [10]

    on_a_loop(server, act)


def test_when_nobody_looks_it_stops_and_goes_on_when_somebody_does(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        monitor._view_count = 0
        assert timers.to_come == []
        assert words(monitor.said).startswith("Stopped, as nobody looked")
        monitor._view_count = 1
        assert words(monitor.said) == ""
        await handed_back(monitor._lane)
        assert (len(server.asked), timers.to_come) == (2, [10])

    on_a_loop(server, act)


def test_one_that_was_never_shown_asks_once(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        other = widgets.BuildMonitor(bf.connect("acme", base_url=server.url, token="t"))
        await handed_back(other._lane)
        monitor.pause()
        timers.go_off()
        await handed_back(other._lane)
        assert words(other.said).startswith("Stopped, as nobody looked")
        assert (len(server.asked), timers.to_come) == (2, [])
        other.close()

    on_a_loop(server, act)


def test_it_pauses_for_good(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        monitor.switch.click()
        assert (monitor.switch.description, timers.to_come) == ("Go on", [])
        monitor._view_count = 0
        monitor._view_count = 1
        monitor.again.click()
        await handed_back(monitor._lane)
        assert words(monitor.said).startswith("Paused: what is shown is not refreshed")
        assert (len(server.asked), timers.to_come) == (2, [])
        monitor.switch.click()
        await handed_back(monitor._lane)
        assert (monitor.switch.description, timers.to_come) == ("Pause", [10])
        assert words(monitor.said) == ""

    on_a_loop(server, act)


def test_it_stops_after_a_bounded_time(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        monitor._pulse._begun -= 30
        timers.go_off()
        assert words(monitor.said).startswith("Stopped after 30 s")
        assert (len(server.asked), timers.to_come, monitor.switch.description) == (1, [], "Go on")

    on_a_loop(server, act, for_at_most="30s")


def test_after_an_error_it_goes_on(scripted: Callable[..., Scripted]) -> None:
    server = scripted(says(b"[]"), says(b'{"message": "No"}', 403), says(b"[]"))

    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        timers.go_off()
        await handed_back(monitor._lane)
        assert "403" in words(monitor.said)
        assert timers.to_come == [10]
        timers.go_off()
        await handed_back(monitor._lane)
        assert words(monitor.said) == ""

    on_a_loop(server, act)


def test_what_is_refused(server: Scripted) -> None:
    ws = bf.connect("acme", base_url=server.url, token="t")
    with pytest.raises(bf.BadInput, match=r"BuildMonitor\(\) has no option 'evry'. Did you mean 'every'"):
        widgets.BuildMonitor(ws, evry="20s")
    for arguments, told in (
        ((ws, {"every": "9s"}), "every='9s': at least 10 s"),
        ((ws, {"every": "soon"}), "every='soon'"),
        ((ws, {"for_at_most": 3600}), "for_at_most=3600"),
        ((ws, {"for_at_most": "19s", "every": "20s"}), "for_at_most='19s': at least 20 s"),
        (("acme", {}), "ws='acme': pass a workspace"),
        ((bf.connect(None, base_url=server.url, token="t"), {}), "all organizations"),
    ):
        with pytest.raises(bf.BadInput, match=told):
            widgets.BuildMonitor(arguments[0], **arguments[1])
    assert server.asked == []


def test_of_a_page_that_was_closed_nobody_looks_until_another_answers(server: Scripted) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        monitor.table.unobserve(monitor_page, "calls")
        for _ in range(2):
            timers.go_off()
            await handed_back(monitor._lane)
            assert monitor.is_on
        timers.go_off()
        await asyncio.sleep(0)
        assert "Stopped, as nobody looked" in words(monitor.said)
        assert (timers.to_come, len(server.asked)) == ([], 3)
        monitor.table.answered = monitor.table.calls
        await handed_back(monitor._lane)
        assert monitor.is_on
        assert len(server.asked) == 4

    on_a_loop(server, act)


RUNNING = b"""[{"id": "b1", "number": 7, "state": "running", "created_at": "2026-11-01T11:59:00Z",
  "started_at": "2026-11-01T11:59:01Z", "pipeline": {"id": "p1", "slug": "web"}}]"""


def test_what_was_chosen_while_the_kernel_was_busy_is_not_lost_to_a_refresh(scripted: Callable[..., Scripted]) -> None:
    async def act(monitor: BuildMonitor, timers: Timers) -> None:
        assert monitor.seen is not None
        assert monitor.facts.value == ""
        page = threading.Thread(target=lambda: setattr(monitor.table, "chosen", 0))
        page.start()
        page.join()
        assert monitor.facts.value == ""  # it waits for the kernel, behind the rows of a refresh
        monitor._show(monitor.seen)
        assert monitor.table.chosen == 0
        assert words(monitor.facts).startswith("web #7")

    on_a_loop(scripted(says(RUNNING)), act)
