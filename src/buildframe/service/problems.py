"""What the service answers when it refuses; every such answer carries a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Refused(Exception):
    """A request that gets an error for an answer."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        self.status = status
        self.body = {"message": message, **more}
        super().__init__(message)


def unauthenticated() -> Refused:
    """No token, or none that is known."""
    return Refused(401, "Authentication required. Please supply a valid API Access Token")


def lacks_scope(scope: str) -> Refused:
    """The token does not allow this."""
    return Refused(403, f"Your access token doesn't have the {scope} scope")


def not_found(what: str) -> Refused:
    """There is no such thing, or the token may not see it."""
    return Refused(404, f"No {what} found")


def no_route(path: str) -> Refused:
    """No operation has this path."""
    return Refused(404, f"No route matches {path.lstrip('/')}")


def too_deep() -> Refused:
    """The page lies further back than pages are served."""
    return Refused(
        400,
        "Listing builds this deep is not supported. "
        "Please narrow your query using filters such as branch or created_from.",
    )


def unreadable(why: str) -> Refused:
    """The body is no JSON object."""
    return Refused(400, why)


def too_large(most: int) -> Refused:
    """The body is longer than bodies may be."""
    return Refused(413, f"The body is longer than {most} bytes")


def forbidden() -> Refused:
    """The token's user may not do this."""
    return Refused(403, "Forbidden")


def invalid(wrong: Iterable[tuple[str, str]]) -> Refused:
    """Properties, by name, that cannot be as they were sent."""
    errors = [{"field": field, "code": code} for field, code in wrong]
    return Refused(422, "Validation Failed", errors=errors)
