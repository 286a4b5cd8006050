"""Prepare a record for simulations: run times, offsets and ends in place of timestamps.

`prepare` once, then `simulate` (in `event_loop`) many times with other fleets, run times or builds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd

from buildframe.metrics.columns import NAT, Flags, Integers
from buildframe.metrics.replaying.agents import AgentTimes
from buildframe.metrics.replaying.cancellation import Cancellations
from buildframe.metrics.replaying.dependencies import AT_BUILD, AT_END, AT_START, JobNeeds, Releases
from buildframe.metrics.replaying.record import TRIGGER, BuildRecord

FIRST, BY_TRIGGER, AFTER_BUILD, WITH_BUILD = range(4)
"""What a build is created by: a person or a push, a trigger job, the end of another build, or with another build."""

_TOLERANCE = 1_000_000


@dataclass(frozen=True)
class BuildModel:
    """Builds: what creates each of them (`cause`, by number `of`), how long after it, and how it ends.

    `origin` is the number of the build in the record. `offset` is counted from the start of the
    record for those that nothing in it creates. `tail` is the time from the end of the last job to
    that of the build, negative if the job ended later; `NAT` if the build never ends.
    `cancel_after` is `NAT` if no person canceled it.
    """

    origin: Integers
    pipeline: Integers
    branch: Integers
    cause: Integers
    of: Integers
    offset: Integers
    tail: Integers
    cancel_after: Integers
    cancels: Flags
    skips: Flags
    copy: Integers


@dataclass(frozen=True)
class JobModel(JobNeeds):
    """Jobs: what each waits for and how long it takes. Numbers of jobs and builds are those in the model.

    `origin` is the number of the job in the record. `rank` is 0 for the highest priority.
    `ends_with` is the build whose end a trigger job waits for, or -1. `wait` is the recorded wait
    for an agent of an unknown queue, or the time from the end of the build `ends_with` to that of
    the trigger job. `stop_after` is how long after its readiness a job was canceled alone, or
    expired; `NAT` if it was not.
    """

    origin: Integers
    build: Integers
    step: Integers
    kind: Integers
    queue: Integers
    rank: Integers
    run: Integers
    wait: Integers
    lag: Integers
    away: Integers
    ends_with: Integers
    stop_after: Integers
    stop_lag: Integers
    expires: Flags


Numbers = dict[int, tuple[int, ...]]
"""Numbers of builds or jobs, by that of a build, job or cell."""


class Links(NamedTuple):
    """What goes on with or after a build, job or cell.

    Jobs that begin with a build, that a job uploads, that repeat a job, that follow a cell or a
    failed job, all jobs of a build, trigger jobs that await a build; and builds that a job
    triggers, that follow a build, or begin with it.
    """

    with_build: Numbers
    uploads: Numbers
    repeats: Numbers
    after_cell: Numbers
    after_failure: Numbers
    jobs_of: Numbers
    awaiting: Numbers
    triggers: Numbers
    rebuilds: Numbers
    beside: Numbers


@dataclass(frozen=True)
class ReplayModel:
    """A record that can be simulated. `start` and `end` limit it, in microseconds since 1970."""

    builds: BuildModel
    jobs: JobModel
    releases: Releases
    start: int
    end: int
    n_queues: int

    @cached_property
    def n_waits(self) -> Integers:
        """How many things each job waits for: its readiness, and the ends of others."""
        n, edge_job, after_failure = (
            len(self.jobs.origin),
            self.releases.edge_job,
            self.releases.after_failure,
        )
        return 1 + np.bincount(edge_job, minlength=n) + np.bincount(after_failure, minlength=n)

    @cached_property
    def links(self) -> Links:
        """What each build, job and cell lets go on; the same in all simulations of the model."""
        jobs, builds, live, own = self.jobs, self.builds, self.jobs.is_live, self.releases
        edges, failures, waiting = (
            live[own.edge_job],
            live[own.after_failure],
            live & (jobs.ends_with >= 0),
        )
        with_build, uploads, repeats = (
            _group(key[live & (jobs.since == since)], np.flatnonzero(live & (jobs.since == since)))
            for key, since in (
                (jobs.build, AT_BUILD),
                (jobs.source, AT_START),
                (jobs.source, AT_END),
            )
        )
        triggers, rebuilds, beside = (
            _group(builds.of[builds.cause == cause], np.flatnonzero(builds.cause == cause))
            for cause in (BY_TRIGGER, AFTER_BUILD, WITH_BUILD)
        )
        return Links(
            with_build=with_build,
            uploads=uploads,
            repeats=repeats,
            after_cell=_group(own.edge_cell[edges], own.edge_job[edges]),
            after_failure=_group(own.failed_job[failures], own.after_failure[failures]),
            jobs_of=_group(jobs.build[live], np.flatnonzero(live)),
            awaiting=_group(jobs.ends_with[waiting], np.flatnonzero(waiting)),
            triggers=triggers,
            rebuilds=rebuilds,
            beside=beside,
        )


def _group(keys: Integers, values: Integers) -> Numbers:
    """Return the values of each key, in their order."""
    order = np.argsort(keys, kind="stable")
    keys, values = keys[order], values[order]
    begins = np.flatnonzero(np.diff(keys, prepend=-1))
    listed = tuple(values.tolist())  # the garbage collector visits lists, but not tuples of numbers
    limits = pairwise([*begins.tolist(), len(keys)])
    return {key: listed[a:b] for key, (a, b) in zip(keys[begins].tolist(), limits, strict=True)}


def build_model(
    record: BuildRecord,
    needs: JobNeeds,
    releases: Releases,
    times: AgentTimes,
    cancellations: Cancellations,
) -> ReplayModel:
    """Put together what was measured."""
    jobs = record.jobs
    run, wait = _run_times(record), np.maximum(jobs.started - jobs.ready, 0)
    ends_with = _awaited_builds(record)
    stopped = cancellations.stopped[jobs.build]
    is_running = (jobs.started != NAT) & (jobs.ended != NAT) & (stopped != NAT) & ~jobs.is_known
    is_alone = (jobs.ready != NAT) & (jobs.ended != NAT) & ~jobs.is_known & (stopped == NAT)
    child_ended = np.where(ends_with >= 0, record.builds.ended[ends_with], NAT)
    after_child = (child_ended != NAT) & (jobs.ended != NAT)
    wait = np.where((jobs.started != NAT) & (jobs.ready != NAT), wait, 0)
    _, rank = np.unique(-jobs.priority, return_inverse=True)
    of_jobs = JobModel(
        **vars(needs),
        origin=np.arange(len(jobs.row)),
        build=jobs.build,
        step=jobs.step,
        kind=jobs.kind,
        queue=jobs.queue,
        rank=rank,
        run=run,
        wait=np.where(after_child, np.maximum(jobs.ended - child_ended, 0), wait),
        lag=times.lag,
        away=times.away,
        ends_with=ends_with,
        stop_after=np.where(is_alone, np.maximum(jobs.ended - jobs.ready, 0), NAT),
        stop_lag=np.where(is_running, np.maximum(jobs.ended - stopped, 0), 0),
        expires=jobs.is_expired,
    )
    of_builds = _model_builds(record, cancellations, of_jobs)
    return ReplayModel(of_builds, of_jobs, releases, record.start, record.end, len(record.queues))


def _run_times(record: BuildRecord) -> Integers:
    """Return how long each job runs; if that was not seen, the larger of what was seen and the median of its step."""
    jobs = record.jobs
    begin = np.where(jobs.kind == TRIGGER, jobs.ready, jobs.started)
    seen = np.where(jobs.ended == NAT, record.end, jobs.ended) - begin
    seen = np.where(begin == NAT, 0, np.maximum(seen, 0))
    is_sample = jobs.is_known & (jobs.released != NAT) & (begin != NAT)
    pipeline = record.builds.pipeline[jobs.build]
    usual = _medians(jobs.step, seen, is_sample)
    rough = _medians(pipeline, seen, is_sample)
    usual = np.where(usual < 0, np.maximum(rough, 0), usual)
    is_seen = jobs.is_known & (begin != NAT)
    return np.where(is_seen, seen, np.maximum(seen, usual))


def _medians(key: Integers, values: Integers, chosen: Flags) -> Integers:
    """Return the median of the chosen values of each key, for all rows; -1 if there are none."""
    medians = pd.Series(values[chosen]).groupby(key[chosen]).median()
    return medians.reindex(key).fillna(-1).to_numpy().astype(np.int64)


def _awaited_builds(record: BuildRecord) -> Integers:
    """Return the build whose end each trigger job waits for, or -1."""
    jobs, builds = record.jobs, record.builds
    child = np.where(jobs.kind == TRIGGER, jobs.child, -1)
    ended = np.where(child >= 0, builds.ended[child], NAT)
    has_both = (ended != NAT) & (jobs.ended != NAT)
    waits = np.where(has_both, ended <= jobs.ended + _TOLERANCE, jobs.ended == NAT)
    return np.where((child >= 0) & ~jobs.is_async & waits, child, -1)


def _model_builds(
    record: BuildRecord,
    cancellations: Cancellations,
    of_jobs: JobModel,
) -> BuildModel:
    builds, jobs = record.builds, record.jobs
    n = len(builds.row)
    original, parent = builds.rebuilt_from, builds.triggered_from
    is_rebuilt, is_child = ((of >= 0) & (of < np.arange(n)) for of in (original, parent))
    ended = np.where(is_rebuilt, builds.ended[original], NAT)
    is_after = is_rebuilt & (ended != NAT) & (ended <= builds.created)
    kinds = [is_child, is_after, is_rebuilt]
    cause = np.select(kinds, [WITH_BUILD, AFTER_BUILD, WITH_BUILD], FIRST)
    of = np.select(kinds, [parent, original, original], -1)
    since = np.select(
        kinds,
        [builds.created[parent], ended, builds.created[original]],
        record.start,
    )
    trigger = np.flatnonzero((jobs.kind == TRIGGER) & (jobs.child >= 0) & (jobs.ready != NAT))
    trigger = trigger[jobs.build[trigger] < jobs.child[trigger]]
    cause[jobs.child[trigger]], of[jobs.child[trigger]] = BY_TRIGGER, trigger
    since[jobs.child[trigger]] = jobs.ready[trigger]
    return BuildModel(
        origin=np.arange(n),
        pipeline=builds.pipeline,
        branch=builds.branch,
        cause=cause,
        of=of,
        offset=np.maximum(builds.created - since, 0),
        tail=_tails(record, of_jobs),
        cancel_after=cancellations.after,
        cancels=cancellations.cancels,
        skips=cancellations.skips,
        copy=np.zeros(n, np.int64),
    )


def _tails(record: BuildRecord, of_jobs: JobModel) -> Integers:
    """Return the time from the end of the last live job of each build, or its creation, to its own end.

    Builds that did not end, end with their last job.
    """
    builds, jobs = record.builds, record.jobs
    last, has_live = builds.created.copy(), np.zeros(len(builds.row), np.bool_)
    live = np.flatnonzero(of_jobs.is_live)
    has_live[jobs.build[live]] = True
    np.maximum.at(last, jobs.build[live], jobs.ended[live])
    tail = np.where(builds.ended == NAT, NAT, builds.ended - last)
    return np.where((tail == NAT) & has_live, 0, tail)


A = TypeVar("A", BuildModel, JobModel, Releases)


def select_builds(
    model: ReplayModel,
    builds: Integers,
    shift: Integers,
    copy: Integers,
) -> ReplayModel:
    """Return a model of these builds, each as often as it is named, with its jobs; whole families must be named.

    `shift` moves those that nothing in the record creates, and `copy` is the number of the copy, 0
    for the original.
    """
    parts = [_select_once(model, builds[copy == one], shift[copy == one], int(one)) for one in np.unique(copy)]
    return _join(parts) if parts else _select_once(model, builds, shift, 0)


def _select_once(model: ReplayModel, builds: Integers, shift: Integers, copy: int) -> ReplayModel:
    """Return a model of these builds, in ascending order."""
    of_builds, of_jobs = model.builds, model.jobs
    place = np.full(len(of_builds.origin) + 1, -1)
    place[builds] = np.arange(len(builds))
    rows = np.flatnonzero(place[of_jobs.build] >= 0)
    row = np.full(len(of_jobs.origin) + 1, -1)
    row[rows] = np.arange(len(rows))
    after, edges = model.releases, np.flatnonzero(row[model.releases.edge_job] >= 0)
    cells = np.union1d(of_jobs.cell[rows][of_jobs.cell[rows] >= 0], after.edge_cell[edges])
    cell = np.full(len(after.n_parts) + 1, -1)
    cell[cells] = np.arange(len(cells))
    failures = np.flatnonzero(row[after.after_failure] >= 0)
    taken = JobModel(**{one.name: getattr(of_jobs, one.name)[rows] for one in fields(JobModel)})
    taken = replace(
        taken,
        build=place[taken.build],
        source=row[taken.source],
        cell=cell[taken.cell],
        ends_with=place[taken.ends_with],
    )
    chosen = BuildModel(
        **{one.name: getattr(of_builds, one.name)[builds] for one in fields(BuildModel)},
    )
    of = np.where(
        chosen.cause == BY_TRIGGER,
        row[np.where(chosen.cause == BY_TRIGGER, chosen.of, -1)],
        chosen.of,
    )
    is_of_build = np.isin(chosen.cause, [AFTER_BUILD, WITH_BUILD])
    of = np.where(is_of_build, place[np.where(is_of_build, chosen.of, -1)], of)
    offset = np.where(chosen.cause == FIRST, np.maximum(chosen.offset + shift, 0), chosen.offset)
    chosen = replace(chosen, of=of, offset=offset, copy=np.full(len(builds), copy))
    releases = Releases(
        after.n_parts[cells], cell[after.edge_cell[edges]], row[after.edge_job[edges]], row[after.failed_job[failures]],
        row[after.after_failure[failures]],
    )  # fmt: skip
    return replace(model, builds=chosen, jobs=taken, releases=releases)


def _join(parts: list[ReplayModel]) -> ReplayModel:
    """Put models together, whose builds do not depend on each other; copies are on branches of their own."""
    first_build = np.cumsum([0, *(len(one.builds.origin) for one in parts)])
    first_job = np.cumsum([0, *(len(one.jobs.origin) for one in parts)])
    first_cell = np.cumsum([0, *(len(one.releases.n_parts) for one in parts)])
    n_branches = max(int(one.builds.branch.max(initial=-1)) for one in parts) + 1

    def moved(values: Integers, by: Any) -> Integers:
        return np.where(values >= 0, values + by, values)

    builds, jobs, releases = [], [], []
    for i, part in enumerate(parts):
        own, of_jobs, after = part.builds, part.jobs, part.releases
        by = np.where(own.cause == BY_TRIGGER, first_job[i], first_build[i])
        builds.append(replace(own, of=moved(own.of, by), branch=own.branch + i * n_branches))
        jobs.append(
            replace(
                of_jobs, build=of_jobs.build + first_build[i], source=moved(of_jobs.source, first_job[i]),
                cell=moved(of_jobs.cell, first_cell[i]), ends_with=moved(of_jobs.ends_with, first_build[i]),
            )
        )  # fmt: skip
        releases.append(
            Releases(
                after.n_parts, after.edge_cell + first_cell[i], after.edge_job + first_job[i],
                after.failed_job + first_job[i], after.after_failure + first_job[i],
            )
        )  # fmt: skip
    return replace(
        parts[0],
        builds=_concatenate(builds),
        jobs=_concatenate(jobs),
        releases=_concatenate(releases),
    )


def _concatenate(parts: Sequence[A]) -> A:
    """Put the arrays of the same name together."""
    names = [one.name for one in fields(parts[0])]
    return replace(
        parts[0],
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
    )
