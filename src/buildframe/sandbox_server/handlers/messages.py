"""Requests and responses of handlers, independent of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from buildframe.sandbox_server.db.tokens import Access
from buildframe.sandbox_server.error_responses import HttpError, invalid
from buildframe.sandbox_server.handlers.sql_filters import FilterValue
from buildframe.sandbox_server.pagination import PageRequest, Query
from buildframe.spec import Endpoint, find_violations

JSON = "application/json; charset=utf-8"


@dataclass(frozen=True)
class ApiRequest:
    """A parsed API request.

    `path` holds the path parameters, `body` the unchecked JSON object (`properties` validates it), `accept` the header.
    """

    endpoint: Endpoint
    path: Mapping[str, str]
    filters: Mapping[str, FilterValue]
    page: PageRequest
    access: Access
    body: Mapping[str, Any]
    query: Query
    accept: str

    def properties(self, refuse: Callable[[list[tuple[str, str]]], HttpError] = invalid) -> dict[str, Any]:
        """Return the declared properties of the body, without undeclared ones.

        Raises what `refuse` returns for the list of (field, problem): by default 422 `Validation Failed`.
        """
        wrong = [
            (violation.field, violation.problem)
            for violation in find_violations(self.endpoint.properties, self.body)
            if not violation.unknown
        ]
        if wrong:
            raise refuse(wrong)
        return {name: self.body[name] for name in self.endpoint.property_names if name in self.body}


@dataclass(frozen=True)
class ApiResponse:
    """A JSON-ready body or encoded bytes, its content type and, for lists, the number of records on all pages."""

    body: Any = b""
    total: int = 0
    kind: str = JSON


def refuse_viewers(access: Access) -> None:
    """Raise 403 for a user who cannot edit pipelines."""
    if not access.may_edit:
        raise HttpError(403, "Forbidden")
