"""Read a time range by page numbers until it is verified that no row is missing. Knows pages; sends no requests.

A list may be in another order at each request, such as rows with equal timestamps that are sorted by it alone. One
reading of its pages then repeats some rows and misses others.
"""

from __future__ import annotations

from collections.abc import Generator, Hashable

from buildframe.errors import ServiceError
from buildframe.fetching.listing_state import (
    DEEP_PAGE_STATUSES,
    MAX_STALLED,
    ListingState,
    PageQuery,
    PagesShrunk,
    ReceivedPage,
    Steps,
)
from buildframe.fetching.time_ranges import TimeRange
from buildframe.http.protocol import Page

MAX_READINGS = 20  # how often a time range is read by page numbers until a reading verifies it
_MAX_STALLED = 80  # responses in a row, of the whole listing, without a new row; the rest is for counting
_MAX_EMPTY_LINKED = 2  # readings in which a page links to an empty one; a service may always do so after a full page
_MAX_EQUAL_PAGES = 10  # pages in a row that contain only rows of the pages before
_LIST_LESS = "list one pipeline or branch at a time, so that fewer builds have equal timestamps, or use workers=1"


class CannotVerify(Exception):
    """Rows may be missing; the text says why."""


def read_by_number(state: ListingState, time_range: TimeRange, *, may_grow: bool) -> Steps:
    """Read a time range by page numbers; if it cannot be verified, add it to the unverified ranges."""
    try:
        yield from NumberedPagination(state, time_range, may_grow).read()
    except CannotVerify as why:
        state.unverified.append((time_range, f"{why}; {_LIST_LESS}"))


class NumberedPagination:
    """Reads a time range by page numbers until a reading backward is complete, and one forward agrees with it.

    Backward, a deletion can repeat a row, but never hide one. So the list is complete if readings backward showed as
    many distinct rows as it has, by the number of its last page and the rows of that page. Some responses may come from
    an older state of the list, and servers that take turns would send the same responses in the same order: a reading
    forward must agree. If the list `may_grow`, a row that is new may have come later, so only a reading without new
    rows counts, which is a second one already.
    """

    def __init__(self, state: ListingState, time_range: TimeRange, may_grow: bool) -> None:
        self._state, self._range, self._may_grow = state, time_range, may_grow
        self._size: int | None = None  # requested rows of the pages that numbers refer to
        self._page_size = state.page_size
        self._number = 0  # of the page that was requested last
        self._last = 0  # number of the last page
        self._empty_linked = 0  # readings forward in which a page linked to an empty one
        self._forward: tuple[int, set[Hashable]] = 0, set()  # rows of the list by the last reading forward, rows seen
        self._rows: int | None = None  # rows of the list by the last reading backward, if nothing contradicts it
        self._ids: set[Hashable] = set()  # rows that readings backward of such a list showed

    def read(self) -> Steps:
        """Read until the list is verified; raise CannotVerify if it cannot be."""
        is_backward = was_refused = False
        for _ in range(MAX_READINGS):
            try:
                is_whole = yield from (self._read_backward() if is_backward else self._read_forward())
            except ServiceError as refusal:
                if self._number == 1 or refusal.status not in DEEP_PAGE_STATUSES:  # it is not about the number
                    raise
                if was_refused:
                    raise CannotVerify(
                        f"the service refuses to list them by page numbers ({refusal.message})"
                    ) from None
                is_whole, was_refused = False, True  # perhaps the list has become shorter
            except PagesShrunk:
                is_whole = False
            if self._last == 1 or (is_whole and self._is_complete and (self._may_grow or self._is_confirmed)):
                return
            is_backward = is_whole and not (is_backward and self._is_complete)
        raise CannotVerify(f"its pages changed in each of {MAX_READINGS} readings")

    def _read_forward(self) -> Generator[PageQuery, ReceivedPage, bool]:
        """Read the pages from the first to the last, which becomes known; return False if they contradict each other.

        A page that links to an empty one may be of another list, because a proxy ignored a filter.
        """
        ids: set[Hashable] = set()
        number = equal_pages = 0
        is_linked = False
        while True:
            number += 1
            page = (yield from self._request(number, self._size if number > 1 else None)).page
            if number == 1:
                self._adopt_size(page)
            self._page_size = max(self._page_size, _count(page))
            equal_pages = equal_pages + 1 if ids.issuperset(_ids(page)) else 0
            ids.update(_ids(page))
            if is_linked and not page.rows and self._empty_linked < _MAX_EMPTY_LINKED:
                self._empty_linked += 1
                return False
            is_linked = page.next is not None
            if _ends(page, self._page_size):
                self._last = number
                self._forward = (number - 1) * self._page_size + _count(page), ids
                return True
            if equal_pages == _MAX_EQUAL_PAGES:
                raise CannotVerify(f"{equal_pages + 1} pages of its list contain the same rows: `page` is ignored")

    def _read_backward(self) -> Generator[PageQuery, ReceivedPage, bool]:
        """Read the pages from the last to the first; return False if the last page is another one by now."""
        ids: set[Hashable] = set()
        rows, has_new_rows, before = 0, False, list[Hashable]()
        for number in range(self._last, 0, -1):
            page, _, new = yield from self._request(number, self._size)
            if number == self._last:
                if not _ends(page, self._page_size):
                    return False
                rows = (number - 1) * self._page_size + _count(page)
            elif number == self._last - 1:
                is_full = _count(page) == self._page_size
                if _ids(page) == before or (not before and not is_full):
                    return False
            has_new_rows = has_new_rows or bool(new.rows)
            ids.update(_ids(page))
            before = _ids(page)
        self._ids = self._ids | ids if rows == self._rows else ids
        is_contradicted = len(self._ids) > rows or (self._may_grow and has_new_rows)
        self._rows = None if is_contradicted else rows
        return True

    @property
    def _is_complete(self) -> bool:
        return len(self._ids) == self._rows

    @property
    def _is_confirmed(self) -> bool:
        rows, ids = self._forward
        return rows == self._rows and ids <= self._ids

    def _adopt_size(self, first: Page) -> None:
        """Forget what was read by pages of another size than the first page of this reading."""
        if first.size != self._size:
            self._size = first.size
            self._page_size = self._state.rows_of_full(first)
            self._rows = None
            self._ids = set()

    def _request(self, number: int, size: int | None) -> Generator[PageQuery, ReceivedPage, ReceivedPage]:
        self._number = number
        received = yield PageQuery(self._range, number, size=size)
        if self._state.stalled >= min(_MAX_STALLED, MAX_STALLED - self._state.active_readers):
            raise CannotVerify("they are too many to read their pages twice")
        return received


def _ends(page: Page, size: int) -> bool:
    """Whether the list ends with the page; one that is shorter than another is not full."""
    return page.is_last or (page.next is None and _count(page) < size)


def _count(page: Page) -> int:
    """Return how many rows a page has; a proxy may send each of them twice."""
    return len(set(_ids(page)))


def _ids(page: Page) -> list[Hashable]:
    return [row.id for row in page.rows]
