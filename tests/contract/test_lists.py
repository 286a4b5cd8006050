"""Pages and filters of the sandbox's lists, compared with `tests/golden`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests import golden
from tests.contract.conftest import FILTERED, PAGED
from tests.golden.http_service import Body, Place, Service, place_of
from tests.golden.types import stamp


def links_of(response: httpx.Response) -> list[str]:
    return sorted(response.links)


def test_links_lead_to_neighbors_and_ends(service: Service, place: Place) -> None:
    for operation in FILTERED:
        first = service.get(place.path(operation), per_page=5)
        middle, last = (service.fetch(first.links[name]["url"]) for name in ("next", "last"))
        assert [links_of(page) for page in (first, middle, last)] == [
            ["last", "next"],
            ["first", "last", "next", "prev"],
            ["first", "prev"],
        ], operation


def test_links_are_absolute_and_keep_the_query(service: Service, place: Place) -> None:
    filters = [
        ("per_page", "2"),
        ("state[]", "passed"),
        ("state[]", "failed"),
        ("created_from", "2001-01-01T00:00:00Z"),
    ]
    for operation in FILTERED:
        url = service.url + place.path(operation)
        response = httpx.get(url, params=filters, headers={"Authorization": f"Bearer {service.token}"})
        following = httpx.URL(response.links["next"]["url"])
        assert str(following.copy_with(query=None)) == url
        assert sorted(following.params.multi_items()) == sorted([*filters, ("page", "2")])


def test_lists_of_one_page_have_an_empty_link(service: Service, place: Place) -> None:
    links = {}
    for operation in PAGED:
        query = {"branch": "no-such-branch"} if golden.query_of(operation) else {"per_page": 100}
        links[operation] = service.get(place.path(operation), **query).headers.get("Link")
    assert links == dict.fromkeys(PAGED, "")


def test_pages_past_the_end_are_empty(service: Service, place: Place) -> None:
    responses = {operation: service.get(place.path(operation), page=40) for operation in PAGED}
    sent = {operation: (response.status_code, response.json()) for operation, response in responses.items()}
    assert sent == dict.fromkeys(PAGED, (200, golden.HOSTED["paging"]["past_the_end"]))


def ids_of(items: list[Body]) -> list[str]:
    return [item.get("id") or item.get("execution_id") or item["pipeline_id"] for item in items]


def test_page_sizes(service: Service, place: Place, listed: dict[str, list[Body]]) -> None:
    """Of few and of many builds; without jobs, which would take most of the time."""
    paging = golden.HOSTED["paging"]
    slices = {
        "": slice(paging["per_page"]),
        "per_page=500": slice(paging["most_per_page"]),
        "page=0&per_page=3": slice(3),
        "page=2&per_page=3": slice(3, 6),
    }
    for operation in PAGED:
        path, ids = place.path(operation), ids_of(listed[operation])
        short = "&exclude_jobs=true" if operation in FILTERED else ""
        sent = {query: ids_of(service.get(f"{path}?{query}{short}").json()) for query in slices}
        assert sent == {query: ids[part] for query, part in slices.items()}, operation


def test_builds_are_newest_first(listed: dict[str, list[Body]]) -> None:
    for operation in FILTERED:
        times = [stamp(build["created_at"]) for build in listed[operation]]
        assert times == sorted(times, reverse=True), operation


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
    """Compare what a filter lets through, in all three lists, with what it should. Without jobs, to be quick."""

    def check(test: Test, *, none: bool = False, **query: Any) -> None:
        expected = [build for build in builds if test(build)]
        assert none or 0 < len(expected) < len(builds)
        own = [build for build in expected if place_of(build).org == place.org]
        of_pipeline = [build for build in own if place_of(build).pipeline == place.pipeline]
        for operation, items in zip(FILTERED, (expected, own, of_pipeline), strict=True):
            listed = service.list_all(place.path(operation), exclude_jobs="true", **query)
            assert ids_of(listed) == ids_of(items), (operation, query)

    return check


def middle(builds: list[Body], key: str) -> str:
    """The middle one of the times in a field."""
    times = sorted((build[key] for build in builds if build[key]), key=stamp)
    return str(times[len(times) // 2])


def most_common(builds: list[Body], key: str) -> list[str]:
    values = Counter(build[key] for build in builds)
    return [value for value, _ in values.most_common(2)]


def test_one_or_several_of_a_text(narrow: Narrow, builds: list[Body]) -> None:
    for key in ("branch", "commit"):
        one, other = most_common(builds, key)
        for query in ({key: one}, {f"{key}[]": [one]}):
            narrow(lambda build, key=key, one=one: build[key] == one, **query)
        both = (one, other)
        narrow(lambda build, key=key, both=both: build[key] in both, **{f"{key}[]": list(both)})


def test_a_short_sha_finds_nothing(narrow: Narrow, builds: list[Body]) -> None:
    narrow(lambda build: False, none=True, commit=builds[0]["commit"][:8])


def test_created_from_is_inclusive_and_created_to_exclusive(narrow: Narrow, builds: list[Body]) -> None:
    on_the_second = [build for build in builds if stamp(build["created_at"]).microsecond == 0]
    bound = middle(on_the_second, "created_at")  # in microseconds, whatever precision the service stores
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


def test_states(narrow: Narrow) -> None:
    for state in (*golden.STATES["build_filter"], *golden.HOSTED["states"]["build"]):
        seldom = state not in ("passed", "failed", "canceled")
        narrow(lambda build, state=state: matches(build, state), none=seldom, state=state)
    narrow(lambda build: build["state"] in ("failed", "canceled"), **{"state[]": ["failed", "canceled"]})


def matches(build: Body, state: str) -> bool:
    if state == "finished":
        return any(matches(build, meant) for meant in golden.STATES["finished_means"])
    return bool(build["blocked"]) if state == "blocked" else build["state"] == state


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


def test_switches_leave_a_field_out(service: Service, place: Place) -> None:
    for operation in FILTERED:
        for field in ("jobs", "pipeline"):
            without, whole = (service.get(place.path(operation), **{f"exclude_{field}": flag}) for flag in FLAGS)
            assert not any(build.get(field) for build in without.json()), (operation, field)
            assert all(build[field] for build in whole.json()), (operation, field)


FLAGS = ("true", "false")
