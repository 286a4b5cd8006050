from __future__ import annotations

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe.errors import BadInput
from buildframe.report.periods import HISTORY, Period, midnights


def utc(text: str) -> pd.Timestamp:
    return pd.Timestamp(text, tz="UTC")


def test_a_period_ends_with_the_last_complete_day():
    period = Period.last(utc("2026-10-26T08:00:00"), 7)
    assert (period.start, period.end) == (utc("2026-10-19"), utc("2026-10-26"))
    assert (period.before.start, period.before.end) == (utc("2026-10-12"), utc("2026-10-19"))
    assert (period.history.start, period.history.end) == (utc("2026-09-28"), utc("2026-10-26"))
    assert (period.days, period.before.days, period.history.days) == (7, 7, 7 * HISTORY)
    assert Period.last(utc("2026-10-26"), 7) == period  # midnight: the day before is over


def test_days_are_local_days_when_clocks_change():
    period = Period.last(utc("2026-10-26T08:00:00"), 7, "Europe/Berlin")
    assert period.end - period.start == pd.Timedelta("169h")
    assert (period.days, period.tz) == (7, "Europe/Berlin")
    assert period.start.isoformat() == "2026-10-19T00:00:00+02:00"
    assert period.end.isoformat() == "2026-10-26T00:00:00+01:00"


@pytest.mark.parametrize("tz", ["America/Sao_Paulo", "Asia/Beirut", "America/Havana"])
def test_a_midnight_may_be_skipped_or_repeated_by_clock_changes(tz):
    years = pd.date_range("2017-01-01T12:00", "2017-12-31", freq="D", tz="UTC")
    periods = [Period.last(now, 1, tz) for now in years]
    for one, following in itertools.pairwise(periods):
        assert one.end == following.start or one == following
        assert one.days == 1
    starts = midnights(pd.Series(years), tz)
    assert starts.tolist() == [Period.last(now, 1, tz).end for now in years]
    assert np.all(np.diff(starts.to_numpy("datetime64[us]")) >= np.timedelta64(23, "h"))


@settings(max_examples=30)
@given(
    st.datetimes(pd.Timestamp("2000-01-01"), pd.Timestamp("2040-01-01")),
    st.integers(1, 90),
    st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe"]),
)
def test_each_time_belongs_to_one_period(time, days, tz):
    now = pd.Timestamp(time, tz="UTC")
    period = Period.last(now, days, tz)
    assert period.end <= now < period.end + pd.Timedelta(25, "h")
    assert (period.days, period.before.days) == (days, days)
    assert period.before.end == period.start
    times = pd.DataFrame({"t": pd.Series([period.start, period.end, period.before.start]).dt.tz_convert("UTC")})
    assert period.of(times, "t").index.tolist() == [0]
    assert period.before.of(times, "t").index.tolist() == [2]
    assert period.history.of(times, "t").index.tolist() == [0, 2]


def test_an_invalid_period_is_refused():
    for days, tz, words in ((0, "UTC", "days=0"), (1.5, "UTC", "days=1.5"), (1, "Mars", "tz='Mars'")):
        with pytest.raises(BadInput, match=words):
            Period.last(utc("2026-10-26"), days, tz)
