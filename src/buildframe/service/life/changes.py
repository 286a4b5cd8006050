"""The life of builds and jobs: how one change brings forth the next, and what is planned to happen.

What is under way is kept here; everything else lies in the data. It is written in batches, each of which is one
transaction that leaves builds, pending events and the clock in step with each other.
"""

from __future__ import annotations

import copy
import heapq
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

from buildframe.service.life import rules
from buildframe.service.life.fleet import Fleet, QueueKey, queue_for, queue_of_agent
from buildframe.service.life.story import HOUR, Story
from buildframe.service.world.lines import Line, Lines
from buildframe.service.world.model import World
from buildframe.service.world.runs import BuildRun, Cause, Commit, JobRun, Who
from buildframe.service.world.steps import Step


class Event(NamedTuple):
    """Something that will happen. `seq` orders events of the same time; `about[0]` names a build, a line or a queue."""

    at: int
    seq: int
    kind: str
    about: tuple[str, ...]


class Notice(NamedTuple):
    """What a webhook is to tell: an event's name, and how the build and the job were at that moment."""

    at: int
    event: str
    organization: str
    build_id: str
    job_id: str | None
    body: dict[str, Any]


class Store(Protocol):
    """What the engine needs of the data."""

    @property
    def lines(self) -> Lines: ...
    def load_build(self, id: str) -> BuildRun | None: ...
    def load_active(self) -> Iterable[BuildRun]: ...
    def load_events(self) -> list[Event]: ...
    def load_counters(self) -> tuple[int, dict[str, int]]: ...
    def load_now(self) -> int: ...
    def ids_of(self, line: str, numbers: Sequence[int] | None = None) -> set[str]: ...
    def listens(self, organization: str) -> bool: ...
    def notice(self, at: int, event: str, build: BuildRun, job: JobRun | None) -> Notice: ...
    def save(
        self,
        builds: Iterable[BuildRun],
        events: Iterable[Event] | None,
        now: int,
        *,
        notices: Sequence[Notice] = (),
        forgotten: Collection[str] = (),
        dropped: Line | None = None,
    ) -> None: ...


class Life:
    """Builds and jobs under way, the agents, and what is planned; an `Engine` moves it."""

    def __init__(self, world: World, store: Store, cancels_at_once: bool) -> None:
        self.world, self._store, self.lines = world, store, store.lines
        self.story = Story(world, self.lines)
        self._cancels_at_once = cancels_at_once
        self._load()

    # --- beginning and resuming ---

    def _load(self) -> None:
        """Take up the state that was last written."""
        self._fleet = Fleet(self.world.organizations, self.story.chance)
        self._builds: dict[str, BuildRun] = {}
        self._dirty: set[str] = set()
        self._notices: list[Notice] = []
        self._untold: list[tuple[str, JobRun | None]] = []  # of the build that will be settled next
        self._built, self._numbers = self._store.load_counters()
        self.now = self._store.load_now()
        self._events = self._store.load_events()
        self._events_changed = False
        heapq.heapify(self._events)
        self._next_seq = 1 + max((event.seq for event in self._events), default=0)
        if self._events or self._built:
            self._resume()
        else:
            self._begin()

    def _begin(self) -> None:
        for line in self.lines:
            if line.pipeline.pushes_per_hour:
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
        if job.state == "scheduled" and self._step(build, job).kind == "script":
            self._enqueue(build, job)
        elif job.state in rules.WITH_AGENT and job.agent is not None:
            self._fleet.occupy(self._queue(build, job), job.agent)

    # --- writing down ---

    def _flush(self, forgotten: Collection[str] = (), dropped: Line | None = None) -> None:
        """Write what changed; let go of builds that are over."""
        self._store.save(
            [self._builds[id] for id in sorted(self._dirty)],
            self._events if self._events_changed else None,
            self.now,
            notices=self._notices,
            forgotten=forgotten,
            dropped=dropped,
        )
        self._dirty.clear()
        self._notices, self._events_changed = [], False
        self._builds = {id: build for id, build in self._builds.items() if not rules.is_over(build)}

    def _schedule(self, after: int, kind: str, *about: str) -> None:
        heapq.heappush(self._events, Event(self.now + after, self._next_seq, kind, about))
        self._next_seq += 1
        self._events_changed = True

    def _notify(self, event: str, build: BuildRun, job: JobRun | None = None) -> None:
        """Have an event told when its build is settled, with the job as it is now."""
        if self._store.listens(self.lines[build.line].organization.slug):
            self._untold.append((event, copy.copy(job)))

    def _tell(self, build: BuildRun) -> None:
        """Tell what happened to jobs and what that made of their build, then which jobs may go on."""
        for event, job in sorted(self._untold, key=lambda untold: untold[0] == "job.scheduled"):
            self._notices.append(self._store.notice(self.now, event, build, job))
        self._untold.clear()

    # --- builds ---

    def _create(
        self,
        line: Line,
        commit: Commit,
        *,
        rebuilt_from: tuple[str, int] | None = None,
        cause: Cause | None = None,
        asked_for: bool = False,
    ) -> BuildRun:
        number = 1 + self._numbers.get(line.key, 0)
        number += self.story.skips_a_number(line, number)
        self._numbers[line.key] = number
        self._built += 1
        build = BuildRun(
            self._built, self.story.chance.uuid("build", line.key, number), line.key, line.plan.key, number,
            "scheduled", commit if asked_for else self.story.marked(line, commit, number), self.now,
            rebuilt_from=rebuilt_from, triggered_from=cause, asked_for=asked_for,
        )  # fmt: skip
        self._builds[build.id] = build
        self._begin_build(line, build)
        return build

    def _begin_build(self, line: Line, build: BuildRun) -> None:
        self._make_way(line, build)
        self._notify("build.scheduled", build)
        build.pending = not rules.has_first_jobs(line.plan, build.commit.branch)
        if build.pending:
            self._schedule(self.story.beginning(build), "begin", build.id)
        self._add_jobs(build, line.plan.first())
        self._settle(build)
        wait = self.story.cancel_by_hand(line, build)
        if wait is not None:
            self._schedule(wait, "cancel", build.id)

    def _make_way(self, line: Line, build: BuildRun) -> None:
        """A newer build of a branch skips or cancels older ones, where the pipeline says so."""
        pipeline, branch = line.pipeline, build.commit.branch
        skips = pipeline.skip_queued_branch_builds and rules.matches(pipeline.skip_queued_branch_builds_filter, branch)
        cancels = pipeline.cancel_running_branch_builds and rules.matches(
            pipeline.cancel_running_branch_builds_filter, branch
        )
        for other in rules.superseded(build, self._builds.values()) if skips or cancels else ():
            if other.state == "scheduled" and skips:
                self._skip(other)
            elif other.state != "scheduled" and cancels:
                self._cancel(other, f"Canceled because build {build.number} is newer")

    def _settle(self, build: BuildRun) -> None:
        """Give a build the state that its jobs make."""
        self._dirty.add(build.id)
        before, was_over = (build.state, build.blocked), rules.is_over(build)
        build.blocked = build.ended is None and build.cancel_reason is None and rules.is_blocked(build)
        build.state = rules.build_state(build)
        if build.state in ("failing", "failed") and build.failing is None:
            build.failing = self.now
        if build.state not in rules.FINISHED:
            build.finished = None
        elif build.finished is None:
            build.finished = self.now
        if (build.state, build.blocked) != before:
            self._notify_state(build)
        self._tell(build)
        if rules.is_over(build) and not was_over:
            self._after_end(build)

    def _notify_state(self, build: BuildRun) -> None:
        if build.state in ("running", "failing", "skipped"):
            self._notify(f"build.{build.state}", build)
        elif build.state in rules.OVER:
            self._notify("build.finished", build)

    def _after_end(self, build: BuildRun) -> None:
        wait = None if build.reopened else self.story.rebuild(self.lines[build.line], build)
        if wait is not None:
            self._schedule(wait, "rebuild", build.id)
        if build.triggered_from is not None:
            self._tell_trigger_job(build.triggered_from, build.state == "passed")

    def _cancel(self, build: BuildRun, reason: str) -> None:
        build.cancel_reason = reason
        for job in sorted(build.latest().values(), key=lambda job: job.agent is not None):  # waiting ones first
            if job.state == "running" and job.agent is not None and not self._cancels_at_once:
                job.state = "canceling"
                self._schedule(self.story.stopping(job), "stop", build.id, job.id)
            elif job.state in rules.ACTIVE_JOB:
                self._stop(build, job)
        self._settle(build)

    def _skip(self, build: BuildRun) -> None:
        build.ended = "skipped"
        for job in build.jobs:
            if job.state in rules.ACTIVE_JOB:
                self._end_job(build, job, "skipped")
                self._notify_end(build, job)
        self._settle(build)

    def _known(self, id: str) -> BuildRun | None:
        if id not in self._builds:
            build = self._store.load_build(id)
            if build is not None:
                self._builds[id] = build
        return self._builds.get(id)

    def _build(self, id: str) -> BuildRun:
        build = self._known(id)
        assert build is not None
        return build

    # --- jobs ---

    def _step(self, build: BuildRun, job: JobRun) -> Step:
        return self.lines.plan(build.plan).slots[job.step].step

    def _add_jobs(self, build: BuildRun, slots: Iterable[str]) -> None:
        for slot in slots:
            self._add_job(build, slot)
        if not build.pending:
            self._advance(build, slots)

    def _add_job(self, build: BuildRun, slot: str, repeats: JobRun | None = None) -> JobRun:
        attempt = repeats.attempt + 1 if repeats else 0
        id = self.story.chance.uuid("job", build.id, slot, attempt)
        job = JobRun(id, slot, attempt, "waiting", self.now)
        build.jobs.append(job)
        job.state = rules.left_out(self._step(build, job), build.commit.branch) or "waiting"
        self._dirty.add(build.id)
        return job

    def _advance(self, build: BuildRun, slots: Iterable[str]) -> None:
        """See which of these jobs may go on now; a wait step that opens lets others go on."""
        plan, latest = self.lines.plan(build.plan), build.latest()
        pending = [slot for slot in slots if slot in latest]
        for slot in pending:
            job, step = latest[slot], plan.slots[slot].step
            if job.state not in ("waiting", "waiting_failed"):
                continue
            verdict = rules.readiness(plan.needs.get(slot, ()), latest, step.continue_on_failure)
            if verdict == "ready":
                self._go_on(build, job, step)
            elif (job.state == "waiting_failed") != (verdict == "barred"):
                job.state = "waiting_failed" if verdict == "barred" else "waiting"
            else:
                continue
            pending.extend(plan.dependents[slot])

    def _go_on(self, build: BuildRun, job: JobRun, step: Step) -> None:
        """A job that needs no other any more does what its kind does."""
        if step.kind == "waiter":
            job.state, job.finished = "passed", self.now
        elif step.kind == "manual":
            self._block(build, job)
        elif step.kind == "trigger":
            job.state, job.runnable = "scheduled", self.now
            self._schedule(self.story.triggering(job), "trigger", build.id, job.id)
            self._notify("job.scheduled", build, job)
        else:
            self._ready(build, job)

    def _ready(self, build: BuildRun, job: JobRun) -> None:
        job.state, job.runnable = "scheduled", self.now
        self._enqueue(build, job)
        self._notify("job.scheduled", build, job)
        self._dispatch(self._queue(build, job))

    def _block(self, build: BuildRun, job: JobRun) -> None:
        job.state = "blocked"
        by_hand = self.story.unblock_by_hand(self.lines[build.line], build, job)
        if by_hand is not None:
            self._schedule(by_hand[0], "unblock", build.id, job.id, str(by_hand[1]))

    def _unblock(self, build: BuildRun, job: JobRun, who: Who) -> None:
        job.state, job.unblocked_by, job.unblocked_at = "unblocked", who, self.now
        build.finished = None  # it goes on, though it may be to end at once
        self._notify("job.activated", build, job)
        self._advance(build, self.lines.plan(build.plan).dependents[job.step])
        self._settle(build)

    def _queue(self, build: BuildRun, job: JobRun) -> QueueKey:
        return self.lines[build.line].organization.slug, queue_for(self._step(build, job))

    def _enqueue(self, build: BuildRun, job: JobRun) -> None:
        place = rules.place_in_line(self._step(build, job).priority, build, job)
        self._fleet.enqueue(self._queue(build, job), place, build.id, job.id)

    def _dispatch(self, queue: QueueKey) -> None:
        """Give waiting jobs to idle agents."""
        for build_id, job_id in self._fleet.next_in_line(queue):
            build = self._builds.get(build_id)
            job = build.job(job_id) if build else None
            if job is not None and job.state == "scheduled":
                job.state, job.agent = "assigned", self._fleet.take(queue, job_id)
                self._dirty.add(build_id)
                self._schedule(self.story.dispatch(job), "start", build_id, job_id)

    def _started(self, build: BuildRun) -> None:
        if build.started is None or build.restarts:
            build.started, build.restarts = self.now, False

    def _finish_job(self, build: BuildRun, job: JobRun, state: rules.Ended) -> None:
        """A job ends by itself, and what waits for it goes on."""
        step = self._step(build, job)
        job.soft_failed = step.soft_fail and state != "passed"
        self._end_job(build, job, state)
        if state != "passed" and step.kind == "script":
            self._after_failure(build, job, step)
        if job.retried_in is None:
            self._advance(build, self.lines.plan(build.plan).dependents[job.step])
        self._notify_end(build, job)
        self._settle(build)

    def _notify_end(self, build: BuildRun, job: JobRun) -> None:
        """Only of jobs of which it was told that they could run."""
        if job.runnable is not None:
            self._notify("job.finished", build, job)

    def _end_job(self, build: BuildRun, job: JobRun, state: rules.Ended) -> None:
        was, job.state, job.finished = job.state, state, self.now
        if was in rules.WITH_AGENT and job.agent is not None:
            self._release(build, job, job.agent)

    def _release(self, build: BuildRun, job: JobRun, agent: str) -> None:
        queue = self._queue(build, job)
        if job.signal_reason == "agent_lost":
            self._schedule(self.story.away(job), "return", queue[0], agent)
            return
        self._fleet.give_back(queue, agent)
        if job.started is None:
            job.agent = None
        self._dispatch(queue)

    def _stop(self, build: BuildRun, job: JobRun) -> None:
        """End a job that is canceled; one that runs is killed."""
        if job.started is not None:
            job.exit_status, job.signal_reason = rules.LOST, "cancel"
        self._end_job(build, job, "canceled")
        self._notify_end(build, job)

    def _repeat(self, build: BuildRun, job: JobRun, how: rules.RetryType) -> None:
        again = self._add_job(build, job.step, job)
        again.retry_type, again.retry_of = how, job.id
        job.retried_in = again.id
        self._ready(build, again)

    def _after_failure(self, build: BuildRun, job: JobRun, step: Step) -> None:
        before = [other for other in build.jobs if other.step == job.step and other is not job]
        lost = sum(other.signal_reason == "agent_lost" for other in before)
        if rules.retries_itself(job.signal_reason == "agent_lost", lost, len(before) - lost, step.retries):
            self._repeat(build, job, "automatic")
            return
        wait = self.story.retry_by_hand(self.lines[build.line], build, job)
        if wait is not None:
            self._schedule(wait, "retry", build.id, job.id)

    def _tell_trigger_job(self, cause: Cause, passed: bool) -> None:
        """The build that a trigger job waited for is over."""
        build = self._known(cause.build.id)
        job = build.job(cause.job) if build is not None else None
        if build is not None and job is not None and job.state == "running" and job.triggered is not None:
            self._finish_job(build, job, "passed" if passed else "failed")
