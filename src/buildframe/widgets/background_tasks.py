"""Work off the kernel's thread: stoppable, its outcome handed back on the kernel's thread."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable
from typing import Any

from buildframe.http.cancellation import CancelScope, OnWait

Act = Callable[[], None]
Failed = Callable[[BaseException], None]

_MOST = 4
"""Threads of a lane that end while another one works already."""
_WORTH_TELLING = 1.0  # seconds


class Piece:
    """One piece of work. What runs looks at `stopped` between its steps, and tells of progress by `show`."""

    def __init__(self, lane: Lane, run: Callable[[Piece], Any], done: Callable[[Any], None], waits: OnWait) -> None:
        self._lane, self._run, self.done, self._waits = lane, run, done, waits
        self._scope = CancelScope(self._wait)

    @property
    def stopped(self) -> bool:
        """Whether nobody wants its outcome any more."""
        return self._scope.is_canceled

    def stop(self) -> None:
        """End it: what waits wakes up, it sends no further request, and what it brings is dropped."""
        self._scope.cancel()

    def show(self, act: Act) -> None:
        """Do something to the face, on the kernel's thread, unless this was stopped meanwhile."""
        self._lane.post(lambda: None if self.stopped else self._lane.try_to(act))

    def hear(self, on_rows: Callable[[Any, float | None], None]) -> None:
        """Be told of the builds that its walks bring, as they come: see `CancelScope`."""
        self._scope.on_rows = on_rows

    def work(self) -> Any:
        """Do it, in the thread that calls."""
        with self._scope.within():
            return self._run(self)

    def _wait(self, seconds: float, why: str) -> None:
        if seconds >= _WORTH_TELLING:
            self.show(lambda: self._waits(seconds, why))


class Lane:
    """Runs pieces of work, each in a thread that ends with it; only the outcome of the last one is wanted.

    To be made on the kernel's thread. There, `done` is called with what the work returned, or `failed` with what it
    raised, and `waits` before it waits for the service, with the seconds and why. Where no event loop runs, as in a
    script, they are called by the thread that worked.
    """

    def __init__(self, failed: Failed, waits: OnWait = lambda seconds, why: None) -> None:
        self._failed, self._waits = failed, waits
        self._lock = threading.RLock()
        self._wanted: Piece | None = None
        self._begun: list[Piece] = []  # until its outcome was handed back
        self._threads: list[threading.Thread] = []
        self._closed = False
        self._home = home()

    @property
    def busy(self) -> bool:
        """Whether the outcome of a piece is wanted that was not handed back yet."""
        return self._wanted is not None

    def start(self, run: Callable[[Piece], Any], done: Callable[[Any], None]) -> bool:
        """Start it, unless a piece is under way: a click twice starts once. Whether it was started."""
        with self._lock:
            if self._begun or self._closed:
                return False
            self.instead(run, done)
            return True

    def instead(self, run: Callable[[Piece], Any], done: Callable[[Any], None]) -> None:
        """Stop what is under way, and start this, which only reads; at once, unless four others have yet to end."""
        with self._lock:
            self.stop()
            if not self._closed:
                self._wanted = Piece(self, run, done, self._waits)
                self._go_on()

    def stop(self) -> None:
        """Stop what is under way or waits."""
        with self._lock:
            if self._wanted is not None:
                self._wanted.stop()
            self._wanted = None

    def close(self) -> None:
        """Stop, and start nothing any more."""
        with self._lock:
            self._closed = True
            self.stop()

    def wait(self, seconds: float) -> bool:
        """Wait until no thread is left; whether that is so. Not for the kernel's thread, which it would block."""
        while (thread := next(filter(threading.Thread.is_alive, self._threads), None)) is not None:
            thread.join(seconds)
            if thread.is_alive():
                return False
        return True

    def post(self, act: Act) -> None:
        """Do something on the kernel's thread, once it is free."""
        if self._home is None:
            with self._lock:
                act()
        else:
            _soon(self._home, act)

    def try_to(self, act: Act) -> None:
        """Do something, and tell where it fails."""
        try:
            act()
        except Exception as why:
            self._failed(why)

    def later(self, seconds: float, act: Act) -> None:
        """Do something on the kernel's thread after so long; at once where no event loop runs."""
        if self._home is None:
            act()
        else:
            _soon(self._home, self._home.call_later, seconds, act)

    def _go_on(self) -> None:
        piece = self._wanted
        if piece is None or piece in self._begun or len(self._begun) >= _MOST:
            return
        self._begun.append(piece)
        thread = threading.Thread(target=self._work, args=(piece,), name="buildframe-widget", daemon=True)
        self._threads = [*filter(threading.Thread.is_alive, self._threads), thread]
        thread.start()

    def _work(self, piece: Piece) -> None:
        tell: Act
        try:
            result = piece.work()
            tell = lambda: piece.done(result)  # noqa: E731
        except Exception as why:
            failure = why
            tell = lambda: self._failed(failure)  # noqa: E731
        self.post(lambda: self._end(piece, tell))

    def _end(self, piece: Piece, tell: Act) -> None:
        with self._lock:
            self._begun.remove(piece)
            if piece is not self._wanted:
                self._go_on()
                return
            self._wanted = None
        self.try_to(tell)


def home() -> asyncio.AbstractEventLoop | None:
    """The loop of the kernel's thread, on which cells run; else the one that runs here, if any does."""
    shell: Any = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    of_kernel = getattr(getattr(shell, "kernel", None), "io_loop", None)
    return getattr(of_kernel, "asyncio_loop", None) or _running()


def at_home(home: asyncio.AbstractEventLoop | None, act: Act) -> None:
    """Do something on that loop: at once where it is the one that runs. Clicks come on other threads (subshells)."""
    if home is None or home is _running():
        act()
    else:
        _soon(home, act)


def _soon(loop: asyncio.AbstractEventLoop, act: Callable[..., object], *arguments: Any) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
        loop.call_soon_threadsafe(act, *arguments)


def _running() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
