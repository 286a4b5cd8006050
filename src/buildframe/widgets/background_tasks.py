"""Run work in background threads and deliver results on the kernel's thread. Knows no widgets."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

from buildframe.http.budget import CancelScope, OnWait

Callback = Callable[[], None]
TaskFunction = Callable[["BackgroundTask"], Any]
OnResult = Callable[[Any], None]

_MAX_THREADS = 4  # of one runner, counting those of canceled tasks that have yet to end
_SHORTEST_REPORTED_WAIT = 1.0  # seconds
_EXIT_TIMEOUT = 5.0  # seconds that the end of the process waits for a thread that was canceled


class BackgroundTask(CancelScope):
    """A function that runs in a thread. It checks `is_canceled` between steps and reports progress by `update`."""

    def __init__(self, runner: TaskRunner, function: TaskFunction, on_result: OnResult, on_wait: OnWait) -> None:
        super().__init__(self._report_wait)
        self._runner, self.function, self.on_result, self._on_wait = runner, function, on_result, on_wait

    def update(self, callback: Callback) -> None:
        """Call back on the kernel's thread, unless the task is canceled by then."""
        self._runner.call_soon(lambda: None if self.is_canceled else self._runner.call_guarded(callback))

    def _report_wait(self, seconds: float, reason: str) -> None:
        if seconds >= _SHORTEST_REPORTED_WAIT:
            self.update(lambda: self._on_wait(seconds, reason))


class TaskRunner:
    """
    Runs tasks, each in its own thread, and delivers only the result of the newest one.

    Create it on the kernel's thread. There it calls `on_result` with what the task returned, `on_error` with what it
    raised, and `on_wait` with seconds and reason before the task waits for the service. Without an event loop, as in a
    script, the task's thread calls them.
    """

    def __init__(
        self, on_error: Callable[[BaseException], None], on_wait: OnWait = lambda seconds, reason: None
    ) -> None:
        self._on_error, self._on_wait = on_error, on_wait
        self._lock = threading.RLock()
        self._current: BackgroundTask | None = None
        self._started: list[BackgroundTask] = []  # their outcome was not delivered yet
        self._threads: list[threading.Thread] = []
        self._is_closed = False
        self._loop = kernel_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._delayed_start: asyncio.TimerHandle | None = None
        _RUNNERS.add(self)

    @property
    def is_busy(self) -> bool:
        """Whether a result is still to be delivered, or a task is about to start."""
        return self._current is not None or self._delayed_start is not None

    @property
    def has_loop(self) -> bool:
        """Whether there is an event loop to call back on."""
        return self._loop is not None

    def start(self, function: TaskFunction, on_result: OnResult, on_start: Callback = lambda: None) -> bool:
        """Start a task and return True, or return False while another one runs: a double click starts one task."""
        with self._lock:
            if self._started or self._is_closed:
                return False
            self.restart(function, on_result, on_start)
            return True

    def start_later(self, seconds: float, start: Callback) -> None:
        """Call `start` after a delay, unless a task starts or is canceled before; at once without an event loop.

        Until then the runner is busy. Call it on the kernel's thread.
        """
        self.cancel_delayed_start()
        if self._loop is None:
            self.call_guarded(start)
        elif not self._is_closed:
            self._delayed_start = self._loop.call_later(seconds, self._start_delayed, start)

    def cancel_delayed_start(self) -> bool:
        """Cancel what `start_later` was going to call, and return whether there was anything."""
        delayed, self._delayed_start = self._delayed_start, None
        if delayed is not None:
            delayed.cancel()
        return delayed is not None

    def restart(self, function: TaskFunction, on_result: OnResult, on_start: Callback = lambda: None) -> None:
        """Cancel the current task, which should only read, and start another.

        It starts at once unless four canceled tasks have yet to end.

        `on_start` shows that it runs. It is called before anything that the task leads to.
        """
        with self._lock:
            self.cancel()
            if not self._is_closed:
                self._current = BackgroundTask(self, function, on_result, self._on_wait)
                self._start_current()
            on_start()

    def cancel(self) -> None:
        """Cancel the current task, one that is about to start, and a pending call."""
        with self._lock:
            self.cancel_delayed_start()
            if self._timer is not None:
                self._timer.cancel()
            if self._current is not None:
                self._current.cancel()
            self._current = None

    def close(self) -> None:
        """Cancel the current task and a pending call, and start none from now on."""
        with self._lock:
            self._is_closed = True
            self.cancel()

    def join(self, seconds: float) -> bool:
        """Wait until no thread is left and return whether that is so. Not for the kernel's thread: it would block."""
        while (thread := next(filter(threading.Thread.is_alive, self._threads), None)) is not None:
            thread.join(seconds)
            if thread.is_alive():
                return False
        return True

    def call_soon(self, callback: Callback) -> None:
        """Call back on the kernel's thread, once it is free."""
        if self._loop is None:
            with self._lock:
                callback()
        else:
            _schedule(self._loop, callback)

    def call_later(self, seconds: float, callback: Callback) -> None:
        """Call back after a delay, unless a task starts or is canceled before; at once if no event loop runs.

        Call it on the kernel's thread. It replaces a pending call.
        """
        if self._loop is None:
            self.call_guarded(callback)
        elif not self._is_closed:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(seconds, lambda: self.call_guarded(callback))

    def call_guarded(self, callback: Callback) -> None:
        """Call back, and pass an exception to `on_error`."""
        try:
            callback()
        except Exception as error:
            self._on_error(error)

    def _start_delayed(self, start: Callback) -> None:
        self._delayed_start = None
        self.call_guarded(start)

    def _start_current(self) -> None:
        task = self._current
        if task is None or task in self._started or len(self._started) >= _MAX_THREADS:
            return
        self._started.append(task)
        thread = threading.Thread(target=self._run, args=(task,), name="buildframe-widget", daemon=True)
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()

    def _run(self, task: BackgroundTask) -> None:
        deliver: Callback
        try:
            with task.within():
                deliver = functools.partial(task.on_result, task.function(task))
        except Exception as error:
            deliver = functools.partial(self._on_error, error)
        self.call_soon(lambda: self._end(task, deliver))

    def _end(self, task: BackgroundTask, deliver: Callback) -> None:
        with self._lock:
            self._started.remove(task)
            if task is not self._current:
                self._start_current()
                return
            self._current = None
        self.call_guarded(deliver)


_RUNNERS: weakref.WeakSet[TaskRunner] = weakref.WeakSet()


@atexit.register
def _end_threads() -> None:
    """End all threads before the interpreter does.

    Python ends daemon threads wherever they are. If one converts columns just then, a thread of Arrow's pool never
    returns, and Arrow waits for it forever.
    """
    runners = list(_RUNNERS)
    for runner in runners:
        runner.close()
    all(runner.join(_EXIT_TIMEOUT) for runner in runners)  # only one timeout, even if several do not end


def kernel_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop of the kernel's thread, which runs cells; otherwise the running loop, if any."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    io_loop = getattr(getattr(shell, "kernel", None), "io_loop", None)
    return getattr(io_loop, "asyncio_loop", None) or _running_loop()


def call_on_loop(loop: asyncio.AbstractEventLoop | None, callback: Callback) -> None:
    """Call back on a loop, at once if it is the running one. Clicks arrive on other threads (subshells)."""
    if loop is None or loop is _running_loop():
        callback()
    else:
        _schedule(loop, callback)


def _schedule(loop: asyncio.AbstractEventLoop, callback: Callback) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
