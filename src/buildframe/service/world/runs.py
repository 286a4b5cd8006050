"""The state of builds and jobs as the simulation keeps it; moments are microseconds since 1970."""

from __future__ import annotations

from typing import Literal

import msgspec

JobState = Literal[
    "waiting", "waiting_failed", "blocked", "unblocked", "scheduled", "assigned", "running", "canceling", "passed",
    "failed", "timed_out", "canceled", "broken", "skipped",
]  # fmt: skip
BuildState = Literal[
    "scheduled", "running", "failing", "passed", "failed", "canceling", "canceled", "skipped", "not_run"
]


class User(msgspec.Struct, frozen=True):
    """Someone who is not among an organization's people, such as the user of a token."""

    id: str
    name: str
    email: str
    created: int


Who = int | User
"""Someone: by the place among an organization's people, or told in full."""


class PullRequest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pull request that a commit belongs to; its repository is the pipeline's own where it is not told."""

    id: int
    base: str
    repository: str | None = None
    labels: tuple[str, ...] = ()


class Commit(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is built, for whom and with what. `author` is a name and an e-mail address, or a bare name."""

    sha: str
    branch: str
    message: str
    source: str
    creator: Who | None = None
    author: tuple[str, str] | str | None = None
    env: dict[str, str] = {}
    meta_data: dict[str, str] = {}
    tag: str | None = None
    clean_checkout: bool = False
    pull_request: PullRequest | None = None


class Link(msgspec.Struct, frozen=True):
    """A build of another pipeline, or of the same one."""

    line: str
    id: str
    number: int


class Cause(msgspec.Struct, frozen=True):
    """The trigger job that a build comes from.

    `depth` counts the trigger jobs before it, one after the other; `root` is the id of the build that began it all.
    """

    build: Link
    job: str
    depth: int
    root: str


class JobRun(msgspec.Struct, omit_defaults=True):
    """One attempt at one slot of the build's plan, whose id is `step`."""

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
    unblocked_by: Who | None = None
    unblocked_at: int | None = None
    triggered: Link | None = None


class BuildRun(msgspec.Struct, omit_defaults=True):
    """One run of a pipeline, by the plan that the pipeline had when it was created.

    `asked_for`: a request made it, not the world, whose people then leave it alone. `pending`: it has not begun yet,
    its jobs stay as they are. `ended` is told where the end does not follow from the jobs. `brought_forth` counts the
    builds that trigger jobs made because of it, directly or not, where nothing triggered it itself.
    """

    seq: int
    id: str
    line: str
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
    asked_for: bool = False
    pending: bool = False
    ended: Literal["skipped", "not_run"] | None = None
    cancel_reason: str | None = None
    rebuilt_from: tuple[str, int] | None = None
    triggered_from: Cause | None = None
    brought_forth: int = 0
    jobs: list[JobRun] = []

    def job(self, id: str) -> JobRun:
        """The job of this id."""
        return next(job for job in self.jobs if job.id == id)

    def latest(self) -> dict[str, JobRun]:
        """The last attempt at each slot."""
        return {job.step: job for job in self.jobs if job.retried_in is None}

    def link(self) -> Link:
        """How other builds tell of it."""
        return Link(self.line, self.id, self.number)
