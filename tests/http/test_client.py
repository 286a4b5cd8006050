"""The client against servers that misbehave, over real HTTP on loopback."""

from __future__ import annotations

import itertools
import logging
import signal
import socket
import threading
import time
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import tenacity

import buildframe as bf
from buildframe.http import retry
from buildframe.http.client import Client
from buildframe.http.retry import MAX_ATTEMPTS
from buildframe.http.token import Token
from buildframe.workspace import Workspace
from tests.conftest import Scripted, hang_up, says
from tests.leaks import shown_of
from tests.refusals import wrong_refusals

Start = Callable[..., Scripted]
TOKEN = "bkua_0123456789secret"
HOSTED = "https://api.example.com"
BUILD = b'[{"id":"b1","number":1,"state":"passed","created_at":"2026-10-30T10:00:00Z"}]'


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


def connected(server: Scripted) -> Workspace:
    return bf.connect("acme", base_url=server.url, token=TOKEN)


def shown_by(ws: Workspace) -> str:
    """Return all text that a workspace and its client show, also in a traceback with variables."""
    return f"{ws!r} {vars(ws)} {vars(ws._client)}"


def test_a_temporary_fault_does_not_change_the_result(scripted: Start) -> None:
    faults = {
        "429": says(b'{"message":"slow down","scope":"rest","reset":0}', 429),
        "500": says(b"oops", 500),
        "502": says(b"", 502),
        "503": says(b"", 503, Retry_After="0"),
        "reset": hang_up,
        "cut body": says(BUILD, cut=9),
        "broken JSON": says(b'[{"id":'),
        "no Date": says(BUILD, date=None),
    }
    results = {}
    for name, fault in faults.items():
        server = scripted(fault, fault, says(BUILD))
        results[name] = list(connected(server).builds()["id"]), len(server.requests)
    assert results == dict.fromkeys(faults, (["b1"], 3))


def test_a_permanent_fault_is_raised_after_a_limited_number_of_attempts(scripted: Start) -> None:
    server = scripted(hang_up)
    for fault, kind, words, attempts in [
        (says(b'{"message":"no","reset":0}', 429), bf.RateLimited, "429: no.*send fewer requests", MAX_ATTEMPTS),
        (says(b"<html>bad gateway</html>", 502), bf.Unavailable, "502: <html>bad gateway.*later", MAX_ATTEMPTS),
        (hang_up, bf.Unreachable, "http://127.0.0.1.*BUILDFRAME_URL", MAX_ATTEMPTS),
        (says(BUILD, cut=9), bf.Unreachable, "No response", MAX_ATTEMPTS),
        (says(b"<html>hello</html>"), bf.Malformed, "18 bytes of no content type", MAX_ATTEMPTS),
        (says(b'[{"number":1}]'), bf.Malformed, "without its `id`", 1),
        (says(b'[["x"]]'), bf.Malformed, "row 1 of 1 is a list", 1),
    ]:
        server.responses = [fault]
        server.requests.clear()
        with pytest.raises(kind, match=f"(?s){words}"):
            connected(server).builds()
        assert len(server.requests) == attempts, words


def test_requests_that_cannot_succeed_are_not_retried(scripted: Start) -> None:
    server = scripted(hang_up)
    for number, status in enumerate([301, 400, 401, 403, 404, 422], 1):
        server.responses = [says(b'{"message":"no"}', status, Location="http://127.0.0.1:1/elsewhere")]
        with pytest.raises(bf.ServiceError):
            connected(server).builds()
        assert len(server.requests) == number, status


def test_the_client_waits_as_long_as_the_server_says(scripted: Start) -> None:
    limited = says(b'{"message":"x","reset":0.4}', 429, RateLimit_Remaining="0", RateLimit_Reset="0.4")
    server = scripted(limited, says(BUILD))
    start = time.monotonic()
    assert len(connected(server).builds()) == 1
    assert time.monotonic() - start >= 0.4


def test_a_wait_that_is_too_long_raises_an_error(scripted: Start) -> None:
    server = scripted(says(b'{"message":"x"}', 429, Retry_After="3600"))
    with pytest.raises(bf.RateLimited, match="Wait 3600 s") as caught:
        connected(server).builds()
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


def test_a_used_up_limit_delays_the_next_request(scripted: Start) -> None:
    server = scripted(says(BUILD, RateLimit_User_Remaining="0", RateLimit_User_Reset="0.4"), says(BUILD))
    ws = connected(server)
    start = time.monotonic()
    ws.builds()
    ws.builds()
    assert time.monotonic() - start >= 0.35


def test_the_token_is_not_sent_to_links_of_another_origin(scripted: Start) -> None:
    server = scripted(hang_up)

    def follow(link: str) -> object:
        server.responses = [says(b'[{"id":"p"}]', Link=f'<{link}>; rel="next"')]
        return connected(server).pipelines()

    links = [
        ("http://127.0.0.1:1/v2/x", "not below"),
        ("https://evil.example.com/", "not below"),
        ("//evil.example.com/v2", "not below"),
        ("http://127.0.0.1:notaport/", "not a URL"),
        ("http://[::1/", "not a URL"),
    ]
    assert wrong_refusals(links, follow, bf.Malformed) == {}
    assert len(server.requests) == len(links)


def test_links_of_the_same_origin_are_followed_as_given(scripted: Start) -> None:
    pages = [b'[{"id":"a"},{"id":"b"}]', b'[{"id":"b"},{"id":"c"}]', b'[{"id":"d"}]']
    server = scripted(
        says(pages[0], Link='</v2/organizations/acme/pipelines?page=2&x=%26>; rel="next"'),
        says(pages[1], Link='<?page=3>; rel="next", <?page=3>; rel="last"'),
        says(pages[2], Link=""),
    )
    assert list(connected(server).pipelines()["id"]) == ["a", "b", "c", "d"]
    assert server.requests[1:] == [
        "/v2/organizations/acme/pipelines?page=2&x=%26",
        "/v2/organizations/acme/pipelines?page=3",
    ]


def test_limits_that_are_not_numbers_are_ignored(scripted: Start) -> None:
    server = scripted(says(BUILD, RateLimit_Remaining="inf", RateLimit_Reset="nan"))
    assert len(connected(server).builds()) == 1


def test_a_closed_workspace_raises_an_error(scripted: Start) -> None:
    with connected(scripted(says(BUILD))) as ws:
        ws.builds()
    with pytest.raises(bf.BadInput, match="Connect again") as caught:
        ws.builds()
    assert TOKEN not in shown_of(caught.value)


def test_a_proxy_that_cannot_be_used_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "foo://proxy.example.com")
    with pytest.raises(bf.BadInput, match="HTTPS_PROXY"):
        bf.connect("acme", base_url="https://api.example.com", token=TOKEN)


def test_an_unknown_host_is_reported() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(bf.Unreachable, match=f"from http://127.0.0.1:{port}"):
        bf.connect("acme", base_url=f"http://127.0.0.1:{port}", token=TOKEN).builds()


URLS = [
    ("http://api.example.com", "unencrypted"),
    ("ftp://api.example.com", "not a web address"),
    ("api.example.com", "not a web address"),
    ("user:pa55word@api.example.com", "not a web address"),
    ("ftp://pa55word@api.example.com", "not a web address"),
    ("https://ada:pa55word@api.example.com", "a user, password"),
    ("https://api.example.com?x=1", "query"),
    ("https://api.example.com:port", "cannot be parsed"),
    ("https://api..example.com", "cannot be used"),
    (f"https://{'a' * 64}.example.com", "cannot be used"),
    ("https://api\0.example.com", "a control character"),
    ("https://ci.exa\nmple.com", "a control character"),
    ("https://ci.example.com/a\x1bb", "a control character"),
    ("https\u202e://ci.example.com", "a control character"),
    (" https://api.example.com", "' https://api.example.com' contains a space"),
    ("https://api.example.com ", "contains a space"),
    ("https://api example.com", "contains a space"),
    ("https://api.example.com/a b", "contains a space"),
    ("https://ada:pa55word @api.example.com", "^The URL contains a space"),
    ("https://api.example.com/a%0d%0ab", "a control character"),
    ("https://api.example.com/%7F", "a control character"),
    ("https://api.example.com/%C2%85", "a control character"),
    (5, "Pass text"),
]


@pytest.mark.parametrize("option", ["base_url", "graphql_url"])
def test_urls_that_would_leak_the_token_are_refused(option: str) -> None:
    def connect(url: object) -> object:
        try:
            return bf.connect("acme", token=TOKEN, **{option: url})  # type: ignore[arg-type]
        except bf.BadInput as refused:
            messages.append(str(refused))
            raise

    messages: list[str] = []
    assert wrong_refusals(URLS, connect) == {}
    assert [text for text in messages if "pa55word" in text or {"\0", "\x1b", "\u202e"} & set(text)] == []


def base_url_of(url: str) -> str:
    return bf.connect("acme", base_url=url, token=TOKEN).base_url


def test_addresses_are_read_with_and_without_version() -> None:
    assert base_url_of("https://api.example.com/v2/") == "https://api.example.com"
    assert base_url_of("https://api.example.com:443/") == "https://api.example.com"
    assert base_url_of("http://localhost:80/ci") == "http://localhost/ci"
    assert base_url_of("http://[::1]:8080") == "http://[::1]:8080"


def test_an_invalid_token_is_refused_before_anything_is_sent() -> None:
    tokens = [(token, "token") for token in (None, "", "two words", "line\nbreak", "tökén", 5)]
    assert wrong_refusals(tokens, lambda token: bf.connect("acme", base_url=HOSTED, token=token)) == {}


@pytest.mark.long
def test_the_token_shows_nowhere(
    scripted: Start,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 2)
    caplog.set_level(logging.DEBUG)
    server = scripted(says(BUILD))
    frame = connected(server).builds(raw=True)
    shown = {"success": f"{frame.attrs} {frame.to_csv()}"}
    for name, fault in {
        "reset": hang_up,
        "cut body": says(BUILD, cut=9),
        "HTML": says(b"<html>"),
        "echo in 401": says(b'{"message":"no such token: ' + TOKEN.encode() + b'"}', 401),
        "echo in 500": says(b"Authorization: Bearer " + TOKEN.encode(), 500),
        "echo": says(b"Bearer " + TOKEN.encode() + b" is not ok"),
    }.items():
        server.responses = [fault]
        ws = connected(server)
        with pytest.raises(bf.BuildframeError) as caught:
            ws.builds(progress=True)
        shown[name] = f"{shown_by(ws)} {shown_of(caught.value)} {vars(caught.value)}"
    shown["output"] = f"{caplog.text} {capfd.readouterr()}"
    assert [name for name, text in shown.items() if TOKEN in text] == []
    assert "Bearer" not in caplog.text


SENT: dict[str, Callable[[Workspace], Any]] = {
    "create_build": lambda ws: ws.pipeline("web").create_build(commit="HEAD", branch="main", message="m"),
    "cancel": lambda ws: ws.pipeline("web").cancel(7),
    "query": lambda ws: ws.graphql("{ a }"),
    "mutation": lambda ws: ws.graphql("mutation { a }"),
    "log": lambda ws: ws.log(ws.base_url + "/v2/log"),
}
ECHOES: dict[str, Callable[..., None]] = {
    "reset": hang_up,
    "cut body": says(b'{"id":1}', cut=3),
    "500": says(b"Bearer " + TOKEN.encode(), 500),
    "401": says(b'{"message":"no such token: ' + TOKEN.encode() + b'"}', 401),
    "echo": says(b'"%s"' % TOKEN.encode(), Content_Type="application/json"),
    "echoed type": says(b"", 201, Content_Type=TOKEN),
    "redirect": says(b"", 302, Location=f"ftp://elsewhere.example.com/?token={TOKEN}"),
}


def test_the_token_shows_nowhere_after_actions_either(scripted: Start) -> None:
    server, leaks = scripted(hang_up), []
    for (action, send), (fault, response) in itertools.product(SENT.items(), ECHOES.items()):
        server.responses = [response]
        ws = connected(server)
        with pytest.raises(bf.BuildframeError) as caught:
            send(ws)
        shown = f"{shown_by(ws)} {shown_of(caught.value)} {vars(caught.value)}"
        leaks += [(action, fault)] if TOKEN in shown else []
    assert leaks == []


def test_a_token_that_comes_back_as_data_is_in_no_error(scripted: Start) -> None:
    server = scripted(hang_up)
    for answer in (says(b'[{"id":"b"}]', date=TOKEN), says(b"<html>", Content_Type=TOKEN)):
        server.responses = [answer]
        with pytest.raises(bf.Malformed) as caught:
            connected(server).builds()
        assert TOKEN not in str(caught.value)


LONG = "x" * (1_000 - len(TOKEN) // 2)  # a message is cut within a token after it


def test_no_part_of_the_token_is_in_an_error_and_no_long_text(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "MAX_ATTEMPTS", 2)
    server, lengths = scripted(hang_up), {}
    for name, answer in {
        "202": says(b'{"message":"no %s"}' % TOKEN.encode(), 202),
        "cut encoding": says(b"{}", Content_Encoding=LONG[:-1] + TOKEN),
        "cut type": says(b"{", Content_Type=LONG + TOKEN),
        "cut time": says(b'{"number":7,"created_at":"%s%s"}' % (LONG[30:].encode(), TOKEN.encode())),
        "status line": lambda handler: handler.wfile.write(b"X" * 5_000 + TOKEN.encode() + b"\r\n\r\n"),
        "redirect": says(b"[]", 302, Location=f"https://{TOKEN}@a.example.com/" + "x" * 5_000),
    }.items():
        server.responses = [answer]
        with pytest.raises(bf.BuildframeError) as caught:
            connected(server).pipeline("web").build(7)
        assert TOKEN[: len(TOKEN) // 2 - 2] not in shown_of(caught.value), name
        lengths[name] = len(str(caught.value))
    assert {name: length for name, length in lengths.items() if length >= 1_500} == {}


def test_errors_quote_at_most_the_start_of_a_long_url(scripted: Start) -> None:
    target = "/v2/organizations/acme/pipelines?page=2&x=" + "y" * 50_000
    server = scripted(says(b'[{"id":"a"}]', Link=f'<{target}>; rel="next"'), says(b"no", 422))
    with pytest.raises(bf.Invalid, match="50,042 characters") as caught:
        connected(server).pipelines(progress=False)
    assert len(str(caught.value)) < 1_500
    server = scripted(says(b"", 302, Location="ftp://h/" + "y" * 50_000))
    with pytest.raises(bf.Malformed, match=r"not followed.*y… .cut") as refused:
        connected(server).log(f"{server.url}/v2/log")
    assert len(str(refused.value)) < 1_500


def test_a_client_whose_url_is_refused_can_be_printed() -> None:
    with pytest.raises(bf.BadInput) as refused:
        Client("http://example.com", Token(TOKEN))
    shown = "".join(traceback.TracebackException.from_exception(refused.value, capture_locals=True).format())
    assert "<Client of unknown>" in shown
    assert TOKEN not in shown


def test_a_token_that_comes_back_in_a_header_is_not_shown(scripted: Start) -> None:
    away = f"https://elsewhere.example.com/?token={TOKEN}"
    server = scripted(hang_up)
    for echo in (says(b"", 302, Location=away), says(b'[{"id":"a"}]', Link=f'<{away}>; rel="next"')):
        server.responses = [echo]
        with pytest.raises(
            bf.BuildframeError, match=r"<token>|%3Ctoken%3E|'https://elsewhere\.example\.com/'"
        ) as caught:
            connected(server).pipelines()
        assert TOKEN not in shown_of(caught.value)


def test_data_that_looks_like_the_token_is_left_alone(scripted: Start) -> None:
    server = scripted(hang_up)
    for token in ("passed-x", "Sunday-2"):
        server.requests.clear()
        server.responses = [says(b'[{"id":"a","name":"passed-x"}]', Link='<?passed=2>; rel="next"'),
                            says(b'[{"id":"b","name":"Sunday-2"}]')]  # fmt: skip
        pipelines = bf.connect("acme", base_url=server.url, token=token).pipelines()
        assert list(pipelines["name"]) == ["passed-x", "Sunday-2"]
        assert server.requests[1].endswith("?passed=2")


def test_half_of_a_surrogate_pair_is_accepted_in_extra_columns(scripted: Start) -> None:
    server = scripted(says(b'[{"id":"b","created_at":"2026-10-30T10:00:00Z","meta_data":{"team":"x\\ud83d"}}]'))
    assert connected(server).builds(extra={"team": "meta_data.team"})["team"][0] == "x\ufffd"


def test_the_token_is_sent_in_the_header_only(scripted: Start) -> None:
    server = scripted(says(BUILD))
    connected(server).builds()
    assert server.headers[0]["Authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in server.requests[0]


def test_the_traceback_of_an_interrupt_contains_no_frame_with_the_token(scripted: Start) -> None:
    for interruption, send in [
        (KeyboardInterrupt, lambda ws: ws.builds()),
        (ZeroDivisionError, lambda ws: ws.builds()),
        (KeyboardInterrupt, SENT["create_build"]),
        (KeyboardInterrupt, SENT["query"]),
    ]:
        sent, over = threading.Event(), threading.Event()

        def interrupt(*_: object, kind: type[BaseException] = interruption) -> None:
            raise kind

        def hang(_: object, sent: threading.Event = sent, over: threading.Event = over) -> None:
            sent.set()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)
            over.wait(10)

        ws = connected(scripted(hang))
        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            with pytest.raises(interruption) as caught:
                send(ws)
        finally:
            signal.signal(signal.SIGALRM, before)
            over.set()
        assert sent.is_set()
        assert TOKEN not in shown_of(caught.value)


def test_requests_to_this_machine_do_not_use_a_proxy_of_the_environment(
    scripted: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    assert len(connected(scripted(says(BUILD))).builds()) == 1


def test_missing_arguments_come_from_the_environment(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = scripted(says(BUILD))
    monkeypatch.setenv("BUILDFRAME_URL", server.url + "/v2")
    monkeypatch.setenv("BUILDFRAME_TOKEN", TOKEN)
    bf.connect().builds()
    monkeypatch.setenv("BUILDFRAME_ORG", "globex")
    bf.connect().builds()
    bf.connect("acme").builds()
    paths = [path.split("?")[0] for path in server.requests]
    assert paths == ["/v2/builds", "/v2/organizations/globex/builds", "/v2/organizations/acme/builds"]


def test_the_hosted_service_is_the_default() -> None:
    assert repr(bf.connect("acme", token=TOKEN)) == "<Workspace acme at https://api.buildkite.com>"


def test_a_missing_token_says_where_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUILDFRAME_TOKEN", raising=False)
    with pytest.raises(bf.BadInput, match=r"BUILDFRAME_TOKEN.*user settings"):
        bf.connect("acme")


def test_https_to_a_server_without_tls_is_reported(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildframe.http.retry.MAX_CONNECTS", 1)
    server = scripted(says(BUILD))
    ws = bf.connect("acme", base_url=server.url.replace("http:", "https:"), token=TOKEN)
    with pytest.raises(bf.Unreachable, match="use TLS at this port"):
        ws.builds()
