"""What an organization and a pipeline have in common: lists of builds, and how a method shows what it takes."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, Unpack, get_type_hints

import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput
from buildframe.fetching import builds
from buildframe.fetching.decoder import ColumnSelection
from buildframe.fetching.options import BuildListOptions, CheckedOptions, Extra
from buildframe.fetching.source import ListSource
from buildframe.guards.arguments import checked
from buildframe.http.client import Client
from buildframe.spec import BuildFilters, Endpoint, Filter, Property

F = TypeVar("F", bound=Callable[..., Any])


class History(NamedTuple):
    """Two frames of one walk."""

    builds: pd.DataFrame
    jobs: pd.DataFrame


class BuildsAsked(BuildFilters, BuildListOptions, total=False):
    """Which builds to list, and how to walk the list."""


def takes(endpoint: Endpoint, options: type[Any] | None = None) -> Callable[[F], F]:
    """Show an endpoint's filters or properties in a method's signature, for completion, and in its docstring.

    `options` is a TypedDict of further arguments, with what they mean.
    """
    others = get_type_hints(options, include_extras=True) if options else {}

    def show(method: F) -> F:
        signature = inspect.signature(method)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [*map(_shown, endpoint.filters), *map(_shown, endpoint.properties), *map(_optional, others)]
        heading = "Properties" if endpoint.properties else "Filters"
        meanings = _meanings(endpoint)
        method.__doc__ = f"{inspect.getdoc(method)}\n" + (f"\n{heading}:\n{meanings}\n" if meanings else "")
        if others:
            lines = [f"    {name}: {hint.__metadata__[0]}" for name, hint in others.items()]
            method.__doc__ += "\nOptions:\n" + "\n".join(lines) + "\n"
        method.endpoint = endpoint  # type: ignore[attr-defined]
        method.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return method

    return show


def _shown(entry: Filter | Property) -> inspect.Parameter:
    """A filter may be None; of a property None would mean null, so `...` stands for leaving it out."""
    left_out = None if isinstance(entry, Filter) else ...
    required = isinstance(entry, Property) and entry.required
    default = inspect.Parameter.empty if required else left_out
    return inspect.Parameter(entry.name, inspect.Parameter.KEYWORD_ONLY, default=default)


def _optional(name: str) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=...)


def _meanings(endpoint: Endpoint) -> str:
    filters = [f"    {entry.name}: {entry.doc}" for entry in endpoint.filters]
    properties = [f"    {e.name}{' (required)' if e.required else ''}: {e.doc}" for e in endpoint.properties]
    return "\n".join([*filters, *properties])


@checked
class BuildLists:
    """What an organization and a pipeline have in common: lists of builds.

    Times in filters are datetimes with a zone, dates (midnight UTC), ISO texts, or ages such as "30d",
    counted back from the service's time. `columns` names those that are wanted, and only they are read; `extra`
    adds text columns by path, such as {"team": "meta_data.team"}; `raw=True` adds each record as JSON text.

    A frame's `attrs` tell of its walk: `as_of`, `complete`, `why` not and what is `left` to ask, `note`, `requests`,
    `retries`, `waits` and `waited_s`. What is not complete raises an error; where a limit was
    given, or `partial=True`, it is marked, and so is, with a warning, what the service would not let be read for sure.
    """

    _client: Client
    _list: Endpoint
    _place: tuple[str, ...]

    @takes(spec.list_builds, BuildListOptions)
    def builds(
        self,
        *,
        columns: Sequence[str] | None = None,
        extra: Extra | None = None,
        raw: bool = False,
        **asked: Unpack[BuildsAsked],
    ) -> pd.DataFrame:
        """All builds that match, newest first, one row each; complete or an error.

        Columns and dtypes are those of the table `builds`, also where there is no row. Jobs are left out
        of the answers, which makes this much cheaper than `history`.
        """
        filters, options = apart(asked, BuildListOptions)
        wanted = ColumnSelection("builds", columns, extra or {}, raw)
        return builds.builds(
            self._source(), {"exclude_jobs": True, **filters}, wanted, None, CheckedOptions.check(**options)
        )[0]

    @takes(spec.list_builds, BuildListOptions)
    def jobs(
        self,
        *,
        columns: Sequence[str] | None = None,
        extra: Extra | None = None,
        raw: bool = False,
        **asked: Unpack[BuildsAsked],
    ) -> pd.DataFrame:
        """All jobs of all builds that match, one row each, beside its build's id, number, branch and so on.

        Filters choose builds. All attempts of retried jobs are there unless `include_retried_jobs=False`.
        A path in `extra` that begins with "build." leads into the job's build.
        """
        filters, options = apart(asked, BuildListOptions)
        wanted = ColumnSelection("jobs", columns, extra or {}, raw)
        return builds.builds(
            self._source(),
            _with_jobs(filters),
            ColumnSelection("builds", ["id"]),
            wanted,
            CheckedOptions.check(**options),
        )[1]

    @takes(spec.list_builds, BuildListOptions)
    def history(
        self,
        *,
        columns: Sequence[str] | None = None,
        job_columns: Sequence[str] | None = None,
        extra: Extra | None = None,
        job_extra: Extra | None = None,
        raw: bool = False,
        **asked: Unpack[BuildsAsked],
    ) -> History:
        """Builds and their jobs from one walk: `builds, jobs = ws.history(created_from="30d")`.

        `columns` and `extra` are for the builds, `job_columns` and `job_extra` for the jobs. All attempts of retried
        jobs are there unless `include_retried_jobs=False`.
        """
        filters, options = apart(asked, BuildListOptions)
        wanted, jobs = (
            ColumnSelection("builds", columns, extra or {}, raw),
            ColumnSelection("jobs", job_columns, job_extra or {}, raw),
        )
        return History(
            *builds.builds(self._source(), _with_jobs(filters), wanted, jobs, CheckedOptions.check(**options))
        )

    def _source(self) -> ListSource:
        return ListSource(self._client, self._list, self._place)


def apart(asked: Mapping[str, Any], options: type[Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The filters among what was asked, and the options, which a TypedDict names."""
    named = {name: value for name, value in asked.items() if name in options.__annotations__}
    return {name: value for name, value in asked.items() if name not in named}, named


def _with_jobs(filters: Mapping[str, Any]) -> dict[str, Any]:
    if filters.get("exclude_jobs"):
        raise BadInput("exclude_jobs=True leaves no jobs to return; use builds().")
    return {"include_retried_jobs": True, **filters}
