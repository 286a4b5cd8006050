"""Run the receiver's application on a socket, with bounded connections."""

from __future__ import annotations

import socket
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette

from buildframe.receiver.connections import Connection, ConnectionLimiter

if TYPE_CHECKING:
    import uvicorn


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
    import uvicorn

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
