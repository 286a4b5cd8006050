"""Create a world from its seed and size: the rates of its pushes, its agents and its planted anomalies."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Collection

import msgspec

from buildframe.sandbox_server.world import planting, work_hours
from buildframe.sandbox_server.world.model import ORGANIZATIONS, Organization, World
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord
from buildframe.sandbox_server.world.steps import Plan
from buildframe.spec import Moment


def make_world(seed: int, builds: int, days: int, until: Moment) -> World:
    """Create a world with about `builds` builds until a timestamp; the first organization has the anomalies."""
    last = until - dt.timedelta(microseconds=1)
    midnight = dt.datetime(last.year, last.month, last.day, tzinfo=dt.UTC)
    start = Moment.of(midnight - dt.timedelta(days=days - 1)).us
    first, *others = (_scale_organization(each, builds, start, until.us) for each in ORGANIZATIONS)
    first = _with_agents(first, planting.draw_short_queues(seed))
    truth = planting.plant(seed, first, start, until.us)
    organizations = (first, *(_with_agents(each) for each in others))
    return World(seed=seed, start=start, until=until.us, organizations=organizations, truth=truth)


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
