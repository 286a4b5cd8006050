"""State transitions of builds and jobs, and the events that they schedule. Does not know SQL or HTTP.

Active builds are held in memory, all others in the database. Changes are written in batches. Each batch is one
transaction, so builds, scheduled events and the clock always agree.
"""

from __future__ import annotations

import copy
import heapq
import threading
from collections.abc import Callable, Iterable

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.db.outbox import Outbox, WebhookEvent
from buildframe.sandbox_server.simulation import rules
from buildframe.sandbox_server.simulation.agents import AgentQueue
from buildframe.sandbox_server.simulation.scenario import HOUR, JobOutcome, Scenario
from buildframe.sandbox_server.world.build_state import (
    AGENT_LOST,
    Actor,
    BuildRun,
    Commit,
    JobRun,
    ScheduledEvent,
    TriggerCause,
)
from buildframe.sandbox_server.world.model import agent_tags, machine_of_agent, one_job_agent, queue_of_agent
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.sandbox_server.world.steps import PipelineStep
from buildframe.spec.builds import AGENT_STATES, ENDED_STATES, FINISHED_STATES

QueueKey = tuple[str, str]
"""The slug of an organization, and the name of a queue."""


_BUILD = "build 4"
"""Prefix of the keys of build ids, on which all draws of builds and jobs depend.

Another prefix makes another history. With this one, the default seed shows each planted anomaly clearly.
"""


class Simulation:
    """Active builds and jobs, agents and scheduled events of a stored world. A `Simulator` advances them in time."""

    def __init__(self, db: Database, cancels_at_once: bool) -> None:
        self.world, self.db, self.outbox, self.pipelines = db.serializer.world, db, Outbox(db), db.pipelines
        self.scenario = Scenario(self.world, self.pipelines)
        self._cancels_at_once = cancels_at_once
        self.lock = threading.RLock()
        self.catch_up: Callable[[], None] = lambda: None
        self._load()

    # --- start and resume ---

    def _load(self) -> None:
        """Load the state that was written last."""
        self._builds: dict[str, BuildRun] = {}
        self._begin_changes()
        self._unsent: list[tuple[str, JobRun | None]] = []  # events of the build that `_settle` updates next
        self._outcomes: dict[str, JobOutcome] = {}  # of running jobs, by id
        self._built, self._requests, self._numbers = self.db.load_counters()
        self.now = self.db.load_now()
        self._queues = {
            (organization.slug, queue): AgentQueue(queue, organization.get_fleet(queue), self.now)
            for organization in self.world.organizations
            for queue in organization.agents
        }
        self._events = self.db.load_events()
        heapq.heapify(self._events)
        self._next_seq = 1 + max((event.seq for event in self._events), default=0)
        if self._events or self._built:
            self._resume()
        else:
            self._begin()

    def _begin(self) -> None:
        for entry in self.pipelines.values():
            if entry.pipeline.pushes_per_hour:
                self._schedule(self.scenario.next_push(entry, 0), "push", entry.key, "0")
            if entry.pipeline.nightly_hour is not None:
                self._schedule(entry.pipeline.nightly_hour * HOUR, "night", entry.key)

        for broken in self.world.truth.broken_branches:
            for timestamp in self.scenario.repair_times(broken):
                self._schedule(timestamp - self.now, "repair", f"{broken.organization}/{broken.pipeline}")
        for key, queue in self._queues.items():
            self._schedule(queue.next_resize(self.now), "resize", *key)

    def _resume(self) -> None:
        for build in self.db.load_builds("over = 0"):
            self._builds[build.id] = build
            for job in build.jobs:
                if job.state == "scheduled" and self._step(build, job).kind == "script":
                    self._enqueue(build, job)
                elif job.state in AGENT_STATES and job.agent is not None:
                    self._agents(self._queue(build, job)).occupy(machine_of_agent(job.agent))
        for event in self._events:
            if event.kind == "return":
                organization, agent = event.about
                self._queues[organization, queue_of_agent(agent)].occupy(agent)

    # --- persistence ---

    def _flush(self) -> None:
        """Write all changes, then drop builds that are over from memory."""
        changed = [self._builds[id] for id in sorted(self._dirty)]
        events = self._events if self._events_changed else None
        with self.db.transaction():
            self.db.save(changed, events, self.now, self._requests, self._deleted, self._deleted_pipeline)
            self.outbox.store(self._webhook_events)
        self._begin_changes()
        self._builds = {id: build for id, build in self._builds.items() if not build.is_over}

    def _begin_changes(self) -> None:
        self._dirty: set[str] = set()
        self._webhook_events: list[WebhookEvent] = []
        self._deleted: set[str] = set()
        self._deleted_pipeline: PipelineEntry | None = None
        self._events_changed = False

    def _schedule(self, after: int | None, kind: str, *about: str) -> None:
        """Schedule an event after a delay; None: it never happens."""
        if after is None:
            return
        heapq.heappush(self._events, ScheduledEvent(self.now + after, self._next_seq, kind, about))
        self._next_seq += 1
        self._events_changed = True

    def _notify(self, event: str, build: BuildRun, job: JobRun | None = None) -> None:
        """Queue an event with the job as it is now; it is sent when its build is settled."""
        if not self.outbox.hooks:
            return
        organization = self._entry(build).organization.slug
        if any(hook.organization == organization for hook in self.outbox.hooks.values()):
            self._unsent.append((event, copy.copy(job)))

    # --- builds ---

    def _create(
        self,
        entry: PipelineEntry,
        commit: Commit,
        *origin: str | int,
        rebuilt_from: tuple[str, int] | None = None,
        cause: TriggerCause | None = None,
        is_requested: bool = False,
    ) -> BuildRun:
        """Create a build. Its id derives from its origin only, so that it is the same build with other agents, too."""
        id = self.scenario.random.uuid(_BUILD, entry.key, *origin)
        number = 1 + self._numbers.get(entry.key, 0) + self.scenario.skipped_numbers(id)
        self._numbers[entry.key] = number
        self._built += 1
        build = BuildRun(
            self._built, id, entry.key, entry.plan.key, number, "scheduled",
            commit if is_requested else self.scenario.with_meta_data(entry, commit, id, number), self.now,
            rebuilt_from=rebuilt_from, triggered_from=cause, is_requested=is_requested,
        )  # fmt: skip
        self._builds[build.id] = build
        self._supersede(entry, build)
        self._notify("build.scheduled", build)
        build.pending = not rules.has_first_jobs(entry.plan, build.commit.branch)
        if build.pending:
            self._schedule(self.scenario.delay("begin", build.id), "begin", build.id)
        self._add_jobs(build, entry.plan.first())
        self._settle(build)
        self._schedule(self.scenario.manual_cancel_delay(entry, build), "cancel", build.id)
        return build

    def _create_rebuild(self, build: BuildRun, commit: Commit, is_requested: bool = False) -> BuildRun:
        build.n_rebuilt += 1
        self._dirty.add(build.id)
        origin = "rebuild", build.id, build.n_rebuilt
        rebuilt_from = build.id, build.number
        return self._create(self._entry(build), commit, *origin, rebuilt_from=rebuilt_from, is_requested=is_requested)

    def _supersede(self, entry: PipelineEntry, build: BuildRun) -> None:
        """Skip or cancel older builds of the branch if the pipeline is configured to do so."""
        pipeline, branch = entry.pipeline, build.commit.branch
        skipped, canceled = pipeline.skip_queued_branch_builds_filter, pipeline.cancel_running_branch_builds_filter
        skips = pipeline.skip_queued_branch_builds and rules.matches(skipped, branch)
        cancels = pipeline.cancel_running_branch_builds and rules.matches(canceled, branch)
        for other in rules.superseded(build, self._builds.values()) if skips or cancels else ():
            if other.state == "scheduled" and skips:
                self._skip(other)
            elif other.state != "scheduled" and cancels:
                self._cancel(other, f"Canceled because build {build.number} is newer")

    def _settle(self, build: BuildRun) -> None:
        """Derive the state of a build from its jobs, and send its events."""
        before, was_over = (build.state, build.blocked), build.is_over
        build.state, build.blocked = rules.build_state(build)
        if build.state in ("failing", "failed") and build.failing is None:
            build.failing = self.now
        build.finished = (build.finished or self.now) if build.state in FINISHED_STATES else None
        if (build.state, build.blocked) != before:
            if build.state in ("running", "failing", "skipped"):
                self._notify(f"build.{build.state}", build)
            elif build.state in ENDED_STATES:
                self._notify("build.finished", build)
        self._record(build)
        if build.is_over and not was_over:
            delay = None if build.reopened else self.scenario.rebuild_delay(self._entry(build), build)
            self._schedule(delay, "rebuild", build.id)
            if build.triggered_from is not None:
                self._finish_trigger_job(build.triggered_from, build.state == "passed")

    def _record(self, build: BuildRun) -> None:
        """Mark a build as changed, and describe its events."""
        self._dirty.add(build.id)
        if self._unsent:  # `job.scheduled` comes last, after the events that caused it
            for event, job in sorted(self._unsent, key=lambda unsent: unsent[0] == "job.scheduled"):
                self._webhook_events.append(self.outbox.describe(self.now, event, build, job))
            self._unsent.clear()

    def _cancel(self, build: BuildRun, reason: str) -> None:
        build.cancel_reason = reason
        for job in sorted(build.latest().values(), key=lambda job: job.agent is not None):  # waiting jobs first
            if job.state == "running" and job.agent is not None and not self._cancels_at_once:
                job.state = "canceling"
                self._schedule(self.scenario.delay("stop", job.id), "stop", build.id, job.id)
            elif job.is_active:
                self._stop(build, job)
        self._settle(build)

    def _skip(self, build: BuildRun) -> None:
        build.ended = "skipped"
        for job in build.jobs:
            if job.is_active:
                self._stop(build, job, "skipped")
        self._settle(build)

    def _find_build(self, id: str) -> BuildRun | None:
        if id not in self._builds:
            self._builds |= {build.id: build for build in self.db.load_builds("id = ?", id)}
        return self._builds.get(id)

    def _build(self, id: str) -> BuildRun:
        build = self._builds.get(id) or self._find_build(id)
        assert build is not None
        return build

    # --- jobs ---

    def _entry(self, build: BuildRun) -> PipelineEntry:
        return self.pipelines.data[build.pipeline_key]

    def _step(self, build: BuildRun, job: JobRun) -> PipelineStep:
        return self.pipelines.plans[build.plan].slots[job.step].step

    def _add_jobs(self, build: BuildRun, slots: Iterable[str]) -> None:
        for slot in slots:
            self._add_job(build, slot)
        if not build.pending:
            self._advance_jobs(build, slots)

    def _add_job(self, build: BuildRun, slot: str, repeats: JobRun | None = None) -> JobRun:
        attempt = repeats.attempt + 1 if repeats else 0
        id = self.scenario.random.uuid("job", build.id, slot, attempt)
        job = JobRun(id, slot, attempt, "waiting", self.now)
        build.jobs.append(job)
        job.state = rules.skipped_state(self._step(build, job), build.commit.branch) or "waiting"
        self._dirty.add(build.id)
        return job

    def _advance_dependents(self, build: BuildRun, job: JobRun) -> None:
        dependents = self.pipelines.plans[build.plan].dependents[job.step]
        if dependents:
            self._advance_jobs(build, dependents)

    def _advance_jobs(self, build: BuildRun, slots: Iterable[str]) -> None:
        """Start the jobs whose dependencies are met; a wait step that passes releases further jobs."""
        plan, latest = self.pipelines.plans[build.plan], build.latest()
        pending = [slot for slot in slots if slot in latest]
        for slot in pending:
            job, step = latest[slot], plan.slots[slot].step
            before = job.state
            if before not in ("waiting", "waiting_failed"):
                continue
            verdict = rules.readiness(plan.needs.get(slot, ()), latest, step.continue_on_failure)
            if verdict == "ready":
                self._start_job(build, job, step)
            else:
                job.state = "waiting_failed" if verdict == "failed" else "waiting"
            if job.state != before and not (before == "waiting" and job.is_active):  # dependents would wait as before
                pending.extend(plan.dependents[slot])

    def _start_job(self, build: BuildRun, job: JobRun, step: PipelineStep) -> None:
        """Start a job whose dependencies are met, by the kind of its step."""
        if step.kind == "waiter":
            job.state, job.finished = "passed", self.now
        elif step.kind == "manual":
            job.state = "blocked"
            unblocking = self.scenario.manual_unblock(self._entry(build), build, job)
            if unblocking is not None:
                self._schedule(unblocking[0], "unblock", build.id, job.id, str(unblocking[1]))
        elif step.kind == "trigger":
            job.state, job.runnable = "scheduled", self.now
            self._schedule(self.scenario.delay("trigger", job.id), "trigger", build.id, job.id)
            self._notify("job.scheduled", build, job)
        else:
            self._schedule_job(build, job)

    def _schedule_job(self, build: BuildRun, job: JobRun) -> None:
        job.state, job.runnable = "scheduled", self.now
        queue = self._enqueue(build, job)
        self._notify("job.scheduled", build, job)
        self._dispatch(queue)

    def _unblock(self, build: BuildRun, job: JobRun, who: Actor) -> None:
        job.state, job.unblocked_by, job.unblocked_at = "unblocked", who, self.now
        build.finished = None  # the build continues, even if it ends at once
        self._notify("job.activated", build, job)
        self._advance_dependents(build, job)
        self._settle(build)

    def _queue(self, build: BuildRun, job: JobRun) -> QueueKey:
        """Return the queue of a job: that of its step, or one without agents if no agent meets its query rules."""
        step, organization = self._step(build, job), self._entry(build).organization.slug
        if not step.agent_query_rules:
            return organization, step.queue
        unmet = [rule for rule in step.agent_query_rules if rule not in agent_tags(step.queue)]
        return organization, " ".join([step.queue, *unmet])

    def _agents(self, queue: QueueKey) -> AgentQueue:
        """Return the agents of a queue; none if no agent meets the query rules."""
        if queue not in self._queues:
            organization = self.world.get_organization(queue[0])
            self._queues[queue] = AgentQueue(queue[1], organization.get_fleet(queue[1]), self.now)
        return self._queues[queue]

    def _enqueue(self, build: BuildRun, job: JobRun) -> QueueKey:
        place, queue = rules.queue_position(self._step(build, job).priority, build, job), self._queue(build, job)
        heapq.heappush(self._agents(queue).jobs, (place, build.id, job.id))
        return queue

    def _dispatch(self, queue: QueueKey) -> None:
        """Assign waiting jobs to idle agents."""
        agents = self._agents(queue)
        while agents.idle and agents.jobs:
            _, build_id, job_id = heapq.heappop(agents.jobs)
            build = self._builds.get(build_id)
            job = build.job(job_id) if build else None
            if job is not None and job.state == "scheduled":
                machine, boot_s = self.scenario.random.choice(agents.idle, job_id, "agent"), agents.fleet.boot_s
                agents.occupy(machine)
                job.state, job.agent = "assigned", machine if boot_s is None else one_job_agent(machine, job_id)
                self._dirty.add(build_id)
                delay = self.scenario.delay("dispatch", job_id) + self.scenario.boot_time(boot_s or 0.0, job_id)
                self._schedule(delay, "start", build_id, job_id)

    def _release(self, queue: QueueKey, agent: str) -> None:
        """Return the machine of an agent to the idle ones, and assign it to a waiting job."""
        self._agents(queue).free(machine_of_agent(agent))
        self._dispatch(queue)

    def _started(self, build: BuildRun) -> bool:
        """Set the start of a build when its first job starts; return whether it did."""
        is_first = build.started is None or build.restarts
        if is_first:
            build.started, build.restarts = self.now, False
        return is_first

    def _finish_job(self, build: BuildRun, job: JobRun, state: rules.JobEndState) -> None:
        """End a job that finished on its own, and advance the jobs that depend on it."""
        step = self._step(build, job)
        job.soft_failed = step.soft_fail and state != "passed"
        self._end_job(build, job, state)
        if state != "passed" and step.kind == "script":
            self._after_failure(build, job, step)
        if job.retried_in is None:
            self._advance_dependents(build, job)
        self._notify_end(build, job)
        self._settle(build)

    def _notify_end(self, build: BuildRun, job: JobRun) -> None:
        """Queue `job.finished`, but only for jobs that had a `job.scheduled`."""
        if job.runnable is not None:
            self._notify("job.finished", build, job)

    def _end_job(self, build: BuildRun, job: JobRun, state: rules.JobEndState) -> None:
        was, job.state, job.finished = job.state, state, self.now
        if was not in AGENT_STATES or job.agent is None:
            return
        queue, agent = self._queue(build, job), job.agent
        if job.signal_reason == AGENT_LOST and self._agents(queue).fleet.boot_s is None:
            self._schedule(self.scenario.delay("away", job.id), "return", queue[0], agent)
            return
        if job.started is None:
            job.agent = None
        self._release(queue, agent)

    def _stop(self, build: BuildRun, job: JobRun, state: rules.JobEndState = "canceled") -> None:
        """End a canceled or skipped job; a running job is killed."""
        if job.started is not None:
            job.exit_status, job.signal_reason = rules.LOST, "cancel"
        self._end_job(build, job, state)
        self._notify_end(build, job)

    def _repeat(self, build: BuildRun, job: JobRun, how: rules.RetryType) -> None:
        again = self._add_job(build, job.step, job)
        again.retry_type, again.retry_of = how, job.id
        job.retried_in = again.id
        self._schedule_job(build, again)

    def _after_failure(self, build: BuildRun, job: JobRun, step: PipelineStep) -> None:
        before = [other for other in build.jobs if other.step == job.step and other is not job]
        lost = sum(other.signal_reason == AGENT_LOST for other in before)
        if rules.should_retry(job.signal_reason == AGENT_LOST, lost, len(before) - lost, step.retries):
            self._repeat(build, job, "automatic")
        else:
            delay = self.scenario.manual_retry_delay(self._entry(build), build, job)
            self._schedule(delay, "retry", build.id, job.id)

    def _finish_trigger_job(self, cause: TriggerCause, passed: bool) -> None:
        """Finish the trigger job that waited for a build which is over."""
        build = self._find_build(cause.build.id)
        job = build.job(cause.job) if build is not None else None
        if build is not None and job is not None and job.state == "running" and job.triggered is not None:
            self._finish_job(build, job, "passed" if passed else "failed")
