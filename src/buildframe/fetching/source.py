"""Request and fetch the pages of one list. Knows endpoints and filters; does not know the order of pages."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from buildframe.errors import BuildframeError, Malformed
from buildframe.fetching.decoder import PageDecoder
from buildframe.fetching.jobs_of_builds import JobsOfBuilds
from buildframe.fetching.listing_state import NewRows, PageQuery, PagesShrunk
from buildframe.fetching.ordering import Batch
from buildframe.fetching.page_size import PageSize
from buildframe.guards.secrets import without_frames
from buildframe.http import protocol
from buildframe.http.budget import Canceled, RequestBudget
from buildframe.http.client import Client
from buildframe.http.protocol import Page, Request
from buildframe.http.response import Response
from buildframe.http.retry import fetch, is_overload
from buildframe.spec import Endpoint

PAGE_SIZE = 100
_FEWEST_ROWS = 2  # builds with jobs on a page: pages of one row overlap completely, so they take many requests
_RANGE_FILTERS = {"created_from", "created_to"}


@dataclass(frozen=True)
class ListSource:
    """A list of the service: an endpoint with the arguments in its path."""

    client: Client
    endpoint: Endpoint
    arguments: tuple[str | int, ...] = ()

    @property
    def name(self) -> str:
        """What the list contains, such as "builds"."""
        return self.endpoint.name.removeprefix("list_").replace("_", " ")

    @property
    def page_size(self) -> int:
        """Rows per page, unless an option says otherwise."""
        return PAGE_SIZE

    def url(self, filters: Mapping[str, Any]) -> str:
        """Return the URL of the list with these filters."""
        return self.client.base_url + protocol.request_for(self.endpoint, *self.arguments, **filters).target

    def page(self, filters: Mapping[str, Any], number: int = 1, per_page: int | None = None) -> Request:
        """Return the request for a page, or for the whole list if it has no pages."""
        if not self.endpoint.paginated:
            return protocol.request_for(self.endpoint, *self.arguments, **filters)
        size = per_page or PAGE_SIZE
        return protocol.page_request(self.endpoint, *self.arguments, number=number, per_page=size, **filters)

    def time_filters(self, filters: Mapping[str, Any]) -> dict[str, Any]:
        """Return those filters that are times."""
        names = {entry.name for entry in self.endpoint.filters if entry.kind == "timestamp"}
        return {name: value for name, value in filters.items() if name in names and value is not None}


@contextmanager
def redacted_errors(client: Client) -> Iterator[None]:
    """Remove the token from Malformed errors that quote a value of a response, which a server may echo."""
    try:
        yield
        return
    except Malformed as why:
        redacted = Malformed(client.redact(str(without_frames(why))))  # `why` stays its context
        why.args = redacted.args
        for note in getattr(why, "__notes__", []):
            redacted.add_note(note)
    raise redacted


class BuildPages:
    """Fetches and decodes the pages of a list of builds, in the threads of the workers.

    One page at a time is decoded: decoding in parallel is slower, since threads share the interpreter.
    """

    def __init__(
        self,
        source: ListSource,
        filters: Mapping[str, Any],
        decoder: PageDecoder,
        budget: RequestBudget,
        workers: int,
        page_size: int | None = None,
    ) -> None:
        self.budget = budget
        self._source, self._decoder, self._workers = source, decoder, workers
        self._filters = {name: value for name, value in filters.items() if name not in _RANGE_FILTERS}
        self._decoding = threading.Lock()
        self._has_jobs = filters.get("exclude_jobs") is not True
        self._page_size = PageSize(page_size or PAGE_SIZE, _FEWEST_ROWS if self._has_jobs else 1)
        job_filters = {name: value for name, value in filters.items() if name == "include_retried_jobs"}
        self._jobs = JobsOfBuilds(source.client, self._decode, budget, job_filters)

    def fetch(self, query: PageQuery) -> Page:
        """Fetch and decode the page of a query. If the service cannot send it, shrink pages.

        If the query names the size of its page, raise PagesShrunk then. If a page has few builds
        already, their jobs are fetched by their own lists.
        """
        filters = {**self._filters, **query.range.filters()}
        without_jobs = {**filters, "exclude_jobs": True}
        client = self._source.client
        is_up = False
        if query.only_count:
            request = self._source.page(without_jobs, query.number, per_page=1)
            return fetch(client, request, self._decode, self.budget)
        probe = self._source.page(without_jobs, per_page=1)
        while True:
            rows = query.size or self._page_size.rows
            request = self._source.page(filters, query.number, per_page=rows)
            if rows == 1 and not self._has_jobs:
                return fetch(client, request, self._decode, self.budget)
            try:
                return self._page_size.fetch(
                    client, request, self._decode, self.budget, rows=rows, probe=probe, is_up=is_up
                )
            except PagesShrunk:
                is_up = True
                if self._has_jobs and rows <= _FEWEST_ROWS:
                    page = self._fetch_in_parts(self._source.page(without_jobs, query.number, per_page=rows), rows)
                    if page is not None:
                        return page
                if query.size is not None:
                    raise

    def _fetch_in_parts(self, request: Request, rows: int) -> Page | None:
        """Fetch a page of builds without jobs, and their jobs; None if it has too many rows."""
        client = self._source.client
        budget = self.budget
        try:
            builds = fetch(client, request, self._jobs.read, budget, tries=1 if rows > 1 else None)
        except BuildframeError as failure:
            if rows == 1 or not is_overload(failure):
                raise
            self._page_size.rows = 1
            return None
        return self._jobs.add_jobs(builds)

    def _decode(self, request: Request, response: Response) -> Page:
        with self._decoding:
            if self.budget.is_canceled:
                raise Canceled("it was canceled")
            return self._decoder.read(request, response)

    def convert(self, query: PageQuery, page: Page, new: NewRows) -> Batch:
        """Convert the new rows of a page to Arrow tables."""
        with self._decoding:
            tables, jobs = self._decoder.tables(replace(page, rows=new.rows))
        counts = [] if jobs is None else [len(row.jobs or ()) for row in new.rows]
        return Batch(tables, new.created, jobs, counts, query.number)

    def useful_workers(self, pages_left: float | None) -> int:
        """Return how many workers make sense: one, if the number of requests is the limit, not the service's speed."""
        most, requests_left = self._workers, self.budget.requests_left
        pages = None if pages_left is None else math.ceil(pages_left) + most  # each range may end with a short page
        if requests_left is not None and (pages is None or pages > requests_left):
            return 1
        return self._source.client.rate_limiter.useful_workers(pages, most)

    def abort(self) -> None:
        """End the requests of all threads."""
        self._source.client.abort()
