"""Background tasks, with and without an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time

import pytest

from buildframe.http.budget import Canceled, RequestBudget
from buildframe.widgets.background_tasks import TaskRunner
from tests.widgets.widget_helpers import running_threads, wait_for, wait_until


def test_a_second_start_is_refused_while_a_task_runs() -> None:
    gate, done = threading.Event(), []
    runner = TaskRunner(done.append)
    assert runner.start(lambda task: gate.wait(10), done.append)
    assert not runner.start(lambda task: "second", done.append)
    gate.set()
    wait_for(runner)
    assert done == [True]
    assert not runner.is_busy


def test_of_several_restarts_only_the_last_delivers_and_none_waits_for_a_hanging_task() -> None:
    gate, done = threading.Event(), []
    runner = TaskRunner(done.append)
    for name in ("first", "second", "third"):
        runner.restart(lambda task: gate.wait(60), lambda _, name=name: done.append(name))
    runner.restart(lambda task: "fourth", done.append)
    wait_until(lambda: done == ["fourth"])
    assert not runner.is_busy
    assert not runner.start(lambda task: "while others have yet to end", done.append)
    gate.set()
    wait_for(runner)
    assert done == ["fourth"]


def test_when_four_tasks_hang_the_newest_starts_after_one_ends() -> None:
    gates, done, ran = [threading.Event() for _ in range(4)], [], []
    runner = TaskRunner(done.append)
    for gate in gates:
        runner.restart(lambda task, gate=gate: gate.wait(60), done.append)
    for name in ("fifth", "sixth"):
        runner.restart(lambda task, name=name: ran.append(name), lambda _, name=name: done.append(name))
    assert runner.is_busy
    gates[0].set()
    wait_until(lambda: done == ["sixth"])
    assert ran == ["sixth"]
    for gate in gates:
        gate.set()
    wait_for(runner)


def test_an_exception_is_reported() -> None:
    errors: list[BaseException] = []
    runner = TaskRunner(errors.append)
    in_task, in_update, at_the_end = (
        (lambda task: 1 / 0, lambda _: None),
        (lambda task: task.update(lambda: 1 / 0), lambda _: None),
        (lambda task: 1, lambda one: one / 0),
    )
    for count, (work, on_result) in enumerate((in_task, in_update, at_the_end), 1):
        runner.start(work, on_result)
        wait_for(runner)
        assert [type(one) for one in errors] == count * [ZeroDivisionError]


def test_a_wait_is_reported_and_canceling_ends_it_and_later_requests() -> None:
    waits: list[tuple[float, str]] = []
    ends: list[str] = []
    runner = TaskRunner(lambda error: None, lambda *wait: waits.append(wait))

    def work(task):
        with contextlib.suppress(Canceled):
            RequestBudget().wait(600, "the limit is used up")
        with pytest.raises(Canceled, match="canceled"):
            RequestBudget().count_request()
        ends.append("stopped")

    runner.start(work, ends.append)
    wait_until(lambda: bool(waits))
    runner.cancel()
    wait_for(runner)
    assert (waits, ends) == ([(600, "the limit is used up")], ["stopped"])
    RequestBudget().count_request()


def test_updates_of_canceled_tasks_are_dropped_and_closed_runners_start_nothing() -> None:
    shown, gate, begun = [], threading.Event(), threading.Event()
    runner = TaskRunner(shown.append)

    def work(task):
        task.update(lambda: shown.append("before"))
        begun.set()
        gate.wait(10)
        assert task.is_canceled
        task.update(lambda: shown.append("after"))

    runner.start(work, shown.append)
    begun.wait(10)
    runner.close()
    gate.set()
    wait_for(runner)
    assert shown == ["before"]
    assert not runner.start(work, shown.append)
    runner.restart(work, shown.append)
    assert running_threads() == []


def test_results_are_delivered_on_the_loop_and_a_click_that_waited_is_refused() -> None:
    threads: list[int] = []

    async def kernel() -> None:
        runner = TaskRunner(lambda error: None)
        runner.start(
            lambda task: threads.append(threading.get_ident()), lambda _: threads.append(threading.get_ident())
        )
        wait_for(runner)  # the thread has ended, and its outcome waits for the loop, as a second click does
        assert not runner.start(lambda task: None, lambda _: None)
        await asyncio.sleep(0)
        assert not runner.is_busy

    asyncio.run(kernel())
    assert threads[0] != threads[1] == threading.get_ident()


def test_nothing_that_a_task_leads_to_comes_before_its_start_is_shown() -> None:
    events: list[str] = []
    runner = TaskRunner(lambda error: events.append("failed"))

    def show_start() -> None:
        time.sleep(0.05)
        events.append("started")

    runner.restart(lambda task: 1 / 0, events.append, on_start=show_start)
    assert runner.join(10)
    assert events == ["started", "failed"]


SCRIPT = """
import threading, time
from buildframe.widgets.background_tasks import TaskRunner

def work(task):
    started.set()
    while not task.is_canceled:
        time.sleep(0.01)
    time.sleep(0.2)
    print("the thread ended", flush=True)

started, runner = threading.Event(), TaskRunner(print)
runner.start(work, print)
started.wait()
"""


def test_a_process_ends_its_threads_before_it_exits() -> None:
    """Otherwise Arrow can wait forever for a conversion that the interpreter stopped."""
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "the thread ended\n", "")
