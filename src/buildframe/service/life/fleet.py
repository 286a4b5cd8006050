"""The agents of every queue and the jobs that wait for them."""

from __future__ import annotations

import heapq
from bisect import insort
from collections import defaultdict
from collections.abc import Iterator

from buildframe.service.life.rules import Place
from buildframe.service.world.chance import Chance
from buildframe.service.world.model import SHORT_QUEUE, Organization
from buildframe.service.world.steps import Step

QueueKey = tuple[str, str]


def agent_names(queue: str, count: int) -> list[str]:
    """The names of a queue's agents."""
    return [f"{queue}-{number:02d}" for number in range(1, count + 1)]


def queue_of_agent(name: str) -> str:
    """The queue that an agent of this name serves."""
    return name.rsplit("-", 1)[0]


def tags_of(queue: str) -> list[str]:
    """What the agents of a queue say of themselves; steps may ask for it."""
    return [f"queue={queue}", f"os={'darwin' if queue == SHORT_QUEUE else 'linux'}"]


def queue_for(step: Step) -> str:
    """Where a step's jobs wait: its queue, or a place without agents if those of the queue are not as it asks."""
    unmet = [rule for rule in step.agent_query_rules if rule not in tags_of(step.queue)]
    return " ".join([step.queue, *unmet])


class Queue:
    """One queue: its idle agents, and the jobs in line for them."""

    def __init__(self, agents: list[str] | None = None) -> None:
        self.idle = agents or []
        self.line: list[tuple[Place, str, str]] = []


class Fleet:
    """All queues of all organizations; a queue that nobody serves has no agents."""

    def __init__(self, organizations: tuple[Organization, ...], chance: Chance) -> None:
        self._chance = chance
        self._queues: defaultdict[QueueKey, Queue] = defaultdict(Queue)
        for organization in organizations:
            for queue, count in organization.agents.items():
                self._queues[organization.slug, queue] = Queue(agent_names(queue, count))

    def enqueue(self, queue: QueueKey, place: Place, build: str, job: str) -> None:
        """Put a job in line."""
        heapq.heappush(self._queues[queue].line, (place, build, job))

    def next_in_line(self, queue: QueueKey) -> Iterator[tuple[str, str]]:
        """Take jobs (build, job) out of the line, first come first, while an agent is idle."""
        here = self._queues[queue]
        while here.idle and here.line:
            _, build, job = heapq.heappop(here.line)
            yield build, job

    def take(self, queue: QueueKey, job: str) -> str:
        """Some idle agent, for a job."""
        idle = self._queues[queue].idle
        return idle.pop(int(self._chance.number(job, "agent") * len(idle)))

    def give_back(self, queue: QueueKey, agent: str) -> None:
        """An agent is idle again."""
        insort(self._queues[queue].idle, agent)

    def occupy(self, queue: QueueKey, agent: str) -> None:
        """An agent is not idle (told anew after reopening)."""
        self._queues[queue].idle.remove(agent)

    def waiting(self) -> set[str]:
        """The ids of the jobs in line."""
        return {job for queue in self._queues.values() for _, _, job in queue.line}
