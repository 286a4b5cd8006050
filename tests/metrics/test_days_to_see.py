"""Days until a nightly report marks a change: they fall with its size, and with how alike days are."""

from __future__ import annotations

import functools
import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from tests.refusals import wrong_messages

START = pd.Timestamp("2026-03-02", tz="UTC")


def builds(effect: float = 0.0, per_day: int = 12, days: int = 28, rate: float = 0.1) -> pd.DataFrame:
    """Return builds whose log durations vary by .25, and by `effect` between days."""
    random, day = np.random.default_rng(2), np.repeat(np.arange(days), per_day)
    seconds = 600 * np.exp(effect * random.standard_normal(days)[day] + 0.25 * random.standard_normal(len(day)))
    states = pd.Series(np.where(random.random(len(day)) < rate, "failed", "passed"), dtype="str")
    created = pd.DatetimeIndex(START + pd.to_timedelta(day, unit="D")).as_unit("us")
    return pd.DataFrame({"x_s": seconds, "state": states, "created_at": created})


def days(frame: pd.DataFrame, change: float = 0.3, of: Any = "x_s", **options: Any) -> float:
    (row,) = metrics.days_to_see(frame, of, change=change, **options).to_dict("records")
    return np.inf if pd.isna(row["days_to_see"]) else float(row["days_to_see"])


def smallest(frame: pd.DataFrame, of: Any = "x_s", **options: Any) -> float:
    return float(metrics.days_to_see(frame, of, **options)["smallest_change"].iloc[0])


def test_larger_changes_of_steadier_days_show_sooner() -> None:
    by_size = [days(builds(0.1), change) for change in (0.02, 0.2, 0.4, 1.0)]
    assert by_size == sorted(by_size, reverse=True)
    assert by_size[0] == np.inf
    assert by_size[-1] <= 7
    by_effect = [days(builds(effect)) for effect in (0.0, 0.1, 0.3)]
    assert by_effect == sorted(by_effect)
    assert days(builds(0.1), tests=1) <= days(builds(0.1), tests=1000)
    assert days(builds(0.1), -0.3) < np.inf


@pytest.mark.long
def test_a_change_as_large_as_the_smallest_shows_within_a_period() -> None:
    """Between measured sizes, `smallest_change` is too large rather than too small."""
    frame = builds(0.1)
    for change in (0.1, 0.3, -0.2):
        least = smallest(frame, change=change)
        assert days(frame, 1.1 * least) <= 7, change
        assert days(frame, 0.75 * least) > 7, change
    assert smallest(frame, days=14) < least
    least = smallest(frame, metrics.failed)
    assert days(frame, 1.1 * least, metrics.failed) <= 7


@pytest.mark.parametrize("whole_seconds", [False, True])
def test_a_thousand_quantiles_stand_for_many_rows(monkeypatch: pytest.MonkeyPatch, whole_seconds: bool) -> None:
    frame = builds(0.1, per_day=80)
    frame = frame.assign(x_s=(frame["x_s"] / 60).round()) if whole_seconds else frame
    found = smallest(frame)
    monkeypatch.setattr(sys.modules["buildframe.metrics.days_to_see"], "_QUANTILES", len(frame))
    assert found == pytest.approx(smallest(frame), rel=0.02)  # a step of the searched changes is that large


def test_rows_without_a_value_do_not_count_and_few_days_say_nothing() -> None:
    frame = builds(0.1)
    row = metrics.days_to_see(frame.assign(x_s=frame["x_s"].mask(frame.index < 12)), "x_s").iloc[0]
    assert row[["n", "days"]].tolist() == [27 * 12, 27]
    for few in (builds(days=9), builds().assign(x_s=5.0), builds().iloc[:0]):
        result = metrics.days_to_see(few, "x_s")
        assert result[["days_to_see", "smallest_change"]].isna().all(axis=None)
    assert metrics.days_to_see(builds(rate=0.0), metrics.failed)["days_to_see"].isna().all()


def test_bad_input() -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("change=0 is not", {"change": 0}), ("change=-1.0 is not", {"change": -1.0}), ("change=True", {"change": True}),
        ("days=0 is not a whole number", {"days": 0}), ("tests=2.5", {"tests": 2.5}),
        ("no column 'y_s'", {"of": "y_s"}),
    ]  # fmt: skip
    call = functools.partial(metrics.days_to_see, builds())
    assert wrong_messages((words, functools.partial(call, **{"of": "x_s"} | own)) for words, own in cases) == {}
