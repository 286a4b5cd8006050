"""The rules of the service: how builds and jobs change. Pure functions, without data or time of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from buildframe.service.world.runs import BuildRun, BuildState, JobRun
from buildframe.service.world.steps import Plan, Step

Ended = Literal["passed", "failed", "timed_out", "canceled", "skipped"]
RetryType = Literal["automatic", "manual"]
Readiness = Literal["ready", "waiting", "barred"]

LOST = -1
"""Exit status of a job whose agent was lost or that was killed."""

DEEPEST_TRIGGER = 10
"""How many trigger jobs may lead to one another."""

MOST_TRIGGERED = 100
"""How many builds may come of one build through trigger jobs, directly or not."""

WITH_AGENT = frozenset({"assigned", "running", "canceling"})
_BUSY = WITH_AGENT | {"scheduled"}
ACTIVE_JOB = _BUSY | {"waiting", "blocked"}
FINISHED = frozenset({"passed", "failed", "canceled"})
OVER = FINISHED | {"skipped", "not_run"}
CANCELABLE = frozenset({"scheduled", "running", "failing"})
_FAILED = frozenset({"failed", "timed_out"})
_OPENS_THE_WAY = frozenset({"passed", "broken", "skipped", "unblocked"}) | _FAILED  # those that do not count
_BARS_THE_WAY = frozenset({"canceled", "waiting_failed"})
_LOST_RETRIES = 2


class Refusal(Exception):
    """Something that the service does not do; the text says why."""


def failed(job: JobRun) -> bool:
    """Whether an attempt failed in a way that counts for its build."""
    return job.state in _FAILED and not job.soft_failed


def readiness(needs: Sequence[str], latest: Mapping[str, JobRun], whatever: bool = False) -> Readiness:
    """Whether a job may go on, given the last attempts at the slots that it needs.

    With `whatever` it goes on however they ended, as a wait step does that continues on failure.
    """
    jobs = [latest[need] for need in needs]
    states = {job.state for job in jobs}
    if whatever:
        return "waiting" if states & ACTIVE_JOB else "ready"
    if states & _BARS_THE_WAY or (states & _FAILED and any(map(failed, jobs))):
        return "barred"
    return "ready" if states <= _OPENS_THE_WAY else "waiting"


def is_blocked(build: BuildRun) -> bool:
    """Whether a build can only go on when someone unblocks it."""
    states = {job.state for job in build.jobs if job.retried_in is None}
    return "blocked" in states and not states & _BUSY


def is_over(build: BuildRun) -> bool:
    """Whether nothing more happens to a build unless someone reopens it."""
    return build.state in OVER and not build.blocked


def build_state(build: BuildRun) -> BuildState:
    """The state of a build that follows from its jobs; of a blocked one, what its finished jobs make."""
    if build.ended is not None:
        return build.ended
    last = [job for job in build.jobs if job.retried_in is None]
    states = {job.state for job in last}
    active = bool(states & ACTIVE_JOB) and not is_blocked(build)
    if build.cancel_reason is not None:
        return "canceling" if active else "canceled"
    if build.pending:
        return "scheduled"
    if states & _FAILED and any(map(failed, last)):
        return "failing" if active else "failed"
    if not active:
        return "passed"
    return "running" if build.started is not None or "unblocked" in states else "scheduled"


def has_first_jobs(plan: Plan, branch: str) -> bool:
    """Whether a build of a plan has jobs that can be scheduled at once: until they start, so is the build."""
    steps = [plan.slots[slot].step for slot in plan.first() if not plan.needs.get(slot)]
    return any(step.kind in ("script", "trigger") and left_out(step, branch) is None for step in steps)


def left_out(step: Step, branch: str) -> Literal["broken", "skipped"] | None:
    """The state of a step's jobs where the step does not run."""
    if not matches(step.branches, branch):
        return "broken"
    return "skipped" if step.skip else None


def runs_nothing(plan: Plan, branch: str) -> bool:
    """Whether the branch filters of the steps leave nothing of a plan to run."""
    steps = [step for step in plan.steps if step.kind != "waiter"]
    return not any(matches(step.branches, branch) for step in steps)


def retries_itself(was_lost: bool, lost_before: int, failed_before: int, allowed: int) -> bool:
    """Whether a failed attempt is repeated at once: always after a lost agent, else as the step allows."""
    return lost_before < _LOST_RETRIES if was_lost else failed_before < allowed


def can_be_retried(build: BuildRun, job: JobRun) -> bool:
    """Whether someone can repeat a job by hand."""
    return build.cancel_reason is None and job.state in _FAILED and job.retried_in is None


Place = tuple[int, int, int, int]


def place_in_line(priority: int, build: BuildRun, job: JobRun) -> Place:
    """Sorts waiting jobs: higher priority first, then who could run first."""
    assert job.runnable is not None
    return -priority, job.runnable, build.seq, build.jobs.index(job)


def superseded(build: BuildRun, earlier: Iterable[BuildRun]) -> list[BuildRun]:
    """The earlier builds under way that a new one of the same branch makes needless."""
    return [
        other
        for other in earlier
        if other.line == build.line
        and other.commit.branch == build.commit.branch
        and other.seq < build.seq
        and other.state in CANCELABLE
    ]


def matches(pattern: str | None, branch: str) -> bool:
    """Whether a branch filter lets a branch through.

    A filter is patterns with spaces between, in which `*` stands for anything. A pattern after `!` keeps out what it
    matches; with none but such ones everything else is let through. No filter lets everything through.
    """
    if not pattern:
        return True
    patterns = pattern.split()
    wanted = [one for one in patterns if not one.startswith("!")]
    if any(_globs(one[1:], branch) for one in patterns if one.startswith("!")):
        return False
    return not wanted or any(_globs(one, branch) for one in wanted)


def _globs(pattern: str, text: str) -> bool:
    """Whether a pattern, in which only `*` has a meaning, matches a whole text."""
    first, *others = pattern.split("*")
    if not others:
        return pattern == text
    *middle, last = others
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    place, end = len(first), len(text) - len(last)
    for part in middle:
        place = text.find(part, place, end) + len(part)
        if place < len(part):
            return False
    return True
