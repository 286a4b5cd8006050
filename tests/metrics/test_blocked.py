"""A blocked build is not over: it has no wall time and is counted as censored, in every summary and on every engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from tests.metrics.engine_frames import ENGINES, in_spark

from buildframe import metrics, plots

START = pd.Timestamp("2026-10-05 09:00", tz="UTC").as_unit("us")
MINUTE = pd.Timedelta(1, "min")
EVERYWHERE: dict[str, Callable[[pd.DataFrame], Any]] = {"pandas": lambda frame: frame, **ENGINES, "spark": in_spark}


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


MADE = (lambda frame: frame, metrics.with_seconds, as_a_store_of_before_kept_it)
WAYS = [(of, made) for of in (metrics.wall_time, "wall_time_s") for made in MADE]


@pytest.mark.parametrize(
    ("of", "made", "engine"),
    [
        *((*way, engine) for way in WAYS for engine in EVERYWHERE if engine != "spark"),
        *((*way, "spark") for way in (WAYS[0], WAYS[1], WAYS[-1])),
    ],
)
def test_percentiles_leave_blocked_builds_out_and_count_them(of: Any, made: Any, engine: str) -> None:
    frame = made(builds())
    if isinstance(of, str) and of not in frame:
        frame = metrics.with_seconds(frame)
    (row,) = metrics.percentiles(EVERYWHERE[engine](frame), of).to_dict("records")
    assert (row["n"], row["n_censored"], row["p50_s"]) == (24, 24, 2400)
    assert np.isnan(row["p95_s"])
    assert row["p95_at_least_s"] == 23 * 86_400  # of 48 builds, two were blocked for longer when they were fetched


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_a_column_of_seconds_without_timestamps_is_censored_too(engine: str) -> None:
    frame = as_a_store_of_before_kept_it(builds())[["pipeline", "blocked", "wall_time_s"]]
    result = metrics.percentiles(EVERYWHERE[engine](frame), "wall_time_s")
    assert result[["n", "p50_s"]].to_numpy().tolist() == [[24, 2400]]
    assert result["n_censored"].isna().all()


@pytest.mark.long
@pytest.mark.parametrize("engine", EVERYWHERE)
def test_trends_changes_and_change_points_leave_them_out(engine: str) -> None:
    frame = builds()
    made = EVERYWHERE[engine]
    assert metrics.trend(made(frame))[["n", "n_censored"]].to_numpy().tolist() == [[1, 1]] * 24
    halves = made(frame[frame.index >= 24]), made(frame[frame.index < 24])
    (row,) = metrics.percentile_change(*halves, allow_reversed=True).to_dict("records")
    assert [row[name] for name in ("n", "n_censored", "n_before", "n_censored_before")] == [12, 12, 12, 12]
    assert (row["p50_s"], row["p50_before_s"]) == (2400, 2400)
    later = frame.assign(finished_at=frame["finished_at"] + (frame.index >= 24) * 20 * MINUTE)
    (change,) = metrics.change_points(made(later)).to_dict("records")
    assert (change["n_before"], change["n_after"]) == (12, 12)
    assert (change["p50_before_s"], change["p50_after_s"]) == (2400, 3600)


def test_the_wall_time_of_a_blocked_build_is_not_known_yet_in_spark_too() -> None:
    frame = builds(2)
    assert metrics.wall_time(frame).isna().tolist() == [False, True, False, True]
    assert metrics.with_seconds(frame)["wall_time_s"].isna().tolist() == [False, True, False, True]
    result = metrics.with_seconds(in_spark(frame)).toArrow().column("wall_time_s").to_pylist()
    assert result == [2400, None, 2400, None]


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_a_state_of_blocked_says_so_too_and_old_frames_hold_no_blocked_build(engine: str) -> None:
    frame = builds(10).drop(columns="blocked")
    assert metrics.percentiles(EVERYWHERE[engine](frame), metrics.wall_time)["n"].tolist() == [20]
    notified = frame.assign(state=frame["state"].where(builds(10)["blocked"].eq(False), "blocked"))
    assert metrics.percentiles(EVERYWHERE[engine](notified), metrics.wall_time)["n"].tolist() == [10]
    assert metrics.wall_time(frame.drop(columns="state")).notna().all()


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_a_blocked_build_counts_as_demand_and_not_as_served(engine: str) -> None:
    found = metrics.throughput(EVERYWHERE[engine](builds(3)))
    assert found[["demand", "served"]].to_numpy().tolist() == [[2, 1]] * 3
    found = metrics.throughput(EVERYWHERE[engine](builds(3).drop(columns=["blocked", "state"])))
    assert found[["demand", "served"]].to_numpy().tolist() == [[2, 2]] * 3


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
