"""How well `flake_score` agrees with the true rates of simulated steps: coverage and Brier scores per world."""

from __future__ import annotations

from typing import Any

import numpy as np

from buildframe import metrics
from tests.benchmarks import reporting
from tests.metrics.simulated_flakes import calibrate, simulate

WORLDS: dict[str, dict[str, Any]] = {
    "retried once": {},
    "retried twice": {"retries": 2},
    "half retried": {"retried": 0.5},
    "often broken, 30 % retried": {"retried": 0.3, "broken": 0.3},
    "planned, 3 runs": {"runs": 3, "retries": 0},
    "people retry what is random": {"retried": 0.9, "prefers": 0.1, "broken": 0.2},
}
KINDS = ("few", "all", "alike", "wide")
THRESHOLD = 0.01
SEEDS = range(100, 150)


def main(quick: bool) -> None:
    print(f"{'world':34} {'rates':6} {'coverage':>8} {'width':>8} {'score':>8} {'raw':>8} {'Wilson':>8}")
    for world, settings in WORLDS.items():
        for kind in KINDS:
            results = []
            for seed in SEEDS[:2] if quick else SEEDS:
                jobs, rates = simulate(seed, kind, **settings)
                results.append(calibrate(metrics.flake_score(jobs), rates, metrics.flips(jobs), THRESHOLD))
            cells = " ".join(f"{value:8.3f}" for value in np.mean(results, axis=0))
            print(f"{world:34} {kind:6} {cells}", flush=True)
    print("coverage, width: of 90 % intervals; score, raw, Wilson: Brier scores of a rate above 1 %, lower is better")
    print("rates: `few` steps fail at random, or `all` do, `alike`, or `wide` from 0.003 to 10 %")


if __name__ == "__main__":
    reporting.run(main)
