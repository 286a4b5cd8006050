"""Headers, errors and limits in the sandbox's responses, compared with `tests/golden`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import pytest

from buildframe.sandbox_server import Quota, Sandbox
from tests import golden
from tests.contract.conftest import ENVELOPED, FILTERED, READING
from tests.golden.http_service import ALL_SCOPES, Body, Place, Service, place_of


def test_success_and_its_headers(service: Service, place: Place) -> None:
    named = golden.HOSTED["headers"]
    for operation in READING:
        documented, response = golden.OPERATIONS[operation], service.get(place.path(operation))
        headers = response.headers
        assert response.status_code == documented["success"], operation
        assert headers["Content-Type"].split(";")[0] == golden.SHAPES["transport"]["content_type"], operation
        is_list = isinstance(response.json(), list) or operation in ENVELOPED
        assert is_list == documented["returns"].startswith("array of"), operation
        assert [name for name in [*named["every_response"], *named["rate"]] if not headers.get(name)] == [], operation
        assert set(re.split(r",\s*", headers[named["of_token"]])) == set(ALL_SCOPES), operation
        assert headers[named["of_operation"]] == documented["scope"], operation
        assert headers[named["weak_tag"]].startswith('W/"'), operation


def test_without_a_known_token_nothing_is_returned(service: Service, place: Place) -> None:
    for headers in ({}, {"Authorization": "Bearer unknown"}):
        responses = {name: service.http.get(service.url + place.path(name), headers=headers) for name in READING}
        sent = {name: (response.status_code, response.json()) for name, response in responses.items()}
        assert sent == {name: (401, {"message": golden.HOSTED["errors"]["401"][0]}) for name in READING}


def test_an_unknown_route_is_reported(service: Service) -> None:
    response = service.get("/nothing/here")
    assert response.status_code == 404
    assert response.json()["message"].startswith(golden.HOSTED["errors"]["unknown_route"])


def test_a_token_for_one_organization_sees_no_other(service: Service, builds: list[Body], place: Place) -> None:
    token = service.sandbox.token(scopes=ALL_SCOPES, organizations=(place.org,))
    own = [build["id"] for build in builds if place_of(build).org == place.org]
    assert 0 < len(own) < len(builds)
    assert [build["id"] for build in service.get("/builds", token=token, per_page=100).json()] == own[:100]


# --- limits


@pytest.fixture(scope="module")
def narrow_service() -> Iterator[Service]:
    """A service that serves few pages and few requests."""
    with Sandbox(builds=120, days=5, deepest=10, quota=Quota(organization=8, user=4, window=3600)) as sandbox:
        yield Service(sandbox)


def test_pages_too_deep_are_refused(narrow_service: Service, place: Place) -> None:
    paging, tokens = golden.HOSTED["paging"], [narrow_service.sandbox.token() for _ in FILTERED]
    for operation, token in zip(FILTERED, tokens, strict=True):
        deep = narrow_service.get(place.path(operation), token=token, page=3, per_page=5)
        assert (deep.status_code, deep.json()) == (paging["too_deep"], {"message": paging["too_deep_message"]})
        assert narrow_service.get(place.path(operation), token=token, page=2, per_page=5).status_code == 200


def request_until_refused(service: Service, path: str, tokens: list[str]) -> httpx.Response:
    """Return the first refusal of requests with the tokens in turn."""
    responses = (service.get(path, token=token) for _ in range(20) for token in tokens)
    return next(response for response in responses if response.status_code != 200)


def assert_over_the_limit(response: httpx.Response, scope: str, header: str) -> None:
    result = response.json()
    assert response.status_code == 429
    assert set(result) == set(golden.HOSTED["errors"]["429"]["keys"])
    assert (result["scope"], result["current"]) == (scope, result["limit"] + 1)
    assert int(response.headers[f"{header}-Limit"]) == result["limit"]
    assert int(response.headers[f"{header}-Remaining"]) == 0
    assert int(response.headers[f"{header}-Reset"]) == result["reset"] > 0


def test_a_user_over_the_limit_is_refused(narrow_service: Service) -> None:
    response = request_until_refused(narrow_service, "/builds", [narrow_service.sandbox.token()])
    assert_over_the_limit(response, "rest_user", "RateLimit-User")


def test_an_organization_over_the_limit_is_refused(narrow_service: Service) -> None:
    tokens = [narrow_service.sandbox.token() for _ in range(9)]
    response = request_until_refused(narrow_service, "/organizations/globex/pipelines", tokens)
    assert_over_the_limit(response, "rest", "RateLimit")


def test_the_hosted_services_limits() -> None:
    limits = golden.HOSTED["limits"]
    assert (Quota.REAL.organization, Quota.REAL.user) == tuple(limits.values())
