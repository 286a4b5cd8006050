"""Compare searches of changes on simulated days: false alarms, detections and time, for each world.

Worlds have 60 days of 8 builds, whose log durations vary by .25 within a day and by .1 between days. The peers are
Pettitt's test, and PELT and a kernel search of `ruptures` (install it to include these), each with two penalties.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.columns import Floats, Integers
from tests.benchmarks import reporting

START = pd.Timestamp("2026-03-01", tz="UTC")
Series = tuple[Integers, Floats]
"""The day of each build, or the commit of each run, and its duration or whether it failed."""
NEAR = 3
"""Days by which a change may be off."""


class World(NamedTuple):
    """
    Days of a series: `step` is the share by which durations change at each of `at`, back and forth.

    With `rates`, failures change instead; `alike` is their correlation within a day.
    """

    step: float = 0.0
    at: tuple[int, ...] = ()
    days: int = 60
    builds: int = 8
    correlation: float = 0.0
    weekly: float = 0.0
    outage: int | None = None
    rates: tuple[float, float] | None = None
    alike: float = 0.0

    @property
    def size(self) -> float:
        """The first change, of the median in seconds or of the rate."""
        return 600 * self.step if self.rates is None else self.rates[1] - self.rates[0]

    def create(self, random: np.random.Generator) -> Series:
        """Return the days and values."""
        number = np.arange(self.days)
        is_changed = np.searchsorted(self.at, number, side="right") % 2 == 1
        day = np.repeat(number, self.builds)
        if self.rates is not None:
            rate = vary(random, np.where(is_changed, self.rates[1], self.rates[0]), self.alike)
            return day, (random.random(len(day)) < rate[day]).astype(float)
        level, effect = np.zeros(self.days), 0.1 * random.standard_normal(self.days)
        for i in number:
            level[i] = self.correlation * level[i - 1] * (i > 0) + effect[i]
        level += self.weekly * np.sin(2 * np.pi * number / 7) + np.log1p(self.step) * is_changed
        if self.outage is not None:
            level[self.outage] += 1
        return day, 600 * np.exp(level[day] + 0.25 * random.standard_normal(len(day)))


def vary(random: np.random.Generator, rate: Floats, alike: float) -> Floats:
    """Draw a rate for each day or commit, so that outcomes of one have this correlation."""
    return random.beta(rate * (1 / alike - 1), (1 - rate) * (1 / alike - 1)) if alike else rate


class Target(NamedTuple):
    """The share of series that may have a change, or of those that should have one, and have all within three days."""

    alarms: float | None = None
    found: float | None = None
    near: float | None = None


ALARMS = Target(alarms=0.06)
TARGETS = {
    "nothing": ALARMS,
    "nothing, 365 days": ALARMS,
    "nothing, a day of outage": ALARMS,
    "nothing, weekly rhythm": ALARMS,
    "20 % slower": Target(found=0.95, near=0.78),
    "25 % slower": Target(near=0.9),
    "30 % slower for 20 days": Target(near=0.88),
    "50 % slower for 7 days": Target(found=0.9),
    "50 % slower for the last 4 days": Target(found=0.9),
    "failures 10 % to 25 %": Target(found=0.7),
}
WORLDS = {
    "nothing": World(),
    "nothing, 365 days": World(days=365),
    "nothing, a day of outage": World(outage=20),
    "nothing, weekly rhythm": World(weekly=0.1),
    "nothing, days correlate by .3": World(correlation=0.3),
    "nothing, days correlate by .6": World(correlation=0.6),
    "20 % slower": World(0.2, (30,)),
    "25 % slower": World(0.25, (30,)),
    "25 % slower, days correlate by .3": World(0.25, (30,), correlation=0.3),
    "30 % slower for 20 days": World(0.3, (20, 40)),
    "50 % slower for 7 days": World(0.5, (30, 37)),
    "50 % slower for the last 4 days": World(0.5, (56,)),
    "failures 10 %": World(rates=(0.1, 0.1)),
    "failures 10 % to 25 %": World(rates=(0.1, 0.25), at=(30,)),
}


def as_frame(series: Sequence[Series]) -> pd.DataFrame:
    group = np.repeat(np.arange(len(series)), [len(unit) for unit, _ in series])
    unit, value = (np.concatenate(each) for each in zip(*series, strict=True))
    return pd.DataFrame({"series": group, "unit": unit, "value": value})


def as_states(value: pd.Series) -> pd.Series:
    return pd.Series(np.where(value == 1, "failed", "passed"), dtype="str")


def find_ours(world: World, series: Sequence[Series]) -> pd.DataFrame:
    """Search all series as groups of one frame."""
    frame = as_frame(series)
    frame["created_at"] = START + pd.to_timedelta(frame["unit"], unit="D")
    if world.rates is None:
        return metrics.change_points(frame.assign(x_s=frame["value"]), "x_s", "series")
    return metrics.change_points(frame.assign(state=as_states(frame["value"])), metrics.failed, "series")


def search_ours(world: World, series: Sequence[Series]) -> list[list[int]]:
    """Return the days of the changes of each series."""
    changes = find_ours(world, series)
    days = (changes["at"] - START).dt.days
    return [days[changes["series"] == own].tolist() for own in range(len(series))]


def pettitt(value: Floats) -> tuple[int, float]:
    """Return the clearest change and its p-value (Pettitt, A. N. (1979). Applied Statistics 28, 126-135)."""
    sums = np.sign(np.subtract.outer(value, value)).sum(axis=1).cumsum()[:-1]
    place, n = int(np.abs(sums).argmax()), len(value)
    return place + 1, min(1.0, 2 * float(np.exp(-6 * sums[place] ** 2 / (n**3 + n**2))))


def search_rows_by_pettitt(day: Integers, value: Floats) -> list[int]:
    """Test rows as if they did not depend on each other."""
    place, p = pettitt(value)
    return [int(day[place])] if p < 0.05 else []


def search_days_by_pettitt(day: Integers, value: Floats) -> list[int]:
    """Test medians of days."""
    place, p = pettitt(summarize_days(day, value))
    return [place] if p < 0.05 else []


def summarize_days(day: Integers, value: Floats) -> Floats:
    """Return the median of each day, or the rate of failures."""
    days = pd.Series(value).groupby(day)
    return (days.mean() if value.max() <= 1 else days.median()).to_numpy(np.float64)


def standardize(days: Floats) -> Floats:
    """Return logarithms of days in units of their noise, which differences of neighbors show."""
    values = np.log(days) if days.min() > 1 else np.arcsin(np.sqrt(days))
    noise = np.median(np.abs(np.diff(values) - np.median(np.diff(values)))) * 1.4826 / np.sqrt(2)
    return values / max(noise, 1e-9)


def ruptures_peers() -> dict[str, Callable[[Integers, Floats], list[int]]]:
    """Return searches of ruptures with different penalties; none if it is not installed."""
    try:
        import ruptures
    except ImportError:
        return {}

    def with_kernel(kernel: str, penalty: float) -> Callable[[Integers, Floats], list[int]]:
        def search(day: Integers, value: Floats) -> list[int]:
            days = standardize(summarize_days(day, value))
            model: Any = ruptures.KernelCPD(kernel=kernel, min_size=2).fit(days.reshape(-1, 1))
            return [int(at) for at in model.predict(pen=penalty * np.log(len(days)))[:-1]]

        return search

    return {
        "PELT, 3 log n": with_kernel("linear", 3),  # the same as `Pelt(model="l2", jump=1)`, compiled
        "PELT, 6 log n": with_kernel("linear", 6),
        "kernel, 0.5 log n": with_kernel("rbf", 0.5),
        "kernel, 1 log n": with_kernel("rbf", 1),
    }


class Shares(NamedTuple):
    """The share of series with a change, and of those in which all planted ones were found within three days."""

    found: float
    near: float | None

    def text(self) -> str:
        return f"{self.found:.2f}" if self.near is None else f"{self.found:.2f}, {self.near:.2f}"


def evaluate(world: World, found: Sequence[Sequence[int]]) -> Shares:
    share = float(np.mean([bool(own) for own in found]))
    if not world.at:
        return Shares(share, None)
    near = [all(any(abs(at - own) <= NEAR for own in changes) for at in world.at) for changes in found]
    return Shares(share, float(np.mean(near)))


def create_series(world: World, n: int) -> list[Series]:
    return [world.create(np.random.default_rng(seed)) for seed in range(n)]


def time_groups(n: int, n_changed: int) -> None:
    """Print how long one call takes for many groups, of which few changed."""
    worlds = [World(0.5, (30,))] * n_changed + [World()] * (n - n_changed)
    series = [world.create(np.random.default_rng(seed)) for seed, world in enumerate(worlds)]
    frame = as_frame(series)
    frame = frame.assign(created_at=START + pd.to_timedelta(frame["unit"], unit="D"), x_s=frame["value"])
    watch = reporting.Stopwatch()
    with watch.running():
        changes = metrics.change_points(frame, "x_s", "series")
    for name, rows in (("found", changes), ("notable", changes[changes["notable"]])):
        own = rows["series"].unique()
        print(f"{name}: {(own < n_changed).sum()} of {n_changed} changed, {(own >= n_changed).sum()} of the others")
    print(f"{n:,} groups of 60 days: {watch.seconds:.1f} s, {watch.cpu:.1f} s of CPU")


def main(n_series: int) -> None:
    """Print a table of worlds and searches, and the time of many groups."""
    peers = {"Pettitt, rows": search_rows_by_pettitt, "Pettitt, days": search_days_by_pettitt, **ruptures_peers()}
    print(reporting.machine())
    print(f"{n_series} series, or as many days; share with a change, and with all changes found within {NEAR} days")
    print("| world | change_points |", " | ".join(peers), "|")
    print("| --- |", " | ".join("---" for _ in range(len(peers) + 1)), "|")
    seconds = dict.fromkeys(["change_points", *peers], 0.0)
    for name, world in WORLDS.items():
        series = create_series(world, max(1, n_series * 60 // world.days))
        cells, begin = [], time.process_time()
        cells.append(evaluate(world, search_ours(world, series)).text())
        seconds["change_points"] += time.process_time() - begin
        for peer, search in peers.items():
            begin = time.process_time()
            cells.append(evaluate(world, [search(*own) for own in series]).text())
            seconds[peer] += time.process_time() - begin
        print(f"| {name} |", " | ".join(cells), "|", flush=True)
    each = (f"{1000 * spent / n_series / len(WORLDS):.1f}" for spent in seconds.values())
    print("| CPU ms per series |", " | ".join(each), "|")
    time_groups(5 * n_series, n_series // 4)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--series", type=int, default=200, help="simulated series per world")
    parser.add_argument("--quick", action="store_true", help="only check that it works")
    options = parser.parse_args()
    main(4 if options.quick else options.series)
