"""Jobs without an agent use no machine, and jobs that are over neither run nor wait. Expected values are manually."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from buildframe import metrics
from buildframe.metrics.timeline import compute_bars
from buildframe.spec.jobs import OVER_STATES
from tests.metrics.metric_frames import START, at

FETCHED = 14_400
"""Minutes after START at which rows were fetched: ten days."""

STAMPS = (
    "created_at", "runnable_at", "started_at", "finished_at", "expired_at", "unblocked_at", "build_created_at",
    "build_finished_at", "fetched_at",
)  # fmt: skip
FLAGS = ("soft_failed", "retried", "async")
UNDER_WAY = (
    "pending", "waiting", "blocked", "limiting", "limited", "scheduled", "reserved", "assigned", "accepted", "running",
    "canceling", "timing_out",
)  # fmt: skip


def job(state: str = "passed", **other: Any) -> dict[str, Any]:
    """A script job of build b, which began at minute 0; all times are minutes after START."""
    usual = {
        "id": None, "organization": "acme", "pipeline": "web", "branch": "main", "commit": "c", "build_id": "b",
        "build_number": 1, "build_state": "passed", "type": "script", "queue": "default", "agent_id": None,
        "name": None, "step_key": None, "step": "unit", "retried_in_job_id": None, "retry_type": None,
        "triggered_build": None, "exit_status": None, "signal": None,
    }  # fmt: skip
    stamps = dict.fromkeys(STAMPS) | {"created_at": 0, "build_created_at": 0, "fetched_at": FETCHED}
    return usual | dict.fromkeys(FLAGS, False) | stamps | {"state": state} | other


def frame(*rows: dict[str, Any]) -> pd.DataFrame:
    table = pd.DataFrame([row | {"id": row["id"] or f"job {i}"} for i, row in enumerate(rows)])
    stamps = {name: at(*table[name].astype(object).where(table[name].notna(), None)) for name in STAMPS}
    dtypes = {name: "str" for name in table if name not in (*STAMPS, *FLAGS)}
    dtypes |= {"build_number": "Int64", "exit_status": "Int64"} | dict.fromkeys(FLAGS, "boolean")
    return table.assign(**stamps).astype(dtypes)


def build(state: str = "passed", finished: float | None = 60, **other: Any) -> pd.DataFrame:
    row = {"id": "b", "organization": "acme", "pipeline": "web", "branch": "main", "number": 1, "state": state,
           "blocked": False}  # fmt: skip
    stamps = {"created_at": at(0), "finished_at": at(finished), "fetched_at": at(FETCHED)}
    frame = pd.DataFrame([row]).assign(**(stamps | other))
    return frame.astype({"blocked": "boolean", "number": "Int64"})


def with_a_trigger() -> pd.DataFrame:
    """Two script jobs of 10 and 20 minutes on one agent, and a trigger job from minute 2 to 50 for its build."""
    return frame(
        job(runnable_at=0, started_at=0, finished_at=10, agent_id="x", step="a"),
        job(runnable_at=10, started_at=10, finished_at=30, agent_id="x", step="b"),
        job(type="trigger", queue=None, runnable_at=2, started_at=2, finished_at=50, step="t"),
    )


def area(changes: pd.DataFrame, name: str) -> float:
    """Return the minutes that a step function adds up to."""
    return float((changes[name] * -changes["at"].diff(-1).dt.total_seconds()).sum() / 60)


def test_a_trigger_job_adds_nothing_to_machine_time():
    jobs = with_a_trigger()
    minute = pd.Timedelta(1, "min")
    assert metrics.machine_time(jobs).to_dict() == {"b": 30 * minute}
    assert metrics.active_time(jobs).to_dict() == {"b": 30 * minute}
    assert metrics.parallelism(jobs).to_dict() == {"b": 1.0}
    assert metrics.idle_time(jobs).to_dict() == {"b": 20 * minute}
    assert metrics.waste(jobs).loc[0, ["n", "machine_s", "useful_s"]].tolist() == [2, 1800, 1800]
    assert metrics.cost(jobs, {"*": 2}).loc[0, ["n", "machine_s", "cost"]].tolist() == [2, 1800, 60]
    assert area(metrics.concurrency(jobs, by=None), "running") == 30
    assert metrics.utilization(jobs, by=None).loc[0, ["busy_s", "seen_s"]].tolist() == [1800, 1800]
    runs = metrics.percentiles(jobs, of=metrics.run_time, by="queue", q=0.5)
    assert runs[["queue", "n", "n_censored"]].to_numpy().tolist() == [["default", 2, 0]]
    assert metrics.trend(jobs, of=metrics.run_time, q=0.5)["n"].tolist() == [2]
    assert metrics.survival(jobs, of=metrics.run_time)["n_at_risk"].max() <= 2


def test_a_trigger_job_has_no_run_time_and_is_a_segment_of_its_own():
    jobs = with_a_trigger()
    assert metrics.run_time(jobs).dt.total_seconds().fillna(-1).tolist() == [600, 1200, -1]
    assert metrics.with_seconds(jobs)["run_time_s"].fillna(-1).tolist() == [600, 1200, -1]
    ledger = metrics.time_ledger(build(finished=50), jobs)
    kinds = ledger.groupby("kind")["duration_s"].sum()
    assert kinds.get("trigger") == 48 * 60
    assert "run" not in kinds
    replayed, _ = metrics.replay(build(finished=50), jobs)[:2]
    assert metrics.wall_time(replayed).dt.total_seconds().tolist() == [50 * 60]


STATES_WITHOUT_END = [state for state in OVER_STATES if state != "unblocked"]


WAITS: dict[str, tuple[dict[str, Any], int]] = {
    "no end": ({}, 0),
    "expired": ({"expired_at": 30}, 30),
    "end of the build": ({"build_finished_at": 40}, 40),
    "expired before the build": ({"expired_at": 30, "build_finished_at": 40}, 30),
    "finished": ({"expired_at": 30, "finished_at": 20}, 20),
    "expired in no state": ({"state": None, "expired_at": 30}, 30),
}
"""Times of expired jobs by their queue, and the minutes that they waited."""


def test_an_expired_job_waits_until_it_expired_and_never_until_it_was_fetched():
    jobs = frame(
        *(job(**{"state": "expired", **ends}, runnable_at=0, queue=queue) for queue, (ends, _) in WAITS.items())
    )
    waited = {queue: minutes for queue, (_, minutes) in WAITS.items()}
    known = {queue: minutes for queue, minutes in waited.items() if minutes}
    depths = metrics.queue_depth(jobs)
    assert {queue: area(depth, "waiting") for queue, depth in depths.groupby("queue")} == known
    of_waits = metrics.contention(jobs).groupby("queue")["wait_s"].sum()
    assert of_waits.to_dict() == {queue: minutes * 60 for queue, minutes in known.items()}
    counted = metrics.percentiles(jobs, by="queue", q=0.5).set_index("queue")
    assert counted[["n", "n_censored"]].to_numpy().tolist() == [[0, 1]] * len(WAITS)
    ends = metrics.survival(jobs, by="queue").set_index("queue")["after_s"]
    assert ends.to_dict() == {queue: 60 * minutes + 1 for queue, minutes in known.items()}
    promise = metrics.objective(jobs, metrics.queue_time, "25m", 0.9, by="queue").set_index("queue")
    assert promise["missed"].to_dict() == {queue: int(minutes > 25) for queue, minutes in waited.items()}
    assert (promise["missed"] + promise["undecided"] == 1).all()


def test_states_say_whether_a_job_is_over():
    """One job of each state began to wait, and one to run; only those under way last until they are fetched."""
    states = [*STATES_WITHOUT_END, *UNDER_WAY, "a new state"]
    waits = frame(*(job(state, runnable_at=0) for state in states))
    runs = frame(*(job(state, runnable_at=0, started_at=0, agent_id="x") for state in states))
    n = len(UNDER_WAY) + 1
    assert area(metrics.queue_depth(waits), "waiting") == n * FETCHED
    assert area(metrics.concurrency(runs), "running") == n * FETCHED
    for counts in (metrics.waste(runs), metrics.utilization(runs), metrics.cost(runs, {"*": 1})):
        assert counts.loc[0, ["n_running", "n_no_end"]].tolist() == [n, len(STATES_WITHOUT_END)]
    assert (metrics.machine_time(runs).isna()).all()


def test_a_run_without_finished_at_ends_with_its_build():
    jobs = frame(
        job("canceled", runnable_at=0, started_at=5, build_finished_at=12),
        job("running", runnable_at=0, started_at=5, build_finished_at=12),  # of a build that a retry reopened
        job("scheduled", runnable_at=0, expired_at=FETCHED + 60),  # it is going to expire
    )
    assert metrics.machine_time(jobs).dt.total_seconds().tolist() == [7 * 60]
    assert metrics.waste(jobs).loc[0, ["machine_s", "canceled_s", "n_running", "n_no_end"]].tolist() == [
        420, 420, 1, 0,
    ]  # fmt: skip
    assert area(metrics.concurrency(jobs), "running") == 7 + FETCHED - 5
    assert area(metrics.queue_depth(jobs), "waiting") == 5 + 5 + FETCHED
    without = jobs.drop(columns=["expired_at", "build_finished_at"])  # as in frames of older versions
    assert area(metrics.concurrency(without), "running") == FETCHED - 5


def test_the_ledger_and_the_timeline_end_a_canceled_wait_with_its_build():
    """The job ran for 10 minutes; the next one waited for an agent until the build was canceled at minute 40."""
    jobs = frame(
        job(runnable_at=0, started_at=0, finished_at=10, agent_id="x", step="a"),
        job("canceled", runnable_at=10, step="b"),
    )
    ledger = metrics.time_ledger(build("canceled", 40), jobs)
    assert ledger[["kind", "duration_s"]].to_numpy().tolist() == [["run", 600], ["queue", 1800]]
    bars = compute_bars(jobs.assign(build_finished_at=at(40, 40)))
    assert bars[["first", "wait_to", "end", "open"]].to_numpy().tolist() == [[0, 0, 10, False], [10, 40, 40, False]]
    unknown = compute_bars(jobs)  # its end is unknown, so it lasts for no time
    assert unknown[["wait_to", "end", "open"]].iloc[1].tolist() == [10, 10, False]


def test_a_replay_has_no_agent_that_a_job_without_end_holds_for_ever():
    """One agent: a canceled run without any end, then a job that ran at once, although the first has no end."""
    first = frame(job("canceled", runnable_at=0, started_at=0, agent_id="x", step="a"))
    second = frame(job(build_id="b2", runnable_at=20, started_at=20, finished_at=30, agent_id="x", created_at=20,
                       build_created_at=20, id="second", step="z"))  # fmt: skip
    builds = pd.concat([build("canceled", None), build(finished=30, id="b2", created_at=at(20), number=2)])
    jobs = pd.concat([first, second], ignore_index=True)
    _, replayed = metrics.replay(builds.reset_index(drop=True), jobs, agents={"default": 1})[:2]
    started = replayed.set_index("id")["started_at"]["second"]
    assert started - START == pd.Timedelta(20, "min")


def test_row_metrics_keep_the_index_and_count_missing_columns_as_null():
    jobs = frame(job("expired", runnable_at=0, expired_at=3), job(runnable_at=0, started_at=1, finished_at=4))
    jobs = jobs.set_axis([7, 7])
    assert metrics.turnaround(jobs).dt.total_seconds().tolist() == [180, 240]
    least = jobs[["type", "started_at", "finished_at"]]
    assert metrics.run_time(least).dt.total_seconds().fillna(-1).tolist() == [-1, 180]
    assert metrics.run_time(least).index.tolist() == [7, 7]
    assert not np.isnan(metrics.run_time(least).iloc[1].total_seconds())
