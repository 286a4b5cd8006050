"""Measure the memory of a first sync of a million jobs over HTTP, and of a second sync that finds nothing new.

The server is another process. Each sync is a fresh process, whose peak is the kernel's own count (VmHWM).
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import memory, reporting
from tests.benchmarks.reporting import ROOT, Stopwatch
from tests.benchmarks.server import Server, Settings
from tests.benchmarks.world import World

MIB = 2**20
AT_MOST = 1024


def measure(url: str, folder: str) -> dict[str, float]:
    """In a fresh process: one sync of 90 days; seconds, and the memory of the whole process in MiB."""
    import buildframe as bf

    watch = Stopwatch()
    with bf.connect("acme", token="a-test-token", base_url=url) as ci, watch.running():
        done = bf.Store(folder).sync(ci, since="90d", progress=False)
    assert done.complete, done.why
    used = {"seconds": watch.seconds, "CPU": watch.cpu, "peak": memory.status("VmHWM") / MIB}
    stored = int(bf.Store(folder).sql("SELECT count(*) AS n FROM jobs")["n"].iloc[0])
    return used | {"jobs": stored, "requests": done.requests, "versions": done.version}


def in_a_fresh_process(url: str, folder: str) -> dict[str, float]:
    code = (
        "import json, sys; from tests.benchmarks.first_sync import measure; print(json.dumps(measure(*sys.argv[1:])))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, url, folder], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(run.stdout)
    return found


def main(quick: bool) -> None:
    world = World(300, 30) if quick else World(33_000, 30)
    with tempfile.TemporaryDirectory() as folder, Server(Settings(world)) as server:
        first, second = (in_a_fresh_process(server.url, str(Path(folder, "store"))) for _ in range(2))
    assert first["jobs"] == world.builds * world.jobs
    for name in first:
        print(f"{name:9} first {first[name]:12,.1f}   second {second[name]:12,.1f}")
    reporting.judge("peak of the first sync in MiB", first["peak"], at_most=AT_MOST)


if __name__ == "__main__":
    reporting.run(main)
