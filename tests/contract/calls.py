"""Call every operation as a user does, with the objects that it needs."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from buildframe.spec import ENDPOINTS, RESOURCES, Endpoint
from buildframe.workspace import Workspace
from tests.golden.http_service import Body, Place, Service, place_of

Call = Callable[[Workspace, Place], Any]

CALLS: dict[str, Call] = {
    "list_all_builds": lambda ws, at: ws.builds(),
    "list_pipeline_builds": lambda ws, at: ws.pipeline(at.pipeline).builds(),
    "get_build": lambda ws, at: ws.pipeline(at.pipeline).build(at.number),
    "create_build": lambda ws, at: ws.pipeline(at.pipeline).create_build(commit="HEAD", branch="main"),
    "cancel_build": lambda ws, at: ws.pipeline(at.pipeline).cancel(at.number),
    "rebuild_build": lambda ws, at: ws.pipeline(at.pipeline).rebuild(at.number),
    "get_pipeline": lambda ws, at: ws.pipeline(at.pipeline).get(),
    "create_pipeline": lambda ws, at: ws.create_pipeline(**new_pipeline()),
    "update_pipeline": lambda ws, at: ws.pipeline(at.pipeline).update(description="Changed"),
    "archive_pipeline": lambda ws, at: ws.pipeline(at.pipeline).archive(),
    "unarchive_pipeline": lambda ws, at: ws.pipeline(at.pipeline).unarchive(),
    "delete_pipeline": lambda ws, at: ws.pipeline(at.pipeline).delete(),
    "add_webhook": lambda ws, at: ws.pipeline(at.pipeline).add_webhook(),
    "get_team_pipeline": lambda ws, at: ws.team_pipeline(at.team, at.pipeline_id),
    "create_team_pipeline": lambda ws, at: ws.create_team_pipeline(
        at.team, pipeline_id=at.pipeline_id, access_level="read_only"
    ),
    "update_team_pipeline": lambda ws, at: ws.update_team_pipeline(
        at.team, at.pipeline_id, access_level="build_and_read"
    ),
    "delete_team_pipeline": lambda ws, at: ws.delete_team_pipeline(at.team, at.pipeline_id),
    "list_build_jobs": lambda ws, at: ws.pipeline(at.pipeline).jobs_of(at.number),
    "get_job": lambda ws, at: ws.pipeline(at.pipeline).job(at.number, at.job),
    "retry_job": lambda ws, at: ws.pipeline(at.pipeline).retry_job(row_of_job(at)),
    "list_annotations": lambda ws, at: ws.pipeline(at.pipeline).annotations(at.number),
    "get_member": lambda ws, at: ws.member(at.user),
}

FRAMES = {
    entry.name: table
    for table, kind in RESOURCES.items()
    for entry in ENDPOINTS
    if entry.lists and entry.returns is kind
}
"""The table of each operation that gives a frame."""


def listing(method: str, endpoint: Endpoint) -> Call:
    """The call of the method that lists a table, with what the path needs beside the organization."""
    needed = [parameter.name for parameter in endpoint.parameters if parameter.name != "org"]
    return lambda ws, at: getattr(ws, method)(*(getattr(at, name) for name in needed))


CALLS |= {
    entry.name: listing(FRAMES[entry.name], entry)
    for entry in ENDPOINTS
    if entry.name == f"list_{FRAMES.get(entry.name)}" and entry.name not in CALLS
}

_count = itertools.count(1)


def new_pipeline(**more: Any) -> Body:
    """Return the properties of a new pipeline with a unique name."""
    return {
        "name": f"New {next(_count)}",
        "cluster_id": None,
        "repository": "git@github.com:example/new.git",
        "configuration": "steps:\n  - command: make test\n",
        **more,
    }


def at_new_pipeline(service: Service, place: Place, **more: Any) -> Place:
    """Return the place with a new pipeline of the same organization."""
    response = service.do("create_pipeline", place, new_pipeline(**more))
    assert response.status_code == 201, response.text
    return place.at(pipeline=response.json()["slug"], pipeline_id=response.json()["id"])


def at_new_build(service: Service, place: Place) -> Place:
    """Return the place with a new build of its pipeline, which waits or runs."""
    response = service.do("create_build", place, {"commit": "HEAD", "branch": "main"})
    assert response.status_code == 201, response.text
    return place.at(number=response.json()["number"])


def at_failed_job(service: Service, place: Place) -> Place:
    """Return the place of a job that failed and was not retried."""
    for build in service.list_all(f"/organizations/{place.org}/builds", state="failed"):
        for job in build["jobs"]:
            if job["type"] == "script" and job["state"] == "failed" and not job["retried"]:
                return place_of(build).at(job=job["id"])
    raise AssertionError("no job failed")


def row_of_job(place: Place) -> dict[str, Any]:
    """Return what a row of a frame says of the job at a place."""
    return {"organization": place.org, "pipeline": place.pipeline, "build_number": place.number, "id": place.job}


def at_failed_run(service: Service, place: Place) -> Place:
    """Return the place with a suite and a run of it that failed."""
    for suite in service.sandbox.suites(place.org):
        for run in service.list_all(f"/analytics/organizations/{place.org}/suites/{suite}/runs"):
            if run["result"] == "failed":
                return place.at(suite=suite, run=run["id"])
    raise AssertionError("no run failed")


def at_annotated_build(service: Service, place: Place) -> Place:
    """Return the place of a build with annotations."""
    places = map(place_of, service.list_all(f"/organizations/{place.org}/builds", state="failed"))
    return next(place for place in places if service.list_all(place.path("list_annotations")))


def at_archived_pipeline(service: Service, place: Place) -> Place:
    assert service.do("archive_pipeline", place).status_code == 200
    return place


def at_shared_pipeline(service: Service, place: Place) -> Place:
    """Return the place after its team got access to its pipeline."""
    body = {"pipeline_id": place.pipeline_id, "access_level": "read_only"}
    response = service.do("create_team_pipeline", place, body)
    assert response.status_code == 201, response.text
    return place


def prepare_place(service: Service, place: Place, operation: str) -> Place:
    """Return a place at which an operation succeeds: a new pipeline or build if the operation changes it."""
    if operation in ("cancel_build", "rebuild_build"):
        return at_new_build(service, at_new_pipeline(service, place))
    if operation == "retry_job":
        return at_failed_job(service, place)
    if operation == "list_failed_executions":
        return at_failed_run(service, place)
    if operation == "list_annotations":
        return at_annotated_build(service, place)
    if operation == "unarchive_pipeline":
        return at_archived_pipeline(service, at_new_pipeline(service, place))
    if operation in ("get_team_pipeline", "update_team_pipeline", "delete_team_pipeline"):
        return at_shared_pipeline(service, at_new_pipeline(service, place))
    if operation in CHANGING:
        return at_new_pipeline(service, place)
    return place


CHANGING = {
    "create_build", "update_pipeline", "archive_pipeline", "delete_pipeline", "add_webhook", "create_team_pipeline",
}  # fmt: skip
