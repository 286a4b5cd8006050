"""A service with a rate limit, and workers that send requests to it, in simulated time."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

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
class LimitedService:
    """Allow `limit` requests per window.

    With `by_request`, a window begins with the first request after the end of the previous window; otherwise windows
    follow each other without gaps.
    """

    limit: int
    window: float
    rounding: str = "up"
    phase: float = 0.0
    by_request: bool = False
    counts: Counter[float] = field(default_factory=Counter)
    refused: Counter[float] = field(default_factory=Counter)
    _began: float = -math.inf

    def respond(self, now: float) -> tuple[bool, ReportedLimit]:
        """Count a request. Return whether it is refused, and the reported limit."""
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
        """Return the earliest time at which the last of the requests can be sent."""
        windows = math.ceil(requests / self.limit) - 1
        first = start if self.by_request else self._window_at(start)
        return first + windows * self.window if windows else start


@dataclass
class SimulatedRequests:
    """Send requests by several workers that share the state of one rate limiter.

    `spread` limits the workers to the number that the state calls useful. `loss_rate` is the share of responses that
    are lost. `ended_at` is the time of the last response.
    """

    service: LimitedService
    requests: int
    workers: int = 8
    latency: float = 0.05
    spread: bool = False
    loss_rate: float = 0.0
    random: Random = field(default_factory=lambda: Random(0))
    state: RateLimitState = field(default_factory=RateLimitState)
    ended_at: float = 0.0
    most_at_once: int = 0
    lost: int = 0
    _events: list[tuple[float, int, str]] = field(default_factory=list)
    _responses: dict[int, tuple[bool, ReportedLimit] | None] = field(default_factory=dict)
    _waiting: set[int] = field(default_factory=set)
    _busy: set[int] = field(default_factory=set)

    def run(self, start: float) -> SimulatedRequests:
        left = self.requests
        self._events = [(start, worker, "can send") for worker in range(self.workers)]
        while left:
            now, worker, event = heapq.heappop(self._events)
            if event == "reaches service":
                self._count(worker, now)
                continue
            if event == "gets response":
                left -= self._learn(worker, now)
            if left > len(self._busy):
                self._send(worker, left, now)
        return self

    def _send(self, worker: int, left: int, now: float) -> None:
        enough_workers = self.spread and len(self._busy) >= self.state.useful_workers(left, self.workers, now)
        seconds = None if enough_workers else self.state.seconds_until_free(now)
        if seconds is None:
            self._waiting.add(worker)
        elif seconds > 0:
            self._schedule(now + seconds, worker, "can send")
        else:
            self.state.send(worker, now)
            self._busy.add(worker)
            self.most_at_once = max(self.most_at_once, len(self._busy))
            self._schedule(now + self.latency * 0.2 * self.random.random(), worker, "reaches service")

    def _count(self, worker: int, now: float) -> None:
        is_lost, arrives = self.random.random() < self.loss_rate, self.random.random() < 0.5
        self._responses[worker] = self.service.respond(now) if arrives or not is_lost else None
        if is_lost:
            self._responses[worker] = None
            self.lost += 1
        self._schedule(now + self.latency * (0.2 + 0.6 * self.random.random()), worker, "gets response")

    def _learn(self, worker: int, now: float) -> bool:
        """Return whether the request succeeded."""
        self._busy.discard(worker)
        self.ended_at = now
        for other in self._waiting:
            self._schedule(now, other, "can send")
        self._waiting.clear()
        response = self._responses.pop(worker)
        if response is None:
            self.state.lose(worker, now)
            return False
        refused, limit = response
        self.state.learn(worker, now, [limit], refused=refused)
        return not refused

    def _schedule(self, when: float, worker: int, event: str) -> None:
        heapq.heappush(self._events, (when, worker, event))
