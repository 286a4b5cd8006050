from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.rates import wilson
from tests.metrics.metric_frames import at
from tests.refusals import columns_not_named

NEWCOMBE = {(81, 263): [0.2553, 0.3662], (15, 148): [0.0624, 0.1605], (0, 20): [0.0, 0.1611], (1, 29): [0.0061, 0.1718]}
"""Newcombe 1998, Statistics in Medicine 17: 857-872, table I, method 3."""


def test_wilson_by_newcombe():
    assert {case: np.round(wilson(*case), 4).tolist() for case in NEWCOMBE} == NEWCOMBE
    assert [type(end) for end in wilson(81, 263)] == [np.ndarray, np.ndarray]


def test_wilson_of_arrays_and_of_nothing():
    low, high = wilson(pd.Series([0, 81, 20, None], dtype="Int64"), np.array([0, 263, 20, 5]))
    assert np.isnan(low[[0, 3]]).all()
    assert np.isnan(high[[0, 3]]).all()
    assert low[1:3].round(4).tolist() == [0.2553, 0.8389]
    assert high[2] == 1.0


@pytest.mark.long
@given(st.integers(1, 10**6), st.data(), st.floats(0.01, 0.999))
def test_wilson_holds_the_rate_mirrors_and_grows(n, data, confidence):
    x = data.draw(st.integers(0, n))
    low, high = wilson(x, n, confidence)
    assert 0 <= low <= x / n <= high <= 1
    mirrored = wilson(n - x, n, confidence)
    np.testing.assert_allclose([low, high], [1 - mirrored[1], 1 - mirrored[0]], atol=1e-12)
    wider = wilson(x, n, (1 + confidence) / 2)
    assert wider[0] <= low
    assert wider[1] >= high


@pytest.mark.parametrize("confidence", [1.0, 0.0, 95, None, 1 - 1e-16])
def test_wilson_refuses_other_numbers_than_fractions(confidence):
    with pytest.raises(BadInput, match="confidence="):
        wilson(1, 2, confidence)


STATES = ["passed", "failed", "canceled", "skipped", "not_run", "running", "failing", "blocked", "scheduled", None]


def builds(states: list[str | None], blocked: object = None) -> pd.DataFrame:
    """One build an hour."""
    return pd.DataFrame(
        {
            "state": pd.Series(states, dtype="str"),
            "blocked": pd.Series(blocked, range(len(states)), dtype="boolean"),
            "created_at": at(*range(0, 60 * len(states), 60)),
        }
    )


def test_only_passed_and_failed_builds_count():
    result = metrics.success_rate(builds([*STATES, "passed"])).loc[0]
    assert result[["passed", "failed", "n"]].tolist() == [2, 1, 3]
    assert result["rate"] == 2 / 3
    assert result[["low", "high", "n_effective"]].isna().all(), "three builds are in three spans"


def test_a_blocked_build_counts_for_neither_whatever_its_last_state():
    result = metrics.success_rate(builds(["passed", "passed", "failed"], [True, False, None])).loc[0]
    assert result[["passed", "failed"]].tolist() == [1, 1]


def test_by_groups_and_without_any_outcome():
    frame = builds(["passed", "running"]).assign(branch=["main", None])
    result = metrics.success_rate(frame, by="branch")
    assert result["n"].tolist() == [1, 0]
    assert result.loc[1, ["rate", "low", "high", "n_effective"]].isna().all()
    assert {name: str(dtype) for name, dtype in result.dtypes.items()} == {
        "branch": "str", "passed": "Int64", "failed": "Int64", "n": "Int64",
        "rate": "float64", "low": "float64", "high": "float64", "n_effective": "float64",
    }  # fmt: skip
    for by in (None, "branch"):
        empty = metrics.success_rate(frame.iloc[:0], by=by)
        assert empty.empty
        assert empty.dtypes.equals(metrics.success_rate(frame, by=by).dtypes)


def test_missing_columns_are_named():
    names = ["state", "blocked", "created_at"]
    assert columns_not_named(metrics.success_rate, builds(["passed"]), names, "ws.builds") == set()


@pytest.mark.long
@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from(STATES), st.booleans())))
def test_order_never_matters_and_counts_add_up(drawn):
    frame = builds([state for state, _ in drawn], [blocked for _, blocked in drawn])
    result = metrics.success_rate(frame)
    pd.testing.assert_frame_equal(result, metrics.success_rate(frame.iloc[::-1]))
    settled = [state for state, blocked in drawn if not blocked and state in ("passed", "failed")]
    assert result["n"].sum() == len(settled)
