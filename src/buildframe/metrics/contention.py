"""Divide queue time among the jobs that held the agents: which jobs wait for which.

A sweep over the sorted times of all intervals of a queue: between two of them, the numbers of jobs
of each group that wait and that hold agents are constant. The time of such a segment, divided by
the number of holders, is summed over pairs of groups by a product of matrices, for many segments at
once.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import (
    DAY_LENGTH,
    NAT,
    TEXT,
    Flags,
    Floats,
    Integers,
    timestamp_micros,
)
from buildframe.metrics.durations import is_script
from buildframe.metrics.group_summaries import concat_results, spark_keys, summarize_groups
from buildframe.metrics.grouping import (
    Key,
    as_key_list,
    compute_key,
    find_groups,
    join_keys,
    key_name,
)
from buildframe.metrics.input_frames import Frame, column_names, for_functions, read_whole_groups
from buildframe.metrics.job_ends import COLUMNS as END_COLUMNS
from buildframe.metrics.job_ends import SEEN_UNTIL, with_ends
from buildframe.metrics.numbered import count_at_once, sum_by, weighted_quantiles
from buildframe.metrics.queues import BY_QUEUE
from buildframe.terminal import show

UNEXPLAINED = "unexplained"

_NEEDS = ("type", "queue", "runnable_at", "started_at", "finished_at", "fetched_at")

_USE_ONE_KEY = "Use one column such as 'pipeline', or a function."

_PART = 10
"""Agents of a day are as many as are busy in at least a tenth of the time that jobs wait on it."""

_SEGMENTS = 1024
"""Segments at a time. Few groups have jobs in them, so matrices stay small."""

_ROUNDING = 6
"""Digits of a microsecond to which sums of floats are exact."""


class JobSpans(NamedTuple):
    """Intervals in microseconds, with the numbers of the groups of their jobs."""

    group: Integers
    begin: Integers
    end: Integers

    def filter(self, chosen: Flags | Integers) -> JobSpans:
        """Return the chosen intervals."""
        return JobSpans(*(column[chosen] for column in self))


class SharedTime(NamedTuple):
    """Time in microseconds for which a group waited beside another one, ordered by both.

    The group after all others stands for unexplained time.
    """

    waiting: Integers
    holding: Integers
    time: Any

    def filter(self, chosen: Flags | Integers) -> SharedTime:
        """Return the chosen pairs of groups."""
        return SharedTime(*(column[chosen] for column in self))


@checked_names
def contention(jobs: Frame, by: Key = "pipeline") -> pd.DataFrame:
    """
    Divide queue time among the jobs that held the agents meanwhile: which jobs wait for which.

    Each second that a job waits is split equally over the jobs that hold agents of its queue in
    that second. A wait beside idle agents is unexplained. All parts add up to the queue time
    exactly.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `type`, `queue`,
        `runnable_at`, `started_at`, `finished_at` and `fetched_at`. Uses `state`, `expired_at` and
        `build_finished_at` if the frame has them. Pass all jobs of a queue, with every attempt
        (`include_retried_jobs=True`): jobs that are not in the frame explain no wait. Ids must be
        unique.
    by : str or function, default "pipeline"
        Column, or function `frame -> Series` such as `metrics.step`, by which both the waiting and
        the holding jobs are summed. In PySpark, a function is the column of its name.

    Returns
    -------
    pandas.DataFrame
        One row per queue, waiting group and holding group, ordered by these; unexplained time is
        the last row of a waiting group. Pairs without time have no row. An empty frame gives no
        rows. If the jobs have `organization`, it is the first column:

        ========= ======= =============================================================================
        queue     str     queue in which the jobs waited
        waiting   str     group of the jobs that waited, as text
        holding   str     group of the jobs that held the agents, as text, or `unexplained`
        explained boolean False in rows of unexplained time
        wait_s    float64 seconds of queue time, exact to the microsecond; may be negative in
                          unexplained rows if clocks disagree
        ========= ======= =============================================================================

        Its `attrs` count the waits in it (`n`), and of these: `n_censored`, which did not end by a
        start, `n_negative`, which ended before they began, and `n_no_queue`, of jobs without a
        known queue.

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

    Idle agents leave no trace in jobs, so their number is inferred from the busiest times: `agents`
    of a queue on a day (UTC) is the largest number that were busy at once during at least a tenth
    of the time that jobs waited on that day, each waiting job counted. While fewer jobs hold
    agents, waits are unexplained: agents were idle, starting or away. The maximum would be
    misleading, because one job that is seen to end late makes it too large by one. A fleet that
    shrinks within a day makes waits beside the smaller fleet unexplained.

    Negative waits, and those of jobs without a known queue, are unexplained. Times are split in
    whole microseconds, and what does not divide goes to the largest remainders.

    The result says who held the agents, not what would happen without them: while others wait for
    one pipeline, they wait for each other, too. In `replay` of ten months of the sandbox without
    each pipeline in turn, the pipeline for which others had waited most was the one without which
    they waited least in eight, and one of the first two in all. Leaving it out saved the others 42
    to 58 % of the hours that they had waited for it.

    Examples
    --------
    >>> waits = metrics.contention(jobs)
    >>> waits.nlargest(3, "wait_s").round(0)[["queue", "waiting", "holding", "wait_s"]]
          queue   waiting   holding    wait_s
    55    macos    mobile    mobile  491685.0
    32  default  platform  platform   57822.0
    0   default       api       api   22269.0
    >>> seconds = waits.pivot_table("wait_s", index="waiting", columns="holding", aggfunc="sum")
    >>> minutes = seconds / 60
    >>> minutes.loc[["api", "web"], ["api", "web", "unexplained"]].round()
    holding    api    web  unexplained
    waiting
    api      371.0   17.0         32.0
    web        5.0  361.0         53.0
    """
    if not isinstance(by, str) and not callable(by):
        raise BadInput(f"by={show(by)} is not one key. {_USE_ONE_KEY}")
    (by,) = as_key_list(spark_keys(jobs, by))
    frame, key = _with_key_column(for_functions(jobs, [by]), by)
    of_queue = [name for name in ("organization", *BY_QUEUE) if name in column_names(frame)]
    return summarize_groups(frame, functools.partial(_contention, of_queue, key), of_queue)


def _with_key_column(frame: Frame, key: Key) -> tuple[Frame, str]:
    """Return a frame with the result of a function as a column, and the column's name."""
    if isinstance(frame, pd.DataFrame) and callable(key):
        values = compute_key(frame, key)
        return frame.assign(**{str(values.name): values}), str(values.name)
    return frame, key_name(key)


def _contention(of_queue: Sequence[str], key: str, jobs: Frame) -> pd.DataFrame:
    whole_queues = read_whole_groups(jobs, of_queue, [*_NEEDS, key], END_COLUMNS)
    return concat_results([_divide_waits(of_queue, key, rows) for rows in whole_queues], of_queue)


def _divide_waits(of_queue: Sequence[str], key: str, jobs: pd.DataFrame) -> pd.DataFrame:
    """Divide the waits of whole queues, and count them in `attrs`."""
    jobs = with_ends(jobs)
    jobs = jobs[is_script(jobs).to_numpy()]
    group, texts = _number_texts(jobs[key])
    runnable = timestamp_micros(jobs, "runnable_at")
    started = timestamp_micros(jobs, "started_at")
    seen_until = timestamp_micros(jobs, SEEN_UNTIL)
    waits = JobSpans(group, runnable, np.where(started == NAT, seen_until, started))
    holds = JobSpans(group, started, seen_until)

    is_wait = (waits.begin != NAT) & (waits.end != NAT)
    has_queue = jobs[[name for name in BY_QUEUE if name in jobs]].notna().any(axis=1).to_numpy()
    is_hold = (holds.begin != NAT) & has_queue

    codes, queues = find_groups(jobs, list(of_queue))
    nothing = np.zeros(0, np.int64)
    shares = [SharedTime(nothing, nothing, nothing)]
    queue_of_pair = [nothing]
    for queue, rows in enumerate(_rows_of_groups(codes, len(queues))):
        waits_of_queue = waits.filter(rows[is_wait[rows]])
        holds_of_queue = holds.filter(rows[is_hold[rows]])
        share = _divide_queue(waits_of_queue, holds_of_queue, len(texts))
        shares.append(share)
        queue_of_pair.append(np.full(len(share.time), queue))
    waiting, holding, time = (np.concatenate(columns) for columns in zip(*shares, strict=True))
    columns = {
        "waiting": pd.Series(texts[waiting], dtype=TEXT),
        "holding": pd.Series(np.append(texts, UNEXPLAINED)[holding], dtype=TEXT),
        "explained": pd.array(holding < len(texts), "boolean"),
        "wait_s": time / 1e6,
    }
    keys = queues.take(np.concatenate(queue_of_pair)).reset_index(drop=True)
    result = join_keys(keys, pd.DataFrame(columns))
    counts = {
        "n": is_wait,
        "n_censored": is_wait & (started == NAT),
        "n_negative": is_wait & (waits.end < waits.begin),
        "n_no_queue": is_wait & ~has_queue,
    }
    result.attrs = {name: int(flags.sum()) for name, flags in counts.items()}
    return result


def _number_texts(key: pd.Series[Any]) -> tuple[Integers, Any]:
    """Return the number of each value's text, and the ordered texts. That of null is last: None."""
    codes, values = pd.factorize(key)
    texts, numbers = np.unique(np.array([*map(str, values)], object), return_inverse=True)
    number_of_code = np.append(numbers, len(texts)).astype(np.int64)  # the code of null is -1
    return number_of_code[codes], np.append(texts, np.array([None]))


def _rows_of_groups(codes: Integers, n_groups: int) -> list[Integers]:
    """Return the places of the rows of each group."""
    order = np.argsort(codes, kind="stable")
    stops = np.cumsum(np.bincount(codes, minlength=n_groups))
    return np.split(order, stops)[:n_groups]


def _divide_queue(waits: JobSpans, holds: JobSpans, n_groups: int) -> SharedTime:
    """Divide the waits in a queue; for each waiting group the time adds up to its waits.

    Waits that end before they begin are unexplained.
    """
    total = sum_by(waits.group, waits.end - waits.begin, n_groups)
    waits = waits.filter(waits.end > waits.begin)
    holds = holds.filter(holds.end > holds.begin)
    times = _segment_ends(waits, holds)
    length = np.diff(times)
    n_waiting = count_at_once(times, waits.begin, waits.end)
    n_holding = count_at_once(times, holds.begin, holds.end)
    n_agents = _known_agents(times[:-1], length * n_waiting, n_holding)
    is_explained = (n_holding > 0) & (n_holding >= n_agents)

    explained_until = np.append(0, np.cumsum(np.where(is_explained, length, 0)))
    begin = np.searchsorted(times, waits.begin)
    end = np.searchsorted(times, waits.end)
    explained = sum_by(waits.group, explained_until[end] - explained_until[begin], n_groups)

    time_of_holder = length / np.maximum(n_holding, 1)
    time_of_holder = np.where(is_explained & (n_waiting > 0), time_of_holder, 0.0)
    shared = _round_to(explained, _sum_pairs(time_of_holder, times, waits, holds, n_groups))

    rest = np.flatnonzero(total != explained)
    waiting = np.concatenate([shared.waiting, rest])
    holding = np.concatenate([shared.holding, np.full(len(rest), n_groups)])
    time = np.concatenate([shared.time, (total - explained)[rest]])
    return SharedTime(waiting, holding, time).filter(np.lexsort((holding, waiting)))


def _segment_ends(waits: JobSpans, holds: JobSpans) -> Integers:
    """Return all times at which something changes, and midnights (UTC) around it, in order."""
    times = np.unique(np.concatenate([waits.begin, waits.end, holds.begin, holds.end]))
    days = np.unique(times // DAY_LENGTH)
    return np.union1d(times, np.concatenate([days, days + 1]) * DAY_LENGTH)


def _known_agents(at: Integers, weight: Integers, n_holding: Integers) -> Integers:
    """Return how many agents the queue has for certain on the day of each segment.

    This is the largest number that are busy during at least a tenth of the weight, which is time
    times waiting jobs.
    """
    day, days = pd.factorize(at // DAY_LENGTH)
    most, _ = weighted_quantiles(day, -n_holding, weight, len(days), _PART)
    return -most[day]


def _sum_pairs(
    time_of_holder: Floats,
    times: Integers,
    waits: JobSpans,
    holds: JobSpans,
    n_groups: int,
) -> SharedTime:
    """Sum the time that a holder gets in each segment over pairs of waiting and holding jobs."""
    starts = np.arange(0, len(time_of_holder), _SEGMENTS)
    is_needed = np.zeros(0, np.bool_)
    if len(starts):
        is_needed = np.logical_or.reduceat(time_of_holder > 0, starts)
    codes = [np.zeros(0, np.int64)]
    sums = [np.zeros(0)]
    blocks = zip(
        starts[is_needed],
        _count_in_blocks(times, waits, n_groups, is_needed),
        _count_in_blocks(times, holds, n_groups, is_needed),
        strict=True,
    )
    for start, (waiting, n_waiting), (holding, n_holding) in blocks:
        time_of_segment = time_of_holder[start : start + _SEGMENTS, None]
        shared = (n_waiting * time_of_segment).T @ n_holding  # groups that wait x groups that hold
        row, column = np.nonzero(shared)
        codes.append(waiting[row] * n_groups + holding[column])
        sums.append(shared[row, column])
    pairs, pair_of_sum = np.unique(np.concatenate(codes), return_inverse=True)
    time = np.bincount(pair_of_sum, np.concatenate(sums), len(pairs))
    waiting, holding = np.divmod(pairs, max(n_groups, 1))
    return SharedTime(waiting, holding, time)


def _count_in_blocks(
    times: Integers, spans: JobSpans, n_groups: int, is_needed: Flags
) -> Iterator[tuple[Integers, Floats]]:
    """Yield, for each needed block of segments, the groups in it and how many of their jobs.

    The numbers have a row per segment and a column per group.
    """
    segment = np.searchsorted(times, np.concatenate([spans.begin, spans.end]))
    change = np.repeat([1.0, -1.0], len(spans.group))
    order = np.argsort(segment, kind="stable")
    segment, change, group = segment[order], change[order], np.tile(spans.group, 2)[order]
    limits = np.searchsorted(segment, np.arange(len(is_needed) + 1) * _SEGMENTS)
    level = np.zeros(n_groups)
    for block, is_block_needed in enumerate(is_needed):
        rows = slice(*limits[block : block + 2])
        if is_block_needed:
            first = block * _SEGMENTS
            size = min(_SEGMENTS, len(times) - 1 - first)
            groups = np.union1d(np.flatnonzero(level), group[rows])
            is_inside = segment[rows] < first + size  # the last time of all begins no segment
            cell = (segment[rows] - first) * len(groups) + np.searchsorted(groups, group[rows])
            changes = np.zeros(size * len(groups))
            np.add.at(changes, cell[is_inside], change[rows][is_inside])
            changes[: len(groups)] += level[groups]
            yield groups, np.cumsum(changes.reshape(size, -1), axis=0)
        level += np.bincount(group[rows], change[rows], n_groups)


def _round_to(totals: Integers, pairs: SharedTime) -> SharedTime:
    """Round times to whole numbers with these totals by waiting group.

    The largest remainders are rounded up. They are compared as far as sums of floats are exact, so
    that the result does not depend on their order.
    """
    n_groups = len(totals)
    whole = np.floor(pairs.time + 10.0**-_ROUNDING).astype(np.int64)
    remainder = np.round(pairs.time - whole, _ROUNDING)
    missing = totals - sum_by(pairs.waiting, whole, n_groups)
    n_pairs = np.bincount(pairs.waiting, minlength=n_groups)
    all_get, some_get = np.divmod(missing, np.maximum(n_pairs, 1))

    order = np.lexsort((-remainder, pairs.waiting))
    first_of_group = np.append(0, np.cumsum(n_pairs))[pairs.waiting[order]]
    rank = np.empty(len(order), np.int64)  # of the remainder of each pair in its group
    rank[order] = np.arange(len(order)) - first_of_group
    time = whole + all_get[pairs.waiting] + (rank < some_get[pairs.waiting])
    return SharedTime(pairs.waiting, pairs.holding, time).filter(time != 0)
