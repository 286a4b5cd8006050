"""Run the simulation: process scheduled events in order of time, and execute requested actions.

Does not know SQL or HTTP.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

import msgspec

from buildframe.sandbox_server.simulation import rules
from buildframe.sandbox_server.simulation.lifecycle import Simulation
from buildframe.sandbox_server.simulation.rules import ActionRejected
from buildframe.sandbox_server.world.build_state import Actor, BuildRun, Commit, JobRun, ScheduledEvent, TriggerCause
from buildframe.sandbox_server.world.ground_truth import BrokenBranch, SlowerStep, Truth
from buildframe.sandbox_server.world.model import DAY, queue_of_agent
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.sandbox_server.world.steps import UPLOAD
from buildframe.spec.builds import AGENT_STATES, CANCELABLE_STATES

Began = TypeVar("Began", SlowerStep, BrokenBranch)

_PER_REPORT = 1000
"""Number of events after which progress is reported."""

_BATCH = 400
_UPLOADED_AT = 0.85  # of the upload job's run time

_JOB_STATES = {
    "start": ("assigned",),
    "upload": ("running",),
    "finish": ("running",),
    "trigger": ("scheduled",),
    "unblock": ("blocked",),
    "stop": ("canceling",),
    "retry": ("failed", "timed_out"),
}
"""Events of jobs, and the states in which a job has them; in other states nothing happens."""


class Simulator(Simulation):
    """Advances a world in time and executes actions.

    Every action holds `lock`; take it before the lock of the database. Public methods take it. Each of them is one
    transaction: if it fails, nothing changes. `catch_up` advances the world to the time of a running clock; call it
    before reading, without holding a lock.
    """

    # --- time ---

    def run_until(self, timestamp: int, on_progress: Callable[[float], object] = lambda share: None) -> None:
        """Process and store all events that are due until a timestamp. A timestamp in the past changes nothing.

        `on_progress` receives the share of the time that has passed, at intervals and at the end.
        """
        with self._all_or_nothing():
            if timestamp <= self.now:
                return
            start, n_processed = self.now, 0
            while self._events and self._events[0].at <= timestamp:
                event = heapq.heappop(self._events)
                self._events_changed = True
                self.now = event.at
                self._process(event)
                if len(self._dirty) >= _BATCH and (not self._events or self._events[0].at > self.now):
                    self._flush()
                n_processed += 1
                if n_processed % _PER_REPORT == 0:
                    on_progress((self.now - start) / (timestamp - start))
            self.now = timestamp
            self._flush()
            on_progress(1.0)

    def _process(self, event: ScheduledEvent) -> None:
        """Call the handler of an event with the records that the event is about."""
        handle = getattr(self, f"_on_{event.kind}")
        first, *others = event.about
        if event.kind in _JOB_STATES:
            build = self._build(first)
            job = build.job(others[0])
            if job.state in _JOB_STATES[event.kind]:
                handle(build, job, *others[1:])
        elif event.kind in ("return", "resize"):
            handle(first, *others)
        elif event.kind in ("push", "night", "repair"):
            handle(self.pipelines[first], *others)
        else:
            handle(self._build(first))

    @contextmanager
    def _action(self) -> Iterator[None]:
        with self.lock:
            self.catch_up()
            with self._all_or_nothing():
                yield
                self._flush()

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore the last stored state if an action fails, including by Ctrl-C."""
        with self.lock:
            try:
                yield
            except BaseException as why:
                if not isinstance(why, ActionRejected):
                    self._load()
                raise

    def truth(self) -> Truth:
        """Return the planted anomalies, with the commits around those that begin at an instant."""
        planted = self.world.truth
        slower = tuple(map(self._with_commits, planted.slower_steps))
        broken = tuple(map(self._with_commits, planted.broken_branches))
        return replace(planted, slower_steps=slower, broken_branches=broken)

    def _with_commits(self, planted: Began) -> Began:
        key = f"{planted.organization}/{planted.pipeline}"
        at, branch = (planted.since, planted.branch) if isinstance(planted, BrokenBranch) else (planted.at, None)
        before, after = self.db.find_commits_around(key, at.us, branch)
        return replace(planted, commit_before=before, commit_after=after)

    # --- actions ---

    def push(self, entry: PipelineEntry, count: int) -> list[int]:
        """Push random commits now; return the numbers of their builds."""
        with self._action():
            pushed = [self._push_requested(entry) for _ in range(count)]
            return [build.number for build in pushed if build is not None]

    def _push_requested(self, entry: PipelineEntry) -> BuildRun | None:
        origin = self._request()
        return self._build_commit(entry, self.scenario.commit(entry, f"pushed {origin[1]}", self.now), *origin)

    def _request(self) -> tuple[str, int]:
        """Count a request that creates a build, and return the origin of the build."""
        self._requests += 1
        return "request", self._requests

    def create_build(self, entry: PipelineEntry, commit: Commit, *, ignore_branch_filters: bool = False) -> BuildRun:
        """Create a build. Raises `ActionRejected` if the pipeline is archived, has no steps or excludes the branch."""
        with self._action():
            self._check(entry)
            if not ignore_branch_filters and not rules.matches(entry.pipeline.branch_configuration, commit.branch):
                raise ActionRejected(f"Branch {commit.branch} is not built by this pipeline's branch configuration.")
            return self._create(entry, commit, *self._request(), is_requested=True)

    def _check(self, entry: PipelineEntry) -> None:
        if entry.pipeline.archived_at is not None:
            raise ActionRejected("The pipeline is archived.")
        if not entry.plan.slots:
            raise ActionRejected("The pipeline has no steps.")

    def cancel(self, id: str) -> BuildRun:
        """Cancel a build. Raises `ActionRejected` unless it is scheduled, running or failing."""
        with self._action():
            build = self._build(id)
            if build.state not in CANCELABLE_STATES:
                raise ActionRejected(f"Build can't be canceled because it's already {build.state.replace('_', ' ')}.")
            self._cancel(build, "Canceled by request")
            return build

    def rebuild(self, id: str, who: Actor) -> BuildRun:
        """Rebuild a build. Raises `ActionRejected` if the pipeline is archived or does not allow rebuilds."""
        with self._action():
            build = self._build(id)
            entry = self._entry(build)
            self._check(entry)
            if not entry.pipeline.allow_rebuilds:
                raise ActionRejected("The pipeline does not allow rebuilds.")
            commit = msgspec.structs.replace(build.commit, source="api", creator=who)
            return self._create_rebuild(build, commit, is_requested=True)

    def unblock(self, build_id: str, job_id: str, who: Actor, fields: Mapping[str, str] | None = None) -> JobRun:
        """Unblock a block step; the values of its fields become meta-data of the build.

        Raises `ActionRejected` unless the job is blocked.
        """
        with self._action():
            build = self._build(build_id)
            job = build.job(job_id)
            if job.state != "blocked":
                raise ActionRejected("The job can't be unblocked because it isn't blocked.")
            meta_data = {**build.commit.meta_data, **(fields or {})}
            build.commit = msgspec.structs.replace(build.commit, meta_data=meta_data)
            self._unblock(build, job, who)
            return job

    def retry(self, build_id: str, job_id: str, who: Actor = 0) -> JobRun:
        """Retry a failed job; return the new attempt.

        Raises `ActionRejected` unless it failed and was not retried.
        """
        with self._action():
            build = self._build(build_id)
            job = build.job(job_id)
            if not rules.can_be_retried(build, job):
                raise ActionRejected(f"The job can't be retried because it is {job.state}, or was retried already.")
            self._retry(build, job, who)
            return build.job(job.retried_in or job.id)

    def delete_builds(self, entry: PipelineEntry, numbers: Sequence[int]) -> None:
        """Delete builds, as retention does."""
        with self._action():
            self._discard(self.db.find_build_ids(entry.key, numbers))

    def delete_pipeline(self, entry: PipelineEntry) -> None:
        """Delete a pipeline and all its builds."""
        with self._action():
            self._discard(self.db.find_build_ids(entry.key), entry)

    def _discard(self, ids: set[str], pipeline: PipelineEntry | None = None) -> None:
        """Delete builds, and their pipeline if it is given, together with their scheduled events."""
        self._deleted, self._deleted_pipeline = ids, pipeline
        removed = [self._builds.pop(id) for id in sorted(ids) if id in self._builds]
        self._dirty.difference_update(ids)
        dropped = ids | {pipeline.key} if pipeline else ids
        self._events = [event for event in self._events if event.about[0] not in dropped]
        heapq.heapify(self._events)
        self._events_changed = True
        for build in removed:
            for job in build.jobs:
                if job.state in AGENT_STATES and job.agent is not None:
                    self._release(self._queue(build, job), job.agent)
            if build.triggered_from is not None and build.triggered_from.build.id not in ids:
                self._finish_trigger_job(build.triggered_from, passed=False)

    # --- event handlers ---

    def _build_commit(self, entry: PipelineEntry, commit: Commit, *origin: str | int) -> BuildRun | None:
        """Create a build of a pushed commit; None if the pipeline does not build commits of the branch."""
        is_built = entry.can_be_built and rules.matches(entry.pipeline.branch_configuration, commit.branch)
        return self._create(entry, commit, *origin) if is_built else None

    def _on_push(self, entry: PipelineEntry, n: str) -> None:
        following = int(n) + 1
        self._schedule(self.scenario.next_push(entry, following), "push", entry.key, str(following))
        if not self.scenario.push_happens(entry, int(n), self.now):
            return
        build = self._build_commit(entry, self.scenario.commit(entry, n, self.now), "push", n)
        if build is not None:
            self._schedule(self.scenario.follow_up_delay(entry, n), "follow_up", build.id)
            self._schedule(self.scenario.repeat_delay(entry, build), "repeat", build.id)

    def _on_follow_up(self, build: BuildRun) -> None:
        self._build_commit(self._entry(build), self.scenario.follow_up_commit(build), "follow_up", build.id)

    def _on_repeat(self, build: BuildRun) -> None:
        self._build_commit(self._entry(build), build.commit, "repeat", build.id)

    def _on_night(self, entry: PipelineEntry) -> None:
        day = self.now // DAY
        self._build_commit(entry, self.scenario.nightly_commit(entry, f"night {day}"), "night", day)
        self._schedule(DAY, "night", entry.key)

    def _on_repair(self, entry: PipelineEntry) -> None:
        self._build_commit(entry, self.scenario.repair_commit(entry, f"repair {self.now}"), "repair", self.now)

    def _on_begin(self, build: BuildRun) -> None:
        if build.state != "scheduled":  # canceled or skipped meanwhile
            return
        build.pending, plan = False, self.pipelines.plans[build.plan]
        if rules.has_no_runnable_steps(plan, build.commit.branch):
            build.ended = "not_run"
        self._advance_jobs(build, plan.first())
        self._settle(build)

    def _on_start(self, build: BuildRun, job: JobRun) -> None:
        job.state, job.started = "running", self.now
        outcome = self._outcomes[job.id] = self.scenario.outcome(self._entry(build), build, job)
        self._schedule(outcome.microseconds, "finish", build.id, job.id)
        if job.step == UPLOAD and outcome.exit_status == 0:
            self._schedule(int(outcome.microseconds * _UPLOADED_AT), "upload", build.id, job.id)
        is_first = self._started(build)
        self._notify("job.started", build, job)
        if is_first:
            self._settle(build)
        else:
            self._record(build)  # for the state of the build, an assigned job is like a running one

    def _on_upload(self, build: BuildRun, _: JobRun) -> None:
        self._add_jobs(build, self.pipelines.plans[build.plan].needs)
        self._settle(build)

    def _on_finish(self, build: BuildRun, job: JobRun) -> None:
        outcome = self._outcomes.pop(job.id, None) or self.scenario.outcome(self._entry(build), build, job)
        job.exit_status, job.signal_reason = outcome.exit_status, outcome.signal_reason
        self._finish_job(build, job, outcome.state)

    def _on_trigger(self, build: BuildRun, job: JobRun) -> None:
        self._started(build)
        trigger = self._step(build, job).trigger
        target = trigger and self.pipelines.find(self._entry(build).organization.slug, trigger.slug)
        cause = self._cause(build, job)
        if not trigger or not target or not cause or not target.can_be_built:
            self._finish_job(build, job, "failed")
            return
        job.state = "running"
        self._settle(build)
        self._build(cause.root).n_triggered += 1
        self._dirty.add(cause.root)
        commit = self.scenario.triggered_commit(build, trigger)
        child = self._create(target, commit, "trigger", job.id, cause=cause, is_requested=build.is_requested)
        job.triggered = child.link()
        if trigger.is_async and job.state == "running":  # a newer build may have canceled this one
            self._finish_job(build, job, "passed")

    def _cause(self, build: BuildRun, job: JobRun) -> TriggerCause | None:
        """Return the cause of the build that a trigger job creates now; None if a limit of triggers is reached."""
        above = build.triggered_from
        root, depth = (self._find_build(above.root), above.depth + 1) if above else (build, 1)
        if root is None or root.n_triggered >= rules.MAX_TRIGGERED or depth > rules.MAX_TRIGGER_DEPTH:
            return None
        return TriggerCause(build.link(), job.id, depth, root.id)

    def _on_unblock(self, build: BuildRun, job: JobRun, person: str) -> None:
        self._unblock(build, job, int(person))

    def _on_stop(self, build: BuildRun, job: JobRun) -> None:
        self._stop(build, job)
        self._settle(build)

    def _on_retry(self, build: BuildRun, job: JobRun) -> None:
        if rules.can_be_retried(build, job):
            people = self._entry(build).organization.people
            self._retry(build, job, self.scenario.random.choice(range(len(people)), job.id, "retried by"))

    def _retry(self, build: BuildRun, job: JobRun, who: Actor) -> None:
        job.retried_by = who
        if build.is_over:
            build.reopened, build.restarts, build.finished = True, True, None
        self._repeat(build, job, "manual")
        self._advance_dependents(build, job)
        self._settle(build)

    def _on_cancel(self, build: BuildRun) -> None:
        if build.state in CANCELABLE_STATES:
            self._cancel(build, "Canceled manually")

    def _on_rebuild(self, build: BuildRun) -> None:
        entry = self._entry(build)
        if entry.pipeline.allow_rebuilds and entry.can_be_built:
            self._create_rebuild(build, self.scenario.rebuild_commit(entry, build))

    def _on_resize(self, organization: str, name: str) -> None:
        queue = self._queues[organization, name]
        queue.resize(self.now)
        self._schedule(queue.next_resize(self.now), "resize", organization, name)
        self._dispatch((organization, name))

    def _on_return(self, organization: str, agent: str) -> None:
        self._release((organization, queue_of_agent(agent)), agent)
