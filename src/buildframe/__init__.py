"""CI builds as DataFrames: fetch builds and jobs completely, measure them rightly, see where the time goes.

`connect()` gives a Workspace on a real organization, `sandbox()` one on a service of your own machine.
`metrics` and `plots` are modules to import. `save` and `load` keep frames as Parquet, `save` also writes CSV; `Store`
keeps all that was ever fetched.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar, Unpack, cast, get_type_hints

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
    import os
    from pathlib import Path

    import pandas as pd

    from buildframe.sandbox_server import Settings
    from buildframe.store.store import Store
    from buildframe.workspace import Workspace

__all__ = [
    "BadInput",
    "BuildframeError",
    "DeadlineExceeded",
    "Forbidden",
    "GraphQLError",
    "Incomplete",
    "Invalid",
    "Malformed",
    "MissingExtra",
    "NotFound",
    "OutcomeUnknown",
    "RateLimited",
    "ServiceError",
    "Store",
    "StoreFailed",
    "Unauthorized",
    "Unavailable",
    "Unreachable",
    "Unverified",
    "connect",
    "load",
    "sandbox",
    "save",
]

HOSTED_URL = "https://api.buildkite.com"

P = ParamSpec("P")
R = TypeVar("R")


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
    """A workspace on the service: one organization, or without any all that the token may see.

    What is not given comes from BUILDFRAME_ORG, BUILDFRAME_URL (without /v2; else the hosted service),
    BUILDFRAME_TOKEN and BUILDFRAME_GRAPHQL_URL (else /graphql of the service, or the hosted service's own).
    Nothing is asked yet. A missing token, or an address that would send it unencrypted, raises BadInput.

    `timeout` limits each request, from sending it to the last byte of its response, and `log_timeout` each request for
    a log: a timedelta, or a text such as "90s" or "10m".
    """
    from buildframe.http.client import Client, Token
    from buildframe.spec.times import seconds_of
    from buildframe.workspace import Workspace, graphql

    longest, longest_log = seconds_of(timeout, "timeout"), seconds_of(log_timeout, "log_timeout")
    client = Client(
        base_url or environment("BUILDFRAME_URL") or HOSTED_URL,
        Token(token or environment("BUILDFRAME_TOKEN")),
        timeout=longest,
        log_timeout=longest_log,
    )
    hosted = graphql.HOSTED_URL if client.base_url == HOSTED_URL else None
    door = graphql_url or environment("BUILDFRAME_GRAPHQL_URL") or hosted
    if organization is None:
        organization = environment("BUILDFRAME_ORG") or None
    return Workspace(client, organization, graphql_url=door)


def sandbox(organization: str = "acme", **settings: Unpack[Settings]) -> Workspace:
    """Start a service of your own, on this machine only, with a month of CI in it; a workspace connected to it
    by a token with every scope.

    `settings` are those of `buildframe.sandbox_server.Sandbox`. The workspace's `.sandbox` has `.url`,
    `.token(scopes=...)`, `.truth`, `.clock` and `.stop()`. Needs the extra `sandbox`.
    """
    from buildframe.guards.arguments import check, with_plain_numbers
    from buildframe.http.client import Client, Token
    from buildframe.sandbox_server import SCOPES, Sandbox, Settings
    from buildframe.workspace import Workspace

    numbered = cast("Settings", with_plain_numbers(settings))
    check("sandbox()", get_type_hints(Settings), numbered)
    service = Sandbox(**numbered)
    try:
        if organization is not None:
            service.teams(organization)  # raises BadInput for an organization that is not there
        return Workspace(Client(service.url, Token(service.token(SCOPES))), organization, service)
    except BaseException:
        service.stop()
        raise


@_checked
def save(path: str | os.PathLike[str], frame: pd.DataFrame) -> Path:
    """Write a frame to one file, whole or not at all: CSV if its name ends in `.csv`, with no cell that a spreadsheet
    program would run; else Parquet, from which dtypes, index and `attrs` come back by `load`.
    """
    from buildframe import store

    return store.save(path, frame)


@_checked
def load(path: str | os.PathLike[str]) -> pd.DataFrame:
    """Read a frame that `save` wrote."""
    from buildframe import store

    return store.load(path)


def __getattr__(name: str) -> object:
    if name == "Store":  # loaded at first use, as it brings a package of its own
        from buildframe.store.store import Store

        return Store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
