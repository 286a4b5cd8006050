"""Read a time range by page numbers until it is verified that no row is missing. Knows pages; sends no requests.

A list may be in another order at each request, such as rows with equal timestamps that are sorted by it alone. One
reading of its pages then repeats some rows and misses others.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Hashable

from buildframe.errors import ServiceError
from buildframe.fetching.listing_state import (
    DEEP_PAGE_STATUSES,
    ListingState,
    PageQuery,
    Received,
    Steps,
)
from buildframe.fetching.time_ranges import TimeRange
from buildframe.http.protocol import Page

MAX_READINGS = 20
"""How often a time range is read by page numbers until a reading verifies it."""

_MAX_FRUITLESS = 80  # responses in a row, of the whole listing, without a new row
_MAX_FRUITLESS_REPEATS = 40  # of these, responses (and pending requests) that only repeat verified pages
_MAX_EQUAL_PAGES = 10  # pages in a row that contain only rows of the pages before
_LIST_LESS = "list one pipeline or branch at a time, so that fewer builds have equal timestamps"


class CannotVerify(Exception):
    """Rows may be missing; the text says why."""


def read_by_number(state: ListingState, time_range: TimeRange, *, may_grow: bool) -> Steps:
    """Read a time range by page numbers; if it cannot be verified, add it to the unverified ranges."""
    try:
        yield from NumberedPagination(state, time_range, may_grow).read()
    except CannotVerify as why:
        state.unverified.append((time_range, f"{why}; {_LIST_LESS}"))


class NumberedPagination:
    """Reads a time range by page numbers, each time from the last page to the first, until a reading verifies it.

    The list is verified when as many distinct rows were seen as it had when the readings began, and none that came
    later. If it `may_grow`, a row that is new may have come later.
    """

    def __init__(self, state: ListingState, time_range: TimeRange, may_grow: bool) -> None:
        self._state, self._range, self._may_grow = state, time_range, may_grow
        self._page_size = state.page_size
        self._number = 0  # of the page that was requested last
        self._ignores_last = False  # whether the service's number of the last page is wrong
        self._last: tuple[int, int] | None = None  # number of the last page and page size, while they may be right
        self._rows: int | None = None  # rows of the list when the readings began
        self._ids: set[Hashable] = set()

    def read(self) -> Steps:
        """Read until the list is verified; raise CannotVerify if it cannot be."""
        try:
            for _ in range(MAX_READINGS):
                last, size = self._last or (0, 0)
                if self._last is None or not (yield from self._read_backward(last, size)):
                    self._last = None
                    last, size = yield from self._find_last_page()
                    if last == 1:
                        return
                    if not (yield from self._read_backward(last, size)):
                        self._ignores_last = True
                        continue
                    self._last = last, size
                # of a list that may grow, a reading without a new row is the second one already
                if self._is_verified and (self._may_grow or (yield from self._confirm(last, size))):
                    return
        except ServiceError as refusal:
            if not self._is_about_number(refusal):
                raise
            raise CannotVerify(f"the service refuses to list them by page numbers ({refusal.message})") from None
        raise CannotVerify(f"its list by page numbers was another one in each of {MAX_READINGS} readings")

    def _find_last_page(self) -> Generator[PageQuery, Received, tuple[int, int]]:
        """Return the number of the last page (1 if one page contains all rows) and the page size."""
        seen: set[Hashable] = set()
        equal_pages, size = 0, self._page_size
        for number in itertools.count(1):
            page = (yield from self._request(number)).page
            size = max(size, _count(page))
            if _ends(page, size):
                return number, size
            # the reported last page is wrong if it is not after one with a next one
            if page.of is not None and page.of > number and not self._ignores_last:
                return page.of, size
            equal_pages = equal_pages + 1 if seen.issuperset(_ids(page)) else 0
            if equal_pages == _MAX_EQUAL_PAGES:
                raise CannotVerify(f"{equal_pages + 1} pages of its list contain the same rows: `page` is ignored")
            seen.update(_ids(page))
        raise AssertionError("numbers do not end")

    def _read_backward(self, last: int, size: int) -> Generator[PageQuery, Received, bool]:
        """Read the pages from the last to the first; return whether `last` is the last page.

        In this order a deletion can repeat a row, never hide one.
        """
        try:
            received = yield from self._request(last)
        except ServiceError as refusal:
            if self._ignores_last or not self._is_about_number(refusal):
                raise
            return False
        page, is_first_reading = received.page, self._last is None
        if not _ends(page, size) or not (page.rows or (self._ignores_last and is_first_reading)):
            return False
        self._begin_reading((last - 1) * size + _count(page))
        self._see(received)
        for number in range(last - 1, 0, -1):
            if self._is_verified:
                break
            later, received = received, (yield from self._request(number))
            if number == last - 1 and _ids(received.page) == _ids(later.page):
                return False
            self._see(received)
        return True

    def _confirm(self, last: int, size: int) -> Generator[PageQuery, Received, bool]:
        """Read the pages once more, from the first to the last: some may have come from an older state of the list.

        The other order is on purpose: servers that take turns would send the same responses again. A listing may send
        few requests without a new row, so of many pages only the first ones are read again.
        """
        rows = None
        for number in range(1, last + 1):
            if self._state.fruitless + self._state.active_readers >= _MAX_FRUITLESS_REPEATS:
                return True
            try:
                received = yield from self._request(number)
            except ServiceError as refusal:
                if not self._is_about_number(refusal):
                    raise
                self._last = None  # the list is shorter by now
                return False
            self._see(received)
            rows = (number - 1) * size + _count(received.page) if _ends(received.page, size) else None
        self._begin_reading(rows)
        return self._is_verified

    def _request(self, number: int) -> Generator[PageQuery, Received, Received]:
        self._number = number
        received = yield PageQuery(self._range, number)
        if self._state.fruitless >= _MAX_FRUITLESS:
            raise CannotVerify(f"the last {self._state.fruitless} responses contained no new row")
        return received

    def _is_about_number(self, refusal: ServiceError) -> bool:
        """Whether the service may have refused the page for its number."""
        return self._number > 1 and refusal.status in DEEP_PAGE_STATUSES

    @property
    def _is_verified(self) -> bool:
        return self._rows is not None and len(self._ids) == self._rows

    def _begin_reading(self, rows: int | None) -> None:
        """Begin a reading of a list with so many rows; None if unknown."""
        if rows is None or rows != self._rows:
            self._rows, self._ids = rows, set()

    def _see(self, received: Received) -> None:
        self._ids.update(_ids(received.page))
        came_later = self._rows is not None and len(self._ids) > self._rows
        if came_later or (self._may_grow and received.new.rows):
            self._rows = None


def _ends(page: Page, size: int) -> bool:
    """Whether the list ends with the page; one that is shorter than another is not full."""
    return page.is_last or (page.next is None and _count(page) < size)


def _count(page: Page) -> int:
    """Return how many rows a page has; a proxy may send each of them twice."""
    return len(set(_ids(page)))


def _ids(page: Page) -> list[Hashable]:
    return [row.id for row in page.rows]
