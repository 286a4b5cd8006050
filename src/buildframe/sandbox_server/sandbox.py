"""Create, control and stop a sandbox from Python. Does not know HTTP."""

from __future__ import annotations

import datetime as dt
import os
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self, get_args

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_call, checked_names
from buildframe.guards.extras import needs_extra
from buildframe.guards.secrets import confined
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.outbox import EVENTS, Delivery, Hook, create_hook
from buildframe.sandbox_server.db.teams import TeamDirectory
from buildframe.sandbox_server.db.tokens import create_token
from buildframe.sandbox_server.http.faults import Fault, FaultInjector
from buildframe.sandbox_server.http.rate_limit import Quota
from buildframe.sandbox_server.http.webhook_sender import Patience, WebhookSender
from buildframe.sandbox_server.simulation.clock import Clock
from buildframe.sandbox_server.simulation.rules import ActionRejected
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.sandbox_server.world.build_state import BuildRun
from buildframe.sandbox_server.world.creation import make_world
from buildframe.sandbox_server.world.fleets import EphemeralAgents, check_agents, check_run_scale
from buildframe.sandbox_server.world.ground_truth import Truth
from buildframe.sandbox_server.world.model import WorldKind
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.sandbox_server.world.planting import EXAMPLE_SEED
from buildframe.spec import Moment, When, when

if TYPE_CHECKING:
    from buildframe.sandbox_server.http.server import HttpServer

UNTIL = Moment(2026, 10, 30, 15, tzinfo=dt.UTC)
"""Time of a new sandbox's clock: a Friday afternoon."""

MAX_BUILDS = 1_000_000
"""Maximum number of builds of a new sandbox."""

MAX_DAYS = 3650


class Sandbox:
    """
    A local CI service with the organizations `acme` and `globex` and a history of random builds.

    The clock stands still unless you move it or set a speed. The same seed gives the same history. With a path, the
    sandbox is stored in that file and continues from it.

    Parameters
    ----------
    path : str or Path, optional
        SQLite file of the sandbox. By default it is held in memory. An existing file is continued; then `seed`,
        `builds`, `days`, `until`, `agents`, `run_scale`, `world` and the shares are ignored.
    seed : int, default 1
        Seed of the random history and of the anomalies in it; see `truth`. Those of seed 1 are fixed.
    builds : int, default 2600
        Approximate number of builds, from 1 to 1,000,000.
    days : int, default 30
        Length of the history in days, from 1 to 3650.
    until : datetime, date or str, default 2026-10-30 15:00 UTC
        End of the history, and the time of the clock.
    agents : mapping of str to int, sequence of int or EphemeralAgents, optional
        Agents of queues, by the name of the queue. A number from 1 to 1000; or 168 numbers from 0, one for each hour of
        the week from Monday 00:00 UTC; or agents that run one job each. By default, and in the queues that are not
        named, as many as the number of builds needs.
    run_scale : mapping of str to float, optional
        Factors of run times, by the key of the step, above 0 and at most 100: `{"e2e": 0.5}` halves them.
    world : {"plain", "odd"}, default "plain"
        What responses look like. `odd` also has what real services send: old formats, records of
        unusual shape, and hostile texts. The history is the same.
    fork_share : float, default 0.0
        Share of the pushes to branches that come from forks, whose branch is called as the
        pipeline's default branch.
    no_end_share : float, default 0.0
        Share of the canceled jobs that have no `finished_at`. Half of those that never started have
        expired, and half of these say when.
    quota : Quota, optional
        Rate limits. By default they are never reached.
    deepest : int, default 10000
        Number of builds that pages of a list reach, from 1.
    host : str, default "127.0.0.1"
        Address to listen on.
    port : int, default 0
        Port to listen on; 0 chooses a free one.
    faults : sequence of Fault, default ()
        Faults that are active from the start.
    patience : Patience, optional
        Retry policy of webhooks.
    speed : float, optional
        Simulated seconds per second. By default the clock stands still.
    cancels_at_once : bool, default True
        Whether a canceled build is `canceled` in the response. Otherwise its jobs take some seconds to stop.
    on_progress : callable, optional
        Function that is called with the share of the history that is made, from 0 to 1.

    Raises
    ------
    BadInput
        If an argument is invalid, or the file is used by another sandbox or is not a sandbox file.
    MissingExtra
        If the extra `sandbox` is not installed.

    Examples
    --------
    >>> from buildframe.sandbox_server import Sandbox
    >>> with Sandbox(builds=20, days=2) as sandbox:
    ...     print(sorted(sandbox.teams("globex")))
    ['Everyone', 'Site']
    """

    @checked_call
    def __init__(
        self,
        path: str | Path | None = None,
        *,
        seed: int = EXAMPLE_SEED,
        builds: int = 2600,
        days: int = 30,
        until: When = UNTIL,
        agents: Mapping[str, int | Sequence[int] | EphemeralAgents] | None = None,
        run_scale: Mapping[str, float] | None = None,
        world: Literal["plain", "odd"] = "plain",
        fork_share: float = 0.0,
        no_end_share: float = 0.0,
        quota: Quota | None = None,
        deepest: int = 10_000,
        host: str = "127.0.0.1",
        port: int = 0,
        faults: Sequence[Fault] = (),
        patience: Patience | None = None,
        speed: float | None = None,
        cancels_at_once: bool = True,
        on_progress: Callable[[float], object] = lambda share: None,
    ) -> None:
        if builds < 1 or days < 1:
            raise BadInput(f"builds={builds} and days={days} must be at least 1.")
        for name, value, most in (("builds", builds, MAX_BUILDS), ("days", days, MAX_DAYS)):
            if value > most:
                raise BadInput(f"{name}={value} must be at most {most:,}.")
        if world not in get_args(WorldKind):
            raise BadInput(f"world={world!r} is no kind of world. Use 'plain' or 'odd'.")
        _check_shares(fork_share=fork_share, no_end_share=no_end_share)
        if deepest < 1:
            raise BadInput(f"deepest={deepest} must be at least 1.")
        fleets, scales = check_agents(agents or {}), check_run_scale(run_scale or {})
        with needs_extra("The sandbox", "sandbox", "starlette", "uvicorn", "yaml"):
            from buildframe.sandbox_server.http.server import start_server
        self._db = Database(Path(path) if path is not None else None)
        try:
            stored = self._db.load_world()
            if stored is None:
                end = when(until, "until")
                stored = make_world(seed, builds, days, end, fleets, scales, world, fork_share, no_end_share)
                self._db.create_world(stored)
            self._simulator = Simulator(self._db, cancels_at_once)
            self._simulator.run_until(stored.until, on_progress)
            self._truth = self._simulator.truth()
            self._clock = Clock(self._simulator, speed)
            self._faults = FaultInjector(seed, faults)
            limits = quota or Quota(), deepest
            server, self._url = start_server(self._simulator, self._clock, self._faults, *limits, host, port)
        except BaseException:
            self._db.close()
            raise
        sender = WebhookSender(self._simulator.outbox, self._url, patience or Patience())
        self._close = weakref.finalize(self, _close, os.getpid(), sender, server, self._clock, self._db)
        sender.start()
        self._clock.start()

    @property
    def url(self) -> str:
        """URL of the server, without `/v2`."""
        return self._url

    @property
    def truth(self) -> Truth:
        """The anomalies planted in the history of `acme`."""
        return self._truth

    @property
    def clock(self) -> Clock:
        """The simulated clock."""
        return self._clock

    @checked_call
    def token(
        self,
        scopes: Sequence[str] = ("read_builds", "read_pipelines"),
        organizations: Sequence[str] | None = None,
        *,
        may_edit: bool = True,
    ) -> str:
        """
        Create a token for a new user.

        Parameters
        ----------
        scopes : sequence of str, default ("read_builds", "read_pipelines")
            Scopes of the token; see `SCOPES`.
        organizations : sequence of str, optional
            Slugs of the organizations that the token can access. By default all.
        may_edit : bool, default True
            Whether the user can change pipelines. If not, changes get status 403 whatever the scopes are.

        Returns
        -------
        str
            The token.

        Raises
        ------
        BadInput
            If a scope or an organization does not exist.

        Examples
        --------
        >>> with Sandbox(builds=20, days=2) as sandbox:
        ...     token = sandbox.token(["read_builds"], ["globex"])
        """
        slugs = [organization.slug for organization in self._simulator.world.organizations]
        return create_token(self._db, scopes, slugs if organizations is None else organizations, may_edit)

    @checked_call
    def teams(self, organization: str = "acme") -> dict[str, str]:
        """
        Return the teams of an organization.

        Parameters
        ----------
        organization : str, default "acme"
            Slug of the organization.

        Returns
        -------
        dict of str to str
            UUID of each team, by its name.

        Raises
        ------
        BadInput
            If the organization does not exist.
        """
        self._simulator.world.get_organization(organization)
        return {team.name: team.id for team in TeamDirectory(self._db).list_teams(organization)}

    @checked_call
    def suites(self, organization: str = "acme") -> list[str]:
        """
        Return the test suites of an organization.

        Parameters
        ----------
        organization : str, default "acme"
            Slug of the organization.

        Returns
        -------
        list of str
            Slugs of the suites.

        Raises
        ------
        BadInput
            If the organization does not exist.

        Examples
        --------
        >>> with Sandbox(builds=20, days=2) as sandbox:
        ...     print("rspec" in sandbox.suites())
        True
        """
        return [suite.slug for suite in self._simulator.world.get_organization(organization).suites]

    @checked_call
    def push(self, pipeline: str, n: int = 1, *, organization: str = "acme") -> list[int]:
        """
        Push random commits to a pipeline.

        Parameters
        ----------
        pipeline : str
            Slug of the pipeline.
        n : int, default 1
            Number of commits.
        organization : str, default "acme"
            Slug of the organization.

        Returns
        -------
        list of int
            Numbers of the new builds; fewer than `n` if the pipeline does not build every branch.

        Raises
        ------
        BadInput
            If the pipeline does not exist.

        Examples
        --------
        >>> with Sandbox(builds=20, days=2) as sandbox:
        ...     numbers = sandbox.push("docs", 2)
        ...     sandbox.forget("docs", numbers)
        >>> len(numbers)
        2
        """
        return self._simulator.push(self._entry(organization, pipeline), n)

    @checked_call
    def retry(self, pipeline: str, number: int, job: str, *, organization: str = "acme") -> None:
        """
        Retry a failed job, which reopens its build if that is over.

        Parameters
        ----------
        pipeline : str
            Slug of the pipeline.
        number : int
            Number of the build.
        job : str
            UUID of the job.
        organization : str, default "acme"
            Slug of the organization.

        Raises
        ------
        BadInput
            If the job does not exist, did not fail, or was retried already.
        """
        build = self._build(self._entry(organization, pipeline), number)
        if all(one.id != job for one in build.jobs):
            raise BadInput(f"There is no job {job!r} in build {number} of {pipeline!r}. Pass the UUID of a job.")
        try:
            self._simulator.retry(build.id, job)
        except ActionRejected as why:
            raise BadInput(str(why)) from None

    @checked_call
    def forget(self, pipeline: str, numbers: Sequence[int], *, organization: str = "acme") -> None:
        """
        Delete builds in any state, as retention does.

        Parameters
        ----------
        pipeline : str
            Slug of the pipeline.
        numbers : sequence of int
            Numbers of the builds.
        organization : str, default "acme"
            Slug of the organization.

        Raises
        ------
        BadInput
            If the pipeline or a build does not exist.
        """
        entry = self._entry(organization, pipeline)
        self._simulator.delete_builds(entry, [self._build(entry, number).number for number in numbers])

    @checked_call
    def write_exports(self, folder: str | Path, *, before: When | None = None, organization: str = "acme") -> int:
        """
        Write builds to a folder as the hosted service exports builds past retention.

        The builds stay in the sandbox; `forget` deletes them. Equal builds give equal files.

        Parameters
        ----------
        folder : str or Path
            Folder for the exports, which is created if it does not exist.
        before : str, date, datetime or timedelta, optional
            Write builds created before this time; ages count back from the clock. By default all builds.
        organization : str, default "acme"
            Slug of the organization.

        Returns
        -------
        int
            Number of builds.

        Raises
        ------
        BadInput
            If the organization does not exist or `before` is invalid.

        Examples
        --------
        >>> import tempfile
        >>> with Sandbox(builds=20, days=2) as sandbox, tempfile.TemporaryDirectory() as folder:
        ...     sandbox.write_exports(folder, before="7d")
        0
        """
        self._simulator.world.get_organization(organization)
        now = self._clock.now()
        end = sys.maxsize if before is None else when(before, "before", now).us
        from buildframe.sandbox_server.build_exports import write_exports  # needs the extra

        return write_exports(self._db, Path(folder).expanduser(), end, organization, self._url)

    def _entry(self, organization: str, pipeline: str) -> PipelineEntry:
        entry = self._db.pipelines.find(organization, pipeline)
        if entry is None:
            raise BadInput(f"There is no pipeline {pipeline!r} in {organization!r}.")
        return entry

    def _build(self, entry: PipelineEntry, number: int) -> BuildRun:
        build = next(self._db.load_builds("pipeline_key = ? AND number = ?", entry.key, number), None)
        if build is None:
            raise BadInput(f"There is no build {number} of {entry.pipeline.slug!r}.")
        return build

    @checked_call
    def fault(self, fault: Fault) -> None:
        """
        Add a fault; faults added before remain active.

        Parameters
        ----------
        fault : Fault
            The fault.

        Examples
        --------
        >>> with Sandbox(builds=20, days=2) as sandbox:
        ...     sandbox.fault(Fault("status", status=502, route="list_builds", times=2))
        ...     sandbox.clear_faults()
        """
        self._faults.add(fault)

    def clear_faults(self) -> None:
        """Remove all faults."""
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
        """
        Send events of an organization to a URL on this machine, first a `ping`.

        Parameters
        ----------
        url : str
            URL with http or https on a loopback address.
        token : str
            Secret that deliveries contain, or are signed with.
        signed : bool, default False
            Whether to sign deliveries instead of sending the token.
        events : sequence of str or None, default ("build.*", "job.*")
            Names or patterns of events. None means all events.
        organization : str, default "acme"
            Slug of the organization.

        Returns
        -------
        Hook
            The webhook.

        Raises
        ------
        BadInput
            If an argument is invalid.

        Examples
        --------
        >>> with Sandbox(builds=20, days=2) as sandbox:
        ...     hook = sandbox.webhook("http://127.0.0.1:9/hooks", token="an-invented-token")
        ...     print([delivery.event for delivery in sandbox.deliveries()])
        ...     sandbox.remove_webhook(hook)
        ['ping']
        """
        hook = create_hook(url, token, signed, events, organization)
        self._simulator.outbox.add(hook)
        return hook

    @checked_call
    def remove_webhook(self, hook: Hook) -> None:
        """
        Remove a webhook and drop its pending deliveries.

        Parameters
        ----------
        hook : Hook
            A webhook that `webhook` returned.

        Raises
        ------
        BadInput
            If the webhook does not exist.
        """
        self._simulator.outbox.remove(hook.id)

    def deliveries(self) -> list[Delivery]:
        """
        Return the log of webhook deliveries.

        Returns
        -------
        list of Delivery
            All pending deliveries and the last 2000 others of each webhook, oldest first.
        """
        return self._simulator.outbox.list_deliveries()

    def stop(self) -> None:
        """Stop the server. A sandbox in a file can be opened again."""
        self._close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<Sandbox {self._url}{'' if self._close.alive else ', stopped'}>"


def _close(process: int, sender: WebhookSender, server: HttpServer, clock: Clock, db: Database) -> None:
    """Stop a sandbox, but only in the process that started it: a forked child has none of its threads.

    Pending deliveries stay stored.
    """
    if os.getpid() == process:
        sender.stop()
        server.stop()
        clock.stop()
        db.close()


def _check_shares(**shares: float) -> None:
    for name, share in shares.items():
        if not 0 <= share <= 1:
            raise BadInput(f"{name}={share} is not a share. Use a number from 0 to 1, such as 0.1.")
