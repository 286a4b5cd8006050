"""From a list's answers to frames and records: what is asked, and what is to be said of what came."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar

import pandas as pd

from buildframe.errors import BuildframeError, DeadlineExceeded, Malformed
from buildframe.fetching.decoder import Decoding, Wanted
from buildframe.fetching.link_pagination import LinkWalk
from buildframe.fetching.options import most_requests
from buildframe.fetching.progress import Bar
from buildframe.fetching.time_ranges import Window
from buildframe.http import protocol
from buildframe.http.budget import RequestBudget, within_deadline
from buildframe.http.cancellation import Canceled
from buildframe.http.client import Client
from buildframe.http.protocol import Page, Request
from buildframe.http.response import Response
from buildframe.spec import Endpoint, Moment, Resource, key_of
from buildframe.spec.times import Deadline

R = TypeVar("R", bound=Resource)
P = TypeVar("P")

PAGE_SIZE = 100
_BY_NUMBER = "read by page numbers: where an entry was deleted meanwhile, another one may be missing"


@dataclass(frozen=True)
class Source:
    """A list of the service: which endpoint, with which arguments in its path."""

    client: Client
    endpoint: Endpoint
    arguments: tuple[str, ...] = ()

    @property
    def what(self) -> str:
        """What the list holds, in words."""
        return self.endpoint.name.removeprefix("list_").replace("_", " ")

    def url(self, filters: Mapping[str, Any]) -> str:
        """The list's address with these filters."""
        return self.client.base_url + protocol.request_for(self.endpoint, *self.arguments, **filters).target

    def page(self, filters: Mapping[str, Any], number: int = 1, per_page: int = PAGE_SIZE) -> Request:
        """The request for a page of it, or for all of it where it has no pages."""
        if not self.endpoint.paginated:
            return protocol.request_for(self.endpoint, *self.arguments, **filters)
        return protocol.page_request(self.endpoint, *self.arguments, number=number, per_page=per_page, **filters)

    def timed(self, filters: Mapping[str, Any]) -> dict[str, Any]:
        """Those of `filters` that are moments."""
        names = {entry.name for entry in self.endpoint.filters if entry.kind == "moment"}
        return {name: value for name, value in filters.items() if name in names and value is not None}


@dataclass(frozen=True)
class Told:
    """What is to be said of a list that was read.

    `why` is None if it is complete, and `left` are the windows that are still to be asked, if it is not.
    """

    source: str
    budget: RequestBudget
    note: str | None = None
    why: str | None = None
    left: Sequence[Window] = field(default_factory=tuple)

    def on(self, frame: pd.DataFrame, table: str) -> pd.DataFrame:
        """The frame with all this in its `attrs`: plain values, which survive Parquet."""
        frame.attrs.update(
            table=table,
            source=self.source,
            as_of=self.budget.time.at.text() if self.budget.time.at else None,
            complete=self.why is None,
            why=self.why,
            left=[bounds_as_text(window) for window in self.left],
            note=self.note,
            requests=self.budget.requests,
            retries=self.budget.retries,
            waits=self.budget.waits,
            waited_s=round(self.budget.waited_s, 3),
        )
        if self.budget.time.is_simulated:
            frame.attrs["simulated"] = True
        return frame


def bounds(window: Window) -> dict[str, Moment]:
    """A window as filters of a list of builds."""
    ends = {"created_from": window.start, "created_to": window.end}
    return {name: end for name, end in ends.items() if end is not None}


def bounds_as_text(window: Window) -> dict[str, str]:
    """The same, as plain texts."""
    return {name: end.text() for name, end in bounds(window).items()}


class Asking:
    """Pages of one list, fetched through its client, at one call's expense. Threads share it."""

    def __init__(self, source: Source, read: Callable[[Request, Response], Page], budget: RequestBudget) -> None:
        self.source = source
        self.budget = budget
        self._read = read

    def page(self, filters: Mapping[str, Any], *, number: int = 1, per_page: int = PAGE_SIZE) -> Page:
        """A page of the list with these filters."""
        return self._fetch(self.source.page(filters, number, per_page))

    def follow(self, link: str) -> Page:
        """The page behind a link of the one before."""
        return self._fetch(self.source.client.follow(self.source.page({}), link))

    def now(self) -> Moment:
        """The service's time."""
        request = self.source.page({"exclude_jobs": True}, per_page=1)
        return self.source.client.fetch(request, lambda response: protocol.read_date(request, response), self.budget)

    def _fetch(self, request: Request) -> Page:
        return self.source.client.fetch(request, lambda response: self._read(request, response), self.budget)


def records(
    source: Source, table: str, options: Mapping[str, Any], filters: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """A list without an order in time (pipelines, members and so on) as a frame; `options` are those of Listing."""
    assert source.endpoint.returns is not None
    wanted = Wanted(table, options.get("columns"), options.get("extra") or {}, options.get("raw", False))
    decoding = Decoding(source.endpoint.returns, wanted)
    key = attrgetter(*key_of(source.endpoint.returns))
    parts, metadata = listed(source, decoding.read, lambda page: decoding.tables(page).rows, key, options, filters)
    return metadata.on(decoding.frame(parts), table)


def listed(
    source: Source,
    read: Callable[[Request, Response], Page],
    convert: Callable[[Page], P],
    key: Callable[[Any], Hashable],
    options: Mapping[str, Any],
    filters: Mapping[str, Any] | None = None,
) -> tuple[list[P], Told]:
    """Fetch all pages of a list along its links, each converted, without rows that came before by `key`."""
    chosen, parts, why = filters or {}, [], None
    with (
        within_deadline(options.get("deadline")),
        without_token(source.client),
        Bar(source.what, options.get("progress")) as bar,
    ):
        budget = RequestBudget(max_requests=most_requests(options.get("max_requests")), on_wait=bar.wait)
        asking = Asking(source, read, budget)
        walk = LinkWalk(
            lambda: asking.page(chosen), asking.follow, key, numbered=lambda number: asking.page(chosen, number=number)
        )
        try:
            for page in walk:
                parts.append(convert(page))
                bar.show(walk.rows, walk.requests, walk.share)
            bar.end()
        except (BuildframeError, KeyboardInterrupt) as error:
            why = reason(error, options.get("partial", False), walk.requests)
            if why is None:
                raise
        except Canceled as halted:
            if budget.is_canceled:
                raise
            why = str(halted)
    note = _BY_NUMBER if walk.requests > 1 else None
    left = [Window()] if why else []
    return parts, Told(source.url(chosen), budget, note, why and source.client.redact(why), left)


def reason(error: BuildframeError | KeyboardInterrupt, partial: bool, answers: int) -> str | None:
    """Why a listing that ended so, after so many answers, is incomplete; None if the error is to be raised."""
    is_failure = isinstance(error, BuildframeError) and not isinstance(error, DeadlineExceeded)
    if not partial or (is_failure and not answers):
        return None
    return str(error).splitlines()[0] if isinstance(error, BuildframeError) else "it was interrupted"


@contextmanager
def without_token(client: Client) -> Iterator[None]:
    """An error that quotes a value of an answer must not show the token, should a server echo it."""
    try:
        yield
        return
    except Malformed as why:
        why.args = (client.redact(str(why)),)
        told = Malformed(*why.args)
        for note in getattr(why, "__notes__", []):
            told.add_note(note)
    raise told


def record(client: Client, request: Request, kind: type[R], advice: str = "", *, deadline: Deadline = None) -> R:
    """Return the record in the response; `advice` says how to check an action whose response is lost."""
    with within_deadline(deadline):
        found = client.fetch(request, lambda response: protocol.read_record(request, response), advice=advice)
    assert isinstance(found, kind)
    return found


def nothing(client: Client, request: Request, advice: str, *, deadline: Deadline = None) -> None:
    """Send an action that answers with nothing of use."""
    with within_deadline(deadline):
        client.fetch(request, lambda response: protocol.read_nothing(request, response), advice=advice)
