"""Moments: instants with a zone, in every form that the service and a user write them."""

from __future__ import annotations

import datetime as dt
import re
from typing import Self

from buildframe.errors import BadInput, Malformed

When = str | dt.date | dt.timedelta
"""A point in time as a user may give it: see `when`."""

_UNITS = {"w": "weeks", "d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
_AGO = re.compile(r"(\d+)\s*([wdhms])")
_BARE_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_LONG_FRACTION = re.compile(r"(\.\d{6})\d+")


class Moment(dt.datetime):
    """An instant: a `datetime` that is always in UTC, to the microsecond."""

    @classmethod
    def of(cls, instant: dt.datetime) -> Self:
        """The same instant in UTC. A naive `instant` raises ValueError."""
        if instant.tzinfo is None or instant.utcoffset() is None:
            raise ValueError(f"{instant.isoformat()} has no time zone")
        there = instant.astimezone(dt.UTC)
        return cls(*there.timetuple()[:6], there.microsecond, tzinfo=dt.UTC)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a timestamp of the service; one without a zone raises Malformed."""
        iso = _LONG_FRACTION.sub(
            r"\1", text.strip().removesuffix(" UTC") + ("Z" if text.strip().endswith(" UTC") else "")
        )
        try:
            return cls.of(dt.datetime.fromisoformat(iso))
        except (ValueError, OverflowError) as why:
            raise Malformed(f"The service sent {text!r} where a timestamp belongs: {why}") from None

    @classmethod
    def from_us(cls, microseconds: int) -> Self:
        """The moment so many microseconds after 1970-01-01T00:00Z."""
        return cls.of(_EPOCH + dt.timedelta(microseconds=microseconds))

    @property
    def us(self) -> int:
        """Microseconds since 1970-01-01T00:00Z."""
        return (self - Moment.of(_EPOCH)) // dt.timedelta(microseconds=1)

    def text(self) -> str:
        """ISO 8601 in UTC with a `Z`, to the microsecond where there is a fraction."""
        return self.replace(tzinfo=None).isoformat() + "Z"


_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def is_relative(value: When) -> bool:
    """Whether `value` counts back from now ("30d", a timedelta), so that it needs the service's time."""
    return isinstance(value, dt.timedelta) or (isinstance(value, str) and bool(_AGO.fullmatch(value.strip())))


def when(value: When, name: str, now: Moment | None = None) -> Moment:
    """The instant that a user means by `value`; `name` is the argument's name for the error.

    A datetime or ISO text with a zone; a date or a bare date text, which is midnight UTC; a timedelta
    or a text such as "30d", "12h", "2w", "90m", counted back from `now`, the service's time. A
    datetime or text without a zone raises BadInput.
    """
    if is_relative(value):
        return _back_from(now, value)
    if isinstance(value, dt.datetime):
        return _aware(value, name)
    if isinstance(value, dt.date):
        return Moment(value.year, value.month, value.day, tzinfo=dt.UTC)
    if isinstance(value, str):
        return _from_text(value.strip(), name)
    raise BadInput(f"{name}={value!r}: pass a datetime with a zone, a date, an ISO text, or an age such as '30d'.")


def span(value: str | dt.timedelta, name: str) -> dt.timedelta:
    """A length of time: a timedelta, or a text such as "90s", "10m", "12h"; anything else raises BadInput."""
    if not is_relative(value):
        raise BadInput(f"{name}={value!r} is no length of time; write '90s', '10m' or pass a timedelta.")
    try:
        return _span(value)
    except OverflowError:
        raise BadInput(f"{name}={value!r} is longer than times reach.") from None


def _back_from(now: Moment | None, value: When) -> Moment:
    if now is None:
        raise BadInput(f"{value!r} counts back from the service's time, which is not known here; pass a datetime.")
    try:
        return Moment.of(now - _span(value))
    except OverflowError:
        raise BadInput(f"{value!r} goes back further than dates reach.") from None


def _span(value: When) -> dt.timedelta:
    if isinstance(value, dt.timedelta):
        if value < dt.timedelta(0):
            raise BadInput(f"{value!r} is less than nothing: give it without the minus; an age counts back from now.")
        return value
    match = _AGO.fullmatch(str(value).strip())
    assert match is not None
    return dt.timedelta(**{_UNITS[match[2]]: int(match[1])})


def _from_text(text: str, name: str) -> Moment:
    try:
        instant = dt.datetime.fromisoformat(text.removesuffix(" UTC") + ("Z" if text.endswith(" UTC") else ""))
    except ValueError:
        raise BadInput(
            f"{name}={text!r} is no time. Write '2026-10-01', '2026-10-01T12:00Z' or an age such as '30d'."
        ) from None
    if _BARE_DATE.fullmatch(text):
        instant = instant.replace(tzinfo=dt.UTC)
    return _aware(instant, name)


def _aware(instant: dt.datetime, name: str) -> Moment:
    try:
        return Moment.of(instant)
    except ValueError:
        raise BadInput(
            f"{name}={instant.isoformat()!r} has no time zone, so it could be meant anywhere. "
            "Add one, such as tzinfo=datetime.timezone.utc or a 'Z' at the end of a text."
        ) from None
