"""Draw the anomalies of a new world from its seed. Does not know how they are simulated."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from typing import NamedTuple

from buildframe.sandbox_server.world import work_hours
from buildframe.sandbox_server.world.ground_truth import (
    BrokenBranch,
    FailingStep,
    FlakyStep,
    RepeatedBuilds,
    ShortQueue,
    SlowerStep,
    Storm,
    Truth,
    UnstableTest,
)
from buildframe.sandbox_server.world.hashed_random import SeededRandom
from buildframe.sandbox_server.world.model import DAY, MACOS, SECOND, Organization, agent_names
from buildframe.sandbox_server.world.pipeline_settings import PipelineRecord
from buildframe.sandbox_server.world.steps import UPLOAD, PipelineStep, Plan
from buildframe.spec import Moment

EXAMPLE_SEED = 1
"""Seed of the world that the documentation shows. Its anomalies are fixed; those of other seeds are random."""

_NOTHING = 0.2
"""Share of seeds without any anomaly, to count false alarms in."""

_MIN_WORKING_DAYS = 8
"""Shorter histories contain no random anomaly that begins or ends."""

_MIN_SHARE = 0.07
_FRESH_MIN_SHARE = 0.15
"""Smallest share of builds of a pipeline with an anomaly; of one that shows a change within a few days."""

_MIN_SECONDS = 50
"""Shortest run time of a step that becomes slower."""

_HOUR = 3600 * SECOND


def draw_short_queues(seed: int) -> tuple[str, ...]:
    """Return the queues that have too few agents."""
    return (MACOS,) if seed == EXAMPLE_SEED or _is_planted(SeededRandom(seed), 0.6, "short queue") else ()


def flaky_test_id(random: SeededRandom, organization: str, suite: str, number: int) -> str:
    """Return the UUID of a simulated test."""
    return random.uuid("flaky test", organization, suite, number)


def storm_agents(queue: str, organization: Organization, is_whole: bool) -> tuple[str, ...]:
    """Return the agents of a queue that fail in a storm: all, or a third."""
    names = agent_names(queue, organization.agents[queue])
    return tuple(names if is_whole else names[: math.ceil(len(names) / 3)])


def plant(seed: int, organization: Organization, start: int, until: int) -> Truth:
    """Return the anomalies of an organization in the time range of its history. They affect different steps."""
    short = tuple(ShortQueue(organization.slug, name, organization.agents[name]) for name in draw_short_queues(seed))
    return _Planter(seed, organization, start, until, short).plant(seed == EXAMPLE_SEED)


def _is_planted(random: SeededRandom, probability: float, kind: str) -> bool:
    return not random.happens(_NOTHING, "plant", "nothing") and random.happens(probability, "plant", kind)


class _Candidate(NamedTuple):
    pipeline: PipelineRecord
    step: PipelineStep


class _Planter:
    """Draws anomalies one after the other, each at a step that has none."""

    def __init__(
        self, seed: int, organization: Organization, start: int, until: int, short: tuple[ShortQueue, ...]
    ) -> None:
        self._random, self._organization, self._short = SeededRandom(seed), organization, short
        self._start, self._until = start, until
        first = start - start % DAY
        self._days = [day for day in range(first, until, DAY) if work_hours.weekday(day) < 5 and day >= start]
        self._plans = {pipeline.slug: Plan(pipeline.steps) for pipeline in organization.pipelines}
        self._taken: set[tuple[str, str]] = set()

    def plant(self, is_example: bool) -> Truth:
        if is_example:
            return self._example()
        broken = tuple(self._broken_branches())
        return Truth(
            broken_branches=broken,
            slower_steps=tuple(sorted(self._slower_steps(), key=lambda one: one.at)),
            flaky_steps=tuple(self._flaky_steps()),
            failing_steps=tuple(self._failing_steps()),
            flaky_tests=tuple(self._flaky_tests()),
            repeated_builds=tuple(self._repeated_builds()),
            storms=tuple(self._storms(broken)),
            short_queues=self._short,
        )

    def _example(self) -> Truth:
        """Return the fixed anomalies, without those that begin later than the history ends."""
        slug, length = self._organization.slug, self._until - self._start
        broken = work_hours.working_day(self._start + length * 2 // 5)
        slower = work_hours.working_day(self._start + length * 3 // 5)
        since, until = broken + 9 * _HOUR, broken + 15 * _HOUR
        steps = (SlowerStep(slug, "api", "integration", Moment.from_us(slower), 1.6),)
        branches = (BrokenBranch(slug, "web", "main", "unit-checkout", Moment.from_us(since), Moment.from_us(until)),)
        return Truth(
            slower_steps=steps if slower <= self._until else (),
            flaky_steps=(FlakyStep(slug, "web", "e2e", 0.12),),
            short_queues=self._short,
            broken_branches=branches if until <= self._until else (),
        )

    # --- random anomalies

    def _broken_branches(self) -> Iterator[BrokenBranch]:
        if self._is_long() and _is_planted(self._random, 0.6, "broken branch"):
            pipeline, step = self._take(self._steps(), "broken branch")
            since = self._instant(0.2, 0.8, "broken branch", 7, 10)
            until = since + int(self._between(4, 8, "broken branch", "hours") * _HOUR)
            times = Moment.from_us(since), Moment.from_us(until)
            yield BrokenBranch(self._organization.slug, pipeline.slug, pipeline.default_branch, step.key, *times)

    def _slower_steps(self) -> Iterator[SlowerStep]:
        if not self._is_long():
            return
        slow = [one for one in self._steps() if one.step.seconds >= _MIN_SECONDS]
        if _is_planted(self._random, 0.7, "slower step"):
            critical = [one for one in slow if one.step.key in _critical_steps(self._plans[one.pipeline.slug])]
            pipeline, step = self._take(critical, "slower step")
            at, factor = self._instant(0.3, 0.7, "slower step", 7, 17), self._rate(1.25, 2.0, "slower step")
            yield SlowerStep(self._organization.slug, pipeline.slug, step.key, Moment.from_us(at), factor)
        if _is_planted(self._random, 0.5, "fresh change"):
            busy = [one for one in slow if one.pipeline.share >= _FRESH_MIN_SHARE]
            pipeline, step = self._take(busy, "fresh change")
            days = len(self._days)
            at = self._instant((days - 6) / days, (days - 2) / days, "fresh change", 7, 11)
            factor = self._rate(1.4, 2.0, "fresh change")
            yield SlowerStep(self._organization.slug, pipeline.slug, step.key, Moment.from_us(at), factor)

    def _flaky_steps(self) -> Iterator[FlakyStep]:
        many = self._random.choice(range(4), "plant", "flaky steps")
        for place in range(many if _is_planted(self._random, 1.0, "flaky step") else 0):
            pipeline, step = self._take(self._steps(), "flaky step", place)
            rate = self._rate(0.03, 0.25, "flaky step", place)
            yield FlakyStep(self._organization.slug, pipeline.slug, step.key, rate)

    def _failing_steps(self) -> Iterator[FailingStep]:
        if _is_planted(self._random, 0.4, "failing step"):
            early = [one for one in self._steps() if _ends_early(self._plans[one.pipeline.slug], one.step.key)]
            pipeline, step = self._take(early, "failing step")
            rate = self._rate(0.08, 0.25, "failing step")
            yield FailingStep(self._organization.slug, pipeline.slug, step.key, rate)

    def _flaky_tests(self) -> Iterator[UnstableTest]:
        if self._is_long() and _is_planted(self._random, 0.5, "flaky test"):
            suite, slug = self._random.choice(self._organization.suites, "plant", "flaky test"), self._organization.slug
            number = self._random.choice(range(suite.tests), "plant", "flaky test", "number")
            since = Moment.from_us(self._instant(0.1, 0.6, "flaky test", 7, 17))
            per_day = self._rate(3.0, 12.0, "flaky test")
            id = flaky_test_id(self._random, slug, suite.slug, number)
            yield UnstableTest(slug, suite.slug, id, since, per_day)

    def _repeated_builds(self) -> Iterator[RepeatedBuilds]:
        """Choose a pipeline whose builds are not canceled or skipped because of newer ones."""
        if self._is_long() and _is_planted(self._random, 0.4, "repeated builds"):
            large = [one for one in self._organization.pipelines if one.share >= _MIN_SHARE]
            kept = [one for one in large if not one.cancel_running_branch_builds and not one.skip_queued_branch_builds]
            pipeline = self._random.choice(kept, "plant", "repeated builds")
            since = self._instant(0.1, 0.5, "repeated builds", 7, 17)
            days = (self._until - self._start) * self._between(0.25, 0.4, "repeated builds", "days")
            share, until = self._rate(0.2, 0.6, "repeated builds"), Moment.from_us(since + int(days))
            yield RepeatedBuilds(self._organization.slug, pipeline.slug, share, Moment.from_us(since), until)

    def _storms(self, broken: Collection[BrokenBranch]) -> Iterator[Storm]:
        """Choose a queue that is not short, and a day that is far from an outage, so that both stand out."""
        if not self._is_long() or not _is_planted(self._random, 0.5, "storm"):
            return
        short = {queue.queue for queue in self._short}
        queue = self._random.choice(sorted({"default", "docker", MACOS} - short), "plant", "storm")
        agents = storm_agents(queue, self._organization, self._random.happens(0.5, "plant", "storm", "whole"))
        calm = [day for day in self._middle(0.15, 0.9) if all(abs(day - one.since.us) > 2 * DAY for one in broken)]
        day = self._random.choice(calm, "plant", "storm", "day")
        since = day + int(self._between(8, 13, "storm", "hour") * _HOUR)
        until = since + int(self._between(1, 3, "storm", "hours") * _HOUR)
        status = self._random.choice((-1, 1), "plant", "storm", "status")
        times = Moment.from_us(since), Moment.from_us(until)
        yield Storm(self._organization.slug, queue, agents, *times, status)

    # --- draws

    def _is_long(self) -> bool:
        return len(self._days) >= _MIN_WORKING_DAYS

    def _steps(self) -> list[_Candidate]:
        """Return the steps that run in every build and do not wait for a short queue."""
        short = {queue.queue for queue in self._short}
        return [
            _Candidate(pipeline, step)
            for pipeline in self._organization.pipelines
            if pipeline.share >= _MIN_SHARE
            for step in pipeline.steps
            if step.kind == "script" and step.key != UPLOAD and step.queue not in short
            and not (step.skip or step.soft_fail or step.branches or step.timeout_in_minutes)
        ]  # fmt: skip

    def _take(self, candidates: list[_Candidate], *key: str | int) -> _Candidate:
        free = [one for one in candidates if (one.pipeline.slug, one.step.key) not in self._taken]
        chosen = self._random.choice(free, "plant", *key, "step")
        self._taken.add((chosen.pipeline.slug, chosen.step.key))
        return chosen

    def _middle(self, low: float, high: float) -> list[int]:
        """Return the working days between two shares of all."""
        return self._days[round(low * len(self._days)) : round(high * len(self._days))]

    def _instant(self, low: float, high: float, kind: str, earliest: float, latest: float) -> int:
        """Return a timestamp between two hours of a working day; `low` and `high` are shares of the working days."""
        day = self._random.choice(self._middle(low, high), "plant", kind, "day")
        return day + int(self._between(earliest, latest, kind, "hour") * _HOUR)

    def _between(self, low: float, high: float, *key: str) -> float:
        return self._random.uniform_between(low, high, "plant", *key)

    def _rate(self, low: float, high: float, *key: str | int) -> float:
        """Return a log-uniform number with three decimals."""
        share = self._random.uniform("plant", *key, "rate")
        return round(low * math.exp(share * math.log(high / low)), 3)


def _finish_times(plan: Plan) -> dict[str, float]:
    """Return the seconds after which each slot ends if no job waits for an agent and every run time is the median."""
    times: dict[str, float] = {}
    for slot in TopologicalSorter(plan.needs).static_order():
        step = plan.slots[slot].step
        runs = step.kind == "script" and not step.skip and not step.branches
        times[slot] = max((times[need] for need in plan.needs[slot]), default=0.0) + (step.seconds if runs else 0.0)
    return times


def _critical_steps(plan: Plan) -> set[str]:
    """Return the keys of the steps on the longest path of a plan: if one becomes slower, so do its builds."""
    times = _finish_times(plan)
    slot = max(times, key=lambda one: times[one])
    path = {plan.slots[slot].step.key}
    while plan.needs[slot]:
        slot = max(plan.needs[slot], key=lambda one: times[one])
        path.add(plan.slots[slot].step.key)
    return path


def _ends_early(plan: Plan, slot: str) -> bool:
    """Return whether only a wait step needs a slot, and the others that it needs take at least twice as long."""
    after = plan.dependents.get(slot, [])
    if not after or any(plan.slots[other].step.kind != "waiter" for other in after):
        return False
    times = _finish_times(plan)
    return 2 * times[slot] <= max(times[need] for need in plan.needs[after[0]])
