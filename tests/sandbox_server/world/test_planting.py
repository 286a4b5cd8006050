"""The anomalies that `truth` lists are in the simulated builds of 30 seeds, and others are not; counted by pandas."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.handlers.flaky_tests import SimulatedTest
from buildframe.sandbox_server.sandbox import UNTIL
from buildframe.sandbox_server.simulation.scenario import Scenario
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.sandbox_server.world.build_state import BuildRun
from buildframe.sandbox_server.world.creation import make_world
from buildframe.sandbox_server.world.ground_truth import Truth
from buildframe.sandbox_server.world.model import World
from buildframe.sandbox_server.world.pipelines import PipelineRegistry, initial_pipelines
from buildframe.sandbox_server.world.planting import EXAMPLE_SEED

SEEDS = range(2, 32)
SIZE = 280, 14  # builds and days
SECOND = 1_000_000
HOUR = 3600 * SECOND
QUIET = 3 * HOUR  # around an outage, in which nothing else fails on its branch
BACKGROUND = 0.013  # commits at which a step without an anomaly fails
SPREAD = 0.18  # standard deviation of the logarithm of run times
RARE = 1e-6


class Recorder(Database):
    """Keeps the builds of a simulation in memory instead of storing them, which takes most of the time."""

    def __init__(self) -> None:
        super().__init__(None)
        self.runs: dict[str, BuildRun] = {}

    def save(self, builds: Any, *_: Any) -> None:
        self.runs |= {build.id: build for build in builds}

    def load_builds(self, condition: str, *values: Any) -> Iterator[BuildRun]:
        return (self.runs[id] for id in values)


class Month(NamedTuple):
    """A world, and its builds and attempts of script jobs as frames; timestamps are microseconds."""

    world: World
    builds: pd.DataFrame
    attempts: pd.DataFrame

    @property
    def truth(self) -> Truth:
        return self.world.truth


def simulate(seed: int) -> Month:
    db = Recorder()
    db.create_world(make_world(seed, *SIZE, UNTIL))
    simulator = Simulator(db, cancels_at_once=True)
    simulator.run_until(simulator.world.until)
    acme = [build for build in db.runs.values() if build.pipeline_key.startswith("acme/")]
    builds = pd.DataFrame(
        [(b.id, b.pipeline_key[5:], b.created, b.commit.branch, b.commit.sha, b.state, is_pushed(b)) for b in acme],
        columns=["build", "pipeline", "created", "branch", "commit", "build_state", "is_pushed"],
    ).sort_values("created", ignore_index=True)
    attempts = pd.DataFrame(
        [
            (b.id, step.key, step.queue, j.runnable, j.started, j.finished, j.state, j.exit_status, j.agent)
            for b in acme
            for j in b.jobs
            if (step := db.pipelines.plans[b.plan].slots[j.step].step).kind == "script" and j.started is not None
        ],
        columns=["build", "step", "queue", "runnable", "started", "finished", "state", "exit_status", "agent"],
    ).merge(builds, on="build")
    db.close()
    return Month(simulator.world, builds, attempts.assign(in_storm=in_storms(simulator.world.truth, attempts)))


def is_pushed(build: BuildRun) -> bool:
    return build.rebuilt_from is None and build.triggered_from is None


def in_storms(truth: Truth, attempts: pd.DataFrame) -> np.ndarray:
    masks = [
        attempts["agent"].isin(storm.agents)
        & attempts["started"].between(storm.since.us, storm.until.us, inclusive="left")
        for storm in truth.storms
    ]
    return np.any([np.zeros(len(attempts), bool), *masks], axis=0)


@pytest.fixture(scope="module")
def months() -> list[Month]:
    return [simulate(seed) for seed in SEEDS]


def planted(months: list[Month], kind: str) -> list[tuple[Month, Any]]:
    return [(month, one) for month in months for one in getattr(month.truth, kind)]


def of_step(frame: pd.DataFrame, one: Any) -> pd.DataFrame:
    return frame[(frame["pipeline"] == one.pipeline) & (frame["step"] == one.step_key)]


def log_seconds(attempts: pd.DataFrame) -> pd.Series:
    return np.log((attempts["finished"] - attempts["started"]) / SECOND)


def ordinary(month: Month) -> pd.DataFrame:
    """Return the attempts that passed or failed on their own, outside of storms and of days with an outage."""
    rows = month.attempts
    rows = rows[rows["state"].isin(["passed", "failed"]) & (rows["exit_status"] != -1) & ~rows["in_storm"]]
    for one in month.truth.broken_branches:
        near = rows["created"].between(one.since.us - QUIET, one.until.us + QUIET)
        rows = rows[~((rows["pipeline"] == one.pipeline) & (rows["branch"] == one.branch) & near)]
    return rows


def assert_rate(failed: int, n: int, rate: float) -> None:
    assert min(stats.binom.cdf(failed, n, rate), stats.binom.sf(failed - 1, n, rate)) > RARE, (failed, n, rate)


@pytest.mark.long
def test_seeds_differ_in_what_is_planted(months):
    empty = [month for month in months if month.truth == Truth()]
    assert 3 <= len(empty) <= 9
    for field in dataclasses.fields(Truth):
        many = sum(bool(getattr(month.truth, field.name)) for month in months)
        assert 6 <= many <= 24, field.name
    slower = [one for _, one in planted(months, "slower_steps")]
    assert len({(one.pipeline, one.step_key) for one in slower}) >= 9
    assert len({one.factor for one in slower}) >= 12
    fresh = [one for one in slower if UNTIL.us - one.at.us < 8 * 24 * HOUR]
    assert len(fresh) >= 6
    assert {one.exit_status for _, one in planted(months, "storms")} == {-1, 1}


@pytest.mark.long
def test_a_seed_plants_the_same_again_and_no_step_has_two_anomalies(months):
    for month in months[:10]:
        assert make_world(month.world.seed, *SIZE, UNTIL).truth == month.truth
        assert World.decode(month.world.encode()) == month.world
    kinds = ("slower_steps", "flaky_steps", "failing_steps", "broken_branches")
    for month in months:
        steps = [(one.pipeline, one.step_key) for kind in kinds for one in getattr(month.truth, kind)]
        assert len(steps) == len(set(steps))


@pytest.mark.long
def test_steps_became_slower_by_their_factor_at_their_instant(months):
    errors = []
    for month, slower in planted(months, "slower_steps"):
        runs = of_step(month.attempts, slower).query("state == 'passed'")
        late = runs["created"] >= slower.at.us
        before, after = log_seconds(runs[~late]), log_seconds(runs[late])
        assert min(len(before), len(after)) >= 3
        error = SPREAD * np.sqrt(1 / len(before) + 1 / len(after))
        errors.append((after.mean() - before.mean() - np.log(slower.factor)) / error)
    assert np.abs(errors).max() < 5
    assert np.abs(np.mean(errors)) < 4 / np.sqrt(len(errors))


@pytest.mark.long
def test_no_other_step_changed(months):
    for month in months:
        changed = {(one.pipeline, one.step_key) for one in month.truth.slower_steps}
        passed = month.attempts[month.attempts["state"] == "passed"].sort_values("created")
        for key, times in log_seconds(passed).groupby([passed["pipeline"], passed["step"]]):
            if key not in changed and len(times) >= 20:
                assert largest_shift(times.to_numpy()) < 6, (month.world.seed, key)


def largest_shift(values: np.ndarray) -> float:
    """Return the largest difference between the means before and after a split, in standard errors."""
    n, after = len(values), np.arange(5, len(values) - 4)
    sums = np.cumsum(values - values.mean())[after - 1]
    return float(np.abs(sums / values.std() / np.sqrt(after * (n - after) / n)).max())


@pytest.mark.long
def test_flaky_steps_fail_at_their_rates(months):
    expected, failed = 0.0, 0
    for month, flaky in planted(months, "flaky_steps"):
        states = of_step(ordinary(month), flaky)["state"]
        assert_rate((states == "failed").sum(), len(states), flaky.rate)
        expected, failed = expected + flaky.rate * len(states), failed + (states == "failed").sum()
    assert failed == pytest.approx(expected, rel=0.15)


@pytest.mark.long
def test_some_commits_fail_early_in_every_attempt_and_waste_the_work_of_others(months):
    wasted = []
    for month, failing in planted(months, "failing_steps"):
        attempts = of_step(ordinary(month), failing)
        fails = attempts["state"] == "failed"
        is_bad = fails.groupby(attempts["commit"]).all()
        assert_rate(is_bad.sum(), len(is_bad), failing.rate + 0.008)
        ends = attempts[fails].groupby("build")["finished"].min().rename("failure").reset_index()
        others = month.attempts.merge(ends, on="build").query("finished > failure")
        late = others["finished"] - others[["started", "failure"]].max(axis=1)
        wasted.append(late.groupby(others["build"]).sum().reindex(ends["build"], fill_value=0).mean() / SECOND)
    assert np.median(wasted) > 120


@pytest.mark.long
def test_no_other_step_fails_often(months):
    for month in months:
        bad = {(one.pipeline, one.step_key) for one in (*month.truth.flaky_steps, *month.truth.failing_steps)}
        attempts = ordinary(month)
        commits = (attempts["state"] == "failed").groupby([attempts["pipeline"], attempts["step"], attempts["commit"]])
        counts = commits.any().groupby(level=[0, 1]).agg(["sum", "size"])
        chance = stats.binom.sf(counts["sum"] - 1, counts["size"], BACKGROUND)
        assert set(counts.index[chance < RARE]) <= bad, month.world.seed


@pytest.mark.long
def test_commits_are_built_twice_as_often_as_planted(months):
    for month in months:
        pushed = month.builds[month.builds["is_pushed"]]
        again = pushed.groupby(["pipeline", "commit"])["created"].diff() < 4 * SECOND
        expected = again & False
        for one in month.truth.repeated_builds:
            inside = pushed["created"].between(one.since.us, one.until.us + 4 * SECOND)
            expected |= (pushed["pipeline"] == one.pipeline) & inside
            first = (pushed["pipeline"] == one.pipeline) & inside & ~again
            assert_rate(again[expected].sum(), first.sum(), one.share)
        assert not again[~expected].any()


@pytest.mark.long
def test_all_jobs_of_a_storm_fail_and_no_other_period_is_one(months):
    seen = 0
    for month in months:
        storm = month.attempts[month.attempts["in_storm"] & month.attempts["state"].isin(["passed", "failed"])]
        seen += len(storm) > 0
        assert (storm["state"] == "failed").all()
        assert set(storm["exit_status"]) <= {one.exit_status for one in month.truth.storms}
        assert set(storm["queue"]) <= {one.queue for one in month.truth.storms}
        calm = ordinary(month)
        hours = calm.assign(hour=calm["started"] // HOUR, failed=calm["state"] == "failed")
        steps = hours.groupby(["queue", "hour", "pipeline", "step"])["failed"].mean().groupby(level=[0, 1])
        assert not ((steps.mean() > 0.8) & (steps.size() >= 4)).any()
        lost = month.attempts[~month.attempts["in_storm"] & (month.attempts["state"] == "failed")]["exit_status"] == -1
        assert_rate(lost.sum(), len(month.attempts), 0.004)
    assert seen >= 0.9 * len(planted(months, "storms"))


@pytest.mark.long
def test_jobs_of_short_queues_wait_longer(months):
    waits: dict[bool, list[float]] = {True: [], False: []}
    for month in months:
        short = {one.queue for one in month.truth.short_queues}
        assert {one.agents for one in month.truth.short_queues} <= {month.world.organizations[0].agents["macos"]}
        macos = month.attempts[month.attempts["queue"] == "macos"]
        waits["macos" in short].append((macos["started"] - macos["runnable"]).mean() / HOUR)
    assert min(waits[True]) > 2 * np.median(waits[False])
    assert np.median(waits[True]) > 4 * np.median(waits[False])


@pytest.mark.long
def test_a_broken_branch_fails_throughout_and_other_steps_never_so_often_in_a_row(months):
    for month, broken in planted(months, "broken_branches"):
        builds = month.builds[(month.builds["pipeline"] == broken.pipeline) & (month.builds["branch"] == broken.branch)]
        inside = builds[builds["created"].between(broken.since.us, broken.until.us, inclusive="left")]
        assert len(inside) >= 3
        assert set(inside["build_state"]) <= {"failed", "canceled", "skipped"}
        last = of_step(month.attempts, broken).merge(inside[["build"]])
        assert len(last) >= 1
        assert set(last["state"]) <= {"failed", "canceled"}
    for month in months:
        known = {(one.pipeline, one.step_key) for one in (*month.truth.broken_branches, *month.truth.failing_steps)}
        rows = month.attempts[(month.attempts["branch"] == "main") & ~month.attempts["in_storm"]]
        last = rows.sort_values("started").groupby(["pipeline", "step", "build"], sort=False)["state"].last()
        failed = (last == "failed").reset_index()
        failed["passed_before"] = (~failed["state"]).groupby([failed["pipeline"], failed["step"]]).cumsum()
        streaks = failed.groupby(["pipeline", "step", "passed_before"])["state"].sum().groupby(level=[0, 1]).max()
        assert set(streaks.index[streaks > 4]) <= known, month.world.seed


@pytest.mark.long
def test_planted_tests_flake_at_their_rates(months):
    for month, flaky in planted(months, "flaky_tests"):
        world, entries = month.world, PipelineRegistry(initial_pipelines(month.world))
        (suite,) = (one for one in world.organizations[0].suites if one.slug == flaky.suite)
        tests = [SimulatedTest(suite, entries["acme/web"], n, Scenario(world, entries)) for n in range(suite.tests)]
        (test,) = (test for test in tests if test.id == flaky.test_id)
        flakes = test.flakes(world.until)
        days = (world.until - flaky.since.us) / (24 * HOUR)
        assert flakes[0].at == flaky.since.us
        assert all(flake.resolved is None for flake in flakes)
        assert stats.poisson.cdf(len(flakes) - 1, flaky.per_day * days) > RARE
        assert stats.poisson.sf(len(flakes) - 2, flaky.per_day * days) > RARE


def test_the_documented_seed_has_fixed_anomalies():
    truth = make_world(EXAMPLE_SEED, 2600, 30, UNTIL).truth
    (slower,), (flaky,), (broken,) = truth.slower_steps, truth.flaky_steps, truth.broken_branches
    assert (slower.pipeline, slower.step_key, slower.factor) == ("api", "integration", 1.6)
    assert (flaky.pipeline, flaky.step_key, flaky.rate) == ("web", "e2e", 0.12)
    assert (broken.pipeline, broken.step_key) == ("web", "unit-checkout")
    assert [queue.queue for queue in truth.short_queues] == ["macos"]
    assert (truth.storms, truth.failing_steps, truth.repeated_builds, truth.flaky_tests) == ((), (), (), ())


def test_a_short_history_has_no_anomaly_that_begins_or_ends():
    for seed in SEEDS:
        truth = make_world(seed, 60, 5, UNTIL).truth
        assert not any((truth.slower_steps, truth.storms, truth.broken_branches, truth.repeated_builds))
