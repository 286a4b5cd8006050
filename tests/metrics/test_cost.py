"""Prices of machine time: known answers, sums, and queues without a rate."""

from __future__ import annotations

import functools

import pandas as pd
import pytest

from buildframe import metrics
from tests.metrics.random_frames import jobs_of
from tests.metrics.test_waste import Build, frame_of
from tests.refusals import wrong_messages

PARTS = ["retried_cost", "canceled_cost", "after_failure_cost", "repeated_cost"]


def some_jobs() -> pd.DataFrame:
    one, two = Build(1, build_state="failed"), Build(2, build_state="failed", pipeline="api")
    return frame_of(
        one.job(0, 10, "failed", retried=True, queue="mac"),
        one.job(10, 12, "failed", queue="linux"),
        one.job(10, 15, queue="mac"),  # 3 of its 5 minutes lie after the failure
        one.job(3, 7, "canceled", queue="linux"),
        two.job(0, 20, queue="gpu"),
        two.job(0, 8, queue=None),
        two.job(0, None, "running", queue="mac"),
    )


def test_each_part():
    row = metrics.cost(some_jobs(), {"mac": 2, "linux": 0.5}).loc[0]
    assert row[["n", "n_no_rate", "n_running"]].tolist() == [6, 2, 1]
    assert row[["machine_s", "no_rate_s"]].tolist() == [49 * 60, 28 * 60]
    assert row["cost"] == pytest.approx(2 * 10 + 0.5 * 2 + 2 * 5 + 0.5 * 4)
    assert row[PARTS].tolist() == pytest.approx([20, 2, 6, 0])
    assert row["wasted_cost"] == pytest.approx(28)
    assert row["wasted_share"] == pytest.approx(28 / 33)


def test_the_rate_of_others_is_that_of_jobs_without_a_queue_too():
    row = metrics.cost(some_jobs(), {"mac": 2, "*": 1}).loc[0]
    assert row["cost"] == pytest.approx(2 * 15 + 6 + 20 + 8)
    assert row["n_no_rate"] == row["no_rate_s"] == 0


def test_queues_without_a_rate_are_never_free():
    priced = metrics.cost(some_jobs(), {"mac": 2, "linux": 0.5}, by="pipeline")
    assert priced["pipeline"].tolist() == ["api", "web"]
    assert priced["n_no_rate"].tolist() == [2, 0]
    assert priced.loc[0, ["cost", *PARTS, "wasted_cost", "wasted_share"]].isna().all()
    assert priced.loc[1, "cost"] == pytest.approx(33)


def test_a_rate_of_zero_is_known_and_free():
    row = metrics.cost(some_jobs(), {"*": 0}).loc[0]
    assert row[["cost", "wasted_cost", "n_no_rate"]].tolist() == [0, 0, 0]
    assert pd.isna(row["wasted_share"])


def test_rates_of_queues_in_which_nothing_ran_are_listed():
    found = metrics.cost(some_jobs().iloc[:6], {"mac": 2, "macos": 1, "arm": 1, "*": 1})
    assert found.attrs["unused_rates"] == ["arm", "macos"]


def test_with_one_rate_it_is_proportional_to_waste():
    frame = jobs_of("many")
    for by in (None, "queue", ["pipeline", "branch"]):
        priced, spent = metrics.cost(frame, {"*": 3}, by), metrics.waste(frame, by)
        assert priced["cost"].tolist() == pytest.approx((spent["machine_s"] / 20).tolist())
        wasted = spent["machine_s"] - spent["useful_s"]
        assert priced["wasted_cost"].tolist() == pytest.approx((wasted / 20).tolist(), abs=1e-9)
        assert priced[["n", "n_running", "n_negative"]].equals(spent[["n", "n_running", "n_negative"]])
        keys = [by] if isinstance(by, str) else by or []
        pd.testing.assert_frame_equal(priced[keys], spent[keys])


def test_groups_add_up_to_the_whole():
    frame, rates = jobs_of("many"), {"macos": 0.08, "default": 0.01}
    whole = metrics.cost(frame, rates).loc[0]
    for by in ("queue", "pipeline", ["branch", "queue"]):
        parts = metrics.cost(frame, rates, by)
        for name in ("n", "n_no_rate", "machine_s", "no_rate_s", "cost", *PARTS, "wasted_cost"):
            assert parts[name].sum() == pytest.approx(whole[name]), name


def test_no_rows_give_none_with_the_same_dtypes():
    for by in (None, ["pipeline", "queue"]):
        none, some = (metrics.cost(frame, {"*": 1}, by) for frame in (some_jobs().iloc[:0], some_jobs()))
        assert none.empty
        assert none.dtypes.tolist() == some.dtypes.tolist()
        assert list(none) == list(some)
        running = metrics.cost(some_jobs().iloc[6:], {"*": 1}, by).loc[0]
        assert running[["n", "cost", "n_running"]].tolist() == [0, 0, 1]


def test_invalid_rates_are_refused():
    cases = [
        ("rates={} has no rates", {}), ("has no rates", [("mac", 1)]), ("rates=3 has no rates", 3),
        ("rates['mac'] is -1", {"mac": -1}), ("rates['mac'] is True", {"mac": True}),
        ("rates['mac'] is '2'", {"mac": "2"}), ("rates['mac'] is nan", {"mac": float("nan")}),
        ("rates['mac'] is inf", {"mac": float("inf")}), ("rates[7]", {7: 1.0}),
    ]  # fmt: skip
    frame = some_jobs()
    assert wrong_messages((words, functools.partial(metrics.cost, frame, rates)) for words, rates in cases) == {}
