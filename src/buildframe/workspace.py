"""Workspace (an organization) and Pipeline: what a user types."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, Unpack

import pandas as pd

from buildframe import fetch, spec, wire
from buildframe.client import Client
from buildframe.errors import BadInput
from buildframe.fetch import Extra, More, Source
from buildframe.spec import BuildFilters, Endpoint, JobsOfBuild

if TYPE_CHECKING:
    from buildframe.service import Sandbox

F = TypeVar("F", bound=Callable[..., Any])
R = TypeVar("R", bound=spec.Resource)


class History(NamedTuple):
    """Two frames of one walk."""

    builds: pd.DataFrame
    jobs: pd.DataFrame


def _takes(endpoint: Endpoint) -> Callable[[F], F]:
    """Show an endpoint's filters in a method's signature, for completion, and in its docstring."""

    def show(method: F) -> F:
        signature = inspect.signature(method)
        own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
        named = [inspect.Parameter(f.name, inspect.Parameter.KEYWORD_ONLY, default=None) for f in endpoint.filters]
        meanings = "\n".join(f"    {entry.name}: {entry.doc}" for entry in endpoint.filters)
        method.__doc__ = f"{inspect.getdoc(method)}\n\nFilters:\n{meanings}\n"
        method.__signature__ = signature.replace(parameters=[*own, *named])  # type: ignore[attr-defined]
        return method

    return show


class _BuildLists:
    """What an organization and a pipeline have in common: lists of builds.

    Times in filters are datetimes with a zone, dates (midnight UTC), ISO texts, or ages such as "30d",
    counted back from the service's time. `extra` adds text columns by path, such as
    {"team": "meta_data.team"}; `raw=True` adds each record as JSON text. `progress` is a bar where
    somebody can see it; True and False say so regardless.
    """

    _client: Client
    _list: Endpoint
    _place: tuple[str, ...]

    @_takes(spec.list_builds)
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

    @_takes(spec.list_builds)
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

    @_takes(spec.list_builds)
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


class Workspace(_BuildLists):
    """An organization, or, without one, everything that the token may see."""

    def __init__(self, client: Client, organization: str | None = None, sandbox: Sandbox | None = None) -> None:
        self.organization = organization
        self._client = client
        self._sandbox = sandbox
        self._list = spec.list_builds if organization else spec.list_all_builds
        self._place = (organization,) if organization else ()

    def __repr__(self) -> str:
        return f"<Workspace {self.organization or 'of all organizations'} at {self._client.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections, and stop the sandbox that came with this workspace."""
        self._client.close()
        if self._sandbox is not None:
            self._sandbox.stop()

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox behind a workspace of `buildframe.sandbox()`; for any other BadInput."""
        if self._sandbox is None:
            raise BadInput("This workspace is connected to a real service; buildframe.sandbox() starts a sandbox.")
        return self._sandbox

    def pipelines(self, *, extra: Extra | None = None, raw: bool = False, progress: bool | None = None) -> pd.DataFrame:
        """All pipelines of the organization, one row each, with the columns of the table `pipelines`."""
        source = Source(self._client, spec.list_pipelines, (self._named(),))
        return fetch.records(source, "pipelines", More("pipelines", extra or {}, raw), progress)

    def pipeline(self, slug: str) -> Pipeline:
        """One pipeline, to list its builds or look at it; nothing is asked yet."""
        return Pipeline(self._client, self._named(), slug)

    def _named(self) -> str:
        if self.organization is None:
            raise BadInput('Pipelines belong to an organization: connect("acme"), or set BUILDFRAME_ORG.')
        return self.organization


class Pipeline(_BuildLists):
    """One pipeline of an organization."""

    def __init__(self, client: Client, organization: str, slug: str) -> None:
        self.organization = organization
        self.slug = slug
        self._client = client
        self._list = spec.list_pipeline_builds
        self._place = (organization, slug)
        wire.place(spec.get_pipeline, *self._place)  # refuses what is no slug

    def __repr__(self) -> str:
        return f"<Pipeline {self.organization}/{self.slug} at {self._client.base_url}>"

    def get(self) -> spec.Pipeline:
        """What the service says of the pipeline, as a typed record."""
        return self._record(wire.place(spec.get_pipeline, *self._place), spec.Pipeline)

    @_takes(spec.get_build)
    def build(self, number: int, **filters: Unpack[JobsOfBuild]) -> spec.Build:
        """One build with its jobs, as a typed record; all attempts unless `include_retried_jobs=False`."""
        wanted = {"include_retried_jobs": True, **filters}
        return self._record(wire.place(spec.get_build, *self._place, number, **wanted), spec.Build)

    def _record(self, request: wire.Request, kind: type[R]) -> R:
        record = self._client.fetch(request, lambda answer: wire.read_record(request, answer))
        assert isinstance(record, kind)
        return record
