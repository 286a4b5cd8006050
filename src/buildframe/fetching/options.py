"""Declare and check the options of listings. Does not know what they do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypedDict

from buildframe.errors import BadInput
from buildframe.spec.operations import keywords
from buildframe.spec.times import Deadline, parse_duration, seconds_of
from buildframe.terminal import show

Extra = Mapping[str, str | Sequence[str]]
"""Additional text columns by path: {"team": "meta_data.team"}; a sequence of keys if a key contains a dot."""

MIN_OVERLAP = dt.timedelta(seconds=1)
"""`created_to` is exclusive and timestamps may be truncated to seconds. With less, builds of that second were lost."""

MAX_OVERLAP = dt.timedelta(days=365)

MAX_WORKERS = 64
"""Each worker is a thread with a connection. The service's rate limit is reached with far fewer."""


@keywords
class ListOptions(TypedDict, total=False):
    """Options of a list without an order in time."""

    columns: Annotated[Sequence[str] | None, "columns to return, in this order; only they are decoded"]
    extra: Annotated[Extra | None, 'additional text columns by path, such as {"team": "meta_data.team"}']
    raw: Annotated[bool, "add a column `raw` with each record as JSON text (False)"]
    progress: Annotated[bool | None, "show a progress bar; by default only when interactive"]
    deadline: Annotated[Deadline, "raise after this time, such as '90s'; with `partial`, return what was read"]
    partial: Annotated[
        bool, "return what was read, marked incomplete, also after an interrupt or a failure of the service (False)"
    ]
    max_requests: Annotated[int | None, "stop after so many requests and return what was read, marked incomplete"]


@keywords
class BuildListOptions(TypedDict, total=False):
    """Options of a list of builds."""

    progress: Annotated[bool | None, "show a progress bar; by default only when interactive"]
    workers: Annotated[int, "concurrent requests, from 1 to 64 (4)"]
    overlap: Annotated[
        str | dt.timedelta, "by how much the service's list may be out of order, such as '5s', from 1 s ('1s')"
    ]
    max_requests: Annotated[int | None, "stop after so many requests and return what was read, marked incomplete"]
    deadline: Annotated[Deadline, "raise after this time, such as '90s'; with `partial`, return what was read"]
    partial: Annotated[
        bool, "return what was read, marked incomplete, also after an interrupt or a failure of the service (False)"
    ]


@dataclass(frozen=True)
class CheckedOptions:
    """Options of a list of builds, checked."""

    progress: bool | None = None
    workers: int = 4
    overlap: dt.timedelta = MIN_OVERLAP
    max_requests: int | None = None
    seconds: float | None = None
    partial: bool = False

    @classmethod
    def check(
        cls,
        *,
        overlap: str | dt.timedelta = MIN_OVERLAP,
        deadline: Deadline = None,
        **others: Any,
    ) -> Self:
        """Return the options; raise BadInput for invalid values."""
        _check_number("workers", others.get("workers", 1), most=MAX_WORKERS)
        check_max_requests(others.get("max_requests"))
        duration = parse_duration(overlap, "overlap")
        if not MIN_OVERLAP <= duration <= MAX_OVERLAP:
            raise BadInput(f"overlap={show(overlap)}: pass 1 s (timestamps may be truncated to seconds) to 365 days.")
        limit = None if deadline is None else seconds_of(deadline, "deadline")
        return cls(overlap=duration, seconds=limit, **others)


def check_max_requests(number: int | None) -> int | None:
    """Return `max_requests`; raise BadInput unless it is None or a whole number from 1."""
    if number is not None:
        _check_number("max_requests", number)
    return number


def _check_number(name: str, number: Any, most: int | None = None) -> None:
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if not is_whole or number < 1 or (most is not None and number > most):
        raise BadInput(f"{name}={show(number)}: pass a whole number from 1{'' if most is None else f' to {most}'}.")


DEFAULTS: Mapping[str, Any] = {
    "raw": False,
    "workers": 4,
    "overlap": "1s",
    "partial": False,
}
"""Defaults of options other than None."""
