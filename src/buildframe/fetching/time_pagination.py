"""Paginate a list of builds by time, completely, whatever changes in the meantime. Knows pages; not HTTP or threads.

A list of builds is newest first, so its page numbers shift with every arrival and deletion. It is therefore paginated
by time: the first response sets the snapshot bound, and each following request asks for what was created before the
oldest timestamp seen, plus an overlap. Rows that the overlap repeats are dropped by `id`. The remaining time range can
be split, and its parts read at the same time.
"""

from __future__ import annotations

import datetime as dt
from operator import attrgetter

from buildframe.fetching.count_check import CountCheck
from buildframe.fetching.link_pagination import progress
from buildframe.fetching.listing_state import ListingState
from buildframe.fetching.range_reader import RangeReader, Reader
from buildframe.fetching.time_ranges import TRUNCATION, TimeRange, merge_ranges
from buildframe.http.page_limits import PageLimits

_MAX_STALLED_TO_SPLIT = 20  # responses in a row without a new row: then more readers would only repeat more rows


class TimePagination:
    """Lists every build that existed from the first response to the last, once each.

    `start` returns readers, which may be used at the same time; `end` takes each back when it has
    finished. `is_steady` says that no build starts or stops matching the filters during the
    listing, `only_grows` that builds start to match and hardly any stops. `limits` is what is known
    about the pages of the service. `state` is what was found, and `check` compares it with the
    number of builds that the service reports.
    """

    def __init__(
        self,
        time_range: TimeRange,
        *,
        overlap: dt.timedelta = dt.timedelta(seconds=1),
        is_steady: bool = True,
        only_grows: bool = False,
        limits: PageLimits | None = None,
    ) -> None:
        self.state = ListingState(time_range, overlap, is_steady, only_grows, limits)
        self.check = CountCheck(self.state)
        self._first: Reader | None = RangeReader(self.state, time_range)
        self._active: list[Reader] = []

    def start(self, max_readers: int = 1) -> Reader | None:
        """Return another reader, if fewer than `max_readers` are active; None for good when the listing `is_over`."""
        reader, self._first = self._first or self._next_reader(max_readers), None
        if reader is not None:
            self._active.append(reader)
            self.state.active_readers = len(self._active)
        return reader

    def _next_reader(self, max_readers: int) -> Reader | None:
        is_full = bool(self._active) and len(self._active) >= max_readers
        if self.check.is_wanted and (not is_full or self.check.is_urgent):
            return self.check.begin()
        if is_full or not self._active or self.state.stalled > _MAX_STALLED_TO_SPLIT:
            return None
        return max(self._active, key=attrgetter("estimated_pages")).split()

    def end(self, reader: Reader) -> None:
        """Take back a reader that has finished."""
        self._active.remove(reader)
        self.state.active_readers = len(self._active)
        if self.is_over:
            self.check.finish()

    @property
    def is_over(self) -> bool:
        """Whether nothing is being read or left to read."""
        return self._first is None and not self._active and not self.check.is_wanted

    @property
    def remaining(self) -> list[TimeRange]:
        """The time ranges that are not read yet, newest first."""
        return merge_ranges([*self._unread, *self.check.unsettled(bool(self._readers))])

    @property
    def pages_left(self) -> float | None:
        """About how many pages are left to read, or None if unknown."""
        pages = [reader.pages for reader in self._readers]
        return None if None in pages else sum(filter(None, pages))

    @property
    def share(self) -> float | None:
        """The share of the time from start to snapshot bound that is read; of the pages, if the start is open."""
        state = self.state
        if state.bound is None:
            return None
        if state.whole.start is None:
            pages = self.pages_left
            return None if pages is None else state.requests / (state.requests + pages)
        newest = state.bound.newest
        left = sum((newest - part.start for part in self._unread if part.start), dt.timedelta())
        read = sum((newest - part.end for part in self._unread if part.end), dt.timedelta())
        return 1.0 - (left - read) / max(newest - state.whole.start, TRUNCATION)

    def progress(self) -> str:
        """Describe how far the listing has come."""
        return progress(len(self.state.created), self.state.requests, min(self.state.created, default=None))

    @property
    def _unread(self) -> list[TimeRange]:
        return merge_ranges(reader.remaining for reader in self._readers)

    @property
    def _readers(self) -> list[Reader]:
        return [*self._active, *([self._first] if self._first else [])]
