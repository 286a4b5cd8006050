"""Responses with too many rows or values raise an error before they take memory."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import buildframe as bf
from buildframe.fetching.decoder import ColumnSelection, PageDecoder
from buildframe.http import json_bodies, protocol
from buildframe.http.response import Response, TooLarge
from buildframe.spec import ENDPOINTS, RESOURCES, Build, Endpoint, list_builds
from tests.conftest import Scripted, says

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
        with pytest.raises(TooLarge, match=r"more than (200,000 rows|10,000,000 values|300,000 values)"):
            call()
        return tracemalloc.get_traced_memory()[1] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_too_many_rows_is_not_decoded(name: str) -> None:
    decoder = decoder_of(LISTS[name])
    response = Response(200, HEADERS, empty_rows(250_000))
    assert peak_mb(lambda: decoder.read(request_of(LISTS[name]), response)) < 20


@pytest.mark.parametrize("name", [name for name, endpoint in LISTS.items() if endpoint.paginated])
def test_a_page_has_at_most_the_requested_rows(name: str) -> None:
    endpoint = LISTS[name]
    decoder = decoder_of(endpoint)
    if endpoint.ends_without_link:  # its document does not say that it has pages
        assert len(decoder.read(request_of(endpoint), Response(200, HEADERS, empty_rows(101))).rows) == 101
        return
    assert len(decoder.read(request_of(endpoint), Response(200, HEADERS, empty_rows(100))).rows) == 100
    with pytest.raises(bf.Malformed, match="a page of 101 rows, and 100 were requested"):
        decoder.read(request_of(endpoint), Response(200, HEADERS, empty_rows(101)))


@pytest.mark.parametrize("item", [b"{}", b"1"])
def test_the_jobs_of_builds_are_limited_in_lists_and_records(item: bytes) -> None:
    jobs = b"[" + b",".join([item] * 400_000) + b"]"
    build = b'{"id":"b1","number":7,"jobs":%b}' % jobs
    listed = Response(200, HEADERS, b"[" + build + b"]")
    assert peak_mb(lambda: decoder_of(list_builds).read(request_of(list_builds), listed)) < 60
    fetched = request_of(next(endpoint for endpoint in ENDPOINTS if endpoint.name == "get_build"))
    with pytest.raises(TooLarge, match=r"more than (200,000|300,000 values)"):
        protocol.read_record(fetched, Response(200, HEADERS, build))


@pytest.mark.long
def test_values_of_any_kind_are_limited() -> None:
    nested = b'[{"id":"b1","meta_data":[' + b",".join([b"1"] * 10_000_001) + b"]}]"
    response = Response(200, HEADERS, nested)
    assert peak_mb(lambda: decoder_of(list_builds).read(request_of(list_builds), response)) < 20


@pytest.mark.parametrize(("start", "end"), [(b"[", b"]"), (b'{"a":', b"}")])
def test_nested_lists_and_objects_count_as_values(start: bytes, end: bytes) -> None:
    nested = b'[{"id":"b1","meta_data":[' + b",".join([start * 100 + b"1" + end * 100] * 100_001) + b"]}]"
    response = Response(200, HEADERS, nested)
    assert peak_mb(lambda: decoder_of(list_builds).read(request_of(list_builds), response)) < 20


@pytest.mark.parametrize("path", ["get", "graphql", "error", "pipelines"])
def test_a_compressed_response_of_many_rows_is_refused(scripted: Callable[..., Scripted], path: str) -> None:
    rows = b'{"data":{"rows":' + empty_rows(10_000_001) + b"}}" if path == "graphql" else empty_rows(400_000)
    body = gzip.compress(rows)
    assert len(body) < 40_000
    failure = says(body, 422 if path == "error" else 200, Content_Encoding="gzip", Link="")
    workspace = bf.connect("acme", base_url=scripted(*[failure] * 9).url, token="bkua_0123456789secret")
    calls: dict[str, Callable[[], Any]] = {
        "get": lambda: workspace.get("/organizations/acme/anything", progress=False),
        "graphql": lambda: workspace.graphql("{ rows }"),
        "error": lambda: workspace.pipelines(progress=False),
        "pipelines": lambda: workspace.pipelines(progress=False),
    }
    limit = "10,000,000 values" if path == "graphql" else "200,000 rows"
    error, text = (bf.Invalid, "422") if path == "error" else (bf.Malformed, f"more than {limit}")
    with pytest.raises(error, match=text):
        calls[path]()


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
