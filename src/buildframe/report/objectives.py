"""Declare objectives of a file of limits, and measure them. Does not know texts or pages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from buildframe import metrics
from buildframe.metrics.durations import RowMetric, span_of
from buildframe.report.periods import Period

OF_JOBS: dict[str, RowMetric] = {
    "queue_time": metrics.queue_time,
    "run_time": metrics.run_time,
    "turnaround": metrics.turnaround,
    "dependency_wait": metrics.dependency_wait,
}
OF_BUILDS: dict[str, RowMetric] = {"wall_time": metrics.wall_time}

Group = Literal["queue", "pipeline"]


@dataclass(frozen=True)
class Objective:
    """
    Promise that a share of rows takes at most so long.

    Parameters
    ----------
    of : str
        Duration that is promised: `queue_time`, `run_time`, `turnaround` or `dependency_wait` of jobs, or `wall_time`
        of builds.
    within : float
        Longest duration that meets the promise, in seconds.
    target : float
        Share of rows that are promised to meet it, in (0, 1).
    by : {"queue", "pipeline"}, optional
        Check each queue or pipeline by itself. By default all rows together.
    queue, pipeline : str, optional
        Count only rows of this queue or pipeline. Builds have no queue.
    """

    of: str
    within: float
    target: float
    by: Group | None = None
    queue: str | None = None
    pipeline: str | None = None


def measure_objectives(
    objectives: Mapping[str, Objective], builds: pd.DataFrame, jobs: pd.DataFrame, period: Period
) -> pd.DataFrame:
    """Return `metrics.objective` of rows that began in the period, per objective and group; no columns without any."""
    tables = [_measure(name, one, builds if one.of in OF_BUILDS else jobs, period) for name, one in objectives.items()]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _measure(name: str, objective: Objective, frame: pd.DataFrame, period: Period) -> pd.DataFrame:
    of = (OF_JOBS | OF_BUILDS)[objective.of]
    span = span_of(of)
    assert span is not None
    rows = period.of(frame, span.start)
    chosen = {"queue": objective.queue, "pipeline": objective.pipeline}
    for key, value in chosen.items():
        rows = rows if value is None else rows[rows[key] == value]
    within = dt.timedelta(seconds=objective.within)
    result = metrics.objective(rows, of, within, objective.target, objective.by)
    promise: dict[str, Any] = {"objective": name, **chosen, "of": objective.of, "within_s": objective.within}
    promise["target"] = objective.target
    result = result.assign(**{key: value for key, value in promise.items() if key not in result})
    others = [column for column in result if column not in promise]
    return result[[*promise, *others]].astype(dict.fromkeys(("objective", *chosen, "of"), "str"))
