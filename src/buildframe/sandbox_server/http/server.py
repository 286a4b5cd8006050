"""Assemble the HTTP server of a sandbox, and run it in a thread, on a socket that is bound first."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from buildframe.errors import BadInput
from buildframe.guards.forks import reset_in_children
from buildframe.sandbox_server.http.app import ServiceApp
from buildframe.sandbox_server.http.control_api import ControlApp
from buildframe.sandbox_server.http.fault_injection import CLOSE_CONNECTION
from buildframe.sandbox_server.http.faults import FaultInjector
from buildframe.sandbox_server.http.host_check import HostCheck
from buildframe.sandbox_server.http.rate_limit import Quota, RequestCounter
from buildframe.sandbox_server.simulation.clock import Clock
from buildframe.sandbox_server.simulation.simulator import Simulator

_STARTS_WITHIN = 15.0
_STOPS_WITHIN = 10.0


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket; port 0 chooses a free port."""
    if not 0 <= port <= 65535:
        raise BadInput(f"port={port} must be between 1 and 65535, or 0 for a free port.")
    if not host:  # which would listen on all addresses
        raise BadInput("host='' is not an address of this machine. Use '127.0.0.1', or '0.0.0.0' for all addresses.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # asyncio then sets TCP_NODELAY
    try:
        if os.name == "posix":  # on Windows, two servers could then have one port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except (OSError, TypeError, UnicodeError) as why:  # TypeError, UnicodeError: not a host name
        listener.close()
        is_host_unknown = isinstance(why, socket.gaierror) or getattr(why, "errno", None) == errno.EADDRNOTAVAIL
        if isinstance(why, OSError) and not is_host_unknown:
            raise
        raise BadInput(
            f"host={host!r} is not an address of this machine ({why}). Use '127.0.0.1' or '0.0.0.0'."
        ) from None
    return listener


def format_url(listener: socket.socket) -> str:
    """Return the URL of a bound socket, as seen from this machine."""
    bound, port = listener.getsockname()[:2]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(bound) or str(bound)  # noqa: S104  everywhere includes here
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


class _ClosableProtocol(H11Protocol):
    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._application: Any = self.app
        self.app = self._respond

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["extensions"] = {CLOSE_CONNECTION: self.transport.close}
        await self._application(scope, receive, send)


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.stopping: Future[None] = Future()

    async def main_loop(self) -> None:
        await asyncio.wrap_future(self.stopping)  # uvicorn's own loop looks for the end ten times a second

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for listener in sockets or ():
            with suppress(OSError):  # macOS has no shutdown of a listening socket
                listener.shutdown(socket.SHUT_RDWR)  # it is still open in a child that was forked just now
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        await asyncio.sleep(0)  # idle connections close
        if self.server_state.connections:  # uvicorn waits 100 ms even if there are none
            await super().shutdown(sockets)


class HttpServer:
    """Serves an application until it is stopped."""

    def __init__(self, app: ASGIApp, listener: socket.socket) -> None:
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=_ClosableProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            date_header=False,
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config)
        self._thread = threading.Thread(
            target=self._server.run, kwargs={"sockets": [listener]}, name="buildframe sandbox", daemon=True
        )
        self._listener = listener
        reset_in_children(self)

    def reset_after_fork(self) -> None:
        """Close the socket in a forked child, otherwise clients of a stopped sandbox would hang."""
        self._listener.close()

    def start(self) -> None:
        """Start and wait until requests are served."""
        self._thread.start()
        deadline = time.monotonic() + _STARTS_WITHIN
        while not self._server.started:
            if not self._thread.is_alive() or time.monotonic() > deadline:
                raise RuntimeError("The sandbox's server did not start.")
            time.sleep(0.002)

    def stop(self) -> None:
        """Stop the thread and close the socket."""
        self._server.stopping.set_result(None)
        self._thread.join(_STOPS_WITHIN)
        self._listener.close()


def start_server(
    simulator: Simulator, clock: Clock, faults: FaultInjector, quota: Quota, deepest: int, host: str, port: int
) -> tuple[HttpServer, str]:
    """Start the server of a sandbox: API, faults and control routes. Return it with its URL."""
    listener = bind(host, port)
    url = format_url(listener)
    service = ServiceApp(simulator, RequestCounter(quota), deepest, url)
    control = ControlApp(simulator, clock, faults, url, service)
    server = HttpServer(HostCheck(control.app, host, listener.getsockname()[1]), listener)
    server.start()
    return server, url
