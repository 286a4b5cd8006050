"""The sandbox's clock: it stands still until it is set or advanced."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from buildframe.errors import BadInput
from buildframe.spec import Moment, When, when


class Clock:
    """The time in a sandbox. Moving it forward lets everything happen that is due until then."""

    def __init__(self, now: Callable[[], int], run_until: Callable[[int], None]) -> None:
        self._now, self._run_until = now, run_until

    def now(self) -> Moment:
        """What the sandbox's clock shows."""
        return Moment.from_us(self._now())

    def set(self, moment: When) -> Moment:
        """Move the clock forward to a moment; it cannot go back, for what happened has happened."""
        now, goal = self.now(), when(moment, "moment")
        if goal < now:
            raise BadInput(f"The sandbox's clock shows {now.text()} and cannot be set back to {goal.text()}.")
        self._run_until(goal.us)
        return goal

    def advance(self, by: dt.timedelta) -> Moment:
        """Move the clock forward by so much."""
        return self.set(self.now() + by)

    def __repr__(self) -> str:
        return f"<Clock {self.now().text()}>"
