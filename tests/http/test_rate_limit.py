"""The limiter: limits kept in simulated time, by threads, and against the sandbox."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import buildframe as bf
from buildframe import spec
from buildframe.fetching.exchange import fetch
from buildframe.http import protocol, response
from buildframe.http.budget import RequestBudget
from buildframe.http.cancellation import Canceled
from buildframe.http.client import Client
from buildframe.http.rate_limit import RateLimiter, RateLimitState
from buildframe.http.response import ReportedLimit, Response
from buildframe.http.token import Token
from buildframe.sandbox_server import Quota as SandboxQuota
from buildframe.sandbox_server import Sandbox
from tests.conftest import Scripted, says
from tests.pacing import ROUNDINGS, Service, Walk

Start = Callable[..., Scripted]
TOKEN = "bkua_0123456789secret"
KEPT = [rounding for rounding in ROUNDINGS if rounding != "nearest"]


# --- limits, in simulated time ----------------------------------------------------------------------------------------


@st.composite
def walks(draw: st.DrawFn) -> Walk:
    window = draw(st.sampled_from([0.7, 1.0, 2.0, 2.5, 3.0, 60.0]))
    rounding, by_request = draw(st.sampled_from(sorted(ROUNDINGS))), draw(st.booleans())
    service = Service(draw(st.integers(1, 60)), window, rounding, draw(st.floats(0, window)), by_request)
    return Walk(
        service,
        requests=service.limit * draw(st.integers(1, 6)),
        workers=draw(st.integers(1, 8)),
        latency=window * draw(st.sampled_from([0.003, 0.02, 0.1])),
        spread=draw(st.booleans()),
        chance=random.Random(draw(st.integers(0, 99))),
    )


@given(walks(), st.floats(0, 60))
@settings(deadline=None, max_examples=300)
def test_in_no_window_is_more_than_one_request_refused(walk: Walk, start: float) -> None:
    walk.run(1000.0 + start)
    assert max(walk.service.refused.values()) <= 1
    assert walk.state.seconds_until_free(walk.ended + 3600.0) == 0.0


@given(walks(), st.sampled_from([0.05, 0.3]))
@settings(deadline=None, max_examples=100)
def test_answers_that_are_lost_end_no_walk_and_flood_no_service(walk: Walk, loses: float) -> None:
    walk.loses = loses
    walk.run(1000.0)
    assert sum(walk.service.refused.values()) <= 1 + walk.lost


@pytest.mark.parametrize("by_request", [False, True])
@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("rounding", KEPT)
@pytest.mark.parametrize(("window", "latency", "windows"), [(3.0, 0.02, 20), (60.0, 0.3, 4)])
def test_a_walk_ends_as_early_as_the_limit_allows(
    window: float, latency: float, windows: int, rounding: str, spread: bool, by_request: bool
) -> None:
    for phase in (0.0, 0.31, 0.77):
        service = Service(50, window, rounding, phase, by_request)
        start = 100 * window + phase + 0.2
        walk = Walk(service, 50 * windows, 8, latency, spread).run(start)
        assert walk.ended - (100 * window + phase) <= 1.05 * windows * window - 0.9 * window
        assert sum(service.refused.values()) <= 1, "a service's rounding is learned once"


def test_the_end_is_met_closely_where_answers_are_spread() -> None:
    for phase in (0.0, 0.31, 0.77):
        walk = Walk(Service(50, 3.0, "up", phase), 400, 8, 0.02, spread=True)
        walk.run(300.0 + phase)
        assert walk.ended - (300.0 + phase) <= 7 * 3.0 + 0.55


def told(remaining: int, reset: float, name: str = "ratelimit") -> list[ReportedLimit]:
    return [ReportedLimit(name, remaining, reset)]


def asked(state: RateLimitState, now: float, limits: list[ReportedLimit], *, refused: bool = False) -> RateLimitState:
    state.send(99, now)
    state.learn(99, now, limits, refused=refused)
    return state


def sendable(state: RateLimitState, now: float) -> int:
    """How many requests may be sent at once."""
    for who in range(20):
        if state.seconds_until_free(now) != 0.0:
            return who
        state.send(who, now)
    return 20


@pytest.mark.parametrize(
    ("state", "now", "many"),
    [
        (RateLimitState(), 0.0, 1),
        (asked(RateLimitState(), 0.0, []), 1.0, 20),
        (asked(RateLimitState(), 0.0, told(5, 60.0)), 1.0, 5),
        (asked(RateLimitState(), 0.0, told(30, 60.0) + told(4, 60.0, "ratelimit-user")), 1.0, 4),
        (asked(RateLimitState(), 0.0, told(0, 60.0)), 1.0, 0),
        (asked(RateLimitState(), 0.0, told(0, 60.0)), 60.0, 1),
        (asked(RateLimitState(), 0.0, told(5, 60.0)), 61.0, 1),
        (asked(RateLimitState(), 0.0, told(0, 1e9)), 1.0, 20),
        (asked(asked(RateLimitState(), 0.0, told(0, 60.0)), 60.0, told(49, 60.0)), 60.0, 20),
        (asked(asked(RateLimitState(), 0.0, told(0, 60.0)), 60.0, []), 60.0, 20),
        (asked(asked(RateLimitState(), 0.0, told(3, 60.0)), 10.0, told(9, 50.0)), 10.0, 9),
    ],
    ids=[
        "nothing known", "no headers", "5 left", "the smallest limit", "used up", "a new window", "an old window",
        "absurd", "after the probe", "spoken of no more", "more than before",
    ],
)  # fmt: skip
def test_how_many_may_be_sent_at_once(state: RateLimitState, now: float, many: int) -> None:
    assert sendable(state, now) == many


def test_a_refusal_closes_the_gate_for_all_until_the_reset_then_one_goes_alone() -> None:
    state = asked(RateLimitState(), 0.0, told(40, 30.0))
    for who in range(8):
        state.send(who, 1.0)
    state.learn(3, 1.5, told(0, 28.0), refused=True)
    for who in (0, 1, 2, 4, 5, 6, 7):
        state.learn(who, 1.6, told(30, 28.0))
    assert state.seconds_until_free(1.7) == pytest.approx(27.8)
    assert sendable(state, 29.6) == 1


@pytest.mark.parametrize(("status", "wait"), [(429, 30.0), (503, 0.0)])
def test_a_wait_that_a_429_names_holds_for_all(status: int, wait: float) -> None:
    answer = Response(status, {"retry-after": "30"}, b"")
    state = RateLimitState()
    state.send(0, 0.0)
    state.learn(
        0, 0.0, response.reported_limits(answer), refused=status == 429, blocked_for=response.blocked_for(answer)
    )
    assert state.seconds_until_free(0.0) == wait
    assert sendable(state, 31.0) == (1 if wait else 20)
    state.learn(0, 31.5, [])
    assert state.seconds_until_free(31.5) == 0.0
    state.send(0, 31.5)
    assert state.seconds_until_free(31.5) == 0.0, "after the one that went alone all may go"


@pytest.mark.parametrize(
    ("status", "headers", "seconds"),
    [
        (200, {"retry-after": "30"}, None),
        (429, {}, 9.0),
        (429, {"retry-after": "30"}, 30.0),
        (429, {"ratelimit-remaining": "0", "ratelimit-reset": "5"}, None),
        (429, {"ratelimit-remaining": "3", "ratelimit-reset": "5"}, 9.0),
        (429, {"ratelimit-remaining": "0", "ratelimit-reset": "5", "retry-after": "30"}, 30.0),
    ],
)
def test_what_a_429_closes_beyond_its_limits(status: int, headers: dict[str, str], seconds: float | None) -> None:
    assert response.blocked_for(Response(status, headers, b'{"message":"slow down","reset":9}')) == seconds


def test_an_answer_of_an_old_window_says_nothing_of_the_new() -> None:
    state = asked(RateLimitState(), 0.0, told(5, 60.0))
    state.send(1, 59.0)
    state.send(2, 60.5)
    state.learn(2, 60.6, told(49, 60.0))
    state.learn(1, 61.0, told(4, 1.0))
    assert sendable(state, 61.0) == 20


def test_who_comes_when_all_is_under_way_waits_for_the_answers_not_for_the_end() -> None:
    state = asked(RateLimitState(), 0.0, told(1, 60.0))
    state.send(0, 1.0)
    assert state.seconds_until_free(1.0) is None
    state.learn(0, 2.0, told(0, 57.0))
    assert state.seconds_until_free(2.0) == 57.0


def test_the_seconds_count_from_the_head_of_an_answer() -> None:
    state = RateLimitState()
    state.send(0, 0.0)
    state.see_headers(0, 1.0)
    state.learn(0, 5.0, told(0, 30.0))
    assert state.seconds_until_free(5.0) == 26.0


@pytest.mark.parametrize("reset", [0.0, 0.04])
def test_a_refusal_after_the_end_moves_it(reset: float) -> None:
    state = asked(asked(RateLimitState(), 0.0, told(0, 2.5)), 2.5, told(0, reset), refused=True)
    assert state.seconds_until_free(2.5) == pytest.approx(0.1 if reset == 0 else reset)


def test_a_lost_answer_counts_until_a_later_one_tells() -> None:
    state = asked(RateLimitState(), 0.0, told(5, 60.0))
    state.send(0, 1.0)
    state.lose(0, 2.0)
    state.send(1, 2.0)
    assert sendable(asked(RateLimitState(), 0.0, told(5, 60.0)), 2.0) == 5
    state.learn(1, 3.0, told(4, 57.0))
    assert sendable(state, 3.0) == 4
    slow = asked(RateLimitState(), 0.0, told(5, 60.0))
    slow.send(0, 1.0)
    slow.lose(0, 2.0)
    assert sendable(slow, 2.0) == 4


@pytest.mark.parametrize(
    ("limits", "now", "pages", "useful"),
    [
        ([], 1.0, 100, 8),
        (told(40, 60.0), 1.0, None, 8),
        (told(40, 60.0), 1.0, 40, 8),
        (told(40, 21.0), 1.0, 41, 4),
        (told(200, 21.0) + told(20, 21.0, "ratelimit-user"), 1.0, 100, 2),
        (told(40, 60.0), 1.0, 1000, 2),
        (told(0, 60.0), 1.0, 1000, 1),
        (told(40, 60.0), 59.9, 1000, 8),
        (told(40, 60.0), 61.0, 1000, 8),
    ],
)
def test_how_many_at_once_are_useful(limits: list[ReportedLimit], now: float, pages: int | None, useful: int) -> None:
    state = RateLimitState()
    state.send(0, -1.0)
    state.see_headers(0, 0.0)
    state.learn(0, 1.0, limits)
    assert state.useful_workers(pages, 8, now) == useful


# --- threads and processes --------------------------------------------------------------------------------------------


def limited(remaining: int, reset: float, status: int = 200) -> Response:
    return Response(status, {"ratelimit-remaining": str(remaining), "ratelimit-reset": str(reset)}, b"[]")


def test_headers_are_seen_before_the_body_is_there(scripted: Start) -> None:
    heard = []

    def slowly(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        ended = time.monotonic() + 10
        while not (seen := any(sent.headers_at for sent in state._pending.values())) and time.monotonic() < ended:
            time.sleep(0.01)
        heard.append(seen)
        handler.wfile.write(b"[]")

    with Client(scripted(slowly).url, Token(TOKEN)) as client:
        state = client.rate_limiter._state
        request = protocol.request_for(spec.list_pipelines, "acme")
        fetch(client, request, protocol.read_documents)
    assert heard == [True]


@pytest.mark.parametrize("blocked", ["by a probe", "by the limit"])
@pytest.mark.parametrize("end", [{"seconds": 0.2}, {}])
def test_who_waits_at_the_gate_can_be_stopped(blocked: str, end: dict[str, float]) -> None:
    limiter, budget = RateLimiter(), RequestBudget(**end)
    limiter.acquire(RequestBudget())
    if blocked == "by the limit":
        limiter.release(limited(0, 100))
    threading.Timer(0.1, budget.cancel).start()
    too_long = blocked == "by the limit" and "seconds" in end  # refused at once: the limit ends after the deadline
    with ThreadPoolExecutor(1) as pool, pytest.raises(bf.DeadlineExceeded if too_long else Canceled):
        pool.submit(limiter.acquire, budget).result()
    assert budget.requests == 0


def test_a_wait_that_is_too_long_is_told_and_not_begun() -> None:
    limiter, budget = RateLimiter(), RequestBudget()
    limiter.acquire(budget)
    limiter.release(limited(0, 3000))
    with pytest.raises(bf.RateLimited, match=r"(?s)used up.*Wait \d{4} s") as caught:
        limiter.acquire(budget)
    assert caught.value.retry_after is not None
    assert 2990 <= caught.value.retry_after <= 3000
    assert budget.requests == 1


def test_all_connections_of_a_token_share_the_limits_and_no_other(scripted: Start) -> None:
    server = scripted(says(b"[]", RateLimit_Remaining="0", RateLimit_Reset="3000"))
    first = bf.connect("acme", base_url=server.url, token=TOKEN)  # limits are shared while somebody holds them
    first.pipelines()
    with pytest.raises(bf.RateLimited):
        bf.connect("globex", base_url=server.url, token=TOKEN).pipelines()
    bf.connect("acme", base_url=server.url, token=TOKEN + "2").pipelines()
    bf.connect("acme", base_url=server.url.replace("127.0.0.1", "localhost"), token=TOKEN).pipelines()
    assert len(server.requests) == 3


def test_the_token_is_in_nothing_that_keeps_the_pace(scripted: Start) -> None:
    from buildframe.http import client

    server = scripted(says(b"[]", RateLimit_Remaining="5", RateLimit_Reset="3000"))
    ws = bf.connect("acme", base_url=server.url, token=TOKEN)
    ws.pipelines()
    limiter, budget = ws._client.rate_limiter, RequestBudget()
    shown = [
        limiter,
        vars(limiter),
        vars(limiter._state),
        vars(limiter._state.limits["ratelimit"]),
        budget,
        vars(budget),
    ]
    shown += [
        client._RATE_LIMITERS,
        dict(client._RATE_LIMITERS._limiters),
        vars(ws._client),
        vars(ws._client.copy()),
        vars(ws._client._sockets),
    ]
    assert TOKEN not in repr(shown)


@pytest.mark.slow
def test_eight_threads_of_three_clients_keep_the_limit_of_a_real_server() -> None:
    with Sandbox(builds=60, days=3, quota=SandboxQuota(user=30, window=1.5)) as sandbox:
        token = Token(sandbox.token())
        clients = [Client(sandbox.url, token) for _ in range(3)]
        assert len({id(client.rate_limiter) for client in clients}) == 1
        budget, statuses = RequestBudget(), []

        def page(which: int) -> None:
            request = protocol.page_request(spec.list_builds, "acme", per_page=1)

            def read(request: protocol.Request, answer: Response) -> object:
                statuses.append(answer.status)
                return protocol.read_date(request, answer)

            fetch(clients[which % 3], request, read, budget)

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(page, range(100)))
        for client in clients:
            client.close()
    assert statuses.count(200) == 100
    assert statuses.count(429) == budget.retries <= 1
    assert budget.requests == len(statuses)
    assert budget.waits > 0
