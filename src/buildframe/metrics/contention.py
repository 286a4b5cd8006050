"""Divide queue time among the jobs that held the agents: which jobs wait for which."""

from __future__ import annotations

from typing import Any

import narwhals as nw
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.engines import engine_of, expressions
from buildframe.metrics.engines.dtypes import micros_column
from buildframe.metrics.engines.rows import Frame, GroupedRows
from buildframe.metrics.grouping import Key
from buildframe.metrics.job_ends import SEEN_UNTIL
from buildframe.metrics.pipeline_jobs import pipeline_keys
from buildframe.metrics.queues import BY_QUEUE
from buildframe.metrics.shared_waits import ENDS, HAS_QUEUE, KEY, divide_waits
from buildframe.terminal import show

_NEEDS = ("type", "queue", "runnable_at", "started_at", "finished_at", "fetched_at")
_STAMPS = ("runnable_at", "started_at", SEEN_UNTIL)
_IS_OPEN = "did not start"


@checked_names
def contention(jobs: Frame, by: Key = "pipeline") -> pd.DataFrame:
    """
    Divide queue time among the jobs that held the agents meanwhile: which jobs wait for which.

    Each second that a job waits is split equally over the jobs that hold agents of its queue in that second. A wait
    beside idle agents is unexplained. All parts add up to the queue time exactly.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `type`, `queue`,
        `runnable_at`, `started_at`, `finished_at` and `fetched_at`. Uses `state`, `expired_at` and
        `build_finished_at` if the frame has them. Pass all jobs of a queue, with every attempt
        (`include_retried_jobs=True`): jobs that are not in the frame explain no wait. Ids must be
        unique.
    by : str or function, default "pipeline"
        Column, or function `frame -> Series` such as `metrics.step`, by which both the waiting and the holding jobs are
        summed. Engines other than pandas read the column that `metrics.with_seconds` adds for a function.

    Returns
    -------
    pandas.DataFrame
        One row per queue, waiting group and holding group, ordered by these; unexplained time is the last row of a
        waiting group. Pairs without time have no row. An empty frame gives no rows. If the jobs have `organization`,
        it is the first column:

        ========= ======= =============================================================================
        queue     str     queue in which the jobs waited
        waiting   str     group of the jobs that waited, as text
        holding   str     group of the jobs that held the agents, as text, or `unexplained`
        explained boolean False in rows of unexplained time
        wait_s    float64 seconds of queue time, exact to the microsecond; may be negative in
                          unexplained rows if clocks disagree
        ========= ======= =============================================================================

        Its `attrs` count the waits in it (`n`), and of these: `n_censored`, which did not end by a start, `n_negative`,
        which ended before they began, and `n_no_queue`, of jobs without a known queue.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `by` is not one key.

    See Also
    --------
    queue_depth : Jobs that waited at once; its areas add up to the same time.
    utilization : Share of agents' time that jobs used.
    buildframe.plots.contention : Plot the matrix.

    Notes
    -----
    A wait is that of a script job, from `runnable_at` to `started_at`; as in `queue_depth`, a job
    that never started waited until it ended, or if it is under way, until `fetched_at`. A job holds
    an agent from `started_at` until then, and in every attempt. Jobs that ended at an unknown time
    neither wait nor hold an agent. While n jobs hold agents, each of them gets 1/n of the time of
    every job that waits.

    Idle agents leave no trace in jobs, so their number is inferred from the busiest times: `agents` of a queue on a day
    (UTC) is the largest number that were busy at once during at least a tenth of the time that jobs waited on that day,
    each waiting job counted. While fewer jobs hold agents, waits are unexplained: agents were idle, starting or away.
    The maximum would be misleading, because one job that is seen to end late makes it too large by one. A fleet that
    shrinks within a day makes waits beside the smaller fleet unexplained.

    Negative waits, and those of jobs without a known queue, are unexplained. Times are split in whole microseconds, and
    what does not divide goes to the largest remainders.

    The result says who held the agents, not what would happen without them: while others wait for one pipeline, they
    wait for each other, too. In `replay` of ten months of the sandbox without each pipeline in turn, the pipeline for
    which others had waited most was the one without which they waited least in eight, and one of the first two in all.
    Leaving it out saved the others 42 to 58 % of the hours that they had waited for it.

    Examples
    --------
    >>> waits = metrics.contention(jobs)
    >>> waits.nlargest(3, "wait_s").round(0)[["queue", "waiting", "holding", "wait_s"]]
          queue   waiting   holding    wait_s
    55    macos    mobile    mobile  491685.0
    32  default  platform  platform   57822.0
    0   default       api       api   22269.0
    >>> minutes = waits.pivot_table(index="waiting", columns="holding", values="wait_s", aggfunc="sum") / 60
    >>> minutes.loc[["api", "web"], ["api", "web", "unexplained"]].round()
    holding    api    web  unexplained
    waiting
    api      371.0   17.0         32.0
    web        5.0  361.0         53.0
    """
    if not isinstance(by, str) and not callable(by):
        raise BadInput(f"by={show(by)} is not one key. Use one column such as 'pipeline', or a function.")
    engine = engine_of(jobs)
    frame, key = engine.with_key_column(engine.with_ends(jobs), by)
    of_queue = [name for name in BY_QUEUE if name in engine.column_names(jobs)]
    needs = dict.fromkeys((*_NEEDS, *_STAMPS, *of_queue, key))
    rows = engine.group_rows(frame, [*needs], [*pipeline_keys(jobs)[:-1], *of_queue])
    intervals = _with_intervals(rows, key)
    result = engine.map_groups(intervals, [KEY, HAS_QUEUE, *ENDS], divide_waits)
    result.attrs |= _count_waits(intervals)
    return result


def _with_intervals(rows: GroupedRows, key: str) -> GroupedRows:
    """Select the script jobs, with when each waited and when it held an agent, in microseconds or null."""
    engine = rows.engine
    rows = engine.filter_groups(rows, expressions.IS_SCRIPT).with_micros(_STAMPS)
    runnable, started, seen_until = (nw.col(micros_column(name)) for name in _STAMPS)
    has_queue = ~nw.col("queue").is_null()
    if "queue_id" in rows.frame.collect_schema().names():
        has_queue |= ~nw.col("queue_id").is_null()
    return rows.with_columns(
        **{KEY: nw.col(key), HAS_QUEUE: has_queue, _IS_OPEN: started.is_null()},
        wait_from=runnable,
        wait_to=nw.coalesce(started, seen_until),
        held_from=started,
        held_to=seen_until,
    )


def _count_waits(rows: GroupedRows) -> dict[str, Any]:
    begin, end = nw.col("wait_from"), nw.col("wait_to")
    waited = ~begin.is_null() & ~end.is_null()
    counts = rows.engine.group_sums(
        rows,
        n=waited,
        n_censored=waited & nw.col(_IS_OPEN),
        n_negative=(end < begin).fill_null(False),
        n_no_queue=waited & ~nw.col(HAS_QUEUE),
    )
    return {str(name): int(n) for name, n in counts.sums.sum().items()}
