"""
Fetch CI builds and jobs into pandas DataFrames, measure them, and plot where the time goes.

`connect` returns a workspace of an organization at the service. `sandbox` starts a local service with invented builds
and returns a workspace of it. `save` and `load` write and read one frame; `Store` keeps a history.
The modules `metrics`, `plots`, `report`, `spec`, `webhooks` and `widgets` are loaded at first use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from typing import TYPE_CHECKING, Literal, ParamSpec, TypeVar

from buildframe.errors import (
    BadInput,
    BuildframeError,
    DeadlineExceeded,
    Forbidden,
    GraphQLError,
    Incomplete,
    Invalid,
    Malformed,
    MissingExtra,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    ServiceError,
    StoreFailed,
    Unauthorized,
    Unavailable,
    Unreachable,
    Unverified,
)
from buildframe.guards.secrets import confined, environment, is_confined

if TYPE_CHECKING:
    import datetime as dt
    from pathlib import Path

    from buildframe import metrics, plots, report, spec, webhooks, widgets
    from buildframe.sandbox_server import EphemeralAgents, Fault, Patience, Quota
    from buildframe.spec import When
    from buildframe.store.files import load, save
    from buildframe.store.store import Store
    from buildframe.workspace import Workspace

__all__ = [
    "BadInput", "BuildframeError", "DeadlineExceeded", "Forbidden", "GraphQLError", "Incomplete", "Invalid",
    "Malformed", "MissingExtra", "NotFound", "OutcomeUnknown", "RateLimited", "ServiceError", "Store", "StoreFailed",
    "Unauthorized", "Unavailable", "Unreachable", "Unverified", "connect", "load", "metrics", "plots", "report",
    "sandbox", "save", "spec", "webhooks", "widgets",
]  # fmt: skip

_DEFINED_IN = {"Store": "buildframe.store.store", "load": "buildframe.store.files", "save": "buildframe.store.files"}
"""Names that are loaded at first use, because their modules take a while."""

HOSTED_URL = "https://api.buildkite.com"

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")


def _checked(function: Callable[P, R]) -> Callable[P, R]:
    """Refuse options that a function does not have. The check is imported when it is needed: it takes a while."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        from buildframe.guards.arguments import checked_names

        return checked_names(function)(*args, **kwargs)

    return confined(call) if is_confined(function) else call


@_checked
@confined
def connect(
    organization: str | None = None,
    *,
    base_url: str | None = None,
    token: str | None = None,
    graphql_url: str | None = None,
    timeout: str | dt.timedelta = "60s",
    log_timeout: str | dt.timedelta = "10m",
) -> Workspace:
    """
    Return a workspace of an organization at the service. Sends no request.

    Parameters
    ----------
    organization : str, optional
        Slug of the organization. By default the environment variable `BUILDFRAME_ORG`; if that is not set either,
        the workspace covers all organizations that the token can read.
    base_url : str, optional
        URL of the service without `/v2`. By default `BUILDFRAME_URL`, else the hosted service.
    token : str, optional
        API token. By default `BUILDFRAME_TOKEN`.
    graphql_url : str, optional
        URL for GraphQL requests. By default `BUILDFRAME_GRAPHQL_URL`, else `/graphql` at `base_url`.
    timeout : str or timedelta, default "60s"
        Longest duration of one request, from sending it to the last byte of its response.
    log_timeout : str or timedelta, default "10m"
        Longest duration of one request for a log.

    Returns
    -------
    Workspace
        Workspace of the organization.

    Raises
    ------
    BadInput
        If there is no token, an argument is invalid, or a URL would send the token unencrypted.

    See Also
    --------
    sandbox : Start a local service for trying things out.

    Examples
    --------
    >>> import buildframe as bf
    >>> bf.connect("acme", token="an-invented-token")
    <Workspace acme at https://api.buildkite.com>
    """
    from buildframe.http.client import Client
    from buildframe.http.token import Token
    from buildframe.spec.times import seconds_of
    from buildframe.workspace import Workspace, graphql

    longest, longest_log = seconds_of(timeout, "timeout"), seconds_of(log_timeout, "log_timeout")
    client = Client(
        _or_environment(base_url, "BUILDFRAME_URL", HOSTED_URL),
        Token(_or_environment(token, "BUILDFRAME_TOKEN", "")),
        timeout=longest,
        log_timeout=longest_log,
    )
    hosted = graphql.HOSTED_URL if client.base_url == HOSTED_URL else None
    graphql_url = _or_environment(graphql_url, "BUILDFRAME_GRAPHQL_URL", hosted)
    if organization is None:
        organization = environment("BUILDFRAME_ORG") or None
    return Workspace(client, organization, graphql_url=graphql_url)


@_checked
def sandbox(
    organization: str | None = "acme",
    *,
    path: str | Path | None = None,
    seed: int = 1,
    builds: int = 2600,
    days: int = 30,
    until: When = "2026-10-30T15:00:00Z",
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
    progress: bool | None = None,
) -> Workspace:
    """
    Start a local service with a random history of builds, and return a workspace of it.

    The token of the workspace has every scope. `Workspace.sandbox` is the service itself: its `url`, `token`, `truth`,
    `clock` and `stop`. Needs the extra `sandbox`.

    Parameters
    ----------
    organization : str, optional
        Slug of the organization: `acme` or `globex`. None: all organizations.
    path : str or Path, optional
        SQLite file of the sandbox. By default it is held in memory. An existing file is continued; then `seed`,
        `builds`, `days`, `until`, `agents`, `run_scale`, `world` and the shares are ignored.
    seed : int, default 1
        Seed of the random history.
    builds : int, default 2600
        Approximate number of builds, from 1 to 1,000,000.
    days : int, default 30
        Length of the history in days, from 1 to 3650.
    until : datetime, date or str, default "2026-10-30T15:00:00Z"
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
        Number of builds that the pages of a list reach, from 1.
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
    progress : bool, optional
        Show a progress bar while the history is made. By default only when interactive.

    Returns
    -------
    Workspace
        Workspace of the sandbox. As a context manager it stops the sandbox at the end.

    Raises
    ------
    BadInput
        If an argument is invalid, or the file is used by another sandbox or is not a sandbox file.
    MissingExtra
        If the extra `sandbox` is not installed.

    Examples
    --------
    >>> import buildframe as bf
    >>> with bf.sandbox(builds=50, days=2) as ci:
    ...     builds = ci.builds(created_from="3d")
    >>> builds.attrs["complete"]
    True
    """
    options = locals()  # as declared above
    del options["organization"], options["progress"]
    from buildframe.fetching.progress import ProgressBar
    from buildframe.http.client import Client
    from buildframe.http.token import Token
    from buildframe.sandbox_server import SCOPES, Sandbox
    from buildframe.workspace import Workspace

    with ProgressBar("sandbox", progress) as bar:
        service = Sandbox(**options, on_progress=bar.show_share)
    try:
        if organization is not None:
            service.teams(organization)  # raises BadInput if the organization does not exist
        return Workspace(Client(service.url, Token(service.token(SCOPES))), organization, service)
    except BaseException:
        service.stop()
        raise


def _or_environment(value: str | None, name: str, default: D) -> str | D:
    """Return an argument; if it is None or "", the environment variable, else the default.

    Values of other types, whose truth value may raise an error, are returned, to be refused later.
    """
    if value is None or (isinstance(value, str) and not value):
        return environment(name) or default
    return value


def __getattr__(name: str) -> object:
    if name in _DEFINED_IN:
        return getattr(import_module(_DEFINED_IN[name]), name)
    if name in __all__:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
