"""Working hours: the activity in each hour of the week, in UTC."""

from __future__ import annotations

_HOUR = 3_600_000_000
_HOURS_A_DAY = 24
_DAY = _HOURS_A_DAY * _HOUR
_THURSDAY = 3  # 1970-01-01, day 0, was one
_WEEKEND = 0.08
_WEEKDAY = (
    0.03, 0.03, 0.03, 0.03, 0.03, 0.04, 0.15, 0.5, 0.8, 1.0, 1.0, 1.0,
    0.7, 1.0, 1.0, 1.0, 1.0, 0.7, 0.4, 0.25, 0.15, 0.1, 0.06, 0.04,
)  # fmt: skip


def weekday(timestamp: int) -> int:
    """Return the day of the week of a timestamp in microseconds; Monday is 0."""
    return (timestamp // _DAY + _THURSDAY) % 7


def hour_of_week(timestamp: int) -> int:
    """Return the hour of the week of a timestamp, from 0: Monday 00:00 UTC."""
    return weekday(timestamp) * _HOURS_A_DAY + timestamp // _HOUR % _HOURS_A_DAY


def next_hours(timestamp: int) -> range:
    """Return the timestamps of the 168 full hours after a timestamp."""
    first = timestamp - timestamp % _HOUR + _HOUR
    return range(first, first + 7 * _DAY, _HOUR)


def activity(timestamp: int) -> float:
    """Return the activity in the hour of a timestamp; 1 in the busiest hours."""
    share = _WEEKDAY[timestamp // _HOUR % _HOURS_A_DAY]
    return share if weekday(timestamp) < 5 else share * _WEEKEND


def busy_hours(start: int, until: int) -> float:
    """Return the sum of activity between two timestamps, in hours of full activity."""
    whole = sum(activity(hour) for hour in range(start, until, _HOUR))
    beyond = (-(until - start) % _HOUR) / _HOUR
    return whole - beyond * activity(until)


def working_day(timestamp: int) -> int:
    """Return the midnight that starts the working day of a timestamp, or the next working day."""
    day = timestamp - timestamp % _DAY
    while weekday(day) >= 5:
        day += _DAY
    return day
