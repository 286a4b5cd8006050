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

from buildframe import webhooks
from buildframe.errors import BadInput, Malformed, Unverified
from buildframe.guards.secrets import Secret
from buildframe.receiver.inbox import Inbox
from buildframe.webhooks import HeaderNames

MAX_BODY_BYTES = 1_000_000  # about a hundred times the size of a typical delivery
MAX_CONCURRENT_BODIES = 200  # each may use MAX_BODY_BYTES of memory before it is verified
REQUEST_TIMEOUT_S = 10.0  # time in which a whole request must arrive, headers and body
MAX_CONNECTIONS = 800  # in total; processes may usually open 1,024 files

DEADLINE_KEY = "buildframe.deadline"
"""Key of the ASGI scope extension that contains the event loop time by which a request must have arrived."""

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
    inbox : Inbox
        Queue that accepts events.
    secrets : sequence of str
        Tokens of the webhook.
    names : HeaderNames
        Names of the headers.
    """

    def __init__(self, inbox: Inbox, secrets: Sequence[str], names: HeaderNames) -> None:
        if isinstance(secrets, str) or not secrets:
            raise BadInput(
                "secrets is not a list of tokens. Pass the token of the webhook in a list, or the old and the new one."
            )
        self._inbox, self._secrets, self._names = inbox, tuple(map(Secret, secrets)), names
        self._refused: Counter[int] = Counter()
        self._reading: dict[asyncio.Timeout, None] = {}
        self._next_clock_check = 0.0
        self._is_genuine([], b"")  # raises BadInput for an invalid token
        routes = [Route("/", self._deliver, methods=["POST"]), Route("/health", self._health, methods=["GET"])]
        super().__init__(routes=routes, lifespan=ReceiverApp._run_inbox)
        self.state.status, self.state.refused = inbox.status, self._refused

    @asynccontextmanager
    async def _run_inbox(self) -> AsyncIterator[None]:
        self._inbox.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._inbox.close)

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
        """Read and process a delivery. At the limit, drop the oldest body: slow clients must not block others."""
        if len(self._reading) >= MAX_CONCURRENT_BODIES:
            self._cancel_oldest()
        deadline = _deadline(request)
        limit = asyncio.timeout_at(deadline)
        try:
            async with limit:
                self._reading[limit] = None
                body = await _body(request)
        except TimeoutError:
            if limit.when() != deadline:
                return self._refuse(503, "Too many concurrent deliveries. Send it again later.")
            return self._refuse(408, f"The request did not arrive within {REQUEST_TIMEOUT_S:g} s. Send it again.")
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone
        finally:
            self._reading.pop(limit, None)
        if body is None:
            return self._refuse(413, f"The delivery is larger than {MAX_BODY_BYTES:,} bytes.")
        return await self._accept(request.headers.raw, body)

    def _cancel_oldest(self) -> None:
        oldest = next((limit for limit in self._reading if not limit.expired()), None)
        if oldest is not None:
            del self._reading[oldest]
            oldest.reschedule(0)

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
        if event.build is not None and (refusal := await asyncio.wrap_future(self._inbox.put(event))):
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
        status = self._inbox.status()
        refused = {str(code): count for code, count in sorted(self._refused.items())}
        is_failing = status["failures"] or status["disk_failures"]
        return JSONResponse({**status, "refused": refused}, 503 if is_failing else 200)


def describe_error(error: BaseException) -> str:
    """Return type and location of an error. Its message and frames may contain a token."""
    at = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__} at {Path(at.filename).name}:{at.lineno}"


def _deadline(request: Request) -> float:
    """Return the event loop time by which the request must have arrived. Only `serve` sets it from the start."""
    extensions: dict[str, float] = request.scope.get("extensions") or {}
    return extensions.get(DEADLINE_KEY, asyncio.get_running_loop().time() + REQUEST_TIMEOUT_S)


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
