"""The door: routes made from the declared operations, and what every answer carries."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from email.utils import formatdate
from urllib.parse import parse_qsl

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from buildframe.service import problems, quota
from buildframe.service.access import Access, access_by
from buildframe.service.answers import Answers, Request
from buildframe.service.bodies import ORIGIN
from buildframe.service.data import Data
from buildframe.service.filters import asked_for
from buildframe.service.paging import link_header, page_of
from buildframe.service.problems import Refused
from buildframe.spec import ENDPOINTS, Endpoint

Headers = dict[str, str]


class Door:
    """Answers HTTP requests from the data."""

    def __init__(self, data: Data, meter: quota.Meter, deepest: int, origin: str) -> None:
        self._data, self._meter, self._origin = data, meter, origin
        self._answers = Answers(data, deepest)
        self.app = Starlette(
            routes=[route for endpoint in ENDPOINTS for route in self._routes(endpoint)],
            exception_handlers={HTTPException: self._no_such_thing, Exception: self._failed},
        )
        self.app.router.redirect_slashes = False

    def _routes(self, endpoint: Endpoint) -> list[Route]:
        handle = self._handler(endpoint)
        path = f"/v2{endpoint.path}"
        return [Route(path + slash, handle, methods=[endpoint.method]) for slash in ("", "/")]

    def _handler(self, endpoint: Endpoint) -> Callable[[HttpRequest], Response]:
        def handle(request: HttpRequest) -> Response:
            headers: Headers = {}
            try:
                with self._data.lock:
                    return self._answer(endpoint, request, headers)
            except Refused as refused:
                return self._refusal(refused, headers)

        return handle

    def _answer(self, endpoint: Endpoint, http: HttpRequest, headers: Headers) -> Response:
        access = access_by(self._data, http.headers.get("authorization"))
        headers |= {
            "X-OAuth-Scopes": ",".join(access.scopes),
            "X-Accepted-OAuth-Scopes": endpoint.scope or "",
        }
        self._count(http, access, headers)
        self._admit(endpoint, http, access)
        query = parse_qsl(http.url.query, keep_blank_values=True)
        page = page_of(query)
        filters = asked_for(endpoint.filters, query)
        answer = self._answers.of[endpoint.name](Request(http.path_params, filters, page, access))
        if endpoint.paginated:
            headers["Link"] = link_header(f"{self._origin}{http.url.path}", query, page, answer.total)
        return self._response(endpoint.success, answer.body, headers)

    def _count(self, http: HttpRequest, access: Access, headers: Headers) -> None:
        """A request that names no organization of the token counts for its user alone."""
        named = http.path_params.get("org", "")
        standings = self._meter.count(named if named in access.organizations else access.user, access.user)
        headers |= quota.headers(standings)
        quota.refuse_excess(standings)

    def _admit(self, endpoint: Endpoint, http: HttpRequest, access: Access) -> None:
        """Organizations out of reach look as if they did not exist; only then is the scope checked."""
        if "org" in http.path_params and http.path_params["org"] not in access.organizations:
            raise problems.not_found("organization")
        if endpoint.scope is not None and endpoint.scope not in access.scopes:
            raise problems.lacks_scope(endpoint.scope)

    def _response(self, status: int, body: bytes, headers: Headers) -> Response:
        body = body.replace(ORIGIN.encode(), self._origin.encode())
        every = {
            "Date": formatdate(self._data.load_now() // 1_000_000, usegmt=True),
            "X-Request-Id": str(uuid.uuid4()),
            "ETag": f'W/"{hashlib.blake2b(body, digest_size=16).hexdigest()}"',
        }
        return Response(body, status, headers | every, "application/json; charset=utf-8")

    def _refusal(self, refused: Refused, headers: Headers) -> Response:
        return self._response(refused.status, msgspec.json.encode(refused.body), headers)

    async def _no_such_thing(self, http: HttpRequest, why: Exception) -> Response:
        assert isinstance(why, HTTPException)
        if why.status_code == 404:
            return self._refusal(problems.no_route(http.url.path), {})
        return self._refusal(Refused(why.status_code, why.detail), dict(why.headers or {}))

    async def _failed(self, http: HttpRequest, why: Exception) -> Response:
        return self._refusal(Refused(500, "Internal Server Error"), {})
