"""States in a spelling of another system are refused: a rate would silently leave them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from tests.metrics.engine_frames import ENGINES, OF_BUILDS, OF_JOBS, halves, in_spark
from tests.metrics.random_frames import builds_of, jobs_of

from buildframe import metrics, plots
from buildframe.errors import BadInput
from buildframe.metrics.engines import spark

EVERYWHERE: dict[str, Callable[[pd.DataFrame], Any]] = {"pandas": lambda frame: frame, **ENGINES, "spark": in_spark}
OF_STATES = {
    "builds": ("success_rate", "success_trend", "build_success_change", "outages", "recovery_time", "red_share",
               "remaining_time"),
    "jobs": ("job_failure_change", "flips", "outcomes_by_commit", "retry_rate", "waste"),
}  # fmt: skip


def spelt(frame: pd.DataFrame, how: dict[str, str]) -> pd.DataFrame:
    return frame.assign(state=frame["state"].replace(how))


@pytest.mark.parametrize("engine", EVERYWHERE)
@pytest.mark.parametrize(("table", "summary"), [(table, name) for table, names in OF_STATES.items() for name in names])
def test_an_unknown_spelling_is_an_error_everywhere(table: str, summary: str, engine: str) -> None:
    frame = metrics.with_seconds(builds_of("many") if table == "builds" else jobs_of("many"))
    made = EVERYWHERE[engine](spelt(frame, {"passed": "Passed"}))
    with pytest.raises(BadInput, match=r"'state' contains 'Passed'.* means 'passed'.* Known states: .*'failed'"):
        (OF_BUILDS | OF_JOBS)[summary](made)


@pytest.mark.parametrize(
    ("state", "meant"),
    [("Passed", "passed"), ("PASSED ", "passed"), ("success", "passed"), ("FAILURE", "failed"), ("errored", "failed"),
     ("cancelled", "canceled"), ("timed-out", "timed_out"), ("TimedOut", "timed_out"), ("not run", "not_run")],
)  # fmt: skip
def test_spellings_that_are_refused(state: str, meant: str) -> None:
    frame = spelt(builds_of("few"), {"canceled": state, "skipped": state, "running": state})
    frame.loc[0, "state"] = state
    with pytest.raises(BadInput, match=f"contains {state!r}.*means {meant!r}"):
        metrics.success_rate(frame)


def test_a_new_state_is_accepted_beside_known_ones_and_counts_for_neither_in_spark_too() -> None:
    frame = builds_of("many")
    expected = metrics.success_rate(frame)
    new = spelt(frame, {"canceled": "hibernating", "running": "blocked"})
    for engine in EVERYWHERE.values():
        pd.testing.assert_frame_equal(metrics.success_rate(engine(new)), expected)


@pytest.mark.parametrize("engine", EVERYWHERE)
def test_a_column_without_any_known_state_is_refused(engine: str) -> None:
    frame = builds_of("few").assign(state=pd.Series(["1", "0", "1"] * 3, dtype="str"))
    with pytest.raises(BadInput, match="contains no known state, only '0', '1'"):
        metrics.success_rate(EVERYWHERE[engine](frame))


@pytest.mark.parametrize("engine", EVERYWHERE)
@pytest.mark.parametrize("metric", ["time_to_first_failure", "time_to_pass"])
def test_metrics_of_builds_from_their_jobs_refuse_them_too(metric: str, engine: str) -> None:
    frame = jobs_of("many")
    how = {"passed": "Success", "failed": "Failure"}
    wrong = spelt(frame, how).assign(build_state=frame["build_state"].replace(how))
    of = getattr(metrics, metric)
    with pytest.raises(BadInput, match="which is not a state of the service"):
        rows_of(of(EVERYWHERE[engine](wrong)))


def rows_of(result: Any) -> Any:
    """Return the rows; Spark computes them only when they are read."""
    return result if isinstance(result, pd.Series) else spark.collect_table(result)


def test_frames_without_states_and_periods_without_rows_are_fine() -> None:
    frame = builds_of("all null")
    assert metrics.success_rate(frame)["n"].tolist() == [0]
    before, now = halves(builds_of("many"))
    assert metrics.build_success_change(before.iloc[:0], now)["n_before"].tolist() == [0]


@pytest.mark.parametrize("summary", [
    metrics.wall_time, metrics.throughput, metrics.success_rate, metrics.success_trend, metrics.remaining_time,
    lambda jobs: metrics.trend(jobs, of=metrics.wall_time), lambda jobs: metrics.outages(jobs, branch="main"),
    plots.duration_trend, plots.success_trend,
])  # fmt: skip
def test_a_frame_of_jobs_is_no_frame_of_builds(summary):
    jobs = jobs_of("many").assign(
        build_id="b", created_at=pd.Timestamp("2026-03-10", tz="UTC"), branch="main", pipeline="web", blocked=False
    )
    with pytest.raises(BadInput, match="holds jobs"):
        summary(jobs)
