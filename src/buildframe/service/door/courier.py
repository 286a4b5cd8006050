"""Carries webhooks to their receivers, in a thread of its own."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import socket
import sqlite3
import threading
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from buildframe.service.data.bodies import ORIGIN
from buildframe.service.data.outbox import Letter, Outbox


@dataclass(frozen=True)
class Patience:
    """How often a delivery is tried, with `wait` seconds after the first failure and twice as long after each next.

    An attempt fails when no good answer has come within `timeout` seconds.
    """

    attempts: int = 5
    wait: float = 1.0
    timeout: float = 5.0


class Courier:
    """Sends what the outbox holds until it is stopped."""

    def __init__(self, outbox: Outbox, origin: str, patience: Patience) -> None:
        self._outbox, self._origin, self._patience = outbox, origin, patience
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None
        self._thread = threading.Thread(target=self._run, name="buildframe webhooks", daemon=True)

    def start(self) -> None:
        """Begin, with what was left over."""
        self._thread.start()

    def stop(self) -> None:
        """End, also amid an attempt, which counts as not made."""
        self._stopping.set()
        self._outbox.filled.set()
        with self._lock:
            if self._connection is not None and self._connection.sock is not None:
                with contextlib.suppress(OSError):
                    self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self._send_what_is_due()
            except sqlite3.Error:  # such as a full disk: what is written down stays, so try it later
                self._stopping.wait(self._patience.wait)

    def _send_what_is_due(self) -> None:
        self._outbox.filled.clear()
        letters = self._outbox.due(time.time())
        for letter in letters:
            if not self._stopping.is_set():
                self._deliver(letter)
        if not letters:
            due = self._outbox.next_due()
            self._outbox.filled.wait(None if due is None else max(0.0, due - time.time()))

    def _deliver(self, letter: Letter) -> None:
        try:
            status = self._post(letter)
        except (OSError, http.client.HTTPException) as why:
            if not self._stopping.is_set():
                self._outbox.failed(letter, None, f"{type(why).__name__}: {why}", self._again(letter))
            return
        if 200 <= status < 300:
            self._outbox.delivered(letter, status)
        else:
            self._outbox.failed(letter, status, f"answered {status}", self._again(letter))

    def _again(self, letter: Letter) -> float | None:
        made = letter.attempts + 1
        return None if made >= self._patience.attempts else time.time() + self._patience.wait * 2 ** (made - 1)

    def _post(self, letter: Letter) -> int:
        """The status of the answer; redirects are not followed, and no proxy is asked."""
        parts = urlsplit(letter.hook.url)
        assert parts.hostname is not None
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(parts.hostname, parts.port, timeout=self._patience.timeout)
        with contextlib.closing(connection):
            connection.connect()
            with self._lock:
                self._connection = connection
            if self._stopping.is_set():
                raise ConnectionAbortedError("the sandbox stops")
            body = letter.body.replace(ORIGIN.encode(), self._origin.encode())
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, _headers(letter, body))
            return connection.getresponse().status


def _headers(letter: Letter, body: bytes) -> dict[str, str]:
    told = {
        "Content-Type": "application/json",
        "User-Agent": "buildframe-sandbox",
        "X-Buildkite-Event": letter.event,
        "X-Service-Delivery": letter.id,
    }
    if not letter.hook.signed:
        return told | {"X-Service-Token": letter.hook.token}
    timestamp = str(int(time.time()))
    message = timestamp.encode() + b"." + body
    signature = hmac.new(letter.hook.token.encode(), message, hashlib.sha256).hexdigest()
    return told | {"X-Buildkite-Signature": f"timestamp={timestamp},signature={signature}"}
