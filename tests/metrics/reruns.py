"""How well replays predict a month of the sandbox that ran again with other agents or step speeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from buildframe import metrics

Frames = tuple[pd.DataFrame, pd.DataFrame]
SHARE, SECONDS = 0.1, 5.0
"""A cell moved if it differs by more than both, and is predicted if it differs by at most one of them."""
OVERLOAD_S = 300.0
"""Median wait in the rerun from which a queue counts as overloaded."""


def count_agents(jobs: pd.DataFrame) -> dict[str, int]:
    """Return the number of agents of each queue that has the same ones all the time."""
    return jobs.groupby("queue")["agent_id"].nunique().to_dict()


def cells_of(frames: Frames) -> pd.Series[float]:
    """Return p50 and p95 of queue times by queue, and of wall times by pipeline, in seconds."""
    summaries = [
        metrics.percentiles(frame, of=of, by=by).set_index(by)[["p50_s", "p95_s"]].stack()
        for frame, of, by in zip(
            reversed(frames), (metrics.queue_time, metrics.wall_time), ("queue", "pipeline"), strict=True
        )
    ]
    return pd.concat(summaries, keys=["queue", "pipeline"], names=["of", "name", "percentile"])


def compare(recorded: Frames, outcome: Frames, predicted: Frames) -> pd.DataFrame:
    """Return a row for each cell that both worlds have; a missing prediction is infinitely wrong."""
    cells = pd.DataFrame(
        {"recorded_s": cells_of(recorded), "outcome_s": cells_of(outcome), "predicted_s": cells_of(predicted)}
    ).dropna(subset=["recorded_s", "outcome_s"])
    cells["predicted_s"] = cells["predicted_s"].fillna(np.inf)
    for name in ("recorded", "predicted"):
        off = (cells[f"{name}_s"] - cells["outcome_s"]).abs()
        cells[f"{name}_error"] = off / cells["outcome_s"]
        cells[f"{name}_within"] = off <= np.maximum(SHARE * cells["outcome_s"], SECONDS)
    change = (cells["outcome_s"] - cells["recorded_s"]).abs()
    cells["moved"] = (change > SHARE * cells["recorded_s"]) & (change > SECONDS)
    medians = cells["outcome_s"].xs("p50_s", level="percentile").to_dict()
    cells["overloaded"] = [of == "queue" and medians[of, name] >= OVERLOAD_S for of, name, _ in cells.index]
    return cells.reset_index()


def predict(recorded: Frames, outcome: Frames, options: Mapping[str, Any]) -> pd.DataFrame:
    """Replay a month with these options, and compare it with its rerun."""
    return compare(recorded, outcome, metrics.replay(*recorded, **options))
