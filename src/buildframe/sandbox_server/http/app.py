"""The ASGI application of the API: routes of the declared endpoints, and common headers."""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import nullcontext
from email.utils import formatdate
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from buildframe.errors import BadInput
from buildframe.http.protocol import VERSION_HEADER, check_version
from buildframe.sandbox_server import error_responses
from buildframe.sandbox_server.db.serializers import ORIGIN
from buildframe.sandbox_server.db.tokens import Access, authenticate
from buildframe.sandbox_server.error_responses import HttpError
from buildframe.sandbox_server.handlers.registry import (
    ApiRequest,
    ApiResponse,
    create_handlers,
    parse_object,
    read_body,
)
from buildframe.sandbox_server.handlers.routes import ROUTES, query_graphql, route_path
from buildframe.sandbox_server.handlers.sql_filters import parse_filters
from buildframe.sandbox_server.http import rate_limit
from buildframe.sandbox_server.pages.pages import WebPages
from buildframe.sandbox_server.pages.push_webhooks import PushRoutes
from buildframe.sandbox_server.pagination import format_link_header, limit_page, parse_page
from buildframe.sandbox_server.simulation.rules import ActionRejected
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.spec import Endpoint

Headers = dict[str, str]

_FAILED = HttpError(500, "Internal Server Error")
_LOG = logging.getLogger(__name__)


class ServiceApp:
    """Routes HTTP requests to handlers."""

    def __init__(self, simulator: Simulator, counter: rate_limit.RequestCounter, deepest: int, origin: str) -> None:
        self._db, self._simulator, self._counter, self._origin = simulator.db, simulator, counter, origin
        self._handlers = create_handlers(simulator, deepest)
        self.exception_handlers = {HTTPException: self._http_error, Exception: self._failed}
        routes = [*self._routes(), *PushRoutes(simulator).routes, *WebPages(simulator).routes]
        self.app = Starlette(routes=routes, exception_handlers=self.exception_handlers)
        self.app.router.redirect_slashes = False

    def _routes(self) -> Iterable[Route]:
        """Yield one route per path, so that a wrong method gets the list of allowed ones."""
        paths: dict[str, dict[str, Endpoint]] = {}
        for endpoint in ROUTES:
            paths.setdefault(route_path(endpoint), {})[endpoint.method] = endpoint
        for path, by_method in paths.items():
            for slash in ("", "/"):
                yield Route(path + slash, self._handler(by_method), methods=list(by_method))

    def _handler(self, by_method: dict[str, Endpoint]) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def handle(http: HttpRequest) -> Response:
            endpoint = by_method["GET" if http.method == "HEAD" else http.method]
            try:
                raw_body = await read_body(http)
            except ClientDisconnect:  # nobody is left to read a response
                return Response(status_code=400)
            return await run_in_threadpool(self._handle_request, endpoint, http, raw_body)

        return handle

    def _handle_request(self, endpoint: Endpoint, http: HttpRequest, raw_body: bytes | None) -> Response:
        headers: Headers = {}
        try:
            self._simulator.catch_up()
            acts = endpoint.method != "GET" and endpoint is not query_graphql
            with self._simulator.lock if acts else nullcontext(), self._db.lock:  # in the simulator's order
                return self._respond(endpoint, http, raw_body, headers)
        except HttpError as refused:
            return self._refusal(refused, headers)
        except ActionRejected as reason:
            return self._refusal(HttpError(422, str(reason)), headers)
        except Exception:
            _LOG.exception("%s failed", endpoint.name)
            return self._refusal(_FAILED, headers)

    def _respond(self, endpoint: Endpoint, http: HttpRequest, raw_body: bytes | None, headers: Headers) -> Response:
        access = authenticate(self._db, http.headers.get("authorization"))
        headers |= {"X-OAuth-Scopes": ",".join(access.scopes), "X-Accepted-OAuth-Scopes": endpoint.scope or ""}
        organization = http.path_params.get("org")
        self._count(organization, access, headers)
        if organization is not None and organization not in access.organizations:  # before the scope is checked
            raise error_responses.not_found("organization")
        if endpoint.scope is not None and endpoint.scope not in access.scopes:
            raise error_responses.lacks_scope(endpoint.scope)
        request = _request(endpoint, http, access, raw_body)
        response = self._handlers[endpoint.name](request)
        if endpoint.paginated and not endpoint.enveloped:
            address = f"{self._origin}{http.url.path}"
            headers["Link"] = format_link_header(address, request.query, request.page, response.total)
        return self._response(endpoint.success, response, headers)

    def _count(self, organization: str | None, access: Access, headers: Headers) -> None:
        """Count a request. Without an organization of the token it counts for the user only."""
        user = access.user.id
        statuses = self._counter.count(organization if organization in access.organizations else user, user)
        headers |= rate_limit.format_headers(statuses)
        for limit in statuses:
            if limit.current > limit.limit:
                raise rate_limit.too_many_requests(limit)

    def _response(self, status: int, response: ApiResponse, headers: Headers) -> Response:
        body = response.body if isinstance(response.body, bytes) else msgspec.json.encode(response.body)
        body = body.replace(ORIGIN.encode(), self._origin.encode())
        all_headers = headers | {
            "Date": formatdate(self._db.load_now() // 1_000_000, usegmt=True),
            "X-Request-Id": str(uuid.uuid4()),
            "X-Simulated-Time": "true",  # clients must not compare this clock with their own
        }
        if status == 204:
            return Response(status_code=status, headers=all_headers)
        tag = f'W/"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        return Response(body, status, all_headers | {"ETag": tag}, response.kind)

    def _refusal(self, refused: HttpError, headers: Headers) -> Response:
        return self._response(refused.status, ApiResponse(refused.body), headers)

    async def _http_error(self, http: HttpRequest, why: Exception) -> Response:
        assert isinstance(why, HTTPException)
        if why.status_code == 404:
            return self._refusal(HttpError(404, f"No route matches {http.url.path.lstrip('/')}"), {})
        return self._refusal(HttpError(why.status_code, why.detail), dict(why.headers or {}))

    async def _failed(self, http: HttpRequest, why: Exception) -> Response:
        return self._refusal(_FAILED, {})


def _request(endpoint: Endpoint, http: HttpRequest, access: Access, raw_body: bytes | None) -> ApiRequest:
    query = parse_qsl(http.url.query, keep_blank_values=True)
    return ApiRequest(
        endpoint=endpoint,
        path=http.path_params,
        filters=parse_filters(endpoint.filters, query),
        page=limit_page(parse_page(query), http.scope),
        access=access,
        body=parse_object(raw_body) if endpoint.properties else {},
        query=query,
        accept=http.headers.get("accept", ""),
        version=_parse_version(http.headers.get(VERSION_HEADER, "")),
    )


def _parse_version(text: str) -> str:
    """Return the version of the API in a header; raise 400 if it is not a date."""
    try:
        return check_version(text.strip() or None) or ""
    except BadInput:
        raise HttpError(400, f"{VERSION_HEADER} must be in format YYYY-MM-DD") from None
