"""Parse times and durations of the service and of users. All times are in UTC. Does not know requests."""

from __future__ import annotations

import datetime as dt
import re
from typing import Self, TypeAlias

from buildframe.errors import BadInput, Malformed
from buildframe.terminal import show

When = str | dt.date | dt.timedelta
"""A point in time that a user passes: see `when`."""

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "min": "minutes", "m": "minutes", "s": "seconds"}
_AGO = re.compile(r"(\d{1,18})\s*(min|[wdhms])")
_BARE_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONG_FRACTION = re.compile(r"(\.\d{6})\d+")


VALID_YEARS = range(1970, 9000)
"""Years of possible timestamps of a service. Others stand for "never", or are damaged."""


class Moment(dt.datetime):
    """
    A `datetime` that is always in UTC, with microsecond resolution.

    Examples
    --------
    >>> from buildframe.spec import Moment
    >>> moment = Moment.parse("2013-09-03 13:24:38 UTC")
    >>> moment.text(), moment.us
    ('2013-09-03T13:24:38Z', 1378214678000000)
    """

    @classmethod
    def of(cls, instant: dt.datetime) -> Self:
        """
        Convert a datetime to UTC.

        Parameters
        ----------
        instant : datetime
            Any datetime with a time zone.

        Returns
        -------
        Moment
            The same time in UTC.

        Raises
        ------
        ValueError
            If the datetime has no time zone.
        """
        if instant.tzinfo is None or instant.utcoffset() is None:
            raise ValueError(f"{instant.isoformat()} has no time zone")
        utc = instant.astimezone(dt.UTC)
        return cls.combine(utc, utc.timetz())

    @classmethod
    def parse(cls, text: str) -> Self:
        """
        Parse a timestamp of the service.

        Parameters
        ----------
        text : str
            Timestamp in ISO 8601, or with " UTC" at its end.

        Returns
        -------
        Moment
            The time, truncated to microseconds.

        Raises
        ------
        Malformed
            If the text is not a timestamp or has no time zone.
        """
        try:
            return cls.of(_from_iso(_LONG_FRACTION.sub(r"\1", text.strip())))
        except (ValueError, OverflowError) as why:
            raise Malformed(f"The service sent {text!r} instead of a timestamp: {why}") from None

    @classmethod
    def from_us(cls, microseconds: int) -> Self:
        """
        Return the time that is this many microseconds after 1970-01-01T00:00Z.

        Parameters
        ----------
        microseconds : int
            Number of microseconds.

        Returns
        -------
        Moment
            The time in UTC.
        """
        return cls.of(_EPOCH + dt.timedelta(microseconds=microseconds))

    @property
    def us(self) -> int:
        """Microseconds since 1970-01-01T00:00Z."""
        return (self - _EPOCH) // dt.timedelta.resolution

    def text(self) -> str:
        """
        Return the time in ISO 8601 with a `Z`.

        Returns
        -------
        str
            With microseconds if they are not zero.
        """
        return self.replace(tzinfo=None).isoformat() + "Z"


_EPOCH = Moment(1970, 1, 1, tzinfo=dt.UTC)


def _from_iso(text: str) -> dt.datetime:
    return dt.datetime.fromisoformat(re.sub(" UTC$", "Z", text))


def is_relative(value: When) -> bool:
    """
    Return whether a time is an age, which counts back from the service's time.

    Parameters
    ----------
    value : str, date or timedelta
        A time in any form that `when` accepts.

    Returns
    -------
    bool
        True for a timedelta and a text such as "30d".

    Examples
    --------
    >>> from buildframe.spec import is_relative
    >>> is_relative("30d"), is_relative("2026-10-01")
    (True, False)
    """
    return isinstance(value, dt.timedelta) or (isinstance(value, str) and bool(_AGO.fullmatch(value.strip())))


def when(value: When, name: str, now: Moment | None = None) -> Moment:
    """
    Convert a time that a user passed.

    Parameters
    ----------
    value : str, date, datetime or timedelta
        A datetime or ISO string with a time zone, a date or ISO date (midnight UTC), or an age: a timedelta or a string
        such as "30d", "12h", "2w" or "90m".
    name : str
        Name of the argument in error messages.
    now : Moment, optional
        The service's time, from which ages count back.

    Returns
    -------
    Moment
        In UTC.

    Raises
    ------
    BadInput
        If the time is invalid or has no time zone, or if it is an age and `now` is missing.

    Examples
    --------
    >>> from buildframe.spec import when
    >>> when("2026-10-01T12:00+02:00", "created_from").text()
    '2026-10-01T10:00:00Z'
    """
    if is_relative(value):
        if now is None:
            age = f"{name}={show(value)}"
            raise BadInput(f"{age} counts back from the service's time, which is unknown here. Pass a datetime.")
        try:
            return Moment.of(now - _timedelta(value, name))
        except OverflowError:
            raise BadInput(f"{name}={show(value)} reaches back before year 1. Use a shorter age.") from None
    if isinstance(value, dt.datetime):
        return _aware(value, name)
    if isinstance(value, dt.date):
        return Moment(value.year, value.month, value.day, tzinfo=dt.UTC)
    if isinstance(value, str):
        return _from_text(value.strip(), name)
    raise BadInput(
        f"{name}={show(value)} is not a time. Pass a datetime with a zone, a date, an ISO time or an age such as '30d'."
    )


def parse_duration(value: str | dt.timedelta, name: str) -> dt.timedelta:
    """
    Convert a duration that a user passed.

    Parameters
    ----------
    value : str or timedelta
        A timedelta, or a string such as "90s", "10m" (or "10min") or "12h".
    name : str
        Name of the argument in error messages.

    Returns
    -------
    timedelta
        The duration, zero or more.

    Raises
    ------
    BadInput
        If the value is not a duration, is negative or too long.

    Examples
    --------
    >>> from buildframe.spec.times import parse_duration
    >>> parse_duration("90s", "timeout")
    datetime.timedelta(seconds=90)
    """
    if not is_relative(value):
        raise BadInput(f"{name}={show(value)} is not a valid duration. Use text such as '90s', or a timedelta.")
    try:
        return _timedelta(value, name)
    except OverflowError:
        raise BadInput(f"{name}={show(value)} is too long. Use a shorter duration.") from None


def check_time(value: When, name: str) -> None:
    """
    Raise BadInput if a time is invalid, also for an age, without the service's time.

    Parameters
    ----------
    value : str, date, datetime or timedelta
        A time in any form that `when` accepts.
    name : str
        Name of the argument in error messages.

    Raises
    ------
    BadInput
        If the time is invalid or has no time zone, or if an age is negative or reaches back before year 1.

    Examples
    --------
    >>> from buildframe.spec.times import check_time
    >>> check_time("30d", "created_from")
    """
    when(value, name, Moment.of(dt.datetime.now(dt.UTC)))  # any time will do: ages are far from the year 1


def _timedelta(value: When, name: str) -> dt.timedelta:
    if isinstance(value, dt.timedelta):
        if value < dt.timedelta(0):
            raise BadInput(f"{name}={show(value)} is negative. Pass a positive duration; an age counts back from now.")
        return value
    match = _AGO.fullmatch(str(value).strip())
    assert match is not None
    return dt.timedelta(**{_UNITS[match[2]]: int(match[1])})


def _from_text(text: str, name: str) -> Moment:
    try:
        instant = _from_iso(text)
    except ValueError:
        raise BadInput(
            f"{name}={show(text)} is not a valid time. Use '2026-10-01', '2026-10-01T12:00Z' or an age such as '30d'."
        ) from None
    if _BARE_DATE.fullmatch(text):
        instant = instant.replace(tzinfo=dt.UTC)
    return _aware(instant, name)


def _aware(instant: dt.datetime, name: str) -> Moment:
    try:
        return Moment.of(instant)
    except OverflowError:
        raise BadInput(f"{name}={instant.isoformat()!r} lies outside the years 1 to 9999 in UTC.") from None
    except ValueError:
        raise BadInput(
            f"{name}={instant.isoformat()!r} has no time zone. "
            "Add one, such as tzinfo=datetime.timezone.utc or a 'Z' at the end of a string."
        ) from None


Deadline: TypeAlias = str | dt.timedelta | None
"""How long a call may take, such as "90s"; None: as long as it takes."""


def seconds_of(length: str | dt.timedelta, name: str) -> float:
    """
    Convert a time limit to seconds.

    Parameters
    ----------
    length : str or timedelta
        A timedelta, or a string such as "90s".
    name : str
        Name of the argument in error messages.

    Returns
    -------
    float
        Seconds, more than zero.

    Raises
    ------
    BadInput
        If the value is not a duration, or is zero.

    Examples
    --------
    >>> from buildframe.spec.times import seconds_of
    >>> seconds_of("10m", "deadline")
    600.0
    """
    limit = parse_duration(length, name).total_seconds()
    if limit == 0:
        raise BadInput(f"{name}={show(length)} leaves no time. Use a duration such as '90s' or '10m'.")
    return limit
