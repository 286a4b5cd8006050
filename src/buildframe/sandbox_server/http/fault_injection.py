"""ASGI middleware that applies faults to requests and responses."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from http.client import responses
from urllib.parse import parse_qsl

import msgspec
from starlette.responses import HTMLResponse, Response
from starlette.routing import compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from buildframe.sandbox_server import error_responses
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.handlers.registry import JSON
from buildframe.sandbox_server.handlers.routes import ROUTES, route_path
from buildframe.sandbox_server.http import rate_limit
from buildframe.sandbox_server.http.faults import CHANGES, SHAPES, Fault, FaultInjector, WorldChanges
from buildframe.sandbox_server.pagination import PAGE_ROWS, parse_page

CLOSE_CONNECTION = "buildframe.close_connection"
"""Key of an ASGI extension: a function that closes the connection after sending."""

_LIMIT = 200
_ROUTES = [(entry, compile_path(route_path(entry))[0]) for entry in ROUTES]


class FaultMiddleware:
    """Applies the active faults before and after an application."""

    def __init__(self, app: ASGIApp, faults: FaultInjector, changes: WorldChanges) -> None:
        self._app, self._faults, self._changes = app, faults, changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        operation, path = _identify_request(scope["method"], scope["path"])
        drawn = self._faults.draw(operation)
        for active in drawn:
            if active.fault.kind == "latency":
                await asyncio.sleep(active.fault.wait)
            elif active.fault.kind in CHANGES and not await asyncio.to_thread(self._changes.apply, active.fault, path):
                active.happened -= 1  # there was nothing to change
        rows = parse_page(parse_qsl(scope["query_string"].decode("latin-1"))).size
        faults = []
        for active in drawn:
            if active.fault.kind == "overloaded" and rows <= active.fault.n:
                active.happened -= 1  # the page is small enough
            else:
                faults.append(active.fault)
        spoils = [fault for fault in faults if fault.kind not in ("latency", *CHANGES, *SHAPES)]
        send = self._shape(faults, scope, send)
        left = self._faults.refuses_until - time.monotonic()
        if left > 0:
            await _limited(left)(scope, receive, send)
        elif spoils:
            await self._spoil(spoils[0], scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _shape(self, faults: Sequence[Fault], scope: Scope, send: Send) -> Send:
        """Limit the rows of a page, and return `send` with another `Link` header, as faults say."""
        for fault in faults:
            if fault.kind in ("clamped", "whole"):
                scope[PAGE_ROWS] = fault.n if fault.kind == "clamped" else None
        kinds = {fault.kind for fault in faults}
        if not kinds & {"whole", "no_link", "empty_link"}:
            return send
        link = [(b"link", b"")] if "empty_link" in kinds else []

        async def send_shaped(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [pair for pair in message["headers"] if pair[0].lower() != b"link"]
                is_list = len(headers) < len(message["headers"])
                message = {**message, "headers": [*headers, *(link if is_list else [])]}
            await send(message)

        return send_shaped

    async def _spoil(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        response = await self._spoiled(fault, scope, receive)
        if fault.kind == "cut" and response.body:
            await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
            half = response.body[: len(response.body) // 2]
            await send({"type": "http.response.body", "body": half, "more_body": True})
        if fault.kind in ("cut", "reset"):
            await _close_connection(scope, receive)
        else:
            await response(scope, receive, send)

    async def _spoiled(self, fault: Fault, scope: Scope, receive: Receive) -> Response:
        """Return the response that a fault leads to, or whose transfer it breaks off."""
        if fault.kind == "limited":
            return _limited(fault.wait)
        if fault.kind == "too_deep":
            return _refusal(error_responses.too_deep())
        is_lost = fault.before and fault.kind != "exhausted"
        response = await _discard_request(receive) if is_lost else await self._respond(scope, receive)
        if fault.kind == "exhausted":
            self._faults.refuses_until = time.monotonic() + fault.wait
            response.headers.update({"RateLimit-Remaining": "0", "RateLimit-Reset": str(math.ceil(fault.wait))})
        elif fault.kind == "status":
            return _failure(fault)
        elif fault.kind == "overloaded":
            await asyncio.sleep(fault.seconds or 0.0)
            return _failure(fault)
        elif fault.kind == "garbage":
            return Response(b'[{"id": "', media_type=JSON)
        return response

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        """Return the response of the application."""
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, keep)
        response = Response(b"".join(message.get("body", b"") for message in sent), sent[0]["status"])
        response.raw_headers = list(sent[0]["headers"])
        return response


def _identify_request(method: str, path: str) -> tuple[str | None, Mapping[str, str]]:
    """Return the operation of a request, if any, and its path parameters; HEAD counts as GET."""
    http_method = "GET" if method == "HEAD" else method
    for operation, pattern in _ROUTES:
        match = pattern.match(path.removesuffix("/"))
        if match and http_method == operation.method:
            return operation.name, match.groupdict()
    return None, {}


async def _discard_request(receive: Receive) -> Response:
    """Read a lost request: closing the connection before would reset it."""
    while (await receive()).get("more_body"):
        pass
    return Response(b"{}", media_type=JSON)


async def _close_connection(scope: Scope, receive: Receive) -> None:
    scope["extensions"][CLOSE_CONNECTION]()
    while (await receive())["type"] != "http.disconnect":
        pass


def _refusal(refused: HttpError, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(refused.body), refused.status, headers, JSON)


def _limited(seconds: float) -> Response:
    """Return the 429 response of a limit that is reset after a duration."""
    reset = math.ceil(seconds)
    over = rate_limit.LimitStatus("rest", _LIMIT, _LIMIT + 1, reset)
    within = rate_limit.LimitStatus("rest_user", _LIMIT, 1, reset)
    return _refusal(rate_limit.too_many_requests(over), rate_limit.format_headers((over, within)))


def _failure(fault: Fault) -> Response:
    phrase = responses.get(fault.status, "Failure")
    if not fault.html:
        return _refusal(HttpError(fault.status, phrase))
    page = f"<!doctype html><title>{fault.status} {phrase}</title><h1>{fault.status} {phrase}</h1>"
    return HTMLResponse(page, fault.status)
