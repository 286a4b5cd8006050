"""Queues of one key in two clusters are two queues, in every function of queues."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import duckdb
import matplotlib.pyplot as plt
import pandas as pd
import polars as pl
import pytest

from buildframe import metrics, plots
from buildframe.errors import BadInput
from buildframe.metrics.queues import name_queues, with_queue_names
from buildframe.report.objectives import select_promised
from buildframe.report.periods import Period

BUSY, IDLE = "0192aaaa-busy-queue", "0192bbbb-idle-queue"
CLUSTERS = {BUSY: "c1c1c1c1-0000-7000", IDLE: "c2c2c2c2-0000-7000"}
START = pd.Timestamp("2026-03-09T08:00", tz="UTC")


def minutes(*values: float) -> pd.Series:
    return pd.Series(START + pd.to_timedelta(list(values), unit="min")).astype("datetime64[us, UTC]")


@functools.cache
def two_clusters() -> tuple[pd.DataFrame, pd.DataFrame]:
    """40 jobs on the only agent of a cluster, and 40 on forty agents of another; each runs for ten minutes.

    Of the busy agent's jobs, 19 pairs come at once, so the second job of a pair waits for ten minutes. Two jobs come
    alone. So 21 of 40 jobs start within five minutes, a share of 0.525.
    """
    pairs = [60.0 * k for k in range(19) for _ in range(2)]
    runnable = [*pairs, 60.0 * 19, 60.0 * 20] * 2
    waits = [0.0, 10.0] * 19 + [0.0] * 42
    started = [at + wait for at, wait in zip(runnable, waits, strict=True)]
    n = len(runnable)
    ids = [f"{k:03}" for k in range(n)]
    queue_id = [BUSY] * 40 + [IDLE] * 40
    nothing = pd.Series(None, range(n), "str")
    builds = pd.DataFrame(
        {
            "id": ids, "number": range(n), "organization": "acme", "pipeline": "web", "branch": "main",
            "state": "passed", "blocked": False, "created_at": minutes(*runnable),
            "finished_at": minutes(*[at + 10 for at in started]), "fetched_at": minutes(*[60.0 * 48] * n),
        }
    )  # fmt: skip
    jobs = pd.DataFrame(
        {
            "id": [f"j{k}" for k in ids], "build_id": ids, "organization": "acme", "pipeline": "web",
            "build_created_at": builds["created_at"], "type": "script", "state": "passed", "soft_failed": False,
            "step_key": "test", "name": "test", "step": "test", "queue": "default", "queue_id": queue_id,
            "cluster_id": [CLUSTERS[id] for id in queue_id],
            "agent_id": ["busy"] * 40 + [f"idle-{k}" for k in range(40)],
            "created_at": minutes(*runnable), "runnable_at": minutes(*runnable), "started_at": minutes(*started),
            "finished_at": builds["finished_at"], "unblocked_at": pd.Series(pd.NaT, range(n), "datetime64[us, UTC]"),
            "build_number": range(n), "build_state": "passed", "branch": "main", "commit": "c", "label": nothing,
            "signal": nothing, "signal_reason": nothing, "retry_of_type": nothing, "retry_of_job_id": nothing,
            "retried": False, "retried_in_job_id": nothing, "retries_count": 0, "exit_status": 0,
            "fetched_at": builds["fetched_at"],
        }
    )  # fmt: skip
    return builds, jobs


def test_the_share_of_one_cluster_is_not_that_of_both() -> None:
    builds, jobs = two_clusters()
    needed = metrics.agents_needed(builds, jobs, BUSY, within="5min", target=0.9)
    assert needed.attrs["today"]["share_within"] == pytest.approx(21 / 40)
    assert metrics.agents_needed(builds, jobs, IDLE, within="5min").attrs["today"]["share_within"] == 1.0
    assert needed.attrs["queue"] == "default · c1c1c1c1"


def test_an_ambiguous_key_is_refused() -> None:
    builds, jobs = two_clusters()
    with pytest.raises(BadInput, match=f"2 queues .*'default'.*{BUSY}.*{IDLE}"):
        metrics.agents_needed(builds, jobs, "default")
    with pytest.raises(BadInput, match="key 'default'"):
        metrics.replay(builds, jobs, agents={"default": 2})
    with pytest.raises(BadInput, match="twice"):
        metrics.replay(builds, jobs, agents={BUSY: 2, "default · c1c1c1c1": 3})
    with pytest.raises(BadInput, match=f"rates: .*'default'.*{BUSY}.*{IDLE}"):
        metrics.cost(jobs, {"default": 1.0})
    named = metrics.cost(jobs, {"default · c1c1c1c1": 1.0, "default · c2c2c2c2": 0.5})
    assert named["cost"].tolist() == [40 * 10 * 1.0 + 40 * 10 * 0.5]
    replayed = metrics.replay(builds, jobs, agents={BUSY: 2})[1]
    assert metrics.queue_time(replayed).max() == pd.Timedelta(0)


def test_no_name_is_not_the_name_of_a_queue_without_an_id() -> None:
    builds, jobs = two_clusters()
    jobs = jobs.assign(queue_id=pd.Series(None, jobs.index, "str"), cluster_id=pd.Series(None, jobs.index, "str"))
    with pytest.raises(BadInput, match="no queue None"):
        metrics.replay(builds, jobs, agents={None: 2})
    with pytest.raises(BadInput, match="queue=None"):
        metrics.agents_needed(builds, jobs, None)  # type: ignore[arg-type]


def test_a_key_of_one_cluster_is_accepted() -> None:
    builds, jobs = two_clusters()
    of_busy = jobs["queue_id"] == BUSY
    needed = metrics.agents_needed(builds[of_busy], jobs[of_busy], "default", within="5min", target=0.9)
    assert needed.attrs["queue"] == "default"
    assert needed.attrs["today"]["share_within"] == pytest.approx(21 / 40)


def test_functions_of_queues_separate_them_by_default() -> None:
    builds, jobs = two_clusters()
    running = metrics.concurrency(jobs).groupby(["queue", "queue_id"])["running"].max()
    assert running.to_dict() == {("default", BUSY): 1, ("default", IDLE): 2}
    waiting = metrics.queue_depth(jobs).groupby("queue_id")["waiting"].max()
    assert waiting.to_dict() == {BUSY: 1, IDLE: 0}
    assert metrics.utilization(jobs)["agents"].tolist() == [1, 40]
    waits = metrics.contention(jobs).groupby("queue_id")["wait_s"].sum()
    assert waits.to_dict() == {BUSY: 19 * 600.0}
    cost = metrics.cost(jobs, {BUSY: 1.0, "default": 0.5})
    assert cost["cost"].tolist() == [40 * 10 * 1.0 + 40 * 10 * 0.5]
    ledger = metrics.time_ledger(builds, jobs)
    assert ledger.groupby("queue_id")["duration_s"].sum().to_dict() == {BUSY: 19 * 600.0 + 40 * 600.0, IDLE: 40 * 600.0}


def test_an_older_frame_is_grouped_by_key() -> None:
    _, jobs = two_clusters()
    old = jobs.drop(columns=["queue_id", "cluster_id"])
    assert metrics.utilization(old)["queue"].tolist() == ["default"]
    assert name_queues(old).unique().tolist() == ["default"]


def test_names_are_short_and_distinct() -> None:
    _, jobs = two_clusters()
    assert name_queues(jobs).unique().tolist() == ["default · c1c1c1c1", "default · c2c2c2c2"]
    assert name_queues(jobs[:40]).unique().tolist() == ["default"]
    unknown = jobs.assign(queue=jobs["queue"].where(jobs["queue_id"] == BUSY))
    assert name_queues(unknown).unique().tolist() == ["default", "0192bbbb"]
    titles = [ax.get_title(loc="left") for ax in plots.concurrency(jobs)]
    assert sorted(titles) == ["default · c1c1c1c1", "default · c2c2c2c2"]


def test_a_queue_without_a_cluster_can_be_chosen_beside_one_with_a_cluster() -> None:
    builds, jobs = two_clusters()
    is_idle = jobs["queue_id"] == IDLE
    mixed = jobs.assign(queue_id=jobs["queue_id"].mask(is_idle), cluster_id=jobs["cluster_id"].mask(is_idle))
    with pytest.raises(BadInput, match="'default · no cluster'") as refused:
        metrics.agents_needed(builds, mixed, "default")
    assert BUSY in str(refused.value)
    idle = metrics.agents_needed(builds, mixed, "default · no cluster", within="5min")
    assert idle.attrs["today"]["share_within"] == 1.0


def halves(ledger: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Split at 18:00, between the tenth and the eleventh pair of jobs."""
    is_early = ledger["build_created_at"] < START + pd.Timedelta(10, "h")
    return ledger[is_early], ledger[~is_early]


def with_waits(jobs: pd.DataFrame) -> pd.DataFrame:
    """Jobs of both queues that wait: those of the idle one for a minute."""
    is_idle = jobs["queue_id"] == IDLE
    started = jobs["started_at"].mask(is_idle, jobs["started_at"] + pd.Timedelta(1, "min"))
    return jobs.assign(started_at=started)


def test_an_older_ledger_is_compared_by_key() -> None:
    builds, jobs = two_clusters()
    jobs = with_waits(jobs)
    before = halves(metrics.time_ledger(builds, jobs.drop(columns=["queue_id", "cluster_id"])))[0]
    after = halves(metrics.time_ledger(builds, jobs))[1]
    rows = metrics.explain(before, after).set_index("kind")
    run = rows.loc["run"]
    # Half of the jobs run for ten minutes, and half for nine, because they waited for one.
    assert (run["step"], run["before_s"], run["after_s"]) == ("test", 570.0, 570.0)
    waits = rows.loc[["queue"]]
    assert waits["queue"].tolist() == ["default"]
    assert (waits["builds_before"] > 0).all()
    assert (waits["builds_after"] > 0).all()


def test_runs_of_a_step_are_one_row_and_its_waits_one_for_each_queue() -> None:
    builds, jobs = two_clusters()
    rows = metrics.explain(*halves(metrics.time_ledger(builds, with_waits(jobs))))
    runs = rows[rows["kind"] == "run"]
    assert runs[["step", "queue", "queue_id"]].astype(object).fillna("").to_numpy().tolist() == [["test", "", ""]]
    assert {*rows.loc[rows["kind"] == "queue", "queue_id"]} == {BUSY, IDLE}


def test_a_plot_names_queues_of_one_key() -> None:
    builds, jobs = two_clusters()
    before, after = halves(metrics.time_ledger(builds, with_waits(jobs)))
    ax = plots.explain(before, after)
    labels = [text.get_text() for text in ax.get_yticklabels()]
    assert {f"default · {id[:8]} (queue)" for id in (BUSY, IDLE)} <= {*labels}
    plt.close(ax.figure)


def test_an_objective_counts_the_jobs_of_one_queue() -> None:
    builds, jobs = two_clusters()
    period = Period(START.floor("D"), START.floor("D") + pd.Timedelta(3, "D"))
    expected = {BUSY: 40, "default · c1c1c1c1": 40, "default": 0, None: 80}
    for prepared in (jobs, with_queue_names(jobs)):  # as fetched, and as in a report
        found = {
            queue: len(
                select_promised(metrics.queue_time, builds, prepared, period, {"queue": queue, "pipeline": None})
            )
            for queue in expected
        }
        assert found == expected


@pytest.mark.parametrize(
    "summarize", [metrics.concurrency, metrics.queue_depth, metrics.utilization, metrics.contention]
)
def test_queues_are_separate_by_default_in_frames_of_other_libraries(summarize: Callable[[Any], pd.DataFrame]) -> None:
    _, jobs = two_clusters()
    expected = summarize(jobs)
    assert {BUSY} <= {*expected["queue_id"]}
    for rows in (pl.from_pandas(jobs).lazy(), duckdb.from_df(jobs)):
        pd.testing.assert_frame_equal(summarize(rows), expected)
