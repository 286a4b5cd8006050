"""Responses with too many rows or values raise an error before they take memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from urllib.parse import parse_qs, urlsplit

import pytest

import buildframe as bf
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.http import body_limits, json_bodies, protocol
from buildframe.http.response import Response, TooLarge
from buildframe.spec import ENDPOINTS, RESOURCES, Build, Endpoint, list_builds
from tests.conftest import Scripted, hang_up, says
from tests.refusals import wrong_refusals

HEADERS = {"date": "Sun, 01 Nov 2026 12:00:00 GMT", "link": ""}
LISTS = {endpoint.name: endpoint for endpoint in ENDPOINTS if endpoint.lists and endpoint.returns is not None}
UUID = "0191d3a1-5f2a-4b3c-8d4e-5f6a7b8c9d0e"


def empty_rows(count: int) -> bytes:
    return b"[" + b",".join([b"{}"] * count) + b"]"


def request_of(endpoint: Endpoint) -> protocol.Request:
    arguments = [7 if entry.type is int else UUID for entry in endpoint.parameters]
    if not endpoint.paginated:
        return protocol.request_for(endpoint, *arguments)
    return protocol.page_request(endpoint, *arguments, per_page=100)


def decoder_of(endpoint: Endpoint) -> PageDecoder:
    assert endpoint.returns is not None
    names = {resource: name for name, resource in RESOURCES.items()}
    jobs = ColumnSelection("jobs") if endpoint.returns is Build else None
    return PageDecoder(endpoint.returns, ColumnSelection(names[endpoint.returns]), jobs)


def peak_mb(call: Callable[[], object]) -> float:
    """Return the most memory that a call takes which raises TooLarge."""
    tracemalloc.start()
    try:
        with pytest.raises(TooLarge, match=r"200,000 rows|1,000,000 values|300,000 values"):
            call()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


def test_a_list_of_too_many_rows_is_not_decoded_whatever_it_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "MAX_ROWS", 2_000)
    response = Response(200, HEADERS, empty_rows(2_001))
    cases = [(name, "more than 2,000 rows") for name in LISTS]
    assert (
        wrong_refusals(cases, lambda name: decoder_of(LISTS[name]).read(request_of(LISTS[name]), response), TooLarge)
        == {}
    )


def test_a_list_of_too_many_rows_takes_little_memory() -> None:
    response = Response(200, HEADERS, empty_rows(250_000))
    assert peak_mb(lambda: decoder_of(list_builds).read(request_of(list_builds), response)) < 20


def test_a_page_has_at_most_the_requested_rows() -> None:
    def read(name: str, rows: int) -> int:
        response = Response(200, HEADERS, empty_rows(rows))
        return len(decoder_of(LISTS[name]).read(request_of(LISTS[name]), response).rows)

    paginated = [name for name, endpoint in LISTS.items() if endpoint.paginated]
    without_pages = {name for name in paginated if LISTS[name].ends_without_link}  # by their documents
    limited = [name for name in paginated if name not in without_pages]
    assert {name: read(name, 101) for name in without_pages} == dict.fromkeys(without_pages, 101)
    assert {name: read(name, 100) for name in limited} == dict.fromkeys(limited, 100)
    cases = [(name, "101 rows, and 100 were requested") for name in limited]
    assert wrong_refusals(cases, lambda name: read(name, 101), bf.Malformed) == {}
    assert limited
    assert without_pages


def test_the_jobs_of_builds_are_limited_in_lists_and_records() -> None:
    fetched = request_of(next(endpoint for endpoint in ENDPOINTS if endpoint.name == "get_build"))
    for job in (b"{}", b"1"):
        jobs = b"[" + b",".join([job] * 400_000) + b"]"
        build = b'{"id":"b1","number":7,"jobs":%b}' % jobs
        listed = Response(200, HEADERS, b"[" + build + b"]")
        assert peak_mb(lambda listed=listed: decoder_of(list_builds).read(request_of(list_builds), listed)) < 60
        with pytest.raises(TooLarge, match=r"200,000|300,000 values"):
            protocol.read_record(fetched, Response(200, HEADERS, build))


def test_values_lists_and_objects_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert body_limits.MAX_VALUES == 10_000_000
    monkeypatch.setattr(body_limits, "MAX_VALUES", 1_000_000)
    values = b'[{"id":"b1","meta_data":[' + b",".join([b"1"] * 1_000_001) + b"]}]"
    response = Response(200, HEADERS, values)
    assert peak_mb(lambda: decoder_of(list_builds).read(request_of(list_builds), response)) < 2
    monkeypatch.setattr(body_limits, "MAX_VALUES", 200_000)
    nested = {
        kind: b",".join([start * 100 + b"1" + end * 100] * 2_001)
        for kind, start, end in (("lists", b"[", b"]"), ("objects", b'{"a":', b"}"))
    }

    def read(kind: str) -> object:
        body = b'[{"id":"b1","meta_data":[' + nested[kind] + b"]}]"
        return decoder_of(list_builds).read(request_of(list_builds), Response(200, HEADERS, body))

    assert wrong_refusals([(kind, "200,000 values") for kind in nested], read, TooLarge) == {}


def test_a_compressed_response_of_many_rows_is_refused(
    scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(body_limits, "MAX_VALUES", 50_000)
    monkeypatch.setattr(body_limits, "MAX_ROWS", 20_000)
    server = scripted(hang_up)
    workspace = bf.connect("acme", base_url=server.url, token="bkua_0123456789secret")

    def answer(body: bytes, status: int = 200) -> None:
        packed = gzip.compress(body)
        assert len(packed) < 40_000
        server.responses = [says(packed, status, Content_Encoding="gzip", Link="")]

    answer(empty_rows(20_001))
    with pytest.raises(bf.Malformed, match="20,000 rows"):
        workspace.get("/organizations/acme/anything", progress=False)
    with pytest.raises(bf.Malformed, match="20,000 rows"):
        workspace.pipelines(progress=False)
    answer(empty_rows(20_001), 422)
    with pytest.raises(bf.Invalid, match="422"):
        workspace.pipelines(progress=False)
    answer(b'{"data":{"rows":[' + b",".join([b"1"] * 50_001) + b"]}}")
    with pytest.raises(bf.Malformed, match="50,000 values"):
        workspace.graphql("{ rows }")


@pytest.mark.parametrize(
    ("name", "read"), [(b'["odd"]', '["odd"]'), (rb'"\ud83d"', "\ufffd")], ids=["odd value", "half of an emoji"]
)
@pytest.mark.filterwarnings("ignore:1 value does not fit:UserWarning")
def test_a_page_that_is_too_large_for_one_odd_value_is_requested_in_smaller_ones(
    scripted: Callable[..., Scripted], monkeypatch: pytest.MonkeyPatch, name: bytes, read: str
) -> None:
    """Each row has 4,000 values and 8 KB, and the first one has the name that is odd."""
    monkeypatch.setattr(json_bodies, "LARGEST_REPAIRED", 500_000)
    rows = [{"id": f"p{n}", "slug": f"p{n}", "name": "p", "other": [1] * 4_000} for n in range(100)]

    def respond(handler: BaseHTTPRequestHandler) -> None:
        query = parse_qs(urlsplit(handler.path).query)
        size, number = int(query["per_page"][0]), int(query.get("page", ["1"])[0])
        body = json.dumps(rows[(number - 1) * size : number * size], separators=(",", ":"))
        path = f"/v2/organizations/acme/pipelines?per_page={size}&page={number + 1}"
        link = f'<{path}>; rel="next"' if number * size < len(rows) else ""
        odd = body.encode().replace(b'"p0","name":"p"', b'"p0","name":%s' % name)
        says(odd, Link=link)(handler)

    server = scripted(respond)
    workspace = bf.connect("acme", base_url=server.url, token="bkua_0123456789secret")
    assert list(workspace.pipelines(progress=False)["name"]) == [read] + ["p"] * 99
    assert ["per_page=50" in path for path in server.requests[:3]] == [False, True, True]
