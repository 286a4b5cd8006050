"""GraphQL: the same teams as over REST, changed by the same rules, within limits."""

from __future__ import annotations

import base64
import itertools
import sys
from collections.abc import Iterator

import pytest
from graphql import build_client_schema, get_introspection_query

from buildframe.sandbox_server import Sandbox, graphql_queries
from buildframe.sandbox_server.db.tokens import SCOPES
from buildframe.sandbox_server.graphql_queries import MAX_FIELDS

TEAMS = """
query($slug: ID!, $first: Int, $after: String) {
  pipeline(slug: $slug) {
    id uuid slug name
    teams(first: $first, after: $after) {
      count
      pageInfo { hasNextPage endCursor }
      edges { cursor node { id uuid accessLevel createdAt team { id uuid name description } } }
    }
  }
}
"""
CREATE = """
mutation($input: TeamPipelineCreateInput!) {
  teamPipelineCreate(input: $input) {
    clientMutationId team { name } pipeline { slug teams { count } }
    teamPipelineEdge { cursor node { id uuid accessLevel team { name } } }
  }
}
"""
UPDATE = """
mutation($input: TeamPipelineUpdateInput!) {
  teamPipelineUpdate(input: $input) { clientMutationId teamPipeline { id accessLevel team { name } } }
}
"""
DELETE = """
mutation($input: TeamPipelineDeleteInput!) {
  teamPipelineDelete(input: $input) { clientMutationId deletedTeamPipelineID team { name } }
}
"""


class Graph:
    """Sends GraphQL, and REST to compare."""

    def __init__(self, sandbox, rest):
        self.sandbox, self.rest = sandbox, rest

    def post(self, body, **options):
        return self.rest.http.post(f"{self.sandbox.url}/graphql", json=body, **options)

    def run(self, query, **variables):
        response = self.post({"query": query, "variables": variables})
        assert response.status_code == 200
        return response.json()

    def data(self, query, **variables):
        result = self.run(query, **variables)
        assert "errors" not in result, result
        return result["data"]

    def refusals(self, query, **variables):
        return [error["message"] for error in self.run(query, **variables)["errors"]]

    def teams(self, slug):
        return [edge["node"] for edge in self.data(TEAMS, slug=slug)["pipeline"]["teams"]["edges"]]

    def pipeline_id(self, slug):
        return self.data("query($slug: ID!) { pipeline(slug: $slug) { id } }", slug=slug)["pipeline"]["id"]


def id_of(kind, uuid):
    return base64.b64encode(f"{kind}---{uuid}".encode()).decode()


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(builds=20, days=2) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def graph(sandbox, api_client) -> Graph:
    return Graph(sandbox, api_client(sandbox, sandbox.token(SCOPES)))


# --- reading


def test_a_pipelines_teams_are_those_of_rest(sandbox, graph):
    names = {id: name for name, id in sandbox.teams().items()}
    for pipeline in graph.rest("/organizations/acme/pipelines").json():
        result = graph.data(TEAMS, slug=f"acme/{pipeline['slug']}")["pipeline"]
        assert (result["id"], result["uuid"], result["name"]) == (
            pipeline["graphql_id"],
            pipeline["id"],
            pipeline["name"],
        )
        assert result["teams"]["count"] == len(result["teams"]["edges"]) > 0
        for edge in result["teams"]["edges"]:
            node = edge["node"]
            assert names[node["team"]["uuid"]] == node["team"]["name"]
            assert node["team"]["id"] == id_of("Team", node["team"]["uuid"])
            path = f"/organizations/acme/teams/{node['team']['uuid']}/pipelines/{pipeline['id']}"
            rest = graph.rest(path).json()
            assert (node["accessLevel"], node["createdAt"]) == (rest["access_level"].upper(), rest["created_at"])


def test_pages_follow_each_other(graph):
    whole, after, listed = graph.teams("acme/web"), None, []
    for _ in whole:
        page = graph.data(TEAMS, slug="acme/web", first=1, after=after)["pipeline"]["teams"]
        listed += [edge["node"] for edge in page["edges"]]
        after = page["pageInfo"]["endCursor"]
        assert page["pageInfo"]["hasNextPage"] == (len(listed) < len(whole))
    assert listed == whole
    assert graph.data(TEAMS, slug="acme/web", first=5, after=after)["pipeline"]["teams"]["edges"] == []


def test_an_organization_has_teams_and_pipelines(sandbox, graph):
    result = graph.data("""{ organization(slug: "globex") {
        id uuid slug name
        teams(first: 1) { count edges { node { name uuid } } pageInfo { hasNextPage } }
        pipelines { edges { node { slug } } }
    } }""")["organization"]
    assert (result["slug"], result["name"], result["id"]) == ("globex", "Globex", id_of("Organization", result["uuid"]))
    assert result["teams"]["count"] == len(sandbox.teams("globex"))
    assert [edge["node"]["uuid"] for edge in result["teams"]["edges"]] == [sandbox.teams("globex")["Everyone"]]
    assert result["teams"]["pageInfo"]["hasNextPage"]
    assert [edge["node"]["slug"] for edge in result["pipelines"]["edges"]] == ["site", "widgets"]


def test_what_is_not_there_or_out_of_reach_is_null(sandbox, graph, api_client):
    for slug in ("acme/none", "acme", "", "nowhere/web", "globex/web"):
        assert graph.data(TEAMS, slug=slug) == {"pipeline": None}
    only = Graph(sandbox, api_client(sandbox, sandbox.token(["GraphQL"], organizations=["globex"])))
    assert only.data(TEAMS, slug="acme/web") == {"pipeline": None}
    assert only.data('{ organization(slug: "acme") { id } }') == {"organization": None}
    assert only.teams("globex/site")


# --- changing


def test_a_team_gets_changes_and_loses_a_pipeline(sandbox, graph):
    pipeline, team = graph.pipeline_id("acme/web"), id_of("Team", sandbox.teams()["Visitors"])
    count = len(graph.teams("acme/web"))
    new = {"teamID": team, "pipelineID": pipeline, "accessLevel": "READ_ONLY", "clientMutationId": "one"}
    created = graph.data(CREATE, input=new)["teamPipelineCreate"]
    node = created["teamPipelineEdge"]["node"]
    assert created["clientMutationId"] == "one"
    assert (created["team"], created["pipeline"]) == (
        {"name": "Visitors"},
        {"slug": "web", "teams": {"count": count + 1}},
    )
    assert (node["accessLevel"], node["team"]["name"]) == ("READ_ONLY", "Visitors")
    assert node["id"] == id_of("TeamPipeline", node["uuid"])
    (has,) = graph.rest(f"/organizations/acme/teams/{sandbox.teams()['Visitors']}/pipelines").json()
    assert has["access_level"] == "read_only"

    change = {"id": node["id"], "accessLevel": "BUILD_AND_READ"}
    updated = graph.data(UPDATE, input=change)["teamPipelineUpdate"]
    expected = {"id": node["id"], "accessLevel": "BUILD_AND_READ", "team": {"name": "Visitors"}}
    assert updated == {"clientMutationId": None, "teamPipeline": expected}

    deleted = graph.data(DELETE, input={"id": node["id"], "clientMutationId": "x"})["teamPipelineDelete"]
    assert deleted == {"clientMutationId": "x", "deletedTeamPipelineID": node["id"], "team": {"name": "Visitors"}}
    assert len(graph.teams("acme/web")) == count


def test_the_rules_are_those_of_rest(sandbox, graph):
    manager = next(node for node in graph.teams("acme/web") if node["accessLevel"] == "MANAGE_BUILD_AND_READ")
    assert "last team that manages" in graph.refusals(DELETE, input={"id": manager["id"]})[0]
    change = {"id": manager["id"], "accessLevel": "READ_ONLY"}
    assert "last team that manages" in graph.refusals(UPDATE, input=change)[0]
    again = {"teamID": manager["team"]["id"], "pipelineID": graph.pipeline_id("acme/web"), "accessLevel": "READ_ONLY"}
    assert graph.refusals(CREATE, input=again) == ["Validation failed: Pipeline has already been added to this team"]
    foreign = again | {"pipelineID": graph.pipeline_id("globex/site")}
    assert graph.refusals(CREATE, input=foreign) == ["Validation failed: Pipeline must exist"]
    assert manager in graph.teams("acme/web")


def test_what_is_no_id_of_that_kind_is_refused(graph):
    for id in ("", "x", "é", "Pipeline---1", id_of("Pipeline", "1"), "////"):
        result = graph.run(DELETE, input={"id": id})
        assert result["data"] == {"teamPipelineDelete": None}, id
        assert result["errors"][0]["message"].endswith("is not the id of a TeamPipeline"), id


def test_ids_of_nothing_and_of_what_is_out_of_reach_are_not_found(sandbox, graph, api_client):
    nowhere = "00000000-0000-4000-8000-000000000000"
    assert graph.refusals(DELETE, input={"id": id_of("TeamPipeline", nowhere)}) == ["No team pipeline found"]
    only = Graph(sandbox, api_client(sandbox, sandbox.token(["GraphQL"], organizations=["globex"])))
    for node in graph.teams("acme/docs"):
        assert only.refusals(DELETE, input={"id": node["id"]}) == ["No team found"]
    assert graph.teams("acme/docs")


def test_who_may_not_edit_changes_nothing(sandbox, graph, api_client):
    viewer = Graph(sandbox, api_client(sandbox, sandbox.token(SCOPES, may_edit=False)))
    before = graph.teams("acme/docs")
    new = {"teamID": id_of("Team", sandbox.teams()["Visitors"]), "pipelineID": graph.pipeline_id("acme/docs")}
    assert viewer.refusals(CREATE, input=new | {"accessLevel": "READ_ONLY"}) == ["Forbidden"]
    for node in before:
        assert viewer.refusals(UPDATE, input={"id": node["id"], "accessLevel": "READ_ONLY"}) == ["Forbidden"]
        assert viewer.refusals(DELETE, input={"id": node["id"]}) == ["Forbidden"]
    assert viewer.teams("acme/docs") == before


# --- requests


def test_a_token_with_the_scope_is_needed(sandbox, graph, api_client):
    reader = api_client(sandbox, sandbox.token(["read_builds"])).http.post(
        f"{sandbox.url}/graphql", json={"query": "{a}"}
    )
    assert reader.json() == {"message": "Your access token doesn't have the GraphQL scope"}
    assert reader.status_code == 403
    assert graph.post({"query": TEAMS}, headers={"Authorization": ""}).status_code == 401


def test_a_body_that_is_no_query_is_refused(graph):
    for more in ({"query": 3}, {"query": None}, {"variables": []}, {"operationName": 1}):
        response = graph.post({"query": "{ __typename }"} | more)
        assert (response.status_code, response.json().keys()) == (400, {"message"}), more
    assert graph.post(["{ __typename }"]).status_code == 400


def test_without_the_library_the_rest_is_served(graph, monkeypatch):
    monkeypatch.delitem(sys.modules, "buildframe.sandbox_server.graphql_queries")
    monkeypatch.setitem(sys.modules, "graphql", None)
    response = graph.post({"query": "{ __typename }"})
    assert response.status_code == 501
    assert "buildframe[sandbox]" in response.json()["message"]
    assert graph.rest("/organizations/acme/pipelines").status_code == 200


def test_no_depth_brings_it_down(graph):
    for n, (opens, closes) in itertools.product((20, 90, 700), (("{a", "}"), ("{...", "}"), ("[", "]"), ("{x:", "}"))):
        nested = opens * n + closes * n
        for query in (nested, f"{{ organization(slug: {nested}) {{ id }} }}"):
            assert graph.refusals(query), (n, opens)


def test_a_wrong_query_is_status_200_with_errors(graph):
    for query in ("", "{", "{ nothing }", "{ pipeline { id } }", "{ pipeline(slug: 1.5) { id } }", "\x00"):
        result = graph.run(query)
        assert result.keys() == {"errors"}, query
        assert result["errors"][0]["message"], query


def test_introspection_returns_the_whole_schema(graph):
    schema = build_client_schema(graph.data(get_introspection_query()))
    levels = schema.type_map["PipelineAccessLevels"].values
    assert set(levels) == {"READ_ONLY", "BUILD_AND_READ", "MANAGE_BUILD_AND_READ"}
    assert set(schema.mutation_type.fields) == {"teamPipelineCreate", "teamPipelineUpdate", "teamPipelineDelete"}


TOO_LARGE = {
    "{" + "a{" * 30 + "b" + "}" * 31: "levels deep",
    "{" + "a{" * 300: "deep",
    "query { ...a } fragment a on Query { ...b } fragment b on Query { ...a }": "levels deep",
    "{" + " a" * 3000 + "}": "tokens",
    "#" * 30_000: "longer than",
    "{ __schema { types { fields { type { fields { type { fields { type { fields { name }}}}}}}}}}": "ntrospection",
    '{ organization(slug: "acme") { teams(first: 100000) { count } } }': "first must be",
    '{ organization(slug: "acme") { teams(first: -1) { count } } }': "first must be",
    '{ organization(slug: "acme") { teams(after: "%%") { count } } }': "is not a cursor",
    '{ organization(slug: "acme") { teams(after: "YWZ0ZXIgLTE=") { count } } }': "is not a cursor",
}


def test_too_large_queries_are_refused(graph):
    messages = [(query[:60], reason, graph.refusals(query)[0]) for query, reason in TOO_LARGE.items()]
    assert [each for each in messages if each[1] not in each[2]] == []


def test_fragments_within_fragments_are_not_counted_over_and_over(graph):
    doubled = " ".join(f"fragment f{n} on Query {{ ...f{n + 1} ...f{n + 1} }}" for n in range(40))
    result = graph.run(f"{{ ...f0 }} {doubled} fragment f40 on Query {{ __typename }}")
    assert result == {"data": {"__typename": "Query"}}


def aliased(field, times=20):
    """A selection of a field under so many names."""
    return "{ " + " ".join(f"a{n}: {field}" for n in range(times)) + " }"


WITHIN = f"""
fragment P on Organization {aliased("pipelines { ...E }")}
fragment E on PipelineConnection {{ edges {{ node {aliased("teams { ...T }")} }} }}
fragment T on TeamPipelineConnection {aliased("count")}
"""
TOP = aliased('organization(slug: "acme") { ...P }')
NESTED = TOP + WITHIN
INLINE = f"{{ ... on Query {{ ... {TOP} }} }}" + WITHIN
OWN = f"""
{aliased("__schema { ...S }")}
fragment S on __Schema {aliased("types { ...T }")}
fragment T on __Type {aliased("fields { ...F }")}
fragment F on __Field {aliased("name")}
"""


@pytest.mark.long
def test_aliases_in_nested_fragments_are_counted(graph):
    for query in (NESTED, INLINE, OWN):
        assert len(query) < 2100
        assert graph.refusals(query) == [f"The query requests more than {MAX_FIELDS} fields"]


def sized(first, times=5):
    """A query for so many pages of the teams of each pipeline: 22 fields of a team pipeline."""
    teams = aliased(f"teams(first: {first}) {{ edges {{ node {aliased('id')} }} }}", times)
    declared = "query($n: Int)" if first == "$n" else "query"
    return f'{declared} {{ organization(slug: "acme") {{ pipelines {{ edges {{ node {teams} }} }} }} }}'


def test_lists_count_as_often_as_they_have_items(graph, monkeypatch):
    pipelines = len(graph.rest("/organizations/acme/pipelines", per_page=100).json())
    fields = 2 + pipelines * (2 + 5 * (1 + 2 * 22))
    monkeypatch.setattr(graphql_queries, "MAX_FIELDS", fields)
    assert graph.data(sized(2))
    assert graph.data(sized("$n"), n=2)
    for query, n in ((sized(3), None), (sized(2, 6), None), (sized("$n"), 3), (sized("$n"), None)):
        assert graph.refusals(query, n=n) == [f"The query requests more than {fields} fields"]


def test_long_pages_of_short_lists_cost_what_these_hold(sandbox, graph, monkeypatch):
    pipelines = len(graph.rest("/organizations/acme/pipelines", per_page=100).json())
    monkeypatch.setattr(graphql_queries, "MAX_FIELDS", 2 + pipelines * (2 + 5 * (1 + len(sandbox.teams()) * 22)))
    assert graph.data(sized(500))


def test_large_queries_within_the_limit_are_executed(graph):
    selection = 'organization(slug: "acme") { pipelines { edges { node { slug teams { count } } } } }'
    assert len(graph.data(aliased(selection, 30))) == 30


def test_the_simulation_is_not_held_up(sandbox, graph):
    with sandbox._simulator.lock:
        assert graph.teams("acme/web")
