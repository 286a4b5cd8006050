"""Fetch lists of builds as frames: paginate, fetch and decode pages with workers, order batches, convert to frames."""

from __future__ import annotations

import datetime as dt
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec
import pandas as pd

from buildframe import spec
from buildframe.errors import BadInput, BuildframeError, Incomplete, Malformed
from buildframe.fetching import arrow
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.fetching.jobs_of_builds import BuildsWithoutJobs, JobsOfBuilds
from buildframe.fetching.metadata import ListingMetadata, reason_for_partial, warn_of_odd
from buildframe.fetching.options import CheckedOptions, check_options
from buildframe.fetching.ordering import Batch, newest_first
from buildframe.fetching.progress import ProgressBar
from buildframe.fetching.records import list_pages
from buildframe.fetching.source import BuildPages, ListSource, redacted_errors
from buildframe.fetching.time_pagination import TimePagination
from buildframe.fetching.time_ranges import TimeRange, merge_ranges
from buildframe.fetching.workers import WorkerPool
from buildframe.http import protocol
from buildframe.http.budget import Canceled, RequestBudget, value_within, within_deadline
from buildframe.http.client import Client
from buildframe.http.protocol import Page, Request
from buildframe.http.response import Response
from buildframe.http.retry import fetch, is_overload
from buildframe.spec import Build, Job, Moment
from buildframe.spec.times import check_time

_CHANGING = {"state", "finished_from", "meta_data"}
_CHANGED = "filtered by {}, which changes: builds that changed during the listing may or may not be here"
_UNCOUNTED = "the service did not report how many builds there are, so builds that are out of order may be missing"
_MAX_STEP_BACK = dt.timedelta(minutes=1)
"""Difference of times between responses that is accepted: the clocks of the service's servers may differ."""
_WRONG_TIME = "{} was counted back from {}, the time of the first response, but later responses have {}; try again"


OnRows = Callable[[pd.DataFrame, float | None], None]
_ON_ROWS: ContextVar[OnRows | None] = ContextVar("on_rows", default=None)


def reporting_rows(on_rows: OnRows) -> AbstractContextManager[None]:
    """Call `on_rows` with each frame of new builds that listings in this context receive, in the same thread.

    Its second argument is the share of the listing that is done, from 0 to 1, or None if unknown.
    """
    return value_within(_ON_ROWS, on_rows)


def builds(
    source: ListSource,
    filters: Mapping[str, Any],
    selection: ColumnSelection,
    jobs: ColumnSelection | None,
    options: Mapping[str, Any],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """List builds; return their frame, and the frame of their jobs (empty without `jobs`)."""
    checked = check_options(options)
    _check_filters(source, filters)
    decoder = PageDecoder(Build, selection, jobs)
    if decoder.can_exclude_pipeline:
        filters = {"exclude_pipeline": True, **filters}
    with (
        redacted_errors(source.client),
        ProgressBar("builds", checked.progress) as bar,
        source.client.borrowed_copy() as client,
    ):
        listing = _Listing(replace(source, client=client), filters, decoder, checked, bar)
        batches = listing.read()
    listing.warn_if_unverified()
    warn_of_odd(listing.metadata.odd)
    try:
        ordered, metadata = list(newest_first(batches)), listing.metadata
        batches.clear()
        builds_frame, jobs_frame = decoder.frames([(batch.builds, batch.jobs) for batch in ordered])
        return metadata.attach(builds_frame, "builds"), metadata.attach(jobs_frame, "jobs")
    except KeyboardInterrupt as stop:
        stop.add_note(listing.pagination.progress())
        raise


def one_build(source: ListSource, request: Request) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Fetch a single build; return its frame, and the frame of its jobs."""
    decoder, budget = PageDecoder(Build, ColumnSelection("builds"), ColumnSelection("jobs")), RequestBudget()
    with redacted_errors(source.client):
        page = _fetch_one(source.client, request, decoder, budget)
        build, jobs = decoder.frames([decoder.tables(page)])
    odd = decoder.odd.entries(source.client.redact)
    warn_of_odd(odd)
    metadata = ListingMetadata(source.client.base_url + request.target, budget, odd=odd)
    return metadata.attach(build, "builds"), metadata.attach(jobs, "jobs")


def _fetch_one(client: Client, request: Request, decoder: PageDecoder, budget: RequestBudget) -> Page:
    """Fetch a single build with its jobs.

    The jobs come from their own list if the service cannot send all in one response.
    """
    read = _reader_of_one(decoder)
    try:
        return fetch(client, request, read, budget)
    except BuildframeError as failure:
        if not is_overload(failure) or "job_states" in request.target:
            raise
    has_all = "include_retried_jobs=false" not in request.target
    in_pages = JobsOfBuilds(client, decoder.read, budget, {"include_retried_jobs": has_all})

    def read_builds(request: Request, response: Response) -> BuildsWithoutJobs:
        return BuildsWithoutJobs(read(request, response), [response.body])

    return in_pages.add_jobs(fetch(client, protocol.without_jobs(request), read_builds, budget))


def _reader_of_one(decoder: PageDecoder) -> Callable[[Request, Response], Page]:
    """Return a function that reads the response with a single build as a page with one row."""

    def read(request: Request, response: Response) -> Page:
        protocol.check(request, response)
        page = decoder.read(request, response._replace(body=b"[" + response.body + b"]"))
        found = sum(row.id is not None for row in page.rows)
        if len(page.rows) != 1 or not found:  # an empty body, or `{}`
            failure = Malformed(f"Requested one build, and the response has {found}.\nRequest: {request.where}")
            failure.retryable = not response.body.strip()
            raise failure
        protocol.check_identity(request, page.rows[0])
        return page

    return read


def jobs_of_build(
    source: ListSource, request: Request, filters: Mapping[str, Any], options: Mapping[str, Any]
) -> pd.DataFrame:
    """List the jobs of a single build in pages; return their frame.

    `request` fetches the build without its jobs: they have some columns of it.
    """
    selection = ColumnSelection.of("jobs", options)
    build_decoder = PageDecoder(Build, ColumnSelection("builds", raw=True))
    with redacted_errors(source.client), within_deadline(options.get("deadline")):
        read = _reader_of_one(build_decoder)
        build_table, _ = build_decoder.tables(fetch(source.client, request, read))
    decoder = PageDecoder(Job, selection, build=msgspec.json.decode(build_table["raw"][0].as_py()))
    job_pages, metadata = list_pages(source, decoder.read, decoder.new_rows, decoder.key, options, filters)
    build = _BuildWithJobs([job for rows in job_pages for job in rows])
    chosen = selection.declared, selection.additional
    with redacted_errors(source.client):
        table = arrow.jobs_of(build_table, [build], *chosen, decoder.odd.add)
    odd = decoder.odd.entries(source.client.redact)
    warn_of_odd(odd)
    return replace(metadata, odd=odd).attach(selection.frame([table]), "jobs")


class _BuildWithJobs(NamedTuple):
    jobs: list[Any]


class _Listing:
    """One listing of builds, from its filters to its metadata."""

    def __init__(
        self,
        source: ListSource,
        filters: Mapping[str, Any],
        decoder: PageDecoder,
        options: CheckedOptions,
        bar: ProgressBar,
    ) -> None:
        self._source, self._decoder, self._options, self._bar = source, decoder, options, bar
        self._budget = RequestBudget(max_requests=options.max_requests, seconds=options.seconds, on_wait=bar.wait)
        self._time_filters = source.time_filters(filters)
        self._filters = dict(filters) | _absolute_times(self._time_filters, source, self._budget)
        self._counted_from = self._budget.time.at
        self._pages = BuildPages(source, self._filters, decoder, self._budget, options.workers, options.page_size)
        self._changing = sorted(_CHANGING & {name for name, value in filters.items() if value is not None})
        chosen = TimeRange(self._filters.get("created_from"), self._filters.get("created_to"))
        if chosen.is_empty:
            raise BadInput(f"The time range is empty: {chosen}. Swap created_from and created_to?")
        self.pagination = TimePagination(
            chosen,
            overlap=options.overlap,
            is_steady=not self._changing,
            only_grows=self._changing == ["finished_from"] and chosen.end is not None,
            limits=source.client.page_limits,
        )
        self._why: str | None = None
        self._reported = 0  # batches that were passed to `on_rows`

    def read(self) -> list[Batch]:
        """Read all batches; or those until a limit, or with `partial` until an error."""
        state = self.pagination.state
        with WorkerPool(self.pagination, self._pages, self._options.workers) as pool:
            try:
                for is_new in pool:
                    if is_new:
                        self._bar.show(len(state.created), state.requests, self.pagination.share)
                        self._report_rows(pool.batches)
                    self._bar.tick()
                self._bar.end()
            except Canceled as canceled:
                self._why = str(canceled)
            except (BuildframeError, KeyboardInterrupt) as error:
                self._why = reason_for_partial(error, self._options.partial, state.requests, self.pagination.progress())
        return pool.batches  # an interrupt while the pool closes is raised: threads may not have ended

    def _report_rows(self, batches: Sequence[Batch]) -> None:
        """Pass the rows that came since the last call to `on_rows`, if there is one."""
        if (on_rows := _ON_ROWS.get()) is not None:
            new = batches[self._reported :]
            self._reported += len(new)
            frame, _ = self._decoder.frames([(batch.builds, None) for batch in new])
            on_rows(self.metadata.attach(frame, "builds"), self.pagination.share)

    @property
    def metadata(self) -> ListingMetadata:
        """The metadata of the listing so far."""
        reasons = [self._why] if self._why and self.pagination.remaining else []
        reasons += [f"{part}: {reason}" for part, reason in self._unverified]
        return ListingMetadata(
            self._source.url(self._filters),
            self._budget,
            note=self._note,
            why=self._source.client.redact("; ".join(reasons)) or None,
            remaining=merge_ranges([*self.pagination.remaining, *(part for part, _ in self._unverified)]),
            odd=self._decoder.odd.entries(self._source.client.redact),
        )

    def warn_if_unverified(self) -> None:
        """Warn about an incomplete result that no option explains."""
        for part, reason in self._unverified:
            message = f"Incomplete: {part}: {reason}. See attrs['why'] and attrs['left'] of the frame."
            warnings.warn(self._source.client.redact(message), stacklevel=6)

    @property
    def _unverified(self) -> list[tuple[TimeRange, str]]:
        """Time ranges that may lack builds, each with the reason."""
        counted, now = self._counted_from, self._budget.time.at
        ages = {name: value for name, value in self._time_filters.items() if spec.is_relative(value)}
        if not ages or counted is None or now is None or counted - now <= _MAX_STEP_BACK:
            return self.pagination.state.unverified
        times = self._filters | {name: spec.when(value, name, now) for name, value in ages.items()}
        meant = TimeRange(times.get("created_from"), times.get("created_to"))
        reason = _WRONG_TIME.format(" and ".join(ages), counted.text(), now.text())
        return [*self.pagination.state.unverified, (meant, reason)]

    @property
    def _note(self) -> str | None:
        """What limits a result that is complete."""
        notes = [_CHANGED.format(" and ".join(self._changing))] if self._changing else []
        notes += [_UNCOUNTED] if self.pagination.check.is_uncounted and not self.pagination.remaining else []
        return "; ".join(notes) or None


def _check_filters(source: ListSource, filters: Mapping[str, Any]) -> None:
    """Raise BadInput for invalid filters before anything is sent."""
    times = source.time_filters(filters)
    for name, value in times.items():
        check_time(value, name)
    ages = {name for name, value in times.items() if spec.is_relative(value)}
    source.page({name: value for name, value in filters.items() if name not in ages})


def _absolute_times(time_filters: Mapping[str, Any], source: ListSource, budget: RequestBudget) -> dict[str, Moment]:
    """Return the time filters as times; ages are counted back from the service's time, which takes a request."""
    now: Moment | None = None
    try:
        if any(spec.is_relative(value) for value in time_filters.values()):
            request = source.page({"exclude_jobs": True}, per_page=1)
            now = fetch(source.client, request, protocol.read_date, budget)
    except Canceled as canceled:
        raise Incomplete(f"Nothing was read, not even the service's time: {canceled}.") from None
    return {name: spec.when(value, name, now) for name, value in time_filters.items()}
