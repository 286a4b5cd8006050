"""Create frames of builds and jobs with numpy for the benchmark of summaries; the same each time."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

Integers = npt.NDArray[np.int64]

UTC = "datetime64[us, UTC]"
BEGIN = pd.Timestamp("2026-07-06", tz="UTC")
DAYS = 90
PIPELINES, STEPS, STEPS_EACH, QUEUES, AGENTS = 40, 300, 30, 12, 200
_SECOND = 1_000_000


class Frames(NamedTuple):
    """As they are fetched, with the columns that summaries need; builds by creation, each one's jobs together."""

    builds: pd.DataFrame
    jobs: pd.DataFrame


def made(builds: int, jobs: int, seed: int = 1) -> Frames:
    """So many builds in 90 days, with so many jobs among them."""
    random = np.random.default_rng(seed)
    of_build = np.sort(random.integers(0, builds, jobs))
    made_builds = _builds(random, builds)
    return Frames(made_builds, _jobs(random, made_builds.take(of_build), of_build))


def _text(values: Any) -> pd.Series[str]:
    return pd.Series(pa.array(values, pa.string(), from_pandas=True), dtype="str")


def _picked(names: list[str | None], places: Any) -> pd.Series[str]:
    return pd.Series(pd.array(names, dtype="str").take(places))


def _ids(kind: str, n: int) -> pd.Series[str]:
    return _text([f"{kind}-{i * 2_654_435_761 % 2**32:08x}-8c1f-4d52-{i:012x}" for i in range(n)])


def _moments(microseconds: Any, known: Any = True) -> pd.Series[pd.Timestamp]:
    times = (np.asarray(microseconds) // 1000 * 1000).view("datetime64[us]")  # the service sends milliseconds
    return pd.Series(pd.DatetimeIndex(np.where(known, times, np.datetime64("NaT")), tz="UTC"), dtype=UTC)


def _seconds(random: np.random.Generator, scale: float, n: int) -> Integers:
    return (random.lognormal(np.log(scale), 1, n) * _SECOND).astype(np.int64)


def _builds(random: np.random.Generator, n: int) -> pd.DataFrame:
    created = BEGIN.value // 1000 + np.sort(random.integers(0, DAYS * 86_400 * _SECOND, n))
    pipeline = random.zipf(1.3, n) % PIPELINES
    commit = np.arange(n) - random.integers(0, 60, n) * (random.random(n) < 0.3)
    branches = ["main", *(f"topic-{i}" for i in range(500))]
    states = ["passed", "failed", "canceled", "running", "skipped"]
    state = random.choice(len(states), n, p=[0.75, 0.18, 0.04, 0.01, 0.02])
    return pd.DataFrame(
        {
            "id": _ids("build", n),
            "number": pd.array(np.arange(1, n + 1), "Int64"),
            "organization": _picked(["acme"], np.zeros(n, int)),
            "pipeline": _picked([f"pipeline-{i}" for i in range(PIPELINES)], pipeline),
            "pipeline_id": _picked([f"a3b1-{i:032x}" for i in range(PIPELINES)], pipeline),
            "branch": _picked(branches, np.where(random.random(n) < 0.4, 0, random.integers(1, 501, n))),
            "commit": _text([f"{i * 11_400_714_819_323_198_485 % 2**64:016x}{i:024x}" for i in commit.tolist()]),
            "state": _picked(states, state),
            "blocked": pd.array(random.random(n) < 0.02, "boolean"),
            "created_at": _moments(created),
            "finished_at": _moments(created + _seconds(random, 900, n), state < 3),
            "fetched_at": _moments(np.full(n, BEGIN.value // 1000 + DAYS * 86_400 * _SECOND)),
        }
    )


def _jobs(random: np.random.Generator, builds: pd.DataFrame, of_build: Integers) -> pd.DataFrame:
    n = len(builds)
    retried = random.random(n) < 0.05
    retried[:-1] &= of_build[1:] == of_build[:-1]
    retried[1:] &= ~retried[:-1]
    retried[-1:] = False
    again = np.append(False, retried[:-1])[:n]
    place = np.arange(n) - again  # whose step a job is of: a second attempt is of the same one
    created = builds["created_at"].astype("int64").to_numpy() + _seconds(random, 3, n)
    runnable = created + _seconds(random, 60, n) * (random.random(n) < 0.6)
    started = runnable + _seconds(random, 20, n) - (random.random(n) < 0.0005) * 60 * _SECOND
    kind = random.choice(4, n, p=[0.92, 0.02, 0.01, 0.05])
    states = ["passed", "failed", "timed_out", "canceled", "running", "scheduled", "broken", "skipped"]
    state = random.choice(len(states), n, p=[0.84, 0.06, 0.005, 0.03, 0.003, 0.002, 0.05, 0.01])
    state = np.where(retried & (random.random(n) < 0.9), 1, state)
    failed = state == 1
    has_started = (state < 5) & (kind != 3) & ((state != 3) | (random.random(n) < 0.7))
    lost = failed & (random.random(n) < 0.05)
    ids = _ids("job", n)
    return pd.DataFrame(
        {
            **{name: builds[name].array for name in ("organization", "pipeline", "branch", "commit", "fetched_at")},
            "build_id": builds["id"].array,
            "build_number": builds["number"].array,
            "build_state": builds["state"].array,
            "build_created_at": builds["created_at"].array,
            "id": ids,
            "type": _picked(["script", "trigger", "manual", "waiter"], kind),
            **_steps(builds, random.integers(0, STEPS_EACH, n)[place], random.integers(0, 4, n)[place]),
            "queue": _picked([f"queue-{i}" for i in range(QUEUES)] + [None], np.where(kind == 0, place % QUEUES, -1)),
            "state": _picked(states, state),
            "exit_status": pd.array(np.where(lost, -1, failed), "Int64"),
            "signal": _picked(["SIGKILL", None], np.where(lost & (random.random(n) < 0.5), 0, 1)),
            "soft_failed": pd.array(failed & (random.random(n) < 0.1), "boolean"),
            "agent_id": _agents(random, place, has_started),
            "created_at": _moments(created),
            "runnable_at": _moments(runnable, (state < 6) & (kind != 3)),
            "started_at": _moments(started, has_started),
            "finished_at": _moments(started + _seconds(random, 200, n), (state < 4) | (state > 5)),
            "unblocked_at": _moments(created + _seconds(random, 600, n), (kind == 2) & (random.random(n) < 0.8)),
            "retried": pd.array(retried, "boolean"),
            "retry_of_type": _picked(
                ["automatic", "manual", None], np.where(again, random.random(n) < 0.2, 2).astype(int)
            ),
            "retried_in_job_id": pd.Series(np.where(retried, np.roll(ids.to_numpy(object), -1), None), dtype="str"),
        }
    )


def _steps(builds: pd.DataFrame, number: Integers, shard: Integers) -> dict[str, Any]:
    """Two of three steps have a key; a quarter of all are four shards."""
    pipeline = builds["pipeline"].str.removeprefix("pipeline-").astype("int64").to_numpy()
    step = (pipeline * 7 + number) % STEPS
    sharded = step % 4 == 0
    names = [f":rspec: Step {i}" + suffix for i in range(STEPS) for suffix in ("", *(f" {k}/4" for k in range(1, 5)))]
    keys = [None if i % 3 == 0 else f"step-{i}" for i in range(STEPS)]
    matrices = [None, '{"os":"linux"}', '{"os":"macos"}']
    return {
        "step": _picked([key or f":rspec: Step {i}" for i, key in enumerate(keys)], step),
        "name": _picked(names, step * 5 + np.where(sharded, shard + 1, 0)),
        "step_key": _picked(keys, step),
        "parallel_group_index": pd.arrays.IntegerArray(shard, ~sharded),
        "matrix": _picked(matrices, np.where(step % 10 == 1, 1 + shard % 2, 0)),
    }


def _agents(random: np.random.Generator, place: Integers, has_started: Any) -> pd.Series[str]:
    """Each queue has agents of its own."""
    own = random.integers(0, AGENTS // QUEUES, len(place)) * QUEUES + place % QUEUES
    return _picked([*(f"agent-{i}" for i in range(AGENTS)), None], np.where(has_started, own, -1))
