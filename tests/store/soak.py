"""Two weeks of a living service, synced every hour by processes that are killed: `python -m tests.store.soak`.

While a sync is under way the clock is turned, builds begin, end, are canceled, rebuilt, retried and unblocked,
pipelines are renamed and deleted, and the service fails in all its ways. In the end the store must equal the service.
"""

from __future__ import annotations

import argparse
import datetime as dt
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path

import pyarrow  # noqa: F401  loaded before the children begin

import buildframe as bf
from buildframe.sandbox_server import Fault
from buildframe.store.store import Store
from tests.store import store_comparison, sync_process
from tests.store.user_actions import People

STEP = dt.timedelta(minutes=4)
FAULTS = (
    Fault("status", status=500, rate=0.02),
    Fault("limited", seconds=0.2, rate=0.004),
    Fault("reset", rate=0.01),
    Fault("cut", rate=0.02),
    Fault("garbage", rate=0.005),
    Fault("latency", seconds=0.1, rate=0.1),
    Fault("vanish", route="list_builds", rate=0.01),
    Fault("arrive", n=2, route="list_builds", rate=0.05),
    Fault("finish", seconds=90, rate=0.05),
)


@dataclass
class Found:
    """What a soak did and saw."""

    hours: int = 0
    did: Counter[str] = field(default_factory=Counter)
    why: list[str] = field(default_factory=list)
    versions: dict[int, str] = field(default_factory=dict)
    builds: int = 0
    jobs: int = 0
    gone: int = 0
    forgotten: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        did = "\n".join(f"  {name:<28} {count:>5}" for name, count in sorted(self.did.items()))
        return (
            f"{self.hours} hours of the service in {self.seconds:.0f} s; what was done:\n{did}\n"
            f"The store has {self.builds:,} builds and {self.jobs:,} jobs and equals the service; {self.forgotten:,} "
            f"builds are only in the store, {self.gone} of them known to be gone.\n"
            f"All {len(self.versions)} versions can be read, are whole, and read as when they were made."
        )


class Soak:
    """One soak; `kills` is the share of syncs at which a kill is tried."""

    def __init__(self, folder: Path, ci: bf.workspace.Workspace, seed: int, kills: float) -> None:
        self._folder, self._ci, self._kills = folder, ci, kills
        self._chance = random.Random(seed)
        self._people = People(ci, self._chance)
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.store.sync_process"])
        self._took = 1.0
        self._ever: set[str] = set()
        self.found = Found()

    def run(self, hours: int) -> Found:
        """Sync each hour, then once more while all stands still, and compare."""
        began = time.monotonic()
        for fault in FAULTS:
            self._ci.sandbox.fault(fault)
        for hour in range(hours):
            self._hour("3d" if hour < hours // 3 else "12d")
            self._look()
        self._ci.sandbox.clear_faults()
        self._ci.sandbox.clock.advance(dt.timedelta(minutes=1))
        self._ended(self._sync("90d"), None)
        self._look()
        self._compare()
        self.found.hours, self.found.did["people: all"] = hours, sum(self._people.did.values())
        self.found.did |= {f"people: {name}": count for name, count in self._people.did.items()}
        self.found.seconds = time.monotonic() - began
        return self.found

    # --- an hour

    def _hour(self, since: str) -> None:
        chance, clock = self._chance, self._ci.sandbox.clock
        goal = clock.now() + dt.timedelta(hours=1)
        syncs = [self._sync(since) for _ in range(2 if chance.random() < 0.05 else 1)]
        if chance.random() < 0.05 and (slug := self._people.pipeline()) is not None:
            syncs.append(self._sync(since, slug))
        began = time.monotonic()
        kill_at = began + chance.uniform(0, self._took) if chance.random() < self._kills else None
        while clock.now() < goal:
            clock.advance(min(STEP, max(goal - clock.now(), dt.timedelta(0))))
            if chance.random() < 0.25:
                self._people.act()
            time.sleep(0.005)
            if kill_at is not None and time.monotonic() >= kill_at:
                self._kill(syncs[0])
                kill_at = None
        for sync in syncs:
            self._ended(sync, kill_at if sync is syncs[0] else None)
        if kill_at is None and not syncs[0].exitcode:
            self._took = 0.7 * self._took + 0.3 * (time.monotonic() - began)
        elif syncs[0].exitcode:
            self._took *= 1.3  # on a busy machine each kill would come early, and no sync would end

    def _sync(self, since: str, pipeline: str | None = None) -> BaseProcess:
        sandbox = self._ci.sandbox
        scopes = ["read_builds", "read_pipelines", "read_suites", "read_organizations"]
        arguments = (str(self._folder), sandbox.url, sandbox.token(scopes), since, pipeline)
        process = self._context.Process(target=sync_process.sync, args=arguments, daemon=True)
        process.start()
        self.found.did["syncs: all"] += 1
        return process

    def _kill(self, process: BaseProcess) -> None:
        assert process.pid is not None
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)

    def _ended(self, process: BaseProcess, kill_at: float | None) -> None:
        if kill_at is not None:
            process.join(max(0.0, kill_at - time.monotonic()))
            self._kill(process)
        process.join(120)
        outcomes = {0: "complete", -9: "killed", 3: "incomplete", 4: "failed by the service"}
        ended = outcomes.get(process.exitcode, f"EXIT {process.exitcode}")  # type: ignore[arg-type]
        assert "EXIT" not in ended, ended
        self.found.did[f"syncs: {ended}"] += 1

    # --- looking

    def _look(self) -> None:
        """Each version that is new can be read and is whole, and no build was ever lost."""
        if not (self._folder / "builds" / "_delta_log").exists():
            return
        new = store_comparison.versions(self._folder, after=max(self.found.versions, default=-1))
        for version in sorted(new):
            ids, digest = store_comparison.whole(Store(self._folder, as_of=version))
            assert ids >= self._ever, f"version {version} lost {len(self._ever - ids)} builds"
            self._ever = ids
            self.found.versions[version] = digest

    def _compare(self) -> None:
        store, found = Store(self._folder), self.found
        for version, digest in found.versions.items():
            assert store_comparison.whole(Store(self._folder, as_of=version))[1] == digest, (
                f"version {version} is another"
            )
        served = self._ci.history(progress=False)
        kept = store.builds(columns=None), store.jobs()
        store_comparison.same_as_served(served, kept, store)
        beyond = store_comparison.beyond(store, served.builds)
        found.builds, found.jobs = len(kept[0]), len(kept[1])
        found.forgotten, found.gone = len(beyond), int(beyond["gone_at"].notna().sum())
        store_comparison.same_lists(self._ci, store, sync_process.SUITES)


def main() -> None:
    """Run a soak with the options of the command line, and print its counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=336)
    parser.add_argument("--kills", type=float, default=0.65)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--builds", type=int, default=800)
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="soak-"))
    with bf.sandbox(builds=options.builds, days=20, seed=options.seed, cancels_at_once=False, quota=None) as ci:
        print(Soak(folder / "store", ci, options.seed, options.kills).run(options.hours))
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
