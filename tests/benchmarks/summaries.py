"""Summaries of two million rows on pandas, Polars and DuckDB, compared with the best handwritten code for each.

Before anything is timed, both must give the same values in all columns, with intervals. Jobs belong to 65,000 builds.
Summaries of builds get two million of those, because 65,000 take hardly longer than the calls themselves (these are
printed without a target). Times are of the CPU, the least of all runs: other programs on the machine only add to it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import duckdb
import pandas as pd
import polars as pl

from buildframe import metrics
from tests.benchmarks import (
    handwritten,
    handwritten_builds,
    handwritten_duckdb,
    handwritten_jobs,
    handwritten_polars,
    reporting,
    rows,
)
from tests.benchmarks.reporting import Stopwatch, Times

Summary = Callable[[Any], Any]

AT_MOST = 1.2

OF_JOBS: dict[str, Summary] = {
    "percentiles_by_queue": lambda jobs: metrics.percentiles(jobs, by="queue"),
    "percentiles_by_step": lambda jobs: metrics.percentiles(jobs, by=["pipeline", metrics.step]),
    "trend": lambda jobs: metrics.trend(jobs, of=metrics.run_time),
    "retry_rate": lambda jobs: metrics.retry_rate(jobs, by="pipeline"),
    "flips": metrics.flips,
    "outcomes_by_commit": metrics.outcomes_by_commit,
    "waste": lambda jobs: metrics.waste(jobs, by="pipeline"),
    "concurrency": metrics.concurrency,
    "queue_depth": metrics.queue_depth,
    "utilization": metrics.utilization,
    "machine_time": metrics.machine_time,
    "active_time": metrics.active_time,
    "parallelism": metrics.parallelism,
    "idle_time": metrics.idle_time,
    "blocked_time": metrics.blocked_time,
    "time_to_first_failure": metrics.time_to_first_failure,
    "time_to_pass": metrics.time_to_pass,
}
OF_BUILDS: dict[str, Summary] = {
    "success_rate": lambda builds: metrics.success_rate(builds, by="pipeline"),
    "success_trend": metrics.success_trend,
    "throughput": metrics.throughput,
    "outages": lambda builds: metrics.outages(builds, branch=handwritten_builds.BRANCH),
    "recovery_time": lambda builds: metrics.recovery_time(builds, branch=handwritten_builds.BRANCH),
    "red_share": lambda builds: metrics.red_share(builds, branch=handwritten_builds.BRANCH),
}


class Pair(NamedTuple):
    """Two ways to one summary, without arguments."""

    ours: Callable[[], Any]
    peer: Callable[[], Any]


def pairs(builds: pd.DataFrame, jobs: pd.DataFrame) -> dict[str, Pair]:
    """Of every library, each summary that has a peer there; `builds` need not be those of the jobs."""
    on_pandas = _on((handwritten, handwritten_jobs, handwritten_builds), builds, jobs)
    builds, jobs = metrics.with_seconds(builds), metrics.with_seconds(jobs)
    polars = _on((handwritten_polars,), pl.from_pandas(builds), pl.from_pandas(jobs))
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE builds AS SELECT * FROM builds")
    connection.execute("CREATE TABLE jobs AS SELECT * FROM jobs")
    sql, of_builds, of_jobs = handwritten_duckdb.Sql(connection), connection.table("builds"), connection.table("jobs")
    in_duckdb = {
        name: Pair(functools.partial(summary, of_jobs if name in OF_JOBS else of_builds), getattr(sql, name))
        for name, summary in (OF_JOBS | OF_BUILDS).items()
        if hasattr(sql, name)
    }
    libraries = {"pandas": on_pandas, "Polars": polars, "DuckDB": in_duckdb}
    return {f"{library}, {name}": pair for library, found in libraries.items() for name, pair in found.items()}


def _on(modules: Any, builds: Any, jobs: Any) -> dict[str, Pair]:
    found = {}
    for frame, summaries in ((jobs, OF_JOBS), (builds, OF_BUILDS)):
        for name, summary in summaries.items():
            for module in modules:
                if hasattr(module, name):
                    found[name] = Pair(
                        functools.partial(summary, frame), functools.partial(getattr(module, name), frame)
                    )
    return found


def check(pair: Pair) -> None:
    """Fail where the two do not give, but for the last digits, the same values in the same columns.

    Steps in `flips` are compared by name, because their order depends on the last digits of intervals.
    """
    ours, peer = pair.ours(), pair.peer()
    if isinstance(ours, pd.Series):
        pd.testing.assert_series_equal(peer, ours, check_dtype=False, rtol=1e-9)
        return
    if "flake_rate" in peer:
        ours, peer = (
            steps.sort_values(["organization", "pipeline", "step"], ignore_index=True) for steps in (ours, peer)
        )
    assert set(peer) == set(ours)
    peer = peer[[*ours]].astype({name: dtype for name, dtype in ours.dtypes.items() if dtype == "str"})
    pd.testing.assert_frame_equal(peer, ours, check_dtype=False, rtol=1e-9)


def _timed(way: Callable[[], Any]) -> Stopwatch:
    watch = Stopwatch()
    with watch.running():
        way()
    return watch


def compare(name: str, pair: Pair, runs: int) -> dict[str, Times]:
    """Both, run after run in turn, once they agree."""
    check(pair)
    return {
        **reporting.in_turn(runs, {name: lambda: _timed(pair.ours), f"{name}, handwritten": lambda: _timed(pair.peer)})
    }


def ratio(ours: Times, peer: Times) -> float:
    """Ratio of CPU times: the least of each, since others' work on the machine only ever adds to it."""
    return min(time.cpu for time in ours) / min(time.cpu for time in peer)


def main(quick: bool) -> None:
    runs, n_builds, n_jobs, many = (2, 300, 9_000, 5_000) if quick else (5, 65_000, 2_000_000, 2_000_000)
    few, jobs = rows.made(n_builds, n_jobs)
    builds = rows.made(many, 0).builds
    print(f"{n_jobs:,} jobs of {n_builds:,} builds; {many:,} builds", flush=True)
    measured = {name: compare(name, pair, runs) for name, pair in pairs(builds, jobs).items()}
    reporting.show_times({name: times for both in measured.values() for name, times in both.items()})
    alone = {name: lambda summary=summary: _timed(lambda: summary(few)) for name, summary in OF_BUILDS.items()}
    print(f"\n{n_builds:,} builds, pandas (no target)")
    reporting.show_times(reporting.in_turn(runs, alone))
    for name, both in measured.items():
        reporting.judge(f"{name} / handwritten", ratio(*both.values()), at_most=AT_MOST)
    show_table({name: (*both.values(),) for name, both in measured.items()})


def show_table(measured: dict[str, tuple[Times, ...]]) -> None:
    """Print the table of docs/performance.md: seconds of CPU and ratios, bold if they miss the target."""
    print("\n| summary | pandas | Polars | DuckDB |\n| --- | --- | --- | --- |")
    for summary in (*OF_JOBS, *OF_BUILDS):
        cells = []
        for library in ("pandas", "Polars", "DuckDB"):
            if both := measured.get(f"{library}, {summary}"):
                mark = "**" if round(ratio(*both), 2) > AT_MOST else ""
                cells.append(f"{min(time.cpu for time in both[0]):.3f} s, {mark}{ratio(*both):.2f}{mark}")
            else:
                cells.append("")
        print(f"| `{summary}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    reporting.run(main)
