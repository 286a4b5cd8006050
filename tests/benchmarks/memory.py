"""Measure the peak memory of decoding above the imports, compared with the size of the resulting Arrow tables.

The peak is the kernel's own count (VmHWM, set back before the work; and ru_maxrss), in a fresh process each time:
a thread that samples misses peaks.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import reporting
from tests.benchmarks.reporting import ROOT, Stopwatch
from tests.benchmarks.world import World

MIB = 2**20


def status(key: str) -> int:
    """Return a figure of the kernel about this process, in bytes."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{key}:"))
    return int(line.split()[1]) * 1024


def _most() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure(folder: str) -> dict[str, float]:
    """In a fresh process: the sizes in MiB, and the frames' lengths."""
    from tests.benchmarks import decoding

    pages = sorted(Path(folder).iterdir())
    before, most_before = status("VmRSS"), _most()
    Path("/proc/self/clear_refs").write_text("5")
    builds, jobs, size = decoding.frames(pages, Stopwatch())
    result = {"tables": size, "VmHWM": status("VmHWM") - before, "ru_maxrss": _most() - before, "before": before}
    after = {"afterwards": status("VmRSS") - before, "ru_maxrss before": most_before}
    return {name: value / MIB for name, value in (result | after).items()} | {"rows": len(builds) + len(jobs)}


def _in_a_fresh_process(folder: str) -> dict[str, float]:
    code = "import json, sys; from tests.benchmarks.memory import measure; print(json.dumps(measure(sys.argv[1])))"
    run = subprocess.run([sys.executable, "-c", code, folder], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, float] = json.loads(run.stdout)
    return found


def main(quick: bool) -> None:
    world, runs = (World(400, 30), 2) if quick else (World(10_000, 30), 5)
    with tempfile.TemporaryDirectory() as folder:
        world.write(Path(folder))
        result = [_in_a_fresh_process(folder) for _ in range(runs)]
    assert all(one["rows"] == world.builds * (world.jobs + 1) for one in result)
    measured = {name: [one[name] for one in result] for name in result[0] if name != "rows"}
    reporting.show("MiB", measured)
    for counter in ("VmHWM", "ru_maxrss"):
        peak = statistics.median(measured[counter]) / statistics.median(measured["tables"])
        reporting.judge(f"peak ({counter}) / Arrow tables", peak, at_most=2)


if __name__ == "__main__":
    reporting.run(main)
