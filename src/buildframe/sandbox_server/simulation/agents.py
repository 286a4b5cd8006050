"""Queues: their agents and the jobs that wait for them. Does not know why a job waits."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from buildframe.sandbox_server.simulation.rules import QueuePosition
from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.model import Organization, agent_names, agent_tags
from buildframe.sandbox_server.world.steps import PipelineStep

QueueKey = tuple[str, str]


def queue_of_step(step: PipelineStep) -> str:
    """Return the queue of a step's jobs: its own, or one without agents if no agent meets its query rules."""
    unmet = [rule for rule in step.agent_query_rules if rule not in agent_tags(step.queue)]
    return " ".join([step.queue, *unmet])


@dataclass
class AgentQueue:
    """The idle agents and the waiting jobs of one queue."""

    idle: list[str] = field(default_factory=list)
    jobs: list[tuple[QueuePosition, str, str]] = field(default_factory=list)


class AgentPool:
    """The queues of all organizations. A queue that is not configured has no agents."""

    def __init__(self, organizations: tuple[Organization, ...], random: SeededRandom) -> None:
        self._random = random
        self._queues: defaultdict[QueueKey, AgentQueue] = defaultdict(AgentQueue)
        for organization in organizations:
            for queue, count in organization.agents.items():
                self._queues[organization.slug, queue] = AgentQueue(agent_names(queue, count))

    def enqueue(self, queue: QueueKey, position: QueuePosition, build: str, job: str) -> None:
        """Add a waiting job."""
        heapq.heappush(self._queues[queue].jobs, (position, build, job))

    def assignable_jobs(self, queue: QueueKey) -> Iterator[tuple[str, str]]:
        """Remove and yield (build, job) by position while an agent is idle."""
        pool = self._queues[queue]
        while pool.idle and pool.jobs:
            _, build, job = heapq.heappop(pool.jobs)
            yield build, job

    def take(self, queue: QueueKey, job: str) -> str:
        """Remove and return a random idle agent for a job."""
        idle = self._queues[queue].idle
        return idle.pop(int(self._random.uniform(job, "agent") * len(idle)))

    def release(self, queue: QueueKey, agent: str) -> None:
        """Return an agent to the idle ones."""
        insort(self._queues[queue].idle, agent)

    def occupy(self, queue: QueueKey, agent: str) -> None:
        """Mark an agent as busy, when a stored sandbox is opened again."""
        self._queues[queue].idle.remove(agent)
