"""Time ledgers of 300,000 jobs on pandas, Polars and DuckDB, and how often predecessors are right in sandboxes.

Jobs are those of a month of the sandbox, and copies of them in later months.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import duckdb
import pandas as pd
import polars as pl

from buildframe import metrics
from tests import worlds
from tests.benchmarks import reporting
from tests.benchmarks.reporting import Stopwatch
from tests.metrics import true_dependencies

AT_MOST = 4.0
SEEDS = range(100, 105)


def copies(frame: pd.DataFrame, n: int, *ids: str) -> pd.DataFrame:
    """Return the rows of n months: with other ids and later timestamps."""
    times = [name for name in frame if name.endswith("_at")]
    months = (
        frame.assign(
            **{name: frame[name] + f"-{month}" for name in ids},
            **{name: frame[name] + pd.Timedelta(30 * month, "D") for name in times},
        )
        for month in range(n)
    )
    return pd.concat(months, ignore_index=True)


def months(n_builds: int, n: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return n months of a sandbox for replays."""
    builds, jobs = true_dependencies.month(100, n_builds)
    builds = copies(builds, n, "id", "rebuilt_from_id", "triggered_from_build_id")
    return builds, copies(jobs.assign(triggered_build=None), n, "id", "build_id", "retried_in_job_id")


def in_each_library(builds: pd.DataFrame, jobs: pd.DataFrame) -> dict[str, tuple[Any, Any]]:
    jobs = jobs.assign(step=metrics.step)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE builds AS SELECT * FROM builds")
    connection.execute("CREATE TABLE jobs AS SELECT * FROM jobs")
    polars = pl.from_pandas(builds), pl.from_pandas(jobs)
    return {
        "pandas": (builds, jobs),
        "Polars": polars,
        "DuckDB": (connection.table("builds"), connection.table("jobs")),
    }


def _timed(builds: Any, jobs: Any) -> Stopwatch:
    watch = Stopwatch()
    with watch.running():
        metrics.time_ledger(builds, jobs)
    return watch


def main(quick: bool) -> None:
    worlds.share_worlds()
    size, runs, months, seeds = (60, 2, 2, SEEDS[:1]) if quick else (2600, 5, 6, SEEDS)
    builds, jobs = true_dependencies.month(SEEDS[0], size)
    builds = copies(builds, months, "id")
    jobs = copies(jobs, months, "id", "build_id", "retried_in_job_id")
    print(f"{len(jobs):,} jobs of {len(builds):,} builds", flush=True)
    frames = in_each_library(builds, jobs)
    times = reporting.in_turn(runs, {name: partial(_timed, *pair) for name, pair in frames.items()})
    reporting.show_times(times)
    reporting.judge("time_ledger, pandas, seconds", min(one.seconds for one in times["pandas"]), at_most=AT_MOST)
    exact, damaged = [], []
    for seed in seeds:
        builds, jobs = true_dependencies.month(seed, size)
        truth = true_dependencies.true_predecessors(jobs)
        exact.append(true_dependencies.compare(jobs, truth))
        wrong = true_dependencies.with_errors(jobs)
        damaged.append(true_dependencies.compare(wrong, truth))
        for name, each in (("exact", jobs), ("1 % off by 2 s", wrong)):
            of_builds, of_seconds = true_dependencies.agreement_of_single_builds(builds, each)
            print(f"seed {seed}, {name}: a build alone gives the chain of {of_builds:.4f} of the builds, "
                  f"{of_seconds:.4f} of the seconds", flush=True)  # fmt: skip
    for name, each in (("exact", exact), ("1 % of timestamps off by 2 s", damaged)):
        right, precision, recall = true_dependencies.total(each)
        worst = min(one.right / one.jobs for one in each)
        print(f"{name}: {right:.5f} of {sum(one.jobs for one in each):,} predecessors right (worst seed {worst:.5f}), "
              f"precision of binding pairs {precision:.4f}, recall {recall:.4f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    reporting.run(main)
