"""Prepare two frames once, to simulate them many times: the internal interface of everything that predicts.

prepared = prepare(builds, jobs)
times = simulate(prepared.model, Changes(prepared.fleets))
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from buildframe.metrics.columns import DAY_LENGTH, Floats, Integers
from buildframe.metrics.numbered import first_of_chain
from buildframe.metrics.replaying.agents import AgentTimes, measure_agents
from buildframe.metrics.replaying.cancellation import Cancellations, find_cancellations
from buildframe.metrics.replaying.dependencies import JobNeeds, Uploads, derive, learn_edges
from buildframe.metrics.replaying.fleets import Fleet, infer_fleets
from buildframe.metrics.replaying.model import (
    BY_TRIGGER,
    FIRST,
    ReplayModel,
    build_model,
    select_builds,
)
from buildframe.metrics.replaying.record import NO_QUEUE, BuildRecord, read_record
from buildframe.metrics.step_graph import Predecessors

_HALF_HOUR = 1_800_000_000
_GAP = 2_000_000


@dataclass(frozen=True)
class PreparedReplay:
    """A record that can be simulated, with its own fleets.

    `half` is 0 or 1 for each build, by days; None if they have only one day. `blind_fleets` are
    those that the builds of each half show alone.
    """

    record: BuildRecord
    model: ReplayModel
    needs: JobNeeds
    agents: AgentTimes
    cancellations: Cancellations
    found: Predecessors
    uploads: Uploads
    fleets: list[Fleet]
    blind_fleets: list[list[Fleet]]
    half: Integers | None

    @property
    def gap_share(self) -> float:
        """Share of the jobs that were ready more than 2 s after what they waited for."""
        gaps = self.needs.gap[self.needs.is_live]
        return float((gaps > _GAP).mean()) if len(gaps) else 0.0

    @property
    def n_no_queue(self) -> int:
        """Script jobs without a known queue."""
        jobs = self.record.jobs
        return int(((jobs.kind == NO_QUEUE) & (jobs.queue < 0)).sum())

    def rows_of(self, steps: Mapping[int, float]) -> Floats:
        """Return the factor of each job in the model, by number of its step."""
        scale = np.ones(max(len(self.record.steps), 1))
        for number, factor in steps.items():
            scale[number] = factor
        return scale[self.model.jobs.step]


def prepare(builds: pd.DataFrame, jobs: pd.DataFrame) -> PreparedReplay:
    """Read, measure and infer all that simulations need; raise BadInput if the frames cannot be replayed."""
    record = read_record(builds, jobs)
    found, edges = learn_edges(record)
    uploads = Uploads(record)
    needs, releases = derive(record, found, edges, uploads)
    agents, cancellations = measure_agents(record), find_cancellations(record)
    half = _halves(record)
    inferred = infer_fleets(record, agents, half)
    model = build_model(record, needs, releases, agents, cancellations)
    fleets, blind = (
        [fleet for fleet, _ in inferred],
        [[blind[own] for _, blind in inferred] for own in (0, 1)],
    )
    return PreparedReplay(
        record,
        model,
        needs,
        agents,
        cancellations,
        found,
        uploads,
        fleets,
        blind,
        half,
    )


def _halves(record: BuildRecord) -> Integers | None:
    """Return for each build whether its day is an odd one of the days with builds; None if there is one day."""
    day, days = pd.factorize(record.builds.created // DAY_LENGTH, sort=True)
    return np.asarray(day % 2, np.int64) if len(days) > 1 else None


def with_load(model: ReplayModel, load: float, seed: int) -> ReplayModel:
    """Leave out builds at random, or copy them, so that there are `load` times as many.

    Builds that others triggered or rebuilt follow these. A copy is created within half an hour of
    its original.
    """
    if load == 1:
        return model
    root, random = _roots(model), np.random.default_rng(seed)
    n = len(root)
    times = int(load) + (random.random(n) < load % 1)
    copies = times[root]
    copy, number = np.nonzero(copies > np.arange(copies.max(initial=0))[:, None])
    shift = np.where(copy > 0, random.integers(-_HALF_HOUR, _HALF_HOUR, len(number)), 0)
    return select_builds(model, number, shift, copy)


def _roots(model: ReplayModel) -> Integers:
    """Return for each build the first one of its family."""
    builds = model.builds
    of_job = model.jobs.build[builds.of] if len(model.jobs.build) else -1
    parent = np.where(builds.cause == BY_TRIGGER, of_job, builds.of)
    return first_of_chain(np.where(builds.cause == FIRST, -1, parent))


def describe_fleets(prepared: PreparedReplay, fleets: Sequence[Fleet]) -> dict[str, Any]:
    """Return the fleet of each queue by name, and whether its agents run one job each."""
    single = prepared.agents.is_single_use.tolist()
    return {
        name: fleet.describe() | {"single_use": one}
        for name, fleet, one in zip(prepared.record.queue_labels, fleets, single, strict=True)
    }
