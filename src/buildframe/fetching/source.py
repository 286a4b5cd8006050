"""Build the requests for the pages of one list. Knows endpoints and filters; does not know the order of pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from buildframe.errors import Malformed
from buildframe.fetching.link_pagination import PageReference
from buildframe.guards.secrets import without_frames
from buildframe.http import protocol
from buildframe.http.client import Client
from buildframe.http.protocol import Request
from buildframe.spec import Endpoint

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

    def referenced_page(self, reference: PageReference, filters: Mapping[str, Any]) -> Request:
        """Return the request for a page by the link to it, or by its number if there is no link."""
        if reference.link is None:
            return self.page(filters, reference.number)
        return self.client.follow(self.page({}), reference.link)

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
