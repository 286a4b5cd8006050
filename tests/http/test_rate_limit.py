"""The rate limiter respects limits in simulated time, with threads, and against the sandbox."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buildframe as bf
from buildframe import spec
from buildframe.http import protocol, response
from buildframe.http.budget import Canceled, RequestBudget
from buildframe.http.client import Client
from buildframe.http.rate_limit import RateLimiter, RateLimitState
from buildframe.http.response import ReportedLimit, Response
from buildframe.http.retry import fetch
from buildframe.http.token import Token
from buildframe.sandbox_server import Quota as SandboxQuota
from buildframe.sandbox_server import Sandbox
from tests.conftest import Scripted, read_documents, says
from tests.simulated_rate_limit import ROUNDINGS, LimitedService, SimulatedRequests

Start = Callable[..., Scripted]
TOKEN = "bkua_0123456789secret"
PREDICTABLE_ROUNDINGS = [rounding for rounding in ROUNDINGS if rounding != "nearest"]


# --- limits, in simulated time ----------------------------------------------------------------------------------------


@st.composite
def simulated_requests(draw: st.DrawFn) -> SimulatedRequests:
    window = draw(st.sampled_from([0.7, 1.0, 2.0, 2.5, 3.0, 60.0]))
    rounding, by_request = draw(st.sampled_from(sorted(ROUNDINGS))), draw(st.booleans())
    service = LimitedService(draw(st.integers(1, 60)), window, rounding, draw(st.floats(0, window)), by_request)
    return SimulatedRequests(
        service,
        requests=service.limit * draw(st.integers(1, 6)),
        workers=draw(st.integers(1, 8)),
        latency=window * draw(st.sampled_from([0.003, 0.02, 0.1])),
        spread=draw(st.booleans()),
        random=random.Random(draw(st.integers(0, 99))),
    )


@given(simulated_requests(), st.floats(0, 60))
@settings(deadline=None, max_examples=80)
def test_at_most_one_request_is_refused_per_window(simulated: SimulatedRequests, start: float) -> None:
    simulated.run(1000.0 + start)
    assert max(simulated.service.refused.values()) <= 1
    assert simulated.state.seconds_until_free(simulated.ended_at + 3600.0) == 0.0


@given(simulated_requests(), st.sampled_from([0.05, 0.3]))
@settings(deadline=None, max_examples=60)
def test_all_requests_succeed_within_the_limit_although_responses_are_lost(
    simulated: SimulatedRequests, loss_rate: float
) -> None:
    simulated.loss_rate = loss_rate
    simulated.run(1000.0)
    assert sum(simulated.service.refused.values()) <= 1 + simulated.lost


@pytest.mark.parametrize(("window", "latency", "windows"), [(3.0, 0.02, 12), (60.0, 0.3, 4)])
def test_all_requests_are_sent_as_early_as_the_limit_allows(window: float, latency: float, windows: int) -> None:
    late, refused = {}, {}
    for case in itertools.product(PREDICTABLE_ROUNDINGS, (False, True), (False, True), (0.0, 0.31, 0.77)):
        rounding, spread, by_request, phase = case
        service = LimitedService(50, window, rounding, phase, by_request)
        start = 100 * window + phase + 0.2
        simulated = SimulatedRequests(service, 50 * windows, 8, latency, spread).run(start)
        took, most = simulated.ended_at - (100 * window + phase), 1.05 * windows * window - 0.9 * window
        if took > most:
            late[case] = took
        if sum(service.refused.values()) > 1:  # a service's rounding is learned once
            refused[case] = service.refused
    assert (late, refused) == ({}, {})


def test_spread_requests_end_shortly_after_the_earliest_possible_time() -> None:
    for phase in (0.0, 0.31, 0.77):
        simulated = SimulatedRequests(LimitedService(50, 3.0, "up", phase), 400, 8, 0.02, spread=True)
        simulated.run(300.0 + phase)
        assert simulated.ended_at - (300.0 + phase) <= 7 * 3.0 + 0.55


def reported(remaining: int, reset: float, name: str = "ratelimit") -> list[ReportedLimit]:
    return [ReportedLimit(name, remaining, reset)]


def respond(state: RateLimitState, now: float, limits: list[ReportedLimit], *, refused: bool = False) -> RateLimitState:
    state.send(99, now)
    state.learn(99, now, limits, refused=refused)
    return state


def sendable(state: RateLimitState, now: float) -> int:
    """Return how many requests may be sent at once."""
    for worker in range(20):
        if state.seconds_until_free(now) != 0.0:
            return worker
        state.send(worker, now)
    return 20


def test_how_many_requests_may_be_sent_at_once() -> None:
    new, used_up = RateLimitState, lambda: respond(RateLimitState(), 0.0, reported(0, 60.0))
    known = {
        "nothing known": (new(), 0.0, 1),
        "no headers": (respond(new(), 0.0, []), 1.0, 20),
        "5 left": (respond(new(), 0.0, reported(5, 60.0)), 1.0, 5),
        "the smallest limit": (
            respond(new(), 0.0, reported(30, 60.0) + reported(4, 60.0, "ratelimit-user")), 1.0, 4,
        ),
        "used up": (used_up(), 1.0, 0),
        "a new window": (used_up(), 60.0, 1),
        "an old window": (respond(new(), 0.0, reported(5, 60.0)), 61.0, 1),
        "absurd": (respond(new(), 0.0, reported(0, 1e9)), 1.0, 20),
        "after the probe": (respond(used_up(), 60.0, reported(49, 60.0)), 60.0, 20),
        "no longer reported": (respond(used_up(), 60.0, []), 60.0, 20),
        "more than before": (
            respond(respond(new(), 0.0, reported(3, 60.0)), 10.0, reported(9, 50.0)), 10.0, 9,
        ),
    }  # fmt: skip
    found = {name: sendable(state, now) for name, (state, now, _) in known.items()}
    assert found == {name: many for name, (_, _, many) in known.items()}


def test_a_refusal_blocks_all_requests_until_the_reset_then_one_request_probes() -> None:
    state = respond(RateLimitState(), 0.0, reported(40, 30.0))
    for worker in range(8):
        state.send(worker, 1.0)
    state.learn(3, 1.5, reported(0, 28.0), refused=True)
    for worker in (0, 1, 2, 4, 5, 6, 7):
        state.learn(worker, 1.6, reported(30, 28.0))
    assert state.seconds_until_free(1.7) == pytest.approx(27.8)
    assert sendable(state, 29.6) == 1


@pytest.mark.parametrize(("status", "wait"), [(429, 30.0), (503, 0.0)])
def test_retry_after_of_a_429_blocks_all_requests(status: int, wait: float) -> None:
    received = Response(status, {"retry-after": "30"}, b"")
    state = RateLimitState()
    state.send(0, 0.0)
    state.learn(
        0, 0.0, response.reported_limits(received), refused=status == 429, blocked_for=response.blocked_for(received)
    )
    assert state.seconds_until_free(0.0) == wait
    assert sendable(state, 31.0) == (1 if wait else 20)
    state.learn(0, 31.5, [])
    assert state.seconds_until_free(31.5) == 0.0
    state.send(0, 31.5)
    assert state.seconds_until_free(31.5) == 0.0, "after the probe all requests may be sent"


def test_how_long_a_429_blocks_in_addition_to_its_limits() -> None:
    used_up, left = {"ratelimit-remaining": "0", "ratelimit-reset": "5"}, {"ratelimit-remaining": "3"}
    blocked = [
        (200, {"retry-after": "30"}, None),
        (429, {}, 9.0),
        (429, {"retry-after": "30"}, 30.0),
        (429, used_up, None),
        (429, used_up | left, 9.0),
        (429, used_up | {"retry-after": "30"}, 30.0),
    ]
    body = b'{"message":"slow down","reset":9}'
    found = [(status, sent, response.blocked_for(Response(status, sent, body))) for status, sent, _ in blocked]
    assert found == blocked


def test_a_response_of_the_previous_window_does_not_change_the_current_window() -> None:
    state = respond(RateLimitState(), 0.0, reported(5, 60.0))
    state.send(1, 59.0)
    state.send(2, 60.5)
    state.learn(2, 60.6, reported(49, 60.0))
    state.learn(1, 61.0, reported(4, 1.0))
    assert sendable(state, 61.0) == 20


def test_a_worker_waits_for_pending_responses_before_it_waits_for_the_end_of_the_window() -> None:
    state = respond(RateLimitState(), 0.0, reported(1, 60.0))
    state.send(0, 1.0)
    assert state.seconds_until_free(1.0) is None
    state.learn(0, 2.0, reported(0, 57.0))
    assert state.seconds_until_free(2.0) == 57.0


def test_the_seconds_until_the_reset_count_from_the_headers_of_a_response() -> None:
    state = RateLimitState()
    state.send(0, 0.0)
    state.see_headers(0, 1.0)
    state.learn(0, 5.0, reported(0, 30.0))
    assert state.seconds_until_free(5.0) == 26.0


def test_a_refusal_after_the_end_of_a_window_moves_the_end() -> None:
    for reset, seconds in ((0.0, 0.1), (0.04, 0.04)):
        state = respond(respond(RateLimitState(), 0.0, reported(0, 2.5)), 2.5, reported(0, reset), refused=True)
        assert state.seconds_until_free(2.5) == pytest.approx(seconds)


def test_a_lost_response_counts_as_used_until_a_later_response_reports_the_limit() -> None:
    state = respond(RateLimitState(), 0.0, reported(5, 60.0))
    state.send(0, 1.0)
    state.lose(0, 2.0)
    state.send(1, 2.0)
    assert sendable(respond(RateLimitState(), 0.0, reported(5, 60.0)), 2.0) == 5
    state.learn(1, 3.0, reported(4, 57.0))
    assert sendable(state, 3.0) == 4
    slow = respond(RateLimitState(), 0.0, reported(5, 60.0))
    slow.send(0, 1.0)
    slow.lose(0, 2.0)
    assert sendable(slow, 2.0) == 4


def test_how_many_workers_are_useful() -> None:
    both = reported(200, 21.0) + reported(20, 21.0, "ratelimit-user")
    useful = [
        ([], 1.0, 100, 8),
        (reported(40, 60.0), 1.0, None, 8),
        (reported(40, 60.0), 1.0, 40, 8),
        (reported(40, 21.0), 1.0, 41, 4),
        (both, 1.0, 100, 2),
        (reported(40, 60.0), 1.0, 1000, 2),
        (reported(0, 60.0), 1.0, 1000, 1),
        (reported(40, 60.0), 59.9, 1000, 8),
        (reported(40, 60.0), 61.0, 1000, 8),
    ]

    def workers(limits: list[ReportedLimit], now: float, pages: int | None) -> int:
        state = RateLimitState()
        state.send(0, -1.0)
        state.see_headers(0, 0.0)
        state.learn(0, 1.0, limits)
        return state.useful_workers(pages, 8, now)

    assert [(*known, workers(*known)) for *known, _ in useful] == useful


# --- threads and processes --------------------------------------------------------------------------------------------


def limited(remaining: int, reset: float, status: int = 200) -> Response:
    return Response(status, {"ratelimit-remaining": str(remaining), "ratelimit-reset": str(reset)}, b"[]")


def test_headers_are_read_before_the_body_arrives(scripted: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, heard, see_headers = threading.Event(), [], RateLimiter.see_headers

    def note(limiter: RateLimiter) -> None:
        see_headers(limiter)
        seen.set()

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        heard.append(seen.wait(10))
        handler.wfile.write(b"[]")

    monkeypatch.setattr(RateLimiter, "see_headers", note)
    with closing(Client(scripted(slowly).url, Token(TOKEN))) as client:
        fetch(client, protocol.request_for(spec.list_pipelines, "acme"), read_documents)
    assert heard == [True]


def test_a_wait_for_the_rate_limit_can_be_canceled() -> None:
    """One that would end after the deadline is refused at once."""
    ends: dict[tuple[str, float | None], type[Exception]] = {
        ("a probe", 0.2): Canceled,
        ("a probe", None): Canceled,
        ("the limit", 0.2): bf.DeadlineExceeded,
        ("the limit", None): Canceled,
    }
    for (blocked_by, seconds), end in ends.items():
        limiter, budget = RateLimiter(), RequestBudget(seconds=seconds)
        limiter.acquire(RequestBudget())
        if blocked_by == "the limit":
            limiter.release(limited(0, 100))
        threading.Timer(0.05, budget.cancel).start()
        with ThreadPoolExecutor(1) as pool, pytest.raises(end):
            pool.submit(limiter.acquire, budget).result()
        assert budget.requests == 0


def test_a_wait_that_is_too_long_is_refused_at_once() -> None:
    limiter, budget = RateLimiter(), RequestBudget()
    limiter.acquire(budget)
    limiter.release(limited(0, 3000))
    with pytest.raises(bf.RateLimited, match=r"(?s)used up.*Wait \d{4} s") as caught:
        limiter.acquire(budget)
    assert caught.value.retry_after is not None
    assert 2990 <= caught.value.retry_after <= 3000
    assert budget.requests == 1


def test_only_connections_of_the_same_token_and_service_share_their_limits(scripted: Start) -> None:
    server = scripted(says(b"[]", RateLimit_Remaining="0", RateLimit_Reset="3000"))
    first = bf.connect("acme", base_url=server.url, token=TOKEN)  # limits are shared while somebody holds them
    first.pipelines()
    with pytest.raises(bf.RateLimited):
        bf.connect("globex", base_url=server.url, token=TOKEN).pipelines()
    bf.connect("acme", base_url=server.url, token=TOKEN + "2").pipelines()
    bf.connect("acme", base_url=server.url.replace("127.0.0.1", "localhost"), token=TOKEN).pipelines()
    assert len(server.requests) == 3


def variables_of(*roots: object) -> Iterator[dict[str, Any]]:
    """Yield the variables of objects of the library, and of those that they hold, also in dicts and lists."""
    left, seen = list(roots), list[object]()
    while left:
        one = left.pop()
        if any(one is other for other in seen):
            continue
        seen.append(one)
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list | tuple | set):
            left += one
        elif type(one).__module__.startswith("buildframe.") and hasattr(one, "__dict__"):
            yield vars(one)
            left += vars(one).values()


def test_no_object_of_a_workspace_shows_the_token(scripted: Start) -> None:
    from buildframe.http import client

    server = scripted(says(b"[]", RateLimit_Remaining="5", RateLimit_Reset="3000"))
    ws = bf.connect("acme", base_url=server.url, token=TOKEN)
    ws.pipelines()
    found = list(variables_of(ws, RequestBudget(), *vars(client).values()))
    assert TOKEN not in repr(found)
    assert len(found) > 8


@pytest.mark.long
def test_eight_threads_of_three_clients_respect_the_limit_of_a_real_server() -> None:
    with Sandbox(builds=60, days=3, quota=SandboxQuota(user=30, window=1.5)) as sandbox:
        token = Token(sandbox.token())
        clients = [Client(sandbox.url, token) for _ in range(3)]
        assert len({id(client.rate_limiter) for client in clients}) == 1
        budget, statuses = RequestBudget(), []

        def page(which: int) -> None:
            request = protocol.page_request(spec.list_builds, "acme", per_page=1)

            def read(request: protocol.Request, received: Response) -> object:
                statuses.append(received.status)
                return protocol.read_date(request, received)

            fetch(clients[which % 3], request, read, budget)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(page, range(100)))
        for client in clients:
            client.close()
    assert statuses.count(200) == 100
    assert statuses.count(429) == budget.retries <= 1
    assert budget.requests == len(statuses)
    assert budget.waits > 0
