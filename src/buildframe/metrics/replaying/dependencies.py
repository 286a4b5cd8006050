"""Derive what each recorded job waits for: its creation, and the steps before it, and how long after these it is ready.

Knows a record; does not know agents.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from buildframe.metrics.columns import NAT, Flags, Integers
from buildframe.metrics.numbered import latest_by
from buildframe.metrics.pipeline_jobs import GROUP, NEEDS, WANTS, read_jobs
from buildframe.metrics.replaying.record import BLOCK, BuildRecord, RecordedJobs
from buildframe.metrics.step_graph import (
    FAILURE,
    NEVER,
    RELEASE,
    SKEW,
    Predecessors,
    StepPairs,
    find_predecessors,
    find_shards,
    find_uploaders,
    is_refuted,
)

AT_BUILD, AT_START, AT_END = range(3)
"""Since when a job is created: the creation of its build, the start of the job that uploads it, or the end of the
attempt that it repeats."""


@dataclass(frozen=True)
class StepEdges:
    """Pairs of steps of which the second waits for the first."""

    before: Integers
    after: Integers


@dataclass(frozen=True)
class JobNeeds:
    """What each job waits for, besides steps; times are microseconds.

    `source` is the job since whose start or end (`since`) a job is created after `offset`, -1 for
    its build. `gap` is the time from its creation and the release of the cells before it until it
    is ready. `cell` is the cell that a job releases when it ends, or -1.
    """

    since: Integers
    source: Integers
    offset: Integers
    gap: Integers
    cell: Integers
    is_live: Flags
    is_person: Flags


@dataclass(frozen=True)
class Releases:
    """What the ends of jobs release. A cell is a step of a build, which is released after `n_parts` jobs.

    `edge_job` waits for `edge_cell`, and `after_failure` for `failed_job`.
    """

    n_parts: Integers
    edge_cell: Integers
    edge_job: Integers
    failed_job: Integers
    after_failure: Integers


def learn_edges(record: BuildRecord) -> tuple[Predecessors, StepEdges]:
    """Return the predecessor of each job, by rows of `record.pipelines`, and the dependencies of steps."""
    found, pairs = find_predecessors(record.pipelines)
    chosen = _is_binding(pairs)
    return found, StepEdges(pairs.before[chosen], pairs.after[chosen])


def learn_edges_by_half(record: BuildRecord, half: Integers) -> list[StepEdges]:
    """Return the dependencies of steps that the builds of each half show alone; `half` is 0 or 1 for each build."""
    table, known = record.table[[*NEEDS, *WANTS, GROUP]], record.pipelines
    of_rows = pd.Series(half[record.jobs.build], index=record.jobs.row)
    halves = of_rows.reindex(range(len(table)), fill_value=0).to_numpy(np.int64)
    jobs = read_jobs(table.assign(**{GROUP: table[GROUP].to_numpy(np.int64) * 2 + halves}))
    _, pairs = find_predecessors(jobs)
    group = jobs.group_of_step
    numbers = {key: number for number, key in enumerate(known.step_keys)}
    number = np.array([numbers[own // 2, step] for own, step in jobs.step_keys], np.int64)
    chosen, own = _is_binding(pairs), group[pairs.before] % 2
    return [
        StepEdges(
            number[pairs.before[chosen & (own == part)]],
            number[pairs.after[chosen & (own == part)]],
        )
        for part in (0, 1)
    ]


def _is_binding(pairs: StepPairs) -> Flags:
    return (pairs.binding > 0) & ~is_refuted(pairs.builds, pairs.contradicted)


class Uploads:
    """The job that uploaded each job; it does not depend on the edges."""

    def __init__(self, record: BuildRecord) -> None:
        jobs, known = record.jobs, record.pipelines
        n = len(jobs.row)
        is_late = (jobs.replaces < 0) & (jobs.created > record.builds.created[jobs.build])
        rows = np.flatnonzero(is_late)
        self.source = np.full(n, -1)
        if len(rows):
            found = find_uploaders(known, jobs.from_pipeline[rows])
            to_own = np.empty(n + 1, np.int64)
            to_own[jobs.from_pipeline] = np.arange(n)
            to_own[n] = -1  # what -1 refers to
            self.source[rows] = to_own[found]


def derive(
    record: BuildRecord,
    found: Predecessors,
    edges: StepEdges,
    uploads: Uploads,
) -> tuple[JobNeeds, Releases]:
    """Derive what each job waits for if these edges are the dependencies of steps."""
    jobs = record.jobs
    n = len(jobs.row)
    cells = _Cells(jobs, len(record.steps))
    to_own = np.full(n + 1, -1)
    to_own[jobs.from_pipeline] = np.arange(n)
    before, rule = to_own[found.row[jobs.from_pipeline]], found.rule[jobs.from_pipeline]
    edge_cell, edge_job = cells.edges(edges, before, rule)
    is_failure = (rule == FAILURE) & (before >= 0)
    after_failure = np.flatnonzero(is_failure)
    is_live, n_parts, cell = cells.find_live(edge_cell, edge_job)
    is_repeat = (jobs.replaces >= 0) & is_live[jobs.replaces] & (jobs.ended[jobs.replaces] != NAT)
    since = np.select([is_repeat, uploads.source >= 0], [AT_END, AT_START], AT_BUILD)
    source = np.where(is_repeat, jobs.replaces, uploads.source)
    built = record.builds.created[jobs.build]
    base = np.select(
        [since == AT_END, since == AT_START],
        [jobs.ended[source], jobs.started[source]],
        built,
    )
    base = np.where(base == NAT, built, base)
    latest = np.maximum(jobs.created, base)
    np.maximum.at(latest, edge_job, cells.released[edge_cell])
    np.maximum.at(latest, after_failure, jobs.ended[before[after_failure]])
    gap = np.where(jobs.ready != NAT, np.maximum(jobs.ready - latest, 0), 0)
    offset, is_person = (
        np.maximum(jobs.created - base, 0),
        (jobs.kind == BLOCK) | jobs.is_manual_retry,
    )
    needs = JobNeeds(since, source, offset, gap, cell, is_live, is_person)
    return needs, Releases(n_parts, edge_cell, edge_job, before[after_failure], after_failure)


class _Cells:
    """The steps of builds: which shards they have, and when they were released."""

    def __init__(self, jobs: RecordedJobs, n_steps: int) -> None:
        self._jobs, self._n_steps = jobs, max(n_steps, 1)
        key = jobs.build * self._n_steps + jobs.step
        self._keys, self._cell = np.unique(key[~jobs.is_void], return_inverse=True)
        self._rows = np.flatnonzero(~jobs.is_void)
        self._shard, self._first = find_shards(jobs.replaces, jobs.released)
        last = latest_by(self._cell, self._first[self._shard[self._rows]], len(self._keys))
        self.released = np.where(last == NEVER, NAT, last)

    def edges(
        self,
        edges: StepEdges,
        before: Integers,
        rule: Integers,
    ) -> tuple[Integers, Integers]:
        """Return the cells that jobs wait for, and these jobs.

        A job that was ready in the record waits for no cell that was released later.
        """
        jobs = self._jobs
        first = np.flatnonzero(jobs.replaces < 0)
        first = first[np.argsort(jobs.step[first], kind="stable")]
        begins, ends = (np.searchsorted(jobs.step[first], edges.after, side) for side in ("left", "right"))
        counts = ends - begins
        of_pair = np.repeat(np.arange(len(counts)), counts)
        place = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts) + begins[of_pair]
        job = first[place]
        cell = self._find(jobs.build[job] * self._n_steps + edges.before[of_pair])
        own = np.flatnonzero((jobs.kind == BLOCK) & (rule == RELEASE) & (before >= 0))
        cell = np.append(cell, self._find(jobs.build[own] * self._n_steps + jobs.step[before[own]]))
        job = np.append(job, own)
        ready = jobs.ready[job]
        is_early = (self.released[cell] != NAT) & (self.released[cell] <= ready + SKEW)
        chosen = (cell >= 0) & np.where(ready != NAT, is_early, True)
        pairs = np.unique(cell[chosen] * len(jobs.row) + job[chosen])
        if not len(jobs.row):
            return pairs, pairs
        cells, of = np.divmod(pairs, len(jobs.row))
        return cells, of

    def _find(self, keys: Integers) -> Integers:
        if not len(self._keys):
            return np.full(len(keys), -1)
        place = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        return np.where(self._keys[place] == keys, place, -1)

    def find_live(
        self,
        edge_cell: Integers,
        edge_job: Integers,
    ) -> tuple[Flags, Integers, Integers]:
        """Return which jobs can run, how many jobs release each cell, and the cell that each job releases.

        Jobs that were ready can. Others can if all cells that they wait for will be released; what
        was not seen to end will have passed.
        """
        jobs, n = self._jobs, len(self._jobs.row)
        has_edges = np.zeros(n, np.bool_)
        has_edges[edge_job] = True
        is_ready = jobs.ready != NAT
        is_live = is_ready | (jobs.is_waiting & has_edges & (jobs.replaces < 0))
        shard_rows = self._shard[self._rows]
        is_repeated = np.zeros(n, np.bool_)
        is_repeated[jobs.replaces[jobs.replaces >= 0]] = True
        is_first = (jobs.released != NAT) & (jobs.released == self._first[self._shard])
        releases = self._once(is_first)
        might = ~is_repeated & jobs.is_waiting & (self._first[self._shard] == NEVER)
        _, at = np.unique(shard_rows, return_index=True)
        shards = np.bincount(self._cell[at], minlength=len(self._keys))
        while True:
            chosen = (releases | (might & is_live))[self._rows]
            parts = np.bincount(self._cell[chosen], minlength=len(self._keys))
            dead = np.zeros(n, np.bool_)
            dead[edge_job[(parts < shards)[edge_cell]]] = True
            following = is_live & (is_ready | ~dead)
            if (following == is_live).all():
                break
            is_live = following
        cell = np.full(n, -1)
        cell[self._rows] = np.where(chosen, self._cell, -1)
        return is_live, shards, cell

    def _once(self, chosen: Flags) -> Flags:
        """Keep the first row of each shard."""
        rows = np.flatnonzero(chosen)
        _, at = np.unique(self._shard[rows], return_index=True)
        kept = np.zeros(len(chosen), np.bool_)
        kept[rows[at]] = True
        return kept
