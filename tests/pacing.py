"""A service with limits and a walk of several workers, in simulated time."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from buildframe.http.rate_limit import RateLimitState
from buildframe.http.response import ReportedLimit

ROUNDINGS: dict[str, Callable[[float], float]] = {
    "up": math.ceil,
    "down": math.floor,
    "nearest": round,
    "not": lambda seconds: seconds,
    "to milliseconds": lambda seconds: round(seconds, 3),
    "to tenths": lambda seconds: round(seconds, 1),
}


@dataclass
class Service:
    """Allows so many requests in each window; windows follow each other, or begin with a first request."""

    limit: int
    window: float
    rounding: str = "up"
    phase: float = 0.0
    by_request: bool = False
    counts: Counter[float] = field(default_factory=Counter)
    refused: Counter[float] = field(default_factory=Counter)
    _began: float = -math.inf

    def answer(self, now: float) -> tuple[bool, ReportedLimit]:
        """Count a request; whether it is refused, and how the limit stands."""
        began = self._window_at(now)
        self.counts[began] += 1
        over = self.counts[began] > self.limit
        self.refused[began] += over
        reset = ROUNDINGS[self.rounding](began + self.window - now)
        return over, ReportedLimit("ratelimit", max(0, self.limit - self.counts[began]), float(reset))

    def _window_at(self, now: float) -> float:
        if not self.by_request:
            return (now - self.phase) // self.window * self.window + self.phase
        if now >= self._began + self.window:
            self._began = now
        return self._began

    def ideal(self, requests: int, start: float) -> float:
        """When the last of so many requests can be sent at the earliest."""
        windows = math.ceil(requests / self.limit) - 1
        first = start if self.by_request else self._window_at(start)
        return first + windows * self.window if windows else start


@dataclass
class Walk:
    """So many requests by so many workers at the limiter of a state. `ended` is when the last was answered.

    `spread` follows the state's advice how many at once are useful; a share `loses` of the answers never comes.
    """

    service: Service
    requests: int
    workers: int = 8
    latency: float = 0.05
    spread: bool = False
    loses: float = 0.0
    chance: random.Random = field(default_factory=lambda: random.Random(0))
    state: RateLimitState = field(default_factory=RateLimitState)
    ended: float = 0.0
    most_at_once: int = 0
    lost: int = 0
    _events: list[tuple[float, int, str]] = field(default_factory=list)
    _answers: dict[int, tuple[bool, ReportedLimit] | None] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)
    _busy: set[int] = field(default_factory=set)

    def run(self, start: float) -> Walk:
        left = self.requests
        self._events = [(start, who, "asks") for who in range(self.workers)]
        while left:
            now, who, what = heapq.heappop(self._events)
            if what == "is counted":
                self._count(who, now)
                continue
            if what == "is answered":
                left -= self._learn(who, now)
            if left > len(self._busy):
                self._ask(who, left, now)
        return self

    def _ask(self, who: int, left: int, now: float) -> None:
        crowded = self.spread and len(self._busy) >= self.state.useful_workers(left, self.workers, now)
        seconds = None if crowded else self.state.seconds_until_free(now)
        if seconds is None:
            self._waiting.add(who)
        elif seconds > 0:
            self._later(now + seconds, who, "asks")
        else:
            self.state.send(who, now)
            self._busy.add(who)
            self.most_at_once = max(self.most_at_once, len(self._busy))
            self._later(now + self.latency * 0.2 * self.chance.random(), who, "is counted")

    def _count(self, who: int, now: float) -> None:
        is_lost, arrives = self.chance.random() < self.loses, self.chance.random() < 0.5
        self._answers[who] = self.service.answer(now) if arrives or not is_lost else None
        if is_lost:
            self._answers[who] = None
            self.lost += 1
        self._later(now + self.latency * (0.2 + 0.6 * self.chance.random()), who, "is answered")

    def _learn(self, who: int, now: float) -> bool:
        """Whether the answer brought what was asked for."""
        self._busy.discard(who)
        self.ended = now
        for other in self._waiting:
            self._later(now, other, "asks")
        self._waiting.clear()
        answer = self._answers.pop(who)
        if answer is None:
            self.state.lose(who, now)
            return False
        refused, quota = answer
        self.state.learn(who, now, [quota], refused=refused)
        return not refused

    def _later(self, when: float, who: int, what: str) -> None:
        heapq.heappush(self._events, (when, who, what))
