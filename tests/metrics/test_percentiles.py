from __future__ import annotations

from math import comb
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metric_frames import at, jobs, random_jobs, rows
from pandas.testing import assert_frame_equal

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.percentiles import Method


def waits(*minutes: float, **more: object) -> pd.DataFrame:
    return jobs(runnable_at=at(*[0] * len(minutes)), started_at=at(*minutes), **more)


def test_by_hand():
    frame = waits(1, 2, 3, 4, 10, queue=list("aaaab"))
    result = metrics.percentiles(frame, by="queue", q=(0.5, 0.75))
    assert result.iloc[:, :6].to_dict("list") == {
        "queue": ["a", "b"],
        "n": [4, 1],
        "n_censored": [0, 0],
        "n_negative": [0, 0],
        "p50_s": [150.0, pytest.approx(np.nan, nan_ok=True)],
        "p75_s": [195.0, pytest.approx(np.nan, nan_ok=True)],  # 3 + .25 * (4 - 3) minutes
    }
    assert isinstance(result.index, pd.RangeIndex)


def test_waiting_jobs_are_counted_as_censored_and_negative_ones_kept():
    frame = jobs(
        runnable_at=at(0, 0, 0, 5, None, 0),
        started_at=at(3, None, None, 4, None, None),
        finished_at=at(9, None, 7, 9, None, None),  # the third was canceled while it waited
    )
    frame.loc[5, "type"] = "trigger"
    result = metrics.percentiles(frame, q=(0.5,))
    assert result.iloc[0, :4].to_dict() == {"n": 2, "n_censored": 2, "n_negative": 1, "p50_s": 60.0}


@pytest.mark.parametrize(
    ("metric", "begun", "ended"),
    [
        (metrics.dependency_wait, "created_at", "runnable_at"),
        (metrics.run_time, "started_at", "finished_at"),
        (metrics.turnaround, "runnable_at", "finished_at"),
        (metrics.wall_time, "created_at", "finished_at"),
    ],
)
def test_censored_rows_of_each_metric(metric, begun, ended):
    frame = pd.DataFrame({begun: at(0, 0, None), ended: at(1, None, None)})
    assert metrics.percentiles(frame, of=metric)[["n", "n_censored"]].to_numpy().tolist() == [[1, 1]]


def test_a_percentile_wants_a_row_beyond_it():
    for p, least in ((0.95, 20), (0.5, 2), (0.99, 100), (0.05, 20), (0.999, 1000), (0.75, 4), (0.9, 10)):
        column = f"p{100 * p:g}_s"
        enough, fewer = (metrics.percentiles(waits(*range(n)), q=(p,))[column].iloc[0] for n in (least, least - 1))
        assert not np.isnan(enough), p
        assert np.isnan(fewer), p


def test_names_of_percentiles():
    columns = list(metrics.percentiles(waits(1), q=(0.5, 0.95, 0.999, 0.29)).columns)
    assert columns == ["n", "n_censored", "n_negative", "p50_s", "p95_s", "p99.9_s", "p29_s",
                       "p50_low_s", "p50_high_s", "p95_low_s", "p95_high_s",
                       "p99.9_low_s", "p99.9_high_s", "p29_low_s", "p29_high_s"]  # fmt: skip


def test_a_timedelta_column_and_a_function_of_ones_own_have_no_censoring_to_know():
    frame = waits(1, 3).assign(queued=metrics.queue_time)
    for of in ("queued", lambda rows: rows["queued"]):
        result = metrics.percentiles(frame, of=of)
        assert result["p50_s"].tolist() == [120.0]
        assert result["n_censored"].isna().all()
        assert result["n_censored"].dtype == "Int64"


def test_groups_by_functions_several_keys_and_null_keys():
    frame = waits(1, 2, 3, step_key=["k", None, None], name=["x", ":rocket: t", None], queue=["q", None, None])
    result = metrics.percentiles(frame, by=["queue", metrics.step])
    assert list(result.columns[:2]) == ["queue", "step"]
    assert result["queue"].fillna("-").tolist() == ["q", "-", "-"]
    assert result["step"].fillna("-").tolist() == ["k", "t", "-"]
    assert result["n"].tolist() == [1, 1, 1]
    assert result.dtypes[["queue", "step"]].eq("str").all()


def test_integer_keys_keep_their_dtype():
    result = metrics.percentiles(waits(1, 2, 3, build_number=pd.array([2, None, 1], dtype="Int64")), by="build_number")
    assert result["build_number"].dtype == "Int64"
    assert result["build_number"].fillna(-1).tolist() == [1, 2, -1]


def test_empty_and_all_null_frames():
    frame = waits(1, queue="a")
    for by in (None, "queue", ["queue", "type"]):
        full, empty = (metrics.percentiles(rows, by=by) for rows in (frame, frame.iloc[:0]))
        assert empty.empty
        assert empty.dtypes.equals(full.dtypes)
    result = metrics.percentiles(jobs(runnable_at=at(None, 0), started_at=at(None, None)))
    assert result[["n", "n_censored"]].to_numpy().tolist() == [[0, 1]]
    assert result[["p50_s", "p95_s"]].isna().all(axis=None)


def test_what_is_refused():
    frame = waits(1, n=1, queue="a")
    for arguments, words in (
        ({"of": "queue"}, "'queue' is str, not timedelta"),
        ({"of": "nowhere"}, "no column 'nowhere'"),
        ({"of": lambda rows: rows["n"]}, "not timedelta"),
        ({"by": "state"}, r"no column 'state'; it comes with ws.builds\(\), ws.jobs\(\) or ws.history\(\)"),
        ({"by": "n"}, "a column 'n' of its own"),
        ({"by": lambda rows: 3}, "one value per row"),
        ({"by": ["queue", "queue"]}, "two keys of the same name"),
        ({"q": (0.5, 1.0)}, "q=1.0"),
        ({"q": (0,)}, "q=0"),
        ({"q": (95,)}, "q=95"),
        ({"method": "guess"}, "method='guess'"),
    ):
        with pytest.raises(BadInput, match=words):
            metrics.percentiles(frame, **arguments)


@pytest.mark.parametrize("method", get_args(Method))
def test_the_method_is_that_of_numpy(method):
    minutes = np.random.default_rng(3).exponential(5, 41).round(3)
    result = metrics.percentiles(waits(*minutes), q=(0.1, 0.62, 0.95), method=method)
    seconds = metrics.queue_time(waits(*minutes)).dt.total_seconds()
    assert result.iloc[0, 3:6].tolist() == np.quantile(seconds, (0.1, 0.62, 0.95), method=method).tolist()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows, st.sampled_from(get_args(Method)), st.sampled_from([0.05, 0.25, 0.5, 0.9]))
def test_agrees_with_numpy_in_every_group_by_every_method(drawn, method, p):
    frame = random_jobs(drawn)
    result = metrics.percentiles(frame, by="queue", q=(p,), method=method)
    assert result["n"].sum() == metrics.queue_time(frame).notna().sum()
    for row in result.itertuples(index=False):
        group = frame[frame["queue"].isna() if pd.isna(row.queue) else frame["queue"] == row.queue]
        seconds = metrics.queue_time(group).dt.total_seconds().dropna()
        wanted = np.quantile(seconds, p, method=method) if len(seconds) * min(p, 1 - p) >= 1 - 1e-9 else np.nan
        np.testing.assert_allclose(row[4], wanted, rtol=1e-12, atol=1e-12)
        assert row.n_negative == (seconds < 0).sum()


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_never_matters(drawn, random):
    shuffled = random.sample(drawn, len(drawn))
    for by in (None, "queue", ["queue", "type"]):
        assert_frame_equal(
            metrics.percentiles(random_jobs(drawn), by=by), metrics.percentiles(random_jobs(shuffled), by=by)
        )


@pytest.mark.slow
def test_many_rows_and_groups_take_no_long_time():
    random = np.random.default_rng(1)
    frame = waits(0).loc[[0] * 300_000].assign(build=random.integers(0, 60_000, 300_000))
    assert len(metrics.percentiles(frame, by="build")) > 59_000  # a loop over groups would take half a minute


@pytest.mark.parametrize(("n", "low", "high"), [(6, 1, 6), (10, 2, 9), (20, 6, 15), (50, 18, 33), (100, 40, 61)])
def test_the_interval_of_a_median_is_of_the_ranks_in_the_literature(n, low, high):
    """Campbell and Gardner 1988, British Medical Journal 296: 1454-1456, table of exact ranks."""
    result = metrics.percentiles(waits(*range(n, 0, -1)), q=(0.5,))
    assert result[["p50_low_s", "p50_high_s"]].to_numpy().tolist() == [[60.0 * low, 60.0 * high]]


def test_an_end_that_no_row_lies_beyond_is_nan():
    for n, has_high in ((71, False), (72, True)):  # .95 ** 72 is the first below .025
        result = metrics.percentiles(waits(*range(n)), q=(0.95,))
        assert result["p95_low_s"].notna().all()
        assert result["p95_high_s"].notna().tolist() == [has_high]
    assert metrics.percentiles(waits(*range(5)), q=(0.5,))[["p50_low_s", "p50_high_s"]].isna().all(axis=None)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.floats(0.02, 0.98))
def test_the_interval_covers_at_least_95_percent(n, p):
    """By the binomial distribution of how many rows lie below the true percentile, summed here one by one."""
    _, _, _, middle, *ends = metrics.percentiles(waits(*range(1, n + 1)), q=(p,)).astype(float).iloc[0]
    below = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    low, high = (end / 60 for end in ends)
    if not np.isnan(low):
        assert sum(below[: round(low)]) <= 0.025 + 1e-9
    if not np.isnan(high):
        assert sum(below[round(high) :]) <= 0.025 + 1e-9
    assert np.isnan(low) or np.isnan(high) or low - 1e-9 <= middle / 60 <= high + 1e-9
