"""What the door hands to an operation, and what the operation hands back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from buildframe.service.answers.filters import Asked
from buildframe.service.data.access import Access
from buildframe.service.paging import Page, Query
from buildframe.service.problems import Refused, forbidden, invalid
from buildframe.spec import Endpoint, misfits

JSON = "application/json; charset=utf-8"


@dataclass(frozen=True)
class Request:
    """What is asked: the operation, its path's names, filters, page and body, and by whom.

    `body` is the JSON object that was sent, unchecked; `properties` checks it. `accept` is the header of that name.
    """

    endpoint: Endpoint
    path: Mapping[str, str]
    filters: Mapping[str, Asked]
    page: Page
    access: Access
    body: Mapping[str, Any]
    query: Query
    accept: str

    def properties(self, refuse: Callable[[list[tuple[str, str]]], Refused] = invalid) -> dict[str, Any]:
        """The declared properties in the body; what is not declared is left out.

        Raises what `refuse` makes of all (field, problem) that are not as declared: 422 `Validation Failed`.
        """
        wrong = [
            (misfit.field, misfit.problem)
            for misfit in misfits(self.endpoint.properties, self.body)
            if not misfit.unknown
        ]
        if wrong:
            raise refuse(wrong)
        return {name: self.body[name] for name in self.endpoint.property_names if name in self.body}


@dataclass(frozen=True)
class Answer:
    """A body, for lists how many records there are on all pages, and what kind of text the body is."""

    body: bytes = b""
    total: int = 0
    kind: str = JSON


Operations = Mapping[str, Callable[[Request], Answer]]


def refuse_viewers(access: Access) -> None:
    """403 for a user who may not edit."""
    if not access.may_edit:
        raise forbidden()


def list_of(bodies: Sequence[bytes]) -> bytes:
    """A JSON list of bodies."""
    return b"[" + b",".join(bodies) + b"]"
