"""Keep what a listing of builds has seen: its rows, its snapshot bound, unverified ranges. Sends no requests."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Generator, Hashable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from buildframe.errors import BuildframeError, Incomplete, Malformed
from buildframe.fetching.link_pagination import unseen
from buildframe.fetching.time_ranges import TRUNCATION, TimeRange
from buildframe.http.page_limits import PageLimits
from buildframe.http.protocol import Page
from buildframe.spec import Moment
from buildframe.spec.times import VALID_YEARS

MAX_STALLED = 95  # how many responses in a row may contain no new row before a listing fails
DEEP_PAGE_STATUSES = {400, 403, 404, 409, 416, 422}  # statuses with which a service may refuse a page for its number
_MAX = Moment.of(dt.datetime.max.replace(tzinfo=dt.UTC))


class PageQuery(NamedTuple):
    """A page of a list of builds in a time range; `only_count` if its rows do not matter.

    `size` is the number of rows of the pages that `number` counts; None if it does not matter.
    """

    range: TimeRange
    number: int = 1
    only_count: bool = False
    size: int | None = None


class PagesShrunk(BuildframeError):
    """The service cannot send a page of the size that a query names.

    The next pages have fewer rows.
    """


class NewRows(NamedTuple):
    """Rows that no earlier page contained, and when each was created."""

    rows: list[Any]
    created: list[Moment]


class ReceivedPage(NamedTuple):
    """A page, when each of its rows was created, and its new rows."""

    page: Page
    created: list[Moment]
    new: NewRows


Steps = Generator[PageQuery, ReceivedPage, None]


class SnapshotBound(NamedTuple):
    """The upper bound of a listing, which its first page with rows sets.

    `newest` is the newest timestamp of that page. Builds before `latest` belong to the listing; those before
    `counted_before` must be in it, later ones may still arrive. `first_id` is the first such build: a service that
    ignores page numbers lists it again.
    """

    newest: Moment
    latest: Moment
    counted_before: Moment
    first_id: Hashable


class ListingState:
    """What a listing has seen. The readers of all its time ranges share it.

    `created` are the timestamps of its builds, `page_size` the rows of the longest page, `disorder`
    by how much a page was out of order, `stalled` how many responses since the last new row,
    `active_readers` how many readers wait for a response. `unverified` are time ranges that may
    lack builds, each with the reason. `limits` is what is known about the pages of the service.
    """

    def __init__(
        self,
        whole: TimeRange,
        overlap: dt.timedelta,
        is_steady: bool,
        only_grows: bool = False,
        limits: PageLimits | None = None,
    ) -> None:
        self.limits = limits or PageLimits()
        self.whole = whole
        self.overlap = overlap
        self.is_steady = is_steady
        self.only_grows = only_grows
        self.created: list[Moment] = []
        self.page_size = 0
        self.disorder = dt.timedelta(0)
        self.requests = 0
        self.stalled = 0
        self.active_readers = 0
        self.bound: SnapshotBound | None = None
        self.has_pages = False
        self.reports_pages = False
        self.unverified: list[tuple[TimeRange, str]] = []
        self._seen: set[Hashable] = set()

    @property
    def latest(self) -> Moment:
        """The snapshot bound: later builds do not belong to the listing."""
        return self.bound.latest if self.bound else _MAX

    @property
    def counted_before(self) -> Moment:
        """Builds before this time can be counted."""
        return self.bound.counted_before if self.bound else _MAX

    @property
    def is_counted_early(self) -> bool:
        """Whether a count while builds are listed is a lower bound of what the listing must find."""
        return self.is_steady or self.only_grows

    @property
    def is_disordered(self) -> bool:
        """Whether a page was out of order by more than the overlap."""
        return self.disorder > self.overlap

    def found_before(self, end: Moment | None) -> int:
        """Return how many builds before a time were found."""
        return sum(created < end for created in self.created) if end else 0

    def accept(self, query: PageQuery, page: Page) -> ReceivedPage:
        """Take a page into account; raise Malformed if it cannot be a response to the query."""
        self.requests += 1
        page = self.limits.settle(page)
        if query.only_count:
            self._check_progress(has_new_rows=False)
            return ReceivedPage(page, [], NewRows([], []))
        created = _created_of(page, query.range)
        if page.next is not None and not created:
            raise Malformed(f"Requested {query.range}, and the service sent an empty page that links to a next one.")
        for timestamp in created:
            if not query.range.may_contain(timestamp):
                raise Malformed(
                    f"Requested {query.range}, and the service sent one of {timestamp.text()}: it ignores a filter."
                )
        self.page_size = max(self.page_size, len({row.id for row in page.rows}))
        if self.bound is None and created:
            self._set_bound(page, created)
        new = unseen(page.rows, attrgetter("id"), self._seen)
        received = ReceivedPage(page, created, NewRows([page.rows[i] for i in new], [created[i] for i in new]))
        self.created += received.new.created
        self._check_progress(has_new_rows=bool(new))
        if not self.ends_with(page):
            self.disorder = max(self.disorder, disorder_of(created))
        return received

    def ends_with(self, page: Page) -> bool:
        """Whether no build is below a page. One without a link that is shorter than another one is not full."""
        return page.is_last or (page.next is None and len(page.rows) < self.rows_of_full(page))

    def rows_of_full(self, page: Page) -> int:
        """Return how many rows a full page of this request has: at most those of the longest."""
        return self.page_size if page.size is None else min(self.page_size, page.size)

    def confirm_whole(self) -> None:
        """Take into account that the first page contains the whole list."""
        self.has_pages = False
        self.disorder = dt.timedelta(0)

    def _set_bound(self, page: Page, created: list[Moment]) -> None:
        newest = max(created)
        latest = newest + self.overlap + precision_of(created)
        is_behind = newest - page.at > self.overlap + TRUNCATION  # the clock of the service or of a proxy
        complete_before = newest + precision_of(created) if is_behind else page.at - self.overlap
        counted_before = min(complete_before, self.whole.end or _MAX)
        ids = (row.id for row, timestamp in zip(page.rows, created, strict=True) if timestamp < counted_before)
        if disorder_of(created) > self.overlap:  # the newest build may be on a later page
            latest = max(latest, page.at + TRUNCATION)
        self.bound = SnapshotBound(newest, latest, counted_before, next(ids, None))
        self.has_pages, self.reports_pages = not page.is_last, page.of is not None

    def _check_progress(self, *, has_new_rows: bool) -> None:
        """Raise Incomplete if too many responses contain nothing new, whatever the service's reason is."""
        self.stalled = 0 if has_new_rows else self.stalled + 1
        if self.stalled >= MAX_STALLED:
            raise Incomplete(
                f"The last {self.stalled} responses contained no new build. The service repeats itself, so builds may"
                " be missing. List shorter time ranges, or use workers=1; else report it to the service."
            )


def _created_of(page: Page, time_range: TimeRange) -> list[Moment]:
    """Return when each row of a page was created.

    A list is ordered by it, so a row without a readable `created_at` is taken to be created with
    the row before it, or with the first readable one. Below a page without any, nothing can be
    requested.
    """
    read = [_created(row) for row in page.rows]
    known = next((created for created in read if created is not None), None)
    if known is None and read:
        if page.next is not None:
            raise Incomplete(
                f"None of the {len(read)} builds of a page has a readable `created_at`, by which the list goes on."
                " List shorter time ranges, or report it to the service."
            )
        known = time_range.nearest(page.at)
    created: list[Moment] = []
    for moment in read:
        known = moment or known
        assert known is not None
        created.append(known)
    return created


def _created(row: Any) -> Moment | None:
    """Return when a row was created, None if that cannot be read."""
    try:
        created = Moment.parse(row.created_at)
    except (Malformed, TypeError, AttributeError):
        return None
    return created if created.year in VALID_YEARS else None


def disorder_of(created: Sequence[Moment]) -> dt.timedelta:
    """Return by how much a list is out of order, newest first: the most that a row is newer than one before it."""
    before = itertools.accumulate(created, min)
    return max((after - oldest for oldest, after in zip(before, created[1:], strict=False)), default=dt.timedelta(0))


def precision_of(created: Sequence[Moment]) -> dt.timedelta:
    """Return what timestamps seem to be truncated to: whole seconds, milliseconds or microseconds."""
    units = (unit for unit in (1_000_000, 1_000, 1) if all(each.microsecond % unit == 0 for each in created))
    return dt.timedelta(microseconds=next(units))
