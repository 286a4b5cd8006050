"""The anomalies planted in the history of a sandbox, to verify an analysis against."""

from __future__ import annotations

from dataclasses import dataclass

from buildframe.spec import Moment


@dataclass(frozen=True)
class SlowerStep:
    """A step that takes `factor` times as long in builds created since `day`.

    Attributes
    ----------
    organization, pipeline : str
        Slugs.
    step_key : str
        Key of the step.
    day : Moment
        Start of the slowdown.
    factor : float
        Ratio of the run times after and before.
    """

    organization: str
    pipeline: str
    step_key: str
    day: Moment
    factor: float


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
    """

    organization: str
    pipeline: str
    branch: str
    step_key: str
    since: Moment
    until: Moment


@dataclass(frozen=True)
class Truth:
    """The planted anomalies of a sandbox, as `Sandbox.truth`.

    Attributes
    ----------
    slower_step : SlowerStep
        A step that became slower.
    flaky_step : FlakyStep
        A step that fails at random.
    short_queue : ShortQueue
        A queue with too few agents.
    broken_branch : BrokenBranch
        A branch that was broken for some hours.
    """

    slower_step: SlowerStep
    flaky_step: FlakyStep
    short_queue: ShortQueue
    broken_branch: BrokenBranch
