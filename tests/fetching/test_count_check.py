"""Counts of the service: builds that no page contained are found, or the result says that they may be missing."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from buildframe.errors import (
    Forbidden,
    Invalid,
    ServiceError,
)
from buildframe.fetching.listing_state import PageQuery
from buildframe.fetching.time_pagination import TimePagination
from buildframe.fetching.time_ranges import TimeRange
from buildframe.http.protocol import Page
from tests.in_memory_service import DAY, SECOND, read, service_of


@pytest.mark.parametrize("steady", [True, False])
@pytest.mark.parametrize("reports_pages", [True, False])
def test_builds_that_no_page_contained_are_counted_and_read(steady: bool, reports_pages: bool) -> None:
    """A page ends with an old timestamp, so the builds in between are skipped and in no response."""
    fake = service_of(
        *(n * DAY for n in range(1, 60)), -100 * DAY, 60 * DAY, 61 * DAY, size=3, reports_pages=reports_pages
    )
    pagination = TimePagination(TimeRange(), is_steady=steady)
    queries: list[PageQuery] = []
    found = read(pagination, fake.respond, queries)
    assert sorted(row.id for row in found) == sorted(build.id for build in fake.builds)
    assert pagination.state.unverified == []
    assert not pagination.check.is_uncounted
    assert len(queries) < 80


def test_a_changing_list_in_order_takes_one_more_request() -> None:
    queries: list[PageQuery] = []
    read(TimePagination(TimeRange(), is_steady=False), service_of(*range(0, 50 * DAY, DAY), size=10).respond, queries)
    assert [query.only_count for query in queries] == [False] * 6 + [True]


def test_builds_that_begin_to_match_are_found_by_counts() -> None:
    """If the number differs, each half of the list is counted until the builds are found."""
    fake, queries = service_of(*range(0, 500 * DAY, DAY), size=10), []
    fake.builds[100].matches = fake.builds[101].matches = False

    def respond(query: PageQuery) -> Page | Invalid:
        fake.builds[100].matches = fake.builds[101].matches = query.only_count or len(queries) > 51
        return fake.respond(query)

    pagination = TimePagination(TimeRange(), is_steady=False)
    assert len(read(pagination, respond, queries)) == 500
    assert pagination.state.unverified == []
    assert len(queries) < 51 + 25


@pytest.mark.parametrize(("only_grows", "most_counts"), [(True, 1), (False, 1_000)])
def test_a_list_that_only_grows_is_counted_when_it_begins(only_grows: bool, most_counts: int) -> None:
    """Builds that begin to match while others are read would make a later count differ in all parts of the list."""
    fake, queries = service_of(*range(0, 500 * DAY, DAY), size=10), []
    late = fake.builds[::5]
    for build in late:
        build.matches = False
    waiting = late[::2] + late[1::2]

    def respond(query: PageQuery) -> Page | Invalid:
        for build in waiting[:2]:
            build.matches = True
        del waiting[:2]
        return fake.respond(query)

    pagination = TimePagination(TimeRange(), is_steady=False, only_grows=only_grows)
    found = {row.id for row in read(pagination, respond, queries)}
    assert found >= {build.id for build in fake.builds} - {build.id for build in late}
    assert pagination.state.unverified == []
    counts = sum(query.only_count for query in queries)
    assert counts <= most_counts
    assert only_grows or counts > 10


def test_a_build_that_is_missing_from_a_growing_list_is_found_by_counts() -> None:
    fake, queries = service_of(*range(0, 500 * DAY, DAY), size=10), []

    def respond(query: PageQuery) -> Page | Invalid:
        fake.builds[100].matches = query.only_count or len(queries) > 53
        return fake.respond(query)

    pagination = TimePagination(TimeRange(), is_steady=False, only_grows=True)
    assert len(read(pagination, respond, queries)) == 500
    assert pagination.state.unverified == []


def test_a_time_range_that_cannot_be_counted_again_is_unverified() -> None:
    """The first count exceeds the builds found, and the service refuses further counts."""
    fake, counts = service_of(*(n * DAY for n in range(1, 8)), -100 * DAY, 8 * DAY, 9 * DAY, size=3), []

    def respond(query: PageQuery) -> Page | ServiceError:
        counts.append(query.only_count)
        return Forbidden(403, "no") if query.only_count and sum(counts) > 1 else fake.respond(query)

    pagination = TimePagination(TimeRange())
    read(pagination, respond)
    assert "counted 9 builds, its pages contained another number" in pagination.state.unverified[0][1]


def test_deletions_alone_leave_no_range_unverified() -> None:
    fake = service_of(*range(0, 50 * DAY, DAY), size=5)

    def dying(query: PageQuery) -> Page | Invalid:
        page = fake.respond(query)
        if not query.only_count:
            del fake.builds[:4]
        return page

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, dying)) < 45
    assert pagination.state.unverified == []


def test_a_build_hidden_by_a_response_of_an_older_state_is_found() -> None:
    """A build is deleted, so the next one moves up a page, which two responses of the older state hide."""
    before, after = (service_of(*[0] * 8, DAY, size=3) for _ in range(2))
    del after.builds[5]  # the third that is listed
    first_pages = itertools.count(1)

    def of_two_states(query: PageQuery) -> Page | Invalid:
        is_old = not query.only_count and query.number == 1 and next(first_pages) <= 2
        return (before if is_old else after).respond(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, of_two_states)}
    assert found >= {build.id for build in after.builds}
    assert pagination.state.unverified == []


def test_a_count_that_is_a_lower_bound_leaves_no_range_unverified() -> None:
    newest = (60 * DAY - gap * SECOND for gap in (5, 10, 0))
    fake = service_of(*(n * DAY for n in range(1, 58)), 50 * DAY, 58 * DAY, 59 * DAY, *newest, size=3)
    counts = itertools.count(1)

    def dropping(query: PageQuery) -> Page | Invalid:
        page = fake.respond(query)
        is_dropped = query.only_count and next(counts) == 2
        return replace(page, next=None, of=None, open=True) if is_dropped else page

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, dropping)) == 63
    assert pagination.state.unverified == []


def test_a_list_out_of_order_is_unverified_if_its_count_decreases() -> None:
    """Seven builds are on no page that was read, and seven others are deleted after they were read."""
    newest = (60 * DAY - gap * SECOND for gap in (5, 10, 0))
    fake = service_of(*(n * DAY for n in range(1, 58)), 50 * DAY, 58 * DAY, 59 * DAY, *newest, size=3)
    counts = itertools.count(1)

    def deleting(query: PageQuery) -> Page | Invalid:
        if query.only_count and next(counts) == 2:
            del fake.builds[:7]
        return fake.respond(query)

    pagination = TimePagination(TimeRange())
    read(pagination, deleting)
    assert "builds and later" in pagination.state.unverified[0][1]
