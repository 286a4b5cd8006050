"""What an organization and a pipeline have in common: lists of builds, and how a method shows what it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar, Unpack

import pandas as pd

from buildframe import fetch, spec
from buildframe.client import Client
from buildframe.errors import BadInput
from buildframe.fetch import Extra, More, Source
from buildframe.spec import BuildFilters, Endpoint, Filter, Property

F = TypeVar("F", bound=Callable[..., Any])


class History(NamedTuple):
    """Two frames of one walk."""

    builds: pd.DataFrame
    jobs: pd.DataFrame


def takes(endpoint: Endpoint) -> Callable[[F], F]:
    """Show an endpoint's filters or properties in a method's signature, for completion, and in its docstring."""

    def show(method: F) -> F:
        signature = inspect.signature(method)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [*map(_shown, endpoint.filters), *map(_shown, endpoint.properties)]
        heading = "Properties" if endpoint.properties else "Filters"
        method.__doc__ = f"{inspect.getdoc(method)}\n\n{heading}:\n{_meanings(endpoint)}\n"
        method.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return method

    return show


def _shown(entry: Filter | Property) -> inspect.Parameter:
    """A filter may be None; of a property None would mean null, so `...` stands for leaving it out."""
    left_out = None if isinstance(entry, Filter) else ...
    required = isinstance(entry, Property) and entry.required
    default = inspect.Parameter.empty if required else left_out
    return inspect.Parameter(entry.name, inspect.Parameter.KEYWORD_ONLY, default=default)


def _meanings(endpoint: Endpoint) -> str:
    filters = [f"    {entry.name}: {entry.doc}" for entry in endpoint.filters]
    properties = [f"    {e.name}{' (required)' if e.required else ''}: {e.doc}" for e in endpoint.properties]
    return "\n".join([*filters, *properties])


class BuildLists:
    """What an organization and a pipeline have in common: lists of builds.

    Times in filters are datetimes with a zone, dates (midnight UTC), ISO texts, or ages such as "30d",
    counted back from the service's time. `extra` adds text columns by path, such as
    {"team": "meta_data.team"}; `raw=True` adds each record as JSON text. `progress` is a bar where
    somebody can see it; True and False say so regardless.
    """

    _client: Client
    _list: Endpoint
    _place: tuple[str, ...]

    @takes(spec.list_builds)
    def builds(
        self,
        *,
        extra: Extra | None = None,
        raw: bool = False,
        progress: bool | None = None,
        **filters: Unpack[BuildFilters],
    ) -> pd.DataFrame:
        """All builds that match, newest first, one row each; complete or an error.

        Columns and dtypes are those of the table `builds`, also where there is no row. Jobs are left out
        of the answers, which makes this much cheaper than `history`.
        """
        more = More("builds", extra or {}, raw)
        wanted = {"exclude_jobs": True, **filters}
        return fetch.builds(self._source(), wanted, more, None, progress)[0]

    @takes(spec.list_builds)
    def jobs(
        self,
        *,
        extra: Extra | None = None,
        raw: bool = False,
        progress: bool | None = None,
        **filters: Unpack[BuildFilters],
    ) -> pd.DataFrame:
        """All jobs of all builds that match, one row each, beside its build's id, number, branch and so on.

        Filters choose builds. All attempts of retried jobs are there unless `include_retried_jobs=False`.
        A path in `extra` that begins with "build." leads into the job's build.
        """
        more = More("jobs", extra or {}, raw)
        return fetch.builds(self._source(), _with_jobs(filters), More("builds"), more, progress)[1]

    @takes(spec.list_builds)
    def history(
        self,
        *,
        extra: Extra | None = None,
        job_extra: Extra | None = None,
        raw: bool = False,
        progress: bool | None = None,
        **filters: Unpack[BuildFilters],
    ) -> History:
        """Builds and their jobs from one walk: `builds, jobs = ws.history(created_from="30d")`.

        `extra` is for the builds, `job_extra` for the jobs. All attempts of retried jobs are there unless
        `include_retried_jobs=False`.
        """
        more, job_more = More("builds", extra or {}, raw), More("jobs", job_extra or {}, raw)
        return History(*fetch.builds(self._source(), _with_jobs(filters), more, job_more, progress))

    def _source(self) -> Source:
        return Source(self._client, self._list, self._place)


def _with_jobs(filters: BuildFilters) -> dict[str, Any]:
    if filters.get("exclude_jobs"):
        raise BadInput("exclude_jobs=True leaves no jobs to return; use builds().")
    return {"include_retried_jobs": True, **filters}
