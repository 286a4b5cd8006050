"""Numbers from builds and jobs: a metric is `frame -> Series`, a summary is `frame -> frame`.

Metrics of a row (`jobs.assign(queued=metrics.queue_time)`) are `timedelta64[us]`; summaries hold
float64 seconds in columns that end in `_s`. Nothing here changes the frame that it is given.
"""

from __future__ import annotations

from buildframe.metrics.durations import dependency_wait, queue_time, run_time, turnaround, wall_time
from buildframe.metrics.percentiles import percentiles
from buildframe.metrics.rates import success_rate, success_trend, throughput, wilson
from buildframe.metrics.repeats import latest
from buildframe.metrics.steps import step
from buildframe.metrics.stored import with_seconds
from buildframe.metrics.trends import trend

__all__ = [
    "dependency_wait",
    "latest",
    "percentiles",
    "queue_time",
    "run_time",
    "step",
    "success_rate",
    "success_trend",
    "throughput",
    "trend",
    "turnaround",
    "wall_time",
    "wilson",
    "with_seconds",
]
