"""Pagination of lists in memory: time ranges, disorder, timestamp ties and links."""

from __future__ import annotations

import contextlib
import datetime as dt
import itertools
import random
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe.errors import (
    Forbidden,
    Incomplete,
    Invalid,
    Malformed,
    NotFound,
    RateLimited,
    ServiceError,
    Unauthorized,
    Unavailable,
)
from buildframe.fetching.link_pagination import LinkPagination
from buildframe.fetching.listing_state import ListingState, PageQuery
from buildframe.fetching.numbered_pagination import MAX_READINGS, read_by_number
from buildframe.fetching.time_pagination import TimePagination
from buildframe.fetching.time_ranges import TimeRange, merge_ranges
from buildframe.http.protocol import Page
from buildframe.spec import Moment
from tests.in_memory_service import SECOND, T0, InMemoryService, at

DAY = 86_400 * SECOND
REFUSALS = [(Invalid, 400), (Forbidden, 403), (NotFound, 404), (ServiceError, 416)]


def row(id: str, us: int) -> SimpleNamespace:
    return SimpleNamespace(id=id, created_at=at(us).text())


def service(*created: int, size: int = 10, **settings: bool | int) -> InMemoryService:
    made = InMemoryService(size=size, **settings)
    for stamp in created:
        made.create(0, 0).created = stamp
    made.clock = max(created, default=0) + SECOND
    return made


def read(
    pagination: TimePagination,
    respond: Callable[[PageQuery], Page | ServiceError],
    queries: list[PageQuery] | None = None,
    readers: Callable[[float | None], int] = lambda pages: 1,
) -> list[SimpleNamespace]:
    """Return the rows that a pagination finds with one reader, or with several that take turns."""
    found, under_way = [], []
    while True:
        while (reader := pagination.start(readers(pagination.pages_left))) is not None:
            if reader.query is None:  # nothing can lie in its window
                pagination.end(reader)
            else:
                under_way.append(reader)
        if not under_way:
            return found
        reader = under_way.pop(0)
        if queries is not None:
            queries.append(reader.query)
        page = respond(reader.query)
        if isinstance(page, ServiceError):
            reader.refuse(page)
        else:
            found += reader.take(page).rows
        if reader.query is None:
            pagination.end(reader)
        else:
            under_way.append(reader)


def test_a_list_in_order_is_read_by_first_pages_and_one_count() -> None:
    queries: list[PageQuery] = []
    made = service(*range(0, 1000 * 10 * SECOND, 10 * SECOND), size=100)
    found = read(TimePagination(TimeRange()), made.respond, queries)
    assert [row.id for row in found] == [f"b{n}" for n in range(1000, 0, -1)]
    assert [query.only_count for query in queries] == [False] * 11 + [True]
    assert {query.number for query in queries} == {1}


def test_builds_that_arrive_between_pages_are_not_listed() -> None:
    made = service(*range(0, 1000 * 10 * SECOND, 10 * SECOND), size=100)

    def busy(query: PageQuery) -> Page | Invalid:
        page = made.respond(query)
        for _ in range(200):
            made.create(SECOND, 0)
        return page

    found = read(TimePagination(TimeRange()), busy)
    assert [row.id for row in found] == [f"b{n}" for n in range(1000, 0, -1)]


@given(st.lists(st.integers(0, 4000), max_size=60), st.integers(1, 12), st.integers(0, 3000), st.integers(1, 3000))
def test_a_time_range_contains_exactly_its_builds(seconds: list[int], size: int, start: int, length: int) -> None:
    made = service(*(second * SECOND for second in sorted(seconds)), size=size)
    window = TimeRange(at(start * SECOND), at((start + length) * SECOND))
    found = read(TimePagination(window), made.respond, readers=lambda pages: 3)
    assert sorted(row.id for row in found) == sorted(build.id for build in made.list(window))


def test_idle_readers_read_parts_of_a_time_range() -> None:
    queries: list[PageQuery] = []
    made = service(*range(0, 3000 * 60 * SECOND, 60 * SECOND), size=100)
    found = read(TimePagination(TimeRange()), made.respond, queries, lambda pages: 4)
    assert {row.id for row in found} == {build.id for build in made.builds}
    assert len(found) == 3000
    assert len(queries) <= 35
    assert (
        len([query for query in queries if query.range.start is None]) < len(queries) / 2
    )  # only the oldest part has no start


def test_a_time_range_is_not_split_if_one_reader_is_enough() -> None:
    queries: list[PageQuery] = []
    made = service(*range(0, 3000 * 60 * SECOND, 60 * SECOND), size=100)
    read(
        TimePagination(TimeRange()),
        made.respond,
        queries,
        lambda pages: 4 if pages is not None and pages < 10 else 1,
    )
    assert [query.range.start for query in queries[:20]] == [None] * 20
    assert any(query.range.start for query in queries[20:])


@pytest.mark.parametrize("reports_pages", [True, False])
def test_a_timestamp_with_more_builds_than_a_page_is_read_from_last_to_first_page(reports_pages: bool) -> None:
    queries: list[PageQuery] = []
    made = service(-(10**9), *([0] * 45), 10**9, size=10, reports_pages=reports_pages)
    found = read(TimePagination(TimeRange()), made.respond, queries)
    assert sorted(row.id for row in found) == sorted(build.id for build in made.builds)
    numbers = [query.number for query in queries]
    assert [5, 4, 3, 2, 1] in [numbers[place : place + 5] for place in range(len(numbers))]


def test_a_deletion_in_a_timestamp_tie_hides_nothing() -> None:
    made = service(-(10**9), *([0] * 45), 10**9, size=10)
    removed = []

    def shrinking(query: PageQuery) -> Page | Invalid:
        page = made.respond(query)
        if query.number > 1 and len(removed) < 4:
            removed.append(made.builds.pop(-2).id)
        return page

    found = {row.id for row in read(TimePagination(TimeRange()), shrinking)}
    assert len(removed) == 4
    assert found >= {build.id for build in made.builds}


def test_a_timestamp_tie_that_is_too_deep_to_list_is_unverified() -> None:
    made = service(-(10**9), *([0] * 45), 10**9, size=10, deepest=2)
    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, made.respond)}
    [(window, why)] = pagination.unverified
    assert window.may_contain(at(0))
    assert not window.may_contain(at(10**9))
    assert "refuses to list them by page numbers (Listing builds this deep is not supported.)" in why
    assert {"b1", "b47"} <= found


@pytest.mark.parametrize(
    "refusal",
    [Invalid(400, "too deep"), Forbidden(403, "too deep"), NotFound(404, "too deep"), ServiceError(416, "too deep")],
    ids=type,
)
def test_the_allowed_pages_of_a_timestamp_tie_are_read(refusal: ServiceError) -> None:
    made = service(-(10**9), *([0] * 45), 10**9, size=10)
    pagination = TimePagination(TimeRange())
    found = read(pagination, lambda query: refusal if query.number > 3 else made.respond(query))
    assert len(found) == 2 + 30
    [(_, why)] = pagination.unverified
    assert "too deep" in why


@pytest.mark.parametrize(
    "error", [Unauthorized(401, "revoked"), RateLimited(429, "over it"), Unavailable(500, "down")], ids=type
)
def test_other_errors_of_a_deep_page_end_the_listing(error: ServiceError) -> None:
    made = service(-(10**9), *([0] * 45), 10**9, size=10)
    with pytest.raises(type(error)):
        read(TimePagination(TimeRange()), lambda query: error if query.number > 1 else made.respond(query))


def test_a_refused_time_range_raises_an_error() -> None:
    made = service(-(10**9), *([0] * 45), 10**9, size=10)

    def respond(query: PageQuery) -> Page | ServiceError:
        is_tie = query.range.start is not None and query.number == 1
        return Forbidden(403, "no") if is_tie else made.respond(query)

    with pytest.raises(Forbidden):
        read(TimePagination(TimeRange()), respond)


def test_the_time_range_of_a_page_out_of_order_is_read_by_page_numbers() -> None:
    order = [0, 9 * DAY, 3 * DAY, 8 * DAY, 2 * DAY, 7 * DAY, 1 * DAY, 6 * DAY, 5 * DAY, 4 * DAY, 10 * DAY]
    pagination = TimePagination(TimeRange())
    made = service(*order, size=3)
    found = {row.id for row in read(pagination, made.respond)}
    assert found == {build.id for build in made.builds}
    assert pagination.unverified == []


def test_a_time_range_that_changes_in_each_reading_is_unverified() -> None:
    made = service(0, 9 * DAY, 3 * DAY, 8 * DAY, 2 * DAY, 10 * DAY, size=3)

    def restless(query: PageQuery) -> Page | Invalid:
        if query.number == 2:
            made.create(0, 0).created = 5 * DAY
        return made.respond(query)

    pagination = TimePagination(TimeRange())
    read(pagination, restless)
    assert f"its pages changed in each of {MAX_READINGS} readings" in pagination.unverified[0][1]


@pytest.mark.parametrize("steady", [True, False])
@pytest.mark.parametrize("reports_pages", [True, False])
def test_builds_that_no_page_contained_are_counted_and_read(steady: bool, reports_pages: bool) -> None:
    """A page ends with an old timestamp, so the builds in between are skipped and in no response."""
    made = service(
        *(n * DAY for n in range(1, 60)), -100 * DAY, 60 * DAY, 61 * DAY, size=3, reports_pages=reports_pages
    )
    pagination = TimePagination(TimeRange(), is_steady=steady)
    queries: list[PageQuery] = []
    found = read(pagination, made.respond, queries)
    assert sorted(row.id for row in found) == sorted(build.id for build in made.builds)
    assert pagination.unverified == []
    assert not pagination.is_uncounted
    assert len(queries) < 80


def test_a_changing_list_in_order_takes_one_more_request() -> None:
    queries: list[PageQuery] = []
    read(TimePagination(TimeRange(), is_steady=False), service(*range(0, 50 * DAY, DAY), size=10).respond, queries)
    assert [query.only_count for query in queries] == [False] * 6 + [True]


def test_builds_that_begin_to_match_are_found_by_counts() -> None:
    """If the number differs, each half of the list is counted until the builds are found."""
    made, queries = service(*range(0, 500 * DAY, DAY), size=10), []
    made.builds[100].matches = made.builds[101].matches = False

    def respond(query: PageQuery) -> Page | Invalid:
        made.builds[100].matches = made.builds[101].matches = query.only_count or len(queries) > 51
        return made.respond(query)

    pagination = TimePagination(TimeRange(), is_steady=False)
    assert len(read(pagination, respond, queries)) == 500
    assert pagination.unverified == []
    assert len(queries) < 51 + 25


def test_a_time_range_that_cannot_be_counted_again_is_unverified() -> None:
    """The first count exceeds the builds found, and the service refuses further counts."""
    made, counts = service(*(n * DAY for n in range(1, 8)), -100 * DAY, 8 * DAY, 9 * DAY, size=3), []

    def respond(query: PageQuery) -> Page | ServiceError:
        counts.append(query.only_count)
        return Forbidden(403, "no") if query.only_count and sum(counts) > 1 else made.respond(query)

    pagination = TimePagination(TimeRange())
    read(pagination, respond)
    assert "counted 9 builds, its pages contained another number" in pagination.unverified[0][1]


def test_deletions_alone_leave_no_range_unverified() -> None:
    made = service(*range(0, 50 * DAY, DAY), size=5)

    def dying(query: PageQuery) -> Page | Invalid:
        page = made.respond(query)
        if not query.only_count:
            del made.builds[:4]
        return page

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, dying)) < 45
    assert pagination.unverified == []


def test_a_build_hidden_by_a_response_of_an_older_state_is_found() -> None:
    """A build is deleted, so the next one moves up a page, which two responses of the older state hide."""
    before, after = (service(*[0] * 8, DAY, size=3) for _ in range(2))
    del after.builds[5]  # the third that is listed
    first_pages = itertools.count(1)

    def of_two_states(query: PageQuery) -> Page | Invalid:
        is_old = not query.only_count and query.number == 1 and next(first_pages) <= 2
        return (before if is_old else after).respond(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, of_two_states)}
    assert found >= {build.id for build in after.builds}
    assert pagination.unverified == []


@pytest.mark.parametrize("deleted", range(1, 7))
@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("ties", [5, 6])
def test_builds_are_found_if_replicas_with_two_states_alternate(ties: int, phase: int, deleted: int) -> None:
    """A build is deleted, and every second of the first eight responses still contains it."""
    before, after = (service(0, *[DAY] * ties, 2 * DAY, size=3) for _ in range(2))
    del after.builds[deleted]
    requests = itertools.count()

    def of_two_servers(query: PageQuery) -> Page | Invalid:
        number = next(requests)
        return (before if number < 8 and number % 2 == phase else after).respond(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, of_two_servers)}
    assert found >= {build.id for build in after.builds} or pagination.unverified


@pytest.mark.parametrize(("readers", "groups", "ties"), [(1, 16, 60), (4, 4, 120), (8, 8, 30)])
def test_many_ties_are_complete(readers: int, groups: int, ties: int) -> None:
    made = service(*(day * DAY for day in range(groups) for _ in range(ties)), size=3)
    pagination = TimePagination(TimeRange())
    assert len(read(pagination, made.respond, readers=lambda pages: readers)) == groups * ties
    assert pagination.unverified == []


@pytest.mark.parametrize(("readers", "groups", "ties"), [(1, 1, 400), (16, 16, 60), (64, 64, 36)])
def test_ties_that_cannot_be_read_twice_are_unverified(readers: int, groups: int, ties: int) -> None:
    """All readers share one limit of requests without new rows."""
    made = service(*(day * DAY for day in range(groups) for _ in range(ties)), size=3)
    pagination = TimePagination(TimeRange())
    with contextlib.suppress(Incomplete):
        assert len(read(pagination, made.respond, readers=lambda pages: readers)) == groups * ties
    assert pagination.unverified
    assert all("too many to read their pages twice" in why and "workers=1" in why for _, why in pagination.unverified)


@pytest.mark.parametrize("seed", range(30))
def test_a_tie_that_two_replicas_list_differently_is_complete_or_unverified(seed: int) -> None:
    """One of them still has a build that was deleted before the listing began, and sends some of the responses."""
    chance = random.Random(seed)
    pages = chance.choice([5, 30, 60])
    stamps = [*(60 * n * SECOND for n in range(-10, 10)), *[0] * (pages * 5 - 1)]
    newer, older = (service(*stamps, size=5, by_stamp=True) for _ in range(2))
    older.create(0, 0).created = 0
    older.builds[-1].id = "deleted"

    def of_two_replicas(query: PageQuery) -> Page | Invalid:
        return (older if chance.random() < 0.04 else newer).respond(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, of_two_replicas)}
    assert pagination.unverified or found >= {build.id for build in newer.builds}


def test_a_page_of_the_whole_list_is_not_taken_for_one_of_the_range() -> None:
    """A proxy ignores the times of two requests: the whole list begins with a full page of the range and its end."""
    stamps = [0, *[SECOND] * 3, *[2 * SECOND] * 4]
    made = service(*stamps, size=6, by_stamp=True)
    closed = TimeRange(at(SECOND), at(2 * SECOND))
    first_pages = itertools.count(1)
    state = ListingState(TimeRange(), dt.timedelta(seconds=1), is_steady=True)
    state.page_size = made.size
    steps = read_by_number(state, closed, may_grow=False)
    with contextlib.suppress(StopIteration):
        query = next(steps)
        while True:
            ignores_times = query.number == 1 and next(first_pages) <= 2
            page = made.respond(query._replace(range=TimeRange()) if ignores_times else query)
            assert isinstance(page, Page)
            query = steps.send(state.accept(query, page))
    assert state.found_before(at(2 * SECOND)) == 3


@pytest.mark.parametrize("readers", [1, 4])
def test_full_pages_of_bursts_take_few_requests(readers: int) -> None:
    """Ten bursts of exactly a page, without `Link` headers: each is read by time, forward and backward."""
    made = service(*(3600 * hour * SECOND for hour in range(10) for _ in range(100)), size=100, by_stamp=True)

    def without_links(query: PageQuery) -> Page | Invalid:
        page = made.respond(query)
        is_full = isinstance(page, Page) and len(page.rows) == made.size
        return replace(page, next=None, of=None, open=is_full) if isinstance(page, Page) else page

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, without_links, readers=lambda pages: readers)) == 1000
    assert pagination.unverified == []
    assert pagination.requests <= 65


@pytest.mark.parametrize("at_request", range(1, 14))
def test_a_list_that_gets_shorter_is_complete_if_pages_after_the_last_are_refused(at_request: int) -> None:
    made = service(0, *[DAY] * 7, 2 * DAY, size=3)
    requests = itertools.count()

    def refusing(query: PageQuery) -> Page | Invalid:
        if next(requests) == at_request:
            del made.builds[1]
        size = 1 if query.only_count else made.size
        is_beyond = query.number > 1 and (query.number - 1) * size >= len(made.list(query.range))
        return Invalid(404, "Not found") if is_beyond else made.respond(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, refusing)}
    assert found >= {build.id for build in made.builds}
    assert pagination.unverified == []


@pytest.mark.parametrize("every", [5, 6, 8, 12])
def test_a_listing_ends_while_builds_arrive_at_the_newest_timestamp(every: int) -> None:
    made = service(*[0] * 7, size=3)
    requests = itertools.count(1)

    def growing(query: PageQuery) -> Page | Invalid:
        if next(requests) % every == 0:
            made.create(0, 0).created = 0
        return made.respond(query)

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, growing)) >= 7
    assert pagination.unverified == []


def test_a_count_that_is_a_lower_bound_leaves_no_range_unverified() -> None:
    newest = (60 * DAY - gap * SECOND for gap in (5, 10, 0))
    made = service(*(n * DAY for n in range(1, 58)), 50 * DAY, 58 * DAY, 59 * DAY, *newest, size=3)
    counts = itertools.count(1)

    def dropping(query: PageQuery) -> Page | Invalid:
        page = made.respond(query)
        is_dropped = query.only_count and next(counts) == 2
        return replace(page, next=None, of=None, open=True) if is_dropped else page

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, dropping)) == 63
    assert pagination.unverified == []


def test_a_list_out_of_order_is_unverified_if_its_count_decreases() -> None:
    """Seven builds are on no page that was read, and seven others are deleted after they were read."""
    newest = (60 * DAY - gap * SECOND for gap in (5, 10, 0))
    made = service(*(n * DAY for n in range(1, 58)), 50 * DAY, 58 * DAY, 59 * DAY, *newest, size=3)
    counts = itertools.count(1)

    def deleting(query: PageQuery) -> Page | Invalid:
        if query.only_count and next(counts) == 2:
            del made.builds[:7]
        return made.respond(query)

    pagination = TimePagination(TimeRange())
    read(pagination, deleting)
    assert "builds and later" in pagination.unverified[0][1]


def test_a_build_after_the_end_of_the_time_range_raises_an_error() -> None:
    made = service(5 * SECOND + 1000, 3 * SECOND)
    with pytest.raises(Malformed, match="ignores a filter"):
        read(
            TimePagination(TimeRange(None, at(5 * SECOND))),
            lambda query: made.respond(query._replace(range=TimeRange())),
        )


def test_a_build_rounded_to_the_end_of_the_time_range_is_accepted() -> None:
    made = service(5 * SECOND, 3 * SECOND)
    found = read(
        TimePagination(TimeRange(None, at(5 * SECOND))), lambda query: made.respond(query._replace(range=TimeRange()))
    )
    assert len(found) == 2


def test_a_service_that_ignores_the_time_range_raises_an_error() -> None:
    made = service(*range(0, 30 * DAY, DAY))
    with pytest.raises(Malformed, match="ignores a filter"):
        read(TimePagination(TimeRange()), lambda query: made.respond(query._replace(range=TimeRange())))


def test_a_page_without_rows_that_is_not_the_last_is_refused() -> None:
    with pytest.raises(Malformed, match="empty page that links to a next one"):
        read(TimePagination(TimeRange()), lambda query: Page([], "next", T0))


def test_rows_without_id_or_creation_are_refused() -> None:
    without = SimpleNamespace(id="a", created_at=None)
    for bad, says in ((SimpleNamespace(id=None, created_at=T0.text()), "`id`"), (without, "`created_at`")):
        with pytest.raises(Malformed, match=says):
            read(TimePagination(TimeRange()), lambda query, bad=bad: Page([bad], None, T0))


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"])
def test_impossible_timestamps_are_refused(created: str) -> None:
    bad = SimpleNamespace(id="a", created_at=created)
    with pytest.raises(Malformed, match="impossible"):
        read(TimePagination(TimeRange()), lambda query: Page([bad], None, T0))


def test_a_list_with_few_recent_and_many_old_builds_is_complete() -> None:
    past = range(-20_000 * DAY, -20_000 * DAY + 3000 * SECOND, SECOND)
    made = service(*past, *range(-19_000 * DAY, 0, 1900 * DAY), size=10)
    found = read(TimePagination(TimeRange()), made.respond, readers=lambda pages: 4)
    assert len({row.id for row in found}) == len(made.builds)


def test_the_remaining_time_ranges_are_reported() -> None:
    made = service(*range(0, 50 * DAY, DAY), size=10)
    pagination = TimePagination(TimeRange(at(5 * DAY)))
    reader = pagination.start()
    assert reader is not None
    assert pagination.remaining == [TimeRange(at(5 * DAY))]
    reader.take(made.respond(reader.query))
    assert pagination.remaining == [TimeRange(at(5 * DAY), at(40 * DAY + 2 * SECOND))]
    assert pagination.share == pytest.approx(9 / 44, abs=0.01)
    assert "read 10 rows in 1 responses, back to builds created at 2026-11-10" in pagination.progress()


@pytest.mark.parametrize("start", [None, 0])
def test_the_share_grows_to_one(start: int | None) -> None:
    made = service(*range(0, 50 * DAY, DAY), size=10)
    pagination = TimePagination(TimeRange(None if start is None else at(start)))
    shares = []

    def noting(query: PageQuery) -> Page | Invalid:
        shares.append(pagination.share)
        return made.respond(query)

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


# --- links ------------------------------------------------------------------------------------------------------------


def pages_by_links(pagination: LinkPagination, first: Page, others: dict[str, Page]) -> list[Page]:
    pages = []
    while (reference := pagination.next) is not None:
        pages.append(pagination.take(first if reference.link is None else others[reference.link]))
    return pages


def test_links_in_a_circle_raise_an_error() -> None:
    page, pagination = Page([row("a", 0)], "again", T0), LinkPagination()
    with pytest.raises(Incomplete, match="circle"):
        pages_by_links(pagination, page, {"again": page})
    assert "had read 1 rows in 2 responses" in pagination.progress()


def test_pagination_by_links_drops_repeated_rows() -> None:
    others = {"2": Page([row("b", 0), row("c", 0)], None, T0)}
    pagination = LinkPagination()
    pages = pages_by_links(pagination, Page([row("a", 0), row("b", 0)], "2", T0), others)
    assert [row.id for page in pages for row in page.rows] == ["a", "b", "c"]
    assert (pagination.rows, pagination.requests) == (3, 2)


def test_the_share_of_a_pagination_by_links_is_that_of_its_pages() -> None:
    pagination = LinkPagination()
    pagination.take(Page([row("a", 0), row("b", 0)], "2", T0, of=2))
    assert pagination.share == 0.5
    pagination.take(Page([row("c", 0)], None, T0, of=2))
    assert pagination.share == 1.0
