"""Metrics and summaries of builds and jobs: a metric is `frame -> Series`, a summary is `frame -> frame`.

Row metrics (`jobs.assign(queued=metrics.queue_time)`) return `timedelta64[us]`. Summaries hold float64 seconds in
columns that end in `_s`, and accept pandas, Polars, DuckDB and PySpark. No function changes the frame that you pass.
"""

from __future__ import annotations

from buildframe.metrics.agents_needed import agents_needed
from buildframe.metrics.attempts import flips, outcomes_by_commit
from buildframe.metrics.branches import outages, recovery_time, red_share
from buildframe.metrics.build_times import (
    active_time,
    blocked_time,
    idle_time,
    machine_time,
    parallelism,
    time_to_first_failure,
    time_to_pass,
)
from buildframe.metrics.change_points import change_points
from buildframe.metrics.comparison import build_success_change, job_failure_change
from buildframe.metrics.contention import contention
from buildframe.metrics.cost import cost
from buildframe.metrics.days_to_see import days_to_see
from buildframe.metrics.durations import dependency_wait, queue_time, run_time, turnaround, wall_time
from buildframe.metrics.explain import explain
from buildframe.metrics.flake_score import flake_score
from buildframe.metrics.flaky import flaky_board, flaky_lifecycle
from buildframe.metrics.forks import is_from_fork
from buildframe.metrics.leverage import leverage
from buildframe.metrics.load import concurrency, queue_depth, utilization
from buildframe.metrics.objective import objective
from buildframe.metrics.outcomes import failed, outcome
from buildframe.metrics.percentile_change import percentile_change
from buildframe.metrics.percentiles import percentiles, trend
from buildframe.metrics.preparation import latest, with_seconds
from buildframe.metrics.rates import success_rate, success_trend, throughput
from buildframe.metrics.remaining import remaining_time
from buildframe.metrics.replay import replay
from buildframe.metrics.retries import retry_rate
from buildframe.metrics.step_graph import step_graph
from buildframe.metrics.steps import step
from buildframe.metrics.survival import survival
from buildframe.metrics.time_ledger import time_ledger
from buildframe.metrics.waste import waste

__all__ = [
    "active_time", "agents_needed", "blocked_time", "build_success_change", "change_points", "concurrency",
    "contention", "cost", "days_to_see", "dependency_wait", "explain", "failed", "flake_score",
    "flaky_board", "flaky_lifecycle", "flips", "idle_time", "is_from_fork", "job_failure_change", "latest", "leverage",
    "machine_time", "objective", "outages", "outcome", "outcomes_by_commit", "parallelism",
    "percentile_change", "percentiles", "queue_depth", "queue_time", "recovery_time", "red_share", "remaining_time",
    "replay", "retry_rate", "run_time", "step", "step_graph", "success_rate", "success_trend", "survival",
    "throughput", "time_ledger", "time_to_first_failure", "time_to_pass", "trend", "turnaround", "utilization",
    "wall_time", "waste", "with_seconds",
]  # fmt: skip


def __dir__() -> list[str]:
    return __all__
