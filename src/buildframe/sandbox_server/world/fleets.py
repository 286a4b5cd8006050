"""Agents and step speeds that a caller chooses instead of the default ones. Does not know how they are simulated."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_fields
from buildframe.sandbox_server.world import work_hours
from buildframe.sandbox_server.world.model import HOURS_A_WEEK, ORGANIZATIONS, AgentSchedule
from buildframe.sandbox_server.world.steps import PipelineStep
from buildframe.spec.times import parse_duration
from buildframe.terminal import nearest, show

MAX_AGENTS = 1000
"""Maximum number of agents of a queue."""

MAX_SCALE = 100
"""Maximum factor of run times."""

_MAX_BOOT_S = 3600


@checked_fields
@dataclass(frozen=True)
class EphemeralAgents:
    """
    Agents that run one job each: every job gets a new agent, which boots first.

    Parameters
    ----------
    count : int or sequence of int
        Maximum number of agents at a time, from 1 to 1000; or one number for each hour of the week, see `sandbox`.
    boot : str or timedelta, default "45s"
        Median boot time, from 0 to an hour. Boot times vary by about 18 %.

    Raises
    ------
    BadInput
        If a value is out of range.

    Notes
    -----
    A job is assigned to its agent before the boot, so its queue time contains the boot time. The name of an agent
    is that of its machine and a part of the job's id, such as `macos-03-1f2e3d4c`.

    Examples
    --------
    >>> EphemeralAgents(8, boot="2m")
    EphemeralAgents(count=8, boot='2m')
    """

    count: int | Sequence[int]
    boot: str | dt.timedelta = "45s"

    def __post_init__(self) -> None:
        _check_count("count", self.count)
        if self.boot_s > _MAX_BOOT_S:
            raise BadInput(f"boot={show(self.boot)} must be at most an hour.")

    @property
    def boot_s(self) -> float:
        """Median boot time in seconds."""
        return parse_duration(self.boot, "boot").total_seconds()


Agents: TypeAlias = int | Sequence[int] | EphemeralAgents
"""Agents of a queue: a number, one number for each hour of the week, or agents that run one job each."""


def check_agents(agents: Mapping[str, Agents]) -> dict[str, AgentSchedule]:
    """Return the fleet of each queue. Raises `BadInput` if no organization has a queue, or a number is invalid."""
    _check_names("agents", "queue", agents, {step.queue for step in _script_steps()})
    return {queue: _fleet(f"agents[{queue!r}]", chosen) for queue, chosen in agents.items()}


def check_run_scale(run_scale: Mapping[str, float]) -> dict[str, float]:
    """Return the factor of each step key. Raises `BadInput` if no pipeline has a step, or a factor is invalid."""
    _check_names("run_scale", "step", run_scale, {step.key for step in _script_steps()})
    for key, factor in run_scale.items():
        if not 0 < factor <= MAX_SCALE:
            raise BadInput(
                f"run_scale[{key!r}]={factor} must be above 0 and at most {MAX_SCALE}. 0.5 halves run times."
            )
    return {key: float(factor) for key, factor in run_scale.items()}


def agents_in_busy_hours(fleet: AgentSchedule) -> int:
    """Return the smallest number of agents in the busiest hours of the week."""
    return min(fleet.count_at(hour) for hour in work_hours.next_hours(0) if work_hours.activity(hour) == 1)


def _script_steps() -> Iterator[PipelineStep]:
    for organization in ORGANIZATIONS:
        for pipeline in organization.pipelines:
            yield from (step for step in pipeline.steps if step.kind == "script")


def _fleet(name: str, chosen: Agents) -> AgentSchedule:
    if isinstance(chosen, EphemeralAgents):
        return AgentSchedule(_counts(chosen.count), chosen.boot_s)
    _check_count(name, chosen)
    return AgentSchedule(_counts(chosen))


def _counts(count: int | Sequence[int]) -> tuple[int, ...]:
    return (count,) if isinstance(count, int) else tuple(count)


def _check_count(name: str, count: int | Sequence[int]) -> None:
    """Raise BadInput unless a value is a number of agents, or one for each hour of the week."""
    if isinstance(count, int):
        if not 1 <= count <= MAX_AGENTS:
            raise BadInput(f"{name}={count} must be between 1 and {MAX_AGENTS}.")
        return
    if len(count) != HOURS_A_WEEK:
        raise BadInput(
            f"{name} has {len(count)} numbers. Pass one number of agents, or {HOURS_A_WEEK}: one for each hour of the"
            " week, from Monday 00:00 UTC."
        )
    for hour, one in enumerate(count):
        if not 0 <= one <= MAX_AGENTS:
            raise BadInput(f"{name}[{hour}]={one} must be between 0 and {MAX_AGENTS}.")
    if not any(count):
        raise BadInput(f"{name} has no agents in any hour. Pass a number above 0 for at least one hour.")


def _check_names(argument: str, kind: str, names: Iterable[str], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise BadInput(f"{argument}: there is no {kind} {show(name)}.{nearest(name, sorted(known))}")
