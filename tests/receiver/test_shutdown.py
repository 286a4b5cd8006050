"""Stopping a receiver while requests are running: it refuses them, and logs no token."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import uvicorn

import buildframe as bf
from buildframe import receiver
from buildframe.receiver.inbox import Inbox, WaitingDelivery
from buildframe.receiver.server import server as uvicorn_server
from buildframe.receiver.store_writer import StoreWriter
from tests.leaks import shown_of
from tests.receiver.deliveries import of_job, states, synced
from tests.receiver.running_receiver import SECRET

REFUSED = b"HTTP/1.1 503 Service Unavailable"
TOKEN = f"X-Service-Token: {SECRET}\r\n"
HEALTH = f"GET /health HTTP/1.1\r\nHost: here\r\n{TOKEN}\r\n".encode()


def delivery(number: int) -> bytes:
    """The bytes of a delivery of a job."""
    body = of_job(5, number).body
    return f"POST / HTTP/1.1\r\nHost: here\r\n{TOKEN}Content-Length: {len(body)}\r\n\r\n".encode() + body


def read_response(line: socket.socket) -> bytes:
    """What comes until the connection is closed."""
    return b"".join(iter(lambda: line.recv(4096), b""))


class Ending:
    """A receiver that gives requests under way 0.2 s when it ends, and a connection to it that sends this."""

    def __init__(self, folder: Path, sends: bytes) -> None:
        self.server = uvicorn_server(receiver.application(synced(folder), [SECRET]))
        self.server.config.timeout_graceful_shutdown = 0.2  # type: ignore[assignment]  # whole seconds by its types
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # few responses fill it
        self._address = listening.getsockname()
        self._thread = threading.Thread(target=self.server.run, kwargs={"sockets": [listening]}, daemon=True)
        self._thread.start()
        self.line = self.connected()
        self.line.sendall(sends)

    def connected(self) -> socket.socket:
        """One more connection."""
        return socket.create_connection(self._address, timeout=30)

    def until(self, is_so: Callable[[uvicorn.Server], bool]) -> None:
        """Wait for a state of the server."""
        deadline = time.monotonic() + 30
        while not is_so(self.server):
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def end(self) -> None:
        """End it, and wait until all is logged."""
        self.server.should_exit = True
        self._thread.join(30)
        assert not self._thread.is_alive()


def is_answering(server: uvicorn.Server) -> bool:
    return bool(server.server_state.tasks)


def is_blocked(server: uvicorn.Server) -> bool:
    return any(one.flow.write_paused for one in server.server_state.connections)  # type: ignore[union-attr]


def shown(caplog: pytest.LogCaptureFixture) -> str:
    """What is logged, with every variable of every frame of its errors."""
    errors = [record.exc_info[1] for record in caplog.records if record.exc_info]
    return caplog.text + "".join(shown_of(error) for error in errors if error is not None)


@pytest.fixture(autouse=True)
def _all_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)


def test_a_delivery_of_which_half_came_is_to_be_sent_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ending = Ending(tmp_path, delivery(1)[:-10])
    ending.until(is_answering)
    ending.end()
    assert read_response(ending.line).startswith(REFUSED)
    assert SECRET not in shown(caplog)


@pytest.mark.long
def test_so_are_those_that_wait_for_the_disk_though_they_are_stored_in_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_slow, go_on, insert = threading.Event(), threading.Event(), Inbox._insert

    def slowly(inbox: Inbox, deliveries: Sequence[WaitingDelivery]) -> str | None:
        is_slow.set()
        assert go_on.wait(30)
        return insert(inbox, deliveries)

    monkeypatch.setattr(Inbox, "_insert", slowly)
    ending = Ending(tmp_path, delivery(1))
    assert is_slow.wait(30)
    with ending.connected() as line:
        line.sendall(delivery(2))
        ending.until(lambda server: len(server.server_state.tasks) == 2)
        ending.server.should_exit = True
        assert [read_response(one).partition(b"\r\n")[0] for one in (ending.line, line)] == [REFUSED] * 2
    go_on.set()
    ending.end()
    assert {"build-1/1", "build-1/2"} <= set(states(bf.Store(tmp_path)))
    assert SECRET not in shown(caplog)


@pytest.mark.long
def test_a_response_that_nobody_reads_shows_no_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    ending = Ending(tmp_path, b"")

    def ask() -> None:
        with suppress(OSError):  # when the connection ends
            ending.line.sendall(HEALTH * 100_000)

    asking = threading.Thread(target=ask)
    asking.start()
    ending.until(is_blocked)
    ending.end()
    ending.line.shutdown(socket.SHUT_RDWR)
    asking.join()
    assert SECRET not in shown(caplog)


def test_an_error_of_the_application_shows_no_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError(SECRET)

    ending = Ending(tmp_path, b"")
    with monkeypatch.context() as patch:
        patch.setattr(StoreWriter, "status", fail)
        ending.line.sendall(HEALTH)
        assert ending.line.recv(4096).startswith(b"HTTP/1.1 500 ")
    ending.end()
    assert "A request failed: ZeroDivisionError at test_shutdown.py:" in caplog.text
    assert SECRET not in shown(caplog)
