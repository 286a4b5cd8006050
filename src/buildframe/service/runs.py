"""The state of builds and jobs as the simulation keeps it; moments are microseconds since 1970."""

from __future__ import annotations

from typing import Literal

import msgspec

JobState = Literal[
    "waiting", "waiting_failed", "scheduled", "assigned", "running", "canceling", "passed", "failed", "canceled",
    "broken",
]  # fmt: skip
BuildState = Literal["scheduled", "running", "failing", "passed", "failed", "canceling", "canceled"]


class JobRun(msgspec.Struct, omit_defaults=True):
    """One attempt at one step."""

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
    retry_type: Literal["automatic", "manual"] | None = None
    retry_of: str | None = None
    retried_in: str | None = None


class Commit(msgspec.Struct, omit_defaults=True):
    """What is built, and for whom."""

    sha: str
    branch: str
    message: str
    source: str
    person: int
    is_member: bool = True
    pull_request: int | None = None


class BuildRun(msgspec.Struct, omit_defaults=True):
    """One run of a pipeline."""

    seq: int
    id: str
    line: str
    number: int
    state: BuildState
    commit: Commit
    created: int
    started: int | None = None
    failing: int | None = None
    finished: int | None = None
    reopened: bool = False
    restarts: bool = False  # reopened, and the job repeated has not started yet
    cancel_reason: str | None = None
    rebuilt_from: tuple[str, int] | None = None
    jobs: list[JobRun] = []

    def job(self, id: str) -> JobRun:
        """The job of this id."""
        return next(job for job in self.jobs if job.id == id)

    def latest(self) -> dict[str, JobRun]:
        """The last attempt at each step."""
        return {job.step: job for job in self.jobs if job.retried_in is None}
