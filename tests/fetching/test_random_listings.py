"""Random listings: a complete one has each build once, however the list changes, and every listing ends."""

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
from tests.conftest import says
from tests.listing import PATH, TOKEN, Listing, Responder, build, listing
from tests.random_lists import SECOND, listed, may_be_hidden
from tests.refusals import wrong_refusals

SEEDS = int(os.environ.get("LISTINGS", "1500"))
FEW = 100
"""Seeds of the first lane; the second one has the others."""


@pytest.mark.parametrize(
    "seeds", [range(FEW), pytest.param(range(FEW, SEEDS), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_complete_listings_contain_each_build_once(seeds: range) -> None:
    ends: Counter[str] = Counter()
    for seed in seeds:
        found = listed(seed)
        replay = f"listed({seed}) of tests/random_lists.py: {found.settings}"
        assert len(found.found) == len(set(found.found)), replay
        assert not found.is_complete or not found.missing - may_be_hidden(found), f"{found.missing} in {replay}"
        assert found.stalled < 100, replay
        ends["complete" if found.is_complete else "incomplete" if found.error is None else "error"] += 1
    assert ends["complete"] > 0.75 * len(seeds)
    assert ends["error"] < 0.01 * max(FEW + 1, len(seeds))


@pytest.mark.parametrize("seeds", [range(10), pytest.param(range(10, 80), marks=pytest.mark.long)], ids=["few", "many"])
@pytest.mark.parametrize("reports_pages", [True, False])
def test_ties_larger_than_a_page_in_changing_order_are_read_completely(reports_pages: bool, seeds: range) -> None:
    """Pages of one reading repeat some rows and lack others; readings go on until all are there."""
    for seed in seeds:
        found = listed(
            seed, size=10, builds=45, ties=0.98, jitter=0, grain=1, sorts_by=1, reports_pages=reports_pages, drops=0.0,
            deepest=10**9, arrivals=0.0, deletions=0.0,
        )  # fmt: skip
        assert not found.missing, seed
        assert found.is_complete, (seed, found.pagination.state.unverified)


def test_a_list_in_order_is_complete() -> None:
    for seed in range(20):
        found = listed(
            seed, size=10, builds=59, ties=0.0, jitter=0, grain=1000, sorts_by=None, reports_pages=True, drops=0.0,
            workers=1, arrivals=0.0, deletions=0.0, deepest=10**9,
        )  # fmt: skip
        assert found.is_complete, seed
        assert found.steps_back < SECOND


# --- over HTTP --------------------------------------------------------------------------------------------------------


class Restless(Listing):
    """Builds of one timestamp come in another order at each request; without `has_last` no link names the last page."""

    def __init__(self, builds: list[dict[str, Any]], seed: int, *, has_last: bool) -> None:
        self.chance, self.has_last = random.Random(seed), has_last
        super().__init__(builds)

    def page_of(self, query: dict[str, str]) -> Responder:
        self.chance.shuffle(self.builds)
        self.builds.sort(key=lambda each: each["created_at"], reverse=True)
        matching, every = self.builds, self.builds
        if "branch" in query:
            matching = [each for each in every if each["branch"] == query["branch"]]
        self.builds = matching
        try:
            respond = super().page_of(query)
        finally:
            self.builds = every
        if self.has_last:
            return respond

        def without_last(handler: Any) -> None:
            send = handler.send_header
            handler.send_header = lambda name, value: send(name, re.sub(r', <[^>]*>; rel="last"', "", value))
            respond(handler)

        return without_last


def with_ties(chance: random.Random) -> list[dict[str, Any]]:
    """Return builds of few timestamps, some of which have more builds than a page."""
    stamps = [at for at in range(5) for _ in range(chance.choice([1, 30, 120, 260]))]
    return [build(n, 60 * at) | {"branch": f"b{n % 4}"} for n, at in enumerate(stamps, 1)]


@pytest.mark.long
@pytest.mark.parametrize(("workers", "has_last"), [(1, True), (4, False), (4, True)])
def test_listings_over_http_are_complete(workers: int, has_last: bool) -> None:
    for seed in range(2):
        service = Restless(with_ties(random.Random(seed)), seed, has_last=has_last)
        try:
            frame = service.connected().builds(workers=workers, columns=["id", "number"])
        finally:
            service.stop()
        assert frame["id"].is_unique, seed
        assert sorted(frame["number"]) == list(range(1, len(service.builds) + 1)), seed
        assert frame.attrs["complete"], seed


def test_the_advice_on_refused_pages_leads_to_complete_listings() -> None:
    """Deep pages are refused, so a timestamp with more builds than a page is incomplete; by branch it is whole."""
    service = Restless([build(n, 60) | {"branch": f"b{n % 4}"} for n in range(1, 251)], 1, has_last=False)
    service.override = lambda n, query: (
        says(b'{"message":"too deep"}', 400) if int(query.get("page", "1")) > 2 else None
    )
    try:
        with pytest.warns(UserWarning, match="one pipeline or branch"):
            frame = service.connected().builds()
        assert not frame.attrs["complete"]
        assert frame.attrs["left"]
        parts = [service.connected().builds(branch=f"b{n}") for n in range(4)]
    finally:
        service.stop()
    assert all(part.attrs["complete"] for part in parts)
    assert sorted(number for part in parts for number in part["number"]) == list(range(1, 251))


# --- every listing ends -----------------------------------------------------------------------------------------------


def linked(rows: list[dict[str, Any]], url: str, **pages: int) -> Responder:
    """Return a page of these rows with links to these pages."""
    links = ", ".join(f'<{url}{PATH}?page={number}>; rel="{rel}"' for rel, number in pages.items())
    return says(as_json(rows), Link=links)


def as_json(rows: list[dict[str, Any]]) -> bytes:
    return json.dumps(rows).encode()


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("order", [1, -1], ids=["out of order", "in order"])
def test_a_listing_of_equal_pages_with_next_links_ends(workers: int, order: int) -> None:
    rows = [build(n, n) for n in range(1, 31)][::order]
    with listing([], lambda number, query: linked(rows, "", next=number + 1)) as service:
        ends_with_few_requests(service, workers, "had read 30 rows in")


@pytest.mark.parametrize("workers", [1, 4])
def test_a_listing_ends_if_the_service_ignores_page_numbers(workers: int) -> None:
    documents = [build(900, 900), *(build(n, 60) for n in range(150, 0, -1)), build(0, 0)]

    def override(number: int, query: dict[str, str]) -> Responder | None:
        query.pop("page", None)
        return None

    with listing(documents, override) as service:
        ends_with_few_requests(service, workers, "the same rows|brought nothing new")


@pytest.mark.parametrize("workers", [1, 4])
def test_a_last_link_to_a_missing_page_is_ignored(workers: int) -> None:
    """All pages name page 1,000,000,000 as the last; so does the count, and each window of the list is read again."""
    documents = [build(900, 900), *(build(n, 60) for n in range(250, 0, -1)), build(0, 0)]

    class WrongLastPage(Listing):
        def page_of(self, query: dict[str, str]) -> Responder:
            respond = super().page_of(query)

            def changed(handler: Any) -> None:
                send = handler.send_header
                said = re.compile(r'&page=\d+>; rel="last"')
                wrong = '&page=1000000000>; rel="last"'
                handler.send_header = lambda name, value: send(name, said.sub(wrong, value))
                respond(handler)

            return changed

    service = WrongLastPage(documents)
    try:
        frame = service.connected().builds(workers=workers)
    finally:
        service.stop()
    assert sorted(frame["number"]) == [*range(251), 900]
    assert frame.attrs["complete"]
    assert len(service.requests) < 100


def ends_with_few_requests(service: Listing, workers: int, why: str) -> None:
    """Check that a listing raises an error or is incomplete for this reason, after few requests."""
    said = ""
    with warnings.catch_warnings(record=True):
        try:
            frame = service.connected().builds(workers=workers)
            said = frame.attrs["why"] or ""
        except bf.BuildframeError as error:
            said = "\n".join([str(error), *error.__notes__])
    assert re.search(why, said), said
    assert len(service.requests) < 110


def test_endless_lists_end_at_max_requests(scripted: Any) -> None:
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


def test_max_requests_of_other_lists_is_a_whole_number(scripted: Any) -> None:
    server = scripted(says(b"[]"))
    ws = bf.connect("acme", base_url=server.url, token=TOKEN)
    cases = [(most, "max_requests") for most in (0, -1, 1.5, True, "5")]
    assert wrong_refusals(cases, lambda most: ws.members(max_requests=most)) == {}
    assert server.requests == []


def test_a_sufficient_limit_leaves_a_list_complete(scripted: Any) -> None:
    server = scripted(says(b'[{"id":"a"}]', Link=""))
    assert bf.connect("acme", base_url=server.url, token=TOKEN).members(max_requests=1).attrs["complete"]
