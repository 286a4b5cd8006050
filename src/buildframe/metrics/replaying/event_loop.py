"""Simulate a model: jobs become ready, get agents, run, and let others start, until the record ends.

One heap of events, each a whole number: its time, its kind, and what it is about. Knows a model;
does not know frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from buildframe.metrics.columns import NAT, Flags, Floats, Integers, seconds_between
from buildframe.metrics.replaying.dependencies import AT_START
from buildframe.metrics.replaying.fleets import HOUR, UNLIMITED, Fleet
from buildframe.metrics.replaying.model import FIRST, ReplayModel
from buildframe.metrics.replaying.record import AGENT, BLOCK, NO_QUEUE

FINISH, RETURN, RESIZE, END, CREATE, CANCEL, STOP, READY = range(8)
"""Kinds of events, in the order in which those of one instant are processed."""

BY_PERSON, BY_NEWER, SKIPPED = 1, 2, 3
"""How a build was canceled; 0 if it was not."""

_UNKNOWN = -1
_PRIORITY_BITS = 60


@dataclass(frozen=True)
class Changes:
    """What differs from the record. `scale` multiplies the run time of each job, and `is_skipped` makes it 0."""

    fleets: Sequence[Fleet]
    scale: Floats | None = None
    is_skipped: Flags | None = None
    lag: Integers | None = None


@dataclass(frozen=True)
class ReplayTimes:
    """What happened, in microseconds since 1970, `NAT` if not within the record.

    `canceled` says how each build was canceled. Builds that are open have jobs left, or end after
    the record. `agent` numbers the agents of each queue, -1 if a job had none.
    """

    build_created: Integers
    build_ended: Integers
    canceled: Integers
    canceled_at: Integers
    is_open: Flags
    created: Integers
    ready: Integers
    started: Integers
    ended: Integers
    is_canceled: Flags
    agent: Integers

    @property
    def wall_s(self) -> Floats:
        """Wall time of each build in seconds; NaN if it did not end."""
        return seconds_between(self.build_created, self.build_ended)


def simulate(model: ReplayModel, changes: Changes) -> ReplayTimes:
    """Run the jobs of a model on these fleets, one per queue."""
    loop = _EventLoop(model, changes)
    loop.run()
    return loop.times(model)


class _EventLoop:
    """State of builds and jobs in lists, by their numbers; times are counted from the start of the record."""

    def __init__(self, model: ReplayModel, changes: Changes) -> None:
        builds, jobs = model.builds, model.jobs
        n, n_builds = len(jobs.origin), len(builds.origin)
        self._bits = max(n, n_builds, model.n_queues, 1).bit_length()
        self._length = model.end - model.start
        self._heap: list[int] = []
        self._handlers = (
            self._finish, self._return_agent, self._resize, self._end_build, self._create, self._cancel_by_person,
            self._stop, self._make_ready,
        )  # fmt: skip
        self._read_jobs(model, changes)
        self._read_builds(model)
        self._links = model.links
        self._waits, self._parts = model.n_waits.tolist(), model.releases.n_parts.tolist()
        self._open_queues(model, changes.fleets)
        for build in np.flatnonzero(builds.cause == FIRST).tolist():
            self._push(int(builds.offset[build]), CREATE, build)

    def _read_jobs(self, model: ReplayModel, changes: Changes) -> None:
        jobs, n = model.jobs, len(model.jobs.origin)
        run, wait, lag, offset = (
            jobs.run,
            jobs.wait,
            jobs.lag if changes.lag is None else changes.lag,
            jobs.offset,
        )
        scale = np.ones(n) if changes.scale is None else changes.scale
        if changes.is_skipped is not None:
            scale = np.where(changes.is_skipped, 0.0, scale)
            wait = np.where(changes.is_skipped, 0, wait)
        is_scaled = (scale != 1) & np.isin(jobs.kind, [AGENT, NO_QUEUE])
        run = np.where(is_scaled, np.rint(run * scale), run).astype(np.int64)
        by = np.where(is_scaled, scale, 1.0)[jobs.source]
        offset = np.where(
            (jobs.since == AT_START) & (by != 1),
            np.rint(offset * by),
            offset,
        ).astype(np.int64)
        kind = (
            jobs.kind
            if changes.is_skipped is None
            else np.where(changes.is_skipped & (jobs.kind == AGENT), NO_QUEUE, jobs.kind)
        )
        self._run, self._wait, self._lag, self._offset = (one.tolist() for one in (run, wait, lag, offset))
        self._kind, self._queue, self._gap = kind.tolist(), jobs.queue.tolist(), jobs.gap.tolist()
        self._away, self._cell, self._of_build = (
            jobs.away.tolist(),
            jobs.cell.tolist(),
            jobs.build.tolist(),
        )
        self._stop_after, self._stop_lag = jobs.stop_after.tolist(), jobs.stop_lag.tolist()
        self._expires, self._is_person = jobs.expires.tolist(), jobs.is_person.tolist()
        self._rank = [rank << _PRIORITY_BITS for rank in jobs.rank.tolist()]
        self._ends_with = jobs.ends_with.tolist()
        self._created, self._ready, self._started, self._ended, self._due = ([_UNKNOWN] * n for _ in range(5))
        self._agent, self._is_canceled, self._is_held = [_UNKNOWN] * n, [False] * n, [False] * n

    def _read_builds(self, model: ReplayModel) -> None:
        builds, n = model.builds, len(model.builds.origin)
        self._build_offset, self._tail = builds.offset.tolist(), builds.tail.tolist()
        self._cancel_after, self._branch = builds.cancel_after.tolist(), builds.branch.tolist()
        self._cancels, self._skips = builds.cancels.tolist(), builds.skips.tolist()
        self._build_created, self._build_ended, self._canceled_at = ([_UNKNOWN] * n for _ in range(3))
        self._canceled, self._active, self._awaited_people = [0] * n, [0] * n, [0] * n
        self._first_start = [2**62] * n
        self._left = np.bincount(model.jobs.build[model.jobs.is_live], minlength=n).tolist()
        self._under_way: dict[int, list[int]] = {}

    def _open_queues(self, model: ReplayModel, fleets: Sequence[Fleet]) -> None:
        n = model.n_queues
        hours = np.arange(model.start // HOUR, model.end // HOUR + 1)
        self._size, self._busy, self._next_agent = [UNLIMITED] * n, [0] * n, [0] * n
        self._idle: list[list[int]] = [[] for _ in range(n)]
        self._waiting: list[list[int]] = [[] for _ in range(n)]
        self._touched: set[int] = set()
        self._sizes: list[list[int]] = [[] for _ in range(n)]
        for queue, fleet in enumerate(fleets):
            sizes = fleet.at_hours(hours)
            changed = np.flatnonzero(np.diff(sizes, prepend=-1))
            self._size[queue] = int(sizes[0])
            self._sizes[queue] = sizes[changed[1:]][::-1].tolist()
            for hour in hours[changed[1:]].tolist():
                self._push(hour * HOUR - model.start, RESIZE, queue)

    def run(self) -> None:
        """Process all events until the record ends."""
        heap, handlers, bits, touched = self._heap, self._handlers, self._bits, self._touched
        mask, length = (1 << bits) - 1, self._length
        while heap:
            event = heappop(heap)
            number, event = event & mask, event >> bits
            now = event >> 3
            if now > length:
                return
            handlers[event & 7](number, now)
            if touched and (not heap or heap[0] >> (bits + 3) > now):
                for queue in touched:
                    self._assign_jobs(queue, now)
                touched.clear()

    def _push(self, at: int, kind: int, number: int) -> None:
        heappush(self._heap, ((at << 3 | kind) << self._bits) | number)

    # --- jobs ---

    def _allow(self, row: int, now: int) -> None:
        """Count one of the things that a job waits for as done; after the last one, the job is ready after its gap."""
        left = self._waits[row] - 1
        self._waits[row] = left
        if not left:
            created = self._created[row]
            self._push((created if created > now else now) + self._gap[row], READY, row)
            if self._is_person[row]:
                self._awaited_people[self._of_build[row]] += 1

    def _make_ready(self, row: int, now: int) -> None:
        build = self._of_build[row]
        if self._canceled[build]:
            return
        self._ready[row] = now
        self._active[build] += 1
        if self._is_person[row]:
            self._awaited_people[build] -= 1
        if self._stop_after[row] != NAT:
            self._push(now + self._stop_after[row], STOP, row)
        kind = self._kind[row]
        if kind == AGENT:
            queue = self._queue[row]
            heappush(self._waiting[queue], ((self._rank[row] | now) << self._bits) | row)
            self._touched.add(queue)
        elif kind == NO_QUEUE:
            self._start(row, now + self._wait[row])
        elif kind == BLOCK:
            self._finish_at(row, now)
        else:
            self._trigger(row, now)

    def _assign_jobs(self, queue: int, now: int) -> None:
        """Assign waiting jobs to free agents."""
        waiting, idle, mask = self._waiting[queue], self._idle[queue], (1 << self._bits) - 1
        while waiting and self._busy[queue] < self._size[queue]:
            row = heappop(waiting) & mask
            if self._ended[row] >= 0 or self._due[row] >= 0:  # canceled meanwhile
                continue
            self._busy[queue] += 1
            if not idle:
                idle.append(self._next_agent[queue])
                self._next_agent[queue] += 1
            self._agent[row], self._is_held[row] = heappop(idle), True
            self._start(row, now + self._lag[row])

    def _start(self, row: int, at: int) -> None:
        self._started[row] = at
        build = self._of_build[row]
        if at < self._first_start[build]:
            self._first_start[build] = at
        for uploaded in self._links.uploads.get(row, ()):
            self._created[uploaded] = at + self._offset[uploaded]
            self._allow(uploaded, at)
        self._finish_at(row, at + self._run[row])

    def _finish_at(self, row: int, at: int) -> None:
        self._due[row] = at
        self._push(at, FINISH, row)

    def _trigger(self, row: int, now: int) -> None:
        self._first_start[self._of_build[row]] = min(now, self._first_start[self._of_build[row]])
        for child in self._links.triggers.get(row, ()):
            self._push(now + self._build_offset[child], CREATE, child)
        if self._ends_with[row] < 0:
            self._finish_at(row, now + self._run[row])

    def _finish(self, row: int, now: int) -> None:
        if self._due[row] != now or self._ended[row] >= 0:
            return
        self._ended[row] = now
        build = self._of_build[row]
        if self._is_held[row]:
            self._release_agent(row, now)
        if not self._is_canceled[row]:
            self._release_cell(row, now)
        if not self._canceled[build]:
            for other in self._links.repeats.get(row, ()):
                self._created[other] = now + self._offset[other]
                self._allow(other, now)
        self._active[build] -= 1
        self._left[build] -= 1
        if not self._left[build]:
            self._end_after_last(build, now)

    def _release_agent(self, row: int, now: int) -> None:
        if self._away[row]:
            self._push(now + self._away[row], RETURN, row)
        else:
            self._return_agent(row, now)

    def _return_agent(self, row: int, now: int) -> None:
        queue = self._queue[row]
        self._busy[queue] -= 1
        heappush(self._idle[queue], self._agent[row])
        self._touched.add(queue)

    def _resize(self, queue: int, now: int) -> None:
        self._size[queue] = self._sizes[queue].pop()
        self._touched.add(queue)

    def _release_cell(self, row: int, now: int) -> None:
        for other in self._links.after_failure.get(row, ()):
            self._allow(other, now)
        cell = self._cell[row]
        if cell >= 0:
            left = self._parts[cell] - 1
            self._parts[cell] = left
            if not left:
                for other in self._links.after_cell.get(cell, ()):
                    self._allow(other, now)

    def _stop(self, row: int, now: int) -> None:
        """Cancel a job alone, or let it expire if it still waits for an agent."""
        has_agent = self._started[row] >= 0
        if self._ended[row] >= 0 or (has_agent and self._expires[row]):
            return
        self._is_canceled[row] = True
        if has_agent and self._started[row] > now:
            self._started[row] = _UNKNOWN
        self._finish_at(row, now)

    # --- builds ---

    def _create(self, build: int, now: int) -> None:
        self._build_created[build] = now
        if self._cancels[build] or self._skips[build]:
            self._cancel_older(build, now)
        if self._cancel_after[build] != NAT:
            self._push(now + self._cancel_after[build], CANCEL, build)
        for row in self._links.with_build.get(build, ()):
            self._created[row] = now + self._offset[row]
            self._allow(row, now)
        for other in self._links.beside.get(build, ()):
            self._push(now + self._build_offset[other], CREATE, other)
        if not self._left[build]:
            self._end_after_last(build, now)

    def _cancel_older(self, build: int, now: int) -> None:
        """Cancel or skip the builds of the branch that are under way."""
        kept = [build]
        for older in self._under_way.get(self._branch[build], ()):
            has_started = self._first_start[older] < now
            how = (BY_NEWER if self._cancels[build] else 0) if has_started else (SKIPPED if self._skips[build] else 0)
            is_idle = self._awaited_people[older] > 0 and not self._active[older]
            if self._left[older] and not self._canceled[older]:
                if how and not is_idle:
                    self._cancel(older, now, how)
                else:
                    kept.append(older)
        self._under_way[self._branch[build]] = kept

    def _cancel_by_person(self, build: int, now: int) -> None:
        if self._left[build] and not self._canceled[build]:
            self._cancel(build, now, BY_PERSON)

    def _cancel(self, build: int, now: int, how: int) -> None:
        """End all jobs of a build; those that run end a little later."""
        self._canceled[build], self._canceled_at[build] = how, now
        left = 0
        for row in self._links.jobs_of.get(build, ()):
            if self._ended[row] >= 0:
                continue
            self._is_canceled[row] = True
            is_assigned = self._started[row] >= 0
            if is_assigned and self._started[row] > now:
                self._started[row] = _UNKNOWN
            if is_assigned:
                left += 1
                self._finish_at(row, now + (self._stop_lag[row] if self._started[row] >= 0 else 0))
            elif 0 <= self._created[row] <= now:
                self._ended[row] = now
        self._left[build] = left
        if not left:
            self._end_after_last(build, now)

    def _end_after_last(self, build: int, now: int) -> None:
        """End a build after its last job; a build that did not end in the record and has no live jobs stays open."""
        if self._canceled[build]:
            self._push(now, END, build)
        elif self._tail[build] != NAT:
            self._push(now + max(self._tail[build], 0), END, build)

    def _end_build(self, build: int, now: int) -> None:
        self._build_ended[build] = now if self._canceled[build] else now + min(self._tail[build], 0)
        for other in self._links.rebuilds.get(build, ()):
            self._push(now + self._build_offset[other], CREATE, other)
        for row in self._links.awaiting.get(build, ()):
            if self._ready[row] >= 0 and self._ended[row] < 0:
                self._finish_at(row, now + self._wait[row])

    # --- result ---

    def times(self, model: ReplayModel) -> ReplayTimes:
        """Return all times that lie within the record."""

        def absolute(values: list[int]) -> Integers:
            found = np.array(values, np.int64)
            return np.where((found >= 0) & (found <= self._length), found + model.start, NAT)

        started, ended = absolute(self._started), absolute(self._build_ended)
        return ReplayTimes(
            build_created=absolute(self._build_created),
            build_ended=ended,
            canceled=np.array(self._canceled, np.int64),
            canceled_at=absolute(self._canceled_at),
            is_open=(ended == NAT) & ((np.array(self._left, np.int64) > 0) | (model.builds.tail != NAT)),
            created=absolute(self._created),
            ready=absolute(self._ready),
            started=started,
            ended=absolute(self._ended),
            is_canceled=np.array(self._is_canceled, np.bool_),
            agent=np.where(started != NAT, np.array(self._agent, np.int64), -1),
        )
