"""Settings at their limits."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest

import buildframe as bf
from buildframe import metrics
from buildframe.sandbox_server import Sandbox
from buildframe.spec import Moment
from buildframe.workspace import Workspace
from buildframe.workspace.build_queries import History
from tests.refusals import refusal

WORLD: dict[str, Any] = {"builds": 200, "days": 7, "seed": 3}


def test_a_history_that_ends_at_midnight_has_its_days() -> None:
    with Sandbox(builds=40, days=2, until="2026-10-30") as sandbox:
        assert sandbox.clock.now() == Moment(2026, 10, 30, tzinfo=dt.UTC)


def test_truths_lie_within_the_history() -> None:
    with Sandbox(builds=40, days=9, until="2026-11-01T12:00Z") as sandbox:
        assert sandbox.truth.slower_steps[0].at <= sandbox.clock.now()
        assert sandbox.truth.broken_branches[0].until <= sandbox.clock.now()
    with Sandbox(builds=40, days=1, until="2026-10-31T12:00Z") as weekend:
        assert (weekend.truth.slower_steps, weekend.truth.broken_branches) == ((), ())


def test_progress_grows_to_the_whole(tmp_path) -> None:
    shares: list[float] = []
    with Sandbox(tmp_path / "world.sqlite", builds=200, days=4, on_progress=shares.append):
        assert shares == sorted(shares)
        assert len(shares) > 3
        assert shares[-1] == 1
    shares.clear()
    with Sandbox(tmp_path / "world.sqlite", on_progress=shares.append):
        assert shares == []  # the history is there


def test_impossible_settings_are_refused() -> None:
    wrong: list[tuple[dict[str, object], str]] = [
        ({"port": 99999, "builds": 20}, "port=99999"),
        ({"until": "2026-10-30T12:00"}, "has no time zone"),
        ({"until": dt.datetime(2026, 10, 1)}, "has no time zone"),
        ({"builds": 0}, "builds=0 and days=30 must be at least 1"),
        ({"days": 0}, "days=0 must be at least 1"),
        ({"fork_share": 1.5}, "fork_share=1.5 is not a share"),
        ({"world": "weird"}, "'plain' or 'odd'"),
        *(({"builds": 20, "speed": speed}, "speed") for speed in (0, -1.0, float("nan"), float("inf"))),
    ]
    messages = [(settings, words, refusal(Sandbox, **settings)) for settings, words in wrong]
    assert [each for each in messages if each[1] not in each[2]] == []


@pytest.fixture(scope="module")
def usual() -> pd.DataFrame:
    """The jobs of a world as it comes."""
    with bf.sandbox(**WORLD) as ci:
        return ci.jobs(created_from="9d")


@pytest.fixture(scope="module")
def forked() -> Iterator[Workspace]:
    """The same world with builds of forks, and without the ends of jobs that were canceled or expired."""
    with bf.sandbox(**WORLD, fork_share=0.2, no_end_share=1) as ci:
        yield ci


@pytest.fixture(scope="module")
def history(forked: Workspace) -> History:
    return forked.history(created_from="9d")


@pytest.mark.long
def test_forks_and_jobs_without_an_end_are_as_the_service_answers_and_change_no_number(
    usual: pd.DataFrame, forked: Workspace, history: History
) -> None:
    (builds, jobs), pipelines = history, forked.pipelines()
    assert usual.loc[usual["state"] == "canceled", "finished_at"].notna().all()
    stopped = jobs[jobs["state"].isin(["canceled", "expired"])]
    assert stopped["finished_at"].isna().all()
    assert stopped.loc[stopped["state"] == "expired", "expired_at"].notna().nunique() == 2
    until = jobs["fetched_at"].max()
    depth = metrics.queue_depth(jobs, by=None)
    waits_now = ((jobs["type"] == "script") & (jobs["state"] == "scheduled")).sum()
    assert depth.loc[depth["at"] < until, "waiting"].iloc[-1] == waits_now
    forks = metrics.is_from_fork(builds)
    assert forks.any()
    assert (builds.loc[forks, "branch"] == "main").all()
    broken = builds.assign(state=builds["state"].mask(forks, "failed"))
    pd.testing.assert_frame_equal(
        metrics.outages(broken, pipelines=pipelines), metrics.outages(builds, pipelines=pipelines)
    )
    assert len(metrics.outages(broken[forks], pipelines=pipelines)) == 0


@pytest.mark.long
def test_jobs_that_expired_are_found_and_counted_as_expired(forked: Workspace, history: History) -> None:
    expired = history.jobs[history.jobs["state"] == "expired"]
    row = expired.iloc[0]
    pipeline = forked.pipeline(row["pipeline"])
    of_build = expired.loc[expired["build_id"] == row["build_id"], "id"]
    assert set(pipeline.jobs_of(row["build_number"], state="expired")["id"]) == set(of_build)
    counts = pipeline.build(row["build_number"]).job_state_counts
    assert counts is not None
    assert counts["expired"] == len(of_build)
    assert set(expired["type"]) == {"script"}  # a block or trigger step waits for no agent


@pytest.mark.long
def test_a_trigger_job_has_a_start_and_an_end_but_no_agent(usual: pd.DataFrame) -> None:
    triggers = usual[(usual["type"] == "trigger") & usual["triggered_build"].notna()]
    assert len(triggers)
    assert (triggers["started_at"] == triggers["runnable_at"]).all()
    assert triggers["agent_id"].isna().all()
    assert metrics.run_time(triggers).isna().all()
