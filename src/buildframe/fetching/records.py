"""Fetch lists without an order in time as frames, and single records. Does not know lists of builds."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import pandas as pd

from buildframe.errors import BuildframeError
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.fetching.link_pagination import LinkPagination
from buildframe.fetching.listing_state import PagesShrunk
from buildframe.fetching.metadata import ListingMetadata, reason_for_partial, warn_of_odd
from buildframe.fetching.options import check_options
from buildframe.fetching.page_size import PageSize
from buildframe.fetching.progress import ProgressBar
from buildframe.fetching.source import ListSource, redacted_errors
from buildframe.fetching.time_ranges import TimeRange
from buildframe.http import protocol
from buildframe.http.budget import Canceled, RequestBudget, within_deadline
from buildframe.http.client import Client
from buildframe.http.protocol import Page, Request
from buildframe.http.retry import Decode, fetch
from buildframe.spec import Resource
from buildframe.spec.odd_values import OddValue, OddValues
from buildframe.spec.times import Deadline

R = TypeVar("R", bound=Resource)
T = TypeVar("T")

_BY_NUMBER = "read by page numbers: if an entry was deleted in the meantime, another one may be missing"


def records(
    source: ListSource, table: str, options: Mapping[str, Any], filters: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Fetch a list as a frame; `options` are those of `ListOptions`."""
    assert source.endpoint.returns is not None
    decoder = PageDecoder(source.endpoint.returns, ColumnSelection.of(table, options))
    pages, metadata = list_pages(source, decoder.read, decoder.tables, decoder.key, options, filters)
    metadata = replace(metadata, odd=decoder.odd.entries(source.client.redact))
    warn_of_odd(metadata.odd)
    return metadata.attach(decoder.frames(pages)[0], table)


def list_pages(
    source: ListSource,
    read: Decode[Page],
    convert: Callable[[Page], T],
    key: Callable[[Any], Hashable],
    options: Mapping[str, Any],
    filters: Mapping[str, Any] | None = None,
) -> tuple[list[T], ListingMetadata]:
    """Fetch all pages of a list along its links, each converted, without rows of earlier pages by their `key`."""
    chosen, checked, tables, why = filters or {}, check_options(options), [], None
    with redacted_errors(source.client), ProgressBar(source.name, checked.progress) as bar:
        budget = RequestBudget(max_requests=checked.max_requests, seconds=checked.seconds, on_wait=bar.wait)
        pagination = LinkPagination(key, source.client.page_limits)
        list_page = _ListPages(source, chosen, read, budget, pagination, checked.page_size)
        try:
            while pagination.next is not None:
                if checked.max_requests is None:
                    pagination.check_pages()
                # No variable holds the page: an error in it passes this frame, and the page may echo the token.
                tables.append(convert(pagination.take(list_page.fetch())))
                bar.show(pagination.rows, pagination.requests, pagination.share)
            bar.end()
        except (BuildframeError, KeyboardInterrupt) as error:
            why = reason_for_partial(error, checked.partial, pagination.requests, pagination.progress())
        except Canceled as canceled:
            if budget.is_canceled:
                raise
            why = str(canceled)
    note = _BY_NUMBER if pagination.requests > 1 else None
    remaining = [TimeRange()] if why else []
    return tables, ListingMetadata(source.url(chosen), budget, note, why and source.client.redact(why), remaining)


class _ListPages:
    """Fetches the pages of a pagination by links. Pages shrink if the service fails."""

    def __init__(
        self,
        source: ListSource,
        filters: Mapping[str, Any],
        read: Decode[Page],
        budget: RequestBudget,
        pagination: LinkPagination,
        page_size: int | None,
    ) -> None:
        self._source = source
        self._filters = filters
        self._read = read
        self._budget = budget
        self._pagination = pagination
        self._first_size = page_size or source.page_size
        self._size = PageSize(self._first_size)

    def fetch(self) -> Page:
        """Fetch the next page."""
        client = self._source.client
        is_up = False
        while True:
            request = self._next_request()
            rows = protocol.rows_per_page(request)
            if rows is None or rows == 1:
                return fetch(client, request, self._read, self._budget)
            probe = self._source.page(self._filters, per_page=1)
            try:
                return self._size.fetch(client, request, self._read, self._budget, rows=rows, probe=probe, is_up=is_up)
            except PagesShrunk:
                is_up = True
                if protocol.has_page_number(request):
                    self._pagination.shrink_pages(self._size.rows)

    def _next_request(self) -> Request:
        assert self._pagination.next is not None
        link, number = self._pagination.next
        if link is None:
            return self._source.page(self._filters, number, per_page=self._size.rows)
        request = self._source.client.follow(self._source.page({}), link)
        is_smaller = self._size.rows < self._first_size and not protocol.has_page_number(request)
        return protocol.with_page_size(request, self._size.rows) if is_smaller else request


def record(client: Client, request: Request, kind: type[R], advice: str = "", *, deadline: Deadline = None) -> R:
    """Send a request and return the record in its response; `advice` says how to check an action that is lost."""
    odd: list[OddValue] = []
    with within_deadline(deadline):
        found = fetch(client, request, functools.partial(protocol.read_record, odd=odd), advice=advice)
    named = OddValues()
    for value in odd:
        named.add(value)
    warn_of_odd(named.entries(client.redact), "See `unknown` of the record.")
    assert isinstance(found, kind)
    return found
