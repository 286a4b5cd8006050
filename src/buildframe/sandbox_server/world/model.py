"""The fixed description of a world: organizations, pipelines, queues and planted anomalies.

A `World` is created and stored once per sandbox. What happens in it is the concern of the simulator.
"""

from __future__ import annotations

import datetime as dt
import math
from importlib import resources
from typing import Literal

import msgspec

from buildframe.errors import BadInput
from buildframe.sandbox_server.world import work_hours
from buildframe.sandbox_server.world.ground_truth import BrokenBranch, FlakyStep, ShortQueue, SlowerStep, Truth
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord
from buildframe.sandbox_server.world.steps import Plan
from buildframe.spec import AccessLevel, Moment

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


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    """An organization: its people, teams, pipelines and test suites, and the number of agents in each queue."""

    slug: str
    name: str
    share: float
    people: tuple[Person, ...]
    teams: tuple[TeamBlueprint, ...]
    suites: tuple[Suite, ...]
    pipelines: tuple[PipelineRecord, ...]
    agents: dict[str, int] = {}
    has_cluster: bool = True


ORGANIZATIONS = msgspec.json.decode(
    resources.files("buildframe.sandbox_server.world").joinpath("catalog.json").read_bytes(),
    type=tuple[Organization, ...],
)
"""The organizations of every sandbox. Their agents and the rates of their pushes depend on the number of builds."""


class World(msgspec.Struct, frozen=True, kw_only=True):
    """The seed, the time range of the history, the organizations and the planted anomalies."""

    seed: int
    start: int
    until: int
    organizations: tuple[Organization, ...]
    truth: Truth

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
        return msgspec.json.decode(data, type=cls, dec_hook=lambda _, us: Moment.from_us(us))


def make_world(seed: int, builds: int, days: int, until: Moment) -> World:
    """Create a world whose history up to `until` has about `builds` builds."""
    last = until - dt.timedelta(microseconds=1)
    midnight = dt.datetime(last.year, last.month, last.day, tzinfo=dt.UTC)
    start = Moment.of(midnight - dt.timedelta(days=days - 1)).us
    scaled = tuple(_scale_organization(each, builds, start, until.us) for each in ORGANIZATIONS)
    return World(seed=seed, start=start, until=until.us, organizations=scaled, truth=_plant(scaled[0], start, until.us))


def _scale_organization(organization: Organization, builds: int, start: int, until: int) -> Organization:
    hours = work_hours.busy_hours(start, until)
    pipelines = tuple(
        msgspec.structs.replace(pipeline, pushes_per_hour=builds * organization.share * pipeline.share / hours)
        for pipeline in organization.pipelines
    )
    organization = msgspec.structs.replace(organization, pipelines=pipelines)
    return msgspec.structs.replace(organization, agents=_agents(organization))


SHORT_QUEUE = "macos"


def agent_names(queue: str, count: int) -> list[str]:
    """Return the names of a queue's agents."""
    return [f"{queue}-{number:02d}" for number in range(1, count + 1)]


def queue_of_agent(name: str) -> str:
    """Return the queue of an agent, by the agent's name."""
    return name.rsplit("-", 1)[0]


def agent_tags(queue: str) -> list[str]:
    """Return the tags of a queue's agents. Query rules of steps match them."""
    return [f"queue={queue}", f"os={'darwin' if queue == SHORT_QUEUE else 'linux'}"]


def _agents(organization: Organization) -> dict[str, int]:
    """Return enough agents for the busiest hours in every queue except `SHORT_QUEUE`."""
    counts = {}
    for queue in sorted({step.queue for pipeline in organization.pipelines for step in pipeline.steps}):
        load = sum(_load(pipeline, queue) for pipeline in organization.pipelines)
        short = queue == SHORT_QUEUE
        counts[queue] = max(1, round(load / 1.12)) if short else math.ceil(load + 2.2 * math.sqrt(load)) + 1
    return counts


def _load(pipeline: PipelineRecord, queue: str) -> float:
    """Return how many agents of a queue a pipeline occupies in the busiest hours."""
    seconds = sum(
        slot.step.seconds * (pipeline.main_share if slot.step.branches else 1.0)
        for slot in Plan(pipeline.steps).slots.values()
        if slot.step.kind == "script" and slot.step.queue == queue
    )
    return pipeline.pushes_per_hour * seconds * 1.05 / 3600


def _plant(organization: Organization, start: int, until: int) -> Truth:
    slug = organization.slug
    broken = work_hours.working_day(start + (until - start) * 2 // 5)
    slower = work_hours.working_day(start + (until - start) * 3 // 5)
    since, repaired = broken + 9 * 3600 * SECOND, broken + 15 * 3600 * SECOND
    if max(repaired, slower) > until:
        raise BadInput(
            "days: the history is too short to contain a working day for the planted anomalies. Use more days."
        )
    return Truth(
        slower_step=SlowerStep(slug, "api", "integration", Moment.from_us(slower), 1.6),
        flaky_step=FlakyStep(slug, "web", "e2e", 0.12),
        short_queue=ShortQueue(slug, SHORT_QUEUE, organization.agents[SHORT_QUEUE]),
        broken_branch=BrokenBranch(
            slug, "web", "main", "unit-checkout", Moment.from_us(since), Moment.from_us(repaired)
        ),
    )
