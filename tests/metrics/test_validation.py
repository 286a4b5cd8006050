"""States in a spelling of another system are refused: a rate would silently leave them out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from buildframe import metrics, plots
from tests.metrics.any_frame import LIBRARIES, SUMMARIES, halves, table_of
from tests.metrics.random_frames import builds_of, jobs_of
from tests.refusals import wrong_refusals

EVERYWHERE: dict[str, Callable[[pd.DataFrame], Any]] = {"pandas": lambda frame: frame, **LIBRARIES}
OF_STATES = (
    "success_rate", "success_trend", "build_success_change", "outages", "recovery_time", "red_share", "remaining_time",
    "job_failure_change", "flips", "outcomes_by_commit", "retry_rate", "waste", "time_to_first_failure", "time_to_pass",
)  # fmt: skip


def with_states(frame: pd.DataFrame, how: dict[str, str]) -> pd.DataFrame:
    """Replace states of jobs or builds, and those of the builds of jobs."""
    names = [name for name in ("state", "build_state") if name in frame]
    return frame.assign(**{name: frame[name].replace(how) for name in names})


@pytest.mark.parametrize("library", ["pandas", "polars, lazy", "duckdb"])
def test_an_unknown_spelling_is_an_error_everywhere(library: str) -> None:
    frames = {"builds": builds_of("many"), "jobs": jobs_of("many")}
    wrong = {
        table: EVERYWHERE[library](with_states(metrics.with_seconds(frame), {"passed": "Passed"}))
        for table, frame in frames.items()
    }
    words = "state' contains 'Passed'.* means 'passed'.* Known states: .*'failed'"
    assert (
        wrong_refusals([(name, words) for name in OF_STATES], lambda name: SUMMARIES[name](wrong[table_of(name)])) == {}
    )


SPELLINGS = {
    "Passed": "passed", "PASSED ": "passed", "success": "passed", "FAILURE": "failed", "errored": "failed",
    "cancelled": "canceled", "timed-out": "timed_out", "TimedOut": "timed_out", "not run": "not_run",
}  # fmt: skip


def test_spellings_that_are_refused() -> None:
    def count(state: str) -> pd.DataFrame:
        frame = with_states(builds_of("few"), {"canceled": state, "skipped": state, "running": state})
        frame.loc[0, "state"] = state
        return metrics.success_rate(frame)

    cases = [(state, f"contains {state!r}.*means {meant!r}") for state, meant in SPELLINGS.items()]
    assert wrong_refusals(cases, count) == {}


def test_a_new_state_is_accepted_beside_known_ones_and_counts_for_neither() -> None:
    frame = builds_of("many")
    expected = metrics.success_rate(frame)
    new = with_states(frame, {"canceled": "hibernating", "running": "blocked"})
    pd.testing.assert_frame_equal(metrics.success_rate(new), expected)


def test_a_column_without_any_known_state_is_refused() -> None:
    frame = builds_of("few").assign(state=pd.Series(["1", "0", "1"] * 3, dtype="str"))
    cases = [(library, "no known state, only '0', '1'") for library in EVERYWHERE]
    assert wrong_refusals(cases, lambda library: metrics.success_rate(EVERYWHERE[library](frame))) == {}


def test_frames_without_states_and_periods_without_rows_are_fine() -> None:
    frame = builds_of("all null")
    assert metrics.success_rate(frame)["n"].tolist() == [0]
    before, now = halves(builds_of("many"))
    assert metrics.build_success_change(before.iloc[:0], now)["n_before"].tolist() == [0]


def test_a_frame_of_jobs_is_no_frame_of_builds() -> None:
    jobs = jobs_of("many").assign(
        build_id="b", created_at=pd.Timestamp("2026-03-10", tz="UTC"), branch="main", pipeline="web", blocked=False
    )
    calls: dict[str, Callable[[], object]] = {
        "wall_time": lambda: metrics.wall_time(jobs),
        "throughput": lambda: metrics.throughput(jobs),
        "success_rate": lambda: metrics.success_rate(jobs),
        "success_trend": lambda: metrics.success_trend(jobs),
        "remaining_time": lambda: metrics.remaining_time(jobs),
        "trend of wall_time": lambda: metrics.trend(jobs, of=metrics.wall_time),
        "outages": lambda: metrics.outages(jobs, branch="main"),
        "plots.duration_trend": lambda: plots.duration_trend(jobs),
        "plots.success_trend": lambda: plots.success_trend(jobs),
    }
    assert wrong_refusals([(name, "holds jobs") for name in calls], lambda name: calls[name]()) == {}
