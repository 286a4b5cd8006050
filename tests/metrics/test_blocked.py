"""A blocked build is not over: it has no wall time and is counted as censored, in every summary."""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import pytest

from buildframe import metrics, plots
from tests.metrics.any_frame import in_spark

START = pd.Timestamp("2026-10-05 09:00", tz="UTC").as_unit("us")
MINUTE = pd.Timedelta(1, "min")


def builds(days: int = 24) -> pd.DataFrame:
    """Each day a build that took 40 minutes, and one that was blocked after 10."""
    numbers = range(2 * days)
    created = pd.Series([START + pd.Timedelta(number // 2, "D") for number in numbers], dtype="datetime64[us, UTC]")
    blocked = pd.Series([number % 2 == 1 for number in numbers])
    frame = pd.DataFrame({"id": [f"{number:x}" for number in numbers], "pipeline": "web", "state": "passed"})
    frame = frame.astype(dict.fromkeys(frame, "str"))
    finished = created + blocked.map({True: 10 * MINUTE, False: 40 * MINUTE})
    fetched = pd.Series(START + pd.Timedelta(days + 1, "D"), index=frame.index, dtype=created.dtype)
    return frame.assign(blocked=blocked.astype("boolean"), created_at=created, finished_at=finished, fetched_at=fetched)


def as_a_store_of_before_kept_it(frame: pd.DataFrame) -> pd.DataFrame:
    """With a column of seconds that blocked builds have, too."""
    return frame.assign(wall_time_s=(frame["finished_at"] - frame["created_at"]).dt.total_seconds())


WAYS: dict[str, tuple[Any, Any]] = {
    "timestamps": (metrics.wall_time, lambda frame: frame),
    "timestamps beside seconds": (metrics.wall_time, metrics.with_seconds),
    "timestamps beside seconds of before": (metrics.wall_time, as_a_store_of_before_kept_it),
    "seconds": ("wall_time_s", metrics.with_seconds),
    "seconds of before": ("wall_time_s", as_a_store_of_before_kept_it),
}


def test_percentiles_leave_blocked_builds_out_and_count_them() -> None:
    """Of 48 builds, two were blocked for longer than 23 days when they were fetched."""
    frames = {way: made(builds()) for way, (_, made) in WAYS.items()}
    rows = {way: metrics.percentiles(frames[way], WAYS[way][0]).iloc[0] for way in WAYS}
    found = {key: (row["n"], row["n_censored"], row["p50_s"], row["p95_at_least_s"]) for key, row in rows.items()}
    assert found == dict.fromkeys(rows, (24, 24, 2400, 23 * 86_400))
    assert [key for key, row in rows.items() if pd.notna(row["p95_s"])] == []


def test_a_column_of_seconds_without_timestamps_is_censored_too() -> None:
    frame = as_a_store_of_before_kept_it(builds())[["pipeline", "blocked", "wall_time_s"]]
    row = metrics.percentiles(frame, "wall_time_s").iloc[0]
    assert (row["n"], row["p50_s"], pd.isna(row["n_censored"])) == (24, 2400, True)


@pytest.mark.long
def test_trends_changes_and_change_points_leave_them_out() -> None:
    frame = builds()
    later = frame.assign(finished_at=frame["finished_at"] + (frame.index >= 24) * 20 * MINUTE)
    assert metrics.trend(frame)[["n", "n_censored"]].to_numpy().tolist() == [[1, 1]] * 24
    row = metrics.percentile_change(frame[frame.index < 24], frame[frame.index >= 24]).iloc[0]
    columns = ["n", "n_censored", "n_before", "n_censored_before", "p50_s", "p50_before_s"]
    assert row[columns].tolist() == [12, 12, 12, 12, 2400, 2400]
    (change,) = metrics.change_points(later).to_dict("records")
    columns = ["n_before", "n_after", "p50_before_s", "p50_after_s"]
    assert [change[column] for column in columns] == [12, 12, 2400, 3600]


def test_the_wall_time_of_a_blocked_build_is_not_known_yet_in_spark_too() -> None:
    frame = builds(2)
    assert metrics.wall_time(frame).isna().tolist() == [False, True, False, True]
    assert metrics.with_seconds(frame)["wall_time_s"].isna().tolist() == [False, True, False, True]
    result = metrics.with_seconds(in_spark(frame)).toArrow().column("wall_time_s").to_pylist()
    assert result == [2400, None, 2400, None]


def test_a_state_of_blocked_says_so_too_and_old_frames_hold_no_blocked_build() -> None:
    frame = builds(10).drop(columns="blocked")
    notified = frame.assign(state=frame["state"].where(builds(10)["blocked"].eq(False), "blocked"))
    assert [metrics.percentiles(one, metrics.wall_time)["n"].item() for one in (frame, notified)] == [20, 10]
    assert metrics.wall_time(frame.drop(columns="state")).notna().all()


def test_a_blocked_build_counts_as_demand_and_not_as_served() -> None:
    frames = builds(3), builds(3).drop(columns=["blocked", "state"])
    found = [metrics.throughput(one)[["demand", "served"]].to_numpy().tolist() for one in frames]
    assert found == [[[2, 1]] * 3, [[2, 2]] * 3]


def test_plots_leave_blocked_builds_out_and_count_them() -> None:
    frame = as_a_store_of_before_kept_it(builds())
    (curve, _) = plots.distribution(frame, of="wall_time_s").get_lines()
    assert set(curve.get_xdata()) == {2401}  # the second after
    assert curve.get_ydata()[-1] == 0.5
    assert curve.get_label() == "24 rows, median 40 min; 24 not seen to end"
    twice = pd.concat([frame, frame.assign(id=frame["id"] + "b")])
    axes = plots.duration_trend(twice)
    assert {*axes.get_lines()[0].get_ydata()} == {2400.0}
    assert "48 not finished" in axes.get_title(loc="left") + "".join(text.get_text() for text in axes.texts)
    plt.close("all")
