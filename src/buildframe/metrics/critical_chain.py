"""Follow the critical chain of each build, from its end back to its creation. Knows pandas; does not know engines."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe.metrics.columns import NAT, Flags, Integers, check_unique_ids, timestamp_micros
from buildframe.metrics.engines.rows import GROUP
from buildframe.metrics.predecessors import (
    NEAR,
    NONE,
    REPEAT,
    SKEW,
    PipelineJobs,
    Predecessors,
    equals,
    find_latest,
    find_predecessors,
    read_jobs,
    with_build_ends,
)

KINDS = (
    "setup", "dependency", "concurrency", "blocked", "manual_retry", "queue", "run", "retry", "trigger", "unknown",
)  # fmt: skip
"""Kinds of segments, in the order of the documentation."""

SETUP, DEPENDENCY, CONCURRENCY, BLOCKED, MANUAL_RETRY, QUEUE, RUN, RETRY, TRIGGER, UNKNOWN = range(len(KINDS))

BUILD = "build"
"""Value of `type` in rows of builds."""

_OF_BUILD = {"id": "build_id", "build_number": "build_number", "branch": "branch", "created_at": "build_created_at"}
_ENDED_UNSTARTED = ("canceled", "canceling", "expired", "skipped", "broken")


class _ChainSegments(NamedTuple):
    """Segments of chains: their builds, places from the end of the build, kinds, jobs (-1: none) and times."""

    build: Integers
    place: Integers
    kind: Integers
    job: Integers
    start: Integers
    stop: Integers


def split_wall_time(table: pd.DataFrame) -> pd.DataFrame:
    """Return the segments of builds, whose rows lie among those of the jobs of their pipelines."""
    of_builds = equals(table, "type", BUILD)
    builds = table[of_builds]
    jobs = read_jobs(with_build_ends(table[~of_builds], builds))
    check_unique_ids(builds)
    builds = builds.sort_values([GROUP, "created_at", "id"], ignore_index=True)
    segments = _Chains(jobs, builds).segments()
    return _to_frame(segments, builds, jobs)


def _to_frame(segments: _ChainSegments, builds: pd.DataFrame, jobs: PipelineJobs) -> pd.DataFrame:
    build, _, kind, job, start, stop = segments
    of_build = builds[[GROUP, *_OF_BUILD]].rename(columns=_OF_BUILD).take(build).reset_index(drop=True)
    of_job = {
        column: jobs.rows[name].array.take(job, allow_fill=True)
        for column, name in (("job_id", "id"), ("queue", "queue"), ("queue_id", "queue_id"))
        if name in jobs.rows
    }
    step = np.where(job >= 0, jobs.step[job], -1) if len(jobs.rows) else job
    first = np.flatnonzero(np.diff(build, prepend=-1))
    position = np.arange(len(build)) - np.repeat(first, np.diff(first, append=len(build)))
    return of_build.assign(
        position=pd.array(position, "Int64"),
        kind=pd.Series(KINDS, dtype="str").take(kind).array,
        step=jobs.steps.array.take(step, allow_fill=True),
        **of_job,
        started_at=_as_times(start),
        finished_at=_as_times(stop),
        duration_s=(stop - start) / 1e6,
    )


def _find_builds(jobs: PipelineJobs, builds: pd.DataFrame) -> Integers:
    """Return the place of each job's build in its pipeline, or -1."""
    known = np.flatnonzero(builds["id"].notna())
    found = pd.Index(builds["id"].iloc[known]).get_indexer(pd.Index(jobs.build_ids))
    place = np.append(known, -1)[found][jobs.build]
    group = np.append(builds[GROUP].to_numpy(np.int64), -1)
    return np.where(group[place] == jobs.group, place, -1)


def _as_times(micros: Integers) -> pd.DatetimeIndex:
    return pd.DatetimeIndex(micros.view("datetime64[us]"), tz="UTC")


class _Chains:
    """The critical chains of builds with a creation and an end."""

    def __init__(self, jobs: PipelineJobs, builds: pd.DataFrame) -> None:
        self._jobs, (self._before, _) = jobs, find_predecessors(jobs)
        self._created, self._ended = (timestamp_micros(builds, name) for name in ("created_at", "finished_at"))
        self._build = _find_builds(jobs, builds)
        self._ended_unstarted = jobs.rows["state"].isin(_ENDED_UNSTARTED).to_numpy(np.bool_)

    def segments(self) -> _ChainSegments:
        """Return the segments in the order of builds and times; each starts where the one before ended."""
        job, end = self._find_last_jobs()
        pieces = [self._unknown(self._build[job], end)]  # after the last job
        visited = np.zeros(len(self._jobs.rows), np.bool_)
        while len(job):
            visited[job] = True
            before, at, rule = (of[job] for of in self._before)
            is_loop = (before >= 0) & visited[before]
            before, at, rule = np.where(is_loop, -1, before), np.where(is_loop, NAT, at), np.where(is_loop, -1, rule)
            pieces.extend(self._segments_of(job, end, Predecessors(before, at, rule), len(pieces)))
            job, end = before[before >= 0], at[before >= 0]
        whole = _ChainSegments(*map(np.concatenate, zip(*pieces, strict=True)))
        whole = _ChainSegments(*(of[(whole.start != whole.stop)] for of in whole))
        empty = np.setdiff1d(np.arange(len(self._ended)), whole.build)
        without = self._unknown(empty, self._created[empty])
        whole = _ChainSegments(*map(np.concatenate, zip(whole, without, strict=True)))
        order = np.lexsort((-whole.place, whole.build))
        return self._with_concurrency(_ChainSegments(*(of[order] for of in whole)))

    def _find_last_jobs(self) -> tuple[Integers, Integers]:
        """Return the job that ended last in each build that has one, and when, at most the build's end."""
        jobs = self._jobs
        row = np.flatnonzero((self._build >= 0) & (jobs.finished != NAT) & (jobs.is_exact | (jobs.started != NAT)))
        limit, has_run = self._ended[self._build[row]], jobs.started[row] != NAT
        end = np.minimum(jobs.finished[row], limit)
        run = np.where(has_run, end - np.minimum(jobs.started[row], limit), 0)
        order = np.lexsort((row, -run, ~has_run, -end, self._build[row]))
        _, first = np.unique(self._build[row][order], return_index=True)
        return row[order][first], end[order][first]

    def _unknown(self, build: Integers, start: Integers) -> _ChainSegments:
        """Return the time from a start to the end of each of these builds, of which nothing is known."""
        n = len(build)
        kind, job = np.full(n, UNKNOWN), np.full(n, -1)
        return _ChainSegments(build, np.zeros(n, np.int64), kind, job, start, self._ended[build])

    def _segments_of(self, job: Integers, end: Integers, before: Predecessors, place: int) -> list[_ChainSegments]:
        """Return the run, the queue and the gap of a job of each build, up to `end`."""
        jobs, build = self._jobs, self._build[job]
        ready = np.minimum(jobs.ready[job], self._ended[build]) if place == 1 else jobs.ready[job]
        started = np.minimum(jobs.started[job], self._ended[build]) if place == 1 else jobs.started[job]
        has_run = jobs.is_script[job] & (jobs.started[job] != NAT)
        run_from = np.select([has_run, jobs.is_script[job]], [started, end], ready)
        since = np.where(before.row >= 0, before.at, self._created[build])
        run = np.where(jobs.is_script[job], np.where(jobs.is_superseded[job], RETRY, RUN), TRIGGER)
        queue = np.where(has_run | self._ended_unstarted[job], QUEUE, UNKNOWN)
        gap = self._kinds_of_gaps(job, ready - since, before.rule)
        ready = np.where(jobs.is_block[job], end, ready)
        parts = ((run, run_from, end), (queue, ready, run_from), (gap, since, ready))
        return [
            _ChainSegments(build, np.full(len(job), place + i), kind, job, start, stop)
            for i, (kind, start, stop) in enumerate(parts)
        ]

    def _kinds_of_gaps(self, job: Integers, gap: Integers, rule: Integers) -> Integers:
        """Return the kind of the time from the predecessor's release to each job; `CONCURRENCY` only later."""
        is_repeat = (rule == REPEAT) & self._jobs.is_manual_retry[job]
        kinds = (
            (self._jobs.is_block[job], BLOCKED),
            (~self._jobs.is_exact[job] | (rule < 0), UNKNOWN),
            (rule == NONE, SETUP),
            (is_repeat, MANUAL_RETRY),
            (gap <= NEAR, DEPENDENCY),
        )
        return np.select([is_kind for is_kind, _ in kinds], [kind for _, kind in kinds], CONCURRENCY)

    def _with_concurrency(self, segments: _ChainSegments) -> _ChainSegments:
        """Separate waits for a limit of concurrency from other gaps: a job of the step in another build had just ended.

        A first step can start at any time, so that more of these jobs end just before it by chance.
        """
        jobs, is_first = self._jobs, (segments.kind == SETUP) & (segments.stop - segments.start > NEAR)
        held = np.flatnonzero((segments.kind == CONCURRENCY) | is_first)
        row, until, near = segments.job[held], segments.stop[held], np.where(is_first[held], SKEW, NEAR)
        ended = np.flatnonzero((jobs.finished != NAT) & np.isin(jobs.step, jobs.step[row]))

        def is_holder(items: Integers, queries: Integers) -> Flags:
            is_other: Flags = jobs.build[items] != jobs.build[row[queries]]
            is_early: Flags = jobs.finished[items] < (until - near)[queries]  # so are all before it
            return is_other | is_early

        holder = find_latest(ended, jobs.step[ended], jobs.finished[ended], jobs.step[row], until, is_holder)
        is_free = (holder < 0) | (jobs.finished[holder] < until - near)
        kind = segments.kind.copy()
        kind[held] = np.select([~is_free, is_first[held]], [CONCURRENCY, SETUP], UNKNOWN)
        return segments._replace(kind=kind)
