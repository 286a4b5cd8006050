"""Workspace: what a user does with an organization."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self, Unpack

import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput
from buildframe.fetching import records
from buildframe.fetching.options import ListOptions
from buildframe.fetching.source import ListSource
from buildframe.guards.arguments import checked
from buildframe.guards.secrets import confined
from buildframe.http import protocol
from buildframe.http.budget import within_deadline
from buildframe.http.client import Client
from buildframe.http.urls import check_url
from buildframe.spec import AccessLevel, FlakyTestFilters, NewPipeline, NewTeamPipeline, TeamPipelineChanges, Unblocking
from buildframe.spec.times import Deadline
from buildframe.workspace import graphql, logs, rest, unblocking
from buildframe.workspace.build_queries import BuildLists, History, apart, takes
from buildframe.workspace.graphql import GraphQL
from buildframe.workspace.logs import AnyJob, Log
from buildframe.workspace.pipeline import Pipeline

if TYPE_CHECKING:
    from buildframe.sandbox_server import Sandbox

__all__ = ["History", "Pipeline", "Workspace"]


class FlakyTestsAsked(FlakyTestFilters, ListOptions, total=False):
    """Which flaky tests to list, and what is wanted of them."""


@checked
class Workspace(BuildLists):
    """An organization, or, without one, everything that the token may see.

    An action whose answer is lost raises OutcomeUnknown; it is never sent a second time by itself.
    """

    def __init__(
        self,
        client: Client,
        organization: str | None = None,
        sandbox: Sandbox | None = None,
        graphql_url: str | None = None,
    ) -> None:
        if organization is not None:
            protocol.request_for(spec.list_builds, organization)  # refuses what is no slug
        self.organization = organization
        self._client = client
        self._sandbox = sandbox
        self._graphql_url = check_url(graphql_url or f"{client.base_url}/graphql")
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
    def base_url(self) -> str:
        """Address of the service's API, below which all that it names lies."""
        return self._client.base_url

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox behind a workspace of `buildframe.sandbox()`; for any other BadInput."""
        if self._sandbox is None:
            raise BadInput("This workspace is connected to a real service; buildframe.sandbox() starts a sandbox.")
        return self._sandbox

    # --- pipelines

    @takes(spec.list_pipelines, ListOptions)
    def pipelines(self, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """All pipelines of the organization, one row each, with the columns of the table `pipelines`."""
        return records.records(self._of(spec.list_pipelines), "pipelines", options)

    def pipeline(self, slug: str) -> Pipeline:
        """One pipeline, to list its builds, advice at it or change it; nothing is asked yet."""
        return Pipeline(self._client, self._named(), slug)

    @takes(spec.create_pipeline)
    def create_pipeline(self, *, deadline: Deadline = None, **properties: Unpack[NewPipeline]) -> spec.Pipeline:
        """Create a pipeline from YAML (`configuration`) or from visual steps (`steps`)."""
        request = protocol.request_for(spec.create_pipeline, self._named(), **properties)
        return records.record(
            self._client, request, spec.Pipeline, "Look whether .pipelines() has it.", deadline=deadline
        )

    # --- teams

    @takes(spec.list_team_pipelines, ListOptions)
    def team_pipelines(self, team: str, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """All pipelines of a team (its UUID), one row each, with the columns of the table `team_pipelines`."""
        return records.records(self._of(spec.list_team_pipelines, team), "team_pipelines", options)

    def team_pipeline(self, team: str, pipeline_id: str, *, deadline: Deadline = None) -> spec.TeamPipeline:
        """What a team may do at one of its pipelines, by their UUIDs."""
        request = protocol.request_for(spec.get_team_pipeline, self._named(), team, pipeline_id)
        return records.record(self._client, request, spec.TeamPipeline, deadline=deadline)

    @takes(spec.create_team_pipeline)
    def create_team_pipeline(
        self, team: str, *, deadline: Deadline = None, **properties: Unpack[NewTeamPipeline]
    ) -> spec.TeamPipeline:
        """Give a team a pipeline."""
        request = protocol.request_for(spec.create_team_pipeline, self._named(), team, **properties)
        return records.record(self._client, request, spec.TeamPipeline, _LOOK_AT_TEAM, deadline=deadline)

    @takes(spec.update_team_pipeline)
    def update_team_pipeline(
        self, team: str, pipeline_id: str, *, deadline: Deadline = None, **properties: Unpack[TeamPipelineChanges]
    ) -> spec.TeamPipeline:
        """Change what a team may do at a pipeline that it has."""
        request = protocol.request_for(spec.update_team_pipeline, self._named(), team, pipeline_id, **properties)
        return records.record(self._client, request, spec.TeamPipeline, _LOOK_AT_TEAM, deadline=deadline)

    def delete_team_pipeline(self, team: str, pipeline_id: str, *, deadline: Deadline = None) -> None:
        """Take a pipeline from a team."""
        request = protocol.request_for(spec.delete_team_pipeline, self._named(), team, pipeline_id)
        records.send_action(self._client, request, _LOOK_AT_TEAM, deadline=deadline)

    def set_team(
        self,
        pipeline: str | spec.Pipeline | Pipeline,
        team: str,
        access_level: AccessLevel,
        *,
        deadline: Deadline = None,
    ) -> None:
        """Give a team a pipeline, or change what it may do there; by GraphQL, so the token needs that scope.

        `pipeline` is a slug, a record or a `Pipeline`; `team` a UUID.
        """
        with within_deadline(deadline):
            graphql.set_team(self._graphql(), self._path_of(pipeline), team, access_level)

    def remove_team(self, pipeline: str | spec.Pipeline | Pipeline, team: str, *, deadline: Deadline = None) -> None:
        """Take a pipeline from a team, by GraphQL; BadInput where the team does not have it."""
        with within_deadline(deadline):
            graphql.remove_team(self._graphql(), self._path_of(pipeline), team)

    # --- people, tests, emojis

    @takes(spec.list_members, ListOptions)
    def members(self, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """All members of the organization, one row each, with the columns of the table `members`."""
        return records.records(self._of(spec.list_members), "members", options)

    def member(self, id: str, *, deadline: Deadline = None) -> spec.Member:
        """One member, by the user's UUID."""
        return records.record(
            self._client, protocol.request_for(spec.get_member, self._named(), id), spec.Member, deadline=deadline
        )

    @takes(spec.list_flaky_tests, ListOptions)
    def flaky_tests(self, suite: str, **asked: Unpack[FlakyTestsAsked]) -> pd.DataFrame:
        """Flaky tests of a test suite (its slug), one row each, with the columns of the table `flaky_tests`."""
        filters, options = apart(asked, ListOptions)
        return records.records(self._of(spec.list_flaky_tests, suite), "flaky_tests", options, filters)

    @takes(spec.list_emojis, ListOptions)
    def emojis(self, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """All emojis of the organization, custom ones too, with the columns of the table `emojis`."""
        return records.records(self._of(spec.list_emojis), "emojis", options)

    # --- jobs

    @takes(spec.unblock_job)
    def unblock(self, job: AnyJob, *, deadline: Deadline = None, **properties: Unpack[Unblocking]) -> spec.Job:
        """
        Unblock a block step, so that its build goes on.

        Parameters
        ----------
        job : Job, mapping, Series or str
            A job of the type `manual` as a record or as a row of a frame of jobs, or the address in its `unblock_url`.
        **properties
            See below.

        Returns
        -------
        Job
            The job, with the time in `unblocked_at`.

        Raises
        ------
        BadInput
            If the job has no `unblock_url`, or one that leads to no block step of this organization. Nothing was sent.
        Invalid
            If the job is not blocked.
        OutcomeUnknown
            If the response was lost. The action is not sent again.

        Examples
        --------
        >>> build = ci.pipeline("deploy").build(12)  # doctest: +SKIP
        >>> blocked = [job for job in build.jobs if job.state == "blocked"]  # doctest: +SKIP
        >>> ci.unblock(blocked[0]).state  # doctest: +SKIP
        'unblocked'
        """
        with within_deadline(deadline):
            return unblocking.unblock(self._client, job, properties, self._place)

    # --- any path

    @confined
    def get(self, path: str, *, progress: bool | None = None, deadline: Deadline = None, **params: Any) -> Any:
        """
        Fetch the records of any REST path that the token may read, declared or not.

        Lists are read to their end along the links to next pages, with the same retries and limits as all listings.

        Parameters
        ----------
        path : str
            Path below `/v2`, such as `/organizations/acme/agents`, with or without a query, or an address of this
            service, such as `build.url`. Addresses of other hosts are refused.
        progress : bool, optional
            Whether to show a progress bar. By default where somebody can see it.
        deadline : str or timedelta, optional
            Raise DeadlineExceeded after this time, such as "90s". By default there is no deadline.
        **params
            Query parameters: text, numbers, True or False, times. Lists are sent as `name[]`, mappings as `name[key]`.
            Leave out `page`; `per_page` is 100 by default.

        Returns
        -------
        list or dict
            The records of a list, as decoded from JSON, or the object that the path leads to. Records that a list
            brings twice appear once. They are compared by `id`, or if they have none, as a whole.

        Raises
        ------
        BadInput
            If the path leads to another host, or a parameter cannot be sent.
        NotFound, Forbidden
            If the service has no such path, or the token may not read it.
        Incomplete
            If the list cannot be read to its end.

        See Also
        --------
        table : The same as a DataFrame.

        Examples
        --------
        >>> [agent["name"] for agent in ci.get("/organizations/acme/agents")][:2]  # doctest: +SKIP
        ['default-1', 'default-2']
        """
        with within_deadline(deadline):
            return rest.get(self._client, path, params, progress)

    @confined
    def table(
        self, path: str, *, progress: bool | None = None, deadline: Deadline = None, **params: Any
    ) -> pd.DataFrame:
        """
        Fetch the records of any REST path as a DataFrame, with types inferred by Arrow.

        Parameters
        ----------
        path : str
            See `get`.
        progress : bool, optional
            See `get`.
        deadline : str or timedelta, optional
            See `get`.
        **params
            See `get`.

        Returns
        -------
        pandas.DataFrame
            One row per record, in the order of the service, with a column for each key that any record has: `str`,
            `Int64`, `float64`, `boolean`, `datetime64[us, UTC]` if all values are times, and Arrow's own types for
            lists and objects. Keys whose values have no type in common become `str` columns of JSON.
            `attrs` are those of other listings.

        Raises
        ------
        BadInput, NotFound, Forbidden, Incomplete
            See `get`.

        See Also
        --------
        get : The same as plain records.

        Examples
        --------
        >>> agents = ci.table("/organizations/acme/agents")  # doctest: +SKIP
        >>> agents.dtypes["created_at"]  # doctest: +SKIP
        datetime64[us, UTC]
        """
        with within_deadline(deadline):
            return rest.table(self._client, path, params, progress)

    # --- logs and GraphQL

    @confined
    def log(self, job: AnyJob, *, deadline: Deadline = None) -> Log:
        """The log of a job: a record, a row of a frame of jobs, or the log's address; one without a log BadInput.

        The text is harmless for a terminal: it shows escape sequences and control characters. Its attribute `raw` is
        the text as the service sent it. The token goes to the service itself only; a log that lies elsewhere is
        fetched without it.
        """
        with within_deadline(deadline):
            return logs.log_of(self._client, job)

    @confined
    def graphql(
        self,
        query: str,
        variables: Mapping[str, Any] | None = None,
        *,
        url: str | None = None,
        deadline: Deadline = None,
    ) -> dict[str, Any]:
        """The `data` that GraphQL answers with; errors in the answer raise GraphQLError.

        `url` is another address than that of `connect(graphql_url=...)`; the token is sent there. A text that holds
        the word `mutation` is not sent again when its answer is lost: OutcomeUnknown.
        """
        with within_deadline(deadline):
            return self._graphql(url).ask(query, variables)

    def _graphql(self, url: str | None = None) -> GraphQL:
        return GraphQL(self._client, url or self._graphql_url)

    def _of(self, list: spec.Endpoint, *arguments: str) -> ListSource:
        return ListSource(self._client, list, (self._named(), *arguments))

    def _named(self) -> str:
        if self.organization is None:
            raise BadInput('This belongs to an organization: connect("acme"), or set BUILDFRAME_ORG.')
        return self.organization

    def _path_of(self, pipeline: str | spec.Pipeline | Pipeline) -> str:
        """How GraphQL names a pipeline: `organization/pipeline`."""
        named = self._named()
        if not isinstance(pipeline, str | spec.Pipeline | Pipeline):
            raise BadInput(f"pipeline={pipeline!r}: pass a slug, a record or a Pipeline.")
        slug = pipeline if isinstance(pipeline, str) else pipeline.slug
        if not isinstance(pipeline, str) and pipeline.organization not in {None, named}:
            raise BadInput(f"{pipeline!r} is of another organization than {named}.")
        protocol.request_for(spec.get_pipeline, named, slug)  # type: ignore[arg-type]  # refuses what is no slug
        return f"{named}/{slug}"


_LOOK_AT_TEAM = "Look at .team_pipelines(team)."
