"""How long jobs of a queue would wait with each number of agents."""

from __future__ import annotations

import functools
import heapq

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.agents_needed import (
    QueueWaits,
    busy_hours,
    most_at_once,
    summarize_waits,
    try_numbers,
)
from buildframe.metrics.columns import NAT, Integers
from tests.metrics.replay_frames import build, frames, job, queue_record
from tests.refusals import wrong_messages

MINUTE = 60_000_000


def minutes(*values: float | None) -> Integers:
    return np.array([NAT if value is None else round(value * MINUTE) for value in values])


def waits(*rows: tuple[float | None, float | None, float | None], end: float = 100) -> QueueWaits:
    """Waits by when jobs were runnable, started and finished, in minutes."""
    runnable, started, finished = zip(*rows, strict=True) if rows else ((), (), ())
    return QueueWaits(minutes(*runnable), minutes(*started), minutes(*finished), round(end * MINUTE))


def test_a_canceled_wait_missed_the_limit_and_a_short_open_one_is_undecided() -> None:
    summary = summarize_waits(
        waits(
            (0, 1, 4),  # in time
            (0, 5, 9),  # just in time
            (0, 6, 9),  # late
            (10, None, 11),  # canceled after a minute
            (20, None, None),  # open for 80 minutes
            (97, None, None),  # open for 3 minutes
            (None, None, None),  # never runnable
        ),
        limit=300,
        target=0.95,
    )
    assert (summary["started"], summary["canceled_waiting"], summary["undecided"]) == (3, 1, 1)
    assert summary["share_within"] == pytest.approx(2 / 5)


def test_percentiles_of_waits_are_those_of_kaplan_and_meier() -> None:
    summary = summarize_waits(waits((0, 1, 2), (0, 2, 3), (0, None, None)), limit=60, target=0.5)
    assert summary["wait_p50_s"] == 120  # of 1, 2 and at least 100 minutes
    assert np.isnan(summary["wait_p95_s"])


def test_nothing_is_known_without_jobs() -> None:
    summary = summarize_waits(waits(), limit=60, target=0.5)
    assert summary["started"] == 0
    assert np.isnan([summary[name] for name in ("wait_p50_s", "wait_p95_s", "share_within", "low", "high")]).all()


def test_busy_time_and_the_most_at_once() -> None:
    one = waits((0, 0, 30), (0, 30, 60), (0, 10, 50), (0, 90, None))
    assert busy_hours(one) == pytest.approx((30 + 30 + 40 + 10) / 60)
    assert most_at_once(one) == 2  # the second begins as the first ends
    assert (busy_hours(waits()), most_at_once(waits())) == (0, 0)


def test_the_search_finds_the_smallest_number() -> None:
    tried: dict[int, list[int]] = {needed: [] for needed in (1, 17, 50, 51)}

    def passes(needed: int, n: int) -> bool:
        tried[needed].append(n)
        return n >= needed

    found = {needed: try_numbers(1, 50, 3, [functools.partial(passes, needed)]) for needed in tried}
    assert found == {1: [1], 17: [17], 50: [50], 51: [None]}
    assert max(map(len, tried.values())) <= 17
    assert all({2, 3, 4, 5} <= {*numbers} for numbers in tried.values())
    assert try_numbers(1, 8, 2, [lambda n: n not in (1, 5)]) == [6], "a number passes only if larger ones do"


def queue(agents: int, n: int = 200) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Jobs of ten minutes that arrive every two minutes on average, in the order of their arrival."""
    random = np.random.default_rng(4)
    arrivals, runs = np.round(random.exponential(120, n).cumsum(), 6), np.full(n, 600.0)
    return queue_record(arrivals, runs, *serve(arrivals, runs, agents))


def serve(arrivals: np.ndarray, runs: np.ndarray, agents: int) -> tuple[np.ndarray, np.ndarray]:
    """When each job starts, and on which agent (Kiefer and Wolfowitz)."""
    free = [(0.0, number) for number in range(agents)]
    starts, numbers = np.zeros(len(arrivals)), np.zeros(len(arrivals), int)
    for i, (at, run) in enumerate(zip(arrivals, runs, strict=True)):
        since, numbers[i] = heapq.heappop(free)
        starts[i] = max(at, since)
        heapq.heappush(free, (starts[i] + run, numbers[i]))
    return starts, numbers


def waits_of(jobs: pd.DataFrame) -> np.ndarray:
    return metrics.queue_time(jobs).dt.total_seconds().to_numpy()


def test_each_row_is_the_queue_with_so_many_agents() -> None:
    needed = metrics.agents_needed(*queue(5), "default", within="2min", target=0.8)
    assert {4, 5, 6, 7} <= {*needed["agents"]}
    for row in needed[needed["agents"] >= 5].to_dict("records"):  # with fewer, the record ends before all have started
        expected = waits_of(queue(row["agents"])[1])
        assert row["started"] == len(expected)
        assert row["share_within"] == pytest.approx((expected <= 120).mean())
        assert row["wait_p50_s"] == pytest.approx(np.quantile(expected, 0.5))
        assert row["wait_p95_s"] == pytest.approx(np.quantile(expected, 0.95))
    shares = needed["share_within"]
    assert shares.is_monotonic_increasing
    smallest = needed.attrs["smallest"]
    assert smallest == needed["agents"][shares >= 0.8].min()
    assert smallest - 1 in {*needed["agents"]}
    assert needed.attrs["smallest_with_margin"] == needed["agents"][needed["low"] >= 0.8].min() > smallest


def test_the_price_is_the_time_of_all_agents() -> None:
    builds, jobs = queue(5)
    needed = metrics.agents_needed(builds, jobs, "default")
    hours = (jobs["finished_at"].max() - builds["created_at"].min()) / pd.Timedelta(1, "h")
    assert needed["agent_hours"].to_numpy(float) == pytest.approx(hours * needed["agents"].to_numpy(float))
    assert needed.attrs["days"] == pytest.approx(hours / 24)
    busy = needed.set_index("agents")["utilization"][5] * 5 * hours
    assert busy == pytest.approx(200 / 6)
    today = needed.attrs["today"]
    assert today["agents"] == 5
    assert today["share_within"] == pytest.approx((waits_of(jobs) <= 300).mean())


def test_other_queues_keep_their_agents_and_later_jobs_follow() -> None:
    """Two builds share the agent of "first"; its jobs let those of "second" start."""
    of_first = [job("a", 0, 0, 100, "b0", queue="first", agent_id="x"),
                job("a", 0, 100, 200, "b1", queue="first", agent_id="x")]  # fmt: skip
    of_second = [job("z", 100, 100, 190, "b0", queue="second", agent_id="y"),
                 job("z", 200, 200, 290, "b1", queue="second", agent_id="y")]  # fmt: skip
    frame = frames([build("b0", 0, 190), build("b1", 0, 290)], [*of_first, *of_second])
    needed = metrics.agents_needed(*frame, "second", within="1m", target=0.5).set_index("agents")
    assert needed["started"].tolist() == [2] * len(needed)
    assert needed.loc[1, "share_within"] == 1  # with one agent of "first" they are ready one after another


def test_jobs_that_newer_builds_cancel_missed_the_limit() -> None:
    rows = [job("a", 0, 0, 500, "b0", agent_id="x"), job("a", 100, None, 150, "b1", state="canceled", created_at=100)]
    frame = frames([build("b0", 0, 500), build("b1", 100, 150, state="canceled", branch="other")], rows)
    needed = metrics.agents_needed(*frame, "default", within="5min", target=0.6).set_index("agents")
    assert needed.loc[1, ["started", "canceled_waiting", "undecided"]].tolist() == [1, 1, 0]
    assert needed.loc[1, "share_within"] == 0.5
    assert needed.loc[2, "share_within"] == 1
    assert needed.attrs["smallest"] == 2


@pytest.mark.long
def test_predictions_say_how_far_off_the_replay_is() -> None:
    needed = metrics.agents_needed(*queue(5), "default")
    assert {"error", "fleet", "gap_share"} <= {*needed.attrs}
    assert needed.attrs["error"].keys() == metrics.replay(*queue(5))[0].attrs["error"].keys()


def test_nothing_is_returned_without_jobs_and_other_queues_are_named() -> None:
    builds, jobs = queue(5, 20)
    empty = metrics.agents_needed(builds.iloc[:0], jobs.iloc[:0], "default")
    assert empty.empty
    needed = metrics.agents_needed(builds, jobs, "default")
    assert list(empty.dtypes) == list(needed.dtypes)
    assert empty.attrs.keys() == needed.attrs.keys()
    call = functools.partial(metrics.agents_needed, builds, jobs)
    cases = [
        ("queue='mac' has no job. Use one of 'default'", lambda: call("mac")),
        ("target=95", lambda: call("default", target=95)),
        ("within='soon'", lambda: call("default", within="soon")),
    ]
    assert wrong_messages(cases) == {}


def test_a_queue_in_which_no_job_was_ready_has_no_rows() -> None:
    frame = frames([build("b", 0, 9)], [job("a", None, None, None, state="broken")])
    none = metrics.agents_needed(*frame, "default")
    assert none.empty
    assert (none.attrs["within_s"], none.attrs["target"], none.attrs["today"]) == (300, 0.95, None)


@pytest.mark.long
def test_a_queue_of_several_organizations_is_refused() -> None:
    builds, jobs = queue(5, 20)
    names = ["acme", "other"] * 10
    with pytest.raises(BadInput, match="2 organizations"):
        metrics.agents_needed(builds.assign(organization=names), jobs.assign(organization=names), "default")
    one = metrics.agents_needed(builds.assign(organization="acme"), jobs.assign(organization="acme"), "default")
    pd.testing.assert_frame_equal(one, metrics.agents_needed(builds, jobs, "default"))
