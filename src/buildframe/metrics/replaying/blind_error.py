"""Measure the error of a replay whose fleets, lags and dependencies are those of the other half of the days."""

from __future__ import annotations

from typing import Any

import numpy as np

from buildframe.metrics.columns import NAT, Floats, Integers, seconds_between
from buildframe.metrics.replaying.dependencies import derive, learn_edges_by_half
from buildframe.metrics.replaying.event_loop import Changes, simulate
from buildframe.metrics.replaying.model import build_model
from buildframe.metrics.replaying.prepared import PreparedReplay
from buildframe.metrics.replaying.record import AGENT

COLUMNS = (
    "of",
    "name",
    "n",
    "recorded_p50_s",
    "predicted_p50_s",
    "recorded_p95_s",
    "predicted_p95_s",
)
_MIN_FOR_P95 = 20


def blind_error(prepared: PreparedReplay, seed: int = 0) -> dict[str, list[Any]]:
    """Return recorded and predicted percentiles of the queue time of each queue, and the wall time of each pipeline.

    What happened on one half of the days is predicted from the other half. Without two days there
    are no rows.
    """
    table: dict[str, list[Any]] = {name: [] for name in COLUMNS}
    if prepared.half is None:
        return table
    waits, walls = _predict(prepared, seed)
    jobs, builds, record = prepared.record.jobs, prepared.record.builds, prepared.record
    recorded = seconds_between(jobs.ready, jobs.started)
    for queue, name in enumerate(record.queue_labels):
        chosen = (jobs.kind == AGENT) & (jobs.queue == queue)
        _add_row(table, "queue", name, recorded[chosen], waits[chosen])
    recorded = seconds_between(builds.created, builds.ended)
    for pipeline, name in enumerate(record.pipeline_labels):
        chosen = builds.pipeline == pipeline
        _add_row(table, "pipeline", name, recorded[chosen], walls[chosen])
    return table


def _predict(prepared: PreparedReplay, seed: int) -> tuple[Floats, Floats]:
    """Return the predicted queue time of each job, and the wall time of each build, in seconds; NaN if unknown."""
    record, half = prepared.record, prepared.half
    assert half is not None
    edges, random = learn_edges_by_half(record, half), np.random.default_rng(seed)
    waits, walls = np.full(len(record.jobs.row), np.nan), np.full(len(half), np.nan)
    for own in (0, 1):
        needs, releases = derive(record, prepared.found, edges[1 - own], prepared.uploads)
        model = build_model(record, needs, releases, prepared.agents, prepared.cancellations)
        lag = _lags_of_others(prepared, half[record.jobs.build] == 1 - own, random)
        times = simulate(model, Changes(prepared.blind_fleets[1 - own], lag=lag))
        of_job, of_build = half[record.jobs.build] == own, half == own
        waits[of_job] = seconds_between(times.ready, times.started)[of_job]
        walls[of_build] = times.wall_s[of_build]
    return waits, walls


def _lags_of_others(
    prepared: PreparedReplay,
    is_other: Any,
    random: np.random.Generator,
) -> Integers:
    """Return for each job the lag of a random job of its queue on the other days."""
    jobs, lag = prepared.record.jobs, prepared.agents.lag.copy()
    for queue in range(len(prepared.record.queues)):
        own = np.flatnonzero((jobs.kind == AGENT) & (jobs.queue == queue))
        others = own[is_other[own] & (jobs.started[own] != NAT)]
        if len(others):
            lag[own] = prepared.agents.lag[random.choice(others, len(own))]
    return lag


def _add_row(
    table: dict[str, list[Any]],
    of: str,
    name: str,
    recorded: Floats,
    predicted: Floats,
) -> None:
    both = ~np.isnan(recorded) & ~np.isnan(predicted)
    n = int(both.sum())
    if not n:
        return
    values: dict[str, Any] = {"of": of, "name": name, "n": n}
    for side, seconds in (("recorded", recorded[both]), ("predicted", predicted[both])):
        values[f"{side}_p50_s"] = float(np.quantile(seconds, 0.5))
        values[f"{side}_p95_s"] = float(np.quantile(seconds, 0.95)) if n >= _MIN_FOR_P95 else float("nan")
    for key, value in values.items():
        table[key].append(value)
