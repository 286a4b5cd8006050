"""Count how many jobs ran or waited over time, and measure how much of agents' time they used."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import (
    NAT,
    Flags,
    Integers,
    first_and_last,
    microseconds,
    timestamp_micros,
)
from buildframe.metrics.durations import is_script
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.input_frames import Frame, column_names, read_rows, time_limits
from buildframe.metrics.job_ends import COLUMNS as END_COLUMNS
from buildframe.metrics.job_ends import IS_OVER, SEEN_UNTIL, with_ends
from buildframe.metrics.numbered import earliest_by, latest_by, sum_by
from buildframe.metrics.queues import BY_QUEUE, queue_keys
from buildframe.metrics.time_buckets import resolve_window
from buildframe.spec.times import Moment, When


class CountedInterval(NamedTuple):
    """Interval of a script job: from a timestamp until the first of others that is known.

    The ends are those after `with_ends`.
    """

    name: str
    begins: str
    ends: tuple[str, ...]


class TimeLimits(NamedTuple):
    """Limits of a time window in microseconds; None if open."""

    start: int | None
    end: int | None


class LevelChanges(NamedTuple):
    """Number of intervals (`level`) of a group that cover the time from `at` on.

    Ordered by group and time.
    """

    group: Integers
    at: Integers
    level: Integers

    def filter(self, chosen: Flags) -> LevelChanges:
        """Return the chosen changes."""
        return LevelChanges(*(column[chosen] for column in self))


_RUNNING = CountedInterval("running", "started_at", ("finished_at", SEEN_UNTIL))
_WAITING = CountedInterval("waiting", "runnable_at", ("started_at", "finished_at", SEEN_UNTIL))

_LONGEST = "longest time since the creation of a build"


@checked_names
def concurrency(
    jobs: Frame,
    by: By = BY_QUEUE,
    start: When | None = None,
    end: When | None = None,
) -> pd.DataFrame:
    """
    Count how many script jobs ran at once over time, as a step function.

    The counts are exact, not sampled: count times seconds adds up to machine time, and parts of a
    time window add up to the whole.

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
        Limits of the time window, as in `created_from`. An age such as "7d" counts back from the
        latest `fetched_at`. By default the window covers all runs.

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

        A group begins with its first job and ends with a count of 0. With `start` each group has a
        first row at `start`, and with `end` a last row at `end`.

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

    `whole` is False before the first `build_created_at` plus the longest time from a build's
    creation to the end of a run, and after the last `build_created_at`. It speaks of time only: a
    frame filtered by pipeline or branch gives the load of these jobs, and `whole` does not show
    that others are missing. Fetch builds from earlier than `start` to have whole rows from `start`
    on.

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
def queue_depth(
    jobs: Frame,
    by: By = BY_QUEUE,
    start: When | None = None,
    end: When | None = None,
) -> pd.DataFrame:
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
        One row per group in which a job started, ordered by key. An empty frame gives no rows.
        After the keys:

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
    If the frame holds all jobs of these agents, the share is an upper bound of how busy they were,
    because an idle agent leaves no trace in jobs. If it holds only some of their jobs, such as
    those of one pipeline, the share is the part that these jobs used, and the agents may have been
    busier. The share is near 1 if each job has its own agent.

    Examples
    --------
    >>> metrics.utilization(jobs)[["queue", "agents", "share_used"]].round(2)
         queue  agents  share_used
    0  default       5        0.09
    1   deploy       2        0.00
    2   docker       2        0.02
    3    macos       1        0.27
    """
    by = spark_keys(jobs, queue_keys(by, column_names(jobs)))
    return summarize_groups(jobs, functools.partial(_utilization, by), by)


def _utilization(by: By, jobs: Frame) -> pd.DataFrame:
    needs = ("agent_id", "type", "started_at", "finished_at")
    rows = read_rows(jobs, _find_runs, needs, END_COLUMNS, by)
    begin = rows.columns["begin"].to_numpy(np.int64)
    finish = rows.columns["finish"].to_numpy(np.int64)
    is_over = rows.columns["is_over"].to_numpy(np.bool_)
    agents, _ = pd.factorize(rows.columns["agent_id"])
    has_started = begin != NAT
    has_ended = has_started & (finish != NAT)
    is_known = has_ended & (agents >= 0)
    left_out = {
        "n_running": has_started & ~is_over,
        "n_no_end": has_started & is_over & ~has_ended,
        "n_no_agent": has_ended & ~is_known,
    }
    codes, n_groups = rows.codes, len(rows.keys)
    runs = codes[is_known]
    begin, finish, agents = begin[is_known], finish[is_known], agents[is_known]

    n_agents = agents.max(initial=0) + 1
    pairs, distinct_pairs = pd.factorize(runs * n_agents + agents)
    first_start = earliest_by(pairs, begin, len(distinct_pairs))
    last_end = latest_by(pairs, finish, len(distinct_pairs))
    group_of_pair = distinct_pairs // n_agents

    busy_s = sum_by(runs, finish - begin, n_groups) / 1e6
    seen_s = sum_by(group_of_pair, last_end - first_start, n_groups) / 1e6
    unknown = np.full(n_groups, np.nan)
    columns = {
        "agents": pd.array(np.bincount(group_of_pair, minlength=n_groups), "Int64"),
        "busy_s": busy_s,
        "seen_s": seen_s,
        "share_used": np.divide(busy_s, seen_s, out=unknown, where=seen_s > 0),
    }
    for name, flags in left_out.items():
        columns[name] = pd.array(np.bincount(codes[flags], minlength=n_groups), "Int64")
    n_negative = np.bincount(runs[finish < begin], minlength=n_groups)
    columns["n_negative"] = pd.array(n_negative, "Int64")
    summary = join_keys(rows.keys, pd.DataFrame(columns))
    n_started = np.bincount(codes[has_started], minlength=n_groups)
    return summary[n_started > 0].reset_index(drop=True)


def _find_runs(jobs: pd.DataFrame) -> pd.DataFrame:
    """Return the agent of each job, when its run began and ended, and whether the job is over."""
    jobs = with_ends(jobs)
    columns = {
        "agent_id": jobs["agent_id"].array,
        "begin": np.where(is_script(jobs), timestamp_micros(jobs, "started_at"), NAT),
        "finish": timestamp_micros(jobs, "finished_at"),
        "is_over": jobs[IS_OVER].to_numpy(np.bool_),
    }
    return pd.DataFrame(columns, jobs.index, copy=False)


def _count_intervals(
    jobs: Frame, by: By, interval: CountedInterval, start: When | None, end: When | None
) -> pd.DataFrame:
    by = spark_keys(jobs, queue_keys(by, column_names(jobs)))
    (_, latest), builds = time_limits(jobs, ["fetched_at", "build_created_at"])
    limits = resolve_window(start, end, None if latest == NAT else Moment.from_us(latest))
    window = TimeLimits(*(None if limit is None else limit.us for limit in limits))
    of_group = functools.partial(_compute_levels, interval, by, window)
    levels = summarize_groups(jobs, of_group, by)
    lasting = levels.pop(_LONGEST).to_numpy(np.int64).max(initial=0)
    levels["whole"] = _is_whole(microseconds(levels["at"]), builds, lasting)
    return levels


def _compute_levels(interval: CountedInterval, by: By, window: TimeLimits, jobs: Frame) -> pd.DataFrame:
    """Count the intervals at each change, and measure the longest time since a build's creation.

    Whether a change is `whole` is not known from the rows of one group, and left open.
    """
    stamps = [interval.begins, *interval.ends, "fetched_at", "build_created_at"]
    needs = ["type", *(name for name in stamps if name != SEEN_UNTIL)]
    rows = read_rows(jobs, functools.partial(_find_intervals, interval), needs, END_COLUMNS, by)
    begin, finish, lasting = (rows.columns[name].to_numpy(np.int64) for name in rows.columns)
    n_groups = len(rows.keys)
    is_known = (begin != NAT) & (finish != NAT)
    codes, begin, finish = rows.codes[is_known], begin[is_known], finish[is_known]
    negative = np.bincount(codes[finish < begin], minlength=n_groups)
    changes = _count_at_once(codes, begin, np.maximum(begin, finish), n_groups, window)
    _, longest = first_and_last(lasting)
    n_changes = len(changes.at)
    columns: dict[str, Any] = {
        "at": pd.DatetimeIndex(changes.at.view("datetime64[us]"), tz="UTC"),
        interval.name: pd.array(changes.level, "Int64"),
        "whole": pd.array(np.zeros(n_changes, np.bool_), "boolean"),
        "n_negative": pd.array(negative[changes.group], "Int64"),
        _LONGEST: np.full(n_changes, longest),
    }
    keys = rows.keys.take(changes.group).reset_index(drop=True)
    return join_keys(keys, pd.DataFrame(columns, copy=False))


def _find_intervals(interval: CountedInterval, jobs: pd.DataFrame) -> pd.DataFrame:
    """Return when each interval begins and ends, and its end as time since the build's creation."""
    jobs = with_ends(jobs)
    begin = np.where(is_script(jobs), timestamp_micros(jobs, interval.begins), NAT)
    finish = timestamp_micros(jobs, interval.ends[0])
    for name in interval.ends[1:]:
        finish = np.where(finish == NAT, timestamp_micros(jobs, name), finish)
    created = timestamp_micros(jobs, "build_created_at")
    is_known = (begin != NAT) & (finish != NAT) & (created != NAT)
    lasting = np.where(is_known, finish - created, NAT)
    columns = {"begin": begin, "finish": finish, "lasting": lasting}
    return pd.DataFrame(columns, jobs.index, copy=False)


def _is_whole(at: Integers, builds: tuple[int, int], lasting: np.int64) -> Any:
    """Return whether no build outside the frame can have had a job at each time."""
    first, last = builds
    if first == NAT:
        return pd.array([pd.NA] * len(at), "boolean")
    return pd.array((at >= first + lasting) & (at <= last), "boolean")


def _count_at_once(
    codes: Integers,
    begin: Integers,
    finish: Integers,
    n_groups: int,
    window: TimeLimits,
) -> LevelChanges:
    """Return the changes of the level of each group within the window, and rows at its limits."""
    for limit in window:
        if limit is not None:  # an empty interval makes a row at the limit
            present = np.flatnonzero(np.bincount(codes, minlength=n_groups))
            at_limit = np.full(len(present), limit)
            codes = np.concatenate([codes, present])
            begin = np.concatenate([begin, at_limit])
            finish = np.concatenate([finish, at_limit])
    begin, finish = _clip(begin, window), _clip(finish, window)
    levels = _sum_changes(codes, begin, finish, n_groups)
    is_first = np.diff(levels.group, prepend=-1) != 0
    is_shown = is_first | (np.diff(levels.level, prepend=-1) != 0)
    if window.end is not None:
        is_shown = (is_shown | (levels.at == window.end)) & (levels.at <= window.end)
    return levels.filter(is_shown)


def _clip(times: Integers, window: TimeLimits) -> Integers:
    """Clip times to the window; later ones become the microsecond after its end."""
    after = None if window.end is None else window.end + 1
    return times if window == (None, None) else np.clip(times, window.start, after)


def _sum_changes(codes: Integers, begin: Integers, finish: Integers, n_groups: int) -> LevelChanges:
    """Count the intervals of each group that cover each time at which one starts or ends.

    Each start counts 1 and each end counts -1, so the running sum is the level.
    """
    small_codes = codes.astype(np.int16) if n_groups < 2**15 else codes  # int16: radix sort
    order = np.argsort(small_codes, kind="stable")
    starts = 2 * begin[order] + 1  # the last bit says that an interval starts
    ends = 2 * finish[order]
    changes = np.empty(2 * len(codes), np.int64)
    sizes = np.bincount(codes, minlength=n_groups)
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        rows = slice(stop - size, stop)
        of_group = changes[2 * (stop - size) : 2 * stop]
        np.concatenate([starts[rows], ends[rows]], out=of_group)
        of_group.sort()
    group = np.repeat(np.arange(n_groups), 2 * sizes)
    at = changes >> 1
    level = np.cumsum(2 * (changes & 1) - 1)
    is_last = np.append((at[1:] != at[:-1]) | (group[1:] != group[:-1]), True)[: len(at)]
    return LevelChanges(group, at, level).filter(is_last)
