"""The anomalies planted in the history of a sandbox, to verify an analysis against."""

from __future__ import annotations

from dataclasses import dataclass

from buildframe.spec import Moment


@dataclass(frozen=True)
class SlowerStep:
    """A step that takes `factor` times as long in builds created since `at`.

    Attributes
    ----------
    organization, pipeline : str
        Slugs.
    step_key : str
        Key of the step.
    at : Moment
        Start of the slowdown.
    factor : float
        Ratio of the run times after and before.
    commit_before, commit_after : str or None
        Commits of the pipeline's last build created before `at`, and of the first created since. None if there is none.
    """

    organization: str
    pipeline: str
    step_key: str
    at: Moment
    factor: float
    commit_before: str | None = None
    commit_after: str | None = None


@dataclass(frozen=True)
class FlakyStep:
    """A step that fails at random, whatever the commit.

    Attributes
    ----------
    organization, pipeline : str
        Slugs.
    step_key : str
        Key of the step.
    rate : float
        Share of failed attempts, from 0 to 1.
    """

    organization: str
    pipeline: str
    step_key: str
    rate: float


@dataclass(frozen=True)
class UnstableTest:
    """A test that flakes often in the list of flaky tests, and is never resolved.

    Attributes
    ----------
    organization, suite : str
        Slugs.
    test_id : str
        UUID of the test.
    since : Moment
        Time of its first flake.
    per_day : float
        Mean number of flakes per day.
    """

    organization: str
    suite: str
    test_id: str
    since: Moment
    per_day: float


@dataclass(frozen=True)
class FailingStep:
    """A step that fails for a share of the commits in every attempt, early in builds whose other jobs keep running.

    Their work after the failure is wasted.

    Attributes
    ----------
    organization, pipeline : str
        Slugs.
    step_key : str
        Key of the step.
    rate : float
        Share of failing commits, from 0 to 1.
    """

    organization: str
    pipeline: str
    step_key: str
    rate: float


@dataclass(frozen=True)
class RepeatedBuilds:
    """A pipeline that builds a share of its pushes twice, within seconds.

    Attributes
    ----------
    organization, pipeline : str
        Slugs.
    share : float
        Share of pushes that are built twice, from 0 to 1.
    since, until : Moment
        Time range: pushed at or after `since` and before `until`.
    """

    organization: str
    pipeline: str
    share: float
    since: Moment
    until: Moment


@dataclass(frozen=True)
class Storm:
    """A period in which every job that starts on some agents fails, whatever the step.

    Attributes
    ----------
    organization : str
        Slug.
    queue : str
        Name of the queue.
    agents : tuple of str
        Names of the agents: all of the queue, or a part. Of agents that run one job each, the names of the machines,
        with which the names of the agents begin.
    since, until : Moment
        Time range of the affected jobs: started at or after `since` and before `until`.
    exit_status : int
        -1 if the agents are lost while they run a job; 1 if jobs fail within seconds, as on a full disk.
    """

    organization: str
    queue: str
    agents: tuple[str, ...]
    since: Moment
    until: Moment
    exit_status: int


@dataclass(frozen=True)
class ShortQueue:
    """A queue with too few agents for working hours, so that its jobs wait longest.

    Attributes
    ----------
    organization : str
        Slug.
    queue : str
        Name of the queue.
    agents : int
        Number of agents.
    """

    organization: str
    queue: str
    agents: int


@dataclass(frozen=True)
class BrokenBranch:
    """A branch on which every build fails at one step for some hours.

    Attributes
    ----------
    organization, pipeline : str
        Slugs.
    branch : str
        Name of the branch.
    step_key : str
        Key of the failing step.
    since, until : Moment
        Time range of the affected builds: created at or after `since` and before `until`.
    commit_before, commit_after : str or None
        Commits of the last build of the branch created before `since`, and of the first created since. None if there
        is none.
    """

    organization: str
    pipeline: str
    branch: str
    step_key: str
    since: Moment
    until: Moment
    commit_before: str | None = None
    commit_after: str | None = None


@dataclass(frozen=True)
class Truth:
    """The planted anomalies of a sandbox, as `Sandbox.truth`. An attribute is empty if nothing of its kind is planted.

    Attributes
    ----------
    slower_steps : tuple of SlowerStep
        Steps that became slower, in order of time. The last may be only two to eight days old.
    flaky_steps : tuple of FlakyStep
        Steps that fail at random.
    flaky_tests : tuple of UnstableTest
        Tests that flake often.
    failing_steps : tuple of FailingStep
        Steps that fail early in many builds, so that the work of other jobs is wasted.
    repeated_builds : tuple of RepeatedBuilds
        Pipelines that build commits twice.
    storms : tuple of Storm
        Periods in which agents of a queue fail.
    short_queues : tuple of ShortQueue
        Queues with too few agents.
    broken_branches : tuple of BrokenBranch
        Branches that were broken for some hours.
    """

    slower_steps: tuple[SlowerStep, ...] = ()
    flaky_steps: tuple[FlakyStep, ...] = ()
    flaky_tests: tuple[UnstableTest, ...] = ()
    failing_steps: tuple[FailingStep, ...] = ()
    repeated_builds: tuple[RepeatedBuilds, ...] = ()
    storms: tuple[Storm, ...] = ()
    short_queues: tuple[ShortQueue, ...] = ()
    broken_branches: tuple[BrokenBranch, ...] = ()
