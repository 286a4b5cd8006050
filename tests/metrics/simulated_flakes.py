"""Simulate jobs of steps that fail at random with known rates, beside commits that are broken."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.metrics.rates import wilson

Floats = npt.NDArray[np.float64]
START = pd.Timestamp("2026-10-01", tz="UTC")


class Fleet(NamedTuple):
    """Jobs, and the true rate of each step by name."""

    jobs: pd.DataFrame
    rates: pd.Series


def draw_rates(random: np.random.Generator, steps: int, kind: str) -> Floats:
    """Rates of steps: most never fail at random (`few`), or all do: somewhat (`all`), `alike`, from rare to often."""
    rates: dict[str, Floats] = {
        "few": np.where(random.random(steps) < 0.8, 0.0, random.beta(1.5, 30, steps)),
        "all": random.beta(0.4, 12, steps),
        "alike": random.beta(20, 400, steps),
        "wide": 10 ** random.uniform(-4.5, -1, steps),
    }
    return rates[kind]


def simulate(
    seed: int, kind: str = "few", *, steps: int = 60, most: int = 400, retries: int = 1, retried: float = 1.0,
    runs: int = 1, broken: float = 0.1, prefers: float = 1.0,
) -> Fleet:  # fmt: skip
    """Run each commit `runs` times, and try failures again with chance `retried`, broken ones `prefers` times as often.

    A step has 15 to `most` commits, of which up to the share `broken` always fail.
    """
    random = np.random.default_rng(seed)
    rates = draw_rates(random, steps, kind)
    commits = np.exp(random.uniform(np.log(15), np.log(most), steps)).astype(int)
    step = np.repeat(np.arange(steps), commits * runs)
    commit = np.concatenate([np.repeat(np.arange(n), runs) for n in commits])
    is_broken = np.concatenate([np.repeat(random.random(n) < random.random() * broken, runs) for n in commits])
    again = random.random(len(step)) < retried * np.where(is_broken, prefers, 1.0)
    rounds, own = [], np.arange(len(step))
    for attempt in range(retries + 1):
        failed = (random.random(len(own)) < rates[step[own]]) | is_broken[own]
        rounds.append(pd.DataFrame({"step": step[own], "commit": commit[own], "failed": failed, "attempt": attempt}))
        own = own[failed & again[own]]
    drawn = pd.concat(rounds, ignore_index=True)
    names = pd.Series([f"step-{i}" for i in range(steps)], dtype="str")
    return Fleet(as_jobs(drawn.assign(step_key=names.take(drawn["step"]).array)), pd.Series(rates, index=names))


def as_jobs(drawn: pd.DataFrame) -> pd.DataFrame:
    """Jobs of attempts: `step_key`, `commit`, `failed` and `attempt`, and other columns of jobs that they have."""
    drawn, n = drawn.reset_index(drop=True), len(drawn)
    commit = drawn["commit"].astype("int64")
    started = START + pd.to_timedelta(60 * commit + 10 * drawn["attempt"], unit="min")
    usual = {
        "id": [f"job-{i}" for i in range(n)], "organization": "acme", "pipeline": "web", "type": "script", "name": "x",
        "branch": "main", "matrix": None, "signal": None, "queue": "default",
        "agent_id": [f"agent-{i}" for i in range(n)], "build_id": [f"build-{i}" for i in range(n)],
        "state": np.where(drawn["failed"], "failed", "passed"),
    }  # fmt: skip
    texts = {name: own_or(drawn, name, pd.Series(value, drawn.index, dtype="str")) for name, value in usual.items()}
    minutes = {"build_created_at": 0, "created_at": 0, "runnable_at": 0, "started_at": 1, "finished_at": 4}
    times = {name: own_or(drawn, name, pd.Series(started + pd.Timedelta(m, "min"))) for name, m in minutes.items()}
    return (
        pd.DataFrame(texts)
        .astype("str")
        .assign(
            step_key=drawn["step_key"].astype("str").array,
            commit=[f"{one:040x}" for one in commit],
            build_number=pd.array(commit * 10 + drawn["attempt"].astype(int), "Int64"),
            parallel_group_index=pd.array(own_or(drawn, "parallel_group_index", pd.Series([None] * n)), "Int64"),
            exit_status=pd.array(own_or(drawn, "exit_status", drawn["failed"].astype(int)), "Int64"),
            soft_failed=pd.array([False] * n, "boolean"),
            retried=pd.array(own_or(drawn, "retried", pd.Series([False] * n)).astype(bool), "boolean"),
            **{name: stamps.astype("datetime64[us, UTC]") for name, stamps in times.items()},
        )
    )


def own_or(drawn: pd.DataFrame, name: str, usual: pd.Series) -> pd.Series:
    """A column of the attempts, with what is usual where it is missing."""
    return drawn[name].where(drawn[name].notna(), usual) if name in drawn else usual


class Calibration(NamedTuple):
    """How well scores agree with the true rates: share of intervals that contain them, and Brier scores."""

    coverage: float
    width: float
    score: float
    raw: float
    wilson: float


def calibrate(scores: pd.DataFrame, rates: pd.Series, flips: pd.DataFrame, threshold: float) -> Calibration:
    """Compare scores with rates; the Brier scores are of "the rate exceeds `threshold`"."""
    scores, flips = scores.set_index("step"), flips.set_index("step").reindex(scores["step"])
    rate = rates[scores.index].to_numpy()
    is_flaky = rate > threshold
    low, _ = wilson(flips["flaky"], flips["commits_passed"])
    says = {
        "score": scores["p_above"].to_numpy(),
        "raw": (flips["flake_rate"] > threshold).to_numpy(float),
        "wilson": (np.nan_to_num(low) > threshold).astype(float),
    }
    covers = (scores["low"].to_numpy() <= rate) & (rate <= scores["high"].to_numpy())
    brier = {name: float(np.mean((said - is_flaky) ** 2)) for name, said in says.items()}
    return Calibration(float(covers.mean()), float((scores["high"] - scores["low"]).mean()), **brier)
