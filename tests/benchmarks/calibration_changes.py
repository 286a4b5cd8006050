"""How often comparisons and change points are right: their intervals, and what they find or report by mistake."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.columns import Floats, Integers
from buildframe.metrics.comparison import newcombe
from tests.benchmarks import change_points
from tests.benchmarks.calibration_cells import SEED, Cell, Table, mark
from tests.benchmarks.change_points import Series
from tests.metrics.simulated_worlds import (
    DAY,
    DURATIONS,
    STAMP,
    Coverage,
    DurationWorld,
    as_builds,
    as_timestamps,
    coverage,
    days_that_correlate,
    lognormal,
    order_statistics,
    outcomes,
)

# --- comparisons


GROUPS = 8
PERIODS = ((28, 28), (7, 7), (1, 28))
"""Days of the later and the earlier period."""
COMPARED = {
    **{name: DURATIONS[name] for name in ("independent", "autocorrelated within a day", "days that differ")},
    **{
        f"days that correlate by {correlation:g}": DurationWorld(
            lambda *given, own=correlation: days_that_correlate(*given, own), lognormal
        )
        for correlation in (0.3, 0.6)
    },
}


class Compared(NamedTuple):
    """Results of a comparison of groups, of which the first changed or none: the change, and its interval."""

    truth: float
    low: Floats
    high: Floats
    p: Floats
    notable: Floats
    naive: Sequence[Floats]


def show_comparisons(n: int) -> Table:
    yield (
        "comparison", "days", "coverage / naive / missing", "p < .05", "tables with a false `notable`", "change found",
    )  # fmt: skip
    cases: dict[str, Callable[..., Compared]] = {}
    for name, world in COMPARED.items():
        cases[f"percentile_change: {name}; 50 % slower"] = lambda *given, own=world: compare_medians(own, *given)
    for correlation in (0.0, 0.1):
        cases[f"build_success_change: correlation {correlation:g}; 88 % to 68 %"] = lambda *given, own=correlation: (
            compare_successes(own, *given)
        )
    for (name, compare), days in itertools.product(cases.items(), PERIODS):
        same = [compare(np.random.default_rng(SEED + seed), days, False) for seed in range(max(2, n // 2))]
        changed = [compare(np.random.default_rng(SEED + seed), days, True) for seed in range(max(2, n // 2))]
        low, high, p = (np.concatenate([getattr(own, end) for own in same]) for end in ("low", "high", "p"))
        naive = coverage(*(np.concatenate([own.naive[i] for own in same]) for i in range(2)), 0.0)
        alarms, tables = float((p < 0.05).mean()), float(np.mean([own.notable.any() for own in same]))
        found = float(np.mean([own.notable[0] for own in changed]))
        cell = Cell(coverage(low, high, 0.0), naive.covered, 0.92)
        yield (
            name, f"{days[0]} against {days[1]}", cell.text(), mark(alarms, alarms > 0.08), mark(tables, tables > 0.08),
            f"{found:.2f}",
        )  # fmt: skip


def compare_medians(world: DurationWorld, random: np.random.Generator, days: tuple[int, int], change: bool) -> Compared:
    frames, seconds = [], []
    for is_now, length in zip((True, False), days, strict=True):
        times, durations = world.draw(random, GROUPS, 20, length)
        durations = durations * np.where(np.arange(GROUPS) == 0, 1.5 if change and is_now else 1, 1)[:, None]
        group = np.repeat(np.arange(GROUPS), times.shape[1])
        at = as_timestamps(times + DAY * 28 * is_now)
        frames.append(pd.DataFrame({"group": group, "created_at": at, "x_s": durations.ravel()}))
        seconds.append(durations)
    found = metrics.percentile_change(*frames[::-1], "x_s", "group")
    (low, high), (low_before, high_before) = (order_statistics(own, 0.5) for own in seconds)
    value, before = (np.median(own, axis=1) for own in seconds)
    naive = (
        value - before - np.hypot(value - low, high_before - before),
        value - before + np.hypot(high - value, before - low_before),
    )
    columns = found[[f"p50_{end}" for end in ("change_low_s", "change_high_s", "change_p", "notable")]]
    return Compared(0.0, *columns.to_numpy(np.float64, na_value=np.nan).T, naive)


def compare_successes(correlation: float, random: np.random.Generator, days: tuple[int, int], change: bool) -> Compared:
    frames = []
    for is_now, length in zip((True, False), days, strict=True):
        rows = outcomes(random, GROUPS, 0.88, correlation, length)
        fallen = outcomes(random, 1, 0.68, correlation, length)
        rows = pd.concat([fallen, rows[rows["world"] > 0]], ignore_index=True) if change and is_now else rows
        frames.append(as_builds(rows).assign(created_at=(rows["at"] + pd.Timedelta(28 * is_now, "D")).astype(STAMP)))
    found = metrics.build_success_change(*frames[::-1], "world")
    _, *naive = newcombe(found["passed"], found["n"], found["passed_before"], found["n_before"])
    columns = found[["low", "high", "p", "notable"]].to_numpy(np.float64, na_value=np.nan)
    return Compared(0.0, *columns.T, naive)


# --- change points


def show_change_points(n: int) -> Table:
    yield "world", "with a change", "all within 3 days", "target"
    for name, world in change_points.WORLDS.items():
        shares = change_points.evaluate(world, change_points.search_ours(world, change_points.create_series(world, n)))
        target = change_points.TARGETS.get(name, change_points.Target())
        is_missed = shares.found > (target.alarms or 1) or shares.found < (target.found or 0)
        near = "" if shares.near is None else mark(shares.near, shares.near < (target.near or 0))
        bounds = (("at most ", target.alarms), ("", target.found), ("near ", target.near))
        text = ", ".join(f"{which}{bound:g}" for which, bound in bounds if bound is not None)
        yield name, mark(shares.found, is_missed), near, text


# --- intervals of change points


INTERVALS = {
    **{name: world for name, world in change_points.WORLDS.items() if world.at},
    "25 % slower, days correlate by .6": change_points.World(0.25, (30,), correlation=0.6),
    "25 % slower, weekly rhythm": change_points.World(0.25, (30,), weekly=0.1),
    "25 % slower, 3 builds a day": change_points.World(0.25, (30,), builds=3),
    "50 % slower": change_points.World(0.5, (30,)),
    "failures 10 % to 25 %, days differ": change_points.World(rates=(0.1, 0.25), at=(30,), alike=0.1),
    "failures 10 % to 40 %": change_points.World(rates=(0.1, 0.4), at=(30,)),
    "failures 10 % to 40 %, days differ": change_points.World(rates=(0.1, 0.4), at=(30,), alike=0.1),
}


class Intervals(NamedTuple):
    """Of planted changes: the share that is found, and how often intervals of these contain their place and size."""

    found: float
    place: Coverage
    length: float
    size: Coverage
    naive: float

    def cells(self, least: float) -> tuple[str, ...]:
        place = mark(self.place.covered, self.place.covered < least)
        return f"{self.found:.2f}", place, f"{self.length:.1f}", Cell(self.size, self.naive, least).text()


LEAST = 0.88
NEAR = 10
"""Days or commits from a planted change within which a found one is taken for it."""


def show_change_intervals(n: int) -> Table:
    """Of changes that were found within ten days of a planted one."""
    yield "world", "found", "time", "mean length in days", "size", "target"
    for name, world in INTERVALS.items():
        series = change_points.create_series(world, n)
        changes = change_points.find_ours(world, series)
        days = {column: (changes[column] - change_points.START).dt.days for column in ("at", "at_low", "at_high")}
        planted = [(place, world.size * (-1) ** i) for i, place in enumerate(world.at)]
        shares = measure_intervals(changes.assign(**days), series, planted, "p50" if world.rates is None else "rate")
        yield name, *shares.cells(LEAST), f"{LEAST:g}"


def show_commits(n: int) -> Table:
    """Of changes that were found within ten commits of a planted one; without a planted one, any is found."""
    yield "world", "with a change", "commit", "mean length in commits", "size", "target"
    for name, world in COMMITS.items():
        series = [world.create(np.random.default_rng(seed)) for seed in range(n)]
        changes = find_in_commits(series)
        found = changes["series"].nunique() / n
        if not world.at:
            yield name, mark(found, found > 0.05), "", "", "", "at most 0.05"
            continue
        planted = [(place, (world.rates[1] - world.rates[0]) * (-1) ** i) for i, place in enumerate(world.at)]
        yield name, *measure_intervals(changes, series, planted, "rate").cells(LEAST), f"{LEAST:g}"


class Commits(NamedTuple):
    """A history of commits with some runs each: failures have the other rate after each change; `alike` of a commit."""

    rates: tuple[float, float]
    at: tuple[int, ...] = (20,)
    alike: float = 0.0
    commits: int = 40
    runs: int = 3

    def create(self, random: np.random.Generator) -> Series:
        """Return the commit of each run, and whether it failed."""
        number = np.arange(self.commits)
        rate = np.array(self.rates)[np.searchsorted(self.at, number, side="right") % 2]
        commit = np.repeat(number, self.runs)
        own = change_points.vary(random, rate, self.alike)
        return commit, (random.random(len(commit)) < own[commit]).astype(np.float64)


COMMITS = {
    "nothing, failures 5 %": Commits((0.05, 0.05), ()),
    "nothing, failures 30 %": Commits((0.3, 0.3), ()),
    "nothing, failures 30 %, runs of a commit alike (.3)": Commits((0.3, 0.3), (), 0.3),
    "failures 5 to 60 %": Commits((0.05, 0.6)),
    "failures 5 to 60 %, one run each": Commits((0.05, 0.6), runs=1),
    "failures 5 to 60 %, runs of a commit alike (.3)": Commits((0.05, 0.6), alike=0.3),
    "failures 2 to 98 %, 12 commits of 2 runs": Commits((0.02, 0.98), (6,), commits=12, runs=2),
    "failures 10 to 40 %": Commits((0.1, 0.4)),
    "failures 10 to 40 %, 10 runs each": Commits((0.1, 0.4), runs=10),
    "failures 10 to 40 %, 10 runs each, alike (.1)": Commits((0.1, 0.4), alike=0.1, runs=10),
    "failures 5 to 60 % and back": Commits((0.05, 0.6), (20, 40), commits=60),
}


def find_in_commits(series: Sequence[Series]) -> pd.DataFrame:
    """Search all series as groups of one frame; places are numbers of commits."""
    frame = change_points.as_frame(series)
    minute = pd.Timedelta("1min")
    frame["created_at"] = change_points.START + frame["unit"] * minute
    frame = frame.assign(state=change_points.as_states(frame["value"]), commit=frame["unit"].astype("str"))
    changes = metrics.change_points(frame, metrics.failed, "series", unit="commit")
    changes = changes.rename(columns={"commits_before": "days_before", "commits_after": "days_after"})
    numbers = {name: (changes[name] - change_points.START) // minute for name in ("at", "at_low", "at_high")}
    return changes.assign(**numbers)


def measure_intervals(
    changes: pd.DataFrame, series: Sequence[Series], planted: Sequence[tuple[int, float]], kind: str
) -> Intervals:
    """Compare each planted change, a place and a size, with the nearest found one."""
    suffix = "_s" if kind == "p50" else ""
    low, high = f"{kind}_change_low{suffix}", f"{kind}_change_high{suffix}"
    each = []
    for place, size in planted:
        near = changes.assign(away=(changes["at"] - place).abs(), place=place, size=size)
        near = near[near["away"] <= NEAR].sort_values("away", kind="stable").drop_duplicates("series")
        each.append(near)
    found = pd.concat(each)
    naive = np.reshape([_naive_size(*series[row["series"]], row, kind) for row in found.to_dict("records")], (-1, 2))
    is_inside = (found["at_low"] <= found["place"]) & (found["place"] <= found["at_high"])
    inside, known = (found[low] <= found["size"]) & (found["size"] <= found[high]), found[low].notna()
    return Intervals(
        len(found) / len(series) / len(planted),
        Coverage(float(is_inside.mean()), 0.0),
        float((found["at_high"] - found["at_low"]).mean()),
        Coverage(float(inside[known].mean()), 1 - float(known.mean())),
        float(((naive[:, 0] <= found["size"]) & (found["size"] <= naive[:, 1])).mean()),
    )


def _naive_size(unit: Integers, value: Floats, change: Mapping[str, Any], kind: str) -> tuple[float, float]:
    """Return the ends of an interval of the change that takes rows for independent, between the same neighbors."""
    at, before, after = (int(change[name]) for name in ("at", "days_before", "days_after"))
    sides = [value[(unit >= start) & (unit < stop)] for start, stop in ((at - before, at), (at, at + after))]
    if kind == "rate":
        counts = [count for own in reversed(sides) for count in (own.sum(), len(own))]
        _, low, high = newcombe(*counts)
        return float(low), float(high)
    (low_before, high_before), (low_after, high_after) = (order_statistics(own[None], 0.5) for own in sides)
    earlier, later = (np.median(own) for own in sides)
    change = later - earlier
    below, above = (
        np.hypot(later - low_after, high_before - earlier),
        np.hypot(high_after - later, earlier - low_before),
    )
    return float((change - below)[0]), float((change + above)[0])
