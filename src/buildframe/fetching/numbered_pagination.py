"""Read a list by page numbers until it is verified that no row is missing, and what its timestamps show of its order.

Knows pages; no requests.

A list may be in another order at each request, such as rows of one timestamp that are sorted by it alone. One reading
of its pages then repeats some rows and lacks others.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Generator, Hashable, Sequence
from typing import Any

from buildframe.errors import ServiceError
from buildframe.http.protocol import Page
from buildframe.spec import Moment

_PATIENCE = 80  # responses of a whole listing that may bring nothing new, one after the other
_REPEATS = 10  # pages in a row that hold no row but those of the pages before

Pages = Generator[Any, Page, Page]


class CannotVerify(Exception):
    """Rows may be missing; the text says why."""


class NumberedReading:
    """Readings of a list by its page numbers, each from the last page to the first; `read` ends when one verifies it.

    `page` requests a page by its number, `new` is how many rows of the last one were new, `in_vain` how many responses
    of the whole listing brought nothing new since, `can_repeat` whether the listing can afford one more of these, and
    `is_deep` whether an error refuses a page for its number. The list is verified when as many different rows were seen
    as it had when the readings began, and none that came later. If it `may_grow`, a row that is new may have come
    later. `size` is how many rows a page is known to have.
    """

    def __init__(
        self,
        page: Callable[[int], Pages],
        *,
        new: Callable[[], int],
        in_vain: Callable[[], int],
        can_repeat: Callable[[], bool],
        is_deep: Callable[[ServiceError], bool],
        may_grow: bool,
        size: int,
    ) -> None:
        self._page, self._new, self._in_vain, self._is_deep, self._may_grow = page, new, in_vain, is_deep, may_grow
        self._can_repeat, self._size = can_repeat, size
        self._follows = False  # whether the last page is found by going on, as the service's number of it is wrong
        self._last: tuple[int, int] | None = None  # number of the last page and rows of a page, while it may be so
        self._rows: int | None = None
        self._ids: set[Hashable] = set()

    def read(self, most: int) -> Generator[Any, Page, None]:
        """Read at most so often until the list is verified; raise CannotVerify if it cannot be."""
        try:
            for _ in range(most):
                last, size = self._last or (0, 0)
                if self._last is None or not (yield from self._backward(last, size)):
                    self._last = None
                    last, size = yield from self._last_page()
                    if last == 1:
                        return
                    if not (yield from self._backward(last, size)):
                        self._follows = True
                        continue
                    self._last = last, size
                # of a list that may grow, a reading without a new row is the second one already
                if self._is_verified and (self._may_grow or (yield from self._is_confirmed(last, size))):
                    return
        except ServiceError as refusal:
            if not self._is_deep(refusal):
                raise
            raise CannotVerify(f"the service refuses to list them by page numbers ({refusal.message})") from None
        raise CannotVerify(f"its list by page numbers was another one in each of {most} readings")

    def _last_page(self) -> Generator[Any, Page, tuple[int, int]]:
        """The number of the last page (1 if one page holds all), and how many rows a page has."""
        seen: set[Hashable] = set()
        repeats, size = 0, self._size
        for number in itertools.count(1):
            page = yield from self._requested(number)
            size = max(size, _count(page))
            if _ends(page, size):
                return number, size
            # a last page that is not after one with a next one cannot be
            if page.of is not None and page.of > number and not self._follows:
                return page.of, size
            repeats = repeats + 1 if seen.issuperset(_ids(page)) else 0
            if repeats == _REPEATS:
                raise CannotVerify(f"{repeats + 1} pages of its list hold the same rows: `page` is ignored")
            seen.update(_ids(page))
        raise AssertionError("numbers do not end")

    def _backward(self, last: int, size: int) -> Generator[Any, Page, bool]:
        """Read the pages from the last to the first; return whether `last` is the last page.

        In this order a deletion can repeat a row, never hide one.
        """
        try:
            page = yield from self._requested(last)
        except ServiceError as refusal:
            if self._follows or not self._is_deep(refusal):
                raise
            return False
        is_fresh = self._last is None
        if not _ends(page, size) or not (page.rows or (self._follows and is_fresh)):
            return False
        self._begin((last - 1) * size + _count(page))
        self._see(page)
        for number in range(last - 1, 0, -1):
            if self._is_verified:
                break
            later, page = page, (yield from self._requested(number))
            if number == last - 1 and _ids(page) == _ids(later):
                return False
            self._see(page)
        return True

    def _is_confirmed(self, last: int, size: int) -> Generator[Any, Page, bool]:
        """Read the pages once more, from the first to the last: some may have come from an older state of the list.

        The other order is on purpose: servers that take turns would give the same responses again. A listing may make
        few requests without a new row, so of many pages only the first ones are read again.
        """
        rows = None
        for number in range(1, last + 1):
            if not self._can_repeat():
                return True
            try:
                page = yield from self._requested(number)
            except ServiceError as refusal:
                if not self._is_deep(refusal):
                    raise
                self._last = None  # the list is shorter by now
                return False
            self._see(page)
            rows = (number - 1) * size + _count(page) if _ends(page, size) else None
        self._begin(rows)
        return self._is_verified

    def _requested(self, number: int) -> Pages:
        page = yield from self._page(number)
        if self._in_vain() >= _PATIENCE:
            raise CannotVerify(f"the last {self._in_vain()} requests brought nothing new")
        return page

    @property
    def _is_verified(self) -> bool:
        return self._rows is not None and len(self._ids) == self._rows

    def _begin(self, rows: int | None) -> None:
        """A reading begins: so many rows are in the list, if that is known."""
        if rows is None or rows != self._rows:
            self._rows, self._ids = rows, set()

    def _see(self, page: Page) -> None:
        self._ids.update(_ids(page))
        came_later = self._rows is not None and len(self._ids) > self._rows
        if came_later or (self._may_grow and self._new()):
            self._rows = None


def _ends(page: Page, size: int) -> bool:
    """Whether the list ends with the page; one that is shorter than another is not full."""
    return page.is_last or (page.next is None and _count(page) < size)


def _count(page: Page) -> int:
    """How many rows a page has; a proxy may send each of them twice."""
    return len(set(_ids(page)))


def _ids(page: Page) -> list[Hashable]:
    return [row.id for row in page.rows]


def disorder(stamps: Sequence[Moment]) -> dt.timedelta:
    """By how much a list is out of its order, newest first: the most that a row is newer than one before it."""
    before = itertools.accumulate(stamps, min)
    return max((after - oldest for oldest, after in zip(before, stamps[1:], strict=False)), default=dt.timedelta(0))


def grain(stamps: Sequence[Moment]) -> dt.timedelta:
    """What stamps are cut to: whole seconds or milliseconds, as it looks, or microseconds."""
    cut = (size for size in (1_000_000, 1_000, 1) if all(stamp.microsecond % size == 0 for stamp in stamps))
    return dt.timedelta(microseconds=next(cut))
