"""Durations over time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from pandas.tseries.frequencies import to_offset
from pandas.tseries.offsets import BaseOffset, Day, MonthBegin, QuarterBegin, Tick, Week, YearBegin

from buildframe.errors import BadInput
from buildframe.metrics.columns import moments
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.percentiles import summary


def trend(
    frame: pd.DataFrame,
    of: RowMetric | str = wall_time,
    q: Sequence[float] = (0.5, 0.95),
    freq: str = "1D",
    tz: str = "UTC",
    at: str = "created_at",
) -> pd.DataFrame:
    """Percentiles of a duration in buckets of time.

    `of` and `q` as in `percentiles`; `freq` is a pandas frequency that names the start of a bucket
    ("1h", "1D", "W-MON", "MS"); `tz` the zone whose midnights they start at, so that a day in which
    the clocks change has 23 or 25 hours; `at` the column of times by which rows fall into buckets.
    Rows without that time are in no bucket. Needs `fetched_at` besides.

    One row a bucket from the first to the last row's, also where there was nothing; columns:
    `bucket` (`datetime64[us, tz]`): its start; the bucket reaches up to the next start, excluded;
    `n`, `n_censored`, `n_negative`, `p50_s`, ... as in `percentiles`;
    `partial` (boolean): not over at the frame's latest `fetched_at`, so more rows may come.
    Whether the first bucket is whole cannot be told from a frame: let its window begin at a midnight of `tz`.

    An empty frame gives these columns and no rows. BadInput as in `percentiles`, and for an unknown
    `tz` or a `freq` that is none.
    """
    times, fetched = moments(frame, at), moments(frame, "fetched_at").max()
    known = times.notna().to_numpy()
    edges = _edges(times[known], _offset(freq), tz)
    codes = np.searchsorted(edges.asi8, times[known].astype("int64").to_numpy(), side="right") - 1
    buckets = summary(frame[known], of, codes, max(len(edges) - 1, 0), q, "linear")
    buckets.insert(0, "bucket", edges[:-1])
    buckets["partial"] = pd.array(edges[1:] > fetched if pd.notna(fetched) else [pd.NA] * len(buckets), dtype="boolean")
    return buckets


def _offset(freq: str) -> BaseOffset:
    try:
        offset = to_offset(freq)
    except ValueError as why:
        raise BadInput(f"freq={freq!r}: {why}") from None
    if offset.n < 1 or not isinstance(offset, (Tick, Day, Week, MonthBegin, QuarterBegin, YearBegin)):
        raise BadInput(f"freq={freq!r} does not name the start of a bucket; take '1h', '1D', 'W-MON', 'MS' or 'QS'.")
    return offset


def _edges(times: pd.Series[pd.Timestamp], offset: BaseOffset, tz: str) -> pd.DatetimeIndex:
    """Starts of the buckets that hold all times, and the end of the last; empty for no times."""
    local = _local(times, tz)
    if local.empty:
        return pd.DatetimeIndex(local)
    last = local.max()
    first_day = local.min().tz_localize(None).normalize()
    if isinstance(offset, Tick):  # equally long, whatever the clocks do after the first midnight
        edges = pd.date_range(_in_zone(pd.DatetimeIndex([first_day]), tz)[0], last + 2 * offset, freq=offset)
    else:
        days = pd.date_range(offset.rollback(first_day), last.tz_localize(None) + 2 * offset, freq=offset)
        edges = _in_zone(days, tz)
    return edges.as_unit("us")[: edges.searchsorted(last, side="right") + 1]


def _local(times: pd.Series[pd.Timestamp], tz: str) -> pd.Series[pd.Timestamp]:
    try:
        return times.dt.tz_convert(tz)
    except (LookupError, ValueError, TypeError):
        raise BadInput(f"tz={tz!r} is no time zone; take a name such as 'UTC' or 'Europe/Berlin'.") from None


def _in_zone(midnights: pd.DatetimeIndex, tz: str) -> pd.DatetimeIndex:
    """Where the clocks skip midnight the day starts at 1:00; where they pass it twice, at the first."""
    return midnights.tz_localize(tz, ambiguous=np.ones(len(midnights), bool), nonexistent="shift_forward")
