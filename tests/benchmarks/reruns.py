"""How well replays predict months of the sandbox that ran again with other agents and faster or slower steps.

A cell is the p50 or p95 of the queue times of a queue, or of the wall times of a pipeline. Those that moved by more
than 10 % and 5 s count. The peer is the record itself, which predicts that nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import buildframe as bf
from buildframe.sandbox_server import EphemeralAgents
from tests.benchmarks import reporting
from tests.metrics import reruns
from tests.metrics.reruns import Frames

SEEDS = range(6000, 6020)
BUILDS = 1_200
MEDIAN, WITHIN, OVERLOADED = 0.03, 0.9, 0.1
FASTER: tuple[Mapping[str, float], ...] = (
    {"e2e": 0.5}, {"load": 0.4, "integration": 0.4}, {"ios-payments": 0.3, "ios-widgets": 0.3},
    {"spark": 0.5, "image": 0.5},
)  # fmt: skip
SLOWER: tuple[Mapping[str, float], ...] = (
    {"e2e": 2}, {"load": 2, "upload": 3}, {"ios-build": 2}, {"spark": 2, "unit-shared": 3},
)  # fmt: skip

Agents = Mapping[str, Any]
Settings = Mapping[str, Any]


class Change(NamedTuple):
    """Settings of the recorded month and of its rerun, and the options of the replay that predicts it."""

    kind: str
    recorded: Settings
    rerun: Settings
    options: Settings


def office(by_day: int, else_: int) -> list[int]:
    """Return a schedule with a number of agents for working hours and one for the rest of the week."""
    return [by_day if hour < 120 and 7 <= hour % 24 < 19 else else_ for hour in range(168)]


def changed(kind: str, options: Settings, recorded: Settings | None = None) -> Change:
    """Return a change whose rerun has the options of its replay instead of the recorded settings."""
    recorded = recorded or {}
    rerun = {
        name: {**recorded.get(name, {}), **options.get(name, {})}
        for name in ("agents", "run_scale")
        if name in recorded or name in options
    }
    return Change(kind, recorded, rerun, options)


def single_use(agents: Agents) -> Agents:
    return {queue: EphemeralAgents(n, boot="2m" if queue == "macos" else "45s") for queue, n in agents.items()}


def changes_of(seed: int, agents: Mapping[str, int]) -> Iterator[Change]:
    """Return the changes of a seed: that of halved fleets, and a third of the others."""
    faster, slower = FASTER[seed // 3 % len(FASTER)], SLOWER[seed // 3 % len(SLOWER)]
    more, fewer = ({queue: max(n + by, 1) for queue, n in agents.items()} for by in (2, -1))
    yield changed("half as many agents", {"agents": {queue: max(n // 2, 1) for queue, n in agents.items()}})
    if seed % 3 == 0:
        yield changed("more agents", {"agents": more})
        yield changed("fewer agents", {"agents": fewer})
        yield changed("faster steps", {"run_scale": faster})
        yield changed("slower steps", {"run_scale": slower})
    elif seed % 3 == 1:
        by_hour = {"agents": {queue: office(n + 1, (n + 1) // 2) for queue, n in agents.items()}}
        other_hours = {"agents": {queue: office(max(n - 1, 1), n + 1) for queue, n in agents.items()}}
        yield changed("agents by hour", by_hour)
        yield changed("agents by hour, then other hours", other_hours, by_hour)
        yield changed("agents by hour, then faster steps", {"run_scale": faster}, by_hour)
        yield changed("fewer agents and faster steps", {"agents": fewer, "run_scale": faster})
    else:
        few, many = ({queue: agents[queue] + by for queue in ("default", "macos")} for by in (0, 2))
        yield Change(
            "single-use agents, then fewer", {"agents": single_use(many)}, {"agents": single_use(few)}, {"agents": few}
        )
        yield Change(
            "single-use agents, then more", {"agents": single_use(few)}, {"agents": single_use(many)}, {"agents": many}
        )
        yield changed("more agents and slower steps", {"agents": more, "run_scale": slower})
        yield changed("slower steps", {"run_scale": slower})


def measure(seed: int, builds: int) -> Iterator[pd.DataFrame]:
    months: dict[str, Frames] = {}

    def month(settings: Settings) -> Frames:
        key = repr(settings)
        if key not in months:
            with bf.sandbox(seed=seed, builds=builds, **settings) as ci:
                months[key] = ci.history(include_retried_jobs=True, progress=False)
        return months[key]

    for change in changes_of(seed, reruns.count_agents(month({})[1])):
        cells = reruns.predict(month(change.recorded), month(change.rerun), change.options)
        yield cells.assign(seed=seed, kind=change.kind)


def summarize(moved: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each kind of change, and one for all of them."""
    rows = {}
    for kind, own in [*moved.groupby("kind", sort=False), ("all", moved)]:
        rows[kind] = {
            "months": own["seed"].nunique(),
            "cells": len(own),
            "size of changes": f"{np.exp(np.log(own['outcome_s'] / own['recorded_s']).abs().median()):.2f} times",
            "median error": f"{own['predicted_error'].median():.2%}",
            "predicted": f"{own['predicted_within'].sum()} ({own['predicted_within'].mean():.1%})",
            "median error of the record": f"{own['recorded_error'].median():.1%}",
            "predicted by the record": f"{own['recorded_within'].mean():.1%}",
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def main(quick: bool) -> None:
    seeds, builds = (SEEDS[:3], 150) if quick else (SEEDS, BUILDS)
    cells = pd.concat([cells for seed in seeds for cells in measure(seed, builds)], ignore_index=True)
    moved, still = cells[cells["moved"]], cells[~cells["moved"]]
    overloaded = moved[moved["overloaded"]]
    pairs = cells.groupby(["seed", "kind"]).ngroups
    print(f"{pairs} pairs of months, {len(cells)} cells, of which {len(moved)} moved")
    print(summarize(moved).to_string())
    reporting.judge("median error", moved["predicted_error"].median(), at_most=MEDIAN)
    reporting.judge("share within 10 % or 5 s", moved["predicted_within"].mean(), at_least=WITHIN)
    error = overloaded["predicted_error"].median()
    reporting.judge(f"median error of overloaded queues ({len(overloaded)} cells)", error, at_most=OVERLOADED)
    print(f"of {len(still)} cells that did not move, {still['predicted_within'].mean():.1%} are within 10 % or 5 s")
    columns = ["seed", "kind", "of", "name", "percentile", "recorded_s", "outcome_s", "predicted_s", "moved"]
    print("misses:", cells.loc[~cells["predicted_within"], columns].round(0).to_string(index=False), sep="\n")


if __name__ == "__main__":
    reporting.run(main)
