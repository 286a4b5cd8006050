"""Describe the replay that predictions come from: its fleets, its steps, and how far off it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from buildframe.metrics.replaying.blind_error import blind_error
from buildframe.metrics.replaying.fleets import HOUR, Fleet
from buildframe.metrics.replaying.prepared import PreparedReplay, describe_fleets
from buildframe.metrics.replaying.record import AGENT, NO_QUEUE


def describe_replay(
    prepared: PreparedReplay,
    fleets: Sequence[Fleet] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Return the `attrs` of results that come from replays of this record, by default on its own fleets."""
    return {
        "fleet": describe_fleets(prepared, prepared.fleets if fleets is None else fleets),
        "gap_share": prepared.gap_share,
        "n_no_queue": prepared.n_no_queue,
        "error": blind_error(prepared, seed),
    }


def mean_number(prepared: PreparedReplay, fleet: Fleet) -> float:
    """Return the number of agents of a fleet, over the hours of the record."""
    if isinstance(fleet.agents, int):
        return fleet.agents
    hours = np.arange(prepared.model.start // HOUR, prepared.model.end // HOUR + 1)
    return float(fleet.at_hours(hours).mean())


def list_steps(prepared: PreparedReplay) -> list[tuple[str, str]]:
    """Return pipeline and step of all script jobs, in order."""
    jobs, steps = prepared.record.jobs, prepared.record.steps
    numbers = np.unique(jobs.step[np.isin(jobs.kind, [AGENT, NO_QUEUE])]).tolist()
    return sorted(steps[number] for number in numbers if isinstance(steps[number][1], str))
