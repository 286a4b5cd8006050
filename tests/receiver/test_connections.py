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
from tests.receiver.deliveries import of_job, states, synced
from tests.receiver.running_receiver import SECRET, Served, serving

HALF = [
    b"",
    b"P",
    b"POST / HTTP/1.1\r\nHost: here\r\nX-",
    b"POST / HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n{",
]


@pytest.fixture
def store(tmp_path: Path) -> bf.Store:
    return synced(tmp_path)


def connected(served: Served) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30)


@contextmanager
def half_open(served: Served, many: int) -> Iterator[list[socket.socket]]:
    """Connections on which no request, or half of one, was sent."""
    with ExitStack() as stack:
        lines = [stack.enter_context(connected(served)) for _ in range(many)]
        for place, line in enumerate(lines):
            try:
                line.sendall(HALF[place % len(HALF)])
            except OSError:  # it was closed already
                continue
        yield lines


def delivered(served: Served, number: int) -> int:
    """Return the status of a delivery; 503 if its connection was refused."""
    body, headers = of_job(5, number).body, {"X-Service-Token": SECRET}
    try:
        return httpx.post(served.url, content=body, headers=headers, timeout=20).status_code
    except httpx.TransportError:  # it was closed while the body was sent
        return 503


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


@pytest.mark.long
@pytest.mark.parametrize("many", [15, 50])
def test_half_open_connections_do_not_shut_deliveries_out_for_good(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch, many: int
) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 3.0)
    monkeypatch.setattr("buildframe.receiver.server.MAX_CONNECTIONS", 20)
    with serving(receiver.application(store, [SECRET])) as served, half_open(served, many):
        statuses, deadline = [delivered(served, 0)], time.monotonic() + 30
        while statuses[-1] != 204:
            assert time.monotonic() < deadline
            time.sleep(0.1)
            statuses.append(delivered(served, 0))
        assert set(statuses) == ({204} if many < 20 else {503, 204})
    assert len(states(store)) == 2


def test_connections_above_the_limit_of_sockets_are_closed_at_once(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("buildframe.receiver.server.MAX_SOCKETS", 3)
    with serving(receiver.application(store, [SECRET])) as served, half_open(served, 5) as lines:
        assert [rest(line) for line in lines[3:]] == [b"", b""]
        ask_health(lines[0])


def test_a_request_that_does_not_come_is_given_up(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.3)
    with serving(receiver.application(store, [SECRET])) as served, half_open(served, 4) as lines:
        responses = [rest(line) for line in lines]
        assert responses[:3] == [b""] * 3
        assert responses[3].startswith(b"HTTP/1.1 408 Request Timeout\r\n"), "only the body is missing"
        assert b"connection: close" in responses[3].lower()
        assert served.status()["refused"] == {"408": 1}


@pytest.mark.long
def test_headers_that_come_byte_by_byte_take_no_longer(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.5)
    with serving(receiver.application(store, [SECRET])) as served, connected(served) as line:
        line.sendall(b"POST / HTTP/1.1\r\nX-Long: ")
        with pytest.raises(OSError, match=r"reset|Broken pipe"):  # noqa: PT012
            for _ in range(1_500):
                line.sendall(b"x")
                time.sleep(0.02)


def test_headers_are_limited_in_size(store: bf.Store) -> None:
    with serving(receiver.application(store, [SECRET])) as served, connected(served) as line:
        line.sendall(b"POST / HTTP/1.1\r\nHost: here\r\nX-Long: " + b"x" * 40_000)
        assert rest(line).startswith(b"HTTP/1.1 400 ")


def test_a_second_request_has_the_limit_too(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.3)
    with serving(receiver.application(store, [SECRET])) as served, connected(served) as line:
        ask_health(line)
        line.sendall(HALF[2])
        line.settimeout(3)
        assert rest(line) == b""


@pytest.mark.long
def test_a_connection_stays_open_for_requests_that_come_in_time(
    store: bf.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asgi, "REQUEST_TIMEOUT_S", 0.5)
    with serving(receiver.application(store, [SECRET])) as served, connected(served) as line:
        for _ in range(4):
            ask_health(line)
            time.sleep(0.2)


@pytest.mark.long
def test_a_client_that_does_not_read_is_given_up(store: bf.Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("buildframe.receiver.server.RESPONSE_TIMEOUT_S", 0.5)
    with serving(receiver.application(store, [SECRET]), send_buffer=4_096) as served, socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_000)
        line.connect(("127.0.0.1", served.port))
        line.settimeout(60)
        with pytest.raises(ConnectionError):
            line.sendall(b"GET /x HTTP/1.1\r\nHost: here\r\n\r\n" * 200_000)
