"""The simulation: pending events in order of time, each of which changes builds and brings forth further events.

The engine keeps only what is under way; everything else lies in the data. It writes in batches, each of which
is one transaction that leaves builds, pending events and the clock in step with each other.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from buildframe.service import rules
from buildframe.service.fleet import Fleet, QueueKey, queue_of_agent
from buildframe.service.runs import BuildRun, Commit, JobRun
from buildframe.service.story import HOUR, Story
from buildframe.service.world import DAY, UPLOAD, Line, World, lines_of

_BATCH = 400
_UPLOADED_AT = 0.85  # of the upload job's run time


class Event(NamedTuple):
    """Something that will happen. `seq` orders events of the same time."""

    at: int
    seq: int
    kind: str
    about: tuple[str, ...]


class Store(Protocol):
    """What the engine needs of the data."""

    def load_build(self, id: str) -> BuildRun: ...
    def load_active(self) -> Iterable[BuildRun]: ...
    def load_events(self) -> list[Event]: ...
    def load_counters(self) -> tuple[int, dict[str, int]]: ...
    def load_now(self) -> int: ...
    def save(self, builds: Iterable[BuildRun], events: Iterable[Event], now: int) -> None: ...


class Engine:
    """Runs a world forward."""

    def __init__(self, world: World, store: Store) -> None:
        self.world, self._store = world, store
        self.story = Story(world)
        self.lines = lines_of(world)
        self._handlers: dict[str, Callable[..., None]] = {
            "push": self._on_push,
            "night": self._on_night,
            "repair": self._on_repair,
            "upload": self._on_upload,
            "start": self._on_start,
            "finish": self._on_finish,
            "stop": self._on_stop,
            "retry": self._on_retry,
            "cancel": self._on_cancel,
            "rebuild": self._on_rebuild,
            "return": self._on_return,
        }
        self._load()

    # --- beginning and resuming ---

    def _load(self) -> None:
        """Take up the state that was last written."""
        self._fleet = Fleet(self.world.organizations, self.story.chance)
        self._builds: dict[str, BuildRun] = {}
        self._dirty: set[str] = set()
        self._built, self._numbers = self._store.load_counters()
        self.now = self._store.load_now()
        self._events = self._store.load_events()
        heapq.heapify(self._events)
        self._next_seq = 1 + max((event.seq for event in self._events), default=0)
        if self._events:
            self._resume()
        else:
            self._begin()

    def _begin(self) -> None:
        for line in self.lines.values():
            self._schedule(self.story.next_push(line, 0), "push", line.key, "0")
            if line.pipeline.nightly_hour is not None:
                self._schedule(line.pipeline.nightly_hour * HOUR, "night", line.key)

        broken = self.world.truth.broken_branch
        for moment in self.story.repairs():
            self._schedule(moment - self.now, "repair", f"{broken.organization}/{broken.pipeline}")

    def _resume(self) -> None:
        for build in self._store.load_active():
            self._builds[build.id] = build
            for job in build.jobs:
                self._resume_job(build, job)
        for event in self._events:
            if event.kind == "return":
                self._fleet.occupy((event.about[0], queue_of_agent(event.about[1])), event.about[1])

    def _resume_job(self, build: BuildRun, job: JobRun) -> None:
        queue = self._queue(build, job)
        if job.state == "scheduled":
            self._enqueue(build, job)
        elif job.state in ("assigned", "running", "canceling"):
            assert job.agent is not None
            self._fleet.occupy(queue, job.agent)

    # --- time ---

    def run_until(self, moment: int) -> None:
        """Let everything happen that is due up to a moment, and write it down."""
        try:
            self._run_until(moment)
        except BaseException:  # also Ctrl-C amid an event, which would leave a half-changed build
            self._load()
            raise

    def _run_until(self, moment: int) -> None:
        while self._events and self._events[0].at <= moment:
            event = heapq.heappop(self._events)
            self.now = event.at
            self._handlers[event.kind](*event.about)
            if len(self._dirty) >= _BATCH and (not self._events or self._events[0].at > self.now):
                self.flush()
        self.now = moment
        self.flush()

    def flush(self) -> None:
        """Write what changed; forget builds that are over."""
        self._store.save([self._builds[id] for id in sorted(self._dirty)], self._events, self.now)
        self._dirty.clear()
        self._builds = {id: build for id, build in self._builds.items() if build.state not in rules.OVER}

    def _schedule(self, after: int, kind: str, *about: str) -> None:
        heapq.heappush(self._events, Event(self.now + after, self._next_seq, kind, about))
        self._next_seq += 1

    # --- builds ---

    def push(self, line: Line, count: int) -> list[int]:
        """Let commits arrive now; the numbers of their builds."""
        first = self._built
        for place in range(count):
            self._create(line, self.story.commit(line, f"pushed {first + place}", self.now))
        numbers = [build.number for build in self._builds.values() if build.seq > first]
        self.flush()
        return numbers

    def _create(self, line: Line, commit: Commit, rebuilt_from: tuple[str, int] | None = None) -> None:
        number = 1 + self._numbers.get(line.key, 0)
        number += self.story.skips_a_number(line, number)
        self._numbers[line.key] = number
        self._built += 1
        id = self.story.chance.uuid("build", line.key, number)
        build = BuildRun(self._built, id, line.key, number, "scheduled", commit, self.now, rebuilt_from=rebuilt_from)
        self._builds[id] = build
        self._make_way(line, build)
        self._add_job(line, build, UPLOAD)
        wait = self.story.cancel_by_hand(line, build)
        if wait is not None:
            self._schedule(wait, "cancel", id)

    def _make_way(self, line: Line, build: BuildRun) -> None:
        """A newer commit of a branch cancels what still runs for older ones, where the pipeline says so."""
        if line.pipeline.cancels_running and build.commit.branch != line.pipeline.default_branch:
            for other in rules.superseded(build, self._builds.values()):
                self._cancel(other, f"Canceled because build {build.number} is newer")

    def _settle(self, build: BuildRun) -> None:
        """Give a build the state that its jobs make."""
        self._dirty.add(build.id)
        before, build.state = build.state, rules.build_state(build)
        if build.state in ("failing", "failed") and build.failing is None:
            build.failing = self.now
        if build.state in rules.OVER and before not in rules.OVER:
            build.finished = self.now
            self._after_end(build)

    def _after_end(self, build: BuildRun) -> None:
        wait = None if build.reopened else self.story.rebuild(self.lines[build.line], build)
        if wait is not None:
            self._schedule(wait, "rebuild", build.id)

    def _cancel(self, build: BuildRun, reason: str) -> None:
        build.cancel_reason = reason
        for job in sorted(build.latest().values(), key=lambda job: job.agent is not None):  # waiting ones first
            if job.state == "running":
                job.state = "canceling"
                self._schedule(self.story.stopping(job), "stop", build.id, job.id)
            elif job.state in rules.ACTIVE_JOB:
                self._end_job(build, job, "canceled")
        self._settle(build)

    def _build(self, id: str) -> BuildRun:
        if id not in self._builds:
            self._builds[id] = self._store.load_build(id)
        return self._builds[id]

    # --- jobs ---

    def _add_job(self, line: Line, build: BuildRun, step: str, repeats: JobRun | None = None) -> JobRun:
        attempt = repeats.attempt + 1 if repeats else 0
        id = self.story.chance.uuid("job", build.id, step, attempt)
        job = JobRun(id, step, attempt, "waiting", self.now)
        build.jobs.append(job)
        only = line.steps[step].only_branch
        if only is not None and only != build.commit.branch:
            job.state = "broken"
        self._dirty.add(build.id)
        if repeats or step == UPLOAD:
            self._ready(build, job)
        return job

    def _advance(self, line: Line, build: BuildRun, steps: Iterable[str]) -> None:
        """See which of these steps may go on now; a wait step that opens lets others go on."""
        latest = build.latest()
        pending = [step for step in steps if step in latest]
        for step in pending:
            job = latest[step]
            if job.state not in ("waiting", "waiting_failed"):
                continue
            verdict = rules.readiness(line.needs[step], latest)
            if verdict == "ready" and line.steps[step].kind == "waiter":
                job.state, job.finished = "passed", self.now
                pending.extend(line.dependents[step])
            elif verdict == "ready":
                self._ready(build, job)
            elif (job.state == "waiting_failed") != (verdict == "barred"):
                job.state = "waiting_failed" if verdict == "barred" else "waiting"
                pending.extend(line.dependents[step])

    def _ready(self, build: BuildRun, job: JobRun) -> None:
        job.state, job.runnable = "scheduled", self.now
        self._enqueue(build, job)
        self._dispatch(self._queue(build, job))

    def _queue(self, build: BuildRun, job: JobRun) -> QueueKey:
        line = self.lines[build.line]
        return line.organization.slug, line.steps[job.step].queue

    def _enqueue(self, build: BuildRun, job: JobRun) -> None:
        priority = self.lines[build.line].steps[job.step].priority
        self._fleet.enqueue(self._queue(build, job), rules.place_in_line(priority, build, job), build.id, job.id)

    def _dispatch(self, queue: QueueKey) -> None:
        """Give waiting jobs to idle agents."""
        for build_id, job_id in self._fleet.next_in_line(queue):
            build = self._builds.get(build_id)
            job = build.job(job_id) if build else None
            if job is not None and job.state == "scheduled":
                job.state, job.agent = "assigned", self._fleet.take(queue, job_id)
                self._dirty.add(build_id)
                self._schedule(self.story.dispatch(job), "start", build_id, job_id)

    def _end_job(self, build: BuildRun, job: JobRun, state: rules.Ended) -> None:
        was, job.state, job.finished = job.state, state, self.now
        if was in ("assigned", "running", "canceling"):
            self._release(build, job)

    def _release(self, build: BuildRun, job: JobRun) -> None:
        assert job.agent is not None
        queue = self._queue(build, job)
        if job.signal_reason == "agent_lost":
            self._schedule(self.story.away(job), "return", queue[0], job.agent)
            return
        self._fleet.give_back(queue, job.agent)
        if job.started is None:
            job.agent = None
        self._dispatch(queue)

    def _repeat(self, build: BuildRun, job: JobRun, how: rules.RetryType) -> None:
        again = self._add_job(self.lines[build.line], build, job.step, job)
        again.retry_type, again.retry_of = how, job.id
        job.retried_in = again.id

    # --- what events do ---

    def _on_push(self, line_key: str, n: str) -> None:
        line = self.lines[line_key]
        if self.story.push_happens(line, int(n), self.now):
            self._create(line, self.story.commit(line, n, self.now))
        self._schedule(self.story.next_push(line, int(n) + 1), "push", line_key, str(int(n) + 1))

    def _on_night(self, line_key: str) -> None:
        line = self.lines[line_key]
        self._create(line, self.story.nightly(line, f"night {self.now // DAY}"))
        self._schedule(DAY, "night", line_key)

    def _on_repair(self, line_key: str) -> None:
        line = self.lines[line_key]
        self._create(line, self.story.repair(line, f"repair {self.now}"))

    def _on_start(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        job = build.job(job_id)
        if job.state != "assigned":
            return
        job.state, job.started = "running", self.now
        outcome = self.story.outcome(self.lines[build.line], build, job)
        self._schedule(outcome.microseconds, "finish", build_id, job_id)
        if job.step == UPLOAD and outcome.exit_status == 0:
            self._schedule(int(outcome.microseconds * _UPLOADED_AT), "upload", build_id, job_id)
        if build.started is None or build.restarts:
            build.started, build.restarts = self.now, False
        self._settle(build)

    def _on_upload(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        if build.job(job_id).state == "running":
            line = self.lines[build.line]
            for step in line.needs:
                self._add_job(line, build, step)
            self._advance(line, build, line.needs)

    def _on_finish(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        job, line = build.job(job_id), self.lines[build.line]
        if job.state != "running":
            return
        outcome = self.story.outcome(line, build, job)
        job.exit_status, job.signal_reason = outcome.exit_status, outcome.signal_reason
        self._end_job(build, job, "failed" if outcome.exit_status else "passed")
        if outcome.exit_status:
            self._after_failure(line, build, job)
        if job.retried_in is None:
            self._advance(line, build, line.dependents[job.step])
        self._settle(build)

    def _after_failure(self, line: Line, build: BuildRun, job: JobRun) -> None:
        before = [other for other in build.jobs if other.step == job.step and other is not job]
        lost = sum(other.exit_status == rules.LOST for other in before)
        allowed = line.steps[job.step].retries
        assert job.exit_status is not None
        if rules.retries_itself(job.exit_status, lost, len(before) - lost, allowed):
            self._repeat(build, job, "automatic")
            return
        wait = self.story.retry_by_hand(line, build, job)
        if wait is not None:
            self._schedule(wait, "retry", build.id, job.id)

    def _on_stop(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        job = build.job(job_id)
        job.exit_status, job.signal_reason = rules.LOST, "cancel"
        self._end_job(build, job, "canceled")
        self._settle(build)

    def _on_retry(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        job = build.job(job_id)
        if not rules.can_be_retried(build, job):
            return
        if build.state in rules.OVER:
            build.reopened, build.restarts, build.finished = True, True, None
        self._repeat(build, job, "manual")
        line = self.lines[build.line]
        self._advance(line, build, line.dependents[job.step])
        self._settle(build)

    def _on_cancel(self, build_id: str) -> None:
        build = self._build(build_id)
        if build.state in rules.CANCELABLE:
            self._cancel(build, "Canceled by hand")

    def _on_rebuild(self, build_id: str) -> None:
        build = self._build(build_id)
        line = self.lines[build.line]
        self._create(line, self.story.rebuilt(line, build), (build.id, build.number))

    def _on_return(self, organization: str, agent: str) -> None:
        queue = organization, queue_of_agent(agent)
        self._fleet.give_back(queue, agent)
        self._dispatch(queue)
