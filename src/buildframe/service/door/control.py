"""Telling a sandbox over HTTP what it shall do, and what it is like: its clock, faults and webhooks, and OpenAPI."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qsl

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
from buildframe.service.paging import link_header, page_of
from buildframe.service.problems import Refused

if TYPE_CHECKING:
    from buildframe.service.data.outbox import Delivery


class Told(NamedTuple):
    """An answer: its status, what its body tells, its own headers."""

    status: int
    body: Any = None
    headers: Mapping[str, str] | None = None


Act = Callable[[HttpRequest, bytes], Told]


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
        self._data, self._clock, self._faults, self._outbox, self._origin = data, clock, faults, outbox, origin
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
            exception_handlers={HTTPException: _no_such_control, Exception: _failed},
        )
        self.app.router.redirect_slashes = False
        self.app.router.default = service

    def _route(self, method: str, path: str, act: Act) -> Route:
        async def handle(http: HttpRequest) -> Response:
            refusal = await run_in_threadpool(self._refusal, http)
            if refusal is not None:
                return _answer(Told(refusal.status, refusal.body))
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

    def _tell_time(self, http: HttpRequest, sent: bytes) -> Told:
        return Told(200, {"now": self._clock.now().text()})

    def _advance(self, http: HttpRequest, sent: bytes) -> Told:
        asked = msgspec.json.decode(sent, type=_Advance)
        return Told(200, {"now": self._clock.advance(dt.timedelta(seconds=asked.advance_s)).text()})

    # --- faults ---

    def _tell_faults(self, http: HttpRequest, sent: bytes) -> Told:
        return Told(200, self._faults.told())

    def _add_fault(self, http: HttpRequest, sent: bytes) -> Told:
        fault = msgspec.json.decode(sent, type=Fault)
        self._faults.add(fault)
        return Told(201, fault)

    def _clear_faults(self, http: HttpRequest, sent: bytes) -> Told:
        self._faults.clear()
        return Told(204)

    # --- webhooks ---

    def _add_webhook(self, http: HttpRequest, sent: bytes) -> Told:
        asked = msgspec.json.decode(sent, type=_NewHook)
        hook = new_hook(asked.url, asked.token, asked.signed, asked.events, asked.organization)
        self._outbox.add(hook)
        return Told(201, _of_hook(hook))

    def _remove_webhook(self, http: HttpRequest, sent: bytes) -> Told:
        self._outbox.remove(http.path_params["id"])
        return Told(204)

    def _tell_deliveries(self, http: HttpRequest, sent: bytes) -> Told:
        query = parse_qsl(http.url.query, keep_blank_values=True)
        page = page_of(query)
        with self._data.lock:
            log, total = self._outbox.log(page), self._outbox.count()
        link = link_header(f"{self._origin}{http.url.path}", query, page, total)
        return Told(200, [_of_delivery(each) for each in log], {"Link": link})


def _done(act: Act, http: HttpRequest, sent: bytes) -> Response:
    try:
        return _answer(act(http, sent))
    except (BadInput, msgspec.MsgspecError, OverflowError, UnicodeDecodeError) as why:
        return _answer(Told(422, {"message": str(why)}))


def _answer(told: Told) -> Response:
    if told.status == 204:
        return Response(status_code=told.status)
    return Response(msgspec.json.encode(told.body), told.status, told.headers, "application/json")


async def _no_such_control(http: HttpRequest, why: Exception) -> Response:
    assert isinstance(why, HTTPException)
    return _answer(Told(why.status_code, {"message": why.detail}))


async def _failed(http: HttpRequest, why: Exception) -> Response:
    return _answer(Told(500, {"message": "Internal Server Error"}))


def _of_hook(hook: Hook) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(hook).items() if name != "token"}


def _of_delivery(delivery: Delivery) -> dict[str, Any]:
    delivered = delivery.delivered_at
    return dataclasses.asdict(delivery) | {
        "at": delivery.at.text(),
        "delivered_at": delivered.text() if delivered else None,
    }
