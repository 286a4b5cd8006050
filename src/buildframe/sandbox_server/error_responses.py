"""Error responses of the service. Each has a message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")


class HttpError(Exception):
    """An HTTP error response."""

    def __init__(self, status: int, message: str, **more: Any) -> None:
        self.status = status
        self.body = {"message": message, **more}
        super().__init__(message)


def lacks_scope(scope: str) -> HttpError:
    """Return the error of a token without a scope."""
    return HttpError(403, f"Your access token doesn't have the {scope} scope")


def not_found(what: str) -> HttpError:
    """Return the error of a resource that does not exist or that the token cannot see."""
    return HttpError(404, f"No {what} found")


def get_first_or_404(items: Iterable[Item], what: str) -> Item:
    """Return the first item. Raises `not_found` if there is none."""
    for item in items:
        return item
    raise not_found(what)


def too_deep() -> HttpError:
    """Return the error of a page beyond the maximum depth."""
    return HttpError(
        400,
        "Listing builds this deep is not supported. "
        "Please narrow your query using filters such as branch or created_from.",
    )


def invalid(wrong: Iterable[tuple[str, str]]) -> HttpError:
    """Return the error of invalid properties: pairs of field and problem."""
    errors = [{"field": field, "code": code} for field, code in wrong]
    return HttpError(422, "Validation Failed", errors=errors)
