"""Faults between a client and the service, drawn reproducibly.

sandbox.fault(Fault("status", status=502, route="list_builds", times=2))
sandbox.fault(Fault("latency", seconds=0.5, rate=0.1))
"""

from __future__ import annotations

import datetime as dt
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args, get_type_hints

import msgspec

from buildframe.errors import BadInput
from buildframe.guards.arguments import check
from buildframe.sandbox_server.handlers.routes import ROUTES
from buildframe.sandbox_server.handlers.sql_filters import any_of
from buildframe.sandbox_server.simulation.clock import Clock
from buildframe.sandbox_server.simulation.rules import matches
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.sandbox_server.world.build_state import Commit
from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.pipelines import PipelineEntry

Kind = Literal[
    "latency", "arrive", "finish", "vanish",
    "clamped", "whole", "no_link", "empty_link", "overloaded",
    "limited", "exhausted", "too_deep", "status", "reset", "cut", "garbage",
]  # fmt: skip

CHANGES = ("arrive", "finish", "vanish")
"""The kinds that change the world before a normal response."""

SHAPES = ("clamped", "whole", "no_link", "empty_link")
"""The kinds that change the pages of lists or their `Link` header.

Another fault can spoil the same response.
"""

_RANGES = {"rate": (0, 1), "seconds": (0, 86_400), "n": (1, 1000), "times": (1, 1_000_000), "status": (500, 599)}
_FINISH_STEP = dt.timedelta(minutes=1)
_FINISH_LIMIT = dt.timedelta(hours=12)

_NAMES = [entry.name for entry in ROUTES]


class Fault(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """
    A fault of the sandbox.

    Without `before`, the service executes the request of a spoiled response (`status`, `reset`, `cut`, `garbage`), so
    that the outcome of an action is lost. If several faults spoil a response, only the first applies. A fault that has
    nothing to change (`arrive`, `vanish`, `finish`) does not count as one of `times`.

    Parameters
    ----------
    kind : str
        The kind of fault:

        - ``latency``: delay the response by `seconds`.
        - ``arrive``: before the response, push `n` commits that are built, to the requested pipeline or organization.
        - ``vanish``: before the response, delete its `n` newest builds that are over.
        - ``finish``: before the response, advance the clock until `n` of the requested active builds have finished or
          are blocked, for 12 hours at most; with `seconds`, by exactly that duration.
        - ``clamped``: send at most `n` rows per page, whatever the request says.
        - ``whole``: send all rows of a list in one response without a ``Link`` header, whatever the
          request says.
        - ``no_link``: send no ``Link`` header.
        - ``empty_link``: send an empty ``Link`` header.
        - ``overloaded``: respond with `status` to requests for more than `n` rows per page, after
          `seconds` if given.
        - ``limited``: respond with 429 and a limit that is reset after `seconds`.
        - ``exhausted``: respond normally, report that no requests remain, then respond with 429 for `seconds`.
        - ``too_deep``: respond with the 400 of pages that are too deep.
        - ``status``: respond with `status`.
        - ``reset``: close the connection without a response.
        - ``cut``: close the connection in the middle of the response.
        - ``garbage``: respond with 200 and invalid JSON.
    route : str, optional
        Name of an operation in ``/openapi.json``, such as ``list_builds``. By default every request.
    rate : float, default 1.0
        Share of the requests, from 0 to 1.
    times : int, optional
        Maximum number of occurrences, up to 1,000,000. By default unlimited.
    seconds : float, optional
        Duration, up to 86,400. By default 1, except for ``finish``.
    status : int, default 503
        Status from 500 to 599, of ``status`` and ``overloaded``.
    html : bool, default False
        Whether ``status`` responds with an HTML page instead of JSON.
    before : bool, default False
        Whether the request is lost before the service executes it.
    n : int, default 1
        Number of builds, or of rows per page, from 1 to 1000.

    Raises
    ------
    BadInput
        If a value is invalid.

    Examples
    --------
    >>> Fault("status", status=502, route="list_builds", times=2).kind
    'status'
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
            raise BadInput(f"There is no fault {self.kind!r}. Use one of: {', '.join(get_args(Kind))}.")
        if self.route is not None and self.route not in _NAMES:
            raise BadInput(f"There is no operation {self.route!r}. Use one of: {', '.join(_NAMES)}.")
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise BadInput(f"{name}={value} must be between {least} and {most}.")

    @property
    def wait(self) -> float:
        """Duration in seconds, with the default of 1."""
        return 1.0 if self.seconds is None else self.seconds


_TYPES = {"kind": str, **{name: hint for name, hint in get_type_hints(Fault).items() if name != "kind"}}
"""Types of the fields. `kind` has its own error, which lists all kinds."""


@dataclass
class ActiveFault:
    """A fault, the number of requests that it could hit, and how many it did."""

    fault: Fault
    requests: int = 0
    happened: int = 0


class FaultInjector:
    """The active faults. A hash of the seed and the request number decides which requests they hit."""

    def __init__(self, seed: int, faults: Iterable[Fault] = ()) -> None:
        self._random = SeededRandom(seed)
        self._lock = threading.Lock()
        self.refuses_until = -math.inf
        """Time on the monotonic clock until which all requests are refused."""
        self._active = [ActiveFault(fault) for fault in faults]

    def add(self, fault: Fault) -> None:
        """Add a fault."""
        with self._lock:
            self._active.append(ActiveFault(fault))

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._active = []
            self.refuses_until = -math.inf

    def describe(self) -> list[dict[str, object]]:
        """Return the faults with the number of occurrences (`happened`)."""
        with self._lock:
            return [msgspec.to_builtins(active.fault) | {"happened": active.happened} for active in self._active]

    def draw(self, operation: str | None) -> list[ActiveFault]:
        """Return the faults that hit the next request for an operation."""
        with self._lock:
            concerned = [pair for pair in enumerate(self._active) if pair[1].fault.route in (None, operation)]
            return [active for place, active in concerned if self._happens(place, active)]

    def _happens(self, place: int, active: ActiveFault) -> bool:
        if active.happened == active.fault.times:
            return False
        active.requests += 1
        happens = self._random.happens(active.fault.rate, "fault", place, active.requests)
        active.happened += happens
        return happens


class WorldChanges:
    """Changes the world before a response, as described in `Fault`."""

    def __init__(self, simulator: Simulator, clock: Clock) -> None:
        self._simulator, self._db, self._clock = simulator, simulator.db, clock

    def apply(self, fault: Fault, path: Mapping[str, str]) -> bool:
        """Apply a fault to the pipelines of a path, or to all; return whether anything changed."""
        change = {"arrive": self._arrive, "finish": self._finish, "vanish": self._vanish}[fault.kind]
        organization, pipeline = path.get("org"), path.get("pipeline")
        with self._simulator.lock:  # so that nothing changes between the query and the change
            pipelines = self._db.pipelines.values()
            entries = [entry for entry in pipelines if organization in (None, entry.organization.slug)]
            return change([entry for entry in entries if pipeline in (None, entry.pipeline.slug)], fault, path)

    def _arrive(self, entries: list[PipelineEntry], fault: Fault, path: Mapping[str, str]) -> bool:
        active = [entry for entry in entries if entry.can_be_built]
        pushed = [self._push(active[place % len(active)]) for place in range(fault.n if active else 0)]
        return any(pushed)

    def _push(self, entry: PipelineEntry) -> bool:
        """Push a commit that is built, if necessary on a branch that the branch filter includes."""
        if self._simulator.push(entry, 1):
            return True
        branch_filter = entry.pipeline.branch_configuration
        branches = [entry.pipeline.default_branch, "topic", *(branch_filter or "").replace("*", "topic").split()]
        branch = next((branch for branch in branches if matches(branch_filter, branch)), None)
        if branch is None:
            return False
        sha = self._db.serializer.random.sha("arrived", entry.key, self._db.load_counters()[0])
        self._simulator.create_build(entry, Commit(sha, branch, "Arrive during a request", "webhook"))
        return True

    def _finish(self, entries: list[PipelineEntry], fault: Fault, path: Mapping[str, str]) -> bool:
        if fault.seconds is not None:
            self._clock.advance(dt.timedelta(seconds=fault.seconds))
            return True
        running, until = self._active_builds(entries, path), self._clock.now() + _FINISH_LIMIT
        left = len(running) - min(fault.n, len(running))
        while len(running & self._active_builds(entries, path)) > left and self._clock.now() < until:
            self._clock.advance(_FINISH_STEP)
        return bool(running - self._active_builds(entries, path))

    def _active_builds(self, entries: list[PipelineEntry], path: Mapping[str, str]) -> set[str]:
        number = path.get("number")
        rows = self._db.query("SELECT id, pipeline_key, number FROM builds WHERE over = 0 AND blocked = 0")
        keys = {entry.key for entry in entries}
        return {id for id, key, build_number in rows if key in keys and number in (None, str(build_number))}

    def _vanish(self, entries: list[PipelineEntry], fault: Fault, path: Mapping[str, str]) -> bool:
        chosen = any_of("pipeline_key", [entry.key for entry in entries])
        newest = self._db.query(
            f"SELECT pipeline_key, number FROM builds WHERE over = 1 AND {chosen.sql}"  # noqa: S608  values are bound
            " ORDER BY created DESC, seq DESC LIMIT ?",
            [*chosen.values, fault.n],
        )
        for entry in entries:
            numbers = [number for key, number in newest if key == entry.key]
            if numbers:
                self._simulator.delete_builds(entry, numbers)
        return bool(newest)
