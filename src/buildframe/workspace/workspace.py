"""Workspace: the methods for an organization. Does not know HTTP or pagination."""

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
from buildframe.spec.operations import keywords
from buildframe.spec.times import Deadline
from buildframe.terminal import show
from buildframe.workspace import graphql, logs, rest, unblocking
from buildframe.workspace.build_queries import BuildQueries, History, split_query
from buildframe.workspace.graphql import GraphQL
from buildframe.workspace.logs import JobReference, Log
from buildframe.workspace.pipeline import PipelineWorkspace
from buildframe.workspace.signatures import accepts

if TYPE_CHECKING:
    from buildframe.sandbox_server import Sandbox

__all__ = ["History", "PipelineWorkspace", "Workspace"]


@keywords
class FlakyTestListing(FlakyTestFilters, ListOptions, total=False):
    """Filters and options of a list of flaky tests."""


@checked
class Workspace(BuildQueries):
    """
    An organization, or without one everything that the token can read. `buildframe.connect` returns it.

    An action whose response is lost raises `OutcomeUnknown`. It is never repeated automatically. As a context manager,
    a workspace closes its connections at the end.

    Parameters
    ----------
    client : Client
        Client with the URL of the service and the token.
    organization : str, optional
        Slug of the organization. By default all organizations.
    sandbox : Sandbox, optional
        Sandbox that the workspace stops when it is closed.
    graphql_url : str, optional
        URL for GraphQL requests. By default `/graphql` at the URL of the service.

    Attributes
    ----------
    organization : str or None
        Slug of the organization; None for all organizations.

    Examples
    --------
    >>> ci.organization
    'acme'
    >>> builds = ci.builds(created_from="7d")
    """

    def __init__(
        self,
        client: Client,
        organization: str | None = None,
        sandbox: Sandbox | None = None,
        graphql_url: str | None = None,
    ) -> None:
        if organization is not None:
            protocol.request_for(spec.list_builds, organization)  # raises BadInput for invalid slugs
        self.organization = organization
        self._client = client
        self._sandbox = sandbox
        self._graphql_url = check_url(f"{client.base_url}/graphql" if graphql_url is None else graphql_url)
        self._list = spec.list_builds if organization else spec.list_all_builds
        self._place = (organization,) if organization else ()

    def __repr__(self) -> str:
        return f"<Workspace {self.organization or 'of all organizations'} at {self._client.base_url}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """
        Close the connections, and stop the sandbox of this workspace.

        Examples
        --------
        >>> other = bf.connect("acme", base_url=ci.base_url, token="an-invented-token")
        >>> other.close()
        """
        self._client.close()
        if self._sandbox is not None:
            self._sandbox.stop()

    @property
    def base_url(self) -> str:
        """URL of the service's API without `/v2`."""
        return self._client.base_url

    @property
    def sandbox(self) -> Sandbox:
        """The sandbox of a workspace that `buildframe.sandbox` returned; BadInput for any other workspace."""
        if self._sandbox is None:
            raise BadInput("This workspace is not connected to a sandbox. Start one with buildframe.sandbox().")
        return self._sandbox

    # --- pipelines

    @accepts(spec.list_pipelines, ListOptions)
    def pipelines(self, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """
        List the pipelines of the organization.

        Parameters
        ----------
        **options
            Options of the list (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `pipelines`, also if
            there is no row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        Examples
        --------
        >>> pipelines = ci.pipelines(columns=["slug", "name"])
        >>> "web" in set(pipelines["slug"])
        True
        """
        return records.records(self._list_of(spec.list_pipelines), "pipelines", ListOptions(**options))

    def pipeline(self, slug: str) -> PipelineWorkspace:
        """
        Return a pipeline, to list its builds, fetch it or change it. Sends no request.

        Parameters
        ----------
        slug : str
            Slug of the pipeline, as in its URL.

        Returns
        -------
        PipelineWorkspace
            The pipeline, whether it exists or not.

        Raises
        ------
        BadInput
            If the slug is invalid, or the workspace has no organization.

        Examples
        --------
        >>> ci.pipeline("web").slug
        'web'
        """
        return PipelineWorkspace(self._client, self._require_organization(), slug)

    @accepts(spec.create_pipeline, NewPipeline)
    def create_pipeline(self, *, deadline: Deadline = None, **properties: Unpack[NewPipeline]) -> spec.Pipeline:
        """
        Create a pipeline from YAML (`configuration`) or from steps as objects (`steps`).

        Parameters
        ----------
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".
        **properties
            Properties of the pipeline (`NewPipeline`): `name`, `cluster_id`, `repository`, and `configuration` or
            `steps`.

        Returns
        -------
        Pipeline
            The new pipeline as a typed record.

        Raises
        ------
        BadInput
            If a property is invalid, or both or none of `configuration` and `steps` are passed. Nothing was sent.
        Invalid
            If the service rejects the pipeline, such as for a name that exists.
        OutcomeUnknown
            If the response is lost. The message says how to check.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> steps = [{"type": "script", "command": "make test"}]
        >>> repository = "git@github.com:example/new-site.git"
        >>> ci.create_pipeline(name="New Site", cluster_id=None, repository=repository, steps=steps).slug
        'new-site'
        """
        request = protocol.request_for(spec.create_pipeline, self._require_organization(), **NewPipeline(**properties))
        return records.record(
            self._client, request, spec.Pipeline, "Check whether .pipelines() contains it.", deadline=deadline
        )

    # --- teams

    @accepts(spec.list_team_pipelines, ListOptions)
    def team_pipelines(self, team: str, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """
        List the pipelines of a team.

        Parameters
        ----------
        team : str
            UUID of the team.
        **options
            Options of the list (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `team_pipelines`, also if
            there is no row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        Examples
        --------
        >>> team = ci.sandbox.teams()["Frontend"]
        >>> ci.team_pipelines(team, columns=["pipeline", "access_level"])
          pipeline           access_level
        0      web  manage_build_and_read
        1     docs         build_and_read
        """
        return records.records(self._list_of(spec.list_team_pipelines, team), "team_pipelines", ListOptions(**options))

    def team_pipeline(self, team: str, pipeline_id: str, *, deadline: Deadline = None) -> spec.TeamPipeline:
        """
        Fetch the access of a team to one of its pipelines.

        Parameters
        ----------
        team : str
            UUID of the team.
        pipeline_id : str
            UUID of the pipeline.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        TeamPipeline
            The access as a typed record.

        Raises
        ------
        NotFound
            If the team does not have the pipeline.
        BadInput, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If an argument is invalid, or the request fails.

        Examples
        --------
        >>> team = ci.sandbox.teams()["Frontend"]
        >>> docs = ci.pipeline("docs").get()
        >>> ci.team_pipeline(team, docs.id).access_level
        'build_and_read'
        """
        request = protocol.request_for(spec.get_team_pipeline, self._require_organization(), team, pipeline_id)
        return records.record(self._client, request, spec.TeamPipeline, deadline=deadline)

    @accepts(spec.create_team_pipeline, NewTeamPipeline)
    def create_team_pipeline(
        self, team: str, *, deadline: Deadline = None, **properties: Unpack[NewTeamPipeline]
    ) -> spec.TeamPipeline:
        """
        Give a team access to a pipeline.

        Parameters
        ----------
        team : str
            UUID of the team.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".
        **properties
            The pipeline and the access level (`NewTeamPipeline`).

        Returns
        -------
        TeamPipeline
            The access as a typed record.

        Raises
        ------
        BadInput
            If an argument is invalid. Nothing was sent.
        Invalid
            If the service rejects it, such as if the team has the pipeline.
        OutcomeUnknown
            If the response is lost. The message says how to check.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> team = ci.sandbox.teams()["Frontend"]
        >>> api = ci.pipeline("api").get()
        >>> ci.create_team_pipeline(team, pipeline_id=api.id, access_level="read_only").access_level
        'read_only'
        >>> ci.delete_team_pipeline(team, api.id)
        """
        place = self._require_organization(), team
        request = protocol.request_for(spec.create_team_pipeline, *place, **NewTeamPipeline(**properties))
        return records.record(self._client, request, spec.TeamPipeline, _CHECK_TEAM, deadline=deadline)

    @accepts(spec.update_team_pipeline, TeamPipelineChanges)
    def update_team_pipeline(
        self, team: str, pipeline_id: str, *, deadline: Deadline = None, **properties: Unpack[TeamPipelineChanges]
    ) -> spec.TeamPipeline:
        """
        Change the access of a team to a pipeline.

        Parameters
        ----------
        team : str
            UUID of the team.
        pipeline_id : str
            UUID of the pipeline.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".
        **properties
            The access level (`TeamPipelineChanges`).

        Returns
        -------
        TeamPipeline
            The changed access as a typed record.

        Raises
        ------
        BadInput
            If an argument is invalid. Nothing was sent.
        NotFound
            If the team does not have the pipeline.
        OutcomeUnknown
            If the response is lost. The message says how to check.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> team = ci.sandbox.teams()["Frontend"]
        >>> docs = ci.pipeline("docs").get()
        >>> ci.update_team_pipeline(team, docs.id, access_level="build_and_read").access_level
        'build_and_read'
        """
        place = self._require_organization(), team, pipeline_id
        request = protocol.request_for(spec.update_team_pipeline, *place, **TeamPipelineChanges(**properties))
        return records.record(self._client, request, spec.TeamPipeline, _CHECK_TEAM, deadline=deadline)

    def delete_team_pipeline(self, team: str, pipeline_id: str, *, deadline: Deadline = None) -> None:
        """
        Remove the access of a team to a pipeline.

        Parameters
        ----------
        team : str
            UUID of the team.
        pipeline_id : str
            UUID of the pipeline.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Raises
        ------
        BadInput
            If an argument is invalid. Nothing was sent.
        NotFound
            If the team does not have the pipeline.
        OutcomeUnknown
            If the response is lost. The message says how to check.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails before the action.

        Examples
        --------
        >>> team = ci.sandbox.teams()["Frontend"]
        >>> api = ci.pipeline("api").get()
        >>> access = ci.create_team_pipeline(team, pipeline_id=api.id, access_level="read_only")
        >>> ci.delete_team_pipeline(team, access.pipeline_id)
        """
        request = protocol.request_for(spec.delete_team_pipeline, self._require_organization(), team, pipeline_id)
        records.send_action(self._client, request, _CHECK_TEAM, deadline=deadline)

    def set_team(
        self,
        pipeline: str | spec.Pipeline | PipelineWorkspace,
        team: str,
        access_level: AccessLevel,
        *,
        deadline: Deadline = None,
    ) -> None:
        """
        Give a team access to a pipeline, or change its access. Uses GraphQL.

        The token needs the scope for GraphQL.

        Parameters
        ----------
        pipeline : str, PipelineWorkspace or record
            Slug of the pipeline, a `PipelineWorkspace`, or its record.
        team : str
            UUID of the team, or its GraphQL id.
        access_level : {'read_only', 'build_and_read', 'manage_build_and_read'}
            What members of the team may do.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Raises
        ------
        BadInput
            If an argument is invalid, or there is no such pipeline.
        GraphQLError
            If the service rejects it.
        OutcomeUnknown
            If the response is lost. Repeating the call is safe.
        DeadlineExceeded, ServiceError, Unreachable
            If a request fails before the action.

        See Also
        --------
        create_team_pipeline : The same by REST, for new access only.

        Examples
        --------
        >>> team = ci.sandbox.teams()["Frontend"]
        >>> ci.set_team("docs", team, "build_and_read")
        """
        with within_deadline(deadline):
            graphql.set_team(self._graphql(), self._path_of(pipeline), team, access_level)

    def remove_team(
        self, pipeline: str | spec.Pipeline | PipelineWorkspace, team: str, *, deadline: Deadline = None
    ) -> None:
        """
        Remove the access of a team to a pipeline. Uses GraphQL.

        Parameters
        ----------
        pipeline : str, PipelineWorkspace or record
            Slug of the pipeline, a `PipelineWorkspace`, or its record.
        team : str
            UUID of the team, or its GraphQL id.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Raises
        ------
        BadInput
            If an argument is invalid, or the team does not have the pipeline.
        GraphQLError
            If the service rejects it.
        OutcomeUnknown
            If the response is lost. Repeating the call is safe.
        DeadlineExceeded, ServiceError, Unreachable
            If a request fails before the action.

        Examples
        --------
        >>> team = ci.sandbox.teams()["Frontend"]
        >>> ci.set_team("api", team, "read_only")
        >>> ci.remove_team("api", team)
        """
        with within_deadline(deadline):
            graphql.remove_team(self._graphql(), self._path_of(pipeline), team)

    # --- members, tests, emojis

    @accepts(spec.list_members, ListOptions)
    def members(self, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """
        List the members of the organization.

        Parameters
        ----------
        **options
            Options of the list (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `members`, also if
            there is no row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        Examples
        --------
        >>> members = ci.members()
        >>> "email" in members
        True
        """
        return records.records(self._list_of(spec.list_members), "members", ListOptions(**options))

    def member(self, id: str, *, deadline: Deadline = None) -> spec.Member:
        """
        Fetch one member of the organization.

        Parameters
        ----------
        id : str
            UUID of the user.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Member
            The member as a typed record.

        Raises
        ------
        NotFound
            If the organization has no such member.
        BadInput, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If an argument is invalid, or the request fails.

        Examples
        --------
        >>> id = ci.members()["id"].iloc[0]
        >>> ci.member(id).id == id
        True
        """
        return records.record(
            self._client,
            protocol.request_for(spec.get_member, self._require_organization(), id),
            spec.Member,
            deadline=deadline,
        )

    @accepts(spec.list_flaky_tests, FlakyTestListing)
    def flaky_tests(self, suite: str, **query: Unpack[FlakyTestListing]) -> pd.DataFrame:
        """
        List the flaky tests of a test suite.

        Parameters
        ----------
        suite : str
            Slug of the test suite.
        **query
            Filters (`FlakyTestFilters`) and options (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `flaky_tests`, also if
            there is no row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        Examples
        --------
        >>> tests = ci.flaky_tests("rspec")
        >>> "name" in tests
        True
        """
        filters, options = split_query(FlakyTestListing(**query), ListOptions)
        return records.records(self._list_of(spec.list_flaky_tests, suite), "flaky_tests", options, filters)

    @accepts(spec.list_emojis, ListOptions)
    def emojis(self, **options: Unpack[ListOptions]) -> pd.DataFrame:
        """
        List the emojis of the organization, also custom ones.

        Parameters
        ----------
        **options
            Options of the list (`ListOptions`).

        Returns
        -------
        pandas.DataFrame
            One row each, with the columns of the table `emojis`, also if
            there is no row. Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete
            If the list cannot be read completely.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If requests fail, also after retries.

        See Also
        --------
        buildframe.emojis.render : Render text with emojis as HTML.

        Examples
        --------
        >>> emojis = ci.emojis()
        >>> bool(emojis["url"].notna().any())
        True
        """
        return records.records(self._list_of(spec.list_emojis), "emojis", ListOptions(**options))

    # --- jobs

    @accepts(spec.unblock_job, Unblocking)
    def unblock(self, job: JobReference, *, deadline: Deadline = None, **properties: Unpack[Unblocking]) -> spec.Job:
        """
        Unblock a block step, so that its build goes on.

        Parameters
        ----------
        job : Job, mapping, Series or str
            A job of the type `manual` as a record or as a row of a frame of jobs, or the URL in its `unblock_url`.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".
        **properties
            Values of the step's fields and the user who unblocks it (`Unblocking`).

        Returns
        -------
        Job
            The job, with the time in `unblocked_at`.

        Raises
        ------
        BadInput
            If the job has no `unblock_url`, or belongs to another organization. Nothing was sent.
        Invalid
            If the job is not blocked.
        OutcomeUnknown
            If the response is lost. The message says how to check.

        Examples
        --------
        >>> jobs = ci.jobs(state="blocked")
        >>> blocked = jobs[jobs["state"] == "blocked"]
        >>> ci.unblock(blocked.iloc[0]).state
        'unblocked'
        """
        with within_deadline(deadline):
            return unblocking.unblock(self._client, job, Unblocking(**properties), self._place)

    # --- any path

    @confined
    def get(self, path: str, *, progress: bool | None = None, deadline: Deadline = None, **params: Any) -> Any:
        """
        Fetch the records of any REST path that the token may read, declared or not.

        Lists are read to their end along the links to next pages, with the same retries and limits as all listings.

        Parameters
        ----------
        path : str
            Path below `/v2`, such as `/organizations/acme/agents`, with or without a query, or a URL of this
            service, such as `build.url`. URLs of other hosts raise BadInput.
        progress : bool, optional
            Show a progress bar. By default only when interactive.
        deadline : str or timedelta, optional
            Raise DeadlineExceeded after this time, such as "90s". By default there is no deadline.
        **params
            Query parameters: text, numbers, True or False, times. Lists are sent as `name[]`, mappings as `name[key]`.
            Leave out `page`; `per_page` is 100 by default.

        Returns
        -------
        list or dict
            The records of a list, as decoded from JSON, or the object at the path. Records that the service sends twice
            appear once. They are compared by `id`, or as a whole if they have none.

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
        >>> ci.get("/organizations/acme/pipelines/web")["slug"]
        'web'
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
        >>> pipelines = ci.table("/organizations/acme/pipelines")
        >>> pipelines.dtypes["created_at"]
        datetime64[us, UTC]
        """
        with within_deadline(deadline):
            return rest.table(self._client, path, params, progress)

    # --- logs and GraphQL

    @confined
    def log(self, job: JobReference, *, deadline: Deadline = None) -> Log:
        """
        Fetch the log of a job.

        The token is sent to the service only. A log on another host is fetched without it.

        Parameters
        ----------
        job : Job, mapping, Series or str
            Job as a record or as a row of a frame of jobs, or the URL of its log.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        Log
            The text, which is safe to print in a terminal: escape sequences and control characters are visible. Its
            attribute `raw` is the text as the service sent it.

        Raises
        ------
        BadInput
            If the job has no log, or its URL is not encrypted.
        Malformed
            If the service redirects more than three times.
        DeadlineExceeded, ServiceError, Unreachable
            If the request fails.

        Examples
        --------
        >>> jobs = ci.jobs(created_from="7d")
        >>> ran = jobs[jobs["raw_log_url"].notna()]
        >>> isinstance(ci.log(ran.iloc[0]), str)
        True
        """
        with within_deadline(deadline):
            return logs.fetch_log(self._client, job)

    @confined
    def graphql(
        self,
        query: str,
        variables: Mapping[str, Any] | None = None,
        *,
        url: str | None = None,
        deadline: Deadline = None,
    ) -> dict[str, Any]:
        """
        Send a GraphQL query or mutation.

        A text that contains the word `mutation` is not repeated if its response is lost.

        Parameters
        ----------
        query : str
            Text of the query.
        variables : mapping, optional
            Values of its variables by name.
        url : str, optional
            URL to send it to, with the token. By default `graphql_url` of `connect`.
        deadline : str or timedelta, optional
            Raise `DeadlineExceeded` after this time, such as "90s".

        Returns
        -------
        dict
            The `data` of the response.

        Raises
        ------
        BadInput
            If an argument is invalid.
        GraphQLError
            If the response contains errors.
        OutcomeUnknown
            If the response to a mutation is lost.
        DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the request fails.

        Examples
        --------
        >>> ci.graphql('{ pipeline(slug: "acme/web") { slug } }')
        {'pipeline': {'slug': 'web'}}
        """
        with within_deadline(deadline):
            return self._graphql(url).execute(query, variables)

    def _graphql(self, url: str | None = None) -> GraphQL:
        return GraphQL(self._client, url or self._graphql_url)

    def _list_of(self, list: spec.Endpoint, *arguments: str) -> ListSource:
        return ListSource(self._client, list, (self._require_organization(), *arguments))

    def _require_organization(self) -> str:
        if self.organization is None:
            raise BadInput('The workspace has no organization. Pass it, as in connect("acme"), or set BUILDFRAME_ORG.')
        return self.organization

    def _path_of(self, pipeline: str | spec.Pipeline | PipelineWorkspace) -> str:
        """Return `organization/pipeline`, which identifies a pipeline in GraphQL."""
        named = self._require_organization()
        if not isinstance(pipeline, str | spec.Pipeline | PipelineWorkspace):
            raise BadInput(f"pipeline={show(pipeline)}: pass a slug, a record or a PipelineWorkspace.")
        slug = pipeline if isinstance(pipeline, str) else pipeline.slug
        if not isinstance(pipeline, str) and pipeline.organization not in {None, named}:
            raise BadInput(f"{show(pipeline)} is of another organization than {named}.")
        protocol.request_for(spec.get_pipeline, named, slug)  # type: ignore[arg-type]  # raises BadInput for invalid slugs
        return f"{named}/{slug}"


_CHECK_TEAM = "Look at .team_pipelines(team)."
