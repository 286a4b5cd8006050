"""The same days with other agents or other step speeds, and the pairs of builds and jobs in both worlds."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

import buildframe as bf
from buildframe.sandbox_server import EphemeralAgents, Sandbox
from buildframe.sandbox_server.db.database import Database
from buildframe.sandbox_server.simulation.agents import AgentQueue
from buildframe.sandbox_server.simulation.simulator import Simulator
from buildframe.sandbox_server.world.build_state import BuildRun
from buildframe.sandbox_server.world.creation import make_world
from buildframe.sandbox_server.world.fleets import check_agents, check_run_scale
from buildframe.sandbox_server.world.model import DAY, SECOND, AgentSchedule, machine_of_agent, queue_of_agent
from buildframe.sandbox_server.world.work_hours import hour_of_week
from buildframe.spec import Moment
from buildframe.workspace import Workspace
from tests.refusals import refusal
from tests.sandbox_server.planted_pipelines import assert_whole, runs_of

UNTIL = Moment(2026, 10, 30, 15, tzinfo=dt.UTC)
WEEK = [6 if 8 <= hour % 24 < 18 and hour < 120 else 1 for hour in range(168)]
FOUR_AND_TWO = tuple(4 if hour < 8 else 2 for hour in range(168))
LATE = 3 * SECOND
"""Longer than a job takes from its assignment to its start."""


def jobs_of(seed: int = 1, builds: int = 250, days: int = 4, **changes: Any) -> pd.DataFrame:
    """Return the attempts of the first organization that took an agent, by job id, with times in microseconds."""
    db = Database(None)
    fleets, scales = check_agents(changes.get("agents", {})), check_run_scale(changes.get("run_scale", {}))
    db.create_world(make_world(seed, builds, days, UNTIL, fleets, scales))
    Simulator(db, True).run_until(UNTIL.us)
    runs = [msgspec.json.decode(run, type=BuildRun) for (run,) in db.query("SELECT run FROM builds")]
    rows = [
        (job.id, run.id, run.commit.sha, run.created, job.step, queue_of_agent(job.agent), job.agent, job.state,
         job.runnable, job.started, job.finished)
        for run in runs if run.pipeline_key.startswith("acme/")
        for job in run.jobs if job.agent is not None and job.started is not None
    ]  # fmt: skip
    db.close()
    columns = ["id", "build", "sha", "created", "step", "queue", "agent", "state", "runnable", "started", "finished"]
    jobs = pd.DataFrame(rows, columns=columns).set_index("id")
    return jobs.assign(queued=jobs["started"] - jobs["runnable"], ran=jobs["finished"] - jobs["started"])


def passed_in_both(default: pd.DataFrame, changed: pd.DataFrame) -> pd.DataFrame:
    both = default.merge(changed, left_index=True, right_index=True, suffixes=("", "_changed"))
    return both[(both["state"] == "passed") & (both["state_changed"] == "passed")]


@pytest.fixture(scope="module")
def default() -> pd.DataFrame:
    return jobs_of()


@pytest.fixture(scope="module")
def larger() -> pd.DataFrame:
    return jobs_of(agents={"macos": 12})


@pytest.mark.long
def test_both_worlds_have_the_same_builds_and_jobs(default: pd.DataFrame, larger: pd.DataFrame) -> None:
    both = default.merge(larger, left_index=True, right_index=True, suffixes=("", "_changed"))
    assert len(both) > 0.97 * max(len(default), len(larger))
    for column in ("build", "sha", "step", "queue"):
        assert (both[column] == both[f"{column}_changed"]).all(), column
    assert (both["created"] == both["created_changed"]).mean() > 0.9  # those of pushes; others follow the builds before


@pytest.mark.long
def test_more_agents_shorten_queue_times_and_leave_run_times(default: pd.DataFrame, larger: pd.DataFrame) -> None:
    both = passed_in_both(default, larger)
    assert (both["ran"] == both["ran_changed"]).all()
    macos = both[both["queue"] == "macos"]
    assert macos["agent"].nunique() < macos["agent_changed"].nunique() <= 12
    assert macos["queued"].mean() > 5 * macos["queued_changed"].mean()


@pytest.mark.long
def test_a_faster_step_runs_for_exactly_its_share(default: pd.DataFrame) -> None:
    both = passed_in_both(default, jobs_of(run_scale={"e2e": 0.5}))
    is_scaled = both["step"] == "e2e"
    assert is_scaled.sum() > 10
    assert (both["ran"] == both["ran_changed"])[~is_scaled].all()
    assert ((both["ran"] / 2).round() == both["ran_changed"])[is_scaled].all()


@pytest.mark.long
def test_a_schedule_limits_the_agents_of_each_hour() -> None:
    macos = jobs_of(agents={"macos": WEEK}).query("queue == 'macos'")
    number = macos["agent"].str[-2:].astype(int)
    allowed = [max(WEEK[hour_of_week(at)], WEEK[hour_of_week(at - LATE)]) for at in macos["started"]]
    assert (number <= allowed).all()
    assert set(number) == set(range(1, 7))


@pytest.mark.long
def test_each_job_of_ephemeral_agents_has_an_agent_of_its_own_that_boots_first(default: pd.DataFrame) -> None:
    macos = jobs_of(agents={"macos": EphemeralAgents(8, boot="2m")}).query("queue == 'macos'")
    assert macos["agent"].is_unique
    assert macos["queued"].min() > 60 * SECOND
    assert 110 < macos["queued"].median() / SECOND < 140
    by_machine = macos.assign(machine=macos["agent"].map(machine_of_agent)).sort_values("started")
    assert set(by_machine["machine"]) == {f"macos-{number:02d}" for number in range(1, 9)}
    free_before = by_machine.groupby("machine")["finished"].shift()
    assert (by_machine["started"] - free_before).min() > 60 * SECOND  # the next agent boots when the last one is gone
    assert len(macos.index.intersection(default.index)) > 0.9 * (default["queue"] == "macos").sum()


def test_a_queue_that_shrinks_lets_busy_machines_finish() -> None:
    monday = 4 * DAY  # 1970-01-05
    queue = AgentQueue("linux", AgentSchedule(FOUR_AND_TWO), monday)
    assert queue.idle == ["linux-01", "linux-02", "linux-03", "linux-04"]
    for machine in ("linux-01", "linux-04"):
        queue.occupy(machine)
    change = queue.next_resize(monday)
    assert change == DAY // 3
    queue.resize(monday + change)
    assert queue.idle == ["linux-02"]
    for machine in ("linux-04", "linux-01"):
        queue.free(machine)
    assert queue.idle == ["linux-01", "linux-02"]
    assert AgentQueue("linux", AgentSchedule((3,)), 0).next_resize(0) is None


def test_truth_describes_the_changed_agents() -> None:
    for seed in range(40):
        truth = make_world(seed, 2600, 30, UNTIL).truth
        if truth.storms and truth.short_queues:
            break
    (storm,) = truth.storms
    many = make_world(seed, 2600, 30, UNTIL, check_agents({"macos": 90, storm.queue: 30})).truth
    assert many.short_queues == ()
    assert len(many.storms[0].agents) in (10, 30)
    unchanged = {"short_queues": (), "storms": ()}
    assert vars(many) | unchanged == vars(truth) | unchanged
    few = make_world(seed, 2600, 30, UNTIL, check_agents({"macos": 1, "default": WEEK})).truth
    assert [(one.queue, one.agents) for one in few.short_queues] == [("macos", 1)]


def test_agents_and_their_pages_are_those_of_the_fleet() -> None:
    agents = {"macos": EphemeralAgents(WEEK), "docker": WEEK}
    with bf.sandbox(builds=80, days=2, agents=agents, until="2026-10-30T13:00Z") as ci:
        names = Counter(queue_of_agent(one["name"]) for one in get(ci, "agents?per_page=100"))
        job = ci.jobs(columns=["queue", "agent_id", "state"]).query("queue == 'macos' and state == 'passed'").iloc[-1]
        assert names["docker"] == 6
        assert get(ci, f"agents/{job['agent_id']}")["meta_data"] == ["queue=macos", "os=darwin"]
        assert_whole(ci.sandbox)


def get(ci: Workspace, path: str) -> Any:
    return ci.get(f"/organizations/acme/{path}")


@pytest.mark.long
def test_a_file_continues_with_its_agents(tmp_path: Path) -> None:
    world: dict[str, Any] = {"builds": 80, "days": 2, "agents": {"macos": EphemeralAgents(WEEK), "default": WEEK}}
    hour = dt.timedelta(hours=1)
    with Sandbox(**world) as whole:
        for _ in range(5):
            whole.clock.advance(hour)
        expected = runs_of(whole)
    for _ in range(5):
        with Sandbox(tmp_path / "world.db", **world) as part:
            part.clock.advance(hour)
            assert len(runs_of(part)) <= len(expected)
    with Sandbox(tmp_path / "world.db") as last:
        assert runs_of(last) == expected


BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"agents": {"macOS": 8}}, "agents: there is no queue 'macOS'. Did you mean 'macos'"),
    ({"agents": {"macos": 0}}, "agents['macos']=0 must be between 1 and 1000"),
    ({"agents": {"macos": 1001}}, "must be between 1 and 1000"),
    ({"agents": {"macos": [1, 2]}}, "agents['macos'] has 2 numbers."),
    ({"agents": {"macos": [0] * 168}}, "has no agents in any hour"),
    ({"agents": {"macos": [-1] + [1] * 167}}, "agents['macos'][0]=-1 must be between 0 and 1000"),
    ({"agents": {"macos": 2.5}}, ": pass a mapping from text to"),
    ({"agents": 8}, "agents=<int>: pass a mapping"),
    ({"run_scale": {"e3e": 0.5}}, "run_scale: there is no step 'e3e'. Did you mean 'e2e'"),
    ({"run_scale": {"e2e": 0}}, "run_scale['e2e']=0 must be above 0"),
    ({"run_scale": {"e2e": float("nan")}}, "must be above 0"),
    ({"run_scale": {"e2e": 101}}, "at most 100"),
]


def test_bad_values_are_refused_before_anything_starts(tmp_path: Path) -> None:
    path = tmp_path / "world.db"
    messages = [(words, refusal(bf.sandbox, path=path, **changes)) for changes, words in BAD_VALUES]
    assert [each for each in messages if each[0] not in each[1]] == []
    assert "168" in messages[3][1]
    assert not path.exists()


def test_bad_ephemeral_agents_are_refused() -> None:
    wrong: dict[str, tuple[Any, str]] = {
        "count=0": (0, "45s"),
        "count has 24 numbers": ([1] * 24, "45s"),
        "at most an hour": (8, "2h"),
        "boot=": (8, "x"),
    }
    messages = {words: refusal(EphemeralAgents, *given) for words, given in wrong.items()}
    assert {words: said for words, said in messages.items() if words not in said} == {}
