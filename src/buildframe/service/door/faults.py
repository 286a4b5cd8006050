"""Faults on request: what can go wrong between a client and the service, drawn the same way every time.

sandbox.fault(Fault("status", status=502, route="list_builds", times=2))
sandbox.fault(Fault("latency", seconds=0.5, rate=0.1))
"""

from __future__ import annotations

import datetime as dt
import math
import re
import threading
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import msgspec

from buildframe.errors import BadInput
from buildframe.service.world.chance import Chance
from buildframe.spec import ENDPOINTS

if TYPE_CHECKING:
    from buildframe.service.data.database import Data
    from buildframe.service.life.clock import Clock
    from buildframe.service.life.engine import Engine
    from buildframe.service.world.lines import Line

Kind = Literal[
    "latency", "arrive", "finish", "vanish",
    "limited", "exhausted", "too_deep", "status", "reset", "cut", "garbage",
]  # fmt: skip

CHANGES = ("arrive", "finish", "vanish")
"""The kinds after which the request is answered as it should be, by a world that has changed."""

_NAMES = [entry.name for entry in ENDPOINTS]
_ROUTES = [
    (entry.name, entry.method, re.compile("/v2" + re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", entry.path) + "/?"))
    for entry in ENDPOINTS
]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that shall go wrong, in a share (`rate`) of the requests of an operation, at most so many `times`.

    `route` is an operation's name, such as "list_builds"; None means every request. By `kind`:

    - latency: the answer comes `seconds` later.
    - arrive, vanish: before the answer `n` commits are pushed, or the `n` newest builds that are over are deleted,
      of the pipeline or organization that is asked for. finish: before the answer the clock goes on by `seconds`.
    - limited: 429, with a limit that is reset after `seconds`. exhausted: a good answer with the word that it was
      the last one; for `seconds` of real time every request gets a 429.
    - too_deep: the 400 of pages that lie too far back.
    - status: this `status`, with a JSON body or an HTML page (`html`).
    - reset: the connection is closed without an answer. cut: closed amid the answer. garbage: 200 with invalid JSON.

    What is asked for is done before its answer is spoilt by status, reset, cut or garbage, so that an action's
    outcome is lost; with `before` the request is lost. Of several faults that spoil one answer the first counts.
    """

    kind: Kind
    route: str | None = None
    rate: float = 1.0
    times: int | None = None
    seconds: float = 1.0
    status: int = 503
    html: bool = False
    before: bool = False
    n: int = 1

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise BadInput(f"There is no fault {self.kind!r}; there are {', '.join(get_args(Kind))}.")
        if self.route is not None and self.route not in _NAMES:
            raise BadInput(f"There is no operation {self.route!r}; there are {', '.join(_NAMES)}.")
        if not 0 <= self.rate <= 1:
            raise BadInput(f"rate={self.rate}: a share lies between 0 and 1.")
        if self.seconds < 0 or self.n < 1 or (self.times is not None and self.times < 1):
            raise BadInput("seconds is at least 0; n and times are at least 1.")
        if not 500 <= self.status <= 599:
            raise BadInput(f"status={self.status}: a failure of the service has a status from 500 to 599.")


class Asked(NamedTuple):
    """The operation that a request is for, if it is a declared one, and what its path names."""

    operation: str | None
    path: Mapping[str, str]


def asked_by(method: str, path: str) -> Asked:
    """What a request is for."""
    for name, of_operation, pattern in _ROUTES:
        found = pattern.fullmatch(path)
        if found and method == of_operation:
            return Asked(name, found.groupdict())
    return Asked(None, {})


class Faults:
    """The faults that were asked for. Which request meets which is a hash of the seed and of the request's number."""

    def __init__(self, seed: int, faults: Iterable[Fault] = ()) -> None:
        self._chance = Chance(seed)
        self._lock = threading.Lock()
        self._refuses_until = -math.inf
        self._armed: list[Fault] = list(faults)
        self._seen = [0] * len(self._armed)
        self._done = [0] * len(self._armed)

    def add(self, fault: Fault) -> None:
        """Let this go wrong, too."""
        with self._lock:
            self._armed.append(fault)
            self._seen.append(0)
            self._done.append(0)

    def clear(self) -> None:
        """Let nothing go wrong."""
        with self._lock:
            self._armed, self._seen, self._done = [], [], []
            self._refuses_until = -math.inf

    def exhaust(self, seconds: float) -> None:
        """Let every request be refused for so long, in real time."""
        with self._lock:
            self._refuses_until = time.monotonic() + seconds

    def refuses_for(self) -> float:
        """How many seconds longer every request is refused; not positive if none is."""
        with self._lock:
            return self._refuses_until - time.monotonic()

    def told(self) -> list[dict[str, object]]:
        """The faults, each with how often it has happened (`happened`)."""
        with self._lock:
            pairs = zip(self._armed, self._done, strict=True)
            return [msgspec.to_builtins(fault) | {"happened": done} for fault, done in pairs]

    def drawn(self, operation: str | None) -> list[Fault]:
        """The faults that happen to the next request, which is for this operation."""
        with self._lock:
            concerned = [place for place, fault in enumerate(self._armed) if fault.route in (None, operation)]
            return [self._armed[place] for place in concerned if self._happens(place)]

    def _happens(self, place: int) -> bool:
        fault = self._armed[place]
        if self._done[place] == fault.times:
            return False
        self._seen[place] += 1
        happens = self._chance.happens(fault.rate, "fault", place, self._seen[place])
        self._done[place] += happens
        return happens


class Changes:
    """Changes the world before an answer, as `Fault` says."""

    def __init__(self, engine: Engine, data: Data, clock: Clock) -> None:
        self._engine, self._data, self._clock = engine, data, clock

    def make(self, fault: Fault, path: Mapping[str, str]) -> None:
        """Let it happen to what the path names; to everything if it names nothing."""
        if fault.kind == "finish":
            self._clock.advance(dt.timedelta(seconds=fault.seconds))
        elif fault.kind == "arrive":
            self._arrive(self._named(path), fault.n)
        else:
            with self._engine.turn:  # what is found is still there when it is deleted
                self._vanish(self._named(path), fault.n)

    def _named(self, path: Mapping[str, str]) -> list[Line]:
        return [
            line
            for line in self._data.lines
            if path.get("org") in (None, line.organization.slug) and path.get("pipeline") in (None, line.pipeline.slug)
        ]

    def _arrive(self, lines: list[Line], n: int) -> None:
        active = [line for line in lines if line.pipeline.archived_at is None]
        for place in range(n if active else 0):
            self._engine.push(active[place % len(active)], 1)

    def _vanish(self, lines: list[Line], n: int) -> None:
        marks = ", ".join("?" * len(lines))
        newest = self._data.rows(
            f"SELECT line, number FROM builds WHERE over = 1 AND line IN ({marks})"  # noqa: S608  values are bound
            " ORDER BY created DESC, seq DESC LIMIT ?",
            [*(line.key for line in lines), n],
        )
        for line in lines:
            numbers = [number for key, number in newest if key == line.key]
            if numbers:
                self._engine.forget(line, numbers)
