"""Compute durations of single rows from their timestamps. Does not group or summarize; knows pandas only."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import check_are_builds, column, timestamps
from buildframe.metrics.job_ends import SEEN_UNTIL, end_times
from buildframe.terminal import nearest_name, show

RowMetric = Callable[[pd.DataFrame], "pd.Series[Any]"]
"""`frame -> Series` of timedeltas, one per row."""


@checked_names
def queue_time(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """
    Compute how long each script job waited for an agent: `started_at - runnable_at`.

    Time before `runnable_at` belongs to `dependency_wait`. Trigger, wait and block jobs need no agent, so they have no
    queue time.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns `type`, `runnable_at` and `started_at`. The timestamps need a time zone.

    Returns
    -------
    pandas.Series
        `timedelta64[us]` on the index of the frame. NaT for jobs that are not script jobs, and if a timestamp is
        missing. Negative if clocks disagree.

    Raises
    ------
    BadInput
        If a column is missing or a timestamp has no time zone.

    See Also
    --------
    dependency_wait : Time from creation until a job can start.
    percentiles : Summarize queue times per group.

    Examples
    --------
    >>> waits = jobs.assign(queued=metrics.queue_time)
    >>> waits.groupby("queue")["queued"].max().dt.round("1s")
    queue
    default   0 days 00:08:47
    deploy    0 days 00:00:02
    docker    0 days 00:03:56
    macos     0 days 03:27:35
    Name: queued, dtype: timedelta64[us]
    """
    return _between(jobs, "runnable_at", "started_at").where(is_script(jobs)).rename("queue_time")


@checked_names
def dependency_wait(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """
    Compute how long each job waited until it could start: `runnable_at - created_at`.

    The wait covers dependencies, wait and block steps, and concurrency limits. It does not include the queue time.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns `created_at` and `runnable_at`. The timestamps need a time zone.

    Returns
    -------
    pandas.Series
        `timedelta64[us]` on the index of the frame. NaT if a timestamp is missing, negative if clocks disagree.

    Raises
    ------
    BadInput
        If a column is missing or a timestamp has no time zone.

    See Also
    --------
    queue_time : Time that a runnable job waits for an agent.

    Examples
    --------
    >>> metrics.dependency_wait(jobs).dt.total_seconds().median().item()
    57.948
    """
    return _between(jobs, "created_at", "runnable_at").rename("dependency_wait")


@checked_names
def run_time(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """
    Compute how long each script job ran: from `started_at` until it ended, whatever its outcome.

    Trigger jobs can have a start and an end, but they need no agent and run nothing, so they have
    no run time.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns `type`, `started_at` and `finished_at`. Uses `state`, `expired_at`,
        `build_finished_at` and `fetched_at` if the frame has them. The timestamps need a time zone.

    Returns
    -------
    pandas.Series
        `timedelta64[us]` on the index of the frame. NaT for jobs that are not script jobs, and if
        the start or the end is unknown. Negative if clocks disagree.

    Raises
    ------
    BadInput
        If a column is missing or a timestamp has no time zone.

    See Also
    --------
    machine_time : Sum of the run times per build.

    Notes
    -----
    Select jobs that passed for trends, because failures often end early. Use all jobs for cost.

    A job is over if it has `finished_at`, if its `state` says so (such as canceled or expired), or
    if it has `expired_at`. Its end is the first known of `finished_at`, `expired_at` and
    `build_finished_at`. If none is known, it is over at an unknown time, and its duration is
    unknown.

    Examples
    --------
    >>> jobs.assign(ran=metrics.run_time).groupby("queue")["ran"].sum().dt.round("1min")
    queue
    default   2 days 23:47:00
    deploy    0 days 01:06:00
    docker    0 days 06:41:00
    macos     1 days 10:50:00
    Name: ran, dtype: timedelta64[us]
    """
    return (end_times(jobs) - timestamps(jobs, "started_at")).where(is_script(jobs)).rename("run_time")


@checked_names
def turnaround(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """
    Compute the time from `runnable_at`, when each job could start, until it ended.

    Jobs of every type and outcome have a turnaround. Their end is that of `run_time`.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns `runnable_at` and `finished_at`. Uses `state`, `expired_at`,
        `build_finished_at` and `fetched_at` if the frame has them. The timestamps need a time zone.

    Returns
    -------
    pandas.Series
        `timedelta64[us]` on the index of the frame. NaT if the start or the end is unknown,
        negative if clocks disagree.

    Raises
    ------
    BadInput
        If a column is missing or a timestamp has no time zone.

    Examples
    --------
    >>> metrics.turnaround(jobs).notna().sum().item()
    2638
    """
    return (end_times(jobs) - timestamps(jobs, "runnable_at")).rename("turnaround")


@checked_names
def wall_time(builds: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """
    Compute the time from each build's creation until it ended: `finished_at - created_at`.

    A blocked build is not over, so it has no wall time, and summaries count it in `n_censored`.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns `created_at` and `finished_at`. The timestamps need a time zone. A build is blocked if
        its flag `blocked` is set or its `state` is `blocked`, as in webhooks. A frame with neither column has no
        blocked builds.

    Returns
    -------
    pandas.Series
        `timedelta64[us]` on the index of the frame. NaT if a timestamp is missing or the build is blocked, negative if
        clocks disagree.

    Raises
    ------
    BadInput
        If a column is missing or a timestamp has no time zone.

    See Also
    --------
    active_time : Time in which at least one job of a build ran.

    Notes
    -----
    A retry reopens a build, so the wall time of a finished build can still grow.

    Examples
    --------
    >>> builds.assign(wall=metrics.wall_time).groupby("pipeline")["wall"].median().dt.round("1s")
    pipeline
    api        0 days 00:19:16
    billing    0 days 00:06:04
    data       0 days 00:13:24
    docs       0 days 00:01:41
    mobile     0 days 01:55:00
    platform   0 days 00:15:19
    release    0 days 00:27:14
    web        0 days 00:16:12
    Name: wall, dtype: timedelta64[us]
    """
    check_are_builds(getattr(builds, "columns", ()), "wall_time")
    return _between(builds, "created_at", "finished_at").mask(is_blocked(builds)).rename("wall_time")


def _between(frame: pd.DataFrame, start: str, end: str) -> pd.Series[pd.Timedelta]:
    return timestamps(frame, end) - timestamps(frame, start)


BLOCKED = ("blocked", "state")
"""Columns that show whether a build is blocked: the flag, or the state in a webhook."""


def is_blocked(builds: pd.DataFrame) -> pd.Series[bool]:
    """Return which builds wait at a block step, as far as the frame's columns show it."""
    blocked = pd.Series(False, index=builds.index)
    if "blocked" in builds:
        blocked |= column(builds, "blocked").eq(True).fillna(False).astype(bool)
    if "state" in builds:
        blocked |= column(builds, "state").eq("blocked").fillna(False).astype(bool)
    return blocked


def is_script(jobs: pd.DataFrame) -> pd.Series[bool]:
    """Return which jobs run on an agent."""
    return column(jobs, "type").eq("script").fillna(False).astype(bool)


NEVER_RUNNABLE = ("broken", "skipped")
"""States of jobs that can no longer become runnable."""


_SEEN_BUILD = ("finished_at", "fetched_at")


class Span(NamedTuple):
    """The two timestamps that a row metric measures between."""

    start: str
    end: str
    scripts_only: bool = False
    unless_blocked: bool = False

    @property
    def needs(self) -> tuple[str, ...]:
        """Columns that are needed to measure."""
        return (self.start, self.end, "type") if self.scripts_only else (self.start, self.end)

    @property
    def is_of_builds(self) -> bool:
        """Whether rows are builds; otherwise they are jobs."""
        return self.unless_blocked

    @property
    def seen(self) -> tuple[str, ...]:
        """Columns whose first known time is when a row without an end was last seen.

        Those of jobs exist after `with_ends`.
        """
        return _SEEN_BUILD if self.is_of_builds else (SEEN_UNTIL,)

    @property
    def wants(self) -> tuple[str, ...]:
        """Optional columns that show more about the end."""
        if self.unless_blocked:
            return BLOCKED
        return ("state",) if self.end == "runnable_at" else ()


SPANS: dict[RowMetric, Span] = {
    queue_time: Span("runnable_at", "started_at", scripts_only=True),
    dependency_wait: Span("created_at", "runnable_at"),
    run_time: Span("started_at", "finished_at", scripts_only=True),
    turnaround: Span("runnable_at", "finished_at"),
    wall_time: Span("created_at", "finished_at", unless_blocked=True),
}


def span_of(of: RowMetric | str) -> Span | None:
    """Return the span of a row metric or of its column of seconds; None for custom ones."""
    if not isinstance(of, str) and not callable(of):
        raise BadInput(f"of={show(of)} is neither a metric nor a column name. Pass one such as metrics.run_time.")
    return next((span for metric, span in SPANS.items() if of in (metric, f"{metric.__name__}_s")), None)


def check_column_of(of: RowMetric | str, columns: Iterable[str]) -> None:
    """Raise BadInput, with the row metric that is meant, if `of` is the name of a column that there is not."""
    if isinstance(of, str) and of not in (names := [*columns]):
        metrics = {name: f"metrics.{name}" for name in (metric.__name__ for metric in SPANS)}
        near = nearest_name(of, [*metrics, *names])
        suggestion = f" Did you mean {metrics.get(near, repr(near))}?" if near else ""
        raise BadInput(f"of={show(of)}: The frame has no column {show(of)}.{suggestion}")
