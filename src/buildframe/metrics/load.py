"""Count how many jobs ran or waited over time, and measure how much of agents' time they used, in pandas.

Other engines than pandas are handled in `sweeps`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.build_times import Flags, Integers, timestamp_micros
from buildframe.metrics.columns import NAT
from buildframe.metrics.durations import is_script
from buildframe.metrics.engines import Frame, collect_columns, is_pandas, running_sums
from buildframe.metrics.engines.running_sums import TimeWindow
from buildframe.metrics.grouping import By, Groups, find_groups, join_keys
from buildframe.spec.times import Moment, When


@checked_names
def concurrency(jobs: Frame, by: By = "queue", start: When | None = None, end: When | None = None) -> pd.DataFrame:
    """
    Count how many jobs ran at once over time, as a step function.

    The counts are exact, not sampled: count times seconds adds up to machine time, and parts of a time window add up to
    the whole.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `started_at`, `finished_at`,
        `fetched_at` and `build_created_at`. Ids must be unique.
    by : str, function or list of these, default "queue"
        Keys that define the groups, as in `percentiles`. None puts all rows into one group.
    start, end : datetime, date, str or timedelta, optional
        Limits of the time window, as in `created_from`. An age such as "7d" counts back from the latest `fetched_at`.
        By default the window covers all runs.

    Returns
    -------
    pandas.DataFrame
        One row per change, ordered by key and time. An empty frame gives no rows. After the keys:

        ========== =================== =======================================================================
        at         datetime64[us, UTC] time from which the count holds, until the next `at` of the group
        running    Int64               jobs that ran
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
    A run is the interval [started_at, finished_at) of every attempt. A job without `finished_at` runs until
    `fetched_at`.

    `whole` is False before the first `build_created_at` plus the longest time from a build's creation to the end of a
    run, and after the last `build_created_at`. It speaks of time only: a frame filtered by pipeline or branch gives the
    load of these jobs, and `whole` does not show that others are missing. Fetch builds from earlier than `start` to
    have whole rows from `start` on.

    Examples
    --------
    >>> load = metrics.concurrency(jobs)
    >>> load.groupby("queue")["running"].max()
    queue
    default    6
    deploy     1
    docker     2
    macos      1
    Name: running, dtype: Int64
    """
    if not is_pandas(jobs):
        return running_sums.load(jobs, by, running_sums.RUNNING, start, end)
    table, groups = _grouped(jobs, ["started_at", "finished_at", "fetched_at", "build_created_at"], by)
    begin = timestamp_micros(table, "started_at")
    finish = _coalesce(timestamp_micros(table, "finished_at"), timestamp_micros(table, "fetched_at"))
    return _load("running", table, groups, begin, finish, _window(table, start, end))


@checked_names
def queue_depth(jobs: Frame, by: By = "queue", start: When | None = None, end: When | None = None) -> pd.DataFrame:
    """
    Count how many script jobs waited for an agent at once over time, as a step function.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `type`, `runnable_at`, `started_at`,
        `finished_at`, `fetched_at` and `build_created_at`. Ids must be unique.
    by : str, function or list of these, default "queue"
        Keys that define the groups, as in `percentiles`. None puts all rows into one group.
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
    A wait is the interval [runnable_at, started_at). A job that never started waited until `finished_at`, or else until
    `fetched_at`. Jobs of other types need no agent. Count times seconds adds up to queue time, including jobs that
    never started.

    Examples
    --------
    >>> waiting = metrics.queue_depth(jobs, start="2026-10-29", end="2026-10-30")
    >>> waiting.groupby("queue")["waiting"].max()
    queue
    default    18
    deploy      1
    docker      4
    macos      12
    Name: waiting, dtype: Int64
    """
    if not is_pandas(jobs):
        return running_sums.load(jobs, by, running_sums.WAITING, start, end)
    stamps = ["runnable_at", "started_at", "finished_at", "fetched_at", "build_created_at"]
    table, groups = _grouped(jobs, ["type", *stamps], by)
    begin = np.where(is_script(table).to_numpy(), timestamp_micros(table, "runnable_at"), NAT)
    finish = _coalesce(*(timestamp_micros(table, name) for name in ("started_at", "finished_at", "fetched_at")))
    return _load("waiting", table, groups, begin, finish, _window(table, start, end))


@checked_names
def utilization(jobs: Frame, by: By = "queue") -> pd.DataFrame:
    """
    Compute the share of agents' time that these jobs used.

    An agent's time runs from its first `started_at` to its last `finished_at` in a group.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `agent_id`, `started_at` and
        `finished_at`. Ids must be unique.
    by : str, function or list of these, default "queue"
        Keys that define the groups, as in `percentiles`. None puts all rows into one group. An agent in several groups
        counts in each, with its jobs there.

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
        n_running  Int64   jobs that started and have not finished; left out
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
    3    macos       1        0.29
    """
    if not is_pandas(jobs):
        return running_sums.utilization(jobs, by)
    table, groups = _grouped(jobs, ["agent_id", "started_at", "finished_at"], by)
    begin, finish = timestamp_micros(table, "started_at"), timestamp_micros(table, "finished_at")
    agents, started = pd.factorize(table["agent_id"])[0], begin != NAT
    ended = started & (finish != NAT)
    counted = ended & (agents >= 0)
    summary = _busy(groups, counted, agents, begin, finish).assign(
        n_running=_tally(groups, started & ~ended),
        n_no_agent=_tally(groups, ended & ~counted),
        n_negative=_tally(groups, counted & (finish < begin)),
    )
    nonempty = np.flatnonzero(_tally(groups, started))
    return join_keys(groups.keys, summary).iloc[nonempty].reset_index(drop=True)


def _busy(groups: Groups, counted: Flags, agents: Integers, begin: Integers, finish: Integers) -> pd.DataFrame:
    """Sum over the agents of each group: their number, run time, and time between first start and last end."""
    ran, begin, finish = groups.codes[counted], begin[counted], finish[counted]
    codes, pairs = pd.factorize(ran * (agents.max(initial=0) + 1) + agents[counted])
    first, last = np.full(len(pairs), np.iinfo(np.int64).max), np.full(len(pairs), NAT)
    np.minimum.at(first, codes, begin)
    np.maximum.at(last, codes, finish)
    of = pairs // (agents.max(initial=0) + 1)
    n = len(groups.keys)
    busy, seen = np.bincount(ran, finish - begin, n) / 1e6, np.bincount(of, last - first, n) / 1e6
    share_used = np.divide(busy, seen, out=np.full(n, np.nan), where=seen > 0)
    summary = pd.DataFrame({"agents": pd.array(np.bincount(of, minlength=n), "Int64")})
    return summary.assign(busy_s=busy, seen_s=seen, share_used=share_used)


def _tally(groups: Groups, those: Flags) -> pd.arrays.IntegerArray:
    return pd.array(np.bincount(groups.codes[those], minlength=len(groups.keys)), dtype="Int64")


def _grouped(frame: pd.DataFrame, needs: Sequence[str], by: By) -> tuple[pd.DataFrame, Groups]:
    """Return the selected columns and the groups of their rows."""
    return collect_columns(frame, needs), find_groups(frame, by)


def _coalesce(first: Integers, *others: Integers) -> Integers:
    for other in others:
        first = np.where(first == NAT, other, first)
    return first


# Step functions


class _Steps(NamedTuple):
    """Number of intervals (`level`) of a group that cover the time from `at` on; ordered by group and time."""

    group: Integers
    at: Integers
    level: Integers

    def filter(self, chosen: Flags) -> _Steps:
        return _Steps(*(column[chosen] for column in self))


def _window(table: pd.DataFrame, start: When | None, end: When | None) -> TimeWindow:
    latest = timestamp_micros(table, "fetched_at").max(initial=NAT)
    return TimeWindow.of(start, end, None if latest == NAT else Moment.from_us(int(latest)))


def _load(
    name: str, table: pd.DataFrame, groups: Groups, begin: Integers, finish: Integers, window: TimeWindow
) -> pd.DataFrame:
    complete = (begin != NAT) & (finish != NAT)
    codes, begin, ended = groups.codes[complete], begin[complete], finish[complete]
    created = timestamp_micros(table, "build_created_at")
    negative = np.bincount(codes[ended < begin], minlength=len(groups.keys))
    steps = _within(window, codes, begin, np.maximum(begin, ended), len(groups.keys))
    columns = {
        "at": pd.DatetimeIndex(steps.at.view("datetime64[us]"), tz="UTC"),
        name: pd.array(steps.level, dtype="Int64"),
        "whole": _whole(steps.at, created, (finish - created)[complete & (created != NAT)]),
        "n_negative": pd.array(negative[steps.group], dtype="Int64"),
    }
    return join_keys(groups.keys.iloc[steps.group].reset_index(drop=True), pd.DataFrame(columns))


def _within(window: TimeWindow, codes: Integers, begin: Integers, finish: Integers, n: int) -> _Steps:
    """Return the changes in each of the n groups within the window, and rows at its limits."""
    for edge in window:
        if edge is not None:
            nonempty = np.flatnonzero(np.bincount(codes, minlength=n))
            codes = np.concatenate([codes, nonempty])
            begin, finish = (np.concatenate([one, np.full(len(nonempty), edge)]) for one in (begin, finish))
    steps = _steps(codes, _cut(begin, window), _cut(finish, window), n)
    is_first, is_change = (np.diff(one, prepend=-1) != 0 for one in (steps.group, steps.level))
    if window.end is None:
        return steps.filter(is_first | is_change)
    return steps.filter((is_first | is_change | (steps.at == window.end)) & (steps.at <= window.end))


def _cut(times: Integers, window: TimeWindow) -> Integers:
    """Clip times to the window; later ones become the microsecond after its end."""
    after = None if window.end is None else window.end + 1
    return times if window == (None, None) else np.clip(times, window.start, after)


def _steps(codes: Integers, begin: Integers, finish: Integers, n: int) -> _Steps:
    """Count the intervals of each group that cover each time at which one starts or ends."""
    order = np.argsort(codes.astype(np.int16) if n < 2**15 else codes, kind="stable")  # int16 uses radix sort
    begin, finish = 2 * begin[order] + 1, 2 * finish[order]  # the last bit says that one begins
    changes, sizes = np.empty(2 * len(codes), np.int64), np.bincount(codes, minlength=n)
    for stop, size in zip(np.cumsum(sizes).tolist(), sizes.tolist(), strict=True):
        part = changes[2 * (stop - size) : 2 * stop]
        np.concatenate([begin[stop - size : stop], finish[stop - size : stop]], out=part)
        part.sort()
    group, at = np.repeat(np.arange(n), 2 * sizes), changes >> 1
    is_last = np.append((at[1:] != at[:-1]) | (group[1:] != group[:-1]), True)[: len(at)]
    return _Steps(group, at, np.cumsum(2 * (changes & 1) - 1)).filter(is_last)


def _whole(at: Integers, created: Integers, lasting: Integers) -> pd.arrays.BooleanArray:
    """Return whether no build outside the frame can have had a job at each time.

    `lasting` is how long after their builds' creation jobs ended.
    """
    known = created[created != NAT]
    if not len(known):
        return pd.arrays.BooleanArray(np.zeros(len(at), np.bool_), np.ones(len(at), np.bool_))
    is_whole = (at >= known.min() + lasting.max(initial=0)) & (at <= known.max())
    return pd.arrays.BooleanArray(is_whole, np.zeros(len(at), np.bool_))
