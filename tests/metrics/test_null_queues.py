"""Trigger, wait and block jobs have no queue, so the null queue is no group in summaries that do not count them."""

from __future__ import annotations

import pandas as pd

from buildframe import metrics
from tests.metrics.random_frames import jobs_of


def jobs(null_queue: bool = False) -> pd.DataFrame:
    """Script jobs in two queues (or also in none that is known), and others in none."""
    frame = metrics.with_seconds(jobs_of("many"))
    is_script = frame["type"] == "script"
    known = frame["queue"] if null_queue else frame["queue"].fillna("linux")
    return frame.assign(queue=known.where(is_script))


def test_jobs_that_do_not_queue_are_no_group() -> None:
    rows = jobs()
    halves = rows.iloc[::2], rows.iloc[1::2]
    waits = metrics.percentiles(rows, metrics.queue_time, by="queue")
    assert (waits["n"] > 0).all()
    results = {
        "percentiles": waits,
        "percentiles of seconds": metrics.percentiles(rows, "queue_time_s", by="queue"),
        "percentile_change": metrics.percentile_change(*halves, metrics.queue_time, by="queue", allow_reversed=True),
        "queue_depth": metrics.queue_depth(rows).drop_duplicates("queue"),
        "retry_rate": metrics.retry_rate(rows, by="queue"),
        "job_failure_change": metrics.job_failure_change(*halves, by="queue", allow_reversed=True),
    }
    found = {name: result["queue"].tolist() for name, result in results.items()}
    assert {name: queues for name, queues in found.items() if queues != ["default", "linux", "macos"]} == {}


def test_script_jobs_without_a_known_queue_are_a_group() -> None:
    known, rows = jobs(), jobs(null_queue=True)
    assert metrics.percentiles(known, metrics.queue_time, by="queue")["queue"].tolist() == ["default", "linux", "macos"]
    for result in (metrics.percentiles(rows, metrics.queue_time, by="queue"), metrics.retry_rate(rows, by="queue")):
        assert result["queue"].fillna("null").tolist() == ["default", "macos", "null"]


def test_run_times_and_dependency_waits_of_other_jobs_stay() -> None:
    assert metrics.percentiles(jobs(), metrics.dependency_wait, by="queue")["queue"].isna().sum() == 1
    of_own = metrics.percentiles(jobs(), lambda frame: metrics.queue_time(frame), by="queue")
    assert of_own["queue"].isna().sum() == 1  # a custom metric may measure other jobs
