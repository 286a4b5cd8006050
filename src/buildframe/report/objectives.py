"""Declare objectives of a file of limits, and measure them. Does not know texts or pages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from buildframe import metrics
from buildframe.metrics.durations import RowMetric, span_of
from buildframe.metrics.queues import is_queue
from buildframe.report.periods import Period

_OF_JOBS = (metrics.queue_time, metrics.run_time, metrics.turnaround, metrics.dependency_wait)
OF_JOBS: dict[str, RowMetric] = {of.__name__: of for of in _OF_JOBS}
OF_BUILDS: dict[str, RowMetric] = {"wall_time": metrics.wall_time}

DURATIONS = OF_JOBS | OF_BUILDS

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
        Count only rows of this queue or pipeline. Builds have no queue. A queue whose key several
        clusters have is chosen by its id, or by its name in the report, such as "default ·
        0186a3f2".
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
    tables = [_measure(name, one, builds, jobs, period) for name, one in objectives.items()]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def select_promised(
    of: RowMetric, builds: pd.DataFrame, jobs: pd.DataFrame, period: Period, chosen: Mapping[str, str | None]
) -> pd.DataFrame:
    """Return the rows that a duration measures, that began in the period and have the chosen values."""
    span = span_of(of)
    assert span is not None
    rows = builds if of in OF_BUILDS.values() else jobs
    for key, value in chosen.items():
        if value is not None:
            rows = rows[is_queue(rows, value) if key == "queue" else rows[key] == value]
    return period.of(rows, span.start)


def _measure(name: str, objective: Objective, builds: pd.DataFrame, jobs: pd.DataFrame, period: Period) -> pd.DataFrame:
    of = DURATIONS[objective.of]
    chosen = {"queue": objective.queue, "pipeline": objective.pipeline}
    rows = select_promised(of, builds, jobs, period, chosen)
    within = dt.timedelta(seconds=objective.within)
    result = metrics.objective(rows, of, within, objective.target, objective.by)
    promise: dict[str, Any] = {"objective": name, **chosen, "of": objective.of, "within_s": objective.within}
    promise["target"] = objective.target
    result = result.assign(**{key: value for key, value in promise.items() if key not in result})
    others = [column for column in result if column not in promise]
    return result[[*promise, *others]].astype(dict.fromkeys(("objective", *chosen, "of"), "str"))
