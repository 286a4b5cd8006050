from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from buildframe.metrics.waste import waste
from tests.metrics.metric_frames import START, at
from tests.refusals import columns_not_named

DTYPES = {
    "organization": "str", "pipeline": "str", "branch": "str", "commit": "str", "build_id": "str",
    "build_number": "Int64", "build_state": "str", "type": "str", "state": "str", "soft_failed": "boolean",
    "retried": "boolean", "queue": "str",
}  # fmt: skip
STAMPS = ["build_created_at", "started_at", "finished_at"]
PARTS = ["retried_s", "canceled_s", "after_failure_s", "repeated_s", "useful_s"]


class Build:
    """A build of web on main at commit c that passed, created so many minutes after START, by default."""

    def __init__(self, number: int, **more: object) -> None:
        usual = {"organization": "acme", "pipeline": "web", "branch": "main", "commit": "c", "build_state": "passed"}
        self.fields = usual | {"build_id": str(number), "build_number": number, "build_created_at": number} | more

    def job(self, started: float | None, finished: float | None, state: str = "passed", **more: object) -> dict:
        return self.fields | {"type": "script", "started_at": started, "finished_at": finished, "state": state} | more


def frame_of(*jobs: dict) -> pd.DataFrame:
    frame = pd.DataFrame(list(jobs), columns=[*DTYPES, *STAMPS])
    return frame.assign(**{name: at(*frame[name]) for name in STAMPS}).astype(DTYPES)


def minutes(frame: pd.DataFrame) -> list[float]:
    return (waste(frame)[["machine_s", *PARTS]].loc[0] / 60).tolist()


def test_each_class_of_waste():
    one, two = Build(1, build_state="failed"), Build(2, build_state="failed")
    frame = frame_of(
        one.job(0, 10, "failed", retried=True),  # superseded, so not the failure of the build
        one.job(10, 11),
        one.job(11, 13, "failed"),  # this one is
        one.job(11, 13),
        one.job(5, 14),
        one.job(13, 15, "failed"),  # nobody needed to know
        one.job(12, 16, "canceled"),
        one.job(17, 23, "canceled", retried=True),
        two.job(30, 37, "failed"),  # again
        two.job(30, 38),
    )
    #      machine, retried, canceled, after failure, repeated, useful
    assert minutes(frame) == [51, 10 + 6, 4, 1 + 2 + 1, 7 + 7, 1 + 2 + 2 + 8]


def test_what_is_a_failure_of_a_build():
    for failed, after in (
        ({"state": "failed"}, 3),
        ({"state": "timed_out"}, 3),
        ({"state": "failed", "soft_failed": True}, 0),
        ({"state": "failed", "retried": True}, 0),
        ({"state": "canceled"}, 0),
    ):
        build = Build(1)
        assert minutes(frame_of(build.job(0, 1, **failed), build.job(0, 4)))[3] == after, failed
    trigger = Build(1).job(None, 1, "failed")  # ran on no machine, yet the build failed by it
    assert minutes(frame_of(trigger, Build(1).job(0, 4), Build(2, commit="d").job(0, 8)))[3] == 3


REPEATS = [
    ({}, {}, True),
    ({"build_state": "failed"}, {"build_state": "failed"}, True),
    ({"build_state": "failed"}, {}, False),
    ({}, {"build_state": "failed"}, False),
    ({"build_state": "canceled"}, {"build_state": "canceled"}, False),
    ({"build_state": None}, {"build_state": None}, False),
    ({"build_created_at": 3}, {}, False),  # then the other one is the repeat
    ({"build_created_at": 2}, {}, True),  # equal stamps: by number
    ({"branch": None}, {"branch": None}, True),
    ({}, {"build_created_at": None}, False),
    *(({}, {name: "other"}, False) for name in ("organization", "pipeline", "branch", "commit")),
    *(({"commit": commit}, {"commit": commit}, False) for commit in (None, "HEAD")),
]


def test_what_is_a_repeat():
    """Each case has a pipeline of its own, unless it is about pipelines."""
    found, frames = [], []
    for case, (earlier, later, _) in enumerate(REPEATS):
        usual = {"pipeline": f"p{case}", "build_id": f"{case} a", "queue": str(case)}
        first = Build(1, **usual | earlier).job(0, 1)
        frames += [first, Build(2, **usual | {"build_id": f"{case} b"} | later).job(0, 7)]
    repeated = waste(frame_of(*frames), by="queue").set_index("queue")["repeated_s"]
    found = [repeated[str(case)] == 420 for case in range(len(REPEATS))]
    assert found == [is_repeat for *_, is_repeat in REPEATS]


def test_only_the_build_before_is_compared_and_unsettled_ones_are_passed_over():
    states = ["passed", "failed", "running", "failed", "canceled", "passed", "passed"]
    jobs = [Build(i, build_state=state).job(0, 2**i) for i, state in enumerate(states)]
    assert minutes(frame_of(*jobs))[4] == 2**3 + 2**6


def test_what_still_runs_is_left_out_and_skew_is_kept():
    build = Build(1)
    frame = frame_of(
        build.job(0, None, "running"), build.job(None, 3), build.job(None, None), build.job(5, 4), build.job(0, 9)
    )
    row = waste(frame).loc[0]
    assert row[["n", "n_running", "n_negative"]].tolist() == [2, 1, 1]
    assert row[["machine_s", "useful_s"]].tolist() == [480, 480]


def test_in_groups_failures_and_repeats_are_those_of_the_whole_build():
    one, two = Build(1, build_state="failed"), Build(2, build_state="failed")
    frame = frame_of(
        one.job(0, 1, "failed", queue="a"),
        one.job(0, 4, queue="b"),
        two.job(0, 8, queue=None),
        Build(3).job(None, None, queue="d"),
    )
    result = waste(frame, by="queue")
    assert result["queue"].tolist()[:3] == ["a", "b", "d"]
    assert (result[["useful_s", "after_failure_s", "repeated_s"]] / 60).to_numpy().tolist() == [
        [1, 0, 0],
        [1, 3, 0],
        [0, 0, 0],
        [0, 0, 8],
    ]


def test_of_different_states_of_a_build_the_last_fetched_and_then_the_smallest_counts():
    summary = {
        1: [("failed", 1), ("passed", 2)],
        2: [("passed", 2), ("running", 1)],
        3: [("passed", 2), ("failed", 2), ("aborted", 1)],
        4: [("passed", None), ("failed", 1)],
    }
    smallest = summary | {2: [("passed", None)] * 2, 3: [("passed", None), ("running", None), ("passed", None)]}
    for states, seen, repeats in ((summary, True, [2, 4]), (smallest, False, [3])):
        each = [(number, *one) for number, of_build in states.items() for one in of_build]
        frame = frame_of(*(Build(number, build_state=state).job(0, 10**number) for number, state, _ in each))
        frame = frame.assign(fetched_at=at(*(stamp for *_, stamp in each))) if seen else frame
        expected = sum(10**number * len(states[number]) for number in repeats)
        for order in (range(len(each)), range(len(each))[::-1], np.random.default_rng(1).permutation(len(each))):
            assert waste(frame.iloc[order])["repeated_s"].loc[0] / 60 == expected, seen


def test_jobs_without_a_build_belong_to_none():
    frame = frame_of(Build(1).job(0, 1, "failed"), Build(2).job(0, 4)).assign(
        build_id=pd.Series([None] * 2, dtype="str")
    )
    assert waste(frame)[["useful_s", "machine_s"]].loc[0].tolist() == [300, 300]


def test_dtypes_hold_whatever_the_rows():
    full = waste(frame_of(Build(1).job(0, 1)), by="queue")
    floats = dict.fromkeys(["machine_s", *PARTS], "float64")
    assert full.dtypes.astype(str).to_dict() == {"queue": "str", "n": "Int64"} | floats | {
        "n_running": "Int64", "n_no_end": "Int64", "n_negative": "Int64",
    }  # fmt: skip
    empty = frame_of()
    assert waste(empty).empty
    assert waste(empty, by="queue").dtypes.equals(full.dtypes)
    nulls = waste(empty.reindex([0, 1]))
    assert nulls.loc[0].tolist() == [0] * 10


def test_missing_columns_are_named():
    names = [*(name for name in DTYPES if name != "queue"), *STAMPS]
    assert columns_not_named(waste, frame_of(Build(1).job(0, 1)), names) == set()


micros = st.integers(-3, 10_000_000_001) | st.integers(0, 5) | st.none()
builds = st.fixed_dictionaries(
    {
        "branch": st.sampled_from(["main", None]),
        "commit": st.sampled_from(["c", "c", "d", None]),
        "build_state": st.sampled_from(["passed", "failed", "failed", "running"]),
        "created": st.integers(0, 2),
    }
)
jobs = st.fixed_dictionaries(
    {
        "build": st.integers(0, 4),
        "state": st.sampled_from(["passed", "passed", "failed", "timed_out", "canceled", None]),
        "soft_failed": st.sampled_from([False, False, True, None]),
        "retried": st.sampled_from([False, False, True, None]),
        "started": micros,
        "finished": micros,
        "queue": st.sampled_from(["a", "b", None]),
    }
)


def drawn_frame(of_builds: list[dict], of_jobs: list[dict]) -> pd.DataFrame:
    made = [Build(i, **{**build, "build_created_at": build["created"]}) for i, build in enumerate(of_builds)]
    frame = frame_of(*(made[job["build"]].job(None, None) | job for job in of_jobs))
    drawn = pd.DataFrame(of_jobs, columns=["started", "finished"]).astype("Int64")
    ends = {f"{name}_at": START + pd.to_timedelta(drawn[name], unit="us") for name in drawn}
    return frame.assign(**{name: stamps.astype(frame[name].dtype) for name, stamps in ends.items()})


def naive_repeats(of_builds: list[dict], seen: set[int]) -> set[int]:
    repeats, last = set(), {}
    for i in sorted(seen, key=lambda i: (of_builds[i]["created"], i)):
        build = of_builds[i]
        if build["commit"] is not None and build["build_state"] in ("passed", "failed"):
            key = (build["branch"], build["commit"])
            if last.get(key) == build["build_state"]:
                repeats.add(i)
            last[key] = build["build_state"]
    return repeats


def naive(of_builds: list[dict], of_jobs: list[dict]) -> dict[object, list[int]]:
    """Of each queue: microseconds by class."""
    failed_at: dict[int, int] = {}
    for job in of_jobs:
        hard = job["state"] == "timed_out" or (job["state"] == "failed" and not job["soft_failed"])
        if hard and not job["retried"] and job["finished"] is not None:
            failed_at[job["build"]] = min(job["finished"], failed_at.get(job["build"], job["finished"]))
    repeats = naive_repeats(of_builds, {job["build"] for job in of_jobs})
    parts: dict[object, list[int]] = {}
    for job in of_jobs:
        sums = parts.setdefault(job["queue"], [0] * len(PARTS))
        if job["started"] is not None and job["finished"] is not None:
            failed = failed_at.get(job["build"], job["finished"])
            late = job["finished"] - max(job["started"], failed) if job["finished"] > failed else 0
            fits = [job["retried"], job["state"] == "canceled", False, job["build"] in repeats, True]
            place = [bool(fit) for fit in fits].index(True)
            late = late if place > 1 else 0
            sums[place] += job["finished"] - job["started"] - late
            sums[2] += late
    return parts


@pytest.mark.long
@settings(max_examples=35, deadline=None)
@given(
    st.lists(builds, min_size=5, max_size=5),
    st.lists(jobs, max_size=12),
    st.randoms(use_true_random=False),
)
def test_agrees_with_the_definition_in_any_order(of_builds, of_jobs, random):
    shuffled = random.sample(of_jobs, len(of_jobs))
    result = waste(drawn_frame(of_builds, shuffled), by="queue")
    found = {None if pd.isna(row.queue) else row.queue: [getattr(row, p) for p in PARTS] for row in result.itertuples()}
    assert {queue: [round(part * 1e6) for part in parts] for queue, parts in found.items()} == naive(of_builds, of_jobs)
    parts = (result[PARTS] * 1e6).round().astype("int64").sum(axis=1)
    np.testing.assert_array_equal(parts, (result["machine_s"] * 1e6).round().astype("int64"))
    ran = [job for job in of_jobs if job["started"] is not None and job["finished"] is not None]
    assert result["n"].sum() == len(ran)
    assert result["n_negative"].sum() == sum(job["finished"] < job["started"] for job in ran)
    open_ended = [job for job in of_jobs if job["started"] is not None and job["finished"] is None]
    assert result["n_running"].sum() == sum(job["state"] is None for job in open_ended)  # all drawn states are over


def test_the_machine_time_is_that_of_the_row_metric():
    frame = frame_of(Build(1).job(0, 1.5), Build(1).job(0, 4, "failed"), Build(2).job(3, 2), Build(2).job(3, None))
    assert waste(frame)["machine_s"].loc[0] == metrics.run_time(frame).sum().total_seconds()
