"""Shared parts of the benchmarks: a stopwatch, a plain text table, the machine and the versions."""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PACKAGES = (
    "pandas", "polars", "duckdb", "pyarrow", "deltalake",
    "pyspark", "msgspec", "httpx", "orjson", "pybuildkite", "requests", "dlt",
)  # fmt: skip


def run(main: Callable[[bool], None]) -> None:
    """Run a benchmark from the command line; `--quick` runs a small size, whose times mean nothing."""
    parser = argparse.ArgumentParser(description=sys.modules[main.__module__].__doc__)
    parser.add_argument("--quick", action="store_true", help="try it on little data: whether it works")
    quick = parser.parse_args().quick
    print(f"== {Path(sys.argv[0]).stem}{' (quick: these figures mean nothing)' if quick else ''}")
    print(machine(), flush=True)
    main(quick)
    print(flush=True)


def machine() -> str:
    """Where it was measured, and with what."""
    model = next((line.split(":")[1].strip() for line in _lines("/proc/cpuinfo") if "model name" in line), "?")
    memory = next((int(line.split()[1]) / 2**20 for line in _lines("/proc/meminfo") if "MemTotal" in line), 0)
    versions = " ".join(f"{name} {result}" for name in _PACKAGES if (result := _version(name)))
    here = f"{os.cpu_count()} x {model}, {memory:.0f} GiB, {platform.system()}, Python {platform.python_version()}"
    return f"{here}, load {os.getloadavg()[0]:.1f}\n{versions}"


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines() if Path(path).exists() else []


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


class Stopwatch:
    """Sums up the time spent inside of its `with` blocks: seconds on the clock, and of this process's CPU."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.cpu = 0.0

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        began, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - began
            self.cpu += time.process_time() - cpu


Times = Sequence[Stopwatch]


def in_turn(runs: int, candidates: Mapping[str, Callable[[], Stopwatch]]) -> Mapping[str, Times]:
    """What each candidate measures, run after run in turn, so that a slow minute meets all of them."""
    measured: dict[str, list[Stopwatch]] = {name: [] for name in candidates}
    for _ in range(runs):
        for name, candidate in candidates.items():
            measured[name].append(candidate())
    return measured


def median(times: Times) -> float:
    """Seconds on the clock."""
    return statistics.median(time.seconds for time in times)


def show_times(measured: Mapping[str, Times]) -> None:
    """A table of seconds on the clock; in brackets the median seconds of this process's CPU."""
    width = max(map(len, measured))
    print(f"{'seconds':{width}}  {'min':>9} {'median':>9} {'max':>9} {'(CPU)':>9}  runs")
    for name, times in measured.items():
        cpu = f"({statistics.median(time.cpu for time in times):.3f})"
        print(f"{name:{width}}  {_spread([time.seconds for time in times])} {cpu:>9}  {len(times):4}", flush=True)


def show(unit: str, measured: Mapping[str, Sequence[float]]) -> None:
    """A table of anything else."""
    width = max(map(len, (unit, *measured)))
    print(f"{unit:{width}}  {'min':>9} {'median':>9} {'max':>9}  runs")
    for name, values in measured.items():
        print(f"{name:{width}}  {_spread(values)}  {len(values):4}", flush=True)


def _spread(values: Sequence[float]) -> str:
    return " ".join(f"{value:9.3f}" for value in (min(values), statistics.median(values), max(values)))


def judge(what: str, value: float, *, at_most: float | None = None, at_least: float | None = None) -> None:
    """One line: a figure, its target, and whether it is reached."""
    bound, sign = (at_most, "<=") if at_most is not None else (at_least, ">=")
    assert bound is not None
    reached = value <= bound if at_most is not None else value >= bound
    print(f"{what}: {value:.3f} (target {sign} {bound:g}: {'reached' if reached else 'NOT reached'})", flush=True)
