"""Bound the HTTP connections of a receiver: in number, per address and in all, and in the time that a request may take.

Extends uvicorn's HTTP protocol, which has no time limit for headers. Does not know deliveries.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import Any

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from buildframe.errors import BadInput
from buildframe.receiving import door

_LOG = logging.getLogger("buildframe")
_TEXTS = {408: b"Request Timeout", 503: b"Service Unavailable"}


class Peers:
    """The open connections by address.

    At a limit a new connection replaces the one that has waited longest for its request, of the same address or, at
    the limit of all, of the address with most connections. So clients that send nothing cannot keep others out.
    """

    def __init__(self, refused: Counter[int], per_peer: int) -> None:
        if not 0 < per_peer <= door.CONNECTIONS:
            raise BadInput(f"per_peer={per_peer}: pass a number of connections from 1 to {door.CONNECTIONS}.")
        self._refused, self._per_peer = refused, per_peer
        self._open: dict[str, set[Connection]] = {}

    def add(self, new: Connection) -> None:
        """Admit a connection, or refuse it if requests of all others are being answered."""
        own = self._open.get(new.peer, set())
        is_full = sum(map(len, self._open.values())) >= door.CONNECTIONS
        if len(own) >= self._per_peer:
            is_admitted = self._make_room(own)
        else:
            is_admitted = not is_full or self._make_room(max(self._open.values(), key=len))
        if is_admitted:
            self._open.setdefault(new.peer, set()).add(new)
        else:
            self.close(new, 503)

    def discard(self, old: Connection) -> None:
        """Forget a connection."""
        own = self._open.get(old.peer, set())
        own.discard(old)
        if not own:
            self._open.pop(old.peer, None)

    def close(self, old: Connection, status: int) -> None:
        """Close a connection with this response."""
        self.discard(old)
        self._refused[status] += old.close(status)

    def _make_room(self, own: set[Connection]) -> bool:
        waiting = [one for one in own if one.is_waiting]
        if waiting:
            self.close(min(waiting, key=lambda one: one.since), 408)
        return bool(waiting)


class Connection(H11Protocol):
    """A connection that is closed when a request has not arrived in time."""

    def __init__(self, peers: Peers, **settings: Any) -> None:
        super().__init__(**settings)
        self._peers = peers
        self._timer: asyncio.TimerHandle | None = None
        self._application: Any = self.app
        self.app = self._answer
        self.since = 0.0

    @property
    def peer(self) -> str:
        """The address of the client."""
        return self.client[0] if self.client else ""

    @property
    def is_waiting(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._start()
        self._peers.add(self)

    def data_received(self, data: bytes) -> None:
        if self._timer is None and self.is_waiting:
            self._start()
        super().data_received(data)
        if not self.is_waiting:
            self._stop()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.since = self.loop.time()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._peers.discard(self)
        super().connection_lost(exc)

    def close(self, status: int) -> bool:
        """Close it, and return whether it was refused with a response.

        After a first request none is sent: a proxy would take it for the response to its next request.
        """
        self._stop()
        is_first = self.cycle is None
        if is_first:
            head = b"HTTP/1.1 %d %s\r\nConnection: close\r\nContent-Length: 0\r\n" % (status, _TEXTS[status])
            self.transport.write(head + (b"Retry-After: 30\r\n\r\n" if status == 503 else b"\r\n"))
        self.transport.close()
        return is_first

    def _start(self) -> None:
        self.since = self.loop.time()
        self._timer = self.loop.call_at(self.since + door.PATIENCE, self._peers.close, self, 408)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond to a request. Errors end here: uvicorn would log them with frames that hold the headers."""
        scope["extensions"] = {door.DEADLINE: self.since + door.PATIENCE}
        try:
            await self._application(scope, receive, send)
        except asyncio.CancelledError:  # the server ends, and the client does not read
            self.transport.abort()
        except BaseException as why:
            _LOG.error("A request has failed: %s", door.described(why))
