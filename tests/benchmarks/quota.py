"""List under a limit of 50 requests a window, scaled down in time: how late it ends, how many requests are refused."""

from __future__ import annotations

import math

from tests.benchmarks import reporting
from tests.benchmarks.listing import WORKERS, ours
from tests.benchmarks.reporting import median
from tests.benchmarks.server import Server, Settings
from tests.benchmarks.world import PAGE, World

QUOTA = 50


def ideal(requests: int, settings: Settings, workers: int) -> float:
    """Return the seconds that the limit requires: whole windows, then the other requests."""
    windows = math.ceil(requests / QUOTA)
    left = requests - (windows - 1) * QUOTA
    return (windows - 1) * settings.window + math.ceil(left / workers) * settings.latency


def measure(settings: Settings, workers: int, runs: int) -> None:
    """List several times, each from the beginning of a window."""
    needed = math.ceil(settings.world.builds / PAGE)
    watches, counted = [], []
    with Server(settings) as server:
        for _ in range(runs):
            server.begin()
            watches.append(ours(server, settings.world, workers))
            counted.append(server.counts())
    rounding = "up" if settings.rounds_up else "down"
    print(f"\n{workers} workers, the seconds until a window's end rounded {rounding}; {needed} requests needed")
    reporting.show_times({"buildframe": watches})
    worst = [max(result.refused) for result in counted]
    answered, refused = (
        [sum(counts) for counts in part] for part in zip(*(result[:2] for result in counted), strict=True)
    )
    reporting.show("times", {"answered": answered, "refused (429)": refused, "refused in the worst window": worst})
    dictated = ideal(needed, settings, workers)
    reporting.judge(f"time / the {dictated:.2f} s that the limit dictates", median(watches) / dictated, at_most=1.05)
    reporting.judge("429 in the worst window", max(worst), at_most=1)


def main(quick: bool) -> None:
    world, window, runs = (World(7_000, 0), 2.0, 1) if quick else (World(17_000, 0), 6.0, 5)
    print(f"{world.builds:,} builds without jobs, {QUOTA} requests in {window:g} s, each answered after 0.05 s")
    for workers, rounds_up in ((1, True), (WORKERS, True), (WORKERS, False)):
        settings = Settings(world, latency=0.05, quota=QUOTA, window=window, rounds_up=rounds_up)
        measure(settings, workers, runs)


if __name__ == "__main__":
    reporting.run(main)
