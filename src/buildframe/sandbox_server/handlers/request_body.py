"""Read and parse request bodies."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest

from buildframe.sandbox_server.error_responses import HttpError

_LARGEST_BODY = 1024 * 1024


async def read_body(http: HttpRequest) -> bytes | None:
    """Read the body; None if it is too large. The rest is read and discarded."""
    body = b""
    async for chunk in http.stream():
        body = body + chunk if len(body) <= _LARGEST_BODY else body
    return body if len(body) <= _LARGEST_BODY else None


def parse_object(raw_body: bytes | None) -> dict[str, Any]:
    """Parse a JSON object; an empty body is an empty object."""
    if raw_body is None:
        raise HttpError(413, f"The body is longer than {_LARGEST_BODY} bytes")
    try:
        body = msgspec.json.decode(raw_body) if raw_body.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        raise HttpError(400, f"The body cannot be read as JSON: {why}") from None
    if not isinstance(body, dict):
        raise HttpError(400, "The body must be a JSON object")
    return body
