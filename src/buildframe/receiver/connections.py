"""Serve a receiver with limited HTTP connections: their number, in total and per address, and the time of a request.

Extends the HTTP protocol of uvicorn, which has no timeout for headers. Does not know deliveries.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from contextlib import suppress
from functools import partial
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from buildframe.errors import BadInput
from buildframe.receiver import asgi

_LOG = logging.getLogger("buildframe")
_TEXTS = {408: b"Request Timeout", 503: b"Service Unavailable"}


def serve(application: Starlette, listener: socket.socket, per_peer: int) -> int:
    """
    Serve until a signal stops the process. Then write the deliveries that wait.

    Parameters
    ----------
    application : Starlette
        Application of a receiver.
    listener : socket.socket
        Bound socket.
    per_peer : int
        Maximum connections per client address.

    Returns
    -------
    int
        Number of acknowledged deliveries that are not in the store.
    """
    with suppress(KeyboardInterrupt):
        server(application, per_peer).run(sockets=[listener])
    status = application.state.status()
    return int(status["lost"] + status["waiting"])


def server(application: Starlette, per_peer: int) -> uvicorn.Server:
    """Return a server with limits for connections."""
    protocol: Any = partial(Connection, ConnectionLimiter(application.state.refused, per_peer))
    config = uvicorn.Config(
        application,
        loop="asyncio",
        http=protocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


class ConnectionLimiter:
    """
    Track the open connections by client address.

    At the limit per address, a new connection replaces the idle connection of that address that has waited longest. At
    the total limit, it replaces one of the address with most connections. Idle clients cannot block others.

    Parameters
    ----------
    refused : Counter
        Counts of refused connections by status, which are incremented.
    per_peer : int
        Maximum connections per address.
    """

    def __init__(self, refused: Counter[int], per_peer: int) -> None:
        if not 0 < per_peer <= asgi.MAX_CONNECTIONS:
            raise BadInput(f"per_peer={per_peer} is not a number of connections. Use 1 to {asgi.MAX_CONNECTIONS}.")
        self._refused, self._per_peer = refused, per_peer
        self._open: dict[str, set[Connection]] = {}

    def add(self, new: Connection) -> None:
        """Add a connection, or refuse it if all others are processing requests."""
        own = self._open.get(new.peer, set())
        is_full = sum(map(len, self._open.values())) >= asgi.MAX_CONNECTIONS
        if len(own) >= self._per_peer:
            is_admitted = self._close_idle(own)
        else:
            is_admitted = not is_full or self._close_idle(max(self._open.values(), key=len))
        if is_admitted:
            self._open.setdefault(new.peer, set()).add(new)
        else:
            self.close(new, 503)

    def discard(self, old: Connection) -> None:
        """Remove a connection that is closed."""
        own = self._open.get(old.peer, set())
        own.discard(old)
        if not own:
            self._open.pop(old.peer, None)

    def close(self, old: Connection, status: int) -> None:
        """Close a connection with this status."""
        self.discard(old)
        self._refused[status] += old.close(status)

    def _close_idle(self, own: set[Connection]) -> bool:
        idle = [one for one in own if one.is_waiting]
        if idle:
            self.close(min(idle, key=lambda one: one.since), 408)
        return bool(idle)


class Connection(H11Protocol):
    """Handle a connection, and close it if a request does not arrive in time."""

    def __init__(self, limiter: ConnectionLimiter, **settings: Any) -> None:
        super().__init__(**settings)
        self._limiter = limiter
        self._timer: asyncio.TimerHandle | None = None
        self._application: Any = self.app
        self.app = self._handle
        self.since = 0.0

    @property
    def peer(self) -> str:
        """Address of the client."""
        return self.client[0] if self.client else ""

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being processed."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._start_timer()
        self._limiter.add(self)

    def data_received(self, data: bytes) -> None:
        if self._timer is None and self.is_waiting:
            self._start_timer()
        super().data_received(data)
        if not self.is_waiting:
            self._stop_timer()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        self._limiter.discard(self)
        super().connection_lost(exc)

    def close(self, status: int) -> bool:
        """
        Close the connection, and return whether a response was sent.

        No response is sent after the first request: a proxy would assign it to its next request.
        """
        self._stop_timer()
        is_first = self.cycle is None
        if is_first:
            head = b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: 0\r\n" % (status, _TEXTS[status])
            self.transport.write(head + (b"Retry-After: 30\r\n\r\n" if status == 503 else b"\r\n"))
        self.transport.close()
        return is_first

    def _start_timer(self) -> None:
        self.since = self.loop.time()
        self._timer = self.loop.call_at(self.since + asgi.REQUEST_TIMEOUT_S, self._limiter.close, self, 408)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request. Catch all errors: uvicorn would log tracebacks whose frames contain the headers."""
        scope["extensions"] = {asgi.DEADLINE_KEY: self.since + asgi.REQUEST_TIMEOUT_S}
        try:
            await self._application(scope, receive, send)
        except asyncio.CancelledError:  # the server stops while the client does not read
            self.transport.abort()
        except BaseException as why:
            _LOG.error("A request failed: %s", asgi.describe_error(why))
