"""Verify a listing by the number of builds that the service counts. Pure: says what to request and receives pages."""

from __future__ import annotations

import math
from collections.abc import Generator
from dataclasses import replace

from buildframe.errors import ServiceError
from buildframe.fetching.listing_state import DEEP_PAGE_STATUSES, ListingState, PageQuery, ReceivedPage, Steps
from buildframe.fetching.numbered_pagination import read_by_number
from buildframe.fetching.range_reader import Reader
from buildframe.fetching.time_ranges import TRUNCATION, TimeRange

_MAX_RECOUNTS = 3
_LOST = "the service counts {} builds, and its pages contain {}; try again, or list one pipeline or branch at a time"
_UNCLEAR = "the service counted {} builds, its pages contained another number, and later it had no count; try again"
_FEWER = "the service counted {} builds and later {}, and its list is out of order; try again with overlap='{}s'"
_DISORDERED = (
    "the service's list is out of order by {}, and it does not report how many builds there are; "
    "try again with overlap='{}s'"
)


class CountCheck:
    """Counts once while builds are listed, and at the end if disorder or changes may hide some.

    If the service counts other builds than were found, the time ranges that differ are read again.
    """

    def __init__(self, state: ListingState) -> None:
        self._state = state
        self._begun = 0  # checks, of at most two
        self._counted: int | None = None
        self._is_running = False  # the second check

    @property
    def is_wanted(self) -> bool:
        """Whether to begin a check now."""
        state = self._state
        if not state.has_pages or state.unverified or self._begun == 2:
            return False
        if state.is_counted_early and not self._begun:
            return state.reports_pages or not state.active_readers
        if state.active_readers or (state.is_counted_early and self._counted is None):
            return False
        return not state.is_counted_early or state.is_disordered or self._differs(self._counted, self._found)

    @property
    def is_urgent(self) -> bool:
        """Whether a check that is wanted cannot wait: later, the service would count builds that joined the list."""
        return self._state.only_grows and not self._begun

    def begin(self) -> Reader:
        """Return a reader that makes the check."""
        bound, is_first = self._state.bound, self._state.is_counted_early and not self._begun
        assert bound is not None
        self._begun, self._is_running = (1, False) if is_first else (2, True)
        steps = self._count_once() if is_first else self._reconcile()
        return Reader(self._state, steps, TimeRange(bound.newest, bound.newest), 0.0)

    def finish(self) -> None:
        """Mark the listing unverified if it is out of order and could not be counted."""
        state = self._state
        if self._counted is None and state.is_disordered and not state.unverified:
            seconds = math.ceil(state.disorder.total_seconds())
            state.unverified.append((state.whole, _DISORDERED.format(state.disorder, seconds)))

    @property
    def is_uncounted(self) -> bool:
        """Whether the service did not report how many builds there are, so that some may be missing unnoticed."""
        return self._state.has_pages and self._counted is None and not self._state.unverified

    def unsettled(self, is_reading: bool) -> list[TimeRange]:
        """Return the time range that a check may still read again; `is_reading` if other ranges are being read."""
        is_waiting = not is_reading and self.is_wanted and (self._begun > 0 or not self._state.is_counted_early)
        return [self._countable] if self._is_running or is_waiting else []

    # --- steps of the checks

    @property
    def _countable(self) -> TimeRange:
        return TimeRange(self._state.whole.start, self._state.counted_before)

    @property
    def _found(self) -> int:
        return self._state.found_before(self._state.counted_before)

    def _count_once(self) -> Steps:
        """Count the builds that existed at the first response, if the service's clock is right."""
        was_reported = self._state.reports_pages
        self._counted = yield from self._count(self._countable, self._found)
        if self._counted is None and was_reported and not self._state.reports_pages:
            self._begun = 0  # count again at the end

    def _reconcile(self) -> Steps:
        """Read the time ranges again in which the service counts other builds than were found."""
        state, whole, first = self._state, self._countable, self._counted
        left = [(whole, sorted(each for each in state.created if each < state.counted_before))]
        while left:
            part, created = left.pop()
            counted = yield from self._count(part, len(created))
            if counted is None:
                if self._counted is not None:
                    state.unverified.append((whole, _UNCLEAR.format(self._counted)))
                break
            self._counted = counted if self._counted is None else self._counted
            is_fewer = state.reports_pages and first is not None and counted < first  # else a count is a lower bound
            if part == whole and is_fewer and state.is_disordered:
                seconds = math.ceil(state.disorder.total_seconds())
                state.unverified.append((whole, _FEWER.format(first, counted, seconds)))
            if not self._differs(counted, len(created)):
                continue
            middle = next((each for each in created[len(created) // 2 :] if each > created[0]), None)
            if middle is None or len(created) <= state.page_size:
                yield from self._read_again(part)
            else:
                left.append((replace(part, end=middle), [each for each in created if each < middle]))
                left.append((replace(part, start=middle), [each for each in created if each >= middle]))
        if state.is_disordered:  # the newest builds were not counted
            yield from read_by_number(state, self._newest(), may_grow=True)
        self._is_running = False

    def _newest(self) -> TimeRange:
        """Return the time range of builds that are too new to be counted."""
        state, top = self._state, self._state.counted_before
        start, end = top - state.overlap, max(top + state.overlap + TRUNCATION, state.latest)
        return TimeRange(max(start, state.whole.start or start), min(end, state.whole.end or end))

    def _read_again(self, part: TimeRange) -> Steps:
        """Read a time range with missing builds until the service counts those that were found."""
        state = self._state
        counted: int | None = None
        found = 0
        for _ in range(_MAX_RECOUNTS):
            yield from read_by_number(state, part, may_grow=True)
            found = state.found_before(part.end) - state.found_before(part.start)
            counted = yield from self._count(part, found)
            if not self._differs(counted, found):
                return
        state.unverified.append((part, _LOST.format(counted, found)))

    def _count(self, part: TimeRange, found: int) -> Generator[PageQuery, ReceivedPage, int | None]:
        """Return how many builds the service has in a time range; None if it does not say."""
        state = self._state
        if part.is_empty:
            return 0
        try:
            if state.reports_pages:
                page = (yield PageQuery(part, 1, only_count=True)).page
                if page.is_last or page.of is not None:
                    return len(page.rows) if page.is_last else page.of
                state.reports_pages = False  # a proxy dropped the header
                if state.active_readers > 1:  # they find more builds meanwhile, so numbers cannot be compared
                    return None
            return (yield from self._count_by_probing(part, found))
        except ServiceError as refusal:
            if refusal.status not in DEEP_PAGE_STATUSES and (state.reports_pages or refusal.status < 500):
                raise
            return None

    def _count_by_probing(self, part: TimeRange, found: int) -> Generator[PageQuery, ReceivedPage, int | None]:
        """Return a lower bound of the number of builds by whether there is one beyond those that were found."""
        page = (yield PageQuery(part, found + 1, only_count=True)).page
        assert self._state.bound is not None
        if self._state.bound.first_id in {row.id for row in page.rows}:  # page numbers are ignored
            return None
        if not page.rows and found and self._state.is_disordered:
            page = (yield PageQuery(part, found, only_count=True)).page
            return found - (not page.rows)
        return found + len(page.rows)

    def _differs(self, counted: int | None, found: int) -> bool:
        """Whether more builds were counted than found, or, if the list was seen to be out of order, fewer."""
        more = 0 if counted is None else counted - found
        return more > 0 or (self._state.is_disordered and more != 0)
