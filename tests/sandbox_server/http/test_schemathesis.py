"""Some thousands of generated requests, valid and invalid, against the sandbox's own OpenAPI document.

The document must describe the status, the content type and the body of every response. Each operation that changes
something has a world of its own.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, assume, given, settings
from requests.adapters import HTTPAdapter
from schemathesis import GenerationMode, checks
from urllib3.util import Retry

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.db.tokens import SCOPES
from buildframe.sandbox_server.handlers.routes import ROUTES, query_graphql
from buildframe.spec import Endpoint
from tests import worlds

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("EXAMPLES", "40"))
"""Number of right requests per operation; of wrong ones, three quarters."""
CHECKED = ["not_a_server_error", "status_code_conformance", "content_type_conformance", "response_schema_conformance"]
AGAIN = Retry(3, status=0, allowed_methods=None)
"""The sandbox closes a connection on which it cannot read a request, and the next request may meet that."""
checks.load_all_checks()

REPOSITORY, STEPS = "https://github.example.com/acme/hosted.git", "- command: make"
HOSTED = {"cluster_id": None, "repository": REPOSITORY, "configuration": STEPS}
"""A pipeline for which webhooks can be made."""


class World(NamedTuple):
    sandbox: Sandbox
    token: str
    document: dict[str, Any]
    values: dict[str, list[Any]]


@contextmanager
def started_world() -> Iterator[World]:
    with worlds.sandbox(builds=40, days=1, seed=7) as ws:
        sandbox = ws.sandbox
        sandbox.push("web", 5)
        token = sandbox.token(SCOPES)
        with httpx.Client(base_url=sandbox.url, headers={"Authorization": f"Bearer {token}"}) as http:
            acme = "/v2/organizations/acme"
            assert http.post(f"{acme}/pipelines", json=HOSTED | {"name": "Hosted"}).status_code == 201
            assert http.post(f"{acme}/pipelines/docs/archive").status_code == 200
            yield World(sandbox, token, http.get("/openapi.json").json(), known(sandbox, http))


@pytest.fixture(scope="module")
def shared_world() -> Iterator[World]:
    """For operations that change nothing."""
    with started_world() as world:
        yield world


@pytest.fixture
def world(request: pytest.FixtureRequest, endpoint: Endpoint) -> Iterator[World]:
    if endpoint.method == "GET":
        yield request.getfixturevalue("shared_world")
    else:
        with started_world() as world:
            yield world


def known(sandbox: Sandbox, http: httpx.Client) -> dict[str, list[Any]]:
    """Names and values that exist, so that requests get further than to a 404 or a 422."""
    acme = "/v2/organizations/acme"
    pipelines = http.get(f"{acme}/pipelines").json()
    builds = http.get(f"{acme}/pipelines/web/builds").json()
    blocked = next(each for each in http.get(f"{acme}/pipelines/release/builds").json() if each["blocked"])
    members = http.get(f"{acme}/members").json()
    agents = [job["agent"]["id"] for build in builds for job in build["jobs"] if job.get("agent")]
    queues = [job["cluster_queue_id"] for build in builds for job in build["jobs"] if job.get("cluster_queue_id")]
    suite, everything = "rspec", "/v2/analytics/organizations/acme/suites/rspec"
    runs, tests = (http.get(f"{everything}/{name}").json() for name in ("runs", "tests"))
    failed_build, failed = next(
        (build, job)
        for build in builds
        for job in build["jobs"]
        if job.get("state") == "failed" and not job.get("retried")
    )
    return {
        "suite of a run": [suite],
        "team of all pipelines": [sandbox.teams()["Everyone"]],
        "run": [run["id"] for run in runs[:3]],
        "test": [test["id"] for test in tests[:3]],
        "pipeline of the failed": ["web"],
        "failed": [failed_build["number"]],
        "failed job": [failed["id"]],
        "org": ["acme"],
        "pipeline": [each["slug"] for each in pipelines],
        "number": [each["number"] for each in builds],
        "team": list(sandbox.teams().values()),
        "pipeline_id": [each["id"] for each in pipelines],
        "user": [each["id"] for each in members],
        "suite": sandbox.suites(),
        "blocked": [blocked["number"]],
        "job": [job["id"] for job in blocked["jobs"]],
        "agent": agents[:3],
        "cluster": [pipelines[0]["cluster_id"]],
        "queue": queues[:3],
        "query": ['{ organization(slug: "acme") { name } }', "query Q($s: ID!) { pipeline(slug: $s) { name } }", "{"],
        "cluster_id": [pipelines[0]["cluster_id"], None],
        "name": [f"Pipeline {number}" for number in range(40)],
        "slug": [f"pipeline-{number}" for number in range(40)],
        "repository": [REPOSITORY],
        "configuration": [STEPS],
        "visibility": ["private", "public"],
        "default_branch": ["main", "trunk"],
        "pipeline_template_uuid": [None],
        "provider_settings": [{}, {"build_tags": True}, {"trigger_mode": "none"}],
    }


OF_A_RUN = {"suite": "suite of a run"}
VALUES_OF = {
    "retry_job": {"pipeline": "pipeline of the failed", "number": "failed", "job": "failed job"},
    "delete_team_pipeline_named": {"team": "team of all pipelines"},
    "get_run": OF_A_RUN,
    "list_failed_executions": OF_A_RUN,
    "get_test": OF_A_RUN,
}
"""Values of operations that others would refuse."""


def narrowed(document: dict[str, Any], name: str, values: dict[str, list[Any]]) -> dict[str, Any]:
    """Return the document with these values in the parameters and properties of one operation."""
    document = copy.deepcopy(document)
    operations = (each[method] for each in document["paths"].values() for method in each.keys() - {"servers"})
    operation = next(each for each in operations if each["operationId"] == name)
    named = {each["name"]: each["schema"] for each in operation["parameters"] if each["in"] == "path"}
    sent = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if name == "create_pipeline":
        sent["required"] = [*sent.get("required", []), "configuration"]  # without it nearly all is refused
    if "number" in named:
        values = values | {"pipeline": ["web"]}
    if "job" in named:
        values = values | {"pipeline": ["release"], "number": values["blocked"]}
    values = values | {key: values[source] for key, source in VALUES_OF.get(name, {}).items()}
    for key, schema in (named | sent.get("properties", {})).items():
        if key in values:
            schema.clear()
            schema["enum"] = values[key]
    return document


@pytest.mark.parametrize("endpoint", ROUTES, ids=lambda endpoint: endpoint.name)
def test_every_response_is_one_that_the_document_describes(world: World, endpoint: Endpoint) -> None:
    """Send requests that break a rule of the document, which change next to nothing, and then some that keep them."""
    document = narrowed(world.document, endpoint.name, world.values)
    operation = schemathesis.openapi.from_dict(document).find_operation_by_id(endpoint.name)
    with requests.Session() as http:
        http.trust_env = False  # which saves a look for proxies at each request
        http.headers["Authorization"] = f"Bearer {world.token}"
        http.mount("http://", HTTPAdapter(max_retries=AGAIN))
        base = world.sandbox.url if endpoint is query_graphql else f"{world.sandbox.url}/v2"
        of_wrong_requests = statuses_of(operation, GenerationMode.NEGATIVE, base, http)
        of_all_requests = of_wrong_requests | statuses_of(operation, GenerationMode.POSITIVE, base, http)
    assert len(of_wrong_requests) > 1
    assert endpoint.success in of_all_requests


def statuses_of(operation: Any, mode: GenerationMode, base: str, http: requests.Session) -> set[int]:
    """Send generated requests, and return the statuses of the responses, each of which the document describes."""
    statuses: set[int] = set()
    chosen = checks.CHECKS.get_by_names(CHECKED)

    @settings(
        max_examples=EXAMPLES if mode is GenerationMode.POSITIVE else EXAMPLES * 3 // 4,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        assume(not set("?#") & set(case.formatted_path))  # it would be left as it is, and end the path there
        response = case.call(base_url=base, session=http, timeout=60)
        statuses.add(response.status_code)
        case.validate_response(response, checks=chosen)

    send()
    return statuses
