"""The rules of builds and jobs. Pure functions; they know neither the storage nor the clock."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Literal

from buildframe.sandbox_server.world.build_state import ACTIVE_JOB_STATES, BuildRun, BuildState, JobRun
from buildframe.sandbox_server.world.steps import PipelineStep, Plan
from buildframe.spec.builds import AGENT_STATES, CANCELABLE_STATES

JobEndState = Literal["passed", "failed", "timed_out", "canceled", "skipped"]
RetryType = Literal["automatic", "manual"]
Readiness = Literal["ready", "waiting", "failed"]

LOST = -1
"""Exit status of a job that was killed or whose agent was lost."""

MAX_TRIGGER_DEPTH = 10
"""Maximum depth of a chain of trigger jobs."""

MAX_TRIGGERED = 100
"""Maximum number of builds that one build triggers, directly or indirectly."""

_FAILED = frozenset({"failed", "timed_out"})
_SATISFYING = frozenset({"passed", "broken", "skipped", "unblocked"}) | _FAILED  # soft failures
_BLOCKING = frozenset({"canceled", "waiting_failed"})
_UNBLOCKED = AGENT_STATES | {"scheduled"}
_LOST_RETRIES = 2


class ActionRejected(Exception):
    """An action that the rules do not allow. The message gives the reason."""


def failed(job: JobRun) -> bool:
    """Return whether an attempt failed, not counting soft failures."""
    return job.state in _FAILED and not job.soft_failed


def readiness(needs: Sequence[str], latest: Mapping[str, JobRun], continue_on_failure: bool = False) -> Readiness:
    """Return whether a job can start, from the latest attempts at the slots that it needs.

    With `continue_on_failure` (an option of wait steps) failures of these do not matter.
    """
    states = {latest[need].state for need in needs}
    if continue_on_failure:
        return "waiting" if states & ACTIVE_JOB_STATES else "ready"
    if states & _BLOCKING or (states & _FAILED and any(failed(latest[need]) for need in needs)):
        return "failed"
    return "ready" if states <= _SATISFYING else "waiting"


def build_state(build: BuildRun) -> tuple[BuildState, bool]:
    """Return the state of a build from its jobs, and whether it waits for someone to unblock it.

    The state of a blocked build is that of its finished jobs.
    """
    if build.ended is not None:
        return build.ended, False
    states = {job.state for job in build.jobs if job.retried_in is None}
    blocked = "blocked" in states and not states & _UNBLOCKED
    active = not blocked and not states.isdisjoint(ACTIVE_JOB_STATES)
    if build.cancel_reason is not None:
        return "canceling" if active else "canceled", False
    if build.pending:
        return "scheduled", blocked
    if states & _FAILED and any(map(failed, build.latest().values())):
        return "failing" if active else "failed", blocked
    if not active:
        return "passed", blocked
    return "running" if build.started is not None or "unblocked" in states else "scheduled", blocked


def has_first_jobs(plan: Plan, branch: str) -> bool:
    """Return whether a build has jobs that are scheduled at once. The build is `scheduled` until one of them starts."""
    steps = [plan.slots[slot].step for slot in plan.first() if not plan.needs.get(slot)]
    return any(step.kind in ("script", "trigger") and skipped_state(step, branch) is None for step in steps)


def skipped_state(step: PipelineStep, branch: str) -> Literal["broken", "skipped"] | None:
    """Return the state of the jobs of a step that does not run; None if it runs."""
    if not matches(step.branches, branch):
        return "broken"
    return "skipped" if step.skip else None


def has_no_runnable_steps(plan: Plan, branch: str) -> bool:
    """Return whether the branch filters exclude all steps of a plan."""
    steps = [step for step in plan.steps if step.kind != "waiter"]
    return not any(matches(step.branches, branch) for step in steps)


def should_retry(was_lost: bool, lost_before: int, failed_before: int, allowed: int) -> bool:
    """Return whether a failure is retried automatically: after a lost agent, or as often as the step allows."""
    return lost_before < _LOST_RETRIES if was_lost else failed_before < allowed


def can_be_retried(build: BuildRun, job: JobRun) -> bool:
    """Return whether a job can be retried manually."""
    return build.cancel_reason is None and job.state in _FAILED and job.retried_in is None


QueuePosition = tuple[int, int, int, int]


def queue_position(priority: int, build: BuildRun, job: JobRun) -> QueuePosition:
    """Return the sort key of a waiting job: higher priority first, then the longest waiting."""
    assert job.runnable is not None
    return -priority, job.runnable, build.seq, build.jobs.index(job)


def superseded(build: BuildRun, earlier: Iterable[BuildRun]) -> list[BuildRun]:
    """Return the active builds that a newer build of the same branch supersedes."""
    older = (other for other in earlier if other.pipeline_key == build.pipeline_key and other.seq < build.seq)
    of_branch = (other for other in older if other.commit.branch == build.commit.branch)
    return [other for other in of_branch if other.state in CANCELABLE_STATES]


@functools.lru_cache(10_000)  # many builds have the same branch
def matches(pattern: str | None, branch: str) -> bool:
    """Return whether a branch filter includes a branch.

    A filter is a list of patterns, separated by spaces; `*` matches any text. A pattern that begins with `!` excludes
    what it matches. A filter of exclusions only includes all other branches. An empty filter includes every branch.
    """
    if not pattern:
        return True
    patterns = pattern.split()
    included = [one for one in patterns if not one.startswith("!")]
    if any(_globs(one[1:], branch) for one in patterns if one.startswith("!")):
        return False
    return not included or any(_globs(one, branch) for one in included)


def _globs(pattern: str, text: str) -> bool:
    """Return whether a pattern matches a whole text; only `*` is special."""
    return fnmatchcase(text, re.sub(r"[?[]", r"[\g<0>]", pattern))
