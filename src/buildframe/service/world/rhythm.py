"""When people work: how busy each hour of the week is, in UTC."""

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


def weekday(moment: int) -> int:
    """Day of the week of a moment in microseconds; Monday is 0."""
    return (moment // _DAY + _THURSDAY) % 7


def busyness(moment: int) -> float:
    """How busy the hour of a moment is; 1 in the busiest hours."""
    share = _WEEKDAY[moment // _HOUR % _HOURS_A_DAY]
    return share if weekday(moment) < 5 else share * _WEEKEND


def full_hours(start: int, until: int) -> float:
    """How many of the busiest hours the time between two moments is worth."""
    whole = sum(busyness(hour) for hour in range(start, until, _HOUR))
    beyond = (-(until - start) % _HOUR) / _HOUR
    return whole - beyond * busyness(until)


def working_day(moment: int) -> int:
    """The midnight that starts the working day of a moment, or the next working day."""
    day = moment - moment % _DAY
    while weekday(day) >= 5:
        day += _DAY
    return day
