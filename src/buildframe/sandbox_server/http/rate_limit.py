"""Rate limits per organization and user, in windows of real time."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_fields
from buildframe.sandbox_server.error_responses import HttpError


@checked_fields
@dataclass(frozen=True)
class Quota:
    """
    The rate limits of the sandbox.

    Parameters
    ----------
    organization, user : int, default 1,000,000
        Maximum number of requests of an organization and of a user per window.
    window : float, default 60.0
        Length of a window in seconds of real time.

    Raises
    ------
    BadInput
        If a limit is negative or the window is not above 0.

    Notes
    -----
    `Quota.REAL` contains the limits of the hosted service.

    Examples
    --------
    >>> from buildframe.sandbox_server import Quota
    >>> Quota.REAL
    Quota(organization=200, user=50, window=60.0)
    """

    organization: int = 1_000_000
    user: int = 1_000_000
    window: float = 60.0

    REAL: ClassVar[Quota]

    def __post_init__(self) -> None:
        for name, limit in (("organization", self.organization), ("user", self.user)):
            if limit < 0:
                raise BadInput(f"{name}={limit} must be a number of requests from 0.")
        if not 0 < self.window < math.inf:
            raise BadInput(f"window={self.window} must be a number of seconds above 0.")


Quota.REAL = Quota(organization=200, user=50)


class LimitStatus(NamedTuple):
    """The state of a limit after a request."""

    scope: str
    limit: int
    current: int
    reset: int

    @property
    def remaining(self) -> int:
        """The number of requests left in this window."""
        return max(0, self.limit - self.current)


class RequestCounter:
    """Counts requests per window."""

    def __init__(self, quota: Quota) -> None:
        self._quota = quota
        self._lock = threading.Lock()
        self._window = 0.0
        self._counts: Counter[tuple[str, str]] = Counter()

    def count(self, organization: str, user: str) -> tuple[LimitStatus, LimitStatus]:
        """Count a request and return the limits of the organization and of the user."""
        with self._lock:
            window, passed = divmod(time.monotonic(), self._quota.window)
            if window != self._window:
                self._window, self._counts = window, Counter()
            self._counts.update([("rest", organization), ("rest_user", user)])
            of_organization, of_user = self._counts["rest", organization], self._counts["rest_user", user]
        reset = math.ceil(self._quota.window - passed)
        return (
            LimitStatus("rest", self._quota.organization, of_organization, reset),
            LimitStatus("rest_user", self._quota.user, of_user, reset),
        )


def format_headers(statuses: tuple[LimitStatus, LimitStatus]) -> dict[str, str]:
    """Return the headers of the limits."""
    return {
        f"{prefix}-{value.title()}": str(getattr(status, value))
        for prefix, status in zip(("RateLimit", "RateLimit-User"), statuses, strict=True)
        for value in ("remaining", "limit", "reset")
    }


def too_many_requests(limit: LimitStatus) -> HttpError:
    """Return the error of an exceeded limit."""
    return HttpError(429, f"Too many requests. Please wait {limit.reset} seconds.", **limit._asdict())
