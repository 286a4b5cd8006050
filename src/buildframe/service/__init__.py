"""A stand-in for the service on this machine: a real HTTP server over an invented world of builds.

with Sandbox() as sandbox:
    sandbox.url                    # http://127.0.0.1:41234
    sandbox.token()                # may read builds and pipelines
    sandbox.truth.slower_step      # what was planted, to check an analysis against
    sandbox.clock.advance(timedelta(hours=1))
"""

from __future__ import annotations

import datetime as dt
import os
import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypedDict

from buildframe.arguments import checked_call, checked_names
from buildframe.errors import BadInput, MissingExtra
from buildframe.secret import confined
from buildframe.service.data.access import SCOPES, new_token
from buildframe.service.data.database import Data
from buildframe.service.data.outbox import EVENTS, Delivery, Hook, new_hook
from buildframe.service.data.teams import Teams
from buildframe.service.door.courier import Patience
from buildframe.service.door.faults import Fault, Faults
from buildframe.service.door.quota import Quota
from buildframe.service.life.clock import Clock
from buildframe.service.life.engine import Engine
from buildframe.service.life.rules import Refusal
from buildframe.service.world.catalogue import ORGANIZATIONS
from buildframe.service.world.lines import Line
from buildframe.service.world.model import make_world
from buildframe.service.world.roster import SUITES
from buildframe.service.world.runs import BuildRun
from buildframe.service.world.truth import BrokenBranch, FlakyStep, ShortQueue, SlowerStep, Truth
from buildframe.spec import Moment, When, when

if TYPE_CHECKING:
    from buildframe.service.door.front import Front

__all__ = [
    "SCOPES",
    "BrokenBranch",
    "Clock",
    "Delivery",
    "Fault",
    "FlakyStep",
    "Hook",
    "Patience",
    "Quota",
    "Sandbox",
    "Settings",
    "ShortQueue",
    "SlowerStep",
    "Truth",
]

UNTIL = Moment(2026, 10, 30, 15, tzinfo=dt.UTC)
"""Where a new sandbox's clock stands: a Friday afternoon."""

DEEPEST = 10_000

MOST_BUILDS = 1_000_000
"""Of a new sandbox, which makes some hundreds of builds a second."""

MOST_DAYS = 3650


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
    faults: Sequence[Fault]
    patience: Patience | None
    speed: float | None
    cancels_at_once: bool


class Sandbox:
    """A service with two organizations, `acme` and the small `globex`, and a history of builds.

    With `path` it lives in that file, and comes back from it with its world, clock and tokens; `seed`, `builds`,
    `days` and `until` are for a new one. The same seed gives the same history. `builds` says about how many builds
    it has: commits come at random. The server listens on this machine only, unless `host` says otherwise.
    Its clock stands still until it is moved; with a `speed` it runs, at so many simulated seconds per second. A build
    is canceled when the answer says so; without `cancels_at_once` its jobs need some seconds to stop.
    `faults` go wrong from the start; `patience` says how often a webhook that is not accepted is tried.
    """

    @checked_call
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
        faults: Sequence[Fault] = (),
        patience: Patience | None = None,
        speed: float | None = None,
        cancels_at_once: bool = True,
    ) -> None:
        if builds < 1 or days < 1:
            raise BadInput("A history has at least 1 build and 1 day.")
        for name, value, most in (("builds", builds, MOST_BUILDS), ("days", days, MOST_DAYS)):
            if value > most:
                raise BadInput(f"{name}={value}: a sandbox makes a history of at most {most:,} {name}.")
        if deepest < 1:
            raise BadInput(f"deepest={deepest}: pass the number of records that pages reach, from 1.")
        self._data = Data(Path(path) if path is not None else None)
        try:
            self._engine = _engine(self._data, seed, builds, days, when(until, "until"), cancels_at_once)
            self._clock = Clock(self._engine, self._data.load_now, speed)
            self._faults = Faults(seed, faults)
            front = _front()(
                self._data,
                self._engine,
                self._clock,
                self._faults,
                quota=quota or Quota(),
                patience=patience or Patience(),
                deepest=deepest,
                host=host,
                port=port,
            )
        except BaseException:
            self._data.close()
            raise
        self._close = weakref.finalize(self, _close, os.getpid(), front, self._clock, self._data)
        self._url, self._outbox = front.url, front.outbox
        self._truth = self._engine.world.truth
        self._clock.start()

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
        """Its time, which stands still until it is moved, unless it has a `speed`."""
        return self._clock

    @checked_call
    def token(
        self,
        scopes: Sequence[str] = ("read_builds", "read_pipelines"),
        organizations: Sequence[str] | None = None,
        *,
        may_edit: bool = True,
    ) -> str:
        """A new token of a new user, with these scopes, for these organizations (all if not told).

        A user who may not edit pipelines gets 403 for changes to them, whatever the token's scopes are.
        """
        every = [organization.slug for organization in self._engine.world.organizations]
        return new_token(self._data, scopes, every if organizations is None else organizations, may_edit)

    @checked_call
    def teams(self, organization: str = "acme") -> dict[str, str]:
        """The UUID of each team of an organization, by its name."""
        return {team.name: team.id for team in Teams(self._data).of(self._known(organization))}

    @checked_call
    def suites(self, organization: str = "acme") -> list[str]:
        """The slugs of the test suites of an organization."""
        return [suite.slug for suite in SUITES.get(self._known(organization), ())]

    def _known(self, organization: str) -> str:
        known = [one.slug for one in self._engine.world.organizations]
        if organization not in known:
            raise BadInput(f"There is no organization {organization!r} here; there are {', '.join(known)}.")
        return organization

    @checked_call
    def push(self, pipeline: str, n: int = 1, *, organization: str = "acme") -> list[int]:
        """Let `n` commits arrive now, each of which is built; returns the numbers of the builds."""
        return self._engine.push(self._line(organization, pipeline), n)

    @checked_call
    def retry(self, pipeline: str, number: int, job: str, *, organization: str = "acme") -> None:
        """Let someone repeat a job (its UUID) that failed, which reopens its build if that is over."""
        build = self._build(self._line(organization, pipeline), number)
        if all(one.id != job for one in build.jobs):
            raise BadInput(f"There is no job {job!r} in build {number} of {pipeline!r}.")
        try:
            self._engine.retry(build.id, job)
        except Refusal as why:
            raise BadInput(str(why)) from None

    @checked_call
    def forget(self, pipeline: str, numbers: Sequence[int], *, organization: str = "acme") -> None:
        """Delete builds, as retention does, whatever their state is."""
        line = self._line(organization, pipeline)
        self._engine.forget(line, [self._build(line, number).number for number in numbers])

    def _line(self, organization: str, pipeline: str) -> Line:
        line = self._data.lines.find(organization, pipeline)
        if line is None:
            raise BadInput(f"There is no pipeline {pipeline!r} in {organization!r}.")
        return line

    def _build(self, line: Line, number: int) -> BuildRun:
        found = [self._data.load_build(id) for id in self._data.ids_of(line.key, [number])]
        if not found or found[0] is None:
            raise BadInput(f"There is no build {number} of {line.pipeline.slug!r}.")
        return found[0]

    @checked_call
    def fault(self, fault: Fault) -> None:
        """Let something go wrong from now on, in addition to what does already."""
        self._faults.add(fault)

    def clear_faults(self) -> None:
        """Let nothing go wrong any more."""
        self._faults.clear()

    @checked_names
    @confined
    def webhook(
        self,
        url: str,
        *,
        token: str,
        signed: bool = False,
        events: Sequence[str] | None = EVENTS,
        organization: str = "acme",
    ) -> Hook:
        """Tell an http address on this machine of an organization's events from now on, beginning with a `ping`.

        Each delivery carries the token, or a signature made with it if `signed`. `events` are names or patterns
        such as `build.*`; None means all.
        """
        hook = new_hook(url, token, signed, events, organization)
        self._outbox.add(hook)
        return hook

    @checked_call
    def remove_webhook(self, hook: Hook) -> None:
        """Tell a webhook no more, also nothing that is still to be sent."""
        self._outbox.remove(hook.id)

    def deliveries(self) -> list[Delivery]:
        """What became of each event for each webhook, oldest first."""
        return self._outbox.log()

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


def _engine(data: Data, seed: int, builds: int, days: int, until: Moment, cancels_at_once: bool) -> Engine:
    """The engine of the world in the data, or of a new one, run up to where its history ends."""
    world = data.load_world()
    if world is None:
        world = make_world(seed, builds, days, until, ORGANIZATIONS)
        data.create_world(world)
    engine = Engine(world, data, cancels_at_once)
    if engine.now < world.until:
        engine.run_until(world.until)
    return engine


def _front() -> type[Front]:
    try:
        from buildframe.service.door.front import Front
    except ModuleNotFoundError as missing:
        if (missing.name or "").split(".")[0] in ("starlette", "uvicorn", "yaml"):
            raise MissingExtra("The sandbox", "sandbox") from None
        raise
    return Front


def _close(process: int, front: Front, clock: Clock, data: Data) -> None:
    """End a sandbox in the process that started it; a forked child has neither its threads nor its database."""
    if os.getpid() != process:
        return
    front.stop()
    clock.stop()
    data.close()
