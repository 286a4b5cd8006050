"""The OpenAPI document: valid, complete, as the service's document says, and true of real responses."""

from __future__ import annotations

import re

import httpx
import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from buildframe.sandbox_server import Quota, Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES
from buildframe.sandbox_server.handlers.routes import ROUTES
from buildframe.sandbox_server.http.openapi import create_document
from tests import golden

DOCUMENT = create_document("https://ci.example.com")
SHOWN = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
    if method != "servers"
}
GETS = [name for name, (method, _, _) in SHOWN.items() if method == "GET"]


def parameters(operation, place):
    return {entry["name"]: entry for entry in operation["parameters"] if entry["in"] == place}


def body_of(operation):
    return operation["requestBody"]["content"]["application/json"]["schema"]


@pytest.mark.long
def test_it_is_valid():
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_it_is_served_without_a_token_and_names_its_server(small):
    response = httpx.get(f"{small.url}/openapi.json")
    assert response.headers["Content-Type"] == "application/json"
    assert response.json() == create_document(small.url)
    assert response.json()["servers"] == [{"url": f"{small.url}/v2"}]


@pytest.mark.parametrize("name", golden.OPERATIONS)
def test_an_operation_is_as_the_service_s_document_says(name):
    expected = golden.OPERATIONS[name]
    method, path, operation = SHOWN[name]
    expected_method, expected_path = expected["route"].split(" ")
    if name == "delete_team_pipeline":  # the service's document leaves out which one
        path = SHOWN["delete_team_pipeline_named"][1]
    assert re.sub(r"{[^}]*}", "{}", path) == re.sub(r"{[^}]*}", "{}", expected_path).rstrip("/")
    assert method == expected_method
    documented = {str(error["status"]) for error in golden.ERRORS if name in error["operations"]}
    assert set(operation["responses"]) >= {str(expected["success"]), "401", "429"} | documented
    scope = re.search(r"scope `(\w+)`", operation["description"])
    assert (scope[1] if scope else "") == expected["scope"]
    paging = {"after", "before", "per_page"} if "envelope" in expected else {"page", "per_page"}
    assert (paging <= parameters(operation, "query").keys()) is expected.get("paginated", False)
    assert set(parameters(operation, "header")) == ({"Buildkite-Version"} if "version" in expected else set())
    assert set(parameters(operation, "query")) - paging == {
        shown
        for query, about in golden.query_of(name).items()
        for shown in ([query, f"{query}[]"] if about.get("many") else [query])
    }


def test_it_is_the_whole_service():
    beyond = {entry.name for entry in ROUTES if not entry.documented}
    assert SHOWN.keys() == {entry.name for entry in ROUTES}
    assert SHOWN.keys() - golden.OPERATIONS.keys() == {"delete_team_pipeline_named", "query_graphql"} | (
        beyond - golden.OPERATIONS.keys()
    )
    assert {name for name, (_, _, shown) in SHOWN.items() if "undocumented" in shown["tags"]} == beyond
    assert {name for name, (_, _, shown) in SHOWN.items() if "does not list it" in shown["description"]} == beyond


def test_graphql_lies_at_the_root(small):
    path = httpx.get(f"{small.url}/openapi.json").json()["paths"]["/graphql"]
    headers = {"Authorization": f"Bearer {small.token(['GraphQL'])}"}
    query = {"query": '{ organization(slug: "acme") { name } }'}
    response = httpx.post(f"{path['servers'][0]['url']}/graphql", json=query, headers=headers)
    assert response.json() == {"data": {"organization": {"name": "Acme"}}}


def test_the_pipeline_to_take_is_named_in_body_or_query():
    operation = SHOWN["delete_team_pipeline_named"][2]
    assert parameters(operation, "query").keys() == body_of(operation)["properties"].keys() == {"pipeline_id"}


def test_the_paths_name_their_parameters():
    for _, path, operation in SHOWN.values():
        assert re.findall(r"{(\w+)}", path) == list(parameters(operation, "path"))
        assert all(entry["required"] for entry in parameters(operation, "path").values())


def test_how_parameters_are_written():
    query = parameters(SHOWN["list_builds"][2], "query")
    assert query["branch"]["schema"] == {"type": "string"}
    assert query["branch[]"]["schema"] == {"type": "array", "items": {"type": "string"}}
    assert (query["meta_data"]["style"], query["meta_data"]["explode"]) == ("deepObject", True)
    assert "passed" in query["state"]["schema"]["enum"]
    assert query["created_from"]["schema"]["format"] == "date-time"
    assert query["include_retried_jobs"]["schema"] == {"type": "boolean"}


@pytest.mark.parametrize("endpoint", [entry for entry in ROUTES if entry.properties], ids=lambda e: e.name)
def test_a_body_has_the_declared_properties(endpoint):
    schema = body_of(SHOWN[endpoint.name][2])
    assert schema["properties"].keys() == set(endpoint.property_names)
    assert set(schema.get("required", ())) == {entry.name for entry in endpoint.properties if entry.required}


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({"commit": "HEAD", "branch": "main", "author": {"name": "A"}, "env": {"A": "b"}, "pull_request_id": 1}, None),
        ({"commit": "HEAD", "branch": "main", "something": "new"}, None),
        ({"commit": "HEAD"}, "branch"),
        ({"commit": "HEAD", "branch": "main", "author": "A"}, "author"),
        ({"commit": "HEAD", "branch": "main", "pull_request_id": "1"}, "pull_request_id"),
    ],
)
def test_bodies_fit_or_do_not(body, wrong):
    schema = body_of(SHOWN["create_build"][2]) | {"components": DOCUMENT["components"]}
    found = list(jsonschema.Draft202012Validator(schema).iter_errors(body))
    assert bool(found) is (wrong is not None)
    assert all(wrong in str(error.path or error.message) for error in found)


@pytest.mark.parametrize("name", [name for name in GETS if name not in ("get_raw_log", "list_artifacts")])
def test_real_responses_are_as_described(small, name):
    _, path, operation = SHOWN[name]
    scopes = tuple(golden.STATES["scopes"])
    with httpx.Client(headers={"Authorization": f"Bearer {small.token(scopes)}"}) as http:
        response = http.get(f"{small.url}/v2{path.format(**names(small, http))}")
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert response.status_code == 200
    body = response.json()
    assert body
    jsonschema.validate(body, schema | {"components": DOCUMENT["components"]})
    if name == "list_build_jobs":
        body, schema = body["items"], schema["properties"]["items"]
    described = DOCUMENT["components"]["schemas"][schema.get("items", schema)["$ref"].rsplit("/", 1)[1]]
    first = body[0] if isinstance(body, list) else body
    assert first.keys() & described["properties"].keys()


def names(sandbox, http):
    """What the parameters of paths may stand for."""
    team = next(iter(sandbox.teams().values()))
    base = f"{sandbox.url}/v2/organizations/acme"
    builds = http.get(f"{base}/pipelines/web/builds?state=passed&per_page=100").json()
    build = next((one for one in builds if http.get(f"{one['url']}/annotations").json()), builds[0])
    suite = sandbox.suites()[0]
    in_suite = f"{sandbox.url}/v2/analytics/organizations/acme/suites/{suite}"
    runs = http.get(f"{in_suite}/runs?per_page=100").json()
    job = next(job for job in build["jobs"] if job.get("agent") and job["cluster_queue_id"])
    return {
        "org": "acme",
        "pipeline": "web",
        "number": build["number"],
        "job": job["id"],
        "agent": job["agent"]["id"],
        "cluster": job["cluster_id"],
        "queue": job["cluster_queue_id"],
        "team": team,
        "pipeline_id": http.get(f"{base}/teams/{team}/pipelines").json()[0]["pipeline_id"],
        "user": http.get(f"{base}/members").json()[0]["id"],
        "suite": suite,
        "run": next((run["id"] for run in runs if run["result"] == "failed"), "nothing"),
        "test": next((test["id"] for test in http.get(f"{in_suite}/tests").json()), "nothing"),
    }


# --- errors ---


@pytest.fixture(scope="module")
def world():
    """Its lists of builds end at the second build."""
    with Sandbox(builds=60, days=1, seed=7, deepest=2) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def busy():
    with Sandbox(builds=5, days=1, quota=Quota(user=0)) as sandbox:
        yield sandbox


def send(sandbox, name, scopes=SCOPES, names=None, **more):
    """Ask for what is not there, but for its organization; so nothing is done."""
    method, path, _ = SHOWN[name]
    path = path.format_map(dict.fromkeys(re.findall(r"{(\w+)}", path), "nothing") | {"org": "acme"} | (names or {}))
    headers = {"Authorization": f"Bearer {sandbox.token(scopes)}"} if scopes is not None else {}
    headers |= more.pop("headers", {})
    root = sandbox.url if name == "query_graphql" else f"{sandbox.url}/v2"
    return httpx.request(method, root + path, headers=headers, timeout=30, **more).status_code


WEB = {"pipeline": "web"}
PROVOKED = {
    "401": {"scopes": None},
    "403": {"scopes": ()},
    "404": {"names": {"org": "nowhere"}},
    "413": {"content": b" " * (2**20 + 1)},
}


@pytest.mark.parametrize("name", SHOWN)
@pytest.mark.parametrize("status", PROVOKED)
def test_an_error_is_listed_where_it_can_happen_and_only_there(world, name, status):
    status_code = send(world, name, **PROVOKED[status])
    assert (str(status_code) == status) is (status in SHOWN[name][2]["responses"])


ALSO_400 = {
    "list_build_jobs": {"params": {"state[]": "over"}},
    "list_tests": {"headers": {"Buildkite-Version": "2026-8-1"}},
    "retry_job": {},  # of a job that passed
}


@pytest.mark.parametrize("name", SHOWN)
def test_what_cannot_be_read_is_a_400_where_that_is_listed(world, name):
    body = send(world, name, content=b"{")
    deep = send(world, name, names=WEB, params={"page": 2, "per_page": 2}) if name in GETS else None
    also = None
    if name in ALSO_400:
        with httpx.Client(headers={"Authorization": f"Bearer {world.token(SCOPES)}"}) as http:
            also = send(world, name, names=names(world, http), **ALSO_400[name])
    assert (400 in (body, deep, also)) is ("400" in SHOWN[name][2]["responses"])


@pytest.mark.parametrize("name", SHOWN)
def test_limits_hold_everywhere(busy, name):
    assert send(busy, name) == 429


UNFIT = {
    "list_all_builds": {"params": {"created_from": "soon"}},
    "list_builds": {"params": {"created_to": "soon"}},
    "list_pipeline_builds": {"params": {"finished_from": "soon"}, "names": WEB},
    "list_flaky_tests": {"params": {"period": "soon"}},
    "list_tests": {"params": {"period": "soon"}},
    "retry_job": {"names": WEB},
    "create_build": {"names": WEB},
    "create_pipeline": {},
    "update_pipeline": {"json": {"name": 5}, "names": WEB},
    "cancel_build": {"names": WEB},
    "rebuild_build": {"names": {"pipeline": "docs"}},
    "unblock_job": {"names": WEB},
    "archive_pipeline": {"names": {"pipeline": "docs"}},
    "unarchive_pipeline": {"names": WEB},
    "add_webhook": {"names": {"pipeline": "docs"}},
    "create_team_pipeline": {},
    "update_team_pipeline": {},
    "delete_team_pipeline": {},
    "delete_team_pipeline_named": {},
}


def test_what_can_be_unfit_is_listed():
    assert UNFIT.keys() == {name for name, (_, _, shown) in SHOWN.items() if "422" in shown["responses"]}


@pytest.mark.parametrize("name", UNFIT)
def test_what_is_unfit_is_a_422(world, name):
    with httpx.Client(headers={"Authorization": f"Bearer {world.token(SCOPES)}"}) as http:
        there = names(world, http)
        acme = f"{world.url}/v2/organizations/acme"
        http.post(f"{acme}/pipelines/docs/archive")
        if UNFIT[name].get("names", {}).get("pipeline") == "docs":
            there["number"] = http.get(f"{acme}/pipelines/docs/builds").json()[0]["number"]
        managers = [
            (team, has["pipeline_id"])
            for team in world.teams().values()
            for has in http.get(f"{acme}/teams/{team}/pipelines?per_page=100").json()
            if has["access_level"] == "manage_build_and_read"
        ]
        if name == "retry_job":  # of a build that was canceled
            new = http.post(f"{acme}/pipelines/web/builds", json={"commit": "HEAD", "branch": "main"}).json()
            there |= {"number": new["number"], "job": http.put(f"{new['url']}/cancel").json()["jobs"][0]["id"]}
    if name == "delete_team_pipeline":
        alone = [each for each in managers if [one[1] for one in managers].count(each[1]) == 1]
        there["team"], there["pipeline_id"] = alone[0]
    request = UNFIT[name]
    assert send(world, name, **(request | {"names": there | request.get("names", {})})) == 422
