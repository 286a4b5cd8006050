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


def test_operations_are_as_the_service_s_document_says():
    assert {name: as_shown(name) for name in golden.OPERATIONS} == {
        name: as_documented(name) for name in golden.OPERATIONS
    }
    for name, documented in golden.OPERATIONS.items():
        errors = {str(error["status"]) for error in golden.ERRORS if name in error["operations"]}
        assert set(SHOWN[name][2]["responses"]) >= {str(documented["success"]), "401", "429"} | errors, name


def as_shown(name):
    method, path, operation = SHOWN[name]
    if name == "delete_team_pipeline":  # the service's document leaves out which one
        path = SHOWN["delete_team_pipeline_named"][1]
    scope = re.search(r"scope `(\w+)`", operation["description"])
    return {
        "route": f"{method} {re.sub('{[^}]*}', '{}', path)}",
        "scope": scope[1] if scope else "",
        "query": set(parameters(operation, "query")),
        "headers": set(parameters(operation, "header")),
    }


def as_documented(name):
    documented = golden.OPERATIONS[name]
    paging = {"after", "before", "per_page"} if "envelope" in documented else {"page", "per_page"}
    query = golden.query_of(name).items()
    filters = {shown for each, about in query for shown in ([each, f"{each}[]"] if about.get("many") else [each])}
    return {
        "route": re.sub(r"{[^}]*}", "{}", documented["route"]).rstrip("/"),
        "scope": documented["scope"],
        "query": filters | (paging if documented.get("paginated", False) else set()),
        "headers": {"Buildkite-Version"} if "version" in documented else set(),
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


def test_a_body_has_the_declared_properties():
    for endpoint in ROUTES:
        if endpoint.properties:
            schema = body_of(SHOWN[endpoint.name][2])
            assert schema["properties"].keys() == set(endpoint.property_names)
            assert set(schema.get("required", ())) == {entry.name for entry in endpoint.properties if entry.required}


def errors_of(body, schema):
    complete = schema | {"components": DOCUMENT["components"]}
    return list(jsonschema.Draft202012Validator(complete).iter_errors(body))


def test_bodies_fit_or_do_not():
    build, schema = {"commit": "HEAD", "branch": "main"}, body_of(SHOWN["create_build"][2])
    assert errors_of(build | {"author": {"name": "A"}, "env": {"A": "b"}, "pull_request_id": 1}, schema) == []
    assert errors_of(build | {"something": "new"}, schema) == []
    wrong = {
        "branch": {"commit": "HEAD"},
        "author": build | {"author": "A"},
        "pull_request_id": build | {"pull_request_id": "1"},
    }
    for name, body in wrong.items():
        found = errors_of(body, schema)
        assert found, name
        assert all(name in str(error.path or error.message) for error in found)


@pytest.mark.long
def test_real_responses_are_as_described(small):
    with httpx.Client(headers={"Authorization": f"Bearer {small.token(tuple(golden.STATES['scopes']))}"}) as http:
        there = names(small, http)
        for name in GETS:
            if name not in ("get_raw_log", "list_artifacts"):
                _, path, operation = SHOWN[name]
                few = {"per_page": 3} if name in ("list_builds", "list_pipeline_builds") else {}  # as of all builds
                response = http.get(f"{small.url}/v2{path.format(**there)}", params=few)
                assert response.status_code == 200, name
                assert_described(name, response.json(), operation["responses"]["200"]["content"])


def assert_described(name, body, content):
    schema = content["application/json"]["schema"]
    assert body, name
    assert errors_of(body, schema) == [], name
    if name == "list_build_jobs":
        body, schema = body["items"], schema["properties"]["items"]
    described = DOCUMENT["components"]["schemas"][schema.get("items", schema)["$ref"].rsplit("/", 1)[1]]
    first = body[0] if isinstance(body, list) else body
    assert first.keys() & described["properties"].keys(), name


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


class Requests:
    """Requests of what is not there, but for its organization; so nothing is done."""

    def __init__(self, sandbox):
        self.sandbox, self.http = sandbox, httpx.Client(timeout=30)
        self.tokens = {scopes: sandbox.token(scopes) for scopes in (SCOPES, ())}

    def send(self, name, scopes=SCOPES, names=None, **more):
        method, path, _ = SHOWN[name]
        path = path.format_map(dict.fromkeys(re.findall(r"{(\w+)}", path), "nothing") | {"org": "acme"} | (names or {}))
        headers = {} if scopes is None else {"Authorization": f"Bearer {self.tokens[scopes]}"}
        headers |= more.pop("headers", {})
        root = self.sandbox.url if name == "query_graphql" else f"{self.sandbox.url}/v2"
        return self.http.request(method, root + path, headers=headers, **more).status_code


@pytest.fixture(scope="module")
def requests():
    """Lists of builds end at the second build."""
    with Sandbox(builds=60, days=1, seed=7, deepest=2) as sandbox:
        yield Requests(sandbox)


def listed(status):
    return {name for name in SHOWN if status in SHOWN[name][2]["responses"]}


WEB = {"pipeline": "web"}
PROVOKED = {
    "401": {"scopes": None},
    "403": {"scopes": ()},
    "404": {"names": {"org": "nowhere"}},
    "413": {"content": b" " * (2**20 + 1)},
}


def test_an_error_is_listed_where_it_can_happen_and_only_there(requests):
    for status, provoked in PROVOKED.items():
        assert {name for name in SHOWN if requests.send(name, **provoked) == int(status)} == listed(status)


ALSO_400 = {
    "list_build_jobs": {"params": {"state[]": "over"}},
    "list_tests": {"headers": {"Buildkite-Version": "2026-8-1"}},
    "retry_job": {},  # of a job that passed
}


def test_what_cannot_be_read_is_a_400_where_that_is_listed(requests):
    with httpx.Client(headers={"Authorization": f"Bearer {requests.tokens[SCOPES]}"}) as http:
        there = names(requests.sandbox, http)
    found = {name for name in SHOWN if requests.send(name, content=b"{") == 400}
    found |= {name for name in GETS if requests.send(name, names=WEB, params={"page": 2, "per_page": 2}) == 400}
    found |= {name for name, more in ALSO_400.items() if requests.send(name, names=there, **more) == 400}
    assert found == listed("400")


def test_limits_hold_everywhere():
    with Sandbox(builds=5, days=1, quota=Quota(user=0)) as sandbox:
        requests = Requests(sandbox)
        assert {name: requests.send(name) for name in SHOWN} == dict.fromkeys(SHOWN, 429)


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


def test_what_is_unfit_is_a_422_where_that_is_listed(requests):
    sandbox, acme = requests.sandbox, f"{requests.sandbox.url}/v2/organizations/acme"
    with httpx.Client(headers={"Authorization": f"Bearer {requests.tokens[SCOPES]}"}) as http:
        there = names(sandbox, http)
        http.post(f"{acme}/pipelines/docs/archive")
        of_docs = http.get(f"{acme}/pipelines/docs/builds").json()[0]["number"]
        managers = [
            (team, has["pipeline_id"])
            for team in sandbox.teams().values()
            for has in http.get(f"{acme}/teams/{team}/pipelines?per_page=100").json()
            if has["access_level"] == "manage_build_and_read"
        ]
        new = http.post(f"{acme}/pipelines/web/builds", json={"commit": "HEAD", "branch": "main"}).json()
        canceled = {"number": new["number"], "job": http.put(f"{new['url']}/cancel").json()["jobs"][0]["id"]}
    alone = next(each for each in managers if [one[1] for one in managers].count(each[1]) == 1)
    own = {"retry_job": canceled, "delete_team_pipeline": dict(zip(("team", "pipeline_id"), alone, strict=True))}
    statuses = {}
    for name, request in UNFIT.items():
        given = request.get("names", {})
        of_pipeline = {"number": of_docs} if given.get("pipeline") == "docs" else {}
        chosen = there | of_pipeline | own.get(name, {}) | given
        statuses[name] = requests.send(name, **(request | {"names": chosen}))
    assert statuses == dict.fromkeys(listed("422"), 422)
