"""Numbers from builds and jobs: a metric is `frame -> Series`, a summary is `frame -> frame`.

Metrics of a row (`jobs.assign(queued=metrics.queue_time)`) are `timedelta64[us]`, and so are those that
a build has from its jobs (`builds["id"].map(metrics.active_time(jobs))`). Summaries hold float64 seconds in
columns that end in `_s`, and take frames of pandas, Polars, DuckDB and PySpark. Nothing here changes the frame that it
is given.
"""

from __future__ import annotations

from buildframe.metrics.branches import outages, recovery_time, red_share
from buildframe.metrics.compared import failure_change, newcombe, percentile_change, success_change
from buildframe.metrics.durations import dependency_wait, queue_time, run_time, turnaround, wall_time
from buildframe.metrics.flaky import flaky_board
from buildframe.metrics.flips import flips, outcomes_by_commit
from buildframe.metrics.intervals import (
    active_time,
    blocked_time,
    idle_time,
    machine_time,
    parallelism,
    time_to_first_failure,
    time_to_pass,
)
from buildframe.metrics.lifecycle import flaky_lifecycle
from buildframe.metrics.load import concurrency, queue_depth, utilisation
from buildframe.metrics.percentiles import percentiles
from buildframe.metrics.rates import success_rate, success_trend, throughput, wilson
from buildframe.metrics.remaining import remaining_time
from buildframe.metrics.repeats import latest
from buildframe.metrics.retries import retry_rate
from buildframe.metrics.shifts import change_point
from buildframe.metrics.steps import step
from buildframe.metrics.stored import with_seconds
from buildframe.metrics.trends import trend
from buildframe.metrics.waste import waste

__all__ = [
    "active_time",
    "blocked_time",
    "change_point",
    "concurrency",
    "dependency_wait",
    "failure_change",
    "flaky_board",
    "flaky_lifecycle",
    "flips",
    "idle_time",
    "latest",
    "machine_time",
    "newcombe",
    "outages",
    "outcomes_by_commit",
    "parallelism",
    "percentile_change",
    "percentiles",
    "queue_depth",
    "queue_time",
    "recovery_time",
    "red_share",
    "remaining_time",
    "retry_rate",
    "run_time",
    "step",
    "success_change",
    "success_rate",
    "success_trend",
    "throughput",
    "time_to_first_failure",
    "time_to_pass",
    "trend",
    "turnaround",
    "utilisation",
    "wall_time",
    "waste",
    "wilson",
    "with_seconds",
]
