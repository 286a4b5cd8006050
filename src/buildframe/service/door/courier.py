"""Carries webhooks to their receivers, for each hook in a thread of its own."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import http.client
import math
import socket
import sqlite3
import threading
import time
from dataclasses import dataclass
from urllib.parse import urlsplit

from buildframe.arguments import checked_fields
from buildframe.errors import BadInput
from buildframe.service.data.bodies import ORIGIN
from buildframe.service.data.outbox import Letter, Outbox

_LONGEST_WAIT = 3600.0
_LONGEST_TIMEOUT = 86_400
_MOST_ATTEMPTS = 1000


@checked_fields
@dataclass(frozen=True)
class Patience:
    """How often a delivery is tried, with `wait` seconds after the first failure and twice as long after each next.

    An attempt fails when no good answer has come within `timeout` seconds.
    """

    attempts: int = 5
    wait: float = 1.0
    timeout: float = 5.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= _MOST_ATTEMPTS:
            raise BadInput(f"attempts={self.attempts}: pass a number from 1 to {_MOST_ATTEMPTS}.")
        if not 0 <= self.wait < math.inf:
            raise BadInput(f"wait={self.wait}: pass a number of seconds from 0.")
        if not 0 < self.timeout <= _LONGEST_TIMEOUT:
            raise BadInput(f"timeout={self.timeout}: pass a number of seconds above 0, at most {_LONGEST_TIMEOUT}.")


class Courier:
    """Sends what the outbox holds until it is stopped; a slow receiver holds no other up."""

    def __init__(self, outbox: Outbox, origin: str, patience: Patience) -> None:
        self._outbox, self._origin, self._patience = outbox, origin, patience
        self._stopping = False
        self._lock = threading.Lock()  # never held while the data's lock is taken
        self._carriers: dict[str, _Carrier] = {}

    def start(self) -> None:
        """Begin, with what was left over."""
        self._outbox.rouse = self._rouse
        for hook in self._outbox.waiting():
            self._rouse(hook)

    def stop(self) -> None:
        """End, also amid attempts, which count as not made."""
        with self._lock:
            self._stopping = True
            carriers = list(self._carriers.values())
        for carrier in carriers:
            carrier.stop()
        for carrier in carriers:
            carrier.join()

    def _rouse(self, hook: str) -> None:
        with self._lock:
            if self._stopping:
                return
            self._carriers = {id: carrier for id, carrier in self._carriers.items() if carrier.is_alive()}
            if hook not in self._carriers:
                self._carriers[hook] = _Carrier(hook, self._outbox, self._origin, self._patience)
                self._carriers[hook].start()
            self._carriers[hook].roused.set()


class _Carrier(threading.Thread):
    """Sends what there is for one hook, in order, until that is removed."""

    def __init__(self, hook: str, outbox: Outbox, origin: str, patience: Patience) -> None:
        super().__init__(name="buildframe webhook", daemon=True)
        self._hook, self._outbox, self._origin, self._patience = hook, outbox, origin, patience
        self.roused = threading.Event()
        """Set when there may be something to send, or nothing any more."""
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def stop(self) -> None:
        """Let it end soon."""
        self._stopping.set()
        self.roused.set()
        with self._lock:
            if self._connection is not None and self._connection.sock is not None:
                with contextlib.suppress(OSError):
                    self._connection.sock.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        """Send until there is nobody to send to."""
        while self._goes_on():
            try:
                self._send_or_wait()
            except sqlite3.Error:  # such as a full disk: what is written down stays, so try it later
                self._stopping.wait(self._patience.wait)

    def _goes_on(self) -> bool:
        self.roused.clear()  # before looking, so that nothing that comes later is missed
        return not self._stopping.is_set() and self._outbox.has(self._hook)

    def _send_or_wait(self) -> None:
        letter, now = self._outbox.next(self._hook), time.time()
        if letter is None:
            self.roused.wait()
        elif letter.due > now:
            self.roused.wait(min(letter.due - now, _LONGEST_WAIT))
        else:
            self._deliver(letter)

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
