"""Trigger, wait and block jobs have no queue, so the null queue is no group in summaries that do not count them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest
from tests.metrics.engine_frames import ENGINES, in_spark
from tests.metrics.random_frames import jobs_of

from buildframe import metrics

EVERYWHERE: dict[str, Callable[[pd.DataFrame], Any]] = {"pandas": lambda frame: frame, **ENGINES, "spark": in_spark}


def jobs(null_queue: bool = False) -> pd.DataFrame:
    """Script jobs in two queues (or also in none that is known), and others in none."""
    frame = metrics.with_seconds(jobs_of("many"))
    is_script = frame["type"] == "script"
    known = frame["queue"] if null_queue else frame["queue"].fillna("linux")
    return frame.assign(queue=known.where(is_script))


@pytest.mark.parametrize(
    ("of", "engine"),
    [*((metrics.queue_time, engine) for engine in EVERYWHERE), *(("queue_time_s", engine) for engine in ENGINES)],
)
def test_percentiles_of_queue_time_have_no_group_of_jobs_that_do_not_queue(of: Any, engine: str) -> None:
    found = metrics.percentiles(EVERYWHERE[engine](jobs()), of, by="queue")
    assert found["queue"].tolist() == ["default", "linux", "macos"]
    assert (found["n"] > 0).all()
    known = metrics.percentiles(EVERYWHERE[engine](jobs(null_queue=True)), of, by="queue")
    assert known["queue"].fillna("null").tolist() == ["default", "macos", "null"]


@pytest.mark.long
@pytest.mark.parametrize("engine", EVERYWHERE)
def test_other_summaries_of_queue_times_have_none_either(engine: str) -> None:
    frame = jobs()
    made = EVERYWHERE[engine]
    halves = made(frame.iloc[::2]), made(frame.iloc[1::2])
    for found in (
        metrics.percentile_change(*halves, metrics.queue_time, by="queue", allow_reversed=True),
        metrics.queue_depth(made(frame)).drop_duplicates("queue"),
    ):
        assert found["queue"].tolist() == ["default", "linux", "macos"]


def test_run_times_and_dependency_waits_of_other_jobs_stay() -> None:
    assert metrics.percentiles(jobs(), metrics.dependency_wait, by="queue")["queue"].isna().sum() == 1
    of_own = metrics.percentiles(jobs(), lambda frame: metrics.queue_time(frame), by="queue")
    assert of_own["queue"].isna().sum() == 1  # a custom metric may measure other jobs


@pytest.mark.long
@pytest.mark.parametrize("engine", EVERYWHERE)
def test_retries_and_failures_are_those_of_script_jobs(engine: str) -> None:
    frame, made = jobs(), EVERYWHERE[engine]
    halves = made(frame.iloc[::2]), made(frame.iloc[1::2])
    for found in (
        metrics.retry_rate(made(frame), by="queue"),
        metrics.job_failure_change(*halves, by="queue", allow_reversed=True),
    ):
        assert found["queue"].tolist() == ["default", "linux", "macos"]
    known = metrics.retry_rate(made(jobs(null_queue=True)), by="queue")
    assert known["queue"].fillna("null").tolist() == ["default", "macos", "null"]
