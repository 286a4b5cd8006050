"""The fixed description of a world: organizations, pipelines, queues and planted anomalies.

A `World` is created once per sandbox, by `creation`, and stored. What happens in it is the concern of the simulator.
"""

from __future__ import annotations

import functools
import re
from typing import Literal

import msgspec

from buildframe.errors import BadInput
from buildframe.sandbox_server.data_files import data_file
from buildframe.sandbox_server.world import work_hours
from buildframe.sandbox_server.world.ground_truth import Truth
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord
from buildframe.spec import AccessLevel, Moment
from buildframe.spec.decoders import decoder_of

SECOND = 1_000_000
DAY = 86_400 * SECOND


class Person(msgspec.Struct, frozen=True):
    """A member of an organization."""

    name: str
    email: str


class TeamBlueprint(msgspec.Struct, frozen=True):
    """A team of a new world, and its access level to each pipeline by slug; `*` means all others."""

    name: str
    description: str
    levels: dict[str, AccessLevel]


class Suite(msgspec.Struct, frozen=True):
    """A test suite: its pipeline, the team that owns it, and how many of its tests ever flake."""

    slug: str
    language: Literal["ruby", "javascript", "python", "go"]
    pipeline: str
    team: str
    tests: int


HOURS_A_WEEK = 168


class AgentSchedule(msgspec.Struct, frozen=True):
    """The agents of a queue.

    `counts` has one number of agents, or one for each hour of the week from Monday 00:00 UTC. `boot_s` is the median
    boot time of agents that run one job each; None: agents run any number of jobs.
    """

    counts: tuple[int, ...]
    boot_s: float | None = None

    def count_at(self, timestamp: int) -> int:
        """Return the number of agents in the hour of a timestamp."""
        return self.counts[work_hours.hour_of_week(timestamp) if len(self.counts) == HOURS_A_WEEK else 0]


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    """An organization: its people, teams, pipelines, test suites and agents.

    `agents` has the largest number of agents of each queue at a time. `fleets` has the queues whose agents are not
    always the same: their number depends on the hour, or they run one job each.
    """

    slug: str
    name: str
    share: float
    people: tuple[Person, ...]
    teams: tuple[TeamBlueprint, ...]
    suites: tuple[Suite, ...]
    pipelines: tuple[PipelineRecord, ...]
    agents: dict[str, int] = {}
    fleets: dict[str, AgentSchedule] = {}
    has_cluster: bool = True

    def get_fleet(self, queue: str) -> AgentSchedule:
        """Return the agents of a queue: none if the organization has no such queue."""
        return self.fleets.get(queue, AgentSchedule((self.agents.get(queue, 0),)))


ORGANIZATIONS = decoder_of(tuple[Organization, ...]).decode(data_file("world/catalog.json").read_bytes())
"""The organizations of every sandbox. Their agents and the rates of their pushes depend on the number of builds."""


WorldKind = Literal["plain", "odd"]
"""`odd` responds also with old formats, records of unusual shape and hostile texts."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The seed, the time range of the history, the organizations and the planted anomalies.

    `run_scale` multiplies the run times of steps, by step key. Responses depend on `kind`; what
    happens does not. `fork_share` is the share of pushes to branches that come from forks, and
    `no_end_share` that of canceled jobs without `finished_at`.
    """

    seed: int
    start: int
    until: int
    organizations: tuple[Organization, ...]
    truth: Truth
    run_scale: dict[str, float] = {}
    kind: WorldKind = "odd"  # of files that earlier versions made
    fork_share: float = 0.0
    no_end_share: float = 0.0

    @property
    def is_odd(self) -> bool:
        """Whether the world shows old formats, unusual shapes and hostile texts."""
        return self.kind == "odd"

    def get_organization(self, slug: str) -> Organization:
        """Return the organization with a slug. Raises `BadInput` if there is none."""
        by_slug = {organization.slug: organization for organization in self.organizations}
        if slug not in by_slug:
            raise BadInput(f"organization={slug!r} does not exist. Use one of: {', '.join(by_slug)}.")
        return by_slug[slug]

    def encode(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=lambda timestamp: timestamp.us)

    @classmethod
    def decode(cls, data: bytes) -> World:
        return decoder_of(cls, dec_hook=_from_us).decode(data)


def _from_us(_: type, us: int) -> Moment:
    return Moment.from_us(us)


MACOS = "macos"

_AGENT = re.compile(r"(?P<queue>.+?)-(?P<number>\d{2,})(-[0-9a-f]{8})?")


def agent_names(queue: str, count: int) -> list[str]:
    """Return the names of a queue's agents."""
    return [f"{queue}-{number:02d}" for number in range(1, count + 1)]


def one_job_agent(machine: str, job: str) -> str:
    """Return the name of an agent that runs one job on a machine."""
    return f"{machine}-{job[:8]}"


@functools.lru_cache(1000)  # each job starts and ends on an agent
def machine_of_agent(name: str) -> str:
    """Return the machine of an agent: itself, unless it runs one job only."""
    return "-".join(_match_agent(name).group("queue", "number"))


def queue_of_agent(name: str) -> str:
    """Return the queue of an agent, by the agent's name."""
    return _match_agent(name)["queue"]


def _match_agent(name: str) -> re.Match[str]:
    match = _AGENT.fullmatch(name)
    assert match is not None
    return match


def agent_tags(queue: str) -> list[str]:
    """Return the tags of a queue's agents. Query rules of steps match them."""
    return [f"queue={queue}", f"os={'darwin' if queue == MACOS else 'linux'}"]
