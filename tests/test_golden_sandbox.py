"""The sandbox's answers, over real HTTP, against the second witness in `golden/`; nothing of our client is used."""

from __future__ import annotations

import datetime as dt
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import httpx
import pytest

from buildframe import spec
from buildframe.service import Quota, Sandbox
from tests import golden
from tests.golden.asking import ALL_SCOPES, Body, Place, Service, path_of, place_of
from tests.golden.types import Seen, fits, misfits, nested_in, reached_from, seen_in, stamp

# What the sandbox does not show so far. Each set shrinks; a test holds it to exactly what is missing.
STEPS_NOT_YET = {"manual", "trigger"}
JOBS_NOT_YET = {"manual", "trigger"}
NEVER_A_VALUE_YET = {
    "Build.triggered_from",
    "Job.async",
    "Job.expired_at",
    "Job.label",
    "Job.matrix",
    "Job.parallel_group_index",
    "Job.parallel_group_total",
    "Job.triggered_build",
    "Job.unblock_url",
    "Job.unblockable",
    "Job.unblocked_at",
    "Job.unblocked_by",
    "Pipeline.archived_at",
    "TriggeredFrom.build_id",
    "TriggeredFrom.build_number",
    "TriggeredFrom.build_pipeline_slug",
}

ASKED = ("get_build", "get_pipeline", "list_all_builds", "list_builds", "list_pipeline_builds", "list_pipelines")
"""The operations that are asked here: all that are declared, which a test makes sure of."""

PAGED = [name for name in ASKED if golden.OPERATIONS[name].get("paginated")]
FILTERED = [name for name in PAGED if golden.OPERATIONS[name].get("query") == "builds"]


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with Sandbox(builds=150, seed=1) as sandbox:
        yield Service(sandbox)


@pytest.fixture(scope="module")
def builds(service: Service) -> list[Body]:
    return service.walk("/builds", include_retried_jobs="true")


@pytest.fixture(scope="module")
def place(builds: list[Body]) -> Place:
    """The pipeline with most builds, and its newest build."""
    places = [place_of(build) for build in builds]
    counts = {there[:2]: sum(other[:2] == there[:2] for other in places) for there in places}
    return max(places, key=lambda there: (counts[there[:2]], there.number))


@pytest.fixture(scope="module")
def answers(service: Service, builds: list[Body]) -> dict[str, list[Body]]:
    """Of each operation what it answered, item by item, wherever it can be asked."""
    whole = [place_of(build).path("get_build") for build in various(builds)]
    lines = sorted({place_of(build)._replace(number=0) for build in builds})
    organizations = {line.org: line for line in lines}.values()
    return {
        "list_all_builds": builds,
        "list_builds": everywhere(service, "list_builds", organizations, include_retried_jobs="true"),
        "list_pipeline_builds": everywhere(service, "list_pipeline_builds", lines, include_retried_jobs="true"),
        "get_build": [service.ask(path, include_retried_jobs="true").json() for path in whole],
        "list_pipelines": everywhere(service, "list_pipelines", organizations),
        "get_pipeline": [service.ask(line.path("get_pipeline")).json() for line in lines],
    }


def everywhere(service: Service, operation: str, places: Iterable[Place], **query: Any) -> list[Body]:
    return [item for place in places for item in service.walk(place.path(operation), **query)]


@pytest.fixture(scope="module")
def listed(service: Service, place: Place) -> dict[str, list[Body]]:
    """Of each list what it answered at one place, in order."""
    return {name: service.walk(place.path(name)) for name in PAGED}


def various(builds: list[Body]) -> list[Body]:
    """A build of every state and source in every pipeline, and every rebuild."""
    kinds: dict[Any, list[Body]] = {}
    for build in builds:
        kind = (build["state"], build["source"], build["pipeline"]["slug"], build["rebuilt_from"] is None)
        kinds.setdefault(kind, []).append(build)
    return [found[0] for found in kinds.values()]


def test_every_declared_operation_is_asked_here(answers: dict[str, list[Body]]) -> None:
    assert {endpoint.name for endpoint in spec.ENDPOINTS} == set(ASKED)
    assert {name for name, items in answers.items() if items} == set(ASKED)


# --- fields


@pytest.fixture(scope="module")
def met(answers: dict[str, list[Body]]) -> dict[str, list[Seen]]:
    return {name: list(seen_in(items, golden.item_of(name), golden.item_of(name))) for name, items in answers.items()}


@pytest.mark.parametrize("operation", ASKED)
def test_values_have_the_documented_types(met: dict[str, list[Seen]], operation: str) -> None:
    assert set().union(*map(misfits, met[operation])) == set()


@pytest.mark.parametrize("operation", ASKED)
def test_nothing_unknown_is_sent(met: dict[str, list[Seen]], operation: str) -> None:
    unknown = {
        f"{seen.where}.{key}" for seen in met[operation] for key in seen.body.keys() - golden.fields_of(seen.resource)
    }
    assert unknown == set()


def wanted_in(operation: str, where: str, resource: str) -> set[str]:
    """The documented fields that some answer must hold."""
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
    """Where in the answer of each operation each documented resource stands."""
    roots = [(name, golden.item_of(name)) for name in ASKED]
    found = [(name, where, resource) for name, root in roots for where, resource in places_in(root, root)]
    short = [name for name in ASKED if name not in golden.SHAPES["agent"]["full_in"]]
    return [place for place in found if not (place[0] in short and "agent." in place[1])]


@pytest.mark.parametrize(("operation", "where", "resource"), all_places())
def test_one_answer_holds_every_documented_field(
    met: dict[str, list[Seen]], operation: str, where: str, resource: str
) -> None:
    bodies = [seen.body for seen in met[operation] if seen.where == where]
    lacks = [wanted_in(operation, where, resource) - body.keys() for body in bodies]
    assert lacks, "not met at all"
    assert min(lacks, key=len) == set()


@pytest.mark.parametrize(("operation", "where", "resource"), all_places())
def test_every_documented_field_has_a_value_somewhere(
    met: dict[str, list[Seen]], operation: str, where: str, resource: str
) -> None:
    bodies = [seen.body for seen in met[operation] if seen.where == where]
    valued = {key for body in bodies for key, value in body.items() if value is not None}
    nullable = {key for key, type in golden.DOCUMENTED[resource].items() if type.endswith("null")}
    assert wanted_in(operation, where, resource) - valued - nullable == set()


# --- the same resource in different answers


def keys_at(met: dict[str, list[Seen]], operation: str, where: str) -> set[str]:
    return set().union(*(seen.body.keys() for seen in met[operation] if seen.where == where))


@pytest.mark.parametrize("operation", FILTERED)
def test_agents_in_lists_are_short(met: dict[str, list[Seen]], operation: str) -> None:
    assert keys_at(met, operation, "Build.jobs.agent") == set(golden.SHAPES["agent"]["in_lists"])


def test_agents_in_a_single_build_are_whole(met: dict[str, list[Seen]]) -> None:
    assert keys_at(met, "get_build", "Build.jobs.agent") >= set(golden.SHAPES["agent"]["in_full"])


@pytest.mark.parametrize("operation", [*FILTERED, "get_build"])
def test_pipelines_in_builds_are_short(met: dict[str, list[Seen]], operation: str) -> None:
    lacks = golden.SHAPES["embedded_pipeline"]["lacks"]
    assert keys_at(met, operation, "Build.pipeline").isdisjoint(lacks)


def jobs_of(builds: list[Body], type: str) -> list[Body]:
    return [job for build in builds for job in build["jobs"] if job["type"] == type]


def test_waiters_have_nothing_but_id_and_type(builds: list[Body]) -> None:
    keys = {frozenset(job) for job in jobs_of(builds, "waiter")}
    assert keys == {frozenset(golden.HOSTED["job_types"]["waiter"])}


def test_jobs_are_of_known_types_and_states(builds: list[Body]) -> None:
    jobs = [job for build in builds for job in build["jobs"]]
    assert {job["type"] for job in jobs} <= golden.HOSTED["job_types"].keys()
    assert {job["state"] for job in jobs if "state" in job} <= set(golden.HOSTED["states"]["job"])


def test_block_steps_have_a_label_and_one_time(builds: list[Body]) -> None:
    for job in jobs_of(builds, "manual"):
        assert job.keys() >= set(golden.HOSTED["job_types"]["manual"])
        assert not job.keys() & {"name", "created_at", "started_at", "finished_at", "command", "agent"}


def test_trigger_steps_tell_of_what_they_triggered(builds: list[Body]) -> None:
    for job in jobs_of(builds, "trigger"):
        assert job.keys() >= set(golden.HOSTED["job_types"]["trigger"])


def test_builds_are_in_known_states(builds: list[Body]) -> None:
    known = {*golden.STATES["build_filter"], *golden.HOSTED["states"]["build"]}
    assert {build["state"] for build in builds} <= known - set(golden.STATES["never_a_state_of_a_build"])


@pytest.mark.parametrize("place_of_value", golden.HOSTED["values"])
def test_values_are_of_the_known_ones(met: dict[str, list[Seen]], place_of_value: str) -> None:
    resource, key = place_of_value.split(".")
    found = [body for seen in met.values() for body in bodies_of(seen, resource)]
    assert {body[key] for body in found if body.get(key) is not None} <= set(golden.HOSTED["values"][place_of_value])


def bodies_of(seen: list[Seen], resource: str) -> list[Body]:
    if resource == "settings":
        return [one.body["settings"] for one in seen if one.resource == "Provider"]
    return [one.body for one in seen if one.resource == resource]


def test_provider_settings_are_known_and_of_their_types(met: dict[str, list[Seen]]) -> None:
    known = golden.PIPELINES["settings"]
    pairs = [pair for seen in met.values() for body in bodies_of(seen, "settings") for pair in body.items()]
    assert [pair for pair in pairs if pair[0] not in known or not fits(pair[1], known[pair[0]])] == []


def test_every_provider_setting_is_sent(met: dict[str, list[Seen]]) -> None:
    sent = {key for seen in met.values() for body in bodies_of(seen, "settings") for key in body}
    assert golden.PIPELINES["settings"].keys() - sent == set()


def test_settings_of_the_one_kind_are_at_one_provider_only(met: dict[str, list[Seen]]) -> None:
    only = set(golden.PIPELINES["settings_apply"]["one_hosted_kind"])
    providers = [one.body for seen in met.values() for one in seen if one.resource == "Provider"]
    assert len({provider["id"] for provider in providers if only & provider["settings"].keys()}) <= 1


def steps_of(answers: dict[str, list[Body]]) -> list[Body]:
    return [step for name in ("list_pipelines", "get_pipeline") for body in answers[name] for step in body["steps"]]


def test_steps_of_pipelines_have_the_documented_keys(answers: dict[str, list[Body]]) -> None:
    shapes = golden.PIPELINES["steps_returned"]
    assert [step for step in steps_of(answers) if set(step) != set(shapes[step["type"]])] == []


def test_every_type_of_step_is_sent_or_named_as_missing(answers: dict[str, list[Body]]) -> None:
    types = {name for name in golden.PIPELINES["steps_returned"] if "." not in name}
    assert types - {step["type"] for step in steps_of(answers)} == STEPS_NOT_YET


def test_every_type_of_job_is_sent_or_named_as_missing(builds: list[Body]) -> None:
    sent = {job["type"] for build in builds for job in build["jobs"]}
    assert golden.HOSTED["job_types"].keys() - sent == JOBS_NOT_YET


def test_every_field_has_a_value_somewhere_or_is_named_as_missing(met: dict[str, list[Seen]]) -> None:
    every = [one for seen in met.values() for one in seen]
    valued = {f"{one.resource}.{key}" for one in every for key, value in one.body.items() if value is not None}
    resources = {name for operation in ASKED for name in reached_from(golden.item_of(operation))}
    known = {f"{name}.{key}" for name in resources for key in golden.fields_of(name)}
    assert known - valued == NEVER_A_VALUE_YET


def test_addresses_of_webhooks_are_for_editors_only(service: Service, place: Place) -> None:
    reader = service.sandbox.token(scopes=("read_pipelines",))
    path = place.path("get_pipeline")
    assert service.ask(path).json()["provider"]["webhook_url"].startswith("http")
    assert service.ask(path, token=reader).json()["provider"]["webhook_url"] == ""


def test_pipelines_are_of_both_forms_of_time(answers: dict[str, list[Body]]) -> None:
    times = [pipeline["created_at"] for pipeline in answers["list_pipelines"]]
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


def test_slugs_are_of_the_permitted_form(answers: dict[str, list[Body]]) -> None:
    slugs = [pipeline["slug"] for pipeline in answers["list_pipelines"]]
    assert [slug for slug in slugs if not re.fullmatch(golden.PIPELINES["slug"]["pattern"], slug)] == []


def test_numbers_are_unique_in_a_pipeline_and_ids_everywhere(builds: list[Body]) -> None:
    assert len({place_of(build) for build in builds}) == len(builds)
    ids = [thing["id"] for build in builds for thing in (build, *build["jobs"])]
    assert len(set(ids)) == len(ids)


def test_a_rebuild_names_its_original(builds: list[Body]) -> None:
    ids = {build["id"]: build for build in builds}
    rebuilt = [build["rebuilt_from"] for build in builds if build["rebuilt_from"]]
    assert rebuilt
    assert [told for told in rebuilt if any(ids[told["id"]][key] != told[key] for key in told)] == []


def test_only_the_last_run_of_a_step_is_told_unless_asked(service: Service, builds: list[Body]) -> None:
    plain = {build["id"]: {job["id"] for job in build["jobs"]} for build in service.walk("/builds")}
    last = {build["id"]: {job["id"] for job in build["jobs"] if not job.get("retried")} for build in builds}
    assert plain == last
    assert any(job.get("retried") for build in builds for job in build["jobs"])


def test_a_single_build_tells_only_of_last_runs_unless_asked(service: Service, builds: list[Body]) -> None:
    build = next(build for build in builds if any(job.get("retried") for job in build["jobs"]))
    short = service.ask(place_of(build).path("get_build")).json()
    assert {job["id"] for job in short["jobs"]} == {job["id"] for job in build["jobs"] if not job.get("retried")}


def test_a_retried_job_names_the_next_one(builds: list[Body]) -> None:
    jobs = {job["id"]: job for build in builds for job in build["jobs"]}
    retried = [job for job in jobs.values() if job.get("retried")]
    assert [job["id"] for job in retried if jobs[job["retried_in_job_id"]]["step_key"] != job["step_key"]] == []
    assert {jobs[job["retried_in_job_id"]]["retry_type"] for job in retried} <= {"manual", "automatic"}


# --- status, headers, errors


@pytest.mark.parametrize("operation", ASKED)
def test_success_and_its_headers(service: Service, place: Place, operation: str) -> None:
    answer = service.ask(place.path(operation))
    assert answer.status_code == golden.OPERATIONS[operation]["success"]
    assert answer.headers["Content-Type"].split(";")[0] == golden.SHAPES["transport"]["content_type"]
    assert isinstance(answer.json(), list) == golden.OPERATIONS[operation]["returns"].startswith("array of")


@pytest.mark.parametrize("operation", ASKED)
def test_every_answer_tells_its_scopes_and_limits(service: Service, place: Place, operation: str) -> None:
    told, headers = service.ask(place.path(operation)).headers, golden.HOSTED["headers"]
    assert [name for name in [*headers["every_answer"], *headers["rate"]] if not told.get(name)] == []
    assert set(re.split(r",\s*", told[headers["of_token"]])) == set(ALL_SCOPES)
    assert told[headers["of_operation"]] == golden.OPERATIONS[operation]["scope"]
    assert told[headers["weak_tag"]].startswith('W/"')


@pytest.mark.parametrize("operation", ASKED)
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer unknown"}], ids=["no token", "unknown token"])
def test_without_a_token_nothing_is_told(
    service: Service, place: Place, operation: str, headers: dict[str, str]
) -> None:
    answer = httpx.get(service.url + place.path(operation), headers=headers)
    assert answer.status_code == 401
    assert answer.json() == {"message": golden.HOSTED["errors"]["401"][0]}


@pytest.mark.parametrize("operation", ASKED)
def test_without_the_scope_nothing_is_told(service: Service, place: Place, operation: str) -> None:
    scope = golden.OPERATIONS[operation]["scope"]
    others = tuple(other for other in ALL_SCOPES if other != scope)
    answer = service.ask(place.path(operation), token=service.sandbox.token(scopes=others))
    assert answer.status_code == 403
    assert answer.json() == {"message": golden.HOSTED["errors"]["403"][0].format(scope=scope)}
    assert answer.headers[golden.HOSTED["headers"]["of_operation"]] == scope


@pytest.mark.parametrize("operation", ASKED)
def test_the_documented_scope_is_enough(service: Service, place: Place, operation: str) -> None:
    token = service.sandbox.token(scopes=(golden.OPERATIONS[operation]["scope"],))
    assert service.ask(place.path(operation), token=token).status_code == golden.OPERATIONS[operation]["success"]


LOST = {"org": ("nowhere", 0), "pipeline": ("nothing", 1), "number": (999_999, 2)}
SIGNS = {"org": "{org.slug}", "pipeline": "slug}", "number": "{number}"}


def lost_things() -> list[tuple[str, str]]:
    """What each operation's path names after the organizations' own part."""
    paths = {name: path_of(name).partition("{org.slug}") for name in ASKED}
    return [
        (name, what)
        for name, (_, org, rest) in paths.items()
        for what, sign in SIGNS.items()
        if sign in (org if what == "org" else rest)
    ]


@pytest.mark.parametrize(("operation", "what"), lost_things())
def test_what_is_not_there_is_told(service: Service, place: Place, operation: str, what: str) -> None:
    value, which = LOST[what]
    answer = service.ask(place._replace(**{what: value}).path(operation))
    assert answer.status_code == 404
    assert answer.json() == {"message": golden.HOSTED["errors"]["404"][which]}


def test_an_unknown_route_is_told(service: Service) -> None:
    answer = service.ask("/nothing/here")
    assert answer.status_code == 404
    assert answer.json()["message"].startswith(golden.HOSTED["errors"]["unknown_route"])


def test_a_token_for_one_organization_sees_no_other(service: Service, builds: list[Body], place: Place) -> None:
    token = service.sandbox.token(scopes=ALL_SCOPES, organizations=(place.org,))
    own = [build["id"] for build in builds if place_of(build).org == place.org]
    assert 0 < len(own) < len(builds)
    assert [build["id"] for build in service.ask("/builds", token=token, per_page=100).json()] == own[:100]


# --- paging


def links_of(answer: httpx.Response) -> list[str]:
    return sorted(answer.links)


@pytest.mark.parametrize("operation", FILTERED)
def test_links_lead_to_neighbours_and_ends(service: Service, place: Place, operation: str) -> None:
    first = service.ask(place.path(operation), per_page=5)
    middle = service.fetch(first.links["next"]["url"])
    last = service.fetch(first.links["last"]["url"])
    assert links_of(first) == ["last", "next"]
    assert links_of(middle) == ["first", "last", "next", "prev"]
    assert links_of(last) == ["first", "prev"]


@pytest.mark.parametrize("operation", FILTERED)
def test_links_are_absolute_and_keep_the_query(service: Service, place: Place, operation: str) -> None:
    asked = [("per_page", "2"), ("state[]", "passed"), ("state[]", "failed"), ("created_from", "2001-01-01T00:00:00Z")]
    url = service.url + place.path(operation)
    answer = httpx.get(url, params=asked, headers={"Authorization": f"Bearer {service.token}"})
    following = httpx.URL(answer.links["next"]["url"])
    assert str(following.copy_with(query=None)) == url
    assert sorted(following.params.multi_items()) == sorted([*asked, ("page", "2")])


@pytest.mark.parametrize("operation", PAGED)
def test_a_list_of_one_page_has_an_empty_link(service: Service, place: Place, operation: str) -> None:
    query = {"branch": "no-such-branch"} if operation in FILTERED else {"per_page": 100}
    answer = service.ask(place.path(operation), **query)
    assert answer.headers.get("Link") == ""


@pytest.mark.parametrize("operation", PAGED)
def test_a_page_past_the_end_is_empty(service: Service, place: Place, operation: str) -> None:
    answer = service.ask(place.path(operation), page=40)
    assert (answer.status_code, answer.json()) == (200, golden.HOSTED["paging"]["past_the_end"])


def ids_of(items: list[Body]) -> list[str]:
    return [item["id"] for item in items]


@pytest.mark.parametrize("operation", PAGED)
def test_page_sizes(service: Service, place: Place, listed: dict[str, list[Body]], operation: str) -> None:
    paging, path, items = golden.HOSTED["paging"], place.path(operation), ids_of(listed[operation])
    assert ids_of(service.ask(path).json()) == items[: paging["per_page"]]
    assert ids_of(service.ask(path, per_page=500).json()) == items[: paging["most_per_page"]]
    assert ids_of(service.ask(path, page=0, per_page=3).json()) == items[:3]
    assert ids_of(service.ask(path, page=2, per_page=3).json()) == items[3:6]


@pytest.mark.parametrize("operation", FILTERED)
def test_builds_are_newest_first(listed: dict[str, list[Body]], operation: str) -> None:
    times = [stamp(build["created_at"]) for build in listed[operation]]
    assert times == sorted(times, reverse=True)


def test_lists_cover_what_their_paths_say(listed: dict[str, list[Body]], builds: list[Body], place: Place) -> None:
    assert ids_of(listed["list_all_builds"]) == ids_of(builds)
    assert ids_of(listed["list_builds"]) == [build["id"] for build in builds if place_of(build).org == place.org]
    of_pipeline = [build["id"] for build in builds if place_of(build)[:2] == place[:2]]
    assert ids_of(listed["list_pipeline_builds"]) == of_pipeline


# --- filters

Test = Callable[[Body], bool]
Narrow = Callable[..., None]


@pytest.fixture
def narrow(service: Service, builds: list[Body], place: Place) -> Narrow:
    """Compare what a filter lets through, in all three lists, with what it should."""

    def check(test: Test, *, none: bool = False, **query: Any) -> None:
        expected = [build for build in builds if test(build)]
        assert none or 0 < len(expected) < len(builds)
        own = [build for build in expected if place_of(build).org == place.org]
        of_pipeline = [build for build in own if place_of(build).pipeline == place.pipeline]
        for operation, items in zip(FILTERED, (expected, own, of_pipeline), strict=True):
            assert ids_of(service.walk(place.path(operation), **query)) == ids_of(items), operation

    return check


def middle(builds: list[Body], key: str) -> str:
    """The middle one of the times in a field."""
    times = sorted((build[key] for build in builds if build[key]), key=stamp)
    return str(times[len(times) // 2])


def most_common(builds: list[Body], key: str) -> list[str]:
    values = Counter(build[key] for build in builds)
    return [value for value, _ in values.most_common(2)]


@pytest.mark.parametrize("key", ["branch", "commit"])
def test_one_or_several_of_a_text(narrow: Narrow, builds: list[Body], key: str) -> None:
    one, other = most_common(builds, key)
    narrow(lambda build: build[key] == one, **{key: one})
    narrow(lambda build: build[key] == one, **{f"{key}[]": [one]})
    narrow(lambda build: build[key] in (one, other), **{f"{key}[]": [one, other]})


def test_a_short_sha_finds_nothing(narrow: Narrow, builds: list[Body]) -> None:
    narrow(lambda build: False, none=True, commit=builds[0]["commit"][:8])


def test_created_from_is_inclusive_and_created_to_exclusive(narrow: Narrow, builds: list[Body]) -> None:
    on_the_second = [build for build in builds if stamp(build["created_at"]).microsecond == 0]
    bound = middle(on_the_second, "created_at")  # told in full, however finely the service keeps its times
    narrow(lambda build: stamp(build["created_at"]) >= stamp(bound), created_from=bound)
    narrow(lambda build: stamp(build["created_at"]) < stamp(bound), created_to=bound)


def test_finished_from_is_inclusive(narrow: Narrow, builds: list[Body]) -> None:
    bound = middle(builds, "finished_at")
    narrow(
        lambda build: bool(build["finished_at"]) and stamp(build["finished_at"]) >= stamp(bound), finished_from=bound
    )


def test_creator(narrow: Narrow, builds: list[Body]) -> None:
    someone = Counter(build["creator"]["id"] for build in builds if build["creator"]).most_common(1)[0][0]
    narrow(lambda build: build["creator"] is not None and build["creator"]["id"] == someone, creator=someone)


def test_meta_data(narrow: Narrow, builds: list[Body]) -> None:
    pairs = Counter(pair for build in builds for pair in build["meta_data"].items())
    (key, value), _ = pairs.most_common(1)[0]
    narrow(lambda build: build["meta_data"].get(key) == value, **{f"meta_data[{key}]": value})


def test_several_meta_data_must_all_be_there(narrow: Narrow, builds: list[Body]) -> None:
    wanted = max((build["meta_data"] for build in builds), key=len)
    assert len(wanted) > 1
    query = {f"meta_data[{key}]": value for key, value in wanted.items()}
    narrow(lambda build: build["meta_data"].items() >= wanted.items(), **query)


@pytest.mark.parametrize("state", [*golden.STATES["build_filter"], *golden.HOSTED["states"]["build"]])
def test_state(narrow: Narrow, state: str) -> None:
    narrow(lambda build: matches(build, state), none=state not in ("passed", "failed", "canceled"), state=state)


def matches(build: Body, state: str) -> bool:
    if state == "finished":
        return any(matches(build, meant) for meant in golden.STATES["finished_means"])
    return bool(build["blocked"]) if state == "blocked" else build["state"] == state


def test_several_states(narrow: Narrow) -> None:
    narrow(lambda build: build["state"] in ("failed", "canceled"), **{"state[]": ["failed", "canceled"]})


def test_several_filters_narrow_together(narrow: Narrow, builds: list[Body]) -> None:
    branch, bound = most_common(builds, "branch")[0], middle(builds, "created_at")
    narrow(
        lambda build: (
            (build["branch"], build["state"]) == (branch, "passed") and stamp(build["created_at"]) < stamp(bound)
        ),
        branch=branch,
        state="passed",
        created_to=bound,
    )


@pytest.mark.parametrize("operation", FILTERED)
@pytest.mark.parametrize(("switch", "field"), [("exclude_jobs", "jobs"), ("exclude_pipeline", "pipeline")])
def test_switches_leave_a_field_out(service: Service, place: Place, operation: str, switch: str, field: str) -> None:
    assert not any(build.get(field) for build in service.ask(place.path(operation), **{switch: "true"}).json())
    assert all(build[field] for build in service.ask(place.path(operation), **{switch: "false"}).json())


# --- limits


@pytest.fixture(scope="module")
def narrow_service() -> Iterator[Service]:
    """A service that serves few pages and few requests."""
    with Sandbox(builds=120, days=5, deepest=10, quota=Quota(organization=8, user=4, window=3600)) as sandbox:
        yield Service(sandbox)


@pytest.mark.parametrize("operation", FILTERED)
def test_pages_too_deep_are_refused(narrow_service: Service, place: Place, operation: str) -> None:
    paging, token = golden.HOSTED["paging"], narrow_service.sandbox.token()
    deep = narrow_service.ask(place.path(operation), token=token, page=3, per_page=5)
    assert (deep.status_code, deep.json()) == (paging["too_deep"], {"message": paging["too_deep_message"]})
    assert narrow_service.ask(place.path(operation), token=token, page=2, per_page=5).status_code == 200


def asked_until_refused(service: Service, path: str, tokens: list[str]) -> httpx.Response:
    """The first refusal, asking with the tokens in turn."""
    answers = (service.ask(path, token=token) for _ in range(20) for token in tokens)
    return next(answer for answer in answers if answer.status_code != 200)


def assert_over_the_limit(answer: httpx.Response, scope: str, header: str) -> None:
    told = answer.json()
    assert answer.status_code == 429
    assert set(told) == set(golden.HOSTED["errors"]["429"]["keys"])
    assert (told["scope"], told["current"]) == (scope, told["limit"] + 1)
    assert int(answer.headers[f"{header}-Limit"]) == told["limit"]
    assert int(answer.headers[f"{header}-Remaining"]) == 0
    assert int(answer.headers[f"{header}-Reset"]) == told["reset"] > 0


def test_a_user_over_the_limit_is_told(narrow_service: Service) -> None:
    answer = asked_until_refused(narrow_service, "/builds", [narrow_service.sandbox.token()])
    assert_over_the_limit(answer, "rest_user", "RateLimit-User")


def test_an_organization_over_the_limit_is_told(narrow_service: Service) -> None:
    tokens = [narrow_service.sandbox.token() for _ in range(9)]
    answer = asked_until_refused(narrow_service, "/organizations/globex/pipelines", tokens)
    assert_over_the_limit(answer, "rest", "RateLimit")


def test_the_hosted_services_limits() -> None:
    limits = golden.HOSTED["limits"]
    assert (Quota.REAL.organization, Quota.REAL.user) == tuple(limits.values())
