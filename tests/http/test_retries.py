"""What is sent again, how often and after which waits, and what one call may spend on that."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import tenacity

import buildframe as bf
from buildframe import spec
from buildframe.http import client, protocol, response
from buildframe.http.client import ATTEMPTS, CONNECTS, Client, Token
from buildframe.http.rate_limit import Effort, Halted
from buildframe.sandbox_server import Fault, Sandbox
from tests.conftest import Scripted, hang_up, says

Start = Callable[..., Scripted]
TOKEN = "bkua_0123456789secret"


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_BACKOFF", tenacity.wait_none())


def listed(url: str, effort: Effort) -> list[Any]:
    request = protocol.place(spec.list_pipelines, "acme")
    with Client(url, Token(TOKEN)) as asking:
        return asking.fetch(request, lambda answer: _documents(request, answer), effort)


def _documents(request: protocol.Request, answer: response.Answer) -> list[Any]:
    protocol.check(request, answer)
    return protocol.read_documents(request, answer)


def nowhere() -> str:
    """An address on this machine where nobody listens."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{free.getsockname()[1]}"


FAULTS = [
    *(Fault("status", status=status, rate=0.05) for status in (500, 502, 503)),
    *(Fault(kind, rate=0.05) for kind in ("reset", "cut", "garbage")),
    Fault("limited", rate=0.05, seconds=0),
]


def test_many_requests_survive_a_service_of_which_one_answer_in_three_is_bad() -> None:
    with Sandbox(builds=60, days=3, faults=FAULTS) as sandbox, Client(sandbox.url, Token(sandbox.token())) as asking:
        request = protocol.place_page(spec.list_builds, "acme", per_page=5)
        effort = Effort()
        pages = [asking.fetch(request, lambda answer: _documents(request, answer), effort) for _ in range(60)]
    assert all(page == pages[0] for page in pages)
    assert len(pages[0]) == 5
    assert effort.requests == 60 + effort.retries > 70


def test_a_request_survives_many_faults_and_counts_them(scripted: Start) -> None:
    server = scripted(*[says(b"oops", 503)] * (ATTEMPTS - 1), says(b"[]"))
    effort = Effort()
    assert listed(server.url, effort) == []
    assert (effort.requests, effort.retries) == (ATTEMPTS, ATTEMPTS - 1)


@pytest.mark.parametrize("fault", [says(b"oops", 503), says(b'{"reset":0}', 429), says(b"<html>"), hang_up])
def test_how_often_a_lasting_fault_was_tried_is_noted(scripted: Start, fault: Callable[..., None]) -> None:
    with pytest.raises(bf.BuildframeError) as caught:
        listed(scripted(fault).url, Effort())
    assert re.fullmatch(rf"Tried {ATTEMPTS} times in \d s\.", *caught.value.__notes__)
    with pytest.raises(bf.NotFound) as refused:
        listed(scripted(fault, says(b"", 404)).url, Effort())
    assert not hasattr(refused.value, "__notes__")


def test_where_nobody_is_there_it_is_given_up_sooner() -> None:
    effort = Effort()
    with pytest.raises(bf.Unreachable) as caught:
        listed(nowhere(), effort)
    assert effort.requests == CONNECTS
    assert caught.value.__notes__ == [f"Tried {CONNECTS} times in 0 s."]


def test_only_tries_in_a_row_count_for_that(scripted: Start) -> None:
    effort = Effort()

    def last_words(handler: BaseHTTPRequestHandler) -> None:
        says(b"oops", 503, Connection="close")(handler)
        server.stop()
        handler.close_connection = True

    server = scripted(*[says(b"oops", 503)] * 3, last_words)
    with pytest.raises(bf.Unreachable):
        listed(server.url, effort)
    assert effort.requests == 4 + CONNECTS


def test_what_is_waited_for_is_told_and_can_be_ended(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_BACKOFF", tenacity.wait_fixed(3600.0))
    server = scripted(says(b"oops", 503))
    told: list[tuple[float, str]] = []

    def stop(seconds: float, why: str) -> None:
        told.append((seconds, why))
        effort.stop()

    effort = Effort(on_wait=stop)
    with pytest.raises(Halted, match="it was stopped"):
        listed(server.url, effort)
    with pytest.raises(bf.DeadlineExceeded, match="deadline=90s would pass"):
        listed(server.url, Effort(seconds=90))
    assert told == [(3600.0, "the service answered 503")]
    assert len(server.asked) == 2


def test_after_a_second_refusal_the_waits_grow(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_BACKOFF", tenacity.wait_fixed(0.01))
    told: list[tuple[float, str]] = []
    refused = says(b'{"message":"slow down","reset":0}', 429)
    effort = Effort(on_wait=lambda *wait: told.append(wait))
    assert listed(scripted(*[refused] * 3, says(b"[]")).url, effort) == []
    assert told == [(0.01, "the limit of requests is used up")] * 2
    assert effort.retries == 3


def test_no_more_is_sent_than_may_be(scripted: Start) -> None:
    server = scripted(says(b"oops", 503))
    with pytest.raises(Halted, match="max_requests=3 is used up"):
        listed(server.url, Effort(max_requests=3))
    assert len(server.asked) == 3


# --- what one call may spend ------------------------------------------------------------------------------------------


def test_no_more_requests_are_sent_than_allowed_by_any_number_of_threads() -> None:
    effort, sent = Effort(max_requests=50), list[int]()

    def spend_all() -> None:
        while True:
            effort.spend()
            sent.append(1)

    with ThreadPoolExecutor(8) as pool:
        ends = [pool.submit(spend_all) for _ in range(8)]
    assert {str(end.exception()) for end in ends} == {"max_requests=50 is used up"}
    assert len(sent) == effort.requests == 50


def test_a_wait_is_told_and_counted() -> None:
    heard: list[tuple[float, str]] = []
    effort = Effort(on_wait=lambda seconds, why: heard.append((seconds, why)))
    effort.wait(0.02, "because")
    effort.wait(0.0, "for nothing")
    effort.retry(0.02, "again")
    assert heard == [(0.02, "because"), (0.02, "again")]
    assert (effort.waits, effort.retries) == (2, 1)
    assert effort.waited_s >= 0.03


def test_a_stop_wakes_who_waits() -> None:
    effort = Effort()
    threading.Timer(0.1, effort.stop).start()
    with pytest.raises(Halted, match="it was stopped"):
        effort.wait(3600.0, "because")
    assert effort.stopped
    with pytest.raises(Halted):
        effort.spend()


def test_a_wait_beyond_the_deadline_is_not_begun() -> None:
    effort = Effort(seconds=90)
    with pytest.raises(bf.DeadlineExceeded, match="deadline=90s would pass while waiting 100 s: because"):
        effort.wait(100.0, "because")
    assert effort.seconds_left is not None
    over = Effort(seconds=0.01)
    time.sleep(0.02)
    with pytest.raises(bf.DeadlineExceeded, match=r"deadline=0.01s has passed"):
        over.spend()
    assert over.requests == 0


def test_a_reset_that_is_no_time_until_then_is_passed_over(scripted: Start) -> None:
    absurd = says(b'{"message":"x","reset":1800000000}', 429, RateLimit_Remaining="0", RateLimit_Reset="1800000000")
    server = scripted(absurd, says(b"[]"))
    assert listed(server.url, Effort()) == []
    assert len(server.asked) == 2


def test_with_a_deadline_a_long_limit_ends_the_walk_with_what_is_there(scripted: Start) -> None:
    row = b'[{"id":"b1","number":1,"created_at":"2026-10-30T10:00:00Z"}]'
    more = '</v2/organizations/acme/builds?page=2>; rel="next"'
    server = scripted(says(row, Link=more), says(b'{"message":"x"}', 429, Retry_After="500"))
    frame = bf.connect("acme", base_url=server.url, token=TOKEN).builds(deadline="5s", partial=True)
    assert list(frame["id"]) == ["b1"]
    assert not frame.attrs["complete"]
    assert "deadline=5s" in frame.attrs["why"]


def test_a_token_that_comes_back_shows_in_no_why_and_no_warning(scripted: Start) -> None:
    row = b'[{"id":"b1","number":1,"created_at":"2026-10-30T10:00:00Z"}]'
    bad = f'[{{"id":"b2","created_at":"{TOKEN}"}}]'.encode()
    server = scripted(says(row, Link='</v2/organizations/acme/builds?page=2>; rel="next"'), says(bad))
    frame = bf.connect("acme", base_url=server.url, token=TOKEN).builds(partial=True, workers=1)
    assert not frame.attrs["complete"]
    assert TOKEN not in str(frame.attrs)
    assert "<token>" in frame.attrs["why"]
