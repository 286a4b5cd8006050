"""Paginate a list by its links, and stop if they form a circle. Pure: receives pages and says which one is next."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from buildframe.errors import Incomplete, Malformed
from buildframe.http.protocol import Page
from buildframe.spec import Moment


class LinkPagination:
    """Pagination by links: request the page `next` and pass it to `take`, until `next` is None.

    `next` is a link and a page number; the link is None if the page before has none. `rows` and `requests` count what
    was read. `share` is the share of the pages that is read, from 0 to 1, or None if the service does not report their
    number. `key` identifies a row.
    """

    def __init__(self, key: Callable[[Any], Hashable] = attrgetter("id")) -> None:
        self.next: tuple[str | None, int] | None = (None, 1)
        self.rows = 0
        self.requests = 0
        self.share: float | None = None
        self._key = key
        self._seen: set[Hashable] = set()
        self._page_size = 0  # distinct rows of the longest page

    def take(self, page: Page) -> Page:
        """Return the page without the rows of earlier pages, and set `next`."""
        self.requests += 1
        new = [page.rows[place] for place in unseen(page.rows, self._key, self._seen)]
        self._page_size = max(self._page_size, len({self._key(row) for row in page.rows}))
        # a page without a link is the last one if it is shorter than another one
        is_last = page.next is None and not (page.open and len(page.rows) >= self._page_size)
        if not new and not is_last:
            raise Incomplete(
                f"Page {self.requests} of the list is not the last, but contains only rows of earlier pages, so rows"
                " may be missing. The service links its pages in a circle, or a proxy drops links or ignores `page`."
                " Try again, without the proxy if it happens again."
            )
        self.rows += len(new)
        self.share = min(1.0, self.requests / page.of) if page.of else self.share
        self.next = None if is_last else (page.next, self.requests + 1)
        return replace(page, rows=new)

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
