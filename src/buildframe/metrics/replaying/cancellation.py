"""Find why builds were canceled: by newer builds of their branch, or by people. Knows a record only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from buildframe.metrics.columns import NAT, Flags, Integers
from buildframe.metrics.numbered import latest_by, sum_by
from buildframe.metrics.replaying.record import BLOCK, BuildRecord

_AT_ONCE = 2_000_000
_STOPPING = 60_000_000
_MIN_CASES = 3
_MIN_SHARE = 0.8
_LONG, _LONG_SHARE = 10, 0.1


@dataclass(frozen=True)
class Cancellations:
    """How builds are canceled. Newer builds end older ones that run (`cancels`), or did not start (`skips`).

    `after` is how long after its creation a person canceled a build, `NAT` if none did. `stopped`
    is when the cancellation of each build began.
    """

    cancels: Flags
    skips: Flags
    after: Integers
    stopped: Integers


def find_cancellations(record: BuildRecord) -> Cancellations:
    """Find which branches cancel older builds, and which builds people canceled."""
    builds = record.builds
    stopped = _find_stops(record)
    newer, is_running = _pairs_under_way(record, stopped)
    is_over = (builds.is_canceled | builds.is_skipped) & (stopped != NAT)
    older = np.repeat(np.arange(len(newer)), [len(one) for one in newer])
    by = np.array([build for one in newer for build in one], np.int64)
    running = np.array([one for each in is_running for one in each], np.bool_)
    was_canceled = is_over[older] & (np.abs(stopped[older] - builds.created[by]) <= _AT_ONCE)
    cancels, skips = (
        _decide(
            builds.branch,
            builds.pipeline,
            older[running == mode],
            was_canceled[running == mode],
        )
        for mode in (True, False)
    )
    by_newer = was_canceled & np.where(running, cancels[older], skips[older])
    is_by_newer = np.zeros(len(builds.row), np.bool_)
    is_by_newer[older[by_newer]] = True
    after = np.where(is_over & ~is_by_newer, np.maximum(stopped - builds.created, 0), NAT)
    return Cancellations(cancels, skips, after, stopped)


def _find_stops(record: BuildRecord) -> Integers:
    """Return when the cancellation of each canceled build began: when the first of its jobs was canceled."""
    builds, jobs = record.builds, record.jobs
    first = np.where(builds.ended == NAT, np.iinfo(np.int64).max, builds.ended)
    ended = builds.ended[jobs.build]
    is_last = (ended == NAT) | (jobs.ended >= ended - _STOPPING)  # earlier ones were canceled alone
    chosen = np.flatnonzero(jobs.is_waiting & (jobs.ended != NAT) & is_last)
    np.minimum.at(first, jobs.build[chosen], jobs.ended[chosen])
    is_over = builds.is_canceled | builds.is_skipped
    return np.where(is_over & (first != np.iinfo(np.int64).max), first, NAT)


def _pairs_under_way(
    record: BuildRecord,
    stopped: Integers,
) -> tuple[list[list[int]], list[list[bool]]]:
    """Return for each build the newer builds of its branch that met it under way, and whether it had started then."""
    builds, jobs = record.builds, record.jobs
    n = len(builds.row)
    first = np.full(n, np.iinfo(np.int64).max)
    rows = np.flatnonzero((jobs.ready != NAT) & (jobs.kind != BLOCK))
    end = latest_by(
        jobs.build[rows],
        np.where(jobs.ended[rows] == NAT, record.end, jobs.ended[rows]),
        n,
    )
    started = np.where((jobs.started == NAT) & (jobs.ended != NAT), jobs.ended, jobs.started)[rows]
    np.minimum.at(
        first,
        jobs.build[rows],
        np.where(started == NAT, np.iinfo(np.int64).max, started),
    )
    active = _active_intervals(record, rows)
    of_branch: dict[int, list[int]] = defaultdict(list)
    newer: list[list[int]] = [[] for _ in range(n)]
    running: list[list[bool]] = [[] for _ in range(n)]
    created, ended = builds.created.tolist(), np.maximum(end, stopped).tolist()
    for build, branch in enumerate(builds.branch.tolist()):
        at = created[build]
        still = [older for older in of_branch[branch] if ended[older] >= at]
        for older in still:
            if created[older] < at and _is_active(active.get(older, ()), at):
                newer[older].append(build)
                running[older].append(first[older] < at)
        of_branch[branch] = [*still, build]
    return newer, running


def _active_intervals(record: BuildRecord, rows: Integers) -> dict[int, list[tuple[int, int]]]:
    """Return when the jobs of each build waited for agents or ran."""
    jobs = record.jobs
    ends = np.where(jobs.ended == NAT, record.end, jobs.ended)
    intervals: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for build, begin, end in zip(
        jobs.build[rows].tolist(),
        jobs.ready[rows].tolist(),
        ends[rows].tolist(),
        strict=True,
    ):
        intervals[build].append((begin, end))
    return intervals


def _is_active(intervals: Iterable[tuple[int, int]], at: int) -> bool:
    return any(begin <= at <= end + _AT_ONCE for begin, end in intervals)


def _decide(branch: Integers, pipeline: Integers, older: Integers, was_canceled: Flags) -> Flags:
    """Return for each build whether newer builds of its branch cancel it.

    Branches with few cases are decided together with the other such branches of their pipeline, if
    none of their own cases contradicts. Long ones without a case are not: the default branch often
    has a rule of its own.
    """
    n, n_pipelines = int(branch.max(initial=-1)) + 1, int(pipeline.max(initial=-1)) + 1
    n_builds = np.bincount(branch, minlength=n)
    cases, canceled = (
        np.bincount(branch[older], minlength=n),
        np.bincount(branch[older[was_canceled]], minlength=n),
    )
    of_branch = np.zeros(n, np.int64)
    of_branch[branch] = pipeline
    is_long = (n_builds >= _LONG) & (n_builds >= _LONG_SHARE * np.bincount(pipeline, minlength=n_pipelines)[of_branch])
    is_pooled = (cases < _MIN_CASES) & (~is_long | (cases > 0))
    of_pool, n_canceled = (sum_by(of_branch[is_pooled], own[is_pooled], n_pipelines) for own in (cases, canceled))
    in_pool = (of_pool >= _MIN_CASES) & (n_canceled >= _MIN_SHARE * of_pool)
    alone = (cases >= _MIN_CASES) & (canceled >= _MIN_SHARE * cases)
    return np.where(is_pooled, in_pool[of_branch] & (canceled == cases), alone)[branch]
