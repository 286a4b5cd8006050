"""Each operation of the service's document, called through the client over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import httpx
import pandas as pd

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
    send = Client.send

    def watched(client: Client, request: Request, *arguments: Any, **options: Any) -> Response:
        response = send(client, request, *arguments, **options)
        responses.append((request.endpoint.name, response))
        return response

    with patch.object(Client, "send", watched):
        result = CALLS[operation](workspace(world, place, operation, token), place)
    return result, next(response for name, response in responses if name == operation)


def test_every_operation_of_the_document_is_called() -> None:
    assert CALLS.keys() == golden.OPERATIONS.keys()


def token_for(world: Service, operation: str) -> str:
    """Return a token with the documented scope and no other; without a scope if none is documented."""
    scope = golden.OPERATIONS[operation]["scope"]
    return world.sandbox.token(scopes=[scope] if scope else [])


def test_each_succeeds_by_its_scope_with_the_documented_status_and_shape(world: Service, passed: Place) -> None:
    for operation in golden.OPERATIONS:
        place = prepare_place(world, passed, operation)
        assert_documented(operation, *called(world, place, operation, token_for(world, operation)))


def assert_documented(operation: str, result: Any, response: Response) -> None:
    assert response.status == golden.OPERATIONS[operation]["success"], operation
    item = golden.item_of(operation)
    if item not in golden.RESOURCES:
        assert result is None, operation
        return
    body = httpx.Response(200, content=response.body).json()
    if "envelope" in golden.OPERATIONS[operation]:
        assert list(body) == golden.OPERATIONS[operation]["envelope"], operation
        body = body["items"]
    assert set().union(*map(find_violations, seen_in(body, item, item))) == set(), operation
    assert isinstance(body, list) == (operation in FRAMES), operation
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
    assert called(world, passed.at(pipeline=pipeline.slug), "get_pipeline")[0].allow_rebuilds is None


def test_a_rebuild_refers_to_its_original(world: Service, passed: Place) -> None:
    place = prepare_place(world, passed, "rebuild_build")
    rebuilt = called(world, place, "rebuild_build")[0]
    original = called(world, place, "get_build")[0]
    assert rebuilt.state == golden.STATES["created"]["state"]
    assert rebuilt.number > original.number
    assert (rebuilt.rebuilt_from.id, rebuilt.rebuilt_from.number) == (original.id, original.number)
    assert rebuilt.rebuilt_from.url == original.url


def error_of(world: Service, place: Place, operation: str, token: str | None = None) -> bf.ServiceError | None:
    """Return the error of the call, or None if it succeeds."""
    try:
        called(world, place, operation, token)
    except bf.ServiceError as error:
        return error
    return None


def test_without_a_known_token_all_are_refused(world: Service, passed: Place) -> None:
    errors = {name: error_of(world, passed, name, token="an-unknown-token") for name in golden.OPERATIONS}
    message = golden.HOSTED["errors"]["401"][0]
    shown = {name: (type(error), error.status, message in str(error)) for name, error in errors.items() if error}
    assert shown == dict.fromkeys(golden.OPERATIONS, (bf.Unauthorized, 401, True))


def test_without_its_scope_each_is_refused(world: Service, passed: Place) -> None:
    scopes = {name: documented["scope"] for name, documented in golden.OPERATIONS.items() if documented["scope"]}
    for operation, scope in scopes.items():
        token = world.sandbox.token(scopes=[other for other in ALL_SCOPES if other != scope])
        error = error_of(world, prepare_place(world, passed, operation), operation, token)
        assert isinstance(error, bf.Forbidden), operation
        assert error.scope == scope, operation
        assert golden.HOSTED["errors"]["403"][0].format(scope=scope) in str(error), operation


UNKNOWN: list[tuple[str, list[str], Body]] = [
    ("organization", IN_AN_ORGANIZATION, {"org": "nowhere"}),
    ("pipeline", AT_A_PIPELINE, {"pipeline": "nothing"}),
    ("build", AT_A_BUILD, {"number": 999_999}),
    ("team", AT_A_TEAM, {"team": NOBODY}),
]


def test_what_is_unknown_is_named(world: Service, passed: Place) -> None:
    for what, operations, unknown in UNKNOWN:
        errors = {name: error_of(world, passed.at(**unknown), name) for name in operations}
        shown = {name: (error.status, f"No {what} found" in str(error)) for name, error in errors.items() if error}
        assert shown == dict.fromkeys(operations, (404, True)), what
        assert {type(error) for error in errors.values()} == {bf.NotFound}, what


def test_other_unknown_things_are_not_found(world: Service, passed: Place) -> None:
    unknown = {
        "get_member": passed.at(user=NOBODY),
        "list_flaky_tests": passed.at(suite="no-such-suite"),
        "get_team_pipeline": passed.at(pipeline_id=NOBODY),
        "update_team_pipeline": passed.at(pipeline_id=NOBODY),
        "delete_team_pipeline": passed.at(pipeline_id=NOBODY),
    }
    found = {name: type(error_of(world, place, name)) for name, place in unknown.items()}
    assert found == dict.fromkeys(unknown, bf.NotFound)


def test_an_organization_out_of_the_tokens_reach_looks_unknown(world: Service, passed: Place) -> None:
    token = world.sandbox.token(scopes=ALL_SCOPES, organizations=["globex"])
    errors = {name: error_of(world, passed, name, token) for name in IN_AN_ORGANIZATION}
    shown = {name: (type(error), "No organization found" in str(error)) for name, error in errors.items()}
    assert shown == dict.fromkeys(IN_AN_ORGANIZATION, (bf.NotFound, True))


def test_another_organizations_things_are_not_found_here(world: Service, passed: Place) -> None:
    """Paths of acme's objects below globex, where the token has the same scopes."""
    operations = {*AT_A_PIPELINE, *AT_A_TEAM, "get_member", "list_flaky_tests"}
    found = {name: type(error_of(world, passed.at(org="globex"), name)) for name in operations}
    assert found == dict.fromkeys(operations, bf.NotFound)


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


def test_bad_input_is_refused_by_the_service(world: Service, passed: Place) -> None:
    for operation, key, value in wrong_bodies():
        place = prepare_place(world, passed, operation)
        body = {name: good for name, good in good_body(operation, place).items() if name != key}
        response = world.do(operation, place, body | ({} if value is MISSING else {key: value}))
        assert response.status_code == 422, (operation, key, value, response.text)
        error, row = response.json(), next(row for row in golden.ERRORS if operation in row["operations"])
        if "begins" in row:
            assert error["message"].startswith(row["begins"]), (operation, key)
            assert key in error["message"], (operation, key)
        else:
            assert error["message"] == row["message"], (operation, key)
            assert key in [each["field"] for each in error["errors"]], (operation, key)


def good_body(operation: str, place: Place) -> Body:
    return {
        "create_build": {"commit": "HEAD", "branch": "main"},
        "create_pipeline": {"name": "Good", "cluster_id": None, "repository": "r", "configuration": "steps: []"},
        "update_pipeline": {},
        "create_team_pipeline": {"pipeline_id": place.pipeline_id, "access_level": "read_only"},
        "update_team_pipeline": {"access_level": "read_only"},
    }[operation]


def test_bodies_that_are_no_object_are_refused(world: Service, passed: Place) -> None:
    headers = {"Authorization": f"Bearer {world.token}", "Content-Type": "application/json"}
    for operation in (name for name, documented in golden.OPERATIONS.items() if "body" in documented):
        url = world.url + passed.path(operation, hosted="hosted_route" in golden.OPERATIONS[operation])
        for content in (b"{", b"[]", b'"text"', b"\xff"):
            response = world.http.request(method_of(operation), url, content=content, headers=headers)
            assert response.status_code == 400, (operation, content)
            assert response.json()["message"], (operation, content)
