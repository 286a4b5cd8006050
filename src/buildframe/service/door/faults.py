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
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args, get_type_hints

import msgspec

from buildframe.arguments import check
from buildframe.errors import BadInput
from buildframe.service.answers.routes import ROUTES, address_of
from buildframe.service.life.rules import matches
from buildframe.service.world.chance import Chance
from buildframe.service.world.runs import Commit

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

_DAY = 86_400
_MOST_BUILDS, _MOST_TIMES = 1000, 1_000_000
_LOOKS_EVERY = dt.timedelta(minutes=1)
_LOOKS_FOR = dt.timedelta(hours=12)

_NAMES = [entry.name for entry in ROUTES]


def _pattern(address: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{(\w+)\\}", r"(?P<\1>[^/]+)", re.escape(address)) + "/?")


_ROUTES = [(entry.name, entry.method, _pattern(address_of(entry))) for entry in ROUTES]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something that shall go wrong, in a share (`rate`) of the requests of an operation, at most so many `times`.

    `route` is an operation's name in /openapi.json, such as "list_builds"; None means every request. By `kind`:

    - latency: the answer comes `seconds` later.
    - arrive, vanish: before the answer `n` commits are pushed, each of which is built, or the `n` newest builds that
      are over are deleted, of the pipeline or organization that is asked for.
    - finish: before the answer the clock goes on, by minutes, until `n` of the builds asked for that are under way
      have finished or are blocked, for 12 hours at most; with `seconds` it goes on by just that.
    - limited: 429, with a limit that is reset after `seconds`. exhausted: a good answer with the word that it was
      the last one; for `seconds` of real time every request gets a 429.
    - too_deep: the 400 of pages that lie too far back.
    - status: this `status`, with a JSON body or an HTML page (`html`).
    - reset: the connection is closed without an answer. cut: closed amid the answer. garbage: 200 with invalid JSON.

    What is asked for is done before its answer is spoilt by status, reset, cut or garbage, so that an action's
    outcome is lost; with `before` the request is lost. Of several faults that spoil one answer the first counts.
    Where there is nothing that could arrive, vanish or finish, it did not happen and does not count as one of the
    `times`. `seconds` are at most those of a day; not told they are 1, but for finish.
    """

    kind: Kind
    route: str | None = None
    rate: float = 1.0
    times: int | None = None
    seconds: float | None = None
    status: int = 503
    html: bool = False
    before: bool = False
    n: int = 1

    def __post_init__(self) -> None:
        check("Fault()", _TYPES, msgspec.structs.asdict(self))
        if self.kind not in get_args(Kind):
            raise BadInput(f"There is no fault {self.kind!r}; there are {', '.join(get_args(Kind))}.")
        if self.route is not None and self.route not in _NAMES:
            raise BadInput(f"There is no operation {self.route!r}; there are {', '.join(_NAMES)}.")
        if not 0 <= self.rate <= 1:
            raise BadInput(f"rate={self.rate}: a share lies between 0 and 1.")
        if self.seconds is not None and not 0 <= self.seconds <= _DAY:
            raise BadInput(f"seconds={self.seconds}: they lie between 0 and {_DAY}.")
        if not 1 <= self.n <= _MOST_BUILDS:
            raise BadInput(f"n={self.n}: it lies between 1 and {_MOST_BUILDS}.")
        if self.times is not None and not 1 <= self.times <= _MOST_TIMES:
            raise BadInput(f"times={self.times}: they lie between 1 and {_MOST_TIMES}.")
        if not 500 <= self.status <= 599:
            raise BadInput(f"status={self.status}: a failure of the service has a status from 500 to 599.")

    @property
    def wait(self) -> float:
        """How many seconds something takes or holds."""
        return 1.0 if self.seconds is None else self.seconds


_TYPES = {"kind": str, **{name: hint for name, hint in get_type_hints(Fault).items() if name != "kind"}}
"""Of the fields of a fault. A `kind` that is none gets an error of its own, which lists all."""


class Asked(NamedTuple):
    """The operation that a request is for, if there is one, and what its path names."""

    operation: str | None
    path: Mapping[str, str]


def asked_by(method: str, path: str) -> Asked:
    """What a request is for; a HEAD asks for what a GET does."""
    wanted = "GET" if method == "HEAD" else method
    for name, of_operation, pattern in _ROUTES:
        found = pattern.fullmatch(path)
        if found and wanted == of_operation:
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

    def missed(self, fault: Fault) -> None:
        """Take back that a fault which was drawn has happened."""
        with self._lock:
            for place, armed in enumerate(self._armed):
                if armed is fault:
                    self._done[place] -= 1
                    return

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

    def make(self, fault: Fault, path: Mapping[str, str]) -> bool:
        """Let it happen to what the path names, or to everything if it names nothing; whether anything did."""
        change = {"arrive": self._arrive, "finish": self._finish, "vanish": self._vanish}[fault.kind]
        with self._engine.turn:  # what is found is still there when it changes
            return change(self._named(path), fault, path)

    def _named(self, path: Mapping[str, str]) -> list[Line]:
        return [
            line
            for line in self._data.lines
            if path.get("org") in (None, line.organization.slug) and path.get("pipeline") in (None, line.pipeline.slug)
        ]

    def _arrive(self, lines: list[Line], fault: Fault, path: Mapping[str, str]) -> bool:
        active = [line for line in lines if line.pipeline.archived_at is None and line.plan.slots]
        pushed = [self._push(active[place % len(active)]) for place in range(fault.n if active else 0)]
        return any(pushed)

    def _push(self, line: Line) -> bool:
        """Let a commit arrive that is built: if not any, then one on a branch that the pipeline's filter asks for."""
        if self._engine.push(line, 1):
            return True
        wanted = line.pipeline.branch_configuration
        branches = [line.pipeline.default_branch, "topic", *(wanted or "").replace("*", "topic").split()]
        branch = next((branch for branch in branches if matches(wanted, branch)), None)
        if branch is None:
            return False
        sha = self._data.bodies.chance.sha("arrived", line.key, self._data.load_counters()[0])
        self._engine.create_build(line, Commit(sha, branch, "Arrive while others look", "webhook"))
        return True

    def _finish(self, lines: list[Line], fault: Fault, path: Mapping[str, str]) -> bool:
        if fault.seconds is not None:
            self._clock.advance(dt.timedelta(seconds=fault.seconds))
            return True
        running, until = self._under_way(lines, path), self._clock.now() + _LOOKS_FOR
        left = len(running) - min(fault.n, len(running))
        while len(running & self._under_way(lines, path)) > left and self._clock.now() < until:
            self._clock.advance(_LOOKS_EVERY)
        return bool(running - self._under_way(lines, path))

    def _under_way(self, lines: list[Line], path: Mapping[str, str]) -> set[str]:
        number = path.get("number")
        found = self._data.rows("SELECT id, line, number FROM builds WHERE over = 0 AND blocked = 0")
        keys = {line.key for line in lines}
        return {id for id, line, of_build in found if line in keys and number in (None, str(of_build))}

    def _vanish(self, lines: list[Line], fault: Fault, path: Mapping[str, str]) -> bool:
        marks = ", ".join("?" * len(lines))
        newest = self._data.rows(
            f"SELECT line, number FROM builds WHERE over = 1 AND line IN ({marks})"  # noqa: S608  values are bound
            " ORDER BY created DESC, seq DESC LIMIT ?",
            [*(line.key for line in lines), fault.n],
        )
        for line in lines:
            numbers = [number for key, number in newest if key == line.key]
            if numbers:
                self._engine.forget(line, numbers)
        return bool(newest)
