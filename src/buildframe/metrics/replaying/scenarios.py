"""Replay a prepared record under a change of agents, run times, steps or load, and write frames."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pandas as pd

from buildframe.metrics.replaying.event_loop import Changes, simulate
from buildframe.metrics.replaying.options import Agents, Step, read_fleets, read_scale, read_skipped
from buildframe.metrics.replaying.prepared import PreparedReplay, with_load
from buildframe.metrics.replaying.result_frames import write_frames


def replay_prepared(
    prepared: PreparedReplay,
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    agents: Agents | None = None,
    run_scale: Mapping[Step, float] | None = None,
    skip: Step | Collection[Step] | None = None,
    load: float = 1.0,
    seed: int = 0,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the frames of `metrics.replay`; `builds` and `jobs` are those from which the record was prepared."""
    scale, skipped = read_scale(run_scale, prepared), read_skipped(skip, prepared)
    model = with_load(prepared.model, load, seed)
    origin = model.jobs.origin
    changes = Changes(
        read_fleets(agents, prepared),
        scale=None if scale is None else scale[origin],
        is_skipped=None if skipped is None else skipped[origin],
    )
    times = simulate(model, changes)
    return write_frames(builds, jobs, prepared, model, times)
