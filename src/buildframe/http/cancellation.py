"""Cancel everything that runs in a scope, from any thread. Does not know requests."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol

OnWait = Callable[[float, str], None]
"""Called before each wait with its length in seconds and the reason, in the thread that waits."""


class Canceled(Exception):
    """A call was canceled or reached its own limit; the text says which."""


class Cancelable(Protocol):
    """A call that can be canceled."""

    def cancel(self) -> None:
        """Cancel it, from any thread."""


def ignore_wait(seconds: float, why: str) -> None:
    """Do nothing on a wait."""


class CancelScope:
    """Cancels all calls that begin `within` it, from any thread, and is notified of their waits.

    If `on_rows` is set, listings call it with each frame of new builds and with the share that is done (0 to 1, or
    None if unknown), in the thread that called the listing.
    """

    def __init__(self, on_wait: OnWait = ignore_wait) -> None:
        self.on_wait = on_wait
        self.on_rows: Callable[[Any, float | None], None] | None = None
        self._calls: weakref.WeakSet[Cancelable] = weakref.WeakSet()
        self._is_canceled = False
        self._lock = threading.Lock()

    @property
    def is_canceled(self) -> bool:
        """Whether `cancel` was called."""
        return self._is_canceled

    def cancel(self) -> None:
        """Cancel all calls of the scope, also those that begin later."""
        with self._lock:
            self._is_canceled, calls = True, list(self._calls)
        for call in calls:
            call.cancel()

    @contextmanager
    def within(self) -> Iterator[None]:
        """Put the calls that this thread begins in this context into the scope."""
        before = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(before)

    def add(self, call: Cancelable) -> None:
        """Put a call into the scope."""
        with self._lock:
            self._calls.add(call)
        if self._is_canceled:
            call.cancel()


_CURRENT: ContextVar[CancelScope | None] = ContextVar("cancel_scope", default=None)


def current_scope() -> CancelScope | None:
    """Return the scope that this thread is in."""
    return _CURRENT.get()
