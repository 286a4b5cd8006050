"""Request and read pages of one list. Knows endpoints and the client; does not know the order of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from buildframe.errors import Malformed
from buildframe.fetching.exchange import fetch
from buildframe.fetching.link_pagination import PageReference
from buildframe.http import protocol
from buildframe.http.budget import RequestBudget
from buildframe.http.client import Client
from buildframe.http.protocol import Page, Request
from buildframe.http.response import Response
from buildframe.spec import Endpoint, Moment

PAGE_SIZE = 100


@dataclass(frozen=True)
class ListSource:
    """A list of the service: an endpoint with the arguments in its path."""

    client: Client
    endpoint: Endpoint
    arguments: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the list contains, such as "builds"."""
        return self.endpoint.name.removeprefix("list_").replace("_", " ")

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


class PageReader(Protocol):
    """Decodes the pages of a list."""

    def read(self, request: Request, response: Response) -> Page:
        """Return the page in a response; raise Malformed if it cannot be read."""
        ...


class PageFetcher:
    """Fetches and reads pages of one list on the budget of one call. Threads share it."""

    def __init__(self, source: ListSource, reader: PageReader, budget: RequestBudget) -> None:
        self._source, self._reader, self._budget = source, reader, budget

    def page(self, filters: Mapping[str, Any], *, number: int = 1, per_page: int | None = None) -> Page:
        """Fetch a page of the list with these filters."""
        return self._fetch(self._source.page(filters, number, per_page))

    def referenced_page(self, reference: PageReference, filters: Mapping[str, Any]) -> Page:
        """Fetch a page by the link to it, or by its number if there is no link."""
        if reference.link is None:
            return self.page(filters, number=reference.number)
        return self._fetch(self._source.client.follow(self._source.page({}), reference.link))

    def service_time(self) -> Moment:
        """Fetch the service's time, with the smallest possible response."""
        request = self._source.page({"exclude_jobs": True}, per_page=1)
        return fetch(self._source.client, request, protocol.read_date, self._budget)

    def _fetch(self, request: Request) -> Page:
        return fetch(self._source.client, request, self._reader.read, self._budget)


@contextmanager
def redacted_errors(client: Client) -> Iterator[None]:
    """Remove the token from Malformed errors that quote a value of a response, which a server may echo."""
    try:
        yield
        return
    except Malformed as why:
        why.args = (client.redact(str(why)),)
        redacted = Malformed(*why.args)
        for note in getattr(why, "__notes__", []):
            redacted.add_note(note)
    raise redacted
