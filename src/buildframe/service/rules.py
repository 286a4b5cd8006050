"""The rules of the service: how builds and jobs change. Pure functions, without data or time of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from buildframe.service.runs import BuildRun, BuildState, JobRun

Ended = Literal["passed", "failed", "canceled"]
RetryType = Literal["automatic", "manual"]

LOST = -1
"""Exit status of a job whose agent was lost or that was killed."""

ACTIVE_JOB = frozenset({"waiting", "scheduled", "assigned", "running", "canceling"})
OVER = frozenset({"passed", "failed", "canceled"})
CANCELABLE = frozenset({"scheduled", "running", "failing"})
_OPENS_THE_WAY = frozenset({"passed", "broken"})
_BARS_THE_WAY = frozenset({"failed", "canceled", "waiting_failed"})
_LOST_RETRIES = 2


def readiness(needs: Sequence[str], latest: Mapping[str, JobRun]) -> Literal["ready", "waiting", "barred"]:
    """Whether a job may run, given the last attempts at the steps that it needs."""
    states = [latest[need].state for need in needs]
    if any(state in _BARS_THE_WAY for state in states):
        return "barred"
    return "ready" if all(state in _OPENS_THE_WAY for state in states) else "waiting"


def build_state(build: BuildRun) -> BuildState:
    """The state of a build that follows from its jobs."""
    states = {job.state for job in build.jobs if job.retried_in is None}
    active = bool(states & ACTIVE_JOB)
    if build.cancel_reason is not None:
        return "canceling" if active else "canceled"
    if "failed" in states:
        return "failing" if active else "failed"
    if not active:
        return "passed"
    return "running" if build.started is not None else "scheduled"


def retries_itself(exit_status: int, lost_before: int, failed_before: int, allowed: int) -> bool:
    """Whether a failed attempt is repeated at once: always after a lost agent, else as the step allows."""
    if exit_status == LOST:
        return lost_before < _LOST_RETRIES
    return failed_before < allowed


def can_be_retried(build: BuildRun, job: JobRun) -> bool:
    """Whether someone can repeat a job by hand."""
    return build.cancel_reason is None and job.state == "failed" and job.retried_in is None


Place = tuple[int, int, int, int]


def place_in_line(priority: int, build: BuildRun, job: JobRun) -> Place:
    """Sorts waiting jobs: higher priority first, then who could run first."""
    assert job.runnable is not None
    return -priority, job.runnable, build.seq, build.jobs.index(job)


def superseded(build: BuildRun, earlier: Iterable[BuildRun]) -> list[BuildRun]:
    """The earlier builds that a new one of the same branch makes needless."""
    return [
        other
        for other in earlier
        if other.line == build.line
        and other.commit.branch == build.commit.branch
        and other.seq < build.seq
        and other.state in CANCELABLE
    ]
