"""Random listings: whatever the list does meanwhile, a complete one has each build once, and every listing ends."""

from __future__ import annotations

import json
import os
import random
import re
import warnings
from collections import Counter
from typing import Any

import pytest

import buildframe as bf
from buildframe.http.protocol import Page
from tests.conftest import says
from tests.listing import PATH, TOKEN, Answer, Listing, build, listing
from tests.random_lists import SECOND, listed, may_be_hidden

pytestmark = pytest.mark.slow

SEEDS = int(os.environ.get("LISTINGS", "1500"))


def test_complete_listings_lack_no_build_and_double_none() -> None:
    ends: Counter[str] = Counter()
    for seed in range(SEEDS):
        found = listed(seed)
        replay = f"listed({seed}) of tests/random_lists.py: {found.settings}"
        assert len(found.found) == len(set(found.found)), replay
        assert not found.is_complete or not found.missing - may_be_hidden(found), f"{found.missing} in {replay}"
        assert found.in_vain < 100, replay
        ends["complete" if found.is_complete else "incomplete" if found.error is None else "error"] += 1
    assert ends["complete"] > 0.75 * SEEDS
    assert ends["error"] < 0.01 * SEEDS


@pytest.mark.parametrize("tells", [True, False])
def test_ties_larger_than_a_page_in_another_order_each_time_are_read_whole(tells: bool) -> None:
    """Pages of one reading repeat some rows and lack others; readings go on until all are there."""
    for seed in range(80):
        found = listed(
            seed, size=10, builds=45, ties=0.98, jitter=0, grain=1, sorts_by=1, tells=tells, drops=0.0, deepest=10**9,
            arrivals=0.0, deletions=0.0,
        )  # fmt: skip
        assert not found.missing, seed
        assert found.is_complete, (seed, found.pagination.unverified)


def test_a_list_in_order_takes_no_request_more() -> None:
    """Its pages, one build of each page again, and one count."""
    for seed in range(50):
        found = listed(
            seed, size=10, builds=59, ties=0.0, jitter=0, grain=1000, sorts_by=None, tells=True, drops=0.0, workers=1,
            arrivals=0.0, deletions=0.0, deepest=10**9,
        )  # fmt: skip
        assert found.is_complete, seed
        assert found.steps_back < SECOND


# --- over HTTP --------------------------------------------------------------------------------------------------------


class Restless(Listing):
    """Builds of one timestamp come in another order at each request; without `has_last` no link names the last page."""

    def __init__(self, builds: list[dict[str, Any]], seed: int, *, has_last: bool) -> None:
        self.chance, self.has_last = random.Random(seed), has_last
        super().__init__(builds)

    def _page(self, query: dict[str, str]) -> Answer:
        self.chance.shuffle(self.builds)
        self.builds.sort(key=lambda each: each["created_at"], reverse=True)
        given, every = self.builds, self.builds
        if "branch" in query:
            given = [each for each in every if each["branch"] == query["branch"]]
        self.builds = given
        try:
            answer = super()._page(query)
        finally:
            self.builds = every
        if self.has_last:
            return answer

        def without_last(handler: Any) -> None:
            send = handler.send_header
            handler.send_header = lambda name, value: send(name, re.sub(r', <[^>]*>; rel="last"', "", value))
            answer(handler)

        return without_last


def crowded(chance: random.Random) -> list[dict[str, Any]]:
    """Builds of few timestamps, some with more of them than a page holds."""
    stamps = [at for at in range(5) for _ in range(chance.choice([1, 30, 120, 260]))]
    return [build(n, 60 * at) | {"branch": f"b{n % 4}"} for n, at in enumerate(stamps, 1)]


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("has_last", [True, False])
def test_over_http_nothing_is_lost_either(workers: int, has_last: bool) -> None:
    for seed in range(3):
        service = Restless(crowded(random.Random(seed)), seed, has_last=has_last)
        try:
            frame = service.connected().builds(workers=workers, columns=["id", "number"])
        finally:
            service.stop()
        assert frame["id"].is_unique, seed
        assert sorted(frame["number"]) == list(range(1, len(service.builds) + 1)), seed
        assert frame.attrs["complete"], seed


def test_where_pages_cannot_be_read_the_advice_helps() -> None:
    """Deep pages are refused, so a timestamp with more builds than a page is incomplete; by branch it is whole."""
    service = Restless([build(n, 60) | {"branch": f"b{n % 4}"} for n in range(1, 251)], 1, has_last=False)
    service.meddle = lambda n, query: says(b'{"message":"too deep"}', 400) if int(query.get("page", "1")) > 2 else None
    try:
        with pytest.warns(UserWarning, match="list one pipeline or branch at a time"):
            frame = service.connected().builds()
        assert not frame.attrs["complete"]
        assert frame.attrs["left"]
        parts = [service.connected().builds(branch=f"b{n}") for n in range(4)]
    finally:
        service.stop()
    assert all(part.attrs["complete"] for part in parts)
    assert sorted(number for part in parts for number in part["number"]) == list(range(1, 251))


# --- every listing ends -----------------------------------------------------------------------------------------------


def linked(rows: list[dict[str, Any]], url: str, **pages: int) -> Answer:
    """A page of these rows with links to the pages of these numbers."""
    links = ", ".join(f'<{url}{PATH}?page={number}>; rel="{rel}"' for rel, number in pages.items())
    return says(as_json(rows), Link=links)


def as_json(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps(rows).encode()


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("order", [1, -1], ids=["out of order", "in order"])
def test_a_constant_page_with_a_next_link_ends(workers: int, order: int) -> None:
    rows = [build(n, n) for n in range(1, 31)][::order]
    with listing([], lambda number, query: linked(rows, "", next=number + 1)) as service:
        ends_with_few_requests(service, workers, "had read 30 rows in")


@pytest.mark.parametrize("workers", [1, 4])
def test_an_endless_next_link_with_page_ignored_ends(workers: int) -> None:
    made = [build(900, 900), *(build(n, 60) for n in range(150, 0, -1)), build(0, 0)]

    def meddle(number: int, query: dict[str, str]) -> Answer | None:
        query.pop("page", None)
        return None

    with listing(made, meddle) as service:
        ends_with_few_requests(service, workers, "the same rows|brought nothing new")


@pytest.mark.parametrize("workers", [1, 4])
def test_a_last_page_that_is_not_there_is_not_believed(workers: int) -> None:
    """All pages name page 1,000,000,000 as the last; so does the count, and each window of the list is read again."""
    made = [build(900, 900), *(build(n, 60) for n in range(250, 0, -1)), build(0, 0)]

    class Boasting(Listing):
        def _page(self, query: dict[str, str]) -> Answer:
            answer = super()._page(query)

            def boasting(handler: Any) -> None:
                send = handler.send_header
                said = re.compile(r'&page=\d+>; rel="last"')
                boast = '&page=1000000000>; rel="last"'
                handler.send_header = lambda name, value: send(name, said.sub(boast, value))
                answer(handler)

            return boasting

    service = Boasting(made)
    try:
        frame = service.connected().builds(workers=workers)
    finally:
        service.stop()
    assert sorted(frame["number"]) == [*range(251), 900]
    assert frame.attrs["complete"]
    assert len(service.requests) < 100


def ends_with_few_requests(service: Listing, workers: int, why: str) -> None:
    """It raises an error that says how far it came, or warns and says why it is incomplete."""
    said = ""
    with warnings.catch_warnings(record=True):
        try:
            frame = service.connected().builds(workers=workers)
            said = frame.attrs["why"] or ""
        except bf.BuildframeError as error:
            said = "\n".join([str(error), *error.__notes__])
    assert re.search(why, said), said
    assert len(service.requests) < 110


def test_lists_that_always_bring_new_rows_end_at_max_requests(scripted: Any) -> None:
    served = iter(range(10**6))

    def page(handler: Any) -> None:
        number = next(served)
        rows = [{"id": f"p{number}-{n}", "slug": f"web-{number}-{n}"} for n in range(100)]
        says(as_json(rows), Link=f'</v2/organizations/acme/pipelines?page={number + 2}>; rel="next"')(handler)

    server = scripted(page)
    frame = bf.connect("acme", base_url=server.url, token=TOKEN).pipelines(max_requests=7)
    assert len(server.requests) == 7
    assert len(frame) == 700
    assert frame.attrs["why"] == "max_requests=7 is used up"
    assert (frame.attrs["complete"], frame.attrs["left"]) == (False, [{}])


@pytest.mark.parametrize("most", [0, -1, 1.5, True, "5"])
def test_max_requests_of_other_lists_is_a_whole_number(scripted: Any, most: Any) -> None:
    server = scripted(says(b"[]"))
    with pytest.raises(bf.BadInput, match="max_requests"):
        bf.connect("acme", base_url=server.url, token=TOKEN).members(max_requests=most)
    assert server.requests == []


def test_a_limit_that_suffices_leaves_a_list_complete(scripted: Any) -> None:
    server = scripted(says(b'[{"id":"a"}]', Link=""))
    assert bf.connect("acme", base_url=server.url, token=TOKEN).members(max_requests=1).attrs["complete"]


def test_a_page_says_whether_it_is_the_last() -> None:
    ends = [Page([], None, None), Page([], "2", None), Page([], None, None, open=True)]  # type: ignore[arg-type]
    assert [page.is_last for page in ends] == [True, False, False]
