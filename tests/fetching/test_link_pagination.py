"""Pages whose `Link` header a proxy dropped or changed: no listing takes a full page for the last one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec
import pytest

import buildframe as bf
from buildframe import spec
from buildframe.errors import Incomplete
from buildframe.fetching.link_pagination import LinkPagination
from buildframe.http import protocol
from buildframe.http.protocol import Page
from buildframe.http.response import Response
from tests.conftest import says
from tests.in_memory_service import T0, row
from tests.listing import DATE, TOKEN, Listing, build, evenly

Handle = Callable[[Any], None]


def rows(first: int, last: int) -> bytes:
    return json.dumps([{"id": f"p{n}", "slug": f"web-{n}"} for n in range(first, last + 1)]).encode()


def without_link(number: int, query: dict[str, str]) -> bool:
    return True


class Stripped(Listing):
    """A listing behind a proxy that drops `Link` from the responses that `drops` chooses."""

    drops: Callable[[int, dict[str, str]], bool] = staticmethod(without_link)

    def page_of(self, query: dict[str, str]) -> Handle:
        respond, number = super().page_of(query), len(self.requests)
        if not self.drops(number, query):
            return respond

        def stripped(handler: Any) -> None:
            send = handler.send_header
            handler.send_header = lambda name, value: None if name == "Link" else send(name, value)
            respond(handler)

        return stripped


@contextmanager
def stripped(builds: list[dict[str, Any]], drops: Callable[..., bool] = without_link) -> Iterator[Stripped]:
    service = Stripped(builds)
    service.drops = drops
    try:
        yield service
    finally:
        service.stop()


@pytest.mark.parametrize("workers", [1, 4])
def test_builds_without_link_headers_are_all_read(workers: int) -> None:
    for name, drops in {"all": without_link, "1st": lambda n, q: n == 1, "even": lambda n, q: n % 2 == 0}.items():
        with stripped(evenly(500), drops) as service:
            frame = service.connected().builds(workers=workers)
        assert sorted(frame["number"]) == list(range(1, 501)), name
        assert frame.attrs["complete"]
        assert service.pages <= 15


def test_builds_that_fill_one_page_exactly_take_one_request_more() -> None:
    with stripped(evenly(100)) as service:
        frame = service.connected().builds(workers=1)
    assert len(frame) == 100
    assert frame.attrs["complete"]
    assert service.pages == 2


def test_builds_of_one_timestamp_without_link_headers_are_all_read() -> None:
    with stripped([build(900, 900), *(build(n, 60) for n in range(250, 0, -1)), build(0, 0)]) as service:
        frame = service.connected().builds()
    assert sorted(frame["number"]) == [*range(251), 900]
    assert frame.attrs["complete"]


class FirstCalledLast(Listing):
    """A listing behind a proxy that writes page 1 into each `rel="last"`; `next` stays."""

    def page_of(self, query: dict[str, str]) -> Handle:
        respond = super().page_of(query)

        def changed(handler: Any) -> None:
            send = handler.send_header
            handler.send_header = lambda name, value: send(name, _FIRST_IS_LAST.sub(r"\g<1>1", value))
            respond(handler)

        return changed


_FIRST_IS_LAST = re.compile(r'([?&]page=)\d+(?=[^>]*>; rel="last")')


def test_a_wrong_last_link_does_not_end_a_listing_by_page_numbers() -> None:
    for most in (2, 3):
        service = FirstCalledLast([build(number, 5) for number in range(most * 100, 50, -1)])
        try:
            frame = service.connected().builds(state="passed")
        finally:
            service.stop()
        assert sorted(frame["number"]) == [*range(51, most * 100 + 1)]
        assert frame.attrs["complete"]


def test_other_lists_request_the_page_after_a_full_one(scripted: Any) -> None:
    for second in (b"[]", rows(101, 130)):
        server = scripted(says(rows(1, 100), Link=None), says(second, Link=None))
        frame = bf.connect("acme", base_url=server.url, token=TOKEN).pipelines()
        assert len(frame) == 100 + second.count(b"id")
        assert frame.attrs["complete"]
        assert [dict(parse_qsl(urlsplit(path).query)) for path in server.requests] == [
            {"per_page": "100"},
            {"per_page": "100", "page": "2"},
        ]


def test_other_lists_keep_their_filters_when_links_are_missing(scripted: Any) -> None:
    server = scripted(says(rows(1, 100), Link=None), says(b"[]"))
    bf.connect("acme", base_url=server.url, token=TOKEN).flaky_tests("suite", branch="main")
    assert all("branch=main" in path for path in server.requests)


def test_a_proxy_that_drops_link_and_page_makes_other_lists_an_error(scripted: Any) -> None:
    server = scripted(says(rows(1, 100), Link=None))
    ws = bf.connect("acme", base_url=server.url, token=TOKEN)
    with pytest.raises(bf.Incomplete, match=r"Page 2.*ignores `page`") as caught:
        ws.pipelines()
    assert "100 rows in 2 " in caught.value.__notes__[0]
    assert len(server.requests) == 2


def test_a_page_with_each_row_twice_does_not_make_other_full_pages_look_short(scripted: Any) -> None:
    doubled = json.dumps(2 * json.loads(rows(1, 100))).encode()
    following = '</v2/organizations/acme/pipelines?page=2>; rel="next"'
    server = scripted(says(doubled, Link=following), says(rows(101, 200), Link=None), says(rows(201, 207), Link=None))
    assert len(bf.connect("acme", base_url=server.url, token=TOKEN).pipelines()) == 207


_PREVIOUS = '</v2/organizations/acme/pipelines?page=1>; rel="prev"'


def test_a_full_page_that_lacks_only_its_next_link_does_not_end_a_list(scripted: Any) -> None:
    for last, end in [("", b"[]"), ("", rows(201, 207)), ("3", rows(201, 207)), ("2", b"[]")]:
        names = {"next": "2"} | ({"last": last} if last else {})
        links = ", ".join(f'</v2/organizations/acme/pipelines?page={n}>; rel="{rel}"' for rel, n in names.items())
        server = scripted(
            says(rows(1, 100), Link=links), says(rows(101, 200), Link=_PREVIOUS), says(end, Link=_PREVIOUS)
        )
        frame = bf.connect("acme", base_url=server.url, token=TOKEN).pipelines()
        assert len(frame) == (207 if end == rows(201, 207) else 200), (last, end)
        assert frame.attrs["complete"]
        assert len(server.requests) == 3


def test_a_page_that_is_not_full_is_the_last(scripted: Any) -> None:
    server = scripted(says(rows(1, 99), Link=""))
    assert len(bf.connect("acme", base_url=server.url, token=TOKEN).pipelines()) == 99
    assert len(server.requests) == 1


def test_pages_without_link_headers_are_read_until_a_shorter_one(scripted: Any) -> None:
    for size in (7, 25, 100):
        pages = [rows(1, size), rows(size + 1, 2 * size), rows(2 * size + 1, 3 * size - 1)]
        server = scripted(*(says(page, Link=None) for page in pages))
        assert len(bf.connect("acme", base_url=server.url, token=TOKEN).pipelines()) == 3 * size - 1
        assert len(server.requests) == 3


def test_a_full_page_with_wrong_links_does_not_end_a_list(scripted: Any) -> None:
    for wrong in ("", '</v2/organizations/acme/pipelines?page=1>; rel="last"'):
        server = scripted(*(says(rows(*part), Link=wrong) for part in ((1, 100), (101, 200), (201, 207))))
        assert len(bf.connect("acme", base_url=server.url, token=TOKEN).pipelines()) == 207
        assert len(server.requests) == 3


def test_a_full_page_of_known_rows_in_the_middle_of_a_list_is_an_error(scripted: Any) -> None:
    following = '</v2/organizations/acme/pipelines?page=2>; rel="next"'
    server = scripted(says(rows(1, 100), Link=following), says(rows(1, 100), Link=_PREVIOUS), says(b"[]"))
    with pytest.raises(bf.Incomplete, match=r"Page 2.*not the last"):
        bf.connect("acme", base_url=server.url, token=TOKEN).pipelines()


def test_links_and_the_number_of_rows_determine_the_last_page() -> None:
    pages: list[tuple[str | None, int, bool]] = [
        (None, 100, False),
        (None, 30, False),
        (None, 7, False),
        (None, 0, True),
        ("", 100, False),
        (" ", 100, False),
        ("", 30, True),
        ('<https://x/?page=1>; rel="prev", <https://x/?page=1>; rel="first"', 100, False),
        ('<https://x/?page=1>; rel="prev", <https://x/?page=1>; rel="first"', 30, True),
        ('<https://x/?page=3>; rel="last"', 100, False),
        ('<https://x/?page=1>; rel="last"', 100, False),
        ('<https://x/?page=0>; rel="last"', 100, False),
        ("</style.css>; rel=preload; as=style", 100, False),
        ("</style.css>; rel=preload; as=style", 7, False),
        (f'<https://x/?page={"9" * 5000}>; rel="last"', 100, False),
    ]
    request = protocol.page_request(spec.list_pipelines, "acme", per_page=100)

    def is_last(link: str | None, count: int) -> bool:
        headers = {"date": DATE} | ({} if link is None else {"link": link})
        last = link.split(">")[0][1:] if link and "last" in link else None
        response = Response(200, headers, rows(1, count), last=last)
        return protocol.read_page(request, response, msgspec.json.Decoder(list[spec.Pipeline])).is_last

    assert [(link, count, is_last(link, count)) for link, count, _ in pages] == pages


# --- pagination in memory ---------------------------------------------------------------------------------------------


def pages_by_links(pagination: LinkPagination, first: Page, others: dict[str, Page]) -> list[Page]:
    pages = []
    while pagination.next is not None:
        link, _ = pagination.next
        pages.append(pagination.take(first if link is None else others[link]))
    return pages


def test_links_in_a_circle_raise_an_error() -> None:
    page, pagination = Page([row("a", 0)], "again", T0), LinkPagination()
    with pytest.raises(Incomplete, match="circle"):
        pages_by_links(pagination, page, {"again": page})
    assert "had read 1 rows in 2 responses" in pagination.progress()


def test_pagination_by_links_drops_repeated_rows() -> None:
    others = {"2": Page([row("b", 0), row("c", 0)], None, T0)}
    pagination = LinkPagination()
    pages = pages_by_links(pagination, Page([row("a", 0), row("b", 0)], "2", T0), others)
    assert [row.id for page in pages for row in page.rows] == ["a", "b", "c"]
    assert (pagination.rows, pagination.requests) == (3, 2)


def test_the_share_of_a_pagination_by_links_is_that_of_its_pages() -> None:
    pagination = LinkPagination()
    pagination.take(Page([row("a", 0), row("b", 0)], "2", T0, of=2))
    assert pagination.share == 0.5
    pagination.take(Page([row("c", 0)], None, T0, of=2))
    assert pagination.share == 1.0
