"""Send GraphQL queries, and change the teams of a pipeline with them. Does not know frames."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args
from uuid import UUID

import msgspec

from buildframe.errors import BadInput, GraphQLError, Incomplete, Malformed
from buildframe.http import protocol
from buildframe.http.client import Client
from buildframe.http.protocol import Request
from buildframe.http.request_body import json_of, nearest
from buildframe.http.response import Response
from buildframe.http.retry import fetch
from buildframe.http.urls import SplitUrl, check_url
from buildframe.spec import AccessLevel
from buildframe.spec.operations import endpoint
from buildframe.terminal import show

HOSTED_URL = "https://graphql.buildkite.com/v1"
_HAS_MUTATION = re.compile(r"\bmutation\b")


@endpoint("POST /graphql", returns=None, scope="GraphQL")
def send_graphql() -> None:
    """A query or a mutation."""


class _GraphQLBody(msgspec.Struct):
    data: dict[str, Any] | None = None
    errors: Any = None


class GraphQL:
    """GraphQL at a URL."""

    def __init__(self, client: Client, url: str) -> None:
        parts = SplitUrl.parse(check_url(url))
        self._client = client.for_origin(parts.origin)
        self._target = parts.target

    def execute(self, query: str, variables: Mapping[str, Any] | None = None, *, advice: str = "") -> dict[str, Any]:
        """Return the `data` of the response; raise GraphQLError if it contains errors, also beside data.

        A text that contains the word `mutation` is not repeated if its response is lost: OutcomeUnknown.
        """
        body = json_of({"query": _text(query), "variables": {} if variables is None else _object(variables)})
        request = Request(send_graphql, self._target, body, repeatable=not _HAS_MUTATION.search(query))
        return fetch(self._client, request, self._read, advice=advice)

    def _read(self, request: Request, response: Response) -> dict[str, Any]:
        if errors := self._errors(request, response):
            raise GraphQLError(errors)
        data = protocol.read_as(request, response, _GraphQLBody).data
        if data is None:
            raise Malformed(f"The GraphQL response has neither data nor errors.\nRequest: {request.where}")
        return data

    def _errors(self, request: Request, response: Response) -> list[dict[str, Any]]:
        """Return the errors in a response without the token, in a frame that no traceback of them contains."""
        errors = protocol.read_as(request, response, _GraphQLBody).errors or []
        listed = errors if isinstance(errors, list) else [errors]
        dicts = [error if isinstance(error, dict) else {"message": str(error)} for error in listed]
        clean: list[dict[str, Any]] = json.loads(self._client.redact(json.dumps(dicts)))
        return clean


def _text(query: str) -> str:
    if not isinstance(query, str) or not query.strip():
        raise BadInput(f"query={show(query)}: pass the text of a query or a mutation.")
    return query


def _object(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    if not isinstance(variables, Mapping) or not all(isinstance(name, str) for name in variables):
        kind = type(variables).__name__  # not the value, which may contain secrets
        raise BadInput(f"variables=<{kind}>: pass a mapping from str to values, such as {{'slug': 'acme/web'}}.")
    return variables


# --- the teams of a pipeline ------------------------------------------------------------------------------------------

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


class _TeamAccess(NamedTuple):
    """GraphQL ids of a pipeline, and of its association with a team if there is one."""

    pipeline: str
    association: str | None


def set_team(graphql: GraphQL, path: str, team: str, access_level: AccessLevel) -> None:
    """Give a team access to a pipeline (`organization/pipeline`), or change its access."""
    level, team_id = _level(access_level), _team_id(team)
    access = _find(graphql, path, team_id)
    if access.association is not None:
        _change(graphql, "Update", {"id": access.association, "accessLevel": level})
    else:
        _change(graphql, "Create", {"teamID": team_id, "pipelineID": access.pipeline, "accessLevel": level})


def remove_team(graphql: GraphQL, path: str, team: str) -> None:
    """Remove the access of a team to a pipeline (`organization/pipeline`)."""
    access = _find(graphql, path, _team_id(team))
    if access.association is None:
        raise BadInput(f"team={team!r} has no access to the pipeline {path}, so there is nothing to remove.")
    _change(graphql, "Delete", {"id": access.association})


def _change(graphql: GraphQL, action: Literal["Create", "Update", "Delete"], input: Mapping[str, str]) -> None:
    graphql.execute(_MUTATION.format(action), {"input": input}, advice=_SAFE)


def _find(graphql: GraphQL, path: str, team_id: str) -> _TeamAccess:
    pages = list(_pages(graphql, path))
    for association in (edge.node for page in pages for edge in page.teams.edges):
        if association.team is not None and association.team.id == team_id:
            return _TeamAccess(pages[0].id, association.id)
    return _TeamAccess(pages[0].id, None)


def _pages(graphql: GraphQL, path: str) -> Iterator[_PipelineWithTeams]:
    """Yield the pipeline with one page of its teams after the other."""
    after: str | None = None
    cursors, associations, pages_without_new = set[str | None]({None}), set[str](), 0
    while True:
        pipeline = _pipeline(graphql.execute(_TEAMS, {"slug": path, "after": after}), path)
        yield pipeline
        following = pipeline.teams.page_info
        if not following.has_next_page:
            return
        new = {edge.node.id for edge in pipeline.teams.edges} - associations
        pages_without_new = 0 if new else pages_without_new + 1
        if following.end_cursor in cursors or pages_without_new == _MOST_WITHOUT_NEW:
            raise Incomplete(
                "The service links the pages of the pipeline's teams in a circle, or without an end: "
                f"{len(associations | new)} teams were read, and the last {pages_without_new} pages had no other. "
                "Nothing was changed. Try again."
            )
        after = following.end_cursor
        cursors.add(after)
        associations |= new


_MOST_WITHOUT_NEW = 10
"""Pages in a row. A page may be empty if the token may see none of its teams."""


def _pipeline(data: Mapping[str, Any], path: str) -> _PipelineWithTeams:
    if data.get("pipeline") is None:
        raise BadInput(f"There is no pipeline {path}, or this token may not see it.")
    try:
        return msgspec.convert(data["pipeline"], _PipelineWithTeams)
    except msgspec.ValidationError as why:
        raise Malformed(f"The teams in the GraphQL response cannot be read: {why}.") from None


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
        raise BadInput(
            f"team={show(team)}: pass the team's UUID, or its GraphQL id (base64 of `Team---UUID`)."
        ) from None
    return base64.b64encode(f"Team---{uuid}".encode()).decode()


def _uuid_in(team: str) -> UUID:
    try:
        return UUID(team)
    except ValueError:
        kind, _, uuid = base64.b64decode(team, validate=True).decode().partition("---")
        return UUID(uuid if kind == "Team" else "")
