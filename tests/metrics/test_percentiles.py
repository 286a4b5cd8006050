from __future__ import annotations

import functools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal
from scipy import stats

from buildframe import metrics
from tests.metrics.metric_frames import START, at, jobs, random_jobs, rows
from tests.refusals import wrong_messages


def waits(*minutes: float, **more: object) -> pd.DataFrame:
    return jobs(runnable_at=at(*[0] * len(minutes)), started_at=at(*minutes), **more)


def test_percentiles_of_two_groups():
    frame = waits(1, 2, 3, 4, 10, queue=list("aaaab"))
    result = metrics.percentiles(frame, by="queue", q=(0.5, 0.75))
    assert result[["queue", "n", "n_censored", "n_negative", "p50_s", "p75_s"]].to_dict("list") == {
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
        fetched_at=at(2, 2, 9, 9, 9, 9),
    )
    frame.loc[5, "type"] = "trigger"
    result = metrics.percentiles(frame, q=(0.5,))
    assert result.iloc[0, :4].to_dict() == {"n": 2, "n_censored": 2, "n_negative": 1, "p50_s": 180.0}
    assert metrics.percentiles(frame, q=(0.7,))["p70_at_least_s"].tolist() == [180.0]  # of -1, 2, 3 and 7 minutes


def test_a_censored_row_of_which_no_time_is_known_says_nothing_about_the_curve():
    frame = waits(1, 2, 3, None)
    result = metrics.percentiles(frame, q=0.5)
    assert result[["n", "n_censored", "p50_s"]].to_numpy().tolist() == [[3, 1, 120]]


def test_censored_rows_of_each_metric():
    ends = {
        metrics.dependency_wait: ("created_at", "runnable_at"),
        metrics.run_time: ("started_at", "finished_at"),
        metrics.turnaround: ("runnable_at", "finished_at"),
        metrics.wall_time: ("created_at", "finished_at"),
    }
    found = {}
    for metric, (begun, ended) in ends.items():
        frame = pd.DataFrame({"type": "script", begun: at(0, 0, None), ended: at(1, None, None)})
        frame = frame if metric is metrics.run_time else frame.drop(columns="type")
        found[metric] = metrics.percentiles(frame, of=metric)[["n", "n_censored"]].to_numpy().tolist()
    assert found == {metric: [[1, 1]] for metric in ends}


@pytest.mark.long
def test_a_percentile_wants_a_row_beyond_it():
    for p, least in ((0.95, 20), (0.5, 2), (0.99, 100), (0.05, 20), (0.999, 1000), (0.75, 4), (0.9, 10)):
        column = f"p{100 * p:g}_s"
        enough, fewer = (metrics.percentiles(waits(*range(n)), q=(p,))[column].iloc[0] for n in (least, least - 1))
        assert not np.isnan(enough), p
        assert np.isnan(fewer), p


def test_names_of_percentiles():
    columns = list(metrics.percentiles(waits(1), q=(0.5, 0.999, 0.29)).columns)
    assert columns == ["n", "n_censored", "n_negative",
                       "p50_s", "p50_low_s", "p50_high_s", "p50_at_least_s", "p50_n_effective",
                       "p99.9_s", "p99.9_low_s", "p99.9_high_s", "p99.9_at_least_s", "p99.9_n_effective",
                       "p29_s", "p29_low_s", "p29_high_s", "p29_at_least_s", "p29_n_effective"]  # fmt: skip


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
    assert result["step"].fillna("-").tolist() == ["k", ":rocket: t", "-"]
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
    cases = [
        ("'queue' is str, not timedelta", {"of": "queue"}), ("no column 'nowhere'", {"of": "nowhere"}),
        ("not timedelta", {"of": lambda rows: rows["n"]}),
        ("no column 'state'; it comes with ws.builds(), ws.jobs() or ws.history()", {"by": "state"}),
        ("a column 'n' of its own", {"by": "n"}), ("one value per row", {"by": lambda rows: 3}),
        ("two keys of the same name", {"by": ["queue", "queue"]}),
        ("q=1.0", {"q": (0.5, 1.0)}), ("q=0", {"q": (0,)}), ("q=95", {"q": (95,)}),
    ]  # fmt: skip
    call = functools.partial(metrics.percentiles, waits(1, n=1, queue="a"))
    assert wrong_messages((words, functools.partial(call, **arguments)) for words, arguments in cases) == {}


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(rows, st.sampled_from([0.05, 0.25, 0.5, 0.9]))
def test_agrees_with_numpy_in_every_group(drawn, p):
    frame = random_jobs(drawn)
    result = metrics.percentiles(frame, by="queue", q=(p,))
    assert result["n"].sum() == metrics.queue_time(frame).notna().sum()
    for row in result.itertuples(index=False):
        group = frame[frame["queue"].isna() if pd.isna(row.queue) else frame["queue"] == row.queue]
        seconds = metrics.queue_time(group).dt.total_seconds().dropna()
        wanted = np.quantile(seconds, p) if len(seconds) * min(p, 1 - p) >= 1 - 1e-9 else np.nan
        np.testing.assert_allclose(row[4], wanted, rtol=1e-12, atol=1e-12)
        assert row.n_negative == (seconds < 0).sum()


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(rows, st.randoms(use_true_random=False))
def test_the_order_of_rows_never_matters(drawn, random):
    frame, shuffled = random_jobs(drawn), random_jobs(random.sample(drawn, len(drawn)))
    for by in (None, "queue", ["queue", "type"]):
        assert_frame_equal(metrics.percentiles(frame, by=by), metrics.percentiles(shuffled, by=by))


@pytest.mark.long
def test_many_rows_and_groups_take_no_long_time():
    random = np.random.default_rng(1)
    frame = waits(0).loc[[0] * 300_000].assign(build=random.integers(0, 60_000, 300_000))
    assert len(metrics.percentiles(frame, by="build")) > 59_000  # a loop over groups would take half a minute


def test_many_long_waits_that_go_on_leave_a_lower_bound():
    """100 waits of 60 s, and 30 jobs that have waited for 2 h: p95 is not 60 s."""
    frame = waits(*[1] * 100, *[None] * 30, fetched_at=at(*[120] * 130))
    result = metrics.percentiles(frame, q=(0.5, 0.95))
    assert result[["p50_s", "p50_at_least_s"]].fillna(-1).to_numpy().tolist() == [[60, -1]]
    assert result[["p95_s", "p95_at_least_s"]].fillna(-1).to_numpy().tolist() == [[-1, 7200]]


def test_one_row_that_was_seen_for_long_is_no_lower_bound_of_a_percentile():
    """100 waits of 60 s, and of jobs that still wait, 10 for 61 s and one for ten hours: p95 is 61 s or more."""
    frame = waits(*[1] * 100, *[None] * 11, fetched_at=at(*[600] * 100, *[61 / 60] * 10, 600))
    result = metrics.percentiles(frame, q=(0.95, 0.99))
    assert result[["p95_s", "p95_at_least_s", "p99_at_least_s"]].fillna(-1).to_numpy().tolist() == [[-1, 61, 61]]


def test_lower_bounds_are_percentiles_if_censored_rows_had_ended_when_last_seen():
    """Waits end and are last seen at quarters of seconds, and seconds in which a row was last seen are rounded down."""
    random = np.random.default_rng(5)
    begun, key = pd.Series(at(*[0] * 400)), random.integers(0, 5, 400)
    wait, seen = (begun + pd.to_timedelta(random.integers(0, 80, 400) / 4, unit="s") for _ in range(2))
    is_over = (wait <= seen) & ((wait - begun).dt.total_seconds() < 3 * (key + 1))
    frame = jobs(runnable_at=begun, started_at=wait.where(is_over), fetched_at=seen).assign(key=key)
    frame = frame.astype(dict.fromkeys(["runnable_at", "started_at", "fetched_at"], "datetime64[us, UTC]"))
    seconds = (wait.where(is_over, seen.dt.floor("s")) - begun).dt.total_seconds()
    q = (0.3, 0.5, 0.75, 0.9)
    n_bounds = 0
    for row in metrics.percentiles(frame, by="key", q=q).to_dict("records"):
        for p in q:
            bound = np.quantile(seconds[key == row["key"]], p, method="inverted_cdf")
            if np.isnan(row[f"p{100 * p:g}_s"]):
                assert row[f"p{100 * p:g}_at_least_s"] == bound
                n_bounds += 1
            else:
                assert np.isnan(row[f"p{100 * p:g}_at_least_s"])
                assert row[f"p{100 * p:g}_s"] >= bound
    assert 5 < n_bounds < 18


WEEKS = pd.Timedelta(7, "D")


def patients() -> pd.DataFrame:
    """Weeks of remission with 6-MP (Freireich, E. J., et al. (1963). Blood 21, 699-716), as jobs that wait."""
    ended, seen = [6, 6, 6, 7, 10, 13, 16, 22, 23], [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
    begun = pd.Series(at(*range(0, 210, 10)))
    ends = [begun[i] + WEEKS * week for i, week in enumerate(ended)] + [pd.NaT] * len(seen)
    fetched = [begun[9 + i] + WEEKS * week for i, week in enumerate(seen)]
    frame = jobs(runnable_at=begun, started_at=ends, fetched_at=[begun.max() + WEEKS * 52] * 9 + fetched)
    return frame.astype(dict.fromkeys(["started_at", "fetched_at"], begun.dtype))


def test_percentiles_of_a_published_group_with_censored_rows():
    result = metrics.percentiles(patients(), q=(0.25, 0.5, 0.6))
    weeks = result[["p25_s", "p50_s", "p60_s", "p60_at_least_s"]] / WEEKS.total_seconds()
    assert weeks.fillna(-1).round(6).to_numpy().tolist() == [[13, 23, -1, 19]]


@pytest.mark.parametrize("share", [0.0, 0.02, 0.4])
def test_intervals_are_those_of_the_definition(share):
    """Every number computed again by loops, from the definition in the notes of the function."""
    random = np.random.default_rng(8)
    frame = busy_days(random, 12).assign(key=lambda rows: random.integers(0, 6, len(rows)))
    frame = frame.assign(started_at=frame["started_at"].mask(random.random(len(frame)) < share))
    expected = [by_definition(group, p) for _, group in frame.groupby("key") for p in (0.5, 0.9)]
    names = [f"p{p}_{end}" for p in (50, 90) for end in ("low_s", "high_s", "n_effective")]
    result = metrics.percentiles(frame, by="key", q=(0.5, 0.9))
    np.testing.assert_allclose(result[names].to_numpy().reshape(-1, 3), expected, rtol=1e-9)
    assert result["p50_low_s"].notna().any()


def busy_days(random, days: int) -> pd.DataFrame:
    """Waits of 60 jobs a day, all of which are longer on some days."""
    day = np.repeat(np.arange(days), 60)
    minutes = np.exp(0.5 * random.standard_normal(len(day)) + 0.4 * random.standard_normal(days)[day])
    begun = START + pd.to_timedelta(np.sort(day + random.random(len(day))), unit="D").round("us")
    ended = begun + pd.to_timedelta(np.round(minutes * 60), unit="s")  # with ties
    frame = jobs(runnable_at=begun, started_at=ended, fetched_at=begun + pd.Timedelta(90.5, "s"))
    return frame.astype(dict.fromkeys(["runnable_at", "started_at", "fetched_at"], "datetime64[us, UTC]"))


def by_definition(group: pd.DataFrame, p: float) -> list[float]:
    """The ends of the interval of a percentile, and its effective number of rows."""
    time = group["runnable_at"].astype("int64").to_numpy()
    ended = group["started_at"].notna().to_numpy()
    seconds = np.where(ended, (group["started_at"] - group["runnable_at"]).dt.total_seconds(), 91.0)
    span = np.minimum(8 * (time - time.min()) // (time.max() - time.min() + 1), 7)
    values = np.sort(seconds[ended])
    lasting, greenwood, curve = 1.0, 0.0, []
    for i, value in enumerate(values):  # tied rows end one after the other
        at_risk = len(values) - i + (~ended & (seconds > value)).sum()
        lasting *= 1 - 1 / at_risk
        greenwood += 1 / (at_risk * (at_risk - 1)) if at_risk > 1 else np.inf
        curve.append((lasting, greenwood))

    def size(q: float) -> tuple[float, float]:
        rank = next((i for i, (share, _) in enumerate(curve) if share <= 1 - q + 1e-12), None)
        if rank is None:
            return np.nan, np.nan
        share, sum_of = curve[rank]
        left = [own for own, value in zip(curve, values, strict=True) if value < 91]
        before = left[-1][0] if left else 1.0
        hit = np.where(ended, seconds <= values[rank], 1 - share / before if len(left) <= rank else 0.0)
        spread = np.bincount(span, hit - hit.mean(), 8)
        effect = max(1.0, 8 / 7 * (spread**2).sum() / len(hit) / hit.var())
        n_effective = min(q * (1 - q) / (share**2 * sum_of * effect), len(hit))
        return n_effective, n_effective * (stats.norm.ppf(0.975) / stats.t.ppf(0.975, 7)) ** 2

    (n_effective, k), (_, k_of_median) = size(p), size(0.5)
    if not min(k, k_of_median) * min(p, 1 - p) >= 1:
        return [np.nan, np.nan, np.nan]
    below, above = stats.beta.ppf(0.025, k * p, k * (1 - p) + 1), stats.beta.ppf(0.975, k * p + 1, k * (1 - p))
    shares = 1 - np.array([share for share, _ in curve])
    low, high = (shares <= below + 1e-12).sum(), (shares < above - 1e-12).sum() + 1
    if not (low and high < len(values)):
        return [np.nan, np.nan, np.nan]
    return [values[low - 1], values[high], min(n_effective, len(values))]


def test_no_interval_from_few_spans_of_time_or_without_times():
    frame = busy_days(np.random.default_rng(1), 6)
    columns = ["p50_low_s", "p50_high_s"]
    assert metrics.percentiles(frame, q=0.5)[columns].notna().all(axis=None)
    at_once = frame.assign(started_at=frame["started_at"] - frame["runnable_at"] + START, runnable_at=START)
    assert metrics.percentiles(at_once, q=0.5)[columns].isna().all(axis=None)
    stored = pd.DataFrame({"x_s": (frame["started_at"] - frame["runnable_at"]).dt.total_seconds()})
    without = metrics.percentiles(stored, of="x_s", q=0.5)
    assert without["p50_s"].notna().all()
    assert without[[*columns, "p50_n_effective"]].isna().all(axis=None)
    assert "created_at" in without.attrs["why_no_intervals"]
