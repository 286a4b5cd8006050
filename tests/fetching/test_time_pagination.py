"""Walks over lists in memory: windows, disorder, crowded instants, links. The machine has a file of its own."""

from __future__ import annotations

import itertools
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
from buildframe.fetching.link_pagination import LinkWalk
from buildframe.fetching.time_pagination import READINGS, Ask, BuildWalk
from buildframe.fetching.time_ranges import Window, merged
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
    walk: BuildWalk, answer: Callable[[Ask], Page | ServiceError], asked: list[Ask] | None = None
) -> list[SimpleNamespace]:
    """What a walk finds by one reader, or by several that take turns."""
    found, under_way = [], []
    while True:
        while (stretch := walk.start()) is not None:
            if stretch.ask is None:  # nothing can lie in its window
                walk.end(stretch)
            else:
                under_way.append(stretch)
        if not under_way:
            return found
        stretch = under_way.pop(0)
        if asked is not None:
            asked.append(stretch.ask)
        page = answer(stretch.ask)
        if isinstance(page, ServiceError):
            stretch.refuse(page)
        else:
            found += stretch.take(page).rows
        if stretch.ask is None:
            walk.end(stretch)
        else:
            under_way.append(stretch)


def test_no_page_is_deep_and_none_is_asked_for_twice() -> None:
    asked: list[Ask] = []
    made = world(*range(0, 1000 * 10 * SECOND, 10 * SECOND), size=100)
    found = read(BuildWalk(Window()), made.answer, asked)
    assert [row.id for row in found] == [f"b{n}" for n in range(1000, 0, -1)]
    assert [ask.only_count for ask in asked] == [False] * 11 + [True]
    assert {ask.number for ask in asked} == {1}


def test_two_hundred_arrivals_between_any_two_pages() -> None:
    made = world(*range(0, 1000 * 10 * SECOND, 10 * SECOND), size=100)

    def busy(ask: Ask) -> Page | Invalid:
        answer = made.answer(ask)
        for _ in range(200):
            made.create(SECOND, 0)
        return answer

    found = read(BuildWalk(Window()), busy)
    assert [row.id for row in found] == [f"b{n}" for n in range(1000, 0, -1)]


@given(st.lists(st.integers(0, 4000), max_size=60), st.integers(1, 12), st.integers(0, 3000), st.integers(1, 3000))
def test_a_window_holds_exactly_its_builds(seconds: list[int], size: int, start: int, length: int) -> None:
    made = world(*(second * SECOND for second in sorted(seconds)), size=size)
    window = Window(at(start * SECOND), at((start + length) * SECOND))
    found = read(BuildWalk(window, readers=lambda pages: 3), made.answer)
    assert sorted(row.id for row in found) == sorted(build.id for build in made.list(window))


def test_the_parts_of_a_stretch_are_read_by_whoever_has_no_work() -> None:
    asked: list[Ask] = []
    made = world(*range(0, 3000 * 60 * SECOND, 60 * SECOND), size=100)
    walk = BuildWalk(Window(), readers=lambda pages: 4)
    found = read(walk, made.answer, asked)
    assert {row.id for row in found} == {build.id for build in made.builds}
    assert len(found) == 3000
    assert len(asked) <= 35
    assert len([ask for ask in asked if ask.window.start is None]) < len(asked) / 2  # only the oldest part stays open


def test_where_one_reader_is_enough_nothing_is_cut() -> None:
    asked: list[Ask] = []
    made = world(*range(0, 3000 * 60 * SECOND, 60 * SECOND), size=100)
    read(BuildWalk(Window(), readers=lambda pages: 4 if pages is not None and pages < 10 else 1), made.answer, asked)
    assert [ask.window.start for ask in asked[:20]] == [None] * 20
    assert any(ask.window.start for ask in asked[20:])


@pytest.mark.parametrize("tells", [True, False])
def test_an_instant_with_more_builds_than_a_page_is_read_from_its_last_page_to_its_first(tells: bool) -> None:
    asked: list[Ask] = []
    made = world(-(10**9), *([0] * 45), 10**9, size=10, tells=tells)
    found = read(BuildWalk(Window()), made.answer, asked)
    assert sorted(row.id for row in found) == sorted(build.id for build in made.builds)
    numbers = [ask.number for ask in asked]
    assert [5, 4, 3, 2, 1] in [numbers[place : place + 5] for place in range(len(numbers))]


def test_a_deletion_in_a_crowded_instant_hides_nothing() -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10)
    removed = []

    def shrinking(ask: Ask) -> Page | Invalid:
        answer = made.answer(ask)
        if ask.number > 1 and len(removed) < 4:
            removed.append(made.builds.pop(-2).id)
        return answer

    found = {row.id for row in read(BuildWalk(Window()), shrinking)}
    assert len(removed) == 4
    assert found >= {build.id for build in made.builds}


def test_a_crowded_instant_that_is_too_deep_to_list_makes_the_walk_doubtful() -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10, deepest=2)
    walk = BuildWalk(Window())
    found = {row.id for row in read(walk, made.answer)}
    [(window, why)] = walk.doubts
    assert window.holds(at(0))
    assert not window.holds(at(10**9))
    assert "refuses to list them by page numbers (Listing builds this deep is not supported.)" in why
    assert {"b1", "b47"} <= found


@pytest.mark.parametrize(
    "refusal",
    [Invalid(400, "too deep"), Forbidden(403, "too deep"), NotFound(404, "too deep"), ServiceError(416, "too deep")],
    ids=type,
)
def test_of_a_crowded_instant_the_pages_that_the_service_allows_are_read(refusal: ServiceError) -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10)
    walk = BuildWalk(Window())
    found = read(walk, lambda ask: refusal if ask.number > 3 else made.answer(ask))
    assert len(found) == 2 + 30
    [(_, why)] = walk.doubts
    assert "too deep" in why


@pytest.mark.parametrize(
    "error", [Unauthorized(401, "revoked"), RateLimited(429, "over it"), Unavailable(500, "down")], ids=type
)
def test_other_errors_of_a_deep_page_end_the_walk(error: ServiceError) -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10)
    with pytest.raises(type(error)):
        read(BuildWalk(Window()), lambda ask: error if ask.number > 1 else made.answer(ask))


def test_a_refused_window_is_no_refused_page() -> None:
    made = world(-(10**9), *([0] * 45), 10**9, size=10)

    def answer(ask: Ask) -> Page | ServiceError:
        is_crowd = ask.window.start is not None and ask.number == 1
        return Forbidden(403, "no") if is_crowd else made.answer(ask)

    with pytest.raises(Forbidden):
        read(BuildWalk(Window()), answer)


def test_a_page_out_of_order_has_its_window_read_by_numbers() -> None:
    order = [0, 9 * DAY, 3 * DAY, 8 * DAY, 2 * DAY, 7 * DAY, 1 * DAY, 6 * DAY, 5 * DAY, 4 * DAY, 10 * DAY]
    walk = BuildWalk(Window())
    made = world(*order, size=3)
    found = {row.id for row in read(walk, made.answer)}
    assert found == {build.id for build in made.builds}
    assert walk.doubts == []


def test_a_window_whose_list_is_another_one_each_time_makes_the_walk_doubtful() -> None:
    made = world(0, 9 * DAY, 3 * DAY, 8 * DAY, 2 * DAY, 10 * DAY, size=3)

    def restless(ask: Ask) -> Page | Invalid:
        if ask.number == 2:
            made.create(0, 0).created = 5 * DAY
        return made.answer(ask)

    walk = BuildWalk(Window())
    read(walk, restless)
    assert f"another one in each of {READINGS} readings" in walk.doubts[0][1]


@pytest.mark.parametrize("steady", [True, False])
@pytest.mark.parametrize("tells", [True, False])
def test_builds_that_no_page_showed_are_counted_and_read(steady: bool, tells: bool) -> None:
    """An old stamp as the last of a page: what lies between is passed over, and in no answer."""
    made = world(*(n * DAY for n in range(1, 60)), -100 * DAY, 60 * DAY, 61 * DAY, size=3, tells=tells)
    walk = BuildWalk(Window(), steady=steady)
    asked: list[Ask] = []
    found = read(walk, made.answer, asked)
    assert sorted(row.id for row in found) == sorted(build.id for build in made.builds)
    assert walk.doubts == []
    assert not walk.is_uncounted
    assert len(asked) < 80


def test_a_changing_list_in_order_takes_one_request_more() -> None:
    asked: list[Ask] = []
    read(BuildWalk(Window(), steady=False), world(*range(0, 50 * DAY, DAY), size=10).answer, asked)
    assert [ask.only_count for ask in asked] == [False] * 6 + [True]


def test_builds_that_come_to_match_are_read_where_the_numbers_differ() -> None:
    """A difference is no reason for doubt: each half of the list is counted until the builds are found."""
    made, asked = world(*range(0, 500 * DAY, DAY), size=10), []
    made.builds[100].matches = made.builds[101].matches = False

    def answer(ask: Ask) -> Page | Invalid:
        made.builds[100].matches = made.builds[101].matches = ask.only_count or len(asked) > 51
        return made.answer(ask)

    walk = BuildWalk(Window(), steady=False)
    assert len(read(walk, answer, asked)) == 500
    assert walk.doubts == []
    assert len(asked) < 51 + 25


def test_a_service_that_counts_only_once_leaves_doubt() -> None:
    """More were counted than found, and then the service reports no number."""
    made, counts = world(*(n * DAY for n in range(1, 8)), -100 * DAY, 8 * DAY, 9 * DAY, size=3), []

    def answer(ask: Ask) -> Page | ServiceError:
        counts.append(ask.only_count)
        return Forbidden(403, "no") if ask.only_count and sum(counts) > 1 else made.answer(ask)

    walk = BuildWalk(Window())
    read(walk, answer)
    assert "counted 9 builds, which is not what its pages showed" in walk.doubts[0][1]


def test_deletions_alone_are_no_reason_for_doubt() -> None:
    made = world(*range(0, 50 * DAY, DAY), size=5)

    def dying(ask: Ask) -> Page | Invalid:
        answer = made.answer(ask)
        if not ask.only_count:
            del made.builds[:4]
        return answer

    walk = BuildWalk(Window())
    assert len(read(walk, dying)) < 45
    assert walk.doubts == []


def test_a_build_that_an_older_state_hides_is_found() -> None:
    """A build is deleted; its place is filled by another one, which only a response of before pushes back again."""
    before, after = (world(*[0] * 8, DAY, size=3) for _ in range(2))
    del after.builds[5]  # the third that is listed
    first_pages = itertools.count(1)

    def of_two_states(ask: Ask) -> Page | Invalid:
        is_old = not ask.only_count and ask.number == 1 and next(first_pages) <= 3
        return (before if is_old else after).answer(ask)

    walk = BuildWalk(Window())
    found = {row.id for row in read(walk, of_two_states)}
    assert found >= {build.id for build in after.builds}
    assert walk.doubts == []


@pytest.mark.parametrize("deleted", range(1, 7))
@pytest.mark.parametrize("phase", [0, 1])
@pytest.mark.parametrize("ties", [5, 6])
def test_builds_are_found_although_servers_of_two_states_take_turns(ties: int, phase: int, deleted: int) -> None:
    """A build is deleted, which every second response does not know yet for eight requests."""
    before, after = (world(0, *[DAY] * ties, 2 * DAY, size=3) for _ in range(2))
    del after.builds[deleted]
    requests = itertools.count()

    def of_two_servers(ask: Ask) -> Page | Invalid:
        number = next(requests)
        return (before if number < 8 and number % 2 == phase else after).answer(ask)

    walk = BuildWalk(Window())
    found = {row.id for row in read(walk, of_two_servers)}
    assert found >= {build.id for build in after.builds} or walk.doubts


@pytest.mark.parametrize(("readers", "groups", "ties"), [(1, 16, 60), (4, 4, 120), (16, 16, 60), (64, 64, 36)])
def test_many_ties_are_complete_with_any_number_of_readers(readers: int, groups: int, ties: int) -> None:
    """They are read twice as far as the requests without new rows allow, which all readers share."""
    made = world(*(day * DAY for day in range(groups) for _ in range(ties)), size=3)
    walk = BuildWalk(Window(), readers=lambda pages: readers)
    assert len(read(walk, made.answer)) == groups * ties
    assert walk.doubts == []


@pytest.mark.parametrize("at_request", range(1, 14))
def test_a_list_that_gets_shorter_is_complete_although_pages_after_its_last_are_refused(at_request: int) -> None:
    made = world(0, *[DAY] * 7, 2 * DAY, size=3)
    requests = itertools.count()

    def refusing(ask: Ask) -> Page | Invalid:
        if next(requests) == at_request:
            del made.builds[1]
        size = 1 if ask.only_count else made.size
        is_beyond = ask.number > 1 and (ask.number - 1) * size >= len(made.list(ask.window))
        return Invalid(404, "Not found") if is_beyond else made.answer(ask)

    walk = BuildWalk(Window())
    found = {row.id for row in read(walk, refusing)}
    assert found >= {build.id for build in made.builds}
    assert walk.doubts == []


@pytest.mark.parametrize("every", [5, 6, 8, 12])
def test_builds_that_arrive_at_the_newest_timestamp_do_not_keep_a_listing_from_its_end(every: int) -> None:
    made = world(*[0] * 7, size=3)
    requests = itertools.count(1)

    def growing(ask: Ask) -> Page | Invalid:
        if next(requests) % every == 0:
            made.create(0, 0).created = 0
        return made.answer(ask)

    walk = BuildWalk(Window())
    assert len(read(walk, growing)) >= 7
    assert walk.doubts == []


def test_a_count_that_is_a_lower_bound_raises_no_doubt() -> None:
    newest = (60 * DAY - gap * SECOND for gap in (5, 10, 0))
    made = world(*(n * DAY for n in range(1, 58)), 50 * DAY, 58 * DAY, 59 * DAY, *newest, size=3)
    counts = itertools.count(1)

    def dropping(ask: Ask) -> Page | Invalid:
        answer = made.answer(ask)
        is_dropped = ask.only_count and next(counts) == 2
        return replace(answer, next=None, of=None, open=True) if is_dropped else answer

    walk = BuildWalk(Window())
    assert len(read(walk, dropping)) == 63
    assert walk.doubts == []


def test_fewer_builds_than_counted_before_make_a_disordered_list_doubtful() -> None:
    """Seven builds are on no page that was read, and seven of those that were read are deleted."""
    newest = (60 * DAY - gap * SECOND for gap in (5, 10, 0))
    made = world(*(n * DAY for n in range(1, 58)), 50 * DAY, 58 * DAY, 59 * DAY, *newest, size=3)
    counts = itertools.count(1)

    def deleting(ask: Ask) -> Page | Invalid:
        if ask.only_count and next(counts) == 2:
            del made.builds[:7]
        return made.answer(ask)

    walk = BuildWalk(Window())
    read(walk, deleting)
    assert "builds and later" in walk.doubts[0][1]


def test_a_build_after_the_end_of_a_window_shows_that_it_is_ignored() -> None:
    made = world(5 * SECOND + 1000, 3 * SECOND)
    with pytest.raises(Malformed, match="ignores a filter"):
        read(BuildWalk(Window(None, at(5 * SECOND))), lambda ask: made.answer(ask._replace(window=Window())))


def test_a_build_at_the_end_of_a_window_may_be_rounded_to_it() -> None:
    made = world(5 * SECOND, 3 * SECOND)
    found = read(BuildWalk(Window(None, at(5 * SECOND))), lambda ask: made.answer(ask._replace(window=Window())))
    assert len(found) == 2


def test_a_service_that_ignores_the_window_is_found_out() -> None:
    made = world(*range(0, 30 * DAY, DAY))
    with pytest.raises(Malformed, match="ignores a filter"):
        read(BuildWalk(Window()), lambda ask: made.answer(ask._replace(window=Window())))


def test_a_page_without_rows_that_is_not_the_last_is_refused() -> None:
    with pytest.raises(Malformed, match="without rows that links to a next one"):
        read(BuildWalk(Window()), lambda ask: Page([], "next", T0))


def test_rows_without_id_or_creation_are_refused() -> None:
    without = SimpleNamespace(id="a", created_at=None)
    for bad, says in ((SimpleNamespace(id=None, created_at=T0.text()), "`id`"), (without, "`created_at`")):
        with pytest.raises(Malformed, match=says):
            read(BuildWalk(Window()), lambda ask, bad=bad: Page([bad], None, T0))


@pytest.mark.parametrize("created", ["0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z"])
def test_stamps_that_cannot_be_are_refused(created: str) -> None:
    bad = SimpleNamespace(id="a", created_at=created)
    with pytest.raises(Malformed, match="which cannot be"):
        read(BuildWalk(Window()), lambda ask: Page([bad], None, T0))


def test_a_quiet_list_with_a_busy_past_is_walked() -> None:
    past = range(-20_000 * DAY, -20_000 * DAY + 3000 * SECOND, SECOND)
    made = world(*past, *range(-19_000 * DAY, 0, 1900 * DAY), size=10)
    found = read(BuildWalk(Window(), readers=lambda pages: 4), made.answer)
    assert len({row.id for row in found}) == len(made.builds)


def test_what_is_left_is_told_as_windows() -> None:
    made = world(*range(0, 50 * DAY, DAY), size=10)
    walk = BuildWalk(Window(at(5 * DAY)))
    stretch = walk.start()
    assert stretch is not None
    assert walk.left == [Window(at(5 * DAY))]
    stretch.take(made.answer(stretch.ask))
    assert walk.left == [Window(at(5 * DAY), at(40 * DAY + 2 * SECOND))]
    assert walk.share == pytest.approx(9 / 44, abs=0.01)
    assert "read 10 rows in 1 answers, back to builds created at 2026-11-10" in walk.how_far()


@pytest.mark.parametrize("start", [None, 0])
def test_the_share_grows_to_one(start: int | None) -> None:
    made = world(*range(0, 50 * DAY, DAY), size=10)
    walk = BuildWalk(Window(None if start is None else at(start)))
    shares = []

    def noting(ask: Ask) -> Page | Invalid:
        shares.append(walk.share)
        return made.answer(ask)

    read(walk, noting)
    assert shares[0] is None
    assert 0 < shares[1] < 0.4
    assert shares[1:] == sorted(shares[1:])
    assert walk.share == 1.0


moments = st.none() | st.integers(0, 20).map(at)


@given(st.lists(st.tuples(moments, moments), max_size=6), st.integers(0, 20))
def test_merged_windows_hold_the_same(ends: list[tuple[Moment | None, Moment | None]], us: int) -> None:
    windows = [Window(*pair) for pair in ends]
    found = merged(windows)

    def lies_in(window: Window) -> bool:
        return (window.start is None or at(us) >= window.start) and (window.end is None or at(us) < window.end)

    assert any(map(lies_in, windows)) == any(map(lies_in, found))
    assert not any(window.is_empty for window in found)
    for newer, older in itertools.pairwise(found):
        assert older.end < newer.start


# --- links ------------------------------------------------------------------------------------------------------------


def test_links_in_a_circle_end_with_an_error() -> None:
    page = Page([row("a", 0)], "again", T0)
    with pytest.raises(Incomplete, match="circle") as caught:
        list(LinkWalk(lambda: page, lambda _: page))
    assert "had read 1 rows in 2 answers" in caught.value.__notes__[0]


def test_a_walk_by_links_drops_what_it_has_seen() -> None:
    pages = {"2": Page([row("b", 0), row("c", 0)], None, T0)}
    walk = LinkWalk(lambda: Page([row("a", 0), row("b", 0)], "2", T0), pages.__getitem__)
    assert [row.id for page in walk for row in page.rows] == ["a", "b", "c"]
    assert (walk.rows, walk.requests) == (3, 2)


def test_the_share_of_a_walk_by_links_goes_by_its_pages() -> None:
    pages = {"2": Page([row("c", 0)], None, T0)}
    walk = LinkWalk(lambda: Page([row("a", 0), row("b", 0)], "2", T0, of=2), lambda link: replace(pages[link], of=2))
    assert [walk.share for _ in walk] == [0.5, 1.0]
