"""Handler of GraphQL: organizations, pipelines, teams, and mutations of team pipelines."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Sequence
from typing import Any

from buildframe.sandbox_server.db.serializers import format_time, graphql_id
from buildframe.sandbox_server.error_responses import HttpError, get_first_or_404
from buildframe.sandbox_server.handlers.registry import ApiRequest, ApiResponse, HandlerGroup, handles, refuse_viewers
from buildframe.sandbox_server.handlers.routes import query_graphql
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.sandbox_server.world.teams import TeamGrant, TeamRecord

Node = dict[str, Any]
Resolver = Callable[..., Any]

_DEFAULT_PAGE, _MAX_PAGE_SIZE = 100, 500


class GraphQLHandlers(HandlerGroup):
    """Handles GraphQL with the same data and rules as REST. The context of a resolver is the access of the token."""

    @handles(query_graphql)
    def _execute(self, request: ApiRequest) -> ApiResponse:
        try:
            from buildframe.sandbox_server.graphql_queries import execute
        except ModuleNotFoundError:
            raise HttpError(501, 'GraphQL needs the extra "sandbox": pip install "buildframe[sandbox]"') from None
        query, variables, operation = (request.body.get(name) for name in ("query", "variables", "operationName"))
        if not isinstance(query, str):
            raise HttpError(400, "The body must have a `query`")
        if not isinstance(variables, dict | None) or not isinstance(operation, str | None):
            raise HttpError(400, "`variables` must be an object and `operationName` a string")
        root = {
            "pipeline": self._pipeline,
            "organization": self._organization,
            "teamPipelineCreate": self._create,
            "teamPipelineUpdate": self._update,
            "teamPipelineDelete": self._delete,
        }
        result = execute(query, variables or {}, operation, root, request.access, self._db.transaction())
        body = {"data": result.data} if result.data is not None or not result.errors else {}
        errors = {"errors": [error.formatted for error in result.errors]} if result.errors else {}
        return ApiResponse(body | errors)

    def _pipeline(self, info: Any, slug: str) -> Node | None:
        organization, _, pipeline = slug.partition("/")
        is_visible = organization in info.context.organizations
        entry = self._db.pipelines.find(organization, pipeline) if is_visible else None
        return None if entry is None else self._pipeline_node(entry)

    def _organization(self, info: Any, slug: str) -> Node | None:
        if slug not in info.context.organizations:
            return None
        return _node("Organization", self._db.serializer.random.uuid("organization", slug)) | {
            "slug": slug,
            "name": self._db.serializer.world.get_organization(slug).name,
            "teams": _connection(lambda: self._teams.list_teams(slug), _team_node),
            "pipelines": _connection(lambda: self._db.pipelines.in_organization(slug), self._pipeline_node),
        }

    def _pipeline_node(self, entry: PipelineEntry) -> Node:
        return _node("Pipeline", self._db.serializer.pipeline_id(entry)) | {
            "slug": entry.pipeline.slug,
            "name": entry.pipeline.name,
            "teams": _connection(lambda: self._teams.list_grants("pipeline", entry.key), self._grant_node),
        }

    def _grant_node(self, grant: TeamGrant) -> Node:
        team = self._teams.get_team(self._db.pipelines[grant.pipeline_key].organization.slug, grant.team)
        return _node("TeamPipeline", grant.id) | {
            "accessLevel": grant.level.upper(),
            "createdAt": format_time(grant.created),
            "team": _team_node(team),
        }

    def _create(self, info: Any, input: Node) -> Node:
        team = self._team(info, _uuid("Team", input["teamID"]))
        refuse_viewers(info.context)
        grant = self._teams.grant(team, _uuid("Pipeline", input["pipelineID"]), input["accessLevel"].lower())
        place = self._teams.list_grants("pipeline", grant.pipeline_key).index(grant)
        return _payload(
            input,
            team=_team_node(team),
            pipeline=self._pipeline_node(self._db.pipelines[grant.pipeline_key]),
            teamPipelineEdge={"cursor": _cursor(place), "node": self._grant_node(grant)},
        )

    def _update(self, info: Any, input: Node) -> Node:
        _, grant = self._grant(info, input)
        grant = self._teams.change_level(grant, input["accessLevel"].lower())
        return _payload(input, teamPipeline=self._grant_node(grant))

    def _delete(self, info: Any, input: Node) -> Node:
        team, grant = self._grant(info, input)
        self._teams.revoke(grant)
        return _payload(input, deletedTeamPipelineID=input["id"], team=_team_node(team))

    def _team(self, info: Any, uuid: str) -> TeamRecord:
        teams = (team for slug in info.context.organizations for team in self._teams.list_teams(slug))
        return get_first_or_404((team for team in teams if team.id == uuid), "team")

    def _grant(self, info: Any, input: Node) -> tuple[TeamRecord, TeamGrant]:
        """Return the team and the grant that a mutation changes."""
        grants = self._teams.list_grants("id", _uuid("TeamPipeline", input["id"]))
        grant = get_first_or_404(grants, "team pipeline")
        team = self._team(info, grant.team)
        refuse_viewers(info.context)
        return team, grant


def _team_node(team: TeamRecord) -> Node:
    return _node("Team", team.id) | {"name": team.name, "description": team.description}


def _node(kind: str, uuid: str) -> Node:
    return {"id": graphql_id(kind, uuid), "uuid": uuid}


def _payload(input: Node, **fields: Any) -> Node:
    return {"clientMutationId": input.get("clientMutationId"), **fields}


def _uuid(kind: str, id: str) -> str:
    """Return the UUID in a GraphQL ID of a kind."""
    return _decode(id, f"{kind}---(.*)", f"the id of a {kind}")


def _decode(text: str, pattern: str, what: str) -> str:
    """Return the group of a pattern that Base64 text must match."""
    try:
        match = re.fullmatch(pattern, base64.b64decode(text, validate=True).decode(), re.DOTALL)
    except ValueError:
        match = None
    if match is None:
        raise HttpError(422, f"{text!r} is not {what}")
    return match[1]


def _connection(all_items: Callable[[], Sequence[Any]], node: Callable[[Any], Node]) -> Resolver:
    """Return the resolver of a connection: a slice of a list after a cursor."""

    def resolve(info: Any, first: int | None = None, after: str | None = None) -> Node:
        items, start = all_items(), 0 if after is None else int(_decode(after, "after ([0-9]{1,9})", "a cursor")) + 1
        size = _DEFAULT_PAGE if first is None else first
        if not 0 <= size <= _MAX_PAGE_SIZE:
            raise HttpError(422, f"first must be from 0 to {_MAX_PAGE_SIZE}")
        page = [(_cursor(place), item) for place, item in enumerate(items)][start : start + size]
        return {
            "count": len(items),
            "edges": lambda info: [{"cursor": cursor, "node": node(item)} for cursor, item in page],
            "pageInfo": {"hasNextPage": start + size < len(items), "endCursor": page[-1][0] if page else None},
        }

    return resolve


def _cursor(place: int) -> str:
    return base64.b64encode(f"after {place}".encode()).decode()
