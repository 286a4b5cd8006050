"""Logs of jobs over real HTTP on loopback: their URLs, redirects, and the hosts that receive the token."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
import tenacity

import buildframe as bf
from buildframe import spec
from buildframe.http import retry
from buildframe.workspace.jobs import Log
from tests.conftest import Scripted, hang_up, says
from tests.http.test_client import TOKEN, connected
from tests.leaks import shown_of
from tests.refusals import wrong_refusals

Start = Callable[..., Scripted]
TEXT = "--- :rspec: tests\n✓ 12 passed\n".encode()


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


def moved(location: str, status: int = 302) -> Callable[..., None]:
    return says(b"", status, Location=location)


def test_a_job_is_given_by_record_row_or_url(scripted: Start) -> None:
    forms: list[Callable[[dict[str, Any]], Any]] = [
        lambda urls: spec.Job(id="j", **urls),
        lambda urls: urls,
        lambda urls: pd.Series(urls),
        lambda urls: pd.DataFrame([urls]).iloc[0],
        lambda urls: next(iter(pd.DataFrame([urls]).itertuples())),
        lambda urls: urls["raw_log_url"] or urls["log_url"],
    ]
    server = scripted(says(TEXT, Content_Type="text/plain; charset=utf-8"))
    ws = connected(server)
    for form in forms:
        for raw, path in ((f"{server.url}/v2/jobs/1/log.txt", "/v2/jobs/1/log.txt"), (None, "/v2/jobs/1/log")):
            assert ws.log(form({"raw_log_url": raw, "log_url": f"{server.url}/v2/jobs/1/log"})) == TEXT.decode()
            assert server.requests[-1] == path
    assert server.headers[0]["Authorization"] == f"Bearer {TOKEN}"
    assert server.headers[0]["Accept"] == "text/plain"


def test_a_log_in_a_json_response_is_its_content(scripted: Start) -> None:
    server = scripted(says(b'{"url":"x","content":"a\\nb","size":3}', Content_Type="application/json; charset=utf-8"))
    assert connected(server).log(f"{server.url}/v2/log") == "a\nb"
    server = scripted(says(b'{"content":"a"}', Content_Type="text/plain"))
    assert connected(server).log(f"{server.url}/v2/log") == '{"content":"a"}'
    server = scripted(says(b'{"size":3}', Content_Type="application/json"))
    with pytest.raises(bf.Malformed, match="`content`"):
        connected(server).log(f"{server.url}/v2/log")


def test_bytes_that_are_not_text_are_replaced(scripted: Start) -> None:
    server = scripted(says(b"a\xff\x00b"))
    log = connected(server).log(f"{server.url}/v2/log")
    assert (log, log.raw) == ("a\ufffd␀b", "a\ufffd\x00b")


def test_a_job_without_a_log_and_an_invalid_url_are_refused(scripted: Start) -> None:
    server = scripted(says(TEXT))
    cases: list[tuple[Any, str]] = [
        (spec.Job(id="w", type="waiter"), "has no log"),
        ({"id": "w"}, "has no log"),
        (pd.Series({"raw_log_url": None, "log_url": float("nan")}), "has no log"),
        *(
            (address, "cannot be used")
            for address in ("", "log.txt", "ftp://logs.example.com/1", "http://[::1/", "https://a:b@c.example.com")
        ),
        ("http://logs.example.com/1", "not https"),
    ]
    assert wrong_refusals(cases, connected(server).log) == {}
    hosted = bf.connect("acme", base_url="https://ci.example.com", token=TOKEN)
    assert wrong_refusals([("http://127.0.0.1:1/log", "not https")], hosted.log) == {}
    assert not server.requests


def test_the_token_is_sent_to_the_service_only(scripted: Start) -> None:
    service, other_host = scripted(says(TEXT)), scripted(says(TEXT))
    assert connected(service).log(f"{other_host.url}/v2/log?signature=x") == TEXT.decode()
    assert "Authorization" not in other_host.headers[0]
    assert other_host.requests == ["/v2/log?signature=x"]
    assert not service.requests


def test_the_token_is_sent_to_every_path_of_the_origin(scripted: Start) -> None:
    service = scripted(says(TEXT))
    bf.connect("acme", base_url=f"{service.url}/ci", token=TOKEN).log(f"{service.url}/logs/1")
    assert service.headers[0]["Authorization"] == f"Bearer {TOKEN}"
    assert service.requests == ["/logs/1"]


def test_a_redirect_to_another_host_is_followed_without_the_token(scripted: Start) -> None:
    for status in (301, 302, 303, 307, 308):
        service, other_host = scripted(), scripted()
        service.responses = [
            moved("../stored?x=1", status),
            moved(f"{other_host.url}/bucket?signature=s", status),
            says(TEXT),
        ]
        other_host.responses = [moved(f"{service.url}/v2/back", status)]
        assert connected(service).log(f"{service.url}/v2/jobs/log") == TEXT.decode()
        assert service.requests == ["/v2/jobs/log", "/v2/stored?x=1", "/v2/back"]
        assert [headers.get("Authorization") is not None for headers in service.headers] == [True, True, False]
        assert "Authorization" not in other_host.headers[0]


def test_a_redirect_loop_raises_an_error(scripted: Start) -> None:
    server = scripted(moved("/v2/again"))
    with pytest.raises(bf.Malformed, match="3 times"):
        connected(server).log(f"{server.url}/v2/log")
    assert len(server.requests) == 4


def test_a_redirect_to_an_unsafe_url_is_not_followed(scripted: Start) -> None:
    for location in ("http://logs.example.com/1", "ftp://x.example.com", "https://a:b@x.example.com"):
        server = scripted(moved(location))
        with pytest.raises(bf.Malformed, match="not followed"):
            connected(server).log(f"{server.url}/v2/log")


def test_a_missing_log_raises_and_a_failed_request_is_repeated(scripted: Start) -> None:
    server = scripted(says(b'{"message":"No job found"}', 404))
    with pytest.raises(bf.NotFound, match="No job found"):
        connected(server).log(f"{server.url}/v2/log")
    server = scripted(hang_up, says(b"", 503), says(TEXT))
    assert connected(server).log(f"{server.url}/v2/log") == TEXT.decode()


def test_errors_show_neither_token_nor_signature(scripted: Start) -> None:
    service = scripted(says(b"Bearer " + TOKEN.encode(), 500))
    other_host = scripted(says(f"no {TOKEN}".encode(), 403))
    for address in (f"{service.url}/logs?signature=secret", f"{other_host.url}/logs?signature=secret"):
        with pytest.raises(bf.ServiceError) as caught:
            connected(service).log(address)
        assert TOKEN not in shown_of(caught.value)
        assert "signature" not in str(caught.value)


def test_a_refusal_of_another_host_is_not_unauthorized(scripted: Start) -> None:
    service, other_host = scripted(says(TEXT)), scripted(says(b"no", 401))
    with pytest.raises(bf.ServiceError) as refused:
        connected(service).log(f"{other_host.url}/bucket/log?signature=s3cret")
    assert type(refused.value) is bf.ServiceError
    assert f"GET {other_host.url}/bucket/log, the location of the log; the token was not sent there" in str(
        refused.value
    )
    assert "s3cret" not in str(refused.value)


def test_the_plain_text_has_no_escape_sequences() -> None:
    raw = "\x1b_bk;t=1793351908635\x07\x1b[31mtwo\x1b[0m lines\r\n10 %\r\x1b[K20 %\r\nbell \x07, \x1b]8;;https://a.example\x07link\x1b]8;;\x07"
    assert Log(raw).plain == "two lines\n20 %\nbell ␇, link"
    assert Log("").plain == ""


def test_what_is_not_a_job_is_named() -> None:
    ws: Any = bf.connect("acme", base_url="http://127.0.0.1:9", token="an-invented-token")
    cases: list[tuple[Any, str]] = [
        (
            pd.DataFrame({"log_url": ["https://example.com"]}),
            r"job= is a frame. Pass one row, such as jobs.iloc\[0\]",
        ),
        (pd.Series({"id": "a", "number": 3}), "job= is a build. Pass one of its jobs"),
        (spec.Build(id="a", number=3), "job= is a build. Pass one of its jobs"),
        (5, "job=5 is not a job"),
        (None, "job=None is not a job"),
        ({}, "job={} is not a job"),
    ]
    without = [(pd.Series({"id": "a", "state": "passed"}), r"has no log: .* Was it omitted by columns=")]
    assert wrong_refusals(cases + without, ws.log) == {}
    assert wrong_refusals(cases, ws.retry_job) == {}
    assert wrong_refusals(cases, ws.unblock) == {}
