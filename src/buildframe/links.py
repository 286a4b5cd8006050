"""Complete walks over lists by their links, with a guard against circles. Knows pages; neither HTTP nor threads."""

from __future__ import annotations

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

    Attributes: `rows` and `requests` so far, `as_of` (the service's time of the first answer), `share`
    (of the whole that is done, 0 to 1, or None where that is not known). `key` tells rows apart.
    """

    def __init__(
        self,
        first: Callable[[], Page],
        follow: Callable[[str], Page],
        key: Callable[[Any], Hashable] = attrgetter("id"),
    ) -> None:
        self._first = first
        self._follow = follow
        self._key = key
        self._seen: set[Hashable] = set()
        self._links: set[str] = set()
        self._in_vain = 0
        self.rows = 0
        self.requests = 0
        self.as_of: Moment | None = None
        self.share: float | None = None

    def __iter__(self) -> Iterator[Page]:
        try:
            page = self._first()
            yield self._keep(page)
            while page.next is not None:
                page = self._next(page.next)
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
        return self._follow(link)

    def _keep(self, page: Page) -> Page:
        self.requests += 1
        self.as_of = self.as_of or page.at
        fresh = [page.rows[place] for place in fresh_in(page.rows, self._key, self._seen)]
        self._in_vain = 0 if fresh else self._in_vain + 1
        if self._in_vain > _IN_VAIN:
            raise Incomplete(f"The service links {_IN_VAIN} pages without anything new. Report it to the service.")
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
