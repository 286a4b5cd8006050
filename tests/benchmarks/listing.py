"""List builds over HTTP with half a second per page: this library with 8 workers, and pybuildkite's loop over pages."""

from __future__ import annotations

import datetime as dt
import itertools
import math
from collections.abc import Iterator
from typing import Any

from pybuildkite.buildkite import Buildkite

import buildframe as bf
from tests.benchmarks import reporting
from tests.benchmarks.reporting import Stopwatch, median
from tests.benchmarks.server import Server, Settings
from tests.benchmarks.world import DAYS, END, PAGE, Rhythm, World

WORKERS = 8
_TOKENS = (f"an-invented-token-{n}" for n in itertools.count())  # a new one each: what was learnt of limits goes by it


def ours(server: Server, world: World, workers: int, **window: dt.date) -> Stopwatch:
    """Both frames; just that of the builds where they have no jobs."""
    watch = Stopwatch()
    with bf.connect("acme", base_url=server.url, token=next(_TOKENS)) as ci, watch.running():
        if world.jobs:
            builds, jobs = ci.history(workers=workers, **window)
            assert len(jobs) == world.builds * world.jobs
        else:
            builds = ci.builds(workers=workers, **window)
    assert builds["id"].nunique() == len(builds) == world.builds
    return watch


def theirs(server: Server, world: World) -> Stopwatch:
    """pybuildkite's loop as its README shows it; what it has then are lists of dicts, no frames."""
    watch = Stopwatch()
    client = Buildkite(per_page=PAGE)
    client.base_url = f"{server.url}/v2/"
    client.set_access_token(next(_TOKENS))
    with watch.running():
        builds = [build for page in _pages(client) for build in page]
    assert len(builds) == world.builds
    assert sum(len(build["jobs"]) for build in builds) == world.builds * world.jobs
    return watch


def _pages(client: Buildkite) -> Iterator[list[dict[str, Any]]]:
    page = 1
    while page:
        answer = client.builds().list_all_for_org("acme", page=page, with_pagination=True, include_retried_jobs=True)
        yield answer.body
        page = answer.next_page


def compare(world: World, latency: float, runs: int) -> None:
    """Both, run after run in turn, compared with the least time that so many workers need."""
    pages = math.ceil(world.builds / PAGE)
    ideal = pages * latency / WORKERS
    print(f"\n{world.builds:,} builds with {world.jobs} jobs each, {world.rhythm}; ideal {ideal:.2f} s")
    with Server(Settings(world, latency=latency)) as server:
        server.begin()
        candidates = {
            "buildframe, 30 days": lambda: ours(server, world, WORKERS, created_from=END - dt.timedelta(DAYS)),
            "buildframe, all": lambda: ours(server, world, WORKERS),
            "pybuildkite": lambda: theirs(server, world),
        }
        measured = reporting.in_turn(runs, candidates)
        result = server.counts()
    reporting.show_times(measured)
    requests = (sum(result.answered) / runs - pages) / (len(candidates) - 1)
    print(f"requests a run: buildframe {requests:.1f}, pybuildkite {pages}")
    print(f"CPU of the server for all: {result.cpu / runs:.2f} s a run")
    *mine, (_, peer) = ((name, median(times)) for name, times in measured.items())
    for name, seconds in mine:
        reporting.judge(f"pybuildkite / {name}", peer / seconds, at_least=7.5)
        reporting.judge(f"{name} / ideal", seconds / ideal, at_most=1.2 if world.jobs else 1.15)


def main(quick: bool) -> None:
    latency, runs = (0.05, 2) if quick else (0.5, 5)
    cases: list[tuple[int, Rhythm]] = [(30, "weekly"), (0, "weekly"), (0, "even")]
    for jobs, rhythm in cases:
        world = World(1_000 if quick else 10_000, jobs, rhythm)
        compare(world, latency, runs)


if __name__ == "__main__":
    reporting.run(main)
