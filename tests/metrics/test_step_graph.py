"""Dependencies of steps that are inferred from times agree with the true ones of the sandbox's pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from buildframe.metrics.pipeline_jobs import GROUP, read_jobs
from buildframe.metrics.step_graph import find_predecessors
from tests.metrics import true_dependencies
from tests.metrics.test_time_ledger import block, frames, job

SEEDS = (1, 2, 3)


def graph(*jobs: dict[str, Any]) -> dict[tuple[str, str], tuple[int, int, int, str]]:
    """Builds, refuted, binding and status of each pair."""
    table = metrics.step_graph(frames([], list(jobs))[1])
    assert list(table) == ["pipeline", "before", "after", "builds", "refuted", "binding", "status"]
    pairs = zip(table["before"], table["after"], strict=True)
    numbers = table[["builds", "refuted", "binding", "status"]].itertuples(index=False, name=None)
    return dict(zip(pairs, numbers, strict=True))


def builds_of(n: int, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
    return [one | {"id": f"{one['id']} {i}", "build_id": f"b{i}"} for i in range(n) for one in jobs]


def test_a_chain_and_a_step_beside_it():
    found = graph(
        *builds_of(3, job("a", 0, 0, 10), job("b", 10, 11, 30), job("c", 30, 30, 40), job("beside", 0, 0, 35))
    )
    assert found["a", "b"] == (3, 0, 3, "binding")
    assert found["a", "c"] == (3, 0, 0, "possible")
    assert found["b", "a"] == found["beside", "c"] == (3, 3, 0, "refuted")
    assert ("a", "a") not in found


def test_one_contradiction_of_many_does_not_refute():
    usual = builds_of(20, job("a", 0, 0, 10), job("b", 11, 11, 30))
    odd = builds_of(1, job("a", 0, 0, 14), job("b", 12, 12, 30))
    odd = [one | {"id": f"odd {one['id']}", "build_id": "odd"} for one in odd]
    assert graph(*usual, *odd)["a", "b"] == (21, 1, 21, "binding")
    more = [one | {"id": f"more {one['id']}", "build_id": "more"} for one in odd]
    assert graph(*usual, *odd, *more)["a", "b"] == (22, 2, 0, "refuted")
    late = [one | {"finished_at": 13} if one["step"] == "a" else one for one in odd]
    assert graph(*usual, *late)["a", "b"] == (21, 0, 21, "binding")


def test_what_releases_a_step():
    for state, soft, n in (
        ("passed", False, 1),
        ("failed", True, 1),
        ("timed_out", True, 1),
        ("failed", False, 0),
        ("canceled", True, 0),
    ):
        found = graph(job("a", 0, 0, 10, state=state, soft_failed=soft), job("b", 10, 11, 30))
        assert found.get(("a", "b"), (0,))[0] == n
    assert graph(block("a", 10), job("b", 10, 11, 30))["a", "b"] == (1, 0, 1, "binding")
    assert graph(block("a", None), job("b", 10, 11, 30)) == {}


def test_the_attempt_that_passed_releases_a_step_not_the_one_that_repeats_it_later():
    first = job("a", 0, 0, 10, id="a 1", retried_in_job_id="a 2")
    again = job("a", 50, 50, 60, id="a 2")
    assert graph(first, again, job("b", 10, 11, 30))["a", "b"] == (1, 0, 1, "binding")
    failed = first | {"state": "failed"}
    assert graph(failed, again, job("b", 60, 61, 70))["a", "b"] == (1, 0, 1, "binding")
    lost = again | {"state": "failed"}
    assert ("a", "b") not in graph(failed, lost, job("b", 60, 61, 70))


def test_a_step_waits_for_all_shards_of_another():
    shards = [job("a", 0, 0, end, id=f"a {end}") for end in (5, 20, 10)]
    assert graph(*shards, job("b", 20, 21, 30), job("c", 10, 11, 30)) == {
        ("a", "b"): (1, 0, 1, "binding"), ("a", "c"): (1, 1, 0, "refuted"),
        ("b", "a"): (1, 1, 0, "refuted"), ("b", "c"): (1, 1, 0, "refuted"),
        ("c", "a"): (1, 1, 0, "refuted"), ("c", "b"): (1, 1, 0, "refuted"),
    }  # fmt: skip


def test_pipelines_and_organizations_are_kept_apart():
    _, jobs = frames([], builds_of(2, job("a", 0, 0, 10), job("b", 10, 11, 30)))
    jobs = jobs.assign(organization=["acme", "acme", "globex", "globex"])
    graph = metrics.step_graph(jobs)
    assert list(graph)[:2] == ["organization", "pipeline"]
    assert graph["builds"].tolist() == [1, 1, 1, 1]
    assert metrics.step_graph(jobs.drop(columns="organization"))["builds"].tolist() == [2, 2]
    other = jobs.assign(pipeline=["web", "web", "api", "api"], organization="acme")
    assert metrics.step_graph(other)["pipeline"].tolist() == ["api", "api", "web", "web"]


def random_graph(random: np.random.Generator, runs: int = 20) -> tuple[pd.DataFrame, pd.Series[str]]:
    """Runs of a random graph of steps, and what each job waited for; the service starts a step half a second late."""
    n = int(random.integers(2, 15))
    needs = [random.choice(step, min(step, random.integers(0, 3)), replace=False) for step in range(n)]
    seconds, rows = np.exp(random.normal(4.5, 1.2, n)), []
    for run in range(runs):
        ends = np.zeros(n)
        for step in range(n):
            last = max(needs[step], key=ends.__getitem__, default=None)
            ready = (0 if last is None else ends[last]) + random.exponential(0.5)
            start = ready + random.exponential(8)
            ends[step] = start + seconds[step] * np.exp(random.normal(0, 0.3))
            before = "" if last is None else str(last)
            rows.append((f"{run}-{step}", str(run), str(step), before, 0.0, ready, start, ends[step], None))
    frame = pd.DataFrame(rows, columns=["id", "build_id", "step", "before", *true_dependencies.STAMPS])
    for name in true_dependencies.STAMPS:
        frame[name] = pd.Timestamp("2026-10-01", tz="UTC") + pd.to_timedelta(frame[name].astype(float), unit="s")
    usual = {"type": "script", "state": "passed", "soft_failed": False, "retried_in_job_id": None, "retry_type": None}
    return frame.assign(**usual, **{GROUP: 0}), frame.set_index("id")["before"]


@pytest.mark.long
def test_predecessors_in_random_graphs_of_twenty_runs_are_right():
    random, right = np.random.default_rng(7), []
    for _ in range(40):
        frame, truth = random_graph(random)
        read = read_jobs(frame)
        row = find_predecessors(read)[0].row
        found = np.where(row >= 0, read.steps.to_numpy(object)[read.step[row]], "")
        right += [*(found == truth.reindex(read.rows["id"]).to_numpy())]
    assert len(right) > 5_000
    assert np.mean(right) >= 0.985


@pytest.mark.long
def test_predecessors_and_binding_pairs_of_the_sandbox_are_right():
    months = [true_dependencies.month(seed)[1] for seed in SEEDS]
    truths = [true_dependencies.true_predecessors(jobs) for jobs in months]
    assert sum(map(len, truths)) > 30_000
    exact = [true_dependencies.compare(jobs, truth) for jobs, truth in zip(months, truths, strict=True)]
    right, precision, recall = true_dependencies.total(exact)
    assert right >= 0.999
    assert precision >= 0.99
    assert recall >= 0.95
    damaged = [
        true_dependencies.compare(true_dependencies.with_errors(jobs), truth)
        for jobs, truth in zip(months, truths, strict=True)
    ]
    right, precision, recall = true_dependencies.total(damaged)
    assert right >= 0.995
    assert precision >= 0.99
    assert recall >= 0.95
