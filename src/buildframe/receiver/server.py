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
MAX_HEADER_BYTES = 32_768


def serve(application: Starlette, listener: socket.socket) -> int:
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
    int
        Number of acknowledged deliveries that are not in the store.
    """
    with suppress(KeyboardInterrupt):
        server(application).run(sockets=[listener])
    status = application.state.status()
    return int(status["lost"] + (status["waiting"] or 0))


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
        h11_max_incomplete_event_size=MAX_HEADER_BYTES,
        timeout_graceful_shutdown=5,
    )
    return uvicorn.Server(config)


class Connection(H11Protocol):
    """Handle a connection, and close it if the headers of a request are late: uvicorn has no such limit."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        if self._timer is None and self._is_waiting:
            self._start_timer()
        super().data_received(data)
        if not self._is_waiting:
            self._stop_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def _is_waiting(self) -> bool:
        """Whether no request is being processed."""
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(asgi.REQUEST_TIMEOUT_S, self.transport.close)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
