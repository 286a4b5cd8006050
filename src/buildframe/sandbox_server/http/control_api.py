"""Control routes of the sandbox: clock, faults, webhooks and the OpenAPI document."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from buildframe.errors import BadInput
from buildframe.sandbox_server import error_responses
from buildframe.sandbox_server.db.outbox import EVENTS, create_hook
from buildframe.sandbox_server.db.serializers import drop_keys
from buildframe.sandbox_server.db.tokens import CONTROL, authenticate
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.http.app import ServiceApp
from buildframe.sandbox_server.http.fault_injection import FaultMiddleware
from buildframe.sandbox_server.http.faults import Fault, FaultInjector, WorldChanges
from buildframe.sandbox_server.http.openapi import create_document
from buildframe.sandbox_server.pagination import format_link_header, parse_page
from buildframe.sandbox_server.simulation.clock import Clock
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.spec import Moment
from buildframe.spec.decoders import decoder_of


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
        self, simulator: Simulator, clock: Clock, faults: FaultInjector, origin: str, service: ServiceApp
    ) -> None:
        outbox = simulator.outbox
        self._db, self._clock, self._faults, self._outbox, self._origin = simulator.db, clock, faults, outbox, origin
        document = Route("/openapi.json", lambda _: _response(create_document(origin)))
        self.app = Starlette(
            routes=[
                document,
                self._route("GET", "/sandbox/clock", 200, lambda http, body: {"now": clock.now()}),
                self._route("POST", "/sandbox/clock", 200, self._advance),
                self._route("GET", "/sandbox/faults", 200, lambda http, body: faults.describe()),
                self._route("POST", "/sandbox/faults", 201, self._add_fault),
                self._route("DELETE", "/sandbox/faults", 204, lambda http, body: faults.clear()),
                self._route("POST", "/sandbox/webhooks", 201, self._add_webhook),
                self._route(
                    "DELETE", "/sandbox/webhooks/{id}", 204, lambda http, body: outbox.remove(http.path_params["id"])
                ),
                self._route("GET", "/sandbox/deliveries", 200, self._list_deliveries),
            ],
            exception_handlers=service.exception_handlers,
        )
        self.app.router.redirect_slashes = False
        self.app.router.default = FaultMiddleware(service.app, faults, WorldChanges(simulator, clock))

    def _route(self, method: str, path: str, status: int, control: Callable[[HttpRequest, bytes], Any]) -> Route:
        def check_scope(http: HttpRequest) -> None:
            if CONTROL not in authenticate(self._db, http.headers.get("authorization")).scopes:
                raise error_responses.lacks_scope(CONTROL)

        async def endpoint(http: HttpRequest) -> Response:
            try:
                await run_in_threadpool(check_scope, http)  # before the body is read
                return _response(await run_in_threadpool(control, http, await http.body()), status)
            except HttpError as refused:
                return _response(refused.body, refused.status)
            except (BadInput, msgspec.MsgspecError, OverflowError, UnicodeDecodeError) as why:
                return _response({"message": str(why)}, 422)

        return Route(path, endpoint, methods=[method])

    def _advance(self, http: HttpRequest, raw_body: bytes) -> Any:
        body = decoder_of(_AdvanceBody).decode(raw_body)
        return {"now": self._clock.advance(dt.timedelta(seconds=body.advance_s))}

    def _add_fault(self, http: HttpRequest, raw_body: bytes) -> Any:
        fault = decoder_of(Fault).decode(raw_body)
        self._faults.add(fault)
        return fault

    def _add_webhook(self, http: HttpRequest, raw_body: bytes) -> Any:
        body = decoder_of(_WebhookBody).decode(raw_body)
        hook = create_hook(body.url, body.token, body.signed, body.events, body.organization)
        self._outbox.add(hook)
        return drop_keys(msgspec.to_builtins(hook), ("token",))

    def _list_deliveries(self, http: HttpRequest, raw_body: bytes) -> Any:
        query, log = parse_qsl(http.url.query, keep_blank_values=True), self._outbox.list_deliveries()
        page = parse_page(query)
        response = _response(page.slice(log))
        response.headers["Link"] = format_link_header(f"{self._origin}{http.url.path}", query, page, len(log))
        return response


def _response(body: Any, status: int = 200) -> Response:
    if isinstance(body, Response):
        return body
    if body is None:
        return Response(status_code=status)
    return Response(msgspec.json.encode(body, enc_hook=Moment.text), status, media_type="application/json")
