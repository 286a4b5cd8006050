"""Create a world from its seed and size: the rates of its pushes, its agents and its planted anomalies."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

import msgspec

from buildframe.sandbox_server.world import planting, work_hours
from buildframe.sandbox_server.world.fleets import agents_in_busy_hours
from buildframe.sandbox_server.world.ground_truth import ShortQueue, Truth
from buildframe.sandbox_server.world.model import ORGANIZATIONS, AgentSchedule, Organization, World, WorldKind
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord
from buildframe.sandbox_server.world.planting import storm_agents
from buildframe.sandbox_server.world.steps import Plan
from buildframe.spec import Moment


def make_world(
    seed: int,
    builds: int,
    days: int,
    until: Moment,
    fleets: Mapping[str, AgentSchedule] = MappingProxyType({}),
    run_scale: Mapping[str, float] = MappingProxyType({}),
    kind: WorldKind = "plain",
    fork_share: float = 0.0,
    no_end_share: float = 0.0,
) -> World:
    """Create a world with about `builds` builds until a timestamp; the first organization has the anomalies.

    `fleets` replaces the agents of queues. Anomalies are drawn for the default agents, so others do not change them.
    """
    last = until - dt.timedelta(microseconds=1)
    midnight = dt.datetime(last.year, last.month, last.day, tzinfo=dt.UTC)
    start = Moment.of(midnight - dt.timedelta(days=days - 1)).us
    first, *others = (_scale_organization(each, builds, start, until.us) for each in ORGANIZATIONS)
    first = _with_agents(first, planting.draw_short_queues(seed))
    truth = planting.plant(seed, first, start, until.us)
    changed = _with_fleets(first, fleets)
    return World(
        seed=seed,
        start=start,
        until=until.us,
        organizations=(changed, *(_with_fleets(_with_agents(each), fleets) for each in others)),
        truth=_truth_with_fleets(truth, first, changed, fleets),
        run_scale=dict(run_scale),
        kind=kind,
        fork_share=fork_share,
        no_end_share=no_end_share,
    )


def _with_fleets(organization: Organization, fleets: Mapping[str, AgentSchedule]) -> Organization:
    own = {queue: fleet for queue, fleet in fleets.items() if queue in organization.agents}
    agents = organization.agents | {queue: max(fleet.counts) for queue, fleet in own.items()}
    changing = {queue: fleet for queue, fleet in own.items() if len(fleet.counts) > 1 or fleet.boot_s is not None}
    return msgspec.structs.replace(organization, agents=agents, fleets=changing)


def _truth_with_fleets(
    truth: Truth, default: Organization, changed: Organization, fleets: Mapping[str, AgentSchedule]
) -> Truth:
    """Return the anomalies with other agents: which queues are short, and which agents fail in storms."""
    short = [queue for queue in truth.short_queues if queue.queue not in fleets]
    for queue, fleet in fleets.items():
        count = agents_in_busy_hours(fleet)
        if count < sum(_load(pipeline, queue) for pipeline in default.pipelines):
            short.append(ShortQueue(default.slug, queue, count))
    storms = [
        replace(storm, agents=storm_agents(storm.queue, changed, len(storm.agents) == default.agents[storm.queue]))
        for storm in truth.storms
    ]
    return replace(truth, short_queues=tuple(short), storms=tuple(storms))


def _scale_organization(organization: Organization, builds: int, start: int, until: int) -> Organization:
    hours = work_hours.busy_hours(start, until)
    pipelines = tuple(
        msgspec.structs.replace(pipeline, pushes_per_hour=builds * organization.share * pipeline.share / hours)
        for pipeline in organization.pipelines
    )
    return msgspec.structs.replace(organization, pipelines=pipelines)


def _with_agents(organization: Organization, short_queues: Collection[str] = ()) -> Organization:
    """Return an organization with enough agents for the busiest hours in every queue except the short ones."""
    counts = {}
    for queue in sorted({step.queue for pipeline in organization.pipelines for step in pipeline.steps}):
        load = sum(_load(pipeline, queue) for pipeline in organization.pipelines)
        enough = math.ceil(load + 2.2 * math.sqrt(load)) + 1
        counts[queue] = max(1, round(load / 1.12)) if queue in short_queues else enough
    return msgspec.structs.replace(organization, agents=counts)


def _load(pipeline: PipelineRecord, queue: str) -> float:
    """Return how many agents of a queue a pipeline occupies in the busiest hours."""
    seconds = sum(
        slot.step.seconds * (pipeline.main_share if slot.step.branches else 1.0)
        for slot in Plan(pipeline.steps).slots.values()
        if slot.step.kind == "script" and slot.step.queue == queue
    )
    return pipeline.pushes_per_hour * seconds * 1.05 / 3600
