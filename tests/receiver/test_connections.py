"""Clients that connect and send nothing, or half a request, block no other clients."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

import buildframe as bf
from buildframe import receiver
from buildframe.receiver import asgi
from buildframe.receiver.connections import server as uvicorn_server
from tests.receiver import concurrent_syncs
from tests.receiver.deliveries import of_job, states, synced
from tests.receiver.running_receiver import SECRET, Served, serving

pytestmark = pytest.mark.slow

HALF = [
    b"",
    b"P",
    b"POST / HTTP/1.1\r\nHost: here\r\nX-",
    b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n{",
]


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    return synced(tmp_path)


def connected(served: Served, address: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30, source_address=(address, 0))


@contextmanager
def half_open(served: Served, many: int, address: str = "127.0.0.1") -> Iterator[list[socket.socket]]:
    """Connections on which no request, or half of one, was sent."""
    with ExitStack() as stack:
        lines = [stack.enter_context(connected(served, address)) for _ in range(many)]
        for place, line in enumerate(lines):
            try:
                line.sendall(HALF[place % len(HALF)])
            except OSError:  # it was closed already
                continue
        yield lines


def delivered(served: Served, number: int) -> tuple[int, float]:
    """The status of a delivery, and how long that took."""
    began = time.monotonic()
    body, headers = of_job(5, number).body, {"X-Service-Token": SECRET}
    status = httpx.post(served.url, content=body, headers=headers, timeout=20).status_code
    return status, time.monotonic() - began


def rest(line: socket.socket) -> bytes:
    """What comes until the connection is closed; nothing if it was reset."""
    try:
        return b"".join(iter(lambda: line.recv(1000), b""))
    except ConnectionResetError:
        return b""


def ask_health(line: socket.socket) -> None:
    line.sendall(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n")
    response = b""
    while not response.endswith(b"}}"):
        response += line.recv(1000)
    assert response.startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("many", [300, 900])
def test_deliveries_are_answered_while_connections_are_half_open(tmp_path: Path, many: int) -> None:
    store = synced(tmp_path)
    with concurrent_syncs.receiving(tmp_path, "--every", "1h") as (process, served):
        with half_open(served, many):
            for number in range(5):
                status, seconds = delivered(served, number)
                assert (status, seconds < asgi.REQUEST_TIMEOUT_S / 2) == (204, True)
        process.terminate()
        assert process.wait(60) == 0
    assert len(states(store)) == 6


def test_a_request_that_does_not_come_is_given_up(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.3)
    with serving(receiver.application(store, [SECRET])) as served, half_open(served, 4) as lines:
        for line in lines:
            response = rest(line)
            assert response.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
            assert b"connection: close" in response.lower()
        assert served.status()["refused"] == {"408": 4}


def test_headers_that_come_byte_by_byte_take_no_longer(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.5)
    with serving(receiver.application(store, [SECRET])) as served, connected(served) as line:
        line.setblocking(False)
        sent, deadline = 0, time.monotonic() + 30
        while True:
            assert time.monotonic() < deadline
            try:
                sent += line.send(b"P"[:1] if sent == 0 else b"OST / HTTP/1.1\r\nX-Long: "[sent - 1 : sent] or b"x")
                assert line.recv(100).startswith(b"HTTP/1.1 408")
                break
            except BlockingIOError:
                time.sleep(0.02)


def test_headers_and_body_have_one_limit(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 1.0)
    with serving(receiver.application(store, [SECRET])) as served, connected(served) as line:
        began = time.monotonic()
        time.sleep(0.6)
        line.sendall(HALF[3])
        assert rest(line).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began < 1.5


def test_a_second_request_has_the_limit_too(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.3)
    with serving(receiver.application(store, [SECRET])) as served, connected(served) as line:
        ask_health(line)
        line.sendall(HALF[2])
        line.settimeout(3)
        assert rest(line) == b""


def test_a_connection_stays_open_for_requests_that_come_in_time(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.5)
    with serving(receiver.application(store, [SECRET])) as served, connected(served) as line:
        for _ in range(4):
            ask_health(line)
            time.sleep(0.2)


def test_one_address_has_no_more_than_its_share(store: bf.Store) -> None:
    with (
        serving(receiver.application(store, [SECRET]), per_peer=3) as served,
        half_open(served, 3, "127.0.0.2") as others,
        half_open(served, 3) as lines,
    ):
        for number in range(3):
            assert delivered(served, number)[0] == 204
        assert rest(lines[0]).startswith(b"HTTP/1.1 408"), "the oldest of that address gave way"
        for line in others:
            line.settimeout(0.1)
            with pytest.raises(TimeoutError):
                line.recv(1)


def test_at_the_limit_of_all_the_address_with_most_gives_way(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "MAX_CONNECTIONS", 8)
    with (
        serving(receiver.application(store, [SECRET]), per_peer=8) as served,
        half_open(served, 2, "127.0.0.3") as few,
        half_open(served, 6, "127.0.0.2") as many,
    ):
        assert delivered(served, 0)[0] == 204
        assert rest(many[0]).startswith(b"HTTP/1.1 408")
        few[0].settimeout(0.1)
        with pytest.raises(TimeoutError):
            few[0].recv(1)


def test_where_all_are_being_answered_a_new_one_is_to_come_again(store: bf.Store) -> None:
    with serving(receiver.application(store, [SECRET]), per_peer=2) as served:
        with ExitStack() as stack:
            lines = [stack.enter_context(connected(served)) for _ in range(2)]
            for line in lines:
                line.sendall(HALF[3])
            time.sleep(0.3)
            with connected(served) as third:
                response = rest(third)
        assert response.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        assert b"Retry-After: 30" in response


@pytest.mark.parametrize("per_peer", [0, -1, 801])
def test_a_share_that_cannot_be_is_refused(store: bf.Store, per_peer: int) -> None:
    with pytest.raises(bf.BadInput, match=f"per_peer={per_peer} is not a number of connections. Use 1 to 800"):
        uvicorn_server(receiver.application(store, [SECRET]), per_peer)
