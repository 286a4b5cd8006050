"""Pagination of lists in memory by time: time ranges, arrivals, readers that share a listing."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe.errors import (
    Incomplete,
    Invalid,
    Malformed,
)
from buildframe.fetching.listing_state import PageQuery
from buildframe.fetching.time_pagination import TimePagination
from buildframe.fetching.time_ranges import TimeRange, merge_ranges
from buildframe.http.protocol import Page
from buildframe.spec import Moment
from tests.in_memory_service import DAY, SECOND, T0, at, read, service_of


def test_a_list_in_order_is_read_by_first_pages_and_one_count() -> None:
    queries: list[PageQuery] = []
    fake = service_of(*range(0, 1000 * 10 * SECOND, 10 * SECOND), size=100)
    found = read(TimePagination(TimeRange()), fake.respond, queries)
    assert [row.id for row in found] == [f"b{n}" for n in range(1000, 0, -1)]
    assert [query.only_count for query in queries] == [False] * 11 + [True]
    assert {query.number for query in queries} == {1}


def test_builds_that_arrive_between_pages_are_not_listed() -> None:
    fake = service_of(*range(0, 1000 * 10 * SECOND, 10 * SECOND), size=100)

    def busy(query: PageQuery) -> Page | Invalid:
        page = fake.respond(query)
        for _ in range(200):
            fake.create(SECOND, 0)
        return page

    found = read(TimePagination(TimeRange()), busy)
    assert [row.id for row in found] == [f"b{n}" for n in range(1000, 0, -1)]


@given(st.lists(st.integers(0, 4000), max_size=60), st.integers(1, 12), st.integers(0, 3000), st.integers(1, 3000))
def test_a_time_range_contains_exactly_its_builds(seconds: list[int], size: int, start: int, length: int) -> None:
    fake = service_of(*(second * SECOND for second in sorted(seconds)), size=size)
    window = TimeRange(at(start * SECOND), at((start + length) * SECOND))
    found = read(TimePagination(window), fake.respond, readers=lambda pages: 3)
    assert sorted(row.id for row in found) == sorted(build.id for build in fake.list(window))


def test_idle_readers_read_parts_of_a_time_range() -> None:
    queries: list[PageQuery] = []
    fake = service_of(*range(0, 3000 * 60 * SECOND, 60 * SECOND), size=100)
    found = read(TimePagination(TimeRange()), fake.respond, queries, lambda pages: 4)
    assert {row.id for row in found} == {build.id for build in fake.builds}
    assert len(found) == 3000
    assert len(queries) <= 35
    assert (
        len([query for query in queries if query.range.start is None]) < len(queries) / 2
    )  # only the oldest part has no start


def test_a_time_range_is_not_split_if_one_reader_is_enough() -> None:
    queries: list[PageQuery] = []
    fake = service_of(*range(0, 3000 * 60 * SECOND, 60 * SECOND), size=100)
    read(
        TimePagination(TimeRange()),
        fake.respond,
        queries,
        lambda pages: 4 if pages is not None and pages < 10 else 1,
    )
    assert [query.range.start for query in queries[:20]] == [None] * 20
    assert any(query.range.start for query in queries[20:])


def test_a_build_after_the_end_of_the_time_range_raises_an_error() -> None:
    fake = service_of(5 * SECOND + 1000, 3 * SECOND)
    with pytest.raises(Malformed, match="ignores a filter"):
        read(
            TimePagination(TimeRange(None, at(5 * SECOND))),
            lambda query: fake.respond(query._replace(range=TimeRange())),
        )


def test_a_build_rounded_to_the_end_of_the_time_range_is_accepted() -> None:
    fake = service_of(5 * SECOND, 3 * SECOND)
    found = read(
        TimePagination(TimeRange(None, at(5 * SECOND))), lambda query: fake.respond(query._replace(range=TimeRange()))
    )
    assert len(found) == 2


def test_a_service_that_ignores_the_time_range_raises_an_error() -> None:
    fake = service_of(*range(0, 30 * DAY, DAY))
    with pytest.raises(Malformed, match="ignores a filter"):
        read(TimePagination(TimeRange()), lambda query: fake.respond(query._replace(range=TimeRange())))


def test_a_page_without_rows_that_is_not_the_last_is_refused() -> None:
    with pytest.raises(Malformed, match="empty page that links to a next one"):
        read(TimePagination(TimeRange()), lambda query: Page([], "next", T0))


def test_rows_without_id_are_refused() -> None:
    bad = SimpleNamespace(id=None, created_at=T0.text())
    with pytest.raises(Malformed, match="`id`"):
        read(TimePagination(TimeRange()), lambda query: Page([bad], None, T0))


def test_a_last_page_of_impossible_timestamps_is_read() -> None:
    for created in (None, "soon", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"):
        bad = SimpleNamespace(id="a", created_at=created)
        last, other = Page([bad], None, T0), Page([bad], "next", T0)
        assert read(TimePagination(TimeRange()), lambda query, page=last: page) == [bad]
        with pytest.raises(Incomplete, match="None of the"):
            read(TimePagination(TimeRange()), lambda query, page=other: page)


def test_a_list_with_few_recent_and_many_old_builds_is_complete() -> None:
    past = range(-20_000 * DAY, -20_000 * DAY + 3000 * SECOND, SECOND)
    fake = service_of(*past, *range(-19_000 * DAY, 0, 1900 * DAY), size=10)
    found = read(TimePagination(TimeRange()), fake.respond, readers=lambda pages: 4)
    assert len({row.id for row in found}) == len(fake.builds)


def test_the_remaining_time_ranges_are_reported() -> None:
    fake = service_of(*range(0, 50 * DAY, DAY), size=10)
    pagination = TimePagination(TimeRange(at(5 * DAY)))
    reader = pagination.start()
    assert reader is not None
    assert pagination.remaining == [TimeRange(at(5 * DAY))]
    reader.take(fake.respond(reader.query))
    assert pagination.remaining == [TimeRange(at(5 * DAY), at(40 * DAY + 2 * SECOND))]
    assert pagination.share == pytest.approx(9 / 44, abs=0.01)
    assert "read 10 rows in 1 responses, back to builds created at 2026-11-10" in pagination.progress()


@pytest.mark.parametrize("start", [None, 0])
def test_the_share_grows_to_one(start: int | None) -> None:
    fake = service_of(*range(0, 50 * DAY, DAY), size=10)
    pagination = TimePagination(TimeRange(None if start is None else at(start)))
    shares = []

    def noting(query: PageQuery) -> Page | Invalid:
        shares.append(pagination.share)
        return fake.respond(query)

    read(pagination, noting)
    assert shares[0] is None
    assert 0 < shares[1] < 0.4
    assert shares[1:] == sorted(shares[1:])
    assert pagination.share == 1.0


moments = st.none() | st.integers(0, 20).map(at)


@given(st.lists(st.tuples(moments, moments), max_size=6), st.integers(0, 20))
def test_merged_time_ranges_contain_the_same_times(ends: list[tuple[Moment | None, Moment | None]], us: int) -> None:
    windows = [TimeRange(*pair) for pair in ends]
    found = merge_ranges(windows)

    def lies_in(window: TimeRange) -> bool:
        return (window.start is None or at(us) >= window.start) and (window.end is None or at(us) < window.end)

    assert any(map(lies_in, windows)) == any(map(lies_in, found))
    assert not any(window.is_empty for window in found)
    for newer, older in itertools.pairwise(found):
        assert older.end < newer.start
