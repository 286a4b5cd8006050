"""Rates of random failures: calibrated over simulated steps, and counts computed manually."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from buildframe.metrics.flake_rates import AttemptCounts, estimate_rates
from tests.metrics.simulated_flakes import START, as_jobs, calibrate, draw_rates, simulate
from tests.refusals import columns_not_named, wrong_messages


def attempts(*listed: dict[str, Any]) -> pd.DataFrame:
    """Jobs of the step e2e: each passes on its own commit unless it says otherwise."""
    usual = [{"step_key": "e2e", "commit": i, "failed": False, "attempt": 0} for i in range(len(listed))]
    return as_jobs(pd.DataFrame([one | own for one, own in zip(usual, listed, strict=True)]))


def at(minutes: int) -> pd.Timestamp:
    return START + pd.Timedelta(minutes=minutes)


# --- calibration

WORLDS: dict[str, dict[str, Any]] = {
    "retried once": {},
    "retried twice": {"retries": 2},
    "half retried": {"retried": 0.5},
    "planned": {"runs": 3, "retries": 0},
}


@pytest.mark.long
@pytest.mark.parametrize("world", WORLDS)
def test_intervals_contain_nine_of_ten_rates_and_probabilities_beat_rates_and_bounds(world: str) -> None:
    results = []
    for seed, kind in enumerate(["few", "all", "wide"] * 2):
        jobs, rates = simulate(seed, kind, **WORLDS[world])
        result = metrics.flake_score(jobs)
        results.append(calibrate(result, rates, metrics.flips(jobs), 0.01))
    coverage, _, score, raw, wilson = np.mean(results, axis=0)
    assert coverage >= 0.87
    assert score < min(raw, wilson)


@pytest.mark.long
def test_intervals_hold_for_few_steps() -> None:
    """They account for not knowing what the steps have in common; the best prior of each draw contains fewer."""
    random = np.random.default_rng(1)
    covered = []
    for _ in range(60):
        rates = draw_rates(random, 20, "all")
        failures = random.binomial(100, rates)
        zeros = np.zeros((20, 3), np.int64)
        posterior = estimate_rates(AttemptCounts(failures * 1.0, 100.0 - failures, np.full(20, 100), zeros))
        low, high = posterior.interval(0.9)
        covered.append((low <= rates) & (rates <= high))
    assert np.mean(covered) >= 0.87


@pytest.mark.long
def test_with_many_steps_alike_the_posterior_is_that_of_their_common_rate() -> None:
    """Beta-binomial conjugacy: with a known prior, the mean is (a + x) / (a + b + n)."""
    random = np.random.default_rng(2)
    rates = random.beta(10, 190, 3_000)
    failures = random.binomial(50, rates)
    zeros = np.zeros((3_000, 3), np.int64)
    mean = estimate_rates(AttemptCounts(failures * 1.0, 50.0 - failures, np.full(3_000, 50), zeros)).mean()
    usual = failures <= 8  # others may be unlike the rest
    np.testing.assert_allclose(mean[usual], (10 + failures[usual]) / 250, rtol=0.15)


@pytest.mark.long
def test_the_rate_is_that_of_attempts_whatever_the_number_of_retries() -> None:
    """Failures that are retried once flip p / (1 + p) of the commits that pass; the rate is p."""
    for retries in (1, 3):
        random = np.random.default_rng(retries)
        first = pd.DataFrame({"step_key": "e2e", "commit": range(3_000), "failed": random.random(3_000) < 0.25})
        rounds = [first.assign(attempt=0)]
        for attempt in range(1, retries + 1):
            again = rounds[-1][rounds[-1]["failed"]]
            rounds.append(again.assign(attempt=attempt, failed=random.random(len(again)) < 0.25))
        row = metrics.flake_score(as_jobs(pd.concat(rounds, ignore_index=True))).loc[0]
        assert row["low"] < 0.25 < row["high"]
        assert row["high"] - row["low"] < 0.05


@pytest.mark.long
def test_one_flaky_step_among_many_steady_ones_is_not_drawn_to_them() -> None:
    steady = [pd.DataFrame({"step_key": f"s{i}", "commit": range(200), "failed": False}) for i in range(60)]
    e2e = pd.DataFrame({"step_key": "e2e", "commit": range(200), "failed": np.arange(200) % 8 == 0})
    again = e2e[e2e["failed"]].assign(failed=False, attempt=1)
    jobs = as_jobs(pd.concat([*steady, e2e, again], ignore_index=True).fillna({"attempt": 0}))
    scores = metrics.flake_score(jobs).set_index("step")
    assert scores.index[0] == "e2e"
    assert scores.loc["e2e", "low"] < 25 / 225 < scores.loc["e2e", "high"]
    assert (scores["high"].drop("e2e") < 0.02).all()
    assert (scores["low"].drop("e2e") == 0).all()


def test_broken_commits_are_not_random_failures() -> None:
    good = [{"commit": i} for i in range(100)]
    broken = [{"commit": 100 + i, "failed": True, "attempt": k} for i in range(30) for k in (0, 1)]
    flaky = [{"commit": 200, "failed": True}, {"commit": 200, "attempt": 1}]
    row = metrics.flake_score(attempts(*good, *broken, *flaky)).loc[0]
    assert row[["outcomes", "flaky", "deterministic"]].tolist() == [131, 1, 30]
    assert row["low"] < 1 / 102 < row["high"] < 0.06


def test_fifty_commits_that_run_once_show_nothing() -> None:
    once = [{"commit": i, "failed": i % 10 == 0} for i in range(50)]
    row = metrics.flake_score(attempts(*once)).loc[0]
    assert row[["rate", "low", "high", "p_above"]].isna().all()
    assert row["power_planned"] == 0
    assert row["undecided"] == 5


# --- counts computed manually


def test_what_a_flake_costs() -> None:
    """A failure of 3 minutes that is retried, and one that turns its build red until a rebuild passes."""
    jobs = attempts(
        {"commit": 1, "failed": True, "retried": True},
        {"commit": 1, "attempt": 1},  # ends 10 minutes later
        {"commit": 2, "failed": True, "started_at": at(121), "finished_at": at(126)},
        {"commit": 2, "attempt": 1, "finished_at": at(186)},
        {"commit": 3, "failed": True},  # nobody knows whether it is a flake
        {"commit": 4},
        {"commit": 4, "failed": True, "attempt": 1},  # when the commit had passed, nobody waits
        {"commit": 5, "failed": True, "exit_status": -1},  # a lost agent
        {"commit": 5, "attempt": 1},
    )
    row = metrics.flake_score(jobs).loc[0]
    assert row[["outcomes", "flaky", "undecided", "infrastructure"]].tolist() == [5, 3, 1, 1]
    assert row["red_builds"] == 2
    assert row["machine_s"] == 60 * (3 + 5 + 3)
    assert row["waiting_s"] == 60 * (10 + 60)


def test_red_builds_are_builds_and_not_failures() -> None:
    """Two shards fail in one build that a rebuild repairs; one of them fails in the rebuild of another commit, too."""
    jobs = attempts(
        *({"commit": 1, "failed": True, "parallel_group_index": i, "build_id": "a"} for i in (0, 1)),
        *({"commit": 1, "attempt": 1, "parallel_group_index": i, "build_id": "b"} for i in (0, 1)),
        *({"commit": 2, "failed": True, "attempt": i, "build_id": "cd"[i]} for i in (0, 1)),
        {"commit": 2, "attempt": 2, "build_id": "e"},
        {"commit": 3, "failed": True, "retried": True, "build_id": "f"},  # its retry keeps the build green
        {"commit": 3, "attempt": 1, "build_id": "f"},
        {"commit": 4, "failed": True, "build_id": "g"},  # nobody knows whether it is a flake
        {"commit": 5, "step_key": "lint", "failed": True, "build_id": "h"},
        {"commit": 5, "step_key": "lint", "attempt": 1, "build_id": "i"},
        {"commit": 5, "step_key": "docs", "build_id": "i"},
    )
    scores = metrics.flake_score(jobs).set_index("step")
    assert scores["red_builds"].to_dict() == {"e2e": 3, "lint": 1, "docs": 0}


@pytest.mark.long
def test_a_step_that_never_passed_has_no_rate_and_no_influence() -> None:
    """Broken at each commit, with two attempts: a regression, not a flake. Other steps are estimated as without it."""
    flaky = [{"commit": i, "failed": i % 20 == 0, "retried": i % 20 == 0} for i in range(60)]
    flaky += [{"commit": i, "attempt": 1} for i in range(0, 60, 20)]
    broken = [{"step_key": "broken", "commit": i, "failed": True, "attempt": k} for i in range(60) for k in (0, 1)]
    scores = metrics.flake_score(attempts(*flaky, *broken))
    assert scores["step"].tolist() == ["e2e", "broken"]
    row = scores.loc[1]
    assert row[["rate", "low", "high", "p_above"]].isna().all()
    assert row[["outcomes", "deterministic", "power_planned", "power_retried"]].tolist() == [60, 60, 0, 0]
    alone = metrics.flake_score(attempts(*flaky))
    pd.testing.assert_frame_equal(scores.head(1), alone)


@pytest.mark.long
def test_suspected_flakes_failed_once_between_two_commits_that_passed() -> None:
    failing = {2, 5, 6, 9, 11}
    jobs = attempts(
        *({"commit": i, "failed": i in failing} for i in range(12)),  # 2 and 9 stand alone; 11 is the last
        {"commit": 9, "failed": True, "attempt": 1, "branch": "topic"},
        {"commit": 20, "branch": "topic"},
        {"commit": 21, "branch": "topic", "failed": True},
        {"commit": 22, "branch": "topic"},
    )
    assert metrics.flake_score(jobs)["suspected"].isna().all()
    assert metrics.flake_score(jobs, branch="main")["suspected"].tolist() == [2]
    assert metrics.flake_score(jobs, branch="topic")["suspected"].tolist() == [1]
    listed = pd.DataFrame({"slug": ["web", "api"], "default_branch": ["topic", "main"]}, dtype="str")
    assert metrics.flake_score(jobs, pipelines=listed)["suspected"].tolist() == [1]
    assert metrics.flake_score(jobs, pipelines=listed.tail(1))["suspected"].isna().all()
    with_organization = listed.assign(organization=pd.Series(["acme", "acme"], dtype="str"))
    assert metrics.flake_score(jobs, pipelines=with_organization)["suspected"].tolist() == [1]


def in_storm(place: str, passing: int) -> pd.DataFrame:
    """Six steps that fail at two commits and are retried, in a queue or on an agent, and some that pass there."""
    own = {"commit": 40, "finished_at": at(2_400), "started_at": at(2_399)} | {place: "stormy"}
    storm = [{"step_key": f"s{i}", "failed": True, "retried": True} | own | {"commit": 40 + i % 2} for i in range(6)]
    passed = [{"step_key": f"t{i}"} | own for i in range(passing)]
    again = [{"step_key": f"s{i}", "commit": 40 + i % 2, "attempt": 30} for i in range(6)]
    calm = [{"step_key": f"s{i}", "commit": c} for i in range(6) for c in range(30)]
    return attempts(*storm, *passed, *again, *calm, {"commit": 3, "failed": True}, {"commit": 3, "attempt": 1})


@pytest.mark.long
def test_storms_are_left_out_and_counted() -> None:
    for place in ("queue", "agent_id"):
        scores = metrics.flake_score(in_storm(place, 1)).set_index("step")
        assert scores["n_storm"].to_dict() == {"e2e": 0, "t0": 1, **{f"s{i}": 1 for i in range(6)}}, place
        assert scores["flaky"].to_dict() == {"e2e": 1, "t0": 0, **{f"s{i}": 0 for i in range(6)}}, place
        calm = metrics.flake_score(in_storm(place, 2))  # of 8 steps only 75 % fail
        assert calm["n_storm"].sum() == 0, place
        assert calm["flaky"].sum() == 7, place


@pytest.mark.long
def test_flips_and_outcomes_leave_storms_out_as_scores_do() -> None:
    for place in ("queue", "agent_id"):
        jobs = in_storm(place, 1)
        summaries = (summary(jobs).set_index("step").sort_index() for summary in (metrics.flake_score, metrics.flips))
        scores, flips = summaries
        assert flips["n_storm"].to_dict() == {"e2e": 0, "t0": 1, **{f"s{i}": 1 for i in range(6)}}
        assert flips["flaky"].to_dict() == {"e2e": 1, "t0": 0, **{f"s{i}": 0 for i in range(6)}}
        outcomes = metrics.outcomes_by_commit(jobs)
        assert scores["outcomes"].to_dict() == {"t0": 0, **outcomes["step"].value_counts().to_dict()}
        assert scores["flaky"].sum() == (outcomes["verdict"] == "flaky").sum() == 1
        stormy = outcomes[outcomes["n_storm"] > 0]
        assert stormy[["passes", "failures", "lost", "n_storm"]].drop_duplicates().values.tolist() == [[1, 0, 0, 1]]
        assert (stormy["first_at"] == stormy["last_at"]).all()
        assert stormy["step"].tolist() == [f"s{i}" for i in range(6)]


@pytest.mark.long
def test_scores_count_shards_and_flips_count_commits() -> None:
    jobs = attempts(*({"commit": 1, "parallel_group_index": i} for i in range(3)))
    assert metrics.flake_score(jobs)["outcomes"].tolist() == [3] == [len(metrics.outcomes_by_commit(jobs))]
    assert metrics.flips(jobs)["commits"].tolist() == [1]


def test_few_failing_steps_are_no_storm() -> None:
    jobs = in_storm("queue", 0)
    few = jobs[~jobs["step_key"].isin(["s4", "s5"])]
    assert metrics.flake_score(few)["n_storm"].sum() == 0


@pytest.mark.long
def test_a_single_broken_commit_is_no_storm() -> None:
    """All six steps fail at one commit, in two builds, while the queue runs nothing else."""
    steps, commits = range(6), [*range(30), 20]
    jobs = attempts(
        *({"step_key": f"s{i}", "commit": c, "failed": c == 20, "attempt": n == 30} for i in steps
          for n, c in enumerate(commits))
    )  # fmt: skip
    outcomes = metrics.outcomes_by_commit(jobs)
    assert outcomes["n_storm"].sum() == 0
    assert outcomes["verdict"].value_counts().to_dict() == {"passed": 6 * 29, "deterministic": 6}
    unknown = jobs.assign(commit=jobs["commit"].mask(jobs.index % 31 == 30))  # an unknown commit is not a second one
    assert metrics.flake_score(unknown)["n_storm"].sum() == 0


def count_stormy(*groups: dict[str, Any]) -> int:
    """Count attempts in storms, of groups of steps that finish in one queue and half hour, on agents."""
    listed = [
        {"step_key": f"{group['agent_id']} {i}", "failed": i < group["failing"], "retried": True, "commit": 100 * j + i}
        | {"queue": "q", "agent_id": group["agent_id"], "finished_at": at(2_400 + group.get("after", 0))}
        for j, group in enumerate(groups)
        for i in range(group["steps"])
    ]
    again = [{"step_key": "e2e", "commit": 3, "failed": True}, {"step_key": "e2e", "commit": 3, "attempt": 1}]
    return int(metrics.flake_score(attempts(*listed, *again))["n_storm"].sum())


@pytest.mark.long
def test_a_storm_on_a_third_of_the_agents_is_one_of_these_agents() -> None:
    """A third of the steps of a queue is no storm of the queue, but all steps of an agent are one of the agent."""
    calm = [{"agent_id": name, "steps": 6, "failing": 0} for name in ("a", "b")]
    assert count_stormy(*calm, {"agent_id": "c", "steps": 6, "failing": 6}) == 6
    assert count_stormy(*calm, {"agent_id": None, "steps": 6, "failing": 6}) == 0
    assert count_stormy(*calm, *({"agent_id": name, "steps": 2, "failing": 2} for name in "cde")) == 0


@pytest.mark.long
def test_limits_of_storms() -> None:
    """More than 80 % of at least 5 steps, in one half hour of the clock."""
    cases = {(4, 4): 0, (5, 4): 0, (5, 5): 5, (6, 5): 6, (10, 8): 0, (10, 9): 10}
    counted = {case: count_stormy({"agent_id": "a", "steps": case[0], "failing": case[1]}) for case in cases}
    assert counted == cases
    parts = [{"agent_id": "a", "steps": 3, "failing": 3, "after": minutes} for minutes in (29, 30)]
    assert count_stormy(*parts) == 0
    assert count_stormy(*({**part, "agent_id": name, "after": 29} for part, name in zip(parts, "ab", strict=True))) == 6


@pytest.mark.long
def test_a_storm_is_found_among_many_periods_in_which_half_of_the_attempts_fail() -> None:
    suspicious = [{"agent_id": "a", "steps": 10, "failing": 5, "after": 60 * k} for k in range(25)]
    assert count_stormy(*suspicious) == 0
    assert count_stormy(*suspicious, {"agent_id": "b", "steps": 6, "failing": 6, "after": 750}) == 6


def test_like_is_compared_with_like_and_unknown_commits_are_counted() -> None:
    jobs = attempts(
        {"commit": 1, "failed": True, "parallel_group_index": 0},
        {"commit": 1, "parallel_group_index": 1},
        {"commit": 2, "parallel_group_index": 0},
        {"commit": 3, "failed": True},
        {"commit": 3, "failed": True, "attempt": 1},
    )
    jobs.loc[2, "commit"] = "HEAD"
    row = metrics.flake_score(jobs).loc[0]
    assert row[["outcomes", "flaky", "undecided", "deterministic", "n_without_commit"]].tolist() == [3, 0, 1, 1, 1]


@pytest.mark.long
def test_equal_steps_are_ordered_by_key() -> None:
    """Their posteriors can differ in the last digits, because sums of matrices depend on the place of a row."""
    for steps, commits in ((5, 7), (5, 31), (17, 20), (33, 31)):
        each = [{"commit": i, "failed": i == 3} for i in range(commits)] + [{"commit": 3, "attempt": 1}]
        scores = metrics.flake_score(attempts(*({"step_key": f"s{i:02}"} | one for i in range(steps) for one in each)))
        assert scores["step"].is_monotonic_increasing


@pytest.mark.long
def test_many_attempts_at_one_commit_count_as_five() -> None:
    others = [{"commit": i} for i in range(60)]
    often = [{"commit": 99, "failed": k < 16, "attempt": k} for k in range(20)]
    few = [{"commit": 99, "failed": k < 4, "attempt": k} for k in range(5)]
    many, five = (metrics.flake_score(attempts(*others, *own)).loc[0] for own in (often, few))
    assert many["rate"] == pytest.approx(five["rate"], rel=0.15)
    assert many["rate"] < 16 / 80


# --- power


def of_runs(runs: list[int]) -> pd.DataFrame:
    """One step that passes so many times at each commit."""
    return attempts(*({"commit": i, "attempt": k} for i, n in enumerate(runs) for k in range(n)))


def test_power_of_planned_runs_is_that_of_a_simulation() -> None:
    random = np.random.default_rng(5)
    runs = [1, 1, 2, 3, 5]
    for rate in (0.05, 0.3):
        failed = [random.random((20_000, n)) < rate for n in runs]
        shown = np.any([one.any(axis=1) & ~one.all(axis=1) for one in failed], axis=0).mean()
        scores = metrics.flake_score(of_runs(runs), threshold=rate)
        assert scores.loc[0, "power_planned"] == pytest.approx(shown, abs=0.01)


def test_power_of_retries_is_that_of_a_simulation() -> None:
    random = np.random.default_rng(6)
    for rate, retries in ((0.05, 1), (0.3, 2)):
        failed = random.random((20_000, 10, retries + 1)) < rate
        shown = (failed[..., 0] & ~failed[..., 1:].all(axis=-1)).any(axis=1).mean()
        scores = metrics.flake_score(of_runs([1] * 10), threshold=rate, retries=retries)
        assert scores.loc[0, "power_retried"] == pytest.approx(shown, abs=0.01)


def test_power_of_small_numbers() -> None:
    for runs, planned, retried in (([1] * 2, 0, 0.1719), ([2], 0.18, 0.09), ([3, 2], 0.4014, 0.1719)):
        row = metrics.flake_score(of_runs(runs), threshold=0.1).loc[0]
        assert row[["power_planned", "power_retried"]].tolist() == pytest.approx([planned, retried], abs=5e-5)


def test_power_counts_commits_that_passed() -> None:
    """A broken commit fails however often it is tried, and lost agents say nothing."""
    good = [{"commit": 1}, {"commit": 1}, {"commit": 2}]
    broken = [{"commit": 3 + i, "failed": True, "attempt": k} for i in range(9) for k in range(3)]
    lost = [{"commit": 20, "failed": True, "exit_status": -1}]
    row = metrics.flake_score(attempts(*good, *broken, *lost), threshold=0.1).loc[0]
    assert row["outcomes"] == 12
    assert row["power_planned"] == pytest.approx(0.18)
    assert row["power_retried"] == pytest.approx(1 - 0.91**2)


# --- arguments


def test_arguments() -> None:
    jobs, score = attempts({"commit": 1}), metrics.flake_score
    assert wrong_messages([
        ("threshold=1.0 is not a fraction", lambda: score(jobs, threshold=1.0)),
        ("threshold='x' is not a fraction", lambda: score(jobs, threshold="x")),
        ("retries=0 is not a whole number", lambda: score(jobs, retries=0)),
        ("retries=True is not a whole number", lambda: score(jobs, retries=True)),
        ('Pass branch="main"', lambda: score(jobs, branch=["main"])),
        ('Pass branch="main"', lambda: score(jobs, branch="main", pipelines=jobs)),
    ]) == {}  # fmt: skip


def test_missing_columns_are_named() -> None:
    names = ["queue", "agent_id", "retried", "started_at", "commit"]
    assert columns_not_named(metrics.flake_score, attempts({}), names) == set()
    of_main = functools.partial(metrics.flake_score, branch="main")
    assert columns_not_named(of_main, attempts({}), ["branch"]) == set()


def test_power_of_single_runs_is_zero_and_not_negative_zero() -> None:
    scores = metrics.flake_score(attempts({}, {}, {}))
    assert not np.signbit(scores["power_planned"]).any()
