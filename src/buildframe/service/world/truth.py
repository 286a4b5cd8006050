"""What was planted in a sandbox's world, so that an analysis can be checked against it."""

from __future__ import annotations

from dataclasses import dataclass

from buildframe.spec import Moment


@dataclass(frozen=True)
class SlowerStep:
    """A step that takes `factor` times as long in builds created since `day`."""

    organization: str
    pipeline: str
    step_key: str
    day: Moment
    factor: float


@dataclass(frozen=True)
class FlakyStep:
    """A step that fails at random: `rate` of its attempts, whatever the commit."""

    organization: str
    pipeline: str
    step_key: str
    rate: float


@dataclass(frozen=True)
class ShortQueue:
    """A queue with too few agents for the working day: its jobs wait longest of all queues."""

    organization: str
    queue: str
    agents: int


@dataclass(frozen=True)
class BrokenBranch:
    """A branch on which every build created at or after `since` and before `until` fails at one step."""

    organization: str
    pipeline: str
    branch: str
    step_key: str
    since: Moment
    until: Moment


@dataclass(frozen=True)
class Truth:
    """All that was planted."""

    slower_step: SlowerStep
    flaky_step: FlakyStep
    short_queue: ShortQueue
    broken_branch: BrokenBranch
