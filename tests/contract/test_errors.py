"""Every error of the service's document: the sandbox returns it, and the client raises it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import buildframe as bf
from buildframe.workspace import Workspace
from tests import golden
from tests.contract.calls import (
    at_archived_pipeline,
    at_new_build,
    at_new_pipeline,
    at_shared_pipeline,
    new_pipeline,
)
from tests.golden.http_service import ALL_SCOPES, Place, Service, place_of

ROWS = [(row, operation) for row in golden.ERRORS for operation in row["operations"]]
Provoke = Callable[[Service, Workspace, Place], object]


@pytest.fixture(scope="module")
def ws(world: Service) -> Workspace:
    return bf.connect("acme", base_url=world.origin, token=world.token)


def no_editor(world: Service) -> Workspace:
    """Someone with all scopes who may not edit pipelines."""
    return bf.connect("acme", base_url=world.origin, token=world.sandbox.token(scopes=ALL_SCOPES, may_edit=False))


def a_build_of_an_archived_pipeline(world: Service, ws: Workspace, passed: Place) -> object:
    return ws.pipeline(at_archived_pipeline(world, at_new_pipeline(world, passed)).pipeline).create_build(
        commit="HEAD", branch="main"
    )


def a_build_of_an_excluded_branch(world: Service, ws: Workspace, passed: Place) -> object:
    place = at_new_pipeline(world, passed, branch_configuration="main")
    return ws.pipeline(place.pipeline).create_build(commit="HEAD", branch="feature/x")


def a_second_of_the_name(world: Service, ws: Workspace, passed: Place) -> object:
    name = ws.pipeline(at_new_pipeline(world, passed).pipeline).get().name
    return ws.create_pipeline(**new_pipeline(name=name))


def settings_of_another_host(world: Service, ws: Workspace, passed: Place) -> object:
    place = at_new_pipeline(world, passed, repository="ssh://git@code.example.org/team/repo.git")
    settings = {"publish_commit_status": True, "separate_pull_request_statuses": True}
    return ws.pipeline(place.pipeline).update(provider_settings=settings)


def given_twice(world: Service, ws: Workspace, passed: Place) -> object:
    place = at_shared_pipeline(world, at_new_pipeline(world, passed))
    return ws.create_team_pipeline(place.team, pipeline_id=place.pipeline_id, access_level="read_only")


def archived_twice(world: Service, ws: Workspace, passed: Place) -> object:
    return ws.pipeline(at_archived_pipeline(world, at_new_pipeline(world, passed)).pipeline).archive()


def hooked_twice(world: Service, ws: Workspace, passed: Place) -> object:
    pipeline = ws.pipeline(at_new_pipeline(world, passed).pipeline)
    pipeline.add_webhook()
    return pipeline.add_webhook()


def hooked_at_ones_own_host(world: Service, ws: Workspace, passed: Place) -> object:
    place = at_new_pipeline(world, passed, repository="ssh://git@code.example.org/team/repo.git")
    return ws.pipeline(place.pipeline).add_webhook()


def of_the_last_manager(world: Service, ws: Workspace, passed: Place) -> object:
    """The last team that manages a pipeline which another team has, too."""
    place = at_new_pipeline(world, passed)
    other = next(team for team in world.sandbox.teams("acme").values() if team != place.team)
    ws.create_team_pipeline(other, pipeline_id=place.pipeline_id, access_level="read_only")
    ws.create_team_pipeline(place.team, pipeline_id=place.pipeline_id, access_level="manage_build_and_read")
    return ws.delete_team_pipeline(place.team, place.pipeline_id)


def lowered_to_no_manager(world: Service, ws: Workspace, passed: Place) -> object:
    place = at_new_pipeline(world, passed)
    other = next(team for team in world.sandbox.teams("acme").values() if team != place.team)
    ws.create_team_pipeline(other, pipeline_id=place.pipeline_id, access_level="read_only")
    ws.create_team_pipeline(place.team, pipeline_id=place.pipeline_id, access_level="manage_build_and_read")
    return ws.update_team_pipeline(place.team, place.pipeline_id, access_level="read_only")


PROVOKED: dict[tuple[str, str], list[Provoke]] = {
    ("errors", "create_build"): [
        lambda world, ws, passed: ws.pipeline(at_new_pipeline(world, passed).pipeline).create_build(
            commit="HEAD", branch="main", pull_request_id=2**31
        )
    ],
    ("errors", "create_pipeline"): [a_second_of_the_name],
    ("errors", "update_pipeline"): [settings_of_another_host],
    ("reason", "create_build"): [a_build_of_an_archived_pipeline, a_build_of_an_excluded_branch],
    ("reason", "cancel_build"): [lambda world, ws, passed: ws.pipeline(passed.pipeline).cancel(passed.number)],
    ("begins", "create_team_pipeline"): [given_twice],
    ("begins", "update_team_pipeline"): [lowered_to_no_manager],
    ("reason", "delete_team_pipeline"): [of_the_last_manager],
    ("Forbidden", "archive_pipeline"): [
        lambda world, ws, passed: no_editor(world).pipeline(at_new_pipeline(world, passed).pipeline).archive()
    ],
    ("Forbidden", "unarchive_pipeline"): [
        lambda world, ws, passed: (
            no_editor(world).pipeline(at_archived_pipeline(world, at_new_pipeline(world, passed)).pipeline).unarchive()
        )
    ],
    ("Forbidden", "add_webhook"): [
        lambda world, ws, passed: no_editor(world).pipeline(at_new_pipeline(world, passed).pipeline).add_webhook()
    ],
    ("Pipeline could not be archived.", "archive_pipeline"): [archived_twice],
    ("Pipeline could not be unarchived.", "unarchive_pipeline"): [
        lambda world, ws, passed: ws.pipeline(at_new_pipeline(world, passed).pipeline).unarchive()
    ],
    ("Auto-creating webhooks is not supported for your repository.", "add_webhook"): [hooked_at_ones_own_host],
    ("Webhooks could not be created for your repository.", "add_webhook"): [hooked_twice],
}


def kind_of(row: dict[str, object]) -> str:
    return next((key for key in ("errors", "reason", "begins") if key in row), str(row.get("message")))


def test_every_row_of_the_document_is_provoked() -> None:
    assert {(kind_of(row), operation) for row, operation in ROWS} == set(PROVOKED)
    assert all(PROVOKED.values())


def test_each_arrives_as_an_error_with_the_servers_reason(world: Service, ws: Workspace, passed: Place) -> None:
    for row, operation in ROWS:
        for provoke in PROVOKED[kind_of(row), operation]:
            with pytest.raises(bf.ServiceError) as refused:
                provoke(world, ws, passed)
            assert_documented(refused.value, row, operation)


def assert_documented(error: bf.ServiceError, row: dict[str, object], operation: str) -> None:
    case = (operation, kind_of(row), str(error))
    assert error.status == row["status"], case
    assert type(error) is (bf.Forbidden if row["status"] == 403 else bf.Invalid), case
    assert error.where.startswith(golden.OPERATIONS[operation]["route"].split(" ")[0]), case
    if "message" in row:
        assert error.message == row["message"], case
    assert error.message.startswith(str(row.get("begins", ""))), case
    assert len(error.message) > 10 or error.status == 403, case
    assert error.message in str(error), case
    assert bool(error.errors) == bool(row.get("errors", False)), case
    for detail in error.errors:
        assert set(detail) == set(golden.HOSTED["errors"]["validation"]["keys"]), case
        assert detail["field"] in str(error), case
        assert detail["code"] in str(error), case


def test_settings_that_a_host_does_not_have_are_each_named(world: Service, ws: Workspace, passed: Place) -> None:
    with pytest.raises(bf.Invalid) as refused:
        settings_of_another_host(world, ws, passed)
    named = {detail["field"] for detail in refused.value.errors}
    assert named == {"provider_settings.publish_commit_status", "provider_settings.separate_pull_request_statuses"}


def test_a_second_pipeline_of_a_name_says_so(world: Service, ws: Workspace, passed: Place) -> None:
    with pytest.raises(bf.Invalid) as refused:
        a_second_of_the_name(world, ws, passed)
    assert golden.HOSTED["errors"]["validation"]["second_of_a_name"] in refused.value.errors


def test_builds_that_are_over_are_not_canceled_and_the_reason_names_their_state(world: Service, ws: Workspace) -> None:
    for state in ("passed", "failed", "canceled"):
        build = place_of(world.list_all("/organizations/acme/builds", state=state, exclude_jobs="true")[0])
        with pytest.raises(bf.Invalid, match=state):
            ws.pipeline(build.pipeline).cancel(build.number)
        assert ws.pipeline(build.pipeline).build(build.number).state == state


def test_canceling_twice_refuses_the_second(world: Service, ws: Workspace, passed: Place) -> None:
    place = at_new_build(world, at_new_pipeline(world, passed))
    assert ws.pipeline(place.pipeline).cancel(place.number).state == golden.STATES["cancel"]["to"]
    with pytest.raises(bf.Invalid, match="canceled"):
        ws.pipeline(place.pipeline).cancel(place.number)
