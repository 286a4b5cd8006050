"""Time ranges that are read by page numbers: timestamp ties, disorder, refused pages, states that alternate."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import random
from collections.abc import Iterator
from dataclasses import replace

import pytest

from buildframe.errors import (
    Forbidden,
    Incomplete,
    Invalid,
    NotFound,
    RateLimited,
    ServiceError,
    Unauthorized,
    Unavailable,
)
from buildframe.fetching.listing_state import ListingState, PageQuery
from buildframe.fetching.numbered_pagination import MAX_READINGS, read_by_number
from buildframe.fetching.time_pagination import TimePagination
from buildframe.fetching.time_ranges import TimeRange
from buildframe.http.protocol import Page
from tests.in_memory_service import DAY, SECOND, InMemoryService, at, read, service_of


def test_a_timestamp_with_more_builds_than_a_page_is_read_from_last_to_first_page() -> None:
    for reports_pages in (True, False):
        queries: list[PageQuery] = []
        fake = service_of(-(10**9), *([0] * 45), 10**9, size=10, reports_pages=reports_pages)
        found = read(TimePagination(TimeRange()), fake.respond, queries)
        assert sorted(row.id for row in found) == sorted(build.id for build in fake.builds)
        numbers = [query.number for query in queries]
        assert [5, 4, 3, 2, 1] in [numbers[place : place + 5] for place in range(len(numbers))], reports_pages


def test_a_deletion_in_a_timestamp_tie_hides_nothing() -> None:
    fake = service_of(-(10**9), *([0] * 45), 10**9, size=10)
    removed = []

    def shrinking(query: PageQuery) -> Page | Invalid:
        page = fake.respond(query)
        if query.number > 1 and len(removed) < 4:
            removed.append(fake.builds.pop(-2).id)
        return page

    found = {row.id for row in read(TimePagination(TimeRange()), shrinking)}
    assert len(removed) == 4
    assert found >= {build.id for build in fake.builds}


def test_a_timestamp_tie_that_is_too_deep_to_list_is_unverified() -> None:
    fake = service_of(-(10**9), *([0] * 45), 10**9, size=10, deepest=2)
    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, fake.respond)}
    [(window, why)] = pagination.state.unverified
    assert window.may_contain(at(0))
    assert not window.may_contain(at(10**9))
    assert "refuses to list them by page numbers (Listing builds this deep is not supported.)" in why
    assert {"b1", "b47"} <= found


def test_the_allowed_pages_of_a_timestamp_tie_are_read() -> None:
    for kind, status in [(Invalid, 400), (Forbidden, 403), (NotFound, 404), (ServiceError, 416)]:
        fake, refusal = service_of(-(10**9), *([0] * 45), 10**9, size=10), kind(status, "too deep")
        pagination = TimePagination(TimeRange())
        respond = fake.respond
        found = read(pagination, lambda query, no=refusal, ok=respond: no if query.number > 3 else ok(query))
        assert len(found) == 2 + 30, kind
        [(_, why)] = pagination.state.unverified
        assert "too deep" in why


def test_other_errors_of_a_deep_page_end_the_listing() -> None:
    for error in (Unauthorized(401, "revoked"), RateLimited(429, "over it"), Unavailable(500, "down")):
        fake = service_of(-(10**9), *([0] * 45), 10**9, size=10)
        respond = fake.respond
        with pytest.raises(type(error)):
            read(TimePagination(TimeRange()), lambda query, no=error, ok=respond: no if query.number > 1 else ok(query))


def test_a_refused_time_range_raises_an_error() -> None:
    fake = service_of(-(10**9), *([0] * 45), 10**9, size=10)

    def respond(query: PageQuery) -> Page | ServiceError:
        is_tie = query.range.start is not None and query.number == 1
        return Forbidden(403, "no") if is_tie else fake.respond(query)

    with pytest.raises(Forbidden):
        read(TimePagination(TimeRange()), respond)


def test_the_time_range_of_a_page_out_of_order_is_read_by_page_numbers() -> None:
    order = [0, 9 * DAY, 3 * DAY, 8 * DAY, 2 * DAY, 7 * DAY, 1 * DAY, 6 * DAY, 5 * DAY, 4 * DAY, 10 * DAY]
    pagination = TimePagination(TimeRange())
    fake = service_of(*order, size=3)
    found = {row.id for row in read(pagination, fake.respond)}
    assert found == {build.id for build in fake.builds}
    assert pagination.state.unverified == []


def test_a_time_range_that_changes_in_each_reading_is_unverified() -> None:
    fake = service_of(0, 9 * DAY, 3 * DAY, 8 * DAY, 2 * DAY, 10 * DAY, size=3)

    def restless(query: PageQuery) -> Page | Invalid:
        if query.number == 2:
            fake.create(0, 0).created = 5 * DAY
        return fake.respond(query)

    pagination = TimePagination(TimeRange())
    read(pagination, restless)
    assert f"its pages changed in each of {MAX_READINGS} readings" in pagination.state.unverified[0][1]


def test_builds_are_found_if_replicas_with_two_states_alternate() -> None:
    """A build is deleted, and every second of the first eight responses still contains it."""
    lost = []
    for ties, phase, deleted in itertools.product((5, 6), (0, 1), range(1, 7)):
        before, after = (service_of(0, *[DAY] * ties, 2 * DAY, size=3) for _ in range(2))
        del after.builds[deleted]
        requests = itertools.count()

        def of_two_servers(
            query: PageQuery,
            requests: Iterator[int] = requests,
            phase: int = phase,
            before: InMemoryService = before,
            after: InMemoryService = after,
        ) -> Page | Invalid:
            number = next(requests)
            return (before if number < 8 and number % 2 == phase else after).respond(query)

        pagination = TimePagination(TimeRange())
        found = {row.id for row in read(pagination, of_two_servers)}
        is_known = found >= {build.id for build in after.builds} or pagination.state.unverified
        lost += [] if is_known else [(ties, phase, deleted)]
    assert lost == []


def test_many_ties_are_complete() -> None:
    for readers, groups, ties in [(1, 16, 60), (4, 4, 120), (8, 8, 30)]:
        fake = service_of(*(day * DAY for day in range(groups) for _ in range(ties)), size=3)
        pagination = TimePagination(TimeRange())
        assert len(read(pagination, fake.respond, readers=lambda _, most=readers: most)) == groups * ties
        assert pagination.state.unverified == [], readers


@pytest.mark.parametrize(
    ("readers", "groups", "ties"), [(1, 1, 400), (16, 16, 60), pytest.param(64, 64, 36, marks=pytest.mark.long)]
)
def test_ties_that_cannot_be_read_twice_are_unverified(readers: int, groups: int, ties: int) -> None:
    """All readers share one limit of requests without new rows."""
    fake = service_of(*(day * DAY for day in range(groups) for _ in range(ties)), size=3)
    pagination = TimePagination(TimeRange())
    with contextlib.suppress(Incomplete):
        assert len(read(pagination, fake.respond, readers=lambda pages: readers)) == groups * ties
    assert pagination.state.unverified
    assert all(
        "too many to read their pages twice" in why and "workers=1" in why for _, why in pagination.state.unverified
    )


@pytest.mark.parametrize("seeds", [range(8), pytest.param(range(8, 30), marks=pytest.mark.long)], ids=["few", "many"])
def test_a_tie_that_two_replicas_list_differently_is_complete_or_unverified(seeds: range) -> None:
    """One of them still has a build that was deleted before the listing began, and sends some of the responses."""
    assert [seed for seed in seeds if not is_known_of_two_replicas(random.Random(seed))] == []


def is_known_of_two_replicas(chance: random.Random) -> bool:
    pages = chance.choice([5, 30, 60])
    stamps = [*(60 * n * SECOND for n in range(-10, 10)), *[0] * (pages * 5 - 1)]
    newer, older = (service_of(*stamps, size=5, by_stamp=True) for _ in range(2))
    older.create(0, 0).created = 0
    older.builds[-1].id = "deleted"

    def of_two_replicas(query: PageQuery) -> Page | Invalid:
        return (older if chance.random() < 0.04 else newer).respond(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, of_two_replicas)}
    return bool(pagination.state.unverified) or found >= {build.id for build in newer.builds}


def test_a_page_of_the_whole_list_is_not_taken_for_one_of_the_range() -> None:
    """A proxy ignores the times of two requests: the whole list begins with a full page of the range and its end."""
    stamps = [0, *[SECOND] * 3, *[2 * SECOND] * 4]
    fake = service_of(*stamps, size=6, by_stamp=True)
    closed = TimeRange(at(SECOND), at(2 * SECOND))
    first_pages = itertools.count(1)
    state = ListingState(TimeRange(), dt.timedelta(seconds=1), is_steady=True)
    state.page_size = fake.size
    steps = read_by_number(state, closed, may_grow=False)
    with contextlib.suppress(StopIteration):
        query = next(steps)
        while True:
            ignores_times = query.number == 1 and next(first_pages) <= 2
            page = fake.respond(query._replace(range=TimeRange()) if ignores_times else query)
            assert isinstance(page, Page)
            query = steps.send(state.accept(query, page))
    assert state.found_before(at(2 * SECOND)) == 3


def test_full_pages_of_bursts_take_few_requests() -> None:
    """Ten bursts of exactly a page, without `Link` headers: each is read by time, forward and backward."""
    fake = service_of(*(3600 * hour * SECOND for hour in range(10) for _ in range(100)), size=100, by_stamp=True)

    def without_links(query: PageQuery) -> Page | Invalid:
        page = fake.respond(query)
        is_full = isinstance(page, Page) and len(page.rows) == fake.size
        return replace(page, next=None, of=None, open=is_full) if isinstance(page, Page) else page

    for readers in (1, 4):
        pagination = TimePagination(TimeRange())
        assert len(read(pagination, without_links, readers=lambda _, most=readers: most)) == 1000
        assert pagination.state.unverified == []
        assert pagination.state.requests <= 65, readers


def test_a_list_that_gets_shorter_is_complete_if_pages_after_the_last_are_refused() -> None:
    for at_request in range(1, 14):
        fake = service_of(0, *[DAY] * 7, 2 * DAY, size=3)

        def refusing(
            query: PageQuery,
            fake: InMemoryService = fake,
            requests: Iterator[int] = itertools.count(),  # noqa: B008
            at_request: int = at_request,
        ) -> Page | Invalid:
            if next(requests) == at_request:
                del fake.builds[1]
            size = 1 if query.only_count else fake.size
            is_beyond = query.number > 1 and (query.number - 1) * size >= len(fake.list(query.range))
            return Invalid(404, "Not found") if is_beyond else fake.respond(query)

        pagination = TimePagination(TimeRange())
        found = {row.id for row in read(pagination, refusing)}
        assert found >= {build.id for build in fake.builds}, at_request
        assert pagination.state.unverified == [], at_request


def test_a_listing_ends_while_builds_arrive_at_the_newest_timestamp() -> None:
    for every in (5, 6, 8, 12):
        fake = service_of(*[0] * 7, size=3)

        def growing(
            query: PageQuery,
            fake: InMemoryService = fake,
            requests: Iterator[int] = itertools.count(1),  # noqa: B008
            every: int = every,
        ) -> Page | Invalid:
            if next(requests) % every == 0:
                fake.create(0, 0).created = 0
            return fake.respond(query)

        pagination = TimePagination(TimeRange())
        assert len(read(pagination, growing)) >= 7
        assert pagination.state.unverified == [], every
