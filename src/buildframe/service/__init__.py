"""A stand-in for the service on this machine: a real HTTP server over an invented world of builds.

with Sandbox() as sandbox:
    sandbox.url                    # http://127.0.0.1:41234
    sandbox.token()                # may read builds and pipelines
    sandbox.truth.slower_step      # what was planted, to check an analysis against
    sandbox.clock.advance(timedelta(hours=1))
"""

from __future__ import annotations

import datetime as dt
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict

from buildframe.errors import BadInput, MissingExtra
from buildframe.service.access import new_token
from buildframe.service.catalogue import ORGANIZATIONS
from buildframe.service.clock import Clock
from buildframe.service.data import Data
from buildframe.service.engine import Engine
from buildframe.service.quota import Meter, Quota
from buildframe.service.truth import BrokenBranch, FlakyStep, ShortQueue, SlowerStep, Truth
from buildframe.service.world import make_world
from buildframe.spec import Moment, When, when

if TYPE_CHECKING:
    from buildframe.service.server import Server

__all__ = ["BrokenBranch", "Clock", "FlakyStep", "Quota", "Sandbox", "Settings", "ShortQueue", "SlowerStep", "Truth"]

UNTIL = Moment(2026, 10, 30, 15, tzinfo=dt.UTC)
"""Where a new sandbox's clock stands: a Friday afternoon."""

DEEPEST = 10_000


class Settings(TypedDict, total=False):
    """The arguments of `Sandbox`, all optional."""

    path: str | Path | None
    seed: int
    builds: int
    days: int
    until: When
    quota: Quota | None
    deepest: int
    host: str
    port: int


class Sandbox:
    """A service with two organizations, `acme` and the small `globex`, and a history of builds.

    With `path` it lives in that file, and comes back from it with its world, clock and tokens; `seed`, `builds`,
    `days` and `until` are for a new one. The same seed gives the same history. `builds` says about how many builds
    it has: commits come at random. The server listens on this machine only, unless `host` says otherwise.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        seed: int = 1,
        builds: int = 2600,
        days: int = 30,
        until: When = UNTIL,
        quota: Quota | None = None,
        deepest: int = DEEPEST,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        if builds < 1 or days < 1:
            raise BadInput("A history has at least 1 build and 1 day.")
        self._data = Data(Path(path) if path is not None else None)
        try:
            self._engine = _engine(self._data, seed, builds, days, when(until, "until"))
            server, self._url = _serve(self._data, quota or Quota(), deepest, host, port)
        except BaseException:
            self._data.close()
            raise
        self._turn = threading.Lock()
        self._close = weakref.finalize(self, _close, server, self._data)
        self._truth = self._engine.world.truth
        self._clock = Clock(self._data.load_now, self._run_until)

    @property
    def url(self) -> str:
        """Where it listens, without `/v2`."""
        return self._url

    @property
    def truth(self) -> Truth:
        """What was planted in the history of `acme`."""
        return self._truth

    @property
    def clock(self) -> Clock:
        """Its time, which stands still until it is moved."""
        return self._clock

    def token(
        self,
        scopes: Sequence[str] = ("read_builds", "read_pipelines"),
        organizations: Sequence[str] | None = None,
    ) -> str:
        """A new token of a new user, with these scopes, for these organizations (all if not told)."""
        every = [organization.slug for organization in self._engine.world.organizations]
        return new_token(self._data, scopes, every if organizations is None else organizations)

    def push(self, pipeline: str, n: int = 1, *, organization: str = "acme") -> list[int]:
        """Let `n` commits arrive now, each of which is built; returns the numbers of the builds."""
        line = self._engine.lines.get(f"{organization}/{pipeline}")
        if line is None:
            raise BadInput(f"There is no pipeline {pipeline!r} in {organization!r}.")
        with self._turn:
            return self._engine.push(line, n)

    def _run_until(self, moment: int) -> None:
        with self._turn:
            self._engine.run_until(moment)

    def stop(self) -> None:
        """End the server; a sandbox in a file can be opened again."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Sandbox {self._url}{'' if self._close.alive else ', stopped'}>"


def _engine(data: Data, seed: int, builds: int, days: int, until: Moment) -> Engine:
    """The engine of the world in the data, or of a new one, run up to where its history ends."""
    world = data.load_world()
    if world is None:
        world = make_world(seed, builds, days, until, ORGANIZATIONS)
        data.create_world(world)
    engine = Engine(world, data)
    if engine.now < world.until:
        engine.run_until(world.until)
    return engine


def _serve(data: Data, quota: Quota, deepest: int, host: str, port: int) -> tuple[Server, str]:
    try:
        from buildframe.service.app import Door
        from buildframe.service.server import Server, address, bind
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] in ("starlette", "uvicorn", "yaml"):
            raise MissingExtra("The sandbox", "sandbox") from None
        raise
    listening = bind(host, port)
    url = address(listening)
    server = Server(Door(data, Meter(quota), deepest, url).app, listening)
    server.start()
    return server, url


def _close(server: Server, data: Data) -> None:
    server.stop()
    data.close()
