"""Promises: what meets or misses them, error budgets, and the coverage of intervals."""

from __future__ import annotations

import datetime as dt
import functools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.rates import wilson
from tests.metrics.metric_frames import at
from tests.metrics.simulated_worlds import DURATIONS, as_waits, censor, coverage
from tests.refusals import wrong_messages

COUNTS = ["n", "met", "missed", "undecided", "n_negative"]


def jobs(*rows: tuple[float | None, ...], **columns: object) -> pd.DataFrame:
    """Script jobs that are runnable, start, finish and were fetched so many minutes after START."""
    stamps = list(zip(*rows, strict=True)) if rows else [()] * 4
    names = ("runnable_at", "started_at", "finished_at", "fetched_at")
    return pd.DataFrame({"type": "script", **dict(zip(names, (at(*own) for own in stamps), strict=True)), **columns})


def counts(frame: pd.DataFrame, within: str = "5m", **options: object) -> list[int]:
    return metrics.objective(frame, metrics.queue_time, within, 0.9, **options)[COUNTS].to_numpy().tolist()


def test_what_meets_a_promise():
    frame = jobs(
        (0, 5, 9, 90),  # exactly the limit
        (0, 5 + 1e-6, 9, 90),
        (0, None, None, 5.5),  # still waits, beyond the limit
        (0, None, None, 5),  # still waits, not yet beyond
        (0, None, 6, 90),  # canceled while it waited, beyond the limit
        (0, None, 4, 90),  # canceled before
        (3, 2, 9, 90),  # clocks that disagree
        (None, None, 9, 90),  # never runnable
    )
    assert counts(frame) == [[5, 2, 3, 2, 1]]


def test_other_jobs_than_those_of_agents_promise_nothing():
    frame = jobs((0, 1, 2, 9), (0, 9, 9, 9), type=["script", "trigger"])
    assert counts(frame) == [[1, 1, 0, 0, 0]]
    assert metrics.objective(frame, metrics.turnaround, "5m", 0.9)["missed"].tolist() == [1]


def test_blocked_builds_are_not_over():
    builds = pd.DataFrame(
        {
            "created_at": at(0, 0, 0, 0), "finished_at": at(3, 3, 3, None), "fetched_at": at(4, 20, 20, 20),
            "blocked": pd.array([True, True, False, False], "boolean"), "state": "passed",
        }
    )  # fmt: skip
    found = metrics.objective(builds, metrics.wall_time, "10m", 0.9)
    assert found[COUNTS].to_numpy().tolist() == [[3, 1, 2, 1, 0]]


def test_columns_of_seconds_have_no_rows_that_did_not_end():
    frame = jobs((0, 1, 2, 9), (0, 1, 2, 9), (0, 1, 2, 9), created_at=at(0, 0, 0), own_s=[10.0, 400.0, np.nan])
    found = metrics.objective(frame, "own_s", "5m", 0.9)
    assert found[COUNTS].to_numpy().tolist() == [[2, 1, 1, 0, 0]]
    with pytest.raises(BadInput, match="infinite"):
        metrics.objective(frame.assign(own_s=np.inf), "own_s", "5m", 0.9)


def test_the_budget_is_the_number_of_misses_that_the_target_allows():
    frame = jobs(*[(k, k + (9 if k % 20 == 0 else 1), 99, 999) for k in range(200)])
    row = metrics.objective(frame, metrics.queue_time, "5m", 0.8).loc[0]
    assert row[["n", "met", "missed"]].tolist() == [200, 190, 10]
    assert row["share"] == 0.95
    assert row[["budget_used", "budget_remaining"]].tolist() == pytest.approx([0.25, 0.75])
    broken = metrics.objective(frame, metrics.queue_time, dt.timedelta(minutes=5), 0.99).loc[0]
    assert broken[["budget_used", "budget_remaining"]].tolist() == pytest.approx([5, -4])


def test_the_interval_is_that_of_a_success_rate_with_the_same_outcomes():
    random = np.random.default_rng(4)
    begin, missed = np.sort(random.uniform(0, 9000, 400)), random.random(400) < 0.2
    frame = jobs(*[(b, b + (9 if m else 1), b + 9, 99999) for b, m in zip(begin, missed, strict=True)])
    builds = pd.DataFrame(
        {"state": np.where(missed, "failed", "passed"), "blocked": False, "created_at": frame["runnable_at"]}
    )
    found, same = metrics.objective(frame, metrics.queue_time, "5m", 0.9), metrics.success_rate(builds)
    for ours, theirs in (("share", "rate"), ("low", "low"), ("high", "high"), ("n_effective", "n_effective")):
        assert found[ours].tolist() == pytest.approx(same[theirs].tolist())


def test_undecided_rows_are_in_no_span():
    few = jobs(*[(k, k + 1, 99, 999) for k in range(100)])
    late = jobs(*[(10_000, None, None, 10_001)] * 3)
    alone, both = (metrics.objective(one, metrics.queue_time, "5m", 0.9) for one in (few, pd.concat([few, late])))
    assert both["undecided"].tolist() == [3]
    assert both["low"].notna().all()
    pd.testing.assert_frame_equal(both.drop(columns="undecided"), alone.drop(columns="undecided"))


def test_all_censored_rows():
    assert counts(jobs(*[(0, None, None, 4)] * 3)) == [[0, 0, 0, 3, 0]]
    found = metrics.objective(jobs(*[(0, None, None, 4)] * 3), metrics.queue_time, "5m", 0.9)
    assert found[["share", "low", "high", "budget_used", "budget_remaining"]].isna().all(axis=None)
    assert counts(jobs(*[(0, None, None, 6)] * 3)) == [[3, 0, 3, 0, 0]]


def test_no_rows_and_one_row():
    none = metrics.objective(jobs(), metrics.queue_time, "5m", 0.9)
    one = metrics.objective(jobs((0, 1, 2, 3)), metrics.queue_time, "5m", 0.9)
    assert none.empty
    assert none.dtypes.tolist() == one.dtypes.tolist()
    assert one[["share", "budget_used"]].to_numpy().tolist() == [[1, 0]]
    assert one[["low", "high"]].isna().all(axis=None)
    days = metrics.objective(jobs(), metrics.queue_time, "5m", 0.9, freq="1D")
    assert days.empty
    assert list(days) == ["bucket", *none, "partial"]


def test_null_keys_are_a_group_of_their_own():
    frame = jobs((0, 1, 2, 9), (0, 9, 9, 9), queue=pd.Series(["a", None], dtype="str"))
    found = metrics.objective(frame, metrics.queue_time, "5m", 0.9, by="queue")
    assert found["queue"].fillna("null").tolist() == ["a", "null"]
    assert found["missed"].tolist() == [0, 1]


def test_buckets_use_parts_of_the_budget_of_all():
    day = 1440
    rows = [(day * d + k, day * d + k + (9 if k < d else 1), 9999, day * 3.5) for d in (0, 1, 3) for k in range(40)]
    found = metrics.objective(jobs(*rows), metrics.queue_time, "5m", 0.95, freq="1D")
    assert found["n"].tolist() == [40, 40, 0, 40]
    assert found["missed"].tolist() == [0, 1, 0, 3]
    assert found["share"].tolist() == pytest.approx([1, 39 / 40, np.nan, 37 / 40], nan_ok=True)
    assert found["budget_used"].tolist() == pytest.approx([0, 1 / 6, 0, 3 / 6])
    assert found["budget_remaining"].tolist() == pytest.approx([1, 5 / 6, 5 / 6, 2 / 6])
    assert found["partial"].tolist() == [False, False, False, True]
    whole = metrics.objective(jobs(*rows), metrics.queue_time, "5m", 0.95).loc[0]
    assert whole["budget_used"] == pytest.approx(found["budget_used"].sum())
    berlin = metrics.objective(jobs(*rows), metrics.queue_time, "5m", 0.95, freq="1D", tz="Europe/Berlin")
    assert str(berlin["bucket"].dt.tz) == "Europe/Berlin"


def test_each_group_has_the_buckets_of_all_and_a_budget_of_its_own():
    day, random = 1440, np.random.default_rng(3)
    rows = [(begin, begin + wait, 9999, 5 * day) for begin, wait in random.uniform((0, 0), (4 * day, 8), (300, 2))]
    queues = pd.Series(random.choice(["a", "b"], 300), dtype="str").where(random.random(300) < 0.9)
    frame = jobs(*rows, queue=queues)
    frame = frame[(frame["queue"] != "b") | (frame["runnable_at"] < at(2 * day)[0])]  # `b` has no late jobs
    promise = {"of": metrics.queue_time, "within": "5m", "target": 0.6, "freq": "1D"}
    names = ["bucket", "n", "met", "missed", "share", "budget_used", "budget_remaining", "partial"]
    alone = {queue: metrics.objective(own, **promise)[names] for queue, own in frame.groupby("queue", dropna=False)}
    found = metrics.objective(frame, **promise, by="queue")
    assert found["queue"].fillna("null").tolist() == ["a"] * 4 + ["b"] * 4 + ["null"] * 4
    assert found["n"].tolist()[6:8] == [0, 0]
    for queue, own in alone.items():
        both = found[found["queue"].isna() if pd.isna(queue) else found["queue"] == queue][names]
        pd.testing.assert_frame_equal(both.reset_index(drop=True).iloc[: len(own)], own, obj=str(queue))
        assert (both["n"].iloc[len(own) :] == 0).all()


def test_no_rows_give_no_buckets_of_groups():
    none = metrics.objective(jobs(queue=[]), metrics.queue_time, "5m", 0.9, by="queue", freq="1D")
    one = metrics.objective(jobs((0, 1, 2, 3), queue="a"), metrics.queue_time, "5m", 0.9, by="queue", freq="1D")
    assert none.empty
    assert list(none) == list(one)


def test_rows_belong_to_the_bucket_of_a_chosen_column():
    frame = jobs((0, 1, 2000, 9000), (10, 30, 2010, 9000))
    started = metrics.objective(frame, metrics.queue_time, "5m", 0.9, freq="1D")
    ended = metrics.objective(frame, metrics.queue_time, "5m", 0.9, freq="1D", at="finished_at")
    assert ended["bucket"].iloc[0] == started["bucket"].iloc[0] + pd.Timedelta("1D")
    assert ended["missed"].tolist() == started["missed"].tolist() == [1]


stamps = st.integers(-3, 12) | st.none()


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["script", "trigger"]), *[stamps] * 4), max_size=12))
def test_it_counts_what_a_loop_counts(drawn):
    kinds, *minutes = zip(*drawn, strict=True) if drawn else [()] * 5
    frame = jobs(*zip(*minutes, strict=True), type=pd.Series(kinds, dtype="str"))
    expected = dict.fromkeys(COUNTS[1:], 0)
    for kind, runnable, started, finished, fetched in drawn:
        if kind != "script" or runnable is None:
            continue
        last = next((t for t in (started, finished, fetched) if t is not None), None)
        is_beyond = last is not None and last - runnable > 5
        expected["missed"] += is_beyond
        expected["met"] += started is not None and not is_beyond
        expected["undecided"] += started is None and not is_beyond
        expected["n_negative"] += started is not None and started < runnable
    found = metrics.objective(frame, metrics.queue_time, "5m", 0.9)
    assert found[[*expected]].sum().to_dict() == expected
    assert (found["met"] + found["missed"] == found["n"]).all()


def test_invalid_arguments_are_refused():
    frame = jobs((0, 1, 2, 3))
    naive = frame.assign(runnable_at=frame["runnable_at"].dt.tz_localize(None))
    promise = {"of": metrics.queue_time, "within": "5m", "target": 0.9}
    cases = [
        ("target=0.0 is not a fraction", {"target": 0.0}), ("target=1.0 is not a fraction", {"target": 1.0}),
        ("target=95 is not a fraction", {"target": 95}), ("target=nan", {"target": float("nan")}),
        ("within='5 minutes' is not a valid duration", {"within": "5 minutes"}), ("within=300", {"within": 300}),
        ("within='0s' leaves no time", {"within": "0s"}), ("of=3 is neither a metric nor a column", {"of": 3}),
        ("freq='D2'", {"freq": "D2"}), ("tz='Mars'", {"freq": "1D", "tz": "Mars"}),
        ("at=3 is not a column name", {"at": 3}), ("no column 'created_at'", {"at": "created_at"}),
    ]  # fmt: skip
    calls = [(words, functools.partial(metrics.objective, frame, **promise | own)) for words, own in cases]
    assert wrong_messages([*calls, ("no time zone", lambda: metrics.objective(naive, **promise))]) == {}


# --- coverage


def covered(world: str, target: float, seed: int, censored: float = 0.0, n: int = 300) -> tuple[float, float]:
    """The share of intervals that contain the true share, and of missing ones; the limit is the true percentile."""
    draw, percentile = DURATIONS[world]
    random = np.random.default_rng(seed)
    times, durations = draw(random, n)
    frame = as_waits(times, durations, censor(random, durations, censored))
    found = metrics.objective(
        frame, metrics.queue_time, dt.timedelta(seconds=round(percentile(target), 6)), target, by="world"
    )
    assert len(found) == n
    result = coverage(found["low"], found["high"], target)
    return result.covered, result.missing


QUEUE = "queue (M/M/3, load .83)"


def test_intervals_contain_the_true_share():
    share, missing = covered("days that differ", 0.9, seed=8, n=100)
    assert share >= 0.92
    assert missing == 0


@pytest.mark.long
def test_intervals_contain_the_true_share_in_each_world():
    usual = ("independent", "autocorrelated within a day", "weekly rhythm", "days that differ")
    least = {(world, target): 0.92 for world in usual for target in (0.5, 0.9, 0.95)}
    least |= {(QUEUE, 0.5): 0.88, (QUEUE, 0.9): 0.75}
    found = {key: covered(*key, seed=9 if key[0] == QUEUE else 8) for key in least}
    assert {key: one for key, one in found.items() if one[0] < least[key] or one[1] > 0} == {}


@pytest.mark.long
def test_intervals_that_take_rows_for_independent_do_not():
    draw, percentile = DURATIONS[QUEUE]
    _, durations = draw(np.random.default_rng(9), 300)
    met = (durations <= percentile(0.5)).sum(axis=1)
    low, high = wilson(met, np.full(len(met), durations.shape[1]))
    assert coverage(low, high, 0.5).covered < 0.5
