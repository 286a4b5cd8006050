"""Count how many jobs ran or waited over time, and measure how much of agents' time they used."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import Integers
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.intervals import AT, LEVEL, FrameCoverage, IntervalKind, TimeWindow
from buildframe.metrics.engines.rows import Frame
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.job_ends import SEEN_UNTIL
from buildframe.metrics.queues import BY_QUEUE, queue_keys
from buildframe.metrics.time_buckets import resolve_window
from buildframe.spec.times import Moment, When

_RUNNING = IntervalKind("running", "started_at", ("finished_at", SEEN_UNTIL), scripts_only=True)
_WAITING = IntervalKind("waiting", "runnable_at", ("started_at", "finished_at", SEEN_UNTIL), scripts_only=True)


@checked_names
def concurrency(jobs: Frame, by: By = BY_QUEUE, start: When | None = None, end: When | None = None) -> pd.DataFrame:
    """
    Count how many script jobs ran at once over time, as a step function.

    The counts are exact, not sampled: count times seconds adds up to machine time, and parts of a time window add up to
    the whole.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `type`,
        `started_at`, `finished_at`, `fetched_at` and `build_created_at`. Uses `state`, `expired_at`
        and `build_finished_at` if the frame has them. Ids must be unique.
    by : str, function or list of these, default ("queue", "queue_id")
        Keys that define the groups, as in `percentiles`. None puts all rows into one group. By
        default queues of one key in several clusters are groups of their own; a frame without
        `queue_id` is grouped by `queue` alone.
    start, end : datetime, date, str or timedelta, optional
        Limits of the time window, as in `created_from`. An age such as "7d" counts back from the latest `fetched_at`.
        By default the window covers all runs.

    Returns
    -------
    pandas.DataFrame
        One row per change, ordered by key and time. An empty frame gives no rows. After the keys:

        ========== =================== =======================================================================
        at         datetime64[us, UTC] time from which the count holds, until the next `at` of the group
        running    Int64               script jobs that ran
        whole      boolean             False if jobs of builds older or newer than those of the frame may
                                       have run, too; null if unknown
        n_negative Int64               runs of the group that end before they start, from clocks that
                                       disagree; they count nowhere. The same in each row of a group
        ========== =================== =======================================================================

        A group begins with its first job and ends with a count of 0. With `start` each group has a first row at
        `start`, and with `end` a last row at `end`.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `end` is not after `start`.

    See Also
    --------
    queue_depth : Jobs that waited at once.
    utilization : Share of agents' time that jobs used.

    Notes
    -----
    A run is the interval from `started_at` until the job ended, of every attempt. A job that is
    under way runs until `fetched_at`. A job that is over has the end that `run_time` describes; if
    it ended at an unknown time, it counts nowhere. Trigger jobs run on no agent.

    `whole` is False before the first `build_created_at` plus the longest time from a build's creation to the end of a
    run, and after the last `build_created_at`. It speaks of time only: a frame filtered by pipeline or branch gives the
    load of these jobs, and `whole` does not show that others are missing. Fetch builds from earlier than `start` to
    have whole rows from `start` on.

    Examples
    --------
    >>> load = metrics.concurrency(jobs)
    >>> load.groupby("queue")["running"].max()
    queue
    default    5
    deploy     2
    docker     2
    macos      1
    Name: running, dtype: Int64
    """
    return _count_intervals(jobs, by, _RUNNING, start, end)


@checked_names
def queue_depth(jobs: Frame, by: By = BY_QUEUE, start: When | None = None, end: When | None = None) -> pd.DataFrame:
    """
    Count how many script jobs waited for an agent at once over time, as a step function.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `type`,
        `runnable_at`, `started_at`, `finished_at`, `fetched_at` and `build_created_at`. Uses
        `state`, `expired_at` and `build_finished_at` if the frame has them. Ids must be unique.
    by : str, function or list of these, default ("queue", "queue_id")
        Keys that define the groups, as in `percentiles`. None puts all rows into one group. By
        default queues of one key in several clusters are groups of their own; a frame without
        `queue_id` is grouped by `queue` alone.
    start, end : datetime, date, str or timedelta, optional
        Limits of the time window, as in `concurrency`.

    Returns
    -------
    pandas.DataFrame
        One row per change, ordered by key and time. An empty frame gives no rows. After the keys:

        ========== =================== =======================================================================
        at         datetime64[us, UTC] time from which the count holds, until the next `at` of the group
        waiting    Int64               script jobs that waited
        whole      boolean             False if jobs of builds older or newer than those of the frame may
                                       have waited, too; null if unknown
        n_negative Int64               waits of the group that end before they start, from clocks that
                                       disagree; they count nowhere. The same in each row of a group
        ========== =================== =======================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `end` is not after `start`.

    See Also
    --------
    concurrency : Jobs that ran at once; its notes on `whole` apply here, too.
    queue_time : Wait of each job.

    Notes
    -----
    A wait is the interval [runnable_at, started_at). A job that never started waited until it
    ended, or if it is under way, until `fetched_at`. A job that was canceled or expired at an
    unknown time does not wait any more, and counts nowhere. Jobs of other types need no agent.
    Count times seconds adds up to queue time, including jobs that never started.

    Examples
    --------
    >>> waiting = metrics.queue_depth(jobs, start="2026-10-29", end="2026-10-30")
    >>> waiting.groupby("queue")["waiting"].max()
    queue
    default    20
    deploy      1
    docker      4
    macos      12
    Name: waiting, dtype: Int64
    """
    return _count_intervals(jobs, by, _WAITING, start, end)


@checked_names
def utilization(jobs: Frame, by: By = BY_QUEUE) -> pd.DataFrame:
    """
    Compute the share of agents' time that these script jobs used.

    An agent's time runs from its first `started_at` to the last end of its jobs in a group.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `agent_id`,
        `type`, `started_at` and `finished_at`. Uses `state`, `expired_at` and `build_finished_at`
        if the frame has them. Ids must be unique.
    by : str, function or list of these, default ("queue", "queue_id")
        Keys that define the groups, as in `percentiles`. None puts all rows into one group. By
        default queues of one key in several clusters are groups of their own; a frame without
        `queue_id` is grouped by `queue` alone. An agent in several groups counts in each, with its
        jobs there.

    Returns
    -------
    pandas.DataFrame
        One row per group in which a job started, ordered by key. An empty frame gives no rows. After the keys:

        ========== ======= ========================================================================
        agents     Int64   agents that finished a run
        busy_s     float64 seconds of runs of every attempt, summed over agents
        seen_s     float64 seconds from first start to last end, summed over agents
        share_used float64 `busy_s / seen_s`; NaN if `seen_s` is not above 0, above 1 only if runs
                           of one agent overlap
        n_running  Int64   jobs that started and are not over; left out
        n_no_end   Int64   jobs that started and are over, but whose end is unknown; left out
        n_no_agent Int64   runs without `agent_id`; left out
        n_negative Int64   runs that end before they start, from clocks that disagree; included
        ========== ======= ========================================================================

    Raises
    ------
    BadInput
        If a column is missing or a timestamp has no time zone.

    See Also
    --------
    concurrency : Jobs that ran at once.

    Notes
    -----
    If the frame holds all jobs of these agents, the share is an upper bound of how busy they were, because an idle
    agent leaves no trace in jobs. If it holds only some of their jobs, such as those of one pipeline, the share is the
    part that these jobs used, and the agents may have been busier. The share is near 1 if each job has its own agent.

    Examples
    --------
    >>> metrics.utilization(jobs)[["queue", "agents", "share_used"]].round(2)
         queue  agents  share_used
    0  default       5        0.09
    1   deploy       2        0.00
    2   docker       2        0.02
    3    macos       1        0.27
    """
    engine = engine_of(jobs)
    agents = engine.agent_sums(jobs, queue_keys(by, engine.column_names(jobs)))
    busy_s, seen_s = (agents.sums[name].to_numpy(np.float64) / 1e6 for name in ("busy", "seen"))
    used = np.divide(busy_s, seen_s, out=np.full(len(seen_s), np.nan), where=seen_s > 0)
    columns = {"agents": agents.sums["agents"], "busy_s": busy_s, "seen_s": seen_s, "share_used": used}
    rest = agents.sums[["n_running", "n_no_end", "n_no_agent", "n_negative"]]
    summary = join_keys(agents.keys, pd.concat([pd.DataFrame(columns), rest], axis=1))
    return summary[agents.sums["started"].to_numpy(np.int64) > 0].reset_index(drop=True)


def _count_intervals(jobs: Frame, by: By, kind: IntervalKind, start: When | None, end: When | None) -> pd.DataFrame:
    engine = engine_of(jobs)
    by = queue_keys(by, engine.column_names(jobs))
    intervals, coverage = engine.intervals(engine.with_ends(jobs), by, kind)
    limits = resolve_window(start, end, None if coverage.latest is None else Moment.from_us(coverage.latest))
    keys, levels = engine.levels(intervals, TimeWindow(*(None if limit is None else limit.us for limit in limits)))
    at = levels[AT].to_numpy(np.int64)
    columns = {
        "at": pd.DatetimeIndex(at.view("datetime64[us]"), tz="UTC"),
        kind.name: levels[LEVEL].astype("Int64"),
        "whole": _is_whole(at, coverage),
        "n_negative": levels["n_negative"],
    }
    return join_keys(keys, pd.DataFrame(columns))


def _is_whole(at: Integers, coverage: FrameCoverage) -> Any:
    """Return whether no build outside the frame can have had a job at each time."""
    if coverage.first is None or coverage.last is None:
        return pd.array([pd.NA] * len(at), "boolean")
    is_late_enough = at >= coverage.first + max(coverage.lasting or 0, 0)
    return pd.array(is_late_enough & (at <= coverage.last), "boolean")
