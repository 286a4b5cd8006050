"""Look up the names of an organization's teams by UUID. Knows GraphQL, no widgets."""

from __future__ import annotations

import msgspec

from buildframe.errors import BuildframeError
from buildframe.spec.decoders import convert
from buildframe.widgets import html
from buildframe.workspace import Workspace

_QUERY = """query($slug: ID!, $after: String) { organization(slug: $slug) {
  teams(first: 500, after: $after) { edges { node { uuid name } } pageInfo { hasNextPage endCursor } } } }"""
_MAX_PAGES = 10


class _NamedTeam(msgspec.Struct):
    uuid: str
    name: str


class _TeamEdge(msgspec.Struct):
    node: _NamedTeam


class _TeamPageInfo(msgspec.Struct, rename="camel"):
    has_next_page: bool
    end_cursor: str | None


class _TeamPage(msgspec.Struct, rename="camel"):
    edges: list[_TeamEdge]
    page_info: _TeamPageInfo


class _OrganizationTeams(msgspec.Struct):
    teams: _TeamPage


class _TeamData(msgspec.Struct):
    organization: _OrganizationTeams | None


def load_team_names(ws: Workspace) -> dict[str, str] | str:
    """Return the name of each team by UUID, or why they are unknown: the token may not read them."""
    names: dict[str, str] = {}
    after: str | None = None
    try:
        for _ in range(_MAX_PAGES):
            data = convert(ws.graphql(_QUERY, {"slug": ws.organization, "after": after}), _TeamData)
            if data.organization is None:
                return "the service returned no teams"
            page = data.organization.teams
            names |= {edge.node.uuid: edge.node.name for edge in page.edges}
            if not page.page_info.has_next_page:
                break
            after = page.page_info.end_cursor
    except (BuildframeError, msgspec.ValidationError) as error:
        return html.error_text(error).splitlines()[0]
    return names


def parse_ids(text: object) -> list[str]:
    """Return the UUIDs in a column that contains lists as JSON."""
    ids = msgspec.json.decode(text) if isinstance(text, str) and text else []
    return [str(id) for id in ids] if isinstance(ids, list) else []
