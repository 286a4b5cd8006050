"""A simulated service in memory that lists builds by pages, for tests of the pagination without HTTP."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from buildframe.errors import Invalid, ServiceError
from buildframe.fetching.listing_state import PageQuery
from buildframe.fetching.time_pagination import TimePagination
from buildframe.fetching.time_ranges import TimeRange
from buildframe.http.protocol import Page
from buildframe.spec import Moment

T0 = Moment(2026, 10, 1, tzinfo=dt.UTC)
SECOND = 10**6
DAY = 86_400 * SECOND
REFUSED = Invalid(400, "Listing builds this deep is not supported.")


def at(us: int) -> Moment:
    """Return the time this many microseconds after T0."""
    return Moment.from_us(T0.us + us)


@dataclass
class Build:
    id: str
    created: int  # microseconds after T0
    matches: bool = True
    existed: bool = True  # since the first response


@dataclass
class InMemoryService:
    """Lists builds in the order of their arrival, or of their timestamps if `by_stamp`.

    Timestamps may be up to `jitter` microseconds before the clock. Responses truncate them to `grain` microseconds.
    Pages after number `deepest` are refused.
    """

    size: int = 3
    grain: int = 1
    jitter: int = 0
    by_stamp: bool = False
    reports_pages: bool = True
    deepest: int = 10**9
    clock: int = 1000 * SECOND
    builds: list[Build] = field(default_factory=list)
    made: int = 0
    refusals: int = 0
    disorder: int = 0  # the most that a page showed, unless it was the last of its list

    def create(self, gap: int, early: int) -> Build:
        self.clock += gap
        self.made += 1
        self.builds.append(Build(f"b{self.made}", self.clock - min(early, self.jitter)))
        return self.builds[-1]

    def list(self, window: TimeRange) -> list[Build]:
        low = -(10**18) if window.start is None else window.start.us - T0.us
        high = 10**18 if window.end is None else window.end.us - T0.us
        chosen = [build for build in reversed(self.builds) if build.matches and low <= build.created < high]
        return sorted(chosen, key=lambda build: -build.created) if self.by_stamp else chosen

    def respond(self, query: PageQuery) -> Page | Invalid:
        if query.number > self.deepest:
            self.refusals += 1
            return REFUSED
        size = 1 if query.only_count else self.size
        found = self.list(query.range)
        part = found[(query.number - 1) * size : query.number * size]
        pages = max(1, -(-len(found) // size))
        has_next = query.number < pages
        if has_next:
            stamps = [build.created for build in part]
            oldest = itertools.accumulate(stamps, min)
            self.disorder = max(self.disorder, *(stamp - before for stamp, before in zip(stamps, oldest, strict=True)))
        rows = [SimpleNamespace(id=b.id, created_at=self.shown(b).text()) for b in part]
        now = at(self.clock - self.clock % SECOND)
        return Page(rows, "next" if has_next else None, now, pages if has_next and self.reports_pages else None)

    def shown(self, build: Build) -> Moment:
        return at(build.created - build.created % self.grain)


def row(id: str, us: int) -> SimpleNamespace:
    return SimpleNamespace(id=id, created_at=at(us).text())


def service_of(*created: int, size: int = 10, **settings: bool | int) -> InMemoryService:
    fake = InMemoryService(size=size, **settings)
    for stamp in created:
        fake.create(0, 0).created = stamp
    fake.clock = max(created, default=0) + SECOND
    return fake


def read(
    pagination: TimePagination,
    respond: Callable[[PageQuery], Page | ServiceError],
    queries: list[PageQuery] | None = None,
    readers: Callable[[float | None], int] = lambda pages: 1,
) -> list[SimpleNamespace]:
    """Return the rows that a pagination finds with one reader, or with several that take turns."""
    found, under_way = [], []
    while True:
        while (reader := pagination.start(readers(pagination.pages_left))) is not None:
            if reader.query is None:  # nothing can lie in its window
                pagination.end(reader)
            else:
                under_way.append(reader)
        if not under_way:
            return found
        reader = under_way.pop(0)
        if queries is not None:
            queries.append(reader.query)
        page = respond(reader.query)
        if isinstance(page, ServiceError):
            reader.refuse(page)
        else:
            found += reader.take(page).rows
        if reader.query is None:
            pagination.end(reader)
        else:
            under_way.append(reader)
