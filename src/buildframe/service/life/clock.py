"""The sandbox's clock: it stands still until it is set or advanced, or runs by itself."""

from __future__ import annotations

import datetime as dt
import math
import threading
import time
from collections.abc import Callable

from buildframe.arguments import checked_call, checked_names
from buildframe.errors import BadInput, BuildframeError
from buildframe.service.life.engine import Engine
from buildframe.spec import Moment, When, when

_TICK_S = 0.2
_LATE_S = 1.0


class Clock:
    """The time in a sandbox. Moving it forward lets everything happen that is due until then.

    With a `speed`, in simulated seconds per second, it also runs by itself while it is started. One that runs
    faster than this machine can follow loses time.
    """

    def __init__(self, engine: Engine, now: Callable[[], int], speed: float | None = None) -> None:
        if speed is not None and not 0 < speed < math.inf:
            raise BadInput(f"speed={speed}: a clock runs at a speed above 0, or stands still with None.")
        self._engine, self._now, self._speed = engine, now, speed
        self._since = now(), time.monotonic()
        self._ended = threading.Event()
        self._ticker: threading.Thread | None = None

    def start(self) -> None:
        """Run from now on, if it has a speed."""
        if self._speed is not None:
            self._since = self._now(), time.monotonic()
            self._engine.catch_up = self.catch_up
            self._ticker = threading.Thread(target=self._tick, name="buildframe sandbox's clock", daemon=True)
            self._ticker.start()

    def stop(self) -> None:
        """Stand still; what was shown last stays in the data."""
        self._ended.set()
        if self._ticker is not None:
            self._ticker.join()

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_S):
            try:
                self.catch_up()
            except BuildframeError:  # the sandbox is stopped
                return
            except Exception:  # noqa: S112  whoever asks next meets it too, and is told
                continue

    def catch_up(self) -> None:
        """Let everything happen that is due by now, if the clock runs."""
        if self._speed is None or self._ended.is_set():
            return
        with self._engine.turn:
            shown, since = self._since
            began = time.monotonic()
            moment = shown + int((began - since) * self._speed * 1e6)
            self._engine.run_until(moment)
            if time.monotonic() - began > _LATE_S:
                self._since = moment, time.monotonic()

    def now(self) -> Moment:
        """What the sandbox's clock shows."""
        self.catch_up()
        return Moment.from_us(self._now())

    @checked_names
    def set(self, moment: When) -> Moment:
        """Move the clock forward to a moment; it cannot go back, for what happened has happened."""
        goal = when(moment, "moment")
        with self._engine.turn:
            now = self.now()
            if goal < now:
                raise BadInput(f"The sandbox's clock shows {now.text()} and cannot be set back to {goal.text()}.")
            self._engine.run_until(goal.us)
            self._since = goal.us, time.monotonic()
        return goal

    @checked_call
    def advance(self, by: dt.timedelta) -> Moment:
        """Move the clock forward by so much."""
        with self._engine.turn:
            try:
                goal = self.now() + by
            except OverflowError:
                raise BadInput(f"by={by!r}: the clock cannot show a time that far away.") from None
            return self.set(goal)

    def __repr__(self) -> str:
        return f"<Clock {self.now().text()}>"
