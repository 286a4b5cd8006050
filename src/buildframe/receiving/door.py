"""The HTTP side: each delivery is verified, read and answered; what it tells goes to the inbox."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import socket
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from buildframe import webhooks
from buildframe.errors import BadInput, Malformed, Unverified
from buildframe.receiving.inbox import Inbox
from buildframe.secret import Secret
from buildframe.webhooks import Event, HeaderNames

if TYPE_CHECKING:
    import uvicorn

LARGEST = 1_000_000
"""Bytes of a delivery: some hundred times those of a usual one."""

AT_ONCE = 200
"""Deliveries that are read: each may hold as many bytes as the largest has before it is verified."""

PATIENCE = 10.0
"""Seconds within which a whole request must arrive, headers and body."""

CONNECTIONS = 800
"""Open connections in all: fewer than the 1,024 files that a process may usually open."""

DEADLINE = "buildframe.deadline"
"""An extension in an application's scope: the time of the event loop by which the request must have arrived."""

_HOUR = 3600.0
_EVER = dt.timedelta(days=36_500)
_LOG = logging.getLogger("buildframe")

_MORE = {503: {"Retry-After": "30"}, 408: {"Connection": "close"}}
"""Headers of some answers, by status."""


class Door:
    """Deliveries at `/`, and how it stands at `/health`."""

    def __init__(self, inbox: Inbox, secrets: Sequence[str], names: HeaderNames) -> None:
        if isinstance(secrets, str) or not secrets:
            raise BadInput("Pass a list of the webhook's tokens; one, or the old and the new one.")
        self._inbox, self._secrets, self._names = inbox, tuple(map(Secret, secrets)), names
        self._refused: Counter[int] = Counter()
        self._reading: dict[asyncio.Timeout, None] = {}
        self._checks_again = 0.0
        self._is_genuine([], b"")  # refuses what cannot be a secret

    def application(self) -> Starlette:
        """What an ASGI server serves."""
        routes = [Route("/", self._deliver, methods=["POST"]), Route("/health", self._health, methods=["GET"])]
        application = Starlette(routes=routes, lifespan=self._life)
        application.state.told = self._inbox.told
        application.state.refused = self._refused
        return application

    @asynccontextmanager
    async def _life(self, _: Starlette) -> AsyncIterator[None]:
        self._inbox.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._inbox.close)

    async def _deliver(self, request: Request) -> Response:
        """What is not foreseen ends here: the frames of the server hold the headers, and with them the token."""
        try:
            return await self._answer(request)
        except asyncio.CancelledError:  # the server ends
            return self._refuse(503, "The receiver is being stopped; send it again.")
        except Exception as why:
            _LOG.error("A delivery is refused: %s", described(why))
        return self._refuse(500, "The delivery could not be taken; the log says where.")

    async def _answer(self, request: Request) -> Response:
        """The body that has taken longest gives way to a new one, so that slow clients cannot keep others out."""
        if len(self._reading) >= AT_ONCE:
            self._give_up_oldest()
        deadline = _deadline(request)
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                self._reading[limit] = None
                body = await _body(request)
        except TimeoutError:
            if limit.when() != deadline:
                return self._refuse(503, "Too many deliveries come at once; send it again later.")
            return self._refuse(408, f"Not all of it came within {PATIENCE:g} s; send it again.")
        except ClientDisconnect:
            return Response(status_code=400)  # which nobody reads
        finally:
            self._reading.pop(limit, None)
        if body is None:
            return self._refuse(413, f"A delivery has at most {LARGEST:,} bytes.")
        return await self._take(request.headers.raw, body)

    def _give_up_oldest(self) -> None:
        oldest = next((limit for limit in self._reading if not limit.expired()), None)
        if oldest is not None:
            del self._reading[oldest]
            oldest.reschedule(0)

    async def _take(self, headers: list[tuple[bytes, bytes]], body: bytes) -> Response:
        try:
            event = self._read(headers, body)
        except Unverified as why:
            return self._refuse(401, str(why))
        except Malformed as why:
            return self._refuse(400, str(why))
        if event.build is not None and (why_not := await asyncio.wrap_future(self._inbox.put(event))):
            return self._refuse(503, why_not)
        return Response(status_code=204)

    def _read(self, headers: list[tuple[bytes, bytes]], body: bytes) -> Event:
        if not self._is_genuine(headers, body):
            self._check_clock(headers, body)
            raise Unverified("Neither its signature nor its token is that of this webhook, or it is too old.")
        received_at = webhooks.signed_at(headers, names=self._names)
        return webhooks.parse(body, headers, received_at=received_at, names=self._names)

    def _check_clock(self, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Log, once an hour, that a genuine delivery was signed long before or after the time of this machine."""
        now = time.monotonic()
        if now < self._checks_again or not self._is_genuine(headers, body, _EVER):
            return
        signed_at = webhooks.signed_at(headers, names=self._names)
        ahead = 0.0 if signed_at is None else signed_at.timestamp() - time.time()
        if abs(ahead) > _HOUR:
            self._checks_again = now + _HOUR
            side = "after" if ahead > 0 else "before"
            _LOG.warning(
                "A delivery is refused: it was signed %.0f hours %s the time of this machine. Synchronize the clock of "
                "this machine, unless somebody replays deliveries.",
                abs(ahead) / _HOUR,
                side,
            )

    def _is_genuine(
        self, headers: list[tuple[bytes, bytes]], body: bytes, max_age: dt.timedelta = webhooks.FIVE_MINUTES
    ) -> bool:
        for secret in self._secrets:
            try:
                webhooks.verify(headers, body, secret.reveal(), max_age=max_age, names=self._names)
            except Unverified:
                continue
            return True
        return False

    def _refuse(self, status: int, why: str) -> Response:
        self._refused[status] += 1
        return PlainTextResponse(why, status, _MORE.get(status))

    async def _health(self, _: Request) -> Response:
        """503 where the last batch or delivery could not be written, which the log explains."""
        told = self._inbox.told()
        refused = {str(status): count for status, count in sorted(self._refused.items())}
        is_failing = told["failures"] or told["disk_failures"]
        return JSONResponse({**told, "refused": refused}, 503 if is_failing else 200)


def described(error: BaseException) -> str:
    """Type and place of an error; its text and its frames may hold a token."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"


def _deadline(request: Request) -> float:
    """By when the request must have arrived; servers other than `serve` do not say when it began."""
    extensions: dict[str, float] = request.scope.get("extensions") or {}
    return extensions.get(DEADLINE, asyncio.get_running_loop().time() + PATIENCE)


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


def serve(application: Starlette, door: socket.socket, per_peer: int) -> int:
    """Serve on a socket that is bound, until a signal ends it; what waits is written then.

    How many deliveries are not in the store. `per_peer` is the most connections that one address may have.
    """
    with suppress(KeyboardInterrupt):
        server(application, per_peer).run(sockets=[door])
    told = application.state.told()
    return int(told["lost"] + told["waiting"])


def server(application: Starlette, per_peer: int) -> uvicorn.Server:
    """Return a server whose connections are bounded."""
    import uvicorn

    from buildframe.receiving.connections import Connection, Peers

    protocol: Any = partial(Connection, Peers(application.state.refused, per_peer))
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
