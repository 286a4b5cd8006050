"""Work off the kernel's thread, with and without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from buildframe.http.budget import RequestBudget
from buildframe.http.cancellation import Canceled
from buildframe.widgets.background_tasks import Lane
from tests.widgets.faces_read import settled, until


def test_one_at_a_time_and_a_second_start_is_refused() -> None:
    state, done = threading.Event(), []
    lane = Lane(done.append)
    assert lane.start(lambda piece: state.wait(10), done.append)
    assert not lane.start(lambda piece: "second", done.append)
    state.set()
    settled(lane)
    assert done == [True]
    assert not lane.busy


def test_of_several_instead_only_the_last_tells_and_it_waits_for_none_that_hangs() -> None:
    state, done = threading.Event(), []
    lane = Lane(done.append)
    for name in ("first", "second", "third"):
        lane.instead(lambda piece: state.wait(60), lambda _, name=name: done.append(name))
    lane.instead(lambda piece: "fourth", done.append)
    until(lambda: done == ["fourth"])
    assert not lane.busy
    assert not lane.start(lambda piece: "while others have yet to end", done.append)
    state.set()
    settled(lane)
    assert done == ["fourth"]


def test_when_four_hang_the_next_waits_for_one_and_of_those_that_wait_the_last_starts() -> None:
    gates, done, ran = [threading.Event() for _ in range(4)], [], []
    lane = Lane(done.append)
    for state in gates:
        lane.instead(lambda piece, state=state: state.wait(60), done.append)
    for name in ("fifth", "sixth"):
        lane.instead(lambda piece, name=name: ran.append(name), lambda _, name=name: done.append(name))
    assert lane.busy
    gates[0].set()
    until(lambda: done == ["sixth"])
    assert ran == ["sixth"]
    for state in gates:
        state.set()
    settled(lane)


@pytest.mark.parametrize("in_done", [False, True])
def test_what_is_raised_is_told(in_done: bool) -> None:
    told: list[BaseException] = []
    lane = Lane(told.append)
    lane.start(lambda piece: 1 if in_done else 1 / 0, lambda one: one / 0)
    settled(lane)
    assert [type(one) for one in told] == [ZeroDivisionError]


def test_what_a_piece_shows_may_fail_and_is_told() -> None:
    told: list[BaseException] = []
    lane = Lane(told.append)
    lane.start(lambda piece: piece.show(lambda: 1 / 0), lambda _: None)
    settled(lane)
    assert [type(one) for one in told] == [ZeroDivisionError]


def test_a_wait_is_told_and_stopping_ends_it_and_all_that_would_follow() -> None:
    waits: list[tuple[float, str]] = []
    ends: list[str] = []
    lane = Lane(lambda why: None, lambda *wait: waits.append(wait))

    def work(piece):
        with contextlib.suppress(Canceled):
            RequestBudget().wait(600, "the limit is used up")
        with pytest.raises(Canceled, match="canceled"):
            RequestBudget().count_request()
        ends.append("stopped")

    lane.start(work, ends.append)
    until(lambda: bool(waits))
    lane.stop()
    settled(lane)
    assert (waits, ends) == ([(600, "the limit is used up")], ["stopped"])
    RequestBudget().count_request()


def test_stopped_progress_is_dropped_and_closed_lanes_start_nothing() -> None:
    shown, state, begun = [], threading.Event(), threading.Event()
    lane = Lane(shown.append)

    def work(piece):
        piece.show(lambda: shown.append("before"))
        begun.set()
        state.wait(10)
        assert piece.stopped
        piece.show(lambda: shown.append("after"))

    lane.start(work, shown.append)
    begun.wait(10)
    lane.close()
    state.set()
    settled(lane)
    assert shown == ["before"]
    assert not lane.start(work, shown.append)
    lane.instead(work, shown.append)
    assert not [thread for thread in threading.enumerate() if thread.name == "buildframe-widget"]


def test_with_a_loop_outcomes_are_handed_back_on_its_thread_and_a_click_that_waited_is_refused() -> None:
    threads: list[int] = []

    async def kernel() -> None:
        lane = Lane(lambda why: None)
        lane.start(lambda piece: threads.append(threading.get_ident()), lambda _: threads.append(threading.get_ident()))
        settled(lane)  # the thread has ended, and its outcome waits for the loop, as a second click does
        assert not lane.start(lambda piece: None, lambda _: None)
        await asyncio.sleep(0)
        assert not lane.busy

    asyncio.run(kernel())
    assert threads[0] != threads[1] == threading.get_ident()
