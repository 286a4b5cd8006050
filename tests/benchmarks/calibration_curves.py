"""How often the intervals of survival curves and of buckets of time contain the truth, in simulated worlds."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import CensoredData, ecdf

from buildframe import metrics
from buildframe.metrics.columns import Floats
from buildframe.metrics.rates import wilson
from tests.benchmarks.calibration_cells import SEED, Cell, Table
from tests.metrics.simulated_worlds import (
    DAY,
    DURATIONS,
    STAMP,
    Draw,
    DurationWorld,
    as_builds,
    as_waits,
    censor,
    coverage,
    days_that_differ,
    independent,
    lognormal,
    of_queue,
    order_statistics,
    outcomes,
    queue,
    within_days,
)

QUEUE = "queue (M/M/3, load .83)"


# --- survival curves


SHARES = (0.5, 0.1)


def show_survival(n: int) -> Table:
    """At the points nearest to the durations that half of the rows, and a tenth of them, exceed."""
    yield "world", *(f"share {share:g}" for share in SHARES), "target"
    for (name, world), censored in itertools.product(DURATIONS.items(), (0.0, 0.1)):
        random = np.random.default_rng(SEED)
        times, durations = world.draw(random, n)
        limits = censor(random, durations, censored)
        curves = metrics.survival(as_waits(times, durations, limits), by="world")
        least = (0.88, 0.7) if name == QUEUE else (0.92, 0.92)
        texts = []
        for share, target in zip(SHARES, least, strict=True):
            points = _nearest_points(curves, world.percentile(1 - share))
            after = points["after_s"].to_numpy(np.float64)
            truth = share_lasting(world, after)
            naive = coverage(*_greenwood(durations, limits, after), truth)
            ours = coverage(points["low"], points["high"], truth)
            texts.append(Cell(ours, naive.covered, target).text())
        yield name + ", censored" * (censored > 0), *texts, f"{least[0]:g}, {least[1]:g}"


def _nearest_points(curves: pd.DataFrame, seconds: float) -> pd.DataFrame:
    order = (curves["after_s"] - seconds).abs().sort_values(kind="stable").index
    return curves.loc[order].drop_duplicates("world").sort_values("world")


def share_lasting(world: DurationWorld, seconds: Floats) -> Floats:
    """Return the true shares of rows that last at least so long."""
    shares = np.linspace(0.999, 0.001, 1999)
    durations = [world.percentile(1 - share) for share in shares]
    return shares[np.searchsorted(durations, seconds)]


def _greenwood(durations: Floats, limits: Floats, after: Floats) -> Draw:
    """Return the ends of Kaplan and Meier's intervals for independent rows, world by world."""
    ends = []
    warnings.simplefilter("ignore", RuntimeWarning)  # of shares of 0 and 1, which have no interval
    for own, seen, seconds in zip(durations, limits, after, strict=True):
        sample = CensoredData(uncensored=own[own <= seen], right=seen[own > seen])
        both = ecdf(sample).sf.confidence_interval(method="log-log")
        ends.append([end.evaluate(np.nextafter(seconds, 0)) for end in both])
    low, high = np.array(ends, np.float64).T
    return low, high


# --- buckets of time


class Buckets(NamedTuple):
    """Durations of many buckets, each of which is a world of its own: as long as `days`, which `freq` names."""

    draw: Callable[[np.random.Generator, int], Draw]
    percentile: Callable[[float], float]
    days: int
    freq: str
    least: tuple[float, float] = (0.92, 0.92)


def _queue_of_a_day(random: np.random.Generator, worlds: int) -> Draw:
    times, waits = queue(random, worlds)
    return (times - times[:, :1]) / (times[:, -1:] - times[:, :1]) * 0.99 * DAY, waits


BUCKETS: Mapping[str, Buckets] = {
    "a day of 20, independent": Buckets(lambda *given: independent(*given, 20, 1), lognormal, 1, "1D"),
    "a day of 100, independent": Buckets(lambda *given: independent(*given, 100, 1), lognormal, 1, "1D"),
    "a day of 100, autocorrelated": Buckets(lambda *given: within_days(*given, 100, 1), lognormal, 1, "1D"),
    f"a day of a {QUEUE}": Buckets(_queue_of_a_day, of_queue, 1, "1D", (0.88, 0.7)),
    "a week of 7 times 20, independent": Buckets(lambda *given: independent(*given, 20, 7), lognormal, 7, "W-SUN"),
    "a week of 7 times 20, autocorrelated": Buckets(lambda *given: within_days(*given, 20, 7), lognormal, 7, "W-SUN"),
    "a week of 7 times 20, days that differ": Buckets(
        lambda *given: days_that_differ(*given, 20, 7), lognormal, 7, "W-SUN"
    ),
}


def show_trends(n: int) -> Table:
    yield "buckets", "p50", "p90", "target"
    for name, own in BUCKETS.items():
        times, durations = own.draw(np.random.default_rng(SEED), n)
        moved = times + own.days * DAY * np.arange(n)[:, None]
        frame = as_waits(moved, durations, np.full(durations.shape, 1e6))
        found = metrics.trend(frame, metrics.queue_time, q=(0.5, 0.9), freq=own.freq, at="runnable_at")
        assert len(found) == n
        texts = []
        for p, target in zip((0.5, 0.9), own.least, strict=True):
            ours = coverage(found[f"p{100 * p:g}_low_s"], found[f"p{100 * p:g}_high_s"], own.percentile(p))
            naive = coverage(*order_statistics(durations, p), own.percentile(p))
            texts.append(Cell(ours, naive.covered, target).text())
        yield name, *texts, f"{own.least[0]:g}, {own.least[1]:g}"


# --- success in buckets of time


RATES = (0.5, 0.75, 0.95)


def show_success_trends(n: int) -> Table:
    yield "buckets", *(f"rate {rate:g}" for rate in RATES), "target"
    cases: dict[str, tuple[int, Callable[[float], pd.DataFrame]]] = {
        "a day of 15": (1, lambda rate: outcomes(np.random.default_rng(SEED), n, rate, days=1)),
        "a day of 100": (1, lambda rate: _alike(n, rate, 0.0)),
        "a day of 100, builds alike their predecessors (.6)": (1, lambda rate: _alike(n, rate, 0.6)),
        "a week of 7 times 15": (7, lambda rate: outcomes(np.random.default_rng(SEED), n, rate, days=7)),
        "a week of 7 times 15, correlation 0.1": (
            7,
            lambda rate: outcomes(np.random.default_rng(SEED), n, rate, 0.1, days=7),
        ),
    }
    for name, (days, draw) in cases.items():
        texts = []
        for rate in RATES:
            rows = draw(rate)
            rows["at"] = (rows["at"] + pd.to_timedelta(days * rows["world"], unit="D")).astype(STAMP)
            builds = as_builds(rows).assign(fetched_at=rows["at"].max())
            found = metrics.success_trend(builds, "1D" if days == 1 else "W-SUN")
            naive = coverage(*wilson(found["passed"], found["n"]), rate)
            texts.append(Cell(coverage(found["low"], found["high"], rate), naive.covered).text())
        yield name, *texts, "0.92"


def _alike(worlds: int, rate: float, correlation: float, builds: int = 100) -> pd.DataFrame:
    """Outcomes of a day of builds, of which each is like the one before with this probability, or else independent."""
    random = np.random.default_rng(SEED)
    hits = random.random((worlds, builds)) < rate
    is_alike = random.random((worlds, builds)) < correlation
    for build in range(1, builds):
        hits[:, build] = np.where(is_alike[:, build], hits[:, build - 1], hits[:, build])
    times = pd.Timestamp("2026-03-01", tz="UTC") + pd.to_timedelta(np.arange(builds) * DAY / builds, unit="s")
    return pd.DataFrame(
        {"world": np.repeat(np.arange(worlds), builds), "at": np.tile(times, worlds), "hit": hits.ravel()}
    )
