"""How often explanations name the step that a sandbox made slower, or anything although nothing changed; their time.

Nothing else of the sandbox is left out: storms, broken branches and short queues count as no change.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import buildframe as bf
from buildframe import metrics
from buildframe.sandbox_server import SlowerStep
from tests.benchmarks import reporting
from tests.benchmarks.ledger import copies
from tests.benchmarks.reporting import Stopwatch

SEEDS = range(3000, 3050)
BUILDS = 15_000
AT_MOST = 3.0
DAY = pd.Timedelta(1, "D")
DAYS_BEFORE = 7
"""A single day is compared with at least as many days."""
OFTEN = 0.5
"""Share of the builds of a pipeline whose wall time depends on a step that is often on the critical chain."""
SIZES = (0.05, 0.1)
"""Contributions of slower steps as shares of the mean wall time, at which their counts are divided."""
MIN_BUILDS = 5
BY = ("pipeline", None)


class World(NamedTuple):
    seed: int
    ledger: pd.DataFrame
    slower: Sequence[SlowerStep]


class Found(NamedTuple):
    """Share of builds of its pipeline with a slower step on the critical chain, its size, and whether it comes first.

    `size` is its contribution as a share of the mean wall time before. Sizes are compared within its pipeline.
    """

    share: float
    size: float
    largest: bool
    largest_run: bool
    largest_notable: bool
    most_certain: bool
    most_certain_without_by: bool


def worlds(quick: bool) -> Iterator[World]:
    size: dict[str, Any] = {"builds": 400, "days": 14} if quick else {}
    for seed in SEEDS[:2] if quick else SEEDS:
        with bf.sandbox(seed=seed, **size) as ci:
            ledger = metrics.time_ledger(*ci.history(include_retried_jobs=True, progress=False))
            yield World(seed, ledger, ci.sandbox.truth.slower_steps)


def times_of(world: World) -> list[pd.Timestamp]:
    """Return when steps became slower, between the first and the last build."""
    created = world.ledger["build_created_at"]
    return [created.min(), *(pd.Timestamp(one.at) for one in world.slower), created.max() + pd.Timedelta(1, "us")]


def between(ledger: pd.DataFrame, start: pd.Timestamp, end: pd.Timestamp) -> pd.DataFrame:
    return ledger[(ledger["build_created_at"] >= start) & (ledger["build_created_at"] < end)]


def find_slower(world: World) -> Iterator[Found]:
    """Compare the builds from a change until the next one with those since the last one before."""
    times = times_of(world)
    for place, one in enumerate(world.slower):
        before, after = (between(world.ledger, *times[first : first + 2]) for first in (place, place + 1))
        own = [side[side["pipeline"] == one.pipeline] for side in (before, after)]
        rows = pd.concat(own)
        is_run = (rows["kind"] == "run") & (rows["step"] == one.step_key)
        by_size, key = metrics.explain(*own), ("run", one.pipeline, one.step_key)
        is_own = (by_size["kind"] == "run") & (by_size["step"] == one.step_key)
        yield Found(
            is_run.groupby(rows["build_id"]).any().mean(),
            by_size.loc[is_own, "change_s"].sum() / by_size.attrs["before_s"],
            first_of(by_size) == key,
            first_of(by_size[by_size["kind"] == "run"]) == key,
            first_of(by_size[by_size["notable"]]) == key,
            *(is_most_certain(before, after, key, by) for by in BY),
        )


def is_most_certain(before: pd.DataFrame, after: pd.DataFrame, key: tuple[str, ...], by: str | None) -> bool:
    return first_of(metrics.explain(before, after, by).sort_values("p", kind="stable")) == key


def first_of(rows: pd.DataFrame) -> tuple[str, ...]:
    return tuple(rows[["kind", "pipeline", "step"]].iloc[0]) if len(rows) else ()


def quiet(world: World) -> pd.DataFrame:
    """Return the segments of the longest time in which no step became slower."""
    times = times_of(world)
    start, end = max(itertools.pairwise(times), key=lambda pair: pair[1] - pair[0])
    return between(world.ledger, start, end)


def halves_of(ledger: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    created = ledger["build_created_at"]
    is_late = created >= created.min() + (created.max() - created.min()) / 2
    return ledger[~is_late], ledger[is_late]


def alarms(before: pd.DataFrame, after: pd.DataFrame) -> list[bool]:
    """Return whether any row is notable."""
    return [bool(metrics.explain(before, after, by)["notable"].any()) for by in BY]


def days_of(ledger: pd.DataFrame) -> Iterator[tuple[pd.DataFrame, pd.DataFrame]]:
    """Return the days before and the segments of each full day."""
    day = ledger["build_created_at"].dt.floor("D")
    for one in sorted(day.unique())[DAYS_BEFORE:-1]:
        yield ledger[day < one], ledger[day == one]


def double_a_step(ledger: pd.DataFrame, random: np.random.Generator) -> tuple[pd.DataFrame, tuple[str, ...]] | None:
    """Double the runs of a step that is often on the critical chain, unless no step is."""
    runs = ledger[ledger["kind"] == "run"]
    builds = runs.groupby(["pipeline", "step"])["build_id"].nunique()
    share = builds / ledger.groupby("pipeline")["build_id"].nunique()
    often = builds[(builds >= MIN_BUILDS) & (share >= OFTEN)].index
    if not len(often):
        return None
    pipeline, step = often[random.integers(len(often))]
    is_own = (ledger["kind"] == "run") & (ledger["pipeline"] == pipeline) & (ledger["step"] == step)
    return ledger.assign(duration_s=ledger["duration_s"] * np.where(is_own, 2, 1)), ("run", pipeline, step)


def show_speed(ledger: pd.DataFrame, runs: int) -> None:
    many = copies(ledger, -(-BUILDS // ledger["build_id"].nunique()), "build_id")
    many = many[many["build_id"].isin(many["build_id"].unique()[:BUILDS])]
    options: dict[str, dict[str, Any]] = {"all": {}, "by pipeline": {"by": "pipeline"}, "slowest tenth": {"tail": 0.1}}
    times = reporting.in_turn(runs, {name: partial(_timed, *halves_of(many), one) for name, one in options.items()})
    reporting.show_times(times)
    slowest = max(min(one.seconds for one in each) for each in times.values())
    what = f"explain, {many['build_id'].nunique():,} builds, {len(many):,} segments, seconds"
    reporting.judge(what, slowest, at_most=AT_MOST)


def _timed(before: pd.DataFrame, after: pd.DataFrame, options: dict[str, Any]) -> Stopwatch:
    watch = Stopwatch()
    with watch.running():
        metrics.explain(before, after, **options)
    return watch


def main(quick: bool) -> None:
    found: list[Found] = []
    halves: list[list[bool]] = []
    days: list[list[bool]] = []
    doubled: list[list[bool]] = []
    planting = 0
    for world in worlds(quick):
        planting += len(world.slower) > 0
        found += find_slower(world)
        unchanged, random = quiet(world), np.random.default_rng(world.seed)
        halves.append(alarms(*halves_of(unchanged)))
        for before, after in days_of(unchanged):
            days.append(alarms(before, after))
            if planted := double_a_step(after, random):
                doubled.append([is_most_certain(before, *planted, by) for by in BY])
    print(f"{len(halves)} worlds, {planting} with {len(found)} slower steps")
    for often in (True, False):
        own = [one for one in found if (one.share >= OFTEN) == often]
        print(
            f"on the critical chains of {'at least' if often else 'less than'} {OFTEN:.0%} of builds: {len(own)} steps"
        )
        for name, *each in zip(Found._fields[2:], *(one[2:] for one in own), strict=True):
            print(f"  {name}: {sum(each)}")
        for low, high in itertools.pairwise((-np.inf, *SIZES, np.inf)):
            sized = [one.largest for one in own if low <= one.size < high]
            print(f"  largest, adding {low:.0%} to {high:.0%} of the wall time: {sum(sized)} of {len(sized)}")
        print("  shares of builds:", *(f"{share:.2f}" for share in sorted(one.share for one in own)))
    for name, halves_by, days_by, doubled_by in zip(BY, *map(np.transpose, (halves, days, doubled)), strict=True):
        print("by", name)
        reporting.judge("  halves without a notable row", 1 - halves_by.mean(), at_least=0.9)
        reporting.judge(f"  days with a false notable row, of {len(days)}", days_by.mean(), at_most=0.15)
        reporting.judge(f"  days with a doubled step, of {len(doubled)}, most certain", doubled_by.mean(), at_least=0.7)
    show_speed(world.ledger, 2 if quick else 5)


if __name__ == "__main__":
    reporting.run(main)
