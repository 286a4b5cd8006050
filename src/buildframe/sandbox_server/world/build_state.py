"""State of builds and jobs in the simulation. Timestamps are microseconds since 1970."""

from __future__ import annotations

from typing import Literal

import msgspec

from buildframe.spec.builds import AGENT_STATES, ENDED_STATES

JobState = Literal[
    "waiting", "waiting_failed", "blocked", "unblocked", "scheduled", "assigned", "running", "canceling", "passed",
    "failed", "timed_out", "canceled", "broken", "skipped",
]  # fmt: skip
BuildState = Literal[
    "scheduled", "running", "failing", "passed", "failed", "canceling", "canceled", "skipped", "not_run"
]

_ENDED_STATES = frozenset(ENDED_STATES)
ACTIVE_JOB_STATES = AGENT_STATES | {"scheduled", "waiting", "blocked"}


class ScheduledEvent(msgspec.Struct, frozen=True, order=True, gc=False):
    """An event of the simulation. `seq` orders simultaneous events; `about[0]` is a build, a pipeline or a queue."""

    at: int
    seq: int
    kind: str
    about: tuple[str, ...]


class TokenUser(msgspec.Struct, frozen=True):
    """A user who is no member of an organization, such as the user of a token."""

    id: str
    name: str
    email: str
    created: int


Actor = int | TokenUser
"""A member, by the index among the people of the organization, or any other user."""


class PullRequestInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pull request of a commit. `repository` is None for the repository of the pipeline."""

    id: int
    base: str
    repository: str | None = None
    labels: tuple[str, ...] = ()


class Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    """The input of a build. `author` is a name with an e-mail address, or only a name."""

    sha: str
    branch: str
    message: str
    source: str
    creator: Actor | None = None
    author: tuple[str, str] | str | None = None
    env: dict[str, str] = {}
    meta_data: dict[str, str] = {}
    tag: str | None = None
    clean_checkout: bool = False
    pull_request: PullRequestInfo | None = None


class BuildLink(msgspec.Struct, frozen=True):
    """A reference to a build."""

    pipeline_key: str
    id: str
    number: int


class TriggerCause(msgspec.Struct, frozen=True):
    """The trigger job that created a build.

    `depth` counts the trigger jobs in a chain before the build. `root` is the id of the first build of the chain.
    """

    build: BuildLink
    job: str
    depth: int
    root: str


AGENT_LOST = "agent_lost"
"""`signal_reason` of a job whose agent was lost.

Responses have null there, and the exit status -1.
"""


class JobRun(msgspec.Struct, omit_defaults=True, gc=False):
    """One attempt at one slot of the build's plan; `step` is the id of the slot.

    `retry_type` is the kind of retry that made this attempt, which the response has in
    `retry_source`.

    Without `gc` the garbage collector does not visit jobs, which belong to no cycle.
    """

    id: str
    step: str
    attempt: int
    state: JobState
    created: int
    runnable: int | None = None
    started: int | None = None
    finished: int | None = None
    agent: str | None = None
    exit_status: int | None = None
    signal_reason: str | None = None
    soft_failed: bool = False
    retry_type: Literal["automatic", "manual"] | None = None
    retry_of: str | None = None
    retried_in: str | None = None
    retried_by: Actor | None = None
    unblocked_by: Actor | None = None
    unblocked_at: int | None = None
    triggered: BuildLink | None = None

    @property
    def is_active(self) -> bool:
        """Whether the job has not ended."""
        return self.state in ACTIVE_JOB_STATES


class BuildRun(msgspec.Struct, omit_defaults=True):
    """One run of a pipeline, by the plan that the pipeline had when the build was created.

    `is_requested`: created by a request, not by the scenario, so that simulated people do not act on it. `pending`:
    not started yet, so its jobs do not advance. `ended` is set if the end does not follow from the jobs.
    `n_triggered` counts the builds that trigger jobs created in this chain; only the root of the chain counts.
    `n_rebuilt` counts the rebuilds.
    """

    seq: int
    id: str
    pipeline_key: str
    plan: str
    number: int
    state: BuildState
    commit: Commit
    created: int
    started: int | None = None
    failing: int | None = None
    finished: int | None = None
    blocked: bool = False
    reopened: bool = False
    restarts: bool = False  # reopened, and the job repeated has not started yet
    is_requested: bool = False
    pending: bool = False
    ended: Literal["skipped", "not_run"] | None = None
    cancel_reason: str | None = None
    rebuilt_from: tuple[str, int] | None = None
    triggered_from: TriggerCause | None = None
    n_triggered: int = 0
    n_rebuilt: int = 0
    jobs: list[JobRun] = []

    @property
    def is_over(self) -> bool:
        """Whether the build has ended; only a manual retry reopens it."""
        return self.state in _ENDED_STATES and not self.blocked

    def job(self, id: str) -> JobRun:
        """Return a job by its id."""
        for job in self.jobs:  # half the time of a generator
            if job.id == id:
                return job
        raise LookupError(id)

    def latest(self) -> dict[str, JobRun]:
        """Return the latest attempt at each slot."""
        return {job.step: job for job in self.jobs if job.retried_in is None}

    def link(self) -> BuildLink:
        """Return a reference to the build."""
        return BuildLink(self.pipeline_key, self.id, self.number)
