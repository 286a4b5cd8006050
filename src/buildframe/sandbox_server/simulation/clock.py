"""The clock of a sandbox: it stands still until you set or advance it, or runs at a speed."""

from __future__ import annotations

import datetime as dt
import math
import threading
import time

from buildframe.errors import BadInput, BuildframeError
from buildframe.guards.arguments import checked_call, checked_names
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.spec import Moment, When, when

_TICK_S = 0.2
_LATE_S = 1.0


class Clock:
    """
    The simulated clock of a sandbox, as `Sandbox.clock`.

    Moving the clock forward processes everything that is due until then: agents take jobs, builds end, people push.
    A clock with a speed also runs continuously. If this machine cannot keep up with the speed, the clock runs slower.

    Parameters
    ----------
    simulator : Simulator
        Simulator that processes what is due.
    speed : float, optional
        Simulated seconds per second. By default the clock stands still.

    Examples
    --------
    >>> import datetime as dt
    >>> from buildframe.sandbox_server import Sandbox
    >>> with Sandbox(builds=20, days=2) as sandbox:
    ...     print(sandbox.clock.advance(dt.timedelta(hours=3)))
    2026-10-30 18:00:00+00:00
    """

    def __init__(self, simulator: Simulator, speed: float | None = None) -> None:
        if speed is not None and not 0 < speed < math.inf:
            raise BadInput(
                f"speed={speed} is not a speed. Use a number above 0, or None for a clock that stands still."
            )
        self._simulator, self._speed = simulator, speed
        self._since = simulator.db.load_now(), time.monotonic()
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def start(self) -> None:
        """Start running, if the clock has a speed."""
        if self._speed is not None:
            self._simulator.catch_up = self.catch_up
            self._ticker = threading.Thread(target=self._tick, name="buildframe sandbox's clock", daemon=True)
            self._ticker.start()

    def stop(self) -> None:
        """Stop running. The database keeps the last time."""
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_S):
            try:
                self.catch_up()
            except BuildframeError:  # the sandbox is stopped
                return
            except Exception:  # noqa: S112  the next request raises it again, and reports it
                continue

    def catch_up(self) -> None:
        """Process everything that is due by now, if the clock runs."""
        if self._speed is None or self._ended.is_set():
            return
        with self._simulator.lock:
            shown, since = self._since
            began = time.monotonic()
            timestamp = shown + int((began - since) * self._speed * 1e6)
            self._simulator.run_until(timestamp)
            if time.monotonic() - began > _LATE_S:
                self._since = timestamp, time.monotonic()

    def now(self) -> Moment:
        """
        Return the current simulated time.

        Returns
        -------
        Moment
            A timezone-aware datetime in UTC.
        """
        self.catch_up()
        return Moment.from_us(self._simulator.db.load_now())

    @checked_names
    def set(self, timestamp: When) -> Moment:
        """
        Move the clock forward to a time.

        Parameters
        ----------
        timestamp : datetime, date or str
            The new time: a timezone-aware datetime, a date, or an ISO 8601 text with a zone.

        Returns
        -------
        Moment
            The new time, in UTC.

        Raises
        ------
        BadInput
            If `timestamp` lies before the current time, or is not a time.
        """
        goal = when(timestamp, "timestamp")
        with self._simulator.lock:
            now = self.now()
            if goal < now:
                raise BadInput(
                    f"timestamp={goal.text()!r} is before the sandbox's clock, {now.text()}. Use a later time."
                )
            self._simulator.run_until(goal.us)
            self._since = goal.us, time.monotonic()
        return goal

    @checked_call
    def advance(self, by: dt.timedelta) -> Moment:
        """
        Move the clock forward by a duration.

        Parameters
        ----------
        by : timedelta
            The duration, not negative.

        Returns
        -------
        Moment
            The new time, in UTC.

        Raises
        ------
        BadInput
            If `by` is negative or too large.
        """
        with self._simulator.lock:
            try:
                goal = self.now() + by
            except OverflowError:
                raise BadInput(f"by={by!r} is too long: datetimes end with the year 9999.") from None
            return self.set(goal)

    def __repr__(self) -> str:
        return f"<Clock {self.now().text()}>"
