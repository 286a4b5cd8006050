"""The OpenAPI document: valid, complete, as the service's document says, and true of real answers."""

from __future__ import annotations

import re

import httpx
import jsonschema
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from tests import golden

from buildframe import spec
from buildframe.service.door.openapi import document

DOCUMENT = document("https://ci.example.com")
SHOWN = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in DOCUMENT["paths"].items()
    for method, operation in methods.items()
}
ERRORS = {"400", "401", "403", "404", "422", "429"}


def parameters(operation, place):
    return {entry["name"]: entry for entry in operation["parameters"] if entry["in"] == place}


def body_of(operation):
    return operation["requestBody"]["content"]["application/json"]["schema"]


def test_it_is_valid():
    OpenAPIV31SpecValidator(DOCUMENT).validate()


def test_it_is_served_without_a_token_and_names_its_server(small):
    answer = httpx.get(f"{small.url}/openapi.json")
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json() == DOCUMENT | {"servers": [{"url": f"{small.url}/v2"}]}


@pytest.mark.parametrize("name", golden.OPERATIONS)
def test_an_operation_is_as_the_service_s_document_says(name):
    expected = golden.OPERATIONS[name]
    method, path, operation = SHOWN[name]
    asked_method, asked_path = expected["route"].split(" ")
    if name != "delete_team_pipeline":  # the service's document leaves out which one
        assert re.sub(r"{[^}]*}", "{}", path) == re.sub(r"{[^}]*}", "{}", asked_path).rstrip("/")
    assert method == asked_method
    assert set(operation["responses"]) == {str(expected["success"])} | ERRORS
    scope = re.search(r"scope `(\w+)`", operation["description"])
    assert (scope[1] if scope else "") == expected["scope"]
    assert ({"page", "per_page"} <= parameters(operation, "query").keys()) is expected.get("paginated", False)
    assert set(parameters(operation, "query")) - {"page", "per_page"} == {
        shown
        for query, about in golden.query_of(name).items()
        for shown in ([query, f"{query}[]"] if about.get("many") else [query])
    }


def test_nothing_else_is_in_it():
    assert SHOWN.keys() == golden.OPERATIONS.keys() == {entry.name for entry in spec.ENDPOINTS}


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


@pytest.mark.parametrize("endpoint", [entry for entry in spec.ENDPOINTS if entry.properties], ids=lambda e: e.name)
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


@pytest.mark.parametrize("name", [name for name, (method, _, _) in SHOWN.items() if method == "GET"])
def test_real_answers_are_as_described(small, name):
    _, path, operation = SHOWN[name]
    scopes = tuple(golden.STATES["scopes"])
    with httpx.Client(headers={"Authorization": f"Bearer {small.token(scopes)}"}) as http:
        answer = http.get(f"{small.url}/v2{path.format(**names(small, http))}")
    schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert answer.status_code == 200
    body = answer.json()
    assert body
    jsonschema.validate(body, schema | {"components": DOCUMENT["components"]})
    described = DOCUMENT["components"]["schemas"][schema.get("items", schema)["$ref"].rsplit("/", 1)[1]]
    first = body[0] if isinstance(body, list) else body
    assert first.keys() & described["properties"].keys()


def names(sandbox, http):
    """What the parameters of paths may stand for."""
    team = next(iter(sandbox.teams().values()))
    base = f"{sandbox.url}/v2/organizations/acme"
    return {
        "org": "acme",
        "pipeline": "web",
        "number": http.get(f"{base}/pipelines/web/builds").json()[0]["number"],
        "team": team,
        "pipeline_id": http.get(f"{base}/teams/{team}/pipelines").json()[0]["pipeline_id"],
        "user": http.get(f"{base}/members").json()[0]["id"],
        "suite": sandbox.suites()[0],
    }
