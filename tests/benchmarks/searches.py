"""Time of the summaries that search or simulate, beside the bare computation in numpy or a bare loop.

`change_points` gets the two million jobs of `summaries`. The others get months of the sandbox: `time_ledger` and
`replay` 309,000 jobs, `explain` the halves of their ledger.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import duckdb
import polars as pl

from buildframe import metrics
from tests import worlds
from tests.benchmarks import handwritten_searches, reporting, rows
from tests.benchmarks.explanations import halves_of
from tests.benchmarks.ledger import months, on_engines
from tests.benchmarks.reporting import Stopwatch


def _change_points(jobs: Any) -> Any:
    return metrics.change_points(jobs, metrics.run_time, "queue")


def _replay(builds: Any, jobs: Any) -> Any:
    return metrics.replay(builds, jobs, agents={"macos": 4})


def contestants(n_jobs: int, n_builds: int, n_months: int) -> dict[str, dict[str, Callable[[], Any]]]:
    """Of each summary its size, the summary on each engine, and its floor."""
    jobs = rows.made(n_jobs // 30, n_jobs).jobs
    stored = metrics.with_seconds(jobs)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE jobs AS SELECT * FROM stored")
    many = {"pandas": jobs, "Polars": pl.from_pandas(stored), "DuckDB": connection.table("jobs")}
    builds, months_jobs = months(n_builds, n_months)
    frames = on_engines(builds, months_jobs)
    ledger = metrics.time_ledger(builds, months_jobs)
    halves = halves_of(ledger)
    n = f"{len(months_jobs):,} jobs"
    return {
        f"change_points, {n_jobs:,} jobs": {
            **{name: partial(_change_points, frame) for name, frame in many.items()},
            "floor": partial(handwritten_searches.change_points, jobs),
        },
        f"time_ledger, {n}": {
            **{name: partial(metrics.time_ledger, *pair) for name, pair in frames.items()},
            "floor": partial(handwritten_searches.time_ledger, months_jobs),
        },
        f"replay, {n}": {
            "pandas": partial(_replay, builds, months_jobs),
            "floor": partial(handwritten_searches.replay, months_jobs),
        },
        f"explain, {len(ledger):,} segments": {
            "pandas": partial(metrics.explain, *halves),
            "floor": partial(handwritten_searches.explain, *halves),
        },
    }


def _timed(way: Callable[[], Any]) -> Stopwatch:
    watch = Stopwatch()
    with watch.running():
        way()
    return watch


def main(quick: bool) -> None:
    worlds.share_worlds()
    runs, *sizes = (1, 20_000, 60, 2) if quick else (3, 2_000_000, 2600, 6)
    print("| what | pandas | Polars | DuckDB | floor |\n| --- | --- | --- | --- | --- |")
    for what, ways in contestants(*sizes).items():
        measured = reporting.in_turn(runs, {name: partial(_timed, way) for name, way in ways.items()})
        least = {name: min(one.cpu for one in times) for name, times in measured.items()}
        cells = (
            f"{least[name]:.2f} s, {least[name] / least['floor']:.1f}" if name in least else ""
            for name in ("pandas", "Polars", "DuckDB")
        )
        print(f"| {what} | {' | '.join(cells)} | {least['floor']:.2f} s |", flush=True)


if __name__ == "__main__":
    reporting.run(main)
