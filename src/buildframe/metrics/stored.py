"""Columns that stand beside the stamps where frames are stored, or taken to engines other than pandas."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa

from buildframe.metrics.columns import column, moments, seconds
from buildframe.metrics.durations import RowMetric, dependency_wait, queue_time, run_time, turnaround, wall_time
from buildframe.metrics.repeats import check_once
from buildframe.metrics.steps import step

_OF_JOBS: tuple[RowMetric, ...] = (queue_time, dependency_wait, run_time, turnaround)

DAY = pd.ArrowDtype(pa.date32())
"""The dtype of days: a date in Parquet and in every engine."""


def with_seconds(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame with what its rows measure, as columns that mean the same in every engine.

    A frame of jobs (it has `build_created_at`) gets `queue_time_s`, `dependency_wait_s`, `run_time_s`, `turnaround_s`
    (float64 seconds, NaN where there is none), `step` (str, as `metrics.step`) and `day` (date): the UTC day on which
    its build was created. A frame of builds gets `wall_time_s` and `day`. A timedelta would be read as a bare
    whole number elsewhere. Columns of these names are made anew. An empty frame gets them, too.

    BadInput: a column missing that these need, naive times, an id in two rows (see `latest`).
    """
    moments(frame, "created_at")
    check_once(frame)
    if "build_created_at" not in frame:
        return frame.assign(**_in_seconds(frame, (wall_time,)), day=_day(frame, "created_at"))
    names = {name: column(frame, name) for name in ("step_key", "name")}
    steps = step(pd.DataFrame(names, index=frame.index))
    return frame.assign(**_in_seconds(frame, _OF_JOBS), step=steps, day=_day(frame, "build_created_at"))


def _in_seconds(frame: pd.DataFrame, metrics: tuple[RowMetric, ...]) -> dict[str, pd.Series[float]]:
    return {f"{of.__name__}_s": seconds(of(frame), of.__name__) for of in metrics}


def _day(frame: pd.DataFrame, name: str) -> pd.Series[pd.Timestamp]:
    return moments(frame, name).dt.tz_localize(None).astype(DAY)
