"""How often the library finds what is planted in 50 worlds of the sandbox, and how often it reports anything else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

import buildframe as bf
from buildframe import metrics
from buildframe.report.content import Finding
from buildframe.report.findings import findings
from buildframe.report.measurements import measure
from buildframe.report.periods import Period
from buildframe.sandbox_server import Truth
from tests.benchmarks import reporting

Key = tuple[str, ...]
"""What an anomaly is about: a queue; a pipeline; a pipeline and a step, or a branch."""
Found = Mapping[Key, pd.Timestamp | None]
"""What is reported, with the time of a change if there is one."""

SEEDS = range(2, 52)
HISTORY = pd.Timedelta("15D")
FRESH = pd.Timedelta("8D")
NEAR = pd.Timedelta("3D")
STEP = ["pipeline", "step"]
FLAKY = 0.01  # failures of attempts at steps in which nothing is planted are rarer than this
WASTED = 0.05  # share of the machine time, above that of the median pipeline
LONG_S = 1800.0
TRIGGERED = "release"  # which repeats what triggers it
TIMES_OUT = ("data", "spark")  # in 2 % of its attempts, in every world


@dataclass(frozen=True)
class Month:
    """A world's anomalies, its frames, and the findings of a weekly report of the last day."""

    truth: Truth
    builds: pd.DataFrame
    jobs: pd.DataFrame
    pipelines: pd.DataFrame
    now: pd.Timestamp
    findings: list[Finding]


@dataclass(frozen=True)
class Detector:
    """What reports a kind of anomaly, what is planted of it, and what else explains a report: None if anything can."""

    find: Callable[[Month], Found]
    planted: Callable[[Truth], Mapping[Key, pd.Timestamp | None]]
    explains: Callable[[Truth], set[Key] | None] = lambda _: set()
    reaches: pd.Timedelta | None = None
    """Changes before this time are not searched for."""


def months(quick: bool) -> Iterator[Month]:
    for seed in SEEDS[:4] if quick else SEEDS:
        size = {"builds": 300, "days": 14} if quick else {}
        with bf.sandbox(seed=seed, **size) as ci:
            builds, jobs = ci.history(progress=False)
            pipelines, truth = ci.pipelines(), ci.sandbox.truth
            now = pd.Timestamp(ci.sandbox.clock.now())
        period = Period.last(now, 7)
        measurements = measure(builds, jobs, pipelines, None, period, since=builds["created_at"].min())
        found = findings(measurements, period)
        yield Month(truth, builds, jobs, pipelines, now, found)


# --- what is reported


def findings_about(question: str, *words: str) -> Callable[[Month], Found]:
    """Findings of a question whose text contains one of the words."""

    def find(month: Month) -> Found:
        found = [one for one in month.findings if one.question == question and any(word in one.text for word in words)]
        return {tuple(one.subject.split(": ")): one.since for one in found}

    return find


def changed_steps(month: Month) -> Found:
    """Change points of run times by step, over the whole history."""
    changes = metrics.change_points(_with_step(month.jobs[month.jobs["state"] == "passed"]), metrics.run_time, STEP)
    return _by_step(changes[changes["notable"]])


def changed_failures(month: Month) -> Found:
    """Change points of the share of failed jobs by step, over the whole history."""
    changes = metrics.change_points(_with_step(month.jobs), metrics.failed, STEP)
    return _by_step(changes[changes["notable"]])


def _with_step(jobs: pd.DataFrame) -> pd.DataFrame:
    return jobs.assign(step=metrics.step(jobs))


def _by_step(changes: pd.DataFrame) -> Found:
    return {(row["pipeline"], row["step"]): row["at"] for row in changes.to_dict("records")}


def flaky_steps(month: Month) -> Found:
    scores = metrics.flake_score(month.jobs, threshold=FLAKY)
    return {(row["pipeline"], row["step"]): None for row in scores[scores["p_above"] > 0.95].to_dict("records")}


def storms(month: Month) -> Found:
    """One storm or none: attempts in storms are counted by step."""
    return {("storm",): None} if metrics.flake_score(month.jobs)["n_storm"].sum() > 0 else {}


def broken_branches(month: Month) -> Found:
    outages = metrics.outages(month.builds, pipelines=month.pipelines)
    long = outages[outages["failed"] >= 4]
    return {(row["pipeline"], row["branch"]): row["failed_at"] for row in long.to_dict("records")}


def wasteful_pipelines(column: str) -> Callable[[Month], Found]:
    def find(month: Month) -> Found:
        waste = metrics.waste(month.jobs, by="pipeline")
        share = waste[column] / waste["machine_s"]
        return {(pipeline,): None for pipeline in waste["pipeline"][share > share.median() + WASTED]}

    return find


def waiting_queues(month: Month) -> Found:
    waits = metrics.percentiles(month.jobs, of=metrics.queue_time, by="queue")
    return {(queue,): None for queue in waits["queue"][waits["p95_s"] > LONG_S]}


# --- what is planted


def steps(kind: str, at: str | None = None) -> Callable[[Truth], Mapping[Key, pd.Timestamp | None]]:
    def planted(truth: Truth) -> Mapping[Key, pd.Timestamp | None]:
        return {(one.pipeline, one.step_key): pd.Timestamp(getattr(one, at)) if at else None for one in all_of(truth)}

    def all_of(truth: Truth) -> tuple[Any, ...]:
        return tuple(getattr(truth, kind))

    return planted


def nothing(_: Truth) -> Mapping[Key, pd.Timestamp | None]:
    return {}


def anything(truth: Truth) -> set[Key] | None:
    """Every report, if anything is planted: anomalies also change wall times, failures and waiting elsewhere."""
    return set() if truth == Truth() else None


def failing(truth: Truth) -> set[Key] | None:
    """Broken branches of pipelines that fail or repeat failures often; of all pipelines if there was a storm."""
    if truth.storms:
        return None
    return {(one.pipeline, "main") for one in (*truth.failing_steps, *truth.flaky_steps, *truth.repeated_builds)}


DETECTORS = {
    "slower step: report": Detector(findings_about("speed", "run time"), steps("slower_steps", "at"), reaches=HISTORY),
    "slower step: change points": Detector(changed_steps, steps("slower_steps", "at")),
    "changed failures: change points": Detector(changed_failures, nothing, anything),
    "slower pipeline: report": Detector(findings_about("speed", "wall time"), nothing, anything),
    "less reliable: report": Detector(findings_about("reliability", ""), nothing, anything),
    "longer waiting: report": Detector(findings_about("waiting", ""), nothing, anything),
    "flaky step": Detector(flaky_steps, steps("flaky_steps"), lambda _: {TIMES_OUT}),
    "storm": Detector(storms, lambda truth: {("storm",): None} if truth.storms else {}),
    "broken branch: outages": Detector(
        broken_branches,
        lambda truth: {(one.pipeline, one.branch): pd.Timestamp(one.since) for one in truth.broken_branches},
        failing,
    ),
    "failing step: waste": Detector(
        wasteful_pipelines("after_failure_s"),
        lambda truth: {(one.pipeline,): None for one in truth.failing_steps},
        lambda truth: {(one.pipeline,) for one in truth.flaky_steps},
    ),
    "repeated builds: waste": Detector(
        wasteful_pipelines("repeated_s"),
        lambda truth: {(one.pipeline,): None for one in truth.repeated_builds},
        lambda truth: {(TRIGGERED,)} if truth.repeated_builds else set(),
    ),
    "short queue: queue time": Detector(
        waiting_queues,
        lambda truth: {(one.queue,): None for one in truth.short_queues},
        lambda truth: {(one.queue,) for one in truth.storms},
    ),
}


class Score:
    """Counts of a detector over all worlds."""

    def __init__(self) -> None:
        self.planted = self.found = self.fresh = self.fresh_found = self.near = 0
        self.unexplained = self.alarmed = self.empty = self.empty_alarmed = self.worlds = 0

    def add(self, detector: Detector, month: Month) -> None:
        planted, found = detector.planted(month.truth), detector.find(month)
        for key, at in planted.items():
            if at is not None and detector.reaches is not None and month.now - at > detector.reaches:
                continue
            is_fresh = at is not None and month.now - at < FRESH
            self.fresh, self.planted = self.fresh + is_fresh, self.planted + (not is_fresh)
            if key in found:
                self.fresh_found, self.found = self.fresh_found + is_fresh, self.found + (not is_fresh)
                since = found[key]
                self.near += at is not None and since is not None and abs(since - at) <= NEAR
        explained = detector.explains(month.truth)
        unexplained = 0 if explained is None else len(found.keys() - planted.keys() - explained)
        self.unexplained += unexplained
        self.worlds, self.alarmed = self.worlds + 1, self.alarmed + (unexplained > 0)
        if month.truth == Truth():
            self.empty, self.empty_alarmed = self.empty + 1, self.empty_alarmed + (unexplained > 0)

    def cells(self) -> list[str]:
        return [
            f"{self.found}/{self.planted}",
            f"{self.fresh_found}/{self.fresh}",
            f"{self.near}/{self.found + self.fresh_found}",
            str(self.unexplained),
            f"{self.alarmed}/{self.worlds}",
            f"{self.empty_alarmed}/{self.empty}",
        ]


COLUMNS = ("found", "fresh", "in 3 days", "unexplained", "worlds", "empty worlds")


def main(quick: bool) -> None:
    scores = {name: Score() for name in DETECTORS}
    for month in months(quick):
        for name, detector in DETECTORS.items():
            scores[name].add(detector, month)
    width = max(map(len, DETECTORS))
    print(" " * width, *(f"{name:>12}" for name in COLUMNS))
    for name, score in scores.items():
        print(f"{name:{width}}", *(f"{cell:>12}" for cell in score.cells()), flush=True)
    print("found, fresh: anomalies that are reported, and those younger than 8 days; in 3 days: with a time that near")
    print("unexplained: reports without an anomaly; worlds, empty worlds: those with one, all and without anomalies")


if __name__ == "__main__":
    reporting.run(main)
