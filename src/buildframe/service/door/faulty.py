"""The door as faults leave it: requests and answers on their way, spoilt as was asked for."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from http.client import responses
from typing import NamedTuple

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from buildframe.service import problems
from buildframe.service.door import quota
from buildframe.service.door.faults import CHANGES, Changes, Fault, Faults, asked_by
from buildframe.service.door.server import HANG_UP
from buildframe.service.problems import Refused

_JSON, _HTML = "application/json; charset=utf-8", "text/html; charset=utf-8"
_LIMIT = 200


class Reply(NamedTuple):
    """An answer on its way."""

    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes

    def replacing(self, headers: Mapping[str, str], body: bytes | None = None) -> Reply:
        """The same with these headers, and with another body, in place of its own."""
        body = self.body if body is None else body
        new = {name.lower().encode(): value.encode() for name, value in headers.items()}
        new[b"content-length"] = str(len(body)).encode()
        kept = [(name, value) for name, value in self.headers if name.lower() not in new]
        return Reply(self.status, [*kept, *new.items()], body)


class FaultyDoor:
    """Stands before an application and lets go wrong what was asked for."""

    def __init__(self, app: ASGIApp, faults: Faults, changes: Changes) -> None:
        self._app, self._faults, self._changes = app, faults, changes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = asked_by(scope["method"], scope["path"])
        drawn = self._faults.drawn(asked.operation)
        for fault in drawn:
            if fault.kind == "latency":
                await asyncio.sleep(fault.wait)
            elif fault.kind in CHANGES and not await asyncio.to_thread(self._changes.make, fault, asked.path):
                self._faults.missed(fault)
        spoils = [fault for fault in drawn if fault.kind not in ("latency", *CHANGES)]
        left = self._faults.refuses_for()
        if left > 0:
            await _give(_limited(left), send)
        elif spoils:
            await self._spoil(spoils[0], scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _spoil(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        if fault.kind == "limited":
            await _give(_limited(fault.wait), send)
        elif fault.kind == "too_deep":
            await _give(_refusal(problems.too_deep()), send)
        elif fault.kind == "exhausted":
            await self._exhaust(fault, scope, receive, send)
        else:
            reply = await _unheard(receive) if fault.before else await self._answer(scope, receive)
            await _spoilt(fault, reply, scope, receive, send)

    async def _exhaust(self, fault: Fault, scope: Scope, receive: Receive, send: Send) -> None:
        reply = await self._answer(scope, receive)
        self._faults.exhaust(fault.wait)
        told = {"RateLimit-Remaining": "0", "RateLimit-Reset": str(math.ceil(fault.wait))}
        await _give(reply.replacing(told), send)

    async def _answer(self, scope: Scope, receive: Receive) -> Reply:
        """What the application answers."""
        sent: list[Message] = []

        async def keep(message: Message) -> None:
            sent.append(message)

        await self._app(scope, receive, keep)
        body = b"".join(message.get("body", b"") for message in sent)
        return Reply(sent[0]["status"], list(sent[0]["headers"]), body)


async def _unheard(receive: Receive) -> Reply:
    """The reply to a request that is lost. It is read all the same: closing before would reset the connection."""
    while (await receive()).get("more_body"):
        pass
    return _reply(200, b"{}", _JSON)


async def _spoilt(fault: Fault, reply: Reply, scope: Scope, receive: Receive, send: Send) -> None:
    if fault.kind == "status":
        await _give(_failure(fault), send)
    elif fault.kind == "garbage":
        await _give(_reply(200, b'[{"id": "', _JSON), send)
    else:
        if fault.kind == "cut" and reply.body:
            await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
            half = reply.body[: len(reply.body) // 2]
            await send({"type": "http.response.body", "body": half, "more_body": True})
        await _hang_up(scope, receive)


async def _hang_up(scope: Scope, receive: Receive) -> None:
    scope["extensions"][HANG_UP]()
    while (await receive())["type"] != "http.disconnect":
        pass


async def _give(reply: Reply, send: Send) -> None:
    await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
    await send({"type": "http.response.body", "body": reply.body})


def _reply(status: int, body: bytes, kind: str) -> Reply:
    return Reply(status, [], body).replacing({"Content-Type": kind})


def _refusal(refused: Refused) -> Reply:
    return _reply(refused.status, msgspec.json.encode(refused.body), _JSON)


def _limited(seconds: float) -> Reply:
    """The answer to one request too many, of a limit that is reset after so long."""
    reset = math.ceil(seconds)
    over = quota.Standing("rest", _LIMIT, _LIMIT + 1, reset)
    within = quota.Standing("rest_user", _LIMIT, 1, reset)
    return _refusal(quota.excess(over)).replacing(quota.headers((over, within)))


def _failure(fault: Fault) -> Reply:
    said = responses.get(fault.status, "Failure")
    if not fault.html:
        return _reply(fault.status, msgspec.json.encode({"message": said}), _JSON)
    page = f"<!doctype html><title>{fault.status} {said}</title><h1>{fault.status} {said}</h1>"
    return _reply(fault.status, page.encode(), _HTML)
