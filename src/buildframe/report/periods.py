"""Compute the period of a report, the period before it, and its history. Knows time zones only."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.terminal import show

HISTORY = 4
"""Number of periods that are searched for change points, including the period of the report."""

_MAX_DAYS = 3650
"""Ten years, so that the history of a report stays within the range of timestamps."""


@dataclass(frozen=True)
class Period:
    """
    Represent whole days of a time zone.

    Parameters
    ----------
    start, end : Timestamp
        First midnight, and the midnight after the last day. The end is excluded.
    """

    start: pd.Timestamp
    end: pd.Timestamp

    @classmethod
    def last(cls, now: pd.Timestamp, days: int, tz: str = "UTC") -> Period:
        """
        Return the last complete days before a time.

        Parameters
        ----------
        now : Timestamp
            Time with a zone. Its own day is not part of the period, because it is not over.
        days : int
            Number of days, 1 to 3,650.
        tz : str, default "UTC"
            Time zone that defines the days.

        Returns
        -------
        Period
            The days.

        Raises
        ------
        BadInput
            If `days` is out of range or `tz` is not a time zone.

        Examples
        --------
        >>> Period.last(pd.Timestamp("2026-10-26T08:00Z"), 7).start
        Timestamp('2026-10-19 00:00:00+0000', tz='UTC')
        """
        if not isinstance(days, int) or days < 1:
            raise BadInput(f"days={show(days)} is not a number of days. Use a whole number from 1 to {_MAX_DAYS:,}.")
        if days > _MAX_DAYS:
            raise BadInput(f"days={days} is too long. Use a whole number from 1 to {_MAX_DAYS:,}.")
        try:
            local = now.tz_convert(tz)
        except (LookupError, ValueError, TypeError):
            raise BadInput(f"tz={show(tz)} is not a time zone. Use a name such as 'UTC' or 'Europe/Berlin'.") from None
        return cls(_days_back(local, days), _days_back(local, 0))

    @property
    def days(self) -> int:
        """Number of days."""
        return (self.end.date() - self.start.date()).days

    @property
    def tz(self) -> str:
        """Time zone of the days."""
        return str(self.end.tz)

    @property
    def before(self) -> Period:
        """Period of the same length before this one."""
        return Period(_days_back(self.start, self.days), self.start)

    @property
    def history(self) -> Period:
        """This period and the three before it, which are searched for change points."""
        return Period(_days_back(self.end, HISTORY * self.days), self.end)

    def of(self, frame: pd.DataFrame, at: str) -> pd.DataFrame:
        """
        Select the rows of a frame whose time lies in the period.

        Parameters
        ----------
        frame : DataFrame
            Builds or jobs.
        at : str
            Column of the time.

        Returns
        -------
        DataFrame
            The selected rows.
        """
        return frame[self.contains(frame[at])]

    def contains(self, times: pd.Series[pd.Timestamp]) -> pd.Series[bool]:
        """
        Check which times lie in the period.

        Parameters
        ----------
        times : Series
            Times with a zone.

        Returns
        -------
        Series
            `bool` on the index of the times.
        """
        return (times >= self.start) & (times < self.end)


def midnights(times: pd.Series[pd.Timestamp], tz: str) -> pd.Series[pd.Timestamp]:
    """Return the start of the day of each time in a zone. If clocks skip midnight, the day starts an hour later."""
    days = times.dt.tz_convert(tz).dt.tz_localize(None).dt.normalize()
    return days.dt.tz_localize(tz, ambiguous=np.ones(len(days), bool), nonexistent="shift_forward")


def _days_back(time: pd.Timestamp, days: int) -> pd.Timestamp:
    """Return the midnight a number of days before the day of a time, in local time."""
    day = time.tz_localize(None).normalize() - pd.Timedelta(days, "D")
    return day.tz_localize(time.tz, ambiguous=True, nonexistent="shift_forward")
