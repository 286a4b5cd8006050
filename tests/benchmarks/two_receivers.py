"""Measure one and two processes that write webhook deliveries to one store, to two stores, and to the same builds.

Each process writes batches one after the other, as a receiver does that is behind. HTTP is left out: `receiving` has
what one process accepts.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import buildframe as bf
from buildframe import webhooks
from buildframe.store import transactions
from buildframe.webhooks import Event
from tests.benchmarks import busy_day, receiving, reporting
from tests.benchmarks.reporting import ROOT

ACTIVE, SIZE, BATCHES = 2_000, 1_000, 4
_CODE = "import sys; from tests.benchmarks.two_receivers import work; work(*sys.argv[1:])"


def work(folder: str, path: str) -> None:
    """In a process of its own: write the batches when a line arrives, and print what they took."""
    batches = [[webhooks.parse(body) for body in batch] for batch in pickle.loads(Path(path).read_bytes())]
    store, attempts = bf.Store(folder), 0
    begin = transactions._Transaction.__init__

    def counted(*arguments: object) -> None:
        nonlocal attempts
        attempts += 1
        begin(*arguments)  # type: ignore[arg-type]

    transactions._Transaction.__init__ = counted  # type: ignore[method-assign, assignment]
    print("ready", flush=True)
    sys.stdin.readline()
    began, cpu = time.time(), time.process_time()
    jobs = sum(store.receive(batch).jobs for batch in batches)
    figures = {"began": began, "ended": time.time(), "cpu": time.process_time() - cpu}
    print(json.dumps({**figures, "jobs": jobs, "batches": len(batches), "attempts": attempts}), flush=True)


def together(shares: Sequence[tuple[str, Sequence[Sequence[bytes]]]]) -> list[dict[str, float]]:
    """Let a process write each share at the same time: its store, and its batches."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        processes = []
        for n, (folder, batches) in enumerate(shares):
            path = Path(scratch, f"{n}.pickle")
            path.write_bytes(pickle.dumps(batches))
            command = [sys.executable, "-c", _CODE, folder, str(path)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
            processes.append(stack.enter_context(subprocess.Popen(command, cwd=ROOT, **pipes)))  # type: ignore[call-overload]
        for process in processes:
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        return [json.loads(process.stdout.readline()) for process in processes]


def batches_of(bodies: Sequence[bytes], size: int) -> list[Sequence[bytes]]:
    """Cut deliveries into batches."""
    return [bodies[n : n + size] for n in range(0, len(bodies), size)]


def divided(bodies: Sequence[bytes], key: Callable[[Event], str], size: int) -> list[list[Sequence[bytes]]]:
    """Give each delivery to one of two receivers by a hash of its key, as a proxy does."""
    shares: tuple[list[bytes], list[bytes]] = ([], [])
    for body in bodies:
        shares[sum(key(webhooks.parse(body)).encode()) % 2].append(body)
    return [batches_of(share, size) for share in shares]


def show(name: str, results: Sequence[dict[str, float]]) -> None:
    """Print deliveries a second, CPU and attempts."""
    seconds = max(one["ended"] for one in results) - min(one["began"] for one in results)
    jobs, cpu, batches, attempts = (sum(one[key] for one in results) for key in ("jobs", "cpu", "batches", "attempts"))
    print(f"{name:45} {jobs / seconds:6.0f} deliveries a second, {seconds:5.1f} s, {cpu:5.1f} s CPU, "
          f"{jobs / cpu:6.0f} a second of CPU, {batches:g} batches, {attempts:g} attempts", flush=True)  # fmt: skip


def main(quick: bool) -> None:
    builds, hours, active, size, batches = (60, 2, 20, 20, 2) if quick else (3_600, 10, ACTIVE, SIZE, BATCHES)
    folder = busy_day.filled(builds, hours).url
    bodies = receiving.bodies(bf.Store(folder), active, 8)
    bodies = [body for n in range(8) for body in bodies[n::8]][: 2 * size * batches]  # few of one build in a batch
    halves: dict[str, list[list[Sequence[bytes]]]] = {
        "by pipeline": divided(bodies, lambda event: str(event.pipeline.slug if event.pipeline else ""), size),
        "by build": divided(bodies, lambda event: str(event.build.id if event.build else ""), size),
        "one after the other": [batches_of(bodies[n::2], size) for n in (0, 1)],
    }
    alone = {"one process": size, "one process, batches four times as large": 4 * size}
    for name, of_batch in alone.items():
        with receiving.copied(folder) as copy:
            show(name, together([(copy, batches_of(bodies, of_batch))]))
    for name, shares in halves.items():
        with receiving.copied(folder) as copy:
            show(f"two processes, one store, {name}", together([(copy, share) for share in shares]))
    with receiving.copied(folder) as first, receiving.copied(folder) as second:
        show(
            "two processes, two stores, by pipeline",
            together(list(zip((first, second), halves["by pipeline"], strict=True))),
        )


if __name__ == "__main__":
    reporting.run(main)
