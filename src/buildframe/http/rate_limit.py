"""Keep the service's rate limits, which all clients of a process share. Knows response headers; sends nothing."""

from __future__ import annotations

import math
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from buildframe.errors import RateLimited
from buildframe.guards.forks import reset_in_children
from buildframe.http.budget import RequestBudget
from buildframe.http.response import LONGEST_WINDOW, ReportedLimit, Response, blocked_for, reported_limits

LONGEST_WAIT = 120.0  # seconds; without a deadline, a longer wait is an error, so that the user can decide
_LONGEST_REQUEST = 300.0  # seconds; a longer one has ended, and an interrupt prevented that this was recorded
_POLL = 0.05  # seconds; how often a thread that waits for responses to others checks whether it was canceled
_WHOLE, _FRACTION = 1.0, 0.1  # seconds; precision of the times that a service reports
USED_UP = "the rate limit is used up"

Clock = Callable[[], float]


class RateLimiter:
    """Delays requests by the limits of one service for one token. All clients and threads of the process share it."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._state = RateLimitState()
        self._changed = threading.Condition()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Keep the limits in a forked child, and forget the requests of its parent process."""
        self._changed = threading.Condition()
        self._state.reset_after_fork()

    def acquire(self, budget: RequestBudget) -> None:
        """Wait until this thread may send a request, and count it; `release` must follow, also if this fails.

        Raises Canceled or DeadlineExceeded by the budget, and RateLimited if a call without a deadline would wait for
        more than LONGEST_WAIT.
        """
        while (seconds := self._reserve(budget)) > 0:
            if seconds > LONGEST_WAIT and budget.seconds_left is None:
                raise RateLimited(
                    429, f"{USED_UP} by earlier responses; nothing was sent", retry_after=math.ceil(seconds)
                )
            budget.wait(seconds, USED_UP)

    def _reserve(self, budget: RequestBudget) -> float:
        """Count a request and return 0.0 if it may be sent now, else return the seconds to wait."""
        with self._changed:
            budget.check()
            while (seconds := self._state.seconds_until_free(self._clock())) is None:
                self._changed.wait(_POLL)
                budget.check()
            if seconds <= 0:
                budget.count_request()
                self._state.send(threading.get_ident(), self._clock())
            return seconds

    def see_headers(self) -> None:
        """Record that the headers of the response to this thread's request have come. Its body may take a while."""
        with self._changed:
            self._state.see_headers(threading.get_ident(), self._clock())

    def release(self, response: Response | None) -> None:
        """End the request of this thread and learn the limits from its response; None if there was no response."""
        who = threading.get_ident()
        try:
            with self._changed:
                if response is None:
                    self._state.lose(who, self._clock())
                else:
                    limits, is_refused = reported_limits(response), response.status == 429
                    self._state.learn(who, self._clock(), limits, refused=is_refused, blocked_for=blocked_for(response))
                self._changed.notify_all()
        except BaseException:  # Ctrl-C: a request that stays recorded would delay all others
            self._state.lose(who, self._clock())
            raise

    def useful_workers(self, pages_left: int | None, most: int) -> int:
        """Return how many concurrent requests make sense, from 1 to `most`, for a listing with so many pages left.

        This is `most`, unless more pages are left than a limit allows now. Then it is as many as use the limit up by
        the end of its window.
        """
        with self._changed:
            return self._state.useful_workers(pages_left, most, self._clock())


class RateLimiters:
    """All rate limiters of this process, by address and token."""

    def __init__(self) -> None:
        self._limiters: weakref.WeakValueDictionary[bytes, RateLimiter] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Replace the lock, which another thread of the parent process may have held."""
        self._lock = threading.Lock()

    def get(self, key: bytes) -> RateLimiter:
        """Return the one rate limiter of a key."""
        with self._lock:
            return self._limiters.setdefault(key, RateLimiter())


@dataclass
class _PendingRequest:
    """When a request was sent, and when the headers of its response came, in seconds of one clock."""

    sent_at: float
    headers_at: float | None = None


class RateLimitState:
    """Computes when a request may be sent. Pure: methods get the time, in seconds of one clock.

    As many requests may be sent as a limit last reported, minus the pending ones. If nothing is known, or a window has
    ended, one request is sent alone and the others wait for its response.
    """

    def __init__(self) -> None:
        self.limits: dict[str, LimitWindow] = {}
        self._pending: dict[int, _PendingRequest] = {}
        self._probe: int | None = None  # the thread whose request is sent alone
        self._known = False
        self._blocked_until: float | None = None
        self._lost, self._last_lost_at = 0, -math.inf
        self._latency: float | None = None

    def reset_after_fork(self) -> None:
        """Forget the pending requests, and send the first one alone: other processes use up the same limits."""
        self._pending, self._probe, self._known = {}, None, False
        self._lost, self._last_lost_at = 0, -math.inf

    def seconds_until_free(self, now: float) -> float | None:
        """Return the seconds until a request may be sent: 0.0 for now, None for not before another response."""
        for who in [who for who, request in self._pending.items() if now - request.sent_at > _LONGEST_REQUEST]:
            self.lose(who, now)
        if self._blocked_until is not None and now < self._blocked_until:
            return self._blocked_until - now
        if self._probe is not None:
            return None
        used_up = [limit for limit in self.limits.values() if self._is_used_up(limit) and now < limit.end]
        if not used_up:
            return 0.0
        return None if self._pending else max(limit.end - now for limit in used_up)

    def send(self, who: int, now: float) -> None:
        """Record that a request is sent. Each thread (`who`) sends one at a time."""
        # windows that are over, and that no pending request will report
        over = (limit for limit in self.limits.values() if now >= limit.end)
        is_unknown = any(self._is_used_up(limit) or not self._pending for limit in over)
        if not self._known or self._blocked_until is not None or is_unknown:
            self._probe = who
        self._pending[who] = _PendingRequest(now)

    def see_headers(self, who: int, now: float) -> None:
        """Record that the headers of a response came."""
        if who in self._pending:
            self._pending[who].headers_at = now

    def lose(self, who: int, now: float) -> None:
        """Record that a request has no response: the service may or may not have counted it."""
        if who in self._pending:
            self._end(who)
            self._lost, self._last_lost_at = self._lost + 1, now

    def learn(
        self,
        who: int,
        now: float,
        reported: Sequence[ReportedLimit],
        *,
        refused: bool = False,
        blocked_for: float | None = None,
    ) -> None:
        """Update the limits from a response; `refused` if the request exceeded them."""
        if who not in self._pending:  # it took too long and was given up
            return
        request = self._end(who)
        headers_at = now if request.headers_at is None else request.headers_at
        self._known = True
        latency = now - request.sent_at
        self._latency = latency if self._latency is None else 0.8 * self._latency + 0.2 * latency
        if request.sent_at >= self._last_lost_at:
            self._lost = 0
        if not refused and self._blocked_until is not None and request.sent_at >= self._blocked_until:
            self._blocked_until = None
        if blocked_for is not None and blocked_for <= LONGEST_WINDOW:
            self._blocked_until = max(self._blocked_until or headers_at, headers_at + blocked_for)
        valid = [limit for limit in reported if limit.reset <= LONGEST_WINDOW]
        for limit in valid:
            self.limits.setdefault(limit.name, LimitWindow()).learn(limit, request.sent_at, headers_at, refused)
        names = {limit.name for limit in valid}  # a limit that is not reported any more ends with its window
        self.limits = {n: limit for n, limit in self.limits.items() if n in names or request.sent_at < limit.end}

    def useful_workers(self, pages_left: int | None, most: int, now: float) -> int:
        """Return how many concurrent requests make sense for so many pages."""
        binding = [limit for limit in self.limits.values() if now < limit.end and (pages_left or 0) > limit.remaining]
        return min([most, *(limit.concurrency(self._latency or 0.0, now) for limit in binding)])

    def _end(self, who: int) -> _PendingRequest:
        if self._probe == who:
            self._probe = None
        return self._pending.pop(who)

    def _is_used_up(self, limit: LimitWindow) -> bool:
        return limit.remaining <= self._lost + len(self._pending)


class LimitWindow:
    """One limit in its current window, as responses report it.

    Each response reports the seconds until the window ends, often rounded. If they are rounded up, the earliest end
    that any response implies is the end or just after it. A service that reports 0 rounds them down; from then on its
    windows are assumed to end later.
    """

    def __init__(self) -> None:
        self.remaining = 0
        self._reported_at = self._earliest = self._latest = -math.inf
        self._precision = _WHOLE
        self._rounds_down = False

    @property
    def end(self) -> float:
        """When the window ends."""
        return self._latest + (self._precision if self._rounds_down else 0.0)

    def learn(self, reported: ReportedLimit, sent: float, headers_at: float, refused: bool) -> None:
        """Update from the response to a request that was sent at `sent`, and whose headers came at `headers_at`."""
        self._precision = self._precision if reported.reset.is_integer() else _FRACTION
        self._rounds_down = self._rounds_down or reported.reset == 0
        earliest = sent + reported.reset - (0.0 if self._rounds_down else self._precision)
        latest = headers_at + reported.reset
        if earliest >= self.end or (reported.remaining > self.remaining and sent >= self._reported_at):
            self.remaining, self._earliest, self._latest = reported.remaining, earliest, latest  # another window
        elif latest + self._precision >= self._earliest:  # else it is about a window that has ended
            self.remaining = min(self.remaining, reported.remaining)
            self._earliest = max(self._earliest, earliest)
            disproved = refused and sent >= self.end
            self._latest = latest if disproved else min(self._latest, latest)
        self._reported_at = headers_at

    def concurrency(self, latency: float, now: float) -> int:
        """Return how many concurrent requests of `latency` seconds use the limit up by the end of its window."""
        return max(1, math.ceil(latency * self.remaining / max(self.end - now, 1e-9)))
