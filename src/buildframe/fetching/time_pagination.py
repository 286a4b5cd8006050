"""Complete walks over lists of builds, whatever happens meanwhile. Knows pages; neither HTTP nor threads.

A list of builds is newest first, so its page numbers shift with every arrival and deletion. It is
therefore walked by time: the upper end is pinned at the newest stamp of the first response, and each
following request asks for what was created before the oldest stamp seen, plus an overlap. Rows that
the overlap brings again are dropped by `id`. What is left may be cut into windows, each a `Stretch` of
its own, that are read at the same time.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Generator, Hashable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

from buildframe.errors import BuildframeError, Incomplete, Malformed, ServiceError
from buildframe.fetching.link_pagination import fresh_in, how_far
from buildframe.fetching.numbered_pagination import CannotVerify, NumberedReading, disorder, grain
from buildframe.fetching.time_ranges import CUT, Window, merged
from buildframe.http.protocol import Page
from buildframe.spec import Moment

READINGS = 20
"""How often a window is read by page numbers until a reading verifies it."""

MOST_IN_VAIN = 95
"""How many answers in a row may bring nothing new before a walk ends with an error."""

_MOST_REPEATED = 40  # of these, those that only read again what was verified, and the requests under way with them
_RECOUNTS = 3
_DEEP = {400, 403, 404, 409, 416, 422}  # statuses
_YEARS = range(1970, 9000)
_BEGIN = Moment(1970, 1, 1, tzinfo=dt.UTC)
_END = Moment.of(dt.datetime.max.replace(tzinfo=dt.UTC))
_BLIND = 20.0  # pages that are thought to be left where nobody tells, and the start is open
_SPARE = 0.1  # of a page, that a part is cut smaller than whole pages: what little is more would cost a request
_AGES = 1e11  # seconds; a service may report any number of pages
_MUCH = 4  # times as far back as the last page's density lets expect, builds may reach


class Ask(NamedTuple):
    """What to ask of a list of builds: a page of a window; `only_count` if its rows do not matter."""

    window: Window
    number: int = 1
    only_count: bool = False


class Kept(NamedTuple):
    """Rows of an response, and when each was created."""

    rows: list[Any]
    stamps: list[Moment]


Steps = Generator[Ask, Page, None]


class Stretch:
    """A part of a walk that one reader reads: it asks `ask`, gives the answer to `take`, until `ask` is None.

    `left` is what of it is not read yet, `pages` how many pages that is, where it is known, and `span` the time that
    the last page spanned.
    """

    def __init__(
        self,
        window: Window,
        read: Callable[[Stretch], Steps],
        pages: float | None = None,
        span: dt.timedelta = dt.timedelta(0),
    ) -> None:
        self.left = window
        self.pages = pages
        self.span = span
        self.kept = Kept([], [])
        self._steps = read(self)
        self.ask: Ask | None = next(self._steps, None)

    def take(self, page: Page) -> Kept:
        """Give the answer to `ask`; what of its rows is new."""
        self.kept = Kept([], [])
        self._go_on(lambda: self._steps.send(page))
        return self.kept

    def refuse(self, error: BuildframeError) -> None:
        """`ask` was answered with an error, which is raised again unless the walk can do without."""
        self._go_on(lambda: self._steps.throw(error))

    @property
    def weight(self) -> float:
        """About how many pages are left; 0 where it cannot be told that it is more than one."""
        if self.left.end is None or not self.span:
            return 0.0
        if self.pages is not None:
            return self.pages
        return _BLIND if self.left.start is None else (self.left.end - self.left.start) / self.span

    @property
    def extent(self) -> dt.timedelta:
        """How far back its builds are thought to reach: to its start, or not much further than its pages may span."""
        thought = dt.timedelta(seconds=min(self.span.total_seconds() * self.weight, _AGES))
        if self.left.start is None or self.left.end is None:
            return thought
        return min(self.left.end - self.left.start, _MUCH * thought)

    def _go_on(self, step: Callable[[], Ask]) -> None:
        try:
            self.ask = step()
        except StopIteration:
            self.ask = None


class BuildWalk:
    """A walk by time over a list of builds: every build that was there from its first answer to its last, once each.

    `start()` gives stretches to read, at the same time if one likes; `end(stretch)` takes them back. `readers(pages)`
    says how many are welcome at once while about so many pages are left. `steady` says that builds neither come to
    match nor cease to while they are walked. `doubts` are the reasons why builds may be missing, each with its window.
    """

    def __init__(
        self,
        window: Window,
        *,
        overlap: dt.timedelta = dt.timedelta(seconds=1),
        readers: Callable[[float | None], int] = lambda pages: 1,
        steady: bool = True,
    ) -> None:
        self._whole = window
        self._overlap = overlap
        self._readers = readers
        self._steady = steady
        self._seen: set[Hashable] = set()
        self._stamps: list[Moment] = []
        self._first: Stretch | None = Stretch(window, self._read)
        self._reading: list[Stretch] = []
        self._pin: Moment | None = None
        self._latest = self._top = _END
        self._size = 0  # rows of the longest page
        self._disorder = dt.timedelta(0)
        self._has_pages = False
        self._reports_pages = False
        self._head: Hashable = None
        self._checks = 0
        self._counted: int | None = None
        self._is_unsettled = False
        self._in_vain = 0
        self.answers = 0
        self.doubts: list[tuple[Window, str]] = []

    # --- for who reads

    def start(self) -> Stretch | None:
        """A stretch to read; None while there is none, and for good when the walk `is_over`."""
        stretch, self._first = self._first or self._new_check() or self._part(), None
        if stretch is not None:
            self._reading.append(stretch)
        return stretch

    def end(self, stretch: Stretch) -> None:
        """A stretch was read to its end."""
        self._reading.remove(stretch)
        if self.is_over and self._counted is None and self._is_disordered and not self.doubts:
            self.doubts.append(
                (self._whole, _DISORDERED.format(self._disorder, math.ceil(self._disorder.total_seconds())))
            )

    @property
    def is_over(self) -> bool:
        """Whether nothing is being read or left to read."""
        return self._first is None and not self._reading and not self._wants_a_check

    @property
    def is_uncounted(self) -> bool:
        """Whether the service could not be asked how many builds there are, so that some may be missing unseen."""
        return self._has_pages and self._counted is None and not self.doubts

    @property
    def rows(self) -> int:
        """How many builds were found so far."""
        return len(self._stamps)

    @property
    def left(self) -> list[Window]:
        """The windows that are not read yet, newest first."""
        is_waiting = not self._stretches and self._wants_a_check and (self._checks > 0 or not self._steady)
        unsettled = [Window(self._whole.start, self._top)] if self._is_unsettled or is_waiting else []
        return merged([*self._unread, *unsettled])

    @property
    def pages_left(self) -> float | None:
        """About how many pages are left to read, where it is known."""
        pages = [stretch.pages for stretch in self._stretches]
        return None if None in pages else sum(filter(None, pages))

    @property
    def share(self) -> float | None:
        """The share of the time from start to pin that is read; of the pages, where the start is open."""
        if self._pin is None:
            return None
        if self._whole.start is None:
            pages = self.pages_left
            return None if pages is None else self.answers / (self.answers + pages)
        left = sum((self._pin - window.start for window in self._unread if window.start), dt.timedelta())
        read = sum((self._pin - window.end for window in self._unread if window.end), dt.timedelta())
        return 1.0 - (left - read) / max(self._pin - self._whole.start, CUT)

    def how_far(self) -> str:
        """A sentence on how far the walk came."""
        return how_far(self.rows, self.answers, min(self._stamps, default=None))

    @property
    def _unread(self) -> list[Window]:
        return merged(stretch.left for stretch in self._stretches)

    @property
    def _stretches(self) -> list[Stretch]:
        return [*self._reading, *([self._first] if self._first else [])]

    # --- by time

    def _read(self, stretch: Stretch) -> Steps:
        """Read a window from its newest build to its oldest, a page at a time."""
        while not stretch.left.is_empty:
            asked = stretch.left
            page = yield Ask(asked)
            stamps = self._accept(stretch, asked, page)
            if self._ends(page):
                return
            stretch.left = yield from self._below(stretch, page, stamps)
            stretch.span = max(stamps) - min(stamps)
            if stretch.left.start == asked.start:
                stretch.pages = page.of - 1 if page.of else None
            elif stretch.pages is not None:  # its older part was taken meanwhile
                stretch.pages = max(stretch.pages - 1, 1)

    def _below(self, stretch: Stretch, page: Page, stamps: list[Moment]) -> Generator[Ask, Page, Window]:
        """What of the window lies below the page, once all that belongs beside the page's builds was read."""
        seam = self._seam(stamps)
        end = self._latest if stretch.left.end is None else min(stretch.left.end, self._latest)
        disordered = disorder(stamps) > self._overlap
        crowded = seam >= end or sum(stamp < seam for stamp in stamps) > len(stamps) / 2
        if not disordered and not crowded:
            return Window(stretch.left.start, seam)
        end = end if disordered else min(end, seam)
        oldest = min(*stamps, end - CUT)
        closed = Window(max(oldest, stretch.left.start or oldest), end)
        assert self._pin is not None
        may_grow = disordered or not self._steady or end > self._pin - self._overlap
        yield from self._by_number(stretch, closed, may_grow)
        return Window(stretch.left.start, closed.start)  # an older part may have been taken meanwhile

    def _seam(self, stamps: Sequence[Moment]) -> Moment:
        """Where the next page begins: what lies above was seen, if the list is in order but for the overlap."""
        return min(stamps) + self._overlap + grain(stamps)

    def _by_number(self, stretch: Stretch, closed: Window, may_grow: bool) -> Steps:
        """Read a window by its page numbers until it is verified that no row is missing."""

        def page(number: int) -> Generator[Ask, Page, Page]:
            page = yield Ask(closed, number)
            self._accept(stretch, closed, page)
            return page

        try:
            yield from NumberedReading(
                page,
                new=lambda: len(stretch.kept.rows),
                in_vain=lambda: self._in_vain,
                can_repeat=lambda: self._in_vain + len(self._reading) < _MOST_REPEATED,
                is_deep=lambda refusal: _is_deep(refusal, stretch),
                may_grow=may_grow,
                size=self._size,
            ).read(READINGS)
        except CannotVerify as why:
            self.doubts.append((closed, f"{why}; {_NARROW}"))

    def _part(self) -> Stretch | None:
        """The older part of the stretch with most to read, cut below the page that it waits for; None if none is."""
        if not self._reading or len(self._reading) >= self._readers(self.pages_left):
            return None
        longest = max(self._reading, key=attrgetter("weight"))
        pages = longest.weight
        if pages < 2 or longest.left.end is None:
            return None
        keeps = round((pages + 1) / 2) - _SPARE
        back = min(longest.extent * (keeps / pages), longest.left.end - _BEGIN)
        cut = (longest.left.end - back).replace(microsecond=0)
        older, newer = replace(longest.left, end=cut), replace(longest.left, start=cut)
        if older.is_empty or newer.is_empty:
            return None
        longest.left, longest.pages = newer, keeps
        return Stretch(older, self._read, pages - keeps, longest.span)

    # --- what an answer holds

    def _accept(self, stretch: Stretch, window: Window, page: Page) -> list[Moment]:
        """Keep the rows that are new; the stamps of all rows."""
        self.answers += 1
        stamps = [_created(row) for row in page.rows]
        if page.next is not None and not stamps:
            raise Malformed(f"Asked for {window}, the service sent a page without rows that links to a next one.")
        for stamp in stamps:
            if not window.holds(stamp):
                raise Malformed(f"Asked for {window}, the service sent one of {stamp.text()}: it ignores a filter.")
        self._size = max(self._size, len({row.id for row in page.rows}))
        if self._pin is None and stamps:
            self._set_pin(page, stamps)
        fresh = fresh_in(page.rows, attrgetter("id"), self._seen)
        stretch.kept = Kept([page.rows[place] for place in fresh], [stamps[place] for place in fresh])
        self._stamps += stretch.kept.stamps
        self._guard(is_in_vain=not fresh)
        if not self._ends(page):
            self._disorder = max(self._disorder, disorder(stamps))
        return stamps

    def _set_pin(self, page: Page, stamps: list[Moment]) -> None:
        self._pin = max(stamps)
        self._latest = self._pin + self._overlap + grain(stamps)
        is_behind = self._pin - page.at > self._overlap + CUT  # the service's clock, or a proxy's
        bound = self._pin + grain(stamps) if is_behind else page.at - self._overlap  # later builds may still arrive
        self._top = min(bound, self._whole.end or _END)
        heads = (row.id for row, stamp in zip(page.rows, stamps, strict=True) if stamp < self._top)
        self._head = next(heads, None)  # what a service that ignores page numbers lists first
        if disorder(stamps) > self._overlap:  # the newest build may be on a later page
            self._latest = max(self._latest, page.at + CUT)
        self._has_pages, self._reports_pages = not page.is_last, page.of is not None

    def _ends(self, page: Page) -> bool:
        """Whether no build is below a page. One that is shorter than another and links to no next one is not full."""
        return page.is_last or (page.next is None and len(page.rows) < self._size)

    def _guard(self, *, is_in_vain: bool) -> None:
        """End a walk whose answers bring nothing new, whatever the service's reason is."""
        self._in_vain = self._in_vain + 1 if is_in_vain else 0
        if self._in_vain >= MOST_IN_VAIN:
            raise Incomplete(
                f"The last {self._in_vain} answers held no build that was new. The service repeats itself, so "
                "whether builds are missing cannot be known. Ask for shorter times, or report it to the service."
            )

    # --- a count, for what no page showed

    @property
    def _wants_a_check(self) -> bool:
        """Whether to ask how many builds there are: once, and in the end if disorder or changes may hide some."""
        if not self._has_pages or self.doubts or self._checks == 2:
            return False
        if self._steady and not self._checks:
            return self._reports_pages or not self._reading
        if self._reading or (self._steady and self._counted is None):
            return False
        return not self._steady or self._is_disordered or self._differs(self._counted, self._found(self._top))

    def _new_check(self) -> Stretch | None:
        busy = self._reading and len(self._reading) >= self._readers(self.pages_left)
        if busy or not self._wants_a_check:
            return None
        is_first = self._steady and not self._checks
        self._checks, self._is_unsettled = (1, False) if is_first else (2, True)
        return Stretch(Window(self._pin, self._pin), self._count_all if is_first else self._reconcile, 0.0)

    def _count_all(self, stretch: Stretch) -> Steps:
        """Count what was there at the first response: up to its time, if the service's clock is right."""
        was_reported = self._reports_pages
        self._counted = yield from self._count(Window(self._whole.start, self._top), self._found(self._top))
        if self._counted is None and was_reported and not self._reports_pages:
            self._checks = 0  # ask again in the end

    def _reconcile(self, stretch: Stretch) -> Steps:
        """Read again the windows in which the service counts other builds than were found."""
        whole, first = Window(self._whole.start, self._top), self._counted
        left = [(whole, sorted(stamp for stamp in self._stamps if stamp < self._top))]
        while left:
            window, stamps = left.pop()
            counted = yield from self._count(window, len(stamps))
            if counted is None:
                if self._counted is not None:
                    self.doubts.append((whole, _UNCLEAR.format(self._counted)))
                break
            self._counted = counted if self._counted is None else self._counted
            is_fewer = self._reports_pages and first is not None and counted < first  # else a count is a lower bound
            if window == whole and is_fewer and self._is_disordered:
                self.doubts.append((whole, _FEWER.format(first, counted, math.ceil(self._disorder.total_seconds()))))
            if not self._differs(counted, len(stamps)):
                continue
            middle = next((stamp for stamp in stamps[len(stamps) // 2 :] if stamp > stamps[0]), None)
            if middle is None or len(stamps) <= self._size:
                yield from self._read_again(stretch, window)
            else:
                left.append((replace(window, end=middle), [stamp for stamp in stamps if stamp < middle]))
                left.append((replace(window, start=middle), [stamp for stamp in stamps if stamp >= middle]))
        if self._is_disordered:  # the newest builds were not counted
            start, end = self._top - self._overlap, max(self._top + self._overlap + CUT, self._latest)
            newest = Window(max(start, self._whole.start or start), min(end, self._whole.end or end))
            yield from self._by_number(stretch, newest, may_grow=True)
        self._is_unsettled = False

    def _read_again(self, stretch: Stretch, window: Window) -> Steps:
        """Read a window whose builds were counted and not found, until the service counts those that were found."""
        counted: int | None = None
        found = 0
        for _ in range(_RECOUNTS):
            yield from self._by_number(stretch, window, may_grow=True)
            found = self._found(window.end) - self._found(window.start)
            counted = yield from self._count(window, found)
            if not self._differs(counted, found):
                return
        self.doubts.append((window, _LOST.format(counted, found)))

    def _count(self, window: Window, found: int) -> Generator[Ask, Page, int | None]:
        """How many builds the service has in the window; None if it does not say."""
        if window.is_empty:
            return 0
        try:
            if self._reports_pages:
                page = yield from self._counting(window, 1)
                if page.is_last or page.of is not None:
                    return len(page.rows) if page.is_last else page.of
                self._reports_pages = False  # a proxy dropped the header
                if len(self._reading) > 1:  # what is found meanwhile cannot be compared
                    return None
            return (yield from self._compare(window, found))
        except ServiceError as refusal:
            if refusal.status not in _DEEP and (self._reports_pages or refusal.status < 500):
                raise
            return None

    def _compare(self, window: Window, found: int) -> Generator[Ask, Page, int | None]:
        """The number of builds as far as it can be seen from whether there is one beyond those that were found."""
        page = yield from self._counting(window, found + 1)
        if self._head in {row.id for row in page.rows}:  # page numbers are ignored
            return None
        if not page.rows and found and self._is_disordered:
            page = yield from self._counting(window, found)
            return found - (not page.rows)
        return found + len(page.rows)

    def _counting(self, window: Window, number: int) -> Generator[Ask, Page, Page]:
        page = yield Ask(window, number, only_count=True)
        self.answers += 1
        self._guard(is_in_vain=True)
        return page

    def _found(self, bound: Moment | None) -> int:
        return sum(stamp < bound for stamp in self._stamps) if bound else 0

    def _differs(self, counted: int | None, found: int) -> bool:
        """Whether more were counted than found, or, if the list was seen to be out of order, others."""
        more = 0 if counted is None else counted - found
        return more > 0 or (self._is_disordered and more != 0)

    @property
    def _is_disordered(self) -> bool:
        return self._disorder > self._overlap


_LOST = "the service counts {} builds, and its pages show {}; ask again, or for one pipeline or branch at a time"
_UNCLEAR = (
    "the service counted {} builds, which is not what its pages showed, and later it reported no number; ask again"
)
_FEWER = "the service counted {} builds and later {}, and its list is out of order; ask again with overlap='{}s'"
_DISORDERED = (
    "the service's list is out of order by {}, and it does not report how many builds there are; "
    "ask again with overlap='{}s'"
)
_NARROW = "ask for one pipeline or branch at a time, so that fewer builds share a timestamp"


def _is_deep(refusal: ServiceError, stretch: Stretch) -> bool:
    """Whether it is how a service may refuse a page for its number."""
    assert stretch.ask is not None
    return stretch.ask.number > 1 and refusal.status in _DEEP


def _created(row: Any) -> Moment:
    if row.created_at is None:
        raise Malformed(f"The service sent build {row.id} without `created_at`, by which builds are walked.")
    created = Moment.parse(row.created_at)
    if created.year not in _YEARS:
        raise Malformed(f"The service sent build {row.id} as created at {created.text()}, which cannot be.")
    return created
