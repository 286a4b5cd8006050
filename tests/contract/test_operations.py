"""Each operation of the service's document, called through the client over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import pandas as pd
import pytest

import buildframe as bf
from buildframe.http.client import Client
from buildframe.http.protocol import Request
from buildframe.http.response import Response
from buildframe.spec import TABLES, Resource
from buildframe.workspace import Workspace
from tests import golden
from tests.contract.calls import CALLS, FRAMES, prepare_place
from tests.golden.http_service import ALL_SCOPES, Body, Place, Service, method_of
from tests.golden.types import find_violations, is_stamp, seen_in

NAMED = {name: operation["route"] for name, operation in golden.OPERATIONS.items()}
IN_AN_ORGANIZATION = [name for name, route in NAMED.items() if "{org.slug}" in route]
AT_A_PIPELINE = [name for name, route in NAMED.items() if "pipelines/{pipeline.slug}" in route or "{slug}" in route]
AT_A_BUILD = [name for name, route in NAMED.items() if "{number}" in route]
AT_A_TEAM = [name for name, route in NAMED.items() if "{team.uuid}" in route]
NOBODY = "0190f3a1-0000-4000-8000-000000000001"


def workspace(world: Service, place: Place, operation: str, token: str | None = None) -> Workspace:
    organization = place.org if operation in IN_AN_ORGANIZATION else None
    return bf.connect(organization, base_url=world.origin, token=token or world.token)


def called(world: Service, place: Place, operation: str, token: str | None = None) -> tuple[Any, Response]:
    """What the call returns, and the operation's response to it."""
    responses: list[tuple[str, Response]] = []
    really = Client._exchange

    def watched(client: Client, request: Request) -> Response:
        response = really(client, request)
        responses.append((request.endpoint.name, response))
        return response

    with patch.object(Client, "_exchange", watched):
        result = CALLS[operation](workspace(world, place, operation, token), place)
    return result, next(response for name, response in responses if name == operation)


def test_every_operation_of_the_document_is_called() -> None:
    assert CALLS.keys() == golden.OPERATIONS.keys()


@pytest.mark.long
@pytest.mark.parametrize("operation", golden.OPERATIONS)
def test_it_succeeds_with_the_documented_status_and_shape(world: Service, passed: Place, operation: str) -> None:
    result, response = called(world, prepare_place(world, passed, operation), operation)
    assert response.status == golden.OPERATIONS[operation]["success"]
    item = golden.item_of(operation)
    if item not in golden.RESOURCES:
        assert result is None
        return
    body = httpx.Response(200, content=response.body).json()
    if "envelope" in golden.OPERATIONS[operation]:
        assert list(body) == golden.OPERATIONS[operation]["envelope"]
        body = body["items"]
    assert set().union(*map(find_violations, seen_in(body, item, item))) == set()
    assert isinstance(body, list) == (operation in FRAMES)
    if operation in FRAMES:
        assert_frame(result, FRAMES[operation], len(body))
    else:
        assert_record(result, body)


def assert_frame(frame: pd.DataFrame, table: str, least: int) -> None:
    assert list(frame.columns) == [column.name for column in TABLES[table]]
    assert frame.attrs["table"] == table
    assert frame.attrs["complete"] is True
    assert len(frame) >= least > 0


def assert_record(record: Resource, body: Body) -> None:
    """Plain values of the response are the record's attributes."""
    plain = {key: value for key, value in body.items() if isinstance(value, int | bool | str) and not is_stamp(value)}
    assert plain
    assert {key: getattr(record, key) for key in plain} == plain
    assert repr(record).startswith(f"{type(record).__name__}(")


def test_archiving_sets_the_time_and_unarchiving_clears_it(world: Service, passed: Place) -> None:
    place = prepare_place(world, passed, "archive_pipeline")
    assert called(world, place, "archive_pipeline")[0].archived_at == world.sandbox.clock.now()
    assert called(world, place, "unarchive_pipeline")[0].archived_at is None


def test_only_the_response_to_a_creation_says_whether_rebuilds_are_allowed(world: Service, passed: Place) -> None:
    pipeline = called(world, passed, "create_pipeline")[0]
    assert pipeline.allow_rebuilds is True
    assert called(world, passed._replace(pipeline=pipeline.slug), "get_pipeline")[0].allow_rebuilds is None


def test_a_rebuild_refers_to_its_original(world: Service, passed: Place) -> None:
    place = prepare_place(world, passed, "rebuild_build")
    rebuilt = called(world, place, "rebuild_build")[0]
    original = called(world, place, "get_build")[0]
    assert rebuilt.state == golden.STATES["created"]["state"]
    assert rebuilt.number > original.number
    assert (rebuilt.rebuilt_from.id, rebuilt.rebuilt_from.number) == (original.id, original.number)
    assert rebuilt.rebuilt_from.url == original.url


@pytest.mark.parametrize("operation", golden.OPERATIONS)
def test_without_a_known_token_it_is_refused(world: Service, passed: Place, operation: str) -> None:
    with pytest.raises(bf.Unauthorized) as refused:
        called(world, passed, operation, token="an-unknown-token")
    assert refused.value.status == 401
    assert golden.HOSTED["errors"]["401"][0] in str(refused.value)


@pytest.mark.parametrize("operation", [name for name, result in golden.OPERATIONS.items() if result["scope"]])
def test_without_the_scope_it_is_refused(world: Service, passed: Place, operation: str) -> None:
    scope = golden.OPERATIONS[operation]["scope"]
    token = world.sandbox.token(scopes=[other for other in ALL_SCOPES if other != scope])
    with pytest.raises(bf.Forbidden) as refused:
        called(world, prepare_place(world, passed, operation), operation, token=token)
    assert refused.value.scope == scope
    assert golden.HOSTED["errors"]["403"][0].format(scope=scope) in str(refused.value)


@pytest.mark.parametrize("operation", [name for name, summary in golden.OPERATIONS.items() if not summary["scope"]])
def test_an_operation_without_a_scope_needs_a_token_only(world: Service, passed: Place, operation: str) -> None:
    result, response = called(world, passed, operation, token=world.sandbox.token(scopes=[]))
    assert response.status == 200
    assert len(result) > 0


@pytest.mark.parametrize("operation", golden.OPERATIONS)
def test_the_documented_scope_is_enough(world: Service, passed: Place, operation: str) -> None:
    token = world.sandbox.token(
        scopes=[golden.OPERATIONS[operation]["scope"]] * bool(golden.OPERATIONS[operation]["scope"])
    )
    assert called(world, prepare_place(world, passed, operation), operation, token)[1].status < 300


def assert_not_found(world: Service, place: Place, operation: str, what: str) -> None:
    with pytest.raises(bf.NotFound) as refused:
        called(world, place, operation)
    assert refused.value.status == 404
    assert f"No {what} found" in str(refused.value)


@pytest.mark.parametrize("operation", IN_AN_ORGANIZATION)
def test_an_unknown_organization_is_reported(world: Service, passed: Place, operation: str) -> None:
    assert_not_found(world, passed._replace(org="nowhere"), operation, "organization")


@pytest.mark.parametrize("operation", IN_AN_ORGANIZATION)
def test_an_organization_out_of_the_tokens_reach_looks_unknown(world: Service, passed: Place, operation: str) -> None:
    token = world.sandbox.token(scopes=ALL_SCOPES, organizations=["globex"])
    with pytest.raises(bf.NotFound, match="No organization found"):
        called(world, passed, operation, token)


@pytest.mark.parametrize("operation", [*AT_A_PIPELINE, *AT_A_TEAM, "get_member", "list_flaky_tests"])
def test_another_organizations_things_are_not_found_here(world: Service, passed: Place, operation: str) -> None:
    """Paths of acme's objects below globex, where the token has the same scopes."""
    with pytest.raises(bf.NotFound):
        called(world, passed._replace(org="globex"), operation)


@pytest.mark.parametrize("operation", AT_A_PIPELINE)
def test_an_unknown_pipeline_is_reported(world: Service, passed: Place, operation: str) -> None:
    assert_not_found(world, passed._replace(pipeline="nothing"), operation, "pipeline")


@pytest.mark.parametrize("operation", AT_A_BUILD)
def test_an_unknown_build_is_reported(world: Service, passed: Place, operation: str) -> None:
    assert_not_found(world, passed._replace(number=999_999), operation, "build")


@pytest.mark.parametrize("operation", AT_A_TEAM)
def test_an_unknown_team_is_reported(world: Service, passed: Place, operation: str) -> None:
    assert_not_found(world, passed._replace(team=NOBODY), operation, "team")


@pytest.mark.parametrize(
    ("operation", "unknown"),
    [
        ("get_member", {"user": NOBODY}),
        ("list_flaky_tests", {"suite": "no-such-suite"}),
        ("get_team_pipeline", {"pipeline_id": NOBODY}),
        ("update_team_pipeline", {"pipeline_id": NOBODY}),
        ("delete_team_pipeline", {"pipeline_id": NOBODY}),
    ],
)
def test_other_unknown_things_are_reported(world: Service, passed: Place, operation: str, unknown: Body) -> None:
    with pytest.raises(bf.NotFound):
        called(world, passed._replace(**unknown), operation)


# --- bad input: by plain HTTP, since the client would not send it


def wrong_bodies() -> Iterator[tuple[str, str, Any]]:
    """For each operation with a body: the body without each required property, and with each of a wrong type."""
    for name, result in golden.OPERATIONS.items():
        if "body" not in result:
            continue
        known = golden.BODIES[result["body"]]
        for key in known["required"]:
            yield name, key, MISSING
        for key, type in {**known["optional"], **known["required"]}.items():
            yield name, key, 17 if type != "integer" else "seventeen"


MISSING = object()


@pytest.mark.parametrize(("operation", "key", "value"), list(wrong_bodies()))
def test_bad_input_is_refused_by_the_service(
    world: Service, passed: Place, operation: str, key: str, value: Any
) -> None:
    place = prepare_place(world, passed, operation)
    body = {name: good for name, good in good_body(operation, place).items() if name != key}
    response = world.do(operation, place, body | ({} if value is MISSING else {key: value}))
    assert response.status_code == 422, response.text
    result = next(row for row in golden.ERRORS if operation in row["operations"])
    if "begins" in result:
        assert response.json()["message"].startswith(result["begins"])
        assert key in response.json()["message"]
    else:
        assert response.json()["message"] == result["message"]
        assert key in [error["field"] for error in response.json()["errors"]]


def good_body(operation: str, place: Place) -> Body:
    return {
        "create_build": {"commit": "HEAD", "branch": "main"},
        "create_pipeline": {"name": "Good", "cluster_id": None, "repository": "r", "configuration": "steps: []"},
        "update_pipeline": {},
        "create_team_pipeline": {"pipeline_id": place.pipeline_id, "access_level": "read_only"},
        "update_team_pipeline": {"access_level": "read_only"},
    }[operation]


@pytest.mark.parametrize("operation", [name for name in golden.OPERATIONS if "body" in golden.OPERATIONS[name]])
@pytest.mark.parametrize("content", [b"{", b"[]", b'"text"', b"\xff"])
def test_a_body_that_is_no_object_is_refused(world: Service, passed: Place, operation: str, content: bytes) -> None:
    url = world.url + passed.path(operation, hosted="hosted_route" in golden.OPERATIONS[operation])
    headers = {"Authorization": f"Bearer {world.token}", "Content-Type": "application/json"}
    response = httpx.request(method_of(operation), url, content=content, headers=headers)
    assert response.status_code == 400
    assert response.json()["message"]
