"""What was planted in the world is what the metrics find, in frames fetched over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
import pytest

from buildframe import metrics
from buildframe.metrics.rates import wilson
from buildframe.workspace import Workspace
from buildframe.workspace.build_queries import History
from tests import worlds

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def month() -> Iterator[Workspace]:
    with worlds.sandbox() as ci:
        yield ci


@pytest.fixture(scope="module")
def history(month: Workspace) -> History:
    return month.history()


def test_the_default_world_is_a_month_of_ci(month: Workspace, history: History) -> None:
    builds, jobs = history
    assert len(builds) >= 2_000
    assert len(jobs) >= 40_000
    assert builds["pipeline"].nunique() >= 6
    assert builds["created_at"].max() - builds["created_at"].min() > pd.Timedelta(days=28)
    assert {"passed", "failed", "canceled", "running"} <= set(builds["state"])
    assert {"automatic", "manual"} <= set(jobs["retry_type"].dropna())
    assert builds["rebuilt_from"].notna().any()
    numbers = builds.groupby("pipeline")["number"]
    assert (numbers.max() - numbers.min() + 1 > numbers.count()).any()
    assert month.sandbox.clock.now() == builds["fetched_at"].iloc[0]


def test_the_slower_step(month: Workspace, history: History) -> None:
    truth = month.sandbox.truth.slower_steps[0]
    passed = history.jobs[history.jobs["state"] == "passed"]
    late = passed["created_at"] >= truth.at
    by = ["pipeline", metrics.step]
    before, after = (
        metrics.percentiles(part, of=metrics.run_time, by=by, q=(0.5,)).set_index(["pipeline", "step"])
        for part in (passed[~late], passed[late])
    )
    ratio = (after["p50_s"] / before["p50_s"])[(before["n"] >= 30) & (after["n"] >= 30)]
    assert ratio.idxmax() == (truth.pipeline, truth.step_key)
    assert ratio.max() == pytest.approx(truth.factor, rel=0.08)
    one = passed[(passed["pipeline"] == truth.pipeline) & (passed["step_key"] == truth.step_key)]
    daily = metrics.trend(one, of=metrics.run_time, q=(0.5,)).dropna(subset="p50_s").set_index("bucket")["p50_s"]
    middle = (daily.min() + daily.max()) / 2
    assert (daily > middle).idxmax() == truth.at


def test_the_queue_that_is_short_of_agents(month: Workspace, history: History) -> None:
    waits = metrics.percentiles(history.jobs, of=metrics.queue_time, by="queue").set_index("queue")["p95_s"]
    assert waits.idxmax() == month.sandbox.truth.short_queues[0].queue
    assert waits.nlargest(2).iloc[0] > 5 * waits.nlargest(2).iloc[1]


def test_the_flaky_step(month: Workspace, history: History) -> None:
    truth, broken = month.sandbox.truth.flaky_steps[0], month.sandbox.truth.broken_branches[0]
    jobs = history.jobs
    first = jobs[(jobs["retries_count"].fillna(0) == 0) & jobs["state"].isin(["passed", "failed"])]
    first = first[(first["exit_status"] != -1) & (first["started_at"].notna())]
    first = first[~first["build_created_at"].between(broken.since, broken.until)]
    counts = first.groupby(["pipeline", "step_key"])["state"].value_counts().unstack(fill_value=0)
    counts = counts[counts.sum(axis=1) >= 100]
    low, high = wilson(counts["failed"], counts.sum(axis=1), confidence=0.999)
    rates = pd.DataFrame({"low": low, "high": high}, index=counts.index)
    assert rates["low"].idxmax() == (truth.pipeline, truth.step_key)
    found = rates.loc[(truth.pipeline, truth.step_key)]
    assert found["low"] < truth.rate < found["high"]


def test_the_hours_in_which_main_was_broken(month: Workspace, history: History) -> None:
    truth = month.sandbox.truth.broken_branches[0]
    main = history.builds[(history.builds["pipeline"] == truth.pipeline) & (history.builds["branch"] == truth.branch)]
    phase = pd.cut(
        main["created_at"],
        [main["created_at"].min(), truth.since, truth.until, main["created_at"].max()],
        labels=["before", "broken", "after"],
        right=False,
    )
    rates = metrics.success_rate(main.assign(phase=phase.astype("str")), by="phase").set_index("phase")
    assert rates.loc["broken", "passed"] == 0
    assert rates.loc["broken", "failed"] >= 3
    low, high = (dict(zip(rates.index, ends, strict=True)) for ends in wilson(rates["passed"], rates["n"]))
    assert high["broken"] < min(low["before"], low["after"])


def test_the_flaky_step_leads_the_flips_at_the_rate_planted(month: Workspace, history: History) -> None:
    """Failures at a rate p, retried once, flip p / (1 + p) of the commits that passed."""
    truth = month.sandbox.truth.flaky_steps[0]
    first, *others = metrics.flips(history.jobs).itertuples()
    assert (first.pipeline, first.step) == (truth.pipeline, truth.step_key)
    assert first.low < truth.rate / (1 + truth.rate) < first.high
    assert all(other.high < first.low for other in others if other.commits_passed >= 100)


def test_the_outage_of_the_broken_branch(month: Workspace, history: History) -> None:
    truth = month.sandbox.truth.broken_branches[0]
    outages = metrics.outages(history.builds, pipelines=month.pipelines())
    longest = outages[outages["pipeline"] == truth.pipeline].nlargest(1, "failed").iloc[0]
    assert longest["branch"] == truth.branch
    assert truth.since <= longest["failed_at"] < truth.until < longest["recovered_at"]
    assert longest["recovered_at"] - pd.Timestamp(truth.until) < pd.Timedelta(hours=3)
    day = metrics.red_share(
        history.builds, branch=truth.branch, start=longest["failed_at"].to_pydatetime(), end=truth.until
    ).set_index("pipeline")
    assert day.loc[truth.pipeline, "red_share_of_time"] == 1.0


def test_no_more_jobs_run_than_the_short_queue_has_agents(month: Workspace, history: History) -> None:
    truth = month.sandbox.truth.short_queues[0]
    running = metrics.concurrency(history.jobs)
    assert running.groupby("queue")["running"].max()[truth.queue] == truth.agents
    waiting = metrics.queue_depth(history.jobs)
    lengths = waiting.groupby("queue")["at"].diff(-1).abs().dt.total_seconds()
    means = (lengths * waiting["waiting"]).groupby(waiting["queue"]).sum()
    assert means.idxmax() == truth.queue
    busy = metrics.utilization(history.jobs).set_index("queue")["share_used"]
    assert busy.idxmax() == truth.queue


def test_the_slower_step_is_beyond_chance(month: Workspace, history: History) -> None:
    truth = month.sandbox.truth.slower_steps[0]
    passed = history.jobs[(history.jobs["state"] == "passed") & (history.jobs["pipeline"] == truth.pipeline)]
    late = passed["build_created_at"] >= truth.at
    before, after = (
        metrics.percentiles(part, of=metrics.run_time, by=metrics.step, q=(0.5,)).set_index("step")
        for part in (passed[~late], passed[late])
    )
    slower = after["p50_low_s"] > before["p50_high_s"] * 1.1
    assert slower[slower].index.tolist() == [truth.step_key]
    assert (after["p50_low_s"] / before["p50_high_s"])[truth.step_key] <= truth.factor
    assert truth.factor <= (after["p50_high_s"] / before["p50_low_s"])[truth.step_key]
