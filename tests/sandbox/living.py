"""What the tests of the simulation share: pipelines planted in a sandbox, and a look at whether all of it is whole."""

from __future__ import annotations

import datetime as dt
import uuid
from collections import Counter

import msgspec

from buildframe.service.life import rules
from buildframe.service.life.fleet import agent_names
from buildframe.service.world.lines import Line
from buildframe.service.world.records import Pipeline
from buildframe.service.world.runs import BuildRun, Commit, User
from buildframe.service.world.steps import Step

SOMEONE = User("0f1b6a52-5b0e-4b62-9f53-3a6f5ad6a3a1", "Zoe Able", "zoe@example.com", 1_700_000_000_000_000)
FAILS = {"seconds": 600.0, "timeout_in_minutes": 1}  # the one end that is certain
HOUR = dt.timedelta(hours=1)


def step(key, *needs, **more):
    return Step(key=key, label=key, needs=needs, **{"seconds": 10.0} | more)


def wait(key, **more):
    return Step(key=key, kind="waiter", **more)


def block(key, *needs, **more):
    return Step(key=key, kind="manual", label=f"{key}?", needs=needs, **more)


class Planted:
    """A pipeline of these steps in acme, and its builds as GET tells of them."""

    def __init__(self, ask, *steps, slug="planted", **record):
        self.ask, self.sandbox = ask, ask.sandbox
        self.data, self.engine = self.sandbox._data, self.sandbox._engine
        pipeline = Pipeline(slug=slug, name=slug, steps=steps, **record)
        self.key = str(uuid.uuid5(uuid.NAMESPACE_URL, slug))
        self.put(Line(self.key, self.data.bodies.world.organizations[0], pipeline))

    @property
    def line(self):
        return self.data.lines[self.key]

    def put(self, line):
        with self.engine.turn:
            self.data.put_pipeline(line)

    def change(self, **record):
        self.put(self.line.changed(msgspec.structs.replace(self.line.pipeline, **record)))

    @property
    def path(self):
        return f"/organizations/acme/pipelines/{self.line.pipeline.slug}/builds"

    def create(self, branch="main", ignore=False, **more):
        commit = Commit("c" * 40, branch, "Try", "api", SOMEONE, ("Zoe", "zoe@example.com"), **more)
        return self.engine.create_build(self.line, commit, ignore_branch_filters=ignore)

    def get(self, run):
        return self.ask(f"{self.path}/{run.number}", include_retried_jobs="true").json()

    def after(self, run, **time):
        self.sandbox.clock.advance(dt.timedelta(**time or {"hours": 2}))
        return self.get(run)

    def ended(self, **more):
        return self.after(self.create(**more))

    def numbers(self, **filters):
        return [build["number"] for build in self.ask.walk(self.path, **filters)]


def jobs_of(build):
    """State of each job by the key of its step; of wait steps nothing is told."""
    return {job["step_key"]: job["state"] for job in build["jobs"] if job["type"] != "waiter"}


def job_of(build, key):
    return next(job for job in build["jobs"] if job.get("step_key") == key)


def runs_of(sandbox):
    """The builds as the simulation keeps them: their moments are exact."""
    return [msgspec.json.decode(run, type=BuildRun) for (run,) in sandbox._data.rows("SELECT run FROM builds")]


def assert_whole(sandbox):
    """Nothing hangs: states follow, every job under way has an event or a place in line, agents are not lost."""
    engine, data = sandbox._engine, sandbox._data
    with engine.turn, data.lock:
        runs = {run.id: run for run in runs_of(sandbox)}
        assert len({(run.line, run.number) for run in runs.values()}) == len(runs)
        planned = {(event.kind, event.about[-1]) for event in data.load_events()}
        in_line = engine._fleet.waiting()
        for run in runs.values():
            assert run.state == rules.build_state(run), run
            for job in run.jobs:
                assert has_a_future(data, runs, planned, in_line, run, job), (run.state, job)
        assert data.rows("SELECT count(*) FROM jobs") == [(sum(len(run.jobs) for run in runs.values()),)]
        stored = data.rows("SELECT id, state, blocked, over FROM builds")
        assert all(runs[id].state == state for id, state, _, _ in stored)
        assert all((runs[id].blocked, rules.is_over(runs[id])) == (blocked, over) for id, _, blocked, over in stored)
        assert_agents_are_accounted_for(engine, runs.values())


def has_a_future(data, runs, planned, in_line, run, job):
    step = data.lines.plan(run.plan).slots[job.step].step
    awaited = {"assigned": "start", "running": "finish", "canceling": "stop"}
    if job.state == "scheduled":
        return job.id in in_line if step.kind == "script" else ("trigger", job.id) in planned
    if job.state == "running" and step.kind == "trigger":
        return not rules.is_over(runs[job.triggered.id])
    if run.state == "scheduled" and run.pending:
        return ("begin", run.id) in planned
    if job.state == "waiting":
        latest = run.latest()
        plan = data.lines.plan(run.plan)
        return rules.readiness(plan.needs.get(job.step, ()), latest, step.continue_on_failure) == "waiting"
    return job.state not in awaited or (awaited[job.state], job.id) in planned


def assert_agents_are_accounted_for(engine, runs):
    taken = Counter((engine._queue(run, job)[0], job.agent)
                    for run in runs for job in run.jobs if job.state in rules.WITH_AGENT and job.agent)  # fmt: skip
    away = Counter((event.about[0], event.about[1]) for event in engine._events if event.kind == "return")
    idle = Counter((slug, agent) for (slug, _), queue in engine._fleet._queues.items() for agent in queue.idle)
    there = {(each.slug, name) for each in engine.world.organizations for queue, n in each.agents.items()
             for name in agent_names(queue, n)}  # fmt: skip
    assert taken + away + idle == Counter(there)
