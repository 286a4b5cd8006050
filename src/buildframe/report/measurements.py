"""Compute the tables of a report: two periods compared, and the current state. Does not know texts or pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.formatting import label_steps
from buildframe.metrics.discoveries import NIGHTLY, are_notable
from buildframe.metrics.durations import RowMetric, is_blocked
from buildframe.metrics.grouping import Key
from buildframe.metrics.queues import with_queue_names
from buildframe.report.explanations import MIN_CHANGE_S, explain_wall_times
from buildframe.report.objectives import Objective, measure_objectives
from buildframe.report.periods import Period
from buildframe.report.reported_changes import PREFIXES, reported

PIPELINE: list[Key] = ["pipeline"]
STEP: list[Key] = ["pipeline", "step"]
QUEUE: list[Key] = ["queue"]

_FLAKY = 0.01
_HOUR = pd.Timedelta(1, "h")
Change = Callable[[pd.DataFrame, pd.DataFrame, list[Key], str, str], pd.DataFrame]
Tables = dict[str, pd.DataFrame]
Pair = tuple[pd.DataFrame, pd.DataFrame]
"""Rows of a period and of the one before."""


@dataclass(frozen=True)
class Measurements:
    """
    Hold the tables of a report. Each is written to a Parquet file of its name.

    Attributes
    ----------
    wall_time : DataFrame
        `metrics.percentile_change` of the wall time of passed builds by pipeline: p50 and p95. Only the change of p50
        is tested.
    wall_time_changes : DataFrame
        `metrics.change_points` of the wall time of passed builds, by pipeline, over the history.
    explanation : DataFrame
        `metrics.explain` of the mean wall time of passed builds, by pipeline: what the time went to. It compares the
        two sides of the reported change of the pipeline, from `before_from` to `after_from` and from then to
        `after_to`, or else the periods. Only the causes of a reported change can be notable. `n_open` counts builds of
        these days that run or are blocked, so that they are not counted.
    step_time : DataFrame
        `metrics.percentile_change` of passed jobs by pipeline and step: p50. `part` is `run` or `queue`.
    step_changes : DataFrame
        `metrics.change_points` of the run time of passed jobs, by pipeline and step, over the history.
    success : DataFrame
        `metrics.build_success_change` of builds by pipeline.
    failure_changes : DataFrame
        `metrics.change_points` of the share of builds that failed, by pipeline, over the history.
    step_failures : DataFrame
        `metrics.job_failure_change` of jobs by pipeline and step.
    step_failure_changes : DataFrame
        `metrics.change_points` of the share of jobs that failed, by pipeline and step, over the history.
    days_to_see : DataFrame
        `metrics.days_to_see` of builds by pipeline, for a change by a tenth. `of` is `wall time` or `failures`. `tests`
        is its argument: a change of a pipeline must stand out as among so many equal tests. `rate` is the success rate
        of the builds; NaN for wall times.
    outages : DataFrame
        `metrics.outages` of default branches that are open, or ended in the period.
    queue_time : DataFrame
        `metrics.percentile_change` of the queue time of jobs by queue: p50 and p95.
    long_wall_time, long_step_time, long_success, long_step_failures, long_queue_time : DataFrame
        The same comparisons of the whole history with as many days before; no rows if the data does not cover these.
    load : DataFrame
        Amount of work: `what`, `now` and `before` (NaN if the period before is not covered).
    waste : DataFrame
        `metrics.waste` of jobs by pipeline.
    objectives : DataFrame
        `metrics.objective` of the rows that began in the period: a row per `objective`, and `queue` or `pipeline` if it
        has groups. Without columns if there are no objectives.
    cost : DataFrame
        `metrics.cost` of jobs by pipeline. Without columns if there are no rates.
    flake_scores : DataFrame
        `metrics.flake_score` of jobs over the history, with the threshold 1 %.
    flips : DataFrame
        `metrics.flips` of jobs over the history: the evidence of `flake_scores`.
    flaky_tests : DataFrame
        `metrics.flaky_lifecycle` of the stored flaky tests. Without columns if the store has none.

    Notes
    -----
    Columns named `notable` or `p50_notable` are about all comparisons and change points of the report together: if
    nothing changed, 1 of 600 reports has any, and at most one in ten stores during 60 nightly reports. If days
    depend on the day before, more have: at a correlation of .3 from day to day, 5 of 30 simulated stores. Changes of
    durations below a second are not notable. Intervals are 95 % intervals of one row each.
    """

    wall_time: pd.DataFrame
    wall_time_changes: pd.DataFrame
    explanation: pd.DataFrame
    step_time: pd.DataFrame
    step_changes: pd.DataFrame
    success: pd.DataFrame
    failure_changes: pd.DataFrame
    step_failures: pd.DataFrame
    step_failure_changes: pd.DataFrame
    days_to_see: pd.DataFrame
    outages: pd.DataFrame
    queue_time: pd.DataFrame
    long_wall_time: pd.DataFrame
    long_step_time: pd.DataFrame
    long_success: pd.DataFrame
    long_step_failures: pd.DataFrame
    long_queue_time: pd.DataFrame
    load: pd.DataFrame
    waste: pd.DataFrame
    flake_scores: pd.DataFrame
    flips: pd.DataFrame
    flaky_tests: pd.DataFrame
    objectives: pd.DataFrame = field(default_factory=pd.DataFrame)
    cost: pd.DataFrame = field(default_factory=pd.DataFrame)

    def tables(self) -> dict[str, pd.DataFrame]:
        """
        Return all tables by name.

        Returns
        -------
        dict of str to DataFrame
            In the order of the attributes.
        """
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @cached_property
    def comparisons(self) -> dict[str, pd.DataFrame]:
        """Tables of comparisons with the reported changes, by name."""
        tables = self.tables()
        return {name: reported(tables, name) for name in PREFIXES}


def measure(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    pipelines: pd.DataFrame,
    flaky: pd.DataFrame | None,
    period: Period,
    *,
    since: pd.Timestamp | None = None,
    objectives: Mapping[str, Objective] | None = None,
    rates: Mapping[str, float] | None = None,
) -> Measurements:
    """
    Compute the tables of a report.

    Builds and jobs belong to the day on which they finished, queue times to the day on which they began. So jobs that
    never started are censored rows of their day.

    Parameters
    ----------
    builds, jobs : DataFrame
        Builds of the period's history and of as many days before, as far as they are known, and their jobs.
    pipelines : DataFrame
        Pipelines with their default branches.
    flaky : DataFrame or None
        Versions of the flaky tests. None if the store has none.
    period : Period
        Days to measure.
    since : Timestamp, optional
        Time from which on all builds are known. Periods before which are not covered are not compared. By default all
        are covered.
    objectives : mapping of str to Objective, optional
        Objectives to measure, by name.
    rates : mapping of str to float, optional
        Price of a minute by key or id of a queue, for the cost of machine time.

    Returns
    -------
    Measurements
        The tables.
    """
    # Once for all tables, so that a step and a queue are called the same in each of them.
    labeled = jobs.assign(step=label_steps(metrics.step(jobs), jobs["pipeline"]))
    jobs = with_queue_names(labeled)
    priced = period.of(labeled, "finished_at")  # rates name a queue by key or id, not as it is called here
    finished, own = period.history.of(jobs, "finished_at"), period.of(jobs, "finished_at")
    tables, n_tests = find_changes(builds, jobs, period, since)
    wall_times = reported(tables, "wall_time")
    return Measurements(
        **tables,
        explanation=explain_wall_times(builds, jobs, wall_times, tables["wall_time_changes"], period),
        days_to_see=_days_to_see(period.history.of(builds, "finished_at"), period, n_tests),
        outages=_outages(builds, jobs, pipelines, period),
        load=_load(builds, jobs, period, compares=_is_covered(period, since)),
        waste=metrics.waste(own, by="pipeline"),
        flake_scores=metrics.flake_score(finished, threshold=_FLAKY, pipelines=pipelines),
        flips=metrics.flips(finished),
        flaky_tests=metrics.flaky_lifecycle(flaky) if flaky is not None else pd.DataFrame(),
        objectives=measure_objectives(objectives or {}, builds, jobs, period),
        cost=metrics.cost(priced, rates, by="pipeline") if rates else pd.DataFrame(),
    )


def find_changes(
    builds: pd.DataFrame, jobs: pd.DataFrame, period: Period, since: pd.Timestamp | None
) -> tuple[Tables, int]:
    """Return the tables of comparisons and change points by name, with flags, and of how many tests each is one.

    The arguments are those of `measure`.
    """
    history = period.history
    tables = _compare(builds, jobs, period, compares=_is_covered(period, since))
    has_past = builds["created_at"].min() < history.before.start + pd.Timedelta(history.days / 4, "D")
    if has_past and _is_covered(history, since):
        long = _compare(builds, jobs, history, compares=True)
    else:
        long = {name: table.iloc[:0] for name, table in tables.items()}
    tables |= {f"long_{name}": table for name, table in long.items()}
    changes, n_unchanged = _search_changes(builds, jobs, history)
    return flag_changes(tables | changes, n_unchanged)


def _is_covered(period: Period, since: pd.Timestamp | None) -> bool:
    """Return whether the data covers the whole period before."""
    return since is None or since <= period.before.start


def ended_builds(builds: pd.DataFrame) -> pd.DataFrame:
    """Return the builds that are over: blocked builds have a `finished_at`, but can continue."""
    return builds[~is_blocked(builds)]


def _compare(builds: pd.DataFrame, jobs: pd.DataFrame, period: Period, *, compares: bool) -> Tables:
    """Return the tables that compare a period with the one before, by name."""

    def both(frame: pd.DataFrame, at: str) -> Pair:
        before = period.before.of(frame, at)
        return before if compares else before.iloc[:0], period.of(frame, at)

    def durations(rows: Pair, of: RowMetric, by: list[Key], at: str, q: tuple[float, ...]) -> pd.DataFrame:
        return metrics.percentile_change(*rows, of, by, q, at=at, tz=period.tz)

    def rates(summary: Change, rows: Pair, by: list[Key]) -> pd.DataFrame:
        return summary(*rows, by, "finished_at", period.tz)

    ended, ran, begun = both(builds, "finished_at"), both(jobs, "finished_at"), both(jobs, "runnable_at")
    passed = _passed(ran)
    parts = {"run": metrics.run_time, "queue": metrics.queue_time}
    step_times = [durations(passed, of, STEP, "finished_at", (0.5,)).assign(part=part) for part, of in parts.items()]
    wall_time = durations(_passed(ended), metrics.wall_time, PIPELINE, "finished_at", (0.5, 0.95))
    return {
        "wall_time": wall_time.drop(columns=["p95_change_p", "p95_notable"]),
        "step_time": pd.concat(step_times, ignore_index=True),
        "success": rates(metrics.build_success_change, ended, PIPELINE),
        "step_failures": rates(metrics.job_failure_change, ran, STEP),
        "queue_time": durations(begun, metrics.queue_time, QUEUE, "runnable_at", (0.5, 0.95)),
    }


def _passed(rows: Pair) -> Pair:
    before, after = (frame[frame["state"] == "passed"] for frame in rows)
    return before, after


def _search_changes(builds: pd.DataFrame, jobs: pd.DataFrame, history: Period) -> tuple[Tables, dict[str, int]]:
    """Return the tables of change points by name, and the number of groups without any for each."""
    builds, jobs = (history.of(frame, "finished_at") for frame in (builds, jobs))
    passed, ran = (frame[frame["state"] == "passed"] for frame in (builds, jobs))
    searched: dict[str, tuple[pd.DataFrame, Any, list[Key]]] = {
        "wall_time_changes": (passed, metrics.wall_time, PIPELINE),
        "step_changes": (ran, metrics.run_time, STEP),
        "failure_changes": (builds, metrics.failed, PIPELINE),
        "step_failure_changes": (jobs[jobs["type"] == "script"], metrics.failed, STEP),
    }
    tables, n_unchanged = {}, {}
    for name, (rows, of, by) in searched.items():
        tables[name] = metrics.change_points(rows, of, by, at="finished_at", tz=history.tz)
        n_unchanged[name] = rows.groupby(by, dropna=False).ngroups - len(tables[name][by].drop_duplicates())
    return tables, n_unchanged


def flag_changes(tables: Tables, n_unchanged: Mapping[str, int]) -> tuple[Tables, int]:
    """Return the tables with the changes as `notable` that are significant among all tests.

    Also return of how many equal tests one of a pipeline or queue counts as one: they share half of the level, and the
    many tests of steps the other half (weights of Genovese, Roeder and Wasserman 2006, Biometrika 93: 509-524).
    """
    places = [(name, prefix) for name in tables for prefix in PREFIXES.get(name.removeprefix("long_"), ("",))]
    p = [tables[name][f"{prefix}change_p" if prefix else "p"].to_numpy(np.float64) for name, prefix in places]
    sizes = {True: 0, False: 0}  # tests of steps, and the others
    for (name, _), own in zip(places, p, strict=True):
        sizes["step" in tables[name]] += int(np.isfinite(own).sum())
    for name, n in n_unchanged.items():
        sizes["step" in tables[name]] += n
    total, n_kinds = sum(sizes.values()), sum(n > 0 for n in sizes.values())
    weighted = [own * n_kinds * sizes["step" in tables[name]] / total for (name, _), own in zip(places, p, strict=True)]
    flags = are_notable(np.concatenate([*weighted, np.ones(sum(n_unchanged.values()))]), NIGHTLY)
    flagged, start = dict(tables), 0
    for (name, prefix), own in zip(places, p, strict=True):
        notable, start = flags[start : start + len(own)], start + len(own)
        if (seconds := f"{prefix or 'p50_'}change_s") in tables[name]:
            notable = notable & (tables[name][seconds].abs() >= MIN_CHANGE_S).to_numpy(bool)
        flagged[name] = flagged[name].assign(**{f"{prefix}notable": pd.array(notable, "boolean")})
    return flagged, n_kinds * sizes[False]


def _days_to_see(builds: pd.DataFrame, period: Period, n_tests: int) -> pd.DataFrame:
    passed = builds[builds["state"] == "passed"]
    kinds = (("wall time", passed, metrics.wall_time), ("failures", builds, metrics.failed))
    options: dict[str, Any] = {"at": "finished_at", "tz": period.tz, "days": period.days, "tests": max(n_tests, 1)}
    each = [metrics.days_to_see(rows, of, PIPELINE, **options).assign(of=name) for name, rows, of in kinds]
    table = pd.concat(each, ignore_index=True).assign(tests=options["tests"])
    rates = metrics.success_rate(builds, PIPELINE).set_index("pipeline")["rate"]
    return table.assign(rate=table["pipeline"].map(rates).astype("float64").where(table["of"] == "failures"))


def with_default_branches(pipelines: pd.DataFrame) -> pd.DataFrame:
    """Return the pipelines whose default branch is known."""
    return pipelines[pipelines["default_branch"].fillna("") != ""]


def _outages(builds: pd.DataFrame, jobs: pd.DataFrame, pipelines: pd.DataFrame, period: Period) -> pd.DataFrame:
    with_branch = with_default_branches(pipelines)
    rows = metrics.outages(builds[builds["pipeline_id"].isin(with_branch["id"])], pipelines=with_branch, jobs=jobs)
    return rows[rows["open"] | (rows["recovered_at"] >= period.start)].reset_index(drop=True)


def _load(builds: pd.DataFrame, jobs: pd.DataFrame, period: Period, *, compares: bool) -> pd.DataFrame:
    counts = {
        "builds created": (builds, "created_at"),
        "builds finished": (ended_builds(builds), "finished_at"),
        "jobs finished": (jobs, "finished_at"),
    }
    both = (period, period.before)
    rows = {name: [float(p.contains(frame[at]).sum()) for p in both] for name, (frame, at) in counts.items()}
    hours = metrics.run_time(jobs) / _HOUR
    rows["machine hours"] = [hours[p.contains(jobs["finished_at"])].sum() for p in both]
    load = pd.DataFrame.from_dict(rows, orient="index", columns=["now", "before"]).rename_axis("what").reset_index()
    return load if compares else load.assign(before=np.nan)
