"""Time of the summaries that no single query gives: those that search or simulate, and comparisons of periods.

Beside the former is the bare computation in numpy, or a bare loop. Those of jobs or builds get the two million rows of
`summaries`, `time_ledger` and `replay` some 310,000 jobs of months of the sandbox, `explain` the halves of their
ledger, and summaries that replay many times one month.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import duckdb
import pandas as pd
import polars as pl

from buildframe import metrics
from tests import worlds
from tests.benchmarks import handwritten_searches, reporting, rows
from tests.benchmarks.explanations import halves_of
from tests.benchmarks.ledger import in_each_library, months
from tests.benchmarks.reporting import Stopwatch


def _change_points(jobs: Any) -> Any:
    return metrics.change_points(jobs, metrics.run_time, "queue")


MIDDLE = rows.BEGIN + pd.Timedelta(rows.DAYS / 2, "D")


def _halves(frame: Any) -> tuple[Any, Any]:
    """The rows of the first and of the second half of the time."""
    if isinstance(frame, pl.DataFrame):
        is_new = pl.col("created_at") >= MIDDLE.to_pydatetime()
        return frame.filter(~is_new), frame.filter(is_new)
    if isinstance(frame, pd.DataFrame):
        return frame[frame["created_at"] < MIDDLE], frame[frame["created_at"] >= MIDDLE]
    condition = f"created_at >= '{MIDDLE.isoformat()}'::TIMESTAMPTZ"
    return frame.filter(f"NOT ({condition})"), frame.filter(condition)


ALONE: dict[str, Callable[[Any], Any]] = {
    "survival": lambda jobs: metrics.survival(jobs, by="queue"),
    "flake_score": metrics.flake_score,
    "days_to_see": lambda jobs: metrics.days_to_see(jobs, metrics.run_time, "queue"),
}
OF_HALVES: dict[str, Callable[[Any, Any], Any]] = {
    "percentile_change": lambda old, new: metrics.percentile_change(old, new, metrics.run_time, "queue"),
    "job_failure_change": lambda old, new: metrics.job_failure_change(old, new, "queue"),
}
"""Summaries of jobs without a counterpart: their intervals and models are all of their work."""


def _replay(builds: Any, jobs: Any) -> Any:
    return metrics.replay(builds, jobs, agents={"macos": 4})


def contestants(n_jobs: int, n_builds: int, n_months: int) -> dict[str, dict[str, Callable[[], Any]]]:
    """Of each summary its size, the summary of each library, and its floor."""
    jobs = rows.made(n_jobs // 30, n_jobs).jobs
    stored = metrics.with_seconds(jobs)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE jobs AS SELECT * FROM stored")
    many = {"pandas": jobs, "Polars": pl.from_pandas(stored), "DuckDB": connection.table("jobs")}
    builds, months_jobs = months(n_builds, n_months)
    frames = in_each_library(builds, months_jobs)
    month_builds, month_jobs = months(n_builds, 1)
    ledger = metrics.time_ledger(builds, months_jobs)
    halves = halves_of(ledger)
    n = f"{len(months_jobs):,} jobs"
    return {
        **{
            f"{name}, {n_jobs:,} jobs": {library: partial(summary, frame) for library, frame in many.items()}
            for name, summary in ALONE.items()
        },
        **{
            f"{name}, {n_jobs:,} jobs": {library: partial(summary, *_halves(frame)) for library, frame in many.items()}
            for name, summary in OF_HALVES.items()
        },
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
        f"leverage, {len(month_jobs):,} jobs": {"pandas": partial(metrics.leverage, month_builds, month_jobs)},
        f"agents_needed, {len(month_jobs):,} jobs": {
            "pandas": partial(metrics.agents_needed, month_builds, month_jobs, "macos")
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
        floor = least.get("floor")
        cells = [f"{least[name]:.2f} s" if name in least else "" for name in ("pandas", "Polars", "DuckDB", "floor")]
        if floor is not None:
            ratios = (f"{least[name] / floor:.1f}" if name in least else "" for name in ("pandas", "Polars", "DuckDB"))
            cells[:3] = [f"{cell}, {ratio}" if cell else "" for cell, ratio in zip(cells, ratios, strict=False)]
        print(f"| {what} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    reporting.run(main)
