"""Work off the kernel's thread: one piece at a time, stoppable, its outcome handed back on the kernel's thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any

Act = Callable[[], None]
Failed = Callable[[BaseException], None]


class Piece:
    """One piece of work under way. What runs looks at `stopped` between requests, and tells of progress by `show`."""

    def __init__(self, lane: Lane, run: Callable[[Piece], Any], done: Callable[[Any], None]) -> None:
        self._lane, self.run, self.done = lane, run, done
        self._stop = threading.Event()

    @property
    def stopped(self) -> bool:
        """Whether nobody wants its outcome any more."""
        return self._stop.is_set()

    def stop(self) -> None:
        """Ask it to end; what it brings from now on is dropped."""
        self._stop.set()

    def show(self, act: Act) -> None:
        """Do something to the face, on the kernel's thread, unless this was stopped meanwhile."""
        self._lane.post(lambda: None if self.stopped else act())


class Lane:
    """Runs one piece of work at a time, in a thread that ends with it.

    To be made on the kernel's thread. There, `done` is called with what the work returned, or `failed` with what it
    raised. Where no event loop runs, as in a script, both are called by the thread that worked.
    """

    def __init__(self, failed: Failed) -> None:
        self._failed = failed
        self._lock = threading.RLock()
        self._current: Piece | None = None
        self._next: Piece | None = None
        self._thread: threading.Thread | None = None
        self._closed = False
        self._loop = _running_loop()

    @property
    def busy(self) -> bool:
        """Whether a piece is under way whose outcome was not handed back yet."""
        return self._current is not None

    def start(self, run: Callable[[Piece], Any], done: Callable[[Any], None]) -> bool:
        """Start it, unless a piece is under way: a click twice starts once. Whether it was started."""
        with self._lock:
            if self.busy or self._closed:
                return False
            self._begin(Piece(self, run, done))
            return True

    def instead(self, run: Callable[[Piece], Any], done: Callable[[Any], None]) -> None:
        """Stop what is under way, and start this once that has ended; of several only the last starts."""
        with self._lock:
            piece = Piece(self, run, done)
            if self._current is None and not self._closed:
                self._begin(piece)
            elif self._current is not None:
                self._current.stop()
                self._next = piece

    def stop(self) -> None:
        """Stop what is under way and what waits."""
        with self._lock:
            self._next = None
            if self._current is not None:
                self._current.stop()

    def close(self) -> None:
        """Stop, and start nothing any more."""
        with self._lock:
            self._closed = True
            self.stop()

    def wait(self, seconds: float) -> bool:
        """Wait until no thread is left; whether that is so. Not for the kernel's thread, which it would block."""
        while (thread := self._thread) is not None and thread.is_alive():
            thread.join(seconds)
            if thread.is_alive():
                return False
        return True

    def post(self, act: Act) -> None:
        """Do something on the kernel's thread, once it is free."""
        if self._loop is None:
            with self._lock:
                act()
        else:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is there to be told
                self._loop.call_soon_threadsafe(act)

    def _begin(self, piece: Piece) -> None:
        self._current = piece
        self._thread = threading.Thread(target=self._work, args=(piece,), name="buildframe-widget", daemon=True)
        self._thread.start()

    def _work(self, piece: Piece) -> None:
        tell: Act
        try:
            result = piece.run(piece)
            tell = lambda: piece.done(result)  # noqa: E731
        except Exception as why:
            failure = why
            tell = lambda: self._failed(failure)  # noqa: E731
        self.post(lambda: self._end(piece, tell))

    def _end(self, piece: Piece, tell: Act) -> None:
        with self._lock:
            self._current, after, self._next = None, self._next, None
            wanted = not piece.stopped
        if wanted:
            try:
                tell()
            except Exception as why:
                self._failed(why)
        with self._lock:
            if after is not None and not self._closed and self._current is None:
                self._begin(after)


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
