"""Walks over a list in memory that changes between any two answers."""

from __future__ import annotations

import datetime as dt
import itertools
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe.errors import Incomplete, Malformed, Unavailable
from buildframe.spec import Moment
from buildframe.walk import OVERLAP, BuildWalk, LinkWalk, Window
from buildframe.wire import Page

T0 = Moment(2026, 10, 1, tzinfo=dt.UTC)


def row(id: str, us: int) -> SimpleNamespace:
    return SimpleNamespace(id=id, created_at=Moment.from_us(T0.us + us).text())


@dataclass
class Service:
    """A list of builds, newest first, that answers like the service; `between` comes before all answers but one."""

    builds: dict[str, int]  # id -> microseconds after T0
    size: int
    cut: bool = False  # stamps are shown cut to seconds
    asked: int = 0
    windows: list[Window] | None = None

    def between(self) -> None:
        """The world stands still."""

    def ask(self, window: Window, offset: int = 0) -> Page:
        if self.asked:
            self.between()
        self.asked += 1
        low = -(10**18) if window.start is None else window.start.us - T0.us
        high = 10**18 if window.end is None else window.end.us - T0.us
        chosen = [(us, id) for id, us in self.builds.items() if low <= us < high]
        ordered = sorted(chosen, key=lambda pair: (-pair[0], pair[1]))
        part = ordered[offset : offset + self.size]
        shown = [row(id, us - us % 10**6 if self.cut else us) for us, id in part]
        self._last = window
        more = f"link:{offset + self.size}:{self.asked}" if offset + self.size < len(ordered) else None
        return Page(shown, more, T0)

    def follow(self, link: str) -> Page:
        return self.ask(self._last, int(link.split(":")[1]))

    def walk(self, window: Window = Window()) -> list[str]:  # noqa: B008
        walk = BuildWalk(self.ask, self.follow, window)
        return [row.id for page in walk for row in page.rows]


spacings = st.sampled_from([0, 1, 999, 400_000, 10**6, 61 * 10**6])


@st.composite
def lists(draw: st.DrawFn) -> dict[str, int]:
    gaps = draw(st.lists(spacings, max_size=60))
    total, builds = 0, {}
    for index, gap in enumerate(gaps):
        total += gap
        builds[f"b{index}"] = total
    return builds


@given(lists(), st.integers(1, 12), st.booleans())
def test_every_build_is_there_once_newest_first(builds: dict[str, int], size: int, cut: bool) -> None:
    found = Service(dict(builds), size, cut).walk()
    assert sorted(found) == sorted(builds)
    assert len(found) == len(set(found))
    stamps = [builds[id] - builds[id] % 10**6 if cut else builds[id] for id in found]
    assert all(later <= earlier + 10**6 for earlier, later in itertools.pairwise(stamps))


@given(lists(), st.integers(1, 12), st.integers(0, 3000), st.integers(0, 3000))
def test_a_window_holds_exactly_its_builds(builds: dict[str, int], size: int, start_s: int, length_s: int) -> None:
    start, end = start_s * 10**6, (start_s + length_s + 1) * 10**6
    window = Window(Moment.from_us(T0.us + start), Moment.from_us(T0.us + end))
    found = Service(dict(builds), size).walk(window)
    assert sorted(found) == sorted(id for id, us in builds.items() if start <= us < end)


@settings(max_examples=300)
@given(st.data(), st.integers(2, 12))
def test_arrivals_and_deletions_shift_nothing(data: st.DataObject, size: int) -> None:
    """Spaced wider than the overlap, so that no instant needs page numbers, under which a deletion could hide a row."""
    n = data.draw(st.integers(0, 40))
    start = {f"b{index}": index * 3 * 10**6 for index in range(n)}

    class Living(Service):
        def between(self) -> None:
            for _ in range(data.draw(st.integers(0, 20))):
                self.builds[f"new{len(self.builds)}-{self.asked}"] = 10**9 + len(self.builds) * 10**6
            for id in data.draw(st.lists(st.sampled_from(sorted(self.builds) or [""]), max_size=3)):
                self.builds.pop(id, None)

    service = Living(dict(start), size)
    found = service.walk()
    assert len(found) == len(set(found))
    assert set(found) <= set(start)
    assert set(found) >= set(start) & set(service.builds)


def test_two_hundred_arrivals_between_pages() -> None:
    start = {f"b{index}": index * 10**7 for index in range(1000)}

    class Busy(Service):
        def between(self) -> None:
            for index in range(25):
                self.builds[f"new{self.asked}-{index}"] = 10**11 + len(self.builds)

    service = Busy(dict(start), 100)
    assert service.walk() == sorted(start, key=start.__getitem__, reverse=True)
    assert len(service.builds) >= 1200
    assert service.asked == 11  # no page is asked for twice


def test_arrivals_with_the_very_stamp_of_the_pin_are_not_part_of_the_walk() -> None:
    start = {f"b{index}": index * 10**5 for index in range(8)}
    newest = max(start.values())

    class Busy(Service):
        def between(self) -> None:
            self.builds[f"a{self.asked}"] = newest

    assert sorted(Busy(dict(start), 4).walk()) == sorted(start)


def test_an_instant_with_more_builds_than_a_page_is_read_by_links() -> None:
    builds = {f"b{index:03}": 0 for index in range(45)} | {"old": -(10**9), "new": 10**9}
    assert sorted(Service(builds, 10).walk()) == sorted(builds)


def test_a_service_that_ignores_the_window_is_found_out() -> None:
    class Deaf(Service):
        def ask(self, window: Window, offset: int = 0) -> Page:
            return super().ask(Window(), offset)

    with pytest.raises(Malformed, match="ignores a filter") as caught:
        Deaf({f"b{index}": index * 10**8 for index in range(30)}, 10).walk()
    assert "had read 10 rows in 2 answers" in caught.value.__notes__[0]


def test_a_list_out_of_order_is_not_walked_silently() -> None:
    rows = [row("a", 10**9), row("b", 0), row("c", 5 * 10**6)]
    walk = BuildWalk(lambda _: Page(rows, None, T0), lambda _: Page([], None, T0), Window())
    with pytest.raises(Incomplete, match="not newest first"):
        list(walk)


def test_slow_drift_in_the_wrong_order_is_seen() -> None:
    rows = [row(str(index), index * 900_000) for index in range(4)]
    with pytest.raises(Incomplete, match="not newest first"):
        list(BuildWalk(lambda _: Page(rows, None, T0), lambda _: Page([], None, T0), Window()))


def test_rows_without_id_or_creation_are_refused() -> None:
    for bad, says in ((SimpleNamespace(id=None, created_at=T0.text()), "`id`"), (row("a", 0), "`created_at`")):
        if bad.id:
            bad.created_at = None
        with pytest.raises(Malformed, match=says):
            list(BuildWalk(lambda _, bad=bad: Page([bad], None, T0), lambda _: Page([], None, T0), Window()))


def test_links_in_a_circle_end_with_an_error() -> None:
    page = Page([row("a", 0)], "again", T0)
    with pytest.raises(Incomplete, match="circle"):
        list(LinkWalk(lambda: page, lambda _: page))


def test_a_walk_by_links_drops_what_it_has_seen() -> None:
    pages = {"2": Page([row("b", 0), row("c", 0)], None, T0)}
    walk = LinkWalk(lambda: Page([row("a", 0), row("b", 0)], "2", T0), pages.__getitem__)
    assert [row.id for page in walk for row in page.rows] == ["a", "b", "c"]
    assert (walk.rows, walk.requests, walk.as_of) == (3, 2, T0)


def test_an_error_on_the_way_says_how_far_the_walk_came() -> None:
    class Dying(Service):
        def between(self) -> None:
            if self.asked == 3:
                raise Unavailable(503, "gone")

    with pytest.raises(Unavailable) as caught:
        Dying({f"b{index}": index * 10**8 for index in range(50)}, 10).walk()
    assert "had read 28 rows in 3 answers, back to builds created at 2026-10-01T" in caught.value.__notes__[0]


def test_the_share_of_the_window_grows_to_one() -> None:
    service = Service({f"b{index}": index * 10**8 for index in range(50)}, 10)
    walk = BuildWalk(service.ask, service.follow, Window(T0))
    shares = [walk.share for _ in walk]
    assert shares == sorted(shares)
    assert 0 < shares[0] < 0.5
    assert walk.share == 1.0
    assert dt.timedelta(seconds=1) <= OVERLAP


def test_without_a_beginning_the_share_goes_by_the_number_of_pages() -> None:
    class Telling(Service):
        def ask(self, window: Window, offset: int = 0) -> Page:
            return replace(super().ask(window, offset), of=5)

    service = Telling({f"b{index}": index * 10**8 for index in range(50)}, 10)
    walk = BuildWalk(service.ask, service.follow, Window())
    assert [walk.share for _ in walk] == pytest.approx([10 / 50, 19 / 50, 28 / 50, 37 / 50, 46 / 50, 50 / 50])
