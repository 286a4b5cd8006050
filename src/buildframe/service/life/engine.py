"""The simulation: pending events in order of time, and what is asked for, each of which changes builds."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

from buildframe.service.life import rules
from buildframe.service.life.changes import Life, Store
from buildframe.service.life.fleet import queue_of_agent
from buildframe.service.life.rules import Refusal
from buildframe.service.world.lines import Line
from buildframe.service.world.model import DAY, World
from buildframe.service.world.runs import BuildRun, Cause, Commit, JobRun, Who
from buildframe.service.world.steps import UPLOAD

_BATCH = 400
_UPLOADED_AT = 0.85  # of the upload job's run time


class Engine(Life):
    """Runs a world forward, and does what is asked of it.

    Whoever acts holds `turn`, taken before the data's lock; public methods take it. Each of them is one transaction,
    and leaves everything as it was where it fails. `catch_up` runs it up to what a running clock shows; whoever is
    about to read calls it, holding no lock.
    """

    def __init__(self, world: World, store: Store, cancels_at_once: bool = True) -> None:
        self.turn = threading.RLock()
        self.catch_up: Callable[[], None] = lambda: None
        self._handlers: dict[str, Callable[..., None]] = {
            "push": self._on_push,
            "begin": self._on_begin,
            "hurry": self._on_hurry,
            "night": self._on_night,
            "repair": self._on_repair,
            "upload": self._on_upload,
            "start": self._on_start,
            "finish": self._on_finish,
            "stop": self._on_stop,
            "retry": self._on_retry,
            "trigger": self._on_trigger,
            "unblock": self._on_unblock,
            "cancel": self._on_cancel,
            "rebuild": self._on_rebuild,
            "return": self._on_return,
        }
        super().__init__(world, store, cancels_at_once)

    # --- time ---

    def run_until(self, moment: int) -> None:
        """Let everything happen that is due up to a moment, and write it down; a moment in the past changes nothing."""
        with self._whole():
            if moment > self.now:
                self._run_until(moment)

    @contextmanager
    def _acting(self) -> Iterator[None]:
        with self.turn:
            self.catch_up()
            with self._whole():
                yield

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """All or nothing: what fails amid an action, also by Ctrl-C, leaves the state that was last written."""
        with self.turn:
            try:
                yield
            except Refusal:
                raise
            except BaseException:
                self._load()
                raise

    def _run_until(self, moment: int) -> None:
        while self._events and self._events[0].at <= moment:
            event = heapq.heappop(self._events)
            self._events_changed = True
            self.now = event.at
            self._handlers[event.kind](*event.about)
            if len(self._dirty) >= _BATCH and (not self._events or self._events[0].at > self.now):
                self._flush()
        self.now = moment
        self._flush()

    # --- what is asked for ---

    def push(self, line: Line, count: int) -> list[int]:
        """Let commits arrive now; the numbers of the builds that they get."""
        with self._acting():
            first = self._built
            commits = [self.story.commit(line, f"pushed {first + place}", self.now) for place in range(count)]
            wanted = [commit for commit in commits if self._is_built(line, commit.branch)]
            numbers = [self._create(line, commit).number for commit in wanted]
            self._flush()
            return numbers

    def create_build(self, line: Line, commit: Commit, *, ignore_branch_filters: bool = False) -> BuildRun:
        """A new build. Raises `Refusal` for archived pipelines, those without steps and branches they do not build."""
        with self._acting():
            self._check(line)
            if not ignore_branch_filters and not rules.matches(line.pipeline.branch_configuration, commit.branch):
                raise Refusal(f"Branch {commit.branch} is not built by this pipeline's branch configuration.")
            build = self._create(line, commit, asked_for=True)
            self._flush()
            return build

    def _check(self, line: Line) -> None:
        if line.pipeline.archived_at is not None:
            raise Refusal("The pipeline is archived.")
        if not line.plan.slots:
            raise Refusal("The pipeline has no steps.")

    def cancel(self, id: str) -> BuildRun:
        """Cancel a build. Raises `Refusal` unless it is scheduled, running or failing."""
        with self._acting():
            build = self._build(id)
            if build.state not in rules.CANCELABLE:
                raise Refusal(f"Build can't be canceled because it's already {build.state.replace('_', ' ')}.")
            self._cancel(build, "Canceled by request")
            self._flush()
            return build

    def rebuild(self, id: str, who: Who) -> BuildRun:
        """Build the same again. Raises `Refusal` where the pipeline is archived or does not allow it."""
        with self._acting():
            build = self._build(id)
            line = self.lines[build.line]
            self._check(line)
            if not line.pipeline.allow_rebuilds:
                raise Refusal("The pipeline does not allow rebuilds.")
            commit = msgspec.structs.replace(build.commit, source="api", creator=who)
            again = self._create(line, commit, rebuilt_from=(build.id, build.number), asked_for=True)
            self._flush()
            return again

    def unblock(self, build_id: str, job_id: str, who: Who, fields: Mapping[str, str] | None = None) -> JobRun:
        """Unblock a block step; the values of its fields become meta-data of the build.

        Raises `Refusal` unless it is blocked.
        """
        with self._acting():
            build = self._build(build_id)
            job = build.job(job_id)
            if job.state != "blocked":
                raise Refusal("The job can't be unblocked because it isn't blocked.")
            meta_data = {**build.commit.meta_data, **(fields or {})}
            build.commit = msgspec.structs.replace(build.commit, meta_data=meta_data)
            self._unblock(build, job, who)
            self._flush()
            return job

    def retry(self, build_id: str, job_id: str) -> None:
        """Repeat a job by hand, however long ago it failed. Raises `Refusal` unless it did."""
        with self._acting():
            build = self._build(build_id)
            job = build.job(job_id)
            if not rules.can_be_retried(build, job):
                raise Refusal(f"The job can't be retried because it is {job.state}, or was retried already.")
            self._retry(build, job)
            self._flush()

    def forget(self, line: Line, numbers: Sequence[int]) -> None:
        """Let builds vanish, as retention does."""
        with self._acting():
            ids = self._store.ids_of(line.key, numbers)
            self._let_go(ids)
            self._flush(forgotten=ids)

    def drop(self, line: Line) -> None:
        """Delete a pipeline and all its builds."""
        with self._acting():
            ids = self._store.ids_of(line.key)
            self._let_go(ids | {line.key})
            self._flush(forgotten=ids, dropped=line)

    def _let_go(self, ids: Collection[str]) -> None:
        """Forget builds that are under way, and what was to happen to any of these."""
        gone = [self._builds.pop(id) for id in sorted(ids) if id in self._builds]
        self._dirty.difference_update(ids)
        self._events = [event for event in self._events if event.about[0] not in ids]
        heapq.heapify(self._events)
        self._events_changed = True
        for build in gone:
            for job in build.jobs:
                if job.state in rules.WITH_AGENT and job.agent is not None:
                    self._fleet.give_back(self._queue(build, job), job.agent)
                    self._dispatch(self._queue(build, job))
            if build.triggered_from is not None and build.triggered_from.build.id not in ids:
                self._tell_trigger_job(build.triggered_from, passed=False)

    # --- what events do ---

    def _is_built(self, line: Line, branch: str) -> bool:
        """Whether commits that are pushed to a branch are built."""
        wanted = rules.matches(line.pipeline.branch_configuration, branch)
        return wanted and line.pipeline.archived_at is None and bool(line.plan.slots)

    def _on_push(self, line_key: str, n: str) -> None:
        line = self.lines[line_key]
        self._schedule(self.story.next_push(line, int(n) + 1), "push", line_key, str(int(n) + 1))
        if self.story.push_happens(line, int(n), self.now):
            self._build_push(line, n)

    def _build_push(self, line: Line, n: str) -> None:
        commit = self.story.commit(line, n, self.now)
        if not self._is_built(line, commit.branch):
            return
        build = self._create(line, commit)
        soon = self.story.hurried(line, n)
        if soon is not None:
            self._schedule(soon, "hurry", build.id)

    def _on_hurry(self, build_id: str) -> None:
        build = self._build(build_id)
        line = self.lines[build.line]
        if self._is_built(line, build.commit.branch):
            self._create(line, self.story.hurried_commit(build))

    def _on_night(self, line_key: str) -> None:
        line = self.lines[line_key]
        if self._is_built(line, line.pipeline.default_branch):
            self._create(line, self.story.nightly(line, f"night {self.now // DAY}"))
        self._schedule(DAY, "night", line_key)

    def _on_repair(self, line_key: str) -> None:
        line = self.lines[line_key]
        if self._is_built(line, line.pipeline.default_branch):
            self._create(line, self.story.repair(line, f"repair {self.now}"))

    def _on_begin(self, build_id: str) -> None:
        build = self._build(build_id)
        if build.state != "scheduled":  # canceled or skipped meanwhile
            return
        build.pending, plan = False, self.lines.plan(build.plan)
        if rules.runs_nothing(plan, build.commit.branch):
            build.ended = "not_run"
        self._advance(build, plan.first())
        self._settle(build)

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
        self._started(build)
        self._notify("job.started", build, job)
        self._settle(build)

    def _on_upload(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        if build.job(job_id).state == "running":
            self._add_jobs(build, self.lines.plan(build.plan).needs)
            self._settle(build)

    def _on_finish(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        job = build.job(job_id)
        if job.state == "running":
            outcome = self.story.outcome(self.lines[build.line], build, job)
            job.exit_status, job.signal_reason = outcome.exit_status, outcome.signal_reason
            self._finish_job(build, job, outcome.state)

    def _on_trigger(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        job = build.job(job_id)
        if job.state != "scheduled":
            return
        self._started(build)
        trigger = self._step(build, job).trigger
        target = trigger and self.lines.find(self.lines[build.line].organization.slug, trigger.slug)
        cause = self._cause(build, job)
        if not trigger or not target or not cause or not self._can_be_triggered(target):
            self._finish_job(build, job, "failed")
            return
        job.state = "running"
        self._settle(build)
        self._build(cause.root).brought_forth += 1
        self._dirty.add(cause.root)
        child = self._create(target, self.story.triggered(build, trigger), cause=cause, asked_for=build.asked_for)
        job.triggered = child.link()
        if trigger.is_async and job.state == "running":  # a newer build may cancel the one that triggers it
            self._finish_job(build, job, "passed")

    def _cause(self, build: BuildRun, job: JobRun) -> Cause | None:
        """What a build comes from that a trigger job makes now; nothing where too many came of its root already."""
        above = build.triggered_from
        root, depth = (self._known(above.root), above.depth + 1) if above else (build, 1)
        if root is None or root.brought_forth >= rules.MOST_TRIGGERED or depth > rules.DEEPEST_TRIGGER:
            return None
        return Cause(build.link(), job.id, depth, root.id)

    def _can_be_triggered(self, target: Line) -> bool:
        return target.pipeline.archived_at is None and bool(target.plan.slots)

    def _on_unblock(self, build_id: str, job_id: str, person: str) -> None:
        build = self._build(build_id)
        job = build.job(job_id)
        if job.state == "blocked":
            self._unblock(build, job, int(person))

    def _on_stop(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        self._stop(build, build.job(job_id))
        self._settle(build)

    def _on_retry(self, build_id: str, job_id: str) -> None:
        build = self._build(build_id)
        job = build.job(job_id)
        if rules.can_be_retried(build, job):
            self._retry(build, job)

    def _retry(self, build: BuildRun, job: JobRun) -> None:
        if rules.is_over(build):
            build.reopened, build.restarts, build.finished = True, True, None
        self._repeat(build, job, "manual")
        self._advance(build, self.lines.plan(build.plan).dependents[job.step])
        self._settle(build)

    def _on_cancel(self, build_id: str) -> None:
        build = self._build(build_id)
        if build.state in rules.CANCELABLE:
            self._cancel(build, "Canceled by hand")

    def _on_rebuild(self, build_id: str) -> None:
        build = self._build(build_id)
        line = self.lines[build.line]
        if line.pipeline.allow_rebuilds and line.pipeline.archived_at is None and line.plan.slots:
            self._create(line, self.story.rebuilt(line, build), rebuilt_from=(build.id, build.number))

    def _on_return(self, organization: str, agent: str) -> None:
        queue = organization, queue_of_agent(agent)
        self._fleet.give_back(queue, agent)
        self._dispatch(queue)
