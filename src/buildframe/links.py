"""Complete walks over lists by their links, with a guard against circles. Knows pages; neither HTTP nor threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from buildframe.errors import BuildframeError, Incomplete, Malformed
from buildframe.spec import Moment
from buildframe.wire import Page

_IN_VAIN = 10  # pages; so many in a row with nothing new are not the doing of entries that were added meanwhile


class LinkWalk:
    """A walk over a list by its links: iterate for pages of rows that were not seen before.

    Attributes: `rows` and `requests` so far, `share` (of the whole that is done, 0 to 1, or None where that is not
    known). `key` tells rows apart. `numbered` requests a page by its number, for pages that link to none and may not be
    the last.
    """

    def __init__(
        self,
        first: Callable[[], Page],
        follow: Callable[[str], Page],
        key: Callable[[Any], Hashable] = attrgetter("id"),
        *,
        numbered: Callable[[int], Page] | None = None,
    ) -> None:
        self._first = first
        self._follow = follow
        self._key = key
        self._numbered = numbered
        self._seen: set[Hashable] = set()
        self._links: set[str] = set()
        self._in_vain = 0
        self._size = 0  # different rows of the longest page
        self._last: int | None = None  # the last page, as any page reported it
        self._is_numbered = False  # whether links lead to pages by their numbers
        self.rows = 0
        self.requests = 0
        self.share: float | None = None

    def __iter__(self) -> Iterator[Page]:
        try:
            page = self._first()
            yield self._keep(page)
            while page.next is not None or self._may_go_on(page):
                page = self._next(page.next) if page.next is not None else self._unlinked()
                yield self._keep(page)
        except BuildframeError as error:
            if self.requests:
                error.add_note(how_far(self.rows, self.requests))
            raise

    def _next(self, link: str) -> Page:
        if link in self._links:
            raise Incomplete(
                "The service links its pages in a circle, so the list has no end. Report it to the service."
            )
        self._links.add(link)
        self._is_numbered = re.search(rf"[?&]page={self.requests + 1}(?!\d)", link) is not None
        return self._follow(link)

    def _unlinked(self) -> Page:
        """The page after one that links to none, although it may not be the last."""
        number = self.requests + 1
        page = self._numbered(number) if self._numbered else None
        if page is None or (self._may_go_on(page) and all(self._key(row) in self._seen for row in page.rows)):
            self.requests += page is not None
            raise Incomplete(
                f"Page {number - 1} of the list is full and links to no next page, and requesting page {number} brings "
                "nothing new, so rows may be missing. A proxy may drop links and ignore `page`: do without it."
            )
        return page

    def _may_go_on(self, page: Page) -> bool:
        """Whether a page may not be the last although it links to none; one that is shorter than another is."""
        may_lack_next = self._is_numbered and page.of is None  # a proxy may drop the link to the next page alone
        is_before_last = self._last is None or self.requests < self._last
        return (page.open or (may_lack_next and is_before_last)) and len(page.rows) >= self._size

    def _keep(self, page: Page) -> Page:
        self.requests += 1
        fresh = [page.rows[place] for place in fresh_in(page.rows, self._key, self._seen)]
        self._size = max(self._size, len({self._key(row) for row in page.rows}))
        self._in_vain = 0 if fresh else self._in_vain + 1
        if self._in_vain > _IN_VAIN:
            raise Incomplete(f"The service links {_IN_VAIN} pages without anything new. Report it to the service.")
        self.rows += len(fresh)
        if page.of is not None and page.of > self.requests:  # else it cannot be: a page that links on is not the last
            self._last = max(self._last or 0, page.of)
        self.share = min(1.0, self.requests / page.of) if page.of else self.share
        return replace(page, rows=fresh)


def how_far(rows: int, requests: int, back_to: Moment | None = None) -> str:
    """A sentence on how far a walk came."""
    back = f", back to builds created at {back_to.text()}" if back_to else ""
    return f"The walk had read {rows} rows in {requests} answers{back}; none of them was handed over."


def fresh_in(rows: Sequence[Any], key: Callable[[Any], Hashable], seen: set[Hashable]) -> list[int]:
    """The places of those rows that were not seen before; they are from now on."""
    fresh = []
    for place, row in enumerate(rows):
        identity = key(row)
        if identity is None:
            raise Malformed("The service sent a row without its `id`, by which rows are told apart.")
        if identity not in seen:
            seen.add(identity)
            fresh.append(place)
    return fresh
