"""The agents of one queue in the simulation, and the jobs that wait for one. Does not know builds."""

from __future__ import annotations

from bisect import insort

from buildframe.sandbox_server.simulation.rules import QueuePosition
from buildframe.sandbox_server.world import work_hours
from buildframe.sandbox_server.world.model import AgentSchedule, agent_names


class AgentQueue:
    """The machines of one queue, of which each runs one job at a time, and the jobs that wait for one.

    `idle` has the machines without a job, sorted; `jobs` is a heap of position, build and job. A fleet whose size
    depends on the hour grows at once. If it shrinks, busy machines finish their job.
    """

    def __init__(self, name: str, fleet: AgentSchedule, now: int) -> None:
        self._name, self.fleet = name, fleet
        self._busy: set[str] = set()
        self.jobs: list[tuple[QueuePosition, str, str]] = []
        self.resize(now)

    def resize(self, now: int) -> None:
        """Set the number of machines to that of the current hour."""
        self._connected = set(agent_names(self._name, self.fleet.count_at(now)))
        self.idle = sorted(self._connected - self._busy)

    def next_resize(self, now: int) -> int | None:
        """Return the time until the number of machines changes next; None if it never does."""
        hours, count = work_hours.next_hours(now), self.fleet.count_at(now)
        return next((hour - now for hour in hours if self.fleet.count_at(hour) != count), None)

    def occupy(self, machine: str) -> None:
        """Mark a machine as busy."""
        self._busy.add(machine)
        if machine in self.idle:
            self.idle.remove(machine)

    def free(self, machine: str) -> None:
        """Mark a machine as idle, unless the queue has become smaller meanwhile."""
        self._busy.remove(machine)
        if machine in self._connected:
            insort(self.idle, machine)
