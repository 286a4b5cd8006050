"""Durations of single rows, from their timestamps.

Each takes a frame and gives a Series of `timedelta64[us]` on the frame's index, NaT where one of the
two stamps is missing. A negative duration means that two clocks disagree: it is kept, and summaries
count it. A missing column, or times without a zone, raise BadInput; an empty frame gives an empty Series.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pandas as pd

from buildframe.arguments import checked_names
from buildframe.metrics.columns import column, moments

RowMetric = Callable[[pd.DataFrame], "pd.Series[Any]"]
"""`frame -> Series` of timedeltas, one a row."""


@checked_names
def queue_time(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """How long a script job waited for an agent: started_at - runnable_at.

    Other types of job wait for no agent and are NaT. Waiting for earlier steps is `dependency_wait`.
    Needs `type`, `runnable_at`, `started_at`.
    `timedelta64[us]` on the frame's index, NaT where a stamp is missing; of an empty frame an empty Series.
    """
    return _between(jobs, "runnable_at", "started_at").where(is_script(jobs)).rename("queue_time")


@checked_names
def dependency_wait(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """How long a job waited for others: runnable_at - created_at.

    That is wait and block steps, dependencies and concurrency limits. Needs `created_at`, `runnable_at`.
    `timedelta64[us]` on the frame's index, NaT where a stamp is missing; of an empty frame an empty Series.
    """
    return _between(jobs, "created_at", "runnable_at").rename("dependency_wait")


@checked_names
def run_time(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """How long a job ran: finished_at - started_at, whatever its outcome.

    Keep the passed ones for a trend, all of them for cost. Needs `started_at`, `finished_at`.
    `timedelta64[us]` on the frame's index, NaT where a stamp is missing; of an empty frame an empty Series.
    """
    return _between(jobs, "started_at", "finished_at").rename("run_time")


@checked_names
def turnaround(jobs: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """From when a job could start until it ended: finished_at - runnable_at.

    Jobs of all types and outcomes. Needs both stamps.
    `timedelta64[us]` on the frame's index, NaT where a stamp is missing; of an empty frame an empty Series.
    """
    return _between(jobs, "runnable_at", "finished_at").rename("turnaround")


@checked_names
def wall_time(builds: pd.DataFrame) -> pd.Series[pd.Timedelta]:
    """From a build's creation until it ended: finished_at - created_at.

    A blocked build is not over: it can go on, so it has no wall time, and summaries count it in `n_censored`. A build
    is blocked if its flag `blocked` is set, or its `state` is `blocked`, as in webhooks; a frame without these columns
    is taken to hold no blocked build. A retry reopens a build, so the wall time of a finished one may still grow. Needs
    both timestamps.
    `timedelta64[us]` on the frame's index, NaT if a timestamp is missing or the build is blocked; of an empty frame an
    empty Series.
    """
    return _between(builds, "created_at", "finished_at").mask(is_blocked(builds)).rename("wall_time")


def _between(frame: pd.DataFrame, start: str, end: str) -> pd.Series[pd.Timedelta]:
    return moments(frame, end) - moments(frame, start)


def is_blocked(builds: pd.DataFrame) -> pd.Series[bool]:
    """Return which builds wait at a block step, as far as the frame's columns show it."""
    found = pd.Series(False, index=builds.index)
    if "blocked" in builds:
        found |= column(builds, "blocked").eq(True).fillna(False).astype(bool)
    if "state" in builds:
        found |= column(builds, "state").eq("blocked").fillna(False).astype(bool)
    return found


def is_script(jobs: pd.DataFrame) -> pd.Series[bool]:
    """Which jobs run on an agent."""
    return column(jobs, "type").eq("script").fillna(False).astype(bool)


NEVER_RUNNABLE = ("broken", "skipped")
"""States of jobs that nothing makes runnable any more."""


class Span(NamedTuple):
    """From which stamp to which a metric measures."""

    start: str
    end: str
    scripts_only: bool = False
    unless_blocked: bool = False


SPANS: dict[RowMetric, Span] = {
    queue_time: Span("runnable_at", "started_at", scripts_only=True),
    dependency_wait: Span("created_at", "runnable_at"),
    run_time: Span("started_at", "finished_at"),
    turnaround: Span("runnable_at", "finished_at"),
    wall_time: Span("created_at", "finished_at", unless_blocked=True),
}
