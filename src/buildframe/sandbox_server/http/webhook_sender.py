"""Send pending webhook deliveries over HTTP, each hook in its own thread. Does not know what the bodies contain."""

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

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_fields
from buildframe.sandbox_server.db.outbox import Outbox, PendingDelivery
from buildframe.sandbox_server.db.serializers import ORIGIN

_MAX_WAIT = 3600.0
_MAX_TIMEOUT = 86_400
_MAX_ATTEMPTS = 1000


@checked_fields
@dataclass(frozen=True)
class Patience:
    """
    The retry policy of the sandbox's webhooks.

    A delivery is accepted by any HTTP status from 200 to 299. After a failure the sandbox waits, and it doubles the
    wait after each further failure.

    Parameters
    ----------
    attempts : int, default 5
        Maximum number of attempts, from 1 to 1000.
    wait : float, default 1.0
        Seconds between the first failure and the second attempt, from 0.
    timeout : float, default 5.0
        Seconds until an attempt without a response fails, above 0 and at most 86,400.

    Raises
    ------
    BadInput
        If a value is out of range.

    Examples
    --------
    >>> Patience(attempts=3, wait=0.5)
    Patience(attempts=3, wait=0.5, timeout=5.0)
    """

    attempts: int = 5
    wait: float = 1.0
    timeout: float = 5.0

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= _MAX_ATTEMPTS:
            raise BadInput(f"attempts={self.attempts} must be between 1 and {_MAX_ATTEMPTS}.")
        if not 0 <= self.wait < math.inf:
            raise BadInput(f"wait={self.wait} must be a number of seconds from 0.")
        if not 0 < self.timeout <= _MAX_TIMEOUT:
            raise BadInput(f"timeout={self.timeout} must be a number of seconds above 0, at most {_MAX_TIMEOUT}.")


class WebhookSender:
    """Sends pending deliveries until it is stopped. A slow receiver does not delay others."""

    def __init__(self, outbox: Outbox, origin: str, patience: Patience) -> None:
        self._outbox, self._origin, self._patience = outbox, origin, patience
        self._stopping = False
        self._lock = threading.Lock()  # to avoid deadlocks, never take the database lock while holding this one
        self._workers: dict[str, _HookWorker] = {}

    def start(self) -> None:
        """Start sending, first the deliveries that are pending from an earlier run."""
        self._outbox.wake = self._wake
        for hook in self._outbox.hooks:
            self._wake(hook)

    def stop(self) -> None:
        """Stop, and abort attempts in progress without counting them."""
        with self._lock:
            self._stopping = True
            workers = list(self._workers.values())
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()

    def _wake(self, hook: str) -> None:
        with self._lock:
            if self._stopping:
                return
            self._workers = {id: worker for id, worker in self._workers.items() if worker.is_alive()}
            if hook not in self._workers:
                self._workers[hook] = _HookWorker(hook, self._outbox, self._origin, self._patience)
                self._workers[hook].start()
            self._workers[hook].wakeup.set()


class _HookWorker(threading.Thread):
    """Sends the deliveries of one hook in order until the hook is removed."""

    def __init__(self, hook: str, outbox: Outbox, origin: str, patience: Patience) -> None:
        super().__init__(name="buildframe webhook", daemon=True)
        self._hook, self._outbox, self._origin, self._patience = hook, outbox, origin, patience
        self.wakeup = threading.Event()
        """Set when there may be a new delivery, or when the hook was removed."""
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._connection: http.client.HTTPConnection | None = None

    def stop(self) -> None:
        """Request the end of the thread."""
        self._stopping.set()
        self.wakeup.set()
        with self._lock:
            if self._connection is not None and self._connection.sock is not None:
                with contextlib.suppress(OSError):
                    self._connection.sock.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        """Send deliveries until the hook is removed or the sandbox stops."""
        while True:
            self.wakeup.clear()  # before reading the outbox, so that no later delivery is missed
            if self._stopping.is_set() or self._hook not in self._outbox.hooks:
                return
            try:
                self._send_or_wait()
            except sqlite3.Error:  # such as a full disk: deliveries stay stored, so try again later
                self._stopping.wait(self._patience.wait)

    def _send_or_wait(self) -> None:
        delivery, now = self._outbox.find_next_pending(self._hook), time.time()
        if delivery is None:
            self.wakeup.wait()
        elif delivery.due > now:
            self.wakeup.wait(min(delivery.due - now, _MAX_WAIT))
        else:
            self._deliver(delivery)

    def _deliver(self, delivery: PendingDelivery) -> None:
        status, failure, again = None, None, None
        try:
            status = self._post(delivery)
            if not 200 <= status < 300:
                failure = f"status {status}"
        except (OSError, http.client.HTTPException) as why:
            if self._stopping.is_set():
                return
            failure = f"{type(why).__name__}: {why}"
        if failure is not None and delivery.attempts + 1 < self._patience.attempts:
            again = time.time() + self._patience.wait * 2**delivery.attempts
        self._outbox.record_attempt(delivery, status, failure, again)

    def _post(self, delivery: PendingDelivery) -> int:
        """Send a delivery and return the status; does not follow redirects or use proxies."""
        parts = urlsplit(delivery.hook.url)
        assert parts.hostname is not None
        connection_class = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        connection = connection_class(parts.hostname, parts.port, timeout=self._patience.timeout)
        with contextlib.closing(connection):
            connection.connect()
            with self._lock:
                self._connection = connection
            if self._stopping.is_set():
                raise ConnectionAbortedError("the sandbox is stopping")
            body = delivery.body.replace(ORIGIN.encode(), self._origin.encode())
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", target, body, _headers(delivery, body))
            return connection.getresponse().status


def _headers(delivery: PendingDelivery, body: bytes) -> dict[str, str]:
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "buildframe-sandbox",
        "X-Buildkite-Event": delivery.event,
        "X-Service-Delivery": delivery.id,
    }
    if not delivery.hook.signed:
        return headers | {"X-Service-Token": delivery.hook.token}
    timestamp = str(int(time.time()))
    message = timestamp.encode() + b"." + body
    signature = hmac.new(delivery.hook.token.encode(), message, hashlib.sha256).hexdigest()
    return headers | {"X-Buildkite-Signature": f"timestamp={timestamp},signature={signature}"}
