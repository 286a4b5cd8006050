"""Spans of groups: equal to their definition, and independent of other rows of the frame."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from buildframe.metrics import span_sums
from buildframe.metrics.input_frames import read_rows
from buildframe.metrics.span_sums import SpanSums, sum_by_span
from tests.metrics.each_case import for_each
from tests.metrics.metric_frames import START, UTC

COUNTS = ["passed", "failed"]


def builds(seconds: np.ndarray, seed: int = 0, pipeline: str = "web") -> pd.DataFrame:
    """Builds so many seconds after START; every tenth is canceled."""
    random = np.random.default_rng(seed)
    states = np.where(random.random(len(seconds)) < 0.1, "canceled", "passed")
    states = np.where((states == "passed") & (random.random(len(seconds)) < 0.3), "failed", states)
    created = (START + pd.to_timedelta(seconds, unit="s")).astype("datetime64[us, UTC]")
    frame = pd.DataFrame({"pipeline": pipeline, "state": states, "blocked": False, "created_at": created})
    return frame.astype({"pipeline": "str", "state": "str", "blocked": "boolean"}).assign(
        fetched_at=START + pd.Timedelta("400D")
    )


def mixed() -> pd.DataFrame:
    """Pipelines that live long and short, at one time only, and hardly at all."""
    random = np.random.default_rng(5)
    day = 86_400
    groups = {
        "long": random.random(400) * 90 * day,
        "days": 30 * day + random.random(200) * 3 * day,
        "minutes": 50 * day + random.random(50) * 600,
        "microseconds": 60 * day + random.integers(0, 40, 60) / 1e6,
        "once": np.full(9, 7.0 * day),
        "few": 80 * day + random.random(4) * day,
    }
    return pd.concat([builds(times, i, name) for i, (name, times) in enumerate(groups.items())], ignore_index=True)


def flag_states(frame: pd.DataFrame) -> pd.DataFrame:
    flags = {state: frame["state"] == state for state in COUNTS}
    return pd.DataFrame(flags | {"at": frame["created_at"].astype("int64")})


def spans_of(frame: pd.DataFrame, by: str | None = "pipeline") -> tuple[SpanSums, list[str]]:
    """Return the sums of groups, and their names."""
    rows = read_rows(frame, flag_states, ["state", "created_at"], by=by)
    flags = {state: rows.columns[state].to_numpy() for state in COUNTS}
    return sum_by_span(rows, "at", flags, COUNTS), rows.keys.squeeze(axis=1).tolist() if by else []


def naive_spans(frame: pd.DataFrame, state: str) -> list[int]:
    """Eighths of the least power of two of which at most 63 cells hold all trials, counted one by one."""
    trials = frame[frame["state"].isin(COUNTS)]
    times, shift = trials["created_at"].astype("int64").tolist(), 0
    while (max(times) >> shift + 1) - (min(times) >> shift + 1) + 1 >= 32:
        shift += 1
    cells = [(time >> shift) - (min(times) >> shift) for time in times]
    counts = [0] * 8
    for cell, own in zip(cells, trials["state"], strict=True):
        counts[cell * 8 // (max(cells) + 1)] += own == state
    return counts


def test_spans_by_definition(monkeypatch):
    frame = mixed()
    names = [name for name in frame["pipeline"].unique() if name != "few"]  # too few for an interval
    groups = {name: frame[frame["pipeline"] == name] for name in names}
    expected = {(name, state): naive_spans(groups[name], state) for name in names for state in COUNTS}
    totals = frame.groupby("pipeline")["state"].value_counts()
    for n_cells in (128, 10**6):  # with so many cells, each group has its own
        monkeypatch.setattr(span_sums, "_CELLS", n_cells)
        sums, pipelines = spans_of(frame)
        for place, name in enumerate(pipelines):
            for state in COUNTS:
                assert sums.sums[state].iloc[place] == totals.get((name, state), 0)
                if name != "few":
                    assert sums.spans[state][place].tolist() == expected[name, state], (name, n_cells)


def test_other_rows_of_the_frame_change_no_spans():
    frame = mixed()
    together, pipelines = spans_of(frame)
    for place, name in enumerate(pipelines):
        if name != "few":
            alone, _ = spans_of(frame[frame["pipeline"] == name], None)
            for state in COUNTS:
                np.testing.assert_array_equal(alone.spans[state][0], together.spans[state][place])


def test_spans_differ_in_length_by_a_quarter_at_most():
    sums, _ = spans_of(builds(np.linspace(0, 5_000_000, 80_001), seed=3), None)
    lengths = sums.spans["passed"][0] + sums.spans["failed"][0]
    assert lengths.max() / lengths.min() < 1.4


@for_each({"days": "1D", "hours": "1h", "weeks": "W-MON"})
def test_a_bucket_has_the_rate_and_the_interval_that_its_builds_have_alone(freq):
    """But for the cells of which its spans are made."""
    frame = builds(np.sort(np.random.default_rng(2).random(3000) * 86_400 * 20))
    trend = metrics.success_trend(frame, freq=freq, tz="Europe/Berlin").dropna(subset="rate")
    starts = trend["bucket"].dt.tz_convert("UTC")
    n = trend["n"].to_numpy(float)
    assert trend["n"].sum() == frame["state"].isin(COUNTS).sum()
    assert (trend["n_effective"].dropna() <= n[trend["n_effective"].notna()]).all()
    for row in trend[trend["n"] > 20].head(5).itertuples():
        following = starts[starts > row.bucket]
        own = frame[(frame["created_at"] >= row.bucket) & ~(frame["created_at"] >= following.min())]
        alone = metrics.success_rate(own).iloc[0]
        assert (row.passed, row.failed, row.rate) == (alone["passed"], alone["failed"], alone["rate"])
        assert row.n_effective == pytest.approx(alone["n_effective"], rel=0.6)


def test_rows_without_a_time_count_in_rates_only():
    frame = mixed()
    without_time = pd.Series(pd.NaT, frame.index, dtype=UTC)
    frame = pd.concat([frame, frame.assign(created_at=without_time)], ignore_index=True)
    both = metrics.success_rate(frame, by="pipeline")
    once = metrics.success_rate(mixed(), by="pipeline")
    assert both["n"].tolist() == (2 * once["n"]).tolist()
    np.testing.assert_allclose(both["n_effective"], 2 * once["n_effective"])
    nothing = metrics.success_rate(mixed().assign(created_at=without_time))
    assert nothing[["low", "high", "n_effective"]].isna().all(axis=None)
