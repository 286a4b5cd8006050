"""The columns of seconds of a stored table are what the docstrings of the store say."""

from __future__ import annotations

import re

import pandas as pd

from buildframe import metrics
from buildframe.store.reader import StoreReader

CREATED = pd.Timestamp("2026-03-10T10:00", tz="UTC")
TIMES = {
    "created_at": CREATED,
    "runnable_at": CREATED + pd.Timedelta(1, "min"),
    "started_at": CREATED + pd.Timedelta(4, "min"),
    "finished_at": CREATED + pd.Timedelta(20, "min"),
}
SECONDS = {
    "wall_time_s": 1200.0,
    "queue_time_s": 180.0,
    "dependency_wait_s": 60.0,
    "run_time_s": 960.0,
    "turnaround_s": 1140.0,
}


def test_a_column_of_seconds_is_the_described_difference() -> None:
    job = pd.DataFrame([{**TIMES, "id": "1", "type": "script", "state": "passed", "name": "test", "step_key": "test"}])
    computed, described = {}, {}
    for name in SECONDS:
        is_of_builds = name == "wall_time_s"
        method = StoreReader.builds if is_of_builds else StoreReader.jobs
        frame = job if is_of_builds else job.assign(build_created_at=CREATED)
        computed[name] = metrics.with_seconds(frame)[name].item()
        end, start = re.search(rf"{name} .*?(\w+_at) - (\w+_at)", method.__doc__ or "").groups()  # type: ignore[union-attr]
        described[name] = (TIMES[end] - TIMES[start]).total_seconds()
    assert (computed, described) == (SECONDS, SECONDS)
