"""Fields, shapes and values in the sandbox's responses, compared with `tests/golden` without the library's client."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator

import pytest

from buildframe import spec
from tests import golden
from tests.contract.conftest import FILTERED, READING
from tests.golden.http_service import Body, Place, Service, place_of
from tests.golden.types import Seen, find_violations, fits, nested_in, reached_from, stamp

NEVER_A_VALUE = {
    "Build.merge_queue",
    "Job.concurrency_wait_time_ms",
    "Job.expired_at",
    "Pipeline.allow_rebuilds",
    "Pipeline.archived_at",
}
"""What no reading response shows: jobs that nobody took in time, and what only a pipeline made or archived here has."""


def test_every_reading_operation_is_tested_here(responses: dict[str, list[Body]]) -> None:
    assert {endpoint.name for endpoint in spec.ENDPOINTS if endpoint.method == "GET"} == set(READING)
    assert {name for name, items in responses.items() if items} == set(READING)


def test_values_have_the_documented_types(met: dict[str, list[Seen]]) -> None:
    found = {operation: set().union(*map(find_violations, seen)) for operation, seen in met.items()}
    assert {operation: wrong for operation, wrong in found.items() if wrong} == {}


def test_nothing_unknown_is_sent(met: dict[str, list[Seen]]) -> None:
    unknown = {
        (operation, f"{seen.where}.{key}")
        for operation, all_seen in met.items()
        for seen in all_seen
        for key in seen.body.keys() - golden.fields_of(seen.resource)
    }
    assert unknown == set()


def wanted_in(operation: str, where: str, resource: str) -> set[str]:
    """The documented fields that some response must hold."""
    wanted = set(golden.DOCUMENTED[resource]) - set(golden.SHAPES["sometimes"].get(resource, []))
    if resource == "Agent" and operation not in golden.SHAPES["agent"]["full_in"]:
        return set(golden.SHAPES["agent"]["in_lists"])
    if where == "Build.pipeline":
        return wanted - set(golden.SHAPES["embedded_pipeline"]["lacks"])
    return wanted


def places_in(resource: str, where: str) -> Iterator[tuple[str, str]]:
    if resource in golden.DOCUMENTED:
        yield where, resource
        for key, name in nested_in(resource):
            if key in golden.DOCUMENTED[resource]:
                yield from places_in(name, f"{where}.{key}")


def all_places() -> list[tuple[str, str, str]]:
    """Where in the response of each operation each documented resource stands."""
    roots = [(name, golden.item_of(name)) for name in READING]
    found = [(name, where, resource) for name, root in roots for where, resource in places_in(root, root)]
    short = [name for name in READING if name not in golden.SHAPES["agent"]["full_in"]]
    return [place for place in found if not (place[0] in short and "agent." in place[1])]


@pytest.fixture(scope="module")
def at_places(met: dict[str, list[Seen]]) -> dict[tuple[str, str], list[Body]]:
    """What stands at each place of an operation's responses."""
    found: dict[tuple[str, str], list[Body]] = {}
    for operation, all_seen in met.items():
        for seen in all_seen:
            found.setdefault((operation, seen.where), []).append(seen.body)
    return found


def test_one_response_has_every_documented_field(at_places: dict[tuple[str, str], list[Body]]) -> None:
    fewest = {}
    for operation, where, resource in all_places():
        wanted = wanted_in(operation, where, resource)
        fewest[operation, where] = min((wanted - body.keys() for body in at_places[operation, where]), key=len)
    assert len(fewest) > 50
    assert {place: lacks for place, lacks in fewest.items() if lacks} == {}


def test_every_documented_field_has_a_value_somewhere(at_places: dict[tuple[str, str], list[Body]]) -> None:
    lacks = {}
    for operation, where, resource in all_places():
        bodies = at_places[operation, where]
        valued = {key for body in bodies for key, value in body.items() if value is not None}
        nullable = {key for key, type in golden.DOCUMENTED[resource].items() if type.endswith("null")}
        lacks[operation, where] = wanted_in(operation, where, resource) - valued - nullable
    assert {place: keys for place, keys in lacks.items() if keys} == {}


# --- the same resource in different responses


def keys_at(at_places: dict[tuple[str, str], list[Body]], operation: str, where: str) -> set[str]:
    return set().union(*at_places[operation, where])


def test_agents_in_lists_are_short_and_in_a_single_build_whole(at_places: dict[tuple[str, str], list[Body]]) -> None:
    short = {operation: keys_at(at_places, operation, "Build.jobs.agent") for operation in FILTERED}
    assert short == {operation: set(golden.SHAPES["agent"]["in_lists"]) for operation in FILTERED}
    assert keys_at(at_places, "get_build", "Build.jobs.agent") >= set(golden.SHAPES["agent"]["in_full"])


def test_pipelines_in_builds_are_short(at_places: dict[tuple[str, str], list[Body]]) -> None:
    for operation in (*FILTERED, "get_build"):
        keys = keys_at(at_places, operation, "Build.pipeline")
        assert keys.isdisjoint(golden.SHAPES["embedded_pipeline"]["lacks"]), operation


def jobs_of(builds: list[Body], type: str) -> list[Body]:
    return [job for build in builds for job in build["jobs"] if job["type"] == type]


def test_waiters_have_nothing_but_id_and_type(builds: list[Body]) -> None:
    keys = {frozenset(job) for job in jobs_of(builds, "waiter")}
    assert keys == {frozenset(golden.HOSTED["job_types"]["waiter"])}


def test_jobs_are_of_known_types_and_states(builds: list[Body]) -> None:
    jobs = [job for build in builds for job in build["jobs"]]
    assert {job["type"] for job in jobs} == golden.HOSTED["job_types"].keys()
    assert {job["state"] for job in jobs if "state" in job} <= set(golden.HOSTED["states"]["job"])


def test_block_steps_have_a_label_and_one_time(builds: list[Body]) -> None:
    for job in jobs_of(builds, "manual"):
        assert job.keys() >= set(golden.HOSTED["job_types"]["manual"])
        assert not job.keys() & {"name", "created_at", "started_at", "finished_at", "command", "agent"}


def test_trigger_steps_contain_the_build_that_they_triggered(builds: list[Body]) -> None:
    for job in jobs_of(builds, "trigger"):
        assert job.keys() >= set(golden.HOSTED["job_types"]["trigger"])


def test_builds_are_in_known_states(builds: list[Body]) -> None:
    known = {*golden.STATES["build_filter"], *golden.HOSTED["states"]["build"]}
    assert {build["state"] for build in builds} <= known - set(golden.STATES["never_a_state_of_a_build"])


def test_values_are_of_the_known_ones(met: dict[str, list[Seen]]) -> None:
    for place_of_value, known in golden.HOSTED["values"].items():
        resource, key = place_of_value.split(".")
        found = [body for seen in met.values() for body in bodies_of(seen, resource)]
        assert {body[key] for body in found if body.get(key) is not None} <= set(known), place_of_value


def bodies_of(seen: list[Seen], resource: str) -> list[Body]:
    if resource == "settings":
        return [one.body["settings"] for one in seen if one.resource == "Provider"]
    return [one.body for one in seen if one.resource == resource]


def test_every_provider_setting_is_sent_with_its_type_and_no_other(met: dict[str, list[Seen]]) -> None:
    known = golden.PIPELINES["settings"]
    pairs = [pair for seen in met.values() for body in bodies_of(seen, "settings") for pair in body.items()]
    assert {key for key, _ in pairs} == known.keys()
    assert [(key, value) for key, value in pairs if not fits(value, known[key])] == []


def test_settings_of_the_one_kind_are_at_one_provider_only(met: dict[str, list[Seen]]) -> None:
    only = set(golden.PIPELINES["settings_apply"]["one_hosted_kind"])
    providers = [one.body for seen in met.values() for one in seen if one.resource == "Provider"]
    assert len({provider["id"] for provider in providers if only & provider["settings"].keys()}) <= 1


def steps_of(responses: dict[str, list[Body]]) -> list[Body]:
    return [step for name in ("list_pipelines", "get_pipeline") for body in responses[name] for step in body["steps"]]


def test_steps_of_pipelines_have_the_documented_keys(responses: dict[str, list[Body]]) -> None:
    shapes = golden.PIPELINES["steps_returned"]
    assert [step for step in steps_of(responses) if set(step) != set(shapes[step["type"]])] == []


def test_every_type_of_step_is_sent(responses: dict[str, list[Body]]) -> None:
    types = {name for name in golden.PIPELINES["steps_returned"] if "." not in name}
    assert types - {step["type"] for step in steps_of(responses)} == set()


def test_every_field_has_a_value_somewhere_or_is_named_as_missing(met: dict[str, list[Seen]]) -> None:
    every = [one for seen in met.values() for one in seen]
    valued = {f"{one.resource}.{key}" for one in every for key, value in one.body.items() if value is not None}
    resources = {name for operation in READING for name in reached_from(golden.item_of(operation))}
    known = {f"{name}.{key}" for name in resources for key in golden.fields_of(name)}
    assert known - valued == NEVER_A_VALUE


def test_addresses_of_webhooks_are_for_editors_only(service: Service, place: Place) -> None:
    reader = service.sandbox.token(scopes=("read_pipelines",))
    path = place.path("get_pipeline")
    assert service.get(path).json()["provider"]["webhook_url"].startswith("http")
    assert service.get(path, token=reader).json()["provider"]["webhook_url"] == ""


def test_pipelines_are_of_both_forms_of_time(responses: dict[str, list[Body]]) -> None:
    times = [pipeline["created_at"] for pipeline in responses["list_pipelines"]]
    assert {time[-1] for time in times} == {"Z", "C"}


def test_a_build_starts_with_its_first_job(builds: list[Body]) -> None:
    started = [build for build in builds if build["started_at"] and not jobs_retried(build)]
    late = [build["url"] for build in started if stamp(build["started_at"]) != first_start(build)]
    assert len(started) > len(builds) / 2
    assert late == []


def jobs_retried(build: Body) -> bool:
    return any(job.get("retried") for job in build["jobs"])


def first_start(build: Body) -> dt.datetime:
    return min(stamp(job["started_at"]) for job in build["jobs"] if job.get("started_at"))


def test_a_build_has_an_end_when_it_is_over(builds: list[Body]) -> None:
    over = {"passed", "failed", "canceled"}
    assert [build["url"] for build in builds if build["state"] in over and build["finished_at"] is None] == []
    assert [build["url"] for build in builds if build["state"] not in over and build["finished_at"]] == []


def test_slugs_are_of_the_permitted_form(responses: dict[str, list[Body]]) -> None:
    slugs = [pipeline["slug"] for pipeline in responses["list_pipelines"]]
    assert [slug for slug in slugs if not re.fullmatch(golden.PIPELINES["slug"]["pattern"], slug)] == []


def test_numbers_are_unique_in_a_pipeline_and_ids_everywhere(builds: list[Body]) -> None:
    assert len({place_of(build) for build in builds}) == len(builds)
    ids = [thing["id"] for build in builds for thing in (build, *build["jobs"])]
    assert len(set(ids)) == len(ids)


def test_a_rebuild_names_its_original(builds: list[Body]) -> None:
    ids = {build["id"]: build for build in builds}
    rebuilt = [build["rebuilt_from"] for build in builds if build["rebuilt_from"]]
    assert rebuilt
    assert [result for result in rebuilt if any(ids[result["id"]][key] != result[key] for key in result)] == []


def test_only_the_last_run_of_a_step_is_returned_by_default(service: Service, builds: list[Body]) -> None:
    last = {build["id"]: {job["id"] for job in build["jobs"] if not job.get("retried")} for build in builds}
    assert {build["id"]: {job["id"] for job in build["jobs"]} for build in service.list_all("/builds")} == last
    build = next(build for build in builds if any(job.get("retried") for job in build["jobs"]))
    single = service.get(place_of(build).path("get_build")).json()
    assert {job["id"] for job in single["jobs"]} == last[build["id"]]


def test_a_retried_job_names_the_next_one(builds: list[Body]) -> None:
    jobs = {job["id"]: job for build in builds for job in build["jobs"]}
    retried = [job for job in jobs.values() if job.get("retried")]
    assert [job["id"] for job in retried if jobs[job["retried_in_job_id"]]["step_key"] != job["step_key"]] == []
    sources = [jobs[job["retried_in_job_id"]].get("retry_source") for job in retried]
    assert {source["job_id"] for source in sources if source} <= {job["id"] for job in retried}
    kinds = [(source or job)["retry_type"] for source, job in zip(sources, retried, strict=True)]
    assert {"manual", "automatic"} == set(kinds)
