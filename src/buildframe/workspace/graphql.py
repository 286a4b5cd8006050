"""Send GraphQL queries and mutations, and read their responses. Does not know frames or teams."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from buildframe.errors import BadInput, GraphQLError, Malformed
from buildframe.http import protocol
from buildframe.http.client import Client
from buildframe.http.protocol import Request
from buildframe.http.request_body import json_of
from buildframe.http.response import Response
from buildframe.http.retry import fetch
from buildframe.http.urls import SplitUrl, check_url
from buildframe.spec.operations import endpoint
from buildframe.terminal import show

HOSTED_URL = "https://graphql.buildkite.com/v1"
_HAS_MUTATION = re.compile(r"\bmutation\b")


@endpoint("POST /graphql", returns=None, scope="GraphQL")
def send_graphql() -> None:
    """A query or a mutation."""


class _GraphQLBody(msgspec.Struct):
    data: dict[str, Any] | None = None
    errors: Any = None


class GraphQL:
    """GraphQL at a URL."""

    def __init__(self, client: Client, url: str) -> None:
        parts = SplitUrl.parse(check_url(url))
        self._client = client.for_origin(parts.origin)
        self._target = parts.target

    def execute(self, query: str, variables: Mapping[str, Any] | None = None, *, advice: str = "") -> dict[str, Any]:
        """Return the `data` of the response; raise GraphQLError if it contains errors, also beside data.

        A text that contains the word `mutation` is not repeated if its response is lost: OutcomeUnknown.
        """
        if not isinstance(query, str) or not query.strip():
            raise BadInput(f"query={show(query)}: pass the text of a query or a mutation.")
        values = {} if variables is None else variables
        if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
            kind = type(values).__name__  # not the value, which may contain secrets
            raise BadInput(f"variables=<{kind}>: pass a mapping from str to values, such as {{'slug': 'acme/web'}}.")
        body = json_of({"query": query, "variables": values})
        request = Request(send_graphql, self._target, body, repeatable=not _HAS_MUTATION.search(query))
        return fetch(self._client, request, self._read, advice=advice)

    def _read(self, request: Request, response: Response) -> dict[str, Any]:
        if errors := self._errors(request, response):
            raise GraphQLError(errors)
        data = protocol.read_as(request, response, _GraphQLBody).data
        if data is None:
            raise Malformed(f"The GraphQL response has neither data nor errors.\nRequest: {request.where}")
        return data

    def _errors(self, request: Request, response: Response) -> list[dict[str, Any]]:
        """Return the errors in a response without the token, in a frame that no traceback of them contains."""
        errors = protocol.read_as(request, response, _GraphQLBody).errors or []
        listed = errors if isinstance(errors, list) else [errors]
        dicts = [error if isinstance(error, dict) else {"message": str(error)} for error in listed]
        clean: list[dict[str, Any]] = json.loads(self._client.redact(json.dumps(dicts)))
        return clean
