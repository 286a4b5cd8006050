"""Paginate a list by its links, and stop if they form a circle. Pure: receives pages and says which one is next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from buildframe.errors import Incomplete, Malformed
from buildframe.http.page_limits import PageLimits
from buildframe.http.protocol import Page
from buildframe.spec import Moment

MAX_PAGES = 5_000
"""Pages of a list that is read by its links, if `max_requests` does not say otherwise."""


class LinkPagination:
    """Pagination by links: request the page `next` and pass it to `take`, until `next` is None.

    `next` is a link and a page number; the link is None if the page before has none. `rows` and `requests` count what
    was read. `share` is the share of the pages that is read, from 0 to 1, or None if the service does not report their
    number. `key` identifies a row, and `limits` is what is known about the pages of the service.
    """

    def __init__(self, key: Callable[[Any], Hashable] = attrgetter("id"), limits: PageLimits | None = None) -> None:
        self.next: tuple[str | None, int] | None = (None, 1)
        self._limits = limits or PageLimits()
        self.rows = 0
        self.requests = 0
        self.share: float | None = None
        self._key = key
        self._seen: set[Hashable] = set()
        self._links: set[str] = set()
        self._page_size = 0  # distinct rows of the longest page
        self._offset = 0  # rows of the list up to the end of the page before
        self._short_rows: int | None = None  # rows of the page before, if it is not known whether it was the last

    def take(self, page: Page) -> Page:
        """Return the page without the rows of earlier pages, and set `next`."""
        self.requests += 1
        new = [page.rows[place] for place in unseen(page.rows, self._key, self._seen)]
        page = self._settle(page, has_new_rows=bool(new))
        self._page_size = max(self._page_size, len({self._key(row) for row in page.rows}))
        # a page without a link is the last one if it is shorter than another one
        full = min(self._page_size, page.size or self._page_size)
        is_last = page.next is None and not (page.open and len(page.rows) >= full)
        if not new and not is_last:
            raise Incomplete(
                f"Page {self.requests} of the list is not the last, but contains only rows of earlier pages, so rows"
                " may be missing. The service links its pages in a circle, or a proxy drops links or ignores `page`."
                " Try again, without the proxy if it happens again."
            )
        if page.next is not None and page.next in self._links:
            raise Incomplete(
                f"Page {self.requests} of the list links to a page that was read before, so rows may be missing. The"
                " service links its pages in a circle. Try again, and report it to the service if it happens again."
            )
        self._links.add(page.next or "")
        assert self.next is not None
        number = self.next[1]
        self.rows += len(new)
        self._offset += len(page.rows)
        self.share = min(1.0, number / page.of) if page.of else self.share
        self.next = None if is_last else (page.next, number + 1)
        return replace(page, rows=new)

    def _settle(self, page: Page, *, has_new_rows: bool) -> Page:
        """Return the page as the last one, if that is known; see `PageLimits`."""
        if self._short_rows is not None and (has_new_rows or not page.rows):
            self._limits.confirm(self._short_rows, is_followed=has_new_rows)
        page = self._limits.settle(page)
        self._short_rows = len(page.rows) if page.short else None
        return page

    def check_pages(self) -> None:
        """Raise Incomplete if a list has more pages than a list is expected to have."""
        if self.requests >= MAX_PAGES:
            raise Incomplete(
                f"The list has more than {MAX_PAGES:,} pages ({self.rows:,} rows so far). Perhaps the service"
                " links new pages without an end. If the list is as long as that, pass max_requests=, which"
                " replaces this limit, or filters."
            )

    def shrink_pages(self, rows: int) -> None:
        """Continue with pages of fewer rows, from that with the first row that was not read."""
        if self._offset:
            size = min(rows, self._page_size)
            self._offset -= self._offset % size
            self.next = (None, self._offset // size + 1)

    def progress(self) -> str:
        """Describe how far the listing has come."""
        return progress(self.rows, self.requests)


def progress(rows: int, requests: int, back_to: Moment | None = None) -> str:
    """Describe how far a listing that failed had come."""
    back = f", back to builds created at {back_to.text()}" if back_to else ""
    return f"The listing had read {rows} rows in {requests} responses{back}; none of them is returned."


_MISSING = {None, "", (None, None)}  # emojis have two keys


def unseen(rows: Sequence[Any], key: Callable[[Any], Hashable], seen: set[Hashable]) -> list[int]:
    """Return the positions of the rows that are not in `seen`, and add them to it."""
    new = []
    for place, row in enumerate(rows):
        identity = key(row)
        if identity in _MISSING:
            raise Malformed("The service sent a row without its `id`, which identifies rows.")
        if identity not in seen:
            seen.add(identity)
            new.append(place)
    return new
