"""Replays of 300,000 jobs, and of single queues beside Erlang's formula, simpy and ciw.

Jobs are those of a month of the sandbox, and copies of them in later months.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import ciw
import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.columns import NAT
from buildframe.metrics.replaying.blind_error import blind_error
from buildframe.metrics.replaying.event_loop import Changes, simulate
from buildframe.metrics.replaying.fleets import Fleet
from buildframe.metrics.replaying.prepared import prepare
from tests import worlds
from tests.benchmarks import reporting
from tests.benchmarks.ledger import months
from tests.metrics.test_replay import erlang_c, random_queue, starts_in_simpy

LOOP_S, ALL_S = 4.0, 15.0
POINTS, SHARE = 0.015, 0.1
LOAD, RUN_S = 2.5, 300.0


def cpu_of(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.process_time()
    result = work()
    return time.process_time() - began, result


def show_speed(builds: pd.DataFrame, jobs: pd.DataFrame) -> None:
    print(f"{len(jobs):,} jobs of {len(builds):,} builds; seconds of CPU", flush=True)
    prepared_s, prepared = cpu_of(lambda: prepare(builds, jobs))
    loop_s, _ = cpu_of(lambda: simulate(prepared.model, Changes(prepared.fleets)))
    blind_s, _ = cpu_of(lambda: blind_error(prepared))
    all_s, _ = cpu_of(lambda: metrics.replay(builds, jobs, agents={"macos": 4}))
    print(f"preparation {prepared_s:.2f}, blind error {blind_s:.2f}")
    reporting.judge("event loop, seconds", loop_s, at_most=LOOP_S)
    reporting.judge("metrics.replay, seconds", all_s, at_most=ALL_S)


def show_erlang(n: int) -> None:
    """Replay a queue of 30 jobs of 5 minutes an hour, and compare its waits with Erlang's formula."""
    builds, jobs = random_queue(n, 7, LOAD / 7, seed=1)
    prepared = prepare(builds, jobs)
    for agents in range(3, 8):
        times = simulate(prepared.model, Changes([Fleet(agents)]))
        has_started = times.started != NAT
        waits = (times.started - times.ready)[has_started] / 1e6
        share, mean = erlang_c(LOAD, agents), erlang_c(LOAD, agents) * RUN_S / (agents - LOAD)
        print(f"{agents} agents: {(waits > 0).mean():.4f} wait (formula {share:.4f}), {waits.mean():.2f} s on average "
              f"(formula {mean:.2f})")  # fmt: skip
        reporting.judge("  points", abs((waits > 0).mean() - share), at_most=POINTS)
        reporting.judge("  share of the mean wait", abs(waits.mean() - mean) / mean, at_most=SHARE)


def waits_in_ciw(jobs: pd.DataFrame, agents: int) -> np.ndarray:
    """Return the waits of jobs in the order of their rows, in seconds."""
    at = (jobs["runnable_at"] - jobs["runnable_at"].min()).dt.total_seconds().to_numpy()
    runs = (jobs["finished_at"] - jobs["started_at"]).dt.total_seconds().to_numpy()
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*np.diff(at, prepend=-1.0), np.inf])],
        service_distributions=[ciw.dists.Sequential([*runs])],
        number_of_servers=[agents],
    )
    simulation = ciw.Simulation(network)
    simulation.simulate_until_max_customers(len(jobs), method="Finish")
    records = sorted(simulation.get_all_records(), key=lambda record: record.arrival_date)
    return np.array([record.waiting_time for record in records])


def show_peers(n: int) -> None:
    builds, jobs = random_queue(n, 3, 0.9, seed=2)
    prepared = prepare(builds, jobs)
    own_s, times = cpu_of(lambda: simulate(prepared.model, Changes([Fleet(3)])))
    own = (times.started - times.ready) / 1e6
    simpy_s, starts = cpu_of(lambda: starts_in_simpy(jobs, 3))
    ciw_s, of_ciw = cpu_of(lambda: waits_in_ciw(jobs, 3))
    of_simpy = (starts - jobs["runnable_at"]).dt.total_seconds().to_numpy()
    print(f"{n:,} jobs on 3 agents at load .9, seconds of CPU: {own_s:.2f}, simpy {simpy_s:.2f}, ciw {ciw_s:.2f}")
    reporting.judge("largest difference of a wait to simpy, seconds", float(np.abs(own - of_simpy).max()), at_most=1e-6)
    reporting.judge("largest difference of a wait to ciw, seconds", float(np.abs(own - of_ciw).max()), at_most=1e-3)


def main(quick: bool) -> None:
    worlds.share_worlds()
    show_speed(*months(*((60, 2) if quick else (2600, 6))))
    show_erlang(2_000 if quick else 200_000)
    show_peers(500 if quick else 100_000)


if __name__ == "__main__":
    reporting.run(main)
