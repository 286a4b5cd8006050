"""GraphQL: organizations, pipelines and their teams, and the changes to teams' pipelines."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from buildframe.service.answers.exchange import Answer, Operations, Request, refuse_viewers
from buildframe.service.answers.schema import checked, schema
from buildframe.service.data import stamps
from buildframe.service.data.access import Access
from buildframe.service.data.bodies import graphql_id
from buildframe.service.data.database import Data
from buildframe.service.data.teams import Team, TeamPipeline, Teams
from buildframe.service.problems import Refused, not_found
from buildframe.service.world.lines import Line
from buildframe.service.world.model import Organization

if TYPE_CHECKING:
    from graphql import GraphQLError

Node = dict[str, Any]
Resolver = Callable[..., Any]

_DEFAULT_PAGE, _LARGEST_PAGE = 100, 500


class Graph:
    """Answers GraphQL by the same data and rules as REST."""

    def __init__(self, data: Data) -> None:
        self._data = data
        self.of: Operations = {"ask_graphql": self._ask}

    def _ask(self, request: Request) -> Answer:
        try:
            from graphql import GraphQLError, execute_sync
        except ModuleNotFoundError:
            raise Refused(501, 'GraphQL is not installed here: pip install "buildframe[sandbox]"') from None
        query, variables, operation = _read(request.body)
        try:
            document = checked(query, variables, self._sizes())
        except GraphQLError as error:
            return _answer(None, [error])
        root = _Root(self._data, request.access).fields
        done = execute_sync(schema(), document, root, variable_values=variables, operation_name=operation)
        return _answer(done.data, done.errors)

    def _sizes(self) -> dict[str, int]:
        """How many teams, and how many pipelines, the organization has that has most of them."""
        slugs = [organization.slug for organization in self._data.bodies.world.organizations]
        return {
            "teams": max(len(Teams(self._data).of(slug)) for slug in slugs),
            "pipelines": max(len(self._data.lines.of(slug)) for slug in slugs),
        }


def _read(body: Any) -> tuple[str, dict[str, Any], str | None]:
    query, variables, operation = body.get("query"), body.get("variables"), body.get("operationName")
    if not isinstance(query, str):
        raise Refused(400, "The body must hold a query")
    if not isinstance(variables, dict | None) or not isinstance(operation, str | None):
        raise Refused(400, "variables must be an object, and operationName text")
    return query, variables or {}, operation


def _answer(data: Any, errors: Sequence[GraphQLError] | None) -> Answer:
    body = {"data": data} if data is not None or not errors else {}
    return Answer(msgspec.json.encode(body | ({"errors": [error.formatted for error in errors]} if errors else {})))


# --- what fields resolve to ---


class _Root:
    """The fields of queries and mutations, for someone who may see some organizations."""

    def __init__(self, data: Data, access: Access) -> None:
        self._data, self._teams, self._access = data, Teams(data), access
        self._visible = access.organizations
        self.fields: dict[str, Resolver] = {
            "pipeline": self._pipeline,
            "organization": self._organization,
            "teamPipelineCreate": self._create,
            "teamPipelineUpdate": self._update,
            "teamPipelineDelete": self._delete,
        }

    # --- queries ---

    def _pipeline(self, info: Any, slug: str) -> Node | None:
        organization, _, pipeline = slug.partition("/")
        line = self._data.lines.find(organization, pipeline) if organization in self._visible else None
        return None if line is None else self._of_line(line)

    def _organization(self, info: Any, slug: str) -> Node | None:
        known = self._data.bodies.world.organizations
        found = [one for one in known if one.slug == slug and slug in self._visible]
        return self._of_organization(found[0]) if found else None

    def _of_organization(self, organization: Organization) -> Node:
        slug = organization.slug
        uuid = self._data.bodies.chance.uuid("organization", slug)
        return _node("Organization", uuid) | {
            "slug": slug,
            "name": organization.name,
            "teams": _connection(lambda: self._teams.of(slug), _of_team),
            "pipelines": _connection(lambda: self._data.lines.of(slug), self._of_line),
        }

    def _of_line(self, line: Line) -> Node:
        return _node("Pipeline", self._data.bodies.pipeline_id(line)) | {
            "slug": line.pipeline.slug,
            "name": line.pipeline.name,
            "teams": _connection(lambda: self._teams.at(line), self._of_team_pipeline),
        }

    def _of_team_pipeline(self, has: TeamPipeline) -> Node:
        team = self._teams.find(self._data.lines[has.line].organization.slug, has.team)
        return _node("TeamPipeline", has.id) | {
            "accessLevel": has.level.upper(),
            "createdAt": stamps.modern(has.created),
            "team": _of_team(team),
        }

    # --- mutations ---

    def _create(self, info: Any, input: Node) -> Node:
        team = self._team(_uuid("Team", input["teamID"]))
        refuse_viewers(self._access)
        has = self._teams.give(team, _uuid("Pipeline", input["pipelineID"]), input["accessLevel"].lower())
        line = self._data.lines[has.line]
        edge = {"cursor": _cursor(self._teams.at(line).index(has)), "node": self._of_team_pipeline(has)}
        return _payload(input, team=_of_team(team), pipeline=self._of_line(line), teamPipelineEdge=edge)

    def _update(self, info: Any, input: Node) -> Node:
        _, has = self._has(input)
        has = self._teams.change(has, input["accessLevel"].lower())
        return _payload(input, teamPipeline=self._of_team_pipeline(has))

    def _delete(self, info: Any, input: Node) -> Node:
        team, has = self._has(input)
        self._teams.take(has)
        return _payload(input, deletedTeamPipelineID=input["id"], team=_of_team(team))

    def _team(self, uuid: str) -> Team:
        for organization in self._visible:
            for team in self._teams.of(organization):
                if team.id == uuid:
                    return team
        raise not_found("team")

    def _has(self, input: Node) -> tuple[Team, TeamPipeline]:
        """What a mutation is about to change."""
        has = self._teams.by_id(_uuid("TeamPipeline", input["id"]))
        if has is None:
            raise not_found("team pipeline")
        team = self._team(has.team)
        refuse_viewers(self._access)
        return team, has


def _of_team(team: Team) -> Node:
    return _node("Team", team.id) | {"name": team.name, "description": team.description}


def _node(kind: str, uuid: str) -> Node:
    return {"id": graphql_id(kind, uuid), "uuid": uuid}


def _payload(input: Node, **fields: Any) -> Node:
    return {"clientMutationId": input.get("clientMutationId"), **fields}


def _uuid(kind: str, id: str) -> str:
    """The UUID in an identifier of GraphQL."""
    try:
        told, _, uuid = base64.b64decode(id, validate=True).decode().partition("---")
    except ValueError:
        told, uuid = "", ""
    if told != kind:
        raise Refused(422, f"{id!r} is not the id of a {kind}")
    return uuid


# --- pages ---


def _connection(all_items: Callable[[], Sequence[Any]], node: Callable[[Any], Node]) -> Resolver:
    """The field of a list: so many of its items after a cursor."""

    def resolve(info: Any, first: int | None = None, after: str | None = None) -> Node:
        items, start = all_items(), 0 if after is None else _position(after) + 1
        size = _DEFAULT_PAGE if first is None else first
        if not 0 <= size <= _LARGEST_PAGE:
            raise Refused(422, f"first must be from 0 to {_LARGEST_PAGE}")
        page = list(enumerate(items))[start : start + size]
        more = {"hasNextPage": start + size < len(items), "endCursor": _cursor(page[-1][0]) if page else None}
        return {"count": len(items), "edges": lambda info: _edges(page, node), "pageInfo": more}

    return resolve


def _edges(page: Sequence[tuple[int, Any]], node: Callable[[Any], Node]) -> list[Node]:
    return [{"cursor": _cursor(place), "node": node(item)} for place, item in page]


def _cursor(place: int) -> str:
    return base64.b64encode(f"after {place}".encode()).decode()


def _position(cursor: str) -> int:
    try:
        word, _, place = base64.b64decode(cursor, validate=True).decode().partition(" ")
    except ValueError:
        word, place = "", ""
    if word != "after" or not (place.isascii() and place.isdigit() and len(place) < 10):
        raise Refused(422, f"{cursor!r} is not a cursor")
    return int(place)
