"""The sandbox, and its responses, for tests that compare them with `tests/golden`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from buildframe.sandbox_server import Sandbox
from tests import golden
from tests.contract.calls import at_failed_run
from tests.golden.http_service import Body, Place, Service, method_of, place_of
from tests.golden.types import Seen, seen_in

READING = [name for name in golden.OPERATIONS if method_of(name) == "GET"]
ENVELOPED = [name for name in READING if "envelope" in golden.OPERATIONS[name]]
PAGED = [name for name in READING if golden.OPERATIONS[name].get("paginated") and name not in ENVELOPED]
FILTERED = [name for name in PAGED if golden.OPERATIONS[name].get("query") == "builds"]


@pytest.fixture(scope="package")
def service() -> Iterator[Service]:
    """A world that no test changes."""
    with Sandbox(builds=150, seed=1, world="odd") as sandbox:
        yield Service(sandbox)


@pytest.fixture(scope="package")
def world() -> Iterator[Service]:
    """A world that tests change: each its own new pipelines and builds."""
    with Sandbox(builds=150, seed=2) as sandbox:
        yield Service(sandbox)


@pytest.fixture(scope="package")
def passed(world: Service) -> Place:
    """A pipeline of the changed world, and a build of it that passed."""
    build = next(build for build in world.list_all("/organizations/acme/builds") if build["state"] == "passed")
    return placed(world, place_of(build))


@pytest.fixture(scope="package")
def builds(service: Service) -> list[Body]:
    return service.list_all("/builds", include_retried_jobs="true")


@pytest.fixture(scope="package")
def place(service: Service, builds: list[Body]) -> Place:
    """The pipeline with most builds, and its newest build."""
    places = [place_of(build) for build in builds]
    counts = {there[:2]: sum(other[:2] == there[:2] for other in places) for there in places}
    return placed(service, max(places, key=lambda there: (counts[there[:2]], there.number)))


def placed(service: Service, place: Place) -> Place:
    """A place with all that paths may name."""
    members = service.get(place.path("list_members")).json()
    place = place.at(
        pipeline_id=service.get(place.path("get_pipeline")).json()["id"],
        team=service.team_of(place.org, place.pipeline),
        user=members[0]["id"],
    )
    jobs = service.list_all(place.path("list_build_jobs"))
    return at_failed_run(service, place).at(job=next(job["id"] for job in jobs if job["type"] == "script"))


@pytest.fixture(scope="package")
def responses(service: Service, builds: list[Body], place: Place) -> dict[str, list[Body]]:
    """Return the items of the responses of each reading operation, from each place that has it."""
    whole = [place_of(build).path("get_build") for build in various(builds)]
    lines = sorted({place_of(build).at(number=0) for build in builds})
    organizations = list({line.org: line for line in lines}.values())
    at_many_places = {
        "list_all_builds": builds,
        "list_builds": everywhere(service, "list_builds", organizations, include_retried_jobs="true"),
        "list_pipeline_builds": everywhere(service, "list_pipeline_builds", lines, include_retried_jobs="true"),
        "get_build": [service.get(path, include_retried_jobs="true").json() for path in whole],
        "list_pipelines": everywhere(service, "list_pipelines", organizations),
        "get_pipeline": [service.get(line.path("get_pipeline")).json() for line in lines],
        "list_build_jobs": [
            job for build in various(builds) for job in service.list_all(place_of(build).path("list_build_jobs"))
        ],
        "get_job": [
            service.get(place_of(build).at(job=job["id"]).path("get_job")).json()
            for build in various(builds)
            for job in various_jobs(build)
        ],
        "list_annotations": [
            item for build in various(builds) for item in service.list_all(place_of(build).path("list_annotations"))
        ],
        "list_flaky_tests": service.list_all(place.path("list_flaky_tests")),
    }
    others = {name: service.get(place.path(name)).json() for name in READING if name not in at_many_places}
    return at_many_places | {name: items if isinstance(items, list) else [items] for name, items in others.items()}


def everywhere(service: Service, operation: str, places: Iterable[Place], **query: Any) -> list[Body]:
    return [item for place in places for item in service.list_all(place.path(operation), **query)]


@pytest.fixture(scope="package")
def met(responses: dict[str, list[Body]]) -> dict[str, list[Seen]]:
    """Every resource that an operation's responses hold, with where it stands."""
    return {name: list(seen_in(items, golden.item_of(name), golden.item_of(name))) for name, items in responses.items()}


@pytest.fixture(scope="package")
def listed(service: Service, place: Place) -> dict[str, list[Body]]:
    """Return the items of each paginated list at one place, in order."""
    return {name: service.list_all(place.path(name)) for name in PAGED}


def various(builds: list[Body]) -> list[Body]:
    """A build of every state and source in every pipeline, and every rebuild."""
    kinds: dict[Any, list[Body]] = {}
    for build in builds:
        kind = (build["state"], build["source"], build["pipeline"]["slug"], build["rebuilt_from"] is None)
        kinds.setdefault(kind, []).append(build)
    return [found[0] for found in kinds.values()]


def various_jobs(build: Body) -> list[Body]:
    """A job of every type and state of a build."""
    return list({(job["type"], job.get("state")): job for job in build["jobs"]}.values())
