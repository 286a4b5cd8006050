"""Serve a receiver with uvicorn, whose connections close if a request does not come. Does not know deliveries."""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from buildframe.receiver import asgi

MAX_CONNECTIONS = 400  # each may use MAX_BODY_BYTES of memory before its delivery is verified
MAX_SOCKETS = MAX_CONNECTIONS + 100  # further ones are closed; a process may often open 1,024 files
MAX_HEADER_BYTES = 32_768
RESPONSE_TIMEOUT_S = 60.0  # from the last header of a request to the end of its response


def serve(application: Starlette, listener: socket.socket) -> bool:
    """
    Serve until a signal stops the process. Then write the deliveries that wait.

    Parameters
    ----------
    application : Starlette
        Application of a receiver.
    listener : socket.socket
        Bound socket.

    Returns
    -------
    bool
        Whether the receiver did not start, or acknowledged deliveries may not be in the store.
    """
    running = server(application)
    with suppress(KeyboardInterrupt):
        running.run(sockets=[listener])
    status = application.state.status()
    return not running.started or status["waiting"] != 0 or status["lost"] > 0


def server(application: Starlette) -> uvicorn.Server:
    """Return a server with limits for connections."""
    config = uvicorn.Config(
        application,
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        backlog=100,  # asyncio accepts so many at once, and logs as many errors if it cannot
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


class Connection(H11Protocol):
    """Handle a connection, and end it if the headers of a request are late, or the client does not read a response.

    uvicorn has no such limits.
    """

    _timer: asyncio.TimerHandle | None = None
    _is_answering = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        if len(self.connections) > MAX_SOCKETS:
            transport.abort()
        self._limit(asgi.REQUEST_TIMEOUT_S)

    def data_received(self, data: bytes) -> None:
        if self._timer is None:
            self._limit(asgi.REQUEST_TIMEOUT_S)
        super().data_received(data)
        if not self._is_answering and self.cycle is not None and not self.cycle.response_complete:
            self._is_answering = True
            self._limit(RESPONSE_TIMEOUT_S)

    def on_response_complete(self) -> None:
        self._is_answering = False
        self._stop()
        super().on_response_complete()
        if self.cycle is not None and not self.cycle.response_complete:  # the next one of several was there already
            self._is_answering = True
            self._limit(RESPONSE_TIMEOUT_S)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        super().connection_lost(exc)

    def _limit(self, seconds: float) -> None:
        self._stop()
        self._timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
