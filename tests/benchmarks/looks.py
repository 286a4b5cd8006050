"""How often nightly reports alarm although nothing changes, and how soon they report what does.

Each world has builds of some pipelines with their steps. Days differ, and weekends can be quiet. The changes of a
report of the last seven days are searched every night.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.discoveries import NIGHTS
from buildframe.report.content import Finding
from buildframe.report.findings import findings
from buildframe.report.measurements import Measurements, find_changes
from buildframe.report.periods import Period
from tests.benchmarks import reporting

START = pd.Timestamp("2026-03-02", tz="UTC")  # a Monday
BEFORE = 56
"""Days before the first night, which its report needs."""


@dataclass(frozen=True)
class World:
    """
    Builds of pipelines with steps.

    `day` and `row` are standard deviations of logarithms of run times, between days and between jobs. `weekends` is the
    share of builds on a day of a weekend, and `rhythm` how much run times vary during a week. A build fails with the
    probability `failing`, which differs by `days_fail` between days (standard deviation of logarithms), and else if an
    attempt fails at random (`flaky`) twice. From the day `at` on the first step of the first pipeline is `slower`, and
    the other two are `failing_then` in the first pipeline, and `flaky_then` in its first step.
    """

    pipelines: int = 4
    steps: int = 4
    builds: float = 12.0
    day: float = 0.0
    row: float = 0.25
    days_fail: float = 0.0
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
        unlucky = np.exp(self.days_fail * random.standard_normal((self.pipelines, days)))[pipeline, day]
        failing = np.where(is_late & (pipeline == 0), self.failing_then or self.failing, self.failing)
        broken = np.where(random.random(many) < failing * unlucky, random.integers(0, self.steps, many), -1)

        build, step = (axis.ravel() for axis in np.indices((many, self.steps)))
        own, at = pipeline[build], day[build]
        is_planted = (own == 0) & (step == 0) & (at >= self.at)
        effect = self.day * random.standard_normal((self.pipelines, self.steps, days))
        effect += self.rhythm * np.sin(2 * np.pi * weekday / 7)
        seconds = 120 * (1 + step) * np.exp(effect[own, step, at] + self.row * random.standard_normal(len(build)))
        seconds *= np.where(is_planted, self.slower, 1.0)
        waits = random.exponential(20, len(build)) * np.exp(3 * self.day * random.standard_normal(days))[at]
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


def look(world: World, seed: int, nights: int = NIGHTS) -> Iterator[list[Finding]]:
    """Return the findings of each night."""
    builds, jobs = world.create(seed, nights)
    for night in range(nights):
        yield measure_night(builds, jobs, START + pd.Timedelta(BEFORE + night, "D"))


def measure_night(builds: pd.DataFrame, jobs: pd.DataFrame, now: pd.Timestamp) -> list[Finding]:
    """Return the findings of the report of this midnight."""
    period = Period.last(now, 7)
    return findings(find_all_changes(builds, jobs, period), period)


def find_all_changes(builds: pd.DataFrame, jobs: pd.DataFrame, period: Period) -> Measurements:
    """Return the tables of a report in which changes are reported; the others are empty."""
    seen = (rows[rows["finished_at"] < period.end] for rows in (builds, jobs))
    tables, _ = find_changes(*seen, period, None)
    others = {field.name: pd.DataFrame() for field in fields(Measurements) if field.name not in tables}
    return Measurements(**tables, **others)


def main(worlds: int, nights: int, first: int = 0) -> None:
    """Print the share of worlds that ever alarm, and the nights until each planted change is reported."""
    print(reporting.machine())
    print(f"{worlds} worlds of each kind, {nights} nights")
    for name, world in STATIONARY.items():
        alarms = [[len(found) > 0 for found in look(world, first + seed, nights)] for seed in range(worlds)]
        share, per_night = np.mean([any(own) for own in alarms]), np.mean(alarms)
        print(f"{name:45} ever alarms: {share:.2f}; nights with an alarm: {per_night:.4f}", flush=True)
    for name, (world, subject) in PLANTED.items():
        waits = [_nights_until(look(world, first + seed, nights), *subject) for seed in range(worlds)]
        found = sorted(night for night in waits if night is not None)
        at = [str(found[int(share * worlds)]) if share * worlds < len(found) else "-" for share in (0.1, 0.5, 0.8)]
        print(f"{name:45} reported after {' / '.join(at)} nights (10 / 50 / 80 %)", flush=True)


def _nights_until(nights: Iterator[list[Finding]], question: str, subject: str) -> int | None:
    """Return the number of days after the change when a finding is about this, which is made worse."""
    for night, found in enumerate(nights):
        if any((one.question, one.subject, one.bad) == (question, subject, True) for one in found):
            return night
    return None


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worlds", type=int, default=40, help="worlds of each kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first world")
    parser.add_argument("--quick", action="store_true", help="only check that it works")
    options = parser.parse_args()
    main(*((1, 2) if options.quick else (options.worlds, NIGHTS)), options.first)
