"""Limits of requests: for an organization and for a user, in windows of real time."""

from __future__ import annotations

import math
import threading
import time
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from buildframe.arguments import checked_fields
from buildframe.errors import BadInput
from buildframe.service.problems import Refused


@checked_fields
@dataclass(frozen=True)
class Quota:
    """How many requests an organization and a user may make in a window of so many seconds.

    The default never gets in the way; `Quota.REAL` is what the hosted service allows.
    """

    organization: int = 1_000_000
    user: int = 1_000_000
    window: float = 60.0

    REAL: ClassVar[Quota]

    def __post_init__(self) -> None:
        for name, limit in (("organization", self.organization), ("user", self.user)):
            if limit < 0:
                raise BadInput(f"{name}={limit}: pass a number of requests from 0.")
        if not 0 < self.window < math.inf:
            raise BadInput(f"window={self.window}: pass a number of seconds above 0.")


Quota.REAL = Quota(organization=200, user=50)


class Standing(NamedTuple):
    """How a limit stands after a request."""

    scope: str
    limit: int
    current: int
    reset: int

    @property
    def remaining(self) -> int:
        """How many requests are left in this window."""
        return max(0, self.limit - self.current)


class Meter:
    """Counts requests."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._lock = threading.Lock()
        self._counts: dict[tuple[str, str], tuple[int, int]] = {}

    def count(self, organization: str, user: str) -> tuple[Standing, Standing]:
        """Count a request; how it stands for the organization and for the user."""
        with self._lock:
            return (
                self._count("rest", organization, self._quota.organization),
                self._count("rest_user", user, self._quota.user),
            )

    def _count(self, scope: str, who: str, limit: int) -> Standing:
        window, passed = divmod(time.monotonic(), self._quota.window)
        began, before = self._counts.get((scope, who), (0, 0))
        current = before + 1 if began == int(window) else 1
        self._counts[scope, who] = (int(window), current)
        return Standing(scope, limit, current, math.ceil(self._quota.window - passed))


def headers(standings: tuple[Standing, Standing]) -> dict[str, str]:
    """The limits' headers."""
    return {
        f"{prefix}-{word}": str(value)
        for prefix, standing in zip(("RateLimit", "RateLimit-User"), standings, strict=True)
        for word, value in (
            ("Remaining", standing.remaining),
            ("Limit", standing.limit),
            ("Reset", standing.reset),
        )
    }


def refuse_excess(standings: tuple[Standing, Standing]) -> None:
    """Refuse a request that is over a limit."""
    for standing in standings:
        if standing.current > standing.limit:
            raise excess(standing)


def excess(standing: Standing) -> Refused:
    """What a request over this limit gets."""
    return Refused(
        429,
        f"Too many requests. Please wait {standing.reset} seconds.",
        scope=standing.scope,
        limit=standing.limit,
        current=standing.current,
        reset=standing.reset,
    )
