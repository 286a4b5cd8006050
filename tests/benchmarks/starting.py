"""Measure what starts in a fresh process, beside `import pandas`: imports, `connect()`, a sandbox and the demo."""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import tempfile

from tests.benchmarks import reporting
from tests.benchmarks.reporting import Stopwatch

STATEMENTS = {
    "nothing": "pass",
    "import pandas": "import pandas",
    "import buildframe": "import buildframe",
    "import and connect": "import buildframe as bf; bf.connect('acme', token='an-invented-token')",
    "sandbox": "import buildframe as bf; bf.sandbox(progress=False)",
    "demo": "from buildframe.cli import main; main(['demo'])",
}


def _cpu_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _fresh(statement: str) -> Stopwatch:
    """Run a statement in a new process; the CPU time is that of the process, which other programs hardly change."""
    watch, before = Stopwatch(), _cpu_of_children()
    with tempfile.TemporaryDirectory() as folder, watch.running():
        command = [sys.executable, "-c", statement]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True)
    watch.cpu = _cpu_of_children() - before
    return watch


def main(quick: bool) -> None:
    for statement in STATEMENTS.values():
        _fresh(statement)  # compiles, and fills the cache of files
    candidates = {name: functools.partial(_fresh, statement) for name, statement in STATEMENTS.items()}
    measured = reporting.in_turn(2 if quick else 9, candidates)
    reporting.show_times(measured)
    cpu = {name: statistics.median(time.cpu for time in times) for name, times in measured.items()}
    pandas = cpu["import pandas"]
    reporting.judge("import buildframe / import pandas", cpu["import buildframe"] / pandas, at_most=1.3)
    reporting.judge("import and connect / import pandas", cpu["import and connect"] / pandas, at_most=1.2)
    reporting.judge("sandbox of a month, CPU seconds", cpu["sandbox"], at_most=3)
    reporting.judge("demo, CPU seconds", cpu["demo"], at_most=6)
    for name in ("sandbox", "demo"):
        print(f"{name} / import pandas: {cpu[name] / pandas:.2f}")


if __name__ == "__main__":
    reporting.run(main)
