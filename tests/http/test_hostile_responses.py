"""Hostile responses such as decompression bombs, deep nesting and escape sequences raise errors of the library."""

from __future__ import annotations

import contextlib
import functools
import gzip
import itertools
import json
import pickle
import time
import tracemalloc
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import tenacity

import buildframe as bf
from buildframe import cli, webhooks
from buildframe.fetching import link_pagination
from buildframe.http import response, retry
from buildframe.http.response import read_body
from buildframe.terminal import escape_control_characters
from buildframe.workspace import Workspace
from buildframe.workspace.jobs import Log
from tests.conftest import Scripted, says
from tests.refusals import name_of, wrong_refusals

Start = Callable[..., Scripted]
ROW = b'{"id":"b1","number":1,"created_at":"2026-10-30T10:00:00Z"%s}'
DEEP = b"[" * 200_000
ESCAPES = "\x1b]52;c;cm0gLXJm\x07 \x1b[2J \x9b31m \r \x08 \u202e \x1b]8;;https://evil.example.com\x1b\\"
HARMFUL = "\x1b\x07\x9b\r\x08\u202e"


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


def connected(server: Scripted) -> Workspace:
    return bf.connect("acme", base_url=server.url, token="bkua_0123456789secret")


@functools.cache
def bomb(size: int) -> bytes:
    """So many spaces, as gzip."""
    packer = zlib.compressobj(9, wbits=31)
    return b"".join([*(packer.compress(b" " * 2**20) for _ in range(size // 2**20)), packer.flush()])


def in_pieces(body: bytes, size: int = 1000) -> Iterator[bytes]:
    return (body[at : at + size] for at in range(0, len(body), size))


def test_a_decompression_bomb_is_refused_while_it_is_received(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list of so many bytes is requested in pages of 100, 50, 25, 12, 6, 3 rows and of 1, a log only once."""
    assert response.LARGEST == 268_435_456
    monkeypatch.setattr(response, "LARGEST", 8 * 2**20)
    server = scripted(says(bomb(64 * 2**20), Content_Encoding="gzip"))
    ws, numbers = connected(server), []
    for call in (ws.pipelines, lambda: ws.log(f"{ws.base_url}/v2/log")):
        with pytest.raises(bf.Malformed, match="8,388,608 bytes"):
            call()
        numbers.append(len(server.requests))
    assert numbers == [7, 8]


def test_no_more_than_the_limit_is_decompressed() -> None:
    packed, limit = bomb(64 * 2**20), 8 * 2**20
    tracemalloc.start()
    try:
        with pytest.raises(bf.Malformed, match="8,388,608"):
            read_body(in_pieces(packed), "gzip", limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 2 * limit


def test_a_body_without_encoding_has_the_same_limit() -> None:
    with pytest.raises(bf.Malformed, match="more than 100 bytes"):
        read_body(iter([b"x" * 60, b"x" * 60]), "", 100)
    assert read_body(iter([b"x" * 60, b"x" * 40]), "identity", 100) == b"x" * 100


def test_gzip_is_read_completely_in_chunks_of_any_size() -> None:
    text = json.dumps([{"id": str(i)} for i in range(20_000)]).encode()
    packed = gzip.compress(text[:999]) + gzip.compress(b"") + gzip.compress(text[999:])  # three members
    for size in (1, 7, 1000, 10**7):
        assert read_body(in_pieces(packed, size), "GZip") == text, size
    assert read_body(iter([]), "gzip") == b""


def test_other_and_nested_encodings_are_refused(scripted: Start) -> None:
    server = scripted(says(b"[]"))

    def read(encoding: str) -> object:
        server.responses = [says(gzip.compress(gzip.compress(b"[]")), Content_Encoding=encoding)]
        return connected(server).pipelines()

    encodings = ("gzip, gzip", "br", "deflate", "zstd", "gzip,identity")
    assert wrong_refusals([(encoding, "not accepted") for encoding in encodings], read, bf.Malformed) == {}
    assert {headers["Accept-Encoding"] for headers in server.headers} == {"gzip"}


PACKED = gzip.compress(b"[]", mtime=0)


def test_a_request_with_a_broken_gzip_response_is_sent_again(scripted: Start) -> None:
    for body in (b"no gzip", PACKED[:-9], PACKED + b"more"):
        server = scripted(says(body, Content_Encoding="gzip"), says(gzip.compress(b"[]"), Content_Encoding="gzip"))
        assert len(connected(server).pipelines()) == 0
        assert len(server.requests) == 2, body


def test_an_action_with_a_broken_response_has_an_unknown_outcome(scripted: Start) -> None:
    server = scripted(says(b"no gzip", 201, Content_Encoding="gzip"))
    with pytest.raises(bf.OutcomeUnknown, match="gzip"):
        connected(server).pipeline("web").create_build(commit="HEAD", branch="main")
    assert len(server.requests) == 1


def test_deeply_nested_json_is_malformed(scripted: Start) -> None:
    asks = {
        "pipelines": lambda ws: ws.pipelines(),
        "builds": lambda ws: ws.builds(progress=False),
        "raw": lambda ws: ws.builds(raw=True, progress=False),
        "record": lambda ws: ws.pipeline("web").get(),
        "graphql": lambda ws: ws.graphql("{ a }"),
        "log": lambda ws: ws.log(f"{ws.base_url}/v2/log"),
    }
    bodies = {
        "open": DEEP,
        "objects": b'{"a":' * 100_000,
        "a field": b"[" + ROW % (b',"meta_data":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000) + b"]",
        "content": b'{"content":' + DEEP + b"]" * 200_000 + b"}",
        "errors": b'{"errors":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    }
    server, wrong = scripted(says(b"[]")), {}
    for (ask, call), (name, body) in itertools.product(asks.items(), bodies.items()):
        server.responses = [says(body, Content_Type="application/json")]
        with contextlib.suppress(bf.Malformed, bf.GraphQLError):
            wrong[ask, name] = repr(call(connected(server)))[:100]
    assert wrong == {}


def test_a_body_that_is_not_one_build_is_malformed(scripted: Start) -> None:
    server = scripted(says(b""))
    web = connected(server).pipeline("web")
    for body in (b"", b" \n", b"{}", ROW % b"" + b"," + ROW % b""):
        server.responses = [says(body)]
        for read in (web.history_of, web.build):
            with pytest.raises(bf.Malformed, match="GET /v2/organizations/acme/pipelines/web/builds/7"):
                read(7)


def test_json_of_any_depth_is_read_or_malformed(scripted: Start) -> None:
    server = scripted(says(b"[]"))
    for depth in (100, 400, 900, 1500, 5000):
        field = b'{"a":' * depth + b"1" + b"}" * depth
        server.responses = [says(b"[" + ROW % (b',"meta_data":' + field) + b"]")]
        try:
            frame = connected(server).builds(raw=True, progress=False)
        except bf.Malformed:
            assert depth > 400
        else:
            assert frame["raw"][0].count("{") == depth + 1


def test_a_deeply_nested_error_body_still_raises_the_error_of_its_status(scripted: Start) -> None:
    server = scripted(says(b"[]"))
    for status, body in itertools.product(
        (401, 404, 422, 500), (DEEP, b'{"message":"no","errors":' + DEEP + b"]" * 200_000 + b"}")
    ):
        server.responses = [says(body, status)]
        with pytest.raises(bf.ServiceError) as refused:
            connected(server).pipelines()
        assert refused.value.status == status


def test_a_deeply_nested_delivery_is_read_or_malformed() -> None:
    for depth in (100, 400, 900, 1500, 100_000):
        field = b'{"a":' * depth + b"1" + b"}" * depth
        body = b'{"event":"build.finished","build":' + ROW % (b',"meta_data":' + field) + b"}"
        try:
            assert webhooks.parse(body).build is not None
        except bf.Malformed:
            assert depth > 400


def test_a_last_page_of_many_digits_does_not_crash(scripted: Start) -> None:
    for page in ("9" * 5_000, "٣" * 30):
        link = f'<http://127.0.0.1/v2/x?page={page}>; rel="last"'.encode().decode("latin-1")
        server = scripted(says(b"[" + ROW % b"" + b"]", Link=link), says(b"[]"))
        assert len(connected(server).builds(progress=False)) == 1


def test_a_long_link_header_takes_no_time(scripted: Start) -> None:
    server, began = scripted(says(b"[]")), time.process_time()
    for unit, length in itertools.product(("rel=", "rel= ", "<", ", <", ";", "rel"), (60_000, 90_000)):
        link = (unit * length)[: length - 1] + "x"
        server.responses = [says(b"[" + ROW % b"" + b"]", Link=link), says(b"[]")]
        workspace = connected(server)
        if length == 90_000:  # more than is parsed
            with pytest.raises(bf.Malformed, match=r"90,000 characters; at most 65,536"):
                workspace.pipelines(progress=False)
        else:
            assert len(workspace.pipelines(progress=False)) == 1, unit
    assert time.process_time() - began < 5.0  # a quadratic expression takes minutes


def test_a_list_whose_links_never_end_raises_an_error(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    assert link_pagination.MAX_PAGES == 5_000
    monkeypatch.setattr(link_pagination, "MAX_PAGES", 3)
    path = "/organizations/acme/pipelines"
    body = b'[{"id":"p%d","slug":"p%d"}]'

    def workspace() -> Workspace:
        return connected(
            scripted(*(says(body % (n, n), Link=f'</v2{path}?page={n}>; rel="next"') for n in range(2, 9)))
        )

    calls: dict[str, Callable[..., Any]] = {
        "pipelines": lambda limit: workspace().pipelines(max_requests=limit, progress=False),
        "get": lambda limit: workspace().get(path, max_requests=limit, progress=False),
        "table": lambda limit: workspace().table(path, max_requests=limit, progress=False),
    }
    for name, call in calls.items():
        with pytest.raises(bf.Incomplete, match=r"3 pages \(3 rows so far\).*max_requests="):
            call(None)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(call(5)) == 5
        assert name == "pipelines" or any("max_requests=5 is used up" in str(each.message) for each in caught), name


def test_a_reset_of_many_digits_does_not_crash(scripted: Start) -> None:
    server = scripted(says(b'{"reset":-%s}' % (b"9" * 400), 429), says(b"[]"))
    assert len(connected(server).pipelines()) == 0


def test_an_impossible_date_is_malformed(scripted: Start) -> None:
    for date in ("Sun, 01 Nov 2026 12:00:00 +99999999999999999999", "Sun, 01 Nov 99999 12:00:00 GMT"):
        with pytest.raises(bf.Malformed, match="Date"):
            connected(scripted(says(b"[]", date=date))).pipelines()


def test_errors_contain_no_control_characters_of_a_server(scripted: Start) -> None:
    server = scripted(says(b""))
    for body, status in [
        (json.dumps({"message": ESCAPES}).encode(), 422),
        (json.dumps({"message": "no", "errors": [{"field": ESCAPES, "code": ESCAPES}]}).encode(), 422),
        (ESCAPES.encode(), 500),
        (json.dumps({"errors": [{"message": ESCAPES}]}).encode(), 200),
    ]:
        server.responses = [says(body, status)]
        with pytest.raises(bf.BuildframeError) as caught:
            connected(server).graphql("{ a }")
        assert not set(HARMFUL) & set(str(caught.value)), body
        assert not set(HARMFUL) & set(repr(caught.value)), body
        assert "‹U+202E›" in str(caught.value), body
        assert "␛" in str(caught.value), body


def test_errors_quote_at_most_the_start_of_a_long_text(scripted: Start) -> None:
    server = scripted(says(b""))
    bodies: list[tuple[dict[str, Any], int, str]] = [
        ({"message": "m" * 900_000}, 422, "900,000"),
        ({"message": "no", "errors": [{"field": "a", "code": "c" * 900_000}]}, 422, "900,002"),
        ({"errors": [{"message": "m" * 450_000}, {"message": "m" * 450_000}]}, 200, "900,002"),
    ]
    for body, status, length in bodies:
        server.responses = [says(json.dumps(body).encode(), status)]
        with pytest.raises(bf.BuildframeError, match=f"… .cut: it has {length} characters") as caught:
            connected(server).graphql("{ a }")
        assert 1_000 < len(str(caught.value)) < 1_300


def test_the_command_prints_errors_without_control_characters(
    scripted: Start, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    server = scripted(says(json.dumps({"message": ESCAPES}).encode(), 401))
    for name, value in {"URL": server.url, "TOKEN": "bkua_0123456789secret", "ORG": "acme"}.items():
        monkeypatch.setenv(f"BUILDFRAME_{name}", value)
    assert cli.main(["sync", str(tmp_path / "ci")]) == 1
    said = capsys.readouterr()
    assert "401" in said.err
    assert not set(HARMFUL) & set(said.err + said.out)


def test_the_command_prints_warnings_without_control_characters(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    def warn(*_: object) -> None:
        warnings.warn(ESCAPES, stacklevel=1)
        raise bf.StoreFailed("full")

    monkeypatch.setattr(cli, "_sync_store", warn)
    monkeypatch.setenv("BUILDFRAME_TOKEN", "bkua_0123456789secret")
    assert cli.main(["sync", str(tmp_path / "ci")]) == 1
    said = capsys.readouterr().err
    assert "␛]52" in said
    assert not set(HARMFUL) & set(said)


def test_a_record_with_a_deeply_nested_field_can_be_shown(scripted: Start) -> None:
    for field in (b"[" * 500 + b"]" * 500, b'{"a":' * 500 + b"1" + b"}" * 500):
        body = b'{"id":"p1","slug":"web","name":"web","later":%s}' % field
        assert len(repr(connected(scripted(says(body))).pipeline("web").get())) < 500


def hostile_log(scripted: Start, start: str = "one") -> Log:
    ws = connected(scripted(says(f"{start}\n{ESCAPES}".encode(), Content_Type="text/plain; charset=utf-8")))
    return ws.log(f"{ws.base_url}/v2/log")


def test_a_log_is_shown_without_control_characters_and_keeps_its_raw_text(
    scripted: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    log = hostile_log(scripted)
    print(log, f"{log}", repr(log))
    assert not set(HARMFUL) & set(capsys.readouterr().out)
    assert log == escape_control_characters(f"one\n{ESCAPES}")
    assert log.raw == f"one\n{ESCAPES}"
    copied = pickle.loads(pickle.dumps(log))
    assert (copied, copied.raw) == (log, log.raw)
    assert json.loads(json.dumps(log)) == log


PARTS: list[Callable[[Log], str]] = [
    lambda log: log[4:],
    lambda log: log[4],
    lambda log: log.strip(),
    lambda log: "Log:\n" + log,
    lambda log: log + "",
    lambda log: log * 2,
    lambda log: f"{log:>500}",
    lambda log: "\n".join(log.splitlines()),
    lambda log: "\n".join([log]),
    lambda log: "".join(sign for sign in log),
    lambda log: log.partition("\n")[2],
    lambda log: log.split("\n")[1],
    lambda log: log.rsplit("\n", 1)[1],
    lambda log: log.replace("one", "two"),
    lambda log: log.removeprefix("one"),
    lambda log: log.expandtabs(),
    lambda log: log.upper(),
    lambda log: log.encode().decode(),
]


def test_each_part_of_a_log_is_shown_without_control_characters(
    scripted: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    log, wrong = hostile_log(scripted), {}
    for part in PARTS:
        print(part(log))
        printed = capsys.readouterr().out
        if not printed.strip() or set(HARMFUL) & set(printed):
            wrong[name_of(part)] = printed
    assert wrong == {}


def test_a_log_keeps_newlines_and_tabs(scripted: Start) -> None:
    log = hostile_log(scripted, "a\tb\r\n10 %\r20 %")
    assert log.splitlines()[:2] == ["a\tb", "10 %␍20 %"]
    assert log.raw.startswith("a\tb\r\n10 %\r20 %\n")


def test_harmless_keeps_what_is() -> None:
    assert escape_control_characters("two\nlines\tand 👩‍🚀") == "two\nlines\tand 👩‍🚀"
    assert escape_control_characters("a\x1b[31mb\x9b\r\n", keep="") == "a␛[31mb‹U+009B›␍␊"
