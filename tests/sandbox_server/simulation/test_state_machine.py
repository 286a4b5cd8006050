"""Whatever is done to a sandbox in whatever order, it stays consistent, and its file restores the same state."""

from __future__ import annotations

import contextlib
import datetime as dt
import tempfile
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from buildframe.sandbox_server import Sandbox
from buildframe.sandbox_server.simulation.rules import ActionRejected
from buildframe.sandbox_server.world.steps import Trigger
from tests.sandbox_server.planted_pipelines import FAILS, SOMEONE, Planted, assert_whole, block, runs_of, step, wait

numbers = st.integers(0, 10**6)
kinds = ["create", "cancel", "rebuild", "unblock", "forget", "rename", "archive", "drop", "advance", "push", "reopen"]
doings = st.lists(st.tuples(st.sampled_from([*kinds, "advance", "create"]), numbers), min_size=5, max_size=40)


class Hands:
    """Does one thing after another to a sandbox in a file; `n` chooses to what."""

    def __init__(self, path):
        self.path, self.slugs = path, 0
        self.open()
        call = step("call", kind="trigger", trigger=Trigger(slug="calls"))
        for slug, steps in {
            "calls": (call, step("a"), block("go"), step("b", "call", parallelism=2)),
            "fails": (step("a", soft_fail=True, **FAILS), step("b", retries=1, **FAILS), wait("w"), block("go")),
            "queues": (step("a", queue="nowhere"), step("b", branches="main", seconds=4000.0)),
        }.items():
            self.plant(slug, *steps)

    def open(self):
        self.sandbox = Sandbox(self.path, builds=10, days=1, seed=3)
        self.simulator, self.db = self.sandbox._simulator, self.sandbox._db

    def plant(self, slug, *steps):
        Planted(type("Asking", (), {"sandbox": self.sandbox}), *steps, slug=slug,
                skip_queued_branch_builds=True, cancel_running_branch_builds=slug == "fails")  # fmt: skip

    def do(self, what, n):
        entries = list(self.db.pipelines.values())
        runs = sorted(runs_of(self.sandbox), key=lambda run: -run.seq)
        entry, run = entries[-1 - n % len(entries)], runs[n % min(len(runs), 30)]
        with contextlib.suppress(ActionRejected):
            getattr(self, what)(n, entry, run)

    def create(self, n, entry, run):
        planted = Planted.__new__(Planted)
        planted.simulator, planted.db, planted.key = self.simulator, self.db, entry.key
        planted.create(branch=("main", "dev")[n % 2])

    def cancel(self, n, entry, run):
        self.simulator.cancel(run.id)

    def rebuild(self, n, entry, run):
        self.simulator.rebuild(run.id, SOMEONE)

    def unblock(self, n, entry, run):
        for held in runs_of(self.sandbox):
            for job in held.jobs:
                if job.state == "blocked":
                    self.simulator.unblock(held.id, job.id, n % 3)
                    return

    def forget(self, n, entry, run):
        self.simulator.delete_builds(self.db.pipelines[run.pipeline_key], [run.number, run.number + n % 3])

    def rename(self, n, entry, run):
        self.change(entry, slug=f"renamed-{n}-{self.slugs}", name=f"Renamed {n} {self.slugs}")
        self.slugs += 1

    def archive(self, n, entry, run):
        self.change(entry, archived_at=None if entry.pipeline.archived_at else 1)

    def change(self, entry, **record):
        with self.simulator.lock:
            self.db.put_pipeline(entry.changed(msgspec.structs.replace(entry.pipeline, **record)))

    def drop(self, n, entry, run):
        if n % 4 == 0:
            self.simulator.delete_pipeline(entry)

    def push(self, n, entry, run):
        self.simulator.push(entry, 1 + n % 3)

    def advance(self, n, entry, run):
        self.sandbox.clock.advance(dt.timedelta(seconds=n % 5000))

    def reopen(self, n, entry, run):
        self.sandbox.stop()
        self.open()


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(doings)
def test_a_sandbox_stays_whole_whatever_is_done(todo):
    with tempfile.TemporaryDirectory() as folder:
        hands = Hands(Path(folder) / "world.db")
        for what, n in todo:
            hands.do(what, n)
            assert_whole(hands.sandbox)
        hands.reopen(0, None, None)
        assert_whole(hands.sandbox)
        hands.advance(4999, None, None)
        assert_whole(hands.sandbox)
        hands.sandbox.stop()
