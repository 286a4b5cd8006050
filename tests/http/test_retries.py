"""Retries: which requests, how often and after which waits, within the request budget of a call."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
import tenacity

import buildframe as bf
from buildframe import spec
from buildframe.http import protocol, retry
from buildframe.http.budget import Canceled, RequestBudget
from buildframe.http.client import Client
from buildframe.http.retry import MAX_ATTEMPTS, MAX_CONNECTS, fetch
from buildframe.http.token import Token
from buildframe.sandbox_server import Fault, Sandbox
from tests.conftest import Scripted, hang_up, read_documents, says

Start = Callable[..., Scripted]
TOKEN = "bkua_0123456789secret"


@pytest.fixture(autouse=True)
def _without_backoff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_none())


def listed(url: str, budget: RequestBudget) -> list[Any]:
    request = protocol.request_for(spec.list_pipelines, "acme")
    with closing(Client(url, Token(TOKEN))) as client:
        return fetch(client, request, read_documents, budget)


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


@pytest.mark.long
def test_all_requests_succeed_although_one_response_in_three_is_bad() -> None:
    with (
        Sandbox(builds=60, days=3, faults=FAULTS) as sandbox,
        closing(Client(sandbox.url, Token(sandbox.token()))) as client,
    ):
        request = protocol.page_request(spec.list_builds, "acme", per_page=5)
        budget = RequestBudget()
        pages = [fetch(client, request, read_documents, budget) for _ in range(60)]
    assert all(page == pages[0] for page in pages)
    assert len(pages[0]) == 5
    assert budget.requests == 60 + budget.retries > 70


def test_a_request_succeeds_after_many_faults_and_counts_its_retries(scripted: Start) -> None:
    server = scripted(*[says(b"oops", 503)] * (MAX_ATTEMPTS - 1), says(b"[]"))
    budget = RequestBudget()
    assert listed(server.url, budget) == []
    assert (budget.requests, budget.retries) == (MAX_ATTEMPTS, MAX_ATTEMPTS - 1)


def test_the_error_of_a_permanent_fault_notes_the_number_of_attempts(scripted: Start) -> None:
    for fault in (says(b"oops", 503), says(b'{"reset":0}', 429), says(b"<html>"), hang_up):
        with pytest.raises(bf.BuildframeError) as caught:
            listed(scripted(fault).url, RequestBudget())
        assert re.fullmatch(rf"Tried {MAX_ATTEMPTS} times in \d s\.", *caught.value.__notes__)
        with pytest.raises(bf.NotFound) as refused:
            listed(scripted(fault, says(b"", 404)).url, RequestBudget())
        assert not hasattr(refused.value, "__notes__")


def test_failed_connections_are_retried_less_often() -> None:
    budget = RequestBudget()
    with pytest.raises(bf.Unreachable) as caught:
        listed(nowhere(), budget)
    assert budget.requests == MAX_CONNECTS
    assert caught.value.__notes__ == [f"Tried {MAX_CONNECTS} times in 0 s."]


def test_only_consecutive_failed_connections_count(scripted: Start) -> None:
    budget = RequestBudget()

    def last_words(handler: BaseHTTPRequestHandler) -> None:
        says(b"oops", 503, Connection="close")(handler)
        server.stop()
        handler.close_connection = True

    server = scripted(*[says(b"oops", 503)] * 3, last_words)
    with pytest.raises(bf.Unreachable):
        listed(server.url, budget)
    assert budget.requests == 4 + MAX_CONNECTS


def test_a_wait_for_a_retry_is_reported_with_its_reason_and_can_be_canceled(
    scripted: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_fixed(3600.0))
    server = scripted(says(b"oops", 503))
    waits: list[tuple[float, str]] = []

    def stop(seconds: float, why: str) -> None:
        waits.append((seconds, why))
        budget.cancel()

    budget = RequestBudget(on_wait=stop)
    with pytest.raises(Canceled, match="it was canceled"):
        listed(server.url, budget)
    with pytest.raises(bf.DeadlineExceeded, match="deadline=90s would pass"):
        listed(server.url, RequestBudget(seconds=90))
    assert waits == [(3600.0, "the service returned 503")]
    assert len(server.requests) == 2


def test_retries_after_the_second_refusal_wait_with_backoff(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "_backoff", tenacity.wait_fixed(0.01))
    waits: list[tuple[float, str]] = []
    refused = says(b'{"message":"slow down","reset":0}', 429)
    budget = RequestBudget(on_wait=lambda *wait: waits.append(wait))
    assert listed(scripted(*[refused] * 3, says(b"[]")).url, budget) == []
    assert waits == [(0.01, "the rate limit is used up")] * 2
    assert budget.retries == 3


def test_no_more_requests_are_sent_than_max_requests(scripted: Start) -> None:
    server = scripted(says(b"oops", 503))
    with pytest.raises(Canceled, match="max_requests=3"):
        listed(server.url, RequestBudget(max_requests=3))
    assert len(server.requests) == 3


# --- request budget of a call -----------------------------------------------------------------------------------------


def test_no_more_requests_are_sent_than_allowed_by_any_number_of_threads() -> None:
    budget, sent = RequestBudget(max_requests=50), list[int]()

    def spend_all() -> None:
        while True:
            budget.count_request()
            sent.append(1)

    with ThreadPoolExecutor(8) as pool:
        ends = [pool.submit(spend_all) for _ in range(8)]
    assert {str(end.exception()) for end in ends} == {"max_requests=50 is used up"}
    assert len(sent) == budget.requests == 50


def test_a_wait_is_reported_and_counted() -> None:
    heard: list[tuple[float, str]] = []
    budget = RequestBudget(on_wait=lambda seconds, why: heard.append((seconds, why)))
    budget.wait(0.02, "because")
    budget.wait(0.0, "for nothing")
    budget.wait_for_retry(0.02, "again")
    assert heard == [(0.02, "because"), (0.02, "again")]
    assert (budget.waits, budget.retries) == (2, 1)
    assert budget.waited_s >= 0.03


def test_canceling_ends_a_wait() -> None:
    budget = RequestBudget()
    threading.Timer(0.1, budget.cancel).start()
    with pytest.raises(Canceled, match="it was canceled"):
        budget.wait(3600.0, "because")
    assert budget.is_canceled
    with pytest.raises(Canceled):
        budget.count_request()


def test_a_wait_beyond_the_deadline_is_refused_at_once() -> None:
    budget = RequestBudget(seconds=90)
    with pytest.raises(bf.DeadlineExceeded, match=r"deadline=90s.*100 s: because"):
        budget.wait(100.0, "because")
    assert budget.seconds_left is not None
    over = RequestBudget(seconds=0.01)
    time.sleep(0.02)
    with pytest.raises(bf.DeadlineExceeded, match=r"deadline=0\.01s"):
        over.count_request()
    assert over.requests == 0


def test_a_reset_that_is_a_timestamp_instead_of_a_duration_is_ignored(scripted: Start) -> None:
    absurd = says(b'{"message":"x","reset":1800000000}', 429, RateLimit_Remaining="0", RateLimit_Reset="1800000000")
    server = scripted(absurd, says(b"[]"))
    assert listed(server.url, RequestBudget()) == []
    assert len(server.requests) == 2


def test_a_partial_listing_ends_with_the_rows_so_far_when_a_limit_lasts_beyond_the_deadline(scripted: Start) -> None:
    row = b'[{"id":"b1","number":1,"created_at":"2026-10-30T10:00:00Z"}]'
    more = '</v2/organizations/acme/builds?page=2>; rel="next"'
    server = scripted(says(row, Link=more), says(b'{"message":"x"}', 429, Retry_After="500"))
    frame = bf.connect("acme", base_url=server.url, token=TOKEN).builds(deadline="5s", partial=True)
    assert list(frame["id"]) == ["b1"]
    assert not frame.attrs["complete"]
    assert "deadline=5s" in frame.attrs["why"]


def test_a_token_that_the_server_echoes_is_not_in_reasons_or_warnings(scripted: Start) -> None:
    row = b'[{"id":"b1","number":1,"created_at":"2026-10-30T10:00:00Z"}]'
    bad = f'{{"message":"{TOKEN}"}}'.encode()
    server = scripted(says(row, Link='</v2/organizations/acme/builds?page=2>; rel="next"'), says(bad, 422))
    frame = bf.connect("acme", base_url=server.url, token=TOKEN).builds(partial=True, workers=1)
    assert not frame.attrs["complete"]
    assert TOKEN not in str(frame.attrs)
    assert "<token>" in frame.attrs["why"]
