"""The HTTP side: each delivery is verified, read and answered; what it tells goes to the inbox."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from buildframe import webhooks
from buildframe.errors import BadInput, Malformed, Unverified
from buildframe.receiving.inbox import Inbox
from buildframe.webhooks import Event, HeaderNames

LARGEST = 1_000_000
"""Bytes of a delivery: some hundred times those of a usual one."""

_AT_ONCE = 200
"""Connections that are served: each may hold as many bytes as the largest delivery has before it is verified."""


class Door:
    """Deliveries at `/`, and how it stands at `/health`."""

    def __init__(self, inbox: Inbox, secrets: Sequence[str], names: HeaderNames) -> None:
        if isinstance(secrets, str) or not secrets:
            raise BadInput("Pass a list of the webhook's tokens; one, or the old and the new one.")
        self._inbox, self._secrets, self._names = inbox, tuple(secrets), names
        self._refused: Counter[int] = Counter()
        self._is_genuine([], b"")  # refuses what cannot be a secret

    def application(self) -> Starlette:
        """What an ASGI server serves."""
        routes = [Route("/", self._deliver, methods=["POST"]), Route("/health", self._health, methods=["GET"])]
        return Starlette(routes=routes, lifespan=self._life)

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        self._inbox.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._inbox.close)

    async def _deliver(self, request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return self._refuse(413, f"A delivery has at most {LARGEST:,} bytes.")
        try:
            event = self._read(request.headers.raw, body)
        except Unverified as why:
            return self._refuse(401, str(why))
        except Malformed as why:
            return self._refuse(400, str(why))
        if event.build is not None and not self._inbox.put(event):
            return self._refuse(503, "Too many deliveries wait to be written; send it again later.")
        return Response(status_code=204)

    def _read(self, headers: list[tuple[bytes, bytes]], body: bytes) -> Event:
        if not self._is_genuine(headers, body):
            raise Unverified("Neither its signature nor its token is that of this webhook, or it is too old.")
        return webhooks.parse(body, headers, names=self._names)

    def _is_genuine(self, headers: list[tuple[bytes, bytes]], body: bytes) -> bool:
        for secret in self._secrets:
            try:
                webhooks.verify(headers, body, secret, names=self._names)
            except Unverified:
                continue
            return True
        return False

    def _refuse(self, status: int, why: str) -> Response:
        self._refused[status] += 1
        return PlainTextResponse(why, status, {"Retry-After": "30"} if status == 503 else None)

    async def _health(self, _: Request) -> Response:
        """503 where the last batch could not be written, which the log explains."""
        told = self._inbox.told()
        refused = {str(status): count for status, count in sorted(self._refused.items())}
        return JSONResponse({**told, "refused": refused}, 503 if told["failures"] else 200)


async def _body(request: Request) -> bytes | None:
    """The bytes of a delivery; None where they are too many, of which the rest is not read."""
    told = request.headers.get("content-length", "0")
    if not told.isdecimal() or int(told) > LARGEST:
        return None
    body = bytearray()
    try:
        async for part in request.stream():
            body += part
            if len(body) > LARGEST:
                return None
    except ClientDisconnect:
        return b""
    return bytes(body)


def serve(application: Starlette, door: socket.socket) -> None:
    """Serve on a socket that is bound, until a signal ends it; what waits is written then."""
    import uvicorn

    config = uvicorn.Config(
        application,
        loop="asyncio",
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=_AT_ONCE,
        timeout_graceful_shutdown=5,
    )
    uvicorn.Server(config).run(sockets=[door])
