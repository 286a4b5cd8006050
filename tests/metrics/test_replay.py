"""Replays follow the rules: each one on a few builds, and queues as a simulator of queues runs them."""

from __future__ import annotations

import functools
import heapq
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import simpy

import buildframe as bf
from buildframe import metrics
from tests.metrics import true_dependencies
from tests.metrics.each_case import for_each
from tests.metrics.replay_frames import build, frames, job, queue_record, seconds
from tests.refusals import wrong_messages


def replayed(builds: list[Any], jobs: list[Any], **options: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    recorded = frames(builds, jobs)
    result = metrics.replay(*recorded, **options)
    for old, new in zip(recorded, result, strict=True):
        assert list(old.dtypes) == list(new.dtypes)
        assert list(old) == list(new)
    return result


def started(builds: list[Any], jobs: list[Any], **options: Any) -> dict[str, tuple[float | None, ...]]:
    return seconds(replayed(builds, jobs, **options)[1], "started", "finished")


# --- queues ---


def fifo(arrivals: np.ndarray, runs: np.ndarray, agents: int) -> tuple[np.ndarray, np.ndarray]:
    """When each job starts, and its agent, if agents take jobs in the order of their arrival."""
    free = [(0.0, number) for number in range(agents)]
    starts, numbers = np.zeros(len(arrivals)), np.zeros(len(arrivals), int)
    for i, (at, run) in enumerate(zip(arrivals, runs, strict=True)):
        since, number = heapq.heappop(free)
        starts[i], numbers[i] = max(at, since), number
        heapq.heappush(free, (starts[i] + run, number))
    return starts, numbers


def random_queue(n: int, agents: int, load: float, seed: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    random = np.random.default_rng(seed)
    arrivals = np.round(random.exponential(300 / agents / load, n).cumsum(), 6)
    runs = np.round(random.exponential(300, n), 6)
    return queue_record(arrivals, runs, *fifo(arrivals, runs, agents))


def starts_in_simpy(jobs: pd.DataFrame, agents: int) -> pd.Series:
    environment = simpy.Environment()
    resource = simpy.Resource(environment, agents)
    begin = jobs["runnable_at"].min()
    micros = pd.Timedelta(1, "us")
    starts = {}

    def run(id: str, at: int, length: int) -> Any:
        yield environment.timeout(at)
        with resource.request() as request:
            yield request
            starts[id] = environment.now
            yield environment.timeout(length)

    at, length = (jobs["runnable_at"] - begin) // micros, (jobs["finished_at"] - jobs["started_at"]) // micros
    for id, one, own in zip(jobs["id"], at, length, strict=True):
        environment.process(run(id, one, own))
    environment.run()
    return begin + pd.to_timedelta(jobs["id"].map(starts), unit="us")


def test_a_queue_is_that_of_simpy() -> None:
    for agents in (2, 3, 5):
        builds, jobs = random_queue(600, 3, 0.9, seed=agents)
        _, again = metrics.replay(builds, jobs, agents=agents)
        expected = starts_in_simpy(jobs, agents)
        seen = again["started_at"].notna()
        assert seen.mean() > 0.5, agents
        assert (again["started_at"] == expected)[seen].all(), agents
        assert (expected[~seen] > jobs["finished_at"].max()).all(), agents


def test_an_unchanged_queue_stays_as_it_was() -> None:
    builds, jobs = random_queue(500, 3, 0.9, seed=1)
    same_builds, same_jobs = metrics.replay(builds, jobs)
    agents = same_jobs.pop("agent_id")
    pd.testing.assert_frame_equal(same_builds, builds)
    pd.testing.assert_frame_equal(same_jobs, jobs.drop(columns="agent_id"))
    assert set(agents) == {"agent 0", "agent 1", "agent 2"}
    assert same_builds.attrs["fleet"]["default"] == {
        "agents": 3, "rule": "distinct agents", "single_use": False,
    }  # fmt: skip


def test_no_agent_runs_two_jobs_and_no_job_starts_before_it_is_ready() -> None:
    builds, jobs = random_queue(800, 4, 0.95, seed=2)
    _, again = metrics.replay(builds, jobs, agents=3, load=1.2)
    assert (again["started_at"].dropna() >= again["runnable_at"][again["started_at"].notna()]).all()
    runs = again.dropna(subset="started_at").sort_values(["agent_id", "started_at"])
    same = runs["agent_id"] == runs["agent_id"].shift()
    assert runs["agent_id"].nunique() == 3
    assert (runs["started_at"] >= runs["finished_at"].shift())[same].all()


def test_more_agents_never_raise_waits() -> None:
    builds, jobs = random_queue(600, 3, 0.95, seed=3)
    waits = [metrics.replay(builds, jobs, agents=n)[1].pipe(metrics.queue_time).sum() for n in (3, 4, 6)]
    assert waits == sorted(waits, reverse=True)
    assert waits[0] > waits[2]
    assert metrics.replay(builds, jobs, agents=float("inf"))[1].pipe(metrics.queue_time).max() == pd.Timedelta(0)


def test_the_order_of_rows_does_not_matter() -> None:
    builds, jobs = random_queue(300, 3, 0.9, seed=4)
    expected = metrics.replay(builds, jobs, agents=2)
    order = np.random.default_rng(0).permutation(len(jobs))
    shuffled = metrics.replay(builds.iloc[order], jobs.iloc[order[::-1]], agents=2)
    for frame, other in zip(expected, shuffled, strict=True):
        pd.testing.assert_frame_equal(frame, other.sort_index())


def erlang_c(load: float, agents: int) -> float:
    """The probability that a job waits, if `load` agents are busy on average."""
    terms = [load**k / math.factorial(k) for k in range(agents)]
    last = load**agents / math.factorial(agents) * agents / (agents - load)
    return last / (sum(terms) + last)


@pytest.mark.long
def test_waits_agree_with_erlang() -> None:
    """The tolerance is four standard errors, from the means of 25 spans of time; the formulas hold exactly."""
    for agents in (3, 5):
        builds, jobs = random_queue(10_000, 7, 2.5 / 7, seed=agents)
        waits = metrics.replay(builds, jobs, agents=agents)[1].pipe(metrics.queue_time).dt.total_seconds().dropna()
        expected = erlang_c(2.5, agents)
        for values, truth in ((waits > 0, expected), (waits, expected * 300 / (agents - 2.5))):
            means = np.array([span.mean() for span in np.array_split(values.to_numpy(float), 25)])
            error = means.std(ddof=1) / 5
            assert error < 0.3 * truth, agents
            assert abs(means.mean() - truth) < 4 * error, agents


@pytest.mark.long
def test_a_month_of_the_sandbox_is_predicted_from_half_of_its_days() -> None:
    builds, jobs = true_dependencies.month(1)
    again, jobs_again = metrics.replay(builds, jobs)
    error = pd.DataFrame(again.attrs["error"]).dropna()
    off = (error["predicted_p50_s"] - error["recorded_p50_s"]).abs() / error["recorded_p50_s"].clip(lower=5)
    assert off.median() < 0.02
    assert off.max() < 0.1
    ready = jobs_again.dropna(subset=["runnable_at", "started_at"])
    assert (ready["started_at"] >= ready["runnable_at"]).all()
    runs = ready.dropna(subset="agent_id").sort_values(["agent_id", "started_at"])
    same = runs["agent_id"] == runs["agent_id"].shift()
    assert not (runs["started_at"] < runs["finished_at"].shift())[same].any()
    both = jobs.merge(jobs_again, on="id", suffixes=("", "_again"))
    assert ((both["started_at"] - both["started_at_again"]).abs() < "60s").mean() > 0.99 * both[
        "started_at"
    ].notna().mean()
    metrics.time_ledger(again, jobs_again)


# --- dependencies ---


def test_what_depends_on_a_faster_step_moves() -> None:
    builds = [build(finished=61)]
    jobs = [
        job("upload", 0, 0, 10),
        job("unit", 5, 5, 20, created_at=5),
        job("e2e", 20, 20, 50, created_at=5),
        job("deploy", 51, 51, 60, created_at=5),
    ]
    options = {"agents": float("inf"), "run_scale": {"e2e": 0.5}}
    assert started(builds, jobs, **options)["b/deploy"] == (36, 45)
    assert seconds(replayed(builds, jobs, **options)[0], "created", "finished") == {"b": (0, 46)}
    skipped = started(builds, jobs, agents=float("inf"), skip=["e2e", ("web", "unit")])
    assert skipped["b/unit"] == (5, 5)
    assert skipped["b/e2e"] == (5, 5)
    assert skipped["b/deploy"] == (6, 15)
    # A job that another one uploads moves with the time until its upload.
    faster = replayed(builds, jobs, agents=float("inf"), run_scale={("web", "upload"): 0.5})[1]
    assert seconds(faster, "created", "started")["b/unit"] == (2.5, 2.5)


def test_invalid_options_are_refused() -> None:
    cases: list[tuple[str, dict[str, Any]]] = [
        ("agents=0 is not a number", {"agents": 0}), ("there is no queue 'macos'", {"agents": {"macos": 2}}),
        ("schedule of 2 values", {"agents": [1, 2]}),
        ("Did you mean 'unit'", {"run_scale": {"untt": 0.5}}), ("not a factor", {"run_scale": {"unit": -1}}),
        ("not a mapping", {"run_scale": 0.5}),
        ("skip=5 is neither a step nor a list of steps", {"skip": 5}),
        ("there is no step ('web', 'nope')", {"skip": ("web", "nope")}),
        ("there is no step 'nonsense'", {"skip": "nonsense"}),
        ("load=0", {"load": 0}), ("load=nan", {"load": float("nan")}), ("seed=-1", {"seed": -1}),
    ]  # fmt: skip
    call = functools.partial(metrics.replay, *frames([build(finished=20)], [job("unit", 0, 1, 20)]))
    assert wrong_messages((words, functools.partial(call, **options)) for words, options in cases) == {}


def test_frames_that_cannot_be_replayed_are_refused() -> None:
    builds, jobs = frames([build(finished=20)], [job("unit", 0, 1, 20)])
    naive = jobs.assign(started_at=jobs["started_at"].dt.tz_localize(None))
    assert wrong_messages([
        ("no column 'queue'", lambda: metrics.replay(builds, jobs.drop(columns="queue"))),
        ("builds of all jobs", lambda: metrics.replay(builds, jobs.assign(build_id="other"))),
        ("occurs in several rows", lambda: metrics.replay(pd.concat([builds, builds]), jobs)),
        ("no time zone", lambda: metrics.replay(builds, naive)),
        ("not a pandas DataFrame", lambda: metrics.replay(builds.to_dict(), jobs)),
    ]) == {}  # fmt: skip


@pytest.mark.long
def test_jobs_without_queues_wait_as_recorded() -> None:
    with bf.sandbox(builds=200, days=4) as ci:
        builds, jobs = ci.history(include_retried_jobs=True, progress=False)
    unknown = pd.Series(pd.NA, jobs.index, jobs["queue"].dtype)
    _, then = metrics.replay(builds, jobs.assign(queue=unknown, queue_id=unknown))
    assert then.attrs["n_no_queue"] == (jobs["type"] == "script").sum()
    assert (then["started_at"] - jobs["started_at"]).abs().quantile(0.9) < pd.Timedelta("1s")


def texts_as(dtype: Any) -> Callable[[pd.DataFrame], pd.DataFrame]:
    def convert(frame: pd.DataFrame) -> pd.DataFrame:
        return frame.astype({name: dtype for name, own in frame.dtypes.items() if own == "str"})

    return convert


def with_named_index(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.set_axis(pd.Index([7] * len(frame), name="build_id" if "build_id" in frame else "id"))


@pytest.mark.filterwarnings("ignore:The 'future.infer_string' option:pandas.errors.Pandas4Warning")
@for_each({"categories": texts_as("category"), "objects": texts_as(object), "Arrow": texts_as("string[pyarrow]"),
           "a named index": with_named_index})  # fmt: skip
def test_texts_of_any_form_are_replayed_and_keep_it(convert: Callable[[pd.DataFrame], pd.DataFrame]) -> None:
    """A copy has new ids, and a build that was canceled a new state: categories that were not there."""
    listed = [build(f"b{i}", 100.0 * i, 100.0 * i + 60, number=i) for i in range(6)]
    listed[5] |= {"state": "canceled", "finished_at": 520.0}
    jobs = [job("a", 100.0 * i, 100.0 * i + 10, 100.0 * i + 60, f"b{i}") for i in range(6)]
    plain = frames(listed, jobs)
    expected = metrics.replay(*plain, load=1.5, seed=1)
    assert len(expected[0]) > len(plain[0])
    for infer_string in (True, False):
        with pd.option_context("future.infer_string", infer_string):
            converted = tuple(map(convert, plain))
            found = metrics.replay(*converted, load=1.5, seed=1)
            leverage = metrics.leverage(*converted)
        pd.testing.assert_frame_equal(leverage, metrics.leverage(*plain), check_column_type=False)
        for frame, passed, right in zip(found, converted, expected, strict=True):
            for name, dtype in passed.dtypes.items():
                is_category = isinstance(dtype, pd.CategoricalDtype)
                assert isinstance(frame[name].dtype, type(dtype)) if is_category else frame[name].dtype == dtype
            texts = {name: "str" for name, dtype in right.dtypes.items() if dtype == "str"}
            pd.testing.assert_frame_equal(frame.astype(texts), right, check_column_type=False)
