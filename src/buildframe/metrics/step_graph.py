"""Infer from times which steps of a pipeline depend on which, and what each job waited for."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import NAT, TEXT, Flags, Integers
from buildframe.metrics.group_summaries import concat_results, summarize_groups
from buildframe.metrics.grouping import find_groups, join_keys
from buildframe.metrics.input_frames import Frame, read_whole_groups
from buildframe.metrics.numbered import find_latest, first_of_chain
from buildframe.metrics.pipeline_jobs import (
    GROUP,
    NEEDS,
    WANTS,
    PipelineJobs,
    pipeline_keys,
    read_jobs,
    with_steps,
)
from buildframe.metrics.validation import check_states

NEAR = 5_000_000
"""Microseconds within which the service starts what waited for a release."""

SKEW = 1_000_000
"""Microseconds by which clocks disagree."""

_REFUTED_SHARE = 0.05
NEVER = np.iinfo(np.int64).max
"""A time later than all others, in microseconds."""

_MAX_COUNTS = 64
"""Tables of counts that are kept before they are added up."""

NONE, REPEAT, UPLOAD, RELEASE, FAILURE = range(5)
"""Rules by which a job has its predecessor."""


class Predecessors(NamedTuple):
    """Row of each job's predecessor (-1: none), when that let the job start, and by which rule."""

    row: Integers
    at: Integers
    rule: Integers


class StepPairs(NamedTuple):
    """Numbers of two steps, and what builds show of them.

    These are the numbers of builds in which both have times, in which these contradict, and in
    which the first step was binding.
    """

    before: Integers
    after: Integers
    builds: Integers
    contradicted: Integers
    binding: Integers


@checked_names
def step_graph(jobs: Frame) -> pd.DataFrame:
    """
    Infer which steps of each pipeline depend on which.

    Parameters
    ----------
    jobs : DataFrame
        Jobs of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns that
        `time_ledger` needs of jobs, except `queue`. Pass whole builds, at least 20 of each
        pipeline.

    Returns
    -------
    pandas.DataFrame
        One row per pair of steps of a pipeline that some build has, ordered by pipeline and steps.
        `organization` is the first column if the jobs have it:

        ======== ===== =======================================================================
        pipeline str   slug of the pipeline
        before   str   step that may have to end first
        after    str   step that may depend on it
        builds   Int64 builds in which `before` was released and `after` was runnable
        refuted  Int64 builds of these that contradict the dependency by more than 1 s
        binding  Int64 builds in which `after` was runnable within 5 s after `before` was released,
                       the last step to be
        status   str   `refuted`, `binding` or `possible`
        ======== ===== =======================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, an id occurs twice, or `state` holds
        states in an unknown spelling.

    See Also
    --------
    time_ledger : Where each second of each build went, along this graph.

    Notes
    -----
    A build contradicts a dependency if `after` was runnable more than 1 s before `before` was
    released: before its last shard passed, failed softly or was unblocked. A pair is `refuted` if
    more than 5 % of its builds contradict it. One contradiction does not refute, because clocks
    disagree. Other pairs are `binding` if they were in at least one build. A `possible` dependency
    may exist or not: in each build another step ended later.

    If `before` was not released, as when it failed, a build shows nothing about the pair. The job
    that uploads steps is not one that they depend on. A dependency on a step that never ends last
    stays `possible`.

    Examples
    --------
    >>> graph = metrics.step_graph(jobs)
    >>> docs = graph[(graph["pipeline"] == "docs") & (graph["status"] != "refuted")]
    >>> docs.drop(columns="organization")
        pipeline  before after  builds  refuted  binding    status
    636     docs   prose  site      11        0       11   binding
    643     docs  upload  site      11        0        0  possible
    """
    check_states(jobs, "state")
    keys = pipeline_keys(jobs)
    return summarize_groups(jobs, functools.partial(_step_graph, keys), keys)


def _step_graph(keys: list[str], jobs: Frame) -> pd.DataFrame:
    groups = read_whole_groups(with_steps(jobs), keys, NEEDS, WANTS)
    return concat_results([_find_pairs(keys, rows) for rows in groups], keys)


def _find_pairs(keys: list[str], rows: pd.DataFrame) -> pd.DataFrame:
    """Return the pairs of steps of whole pipelines."""
    pipelines = find_groups(rows, keys)
    jobs = read_jobs(rows.assign(**{GROUP: pipelines.codes}))
    _, pairs = find_predecessors(jobs)
    order = np.lexsort((pairs.after, pairs.before))
    pairs = StepPairs(*(values[order] for values in pairs))
    is_binding = np.where(pairs.binding > 0, "binding", "possible")
    status = np.where(is_refuted(pairs.builds, pairs.contradicted), "refuted", is_binding)
    found = {
        "before": jobs.steps.array.take(pairs.before),
        "after": jobs.steps.array.take(pairs.after),
        "builds": pd.array(pairs.builds, "Int64"),
        "refuted": pd.array(pairs.contradicted, "Int64"),
        "binding": pd.array(pairs.binding, "Int64"),
        "status": pd.array(status, TEXT),
    }
    pipeline_of_pair = jobs.group_of_step[pairs.before]
    names = pipelines.keys.take(pipeline_of_pair).reset_index(drop=True)
    return join_keys(names, pd.DataFrame(found))


class _Grid:
    """Matrices of all pipelines, builds x steps, one after the other in a flat array of cells."""

    def __init__(self, jobs: PipelineJobs) -> None:
        n_groups = jobs.group.max(initial=-1) + 1
        self.first_build, n_builds = _first_and_number(jobs.group, jobs.build, n_groups)
        self.first_step, self.n_steps = _first_and_number(jobs.group, jobs.step, n_groups)
        sizes = n_builds * self.n_steps
        self.size = int(sizes.sum())
        self._ends = np.cumsum(sizes)
        self._starts = self._ends - sizes
        row = jobs.build - self.first_build[jobs.group]
        column = jobs.step - self.first_step[jobs.group]
        self.cells = self._starts[jobs.group] + row * self.n_steps[jobs.group] + column

    def matrix(self, flat: Integers, group: int) -> Integers:
        return flat[self._starts[group] : self._ends[group]].reshape(-1, self.n_steps[group])

    def latest(self, times: Integers, chosen: Integers) -> tuple[Integers, Integers]:
        """Return the latest time of the chosen jobs in each cell, and the first row that has it.

        `NAT` and -1 if there is none. `times` are those of the chosen jobs.
        """
        cells = self.cells[chosen]
        latest = np.full(self.size, NAT)
        np.maximum.at(latest, cells, times)
        is_latest = (times == latest[cells]) & (times != NAT)
        backward = np.flatnonzero(is_latest)[::-1]
        rows = np.full(self.size, -1)
        rows[cells[backward]] = chosen[backward]  # the last one written stays: the first row
        return latest, rows


def _first_and_number(group: Integers, codes: Integers, n_groups: int) -> tuple[Integers, Integers]:
    """Return the first code of each group, and how many it has; codes follow the groups."""
    last = np.full(n_groups, -1)
    np.maximum.at(last, group, codes)
    first = np.concatenate([[0], last[:-1] + 1])[:n_groups]
    return first, last + 1 - first


def find_predecessors(jobs: PipelineJobs) -> tuple[Predecessors, StepPairs]:
    """Find the predecessor of each job, and what the builds show of each pair of steps."""
    grid = _Grid(jobs)
    is_first = _find_first_attempts(jobs, grid)
    search = _ReleaseSearch(jobs, grid, is_first)
    rows_by_step = np.argsort(jobs.step, kind="stable")
    starts_of_steps = np.flatnonzero(np.diff(jobs.step[rows_by_step])) + 1
    pairs = [np.zeros((4, 0), np.int64)]
    if len(rows_by_step):
        pairs += map(search.run, np.split(rows_by_step, starts_of_steps))
    before, after, builds, contradicted = np.concatenate(pairs, axis=1)
    found = _apply_rules(jobs, search)
    is_binding = is_first & (found.rule == RELEASE) & (jobs.ready - found.at <= NEAR)
    binding = _count_binding(jobs, found, is_binding, before, after)
    return found, StepPairs(before, after, builds, contradicted, binding)


def _apply_rules(jobs: PipelineJobs, search: _ReleaseSearch) -> Predecessors:
    """Return the predecessor by the first rule that names one."""
    last = search.last
    has_ended_before = (jobs.replaces >= 0) & (jobs.finished[jobs.replaces] != NAT)
    repeated = np.where(has_ended_before, jobs.replaces, -1)
    # A job that was created after the last release can have been uploaded.
    is_new = (jobs.replaces < 0) & (jobs.created != NAT) & (last.at < jobs.created)
    is_ready_at_once = jobs.ready - jobs.created <= NEAR
    new_jobs = np.flatnonzero(is_new & ((search.soon.row < 0) | is_ready_at_once))
    uploader = np.full(len(jobs.rows), -1)
    uploader[new_jobs] = find_uploaders(jobs, new_jobs)
    is_near = (last.row >= 0) & (jobs.is_block | (jobs.ready - last.at <= NEAR))
    rules = (
        (repeated, jobs.finished[repeated], REPEAT),
        (uploader, jobs.created, UPLOAD),
        (np.where(is_near, last.row, -1), last.at, RELEASE),
        (search.soon.row, search.soon.at, RELEASE),
        (search.failure.row, search.failure.at, FAILURE),
        (last.row, last.at, RELEASE),
    )
    rows, times, numbers = zip(*rules, strict=True)
    holds = [row >= 0 for row in rows]
    return Predecessors(
        np.select(holds, rows, -1),
        np.select(holds, times, NAT),
        np.select(holds, numbers, NONE),
    )


def _count_binding(
    jobs: PipelineJobs,
    found: Predecessors,
    is_binding: Flags,
    before: Integers,
    after: Integers,
) -> Integers:
    """Return in how many builds each pair of steps was binding."""
    n_steps = len(jobs.steps)
    observed = jobs.step[found.row[is_binding]] * n_steps + jobs.step[is_binding]
    keys, counts = np.unique(observed, return_counts=True)
    sought = before * n_steps + after
    if not len(keys):
        return np.zeros(len(sought), np.int64)
    places = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
    return np.where(keys[places] == sought, counts[places], 0)


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
    shard, shard_release = find_shards(jobs.replaces, jobs.released)
    rows = np.flatnonzero(~jobs.is_void)
    step_release, _ = grid.latest(shard_release[shard[rows]], rows)
    is_release = jobs.released[rows] == step_release[grid.cells[rows]]
    _, by = grid.latest(np.where(is_release, jobs.released[rows], NAT), rows)
    return np.where(by >= 0, step_release, NAT), by


def find_shards(replaces: Integers, released: Integers) -> tuple[Integers, Integers]:
    """Return the first attempt of each job, and when one of its attempts was released, or `NEVER`.

    The times are those of first attempts.
    """
    shard = first_of_chain(replaces)
    first_release = np.full(len(replaces), NEVER)
    np.minimum.at(first_release, shard, np.where(released == NAT, NEVER, released))
    return shard, first_release


class _JobLinks:
    """For each job the row of another, or -1, and a time."""

    def __init__(self, n: int) -> None:
        self.row = np.full(n, -1)
        self.at = np.full(n, NAT)

    def set(
        self,
        rows: Integers,
        times: Integers,
        by: Integers,
        column: Integers,
        is_valid: Flags,
    ) -> None:
        """Set the links of the jobs `rows`: what a column of their rows of two matrices has."""
        row_of_matrix = np.arange(len(rows))
        self.at[rows] = np.where(is_valid, times[row_of_matrix, column], NAT)
        self.row[rows] = np.where(is_valid, by[row_of_matrix, column], -1)


class _ReleaseSearch:
    """Search of the steps whose release each job may have waited for.

    `last` was released last before the job was ready; if that is not near, `soon` was released a
    little later and `failure` had just failed.
    """

    def __init__(self, jobs: PipelineJobs, grid: _Grid, is_first: Flags) -> None:
        n = len(jobs.rows)
        self._jobs = jobs
        self._grid = grid
        self._is_first = is_first
        self._released, self._released_by = _find_releases(jobs, grid)
        self._failed, self._failed_by = grid.latest(jobs.failed, np.arange(n))
        self.last = _JobLinks(n)
        self.soon = _JobLinks(n)
        self.failure = _JobLinks(n)

    def run(self, rows: Integers) -> Integers:
        """Search for the jobs of one step.

        Returns the pairs of this step: step before, step after, builds, contradicting builds.
        """
        jobs, grid = self._jobs, self._grid
        step = int(jobs.step[rows[0]])
        group = int(jobs.group[rows[0]])
        column = step - grid.first_step[group]
        rows = rows[jobs.ready[rows] != NAT]
        build = jobs.build[rows] - grid.first_build[group]
        ready = jobs.ready[rows][:, None]
        is_first = self._is_first[rows]
        # Matrices of these jobs x the steps of the pipeline.
        released = grid.matrix(self._released, group)[build]
        released_by = grid.matrix(self._released_by, group)[build]
        builds = (released[is_first] != NAT).sum(axis=0)
        contradicted = (released[is_first] > ready[is_first] + SKEW).sum(axis=0)
        is_possible = ~is_refuted(builds, contradicted)
        is_possible[column] = False
        released = np.where(is_possible, released, NAT)
        before = np.where(released <= ready, released, NAT)
        last = before.argmax(axis=1)
        self.last.set(rows, before, released_by, last, before.max(axis=1) != NAT)
        is_near = self.last.at[rows] >= jobs.ready[rows] - NEAR
        binding = np.bincount(last[is_first & is_near], minlength=len(builds))
        far = np.flatnonzero(~is_near & ~jobs.is_block[rows])
        tolerance = np.where(binding > 0, NEAR, SKEW)
        self._set_soon(rows[far], released[far], released_by[far], tolerance)
        self._set_failure(rows[far], group, is_possible)
        others = np.flatnonzero((builds > 0) & (np.arange(len(builds)) != column))
        after = np.full(len(others), step)
        return np.stack(
            [others + grid.first_step[group], after, builds[others], contradicted[others]],
        )

    def _set_soon(
        self,
        rows: Integers,
        released: Integers,
        released_by: Integers,
        tolerance: Integers,
    ) -> None:
        """Set the first step that was released after each job was ready, within the tolerance."""
        ready = self._jobs.ready[rows][:, None]
        is_soon = (released > ready) & (released <= ready + tolerance)
        soon = np.where(is_soon, released, NEVER)
        is_found = soon.min(axis=1) != NEVER
        self.soon.set(rows, soon, released_by, soon.argmin(axis=1), is_found)

    def _set_failure(self, rows: Integers, group: int, is_possible: Flags) -> None:
        """Set the job that had just failed when each job was ready."""
        grid = self._grid
        ready = self._jobs.ready[rows]
        build = self._jobs.build[rows] - grid.first_build[group]
        failed = grid.matrix(self._failed, group)[build]
        failed_by = grid.matrix(self._failed_by, group)[build]
        failed = np.where(is_possible & (failed <= ready[:, None]), failed, NAT)
        is_found = failed.max(axis=1) >= ready - NEAR
        self.failure.set(rows, failed, failed_by, failed.argmax(axis=1), is_found)


def is_refuted(builds: Integers, contradicted: Integers) -> Flags:
    """Return which pairs of steps are refuted."""
    return contradicted > _REFUTED_SHARE * builds


def find_uploaders(jobs: PipelineJobs, rows: Integers) -> Integers:
    """Return the script job that ran when each job was created, or -1.

    If several ran, it is the one whose step most often runs when jobs of this step are created, or
    else the last one started.
    """
    counts = _RunningCounts(jobs, rows)
    counts.visit(counts.count)
    counts.visit(counts.choose)
    return counts.uploader


class _RunningCounts:
    """Scripts that ran when jobs were created, and how often each pair of steps did so."""

    def __init__(self, jobs: PipelineJobs, rows: Integers) -> None:
        self._jobs = jobs
        self._rows = rows
        self._created = jobs.created[rows]
        self._counts = [np.zeros((2, 0), np.int64)]
        self._most = np.zeros(len(rows), np.int64)
        self.uploader = np.full(len(rows), -1)

    def visit(self, visitor: Callable[[Integers, Integers, Integers], None]) -> None:
        """Pass on the scripts that ran, the positions of `rows` that were created then, and pairs.

        A pair is a code of both steps. The script that was started last comes first.
        """
        jobs = self._jobs
        scripts = np.flatnonzero(jobs.is_script & (jobs.started != NAT))

        def pass_on(candidates: Integers, queries: Integers) -> Flags:
            is_running = jobs.finished[candidates] >= self._created[queries]
            is_running &= candidates != self._rows[queries]
            running = candidates[is_running]
            created = queries[is_running]
            pairs = jobs.step[self._rows[created]] * len(jobs.steps) + jobs.step[running]
            visitor(running, created, pairs)
            return np.zeros(len(queries), np.bool_)  # none ends the search

        builds = jobs.build[self._rows]
        find_latest(
            scripts,
            jobs.build[scripts],
            jobs.started[scripts],
            builds,
            self._created - 1,
            pass_on,
        )

    def count(self, _running: Integers, _created: Integers, pairs: Integers) -> None:
        self._counts.append(np.stack(np.unique(pairs, return_counts=True)))
        # A build with thousands of uploads has millions of pairs, but few steps.
        if len(self._counts) > _MAX_COUNTS:
            self._counts = [_sum_counts(self._counts)]

    def choose(self, running: Integers, created: Integers, pairs: Integers) -> None:
        if len(self._counts) > 1:
            self._counts = [_sum_counts(self._counts)]
        keys, counts = self._counts[0]
        times = counts[np.searchsorted(keys, pairs)]
        is_more = times > self._most[created]
        self._most[created[is_more]] = times[is_more]
        self.uploader[created[is_more]] = running[is_more]


def _sum_counts(tables: Sequence[Integers]) -> Integers:
    """Add up tables of keys and counts by key."""
    keys, counts = np.concatenate(tables, axis=1)
    distinct, place = np.unique(keys, return_inverse=True)
    return np.stack([distinct, np.bincount(place, counts, len(distinct)).astype(np.int64)])
