"""Declare and check the options of listings. Does not know what they do."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypedDict

from buildframe.errors import BadInput
from buildframe.spec.operations import keywords
from buildframe.spec.times import Deadline, parse_duration, seconds_of
from buildframe.terminal import show

Extra = Mapping[str, str | Sequence[str]]
"""Additional text columns by path: {"team": "meta_data.team"}; a sequence of keys if a key contains a dot."""

MIN_OVERLAP = dt.timedelta(seconds=1)
"""`created_to` is exclusive and timestamps may be truncated to seconds. With less, builds of that second were lost."""

MAX_OVERLAP = dt.timedelta(days=365)

MAX_PAGE_SIZE = 100
"""The most rows of a page that the service allows."""

MAX_WORKERS = 64
"""Each worker is a thread with a connection. The service's rate limit is reached with far fewer."""


DEFAULTS: Mapping[str, Any] = {"raw": False, "workers": 4, "overlap": "1s", "partial": False}
"""Defaults of options other than None."""


@keywords
class CommonOptions(TypedDict, total=False):
    """Options of every list."""

    progress: Annotated[bool | None, "show a progress bar; by default only when interactive"]
    max_requests: Annotated[int | None, "stop after so many requests and return what was read, marked incomplete"]
    deadline: Annotated[Deadline, "raise after this time, such as '90s'; with `partial`, return what was read"]
    partial: Annotated[
        bool, "return what was read, marked incomplete, also after an interrupt or a failure of the service (False)"
    ]


@keywords
class ListOptions(CommonOptions, total=False):
    """Options of a list without an order in time."""

    columns: Annotated[Sequence[str] | None, "columns to return and decode, in this order; by default all"]
    extra: Annotated[
        Extra | None, 'additional text columns by path or keys, such as {"team": "meta_data.team"} of builds'
    ]
    raw: Annotated[bool, "add a column `raw` with each record as JSON text (False)"]
    page_size: Annotated[int | None, "rows to request per page, from 1 to 100 (100); fewer if the service fails"]


@keywords
class BuildListOptions(ListOptions, total=False):
    """Options of a list of builds."""

    workers: Annotated[int, "concurrent requests, from 1 to 64 (4)"]
    overlap: Annotated[str | dt.timedelta, "by how much the list may be out of order, such as '5s', from 1 s ('1s')"]


class CheckedOptions(NamedTuple):
    """The options of a list, checked; `seconds` is its deadline."""

    progress: bool | None
    max_requests: int | None
    seconds: float | None
    partial: bool
    workers: int
    overlap: dt.timedelta
    page_size: int | None


def check_options(options: Mapping[str, Any]) -> CheckedOptions:
    """Return `ListOptions` or `BuildListOptions` with their defaults; raise BadInput for invalid values."""
    optional = dict.fromkeys([*CommonOptions.__annotations__, "page_size"])
    every: dict[str, Any] = {**optional, **DEFAULTS, **options}
    _check_number("workers", every["workers"], most=MAX_WORKERS)
    if every["max_requests"] is not None:
        _check_number("max_requests", every["max_requests"])
    page_size = every["page_size"]
    if page_size is not None:
        _check_number("page_size", page_size, most=MAX_PAGE_SIZE)
    overlap = parse_duration(every["overlap"], "overlap")
    if not MIN_OVERLAP <= overlap <= MAX_OVERLAP:
        text = show(every["overlap"])
        raise BadInput(f"overlap={text}: pass 1 s (timestamps may be truncated to seconds) to 365 days.")
    seconds = None if every["deadline"] is None else seconds_of(every["deadline"], "deadline")
    return CheckedOptions(
        every["progress"], every["max_requests"], seconds, every["partial"], every["workers"], overlap, page_size
    )


def _check_number(name: str, number: Any, most: int | None = None) -> None:
    is_whole = isinstance(number, int) and not isinstance(number, bool)
    if not is_whole or number < 1 or (most is not None and number > most):
        raise BadInput(f"{name}={show(number)}: pass a whole number from 1{'' if most is None else f' to {most}'}.")
