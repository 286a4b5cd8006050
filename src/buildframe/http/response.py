"""A response as it came, and what its headers say of the service's time and limits. Knows no endpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import msgspec

from buildframe.errors import Malformed
from buildframe.spec import Moment

_YEARS = range(1970, 9000)  # of a Date; any other is a fault


class Answer(NamedTuple):
    """One answer as it came: header names in lower case, `next` and `last` the links that the server wrote."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    next: str | None = None
    last: str | None = None

    def __repr__(self) -> str:
        return f"<Answer {self.status}, {len(self.body)} bytes>"  # a traceback must not print what a server echoes


class Quota(NamedTuple):
    """One limit as the headers tell it: which, requests left, and seconds until the window ends."""

    name: str
    remaining: int
    reset: float


def date_of(answer: Answer) -> Moment:
    """The service's time of an answer."""
    try:
        at = Moment.of(parsedate_to_datetime(answer.headers.get("date", "")))
        if at.year not in _YEARS:
            raise ValueError
        return at
    except (ValueError, TypeError, OverflowError):
        raise Malformed(
            f"The answer has no readable Date header ({answer.headers.get('date')!r}), so its time is unknown; "
            "a proxy may have dropped it."
        ) from None


LONGEST_WINDOW = 3600.0
"""Seconds; a larger number is no time until a window's end, but something else."""

_QUOTAS = ("ratelimit", "ratelimit-user", "rate-limit")


def quotas(answer: Answer) -> list[Quota]:
    """The limits that an answer's headers tell."""
    told = [(name, _number(answer, f"{name}-remaining"), _number(answer, f"{name}-reset")) for name in _QUOTAS]
    return [Quota(name, int(left), reset) for name, left, reset in told if left is not None and reset is not None]


def closed_for(answer: Answer) -> float | None:
    """Seconds for which a 429 refuses everything, whatever its limits say: its Retry-After.

    Where neither that nor a limit that is used up is in its headers: the reset in its body.
    """
    if answer.status != 429:
        return None
    told = [seconds for seconds in (_number(answer, "retry-after"), _until(answer)) if seconds is not None]
    if told or any(quota.remaining <= 0 for quota in quotas(answer)):
        return max(told, default=None)
    return _reset_in_body(answer)


def retry_after(answer: Answer) -> float | None:
    """Seconds to wait before asking again, as the server says: its Retry-After, else the largest exhausted reset."""
    if answer.status != 429 and answer.status < 500:
        return None
    told = [
        _number(answer, "retry-after"),
        _until(answer),
        *(quota.reset for quota in quotas(answer) if quota.remaining <= 0 and quota.reset <= LONGEST_WINDOW),
    ]
    if answer.status == 429:
        told.append(_reset_in_body(answer))
    return max((seconds for seconds in told if seconds is not None), default=None)


def _until(answer: Answer) -> float | None:
    """Seconds until a Retry-After that is a date."""
    try:
        return max(
            0.0, (Moment.of(parsedate_to_datetime(answer.headers["retry-after"])) - date_of(answer)).total_seconds()
        )
    except (KeyError, ValueError, TypeError, OverflowError, Malformed):
        return None


def _reset_in_body(answer: Answer) -> float | None:
    try:
        reset = msgspec.json.decode(answer.body)["reset"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError, TypeError):
        return None
    return float(reset) if isinstance(reset, int | float) and 0 <= reset <= LONGEST_WINDOW else None


def _number(answer: Answer, header: str) -> float | None:
    try:
        number = float(answer.headers.get(header, ""))
    except ValueError:
        return None
    return max(0.0, number) if math.isfinite(number) else None
