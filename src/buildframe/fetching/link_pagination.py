"""Complete walks over lists by their links, with a guard against circles. Knows pages; neither HTTP nor threads."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from buildframe.errors import BuildframeError, Incomplete, Malformed
from buildframe.http.protocol import Page
from buildframe.spec import Moment


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
        self._size = 0  # different rows of the longest page
        self.rows = 0
        self.requests = 0
        self.share: float | None = None

    def __iter__(self) -> Iterator[Page]:
        try:
            page = self._first()
            yield self._keep(page)
            while self._goes_on(page):
                page = self._follow(page.next) if page.next is not None else self._unlinked()
                yield self._keep(page)
        except BuildframeError as error:
            if self.requests:
                error.add_note(how_far(self.rows, self.requests))
            raise

    def _unlinked(self) -> Page:
        """The page after one that links to none, although it may not be the last."""
        if self._numbered is None:
            raise Incomplete(f"Page {self.requests} of the list is full and links to no next page. Ask again.")
        return self._numbered(self.requests + 1)

    def _goes_on(self, page: Page) -> bool:
        """Whether a page may not be the last; one that is shorter than another and links to no next one is."""
        return page.next is not None or (page.open and len(page.rows) >= self._size)

    def _keep(self, page: Page) -> Page:
        self.requests += 1
        fresh = [page.rows[place] for place in fresh_in(page.rows, self._key, self._seen)]
        self._size = max(self._size, len({self._key(row) for row in page.rows}))
        if not fresh and self._goes_on(page):
            raise Incomplete(
                f"Page {self.requests} of the list is not the last, and earlier pages held all its rows, so rows may be"
                " missing. The service links its pages in a circle, or a proxy drops links or ignores `page`."
                " Ask again, without the proxy if it happens again."
            )
        self.rows += len(fresh)
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
