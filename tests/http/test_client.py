"""The client against servers that misbehave, over real HTTP on loopback."""

from __future__ import annotations

import logging
import pickle
import signal
import socket
import time
import traceback
from collections.abc import Callable
from pathlib import Path
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

Start = Callable[..., Scripted]
TOKEN = "bkua_0123456789secret"
HERE = str(Path(__file__).parent)
BUILD = b'[{"id":"b1","number":1,"state":"passed","created_at":"2026-10-30T10:00:00Z"}]'


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


def connected(server: Scripted) -> Workspace:
    return bf.connect("acme", base_url=server.url, token=TOKEN)


@pytest.mark.parametrize(
    "fault",
    [
        says(b'{"message":"slow down","scope":"rest","reset":0}', 429),
        says(b"oops", 500),
        says(b"", 502),
        says(b"", 503, Retry_After="0"),
        hang_up,
        says(BUILD, cut=9),
        says(b'[{"id":'),
        says(BUILD, date=None),
    ],
    ids=["429", "500", "502", "503", "reset", "cut body", "broken JSON", "no Date"],
)
def test_a_temporary_fault_does_not_change_the_result(scripted: Start, fault: Callable[..., None]) -> None:
    server = scripted(fault, fault, says(BUILD))
    assert list(connected(server).builds()["id"]) == ["b1"]
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("fault", "kind", "says_so"),
    [
        (says(b'{"message":"no","reset":0}', 429), bf.RateLimited, "429: no.*try again, or send fewer requests"),
        (says(b"<html>bad gateway</html>", 502), bf.Unavailable, "502: <html>bad gateway.*later"),
        (hang_up, bf.Unreachable, "No response from http://127.0.0.1.*BUILDFRAME_URL"),
        (says(BUILD, cut=9), bf.Unreachable, "No response"),
        (says(b"<html>hello</html>"), bf.Malformed, "cannot be read.*18 bytes of no content type"),
        (says(b'[{"number":1}]'), bf.Malformed, "without its `id`"),
        (says(b'[["x"]]'), bf.Malformed, "cannot be read: row 1 of 1 is a list"),
    ],
)
def test_a_permanent_fault_is_raised_after_a_limited_number_of_attempts(
    scripted: Start, fault: Callable[..., None], kind: type[bf.BuildframeError], says_so: str
) -> None:
    server = scripted(fault)
    with pytest.raises(kind, match=f"(?s){says_so}"):
        connected(server).builds()
    is_json = "without its" in says_so or "row 1" in says_so
    assert len(server.requests) == (1 if is_json else MAX_ATTEMPTS)


@pytest.mark.parametrize("status", [301, 400, 401, 403, 404, 422])
def test_requests_that_cannot_succeed_are_not_retried(scripted: Start, status: int) -> None:
    server = scripted(says(b'{"message":"no"}', status, Location="http://127.0.0.1:1/elsewhere"))
    with pytest.raises(bf.ServiceError):
        connected(server).builds()
    assert len(server.requests) == 1


def test_the_client_waits_as_long_as_the_server_says(scripted: Start) -> None:
    limited = says(b'{"message":"x","reset":1}', 429, RateLimit_Remaining="0", RateLimit_Reset="1")
    server = scripted(limited, says(BUILD))
    start = time.monotonic()
    assert len(connected(server).builds()) == 1
    assert time.monotonic() - start >= 1.0


def test_a_wait_that_is_too_long_raises_an_error(scripted: Start) -> None:
    server = scripted(says(b'{"message":"x"}', 429, Retry_After="3600"))
    with pytest.raises(bf.RateLimited, match="Wait 3600 s") as caught:
        connected(server).builds()
    assert caught.value.retry_after == 3600
    assert len(server.requests) == 1


def test_a_used_up_limit_delays_the_next_request(scripted: Start) -> None:
    server = scripted(says(BUILD, RateLimit_User_Remaining="0", RateLimit_User_Reset="1"), says(BUILD))
    ws = connected(server)
    start = time.monotonic()
    ws.builds()
    ws.builds()
    assert time.monotonic() - start >= 0.9


@pytest.mark.parametrize("link", ["http://127.0.0.1:1/v2/x", "https://evil.example.com/", "//evil.example.com/v2"])
def test_the_token_is_not_sent_to_links_of_another_origin(scripted: Start, link: str) -> None:
    server = scripted(says(b'[{"id":"p"}]', Link=f'<{link}>; rel="next"'))
    with pytest.raises(bf.Malformed, match="not below"):
        connected(server).pipelines()
    assert len(server.requests) == 1


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


@pytest.mark.parametrize("link", ["http://127.0.0.1:notaport/", "http://[::1/"])
def test_a_link_that_is_not_a_url_is_malformed(scripted: Start, link: str) -> None:
    server = scripted(says(b'[{"id":"p"}]', Link=f'<{link}>; rel="next"'))
    with pytest.raises(bf.Malformed, match="is not a URL"):
        connected(server).pipelines()


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
    with pytest.raises(bf.Unreachable, match=f"No response from http://127.0.0.1:{port}"):
        bf.connect("acme", base_url=f"http://127.0.0.1:{port}", token=TOKEN).builds()


@pytest.mark.parametrize(
    ("url", "says_so"),
    [
        ("http://api.example.com", "unencrypted"),
        ("ftp://api.example.com", "not a web address"),
        ("api.example.com", "not a web address"),
        ("https://ada:pw@api.example.com", "not contain a user, password"),
        ("https://api.example.com?x=1", "query"),
        ("https://api.example.com:port", "cannot be parsed"),
        ("https://api..example.com", "cannot be used"),
        (f"https://{'a' * 64}.example.com", "cannot be used"),
        ("https://api\0.example.com", "contains a control character"),
        (" https://api.example.com", "' https://api.example.com' contains a space"),
        ("https://api.example.com ", "contains a space"),
        ("https://api example.com", "contains a space"),
        ("https://api.example.com/a b", "contains a space"),
        ("https://ada:pw @api.example.com", "^The URL contains a space"),
        ("https://api.example.com/a%0d%0ab", "contains a control character"),
        ("https://api.example.com/%7F", "contains a control character"),
        ("https://api.example.com/%C2%85", "contains a control character"),
        (5, "Pass text"),
    ],
)
def test_urls_that_would_leak_the_token_are_refused(url: str, says_so: str) -> None:
    with pytest.raises(bf.BadInput, match=says_so) as caught:
        bf.connect("acme", base_url=url, token=TOKEN)
    assert "pw" not in str(caught.value)
    with pytest.raises(bf.BadInput, match=says_so):
        bf.connect("acme", graphql_url=url, token=TOKEN)


def base_url_of(url: str) -> str:
    return bf.connect("acme", base_url=url, token=TOKEN).base_url


def test_addresses_are_read_with_and_without_version() -> None:
    assert base_url_of("https://api.example.com/v2/") == "https://api.example.com"
    assert base_url_of("https://api.example.com:443/") == "https://api.example.com"
    assert base_url_of("http://localhost:80/ci") == "http://localhost/ci"
    assert base_url_of("http://[::1]:8080") == "http://[::1]:8080"


@pytest.mark.parametrize("token", [None, "", "two words", "line\nbreak", "tökén", 5])
def test_an_invalid_token_is_refused_before_anything_is_sent(token: str | None) -> None:
    with pytest.raises(bf.BadInput, match="token"):
        bf.connect("acme", base_url="https://api.example.com", token=token)


@pytest.mark.long
@pytest.mark.parametrize(
    "fault",
    [
        hang_up,
        says(BUILD, cut=9),
        says(b"<html>"),
        says(b'{"message":"no such token: ' + TOKEN.encode() + b'"}', 401),
        says(b"Authorization: Bearer " + TOKEN.encode(), 500),
        says(b"Bearer " + TOKEN.encode() + b" is not ok"),
    ],
)
def test_the_token_shows_nowhere(
    scripted: Start, fault: Callable[..., None], caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    ws = connected(scripted(fault))
    with pytest.raises(bf.BuildframeError) as caught:
        ws.builds(progress=True)
    frame_of_success = connected(scripted(says(BUILD))).builds(raw=True)
    shown = [repr(ws), str(vars(ws)), str(vars(ws._client)), shown_of(caught.value), repr(vars(caught.value))]
    shown += [caplog.text, *capfd.readouterr(), str(frame_of_success.attrs), frame_of_success.to_csv()]
    assert TOKEN not in "\n".join(shown)
    assert "Bearer" not in caplog.text


@pytest.mark.parametrize(
    "send",
    [
        lambda ws: ws.pipeline("web").create_build(commit="HEAD", branch="main", message="m"),
        lambda ws: ws.pipeline("web").cancel(7),
        lambda ws: ws.create_pipeline(name="W", cluster_id=None, repository="r", configuration=""),
        lambda ws: ws.graphql("{ a }"),
        lambda ws: ws.graphql("mutation { a }"),
        lambda ws: ws.log(ws._client.base_url + "/v2/log"),
    ],
    ids=["create_build", "cancel", "create_pipeline", "query", "mutation", "log"],
)
@pytest.mark.parametrize(
    "fault",
    [
        hang_up,
        says(b'{"id":1}', cut=3),
        says(b"Bearer " + TOKEN.encode(), 500),
        says(b'{"message":"no such token: ' + TOKEN.encode() + b'"}', 401),
        says(b'"%s"' % TOKEN.encode(), Content_Type="application/json"),
        says(b"", 201, Content_Type=TOKEN),
        says(b"", 302, Location=f"ftp://elsewhere.example.com/?token={TOKEN}"),
    ],
    ids=["reset", "cut body", "500", "401", "echo", "echoed type", "redirect"],
)
def test_the_token_shows_nowhere_after_actions_either(
    scripted: Start, fault: Callable[..., None], send: Callable[[Workspace], Any]
) -> None:
    ws = connected(scripted(fault))
    with pytest.raises(bf.BuildframeError) as caught:
        send(ws)
    shown = [repr(ws), str(vars(ws)), str(vars(ws._client)), shown_of(caught.value), repr(vars(caught.value))]
    assert TOKEN not in "\n".join(shown)


@pytest.mark.parametrize(
    "answer",
    [
        says(b'[{"id":"b"}]', date=TOKEN),
        says(b"<html>", Content_Type=TOKEN),
    ],
    ids=["the date", "the type"],
)
def test_a_token_that_comes_back_as_data_is_in_no_error(scripted: Start, answer: Callable[..., None]) -> None:
    with pytest.raises(bf.Malformed) as caught:
        connected(scripted(answer)).builds()
    assert TOKEN not in str(caught.value)


LONG = "x" * (1_000 - len(TOKEN) // 2)  # a message is cut within a token after it


@pytest.mark.parametrize(
    "answer",
    [
        says(b'{"message":"no %s"}' % TOKEN.encode(), 202),
        says(b"{}", Content_Encoding=TOKEN),
        says(b"{}", Content_Encoding=LONG[:-1] + TOKEN),
        says(b"{", Content_Type=LONG + TOKEN),
        says(b'{"number":7,"created_at":"%s%s"}' % (LONG[30:].encode(), TOKEN.encode())),
        lambda handler: handler.wfile.write(b"X" * 60_000 + TOKEN.encode() + b"\r\n\r\n"),
        says(b"[]", 302, Location=f"https://{TOKEN}@a.example.com/" + "x" * 60_000),
    ],
    ids=["202", "encoding", "cut encoding", "cut type", "cut time", "status line", "redirect"],
)
def test_no_part_of_the_token_is_in_an_error_and_no_long_text(scripted: Start, answer: Callable[..., None]) -> None:
    with pytest.raises(bf.BuildframeError) as caught:
        connected(scripted(answer)).pipeline("web").build(7)
    assert TOKEN[: len(TOKEN) // 2 - 2] not in shown_of(caught.value)
    assert len(str(caught.value)) < 1_500


def test_errors_quote_at_most_the_start_of_a_long_url(scripted: Start) -> None:
    target = "/v2/organizations/acme/pipelines?page=2&x=" + "y" * 50_000
    server = scripted(says(b'[{"id":"a"}]', Link=f'<{target}>; rel="next"'), says(b"no", 422))
    with pytest.raises(bf.Invalid, match=r"y… .cut: it has 50,042 characters") as caught:
        connected(server).pipelines(progress=False)
    assert len(str(caught.value)) < 1_500
    server = scripted(says(b"", 302, Location="ftp://h/" + "y" * 50_000))
    with pytest.raises(bf.Malformed, match=r"is not followed: .*y… .cut: it has") as refused:
        connected(server).log(f"{server.url}/v2/log")
    assert len(str(refused.value)) < 1_500


def test_a_client_whose_url_is_refused_can_be_printed() -> None:
    with pytest.raises(bf.BadInput) as refused:
        Client("http://example.com", Token(TOKEN))
    shown = "".join(traceback.TracebackException.from_exception(refused.value, capture_locals=True).format())
    assert "<Client of unknown>" in shown
    assert TOKEN not in shown


@pytest.mark.parametrize("address", ["user:pa55word@api.example.com", "ftp://pa55word@api.example.com"])
def test_an_address_that_holds_a_secret_is_not_echoed(address: str) -> None:
    with pytest.raises(bf.BadInput) as refused:
        bf.connect("acme", base_url=address, token=TOKEN)
    assert "pa55word" not in str(refused.value)


@pytest.mark.parametrize(
    "echo",
    [
        says(b"", 302, Location=f"https://elsewhere.example.com/?token={TOKEN}"),
        says(b'[{"id":"a"}]', Link=f'<https://elsewhere.example.com/?token={TOKEN}>; rel="next"'),
    ],
)
def test_a_token_that_comes_back_in_a_header_is_not_shown(scripted: Start, echo: Callable[..., None]) -> None:
    with pytest.raises(
        bf.BuildframeError, match=r"<token>|%3Ctoken%3E|redirected to 'https://elsewhere\.example\.com/'"
    ) as caught:
        connected(scripted(echo)).pipelines()
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


def test_a_traceback_of_a_refused_token_does_not_show_it() -> None:
    with pytest.raises(bf.BadInput) as refused:
        bf.connect("acme", base_url="https://api.example.com", token=TOKEN + " pasted twice " + TOKEN)
    assert TOKEN not in shown_of(refused.value)


@pytest.mark.parametrize(
    ("interruption", "send"),
    [
        (KeyboardInterrupt, lambda ws: ws.builds()),
        (ZeroDivisionError, lambda ws: ws.builds()),
        (KeyboardInterrupt, lambda ws: ws.pipeline("web").create_build(commit="HEAD", branch="main")),
        (KeyboardInterrupt, lambda ws: ws.graphql("{ a }")),
    ],
)
def test_the_traceback_of_an_interrupt_contains_no_frame_with_the_token(
    scripted: Start, interruption: type[BaseException], send: Callable[[Workspace], Any]
) -> None:
    def interrupt(*_: object) -> None:
        raise interruption

    ws = connected(scripted(lambda _: time.sleep(1.5)))
    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(interruption) as caught:
            send(ws)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert TOKEN not in shown_of(caught.value)


def test_a_token_is_not_pickled() -> None:
    with pytest.raises(TypeError, match="a token cannot be pickled; pass it to the other process again"):
        pickle.dumps(Token(TOKEN))


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
    with pytest.raises(bf.BadInput, match=r"BUILDFRAME_TOKEN is not set.*Create one in your user settings"):
        bf.connect("acme")


def test_https_to_a_server_without_tls_is_reported(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildframe.http.retry.MAX_CONNECTS", 1)
    server = scripted(says(BUILD))
    ws = bf.connect("acme", base_url=server.url.replace("http:", "https:"), token=TOKEN)
    with pytest.raises(bf.Unreachable, match=r"does not use TLS at this port\. Is the URL http"):
        ws.builds()
