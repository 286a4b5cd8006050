"""How much time builds would save if one step took less time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from buildframe import metrics
from buildframe.metrics.leverage import estimate_saving
from tests.metrics.replay_frames import build, frames, job
from tests.refusals import wrong_messages


def test_the_interval_of_a_saving_is_that_of_its_days() -> None:
    """With as many builds on each day it is the t interval of the means of days."""
    random = np.random.default_rng(2)
    saved = random.normal(10, 3, (6, 20)) + random.normal(0, 4, (6, 1))
    saving = estimate_saving(saved.ravel(), np.repeat(np.arange(6), 20))
    low, high = stats.t.interval(0.95, 5, saved.mean(), stats.sem(saved.mean(1)))
    assert saving[:3] == pytest.approx((saved.mean(), low, high))
    assert saving.hours() == pytest.approx(np.array([saved.mean(), low, high]) * 120 / 3600)


def test_unknown_differences_are_left_out_and_few_days_have_no_interval() -> None:
    saving = estimate_saving(np.array([1.0, np.nan, 3.0]), np.array([0, 1, 2]))
    assert (saving.mean, saving.builds) == (2, 2)
    assert np.isnan(saving.low)
    assert np.isnan(estimate_saving(np.array([np.nan]), np.array([0])).mean)


DAY = 86_400


def days(n: int = 4, rows: Any = None) -> tuple[pd.DataFrame, pd.DataFrame]:
    """One build a day."""
    starts = [DAY * day for day in range(n)]
    builds = [build(f"b{day}", at, at + 700, number=day, fetched_at=9 * DAY) for day, at in enumerate(starts)]
    jobs = [shifted(one, f"b{day}", at) for day, at in enumerate(starts) for one in rows]
    return frames(builds, jobs)


def shifted(row: dict[str, Any], id: str, by: float) -> dict[str, Any]:
    stamps = {name: value + by for name, value in row.items() if name.endswith("_at") and value is not None}
    return row | stamps | {"id": f"{id}/{row['step']}", "build_id": id, "fetched_at": 9 * DAY}


CHAIN = [job("long", 0, 0, 400, agent_id="x"), job("short", 0, 0, 100, agent_id="y"),
         job("last", 400, 400, 700, agent_id="x")]  # fmt: skip
"""A build of three jobs: the last one waits for the long one."""

SHARED = [job("off the path", 0, 0, 300, agent_id="x"), job("path", 0, 300, 700, agent_id="x")]
"""A build of two jobs that do not depend on each other, on one agent."""


def savings(frame: tuple[pd.DataFrame, pd.DataFrame], **options: Any) -> pd.DataFrame:
    return metrics.leverage(*frame, **options).set_index("step")


def test_only_steps_on_the_critical_path_save_time_with_enough_agents() -> None:
    saved = savings(days(rows=CHAIN), faster=0.5)
    assert saved["mean_saved_s_unlimited"].to_dict() == {"long": 200, "last": 150, "short": 0}
    assert saved["mean_saved_s"].to_dict() == {"long": 200, "last": 150, "short": 0}
    assert saved["hours_saved"].to_dict() == pytest.approx({"long": 800 / 3600, "last": 600 / 3600, "short": 0})
    assert saved["clear"].to_dict() == {"long": True, "last": True, "short": False}
    assert saved["machine_h"]["long"] == pytest.approx(1600 / 3600)


def test_a_step_off_the_path_saves_time_if_others_wait_for_its_agent() -> None:
    saved = savings(days(rows=SHARED), faster=0.5)
    assert saved["mean_saved_s_unlimited"].to_dict() == {"path": 100, "off the path": 0}  # 300 s are left off the path
    assert saved["mean_saved_s"].to_dict() == {"path": 200, "off the path": 150}


def test_it_agrees_with_a_replay_of_one_step() -> None:
    frame = days(rows=SHARED)
    before, after = metrics.replay(*frame)[0], metrics.replay(*frame, run_scale={"off the path": 0.7})[0]
    difference = (metrics.wall_time(before) - metrics.wall_time(after)).dt.total_seconds()
    assert savings(frame, faster=0.3).loc["off the path", "mean_saved_s"] == pytest.approx(difference.mean())


def test_builds_of_other_pipelines_count_in_hours_but_not_in_the_mean() -> None:
    first = [job("a", 0, 0, 300, "b0", agent_id="x", pipeline="api"), job("a", 0, 300, 400, "b1", agent_id="x")]
    frame = frames([build("b0", 0, 300, pipeline="api"), build("b1", 0, 400)], first)
    saved = metrics.leverage(*frame, faster=0.5)
    assert saved["pipeline"].tolist() == ["api", "web"]
    assert saved["mean_saved_s"].tolist() == [150, 50]
    assert (saved["hours_saved"] * 3600).tolist() == pytest.approx([300, 50])
    assert metrics.leverage(*frame, faster=0.5, pipeline="web")["pipeline"].tolist() == ["web"]
    assert len(metrics.leverage(*frame, top=1)) == 1


def test_the_result_says_how_far_off_the_replay_is() -> None:
    saved = metrics.leverage(*days(rows=CHAIN))
    assert {"error", "fleet", "gap_share"} <= {*saved.attrs}
    assert (saved.attrs["faster"], saved.attrs["n_builds"]) == (0.1, 4)


def test_an_empty_record_has_no_rows_and_invalid_arguments_are_refused() -> None:
    builds, jobs = days(rows=CHAIN)
    empty = metrics.leverage(builds.iloc[:0], jobs.iloc[:0])
    assert empty.empty
    assert list(empty.dtypes) == list(metrics.leverage(builds, jobs).dtypes)
    assert wrong_messages([
        ("faster=0", lambda: metrics.leverage(builds, jobs, faster=0)),
        ("top=0", lambda: metrics.leverage(builds, jobs, top=0)),
        ("pipeline='wbe' has no job. Use one of 'web'", lambda: metrics.leverage(builds, jobs, pipeline="wbe")),
    ]) == {}  # fmt: skip
