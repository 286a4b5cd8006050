"""Control routes of the sandbox: clock, faults, webhooks and the OpenAPI document."""

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
from buildframe.sandbox_server import error_responses
from buildframe.sandbox_server.db.access import CONTROL
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.outbox import EVENTS, Hook, Outbox, create_hook
from buildframe.sandbox_server.db.tokens import authenticate
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.http.faults import Fault, FaultInjector
from buildframe.sandbox_server.http.openapi import document
from buildframe.sandbox_server.pagination import link_header, parse_page
from buildframe.sandbox_server.simulation.clock import Clock

if TYPE_CHECKING:
    from buildframe.sandbox_server.db.outbox import Delivery


class ControlResponse(NamedTuple):
    """A response of a control route."""

    status: int
    body: Any = None
    headers: Mapping[str, str] | None = None


ControlHandler = Callable[[HttpRequest, bytes], ControlResponse]


class _AdvanceBody(msgspec.Struct, forbid_unknown_fields=True):
    advance_s: float


class _WebhookBody(msgspec.Struct, forbid_unknown_fields=True):
    url: str
    token: str
    signed: bool = False
    events: tuple[str, ...] | None = EVENTS
    organization: str = "acme"


class ControlApp:
    """The control routes, which take precedence over those of the service. They need the scope `sandbox`."""

    def __init__(
        self, db: Database, clock: Clock, faults: FaultInjector, outbox: Outbox, origin: str, service: ASGIApp
    ) -> None:
        self._db, self._clock, self._faults, self._outbox, self._origin = db, clock, faults, outbox, origin
        self._document = msgspec.json.encode(document(origin))
        self.app = Starlette(
            routes=[
                Route("/openapi.json", self._openapi),
                self._route("GET", "/sandbox/clock", self._get_clock),
                self._route("POST", "/sandbox/clock", self._advance),
                self._route("GET", "/sandbox/faults", self._list_faults),
                self._route("POST", "/sandbox/faults", self._add_fault),
                self._route("DELETE", "/sandbox/faults", self._clear_faults),
                self._route("POST", "/sandbox/webhooks", self._add_webhook),
                self._route("DELETE", "/sandbox/webhooks/{id}", self._remove_webhook),
                self._route("GET", "/sandbox/deliveries", self._list_deliveries),
            ],
            exception_handlers={HTTPException: _no_such_control, Exception: _failed},
        )
        self.app.router.redirect_slashes = False
        self.app.router.default = service

    def _route(self, method: str, path: str, act: ControlHandler) -> Route:
        async def handle(http: HttpRequest) -> Response:
            refusal = await run_in_threadpool(self._refusal, http)
            if refusal is not None:
                return _respond(ControlResponse(refusal.status, refusal.body))
            return await run_in_threadpool(_done, act, http, await http.body())

        handler: Callable[[HttpRequest], Awaitable[Response]] = handle
        return Route(path, handler, methods=[method])

    def _refusal(self, http: HttpRequest) -> HttpError | None:
        try:
            access = authenticate(self._db, http.headers.get("authorization"))
        except HttpError as refused:
            return refused
        return None if CONTROL in access.scopes else error_responses.lacks_scope(CONTROL)

    def _openapi(self, http: HttpRequest) -> Response:
        return Response(self._document, media_type="application/json")

    # --- clock ---

    def _get_clock(self, http: HttpRequest, sent: bytes) -> ControlResponse:
        return ControlResponse(200, {"now": self._clock.now().text()})

    def _advance(self, http: HttpRequest, sent: bytes) -> ControlResponse:
        body = msgspec.json.decode(sent, type=_AdvanceBody)
        return ControlResponse(200, {"now": self._clock.advance(dt.timedelta(seconds=body.advance_s)).text()})

    # --- faults ---

    def _list_faults(self, http: HttpRequest, sent: bytes) -> ControlResponse:
        return ControlResponse(200, self._faults.describe())

    def _add_fault(self, http: HttpRequest, sent: bytes) -> ControlResponse:
        fault = msgspec.json.decode(sent, type=Fault)
        self._faults.add(fault)
        return ControlResponse(201, fault)

    def _clear_faults(self, http: HttpRequest, sent: bytes) -> ControlResponse:
        self._faults.clear()
        return ControlResponse(204)

    # --- webhooks ---

    def _add_webhook(self, http: HttpRequest, sent: bytes) -> ControlResponse:
        body = msgspec.json.decode(sent, type=_WebhookBody)
        hook = create_hook(body.url, body.token, body.signed, body.events, body.organization)
        self._outbox.add(hook)
        return ControlResponse(201, _hook_json(hook))

    def _remove_webhook(self, http: HttpRequest, sent: bytes) -> ControlResponse:
        self._outbox.remove(http.path_params["id"])
        return ControlResponse(204)

    def _list_deliveries(self, http: HttpRequest, sent: bytes) -> ControlResponse:
        query = parse_qsl(http.url.query, keep_blank_values=True)
        page = parse_page(query)
        with self._db.lock:
            log, total = self._outbox.log(page), self._outbox.count()
        link = link_header(f"{self._origin}{http.url.path}", query, page, total)
        return ControlResponse(200, [_delivery_json(each) for each in log], {"Link": link})


def _done(act: ControlHandler, http: HttpRequest, sent: bytes) -> Response:
    try:
        return _respond(act(http, sent))
    except (BadInput, msgspec.MsgspecError, OverflowError, UnicodeDecodeError) as why:
        return _respond(ControlResponse(422, {"message": str(why)}))


def _respond(response: ControlResponse) -> Response:
    if response.status == 204:
        return Response(status_code=response.status)
    return Response(msgspec.json.encode(response.body), response.status, response.headers, "application/json")


async def _no_such_control(http: HttpRequest, why: Exception) -> Response:
    assert isinstance(why, HTTPException)
    return _respond(ControlResponse(why.status_code, {"message": why.detail}))


async def _failed(http: HttpRequest, why: Exception) -> Response:
    return _respond(ControlResponse(500, {"message": "Internal Server Error"}))


def _hook_json(hook: Hook) -> dict[str, Any]:
    return {name: value for name, value in dataclasses.asdict(hook).items() if name != "token"}


def _delivery_json(delivery: Delivery) -> dict[str, Any]:
    delivered = delivery.delivered_at
    return dataclasses.asdict(delivery) | {
        "at": delivery.at.text(),
        "delivered_at": delivered.text() if delivered else None,
    }
