"""What the tests of the simulation share: pipelines planted in a sandbox, and a look at whether all of it is whole."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter

import msgspec

from buildframe.sandbox_server.simulation import rules
from buildframe.sandbox_server.world.build_state import BuildRun, Commit, TokenUser
from buildframe.sandbox_server.world.model import agent_names
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord
from buildframe.sandbox_server.world.pipelines import PipelineEntry
from buildframe.sandbox_server.world.steps import PipelineStep
from buildframe.spec.builds import AGENT_STATES

SOMEONE = TokenUser("0f1b6a52-5b0e-4b62-9f53-3a6f5ad6a3a1", "Zoe Able", "zoe@example.com", 1_700_000_000_000_000)
FAILS = {"seconds": 600.0, "timeout_in_minutes": 1}  # the one end that is certain
HOUR = dt.timedelta(hours=1)


def step(key, *needs, **more):
    return PipelineStep(key=key, label=key, needs=needs, **{"seconds": 10.0} | more)


def wait(key, **more):
    return PipelineStep(key=key, kind="waiter", **more)


def block(key, *needs, **more):
    return PipelineStep(key=key, kind="manual", label=f"{key}?", needs=needs, **more)


class Planted:
    """A pipeline of these steps in acme, and its builds as GET returns them."""

    def __init__(self, api, *steps, slug="planted", **record):
        self.api, self.sandbox = api, api.sandbox
        self.db, self.simulator = self.sandbox._db, self.sandbox._simulator
        pipeline = PipelineRecord(slug=slug, name=slug, steps=steps, **record)
        self.key = str(uuid.uuid5(uuid.NAMESPACE_URL, slug))
        self.put(PipelineEntry(self.key, self.db.serializer.world.organizations[0], pipeline))

    @property
    def pipeline_key(self):
        return self.db.pipelines[self.key]

    def put(self, entry):
        with self.simulator.lock:
            self.db.put_pipeline(entry)

    def change(self, **record):
        self.put(self.pipeline_key.changed(msgspec.structs.replace(self.pipeline_key.pipeline, **record)))

    @property
    def path(self):
        return f"/organizations/acme/pipelines/{self.pipeline_key.pipeline.slug}/builds"

    def create(self, branch="main", ignore=False, **more):
        commit = Commit("c" * 40, branch, "Try", "api", SOMEONE, ("Zoe", "zoe@example.com"), **more)
        return self.simulator.create_build(self.pipeline_key, commit, ignore_branch_filters=ignore)

    def get(self, run):
        return self.api(f"{self.path}/{run.number}", include_retried_jobs="true").json()

    def after(self, run, **time):
        self.sandbox.clock.advance(dt.timedelta(**time or {"hours": 2}))
        return self.get(run)

    def ended(self, **more):
        return self.after(self.create(**more))

    def numbers(self, **filters):
        return [build["number"] for build in self.api.all_pages(self.path, **filters)]


def jobs_of(build):
    """State of each job by the key of its step; wait steps have none."""
    return {job["step_key"]: job["state"] for job in build["jobs"] if job["type"] != "waiter"}


def job_of(build, key):
    return next(job for job in build["jobs"] if job.get("step_key") == key)


def runs_of(sandbox):
    """The builds as the simulation keeps them: their moments are exact."""
    return [msgspec.json.decode(run, type=BuildRun) for (run,) in sandbox._db.query("SELECT run FROM builds")]


def assert_whole(sandbox):
    """Nothing hangs: states follow, every job under way has an event or a place in line, agents are not lost."""
    simulator, db = sandbox._simulator, sandbox._db
    with simulator.lock, db.lock:
        runs = {run.id: run for run in runs_of(sandbox)}
        assert len({(run.pipeline_key, run.number) for run in runs.values()}) == len(runs)
        planned = {(event.kind, event.about[-1]) for event in db.load_events()}
        in_line = {job for queue in simulator._queues.values() for _, _, job in queue.jobs}
        for run in runs.values():
            assert (run.state, run.blocked) == rules.build_state(run), run
            for job in run.jobs:
                assert has_a_future(db, runs, planned, in_line, run, job), (run.state, job)
        assert db.query("SELECT count(*) FROM jobs") == [(sum(len(run.jobs) for run in runs.values()),)]
        stored = db.query("SELECT id, state, blocked, over FROM builds")
        assert all(runs[id].state == state for id, state, _, _ in stored)
        assert all((runs[id].blocked, runs[id].is_over) == (blocked, over) for id, _, blocked, over in stored)
        assert_agents_are_accounted_for(simulator, runs.values())


def has_a_future(db, runs, planned, in_line, run, job):
    step = db.pipelines.plans[run.plan].slots[job.step].step
    awaited = {"assigned": "start", "running": "finish", "canceling": "stop"}
    if job.state == "scheduled":
        return job.id in in_line if step.kind == "script" else ("trigger", job.id) in planned
    if job.state == "running" and step.kind == "trigger":
        return not runs[job.triggered.id].is_over
    if run.state == "scheduled" and run.pending:
        return ("begin", run.id) in planned
    if job.state == "waiting":
        latest = run.latest()
        plan = db.pipelines.plans[run.plan]
        return rules.readiness(plan.needs.get(job.step, ()), latest, step.continue_on_failure) == "waiting"
    return job.state not in awaited or (awaited[job.state], job.id) in planned


def assert_agents_are_accounted_for(simulator, runs):
    taken = Counter((simulator._queue(run, job)[0], job.agent)
                    for run in runs for job in run.jobs if job.state in AGENT_STATES and job.agent)  # fmt: skip
    away = Counter((event.about[0], event.about[1]) for event in simulator._events if event.kind == "return")
    idle = Counter((slug, agent) for (slug, _), queue in simulator._queues.items() for agent in queue.idle)
    there = {(each.slug, name) for each in simulator.world.organizations for queue, n in each.agents.items()
             for name in agent_names(queue, n)}  # fmt: skip
    assert taken + away + idle == Counter(there)
