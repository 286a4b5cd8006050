"""Read one time range of a list of builds, a page at a time. Pure: says what to request and receives pages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Generator
from dataclasses import replace

from buildframe.errors import BuildframeError, ServiceError
from buildframe.fetching.listing_state import (
    DEEP_PAGE_STATUSES,
    ListingState,
    NewRows,
    PageQuery,
    PagesShrunk,
    ReceivedPage,
    Steps,
    disorder_of,
    precision_of,
)
from buildframe.fetching.numbered_pagination import read_by_number
from buildframe.fetching.time_ranges import TRUNCATION, TimeRange
from buildframe.http.protocol import Page
from buildframe.spec import Moment

_EPOCH = Moment(1970, 1, 1, tzinfo=dt.UTC)
_UNKNOWN_PAGES = 20.0  # assumed pages left if the service does not report them and the start is open
_SPLIT_MARGIN = 0.1  # of a page by which a part is shorter than whole pages: a few more rows would cost a request
_MAX_SECONDS = 1e11  # a service may report any number of pages
_DENSITY_FACTOR = 4  # a page may span up to this many times the time that the last page spanned


class Reader:
    """Requests one page after another: fetch `query`, pass the page to `take`, until `query` is None.

    `remaining` is the time range that is not read yet, and `pages` about how many pages that is, or None if unknown.
    """

    def __init__(self, state: ListingState, steps: Steps, remaining: TimeRange, pages: float | None) -> None:
        self.remaining = remaining
        self.pages = pages
        self._state = state
        self._steps = steps
        self.query: PageQuery | None = next(steps, None)

    def take(self, page: Page) -> NewRows:
        """Pass the page that `query` requests; return its new rows."""
        assert self.query is not None
        received = self._state.accept(self.query, page)
        self._advance(lambda: self._steps.send(received))
        return received.new

    def refuse(self, error: BuildframeError) -> None:
        """Pass the error that `query` ended with, which is raised again unless the listing can go on without."""
        self._advance(lambda: self._steps.throw(error))

    def split(self) -> RangeReader | None:
        """Return a reader for the older part of the remaining time range; None if it cannot be split."""
        return None

    @property
    def estimated_pages(self) -> float:
        """About how many pages are left; 0 if it may be only one."""
        return 0.0

    def _advance(self, step: Callable[[], PageQuery]) -> None:
        try:
            self.query = step()
        except StopIteration:
            self.query = None


class RangeReader(Reader):
    """Reads a time range from its newest build to its oldest. Each page begins at the cursor of the page before.

    The cursor is the oldest timestamp of a page plus the overlap: what lies above it was seen, if the list is in order
    but for the overlap.
    """

    def __init__(
        self, state: ListingState, remaining: TimeRange, pages: float | None = None, span: dt.timedelta = dt.timedelta()
    ) -> None:
        self._page_span = span  # time that the last page covers, with the gap above its builds
        super().__init__(state, self._read(), remaining, pages)

    def _read(self) -> Steps:
        while not self.remaining.is_empty:
            requested = self.remaining
            page, created, _ = received = yield PageQuery(requested)
            if self._state.ends_with(page) or (yield from self._is_confirmed_last(requested, page)):
                return
            self.remaining = yield from self._rest_below(received)
            self._page_span = (requested.end or max(created)) - min(created)
            if self.remaining.start == requested.start:
                self.pages = page.of - 1 if page.of else None
            elif self.pages is not None:  # its older part was split off in the meantime
                self.pages = max(self.pages - 1, 1)

    def _is_confirmed_last(self, requested: TimeRange, page: Page) -> Generator[PageQuery, ReceivedPage, bool]:
        """Whether no page follows a short one without links; False if that is unknown."""
        if not page.short:
            return False
        try:
            following = yield PageQuery(requested, 2, size=page.size)
        except PagesShrunk:
            return False
        except ServiceError as refusal:
            if refusal.status not in DEEP_PAGE_STATUSES:
                raise
            return False
        is_followed = bool(following.page.rows)
        if following.new.rows or not is_followed:
            self._state.limits.confirm(len(page.rows), is_followed=is_followed)
        if not is_followed and requested == self._state.whole:
            self._state.confirm_whole()
        return not is_followed

    def _rest_below(self, received: ReceivedPage) -> Generator[PageQuery, ReceivedPage, TimeRange]:
        """Return the time range below a page, after builds that are tied or out of order with its builds were read."""
        created, state = received.created, self._state
        cursor = min(created) + state.overlap + precision_of(created)
        end = state.latest if self.remaining.end is None else min(self.remaining.end, state.latest)
        is_disordered = disorder_of(created) > state.overlap
        is_tied = cursor >= end or sum(each < cursor for each in created) > len(created) / 2
        if not is_disordered and not is_tied:
            return TimeRange(self.remaining.start, cursor)
        end = end if is_disordered else min(end, cursor)
        oldest = min(*created, end - TRUNCATION)
        closed = TimeRange(max(oldest, self.remaining.start or oldest), end)
        assert state.bound is not None
        may_grow = is_disordered or not state.is_steady or end > state.bound.newest - state.overlap
        yield from read_by_number(state, closed, may_grow=may_grow)
        return TimeRange(self.remaining.start, closed.start)  # an older part may have been split off in the meantime

    @property
    def estimated_pages(self) -> float:
        """About how many pages are left; 0 if it may be only one."""
        if self.remaining.end is None or not self._page_span:
            return 0.0
        if self.pages is not None:
            return self.pages
        if self.remaining.start is None:
            return _UNKNOWN_PAGES
        return (self.remaining.end - self.remaining.start) / self._page_span

    def split(self) -> RangeReader | None:
        """Split off the older half of the remaining time range, below the page that is requested now."""
        pages, end = self.estimated_pages, self.remaining.end
        if pages < 2 or end is None:
            return None
        kept_pages = round((pages + 1) / 2) - _SPLIT_MARGIN
        kept = min(self._expected_span() * (kept_pages / pages), end - _EPOCH)
        cut = (end - kept).replace(microsecond=0)
        older, newer = replace(self.remaining, end=cut), replace(self.remaining, start=cut)
        if older.is_empty or newer.is_empty:
            return None
        self.remaining, self.pages = newer, kept_pages
        return RangeReader(self._state, older, pages - kept_pages, self._page_span)

    def _expected_span(self) -> dt.timedelta:
        """Return how far back the remaining builds probably reach: to its start, or not much further than its pages."""
        by_pages = dt.timedelta(seconds=min(self._page_span.total_seconds() * self.estimated_pages, _MAX_SECONDS))
        if self.remaining.start is None or self.remaining.end is None:
            return by_pages
        return min(self.remaining.end - self.remaining.start, _DENSITY_FACTOR * by_pages)
