"""Reading the bodies of requests."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request as HttpRequest

from buildframe.service import problems

_LARGEST_BODY = 1024 * 1024


async def body_of(http: HttpRequest) -> bytes | None:
    """The body; None if it is too large, which is read to its end but not kept."""
    body = b""
    async for chunk in http.stream():
        body = body + chunk if len(body) <= _LARGEST_BODY else body
    return body if len(body) <= _LARGEST_BODY else None


def object_in(sent: bytes | None) -> dict[str, Any]:
    """The JSON object that was sent; an empty one if nothing was."""
    if sent is None:
        raise problems.too_large(_LARGEST_BODY)
    try:
        body = msgspec.json.decode(sent) if sent.strip() else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as why:
        raise problems.unreadable(f"The body cannot be read as JSON: {why}") from None
    if not isinstance(body, dict):
        raise problems.unreadable("The body must be a JSON object")
    return body
