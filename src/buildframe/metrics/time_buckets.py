"""Divide time into buckets that start at midnights of a zone, or at equal distances, and assign rows to them."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset
from pandas.tseries.offsets import BaseOffset, Day, MonthBegin, QuarterBegin, Tick, Week, YearBegin

from buildframe.errors import BadInput
from buildframe.metrics.columns import NAT, TIMESTAMP, Integers
from buildframe.metrics.grouping import join_keys
from buildframe.metrics.input_frames import RowGroups
from buildframe.spec import Moment, When, when
from buildframe.terminal import show

_MAX_BUCKETS = 1_000_000


@dataclass(frozen=True)
class Buckets:
    """`edges`: starts of buckets and the end of the last, in the zone; `fetched`: when the rows were last fetched."""

    edges: pd.DatetimeIndex
    fetched: Any

    @classmethod
    def between(cls, limits: Sequence[tuple[int, int]], freq: str, tz: str, fetched: int = NAT) -> Self:
        """Return the buckets that hold these first and last times (microseconds); none without times."""
        offset = _parse_frequency(freq)
        times = np.array([time for ends in limits for time in ends if time != NAT], np.int64)
        known: pd.Series[Any] = pd.Series(pd.DatetimeIndex(times.view("M8[us]"), tz="UTC"), dtype=TIMESTAMP)
        return cls(_edges(known, offset, tz), pd.NaT if fetched == NAT else pd.Timestamp(fetched, unit="us", tz="UTC"))

    def __len__(self) -> int:
        return max(len(self.edges) - 1, 0)

    def numbers_of(self, times: Integers) -> Integers:
        """Return the number of each time's bucket, or the number of buckets if it has none.

        Times are microseconds. A division takes a third of the time of a search, but needs buckets
        of equal length.
        """
        edges, n_buckets = self._edges(), len(self)
        if not n_buckets:
            return np.zeros(len(times), np.int64)
        widths = np.diff(edges)
        if np.any(widths != widths[0]):
            numbers = np.searchsorted(edges, times, side="right") - 1
        else:
            numbers = times - edges[0]  # the only new array: memory takes longer than sums
            numbers //= widths[0]
        unsigned = numbers.view(np.uint64)  # times before the first bucket are large numbers
        np.minimum(unsigned, np.uint64(n_buckets), out=unsigned)
        return numbers

    def count(self, times: Integers) -> Integers:
        """Return how many of these times (microseconds) each bucket holds."""
        return np.bincount(self.numbers_of(times), minlength=len(self) + 1)[: len(self)]

    def split(self, rows: RowGroups, at: str) -> tuple[RowGroups, pd.DataFrame]:
        """Return rows in groups for all buckets of each group, and the keys of the groups.

        Rows without this time, and groups that have no others, are left out.
        """
        bucket = self.numbers_of(rows.columns[at].to_numpy(np.int64))
        timed = rows.filter(bucket < len(self))
        codes = timed.codes * len(self) + bucket[bucket < len(self)]
        return RowGroups(timed.columns, codes, pd.DataFrame(index=range(len(timed.keys) * len(self)))), timed.keys

    def divide(self, parts: int) -> Self:
        """Return so many equal buckets for each, or fewer if they would not be of whole microseconds."""
        edges = self._edges()
        parts = math.gcd(parts, *np.unique(np.diff(edges)).tolist())
        steps = np.diff(edges)[:, None] // parts * np.arange(parts)
        divided = np.append((edges[:-1, None] + steps).ravel(), edges[-1:])
        return replace(self, edges=pd.DatetimeIndex(divided.view("M8[us]"), tz="UTC"))

    def _edges(self) -> Integers:
        return np.asarray(self.edges.tz_convert("UTC").as_unit("us").asi8, np.int64)

    def with_starts(self, summary: pd.DataFrame, keys: pd.DataFrame | None = None) -> pd.DataFrame:
        """Add the starts of the buckets, and which bucket was not over when the rows were fetched.

        With `keys` the summary has the rows of all buckets for each group.
        """
        keys = pd.DataFrame(index=range(1)) if keys is None else keys
        group, bucket = np.divmod(np.arange(len(keys) * len(self)), max(len(self), 1))
        over = [pd.NA] * len(bucket) if pd.isna(self.fetched) else self.edges[1:][bucket] > self.fetched
        starts = keys.take(group).reset_index(drop=True).assign(bucket=self.edges[:-1][bucket])
        return join_keys(starts, summary).assign(partial=pd.array(over, "boolean"))


def resolve_window(start: When | None, end: When | None, now: Moment | None) -> tuple[Moment | None, Moment | None]:
    """Resolve limits that a user passed; ages count back from `now`, the latest timestamp of the frame."""
    since, until = (None if at is None else when(at, name, now) for name, at in (("start", start), ("end", end)))
    if since is not None and until is not None and until <= since:
        raise BadInput(f"end={until.text()} is not after start={since.text()}. Use a later end.")
    return since, until


def _parse_frequency(freq: str) -> BaseOffset:
    valid = "Use one such as '1h', '1D', 'W-MON', 'MS' or 'QS'."
    if not isinstance(freq, str):
        raise BadInput(f"freq={show(freq)} is not a text. {valid}")
    try:
        offset = to_offset(freq)
    except (ValueError, OverflowError):
        raise BadInput(f"freq={show(freq)} is not a frequency of pandas. {valid}") from None
    if offset.n < 1 or not isinstance(offset, (Tick, Day, Week, MonthBegin, QuarterBegin, YearBegin)):
        raise BadInput(f"freq={show(freq)} is not a start of a bucket. {valid}")
    return offset


def _edges(times: pd.Series[pd.Timestamp], offset: BaseOffset, tz: str) -> pd.DatetimeIndex:
    """Return the starts of the buckets that hold all times, and the end of the last; empty without times."""
    local = to_zone(times, tz)
    if local.empty:
        return pd.DatetimeIndex(local)
    last = local.max()
    first_day = local.min().tz_localize(None).normalize()
    _check_number(first_day, last.tz_localize(None), offset)
    if isinstance(offset, Tick):  # equally long, even if clocks change after the first midnight
        edges = pd.date_range(_localize(pd.DatetimeIndex([first_day]), tz)[0], last + 2 * offset, freq=offset)
    else:
        days = pd.date_range(offset.rollback(first_day), last.tz_localize(None) + 2 * offset, freq=offset)
        edges = _localize(days, tz)
    return edges.as_unit("us")[: edges.searchsorted(last, side="right") + 1]


def _check_number(first: pd.Timestamp, last: pd.Timestamp, offset: BaseOffset) -> None:
    try:
        many = (last + 4 * offset - first) / (first + offset - first)  # date_range looks ahead
    except (OverflowError, ValueError):
        raise BadInput(
            f"freq={offset.freqstr!r}: a bucket would end after the latest possible timestamp. Use a shorter one."
        ) from None
    if many > _MAX_BUCKETS:
        raise BadInput(
            f"freq={offset.freqstr!r} makes {many:,.0f} buckets, more than {_MAX_BUCKETS:,}. Use a longer one."
        )


def to_zone(times: pd.Series[pd.Timestamp], tz: str) -> pd.Series[pd.Timestamp]:
    """Convert times to the zone; raise BadInput if it is unknown."""
    try:
        if not isinstance(tz, str):
            raise TypeError
        return times.dt.tz_convert(tz)
    except (LookupError, ValueError, TypeError):
        raise BadInput(f"tz={show(tz)} is not a time zone. Use a name such as 'UTC' or 'Europe/Berlin'.") from None


def start_days(days: Sequence[dt.date], tz: str) -> list[pd.Timestamp]:
    """Return when each day starts in the zone, in UTC."""
    to_zone(pd.Series(dtype="datetime64[us, UTC]"), tz)  # raises BadInput if the zone is unknown
    midnights = pd.DatetimeIndex([pd.Timestamp(day) for day in days])
    return [*_localize(midnights, tz).tz_convert("UTC")]


def _localize(midnights: pd.DatetimeIndex, tz: str) -> pd.DatetimeIndex:
    """Return midnights in the zone: 1:00 if clocks skip it, the first if they pass it twice."""
    return midnights.tz_localize(tz, ambiguous=np.ones(len(midnights), bool), nonexistent="shift_forward")
