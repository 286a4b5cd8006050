"""Services that send short pages without `Link` headers, allow few rows per page, or cannot send large pages."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

import buildframe as bf
from buildframe.fetching.link_pagination import LinkPagination
from buildframe.http import response as http_response
from buildframe.http.protocol import Page
from buildframe.sandbox_server import Fault, Sandbox
from tests import worlds
from tests.conftest import Scripted, says
from tests.in_memory_service import T0, row
from tests.listing import DATE, TOKEN, Listing, Responder, build, evenly

Start = Callable[..., Scripted]


class Plain(Listing):
    """A service without `Link` headers that allows at most `rows` per page, and fails above `most`."""

    rows = 100
    most = 1000
    link: str | None = None
    status = 504

    def page_of(self, query: dict[str, str]) -> Responder:
        size = int(query["per_page"])
        if size > self.most:
            return says(b'{"message": "upstream timed out"}', self.status, date=DATE)
        respond = super().page_of({**query, "per_page": str(min(size, self.rows))})

        def without_link(handler: BaseHTTPRequestHandler) -> None:
            send, link = handler.send_header, self.link
            changed = {"Link": link}
            handler.send_header = lambda name, value: (  # type: ignore[method-assign]
                send(name, changed.get(name, value) or "") if changed.get(name, value) is not None else None
            )
            respond(handler)

        return without_link


@pytest.fixture
def plain() -> Iterator[Callable[..., Plain]]:
    started: list[Plain] = []

    def start(builds: Iterable[dict[str, Any]], **settings: Any) -> Plain:
        service = Plain(builds)
        for name, value in settings.items():
            setattr(service, name, value)
        started.append(service)
        return service

    yield start
    for service in started:
        service.stop()


# --- short pages without links


def test_a_short_page_without_links_costs_one_request_more_once(plain: Callable[..., Plain]) -> None:
    for number, every in [(1, 60), (2, 0), (30, 60), (30, 0), (99, 60)]:
        ci, counts = plain(evenly(number, every)).connected(), []
        for _ in range(3):
            frame = ci.builds()
            assert len(frame) == number
            assert frame.attrs["complete"]
            assert frame.attrs["note"] is None
            counts.append(frame.attrs["requests"])
        assert counts == [2, 1, 1], (number, every)


def test_a_short_page_with_an_empty_link_costs_no_request_more(plain: Callable[..., Plain]) -> None:
    service = plain(evenly(40), link="")
    assert service.connected().builds().attrs["requests"] == 1


def test_the_limit_of_a_service_is_found_once(plain: Callable[..., Plain]) -> None:
    """Of 75 builds, 30 are on a page: 3 pages and, in the first listing, the second one by its number."""
    service = plain(evenly(75), rows=30)
    ci = service.connected()
    first, second = ci.builds(workers=1), ci.builds(workers=1)
    assert len(first) == len(second) == 75
    assert first.attrs["complete"]
    assert second.attrs["complete"]
    assert first.attrs["requests"] == second.attrs["requests"] + 1
    assert len(ci.builds(created_to="2026-10-01T00:20:30Z")) == 20
    assert len(service.requests) == first.attrs["requests"] + second.attrs["requests"] + 1


def test_the_usual_number_of_rows_is_doubted_after_a_shorter_list(plain: Callable[..., Plain]) -> None:
    """A service that ignores `per_page` sends 30 rows, which a list of five does not show."""
    service = plain(evenly(75), rows=30)
    ci = service.connected()
    assert len(ci.builds(created_to="2026-10-01T00:05:30Z")) == 5
    assert len(ci.builds()) == 75


def test_a_full_page_shows_that_shorter_ones_end_lists(plain: Callable[..., Plain]) -> None:
    service = plain(evenly(130))
    ci = service.connected()
    assert len(ci.builds(workers=1)) == 130
    sent = len(service.requests)
    assert len(ci.builds(created_to="2026-10-01T01:00:30Z")) == 60
    assert len(service.requests) == sent + 1


def test_other_lists_share_what_was_confirmed(scripted: Start) -> None:
    def pipelines(count: int) -> Responder:
        return says(json.dumps([{"id": f"p{n}", "slug": f"s{n}"} for n in range(count)]).encode(), Link=None)

    server = scripted(pipelines(3), says(b"[]"), pipelines(41))
    ci = bf.connect("acme", base_url=server.url, token=TOKEN)
    assert [len(ci.pipelines()), len(ci.flaky_tests("rspec")), len(ci.get("/organizations/acme/agents"))] == [3, 41, 41]
    assert len(server.requests) == 4


def test_a_list_that_is_declared_without_pages_is_one_response(scripted: Start) -> None:
    for count in (0, 7, 100, 250):
        rows = [{"id": f"u{n}", "name": f"n{n}", "url": "u"} for n in range(count)]
        server = scripted(says(json.dumps(rows).encode(), Link=None))
        ci = bf.connect("acme", base_url=server.url, token=TOKEN)
        for method in ("members", "emojis"):
            server.requests.clear()
            frame = getattr(ci, method)()
            assert len(frame) == len(ci.get(f"/organizations/acme/{method}")) == count
            assert frame.attrs["complete"]
            assert len(server.requests) == 2, (method, count)


def test_members_are_read_along_links_if_there_are_any(scripted: Start) -> None:
    following = '</v2/organizations/acme/members?page=2>; rel="next"'
    server = scripted(says(b'[{"id":"a"}]', Link=following), says(b'[{"id":"b"}]', Link=None))
    assert len(bf.connect("acme", base_url=server.url, token=TOKEN).members()) == 2


@pytest.mark.long
def test_an_idle_sync_without_links_takes_one_request_more(tmp_path: Path, plain: Callable[..., Plain]) -> None:
    with Sandbox(seed=3, builds=60, days=2) as sandbox:
        counts = []
        for fault in (None, Fault("no_link")):
            with bf.connect("acme", base_url=sandbox.url, token=sandbox.token()) as ci:
                store = bf.Store(tmp_path / str(fault is None))
                store.sync(ci, since="1d", progress=False)
                if fault is not None:
                    sandbox.fault(fault)
            with bf.connect("acme", base_url=sandbox.url, token=sandbox.token()) as ci:
                counts.append(store.sync(ci, since="1d", progress=False).requests)
    assert counts[1] <= counts[0] + 1


# --- page sizes


def sizes(service: Listing) -> list[int]:
    return [int(query["per_page"]) for query in service.requests if query["per_page"] != "1"]


@pytest.mark.parametrize("workers", [1, 4])
def test_pages_are_halved_until_the_service_can_send_them(
    plain: Callable[..., Plain], monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    monkeypatch.setattr("buildframe.http.retry._backoff", lambda state: 0.0)
    for has_links in (False, True):
        service = plain(evenly(240), most=30)
        if has_links:
            service.page_of = lambda query, service=service: (  # type: ignore[method-assign,misc]
                (Plain if int(query["per_page"]) > 30 else Listing).page_of(service, query)
            )
        frame = service.connected().builds(workers=workers)
        assert sorted(frame["number"]) == list(range(1, 241)), has_links
        assert frame.attrs["complete"]
        assert max(sizes(service)[4:]) == 25
        assert sizes(service)[:4] == [100, 100, 100, 50]
        assert Counter(sizes(service)).keys() == {100, 50, 25}


def test_pages_of_one_row_are_complete(plain: Callable[..., Plain], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildframe.http.retry._backoff", lambda state: 0.0)
    service = plain(evenly(6), most=1)
    frame = service.connected().builds(workers=1)
    assert sorted(frame["number"]) == [1, 2, 3, 4, 5, 6]
    assert frame.attrs["complete"]
    assert [size for size in sizes(service) if size > 1] == [100, 100, 100, 50, 25, 12, 6, 3]


def test_ties_are_read_by_pages_of_the_new_size(plain: Callable[..., Plain], monkeypatch: pytest.MonkeyPatch) -> None:
    """The service fails from its fourth request on, when a time range of 150 builds is read by page numbers."""
    monkeypatch.setattr("buildframe.http.retry._backoff", lambda state: 0.0)
    service = plain([build(900, 900), *(build(n, 60) for n in range(150, 0, -1)), build(0, 0)])

    def later(number: int, query: dict[str, str]) -> None:
        service.most = 1000 if number < 4 else 40

    service.override = later
    frame = service.connected().builds(workers=1)
    assert sorted(frame["number"]) == [*range(151), 900]
    assert frame.attrs["complete"]


def test_a_service_that_is_down_keeps_its_page_size(
    plain: Callable[..., Plain], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildframe.http.retry._backoff", lambda state: 0.0)
    service = plain(evenly(150))
    service.override = lambda number, query: says(b"{}", 503, date=DATE) if number <= 7 else None
    assert len(service.connected().builds(workers=1)) == 150
    assert set(sizes(service)) == {100}


def test_page_size_is_an_option_of_every_list(plain: Callable[..., Plain], scripted: Start) -> None:
    service = plain(evenly(45), link="")
    assert len(service.connected().builds(page_size=20, workers=1)) == 45
    assert set(sizes(service)) == {20}
    server = scripted(says(b"[]"))
    with bf.connect("acme", base_url=server.url, token=TOKEN) as ci:
        ci.pipelines(page_size=7)
        assert dict(parse_qsl(urlsplit(server.requests[0]).query)) == {"per_page": "7"}
        for wrong in (0, 101, 2.5, True):
            with pytest.raises(bf.BadInput, match="page_size="):
                ci.pipelines(page_size=wrong)


@pytest.mark.parametrize("is_cursor", [False, True])
def test_other_lists_continue_with_smaller_pages(
    scripted: Start, monkeypatch: pytest.MonkeyPatch, is_cursor: bool
) -> None:
    """The second page of 100 fails; 50 rows per page continue at the third page of 50, or at the same cursor."""
    monkeypatch.setattr("buildframe.http.retry._backoff", lambda state: 0.0)

    def rows(first: int, last: int) -> list[dict[str, str]]:
        return [{"id": f"p{n}", "slug": f"web-{n}"} for n in range(first, last + 1)]

    def page(items: list[dict[str, str]], following: str | None) -> Responder:
        links = {"next": following} if following else {}
        if is_cursor:
            return says(json.dumps({"items": items, "links": links}).encode())
        return says(json.dumps(items).encode(), Link=f'<{following}>; rel="next"' if following else "")

    where = "after=abc" if is_cursor else "page=2"
    down = says(b"{}", 504)
    server = scripted(
        page(rows(1, 100), f"/v2/x?{where}&per_page=100"), *[down] * 3, page([], None), page(rows(101, 130), None)
    )
    ci = bf.connect("acme", base_url=server.url, token=TOKEN)
    assert len(ci.get("/x")) == 130
    assert server.requests[-1] == ("/v2/x?after=abc&per_page=50" if is_cursor else "/v2/x?page=3&per_page=50")


def test_builds_that_are_too_large_alone_are_read_with_lists_of_their_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    with worlds.sandbox(seed=5, builds=40, days=2) as ci:
        expected = ci.history(extra={"message2": "message"}, job_extra={"number2": "build.number"})
        largest = int(expected.jobs.groupby("build_id").size().max())
        monkeypatch.setattr(http_response, "LARGEST", 1500 * largest)
        found = ci.history(extra={"message2": "message"}, job_extra={"number2": "build.number"})
        one = ci.pipeline(expected.builds["pipeline"][0]).history_of(int(expected.builds["number"][0]))
    assert found.builds.attrs["complete"]
    for before, after in zip(expected, found, strict=True):
        assert before.drop(columns="fetched_at").equals(after.drop(columns="fetched_at"))
    assert len(one.jobs) == (expected.jobs["build_id"] == expected.builds["id"][0]).sum()


# --- links in a circle


def test_a_link_that_repeats_ends_a_list_although_rows_are_new() -> None:
    pagination = LinkPagination()
    pagination.take(Page([row("a", 0)], "again", T0))
    with pytest.raises(bf.Incomplete, match="links to a page that was read before"):
        pagination.take(Page([row("b", 0)], "again", T0))
