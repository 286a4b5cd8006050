"""Requests and responses of operations, and the handlers that a decorator registers."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request as HttpRequest

from buildframe.sandbox_server.db.pipeline_serializer import PipelineSerializer
from buildframe.sandbox_server.db.teams import TeamDirectory
from buildframe.sandbox_server.db.tokens import Access
from buildframe.sandbox_server.error_responses import HttpError, invalid
from buildframe.sandbox_server.handlers.lenient_bodies import read_values
from buildframe.sandbox_server.handlers.sql_filters import FilterValue
from buildframe.sandbox_server.pagination import PageRequest, Query
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.spec import Endpoint, find_violations

JSON = "application/json; charset=utf-8"
_MAX_BODY_BYTES = 1024 * 1024


async def read_body(http: HttpRequest) -> bytes | None:
    """Read the body; None if it is too large. The rest is read and discarded."""
    body = b""
    async for chunk in http.stream():
        body = body + chunk if len(body) <= _MAX_BODY_BYTES else body
    return body if len(body) <= _MAX_BODY_BYTES else None


def parse_object(raw_body: bytes | None) -> dict[str, Any]:
    """Parse a JSON object; an empty body is an empty object."""
    if raw_body is None:
        raise HttpError(413, f"The body is longer than {_MAX_BODY_BYTES} bytes")
    try:
        body = msgspec.json.decode(raw_body) if raw_body.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        raise HttpError(400, f"The body cannot be read as JSON: {why}") from None
    if not isinstance(body, dict):
        raise HttpError(400, "The body must be a JSON object")
    return body


@dataclass(frozen=True)
class ApiRequest:
    """A parsed API request.

    `path` holds the path parameters, `body` the unchecked JSON object (`properties` validates it), `accept` the header.
    `version` is the version of the API that it asks for, a date; empty for none.
    """

    endpoint: Endpoint
    path: Mapping[str, str]
    filters: Mapping[str, FilterValue]
    page: PageRequest
    access: Access
    body: Mapping[str, Any]
    query: Query
    accept: str
    version: str = ""

    def properties(self, refuse: Callable[[list[tuple[str, str]]], HttpError] = invalid) -> dict[str, Any]:
        """Return the declared properties of the body, without undeclared ones.

        Raises what `refuse` returns for the list of (field, problem): by default 422 `Validation Failed`.
        """
        body = read_values(self.endpoint.properties, self.body)
        violations = find_violations(self.endpoint.properties, body)
        wrong = [(violation.field, violation.problem) for violation in violations if not violation.unknown]
        if wrong:
            raise refuse(wrong)
        return {name: body[name] for name in self.endpoint.property_names if name in body}


@dataclass(frozen=True)
class ApiResponse:
    """A JSON-ready body or encoded bytes, its content type and, for lists, the number of records on all pages."""

    body: Any = b""
    total: int = 0
    kind: str = JSON


Handler = Callable[[ApiRequest], ApiResponse]
Method = TypeVar("Method", bound=Callable[..., ApiResponse])


class HandlerGroup:
    """Handlers of related operations: methods that `handles` marks. Pages of build lists reach `deepest` builds."""

    def __init__(self, simulator: Simulator, deepest: int) -> None:
        self._db, self._simulator, self._deepest = simulator.db, simulator, deepest
        self._serializer, self._teams = PipelineSerializer(self._db), TeamDirectory(self._db)


def handles(*endpoints: Endpoint) -> Callable[[Method], Method]:
    """Mark a method of a `HandlerGroup` as the handler of operations."""

    def mark(method: Method) -> Method:
        method.handled_operations = [endpoint.name for endpoint in endpoints]  # type: ignore[attr-defined]
        return method

    return mark


def create_handlers(simulator: Simulator, deepest: int) -> Mapping[str, Handler]:
    """Create the handlers of all operations; return them by the name of the operation."""
    package = __name__.rpartition(".")[0]
    for module in pkgutil.iter_modules(importlib.import_module(package).__path__):
        importlib.import_module(f"{package}.{module.name}")
    groups = [group(simulator, deepest) for group in HandlerGroup.__subclasses__()]
    marked = [inspect.getmembers(group, lambda member: hasattr(member, "handled_operations")) for group in groups]
    return {name: method for methods in marked for _, method in methods for name in method.handled_operations}


def refuse_viewers(access: Access) -> None:
    """Raise 403 for a user who cannot edit pipelines."""
    if not access.may_edit:
        raise HttpError(403, "Forbidden")
