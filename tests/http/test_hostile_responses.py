"""Hostile responses such as decompression bombs, deep nesting and escape sequences raise errors of the library."""

from __future__ import annotations

import functools
import gzip
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("ask", "n_requests"),
    [
        (lambda ws: ws.pipelines(), 7),  # pages of 100, 50, 25, 12, 6, 3 rows and of 1 row: smaller ones may fit
        (lambda ws: ws.log(f"{ws.base_url}/v2/log"), 1),  # it would be as large again
    ],
    ids=["list", "log"],
)
def test_a_decompression_bomb_is_refused_while_it_is_received(
    scripted: Start, ask: Callable[[Workspace], object], n_requests: int
) -> None:
    packed = bomb(600 * 2**20)
    assert len(packed) < 2**20
    server = scripted(says(packed, Content_Encoding="gzip"))
    with pytest.raises(bf.Malformed, match=r"more than 268,435,456 bytes after decompression.*shorter time range"):
        ask(connected(server))
    assert len(server.requests) == n_requests


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


@pytest.mark.parametrize("size", [1, 7, 1000, 10**7])
def test_gzip_is_read_completely_in_chunks_of_any_size(size: int) -> None:
    text = json.dumps([{"id": str(i)} for i in range(20_000)]).encode()
    packed = gzip.compress(text[:999]) + gzip.compress(b"") + gzip.compress(text[999:])  # three members
    assert read_body(in_pieces(packed, size), "GZip") == text
    assert read_body(iter([]), "gzip") == b""


@pytest.mark.parametrize("encoding", ["gzip, gzip", "br", "deflate", "zstd", "gzip,identity"])
def test_other_and_nested_encodings_are_refused(scripted: Start, encoding: str) -> None:
    server = scripted(says(gzip.compress(gzip.compress(b"[]")), Content_Encoding=encoding))
    with pytest.raises(bf.Malformed, match="is not accepted"):
        connected(server).pipelines()
    assert server.headers[0]["Accept-Encoding"] == "gzip"


PACKED = gzip.compress(b"[]", mtime=0)


@pytest.mark.parametrize("body", [b"no gzip", PACKED[:-9], PACKED + b"more"], ids=["none", "cut off", "with more"])
def test_a_request_with_a_broken_gzip_response_is_sent_again(scripted: Start, body: bytes) -> None:
    server = scripted(says(body, Content_Encoding="gzip"), says(gzip.compress(b"[]"), Content_Encoding="gzip"))
    assert len(connected(server).pipelines()) == 0
    assert len(server.requests) == 2


def test_an_action_with_a_bomb_as_its_response_has_an_unknown_outcome(
    scripted: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = scripted(says(b"no gzip", 201, Content_Encoding="gzip"))
    with pytest.raises(bf.OutcomeUnknown, match="gzip cannot be decompressed"):
        connected(server).pipeline("web").create_build(commit="HEAD", branch="main")
    assert len(server.requests) == 1
    assert response.LARGEST == 268_435_456


@pytest.mark.parametrize(
    "ask",
    [
        lambda ws: ws.pipelines(),
        lambda ws: ws.builds(progress=False),
        lambda ws: ws.builds(raw=True, progress=False),
        lambda ws: ws.pipeline("web").get(),
        lambda ws: ws.graphql("{ a }"),
        lambda ws: ws.log(f"{ws.base_url}/v2/log"),
    ],
    ids=["pipelines", "builds", "raw", "record", "graphql", "log"],
)
@pytest.mark.parametrize(
    "body",
    [
        DEEP,
        b'{"a":' * 100_000,
        b"[" + ROW % (b',"meta_data":' + b'{"a":' * 50_000 + b"1" + b"}" * 50_000) + b"]",
        b'{"content":' + DEEP + b"]" * 200_000 + b"}",
        b'{"errors":' + b"[" * 50_000 + b"]" * 50_000 + b"}",
    ],
    ids=["open", "objects", "a field", "content", "errors"],
)
def test_deeply_nested_json_is_malformed(scripted: Start, ask: Callable[[Workspace], object], body: bytes) -> None:
    with pytest.raises((bf.Malformed, bf.GraphQLError)):
        ask(connected(scripted(says(body, Content_Type="application/json"))))


@pytest.mark.parametrize("body", [b"", b" \n", b"{}", ROW % b"" + b"," + ROW % b""])
def test_a_body_that_is_not_one_build_is_malformed(scripted: Start, body: bytes) -> None:
    web = connected(scripted(says(body))).pipeline("web")
    with pytest.raises(bf.Malformed, match="GET /v2/organizations/acme/pipelines/web/builds/7"):
        web.history_of(7)
    with pytest.raises(bf.Malformed):
        web.build(7)


@pytest.mark.parametrize("depth", [100, 400, 900, 1500, 5000])
def test_json_of_any_depth_is_read_or_malformed(scripted: Start, depth: int) -> None:
    field = b'{"a":' * depth + b"1" + b"}" * depth
    body = b"[" + ROW % (b',"meta_data":' + field) + b"]"
    try:
        frame = connected(scripted(says(body))).builds(raw=True, progress=False)
    except bf.Malformed:
        return
    assert frame["raw"][0].count("{") == depth + 1


@pytest.mark.parametrize("status", [401, 404, 422, 500])
def test_a_deeply_nested_error_body_still_raises_the_error_of_its_status(scripted: Start, status: int) -> None:
    for body in (DEEP, b'{"message":"no","errors":' + DEEP + b"]" * 200_000 + b"}"):
        with pytest.raises(bf.ServiceError) as refused:
            connected(scripted(says(body, status))).pipelines()
        assert refused.value.status == status


@pytest.mark.parametrize("depth", [100, 400, 900, 1500, 100_000])
def test_a_deeply_nested_delivery_is_read_or_malformed(depth: int) -> None:
    field = b'{"a":' * depth + b"1" + b"}" * depth
    body = b'{"event":"build.finished","build":' + ROW % (b',"meta_data":' + field) + b"}"
    try:
        event = webhooks.parse(body)
    except bf.Malformed:
        return
    assert event.build is not None


@pytest.mark.parametrize("page", ["9" * 5_000, "٣" * 30])
def test_a_last_page_of_many_digits_does_not_crash(scripted: Start, page: str) -> None:
    link = f'<http://127.0.0.1/v2/x?page={page}>; rel="last"'.encode().decode("latin-1")
    server = scripted(says(b"[" + ROW % b"" + b"]", Link=link), says(b"[]"))
    assert len(connected(server).builds(progress=False)) == 1


@pytest.mark.parametrize("unit", ["rel=", "rel= ", "<", ", <", ";", "rel"])
@pytest.mark.parametrize("length", [60_000, 90_000])
def test_a_long_link_header_takes_no_time(scripted: Start, unit: str, length: int) -> None:
    link = (unit * length)[: length - 1] + "x"
    workspace = connected(scripted(says(b"[" + ROW % b"" + b"]", Link=link), says(b"[]")))
    began = time.process_time()
    if length == 90_000:  # more than is parsed
        with pytest.raises(bf.Malformed, match=r"90,000 characters; at most 65,536"):
            workspace.pipelines(progress=False)
    else:
        assert len(workspace.pipelines(progress=False)) == 1
    assert time.process_time() - began < 2.0  # a quadratic expression takes minutes


@pytest.mark.parametrize("method", ["pipelines", "get", "table"])
def test_a_list_whose_links_never_end_raises_an_error(
    scripted: Start, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    assert link_pagination.MAX_PAGES == 5_000
    monkeypatch.setattr(link_pagination, "MAX_PAGES", 3)

    def calls(limit: int | None) -> Any:
        pages = [
            says(
                b'[{"id":"p%d","slug":"p%d"}]' % (n, n), Link=f'</v2/organizations/acme/pipelines?page={n}>; rel="next"'
            )
            for n in range(2, 9)
        ]
        workspace = connected(scripted(*pages))
        path = () if method == "pipelines" else ("/organizations/acme/pipelines",)
        return getattr(workspace, method)(*path, max_requests=limit, progress=False)

    with pytest.raises(bf.Incomplete, match=r"more than 3 pages \(3 rows so far\).*pass max_requests="):
        calls(None)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert len(calls(5)) == 5
    assert any("max_requests=5 is used up" in str(warning.message) for warning in caught) or method == "pipelines"


def test_a_reset_of_many_digits_does_not_crash(scripted: Start) -> None:
    server = scripted(says(b'{"reset":-%s}' % (b"9" * 400), 429), says(b"[]"))
    assert len(connected(server).pipelines()) == 0


@pytest.mark.parametrize("date", ["Sun, 01 Nov 2026 12:00:00 +99999999999999999999", "Sun, 01 Nov 99999 12:00:00 GMT"])
def test_an_impossible_date_is_malformed(scripted: Start, date: str) -> None:
    with pytest.raises(bf.Malformed, match="Date"):
        connected(scripted(says(b"[]", date=date))).pipelines()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (json.dumps({"message": ESCAPES}).encode(), 422),
        (json.dumps({"message": "no", "errors": [{"field": ESCAPES, "code": ESCAPES}]}).encode(), 422),
        (ESCAPES.encode(), 500),
        (json.dumps({"errors": [{"message": ESCAPES}]}).encode(), 200),
    ],
    ids=["message", "errors", "text", "graphql"],
)
def test_errors_contain_no_control_characters_of_a_server(scripted: Start, body: bytes, status: int) -> None:
    with pytest.raises(bf.BuildframeError) as caught:
        connected(scripted(says(body, status))).graphql("{ a }")
    assert not set(HARMFUL) & set(str(caught.value))
    assert not set(HARMFUL) & set(repr(caught.value))
    assert "‹U+202E›" in str(caught.value)
    assert "␛" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "status", "length"),
    [
        ({"message": "m" * 900_000}, 422, "900,000"),
        ({"message": "no", "errors": [{"field": "a", "code": "c" * 900_000}]}, 422, "900,002"),
        ({"errors": [{"message": "m" * 450_000}, {"message": "m" * 450_000}]}, 200, "900,002"),
    ],
    ids=["message", "errors", "graphql"],
)
def test_errors_quote_at_most_the_start_of_a_long_text(
    scripted: Start, body: dict[str, Any], status: int, length: str
) -> None:
    with pytest.raises(bf.BuildframeError, match=f"… .cut: it has {length} characters") as caught:
        connected(scripted(says(json.dumps(body).encode(), status))).graphql("{ a }")
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


@pytest.mark.parametrize("field", [b"[" * 500 + b"]" * 500, b'{"a":' * 500 + b"1" + b"}" * 500])
def test_a_record_with_a_deeply_nested_field_can_be_shown(scripted: Start, field: bytes) -> None:
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


@pytest.mark.parametrize(
    "part",
    [
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
    ],
)
def test_each_part_of_a_log_is_shown_without_control_characters(
    scripted: Start, capsys: pytest.CaptureFixture[str], part: Callable[[Log], str]
) -> None:
    print(part(hostile_log(scripted)))
    printed = capsys.readouterr().out
    assert printed.strip()
    assert not set(HARMFUL) & set(printed)


def test_a_log_keeps_newlines_and_tabs(scripted: Start) -> None:
    log = hostile_log(scripted, "a\tb\r\n10 %\r20 %")
    assert log.splitlines()[:2] == ["a\tb", "10 %␍20 %"]
    assert log.raw.startswith("a\tb\r\n10 %\r20 %\n")


def test_harmless_keeps_what_is() -> None:
    assert escape_control_characters("two\nlines\tand 👩‍🚀") == "two\nlines\tand 👩‍🚀"
    assert escape_control_characters("a\x1b[31mb\x9b\r\n", keep="") == "a␛[31mb‹U+009B›␍␊"
