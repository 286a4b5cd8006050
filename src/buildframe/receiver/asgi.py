"""Handle HTTP requests of a receiver: verify and parse deliveries, pass them to the inbox. Does not know stores."""

from __future__ import annotations

import asyncio
import datetime as dt
import logging
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from buildframe import webhooks
from buildframe.errors import BadInput, Malformed, Unverified
from buildframe.guards.secrets import Secret
from buildframe.receiver.store_writer import StoreWriter
from buildframe.webhooks import HeaderNames

MAX_BODY_BYTES = 1_000_000  # about a hundred times the size of a typical delivery
REQUEST_TIMEOUT_S = 10.0  # time in which the headers, and then the body of a request must arrive

RawHeaders = list[tuple[bytes, bytes]]

_HOUR = 3600.0
_UNLIMITED = dt.timedelta(days=36_500)
_LOG = logging.getLogger("buildframe")
_RESPONSE_HEADERS = {503: {"Retry-After": "30"}, 408: {"Connection": "close"}}


class ReceiverApp(Starlette):
    """
    ASGI application that serves deliveries at `/` and counts at `/health`.

    Parameters
    ----------
    writer : StoreWriter
        What accepts events.
    secrets : sequence of str
        Tokens of the webhook.
    names : HeaderNames
        Names of the headers.
    """

    def __init__(self, writer: StoreWriter, secrets: Sequence[str], names: HeaderNames) -> None:
        if isinstance(secrets, str) or not secrets:
            raise BadInput(
                "secrets is not a list of tokens. Pass the token of the webhook in a list, or the old and the new one."
            )
        self._writer, self._secrets, self._names = writer, tuple(map(Secret, secrets)), names
        self._refused: Counter[int] = Counter()
        self._next_clock_check = 0.0
        self._is_genuine([], b"")  # raises BadInput for an invalid token
        routes = [Route("/", self._deliver, methods=["POST"]), Route("/health", self._health, methods=["GET"])]
        super().__init__(routes=routes, lifespan=ReceiverApp._run_writer)
        self.state.status = writer.status

    @asynccontextmanager
    async def _run_writer(self) -> AsyncIterator[None]:
        self._writer.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._writer.close)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Catch all errors of requests: tracebacks of the server would contain the headers with the token."""
        if scope["type"] != "http":
            return await super().__call__(scope, receive, send)
        try:
            await super().__call__(scope, receive, send)
        except asyncio.CancelledError:  # the server stops while the client does not read
            return None
        except Exception as why:
            _LOG.error("A request failed: %s", describe_error(why))

    async def _deliver(self, request: Request) -> Response:
        """Handle a delivery. Catch all errors: tracebacks of the server would contain the headers with the token."""
        try:
            return await self._handle(request)
        except asyncio.CancelledError:  # the server stops
            return self._refuse(503, "The receiver is stopping. Send the delivery again.")
        except Exception as why:
            _LOG.error("A delivery was refused: %s", describe_error(why))
        return self._refuse(500, "The delivery could not be processed. See the log of the receiver.")

    async def _handle(self, request: Request) -> Response:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                body = await _body(request)
        except TimeoutError:
            return self._refuse(408, f"The delivery did not arrive within {REQUEST_TIMEOUT_S:g} s. Send it again.")
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone
        if body is None:
            return self._refuse(413, f"The delivery is larger than {MAX_BODY_BYTES:,} bytes.")
        return await self._accept(request.headers.raw, body)

    async def _accept(self, headers: RawHeaders, body: bytes) -> Response:
        try:
            if not self._is_genuine(headers, body):
                self._check_clock(headers, body)
                reason = "The signature or token does not match this webhook, or the signature is too old."
                return self._refuse(401, reason)
            received_at = webhooks.signed_at(headers, names=self._names)
            event = webhooks.parse(body, headers, received_at=received_at, names=self._names)
        except Unverified as why:
            return self._refuse(401, str(why))
        except Malformed as why:
            return self._refuse(400, str(why))
        if event.build is not None and (refusal := await asyncio.wrap_future(self._writer.put(event))):
            return self._refuse(503, refusal)
        return Response(status_code=204)

    def _check_clock(self, headers: RawHeaders, body: bytes) -> None:
        """Log at most once an hour that a valid signature differs from this machine's clock by over an hour."""
        now = time.monotonic()
        if now < self._next_clock_check or not self._is_genuine(headers, body, _UNLIMITED):
            return
        signed_at = webhooks.signed_at(headers, names=self._names)
        ahead = 0.0 if signed_at is None else signed_at.timestamp() - time.time()
        if abs(ahead) > _HOUR:
            self._next_clock_check = now + _HOUR
            side = "after" if ahead > 0 else "before"
            _LOG.warning(
                "A delivery was refused: it was signed %.0f hours %s the time of this machine. Synchronize the clock "
                "of this machine, unless deliveries are replayed.",
                abs(ahead) / _HOUR,
                side,
            )

    def _is_genuine(self, headers: RawHeaders, body: bytes, max_age: dt.timedelta = webhooks.MAX_AGE) -> bool:
        for secret in self._secrets:
            try:
                webhooks.verify(headers, body, secret.reveal(), max_age=max_age, names=self._names)
            except Unverified:
                continue
            return True
        return False

    def _refuse(self, status: int, why: str) -> Response:
        self._refused[status] += 1
        return PlainTextResponse(why, status, _RESPONSE_HEADERS.get(status))

    async def _health(self, _: Request) -> Response:
        """Return the counts. The status is 503 if the last batch or delivery could not be written; see the log."""
        status = await asyncio.to_thread(self._writer.status)
        refused = {str(code): count for code, count in sorted(self._refused.items())}
        is_failing = status["failures"] or status["disk_failures"]
        return JSONResponse({**status, "refused": refused}, 503 if is_failing else 200)


def describe_error(error: BaseException) -> str:
    """Return type and location of an error. Its message and frames may contain a token."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"


async def _body(request: Request) -> bytes | None:
    """Return the body, or None as soon as it is too large."""
    length = request.headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > MAX_BODY_BYTES:
        return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MAX_BODY_BYTES:
            return None
    return bytes(body)
