"""Control routes of the sandbox: clock, faults, webhooks and the OpenAPI document."""

from __future__ import annotations

import datetime as dt
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
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
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.outbox import EVENTS, Outbox, create_hook
from buildframe.sandbox_server.db.serializers import drop_keys
from buildframe.sandbox_server.db.tokens import CONTROL, authenticate
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.http.faults import Fault, FaultInjector
from buildframe.sandbox_server.http.openapi import create_document
from buildframe.sandbox_server.pagination import format_link_header, parse_page
from buildframe.sandbox_server.simulation.clock import Clock
from buildframe.spec import Moment

ControlHandler = Callable[[HttpRequest, bytes], Response]


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
        routes: list[tuple[str, str, ControlHandler]] = [
            ("GET", "/sandbox/clock", self._get_clock),
            ("POST", "/sandbox/clock", self._advance),
            ("GET", "/sandbox/faults", self._list_faults),
            ("POST", "/sandbox/faults", self._add_fault),
            ("DELETE", "/sandbox/faults", self._clear_faults),
            ("POST", "/sandbox/webhooks", self._add_webhook),
            ("DELETE", "/sandbox/webhooks/{id}", self._remove_webhook),
            ("GET", "/sandbox/deliveries", self._list_deliveries),
        ]
        self.app = Starlette(
            routes=[
                Route("/openapi.json", self._openapi),
                *(Route(path, self._endpoint(handler), methods=[method]) for method, path, handler in routes),
            ],
            exception_handlers={HTTPException: _http_error, Exception: _failed},
        )
        self.app.router.redirect_slashes = False
        self.app.router.default = service

    def _endpoint(self, handler: ControlHandler) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def respond(http: HttpRequest) -> Response:
            try:
                await run_in_threadpool(self._check_token, http.headers.get("authorization"))
                return await run_in_threadpool(handler, http, await http.body())
            except HttpError as refused:
                return _respond(refused.body, refused.status)
            except (BadInput, msgspec.MsgspecError, OverflowError, UnicodeDecodeError) as why:
                return _respond({"message": str(why)}, 422)

        return respond

    def _check_token(self, authorization: str | None) -> None:
        if CONTROL not in authenticate(self._db, authorization).scopes:
            raise error_responses.lacks_scope(CONTROL)

    def _openapi(self, http: HttpRequest) -> Response:
        return Response(msgspec.json.encode(create_document(self._origin)), media_type="application/json")

    def _get_clock(self, http: HttpRequest, raw_body: bytes) -> Response:
        return _respond({"now": self._clock.now()})

    def _advance(self, http: HttpRequest, raw_body: bytes) -> Response:
        body = msgspec.json.decode(raw_body, type=_AdvanceBody)
        return _respond({"now": self._clock.advance(dt.timedelta(seconds=body.advance_s))})

    def _list_faults(self, http: HttpRequest, raw_body: bytes) -> Response:
        return _respond(self._faults.describe())

    def _add_fault(self, http: HttpRequest, raw_body: bytes) -> Response:
        fault = msgspec.json.decode(raw_body, type=Fault)
        self._faults.add(fault)
        return _respond(fault, 201)

    def _clear_faults(self, http: HttpRequest, raw_body: bytes) -> Response:
        self._faults.clear()
        return Response(status_code=204)

    def _add_webhook(self, http: HttpRequest, raw_body: bytes) -> Response:
        body = msgspec.json.decode(raw_body, type=_WebhookBody)
        hook = create_hook(body.url, body.token, body.signed, body.events, body.organization)
        self._outbox.add(hook)
        return _respond(drop_keys(msgspec.to_builtins(hook), ("token",)), 201)

    def _remove_webhook(self, http: HttpRequest, raw_body: bytes) -> Response:
        self._outbox.remove(http.path_params["id"])
        return Response(status_code=204)

    def _list_deliveries(self, http: HttpRequest, raw_body: bytes) -> Response:
        query, log = parse_qsl(http.url.query, keep_blank_values=True), self._outbox.list_deliveries()
        page = parse_page(query)
        link = format_link_header(f"{self._origin}{http.url.path}", query, page, len(log))
        return _respond(page.slice(log), headers={"Link": link})


def _respond(body: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(body, enc_hook=Moment.text), status, headers, "application/json")


async def _http_error(http: HttpRequest, why: Exception) -> Response:
    assert isinstance(why, HTTPException)
    return _respond({"message": why.detail}, why.status_code)


async def _failed(http: HttpRequest, why: Exception) -> Response:
    return _respond({"message": "Internal Server Error"}, 500)
