"""Compute numbers of builds from the intervals of their jobs.

Does not know how frames are fetched or stored. Every function has one entry per `build_id`: a
pandas Series, or for PySpark a lazy frame of PySpark with `build_id` and a column of seconds such
as `active_time_s`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import NAT, TEXT, Flags, Integers, timestamp_micros
from buildframe.metrics.durations import is_script
from buildframe.metrics.group_summaries import summarize_batches_lazily
from buildframe.metrics.grouping import number_runs
from buildframe.metrics.input_frames import Frame, is_spark, read_whole_groups
from buildframe.metrics.job_ends import COLUMNS as END_COLUMNS
from buildframe.metrics.job_ends import SEEN_UNTIL, with_ends
from buildframe.metrics.numbered import earliest_by, latest_by, sum_by
from buildframe.metrics.row_flags import has_failed_hard, is_held, is_set
from buildframe.metrics.validation import check_spellings

_NEEDS_OF_GAPS = (
    "type",
    "state",
    "build_created_at",
    "started_at",
    "finished_at",
    "unblocked_at",
    "fetched_at",
)


@checked_names
def machine_time(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """
    Compute the sum of run times of all script jobs of each build, over every attempt.

    Other jobs run on no machine: a trigger job can have a start and an end, between which it waits
    for its build.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `build_id`,
        `type`, `started_at` and `finished_at`. Uses `state`, `expired_at` and `build_finished_at`
        if the frame has them. Fetch with `include_retried_jobs=True`, or only last attempts count.
        Ids must be unique.

    Returns
    -------
    pandas.Series
        `timedelta64[us]`, indexed and ordered by `build_id`. NaT if no script job has both times.
        For PySpark a lazy frame of PySpark with `build_id` and `machine_time_s` (seconds; null for
        NaT).

    Raises
    ------
    BadInput
        If a column is missing or a timestamp has no time zone.

    See Also
    --------
    active_time : Time in which at least one job ran.
    waste : Split machine time into useful and wasted parts.

    Notes
    -----
    A job that still runs, or that ended at an unknown time, has no run time and is left out. A job
    ends as `run_time` describes. A negative run time, from clocks that disagree, is included.

    Examples
    --------
    >>> spent = builds.assign(spent=builds["id"].map(metrics.machine_time(jobs)))
    >>> spent.groupby("pipeline")["spent"].sum().nlargest(3).dt.round("1min")
    pipeline
    mobile   1 days 13:41:00
    web      1 days 01:22:00
    api      0 days 19:53:00
    Name: spent, dtype: timedelta64[us]
    """
    return _measure_builds(jobs, ("type", "started_at", "finished_at"), _machine_time)


def _machine_time(builds: BuildJobs) -> pd.Series[pd.Timedelta]:
    runs = _find_runs(builds, with_superseded=True)
    return builds.sum_durations(runs.codes, runs.end - runs.start, "machine_time")


def _find_runs(builds: BuildJobs, *, with_superseded: bool) -> RunSpans:
    """Return the runs of script jobs that have ended, with or without superseded attempts."""
    start, end = builds.times("started_at"), builds.times("finished_at")
    is_run = is_script(builds.jobs).to_numpy() & (start != NAT) & (end != NAT)
    if not with_superseded:
        is_run &= ~is_set(builds.jobs, "retried")
    return RunSpans(builds.codes, start, end).filter(is_run)


@checked_names
def active_time(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """
    Compute how long at least one script job of each build ran.

    This is the length of the union of the runs, from `started_at` until each job ended. Runs that a
    retry superseded do not count.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `build_id`,
        `type`, `started_at`, `finished_at` and `retried`. Uses `state`, `expired_at` and
        `build_finished_at` if the frame has them. Ids must be unique.

    Returns
    -------
    pandas.Series
        `timedelta64[us]`, indexed and ordered by `build_id`. NaT if no run counts. For PySpark a
        lazy frame of PySpark with `build_id` and `active_time_s` (seconds; null for NaT).

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or timestamps lie too many years
        apart.

    See Also
    --------
    machine_time : Sum of all run times.
    parallelism : Run time divided by active time.

    Notes
    -----
    A (0, 2) that is retried as A' (2, 4), B (1, 3) and C (6, 7) cover (1, 4) and (6, 7), so the
    active time is 4. A job that still runs, or that ended at an unknown time, is left out. A run
    that ends before it starts covers nothing.

    Examples
    --------
    >>> builds["id"].map(metrics.active_time(jobs)).median().round("1s")
    Timedelta('0 days 00:15:17')
    """
    return _measure_builds(jobs, ("type", "started_at", "finished_at", "retried"), _active_time)


def _active_time(builds: BuildJobs) -> pd.Series[pd.Timedelta]:
    runs = _find_runs(builds, with_superseded=False)
    covered, _ = _sweep(builds, runs)
    return builds.sum_durations(runs.codes, covered, "active_time")


@checked_names
def parallelism(jobs: Frame) -> pd.Series[float]:
    """
    Compute how many script jobs of each build ran at once on average while the build was active.

    This is the run time of the attempts that `active_time` counts, divided by the active time.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `build_id`,
        `type`, `started_at`, `finished_at` and `retried`. Uses `state`, `expired_at` and
        `build_finished_at` if the frame has them. Ids must be unique.

    Returns
    -------
    pandas.Series
        float64, indexed and ordered by `build_id`: 1.0 for a strictly serial build, also if a job
        was retried. NaN if the active time is 0 or missing. For PySpark a lazy frame of PySpark
        with `build_id` and `parallelism`.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or timestamps lie too many years
        apart.

    See Also
    --------
    concurrency : Jobs that ran at once, over time.

    Examples
    --------
    >>> metrics.parallelism(jobs).describe()[["min", "50%", "max"]].round(2)
    min    1.00
    50%    2.31
    max    4.35
    Name: parallelism, dtype: float64
    """
    return _measure_builds(jobs, ("type", "started_at", "finished_at", "retried"), _parallelism)


def _parallelism(builds: BuildJobs) -> pd.Series[float]:
    runs = _find_runs(builds, with_superseded=False)
    covered, _ = _sweep(builds, runs)
    active = builds.sum_durations(runs.codes, covered, "active_time")
    durations = np.maximum(runs.end - runs.start, 0)
    run_time = builds.sum_durations(runs.codes, durations, "run_time")
    return (run_time / active.where(active > pd.Timedelta(0))).rename("parallelism")


@checked_names
def idle_time(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """
    Compute how long each build waited with no job running and no block step holding it.

    Most idle time is waiting for agents.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `build_id`,
        `build_created_at`, `type`, `state`, `started_at`, `finished_at`, `unblocked_at` and
        `fetched_at`. Ids must be unique.

    Returns
    -------
    pandas.Series
        `timedelta64[us]`, indexed and ordered by `build_id`. NaT if the creation is missing, or no
        job has ended, run or been unblocked yet. For PySpark a lazy frame of PySpark with
        `build_id` and `idle_time_s` (seconds; null for NaT).

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or timestamps lie too many years
        apart.

    See Also
    --------
    blocked_time : Time in which a block step held the build.

    Notes
    -----
    The span of a build runs from `build_created_at` to the last time at which one of its jobs
    ended, was seen running or was unblocked (`fetched_at` if it is still blocked or running). Over
    this span

        idle_time + blocked_time + time in which at least one job ran = span.

    Runs of every attempt of script jobs count, including running jobs. A job that ended at an
    unknown time counts nowhere. A run that ends before it starts covers nothing. A trigger step
    uses no agent, so a build that only waits for one is idle. A block step of a canceled build has
    no timestamp if nobody unblocked it, so the wait for it counts as idle.

    Examples
    --------
    >>> idle = builds.assign(idle=builds["id"].map(metrics.idle_time(jobs)))
    >>> idle.groupby("pipeline")["idle"].median().dt.round("1s")
    pipeline
    api        0 days 00:00:05
    billing    0 days 00:00:06
    data       0 days 00:00:05
    docs       0 days 00:00:02
    mobile     0 days 00:06:55
    platform   0 days 00:00:04
    release    0 days 00:00:03
    web        0 days 00:00:05
    Name: idle, dtype: timedelta64[us]
    """
    idle_gaps = functools.partial(_sum_gaps, "idle_time", False)
    return _measure_builds(jobs, _NEEDS_OF_GAPS, idle_gaps)


@checked_names
def blocked_time(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """
    Compute how long each build waited for somebody to unblock it while no job ran.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns that `idle_time`
        needs. Ids must be unique.

    Returns
    -------
    pandas.Series
        `timedelta64[us]`, indexed and ordered by `build_id`: 0 for a build that was never blocked,
        NaT as in `idle_time`. For PySpark a lazy frame of PySpark with `build_id` and
        `blocked_time_s` (seconds; null for NaT).

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or timestamps lie too many years
        apart.

    See Also
    --------
    idle_time : The rest of the time in which no job ran.

    Notes
    -----
    A block step has no timestamp but `unblocked_at`. So in each gap in which no job runs, the part
    up to the last `unblocked_at` counts, and the rest is idle. A block step that still waits counts
    up to `fetched_at`.

    Examples
    --------
    >>> blocked = metrics.blocked_time(jobs)
    >>> (blocked > pd.Timedelta(0)).sum().item()
    3
    """
    blocked_gaps = functools.partial(_sum_gaps, "blocked_time", True)
    return _measure_builds(jobs, _NEEDS_OF_GAPS, blocked_gaps)


@checked_names
def time_to_first_failure(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """
    Compute the time from each build's creation until the first of its jobs failed hard.

    A hard failure is a job in state `failed` that is not soft, or in state `timed_out`. Attempts
    that were retried count, so a build that passed may have one.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `build_id`,
        `build_created_at`, `state`, `soft_failed` and `finished_at`. Fetch with
        `include_retried_jobs=True` to include every attempt.

    Returns
    -------
    pandas.Series
        `timedelta64[us]`, indexed and ordered by `build_id`. NaT without a hard failure, negative
        if clocks disagree. For PySpark a lazy frame of PySpark with `build_id` and
        `time_to_first_failure_s` (seconds; null for NaT).

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `state` holds states in an unknown
        spelling.

    Examples
    --------
    >>> metrics.time_to_first_failure(jobs).dropna().median().round("1s")
    Timedelta('0 days 00:05:46')
    """
    needs = ("build_created_at", "state", "soft_failed", "finished_at")
    return _measure_builds(jobs, needs, _time_to_first_failure)


def _time_to_first_failure(builds: BuildJobs) -> pd.Series[pd.Timedelta]:
    check_spellings(builds.jobs["state"].dropna().unique(), "state")
    has_failed = has_failed_hard(builds.jobs)
    failed_at = builds.times("finished_at")[has_failed]
    first = earliest_by(builds.codes[has_failed], failed_at, len(builds.ids))
    return builds.with_ids(_subtract(builds.created(), first), "time_to_first_failure")


@checked_names
def time_to_pass(jobs: Frame) -> pd.Series[pd.Timedelta]:
    """
    Compute the time from each passed build's creation until the last of its jobs ended.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `build_id`,
        `build_created_at`, `build_state`, `type`, `state` and `finished_at`.

    Returns
    -------
    pandas.Series
        `timedelta64[us]`, indexed and ordered by `build_id`. NaT for builds in other states and for
        builds that a block step holds, negative if clocks disagree. For PySpark a lazy frame of
        PySpark with `build_id` and `time_to_pass_s` (seconds; null for NaT).

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `build_state` holds states in an
        unknown spelling.

    Notes
    -----
    A retry or an unblocked step reopens a build, so its time can still grow.

    Examples
    --------
    >>> metrics.time_to_pass(jobs).dropna().median().round("1s")
    Timedelta('0 days 00:16:10')
    """
    needs = ("build_created_at", "build_state", "type", "state", "finished_at")
    return _measure_builds(jobs, needs, _time_to_pass)


def _time_to_pass(builds: BuildJobs) -> pd.Series[pd.Timedelta]:
    codes, states = number_runs(builds.jobs["build_state"])
    check_spellings(states, "build_state")
    has_passed = np.append(states == "passed", False)[codes]  # null is -1
    last = latest_by(builds.codes, builds.times("finished_at"), len(builds.ids))
    last[builds.codes[~has_passed]] = NAT
    last[builds.codes[is_held(builds.jobs)]] = NAT
    return builds.with_ids(_subtract(builds.created(), last), "time_to_pass")


class BuildJobs(NamedTuple):
    """Jobs of whole builds, and for each the number of its build in `ids`, which are in order."""

    jobs: pd.DataFrame
    codes: Integers
    ids: pd.Index[Any]

    def times(self, name: str) -> Integers:
        """Return the timestamps of the jobs in microseconds, `NAT` if missing."""
        return timestamp_micros(self.jobs, name)

    def created(self) -> Integers:
        """Return when each build was created."""
        return earliest_by(self.codes, self.times("build_created_at"), len(self.ids))

    def sum_durations(self, codes: Integers, durations: Integers, name: str) -> pd.Series[Any]:
        """Sum durations per build; NaT for builds without a code."""
        sums = sum_by(codes, durations, len(self.ids))
        has_some = np.bincount(codes, minlength=len(self.ids)) > 0
        return self.with_ids(np.where(has_some, sums, NAT), name)

    def with_ids(self, durations: Integers, name: str) -> pd.Series[Any]:
        """Return the durations of builds as a Series by id."""
        return pd.Series(pd.TimedeltaIndex(durations.view("timedelta64[us]")), self.ids, name=name)


PerBuild = Callable[[BuildJobs], "pd.Series[Any]"]
"""A number of each build, with the ids as its index."""


def _measure_builds(jobs: Frame, needs: Sequence[str], metric: PerBuild) -> pd.Series[Any]:
    """Apply a metric to builds with all of their jobs.

    Returns a Series by build, or for PySpark a lazy frame.
    """
    if not is_spark(jobs):
        return _measure(metric, needs, jobs)
    in_seconds = functools.partial(_measure_in_seconds, metric, needs)
    lazy_frame: pd.Series[Any] = summarize_batches_lazily(jobs, in_seconds, ["build_id"])
    return lazy_frame


def _measure(metric: PerBuild, needs: Sequence[str], jobs: Frame) -> pd.Series[Any]:
    result = _measure_batches(metric, needs, jobs, is_ordered=True)
    if not result.index.is_unique:  # the jobs of some build do not follow each other
        result = _measure_batches(metric, needs, jobs, is_ordered=False)
    return result.sort_index()


def _measure_batches(
    metric: PerBuild,
    needs: Sequence[str],
    jobs: Frame,
    *,
    is_ordered: bool,
) -> pd.Series[Any]:
    batches = read_whole_groups(jobs, ["build_id"], needs, END_COLUMNS, is_ordered=is_ordered)
    return pd.concat([metric(_number_builds(batch)) for batch in batches])


def _number_builds(jobs: pd.DataFrame) -> BuildJobs:
    if jobs["build_id"].hasnans:
        jobs = jobs.dropna(subset=["build_id"])
    codes, ids = number_runs(jobs["build_id"], sort=True)
    return BuildJobs(with_ends(jobs), codes, ids.astype(TEXT).rename("build_id"))


def _measure_in_seconds(metric: PerBuild, needs: Sequence[str], jobs: Frame) -> pd.DataFrame:
    result = _measure(metric, needs, jobs)
    if pd.api.types.is_timedelta64_dtype(result.dtype):
        result = result.dt.total_seconds().rename(f"{result.name}_s")
    return result.reset_index()


def _subtract(start: Integers, end: Integers) -> Integers:
    return np.where((start == NAT) | (end == NAT), NAT, end - start)


class RunSpans(NamedTuple):
    """Intervals [start, end), each with the number of its build."""

    codes: Integers
    start: Integers
    end: Integers

    def filter(self, chosen: Flags) -> RunSpans:
        """Return the chosen intervals."""
        return RunSpans(*(column[chosen] for column in self))


def _sweep(builds: BuildJobs, spans: RunSpans) -> tuple[Integers, Integers]:
    """Return what each interval adds to the union of earlier ones of its build, and the gap before.

    At one start, the first in `spans` is earlier. An interval that ends before it starts covers
    nothing.
    """
    end = np.maximum(spans.start, spans.end)
    shift = _shifts_end_to_end(builds, spans._replace(end=end))[spans.codes]
    order = np.argsort(spans.start + shift, kind="stable")
    codes = spans.codes[order]
    start, end = (spans.start + shift)[order], (end + shift)[order]
    reached = np.concatenate([start[:1], np.maximum.accumulate(end)[:-1]])
    is_first = np.diff(codes, prepend=-1) > 0

    covered, gap = np.empty_like(start), np.empty_like(start)
    covered[order] = np.maximum(end - np.maximum(start, reached), 0)
    gap[order] = np.where(is_first, 0, np.maximum(start - reached, 0))
    return covered, gap


def _shifts_end_to_end(builds: BuildJobs, spans: RunSpans) -> Integers:
    """Return shifts that put builds one after another: one sort and running maximum serve all."""
    n_builds = len(builds.ids)
    first = earliest_by(spans.codes, spans.start, n_builds)
    last = latest_by(spans.codes, spans.end, n_builds)
    lengths = np.where(last == NAT, 0, last - first + 1)  # 1 more, so that no two builds touch
    if lengths.sum(dtype=np.float64) > 2**62:
        build = builds.ids[int(lengths.argmax())]
        years = lengths.max() / 31_557_600e6
        distance = f"{years:.0f} years apart"
        raise BadInput(f"Timestamps of build {build} are {distance}. Correct them first.")
    return np.cumsum(lengths) - lengths - np.where(last == NAT, 0, first)


def _sum_gaps(name: str, blocked: bool, builds: BuildJobs) -> pd.Series[pd.Timedelta]:
    """Sum the gaps between runs that end at a release (`blocked`), or the other gaps.

    These end at a run or at the last timestamp of the build.
    """
    n_builds = len(builds.ids)
    created = builds.created()
    runs, releases = _runs_and_releases(builds)
    last = latest_by(builds.codes, builds.times("finished_at"), n_builds)
    for spans in (releases, runs):
        last = np.maximum(last, latest_by(spans.codes, spans.end, n_builds))
    is_known = np.flatnonzero((created != NAT) & (last != NAT))
    creations = RunSpans(is_known, created[is_known], created[is_known])
    ends = RunSpans(is_known, last[is_known], last[is_known])
    # The sort is stable: at one start, the creation is first, then a release, a run and the end.
    ordered = [_cut_at_creation(created, spans) for spans in (creations, releases, runs, ends)]
    n_of_each = [len(spans.codes) for spans in ordered]
    is_release = np.repeat([False, True, False, False], n_of_each)
    spans = RunSpans(*(np.concatenate(columns) for columns in zip(*ordered, strict=True)))
    _, gap = _sweep(builds, spans)
    return builds.sum_durations(spans.codes, np.where(is_release == blocked, gap, 0), name)


def _runs_and_releases(builds: BuildJobs) -> tuple[RunSpans, RunSpans]:
    """Return the runs of every attempt that cover some time, and when block steps were released.

    Runs of script jobs last until they ended or were last seen. A build that is still blocked is
    released when it was last seen.
    """
    jobs = builds.jobs
    start, end = builds.times("started_at"), builds.times(SEEN_UNTIL)
    covers_time = is_script(jobs).to_numpy() & (start != NAT) & (end > start)
    runs = RunSpans(builds.codes, start, end).filter(covers_time)
    unblocked, fetched = builds.times("unblocked_at"), builds.times("fetched_at")
    released = np.where(is_held(jobs) & (unblocked == NAT), fetched, unblocked)
    return runs, RunSpans(builds.codes, released, released).filter(released != NAT)


def _cut_at_creation(created: Integers, spans: RunSpans) -> RunSpans:
    """Cut the spans at their builds' creation; drop builds without a creation."""
    since = created[spans.codes]
    start, end = np.maximum(spans.start, since), np.maximum(spans.end, since)
    return RunSpans(spans.codes, start, end).filter(since != NAT)
