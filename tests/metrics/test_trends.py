from __future__ import annotations

import functools

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from tests.metrics.metric_frames import UTC, at
from tests.refusals import columns_not_named, wrong_messages


def builds(created: list[str], fetched: str | None = "2026-12-31", minutes: float = 1) -> pd.DataFrame:
    stamps = pd.Series(pd.to_datetime(created, utc=True, format="ISO8601")).astype(UTC)
    ended = stamps + pd.Timedelta(minutes, "min")
    return pd.DataFrame(
        {"created_at": stamps, "finished_at": ended, "fetched_at": pd.Series([fetched] * len(stamps), dtype=UTC)}
    )


def test_three_days_of_builds():
    frame = builds(["2026-03-01T00:00", "2026-03-01T23:59:59.999999", "2026-03-03T12:00"], fetched="2026-03-03T13:00")
    frame.loc[2, "finished_at"] = pd.NaT
    result = metrics.trend(frame)
    assert result["bucket"].dt.day.tolist() == [1, 2, 3]
    assert result["n"].tolist() == [2, 0, 0]
    assert result["n_censored"].tolist() == [0, 0, 1]
    assert result["p50_s"].fillna(-1).tolist() == [60, -1, -1]
    assert result["partial"].tolist() == [False, False, True]
    assert {name: str(dtype) for name, dtype in result.dtypes.items()} == {
        "bucket": "datetime64[us, UTC]", "n": "Int64", "n_censored": "Int64", "n_negative": "Int64",
        "p50_s": "float64", "p50_low_s": "float64", "p50_high_s": "float64", "p50_at_least_s": "float64",
        "p50_n_effective": "float64",
        "p95_s": "float64", "p95_low_s": "float64", "p95_high_s": "float64", "p95_at_least_s": "float64",
        "p95_n_effective": "float64",
        "partial": "boolean",
    }  # fmt: skip


def test_a_bucket_is_partial_until_it_is_over():
    fetched = {"2026-03-01T23:59:59": [True], "2026-03-02": [False]}
    assert {at: metrics.trend(builds(["2026-03-01T10:00"], at))["partial"].tolist() for at in fetched} == fetched
    assert metrics.trend(builds(["2026-03-01"], None))["partial"].isna().all(), "nobody knows when it was fetched"


def test_days_of_clock_change_have_23_and_25_hours():
    for created, hours in (("2026-03-29T12:00", 23), ("2026-10-25T12:00", 25)):
        days = metrics.trend(builds([created, created[:8] + "30T12:00"]), tz="Europe/Berlin")["bucket"]
        assert days.diff().iloc[1] == pd.Timedelta(hours, "h")
        assert days.dt.hour.eq(0).all()


def test_the_zone_decides_the_day():
    frame = builds(["2026-03-10T22:30", "2026-03-10T23:30"])
    assert metrics.trend(frame)["n"].tolist() == [2]
    berlin = metrics.trend(frame, tz="Europe/Berlin")
    assert berlin["n"].tolist() == [1, 1]
    assert str(berlin["bucket"].dtype) == "datetime64[us, Europe/Berlin]"


def test_zones_whose_clocks_change_at_midnight():
    """Bucket sizes of 2018 there: one day of 23 hours, one of 25, and no row lost."""
    frame = builds([str(stamp) for stamp in pd.date_range("2018-01-01", "2018-12-31", freq="5h", tz="UTC")])
    for tz in ("America/Havana", "Asia/Beirut", "America/Sao_Paulo"):
        result = metrics.trend(frame, tz=tz)
        sizes = result["bucket"].diff().dropna() / pd.Timedelta(1, "h")
        assert sorted(sizes.unique()) == [23, 24, 25], tz
        assert result["n"].sum() == len(frame), tz


def test_a_day_begins_at_the_first_of_two_midnights():
    days = metrics.trend(builds(["2018-11-03T12:00", "2018-11-05T12:00"]), tz="America/Havana")["bucket"]
    assert days.dt.tz_convert("UTC").dt.hour.tolist() == [4, 4, 5]


def test_other_buckets_hold_their_rows():
    first = {
        "1h": "2026-03-11T10:00", "6h": "2026-03-11T06:00", "W-MON": "2026-03-09", "MS": "2026-03-01",
        "QS": "2026-01-01",
    }  # fmt: skip
    found = {}
    for freq in first:
        result = metrics.trend(builds(["2026-03-11T10:30"]), freq=freq)
        found[freq] = result.loc[result["n"] == 1, "bucket"].tolist()
    assert found == {freq: [pd.Timestamp(at, tz="UTC")] for freq, at in first.items()}


def test_by_another_time_and_metric():
    frame = builds(["2026-03-01"]).assign(started_at=at(60 * 24), runnable_at=at(60 * 24 - 1), type="script")
    result = metrics.trend(frame, of=metrics.queue_time, q=(0.5,), at="started_at")
    assert result["bucket"].dt.day.tolist() == [2]
    assert result["n"].tolist() == [1]
    assert metrics.trend(frame.assign(started_at=at(None)), of=metrics.queue_time, at="started_at").empty


def test_of_a_column_whose_censoring_is_unknown():
    frame = builds(["2026-03-01", "2026-03-01", "2026-03-03"]).assign(some_s=[1.0, None, 3.0])
    result = metrics.trend(frame, of="some_s")
    assert result["n"].tolist() == [1, 0, 1]
    assert result["n_negative"].tolist() == [0, 0, 0]
    assert result["n_censored"].isna().all()
    assert str(result["n_censored"].dtype) == "Int64"
    assert metrics.trend(frame.iloc[:0], of="some_s").dtypes.equals(result.dtypes)


def test_groups_have_the_buckets_of_all_rows():
    frame = builds(["2026-03-01", "2026-03-01T12:00", "2026-03-03", "2026-03-02"], fetched="2026-03-03T12:00")
    frame = frame.assign(pipeline=["web", "web", "web", None])
    result = metrics.trend(frame, by="pipeline", q=0.5)
    assert result.columns[:3].tolist() == ["pipeline", "bucket", "n"]
    assert result["pipeline"].fillna("none").tolist() == ["web"] * 3 + ["none"] * 3
    assert result["bucket"].dt.day.tolist() == [1, 2, 3] * 2
    assert result["n"].tolist() == [2, 0, 1, 0, 1, 0]
    assert result["n_censored"].tolist() == [0] * 6
    assert result["p50_s"].fillna(-1).tolist() == [60, -1, -1, -1, -1, -1]
    assert result["partial"].tolist() == [False, False, True] * 2


def test_each_group_has_the_numbers_that_it_has_alone():
    times = pd.date_range("2026-03-01", periods=300, freq="20min").astype(str).tolist()
    frame = builds(times, minutes=1).assign(pipeline=["web", "api", "web"] * 100)
    frame["finished_at"] += pd.Series(pd.to_timedelta([k * k % 97 for k in range(300)], unit="s"))
    together = metrics.trend(frame, by="pipeline")
    for name, own in frame.groupby("pipeline"):
        alone = together[together["pipeline"] == name].drop(columns="pipeline").reset_index(drop=True)
        pd.testing.assert_frame_equal(alone, metrics.trend(own))


def test_empty():
    grouped = builds(["2026-03-01"]).assign(pipeline="web")
    assert metrics.trend(grouped.iloc[:0], by="pipeline").dtypes.equals(metrics.trend(grouped, by="pipeline").dtypes)
    frame = builds(["2026-03-01"])
    for tz in ("UTC", "Europe/Berlin"):
        assert metrics.trend(frame.iloc[:0], tz=tz).dtypes.equals(metrics.trend(frame, tz=tz).dtypes)
        assert metrics.trend(frame.iloc[:0], tz=tz).empty


def test_what_is_refused():
    frame = builds(["2026-03-01"])
    cases = [("tz", {"tz": "Mars/Olympus"}), *(("freq", {"freq": freq}) for freq in ("ME", "fortnight", "-1D"))]
    assert wrong_messages((name, functools.partial(metrics.trend, frame, **own)) for name, own in cases) == {}
    names = ["created_at", "finished_at", "fetched_at"]
    assert columns_not_named(metrics.trend, frame, names) == set()
    waits = frame["finished_at"] - frame["created_at"]
    assert metrics.trend(frame.assign(waits=waits), of="waits", q=0.5)["n_censored"].isna().all()


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(
    st.lists(st.integers(0, 4 * 10**14), min_size=1, max_size=20),
    st.sampled_from(["1D", "W-MON", "MS", "7D"]),
    st.sampled_from(["UTC", "Europe/Berlin", "America/Havana", "Australia/Lord_Howe"]),
)
def test_no_row_is_lost_and_buckets_are_in_order(microseconds, freq, tz):
    frame = builds([str(pd.Timestamp(us, unit="us", tz="UTC")) for us in microseconds])
    result = metrics.trend(frame, freq=freq, tz=tz)
    assert result["n"].sum() == len(frame)
    assert result["bucket"].is_monotonic_increasing
    assert result["bucket"].is_unique
    assert result["bucket"].iloc[0] <= frame["created_at"].min()
    assert result["n"].iloc[[0, -1]].gt(0).all() or freq == "7D"
    pd.testing.assert_frame_equal(result, metrics.trend(frame.iloc[::-1], freq=freq, tz=tz))
