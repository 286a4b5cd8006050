"""Read and change which teams have access to a pipeline, by REST and by GraphQL. Does not know frames."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Literal, Unpack, get_args
from uuid import UUID

import msgspec
import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput, Incomplete, Malformed
from buildframe.fetching.link_pagination import MAX_PAGES
from buildframe.fetching.options import ListOptions
from buildframe.guards.arguments import checked
from buildframe.guards.secrets import confined
from buildframe.http import protocol
from buildframe.http.budget import within_deadline
from buildframe.spec import AccessLevel, NewTeamPipeline, TeamPipelineChanges
from buildframe.spec.decoders import convert
from buildframe.spec.times import Deadline
from buildframe.terminal import nearest, show
from buildframe.workspace.graphql import GraphQL
from buildframe.workspace.organization_lists import OrganizationLists
from buildframe.workspace.pipeline import PipelineWorkspace
from buildframe.workspace.signatures import accepts

_CHECK_TEAM = "Look at .team_pipelines(team)."


@checked
class TeamAccess(OrganizationLists):
    """Pipelines of teams, and the teams of pipelines."""

    _graphql_url: str

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
            One row each, with the columns of the table `team_pipelines`, also if there is no row.
            Its `attrs` describe the listing as those of `builds`.

        Raises
        ------
        BadInput
            If an argument is invalid, or the workspace has no organization.
        Incomplete, DeadlineExceeded, ServiceError, Unreachable, Malformed
            If the list cannot be read completely, or requests fail.

        Examples
        --------
        >>> team = ci.sandbox.teams()["Frontend"]
        >>> ci.team_pipelines(team, columns=["pipeline", "access_level"])
          pipeline           access_level
        0      web  manage_build_and_read
        1     docs         build_and_read
        """
        return self._fetch_list(spec.list_team_pipelines, "team_pipelines", ListOptions(**options), team)

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
        return self._record(spec.TeamPipeline, spec.get_team_pipeline, team, pipeline_id, deadline=deadline)

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
        endpoint, new = spec.create_team_pipeline, NewTeamPipeline(**properties)
        return self._record(spec.TeamPipeline, endpoint, team, advice=_CHECK_TEAM, deadline=deadline, **new)

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
        endpoint, new, place = spec.update_team_pipeline, TeamPipelineChanges(**properties), (team, pipeline_id)
        return self._record(spec.TeamPipeline, endpoint, *place, advice=_CHECK_TEAM, deadline=deadline, **new)

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
        self._act(spec.delete_team_pipeline, team, pipeline_id, advice=_CHECK_TEAM, deadline=deadline)

    @confined
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
            graphql, path = self._graphql(), self._path_of(pipeline)
            level, team_id = _level(access_level), _team_id(team)
            pipeline_id, association = _find(graphql, path, team_id)
            if association is not None:
                _change(graphql, "Update", {"id": association, "accessLevel": level})
            else:
                _change(graphql, "Create", {"teamID": team_id, "pipelineID": pipeline_id, "accessLevel": level})

    @confined
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
            graphql, path = self._graphql(), self._path_of(pipeline)
            _, association = _find(graphql, path, _team_id(team))
            if association is None:
                raise BadInput(f"team={team!r} has no access to the pipeline {path}, so there is nothing to remove.")
            _change(graphql, "Delete", {"id": association})

    def _graphql(self, url: str | None = None) -> GraphQL:
        return GraphQL(self._client, url or self._graphql_url)

    def _path_of(self, pipeline: str | spec.Pipeline | PipelineWorkspace) -> str:
        """Return `organization/pipeline`, which identifies a pipeline in GraphQL."""
        (named,) = self._require_place()
        if not isinstance(pipeline, str | spec.Pipeline | PipelineWorkspace):
            raise BadInput(f"pipeline={show(pipeline)}: pass a slug, a record or a PipelineWorkspace.")
        slug = pipeline if isinstance(pipeline, str) else pipeline.slug
        if not isinstance(pipeline, str) and pipeline.organization not in {None, named}:
            raise BadInput(f"{show(pipeline)} is of another organization than {named}.")
        protocol.request_for(spec.get_pipeline, named, slug)  # type: ignore[arg-type]  # raises BadInput for invalid slugs
        return f"{named}/{slug}"


_TEAMS = """
query TeamsOfPipeline($slug: ID!, $after: String) {
  pipeline(slug: $slug) {
    id
    teams(first: 100, after: $after) {
      edges { node { id accessLevel team { id name } } }
      pageInfo { endCursor hasNextPage }
    }
  }
}
"""
_MUTATION = "mutation($input: TeamPipeline{0}Input!) {{ teamPipeline{0}(input: $input) {{ clientMutationId }} }}"
_SAFE = "Repeating the call is safe: the current access is read first."
_MOST_WITHOUT_NEW = 10  # pages in a row; a page may be empty if the token may see none of its teams


class _Team(msgspec.Struct):
    id: str


class _Association(msgspec.Struct):
    id: str
    team: _Team | None = None


class _Edge(msgspec.Struct):
    node: _Association


class _PageInfo(msgspec.Struct, rename="camel"):
    has_next_page: bool
    end_cursor: str | None = None


class _TeamConnection(msgspec.Struct, rename="camel"):
    edges: list[_Edge]
    page_info: _PageInfo


class _PipelineWithTeams(msgspec.Struct):
    id: str
    teams: _TeamConnection


def _change(graphql: GraphQL, action: Literal["Create", "Update", "Delete"], input: Mapping[str, str]) -> None:
    graphql.execute(_MUTATION.format(action), {"input": input}, advice=_SAFE)


def _find(graphql: GraphQL, path: str, team_id: str) -> tuple[str, str | None]:
    """Return the GraphQL ids of a pipeline (`organization/slug`) and, if there is one, of its link to a team."""
    cursors: list[str | None] = [None]
    teams: dict[str, str | None] = {}  # by association
    pages_without_new = 0
    while True:
        pipeline = _read_pipeline(graphql.execute(_TEAMS, {"slug": path, "after": cursors[-1]}), path)
        page = {edge.node.id: edge.node.team.id if edge.node.team else None for edge in pipeline.teams.edges}
        pages_without_new = 0 if page.keys() - teams.keys() else pages_without_new + 1
        teams |= page
        following = pipeline.teams.page_info
        if not following.has_next_page:
            return pipeline.id, next((association for association, team in teams.items() if team == team_id), None)
        is_endless = pages_without_new == _MOST_WITHOUT_NEW or len(cursors) >= MAX_PAGES
        if following.end_cursor in cursors or is_endless:
            raise Incomplete(
                "The service links the pages of the pipeline's teams in a circle, or without an end: "
                f"{len(teams)} teams were read, and the last {pages_without_new} pages had no other. "
                "Nothing was changed. Try again."
            )
        cursors.append(following.end_cursor)


def _read_pipeline(data: Mapping[str, Any], path: str) -> _PipelineWithTeams:
    if data.get("pipeline") is None:
        raise BadInput(f"There is no pipeline {path}, or this token may not see it.")
    try:
        return convert(data["pipeline"], _PipelineWithTeams)
    except msgspec.ValidationError as why:
        raise Malformed(
            f"The teams in the GraphQL response cannot be read: {why}. Nothing was changed. Try again."
        ) from None


def _level(access_level: str) -> str:
    levels = get_args(AccessLevel)
    if not isinstance(access_level, str) or access_level not in levels:
        text = show(access_level)
        raise BadInput(f"access_level={text} is not an access level.{nearest(text, levels)}")
    return access_level.upper()


def _team_id(team: str) -> str:
    """Return the team's id in GraphQL: base64 of `Team---uuid`."""
    try:
        uuid = _uuid_in(team)
    except (ValueError, AttributeError, TypeError):
        raise BadInput(f"team={show(team)}: pass the team's UUID or GraphQL id (base64 of `Team---UUID`).") from None
    return base64.b64encode(f"Team---{uuid}".encode()).decode()


def _uuid_in(team: str) -> UUID:
    try:
        return UUID(team)
    except ValueError:
        kind, _, uuid = base64.b64decode(team, validate=True).decode().partition("---")
        return UUID(uuid if kind == "Team" else "")
