"""Limit, count and cancel what calls spend: requests, waits, time until a deadline. Does not know HTTP."""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

from buildframe.errors import DeadlineExceeded
from buildframe.http.response import ServiceTime
from buildframe.spec.times import Deadline, seconds_of

_LOG = logging.getLogger("buildframe")

_END: ContextVar[tuple[float, float]] = ContextVar("end", default=(math.inf, math.inf))
"""When the calls of a thread must end (seconds of `time.monotonic`), and how many seconds they were given."""

OnWait = Callable[[float, str], None]
"""Called before each wait with its length in seconds and the reason, in the thread that waits."""


T = TypeVar("T")


class Canceled(Exception):
    """A call was canceled or reached its own limit; the text says which."""


class CancelScope:
    """Cancels all calls that begin `within` it, from any thread, and calls `on_wait` before their waits."""

    def __init__(self, on_wait: OnWait | None = None) -> None:
        self.on_wait = on_wait
        self.is_canceled = False
        self._budgets: weakref.WeakSet[RequestBudget] = weakref.WeakSet()
        self._lock = threading.Lock()

    def cancel(self) -> None:
        """Cancel all calls of the scope, also those that begin later."""
        with self._lock:
            self.is_canceled, budgets = True, list(self._budgets)
        for budget in budgets:
            budget.cancel()

    def within(self) -> AbstractContextManager[None]:
        """Put the calls that this thread begins in this context into the scope."""
        return value_within(_SCOPE, self)

    def add(self, budget: RequestBudget) -> None:
        """Put a call into the scope."""
        with self._lock:
            self._budgets.add(budget)
        if self.is_canceled:
            budget.cancel()


_SCOPE: ContextVar[CancelScope | None] = ContextVar("cancel_scope", default=None)


@contextmanager
def value_within(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a variable of this thread in this context."""
    before = variable.set(value)
    try:
        yield
    finally:
        variable.reset(before)


def within_deadline(deadline: Deadline) -> AbstractContextManager[None]:
    """Let all calls that this thread begins in this context share one deadline; None adds none."""
    return value_within(_END, _earlier_end(None if deadline is None else seconds_of(deadline, "deadline")))


def _earlier_end(seconds: float | None) -> tuple[float, float]:
    """Return the earlier of the current end and the one in `seconds`."""
    return _END.get() if seconds is None else min(_END.get(), (time.monotonic() + seconds, seconds))


class RequestBudget:
    """What one call has spent and may still spend. Threads share it.

    `requests` counts everything that was sent, `retries` the repetitions among it, `waits` the waits; `waited_s` is the
    sum of their seconds over all requests. The deadline is the current one (`within_deadline`), or the end of `seconds`
    if that is earlier. `time` is the service's time by all responses.
    """

    def __init__(
        self, *, max_requests: int | None = None, seconds: float | None = None, on_wait: OnWait | None = None
    ) -> None:
        self.requests = self.retries = self.waits = 0
        self.waited_s = 0.0
        self.time = ServiceTime()
        self._max_requests, self._on_wait = max_requests, on_wait
        self._end, self._seconds = _earlier_end(seconds)
        self._canceled = threading.Event()
        self._lock = threading.Lock()
        self._scope = _SCOPE.get()
        if self._scope is not None:
            self._scope.add(self)

    @property
    def is_canceled(self) -> bool:
        """Whether `cancel` was called."""
        return self._canceled.is_set()

    @property
    def requests_left(self) -> int | None:
        """How many requests may still be sent; None if there is no limit."""
        return None if self._max_requests is None else self._max_requests - self.requests

    @property
    def seconds_left(self) -> float | None:
        """Seconds until the deadline; None if there is none."""
        return None if self._end == math.inf else self._end - time.monotonic()

    @property
    def is_expired(self) -> bool:
        """Whether the deadline has passed."""
        return self.seconds_left is not None and self.seconds_left <= 0

    def cancel(self) -> None:
        """Wake up what waits and send nothing more. From any thread."""
        self._canceled.set()

    def check(self) -> None:
        """Raise Canceled or DeadlineExceeded if nothing more may be sent."""
        if self.is_canceled:
            raise Canceled("it was canceled")
        if self._max_requests is not None and self.requests >= self._max_requests:
            raise Canceled(f"max_requests={self._max_requests} is used up")
        if self.is_expired:
            raise self._deadline_exceeded("has passed")

    def count_request(self) -> None:
        """Count a request; raise Canceled or DeadlineExceeded if none is left."""
        with self._lock:
            self.check()
            self.requests += 1

    def wait(self, seconds: float, why: str) -> None:
        """Wait before a request. Raise Canceled if canceled, DeadlineExceeded at once if the wait would exceed it."""
        self.check()
        if seconds <= 0:
            return
        if self.seconds_left is not None and seconds >= self.seconds_left:
            raise self._deadline_exceeded(f"would pass while waiting {seconds:.0f} s: {why}")
        for on_wait in (self._on_wait, None if self._scope is None else self._scope.on_wait):
            if on_wait is not None:
                on_wait(seconds, why)
        began = time.monotonic()
        self._canceled.wait(seconds)
        with self._lock:
            self.waits += 1
            self.waited_s += time.monotonic() - began
        self.check()

    def wait_for_retry(self, seconds: float, why: str) -> None:
        """Wait before a request is repeated, and count the repetition."""
        _LOG.info("retrying in %.0f s: %s", seconds, why)
        self.wait(seconds, why)
        with self._lock:
            self.retries += 1

    def _deadline_exceeded(self, how: str) -> DeadlineExceeded:
        advice = "Allow more time; a listing returns what it has read by then with partial=True."
        return DeadlineExceeded(f"deadline={self._seconds:g}s {how}\n{advice}")
