"""Estimates of the remaining time of running builds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from buildframe import metrics
from tests.metrics.metric_frames import START, UTC, at
from tests.refusals import wrong_messages

WEEKS = [6, 6, 6, 7, 10, 13, 16, 22, 23]
GOING_ON = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
"""Weeks of remission of the group with 6-MP, and where it went on (Freireich and others 1963, Blood 21: 699-716)."""


def builds(ended: list[float], cut: list[float], running: list[float], **more: object) -> pd.DataFrame:
    """Builds that ran so many minutes: to their end, until they were canceled, and so far."""
    ran = [*ended, *cut, *running]
    states = ["passed"] * len(ended) + ["canceled"] * len(cut) + ["running"] * len(running)
    columns = {
        "id": pd.Series([f"{i:03}" for i in range(len(ran))], dtype="str"),
        "pipeline": "web",
        "state": pd.Series(states, dtype="str"),
        "blocked": False,
        "started_at": START,
        "finished_at": at(*ended, *cut, *([None] * len(running))),
        "fetched_at": at(*[10_000] * (len(ended) + len(cut)), *running),
        **more,
    }
    return pd.DataFrame(columns).astype({"started_at": UTC})


@pytest.mark.long
def test_the_shares_of_freireich():
    frame = builds(WEEKS, GOING_ON, [0.0])
    times = [6, 7, 10, 13, 16, 22, 23, np.nan]
    for place, share in enumerate([0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]):
        result = metrics.remaining_time(frame, q=(1 - share - 0.0006, 1 - share + 0.0006))
        expected = [60 * times[place], 60 * times[place + 1]]
        assert result.iloc[0, -2:].tolist() == pytest.approx(expected, nan_ok=True)
    assert metrics.remaining_time(frame)["p50_s"].tolist() == [23 * 60]


def test_of_those_that_ran_as_long():
    result = metrics.remaining_time(builds([1, 2, 3, 4, 5, 6], [3.5], [2.0, 6.0, 4.5]), q=0.5)
    assert result.to_dict("list") == {
        "pipeline": ["web"] * 3,
        "id": ["008", "009", "007"],
        "elapsed_s": [360, 270, 120],
        "n": [0, 2, 4],
        "n_censored": [0, 1, 3],
        "n_sooner": [6, 4, 2],
        "n_negative": [0, 0, 0],
        "p50_s": [pytest.approx(np.nan, nan_ok=True), 90, 180],
    }


def kaplan_meier(ended: list[int], cut: list[int], time: int) -> Fraction:
    """The product over the ends up to a time, from its definition."""
    share = Fraction(1)
    for end in sorted({one for one in ended if one <= time}):
        share *= 1 - Fraction(ended.count(end), sum(one >= end for one in [*ended, *cut]))
    return share


def brute(ended: list[int], cut: list[int], now: int, q: Fraction) -> float:
    longer = [one for one in ended if one > now]
    if len(longer) * min(q, 1 - q) < 1:
        return np.nan
    reached = [kaplan_meier(ended, cut, end) <= (1 - q) * kaplan_meier(ended, cut, now) for end in sorted(longer)]
    return float(sorted(longer)[reached.index(True)] - now) if True in reached else np.nan


minutes = st.lists(st.integers(0, 12), max_size=12)


@pytest.mark.long
@given(minutes, minutes, st.lists(st.integers(0, 12), min_size=1, max_size=4), st.sampled_from([2, 3, 4, 5]))
@example([1, 2, 3], [], [0], 3)
@example([5] * 4, [5, 5], [4], 2)
@settings(deadline=None)
def test_from_the_definition(ended: list[int], cut: list[int], running: list[int], parts: int) -> None:
    q = 1 - Fraction(1, parts)
    result = metrics.remaining_time(builds(ended, cut, running), q=float(q))
    for _, row in result.iterrows():
        now = round(row["elapsed_s"] / 60)
        assert row["n"] == sum(one > now for one in ended)
        assert row["n_censored"] == sum(one > now for one in [*cut, *running])
        expected = 60 * brute(ended, [*cut, *running], now, q)
        assert row.iloc[-1] == pytest.approx(expected, nan_ok=True)
    assert result["elapsed_s"].tolist() == sorted((60.0 * one for one in running), reverse=True)


@pytest.mark.long
@given(minutes, st.integers(0, 12))
@settings(deadline=None)
def test_without_canceled_ones_it_is_the_median_of_what_was_left(ended: list[int], now: int) -> None:
    left = sorted(one - now for one in ended if one > now)
    result = metrics.remaining_time(builds(ended, [], [now]), q=0.5)["p50_s"].item()
    assert result == pytest.approx(60 * left[(len(left) - 1) // 2] if len(left) > 1 else np.nan, nan_ok=True)


def test_what_ends_and_what_was_only_not_seen_to_end():
    states = ["passed", "failed", "passed", "canceled", "canceling", "failing", "skipped", "scheduled", None, "running"]
    frame = builds([9] * 10, [], [], state=states, blocked=[False, None, True, *[False] * 7])
    frame["finished_at"] = at(9, 9, 9, 9, None, None, None, None, None, None)
    frame["fetched_at"] = at(20, 20, 20, 20, 9, 9, 9, 9, 9, 1)
    result = metrics.remaining_time(frame)
    assert result[["id", "elapsed_s", "n", "n_censored", "n_sooner"]].to_numpy().tolist() == [
        ["005", 540, 0, 0, 2],
        ["009", 60, 2, 4, 0],  # beyond it the blocked, the canceled, the canceling and the failing one
    ]


def test_an_end_before_the_beginning_ended_before_any():
    frame = builds([-5, 3, 4], [], [0.0, -1.0])
    result = metrics.remaining_time(frame)[["n", "n_sooner", "n_negative"]]
    assert result.to_numpy().tolist() == [[2, 1, 2], [2, 1, 2]]  # that one, and the one that runs


def test_a_retry_moves_the_end_and_a_percentile_wants_a_build_beyond_it():
    again = builds([1, 2], [], [1.0]).assign(finished_at=at(1, 2, 0.5))  # what runs again had ended before
    assert metrics.remaining_time(again)["elapsed_s"].tolist() == [60]
    assert metrics.remaining_time(again)["n"].tolist() == [1]
    for n, is_known in ((9, False), (10, True)):
        result = metrics.remaining_time(builds(list(range(1, n + 1)), [], [0.0]))
        assert result["p90_s"].notna().item() == is_known


def test_groups_and_what_is_refused():
    frame = pd.concat([builds([1, 2], [], [0.5]), builds([9, 9], [], [0.5], pipeline="api")], ignore_index=True)
    assert metrics.remaining_time(frame)[["pipeline", "p50_s"]].to_numpy().tolist() == [["api", 510], ["web", 30]]
    assert list(metrics.remaining_time(frame, by=None).columns[:2]) == ["id", "elapsed_s"]
    assert wrong_messages([
        ("no column 'started_at'", lambda: metrics.remaining_time(frame.drop(columns="started_at"))),
        ("a column 'id' of its own", lambda: metrics.remaining_time(frame, by="id")),
        ("q=50", lambda: metrics.remaining_time(frame, q=50)),
    ]) == {}  # fmt: skip
