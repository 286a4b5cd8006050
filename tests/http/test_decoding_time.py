"""Responses that are slow to decode, or that have no end: time is linear in their bytes, or they raise an error."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import pytest

import buildframe as bf
from buildframe.fetching import jobs_of_builds
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.fetching.jobs_of_builds import BuildsWithoutJobs, JobsOfBuilds
from buildframe.http import protocol
from buildframe.http.budget import RequestBudget
from buildframe.http.client import Client
from buildframe.http.response import Response, date_of
from buildframe.http.token import Token
from buildframe.spec import Build, list_builds
from buildframe.spec.odd_values import TooManyValues
from buildframe.spec.reading import convert_record
from buildframe.spec.rows import sort_paths
from buildframe.workspace import rest
from tests.conftest import Scripted, says

REQUEST = protocol.request_for(list_builds, "acme")
HEADERS = {"date": "Sun, 01 Nov 2026 12:00:00 GMT", "link": ""}


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Check that the block takes no more CPU time."""
    began = time.process_time()
    yield
    assert time.process_time() - began < seconds


def test_a_record_with_an_odd_value_may_have_the_values_of_a_large_build() -> None:
    job = {"id": "j", **{f"field {number}": number for number in range(59)}}
    build = convert_record(Build, {"id": "b", "number": "seven", "jobs": [job] * 2_000})
    assert build.jobs is not None
    assert len(build.jobs) == 2_000
    for jobs in ([job] * 5_001, [{"id": [1]}] * 20_001):
        with at_most(1.0), pytest.raises(TooManyValues, match="more than 300,000 values, or 20,000"):
            convert_record(Build, {"id": "b", "number": "seven", "jobs": jobs})


def test_distinct_unreadable_values_take_linear_time() -> None:
    job = b'{"id":"j%d","exit_status":%d,"created_at":"x%d","started_at":"2026-10-01T00:00:%02dZ"}'
    jobs = b",".join(job % (n, 2**63 + n, n, n % 60) for n in range(5_000))
    body = b'[{"id":"b1","number":7,"jobs":[%b]}]' % jobs
    decoder = PageDecoder(Build, ColumnSelection("builds"), ColumnSelection("jobs"))
    with at_most(1.0):
        page = decoder.read(REQUEST, Response(200, HEADERS, body))
        _, frame = decoder.frames([decoder.tables(page)])
    assert frame[["exit_status", "created_at"]].isna().all(axis=None)
    assert frame["started_at"].dt.second.tolist() == [n % 60 for n in range(5_000)]
    assert sum(odd["count"] for odd in decoder.odd.entries(str)) == 10_000


def test_keys_below_those_of_columns_do_not_matter_for_their_order() -> None:
    wide = b"{" + b",".join(b'"%d":1' % n for n in range(20_000)) + b"}"
    deep = b'{"a":' * 300 + wide + b"}" * 300
    record = b'{"jobs":[{"x":%b,"state":"passed","id":"j"}],"state":"passed","id":"b"}' % deep
    paths = (("id",), ("state",), ("jobs", "id"), ("jobs", "state"), ("absent",))
    with at_most(1.0):
        found = sort_paths(paths, b"[%b]" % record)
    assert found == (("jobs", "state"), ("jobs", "id"), ("state",), ("id",), ("absent",))


def test_a_table_has_columns_only_for_keys_that_rows_share(monkeypatch: pytest.MonkeyPatch) -> None:
    with at_most(1.0), pytest.raises(bf.Malformed, match=r"3,000 different keys in 3,000 rows.*Use get\(\)"):
        rest.frame_of([{f"key {number}": 1} for number in range(3_000)])
    with at_most(1.0), pytest.raises(bf.Malformed, match=r"20,000 different keys in 1 row:"):
        rest.frame_of([dict.fromkeys(map(str, range(20_000)))])
    monkeypatch.setattr(rest, "_MAX_CELLS", 0)  # rows with the same keys may be as many as they are
    assert rest.frame_of([{"id": number, "state": "passed"} for number in range(500)]).shape == (500, 2)


def test_pages_of_the_jobs_of_a_build_end(scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch) -> None:
    assert jobs_of_builds.MAX_PAGES == 5_000
    monkeypatch.setattr(jobs_of_builds, "MAX_PAGES", 3)
    document = b'{"id":"b1","url":"https://ci.example.com/v2/organizations/acme/pipelines/web/builds/7"}'

    def fetch_pages(*, is_endless: bool) -> tuple[int, int]:
        """Return the numbers of jobs and of requests."""
        links = [b'{"next":"?page=%d"}' % n for n in (2, 3, 4)] if is_endless else [b'{"next":"?page=2"}', b"{}"]
        page = b'{"items":[{"id":"j%d"}],"links":%b}'
        server = scripted(*(says(page % (n, link)) for n, link in enumerate(links)))
        decoder = PageDecoder(Build, ColumnSelection("builds"), ColumnSelection("jobs"))
        response = Response(200, HEADERS, b"[%b]" % document)
        rows = decoder.read(REQUEST, response).rows
        builds = BuildsWithoutJobs(protocol.Page(rows, None, date_of(response)), [document])
        with closing(Client(server.url, Token("bkua_0123456789secret"))) as client:
            jobs = JobsOfBuilds(client, decoder.read, RequestBudget(), {})
            return len(jobs.add_jobs(builds).rows[0].jobs), len(server.requests)

    assert fetch_pages(is_endless=False) == (2, 2)
    with pytest.raises(bf.Incomplete, match=r"web#7 has more than 200,000 jobs or 3 pages"):
        fetch_pages(is_endless=True)
