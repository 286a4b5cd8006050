"""GraphQL over real HTTP on loopback: requests, errors, and the teams of a pipeline."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pandas as pd
import pytest
import tenacity

import buildframe as bf
from buildframe import spec
from buildframe.http import retry
from buildframe.http.retry import MAX_ATTEMPTS
from tests.conftest import Scripted, hang_up, says
from tests.http.test_client import TOKEN, connected
from tests.leaks import shown_of
from tests.refusals import wrong_refusals

Start = Callable[..., Scripted]
TEAM = "0190b3aa-0000-7000-8000-0000000000aa"
TEAM_ID = base64.b64encode(f"Team---{TEAM}".encode()).decode()
QUERY, MUTATION = "{ viewer { user { name } } }", "mutation { x { clientMutationId } }"


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


def data(**fields: Any) -> Callable[..., None]:
    return says(json.dumps({"data": fields}).encode())


def test_the_request_of_a_query(scripted: Start) -> None:
    server = scripted(data(viewer={"user": {"name": "Ada"}}))
    assert connected(server).graphql(QUERY, {"a": [1, None]}) == {"viewer": {"user": {"name": "Ada"}}}
    assert (server.methods, server.requests) == (["POST"], ["/graphql"])
    assert json.loads(server.bodies[0]) == {"query": QUERY, "variables": {"a": [1, None]}}
    assert server.headers[0]["Content-Type"] == "application/json"
    assert server.headers[0]["Authorization"] == f"Bearer {TOKEN}"


def test_graphql_needs_no_organization(scripted: Start) -> None:
    assert bf.connect(base_url=scripted(data(a=1)).url, token=TOKEN).graphql("{ a }") == {"a": 1}


def test_the_graphql_url_is_set_in_three_ways(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    rest, graphql = scripted(says(b"{}")), scripted(data(a=1))
    bf.connect("acme", base_url=rest.url, token=TOKEN, graphql_url=f"{graphql.url}/v2").graphql("{ a }")
    connected(rest).graphql("{ a }", url=f"{graphql.url}/api/graphql/")
    monkeypatch.setenv("BUILDFRAME_GRAPHQL_URL", f"{graphql.url}/v1")
    connected(rest).graphql("{ a }")
    assert graphql.requests == ["/v2", "/api/graphql", "/v1"]
    assert {headers["Authorization"] for headers in graphql.headers} == {f"Bearer {TOKEN}"}
    assert not rest.requests


def test_the_hosted_service_has_its_own_graphql_url(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    def note(client: httpx.Client, method: str, url: str, **_: Any) -> Any:
        sent.append(url)
        raise KeyboardInterrupt

    monkeypatch.setattr(httpx.Client, "stream", note)
    for base_url in (None, "https://ci.example.com/v2"):
        with pytest.raises(KeyboardInterrupt):
            bf.connect("acme", base_url=base_url, token=TOKEN).graphql(QUERY)
    assert sent == ["https://graphql.buildkite.com/v1", "https://ci.example.com/graphql"]


def test_a_url_that_would_expose_the_token_is_refused(scripted: Start) -> None:
    ws = connected(scripted(data(a=1)))
    urls = ["http://graphql.example.com", "graphql.example.com", "https://a:b@graphql.example.com"]
    cases = [(url, "unencrypted|not a web address|password") for url in urls]
    assert wrong_refusals(cases, lambda url: bf.connect("acme", token=TOKEN, graphql_url=url)) == {}
    assert wrong_refusals(cases, lambda url: ws.graphql("{ a }", url=url)) == {}


def test_a_query_that_is_not_json_is_not_sent(scripted: Start) -> None:
    server = scripted(data(a=1))
    ws: Any = connected(server)
    others: list[Any] = [0, "", [], False, pd.NA, pd.Series([1, 2]), pd.DataFrame()]
    cases: list[tuple[Any, str]] = [
        (("", None), "query"),
        ((7, None), "query"),
        (("{ a }", [1]), "mapping"),
        (("{ a }", {1: 2}), "mapping"),
        (("{ a }", {"a": {1, 2}}), "JSON"),
        (("{ a }", {"a": float("nan")}), "JSON"),
        (("{ a }", {"a": "\ud83d"}), "surrogate"),
        (("{ a }", {"a": b"x"}), "JSON"),
        *((("{ a }", other), "pass a mapping") for other in others),
    ]
    assert wrong_refusals(cases, lambda one: ws.graphql(*one)) == {}
    assert not server.requests


def test_a_response_with_data_and_errors_raises_an_error(scripted: Start) -> None:
    errors = [{"message": "No such field", "path": ["a"]}, {"message": "Nor this"}, "odd"]
    server = scripted(says(json.dumps({"data": {"a": 1}, "errors": errors}).encode()))
    with pytest.raises(bf.GraphQLError, match="field; Nor this; odd") as caught:
        connected(server).graphql("{ a }")
    assert caught.value.errors[0] == errors[0]
    assert len(server.requests) == 1


def test_a_query_is_sent_again_and_a_mutation_is_not(scripted: Start) -> None:
    server = scripted(hang_up)
    for fault, of_query, of_mutation in [
        (hang_up, bf.Unreachable, bf.OutcomeUnknown),
        (says(b'{"data":{}}', cut=3), bf.Unreachable, bf.OutcomeUnknown),
        (says(b'{"message":"oops"}', 500), bf.Unavailable, bf.OutcomeUnknown),
        (says(b"<html>"), bf.Malformed, bf.OutcomeUnknown),
        (says(b'{"data":null}'), bf.Malformed, bf.OutcomeUnknown),
        (says(b'{"message":"slow","reset":0}', 429), bf.RateLimited, bf.RateLimited),
    ]:
        server.responses = [fault]
        for text, kind in ((QUERY, of_query), (MUTATION, of_mutation), (f"# why\n {MUTATION}", of_mutation)):
            server.requests.clear()
            with pytest.raises(kind) as caught:
                connected(server).graphql(text)
            assert len(server.requests) == (1 if kind is bf.OutcomeUnknown else MAX_ATTEMPTS), (text, kind)
            assert TOKEN not in shown_of(caught.value), (text, kind)


def test_the_error_names_the_missing_scope(scripted: Start) -> None:
    server = scripted(says(b'{"message":"Your access token doesn\'t have the GraphQL scope"}', 403))
    with pytest.raises(bf.Forbidden, match="scope GraphQL"):
        connected(server).graphql(QUERY)


def test_a_token_in_an_error_of_the_service_is_not_shown(scripted: Start) -> None:
    for echo in (TOKEN, TOKEN.replace("b", "\\u0062")):
        server = scripted(says(b'{"errors":[{"message":"Bearer %s is bad"}]}' % echo.encode()))
        with pytest.raises(bf.GraphQLError, match="Bearer <token> is bad") as caught:
            connected(server).graphql(QUERY)
        assert TOKEN not in shown_of(caught.value) + repr(vars(caught.value))


# --- the teams of a pipeline ------------------------------------------------------------------------------------------


def teams(*ids: tuple[str, str], following: str | None = None) -> Callable[..., None]:
    edges = [{"node": {"id": own, "accessLevel": "READ_ONLY", "team": {"id": team, "name": "x"}}} for own, team in ids]
    page = {"endCursor": following, "hasNextPage": following is not None}
    return data(pipeline={"id": "P", "teams": {"edges": edges, "pageInfo": page}})


DONE = data(x={"clientMutationId": None})


def sent(server: Scripted) -> list[dict[str, Any]]:
    return [json.loads(body)["variables"] for body in server.bodies]


def test_set_team_updates_existing_access_and_creates_new_access(scripted: Start) -> None:
    for team in (TEAM, TEAM.upper(), TEAM_ID):
        server = scripted(teams(("T1", "other"), following="c1"), teams(("T2", TEAM_ID)), DONE)
        connected(server).set_team("web", team, "build_and_read")
        assert sent(server) == [
            {"slug": "acme/web", "after": None},
            {"slug": "acme/web", "after": "c1"},
            {"input": {"id": "T2", "accessLevel": "BUILD_AND_READ"}},
        ]
        assert b"teamPipelineUpdate(input: $input)" in server.bodies[-1]
        server = scripted(teams(("T1", "other"), following="c1"), teams(), DONE)
        connected(server).set_team("web", team, "read_only")
        assert sent(server)[-1] == {"input": {"teamID": TEAM_ID, "pipelineID": "P", "accessLevel": "READ_ONLY"}}
        assert b"teamPipelineCreate(input: $input)" in server.bodies[-1]


def test_a_pipeline_is_given_by_slug_record_or_object(scripted: Start) -> None:
    ways: list[Callable[[Any], Any]] = [
        lambda ws: "web", lambda ws: ws.pipeline("web"), lambda ws: spec.Pipeline(slug="web"),
    ]  # fmt: skip
    for way in ways:
        server = scripted(teams(("T2", TEAM_ID)), DONE)
        ws = connected(server)
        ws.remove_team(way(ws), TEAM)
        assert sent(server) == [{"slug": "acme/web", "after": None}, {"input": {"id": "T2"}}]
        assert b"teamPipelineDelete(input: $input)" in server.bodies[-1]


def test_wrong_arguments_of_set_team_are_refused_before_anything_is_sent(scripted: Start) -> None:
    server = scripted(teams())
    ws: Any = connected(server)
    elsewhere = bf.connect("globex", base_url=server.url, token=TOKEN).pipeline("web")
    of_pipeline = base64.b64encode(b"Pipeline---" + TEAM.encode()).decode()
    cases: list[tuple[Any, str]] = [
        (("web", "core", "read_only"), "pass the team's UUID"),
        (("web", of_pipeline, "read_only"), "pass the team's UUID"),
        (("web", None, "read_only"), "pass the team's UUID"),
        (("web", TEAM, "READ_ONLY"), "Did you mean 'read_only'"),
        (("web", TEAM, None), "Valid names|Did you mean"),
        (("acme/web", TEAM, "read_only"), "Did you mean 'web'"),
        (("", TEAM, "read_only"), "slug"),
        ((spec.Pipeline(), TEAM, "read_only"), "slug"),
        ((elsewhere, TEAM, "read_only"), "another organization"),
    ]
    assert wrong_refusals(cases, lambda one: ws.set_team(*one)) == {}
    assert not server.requests


def test_missing_teams_and_pipelines_raise_an_error(scripted: Start) -> None:
    with pytest.raises(bf.BadInput, match=r"no access.*acme/web"):
        connected(scripted(teams(("T1", "other")))).remove_team("web", TEAM)
    with pytest.raises(bf.BadInput, match="no pipeline acme/web"):
        connected(scripted(data(pipeline=None))).set_team("web", TEAM, "read_only")
    with pytest.raises(bf.Malformed, match="teams in the GraphQL"):
        connected(scripted(data(pipeline={"id": "P"}))).set_team("web", TEAM, "read_only")
    with pytest.raises(bf.Incomplete, match="circle"):
        connected(scripted(teams(following="c1"))).set_team("web", TEAM, "read_only")


def test_endless_pages_of_teams_raise_an_error(scripted: Start) -> None:
    for cursors, requests in (("AB", 3), ("ABCDEFGHIJKLMNOP", 10)):
        server = scripted(*(teams(following=cursor) for cursor in cursors * 2))
        with pytest.raises(bf.Incomplete, match=r"without an end: 0 teams"):
            connected(server).set_team("web", TEAM, "read_only")
        assert len(server.requests) == requests


def test_many_pages_of_teams_are_read_to_their_end(scripted: Start) -> None:
    pages = [teams((f"T{n}", "other"), following=f"c{n}") for n in range(15)]
    server = scripted(*pages, teams(("T", TEAM_ID)), DONE)
    connected(server).set_team("web", TEAM, "read_only")
    assert sent(server)[-1] == {"input": {"id": "T", "accessLevel": "READ_ONLY"}}


def test_a_change_of_teams_whose_response_is_lost_can_be_repeated(scripted: Start) -> None:
    server = scripted(teams(("T2", TEAM_ID)), hang_up)
    with pytest.raises(bf.OutcomeUnknown, match=r"(?s)POST /graphql.*is safe"):
        connected(server).set_team("web", TEAM, "read_only")
    assert len(server.requests) == 2
