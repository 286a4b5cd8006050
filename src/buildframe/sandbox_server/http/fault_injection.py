"""ASGI middleware that applies faults to requests and responses."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from http.client import responses
from typing import NamedTuple

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from buildframe.sandbox_server import error_responses
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.http import rate_limit
from buildframe.sandbox_server.http.faults import CHANGES, Fault, FaultInjector, WorldChanges, identify_request
from buildframe.sandbox_server.http.server import CLOSE_CONNECTION

_JSON, _HTML = "application/json; charset=utf-8", "text/html; charset=utf-8"
_LIMIT = 200


class BufferedResponse(NamedTuple):
    """A buffered response."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def replacing(self, headers: Mapping[str, str], body: bytes | None = None) -> BufferedResponse:
        """Return a copy with replaced headers and, if passed, another body."""
        body = self.body if body is None else body
        new = {name.lower().encode(): value.encode() for name, value in headers.items()}
        new[b"content-length"] = str(len(body)).encode()
        others = [(name, value) for name, value in self.headers if name.lower() not in new]
        return BufferedResponse(self.status, [*others, *new.items()], body)


class FaultMiddleware:
    """Applies the active faults before and after an application."""

    def __init__(self, app: ASGIApp, faults: FaultInjector, changes: WorldChanges) -> None:
        self._app, self._faults, self._changes = app, faults, changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        target = identify_request(scope["method"], scope["path"])
        drawn = self._faults.draw(target.operation)
        for fault in drawn:
            if fault.kind == "latency":
                await asyncio.sleep(fault.wait)
            elif fault.kind in CHANGES and not await asyncio.to_thread(self._changes.make, fault, target.path):
                self._faults.undo(fault)
        spoils = [fault for fault in drawn if fault.kind not in ("latency", *CHANGES)]
        left = self._faults.refuses_for()
        if left > 0:
            await _send(_limited(left), send)
        elif spoils:
            await self._spoil(spoils[0], scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _spoil(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        if fault.kind == "limited":
            await _send(_limited(fault.wait), send)
        elif fault.kind == "too_deep":
            await _send(_refusal(error_responses.too_deep()), send)
        elif fault.kind == "exhausted":
            await self._exhaust(fault, scope, receive, send)
        else:
            reply = await _discard_request(receive) if fault.before else await self._respond(scope, receive)
            await _send_spoiled(fault, reply, scope, receive, send)

    async def _exhaust(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._respond(scope, receive)
        self._faults.exhaust(fault.wait)
        headers = {"RateLimit-Remaining": "0", "RateLimit-Reset": str(math.ceil(fault.wait))}
        await _send(reply.replacing(headers), send)

    async def _respond(self, scope: Scope, receive: Receive) -> BufferedResponse:
        """Return the response of the application."""
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, keep)
        body = b"".join(message.get("body", b"") for message in sent)
        return BufferedResponse(sent[0]["status"], list(sent[0]["headers"]), body)


async def _discard_request(receive: Receive) -> BufferedResponse:
    """Read a lost request: closing the connection before would reset it."""
    while (await receive()).get("more_body"):
        pass
    return _reply(200, b"{}", _JSON)


async def _send_spoiled(fault: Fault, reply: BufferedResponse, scope: Scope, receive: Receive, send: Send) -> None:
    if fault.kind == "status":
        await _send(_failure(fault), send)
    elif fault.kind == "garbage":
        await _send(_reply(200, b'[{"id": "', _JSON), send)
    else:
        if fault.kind == "cut" and reply.body:
            await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
            half = reply.body[: len(reply.body) // 2]
            await send({"type": "http.response.body", "body": half, "more_body": True})
        await _close_connection(scope, receive)


async def _close_connection(scope: Scope, receive: Receive) -> None:
    scope["extensions"][CLOSE_CONNECTION]()
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send(reply: BufferedResponse, send: Send) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    await send({"type": "http.response.body", "body": reply.body})


def _reply(status: int, body: bytes, kind: str) -> BufferedResponse:
    return BufferedResponse(status, [], body).replacing({"Content-Type": kind})


def _refusal(refused: HttpError) -> BufferedResponse:
    return _reply(refused.status, msgspec.json.encode(refused.body), _JSON)


def _limited(seconds: float) -> BufferedResponse:
    """Return the 429 response of a limit that is reset after a duration."""
    reset = math.ceil(seconds)
    over = rate_limit.LimitStatus("rest", _LIMIT, _LIMIT + 1, reset)
    within = rate_limit.LimitStatus("rest_user", _LIMIT, 1, reset)
    return _refusal(rate_limit.too_many_requests(over)).replacing(rate_limit.headers((over, within)))


def _failure(fault: Fault) -> BufferedResponse:
    phrase = responses.get(fault.status, "Failure")
    if not fault.html:
        return _reply(fault.status, msgspec.json.encode({"message": phrase}), _JSON)
    page = f"<!doctype html><title>{fault.status} {phrase}</title><h1>{fault.status} {phrase}</h1>"
    return _reply(fault.status, page.encode(), _HTML)
