"""A replay of a month of the sandbox agrees with the month that ran again with other agents and another step speed."""

from __future__ import annotations

import pytest

from buildframe import metrics
from tests import worlds
from tests.metrics import reruns, true_dependencies


@pytest.mark.long
def test_fewer_agents_and_a_faster_step_are_predicted() -> None:
    recorded = true_dependencies.month(1)
    agents = {queue: max(n - 1, 1) for queue, n in reruns.count_agents(recorded[1]).items()}
    changes = {"agents": agents, "run_scale": {"e2e": 0.5}}
    with worlds.sandbox(seed=1, builds=700, days=30, **changes) as ci:
        outcome = ci.history(include_retried_jobs=True, progress=False)
    predicted = metrics.replay(*recorded, **changes)
    cells = reruns.compare(recorded, outcome, predicted)
    moved = cells[cells["moved"]]
    assert len(moved) > 9
    assert moved["recorded_error"].median() > 0.1
    assert moved["predicted_error"].median() <= 0.03
    assert moved["predicted_within"].mean() >= 0.9
    # Single rows are more sensitive than percentiles: they fail also if cancellations, lags or gaps are ignored.
    builds, jobs = (
        frame.merge(other, on="id", how="outer", suffixes=("", "_predicted"))
        for frame, other in zip(outcome, predicted, strict=True)
    )
    assert (builds["state"] != builds["state_predicted"]).sum() < 5
    late = (jobs["started_at_predicted"] - jobs["started_at"]).dt.total_seconds()
    assert late.abs().mean() < 5
    assert late.notna().mean() > 0.99 * jobs["started_at"].notna().mean()
