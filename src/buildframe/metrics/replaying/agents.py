"""Measure how agents behaved in a record: how long each took to start a job, and how many there were in each queue."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from buildframe.metrics.columns import NAT, Flags, Integers
from buildframe.metrics.numbered import peak
from buildframe.metrics.replaying.record import AGENT, BuildRecord, RecordedJobs

_SINGLE_USE_SHARE = 0.95
_FEW_JOBS = 10
_PEAK_SHARE = 0.8
_NO_AGENT_QUANTILE = 0.05
_HELD_UP = 5_000_000
"""Microseconds of waiting after which a job has waited for an agent, and not for its start alone."""


@dataclass(frozen=True)
class AgentTimes:
    """Microseconds for which agents are held without a run.

    `lag` is the time from the assignment of a job to its start, and `away` how long its agent stays
    away afterwards. `typical` is the median lag of each queue.
    """

    lag: Integers
    away: Integers
    typical: Integers
    is_single_use: Flags


def measure_agents(record: BuildRecord) -> AgentTimes:
    """Measure how long each job held its agent before its start and after its end."""
    jobs, n_queues = record.jobs, len(record.queues)
    is_run = (jobs.kind == AGENT) & (jobs.started != NAT) & (jobs.ready != NAT)
    freed, previous = _previous_on_agent(jobs, is_run)
    lag = np.where(is_run, np.maximum(jobs.started - np.maximum(jobs.ready, freed), 0), 0)
    is_single = _find_single_use(jobs, is_run, n_queues)
    lag = _limit_first_lags(record, lag, is_run, previous, n_queues)
    typical = np.zeros(
        n_queues + 1,
        np.int64,
    )  # the last one is that of jobs without a known queue, -1
    for queue in range(n_queues):
        own = is_run & (jobs.queue == queue) & (jobs.agent >= 0)
        typical[queue] = int(np.median(lag[own])) if own.any() else _shortest_wait(jobs, is_run, queue)
    no_agent = is_run & (jobs.agent < 0)
    lag = np.where(no_agent, np.minimum(lag, typical[jobs.queue]), lag)
    lag = np.where((jobs.kind == AGENT) & ~is_run, typical[jobs.queue], lag)
    away, lag = _find_away(jobs, lag, previous, typical)
    return AgentTimes(lag, away, typical, is_single)


def _previous_on_agent(jobs: RecordedJobs, is_run: Flags) -> tuple[Integers, Integers]:
    """Return the latest end of earlier jobs on each job's agent, and the row of the one before it, or -1."""
    rows = np.flatnonzero(is_run & (jobs.agent >= 0))
    rows = rows[np.lexsort((jobs.started[rows], jobs.agent[rows]))]
    freed, previous = np.full(len(jobs.row), NAT), np.full(len(jobs.row), -1)
    same = np.flatnonzero(np.diff(jobs.agent[rows]) == 0)
    previous[rows[same + 1]] = rows[same]
    freed[rows[same + 1]] = jobs.ended[rows[same]]
    return freed, previous


def _find_single_use(jobs: RecordedJobs, is_run: Flags, n_queues: int) -> Flags:
    found = np.zeros(n_queues, np.bool_)
    for queue in range(n_queues):
        _, counts = np.unique(
            jobs.agent[is_run & (jobs.queue == queue) & (jobs.agent >= 0)],
            return_counts=True,
        )
        found[queue] = counts.sum() >= _FEW_JOBS and (counts == 1).mean() >= _SINGLE_USE_SHARE
    return found


def _limit_first_lags(
    record: BuildRecord,
    lag: Integers,
    is_run: Flags,
    previous: Integers,
    n_queues: int,
) -> Integers:
    """Limit the lag of the first job on each agent to the time that agents take to boot.

    Such a job may have waited because there were no agents. That is certain not to be so if less
    than 80 % of the highest number of busy agents waited or ran when it became ready; the median of
    these lags limits the others.
    """
    jobs, lag = record.jobs, lag.copy()
    for queue in range(n_queues):
        own = is_run & (jobs.queue == queue)
        first = np.flatnonzero(own & (previous < 0) & (jobs.agent >= 0))
        if not len(first):
            continue
        present = _count_at(jobs.ready[own], jobs.ended[own], jobs.ready[first])
        is_quiet = present < _PEAK_SHARE * peak(jobs.started[own], jobs.ended[own])
        boot = np.median(lag[first[is_quiet]]) if is_quiet.any() else lag[first].min()
        lag[first] = np.where(is_quiet, lag[first], np.minimum(lag[first], int(boot)))
    return lag


def _shortest_wait(jobs: RecordedJobs, is_run: Flags, queue: int) -> int:
    own = is_run & (jobs.queue == queue)
    waits = np.maximum(jobs.started - jobs.ready, 0)[own]
    return int(np.quantile(waits, _NO_AGENT_QUANTILE)) if len(waits) else 0


def _find_away(
    jobs: RecordedJobs,
    lag: Integers,
    previous: Integers,
    typical: Integers,
) -> tuple[Integers, Integers]:
    """Return how long the agents of lost jobs stayed away, and lags without that time.

    The next job shows it if it had waited; if not, it shows an upper bound.
    """
    away, following = np.zeros(len(lag), np.int64), np.full(len(lag), -1)
    has_next = np.flatnonzero(previous >= 0)
    following[previous[has_next]] = has_next
    lost = np.flatnonzero(jobs.is_lost & (jobs.kind == AGENT) & (jobs.ended != NAT))
    after = following[lost]
    known = after >= 0
    start = np.minimum(typical[jobs.queue[after]], lag[after])
    bound = np.where(
        known,
        np.maximum(jobs.started[after] - start - jobs.ended[lost], 0),
        np.iinfo(np.int64).max,
    )
    has_waited = known & (jobs.started[after] - jobs.ready[after] > start + _HELD_UP)
    if not len(lost) or not known.any():
        return away, lag
    usual = int(np.median(bound[has_waited])) if has_waited.any() else int(bound[known].min())
    away[lost] = np.where(has_waited, bound, np.minimum(bound, usual))
    lag = lag.copy()
    lag[after[known]] = np.minimum(lag[after[known]], typical[jobs.queue[after[known]]])
    return away, lag


def _count_at(begin: Integers, end: Integers, times: Integers) -> Integers:
    """Return how many intervals [begin, end) cover each of these times, including those that begin then."""
    begun, ended = np.sort(begin), np.sort(end[end != NAT])
    return np.searchsorted(begun, times, "right") - np.searchsorted(ended, times, "right")


@dataclass(frozen=True)
class AgentUse:
    """Jobs of one queue in the order of their readiness: when each was ready, got its agent, and let it go."""

    ready: Integers
    assigned: Integers
    freed: Integers
    agent: Integers
    build: Integers


def uses_of_queue(record: BuildRecord, times: AgentTimes, queue: int) -> AgentUse:
    """Return the jobs of a queue that got an agent. Jobs without an end hold it until the end of the record."""
    jobs = record.jobs
    own = np.flatnonzero(
        (jobs.kind == AGENT) & (jobs.queue == queue) & (jobs.started != NAT) & (jobs.ready != NAT),
    )
    own = own[np.argsort(jobs.ready[own], kind="stable")]
    assigned = np.maximum(jobs.started[own] - times.lag[own], jobs.ready[own])
    ended = np.where(jobs.ended[own] == NAT, record.end, jobs.ended[own]) + times.away[own]
    return AgentUse(
        jobs.ready[own],
        assigned,
        np.maximum(ended, assigned),
        jobs.agent[own],
        jobs.build[own],
    )
