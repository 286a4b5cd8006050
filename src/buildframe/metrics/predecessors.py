"""Find what each job waited for: which steps of a pipeline can depend on which, and the predecessor of each job.

Knows jobs of whole pipelines; does not know when builds end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.metrics import retries
from buildframe.metrics.columns import (
    NAT,
    TIMESTAMP,
    Flags,
    Integers,
    check_unique_ids,
    timestamp_micros,
    timestamps,
)
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.rows import GROUP, Frame
from buildframe.metrics.job_ends import IS_OVER, with_ends
from buildframe.metrics.numbered import first_of_chain

NEEDS = (
    "id", "build_id", "type", "state", "step", "soft_failed", "retried_in_job_id",
    "created_at", "runnable_at", "started_at", "finished_at", "unblocked_at",
)  # fmt: skip
"""Columns of jobs that are needed, besides those that identify their pipeline."""

WANTS = ("label", "expired_at", "build_finished_at", "fetched_at", *retries.COLUMNS)
"""Optional columns.

Block steps have a label for a name, some jobs end without `finished_at`, and the others say how
jobs were retried.
"""

NEAR = 5_000_000
"""Microseconds within which the service starts what waited for a release."""

SKEW = 1_000_000
"""Microseconds by which clocks disagree."""

_REFUTED_SHARE = 0.05
NEVER = np.iinfo(np.int64).max
"""A time later than all others, in microseconds."""

_MAX_PARTS = 64

NONE, REPEAT, UPLOAD, RELEASE, FAILURE = range(5)
"""Rules by which a job has its predecessor."""


@dataclass(frozen=True)
class PipelineJobs:
    """Jobs ordered by pipeline and id, as arrays. Times are microseconds; builds and steps have numbers.

    `ready` is when a job became runnable or was unblocked; if that is unknown (`is_exact` is
    false), the first other time that is known. Only script jobs have `started`. `finished` is `NAT`
    if a job is under way or, as `is_over` then shows, ended at an unknown time. `released` is when
    it let other jobs start, and `failed` when it failed hard, both by its own `finished_at` only.
    `is_void` marks jobs that no other waits for. `replaces` is the row of the attempt that a job
    repeats, or -1. `is_superseded` marks attempts that were repeated, also by a job that is not
    among these.
    """

    rows: pd.DataFrame
    group: Integers
    build: Integers
    step: Integers
    build_ids: pd.Series[str]
    steps: pd.Series[str]
    created: Integers
    ready: Integers
    started: Integers
    finished: Integers
    released: Integers
    failed: Integers
    is_script: Flags
    is_block: Flags
    is_exact: Flags
    is_over: Flags
    is_void: Flags
    replaces: Integers
    is_superseded: Flags
    is_manual_retry: Flags

    @property
    def group_of_step(self) -> Integers:
        """Number of the pipeline of each step."""
        group = np.zeros(len(self.steps), np.int64)
        group[self.step] = self.group
        return group

    @property
    def step_keys(self) -> list[tuple[int, str]]:
        """Pipeline and name of each step."""
        return [*zip(self.group_of_step.tolist(), self.steps.astype(object), strict=True)]


class Predecessors(NamedTuple):
    """Row of each job's predecessor (-1: none), when that let the job start, and by which rule."""

    row: Integers
    at: Integers
    rule: Integers


class StepPairs(NamedTuple):
    """Numbers of two steps, and in how many builds both have times, these contradict, and the first was binding."""

    before: Integers
    after: Integers
    builds: Integers
    contradicted: Integers
    binding: Integers


def pipeline_keys(*frames: Frame) -> list[str]:
    """Return the columns that identify a pipeline; the organization if all frames have it."""
    is_known = all("organization" in engine_of(frame).column_names(frame) for frame in frames)
    return ["organization", "pipeline"] if is_known else ["pipeline"]


def read_jobs(table: pd.DataFrame) -> PipelineJobs:
    """Read jobs of whole pipelines, whose numbers are in `GROUP`; leave out waiters and rows without ids."""
    table = table[table["type"].isin(["script", "trigger", "manual"])].dropna(subset=["id", "build_id"])
    check_unique_ids(table)
    table = table.iloc[table["id"].array.argsort()]
    table = table.iloc[np.argsort(table[GROUP].to_numpy(np.int64), kind="stable")].reset_index(drop=True)
    table = retries.with_retries(table)
    group = table[GROUP].to_numpy(np.int64)
    build, builds = _number_within(group, table["build_id"])
    step, steps = _number_within(group, table["step"].fillna(table["label"]) if "label" in table else table["step"])
    created, runnable, started, finished, unblocked = (timestamp_micros(table, name) for name in NEEDS[-5:])
    is_script = equals(table, "type", "script")
    is_block = equals(table, "type", "manual")
    is_soft = table["soft_failed"].fillna(False).to_numpy(np.bool_)
    has_failed = ~is_block & (equals(table, "state", "failed") | equals(table, "state", "timed_out"))
    has_passed = ~is_block & equals(table, "state", "passed") | (has_failed & is_soft)
    replaces = _find_replaced(table, build)
    exact, ended = np.where(is_block, unblocked, runnable), np.where(is_block, unblocked, finished)
    never_ran = table["state"].isin(["broken", "skipped"]).to_numpy(np.bool_)
    ends = with_ends(table)
    last = np.where(is_block | never_ran, ended, timestamp_micros(ends, "finished_at"))
    return PipelineJobs(
        rows=table,
        group=group,
        build=build,
        step=step,
        build_ids=builds,
        steps=steps,
        created=created,
        ready=np.select([exact != NAT, started != NAT], [exact, started], ended),
        started=np.where(is_script, started, NAT),
        finished=last,
        released=np.where(is_block | has_passed, ended, NAT),
        failed=np.where(has_failed & ~is_soft, ended, NAT),
        is_script=is_script,
        is_block=is_block,
        is_exact=exact != NAT,
        is_over=ends[IS_OVER].to_numpy(np.bool_),
        is_void=never_ran | (has_passed & (ended == NAT)),
        replaces=replaces,
        is_superseded=_find_superseded(table, replaces),
        is_manual_retry=equals(table, retries.KIND, "manual"),
    )


def with_build_ends(jobs: pd.DataFrame, builds: pd.DataFrame) -> pd.DataFrame:
    """Return jobs with `build_finished_at`, from the builds if a job does not have it."""
    ends: pd.Series[Any] = timestamps(builds, "finished_at").set_axis(pd.Index(builds["id"]))
    ends = ends[ends.index.notna() & ~ends.index.duplicated()]
    found: Any = ends.reindex(jobs["build_id"]).set_axis(jobs.index)
    of_builds: pd.Series[Any] = found.astype(TIMESTAMP)
    if "build_finished_at" in jobs:
        of_builds = timestamps(jobs, "build_finished_at").fillna(of_builds)
    return jobs.assign(build_finished_at=of_builds)


def equals(table: pd.DataFrame, name: str, text: str) -> Flags:
    """Return which values are this text; a null is not."""
    return table[name].eq(text).fillna(False).to_numpy(np.bool_)


def _number_within(group: Integers, values: pd.Series[str]) -> tuple[Integers, pd.Series[str]]:
    """Number the values of each group, in their order, and return the value of each number."""
    codes, distinct = pd.factorize(values, sort=True, use_na_sentinel=False)
    keys, numbers = np.unique(group * max(len(distinct), 1) + codes, return_inverse=True)
    return numbers, pd.Series(distinct, dtype="str").take(keys % max(len(distinct), 1)).reset_index(drop=True)


def _find_replaced(table: pd.DataFrame, build: Integers) -> Integers:
    """Return the row of the attempt that each job repeats, or -1.

    An attempt names the job that repeats it. If it does not, that job may name the attempt.
    """
    ids = pd.Index(table["id"])
    replaces = np.full(len(table), -1)
    attempts = np.flatnonzero(table["retried_in_job_id"].notna())[::-1]
    repeats = ids.get_indexer(pd.Index(table["retried_in_job_id"].iloc[attempts]))
    _set_replaced(replaces, build, repeats, attempts)
    named = np.flatnonzero(table[retries.ATTEMPT].notna() & (replaces < 0))
    _set_replaced(replaces, build, named, ids.get_indexer(pd.Index(table[retries.ATTEMPT].iloc[named])))
    return replaces


def _set_replaced(replaces: Integers, build: Integers, repeats: Integers, attempts: Integers) -> None:
    """Set which attempts these jobs repeat, if both are known, and are two jobs of one build."""
    known = (repeats >= 0) & (attempts >= 0) & (build[repeats] == build[attempts]) & (repeats != attempts)
    replaces[repeats[known]] = attempts[known]


def _find_superseded(table: pd.DataFrame, replaces: Integers) -> Flags:
    is_superseded = table["retried_in_job_id"].notna().to_numpy(np.bool_, copy=True)
    is_superseded[replaces[replaces >= 0]] = True
    return is_superseded


class _Grid:
    """Matrices of all pipelines, builds x steps, one after the other in a flat array."""

    def __init__(self, jobs: PipelineJobs) -> None:
        n_groups = jobs.group.max(initial=-1) + 1
        self.first_build, n_builds = _first_and_number(jobs.group, jobs.build, n_groups)
        self.first_step, self.n_steps = _first_and_number(jobs.group, jobs.step, n_groups)
        sizes = n_builds * self.n_steps
        self._ends = np.cumsum(sizes)
        self._starts, self.size = self._ends - sizes, int(sizes.sum())
        place = (jobs.build - self.first_build[jobs.group]) * self.n_steps[jobs.group]
        self.cells = self._starts[jobs.group] + place + jobs.step - self.first_step[jobs.group]

    def matrix(self, flat: Integers, group: int) -> Integers:
        return flat[self._starts[group] : self._ends[group]].reshape(-1, self.n_steps[group])

    def latest(self, times: Integers, chosen: Integers) -> tuple[Integers, Integers]:
        """Return the latest time of the chosen jobs in each cell, and the first row that has it; `NAT` and -1 if none.

        `times` are those of the chosen jobs.
        """
        at, rows, cells = np.full(self.size, NAT), np.full(self.size, -1), self.cells[chosen]
        np.maximum.at(at, cells, times)
        last = np.flatnonzero((times == at[cells]) & (times != NAT))[::-1]
        rows[cells[last]] = chosen[last]
        return at, rows


def _first_and_number(group: Integers, codes: Integers, n_groups: int) -> tuple[Integers, Integers]:
    """Return the first code of each group, and how many follow; codes are in the order of groups."""
    last = np.full(n_groups, -1)
    np.maximum.at(last, group, codes)
    first = np.concatenate([[0], last[:-1] + 1])[:n_groups]
    return first, last + 1 - first


def find_predecessors(jobs: PipelineJobs) -> tuple[Predecessors, StepPairs]:
    """Find the predecessor of each job, and what the builds show of each pair of steps."""
    grid, n = _Grid(jobs), len(jobs.rows)
    is_first = _find_first_attempts(jobs, grid)
    search = _ReleaseSearch(jobs, grid, is_first)
    order = np.argsort(jobs.step, kind="stable")
    pairs = [search.run(rows) for rows in np.split(order, np.flatnonzero(np.diff(jobs.step[order])) + 1) if n]
    before, after, builds, contradicted = np.concatenate([np.zeros((4, 0), np.int64), *pairs], axis=1)
    repeated = np.where((jobs.replaces >= 0) & (jobs.finished[jobs.replaces] != NAT), jobs.replaces, -1)
    last = search.last
    is_fresh = (jobs.replaces < 0) & (jobs.created != NAT) & (last.at < jobs.created)
    fresh = np.flatnonzero(is_fresh & ((search.soon.row < 0) | (jobs.ready - jobs.created <= NEAR)))
    uploader = np.full(n, -1)
    uploader[fresh] = find_uploaders(jobs, fresh)
    is_near = (last.row >= 0) & (jobs.is_block | (jobs.ready - last.at <= NEAR))
    rules = (
        (repeated, jobs.finished[repeated], REPEAT),
        (uploader, jobs.created, UPLOAD),
        (np.where(is_near, last.row, -1), last.at, RELEASE),
        (search.soon.row, search.soon.at, RELEASE),
        (search.failure.row, search.failure.at, FAILURE),
        (last.row, last.at, RELEASE),
    )
    holds = [row >= 0 for row, _, _ in rules]
    rows, times, names = zip(*rules, strict=True)
    found = Predecessors(np.select(holds, rows, -1), np.select(holds, times, NAT), np.select(holds, names, NONE))
    binding = is_first & (found.rule == RELEASE) & (jobs.ready - found.at <= NEAR)
    return found, StepPairs(before, after, builds, contradicted, _count_binding(jobs, found, binding, before, after))


def _count_binding(
    jobs: PipelineJobs, found: Predecessors, binding: Flags, before: Integers, after: Integers
) -> Integers:
    n_steps = len(jobs.steps)
    keys, counts = np.unique(jobs.step[found.row[binding]] * n_steps + jobs.step[binding], return_counts=True)
    sought = before * n_steps + after
    places = np.minimum(np.searchsorted(keys, sought), max(len(keys) - 1, 0))
    return np.where(keys[places] == sought, counts[places], 0) if len(keys) else np.zeros(len(sought), np.int64)


def _find_first_attempts(jobs: PipelineJobs, grid: _Grid) -> Flags:
    """Return the job of each step and build that was ready second, or alone, and repeats no other.

    Shards are ready together. The first one may be so because its timestamp is wrong.
    """
    rows = np.flatnonzero(jobs.is_exact & (jobs.replaces < 0))
    rows = rows[np.lexsort((jobs.ready[rows], grid.cells[rows]))]
    _, first, n_shards = np.unique(grid.cells[rows], return_index=True, return_counts=True)
    is_first = np.zeros(len(jobs.rows), np.bool_)
    is_first[rows[first + (n_shards > 1)]] = True
    return is_first


def _find_releases(jobs: PipelineJobs, grid: _Grid) -> tuple[Integers, Integers]:
    """Return when each step was released in each build, and the row of the job that did.

    A shard is released when the first of its attempts is, and a step with its last shard.
    """
    shard, first = find_shards(jobs.replaces, jobs.released)
    rows = np.flatnonzero(~jobs.is_void)
    at, _ = grid.latest(first[shard[rows]], rows)
    _, by = grid.latest(np.where(jobs.released[rows] == at[grid.cells[rows]], jobs.released[rows], NAT), rows)
    return np.where(by >= 0, at, NAT), by


def find_shards(replaces: Integers, released: Integers) -> tuple[Integers, Integers]:
    """Return the first attempt of each job; and of first attempts, when one of the shard was released, or `NEVER`."""
    shard, first = first_of_chain(replaces), np.full(len(replaces), NEVER)
    np.minimum.at(first, shard, np.where(released == NAT, NEVER, released))
    return shard, first


class _JobLinks:
    """For each job the row of another, or -1, and a time."""

    def __init__(self, n: int) -> None:
        self.row, self.at = np.full(n, -1), np.full(n, NAT)

    def set(self, rows: Integers, times: Integers, by: Integers, pick: Integers, is_valid: Flags) -> None:
        """Set what the jobs `rows` found: the column `pick` of their own rows of two matrices."""
        own = np.arange(len(rows))
        self.at[rows] = np.where(is_valid, times[own, pick], NAT)
        self.row[rows] = np.where(is_valid, by[own, pick], -1)


class _ReleaseSearch:
    """Search of the steps whose release each job may have waited for.

    `last` was released last before the job was ready; if that is not near, `soon` was released a little later and
    `failure` had just failed.
    """

    def __init__(self, jobs: PipelineJobs, grid: _Grid, is_first: Flags) -> None:
        n = len(jobs.rows)
        self._jobs, self._grid, self._is_first = jobs, grid, is_first
        self._released = _find_releases(jobs, grid)
        self._failed = grid.latest(jobs.failed, np.arange(n))
        self.last, self.soon, self.failure = _JobLinks(n), _JobLinks(n), _JobLinks(n)

    def run(self, rows: Integers) -> Integers:
        """Search for the jobs of one step; return its pairs: step before, step after, builds, contradicting builds."""
        jobs, grid = self._jobs, self._grid
        step, group = int(jobs.step[rows[0]]), int(jobs.group[rows[0]])
        rows = rows[jobs.ready[rows] != NAT]
        build = jobs.build[rows] - grid.first_build[group]
        at, by = (grid.matrix(flat, group)[build] for flat in self._released)
        first, ready = self._is_first[rows], jobs.ready[rows][:, None]
        builds = (at[first] != NAT).sum(axis=0)
        contradicted = (at[first] > ready[first] + SKEW).sum(axis=0)
        is_open = ~is_refuted(builds, contradicted)
        is_open[step - grid.first_step[group]] = False
        at = np.where(is_open, at, NAT)
        before = np.where(at <= ready, at, NAT)
        pick = before.argmax(axis=1)
        self.last.set(rows, before, by, pick, before.max(axis=1) != NAT)
        is_near = self.last.at[rows] >= jobs.ready[rows] - NEAR
        binding = np.bincount(pick[first & is_near], minlength=len(builds))
        far = np.flatnonzero(~is_near & ~jobs.is_block[rows])
        rows, at, by, ready = rows[far], at[far], by[far], ready[far]
        after = np.where((at > ready) & (at <= ready + np.where(binding > 0, NEAR, SKEW)), at, NEVER)
        self.soon.set(rows, after, by, after.argmin(axis=1), after.min(axis=1) != NEVER)
        failed, failed_by = (grid.matrix(flat, group)[build[far]] for flat in self._failed)
        failed = np.where(is_open & (failed <= ready), failed, NAT)
        self.failure.set(rows, failed, failed_by, failed.argmax(axis=1), failed.max(axis=1) >= ready[:, 0] - NEAR)
        others = np.flatnonzero((builds > 0) & (np.arange(len(builds)) != step - grid.first_step[group]))
        pair = (others + grid.first_step[group], np.full(len(others), step), builds[others], contradicted[others])
        return np.stack(pair)


def is_refuted(builds: Integers, contradicted: Integers) -> Flags:
    """Return which pairs of steps are refuted."""
    return contradicted > _REFUTED_SHARE * builds


def find_uploaders(jobs: PipelineJobs, rows: Integers) -> Integers:
    """Return the script job that ran when each job was created, or -1.

    If several ran, it is the one whose step most often runs when jobs of this step are created, or else the last one
    started.
    """
    scripts = np.flatnonzero(jobs.is_script & (jobs.started != NAT))
    created, found, most = jobs.created[rows], np.full(len(rows), -1), np.zeros(len(rows), np.int64)
    counted = [np.zeros((2, 0), np.int64)]

    def each_running(visit: Callable[[Integers, Integers, Integers], None]) -> None:
        """Visit the scripts that ran with their queries and codes of both steps, the last started of each first."""

        def fits(scripts: Integers, queries: Integers) -> Flags:
            is_running = (jobs.finished[scripts] >= created[queries]) & (scripts != rows[queries])
            own, query = scripts[is_running], queries[is_running]
            visit(own, query, jobs.step[rows[query]] * len(jobs.steps) + jobs.step[own])
            return np.zeros(len(queries), np.bool_)

        find_latest(scripts, jobs.build[scripts], jobs.started[scripts], jobs.build[rows], created - 1, fits)

    def count(_: Integers, __: Integers, pairs: Integers) -> None:
        counted.append(np.stack(np.unique(pairs, return_counts=True)))
        if len(counted) > _MAX_PARTS:  # a build with thousands of uploads has millions of pairs, but few steps
            counted[:] = [_sum_counts(counted)]

    def choose(own: Integers, query: Integers, pairs: Integers) -> None:
        times = counts[np.searchsorted(keys, pairs)]
        is_more = times > most[query]
        most[query[is_more]], found[query[is_more]] = times[is_more], own[is_more]

    each_running(count)
    keys, counts = _sum_counts(counted)
    each_running(choose)
    return found


def _sum_counts(parts: Sequence[Integers]) -> Integers:
    """Add up pairs of keys and counts by key."""
    keys, counts = np.concatenate(parts, axis=1)
    distinct, place = np.unique(keys, return_inverse=True)
    return np.stack([distinct, np.bincount(place, counts, len(distinct)).astype(np.int64)])


def find_latest(
    items: Integers,
    groups: Integers,
    times: Integers,
    of_group: Integers,
    until: Integers,
    fits: Callable[[Integers, Integers], Flags],
) -> Integers:
    """Return for each query the latest fitting item of its group up to a time, or -1.

    `fits` receives items, and the positions of the queries that they may answer.
    """
    order = np.lexsort((items, times, groups))
    items, groups, times = items[order], groups[order], times[order]
    n, n_queries = len(items), len(until)
    together = np.lexsort((np.arange(n + n_queries), np.append(times, until), np.append(groups, of_group)))
    is_item, place = together < n, np.empty(n_queries, np.int64)
    place[together[~is_item] - n] = np.cumsum(is_item)[~is_item] - 1
    found, queries = np.full(n_queries, -1), np.arange(n_queries)
    while len(queries):
        queries = queries[place[queries] >= 0]
        queries = queries[groups[place[queries]] == of_group[queries]]
        answers = items[place[queries]]
        is_found = fits(answers, queries)
        found[queries[is_found]] = answers[is_found]
        queries = queries[~is_found]
        place[queries] -= 1
    return found
