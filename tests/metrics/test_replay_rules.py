"""Each rule of replays on a few builds: retries, triggers, rebuilds, cancellations, load, fleets, the record's end."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from buildframe import metrics
from tests.metrics.each_case import for_each
from tests.metrics.replay_frames import START, build, frames, job, seconds

Row = dict[str, Any]
FREE = {"agents": float("inf")}


def replayed(builds: list[Row], jobs: list[Row], **options: Any) -> tuple[pd.DataFrame, pd.DataFrame]:
    return metrics.replay(*frames(builds, jobs), **options)


def states(frame: pd.DataFrame) -> dict[str, str]:
    return dict(zip(frame["id"], frame["state"], strict=True))


def trigger(child: str, runnable: float, finished: float | None, **other: Any) -> Row:
    text = json.dumps({"id": child, "number": 7})
    return job("deploy", runnable, None, finished, type="trigger", queue=None, triggered_build=text, **other)


def test_an_unchanged_record_with_everything_in_it_stays_as_it_was() -> None:
    builds = [
        build(finished=40), build("child", 12, 39, triggered_from_build_id="b", pipeline="docs"),
        build("again", 60, 80, rebuilt_from_id="b"), build("not run", 5, None, state="not_run"),
    ]  # fmt: skip
    jobs = [
        job(
            "unit",
            0,
            0,
            10,
            state="failed",
            id="unit 1",
            retried_in_job_id="unit 2",
            retry_type="automatic",
            exit_status=1,
        ),
        job("unit", 10, 10, 12, id="unit 2", created_at=10),
        trigger("child", 12, 40),
        job("wait", None, None, None, type="waiter", created_at=None, state=None, queue=None),
        job("never", None, None, None, state="broken"),
        job("page", 12, 12, 39, "child", created_at=12, pipeline="docs"),
        job("unit", 60, 60, 80, "again", created_at=60),
    ]
    recorded = frames(builds, jobs)
    for old, new in zip(recorded, metrics.replay(*recorded), strict=True):
        pd.testing.assert_frame_equal(new.drop(columns="agent_id", errors="ignore"),
                                      old.drop(columns="agent_id", errors="ignore"))  # fmt: skip


def test_retries_keep_their_outcome_and_delay() -> None:
    jobs = [
        job("unit", 0, 0, 20, state="failed", id="unit 1", retried_in_job_id="unit 2", retry_type="manual"),
        job("unit", 50, 50, 60, id="unit 2", created_at=50),
        job("deploy", 60, 60, 65),
    ]
    builds, jobs_then = replayed([build(finished=65)], jobs, run_scale={"unit": 0.5}, **FREE)
    assert seconds(jobs_then, "created", "started", "finished") == {
        "unit 1": (0, 0, 10), "unit 2": (40, 40, 45), "b/deploy": (0, 45, 50),
    }  # fmt: skip
    assert states(jobs_then) == {"unit 1": "failed", "unit 2": "passed", "b/deploy": "passed"}
    assert seconds(builds, "finished") == {"b": (50,)}


@for_each({"waits for the build": False, "does not wait": True})
def test_a_triggered_build_moves_with_its_trigger_job_which_may_end_with_it(is_async: bool) -> None:
    builds = [build(finished=53 if not is_async else 23), build("child", 22, 52, pipeline="docs")]
    jobs = [
        job("unit", 0, 0, 20),
        trigger("child", 20, 23 if is_async else 53, **{"async": is_async}),
        job("page", 22, 22, 52, "child", created_at=22, pipeline="docs"),
    ]
    changed = {"run_scale": {"unit": 0.5, "page": 2}} | FREE
    builds_then, jobs_then = replayed(builds, jobs, **changed)
    end = 13 if is_async else 73
    assert seconds(builds_then, "created", "finished") == {"b": (0, end), "child": (12, 72)}
    assert seconds(jobs_then, "runnable", "finished")["b/deploy"] == (10, end)


def test_a_rebuild_moves_with_the_end_of_its_original() -> None:
    builds = [build(finished=20, state="failed"), build("again", 50, 60, rebuilt_from_id="b")]
    jobs = [job("unit", 0, 0, 20, state="failed"), job("unit", 50, 50, 60, "again", created_at=50)]
    builds_then, _ = replayed(builds, jobs, run_scale={("web", "unit"): 0.5}, **FREE)
    assert seconds(builds_then, "created", "finished") == {"b": (0, 10), "again": (40, 45)}


def test_a_block_step_keeps_the_delay_of_people() -> None:
    gate = job("gate", None, None, None, type="manual", state="unblocked", created_at=None, queue=None, unblocked_at=70)
    jobs = [job("unit", 0, 0, 20), gate, job("deploy", 70, 70, 80)]
    builds_then, jobs_then = replayed([build(finished=80)], jobs, run_scale={"unit": 0.5}, **FREE)
    assert seconds(jobs_then, "unblocked", "started")["b/gate"] == (60, None)
    assert seconds(jobs_then, "started")["b/deploy"] == (60,)
    assert builds_then.attrs["gap_share"] == pytest.approx(1 / 3)


def canceled_build() -> tuple[list[Row], list[Row]]:
    """Three builds of 20 s; a person canceled the second after 30 s, when its only agent had run it for 10 s."""
    builds = [
        build(finished=20),
        build("c", 0.5, 30.5, state="canceled", cancel_reason="Canceled manually", branch="x"),
    ]
    jobs = [
        job("unit", 0, 0, 20, agent_id="one"),
        job("unit", 0.5, 20, 30.5, "c", agent_id="one", state="canceled", created_at=0.5, exit_status=-1,
            signal_reason="cancel"),
    ]  # fmt: skip
    return builds, jobs


def test_people_cancel_at_the_recorded_offset_unless_the_build_ended() -> None:
    unchanged = replayed(*canceled_build())
    assert seconds(unchanged[1], "started", "finished") == {"b/unit": (0, 20), "c/unit": (20, 30.5)}
    assert states(unchanged[0]) == {"b": "passed", "c": "canceled"}
    # It runs as long as the median of its step, 20 s, and passes.
    more = replayed(*canceled_build(), agents=2)
    assert seconds(more[1], "started", "finished")["c/unit"] == (0.5, 20.5)
    assert states(more[0])["c"] == states(more[1])["c/unit"] == "passed"
    assert more[0]["cancel_reason"].isna().all()
    assert more[1].set_index("id").loc["c/unit", "exit_status"] == 0
    # It waits when it is canceled.
    slower = replayed(*canceled_build(), run_scale={"unit": 3})
    assert seconds(slower[1], "started", "finished")["c/unit"] == (None, 30.5)
    assert states(slower[1])["c/unit"] == "canceled"
    assert slower[1].set_index("id")["agent_id"].isna()["c/unit"]


def newer_builds(n: int = 5) -> tuple[list[Row], list[Row]]:
    """Pairs of builds on a branch: the newer comes after 10 s, and cancels the older that would have run 20 s."""
    builds, jobs = [build("usual", 0, 20, branch="main")], [job("unit", 0, 0, 20, "usual")]
    for i in range(n):
        at, older, newer = 100 * i + 100, f"old {i}", f"new {i}"
        builds.append(build(older, at, at + 10, state="canceled", branch=f"x{i}"))
        builds.append(build(newer, at + 10, at + 30, branch=f"x{i}"))
        jobs.append(job("unit", at, at, at + 10, older, state="canceled", created_at=at))
        jobs.append(job("unit", at + 10, at + 10, at + 30, newer, created_at=at + 10))
    return builds, jobs


def test_newer_builds_cancel_older_ones_if_they_did() -> None:
    builds, jobs = newer_builds()
    assert states(replayed(builds, jobs, **FREE)[0]) == {one["id"]: one["state"] for one in builds}
    faster = replayed(builds, jobs, run_scale={"unit": 0.25}, **FREE)
    assert set(states(faster[0]).values()) == {"passed"}
    # A build that ran alone is met now, and canceled.
    builds.append(build("long", 1000, 1020, branch="y"))
    builds.append(build("next", 1030, 1050, branch="y"))
    jobs += [
        job("unit", 1000, 1000, 1020, "long", created_at=1000),
        job("unit", 1030, 1030, 1050, "next", created_at=1030),
    ]
    slower = replayed(builds, jobs, run_scale={"unit": 2}, **FREE)
    assert states(slower[0])["long"] == "canceled"
    assert seconds(slower[0], "finished")["long"] == (1030,)
    # Two cases are too few for a rule: each is a cancellation by a person.
    few = replayed(*newer_builds(2), run_scale={"unit": 0.75}, **FREE)
    assert states(few[0])["old 0"] == "canceled"


def test_single_jobs_expire_only_while_they_wait() -> None:
    jobs = [job("unit", 0, 0, 50, agent_id="one"), job("lint", 1, None, 31, state="expired", created_at=1)]
    builds = [build(finished=50, state="failed")]
    assert seconds(replayed(builds, jobs)[1], "started", "finished")["b/lint"] == (None, 31)
    assert states(replayed(builds, jobs)[1])["b/lint"] == "expired"
    started = replayed(builds, jobs, agents=2)[1]
    assert seconds(started, "started")["b/lint"] == (1,)
    assert states(started)["b/lint"] == "passed"


def test_what_lies_after_the_end_of_the_record_is_open() -> None:
    jobs = [
        job("unit", 0, 0, 20, fetched_at=30), job("deploy", 20, 20, 25, fetched_at=30),
        job("e2e", 20, 20, None, state="running", fetched_at=30),
    ]  # fmt: skip
    builds = [
        build(finished=None, state="running", fetched_at=30),
        build("late", 25, 26, fetched_at=30, rebuilt_from_id="b"),
    ]
    same = replayed(builds, jobs, **FREE)
    assert states(same[0]) == {"b": "running", "late": "passed"}
    assert seconds(same[1], "started", "finished")["b/e2e"] == (20, None)
    slower = replayed(builds[:1], jobs, run_scale={"unit": 1.4}, **FREE)
    assert states(slower[1]) == {"b/unit": "passed", "b/deploy": "running", "b/e2e": "running"}
    slowest = replayed(builds[:1], jobs, run_scale={"unit": 2}, **FREE)
    assert states(slowest[1]) == {"b/unit": "running", "b/deploy": "waiting", "b/e2e": "waiting"}
    assert seconds(slowest[1], "runnable", "started", "finished")["b/deploy"] == (None, None, None)


def test_jobs_of_an_unknown_queue_wait_as_recorded() -> None:
    jobs = [job("unit", 0, 7, 20, queue=None), job("lint", 0, 0, 5)]
    builds_then, jobs_then = replayed([build(finished=20)], jobs, agents=1)
    assert seconds(jobs_then, "started")["b/unit"] == (7,)
    assert builds_then.attrs["n_no_queue"] == 1


def many(n: int, every: float, run: float, **other: Any) -> tuple[list[Row], list[Row]]:
    builds = [build(f"b{i}", i * every, i * every + run, branch=f"x{i}") for i in range(n)]
    at = [i * every for i in range(n)]
    return builds, [job("unit", t, t, t + run, f"b{i}", created_at=t, **other) for i, t in enumerate(at)]


@pytest.mark.long
def test_load_leaves_out_or_copies_whole_builds() -> None:
    builds, jobs = many(300, 3600, 60)
    builds.append(build("again", 100, 160, rebuilt_from_id="b0", branch="x0"))
    jobs.append(job("unit", 100, 100, 160, "again", created_at=100))
    builds, jobs = ([one | {"fetched_at": 1_200_000} for one in rows] for rows in (builds, jobs))
    half, jobs_of_half = replayed(builds, jobs, load=0.5, **FREE)
    assert 120 < len(half) < 180
    assert set(jobs_of_half["build_id"]) == set(half["id"])
    assert ("again" in set(half["id"])) == ("b0" in set(half["id"]))
    more, jobs_of_more = replayed(builds, jobs, load=2.5, seed=1, **FREE)
    assert 2.3 * len(builds) < len(more) < 2.7 * len(builds)
    assert more["id"].is_unique
    assert jobs_of_more["id"].is_unique
    assert set(jobs_of_more["build_id"]) == set(more["id"])
    copy = more.set_index("id").loc["again~1"]
    assert copy["rebuilt_from_id"] == "b0~1"
    assert copy["created_at"] - more.set_index("id").loc["b0~1", "finished_at"] == pd.Timedelta(40, "s")
    pd.testing.assert_frame_equal(more, replayed(builds, jobs, load=2.5, seed=1, **FREE)[0])


def test_a_schedule_opens_and_closes_agents_by_hour() -> None:
    """Monday from 1:00 to 2:00 there are two agents, in all other hours one: jobs of an hour each."""
    week = np.ones(168, int)
    week[1] = 2
    builds, jobs = many(5, 1, 3600)
    _, jobs_then = replayed(builds, jobs, agents={"default": week})
    starts = [start / 3600 for (start,) in seconds(jobs_then, "started").values()]
    assert starts == pytest.approx([0, 1, 1, 2, 3], abs=0.001)


def waits_of_week(agents: np.ndarray, seed: int = 0) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Two weeks of jobs of five minutes on as many agents as each hour has; made by a replay itself."""
    random = np.random.default_rng(seed)
    at = np.sort(random.uniform(0, 14 * 86_400, 8000)).round(3)
    ids = [f"b{i}" for i in range(len(at))]
    stamps = START + pd.to_timedelta(at, unit="s").round("ms")
    builds = pd.DataFrame({"id": ids, "pipeline": "web", "branch": ids, "state": "passed", "created_at": stamps,
                           "finished_at": stamps + pd.Timedelta(300, "s")})  # fmt: skip
    jobs = pd.DataFrame({"id": ids, "build_id": ids, "pipeline": "web", "type": "script", "state": "passed",
                         "step": "a", "queue": "q", "agent_id": None, "created_at": stamps, "runnable_at": stamps,
                         "started_at": stamps, "finished_at": stamps + pd.Timedelta(300, "s")})  # fmt: skip
    return metrics.replay(builds, jobs.astype({"agent_id": "str"}), agents={"q": agents})


@pytest.mark.long
def test_a_fleet_that_follows_the_hours_is_recognized() -> None:
    hours = np.where((np.arange(168) % 24 >= 8) & (np.arange(168) % 24 < 18), 3, 2)
    builds, jobs = waits_of_week(hours)
    again, jobs_again = metrics.replay(builds, jobs)
    fleet = again.attrs["fleet"]["q"]
    assert fleet["rule"] == "busy agents by hour of week"
    assert np.mean(np.array(fleet["agents"]) == hours) > 0.9
    recorded, predicted = (metrics.queue_time(one).dt.total_seconds().quantile(0.95) for one in (jobs, jobs_again))
    assert predicted == pytest.approx(recorded, rel=0.05)


def test_agents_that_run_one_job_boot_first() -> None:
    """At most two agents, which boot for 10 s; the jobs come in threes, so the third waits, and boots then."""
    builds, jobs = [], []
    for i in range(30):
        at, id = 1000 * (i // 3), f"b{i}"
        start = at + (10 if i % 3 < 2 else 60 + 10)
        builds.append(build(id, at, start + 50, branch=id))
        jobs.append(job("unit", at, start, start + 50, id, created_at=at))
    same, jobs_then = replayed(builds, jobs)
    assert same.attrs["fleet"]["default"]["single_use"]
    assert seconds(jobs_then, "started") == seconds(frames(builds, jobs)[1], "started")
    more = seconds(replayed(builds, jobs, agents=3)[1], "started")
    assert [start for (start,) in more.values()] == [1000 * (i // 3) + 10 for i in range(30)]
    assert replayed(builds, jobs, agents=3)[1]["agent_id"].is_unique


def test_the_agent_of_a_lost_job_stays_away() -> None:
    builds, jobs = many(6, 10, 30, agent_id="one")
    starts = [0, 30, 160, 190, 220, 250]
    for i, (own, one) in enumerate(zip(builds, jobs, strict=True)):
        one |= {"started_at": starts[i], "finished_at": starts[i] + 30}
        own["finished_at"] = starts[i] + 30
        jobs[i] = one
    jobs[1] |= {"state": "failed", "exit_status": -1}
    same = replayed(builds, jobs)[1]
    assert [start for (start,) in seconds(same, "started").values()] == starts
    faster = replayed(builds, jobs, run_scale={"unit": 0.5})[1]
    assert [start for (start,) in seconds(faster, "started").values()] == [0, 15, 130, 145, 160, 175]


@pytest.mark.long
def test_the_error_is_that_of_the_other_half_of_the_days() -> None:
    """On odd days there are half as many agents, so each half predicts the other badly."""
    hours = np.where(np.arange(168) // 24 % 2 == 0, 3, 2)
    good, _ = metrics.replay(*waits_of_week(np.full(168, 2)))
    bad, _ = metrics.replay(*waits_of_week(hours))
    for frame, is_good in ((good, True), (bad, False)):
        error = pd.DataFrame(frame.attrs["error"]).set_index("of").loc["queue"]
        gap = abs(error["predicted_p95_s"] - error["recorded_p95_s"]) / error["recorded_p95_s"]
        assert (gap < 0.05) == is_good
    one_day = replayed([build(finished=20)], [job("unit", 0, 1, 20)])[0]
    assert one_day.attrs["error"]["of"] == []


def test_empty_frames_stay_empty() -> None:
    builds, jobs = frames([], [])
    for old, new in zip((builds, jobs), metrics.replay(builds, jobs), strict=True):
        pd.testing.assert_frame_equal(old, new)
    builds, jobs = frames([build(finished=20)], [])
    pd.testing.assert_frame_equal(metrics.replay(builds, jobs)[0], builds)


def test_queues_of_organizations_are_kept_apart() -> None:
    builds, jobs = frames([build("x", 0, 10), build("y", 0, 10)], [job("a", 0, 0, 10, "x"), job("a", 0, 0, 10, "y")])
    both = ["acme", "globex"]
    _, together = metrics.replay(builds, jobs, agents=1)
    assert seconds(together, "started") == {"x/a": (0,), "y/a": (10,)}
    again, apart = metrics.replay(
        builds.assign(organization=both), jobs.assign(organization=both), agents={"default": 1}
    )
    assert seconds(apart, "started") == {"x/a": (0,), "y/a": (0,)}
    assert list(again.attrs["fleet"]) == ["acme/default", "globex/default"]


def test_rows_that_cannot_be_replayed_stay_as_they_are() -> None:
    builds, jobs = frames(
        [build("lost", None, None, state="creating"), build(finished=10)],
        [job("a", 0, 0, 10), job("w", None, None, None, type="waiter", build_id=None, state=None)],
    )
    for old, new in zip((builds, jobs), metrics.replay(builds, jobs, agents=1), strict=True):
        pd.testing.assert_frame_equal(old, new)


def test_a_load_that_leaves_out_all_builds_gives_empty_frames() -> None:
    builds, jobs = replayed([build(finished=20)], [job("unit", 0, 0, 20)], load=0.001)
    assert len(builds) == len(jobs) == 0
    assert list(jobs) == list(job("a"))
