"""The door: routes made from the declared operations, and what every answer carries."""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable
from contextlib import ExitStack
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

from buildframe.service import problems
from buildframe.service.answers.exchange import Answer, Request
from buildframe.service.answers.filters import asked_for
from buildframe.service.answers.intake import body_of, object_in
from buildframe.service.answers.routes import ROUTES, address_of, ask_graphql
from buildframe.service.answers.table import Answers
from buildframe.service.data.access import Access, access_by
from buildframe.service.data.bodies import ORIGIN
from buildframe.service.data.database import Data
from buildframe.service.door import quota
from buildframe.service.life.engine import Engine
from buildframe.service.pages.pages import Pages
from buildframe.service.pages.pushes import Pushes
from buildframe.service.paging import link_header, page_of
from buildframe.service.problems import Refused
from buildframe.spec import Endpoint

Headers = dict[str, str]

_FAILED = Refused(500, "Internal Server Error")
_LOG = logging.getLogger(__name__)


class Door:
    """Answers HTTP requests from the data."""

    def __init__(self, data: Data, engine: Engine, meter: quota.Meter, deepest: int, origin: str) -> None:
        self._data, self._engine, self._meter, self._origin = data, engine, meter, origin
        self._answers = Answers(data, engine, deepest)
        self.app = Starlette(
            routes=[
                *self._routes(),
                *Pushes(data, engine).routes,
                *Pages(data, engine, origin).routes,
            ],
            exception_handlers={HTTPException: self._no_such_thing, Exception: self._failed},
        )
        self.app.router.redirect_slashes = False

    def _routes(self) -> Iterable[Route]:
        """One route for each path, so that a wrong method is told which ones there are."""
        paths: dict[str, dict[str, Endpoint]] = {}
        for endpoint in ROUTES:
            paths.setdefault(address_of(endpoint), {})[endpoint.method] = endpoint
        for path, by_method in paths.items():
            for slash in ("", "/"):
                yield Route(path + slash, self._handler(by_method), methods=list(by_method))

    def _handler(self, by_method: dict[str, Endpoint]) -> Callable[[HttpRequest], Awaitable[Response]]:
        async def handle(http: HttpRequest) -> Response:
            endpoint = by_method["GET" if http.method == "HEAD" else http.method]
            try:
                sent = await body_of(http)
            except ClientDisconnect:  # who asked is gone, and nobody hears an answer
                return Response(status_code=400)
            return await run_in_threadpool(self._handled, endpoint, http, sent)

        return handle

    def _handled(self, endpoint: Endpoint, http: HttpRequest, sent: bytes | None) -> Response:
        headers: Headers = {}
        try:
            self._engine.catch_up()
            with ExitStack() as held:
                if endpoint.method != "GET" and endpoint is not ask_graphql:  # which changes the data alone
                    held.enter_context(self._engine.turn)  # before the data's lock, as the engine does
                held.enter_context(self._data.lock)
                return self._answer(endpoint, http, sent, headers)
        except Refused as refused:
            return self._refusal(refused, headers)
        except Exception:
            _LOG.exception("%s failed", endpoint.name)
            return self._refusal(_FAILED, headers)

    def _answer(self, endpoint: Endpoint, http: HttpRequest, sent: bytes | None, headers: Headers) -> Response:
        access = access_by(self._data, http.headers.get("authorization"))
        headers |= {
            "X-OAuth-Scopes": ",".join(access.scopes),
            "X-Accepted-OAuth-Scopes": endpoint.scope or "",
        }
        self._count(http, access, headers)
        self._admit(endpoint, http, access)
        request = _request(endpoint, http, access, sent)
        answer = self._answers.of[endpoint.name](request)
        if endpoint.paginated:
            address = f"{self._origin}{http.url.path}"
            headers["Link"] = link_header(address, request.query, request.page, answer.total)
        return self._response(endpoint.success, answer, headers)

    def _count(self, http: HttpRequest, access: Access, headers: Headers) -> None:
        """A request that names no organization of the token counts for its user alone."""
        named = http.path_params.get("org", "")
        user = access.user.id
        standings = self._meter.count(named if named in access.organizations else user, user)
        headers |= quota.headers(standings)
        quota.refuse_excess(standings)

    def _admit(self, endpoint: Endpoint, http: HttpRequest, access: Access) -> None:
        """Organizations out of reach look as if they did not exist; only then is the scope checked."""
        if "org" in http.path_params and http.path_params["org"] not in access.organizations:
            raise problems.not_found("organization")
        if endpoint.scope is not None and endpoint.scope not in access.scopes:
            raise problems.lacks_scope(endpoint.scope)

    def _response(self, status: int, answer: Answer, headers: Headers) -> Response:
        body = answer.body.replace(ORIGIN.encode(), self._origin.encode())
        every = headers | {
            "Date": formatdate(self._data.load_now() // 1_000_000, usegmt=True),
            "X-Request-Id": str(uuid.uuid4()),
            "X-Simulated-Time": "true",  # clients must not compare its clock with theirs
        }
        if status == 204:
            return Response(status_code=status, headers=every)
        tag = f'W/"{hashlib.blake2b(body, digest_size=16).hexdigest()}"'
        return Response(body, status, every | {"ETag": tag}, answer.kind)

    def _refusal(self, refused: Refused, headers: Headers) -> Response:
        return self._response(refused.status, Answer(msgspec.json.encode(refused.body)), headers)

    async def _no_such_thing(self, http: HttpRequest, why: Exception) -> Response:
        assert isinstance(why, HTTPException)
        if why.status_code == 404:
            return self._refusal(problems.no_route(http.url.path), {})
        return self._refusal(Refused(why.status_code, why.detail), dict(why.headers or {}))

    async def _failed(self, http: HttpRequest, why: Exception) -> Response:
        return self._refusal(_FAILED, {})


def _request(endpoint: Endpoint, http: HttpRequest, access: Access, sent: bytes | None) -> Request:
    query = parse_qsl(http.url.query, keep_blank_values=True)
    return Request(
        endpoint=endpoint,
        path=http.path_params,
        filters=asked_for(endpoint.filters, query),
        page=page_of(query),
        access=access,
        body=object_in(sent) if endpoint.properties else {},
        query=query,
        accept=http.headers.get("accept", ""),
    )
