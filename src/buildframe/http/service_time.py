"""Estimate the service's time from the `Date` of every response of a call. Knows headers; does not know HTTP."""

from __future__ import annotations

import datetime as dt
import threading
import time

from buildframe.errors import Malformed
from buildframe.http.response import Response, date_of
from buildframe.spec import Moment

SIMULATED = "x-simulated-time"
"""Header of services whose clock runs faster than real time, or stands still: sandboxes."""


class ServiceTime:
    """The service's time at the first response of a call. Threads share it.

    A `Date` may be wrong, as one server or proxy of many may have a wrong clock. A time that is too late loses rows
    and one that is too early only costs requests, so the estimate `at` is the earliest that any response implies.
    """

    def __init__(self) -> None:
        self.at: Moment | None = None
        self.is_simulated = False
        self._begin = time.monotonic()
        self._lock = threading.Lock()

    def read(self, response: Response) -> None:
        """Take the time of a response into account; one without a readable `Date` has none."""
        try:
            date = date_of(response)
        except Malformed:
            return
        with self._lock:
            self.is_simulated = self.is_simulated or SIMULATED in response.headers
            self.see(date)

    def see(self, date: Moment) -> None:
        """Take a time of the service into account that was read just now."""
        if self.at is None:
            self.at = date
        elif date < self.at:  # the clock of an earlier response was ahead
            passed = dt.timedelta(seconds=time.monotonic() - self._begin)
            self.at = Moment.of((date - passed).replace(microsecond=0))
