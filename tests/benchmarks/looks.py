"""How often nightly reports alarm although nothing changes, and how soon they report what does.

Each world has builds of some pipelines with their steps. Days differ, and weekends can be quiet. The changes of a
report of the last seven days are searched every night, or every few nights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.discoveries import NIGHTS
from buildframe.report.content import Finding
from buildframe.report.findings import findings
from buildframe.report.measurements import STEP, Measurements, find_changes, flag_changes
from buildframe.report.periods import Period
from tests.benchmarks import reporting

START = pd.Timestamp("2026-03-02", tz="UTC")  # a Monday
BEFORE = 56
"""Days before the first night, which its report needs."""

_AT_ONCE = 20
"""Worlds that are measured together, which takes a fifth of the time."""

_LAST_NIGHT = 35
"""Night after a change until which reports are searched for it."""


@dataclass(frozen=True)
class World:
    """
    Builds of pipelines with steps.

    `day` and `row` are standard deviations of logarithms of run times, between days and between jobs. `persists` is the
    correlation of these, and of failures and waits, from one day to the next. `weekends` is the share of builds on a
    day of a weekend, and `rhythm` how much run times vary during a week. A build fails with the probability `failing`,
    which differs by `days_fail` between days (standard deviation of logarithms), and else if an attempt fails at random
    (`flaky`) twice. From the day `at` on the first step of the first pipeline is `slower`, and the other two are
    `failing_then` in the first pipeline, and `flaky_then` in its first step.
    """

    pipelines: int = 4
    steps: int = 4
    builds: float = 12.0
    day: float = 0.0
    row: float = 0.25
    days_fail: float = 0.0
    persists: float = 0.0
    weekends: float = 1.0
    rhythm: float = 0.0
    failing: float = 0.12
    flaky: float = 0.03
    at: int = BEFORE
    slower: float = 1.0
    failing_then: float | None = None
    flaky_then: float | None = None

    def create(self, seed: int, nights: int = NIGHTS) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return builds and jobs."""
        random, days = np.random.default_rng(seed), BEFORE + nights
        weekday = np.arange(days) % 7
        n = random.poisson(self.builds * np.where(weekday < 5, 1.0, self.weekends), (self.pipelines, days))
        pipeline, day = (np.repeat(axis.ravel(), n.ravel()) for axis in np.indices(n.shape))
        many, is_late = len(day), day >= self.at
        created = START + pd.to_timedelta(np.round((day + random.random(many)) * 86_400e6), unit="us")
        unlucky = np.exp(self.days_fail * self._vary(random, (self.pipelines, days)))[pipeline, day]
        failing = np.where(is_late & (pipeline == 0), self.failing_then or self.failing, self.failing)
        broken = np.where(random.random(many) < failing * unlucky, random.integers(0, self.steps, many), -1)

        build, step = (axis.ravel() for axis in np.indices((many, self.steps)))
        own, at = pipeline[build], day[build]
        is_planted = (own == 0) & (step == 0) & (at >= self.at)
        effect = self.day * self._vary(random, (self.pipelines, self.steps, days))
        effect += self.rhythm * np.sin(2 * np.pi * weekday / 7)
        seconds = 120 * (1 + step) * np.exp(effect[own, step, at] + self.row * random.standard_normal(len(build)))
        seconds *= np.where(is_planted, self.slower, 1.0)
        waits = random.exponential(20, len(build)) * np.exp(3 * self.day * self._vary(random, (days,)))[at]
        rate = np.where(is_planted, self.flaky_then or self.flaky, self.flaky)
        fails, fails_again = (random.random(len(build)) < rate for _ in range(2))
        is_broken = broken[build] == step
        runnable = created[build]
        started = runnable + pd.to_timedelta(np.round(waits * 1e6), unit="us")
        finished = started + pd.to_timedelta(np.round(seconds * 1e6), unit="us")
        jobs = _frame(
            pipeline=_named("p", own), build_number=build + 1, commit=_named("c", build), branch="topic",
            step_key=_named("s", step), queue=_named("q", own % 2), type="script",
            state=np.where(fails | is_broken, "failed", "passed"), build_created_at=runnable, created_at=runnable,
            runnable_at=runnable, started_at=started, finished_at=finished,
        )  # fmt: skip
        again = jobs[fails].assign(state=np.where((is_broken | fails_again)[fails], "failed", "passed"))
        longest = pd.Series(finished).groupby(build).max()
        has_failed = pd.Series(is_broken | (fails & fails_again)).groupby(build).any()
        builds = _frame(
            pipeline=_named("p", pipeline), number=np.arange(many) + 1, commit=_named("c", np.arange(many)),
            branch="topic", state=np.where(has_failed, "failed", "passed"), created_at=created,
            finished_at=pd.DatetimeIndex(longest),
        )  # fmt: skip
        jobs = pd.concat([jobs, again], ignore_index=True)
        return builds.assign(blocked=False).astype({"blocked": "boolean"}), jobs.assign(step=metrics.step(jobs))

    def _vary(self, random: np.random.Generator, shape: tuple[int, ...]) -> Any:
        """Return normal variables that are correlated along the last axis, the days (AR(1))."""
        vary = random.standard_normal(shape)
        for day in range(1, shape[-1]):
            vary[..., day] *= np.sqrt(1 - self.persists**2)
            vary[..., day] += self.persists * vary[..., day - 1]
        return vary


def _named(letter: str, numbers: Any) -> Any:
    return np.array([f"{letter}{number}" for number in range(int(numbers.max()) + 1)])[numbers]


def _frame(**columns: Any) -> pd.DataFrame:
    """Return a frame with the columns that names of steps need, and the types of fetched frames."""
    frame = pd.DataFrame({"organization": "acme", **columns})
    if "type" in frame:
        empty = dict.fromkeys(("name", "label", "group_key"), "str")
        frame = frame.assign(**dict.fromkeys(empty, None), soft_failed=False).astype(empty | {"soft_failed": "boolean"})
    times = {name: "datetime64[us, UTC]" for name in frame if name.endswith("_at")}
    texts = {name: "str" for name in frame if frame[name].dtype == object}
    return frame.astype(times | texts)


STATIONARY = {
    "independent": World(),
    "days differ": World(day=0.1, days_fail=0.5),
    "weekly rhythm": World(day=0.1, days_fail=0.5, weekends=0.3, rhythm=0.1),
    "days correlate by .3": World(day=0.1, days_fail=0.5, persists=0.3),
    "days correlate by .6": World(day=0.1, days_fail=0.5, persists=0.6),
}
_BUSY = World(day=0.1, days_fail=0.3, weekends=0.3)
PLANTED = {
    "a step is 20 % slower": (replace(_BUSY, slower=1.2), ("speed", "p0: s0")),
    "a step is 50 % slower": (replace(_BUSY, slower=1.5), ("speed", "p0: s0")),
    "success falls from 88 to 68 %": (replace(_BUSY, flaky=0.0, failing_then=0.32), ("reliability", "p0")),
    "a flaky step fails in 12 % instead of 6 %": (
        replace(_BUSY, flaky=0.06, flaky_then=0.12),
        ("reliability", "p0: s0"),
    ),
}


def measure_night(builds: pd.DataFrame, jobs: pd.DataFrame, now: pd.Timestamp) -> list[Finding]:
    """Return the findings of the report of this midnight."""
    period = Period.last(now, 7)
    return findings(find_all_changes(builds, jobs, period), period)


def find_all_changes(builds: pd.DataFrame, jobs: pd.DataFrame, period: Period) -> Measurements:
    """Return the tables of a report in which changes are reported; the others are empty."""
    tables, _ = find_changes(*_known(builds, jobs, period), period, None)
    return _complete(tables)


def _known(builds: pd.DataFrame, jobs: pd.DataFrame, period: Period) -> Iterator[pd.DataFrame]:
    return (rows[rows["finished_at"] < period.end] for rows in (builds, jobs))


def _complete(tables: Mapping[str, pd.DataFrame]) -> Measurements:
    return Measurements(
        **tables, **{field.name: pd.DataFrame() for field in fields(Measurements) if field.name not in tables}
    )


class Worlds:
    """Worlds of one kind, each with its own store and its own reports, measured together.

    Their reports are those of `measure_night`, up to intervals, whose spans of time begin with the first row of all,
    and changes near the limit of significance, because variances are moderated over the groups of all worlds.
    """

    def __init__(self, world: World, seeds: Iterable[int], nights: int = NIGHTS) -> None:
        self.world, self.seeds = world, list(seeds)
        created = {seed: world.create(seed, nights) for seed in self.seeds}
        self._builds, self.jobs = (
            pd.concat([_of_world(frames[place], seed) for seed, frames in created.items()], ignore_index=True)
            for place in range(2)
        )

    def measure_night(self, night: int) -> list[list[Finding]]:
        """Return the findings of each world's report."""
        period = Period.last(START + pd.Timedelta(BEFORE + night, "D"), 7)
        tables, _ = find_changes(*_known(self._builds, self.jobs, period), period, None)
        flagged = [flag_changes(*self._select(tables, seed))[0] for seed in self.seeds]
        return [findings(_complete(own), period) if _has_notable(own) else [] for own in flagged]

    def _select(self, tables: Mapping[str, pd.DataFrame], seed: int) -> tuple[dict[str, pd.DataFrame], dict[str, int]]:
        """Return the tables of a world, and the number of groups without any change by table."""
        selected, n_unchanged = {}, {}
        for name, table in tables.items():
            key = "pipeline" if "pipeline" in table else "queue"
            own = table[table[key].str.startswith(f"{seed} ")].reset_index(drop=True)
            selected[name] = own.assign(**{key: own[key].str.removeprefix(f"{seed} ")})
            if name.endswith("_changes"):
                by = [column for column in STEP if column in table]
                groups = self.world.pipelines * (self.world.steps if by == STEP else 1)
                n_unchanged[name] = groups - len(selected[name][by].drop_duplicates())
        return selected, n_unchanged


def _has_notable(tables: Mapping[str, pd.DataFrame]) -> bool:
    return any(table[name].any() for table in tables.values() for name in table if name.endswith("notable"))


def _of_world(frame: pd.DataFrame, seed: int) -> pd.DataFrame:
    return frame.assign(**{name: f"{seed} " + frame[name] for name in ("pipeline", "queue") if name in frame})


def count_alarms(world: World, seeds: range, nights: int, every: int) -> tuple[int, int]:
    """Return the number of worlds with any finding, and that of nights with one."""
    alarms = np.zeros(len(seeds), np.int64)
    for start in range(0, len(seeds), _AT_ONCE):
        worlds = Worlds(world, seeds[start : start + _AT_ONCE], nights)
        for night in range(0, nights, every):
            alarms[start : start + _AT_ONCE] += [len(found) > 0 for found in worlds.measure_night(night)]
    return int((alarms > 0).sum()), int(alarms.sum())


def count_days(world: World, subject: tuple[str, str], seeds: range, nights: int) -> list[float]:
    """Return the days after the change until the first report that shows it as a deterioration; infinite if none."""
    shows = (subject, (subject[0], subject[1].split(": ")[0]))  # a finding about a pipeline replaces those of its steps
    days = np.full(len(seeds), np.inf)
    for start in range(0, len(seeds), _AT_ONCE):
        worlds, own = Worlds(world, seeds[start : start + _AT_ONCE], nights), days[start : start + _AT_ONCE]
        for night in range(nights):
            for place, found in enumerate(worlds.measure_night(night)):
                if any((one.question, one.subject) in shows and one.bad for one in found):
                    own[place] = min(own[place], night)
            if np.isfinite(own).all():
                break
    return days.tolist()


def main(worlds: int, nights: int, first: int = 0, every: int = 3, part: str | None = None) -> None:
    """Print the share of worlds that ever alarm, and the days until each planted change is reported."""
    print(reporting.machine())
    seeds = range(first, first + worlds)
    print(f"{worlds} worlds of each kind, {nights} nights; if nothing changes, one of {every} is measured")
    for name, world in STATIONARY.items() if part != "planted" else ():
        ever, in_all = count_alarms(world, seeds, nights, every)
        most, looks = _upper_bound(ever, worlds), worlds * len(range(0, nights, every))
        print(
            f"{name:45} ever alarms: {ever} (95 % bound {most:.3f}); reports that do: {in_all} of {looks}", flush=True
        )
    for name, (world, subject) in PLANTED.items() if part != "stationary" else ():
        days = count_days(world, subject, seeds, min(nights, _LAST_NIGHT + 1))
        at = " / ".join(f"{np.quantile(days, share, method='higher'):.0f}" for share in (0.1, 0.5, 0.8))
        print(f"{name:45} reported after {at} days (10 / 50 / 80 %)", flush=True)


def _upper_bound(hits: int, n: int) -> float:
    """Return the upper 95 % bound of a share (Clopper and Pearson 1934)."""
    from scipy.special import betaincinv

    return 1.0 if hits == n else float(betaincinv(hits + 1, n - hits, 0.95))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=40, help="worlds of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--every", type=int, default=3, help="if nothing changes, measure one of so many nights")
    parser.add_argument("--part", choices=("stationary", "planted"), help="measure these worlds only")
    parser.add_argument("--quick", action="store_true", help="only check that it works")
    options = parser.parse_args()
    size = (1, 2) if options.quick else (options.worlds, NIGHTS)
    main(*size, options.first, options.every, options.part)
