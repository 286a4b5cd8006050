"""Runs of the simulation: `python -m tests.simulation listings --count 10000`; `--seed 123 listings` replays one."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.simulation import listings, syncs
from tests.simulation.scheduler import Stuck

_MOST_SHOWN = 30
SUBJECTS: dict[str, tuple[Callable[[int], object], Callable[..., listings.Ran]]] = {
    "listings": (listings.Plan.of, listings.run),
    "loopback": (listings.Plan.of, listings.run_on_loopback),
    "syncs": (syncs.Plan.of, syncs.run),
}
"""How to plan and how to run a seed."""


def replay(subject: str, seed: int) -> bool:
    """Run one seed and print all that happened; whether it held."""
    plan, run = SUBJECTS[subject]
    print(plan(seed))
    ran = None
    try:
        ran = run(seed, show=print)
    except (Exception, Stuck):
        traceback.print_exc()
    print("held" if ran else "BROKEN", ran or "")
    return ran is not None


def many(subject: str, seeds: Iterable[int], stop_after: float | None = None) -> tuple[Counter[str], dict[int, str]]:
    """Run seeds until a time is over: how they ended, and what was broken by which."""
    ended: Counter[str] = Counter()
    broken: dict[int, str] = {}
    began = time.monotonic()
    for seed in seeds:
        if stop_after is not None and time.monotonic() - began > stop_after:
            break
        try:
            ran = SUBJECTS[subject][1](seed)
        except (Exception, Stuck) as why:
            replays = f"python -m tests.simulation {subject} --seed {seed}"
            broken[seed] = f"{type(why).__name__}: {str(why)[:300]}\n  {replays}"
        else:
            ended[ran.outcome] += 1
            ended.update({f"syncs {name}": count for name, count in ran.syncs.items()})
            ended["(requests)"] += ran.requests
            ended["(faults)"] += sum(ran.happened.values())
    return ended, broken


def shared(subject: str, seeds: range, stop_after: float | None, workers: int) -> tuple[Counter[str], dict[int, str]]:
    """The same in several processes, each with every n-th seed."""
    shares = [seeds[worker::workers] for worker in range(workers)]
    with ProcessPoolExecutor(workers, multiprocessing.get_context("fork")) as pool:
        results = list(pool.map(partial(_share, subject, stop_after), range(workers), shares))
    ended: Counter[str] = sum((part for part, _ in results), Counter())
    return ended, {seed: what for _, part in results for seed, what in part.items()}


def _share(subject: str, stop_after: float | None, worker: int, seeds: range) -> tuple[Counter[str], dict[int, str]]:
    """Run the seeds of one worker, on one core if their threads take turns: handing over is then cheaper."""
    if subject != "loopback" and hasattr(os, "sched_setaffinity"):
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[-1 - worker % len(cores)]})
    return many(subject, seeds, stop_after)


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("subject", choices=SUBJECTS)
    parser.add_argument("--seed", type=int, help="replay this one, and print what happened")
    parser.add_argument("--count", type=int, default=1000, help="run so many seeds (1000)")
    parser.add_argument("--first", type=int, default=0, help="the first of them (0)")
    parser.add_argument("--seconds", type=float, help="stop after this time")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (one for each core)")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return 0 if replay(arguments.subject, arguments.seed) else 1
    began = time.monotonic()
    seeds = range(arguments.first, arguments.first + arguments.count)
    ended, broken = shared(arguments.subject, seeds, arguments.seconds, arguments.workers)
    runs = sum(count for name, count in ended.items() if not name.startswith(("(", "syncs "))) + len(broken)
    seconds = time.monotonic() - began
    print(f"{runs} {arguments.subject} from seed {arguments.first} in {seconds:.0f} s: {len(broken)} broken")
    for name, count in sorted(ended.items()):
        print(f"  {name:<28} {count:>8}")
    for seed in sorted(broken)[:_MOST_SHOWN]:
        print(broken[seed])
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
