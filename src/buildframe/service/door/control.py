"""Telling a sandbox over HTTP what it shall do, and what it is like: its clock, faults and webhooks, and OpenAPI."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from buildframe.errors import BadInput
from buildframe.service import problems
from buildframe.service.data.access import CONTROL, access_by
from buildframe.service.data.database import Data
from buildframe.service.data.outbox import EVENTS, Hook, Outbox, new_hook
from buildframe.service.door.faults import Fault, Faults
from buildframe.service.door.openapi import document
from buildframe.service.life.clock import Clock
from buildframe.service.problems import Refused

if TYPE_CHECKING:
    from buildframe.service.data.outbox import Delivery

Act = Callable[[HttpRequest, bytes], tuple[int, Any]]


class _Advance(msgspec.Struct, forbid_unknown_fields=True):
    advance_s: float


class _NewHook(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    token: str
    signed: bool = False
    events: tuple[str, ...] | None = EVENTS
    organization: str = "acme"


class Control:
    """The sandbox's own routes, before those of the service; they need a token with the scope `sandbox`."""

    def __init__(self, data: Data, clock: Clock, faults: Faults, outbox: Outbox, origin: str, service: ASGIApp) -> None:
        self._data, self._clock, self._faults, self._outbox = data, clock, faults, outbox
        self._document = msgspec.json.encode(document(origin))
        self.app = Starlette(
            routes=[
                Route("/openapi.json", self._openapi),
                self._route("GET", "/sandbox/clock", self._tell_time),
                self._route("POST", "/sandbox/clock", self._advance),
                self._route("GET", "/sandbox/faults", self._tell_faults),
                self._route("POST", "/sandbox/faults", self._add_fault),
                self._route("DELETE", "/sandbox/faults", self._clear_faults),
                self._route("POST", "/sandbox/webhooks", self._add_webhook),
                self._route("DELETE", "/sandbox/webhooks/{id}", self._remove_webhook),
                self._route("GET", "/sandbox/deliveries", self._tell_deliveries),
            ],
            exception_handlers={HTTPException: _no_such_control},
        )
        self.app.router.redirect_slashes = False
        self.app.router.default = service

    def _route(self, method: str, path: str, act: Act) -> Route:
        async def handle(http: HttpRequest) -> Response:
            refusal = await run_in_threadpool(self._refusal, http)
            if refusal is not None:
                return _answer(refusal.status, refusal.body)
            return await run_in_threadpool(_done, act, http, await http.body())

        handler: Callable[[HttpRequest], Awaitable[Response]] = handle
        return Route(path, handler, methods=[method])

    def _refusal(self, http: HttpRequest) -> Refused | None:
        try:
            access = access_by(self._data, http.headers.get("authorization"))
        except Refused as refused:
            return refused
        return None if CONTROL in access.scopes else problems.lacks_scope(CONTROL)

    def _openapi(self, http: HttpRequest) -> Response:
        return Response(self._document, media_type="application/json")

    # --- clock ---

    def _tell_time(self, http: HttpRequest, sent: bytes) -> tuple[int, Any]:
        return 200, {"now": self._clock.now().text()}

    def _advance(self, http: HttpRequest, sent: bytes) -> tuple[int, Any]:
        asked = msgspec.json.decode(sent, type=_Advance)
        return 200, {"now": self._clock.advance(dt.timedelta(seconds=asked.advance_s)).text()}

    # --- faults ---

    def _tell_faults(self, http: HttpRequest, sent: bytes) -> tuple[int, Any]:
        return 200, self._faults.told()

    def _add_fault(self, http: HttpRequest, sent: bytes) -> tuple[int, Any]:
        fault = msgspec.json.decode(sent, type=Fault)
        self._faults.add(fault)
        return 201, fault

    def _clear_faults(self, http: HttpRequest, sent: bytes) -> tuple[int, Any]:
        self._faults.clear()
        return 204, None

    # --- webhooks ---

    def _add_webhook(self, http: HttpRequest, sent: bytes) -> tuple[int, Any]:
        asked = msgspec.json.decode(sent, type=_NewHook)
        hook = new_hook(asked.url, asked.token, asked.signed, asked.events, asked.organization)
        self._outbox.add(hook)
        return 201, _of_hook(hook)

    def _remove_webhook(self, http: HttpRequest, sent: bytes) -> tuple[int, Any]:
        self._outbox.remove(http.path_params["id"])
        return 204, None

    def _tell_deliveries(self, http: HttpRequest, sent: bytes) -> tuple[int, Any]:
        return 200, [_of_delivery(each) for each in self._outbox.log()]


def _done(act: Act, http: HttpRequest, sent: bytes) -> Response:
    try:
        return _answer(*act(http, sent))
    except (BadInput, msgspec.MsgspecError, OverflowError, UnicodeDecodeError) as why:
        return _answer(422, {"message": str(why)})


def _answer(status: int, body: Any) -> Response:
    if status == 204:
        return Response(status_code=status)
    return Response(msgspec.json.encode(body), status, media_type="application/json")


async def _no_such_control(http: HttpRequest, why: Exception) -> Response:
    assert isinstance(why, HTTPException)
    return _answer(why.status_code, {"message": why.detail})


def _of_hook(hook: Hook) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(hook).items() if name != "token"}


def _of_delivery(delivery: Delivery) -> dict[str, Any]:
    delivered = delivery.delivered_at
    return dataclasses.asdict(delivery) | {
        "at": delivery.at.text(),
        "delivered_at": delivered.text() if delivered else None,
    }
