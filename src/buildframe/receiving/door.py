"""The HTTP side: each delivery is verified, read and answered; what it tells goes to the inbox."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

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

AT_ONCE = 200
"""Deliveries that are read: each may hold as many bytes as the largest has before it is verified."""

PATIENCE = 10.0
"""Seconds in which all of a delivery must have come."""

_CONNECTIONS = 800
"""Beyond these the server itself refuses, uncounted: fewer than the 1,024 files that a process may usually open."""

_MORE = {503: {"Retry-After": "30"}, 408: {"Connection": "close"}}
"""Headers of some answers, by status."""


class Door:
    """Deliveries at `/`, and how it stands at `/health`."""

    def __init__(self, inbox: Inbox, secrets: Sequence[str], names: HeaderNames) -> None:
        if isinstance(secrets, str) or not secrets:
            raise BadInput("Pass a list of the webhook's tokens; one, or the old and the new one.")
        self._inbox, self._secrets, self._names = inbox, tuple(secrets), names
        self._refused: Counter[int] = Counter()
        self._reading = 0
        self._is_genuine([], b"")  # refuses what cannot be a secret

    def application(self) -> Starlette:
        """What an ASGI server serves."""
        routes = [Route("/", self._deliver, methods=["POST"]), Route("/health", self._health, methods=["GET"])]
        application = Starlette(routes=routes, lifespan=self._life)
        application.state.told = self._inbox.told
        return application

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        self._inbox.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._inbox.close)

    async def _deliver(self, request: Request) -> Response:
        if self._reading >= AT_ONCE:
            return self._refuse(503, "Too many deliveries come at once; send it again later.")
        self._reading += 1
        try:
            return await self._answer(request)
        finally:
            self._reading -= 1

    async def _answer(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(PATIENCE):
                body = await _body(request)
        except TimeoutError:
            return self._refuse(408, f"Not all of it came within {PATIENCE:g} s; send it again.")
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        if body is None:
            return self._refuse(413, f"A delivery has at most {LARGEST:,} bytes.")
        return self._take(request.headers.raw, body)

    def _take(self, headers: list[tuple[bytes, bytes]], body: bytes) -> Response:
        try:
            event = self._read(headers, body)
        except Unverified as why:
            return self._refuse(401, str(why))
        except Malformed as why:
            return self._refuse(400, str(why))
        if event.build is not None and not self._inbox.put(event):
            return self._refuse(503, "Too much waits to be written; send it again later.")
        return Response(status_code=204)

    def _read(self, headers: list[tuple[bytes, bytes]], body: bytes) -> Event:
        if not self._is_genuine(headers, body):
            raise Unverified("Neither its signature nor its token is that of this webhook, or it is too old.")
        received_at = webhooks.signed_at(headers, names=self._names)
        return webhooks.parse(body, headers, received_at=received_at, names=self._names)

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
        return PlainTextResponse(why, status, _MORE.get(status))

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
    async for part in request.stream():
        body += part
        if len(body) > LARGEST:
            return None
    return bytes(body)


def serve(application: Starlette, door: socket.socket) -> int:
    """Serve on a socket that is bound, until a signal ends it; what waits is written then.

    How many deliveries were lost to the store.
    """
    with suppress(KeyboardInterrupt):
        import uvicorn

        config = uvicorn.Config(
            application,
            loop="asyncio",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS,
            timeout_graceful_shutdown=5,
        )
        uvicorn.Server(config).run(sockets=[door])
    return int(application.state.told()["lost"])
