"""Curves of how long rows last: published ones, and those of scipy."""

from __future__ import annotations

from functools import partial

import numpy as np
import pandas as pd
import pytest
from scipy.stats import CensoredData, ecdf

from buildframe import metrics
from tests.metrics.each_case import for_each
from tests.metrics.test_percentiles import WEEKS, busy_days, patients
from tests.refusals import refusal, wrong_messages


def test_a_published_curve() -> None:
    """Freireich, E. J., et al. (1963). Blood 21, 699-716: 21 patients with 6-MP."""
    curve = metrics.survival(patients())
    curve = curve.assign(week=(curve["after_s"] // WEEKS.total_seconds()).astype(int)).set_index("week")
    ended = curve[curve["n_ended"] > 0]
    assert ended["share"].round(3).tolist() == [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
    assert ended.index.tolist() == [6, 7, 10, 13, 16, 22, 23]
    assert curve["n_at_risk"].tolist() == [17, 16, 15, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 2, 1, 0]
    assert curve.loc[[6, 32], "n_censored"].tolist() == [1, 2]


@for_each({"3 points": 3, "40 points": 40, "all points": 1000})
def test_points_lie_on_the_curve_of_scipy(points: int) -> None:
    random = np.random.default_rng(2)
    frame = busy_days(random, 10)
    frame = frame.assign(started_at=frame["started_at"].mask(random.random(len(frame)) < 0.2))
    seen = (frame["fetched_at"] + pd.to_timedelta(random.integers(-80, 300, len(frame)), unit="s")).dt.floor("us")
    frame = frame.assign(fetched_at=seen)
    curve = metrics.survival(frame, points=points)
    assert len(curve) <= points
    seconds, left = (
        (frame[end] - frame["runnable_at"]).dt.total_seconds().to_numpy() for end in ("started_at", "fetched_at")
    )
    is_censored = np.isnan(seconds)
    oracle = ecdf(CensoredData(seconds[~is_censored], right=np.nextafter(np.floor(left[is_censored]) + 1, 0))).sf
    np.testing.assert_allclose(curve["share"], oracle.evaluate(np.nextafter(curve["after_s"].to_numpy(), 0)), rtol=1e-9)
    total = curve[["n_ended", "n_censored"]].to_numpy().sum()
    assert total == len(frame)
    assert curve["n_at_risk"].iloc[-1] == 0
    known = curve.dropna(subset="low")
    assert (known["low"] < known["share"]).all()
    assert (known["share"] < known["high"]).all()


def test_intervals_of_dependent_rows_are_wider_than_greenwoods() -> None:
    """Shuffled over time, the same waits say more: then days are alike."""
    frame = busy_days(np.random.default_rng(4), 16)
    shuffled = frame.assign(runnable_at=frame["runnable_at"].sample(frac=1, random_state=1).array)
    shuffled = shuffled.assign(started_at=shuffled["runnable_at"] + (frame["started_at"] - frame["runnable_at"]))
    width, apart = (
        (curve["high"] - curve["low"]).median() for curve in (metrics.survival(frame), metrics.survival(shuffled))
    )
    assert width > 2 * apart


@pytest.mark.long
def test_the_interval_covers_the_true_share() -> None:
    """With days that differ, 300 worlds in one frame; the waits have a lognormal distribution."""
    from scipy.special import ndtr

    random, worlds = np.random.default_rng(6), 300
    world, day = np.divmod(np.repeat(np.arange(worlds * 28), 12), 28)
    logs = 5 + 0.5 * random.standard_normal(len(day)) + 0.3 * random.standard_normal(worlds * 28)[world * 28 + day]
    seconds, seen = np.exp(logs), random.exponential(600, len(day))
    begun = pd.Timestamp("2026-01-01", tz="UTC") + pd.to_timedelta(day + random.random(len(day)), unit="D").floor("us")
    ended = begun + pd.to_timedelta(np.where(seconds < seen, seconds, np.nan), unit="s")
    frame = pd.DataFrame({"type": "script", "world": world, "runnable_at": begun, "started_at": ended})
    frame = frame.assign(fetched_at=begun + pd.to_timedelta(seen, unit="s"))
    stamps = ["runnable_at", "started_at", "fetched_at"]
    curves = metrics.survival(frame.astype(dict.fromkeys(stamps, "datetime64[us, UTC]")), by="world", points=16)
    curves = curves[curves["share"].between(0.1, 0.9)].dropna(subset="low")
    truth = 1 - ndtr((np.log(curves["after_s"]) - 5) / np.sqrt(0.25 + 0.09))
    assert len(curves) > 4 * worlds
    assert ((curves["low"] <= truth) & (truth <= curves["high"])).mean() > 0.92


def test_frames_without_rows_times_or_intervals() -> None:
    full = metrics.survival(patients())
    empty = metrics.survival(patients().iloc[:0])
    assert empty.empty
    assert empty.dtypes.equals(full.dtypes)
    stored = metrics.survival(pd.DataFrame({"x_s": [1.0, 2.0, 3.5]}), of="x_s")
    assert stored[["after_s", "n_at_risk"]].to_numpy().tolist() == [[2, 2], [3, 1], [4, 0]]
    assert stored[["low", "high"]].isna().all(axis=None)
    assert "no column 'created_at'" in stored.attrs["why_no_intervals"]


def test_points_are_a_whole_number_of_at_least_2() -> None:
    frame = patients()
    assert wrong_messages(
        (f"points={points!r} is not a whole number of at least 2", partial(metrics.survival, frame, points=points))
        for points in (1, 2.5, "a", True)
    ) == {}  # fmt: skip


def test_infinite_durations_are_refused() -> None:
    created = pd.date_range("2026-10-01", periods=20, freq="D", tz="UTC").astype("datetime64[us, UTC]")
    frame = pd.DataFrame({"created_at": created, "fetched_at": created, "taken_s": np.r_[np.inf, np.arange(19.0)]})
    finite = frame.assign(taken_s=frame["taken_s"].replace(np.inf, np.nan))
    for summary in (metrics.survival, metrics.percentiles, metrics.trend):
        assert "infinite values" in refusal(summary, frame, "taken_s"), summary
        assert len(summary(finite, "taken_s"))
