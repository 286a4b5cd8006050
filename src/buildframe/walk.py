"""Complete walks over lists, whatever happens on the service meanwhile. Knows pages, not HTTP.

A list of builds is newest first, so its page numbers shift with every arrival and deletion. It is
therefore walked by time: the upper end is pinned at the newest stamp of the first answer, and each
following request asks for what was created before the oldest stamp seen, plus an overlap. Rows that
the overlap brings again are dropped by `id`.
"""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from buildframe.errors import BuildframeError, Incomplete, Malformed
from buildframe.spec import Moment
from buildframe.wire import Page

OVERLAP = dt.timedelta(seconds=1)
"""`created_to` is exclusive and stamps may be cut to seconds: with less, the builds of that second were lost."""


@dataclass(frozen=True)
class Window:
    """Builds created from `start` (inclusive) to `end` (exclusive); None leaves that end open."""

    start: Moment | None = None
    end: Moment | None = None

    def __str__(self) -> str:
        ends = (end.text() if end else "any time" for end in (self.start, self.end))
        return "builds created from {} to {}".format(*ends)

    def holds(self, created: Moment) -> bool:
        """Whether a build of this stamp can lie in the window, given that stamps may be cut to seconds."""
        after = self.start is None or created > self.start - OVERLAP
        return after and (self.end is None or created < self.end + OVERLAP)


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
        self.rows = 0
        self.requests = 0
        self.as_of: Moment | None = None
        self.share: float | None = None
        self._expected: int | None = None

    def __iter__(self) -> Iterator[Page]:
        try:
            yield from self._pages()
        except BuildframeError as error:
            if self.requests:
                error.add_note(self.how_far())
            raise

    def how_far(self) -> str:
        """A sentence on how far the walk came."""
        return f"The walk had read {self.rows} rows in {self.requests} answers; none of them was handed over."

    def _pages(self) -> Iterator[Page]:
        page = self._note(self._first())
        while True:
            yield self._keep(page, page.rows)
            if page.next is None:
                return
            page = self._next_by_link(page.next)

    def _next_by_link(self, link: str) -> Page:
        if link in self._links:
            raise Incomplete(
                "The service links its pages in a circle, so the list has no end. Report it to the service."
            )
        self._links.add(link)
        return self._note(self._follow(link))

    def _note(self, page: Page) -> Page:
        self.requests += 1
        self.as_of = self.as_of or page.at
        if self.requests == 1 and page.of is not None:
            self._expected = page.of * len(page.rows)
        if any(self._key(row) is None for row in page.rows):
            raise Malformed("The service sent a row without its `id`, by which rows are told apart.")
        return page

    def _keep(self, page: Page, rows: Iterator[Any] | Any) -> Page:
        fresh = []
        for row in rows:
            identity = self._key(row)
            if identity not in self._seen:
                self._seen.add(identity)
                fresh.append(row)
        self.rows += len(fresh)
        if self._expected:
            self.share = min(1.0, self.rows / self._expected)
        return replace(page, rows=fresh)


class BuildWalk(LinkWalk):
    """A walk by time over a list of builds: every build that was there at the first answer, once each."""

    def __init__(self, ask: Callable[[Window], Page], follow: Callable[[str], Page], window: Window) -> None:
        super().__init__(lambda: ask(window), follow)
        self._ask = ask
        self._whole = window
        self._asked = window
        self._pin: Moment | None = None
        self._pin_is_whole = False
        self._oldest: Moment | None = None

    def how_far(self) -> str:
        """A sentence on how far the walk came."""
        back = f", back to builds created at {self._oldest.text()}" if self._oldest else ""
        return super().how_far().replace(";", f"{back};")

    def _pages(self) -> Iterator[Page]:
        page = self._note(self._first())
        while True:
            stamps = self._stamps(page)
            self._set_pin(stamps)
            kept = self._keep(
                page, [row for row, stamp in zip(page.rows, stamps, strict=True) if self._was_there(stamp)]
            )
            self._advance(stamps)
            yield kept
            if page.next is None:
                self.share = 1.0
                return
            page = self._next(page.next, stamps)

    def _stamps(self, page: Page) -> list[Moment]:
        """When each row was created; all must lie in the window asked for, newest first."""
        stamps = [_created(row) for row in page.rows]
        for stamp in stamps:
            if not self._asked.holds(stamp):
                raise Malformed(
                    f"Asked for {self._asked}, the service sent one of {stamp.text()}: it ignores a filter."
                )
        for oldest, following in zip(itertools.accumulate(stamps, min), stamps[1:], strict=False):
            if following > oldest + OVERLAP:
                raise Incomplete("The service's list is not newest first, so a walk by time could miss builds.")
        return stamps

    def _set_pin(self, stamps: list[Moment]) -> None:
        self._pin_is_whole = self._pin is not None and (self._pin_is_whole or self._oldest != self._pin)
        if self._pin is None and stamps:
            self._pin = max(stamps)

    def _was_there(self, stamp: Moment) -> bool:
        """Whether a build of this stamp was there at the first answer.

        Once an answer has gone below the pin, all builds of the pin's own stamp have been seen; what
        comes with that stamp later arrived later.
        """
        assert self._pin is not None
        return stamp < self._pin or (stamp == self._pin and not self._pin_is_whole)

    def _advance(self, stamps: list[Moment]) -> None:
        if not stamps or self._pin is None:
            return
        self._oldest = min(stamps)
        if self._whole.start is not None and self._pin > self._whole.start:
            self.share = min(1.0, (self._pin - self._oldest) / (self._pin - self._whole.start))

    def _next(self, link: str, stamps: list[Moment]) -> Page:
        """The page before the oldest stamp; where a page lies within one overlap, the one behind its link."""
        end = min(stamps) + OVERLAP if stamps else self._asked.end
        if end is None or (self._asked.end is not None and end >= self._asked.end):
            return self._next_by_link(link)
        self._asked = replace(self._asked, end=end)
        return self._note(self._ask(self._asked))


def _created(row: Any) -> Moment:
    if row.created_at is None:
        raise Malformed(f"The service sent build {row.id} without `created_at`, by which builds are walked.")
    return Moment.parse(row.created_at)
