"""Simulate durations and outcomes whose true percentiles and rates are known, though rows depend on each other."""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.stats import binom, norm

from tests.metrics import simulated_flakes

Floats = npt.NDArray[np.float64]
Draw = tuple[Floats, Floats]
"""Times and durations in seconds, with a row for each world."""

DAY = 86_400.0
START = pd.Timestamp("2026-03-01", tz="UTC")
STAMP = "datetime64[us, UTC]"


class DurationWorld(NamedTuple):
    """How to draw so many worlds, and the true percentile of each."""

    draw: Callable[..., Draw]
    percentile: Callable[[float], float]


# --- durations


def independent(random: np.random.Generator, worlds: int, rows: int = 20, days: int = 28) -> Draw:
    shape = (worlds, rows * days)
    return np.sort(random.random(shape)) * days * DAY, random.lognormal(5, 0.8, shape)


def with_ties(random: np.random.Generator, worlds: int, rows: int = 20, days: int = 28) -> Draw:
    times, durations = independent(random, worlds, rows, days)
    return times, np.round(durations / 60) * 60


def within_days(random: np.random.Generator, worlds: int, rows: int = 20, days: int = 28) -> Draw:
    """Autocorrelated by .6 from row to row within each day."""
    logs = random.standard_normal((worlds, days, rows))
    for k in range(1, rows):
        logs[..., k] = 0.6 * logs[..., k - 1] + 0.8 * logs[..., k]
    times = (np.arange(days)[:, None] + np.arange(rows) / (1.2 * rows)).reshape(-1) * DAY
    return np.broadcast_to(times, (worlds, days * rows)), np.exp(5 + 0.8 * logs.reshape(worlds, -1))


def weekly(random: np.random.Generator, worlds: int, rows: int = 20, days: int = 28) -> Draw:
    """Weekends are faster; the mixture has its own percentiles."""
    times = np.sort(random.random((worlds, rows * days)), axis=1) * days * DAY
    is_weekend = times // DAY % 7 >= 5
    return times, np.exp(5 + 0.5 * random.standard_normal(times.shape) - 0.6 * is_weekend)


def days_that_differ(random: np.random.Generator, worlds: int, rows: int = 20, days: int = 28) -> Draw:
    """Of each day, all durations are longer or shorter: in total as lognormal as `independent`."""
    day = np.repeat(np.arange(days), rows)
    times = (day + random.random((worlds, len(day)))) * DAY
    effect = 0.4 * random.standard_normal((worlds, days))[:, day]
    noise = np.sqrt(0.8**2 - 0.4**2) * random.standard_normal((worlds, len(day)))
    return times, np.exp(5 + effect + noise)


def days_that_correlate(
    random: np.random.Generator, worlds: int, rows: int = 20, days: int = 28, correlation: float = 0.3
) -> Draw:
    """As `days_that_differ`, with a correlation from each day to the next."""
    day = np.repeat(np.arange(days), rows)
    times = (day + random.random((worlds, len(day)))) * DAY
    effect = random.standard_normal((worlds, days))
    for k in range(1, days):
        effect[:, k] = correlation * effect[:, k - 1] + np.sqrt(1 - correlation**2) * effect[:, k]
    noise = np.sqrt(0.8**2 - 0.4**2) * random.standard_normal((worlds, len(day)))
    return times, np.exp(5 + 0.4 * effect[:, day] + noise)


def queue(random: np.random.Generator, worlds: int, load: float = 0.83, jobs: int = 1000) -> Draw:
    """Waits of jobs for one of three agents, after 2,000 others."""
    n = 2000 + jobs
    times = np.cumsum(random.exponential(1 / (3 * load), (worlds, n)), axis=1)
    runs, waits = random.exponential(1, (worlds, n)), np.empty((worlds, n))
    free, rows = np.zeros((worlds, 3)), np.arange(worlds)
    for i in range(n):
        agent = free.argmin(axis=1)
        started = np.maximum(times[:, i], free[rows, agent])
        waits[:, i], free[rows, agent] = started - times[:, i], started + runs[:, i]
    return times[:, -jobs:] * 60, waits[:, -jobs:] * 60


def lognormal(p: float) -> float:
    return exp(5 + 0.8 * float(norm.ppf(p)))


def rounded(p: float) -> float:
    return round(lognormal(p) / 60) * 60.0


def of_weeks(p: float) -> float:
    """Percentile of the mixture, by bisection."""
    low, high, share_below = 0.0, 10.0, NormalDist().cdf
    for _ in range(60):
        middle = (low + high) / 2
        share = (5 * share_below((middle - 5) / 0.5) + 2 * share_below((middle - 4.4) / 0.5)) / 7
        low, high = (middle, high) if share < p else (low, middle)
    return exp(low)


def of_queue(p: float, load: float = 0.83) -> float:
    """Erlang's formula: P(wait > t) = C exp(-(3 - 3 load) t)."""
    a = 3 * load
    last = a**3 / 6 / (1 - load)
    chance = last / (1 + a + a**2 / 2 + last)
    return 60 * max(0.0, log(chance / (1 - p)) / (3 - a))


DURATIONS = {
    "independent": DurationWorld(independent, lognormal),
    "ties": DurationWorld(with_ties, rounded),
    "autocorrelated within a day": DurationWorld(within_days, lognormal),
    "weekly rhythm": DurationWorld(weekly, of_weeks),
    "days that differ": DurationWorld(days_that_differ, lognormal),
    "queue (M/M/3, load .83)": DurationWorld(queue, of_queue),
}


def as_timestamps(seconds: Floats) -> pd.Series:
    return pd.Series(START + pd.to_timedelta(seconds.ravel(), unit="s").floor("us")).astype(STAMP)


def censor(random: np.random.Generator, durations: Floats, share: float) -> Floats:
    """Return how long each row can be seen, at most: with this share of the longest durations cut."""
    if not share:
        return np.full(durations.shape, 1e6)
    return random.exponential(np.quantile(durations, 0.9) / share, durations.shape)


def as_waits(times: Floats, durations: Floats, limits: Floats) -> pd.DataFrame:
    """Jobs of all worlds with these queue times, or still waiting after their limit."""
    started = as_timestamps(times + np.minimum(durations, limits))
    return pd.DataFrame(
        {
            "world": np.repeat(np.arange(len(times)), times.shape[1]),
            "type": "script",
            "runnable_at": as_timestamps(times),
            "started_at": started.where((durations <= limits).ravel()),
            "fetched_at": started,
        }
    )


# --- outcomes


def outcomes(
    random: np.random.Generator, worlds: int, rate: float, correlation: float = 0.0, days: int = 14, a_day: int = 15
) -> pd.DataFrame:
    """Outcomes (`hit`) by working hours; the rate of a day is drawn from a beta distribution.

    `correlation` is that of outcomes of one day: the share of the variance that days make, as of a branch that is
    broken for a day.
    """
    n = random.poisson(a_day, worlds * days)
    spread = 1 / correlation - 1 if correlation else np.inf
    of_day = random.beta(rate * spread, (1 - rate) * spread, len(n)) if correlation else np.full(len(n), rate)
    day = np.repeat(np.arange(len(n)), n)
    times = as_timestamps((day % days + random.uniform(8 / 24, 18 / 24, len(day))) * DAY)
    return pd.DataFrame({"world": day // days, "at": times, "hit": random.random(len(day)) < of_day[day]})


def as_builds(rows: pd.DataFrame) -> pd.DataFrame:
    """Builds that passed if they are hits, and failed otherwise."""
    state = pd.Series(np.where(rows["hit"], "passed", "failed"), dtype="str")
    return rows.assign(state=state, blocked=False, created_at=rows["at"])


def as_executions(rows: pd.DataFrame) -> pd.DataFrame:
    """Jobs that failed, and that were retried if they are hits."""
    texts = dict.fromkeys(["id", "retried_in_job_id", "retry_type"], pd.Series(None, rows.index, dtype="str"))
    return rows.assign(**texts, type="script", state="failed", started_at=rows["at"], retried=rows["hit"])


def as_attempts(rows: pd.DataFrame) -> pd.DataFrame:
    """Attempts at a commit each, with a step for each world: hits fail before they pass."""
    first = pd.DataFrame(
        {
            "step_key": rows["world"].astype("str"),
            "commit": rows.index,
            "failed": rows["hit"],
            "finished_at": rows["at"],
        }
    )
    again = first[rows["hit"]].assign(failed=False, finished_at=lambda rows: rows["finished_at"] + pd.Timedelta("9min"))
    return simulated_flakes.as_jobs(pd.concat([first.assign(attempt=0), again.assign(attempt=1)]))


def red_branches(random: np.random.Generator, worlds: int, spread: float = 0.0, days: int = 90) -> pd.DataFrame:
    """Builds of a branch for each world. It fails a day after it recovered, and outages last as long as `recovery`.

    Six outages in a row all take longer, or shorter. The last one may be open when the builds are fetched.
    """
    n = 2 * days
    effect = np.repeat(spread * random.standard_normal((worlds, n // 6 + 1)), 6, axis=1)[:, :n]
    lasting = 60 * np.exp(5 + effect + np.sqrt(0.8**2 - spread**2) * random.standard_normal((worlds, n)))
    ends = np.cumsum(np.stack([random.exponential(DAY, (worlds, n)), lasting], axis=2).reshape(worlds, -1), axis=1)
    world, number = np.nonzero(ends < days * DAY)
    texts = pd.DataFrame({"pipeline": world, "state": np.where(number % 2, "passed", "failed"), "branch": "main"})
    frame = texts.astype("str").assign(number=number + 1, finished_at=as_timestamps(ends[world, number]))
    green = frame.drop_duplicates("pipeline").assign(number=0, state="passed", finished_at=START - pd.Timedelta("1D"))
    until = (START + pd.Timedelta(days, "D")).as_unit("us")
    return pd.concat([green.astype(frame.dtypes), frame], ignore_index=True).assign(blocked=False, fetched_at=until)


def recovery(p: float) -> float:
    return 60 * lognormal(p)


# --- intervals


class Coverage(NamedTuple):
    """The share of intervals that contain the truth, of those that exist (NaN if none), and of missing ones."""

    covered: float
    missing: float


def coverage(low: npt.ArrayLike, high: npt.ArrayLike, truth: npt.ArrayLike) -> Coverage:
    low, high = np.asarray(low, np.float64), np.asarray(high, np.float64)
    exists = ~np.isnan(low) & ~np.isnan(high)
    covered = ((low <= truth) & (truth <= high))[exists]
    return Coverage(float(covered.mean()) if len(covered) else np.nan, float(1 - exists.mean()))


def order_statistics(durations: Floats, p: float, confidence: float = 0.95) -> Draw:
    """Return the ends of an interval that takes rows for independent, world by world; NaN are no rows."""
    n = (~np.isnan(durations)).sum(axis=1)
    tail = (1 - confidence) / 2
    ranks = np.column_stack([binom.ppf(tail, n, p), binom.ppf(1 - tail, n, p) + 1]).astype(int)
    values = np.take_along_axis(np.sort(durations, axis=1), np.clip(ranks - 1, 0, n[:, None] - 1), axis=1)
    return values[:, 0], values[:, 1]
