"""Measure what starts in a fresh process, beside `import pandas`: imports, a sandbox, the demo, a report, notebooks."""

from __future__ import annotations

import functools
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import buildframe as bf
from tests.benchmarks import reporting
from tests.benchmarks.reporting import ROOT, Stopwatch

STATEMENTS = {
    "nothing": "pass",
    "import pandas": "import pandas",
    "import buildframe": "import buildframe",
    "import and connect": "import buildframe as bf; bf.connect('acme', token='an-invented-token')",
    "the same without rich": (
        "import sys; sys.modules['rich'] = None; "  # as if it were not installed: httpx imports it for a command line
        "import buildframe as bf; bf.connect('acme', token='an-invented-token')"
    ),
    "sandbox": "import buildframe as bf; bf.sandbox(progress=False)",
    "demo": "from buildframe.cli import main; main(['demo'])",
}
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def _cpu_of_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _fresh(*arguments: str) -> Stopwatch:
    """Run Python in a new process; the CPU time is that of the process, which other programs hardly change."""
    watch, before = Stopwatch(), _cpu_of_children()
    with tempfile.TemporaryDirectory() as folder, watch.running():
        subprocess.run([sys.executable, *arguments], cwd=folder, stdout=subprocess.DEVNULL, check=True)
    watch.cpu = _cpu_of_children() - before
    return watch


def _report_on(store: str) -> Stopwatch:
    """Write a report of a week and its plots, without a sync."""
    return _fresh("-c", f"from buildframe.cli import main; main(['report', {store!r}, 'reports', '--no-sync'])")


def _execute(notebook: Path) -> Stopwatch:
    return _fresh("-m", "nbconvert", "--to", "notebook", "--execute", "--output-dir", ".", str(notebook))


def _judge(cpu: dict[str, float], ratios: Sequence[tuple[str, float]]) -> None:
    for name, target in ratios:
        reporting.judge(f"{name} / import pandas", cpu[name] / cpu["import pandas"], at_most=target)
    for name, most in (("sandbox", 3), ("demo", 6), ("report", 5)):
        reporting.judge(f"{name}, CPU seconds", cpu[name], at_most=most)


def main(quick: bool) -> None:
    with tempfile.TemporaryDirectory() as folder, bf.sandbox(progress=False) as ci:
        store = str(Path(folder, "ci-history"))
        bf.Store(store).sync(ci, since="31d", progress=False)
        ways = {name: functools.partial(_fresh, "-c", statement) for name, statement in STATEMENTS.items()}
        ways["report"] = functools.partial(_report_on, store)
        for way in ways.values():
            way()  # compiles, and fills the cache of files
        measured = reporting.in_turn(2 if quick else 9, ways)
    reporting.show_times(measured)
    cpu = {name: statistics.median(time.cpu for time in times) for name, times in measured.items()}
    same = [(name, 1.2) for name in ("import and connect", "the same without rich")]
    _judge(cpu, [("import buildframe", 1.3), *same])
    for notebook in NOTEBOOKS[:1] if quick else NOTEBOOKS:
        reporting.judge(f"{notebook.name}, seconds", _execute(notebook).seconds, at_most=20)


if __name__ == "__main__":
    reporting.run(main)
