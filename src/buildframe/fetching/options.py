"""How a list of builds is walked, as a user may choose."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Self, TypedDict

from buildframe.errors import BadInput
from buildframe.spec.times import Deadline, parse_duration, seconds_of

Extra = Mapping[str, str | Sequence[str]]
"""More text columns, by path: {"team": "meta_data.team"}; a sequence of keys where a key holds a dot."""

LEAST_OVERLAP = dt.timedelta(seconds=1)
"""`created_to` is exclusive and stamps may be cut to seconds: with less, the builds of that second were lost."""

MOST_OVERLAP = dt.timedelta(days=365)

MOST_WORKERS = 64
"""Each is a thread and a connection; the service's limit is reached long before."""


class Listing(TypedDict, total=False):
    """What is wanted of a list's rows, and whether its progress shows."""

    columns: Annotated[Sequence[str] | None, "only these columns, in this order; only they are read (None: all)"]
    extra: Annotated[Extra | None, 'more text columns, by path, such as {"team": "meta_data.team"} (None)']
    raw: Annotated[bool, "also the whole record, as JSON text in a column `raw` (False)"]
    progress: Annotated[bool | None, "a bar: where somebody can see it; True and False say so regardless (None)"]
    deadline: Annotated[Deadline, "raise after this time, such as '90s'; with `partial`, return what is there (None)"]
    partial: Annotated[
        bool, "hand back what is there, marked incomplete, also when interrupted or when the service fails (False)"
    ]
    max_requests: Annotated[int | None, "stop after so many requests, with what is there, marked incomplete (None)"]


class Walking(TypedDict, total=False):
    """How to walk a list of builds."""

    progress: Annotated[bool | None, "a bar: where somebody can see it; True and False say so regardless (None)"]
    workers: Annotated[int, "requests under way at once, at most; up to 64 (4)"]
    overlap: Annotated[
        str | dt.timedelta, "how much the service's list may be out of its order, such as '5s'; at least 1 s ('1s')"
    ]
    max_requests: Annotated[int | None, "stop after so many requests, with what is there, marked incomplete (None)"]
    deadline: Annotated[Deadline, "raise after this time, such as '90s'; with `partial`, return what is there (None)"]
    partial: Annotated[
        bool, "hand back what is there, marked incomplete, also when interrupted or when the service fails (False)"
    ]


@dataclass(frozen=True)
class Terms:
    """The same, checked."""

    progress: bool | None = None
    workers: int = 4
    overlap: dt.timedelta = LEAST_OVERLAP
    max_requests: int | None = None
    seconds: float | None = None
    partial: bool = False

    @classmethod
    def of(
        cls,
        *,
        overlap: str | dt.timedelta = LEAST_OVERLAP,
        deadline: Deadline = None,
        **others: Any,
    ) -> Self:
        """The terms that a user means; what cannot be meant raises BadInput."""
        _check_number("workers", others.get("workers", 1), most=MOST_WORKERS)
        most_requests(others.get("max_requests"))
        reach = parse_duration(overlap, "overlap")
        if not LEAST_OVERLAP <= reach <= MOST_OVERLAP:
            raise BadInput(f"overlap={overlap!r}: at least 1 s, as stamps may be cut to seconds, and at most 365 days.")
        limit = None if deadline is None else seconds_of(deadline, "deadline")
        return cls(overlap=reach, seconds=limit, **others)


def most_requests(number: int | None) -> int | None:
    """`max_requests=` as a user means it; what is no whole number from 1 raises BadInput."""
    if number is not None:
        _check_number("max_requests", number)
    return number


def _check_number(name: str, number: Any, most: int | None = None) -> None:
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if not is_whole or number < 1 or (most is not None and number > most):
        raise BadInput(f"{name}={number!r}: pass a whole number from 1{'' if most is None else f' to {most}'}.")
