"""What the sandbox's world consists of: organizations, pipelines, steps, queues and what was planted.

A `World` is fixed when a sandbox is made and stored with it; what happens in it is the engine's.
"""

from __future__ import annotations

import datetime as dt
import math
from typing import Literal

import msgspec

from buildframe.errors import BadInput
from buildframe.service import rhythm
from buildframe.service.truth import BrokenBranch, FlakyStep, ShortQueue, SlowerStep, Truth
from buildframe.spec import Moment

UPLOAD = "upload"
"""Key of the first step of every build, which uploads the others."""

SECOND = 1_000_000
DAY = 86_400 * SECOND


class Person(msgspec.Struct, frozen=True):
    """Someone who commits."""

    name: str
    email: str


class Step(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One step of a pipeline: its configuration, and how it behaves when it runs."""

    key: str
    kind: Literal["script", "waiter"] = "script"
    label: str = ""
    command: str = ""
    needs: tuple[str, ...] = ()
    queue: str = "default"
    only_branch: str | None = None
    priority: int = 0
    retries: int = 0
    group: str | None = None
    seconds: float = 0.0


def waiter() -> Step:
    """A wait step; its key is given when the pipeline is placed in a world."""
    return Step(key="", kind="waiter")


class Pipeline(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pipeline, and how often and how it is built."""

    slug: str
    name: str
    share: float
    main_share: float
    steps: tuple[Step, ...]
    description: str | None = None
    tags: tuple[str, ...] | None = None
    default_branch: str = "main"
    visibility: str = "private"
    cancels_running: bool = False
    old: bool = False
    nightly_hour: int | None = None
    pushes_per_hour: float = 0.0


class Organization(msgspec.Struct, frozen=True, kw_only=True):
    """An organization with its people and the number of agents in each of its queues."""

    slug: str
    name: str
    share: float
    pipelines: tuple[Pipeline, ...]
    people: tuple[Person, ...]
    agents: dict[str, int] = {}


class World(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is fixed: the seed, when history starts and ends, who builds what, what was planted."""

    seed: int
    start: int
    until: int
    organizations: tuple[Organization, ...]
    truth: Truth

    def encode(self) -> bytes:
        return msgspec.json.encode(self, enc_hook=lambda moment: moment.us)

    @classmethod
    def decode(cls, data: bytes) -> World:
        return msgspec.json.decode(data, type=cls, dec_hook=lambda _, us: Moment.from_us(us))


def make_world(seed: int, builds: int, days: int, until: Moment, organizations: tuple[Organization, ...]) -> World:
    """A world whose history up to `until` holds about `builds` builds."""
    last = until - dt.timedelta(microseconds=1)
    midnight = dt.datetime(last.year, last.month, last.day, tzinfo=dt.UTC)
    start = Moment.of(midnight - dt.timedelta(days=days - 1)).us
    placed = tuple(_placed(each, builds, start, until.us) for each in organizations)
    return World(seed=seed, start=start, until=until.us, organizations=placed, truth=_plant(placed[0], start, until.us))


def _placed(organization: Organization, builds: int, start: int, until: int) -> Organization:
    hours = rhythm.full_hours(start, until)
    pipelines = tuple(_paced(each, builds * organization.share, hours) for each in organization.pipelines)
    organization = msgspec.structs.replace(organization, pipelines=pipelines)
    return msgspec.structs.replace(organization, agents=_agents(organization))


def _paced(pipeline: Pipeline, builds: float, hours: float) -> Pipeline:
    rate = builds * pipeline.share / hours
    steps = [Step(key=f"wait-{place}", kind="waiter") if step.kind == "waiter" else step
             for place, step in enumerate(pipeline.steps)]  # fmt: skip
    first = Step(key=UPLOAD, label=":pipeline: upload", command="buildframe-agent pipeline upload", seconds=7)
    return msgspec.structs.replace(pipeline, pushes_per_hour=rate, steps=(first, *steps))


SHORT_QUEUE = "macos"


def _agents(organization: Organization) -> dict[str, int]:
    """Enough agents for the busiest hours in every queue but one."""
    counts = {}
    for queue in sorted({step.queue for pipeline in organization.pipelines for step in pipeline.steps}):
        load = sum(_load(pipeline, queue) for pipeline in organization.pipelines)
        short = queue == SHORT_QUEUE
        counts[queue] = max(1, round(load / 1.12)) if short else math.ceil(load + 2.2 * math.sqrt(load)) + 1
    return counts


def _load(pipeline: Pipeline, queue: str) -> float:
    """How many agents of a queue a pipeline keeps busy in the busiest hours."""
    seconds = sum(
        step.seconds * (pipeline.main_share if step.only_branch else 1.0)
        for step in pipeline.steps
        if step.queue == queue
    )
    return pipeline.pushes_per_hour * seconds * 1.05 / 3600


def _plant(organization: Organization, start: int, until: int) -> Truth:
    slug = organization.slug
    broken = rhythm.working_day(start + (until - start) * 2 // 5)
    slower = rhythm.working_day(start + (until - start) * 3 // 5)
    if max(broken + 15 * 3600 * SECOND, slower) > until:
        raise BadInput("The history has no working day in its midst to plant something on: take more days.")
    return Truth(
        slower_step=SlowerStep(slug, "api", "integration", Moment.from_us(slower), 1.6),
        flaky_step=FlakyStep(slug, "web", "e2e", 0.12),
        short_queue=ShortQueue(slug, SHORT_QUEUE, organization.agents[SHORT_QUEUE]),
        broken_branch=BrokenBranch(
            slug,
            "web",
            "main",
            "unit-checkout",
            Moment.from_us(broken + 9 * 3600 * SECOND),
            Moment.from_us(broken + 15 * 3600 * SECOND),
        ),
    )


class Line:
    """A pipeline in its organization, with what follows from its steps worked out once."""

    def __init__(self, organization: Organization, pipeline: Pipeline) -> None:
        self.organization = organization
        self.pipeline = pipeline
        self.key = f"{organization.slug}/{pipeline.slug}"
        self.steps = {step.key: step for step in pipeline.steps}
        self.needs = requirements(pipeline)
        self.dependents = {
            key: tuple(other for other, before in self.needs.items() if key in before) for key in self.steps
        }


def requirements(pipeline: Pipeline) -> dict[str, tuple[str, ...]]:
    """For each uploaded step the steps that must be done before it.

    A wait step needs all before it; a step that names no others needs the wait step before it.
    """
    needs: dict[str, tuple[str, ...]] = {}
    barrier: tuple[str, ...] = ()
    for step in pipeline.steps[1:]:
        needs[step.key] = tuple(needs) if step.kind == "waiter" else step.needs or barrier
        if step.kind == "waiter":
            barrier = (step.key,)
    return needs


def lines_of(world: World) -> dict[str, Line]:
    """Every pipeline of a world under "organization/pipeline"."""
    lines = (Line(organization, each) for organization in world.organizations for each in organization.pipelines)
    return {line.key: line for line in lines}
