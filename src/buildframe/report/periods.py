"""The time that a report is about, and the time before it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildframe.errors import BadInput

HISTORY = 4
"""Periods in which the moment of a change is looked for; the report's own is the last of them."""


_MOST_DAYS = 3650
"""Ten years, so that the history of a report does not reach beyond what times can express."""


@dataclass(frozen=True)
class Period:
    """Whole days of a zone: from the midnight `start` up to the midnight `end`, excluded."""

    start: pd.Timestamp
    end: pd.Timestamp

    @classmethod
    def last(cls, now: pd.Timestamp, days: int, tz: str = "UTC") -> Period:
        """The last `days` days that are over; BadInput where these are none, or the zone is."""
        if not isinstance(days, int) or days < 1:
            raise BadInput(f"days={days!r}: a report is of a whole number of days, 1 at least.")
        if days > _MOST_DAYS:
            raise BadInput(f"days={days}: a report is of {_MOST_DAYS:,} days at most.")
        try:
            local = now.tz_convert(tz)
        except (LookupError, ValueError, TypeError):
            raise BadInput(f"tz={tz!r} is no time zone; take a name such as 'UTC' or 'Europe/Berlin'.") from None
        return cls(_days_back(local, days), _days_back(local, 0))

    @property
    def days(self) -> int:
        """How many."""
        return (self.end.date() - self.start.date()).days

    @property
    def tz(self) -> str:
        """The zone of its midnights."""
        return str(self.end.tz)

    @property
    def before(self) -> Period:
        """As many days before."""
        return Period(_days_back(self.start, self.days), self.start)

    @property
    def history(self) -> Period:
        """Itself and the periods before in which the moment of a change is looked for."""
        return Period(_days_back(self.end, HISTORY * self.days), self.end)

    def of(self, frame: pd.DataFrame, at: str) -> pd.DataFrame:
        """The rows whose time `at` lies in it."""
        return frame[(frame[at] >= self.start) & (frame[at] < self.end)]


def midnights(times: pd.Series[pd.Timestamp], tz: str) -> pd.Series[pd.Timestamp]:
    """The start of the day in the zone on which each time lies; where the clocks skip midnight, an hour later."""
    days = times.dt.tz_convert(tz).dt.tz_localize(None).dt.normalize()
    return days.dt.tz_localize(tz, ambiguous=np.ones(len(days), bool), nonexistent="shift_forward")


def _days_back(time: pd.Timestamp, days: int) -> pd.Timestamp:
    """The midnight so many days before the day of a time, whatever the clocks do."""
    day = time.tz_localize(None).normalize() - pd.Timedelta(days, "D")
    return day.tz_localize(time.tz, ambiguous=True, nonexistent="shift_forward")
