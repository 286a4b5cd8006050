"""What a report measures: tables of two periods compared, and of what is so now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.durations import RowMetric, is_blocked
from buildframe.metrics.groups import Key
from buildframe.report.periods import Period, midnights

STEP: list[Key] = ["pipeline", "step"]
Change = Callable[[pd.DataFrame, pd.DataFrame, list[Key], str, str, float], pd.DataFrame]
_HOUR = pd.Timedelta(1, "h")


@dataclass(frozen=True)
class Facts:
    """The numbers of a report, a table each; each is written to a Parquet file of its name.

    Intervals are so wide that in 19 of 20 reports none of a table leaves out 0 by chance (Bonferroni's inequality).
    """

    wall_time: pd.DataFrame
    """`metrics.percentile_change` of passed builds by pipeline, where they finished in the period: p50, p95."""
    wall_time_shift: pd.DataFrame
    """`metrics.change_point` of the days' medians of passed builds, by pipeline, over the history."""
    step_time: pd.DataFrame
    """`metrics.percentile_change` of passed jobs by pipeline and step: p50; `part` is `run` or `queue`."""
    step_shift: pd.DataFrame
    """`metrics.change_point` of the days' medians of run times of passed jobs, by pipeline and step."""
    success: pd.DataFrame
    """`metrics.success_change` of builds by pipeline."""
    step_failures: pd.DataFrame
    """`metrics.failure_change` of jobs by pipeline and step."""
    outages: pd.DataFrame
    """`metrics.outages` of default branches that are open, or were during the period."""
    queue_time: pd.DataFrame
    """`metrics.percentile_change` of jobs by queue, where they started in the period: p50, p95."""
    load: pd.DataFrame
    """How much was asked for and done: `what`, `now`, `before` (NaN where that is not known)."""
    waste: pd.DataFrame
    """`metrics.waste` of jobs by pipeline."""
    flips: pd.DataFrame
    """`metrics.flips` of jobs over the history."""
    flaky_tests: pd.DataFrame
    """`metrics.flaky_lifecycle` of the tests that the store knows; without columns where it keeps none."""

    def tables(self) -> dict[str, pd.DataFrame]:
        """All of them by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def measure(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    pipelines: pd.DataFrame,
    flaky: pd.DataFrame | None,
    period: Period,
    *,
    compares: bool = True,
) -> Facts:
    """Measure builds and jobs of the period's history, and what was listed last.

    Builds and jobs count where they finished, so that those that take long are not left out; waits where they ended.
    Where the period before is not known whole, `compares` is False, and nothing of it is told.
    """

    jobs = jobs.assign(step=metrics.step(jobs))  # of all jobs, since a choice of them may lack shards

    def both(frame: pd.DataFrame, at: str) -> list[pd.DataFrame]:
        before = period.before.of(frame, at)
        return [period.of(frame, at), before if compares else before.iloc[:0]]

    ended, ended_before = both(builds, "finished_at")
    ran, ran_before = both(jobs, "finished_at")
    begun, begun_before = both(jobs, "started_at")
    done, done_before = _passed(ended), _passed(ended_before)
    history = {name: _passed(period.history.of(frame, "finished_at")) for name, frame in (("b", builds), ("j", jobs))}
    return Facts(
        wall_time=_slower(done, done_before, metrics.wall_time, ["pipeline"], "finished_at", period),
        wall_time_shift=_shift(history["b"], metrics.wall_time, ["pipeline"], period),
        step_time=_steps(_passed(ran), _passed(ran_before), period),
        step_shift=_shift(history["j"], metrics.run_time, STEP, period),
        success=_rates(metrics.success_change, ended, ended_before, ["pipeline"], period),
        step_failures=_rates(metrics.failure_change, ran, ran_before, STEP, period),
        outages=_outages(builds, pipelines, period),
        queue_time=_slower(begun, begun_before, metrics.queue_time, ["queue"], "started_at", period),
        load=_load(builds, jobs, period, compares),
        waste=metrics.waste(ran, by="pipeline"),
        flips=metrics.flips(period.history.of(jobs, "finished_at")),
        flaky_tests=metrics.flaky_lifecycle(flaky) if flaky is not None else pd.DataFrame(),
    )


def ended_builds(builds: pd.DataFrame) -> pd.DataFrame:
    """Return the builds without blocked ones, which keep an earlier `finished_at` and are not over."""
    return builds[~is_blocked(builds)]


def _passed(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["state"] == "passed"]


def _slower(
    now: pd.DataFrame,
    before: pd.DataFrame,
    of: RowMetric,
    by: list[Key],
    at: str,
    period: Period,
    q: tuple[float, ...] = (0.5, 0.95),
) -> pd.DataFrame:
    confidence = _of_each(len(q) * len(metrics.percentiles(now, of, by)))
    return metrics.percentile_change(now, before, of, by, q, at=at, tz=period.tz, confidence=confidence)


def _of_each(many: int) -> float:
    """The confidence of each interval that makes 95 % for all together."""
    return 1 - 0.05 / max(1, many)


def _steps(now: pd.DataFrame, before: pd.DataFrame, period: Period) -> pd.DataFrame:
    parts = {"run": metrics.run_time, "queue": metrics.queue_time}
    told = [
        _slower(now, before, of, STEP, "finished_at", period, (0.5,)).assign(part=name) for name, of in parts.items()
    ]
    return pd.concat(told, ignore_index=True)


def _shift(passed: pd.DataFrame, of: RowMetric, by: list[Key], period: Period) -> pd.DataFrame:
    """By days, since rows of one day depend on each other."""
    days = midnights(passed["finished_at"], period.tz).rename("day")
    medians = metrics.percentiles(passed, of, [*by, lambda _: days], 0.5)
    found = metrics.change_point(medians, "p50_s", list(medians.columns[: len(by)]), at="day")
    return found.assign(at=found["at"].dt.tz_convert(period.tz))


def _rates(summary: Change, now: pd.DataFrame, before: pd.DataFrame, by: list[Key], period: Period) -> pd.DataFrame:
    groups = len(metrics.percentiles(now, metrics.wall_time, by))
    return summary(now, before, by, "finished_at", period.tz, _of_each(groups))


def _outages(builds: pd.DataFrame, pipelines: pd.DataFrame, period: Period) -> pd.DataFrame:
    known = pipelines[pipelines["default_branch"].fillna("") != ""]
    found = metrics.outages(builds[builds["pipeline_id"].isin(known["id"])], pipelines=known)
    return found[found["open"] | (found["recovered_at"] >= period.start)].reset_index(drop=True)


def _load(builds: pd.DataFrame, jobs: pd.DataFrame, period: Period, compares: bool) -> pd.DataFrame:
    counts = {
        "builds created": (builds, "created_at"),
        "builds finished": (ended_builds(builds), "finished_at"),
        "jobs finished": (jobs, "finished_at"),
    }
    both = (period, period.before)
    rows = {name: [float(len(p.of(frame, at))) for p in both] for name, (frame, at) in counts.items()}
    rows["machine hours"] = [metrics.run_time(p.of(jobs, "finished_at")).sum() / _HOUR for p in both]
    told = pd.DataFrame.from_dict(rows, orient="index", columns=["now", "before"]).rename_axis("what").reset_index()
    return told if compares else told.assign(before=np.nan)
