"""CPU time of each summary with intervals, on pandas, Polars and DuckDB, and its ratio to that of another checkout.

Run `git worktree add ../before 250115f`, then `python -m tests.benchmarks.interval_costs --before ../before`. That
commit is the last one whose intervals took rows as independent. Each version runs in its own process, in turn. CPU time
does not depend on what else the machine does, apart from its caches.
"""

from __future__ import annotations

import argparse
import ast
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

from tests.benchmarks.reporting import ROOT, machine

ENGINES = ("pandas", "Polars", "DuckDB")
MIDDLE = pd.Timestamp("2026-08-20", tz="UTC")
"""Comparisons are of the builds or jobs since then with those before."""


def summaries(metrics: Any) -> dict[str, tuple[str, Callable[..., Any]]]:
    """Each summary with intervals, and its frame: builds, jobs, or both halves of one; those that a version has."""
    named = {
        "percentiles": metrics.percentiles,
        "percentile_change": metrics.percentile_change,
        "survival": getattr(metrics, "survival", None),
        "flake_score": getattr(metrics, "flake_score", None),
        "change_points": getattr(metrics, "change_point", None) or metrics.change_points,
        "days_to_see": getattr(metrics, "days_to_see", None),
        "job_failure_change": getattr(metrics, "job_failure_change", None) or metrics.failure_change,
        "build_success_change": getattr(metrics, "build_success_change", None) or metrics.success_change,
    }
    found: dict[str, tuple[str, Callable[..., Any]]] = {
        "percentiles, by queue": ("jobs", lambda jobs: metrics.percentiles(jobs, by="queue")),
        "percentiles, by step": ("jobs", lambda jobs: metrics.percentiles(jobs, by=["pipeline", metrics.step])),
        "trend": ("jobs", lambda jobs: metrics.trend(jobs, of=metrics.run_time)),
        "survival": ("jobs", lambda jobs: named["survival"](jobs, by="queue")),
        "change_points": ("jobs", lambda jobs: named["change_points"](jobs, metrics.run_time, "queue")),
        "days_to_see": ("jobs", lambda jobs: named["days_to_see"](jobs, metrics.run_time, "queue")),
        "percentile_change": (
            "both jobs",
            lambda new, old: metrics.percentile_change(new, old, metrics.run_time, "queue"),
        ),
        "job_failure_change": ("both jobs", lambda new, old: named["job_failure_change"](new, old, "queue")),
        "build_success_change": (
            "both builds",
            lambda new, old: named["build_success_change"](new, old, by="pipeline"),
        ),
        "retry_rate": ("jobs", lambda jobs: metrics.retry_rate(jobs, by="pipeline")),
        "flips": ("jobs", metrics.flips),
        "outcomes_by_commit": ("jobs", metrics.outcomes_by_commit),
        "flake_score": ("jobs", lambda jobs: named["flake_score"](jobs)),
        "success_rate": ("builds", lambda builds: metrics.success_rate(builds, by="pipeline")),
        "success_trend": ("builds", metrics.success_trend),
        "throughput": ("builds", metrics.throughput),
        "waste": ("jobs", lambda jobs: metrics.waste(jobs, by="pipeline")),
        "outages": ("builds", lambda builds: metrics.outages(builds, branch="main")),
        "recovery_time": ("builds", lambda builds: metrics.recovery_time(builds, branch="main")),
        "red_share": ("builds", lambda builds: metrics.red_share(builds, branch="main")),
    }
    return {name: one for name, one in found.items() if named.get(name, one) is not None}


def _frame(engine: str, path: Path, connection: Any) -> Any:
    if engine == "DuckDB":
        connection.execute(f"CREATE OR REPLACE TABLE {path.stem} AS SELECT * FROM read_parquet('{path}')")
        return connection.table(path.stem)
    if engine == "Polars":
        import polars as pl

        return pl.read_parquet(path)
    return pd.read_parquet(path)


def _halves(frame: Any) -> tuple[Any, Any]:
    import narwhals as nw

    rows = nw.from_native(frame)
    is_new = nw.col("created_at") >= MIDDLE.to_pydatetime()
    return rows.filter(is_new).to_native(), rows.filter(~is_new).to_native()


def measure(folder: str, engine: str, runs: int) -> dict[str, float]:
    """Return the least CPU seconds of each summary of the version that this process imports."""
    import duckdb

    from buildframe import metrics

    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    frames = {kind: _frame(engine, Path(folder, f"{kind}.parquet"), connection) for kind in ("builds", "jobs")}
    seconds = {}
    for name, (kind, summary) in summaries(metrics).items():
        own = frames[kind.removeprefix("both ")]
        arguments = _halves(own) if kind.startswith("both ") else (own,)
        seconds[name] = min(_cpu_seconds(summary, arguments) for _ in range(runs))
    return seconds


def _cpu_seconds(summary: Callable[..., Any], arguments: tuple[Any, ...]) -> float:
    begin = time.process_time()
    summary(*arguments)
    return time.process_time() - begin


def _measure_checkout(checkout: Path, folder: str, engine: str, runs: int) -> dict[str, float]:
    call = f"from tests.benchmarks.interval_costs import measure; print(measure({folder!r}, {engine!r}, {runs}))"
    of_version = {**os.environ, "PYTHONPATH": f"{checkout.resolve() / 'src'}{os.pathsep}{ROOT}"}
    output = subprocess.run([sys.executable, "-c", call], env=of_version, cwd=ROOT, check=True, capture_output=True)
    result: dict[str, float] = ast.literal_eval(output.stdout.decode().splitlines()[-1])
    return result


def main(before: Path | None, quick: bool) -> None:
    from buildframe import metrics
    from tests.benchmarks import rows

    n_builds, n_jobs, rounds, runs = (5_000, 20_000, 1, 1) if quick else (2_000_000, 2_000_000, 3, 2)
    checkouts = [ROOT] if before is None else [ROOT, before]
    cells: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        metrics.with_seconds(rows.made(n_builds, 0).builds).to_parquet(Path(folder, "builds.parquet"))
        metrics.with_seconds(rows.made(n_jobs // 30, n_jobs).jobs).to_parquet(Path(folder, "jobs.parquet"))
        for engine in ENGINES:
            measured = [
                [_measure_checkout(checkout, folder, engine, runs) for checkout in checkouts] for _ in range(rounds)
            ]
            for name in measured[0][0]:
                least = [min(of[name] for of in own) for own in zip(*measured, strict=True) if name in own[0]]
                ratio = f", {least[0] / least[1]:.2f}" if len(least) == 2 else ""
                cells.setdefault(name, []).append(f"{least[0]:.3f}{ratio}")
    print("| summary | " + " | ".join(ENGINES) + " |\n" + "| --- " * (1 + len(ENGINES)) + "|")
    for name, own in cells.items():
        print(f"| `{name}` | " + " | ".join(own) + " |")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="checkout of another version")
    parser.add_argument("--quick", action="store_true", help="try it on little data: whether it works")
    options = parser.parse_args()
    print(machine(), flush=True)
    main(options.before, options.quick)
