"""How fast a service is asked: its limits, which all clients of a process share, and what one call may spend."""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from buildframe.errors import DeadlineExceeded, RateLimited
from buildframe.guards.forks import start_over_in_children
from buildframe.http.response import LONGEST_WINDOW, Answer, Quota, closed_for, quotas
from buildframe.http.service_time import ServiceTime
from buildframe.spec.times import Deadline, seconds_of

LONGEST_WAIT = 120.0  # seconds; a longer one is told to the user, who may have better to do
_LONGEST_REQUEST = 300.0  # seconds; one that takes longer was given up, and an interrupt hid that
_LOOK_AGAIN = 0.05  # seconds after which one who waits for others' answers looks whether it was stopped
_WHOLE, _FRACTION = 1.0, 0.1  # seconds; how coarse the times are that a service tells
_USED_UP = "the limit of requests is used up"

_LOG = logging.getLogger("buildframe")

Clock = Callable[[], float]
OnWait = Callable[[float, str], None]
"""Told before each wait: how many seconds, and why; by the thread that waits."""


class Halted(Exception):
    """A call's own limit ended it; the text says which."""


def _tell_nobody(seconds: float, why: str) -> None:
    """What is waited for shows nowhere."""


class Oversight:
    """Ends all efforts that are made `within` it, from any thread, and hears of their waits.

    `on_rows`, where it is set, is told of the builds that a walk brings, as they come: a frame of those that are new,
    and the share of the walk that is done, from 0 to 1, where it is known; in the thread that called.
    """

    def __init__(self, on_wait: OnWait = _tell_nobody) -> None:
        self.on_wait = on_wait
        self.on_rows: Callable[[Any, float | None], None] | None = None
        self._efforts: weakref.WeakSet[Effort] = weakref.WeakSet()
        self._stopped = False
        self._lock = threading.Lock()

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stopped

    def stop(self) -> None:
        """End its efforts, and those that will be made."""
        with self._lock:
            self._stopped, efforts = True, list(self._efforts)
        for effort in efforts:
            effort.stop()

    @contextmanager
    def within(self) -> Iterator[None]:
        """What this thread begins meanwhile is overseen."""
        before = _OVERSIGHT.set(self)
        try:
            yield
        finally:
            _OVERSIGHT.reset(before)

    def take(self, effort: Effort) -> None:
        """An effort is made within it."""
        with self._lock:
            self._efforts.add(effort)
        if self._stopped:
            effort.stop()


_OVERSIGHT: ContextVar[Oversight | None] = ContextVar("oversight", default=None)
_END: ContextVar[tuple[float, float]] = ContextVar("end", default=(math.inf, math.inf))
"""When what a thread does must end (seconds of the clock `monotonic`), and how long it was given."""


@contextmanager
def until(deadline: Deadline) -> Iterator[None]:
    """Let all calls that this thread begins meanwhile share one deadline; None adds none."""
    before = _END.set(_end_in(None if deadline is None else seconds_of(deadline, "deadline")))
    try:
        yield
    finally:
        _END.reset(before)


def _end_in(seconds: float | None) -> tuple[float, float]:
    """The earlier of two ends: the one that holds already, and one in so many seconds."""
    return _END.get() if seconds is None else min(_END.get(), (time.monotonic() + seconds, seconds))


class Effort:
    """What one call has spent, and what it may spend. Threads share it.

    `requests` counts all sendings, `retries` those of them that repeated one. `waits` counts the waits, and
    `waited_s` is how many seconds requests were held back, summed over requests. `oversight` is that within which it
    was made. Its deadline is the one `until` which it was made, or after `seconds` if that is earlier. `time` is the
    service's time, by all responses.
    """

    def __init__(
        self, *, max_requests: int | None = None, seconds: float | None = None, on_wait: OnWait = _tell_nobody
    ) -> None:
        self.requests = self.retries = self.waits = 0
        self.waited_s = 0.0
        self.time = ServiceTime()
        self._max_requests, self._on_wait = max_requests, on_wait
        self._end, self._seconds = _end_in(seconds)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self.oversight = _OVERSIGHT.get()
        if self.oversight is not None:
            self.oversight.take(self)

    def __repr__(self) -> str:
        return f"<Effort of {self.requests} requests>"

    @property
    def stopped(self) -> bool:
        """Whether `stop` was called."""
        return self._stop.is_set()

    @property
    def requests_left(self) -> int | None:
        """How many requests may still be sent, where there is a limit."""
        return None if self._max_requests is None else self._max_requests - self.requests

    @property
    def seconds_left(self) -> float | None:
        """Seconds until its deadline, where it has one."""
        return None if self._end == math.inf else self._end - time.monotonic()

    @property
    def is_late(self) -> bool:
        """Whether its deadline has passed."""
        return self.seconds_left is not None and self.seconds_left <= 0

    def stop(self) -> None:
        """End it, from any thread: what waits wakes up, and nothing more is sent."""
        self._stop.set()

    def check(self) -> None:
        """Raise Halted or DeadlineExceeded if nothing more may be sent."""
        if self.stopped:
            raise Halted("it was stopped")
        if self._max_requests is not None and self.requests >= self._max_requests:
            raise Halted(f"max_requests={self._max_requests} is used up")
        if self.is_late:
            raise self._too_late("has passed")

    def spend(self) -> None:
        """Count a sending; raises Halted or DeadlineExceeded if there is none left."""
        with self._lock:
            self.check()
            self.requests += 1

    def wait(self, seconds: float, why: str) -> None:
        """Wait before a sending. Raises Halted when it is stopped, and DeadlineExceeded at once if it were in vain."""
        self.check()
        if seconds <= 0:
            return
        if self.seconds_left is not None and seconds >= self.seconds_left:
            raise self._too_late(f"would pass while waiting {seconds:.0f} s: {why}")
        self._on_wait(seconds, why)
        if self.oversight is not None:
            self.oversight.on_wait(seconds, why)
        began = time.monotonic()
        self._stop.wait(seconds)
        with self._lock:
            self.waits += 1
            self.waited_s += time.monotonic() - began
        self.check()

    def _too_late(self, how: str) -> DeadlineExceeded:
        advice = "Allow more time; a listing returns what it has read by then with partial=True."
        return DeadlineExceeded(f"deadline={self._seconds:g}s {how}\n{advice}")

    def retry(self, seconds: float, why: str) -> None:
        """Wait before a sending is repeated, and count that."""
        _LOG.info("asking again in %.0f s: %s", seconds, why)
        self.wait(seconds, why)
        with self._lock:
            self.retries += 1


class Pace:
    """The limits of one service for one token. All clients of this process share it, from all threads."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._gate = Gate()
        self._changed = threading.Condition()
        start_over_in_children(self)

    def start_over(self) -> None:
        """Keep the limits in a forked child, and forget the requests of its parent."""
        self._changed = threading.Condition()
        self._gate.start_over()

    def __repr__(self) -> str:
        return f"<Pace of {len(self._gate.limits)} limits>"

    def enter(self, effort: Effort) -> None:
        """Wait until a request of this thread may be sent, and count it; `leave` must follow, also where this fails.

        Raises Halted or DeadlineExceeded by the effort's limits, and RateLimited where the wait would be longer than
        LONGEST_WAIT.
        """
        while (seconds := self._reserve(effort)) > 0:
            if seconds > LONGEST_WAIT and effort.seconds_left is None:
                raise RateLimited(
                    429, f"{_USED_UP}, as it told before; nothing was sent", retry_after=math.ceil(seconds)
                )
            effort.wait(seconds, _USED_UP)

    def _reserve(self, effort: Effort) -> float:
        """Seconds to wait before another try; 0.0: a request may be sent, and is counted."""
        with self._changed:
            effort.check()
            while (seconds := self._gate.opens_in(self._clock())) is None:
                self._changed.wait(_LOOK_AGAIN)
                effort.check()
            if seconds <= 0:
                effort.spend()
                self._gate.send(threading.get_ident(), self._clock())
            return seconds

    def hear(self) -> None:
        """The head of the answer to this thread's request has come; its body may take a while."""
        with self._changed:
            self._gate.hear(threading.get_ident(), self._clock())

    def leave(self, answer: Answer | None) -> None:
        """The request of this thread is over: what the answer's headers tell; None: no answer came."""
        who = threading.get_ident()
        try:
            self._learn(who, answer)
        except BaseException:  # Ctrl-C amid it: what is not taken back would hold back everybody
            self._gate.lose(who, self._clock())
            raise

    def _learn(self, who: int, answer: Answer | None) -> None:
        with self._changed:
            if answer is None:
                self._gate.lose(who, self._clock())
            else:
                told, closed, refused = quotas(answer), closed_for(answer), answer.status == 429
                self._gate.learn(who, self._clock(), told, refused=refused, closed_for=closed)
            self._changed.notify_all()

    def useful(self, pages_left: int | None, most: int) -> int:
        """How many requests at once make sense, from 1 to `most`, for a walk that has so many pages to go.

        `most`, unless the pages that are left are more than a limit allows now; then as many as use the limit up
        by the end of its window.
        """
        with self._changed:
            return self._gate.useful(pages_left, most, self._clock())


class Paces:
    """All rate limiters of this process, by address and token."""

    def __init__(self) -> None:
        self._paces: weakref.WeakValueDictionary[bytes, Pace] = weakref.WeakValueDictionary()
        self._lock = threading.Lock()
        start_over_in_children(self)

    def __repr__(self) -> str:
        return f"<{len(self._paces)} rate limiters>"

    def start_over(self) -> None:
        """Another thread of the parent may have held the lock."""
        self._lock = threading.Lock()

    def of(self, key: bytes) -> Pace:
        """The one rate limiter of a key."""
        with self._lock:
            return self._paces.setdefault(key, Pace())


class _Sent:
    """A request under way: when it was sent, and when the head of its answer came. Seconds of one clock."""

    def __init__(self, at: float) -> None:
        self.at = at
        self.heard: float | None = None


class Gate:
    """When a request may be sent: pure logic, which is told the time (seconds of one clock).

    A limit's number, as last told, less the requests under way, is what may be sent. Where nothing is known, or a
    window has ended, one request goes alone, and the others wait for its answer.
    """

    def __init__(self) -> None:
        self.limits: dict[str, Limit] = {}
        self._under_way: dict[int, _Sent] = {}
        self._probe: int | None = None  # whose request goes alone
        self._known = False
        self._closed_until: float | None = None
        self._lost, self._lost_at = 0, -math.inf
        self._latency: float | None = None

    def start_over(self) -> None:
        """Forget the requests under way, and ask alone first: other processes use up the same limits."""
        self._under_way, self._probe, self._known = {}, None, False
        self._lost, self._lost_at = 0, -math.inf

    def opens_in(self, now: float) -> float | None:
        """Seconds until a request may be sent, 0.0 if now; None: not before an answer came."""
        for who in [who for who, sent in self._under_way.items() if now - sent.at > _LONGEST_REQUEST]:
            self.lose(who, now)
        if self._closed_until is not None and now < self._closed_until:
            return self._closed_until - now
        if self._probe is not None:
            return None
        used_up = [limit for limit in self.limits.values() if self._is_used_up(limit) and now < limit.end]
        if not used_up:
            return 0.0
        return None if self._under_way else max(limit.end - now for limit in used_up)

    def send(self, who: int, now: float) -> None:
        """A request is sent; `who` has one at a time."""
        if (
            not self._known
            or self._closed_until is not None
            or any(self._is_over(limit, now) for limit in self.limits.values())
        ):
            self._probe = who
        self._under_way[who] = _Sent(now)

    def hear(self, who: int, now: float) -> None:
        """The head of its answer came."""
        if who in self._under_way:
            self._under_way[who].heard = now

    def lose(self, who: int, now: float) -> None:
        """No answer came: the service may have counted the request or not, if it was sent at all."""
        if who in self._under_way:
            self._end(who)
            self._lost, self._lost_at = self._lost + 1, now

    def learn(
        self, who: int, now: float, told: Sequence[Quota], *, refused: bool = False, closed_for: float | None = None
    ) -> None:
        """An answer came, and with it how the limits stand; `refused` if it was one request too many."""
        if who not in self._under_way:  # it took so long that it was given up
            return
        sent = self._end(who)
        heard = now if sent.heard is None else sent.heard
        self._known = True
        self._smooth(now - sent.at)
        if sent.at >= self._lost_at:
            self._lost = 0
        if not refused and self._closed_until is not None and sent.at >= self._closed_until:
            self._closed_until = None
        if closed_for is not None and closed_for <= LONGEST_WINDOW:
            self._closed_until = max(self._closed_until or heard, heard + closed_for)
        sensible = [quota for quota in told if quota.reset <= LONGEST_WINDOW]
        for quota in sensible:
            self.limits.setdefault(quota.name, Limit()).learn(quota, sent.at, heard, refused)
        self._forget({quota.name for quota in sensible}, sent.at)

    def useful(self, pages_left: int | None, most: int, now: float) -> int:
        """How many requests at once make sense for so many pages."""
        binding = [limit for limit in self.limits.values() if now < limit.end and (pages_left or 0) > limit.remaining]
        return min([most, *(limit.share(self._latency or 0.0, now) for limit in binding)])

    def _end(self, who: int) -> _Sent:
        if self._probe == who:
            self._probe = None
        return self._under_way.pop(who)

    def _forget(self, told: set[str], sent: float) -> None:
        """A limit whose window has ended, and of which the service speaks no more, holds nothing back."""
        for name in [name for name, limit in self.limits.items() if name not in told and sent >= limit.end]:
            del self.limits[name]

    def _is_used_up(self, limit: Limit) -> bool:
        return limit.remaining <= self._lost + len(self._under_way)

    def _is_over(self, limit: Limit, now: float) -> bool:
        """Whether nothing is known of a limit's present window, and no request under way will tell."""
        return now >= limit.end and (self._is_used_up(limit) or not self._under_way)

    def _smooth(self, seconds: float) -> None:
        self._latency = seconds if self._latency is None else 0.8 * self._latency + 0.2 * seconds


class Limit:
    """One limit in its present window, as the answers tell it.

    The window's end is known only so well: each answer tells the seconds until then, often whole ones. Where they
    are rounded up, the earliest end that any answer names is the end or just after it. A service that tells 0, be
    it when it refuses what comes after that end, rounds them down; from then on its ends are taken to be later.
    """

    def __init__(self) -> None:
        self.remaining = 0
        self._told_at = self._earliest = self._latest = -math.inf
        self._grain = _WHOLE
        self._late = False

    @property
    def end(self) -> float:
        """When the window ends."""
        return self._latest + (self._grain if self._late else 0.0)

    def learn(self, quota: Quota, sent: float, heard: float, refused: bool) -> None:
        """What the answer to a request tells that was sent and heard of at these times."""
        self._see_rounding(quota.reset)
        earliest, latest = sent + quota.reset - (0.0 if self._late else self._grain), heard + quota.reset
        if earliest >= self.end or (quota.remaining > self.remaining and sent >= self._told_at):
            self.remaining, self._earliest, self._latest = quota.remaining, earliest, latest  # another window
        elif latest + self._grain >= self._earliest:  # else it tells of a window that is over
            self.remaining = min(self.remaining, quota.remaining)
            self._earliest = max(self._earliest, earliest)
            disproved = refused and sent >= self.end
            self._latest = latest if disproved else min(self._latest, latest)
        self._told_at = heard

    def share(self, latency: float, now: float) -> int:
        """How many requests at once use it up by its window's end, each taking `latency` seconds."""
        return max(1, math.ceil(latency * self.remaining / max(self.end - now, 1e-9)))

    def _see_rounding(self, reset: float) -> None:
        if not reset.is_integer():
            self._grain = _FRACTION
        self._late = self._late or reset == 0
