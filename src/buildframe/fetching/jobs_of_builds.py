"""Fetch builds whose jobs are too many for one response.

The builds come without jobs, and the jobs of each build in pages.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Hashable, Mapping
from dataclasses import replace
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec

from buildframe import spec
from buildframe.errors import Incomplete, Malformed
from buildframe.fetching.link_pagination import MAX_PAGES, unseen
from buildframe.fetching.listing_state import PagesShrunk
from buildframe.fetching.page_size import PageSize
from buildframe.http import protocol
from buildframe.http.budget import RequestBudget
from buildframe.http.client import Client
from buildframe.http.protocol import Page, Request
from buildframe.http.response import Response
from buildframe.http.retry import Decode, fetch
from buildframe.spec.decoders import decoder_of
from buildframe.spec.odd_values import MAX_ROWS, OddValue

_ROWS = 100
_BUILD_PATH = re.compile(r"/organizations/([^/?]+)/pipelines/([^/?]+)/builds/([0-9]{1,18})(?=[/?]|$)")
_DOCUMENTS = msgspec.json.Decoder(list[msgspec.Raw])


class _LinkedBuild(msgspec.Struct):
    url: str | None = None


class BuildsWithoutJobs(NamedTuple):
    """A page of builds without jobs, and the JSON of each."""

    page: Page
    documents: list[bytes]


class JobsOfBuilds:
    """Fetches pages of builds without jobs, and their jobs by the list of jobs of a build.

    `decode` decodes a list of builds with their jobs; `filters` are those of the jobs. Jobs that
    were read once are not requested again.
    """

    def __init__(self, client: Client, decode: Decode[Page], budget: RequestBudget, filters: Mapping[str, Any]) -> None:
        self._client = client
        self._decode = decode
        self._budget = budget
        self._filters = {"include_retried_jobs": True, **filters}
        self._page_size = PageSize(_ROWS)
        self._jobs: dict[Hashable, list[Any]] = {}
        self._odd: dict[Hashable, list[OddValue]] = {}

    def read(self, request: Request, response: Response) -> BuildsWithoutJobs:
        """Return the builds in a response, which contains no jobs."""
        page = self._decode(request, response)
        return BuildsWithoutJobs(page, [bytes(document) for document in _DOCUMENTS.decode(response.body)])

    def add_jobs(self, builds: BuildsWithoutJobs) -> Page:
        """Fetch the jobs of builds, and return the page of the builds with them."""
        odd = [*builds.page.odd]
        for build, document in zip(builds.page.rows, builds.documents, strict=True):
            if build.id not in self._jobs:
                self._jobs[build.id], self._odd[build.id] = self._fetch_jobs(document)
            build.jobs = self._jobs[build.id]
            odd += [value._replace(row=build) for value in self._odd[build.id]]
        return replace(builds.page, odd=odd)

    def _fetch_jobs(self, document: bytes) -> tuple[list[Any], list[OddValue]]:
        """Return the jobs of a build, and the values of their fields that could not be decoded."""
        found = _BUILD_PATH.search(decoder_of(_LinkedBuild).decode(document).url or "")
        if found is None:
            raise Malformed(
                "The service cannot send builds with all their jobs in one response, and a build has no `url` by which"
                " its jobs can be requested. Use builds(), which needs no jobs."
            )
        organization, pipeline, number = found.groups()
        of_build = (organization, pipeline, int(number))
        following: Request | None = protocol.page_request(
            spec.list_build_jobs, *of_build, per_page=_ROWS, **self._filters
        )
        jobs: list[Any] = []
        odd: list[OddValue] = []
        seen: set[Hashable] = set()
        n_pages = 0
        while following is not None:
            page = self._fetch_page(following, self._reader_of(document))
            n_pages += 1
            listed = page.rows[0].jobs or ()
            new = unseen(listed, attrgetter("id"), seen)
            jobs += [listed[position] for position in new]
            odd += [value for value in page.odd if value.job is not None]
            if page.next is not None and not new:
                raise Incomplete(
                    f"A page of the jobs of {pipeline}#{number} is not the last, but contains no new job. The service "
                    "links its pages in a circle. Try again."
                )
            if len(jobs) > MAX_ROWS or (page.next is not None and n_pages >= MAX_PAGES):
                raise Incomplete(
                    f"The list of the jobs of {pipeline}#{number} has more than {MAX_ROWS:,} jobs "
                    f"or {MAX_PAGES:,} pages. Perhaps the service links new pages without an end. "
                    "Leave this build out by its time, or list builds without jobs."
                )
            following = None if page.next is None else self._client.follow(following, page.next)
        return jobs, odd

    def _fetch_page(self, request: Request, read: Decode[Page]) -> Page:
        """Fetch a page of jobs, with fewer rows if the service cannot send so many."""
        client = self._client
        budget = self._budget
        while True:
            rows = self._page_size.rows
            request = protocol.with_page_size(request, rows)
            if rows == 1:
                return fetch(client, request, read, budget)
            with contextlib.suppress(PagesShrunk):
                probe = protocol.with_page_size(request, 1)
                return self._page_size.fetch(client, request, read, budget, rows=rows, probe=probe)

    def _reader_of(self, document: bytes) -> Decode[Page]:
        """Return a function that reads a page of jobs as the page of one build with these jobs."""
        start = document.rstrip()[:-1]

        def read(request: Request, response: Response) -> Page:
            protocol.check(request, response)
            opened = protocol.open_envelope(request, response)
            return self._decode(request, opened._replace(body=b'[%b,"jobs":%b}]' % (start, opened.body)))

        return read
