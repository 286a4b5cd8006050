"""Walks over lists in memory: windows, disorder, crowded instants, links. The machine has a file of its own."""

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
from tests.walked import SECOND, T0, World, at

DAY = 86_400 * SECOND
REFUSALS = [(Invalid, 400), (Forbidden, 403), (NotFound, 404), (ServiceError, 416)]


def row(id: str, us: int) -> SimpleNamespace:
    return SimpleNamespace(id=id, created_at=at(us).text())


def world(*created: int, size: int = 10, **settings: bool | int) -> World:
    made = World(size=size, **settings)
    for stamp in created:
        made.create(0, 0).created = stamp
    made.clock = max(created, default=0) + SECOND
    return made


def read(
    pagination: TimePagination,
    answer: Callable[[PageQuery], Page | ServiceError],
    asked: list[PageQuery] | None = None,
    readers: Callable[[float | None], int] = lambda pages: 1,
) -> list[SimpleNamespace]:
    """What a pagination finds by one reader, or by several that take turns."""
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
        if asked is not None:
            asked.append(reader.query)
        page = answer(reader.query)
        if isinstance(page, ServiceError):
            reader.refuse(page)
        else:
            found += reader.take(page).rows
        if reader.query is None:
            pagination.end(reader)
        else:
            under_way.append(reader)


def test_no_page_is_deep_and_none_is_asked_for_twice() -> None:
    asked: list[PageQuery] = []
    made = world(*range(0, 1000 * 10 * SECOND, 10 * SECOND), size=100)
    found = read(TimePagination(TimeRange()), made.answer, asked)
    assert [row.id for row in found] == [f"b{n}" for n in range(1000, 0, -1)]
    assert [query.only_count for query in asked] == [False] * 11 + [True]
    assert {query.number for query in asked} == {1}


def test_two_hundred_arrivals_between_any_two_pages() -> None:
    made = world(*range(0, 1000 * 10 * SECOND, 10 * SECOND), size=100)

    def busy(query: PageQuery) -> Page | Invalid:
        answer = made.answer(query)
        for _ in range(200):
            made.create(SECOND, 0)
        return answer

    found = read(TimePagination(TimeRange()), busy)
    assert [row.id for row in found] == [f"b{n}" for n in range(1000, 0, -1)]


@given(st.lists(st.integers(0, 4000), max_size=60), st.integers(1, 12), st.integers(0, 3000), st.integers(1, 3000))
def test_a_window_holds_exactly_its_builds(seconds: list[int], size: int, start: int, length: int) -> None:
    made = world(*(second * SECOND for second in sorted(seconds)), size=size)
    window = TimeRange(at(start * SECOND), at((start + length) * SECOND))
    found = read(TimePagination(window), made.answer, readers=lambda pages: 3)
    assert sorted(row.id for row in found) == sorted(build.id for build in made.list(window))


def test_the_parts_of_a_stretch_are_read_by_whoever_has_no_work() -> None:
    asked: list[PageQuery] = []
    made = world(*range(0, 3000 * 60 * SECOND, 60 * SECOND), size=100)
    found = read(TimePagination(TimeRange()), made.answer, asked, lambda pages: 4)
    assert {row.id for row in found} == {build.id for build in made.builds}
    assert len(found) == 3000
    assert len(asked) <= 35
    assert (
        len([query for query in asked if query.range.start is None]) < len(asked) / 2
    )  # only the oldest part stays open


def test_where_one_reader_is_enough_nothing_is_cut() -> None:
    asked: list[PageQuery] = []
    made = world(*range(0, 3000 * 60 * SECOND, 60 * SECOND), size=100)
    read(
        TimePagination(TimeRange()),
        made.answer,
        asked,
        lambda pages: 4 if pages is not None and pages < 10 else 1,
    )
    assert [query.range.start for query in asked[:20]] == [None] * 20
    assert any(query.range.start for query in asked[20:])


@pytest.mark.parametrize("tells", [True, False])
def test_an_instant_with_more_builds_than_a_page_is_read_from_its_last_page_to_its_first(tells: bool) -> None:
    asked: list[PageQuery] = []
    made = world(-(10**9), *([0] * 45), 10**9, size=10, tells=tells)
    found = read(TimePagination(TimeRange()), made.answer, asked)
    assert sorted(row.id for row in found) == sorted(build.id for build in made.builds)
    numbers = [query.number for query in asked]
    assert [5, 4, 3, 2, 1] in [numbers[place : place + 5] for place in range(len(numbers))]


def test_a_deletion_in_a_crowded_instant_hides_nothing() -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10)
    removed = []

    def shrinking(query: PageQuery) -> Page | Invalid:
        answer = made.answer(query)
        if query.number > 1 and len(removed) < 4:
            removed.append(made.builds.pop(-2).id)
        return answer

    found = {row.id for row in read(TimePagination(TimeRange()), shrinking)}
    assert len(removed) == 4
    assert found >= {build.id for build in made.builds}


def test_a_crowded_instant_that_is_too_deep_to_list_makes_the_walk_doubtful() -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10, deepest=2)
    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, made.answer)}
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
def test_of_a_crowded_instant_the_pages_that_the_service_allows_are_read(refusal: ServiceError) -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10)
    pagination = TimePagination(TimeRange())
    found = read(pagination, lambda query: refusal if query.number > 3 else made.answer(query))
    assert len(found) == 2 + 30
    [(_, why)] = pagination.unverified
    assert "too deep" in why


@pytest.mark.parametrize(
    "error", [Unauthorized(401, "revoked"), RateLimited(429, "over it"), Unavailable(500, "down")], ids=type
)
def test_other_errors_of_a_deep_page_end_the_walk(error: ServiceError) -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10)
    with pytest.raises(type(error)):
        read(TimePagination(TimeRange()), lambda query: error if query.number > 1 else made.answer(query))


def test_a_refused_window_is_no_refused_page() -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10)

    def answer(query: PageQuery) -> Page | ServiceError:
        is_crowd = query.range.start is not None and query.number == 1
        return Forbidden(403, "no") if is_crowd else made.answer(query)

    with pytest.raises(Forbidden):
        read(TimePagination(TimeRange()), answer)


def test_a_page_out_of_order_has_its_window_read_by_numbers() -> None:
    order = [0, 9 * DAY, 3 * DAY, 8 * DAY, 2 * DAY, 7 * DAY, 1 * DAY, 6 * DAY, 5 * DAY, 4 * DAY, 10 * DAY]
    pagination = TimePagination(TimeRange())
    made = world(*order, size=3)
    found = {row.id for row in read(pagination, made.answer)}
    assert found == {build.id for build in made.builds}
    assert pagination.unverified == []


def test_a_window_whose_list_is_another_one_each_time_makes_the_walk_doubtful() -> None:
    made = world(0, 9 * DAY, 3 * DAY, 8 * DAY, 2 * DAY, 10 * DAY, size=3)

    def restless(query: PageQuery) -> Page | Invalid:
        if query.number == 2:
            made.create(0, 0).created = 5 * DAY
        return made.answer(query)

    pagination = TimePagination(TimeRange())
    read(pagination, restless)
    assert f"its pages changed in each of {MAX_READINGS} readings" in pagination.unverified[0][1]


@pytest.mark.parametrize("steady", [True, False])
@pytest.mark.parametrize("tells", [True, False])
def test_builds_that_no_page_showed_are_counted_and_read(steady: bool, tells: bool) -> None:
    """An old stamp as the last of a page: what lies between is passed over, and in no answer."""
    made = world(*(n * DAY for n in range(1, 60)), -100 * DAY, 60 * DAY, 61 * DAY, size=3, tells=tells)
    pagination = TimePagination(TimeRange(), is_steady=steady)
    asked: list[PageQuery] = []
    found = read(pagination, made.answer, asked)
    assert sorted(row.id for row in found) == sorted(build.id for build in made.builds)
    assert pagination.unverified == []
    assert not pagination.is_uncounted
    assert len(asked) < 80


def test_a_changing_list_in_order_takes_one_request_more() -> None:
    asked: list[PageQuery] = []
    read(TimePagination(TimeRange(), is_steady=False), world(*range(0, 50 * DAY, DAY), size=10).answer, asked)
    assert [query.only_count for query in asked] == [False] * 6 + [True]


def test_builds_that_come_to_match_are_read_where_the_numbers_differ() -> None:
    """A difference is no reason for doubt: each half of the list is counted until the builds are found."""
    made, asked = world(*range(0, 500 * DAY, DAY), size=10), []
    made.builds[100].matches = made.builds[101].matches = False

    def answer(query: PageQuery) -> Page | Invalid:
        made.builds[100].matches = made.builds[101].matches = query.only_count or len(asked) > 51
        return made.answer(query)

    pagination = TimePagination(TimeRange(), is_steady=False)
    assert len(read(pagination, answer, asked)) == 500
    assert pagination.unverified == []
    assert len(asked) < 51 + 25


def test_a_service_that_counts_only_once_leaves_doubt() -> None:
    """More were counted than found, and then the service reports no number."""
    made, counts = world(*(n * DAY for n in range(1, 8)), -100 * DAY, 8 * DAY, 9 * DAY, size=3), []

    def answer(query: PageQuery) -> Page | ServiceError:
        counts.append(query.only_count)
        return Forbidden(403, "no") if query.only_count and sum(counts) > 1 else made.answer(query)

    pagination = TimePagination(TimeRange())
    read(pagination, answer)
    assert "counted 9 builds, its pages contained another number" in pagination.unverified[0][1]


def test_deletions_alone_are_no_reason_for_doubt() -> None:
    made = world(*range(0, 50 * DAY, DAY), size=5)

    def dying(query: PageQuery) -> Page | Invalid:
        answer = made.answer(query)
        if not query.only_count:
            del made.builds[:4]
        return answer

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, dying)) < 45
    assert pagination.unverified == []


def test_a_build_that_an_older_state_hides_is_found() -> None:
    """A build is deleted; its place is filled by another one, which only a response of before pushes back again."""
    before, after = (world(*[0] * 8, DAY, size=3) for _ in range(2))
    del after.builds[5]  # the third that is listed
    first_pages = itertools.count(1)

    def of_two_states(query: PageQuery) -> Page | Invalid:
        is_old = not query.only_count and query.number == 1 and next(first_pages) <= 2
        return (before if is_old else after).answer(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, of_two_states)}
    assert found >= {build.id for build in after.builds}
    assert pagination.unverified == []


@pytest.mark.parametrize("deleted", range(1, 7))
@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("ties", [5, 6])
def test_builds_are_found_although_servers_of_two_states_take_turns(ties: int, phase: int, deleted: int) -> None:
    """A build is deleted, which every second response does not know yet for eight requests."""
    before, after = (world(0, *[DAY] * ties, 2 * DAY, size=3) for _ in range(2))
    del after.builds[deleted]
    requests = itertools.count()

    def of_two_servers(query: PageQuery) -> Page | Invalid:
        number = next(requests)
        return (before if number < 8 and number % 2 == phase else after).answer(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, of_two_servers)}
    assert found >= {build.id for build in after.builds} or pagination.unverified


@pytest.mark.parametrize(("readers", "groups", "ties"), [(1, 16, 60), (4, 4, 120), (8, 8, 30)])
def test_many_ties_are_complete(readers: int, groups: int, ties: int) -> None:
    made = world(*(day * DAY for day in range(groups) for _ in range(ties)), size=3)
    pagination = TimePagination(TimeRange())
    assert len(read(pagination, made.answer, readers=lambda pages: readers)) == groups * ties
    assert pagination.unverified == []


@pytest.mark.parametrize(("readers", "groups", "ties"), [(1, 1, 400), (16, 16, 60), (64, 64, 36)])
def test_ties_that_cannot_be_read_twice_are_not_called_complete(readers: int, groups: int, ties: int) -> None:
    """The readers share how many requests without new rows there may be."""
    made = world(*(day * DAY for day in range(groups) for _ in range(ties)), size=3)
    pagination = TimePagination(TimeRange())
    with contextlib.suppress(Incomplete):
        assert len(read(pagination, made.answer, readers=lambda pages: readers)) == groups * ties
    assert pagination.unverified
    assert all("too many to read their pages twice" in why and "workers=1" in why for _, why in pagination.unverified)


@pytest.mark.parametrize("seed", range(30))
def test_a_tie_that_two_replicas_list_differently_is_complete_or_unverified(seed: int) -> None:
    """One of them still has a build that was deleted before the listing began, and sends some of the responses."""
    chance = random.Random(seed)
    pages = chance.choice([5, 30, 60])
    stamps = [*(60 * n * SECOND for n in range(-10, 10)), *[0] * (pages * 5 - 1)]
    newer, older = (world(*stamps, size=5, by_stamp=True) for _ in range(2))
    older.create(0, 0).created = 0
    older.builds[-1].id = "deleted"

    def of_two_replicas(query: PageQuery) -> Page | Invalid:
        return (older if chance.random() < 0.04 else newer).answer(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, of_two_replicas)}
    assert pagination.unverified or found >= {build.id for build in newer.builds}


def test_a_page_of_the_whole_list_is_not_taken_for_one_of_the_range() -> None:
    """A proxy ignores the times of two requests: the whole list begins with a full page of the range and its end."""
    stamps = [0, *[SECOND] * 3, *[2 * SECOND] * 4]
    made = world(*stamps, size=6, by_stamp=True)
    closed = TimeRange(at(SECOND), at(2 * SECOND))
    first_pages = itertools.count(1)
    state = ListingState(TimeRange(), dt.timedelta(seconds=1), is_steady=True)
    state.page_size = made.size
    steps = read_by_number(state, closed, may_grow=False)
    with contextlib.suppress(StopIteration):
        query = next(steps)
        while True:
            ignores_times = query.number == 1 and next(first_pages) <= 2
            page = made.answer(query._replace(range=TimeRange()) if ignores_times else query)
            assert isinstance(page, Page)
            query = steps.send(state.accept(query, page))
    assert state.found_before(at(2 * SECOND)) == 3


@pytest.mark.parametrize("readers", [1, 4])
def test_full_pages_of_bursts_take_few_requests(readers: int) -> None:
    """Ten bursts of exactly a page, without `Link` headers: each is read by time, forward and backward."""
    made = world(*(3600 * hour * SECOND for hour in range(10) for _ in range(100)), size=100, by_stamp=True)

    def without_links(query: PageQuery) -> Page | Invalid:
        page = made.answer(query)
        is_full = isinstance(page, Page) and len(page.rows) == made.size
        return replace(page, next=None, of=None, open=is_full) if isinstance(page, Page) else page

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, without_links, readers=lambda pages: readers)) == 1000
    assert pagination.unverified == []
    assert pagination.requests <= 65


@pytest.mark.parametrize("at_request", range(1, 14))
def test_a_list_that_gets_shorter_is_complete_although_pages_after_its_last_are_refused(at_request: int) -> None:
    made = world(0, *[DAY] * 7, 2 * DAY, size=3)
    requests = itertools.count()

    def refusing(query: PageQuery) -> Page | Invalid:
        if next(requests) == at_request:
            del made.builds[1]
        size = 1 if query.only_count else made.size
        is_beyond = query.number > 1 and (query.number - 1) * size >= len(made.list(query.range))
        return Invalid(404, "Not found") if is_beyond else made.answer(query)

    pagination = TimePagination(TimeRange())
    found = {row.id for row in read(pagination, refusing)}
    assert found >= {build.id for build in made.builds}
    assert pagination.unverified == []


@pytest.mark.parametrize("every", [5, 6, 8, 12])
def test_builds_that_arrive_at_the_newest_timestamp_do_not_keep_a_listing_from_its_end(every: int) -> None:
    made = world(*[0] * 7, size=3)
    requests = itertools.count(1)

    def growing(query: PageQuery) -> Page | Invalid:
        if next(requests) % every == 0:
            made.create(0, 0).created = 0
        return made.answer(query)

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, growing)) >= 7
    assert pagination.unverified == []


def test_a_count_that_is_a_lower_bound_raises_no_doubt() -> None:
    newest = (60 * DAY - gap * SECOND for gap in (5, 10, 0))
    made = world(*(n * DAY for n in range(1, 58)), 50 * DAY, 58 * DAY, 59 * DAY, *newest, size=3)
    counts = itertools.count(1)

    def dropping(query: PageQuery) -> Page | Invalid:
        answer = made.answer(query)
        is_dropped = query.only_count and next(counts) == 2
        return replace(answer, next=None, of=None, open=True) if is_dropped else answer

    pagination = TimePagination(TimeRange())
    assert len(read(pagination, dropping)) == 63
    assert pagination.unverified == []


def test_fewer_builds_than_counted_before_make_a_disordered_list_doubtful() -> None:
    """Seven builds are on no page that was read, and seven of those that were read are deleted."""
    newest = (60 * DAY - gap * SECOND for gap in (5, 10, 0))
    made = world(*(n * DAY for n in range(1, 58)), 50 * DAY, 58 * DAY, 59 * DAY, *newest, size=3)
    counts = itertools.count(1)

    def deleting(query: PageQuery) -> Page | Invalid:
        if query.only_count and next(counts) == 2:
            del made.builds[:7]
        return made.answer(query)

    pagination = TimePagination(TimeRange())
    read(pagination, deleting)
    assert "builds and later" in pagination.unverified[0][1]


def test_a_build_after_the_end_of_a_window_shows_that_it_is_ignored() -> None:
    made = world(5 * SECOND + 1000, 3 * SECOND)
    with pytest.raises(Malformed, match="ignores a filter"):
        read(
            TimePagination(TimeRange(None, at(5 * SECOND))),
            lambda query: made.answer(query._replace(range=TimeRange())),
        )


def test_a_build_at_the_end_of_a_window_may_be_rounded_to_it() -> None:
    made = world(5 * SECOND, 3 * SECOND)
    found = read(
        TimePagination(TimeRange(None, at(5 * SECOND))), lambda query: made.answer(query._replace(range=TimeRange()))
    )
    assert len(found) == 2


def test_a_service_that_ignores_the_window_is_found_out() -> None:
    made = world(*range(0, 30 * DAY, DAY))
    with pytest.raises(Malformed, match="ignores a filter"):
        read(TimePagination(TimeRange()), lambda query: made.answer(query._replace(range=TimeRange())))


def test_a_page_without_rows_that_is_not_the_last_is_refused() -> None:
    with pytest.raises(Malformed, match="empty page that links to a next one"):
        read(TimePagination(TimeRange()), lambda query: Page([], "next", T0))


def test_rows_without_id_or_creation_are_refused() -> None:
    without = SimpleNamespace(id="a", created_at=None)
    for bad, says in ((SimpleNamespace(id=None, created_at=T0.text()), "`id`"), (without, "`created_at`")):
        with pytest.raises(Malformed, match=says):
            read(TimePagination(TimeRange()), lambda query, bad=bad: Page([bad], None, T0))


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"])
def test_stamps_that_cannot_be_are_refused(created: str) -> None:
    bad = SimpleNamespace(id="a", created_at=created)
    with pytest.raises(Malformed, match="impossible"):
        read(TimePagination(TimeRange()), lambda query: Page([bad], None, T0))


def test_a_quiet_list_with_a_busy_past_is_walked() -> None:
    past = range(-20_000 * DAY, -20_000 * DAY + 3000 * SECOND, SECOND)
    made = world(*past, *range(-19_000 * DAY, 0, 1900 * DAY), size=10)
    found = read(TimePagination(TimeRange()), made.answer, readers=lambda pages: 4)
    assert len({row.id for row in found}) == len(made.builds)


def test_what_is_left_is_told_as_windows() -> None:
    made = world(*range(0, 50 * DAY, DAY), size=10)
    pagination = TimePagination(TimeRange(at(5 * DAY)))
    reader = pagination.start()
    assert reader is not None
    assert pagination.remaining == [TimeRange(at(5 * DAY))]
    reader.take(made.answer(reader.query))
    assert pagination.remaining == [TimeRange(at(5 * DAY), at(40 * DAY + 2 * SECOND))]
    assert pagination.share == pytest.approx(9 / 44, abs=0.01)
    assert "read 10 rows in 1 responses, back to builds created at 2026-11-10" in pagination.progress()


@pytest.mark.parametrize("start", [None, 0])
def test_the_share_grows_to_one(start: int | None) -> None:
    made = world(*range(0, 50 * DAY, DAY), size=10)
    pagination = TimePagination(TimeRange(None if start is None else at(start)))
    shares = []

    def noting(query: PageQuery) -> Page | Invalid:
        shares.append(pagination.share)
        return made.answer(query)

    read(pagination, noting)
    assert shares[0] is None
    assert 0 < shares[1] < 0.4
    assert shares[1:] == sorted(shares[1:])
    assert pagination.share == 1.0


moments = st.none() | st.integers(0, 20).map(at)


@given(st.lists(st.tuples(moments, moments), max_size=6), st.integers(0, 20))
def test_merged_windows_hold_the_same(ends: list[tuple[Moment | None, Moment | None]], us: int) -> None:
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


def test_links_in_a_circle_end_with_an_error() -> None:
    page, pagination = Page([row("a", 0)], "again", T0), LinkPagination()
    with pytest.raises(Incomplete, match="circle"):
        pages_by_links(pagination, page, {"again": page})
    assert "had read 1 rows in 2 responses" in pagination.progress()


def test_pagination_by_links_drops_what_it_has_seen() -> None:
    others = {"2": Page([row("b", 0), row("c", 0)], None, T0)}
    pagination = LinkPagination()
    pages = pages_by_links(pagination, Page([row("a", 0), row("b", 0)], "2", T0), others)
    assert [row.id for page in pages for row in page.rows] == ["a", "b", "c"]
    assert (pagination.rows, pagination.requests) == (3, 2)


def test_the_share_of_pagination_by_links_goes_by_its_pages() -> None:
    pagination = LinkPagination()
    pagination.take(Page([row("a", 0), row("b", 0)], "2", T0, of=2))
    assert pagination.share == 0.5
    pagination.take(Page([row("c", 0)], None, T0, of=2))
    assert pagination.share == 1.0
