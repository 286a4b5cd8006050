"""Four processes that sync, each some pipelines with its own token, and a receiver, which all write to one store.

`python -m tests.receiver.concurrent_syncs` repeats it with other random seeds.
"""

from __future__ import annotations

import argparse
import datetime as dt
import multiprocessing
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

import buildframe as bf
from buildframe.workspace import Workspace
from tests.receiver.running_receiver import SECRET, Served, equal, line
from tests.store.user_actions import People

ROOT = Path(__file__).parent.parent.parent
RECEIVING = [sys.executable, "-m", "buildframe.cli", "receive"]
STEP = dt.timedelta(minutes=4)
SINCE = "4d"


def keep_syncing(folder: str, url: str, token: str, pipelines: Sequence[str], commands: Connection) -> None:
    """Sync at each command until a false one, and reply after each sync."""
    store = bf.Store(folder)
    while commands.recv():
        with bf.connect("acme", base_url=url, token=token) as ci:
            dones = [store.sync(ci.pipeline(slug), since=SINCE, progress=False) for slug in pipelines]
        commands.send(all(done.complete for done in dones))


@contextmanager
def four(ci: Workspace, folder: Path) -> Iterator[list[Connection]]:
    """Four processes that each sync a quarter of the pipelines at each command."""
    slugs = list(ci.pipelines(columns=["slug"], progress=False)["slug"])
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["buildframe.store.store", "deltalake"])
    lines, processes = [], []
    for n in range(4):
        ours, theirs = context.Pipe()
        arguments = (str(folder), ci.sandbox.url, ci.sandbox.token(), slugs[n::4], theirs)
        processes.append(context.Process(target=keep_syncing, args=arguments, daemon=True))
        processes[-1].start()
        lines.append(ours)
    try:
        yield lines
        for line in lines:
            line.send(False)
        for process in processes:
            process.join(60)
            assert process.exitcode == 0
    finally:
        for process in processes:
            process.kill()


@contextmanager
def receiving(folder: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Served]]:
    """The command, as a user starts it."""
    command = [*RECEIVING, str(folder), *options]
    environment = {**os.environ, "BUILDFRAME_WEBHOOK_TOKEN": SECRET}
    process = subprocess.Popen(command, cwd=ROOT, text=True, stdout=subprocess.PIPE, env=environment)
    assert process.stdout is not None
    try:
        yield process, Served(process.stdout.readline().split()[-1])
    finally:
        process.kill()
        process.communicate()


def run(folder: Path, seed: int, rounds: int, builds: int = 80) -> Counter[str]:
    """Let the service live while they write; after a last sync the store must equal it. What was done."""
    chance, store = random.Random(seed), bf.Store(folder)
    with bf.sandbox(builds=builds, days=3, seed=seed, cancels_at_once=False) as ci:
        people = People(ci, chance)
        store.sync(ci.pipeline("web"), since=SINCE, progress=False)  # the receiver wants one that was synced
        with four(ci, folder) as lines:
            with receiving(folder, "--every", "1s") as (process, served):
                with line(ci.sandbox, served.url, chance) as way:
                    for _ in range(rounds):
                        _round(lines, lambda: (ci.sandbox.clock.advance(STEP), people.use()))
                status = served.status()
                assert (status["lost"], status["failures"]) == (0, 0)
                process.terminate()
                assert process.wait(60) == 0
            versions = store.version
        assert set(store.covers) == {f"acme/{id}" for id in ci.pipelines(progress=False)["id"]}
        done = store.sync(ci, since=SINCE, progress=False)
        assert done.complete
        equal(ci, store)
        return way.did + people.did + Counter(versions=versions, builds_read_last=done.builds)


def _round(lines: Sequence[Connection], meanwhile: Callable[[], object]) -> None:
    """Each syncs once, and meanwhile time goes on."""
    for each in lines:
        each.send(True)
    for each in lines:
        meanwhile()
        assert each.poll(120), "a sync has ended"
        assert each.recv(), "a sync was incomplete"


def main() -> None:
    """Run several times, with the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    for seed in range(options.seed, options.seed + options.times):
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            did = run(Path(folder), seed, options.rounds)
        print(f"seed {seed}: {time.monotonic() - began:.1f} s, {dict(did)}", flush=True)


if __name__ == "__main__":
    main()
