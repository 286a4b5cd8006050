"""Compute the tables of a report: two periods compared, and the current state. Does not know texts or pages."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.durations import RowMetric, is_blocked
from buildframe.metrics.grouping import Key
from buildframe.report.periods import Period

STEP: list[Key] = ["pipeline", "step"]
Change = Callable[[pd.DataFrame, pd.DataFrame, list[Key], str, str, float], pd.DataFrame]
Pair = tuple[pd.DataFrame, pd.DataFrame]
"""Rows of the period and of the one before."""
_HOUR = pd.Timedelta(1, "h")


@dataclass(frozen=True)
class Measurements:
    """
    Hold the tables of a report. Each is written to a Parquet file of its name.

    Attributes
    ----------
    wall_time : DataFrame
        `metrics.percentile_change` of the wall time of passed builds by pipeline: p50 and p95.
    wall_time_changes : DataFrame
        `metrics.change_points` of the wall time of passed builds, by pipeline, over the history.
    step_time : DataFrame
        `metrics.percentile_change` of passed jobs by pipeline and step: p50. `part` is `run` or `queue`.
    step_changes : DataFrame
        `metrics.change_points` of the run time of passed jobs, by pipeline and step, over the history.
    success : DataFrame
        `metrics.build_success_change` of builds by pipeline.
    step_failures : DataFrame
        `metrics.job_failure_change` of jobs by pipeline and step.
    outages : DataFrame
        `metrics.outages` of default branches that are open, or ended in the period.
    queue_time : DataFrame
        `metrics.percentile_change` of the queue time of jobs by queue: p50 and p95.
    load : DataFrame
        Amount of work: `what`, `now` and `before` (NaN if the period before is not covered).
    waste : DataFrame
        `metrics.waste` of jobs by pipeline.
    flips : DataFrame
        `metrics.flips` of jobs over the history.
    flaky_tests : DataFrame
        `metrics.flaky_lifecycle` of the stored flaky tests. Without columns if the store has none.

    Notes
    -----
    The confidence of the intervals is adjusted for the number of rows (Bonferroni correction). If nothing has changed,
    all intervals of a table contain 0 in 19 of 20 reports.
    """

    wall_time: pd.DataFrame
    wall_time_changes: pd.DataFrame
    step_time: pd.DataFrame
    step_changes: pd.DataFrame
    success: pd.DataFrame
    step_failures: pd.DataFrame
    outages: pd.DataFrame
    queue_time: pd.DataFrame
    load: pd.DataFrame
    waste: pd.DataFrame
    flips: pd.DataFrame
    flaky_tests: pd.DataFrame

    def tables(self) -> dict[str, pd.DataFrame]:
        """
        Return all tables by name.

        Returns
        -------
        dict of str to DataFrame
            In the order of the attributes.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}


def measure(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    pipelines: pd.DataFrame,
    flaky: pd.DataFrame | None,
    period: Period,
    *,
    compares: bool = True,
) -> Measurements:
    """
    Compute the tables of a report.

    Builds and jobs belong to the day on which they finished, queue times to the day on which they began. So jobs that
    never started are censored rows of their day.

    Parameters
    ----------
    builds, jobs : DataFrame
        Builds of the period's history, and their jobs.
    pipelines : DataFrame
        Pipelines with their default branches.
    flaky : DataFrame or None
        Versions of the flaky tests. None if the store has none.
    period : Period
        Days to measure.
    compares : bool, default True
        Whether the data covers the whole period before. If not, the tables contain no comparison.

    Returns
    -------
    Measurements
        The tables.
    """

    jobs = jobs.assign(step=metrics.step(jobs))  # before filtering, which may remove shards

    def both(frame: pd.DataFrame, at: str) -> Pair:
        before = period.before.of(frame, at)
        return period.of(frame, at), before if compares else before.iloc[:0]

    ended, ran, begun = both(builds, "finished_at"), both(jobs, "finished_at"), both(jobs, "runnable_at")
    step_times = [
        _duration_change(_passed(ran), of, STEP, "finished_at", period, (0.5,)).assign(part=part)
        for part, of in (("run", metrics.run_time), ("queue", metrics.queue_time))
    ]
    return Measurements(
        wall_time=_duration_change(_passed(ended), metrics.wall_time, ["pipeline"], "finished_at", period),
        wall_time_changes=_change_points(builds, metrics.wall_time, ["pipeline"], period),
        step_time=pd.concat(step_times, ignore_index=True),
        step_changes=_change_points(jobs, metrics.run_time, STEP, period),
        success=_rate_change(metrics.build_success_change, ended, ["pipeline"], period),
        step_failures=_rate_change(metrics.job_failure_change, ran, STEP, period),
        outages=_outages(builds, jobs, pipelines, period),
        queue_time=_duration_change(begun, metrics.queue_time, ["queue"], "runnable_at", period),
        load=_load(builds, jobs, period, compares),
        waste=metrics.waste(ran[0], by="pipeline"),
        flips=metrics.flips(period.history.of(jobs, "finished_at")),
        flaky_tests=metrics.flaky_lifecycle(flaky) if flaky is not None else pd.DataFrame(),
    )


def ended_builds(builds: pd.DataFrame) -> pd.DataFrame:
    """Return the builds that are over: blocked builds have a `finished_at`, but can continue."""
    return builds[~is_blocked(builds)]


def _passed(rows: Pair) -> Pair:
    now, before = (frame[frame["state"] == "passed"] for frame in rows)
    return now, before


def _duration_change(
    rows: Pair, of: RowMetric, by: list[Key], at: str, period: Period, q: tuple[float, ...] = (0.5, 0.95)
) -> pd.DataFrame:
    confidence = _bonferroni(len(q) * len(metrics.percentiles(rows[0], of, by)))
    return metrics.percentile_change(*rows, of, by, q, at=at, tz=period.tz, confidence=confidence)


def _bonferroni(many: int) -> float:
    """Return the confidence per interval that gives 95 % for all intervals together."""
    return 1 - 0.05 / max(1, many)


def _change_points(rows: pd.DataFrame, of: RowMetric, by: list[Key], period: Period) -> pd.DataFrame:
    passed = period.history.of(rows[rows["state"] == "passed"], "finished_at")
    return metrics.change_points(passed, of, by, at="finished_at", tz=period.tz)


def _rate_change(summary: Change, rows: Pair, by: list[Key], period: Period) -> pd.DataFrame:
    groups = len(metrics.percentiles(rows[0], metrics.wall_time, by))
    return summary(*rows, by, "finished_at", period.tz, _bonferroni(groups))


def _outages(builds: pd.DataFrame, jobs: pd.DataFrame, pipelines: pd.DataFrame, period: Period) -> pd.DataFrame:
    with_branch = pipelines[pipelines["default_branch"].fillna("") != ""]
    rows = metrics.outages(builds[builds["pipeline_id"].isin(with_branch["id"])], pipelines=with_branch, jobs=jobs)
    return rows[rows["open"] | (rows["recovered_at"] >= period.start)].reset_index(drop=True)


def _load(builds: pd.DataFrame, jobs: pd.DataFrame, period: Period, compares: bool) -> pd.DataFrame:
    counts = {
        "builds created": (builds, "created_at"),
        "builds finished": (ended_builds(builds), "finished_at"),
        "jobs finished": (jobs, "finished_at"),
    }
    both = (period, period.before)
    rows = {name: [float(len(p.of(frame, at))) for p in both] for name, (frame, at) in counts.items()}
    rows["machine hours"] = [metrics.run_time(p.of(jobs, "finished_at")).sum() / _HOUR for p in both]
    load = pd.DataFrame.from_dict(rows, orient="index", columns=["now", "before"]).rename_axis("what").reset_index()
    return load if compares else load.assign(before=np.nan)
