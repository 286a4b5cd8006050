"""Random listings: a list in memory that changes and that is in another order at each request, read by several workers.

`listed(seed)` reads one list; the same seed gives the same list, the same changes and the same order of responses.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

from buildframe.errors import BuildframeError, Invalid
from buildframe.fetching.listing_state import PageQuery
from buildframe.fetching.range_reader import Reader
from buildframe.fetching.time_pagination import TimePagination
from buildframe.fetching.time_ranges import TimeRange
from buildframe.http.protocol import Page
from tests.in_memory_service import SECOND, Build, InMemoryService, at

_GAPS = (1, 999, 100_000, 400_000, SECOND, 2 * SECOND, 61 * SECOND)


@dataclass
class Shuffled(InMemoryService):
    """A service that lists equal timestamps in another order at each request, and that drops `Link` headers."""

    chance: random.Random = field(default_factory=random.Random)
    sorts_by: int | None = None  # microseconds that the service sorts by; None: in a stable order
    drops: float = 0.0  # the share of responses without `Link`
    requested: int | None = None  # rows of a requested page, of which the service allows only `size`

    def list(self, window: TimeRange) -> list[Build]:
        found = super().list(window)
        if self.sorts_by is not None:
            self.chance.shuffle(found)
            found.sort(key=lambda build: -(build.created // (self.sorts_by or 1)))
        return found

    def respond(self, query: PageQuery) -> Page | Invalid:
        page = super().respond(query)
        if isinstance(page, Invalid):
            return page
        requested = self.size if self.requested is None else self.requested
        rows = 1 if query.only_count else requested
        page = replace(page, size=rows)
        if self.chance.random() >= self.drops:
            return page
        is_limited = requested > self.size and not query.only_count
        is_open = bool(page.rows) and (is_limited or len(page.rows) >= rows)
        return replace(page, next=None, of=None, open=is_open, short=is_open and len(page.rows) < rows)

    def steps_back(self, window: TimeRange) -> int:
        """Return by how many microseconds at most a build is newer than one listed before it."""
        oldest, most = 10**18, 0
        for build in InMemoryService.list(self, window) if self.sorts_by is None else ():
            most = max(most, build.created - oldest)
            oldest = min(oldest, build.created)
        return most


@dataclass
class Listed:
    """The result of one listing."""

    settings: dict[str, Any]
    service: Shuffled
    pagination: TimePagination
    found: list[str]
    missing: set[str]
    is_complete: bool
    error: str | None
    is_changed: bool  # by an arrival or a deletion
    steps_back: int
    begun_at: int  # microseconds after T0
    stalled: int  # the most consecutive responses without a new row


def settings_of(chance: random.Random) -> dict[str, Any]:
    """Settings of a random listing."""
    choice = chance.choice
    settings = {
        "size": choice([1, 2, 3, 3, 5, 7, 10]),
        "builds": chance.randrange(60),
        "ties": choice([0.2, 0.6, 0.95]),
        "grain": choice([1, 1000, SECOND]),
        "jitter": choice([0, 0, 0, 300_000, SECOND, 5 * SECOND, 100 * SECOND]),
        "by_stamp": choice([True, False]),
        "sorts_by": choice([None, None, 1, 1, SECOND]),
        "reports_pages": choice([True, False]),
        "deepest": choice([10**9] * 5 + [2]),
        "drops": choice([0.0, 0.0, 0.0, 0.3, 1.0]),
        "workers": choice([1, 1, 2, 3, 5]),
        "arrivals": choice([0.0, 0.0, 0.0, 0.1, 0.5]),
        "deletions": choice([0.0, 0.0, 0.0, 0.05, 0.3]),
    }
    # A deletion between the first two requests can hide that the service allows fewer rows; see docs/design.md.
    is_limited = settings["drops"] == 1.0 and not settings["deletions"] and choice([True, False])
    return settings | {"requested": 100 if is_limited else None}


class _Listing:
    def __init__(self, chance: random.Random, settings: dict[str, Any]) -> None:
        self.chance, self.settings = chance, settings
        names = ("size", "grain", "jitter", "by_stamp", "reports_pages", "deepest", "sorts_by", "drops", "requested")
        self.service = Shuffled(chance=chance, **{name: settings[name] for name in names})
        for _ in range(settings["builds"]):
            self._arrive()
        start = None if chance.random() < 0.6 else at(chance.randrange(990, 1100) * SECOND)
        end = None if chance.random() < 0.8 else at(chance.randrange(1101, 1300) * SECOND)
        self.window = TimeRange(start, end)
        self.pagination = TimePagination(self.window)
        self.idle: list[Reader] = []
        self.under_way: list[tuple[Reader, Page | Invalid]] = []
        self.found: list[str] = []
        self.begun = self.is_changed = False
        self.steps_back = self.stalled = self.most_stalled = self.begun_at = 0

    def read(self) -> Listed:
        error = None
        try:
            while self._step():
                pass
        except BuildframeError as why:
            error = str(why)
        existed = {build.id for build in InMemoryService.list(self.service, self.window) if build.existed}
        self.steps_back = max(self.steps_back, self.service.steps_back(self.window))
        is_complete = error is None and not self.pagination.state.unverified
        return Listed(
            self.settings, self.service, self.pagination, self.found, existed - set(self.found), is_complete, error,
            self.is_changed, self.steps_back, self.begun_at, self.most_stalled,
        )  # fmt: skip

    def _step(self) -> bool:
        self._change()
        if len(self.idle) + len(self.under_way) < self.settings["workers"]:
            reader = self.pagination.start(self.settings["workers"])
            if reader is not None:
                self._put_back(reader)
        if self.idle and (not self.under_way or self.chance.random() < 0.5):
            self._request()
        elif self.under_way:
            self._respond()
        return bool(self.idle or self.under_way or not self.pagination.is_over)

    def _change(self) -> None:
        if self.chance.random() < self.settings["arrivals"]:
            self._arrive().existed = not self.begun
            self.is_changed = self.is_changed or self.begun
        if self.service.builds and self.chance.random() < self.settings["deletions"]:
            self.service.builds.pop(self.chance.randrange(len(self.service.builds))).existed = False
            self.is_changed = self.is_changed or self.begun

    def _arrive(self) -> Build:
        gap = 0 if self.chance.random() < self.settings["ties"] else self.chance.choice(_GAPS)
        early = self.chance.randrange(self.settings["jitter"] + 1) if self.chance.random() < 0.5 else 0
        return self.service.create(gap, early)

    def _request(self) -> None:
        reader = self.idle.pop(self.chance.randrange(len(self.idle)))
        if not self.begun:
            self.begun, self.steps_back = True, self.service.steps_back(self.window)
            self.begun_at = self.service.clock - self.service.clock % SECOND
        assert reader.query is not None
        self.under_way.append((reader, self.service.respond(reader.query)))

    def _respond(self) -> None:
        reader, response = self.under_way.pop(self.chance.randrange(len(self.under_way)))
        if isinstance(response, Invalid):
            reader.refuse(response)
        else:
            rows = reader.take(response).rows
            self.found += [row.id for row in rows]
            self.stalled = 0 if rows else self.stalled + 1
            self.most_stalled = max(self.most_stalled, self.stalled)
        self._put_back(reader)

    def _put_back(self, reader: Reader) -> None:
        if reader.query is None:
            self.pagination.end(reader)
        else:
            self.idle.append(reader)


def listed(seed: int, **settings: Any) -> Listed:
    """Read the list of this seed; `settings` replace those that the seed determines."""
    chance = random.Random(seed)
    return _Listing(chance, settings_of(chance) | settings).read()


def may_be_hidden(listing: Listed) -> set[str]:
    """Builds that a complete listing may lack, since its list is out of order by more than the overlap.

    Then only a count shows what is missing. The service may refuse to count, a change during the listing may
    compensate for a missing build, and builds as new as the first response are not counted. See "Limits of this check"
    in docs/design.md.
    """
    if listing.steps_back <= SECOND:
        return set()
    if listing.pagination.check.is_uncounted or listing.is_changed:
        return listing.missing
    newest = {build.id for build in listing.service.builds if build.created > listing.begun_at - 2 * SECOND}
    return listing.missing & newest
