from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_series_equal

from buildframe.errors import BadInput
from buildframe.metrics import build_times, input_frames
from tests.metrics.any_frame import in_duckdb
from tests.metrics.metric_frames import at
from tests.refusals import columns_not_named

_GAPS = ["build_created_at", "type", "state", "started_at", "finished_at", "unblocked_at", "fetched_at"]
NEEDS = {
    build_times.machine_time: ["type", "started_at", "finished_at"],
    build_times.active_time: ["type", "started_at", "finished_at", "retried"],
    build_times.parallelism: ["type", "started_at", "finished_at", "retried"],
    build_times.idle_time: _GAPS,
    build_times.blocked_time: _GAPS,
    build_times.time_to_first_failure: ["build_created_at", "state", "soft_failed", "finished_at"],
    build_times.time_to_pass: ["build_created_at", "build_state", "type", "state", "finished_at"],
}
FETCHED = 15


def job(start: float | None = None, end: float | None = None, **other: object) -> dict[str, object]:
    """One job of build b, created at minute 0 and fetched at 15."""
    state = "running" if end is None else "passed"
    usual = {"build_id": "b", "type": "script", "state": state, "build_state": "passed"}
    flags = {"soft_failed": False, "retried": False}
    stamps = {"build_created_at": 0, "started_at": start, "finished_at": end, "unblocked_at": None}
    return {**usual, **flags, **stamps, "fetched_at": FETCHED, **other}


def frame(*rows: dict[str, object]) -> pd.DataFrame:
    table = pd.DataFrame(list(rows), columns=list(job()))
    stamps = {name: at(*table[name]) for name in table if name.endswith("_at")}
    texts = dict.fromkeys(["build_id", "type", "state", "build_state"], "str")
    return table.assign(**stamps).astype({**texts, "soft_failed": "boolean", "retried": "boolean"})


def block(unblocked: float | None = None, **other: object) -> dict[str, object]:
    state = "blocked" if unblocked is None else "unblocked"
    return job(type="manual", unblocked_at=unblocked, **{"state": state, **other})


def minutes(series: pd.Series) -> dict[str, float | None]:
    numbers = series / pd.Timedelta(1, "min") if series.dtype.kind == "m" else series
    return {str(build): None if pd.isna(number) else number for build, number in numbers.items()}


def of_builds(metric, cases: list[list[dict[str, object]]]) -> list[float | None]:
    """The metric of each case, which is one build, from one frame of all."""
    rows = [row | {"build_id": f"{number:02}"} for number, case in enumerate(cases) for row in case]
    found = minutes(metric(frame(*rows)))
    return [found[f"{number:02}"] for number in range(len(cases))]


def of_b(metric, *rows: dict[str, object]) -> float | None:
    return minutes(metric(frame(*rows)))["b"]


def test_the_worked_example_of_active_time():
    """A (0, 2) retried as A' (2, 4), B (1, 3), C (6, 7): the union is (1, 4) and (6, 7)."""
    rows = [job(0, 2, retried=True), job(2, 4), job(1, 3), job(6, 7)]
    assert of_b(build_times.active_time, *rows) == 4
    assert of_b(build_times.machine_time, *rows) == 7
    assert of_b(build_times.parallelism, *rows) == 5 / 4
    assert of_b(build_times.idle_time, *rows) == 2


def test_a_strictly_serial_build_has_a_parallelism_of_one_also_with_a_retried_job():
    serial = [job(0, 2, retried=True), job(2, 4), job(5, 6), job(8, 7)]
    rows = [*serial, *(row | {"build_id": "c"} for row in [job(0, 4), job(2, 6), job(1, 3, retried=True)])]
    assert build_times.parallelism(frame(*rows)).to_dict() == {"b": 1.0, "c": 8 / 6}


def test_a_deployment_that_waits_for_somebody():
    """Queue 0-1, build 1-3, blocked 3-8, queue 8-9, deploy 9-10, a wait for the last job's agent 10-10.5."""
    rows = [job(1, 3), block(8), job(9, 10), job(10.5, 11)]
    assert of_b(build_times.blocked_time, *rows) == 5
    assert of_b(build_times.idle_time, *rows) == 1 + 1 + 0.5
    assert of_b(build_times.time_to_pass, *rows) == 11


GAPS = {  # rows, and for how many minutes a build was blocked and idle
    "it waits still, up to fetched_at": ([job(0, 3), block()], 12, 0),
    "a job runs meanwhile": ([block(), job(0, None)], 0, 0),
    "before the first job": ([block(2), job(4, 5)], 2, 2),
    "twice in one gap": ([job(0, 1), block(2), block(5), job(6, 7)], 4, 1),
    "in two gaps": ([job(0, 1), block(2), job(3, 4), block(6), job(6, 7)], 3, 1),
    "while a job ran": ([job(0, 4), block(2), job(5, 6)], 0, 1),
    "another ends unstarted": ([job(0, 1), block(5), job(None, 3, state="canceled"), job(5, 6)], 4, 0),
    "a skewed run covers nothing": ([job(0, 1), block(5), job(3, 2), job(5, 6)], 4, 0),
    "canceled before an agent came": ([job(None, 6, state="canceled")], 0, 6),
    "never unblocked, waits no more": ([job(0, 1), block(state="broken")], 0, 0),
    "a job behind a block step": ([job(0, 1), job(state="blocked", type="script")], 0, 0),
    "runs before the creation": ([job(-3, -2), job(-1, 2), job(3, 4)], 0, 1),
    "all before the creation": ([job(-3, -2)], 0, 0),
    "unblocked before the creation": ([block(-2), job(1, 2)], 0, 1),
    "still running": ([job(1, None), job()], 0, 1),
    "still waiting": ([job()], None, None),
    "no creation": ([job(1, 2, build_created_at=None), block(1, build_created_at=None)], None, None),
}


def test_gaps_in_which_a_build_is_blocked_or_idle():
    cases = [rows for rows, _, _ in GAPS.values()]
    both = zip(of_builds(build_times.blocked_time, cases), of_builds(build_times.idle_time, cases), strict=True)
    assert dict(zip(GAPS, both, strict=True)) == {name: (blocked, idle) for name, (_, blocked, idle) in GAPS.items()}


def test_running_and_skewed_jobs():
    assert of_b(build_times.machine_time, job(1, None)) is None
    assert of_b(build_times.active_time, job(1, None), job(2, 3, retried=True)) is None
    rows = [job(2, 5), job(4, 3)]
    assert of_b(build_times.machine_time, *rows) == 2
    assert of_b(build_times.active_time, *rows) == 3
    assert of_b(build_times.active_time, job(4, 3)) == 0
    assert of_b(build_times.parallelism, job(4, 3)) is None


def test_time_to_first_failure():
    cases = [
        ([job(1, 3, state="failed"), job(0, 2, state="timed_out"), job(0, 1)], 2),
        ([job(0, 2, state="failed", soft_failed=True), job(0, 1, state="canceled")], None),
        ([job(0, 2, state="failed", soft_failed=None), job(0, 9, state="failed")], 2),
        ([job(0, 2, state="failed", retried=True), job(3, 4)], 2),
        ([job(0, None, state="failed"), job(0, 1, state=None)], None),
        ([job(0, -2, state="failed")], -2),
        ([job(0, 2, state="failed", build_created_at=None)], None),
    ]
    assert of_builds(build_times.time_to_first_failure, [rows for rows, _ in cases]) == [first for _, first in cases]


def test_time_to_pass():
    cases = [
        ([job(0, 2), job(1, 4), job(5, None)], 4),
        ([job(0, 2, build_state="failed"), job(1, 4, build_state="failed")], None),
        ([job(0, 2, build_state=None)], None),
        ([job(0, 2), block()], None),
        ([job(0, 2), block(3), job(4, 5)], 5),
        ([job()], None),
    ]
    assert of_builds(build_times.time_to_pass, [rows for rows, _ in cases]) == [last for _, last in cases]


def test_it_maps_onto_builds():
    jobs = frame(job(0, 2), job(1, 3, build_id="a"), job(3, 4), job(1, 9, build_id=None))
    builds = pd.DataFrame({"id": ["b", "x", "a"]})
    active = builds.assign(active=builds["id"].map(build_times.active_time(jobs)))["active"]
    assert active.dtype == "timedelta64[us]"
    assert minutes(active) == {"0": 3, "1": None, "2": 2}


def test_shape_name_and_ugly_frames():
    waiter = job(type="waiter", state=None, build_created_at=0)
    running = job(2, None, build_state="running", state="running", build_id="a")
    nothing = pd.DataFrame({name: [None, None] for name in job()})
    for metric in NEEDS:
        dtype = "float64" if metric is build_times.parallelism else "timedelta64[us]"
        for rows in ([], [waiter], [job(0, 1)], [waiter, running]):
            result = metric(frame(*rows))
            assert (result.name, result.dtype, result.index.name) == (metric.__name__, dtype, "build_id")
            assert list(result.index) == sorted({row["build_id"] for row in rows})
        assert metric(nothing).empty
        assert metric(nothing.assign(build_id="b")).isna().tolist() == [True], metric


def test_other_zones_and_units_and_no_change_of_the_frame():
    jobs = frame(
        job(1, 3), block(8), job(9, 10, state="failed"), job(build_id="a"), job(2, 4, build_id="a", retried=True)
    )
    before = jobs.copy(deep=True)
    there = {name: jobs[name].dt.tz_convert("Asia/Kathmandu").dt.as_unit("ns") for name in jobs if name.endswith("_at")}
    for metric in NEEDS:
        assert_series_equal(metric(jobs.assign(**there)), metric(jobs), obj=metric.__name__)
    pd.testing.assert_frame_equal(jobs, before)


def test_missing_columns_are_named():
    frame_of_one = frame(job(0, 1))
    missing = {metric: columns_not_named(metric, frame_of_one, ["build_id", *names], "ws.jobs()")
               for metric, names in NEEDS.items()}  # fmt: skip
    assert missing == {key: set() for key in NEEDS}


def test_stamps_that_cannot_be_are_refused():
    far = pd.DatetimeIndex(np.full(20, "22026-03-01", "datetime64[us]"), tz="UTC")
    jobs = frame(*(job(0, 1, build_id=str(i)) for i in range(20))).assign(finished_at=far)
    with pytest.raises(BadInput, match="20000 years apart"):
        build_times.active_time(jobs)


# Against plain definitions, minute by minute

moment = st.integers(-2, 14) | st.none()
drawn_jobs = st.lists(
    st.builds(
        job,
        moment,
        moment,
        build_id=st.sampled_from(["a", "b", "b", None]),
        type=st.sampled_from(["script", "script", "manual"]),
        state=st.sampled_from(["running", "passed", "failed", "blocked"]),
        unblocked_at=moment | st.none(),
        retried=st.sampled_from([False, False, True, None]),
    ),
    max_size=9,
)


def covered(runs: list[tuple[int, int]]) -> set[int]:
    return {minute for start, end in runs for minute in range(start, end)}


def releases(rows: list[dict]) -> list[int]:
    open_ended = [
        FETCHED for row in rows if (row["type"], row["state"], row["unblocked_at"]) == ("manual", "blocked", None)
    ]
    return [row["unblocked_at"] for row in rows if row["unblocked_at"] is not None] + open_ended


def span(rows: list[dict]) -> tuple[set[int], set[int], set[int]] | None:
    """The minutes of a build's span in which it ran, was blocked, was idle."""
    runs = []
    for row in rows:
        is_known = row["finished_at"] is not None or row["state"] not in ("passed", "failed")
        if row["type"] == "script" and row["started_at"] is not None and is_known:
            runs.append((row["started_at"], FETCHED if row["finished_at"] is None else row["finished_at"]))
    ran = covered(runs)
    ends = [end for start, end in runs if end > start] + releases(rows)
    ends += [row["finished_at"] for row in rows if row["finished_at"] is not None]
    if not ends:
        return None
    whole = set(range(max(ends)))
    held = {m for m in whole - ran if any(m < at and ran.isdisjoint(range(m, at)) for at in releases(rows))}
    return whole & ran, held, whole - ran - held


@pytest.mark.long
@settings(deadline=None, max_examples=30)
@given(drawn_jobs, st.randoms())
def test_against_the_plain_definitions(rows, random):
    jobs, shuffled = frame(*rows), frame(*random.sample(rows, len(rows)))
    measured = {metric: minutes(metric(jobs)) for metric in NEEDS}
    assert measured == {metric: minutes(metric(shuffled)) for metric in NEEDS}
    for build in {row["build_id"] for row in rows} - {None}:
        own = [row for row in rows if row["build_id"] == build]
        ended = [row for row in own if row["started_at"] is not None and row["finished_at"] is not None]
        ended = [row for row in ended if row["type"] == "script"]  # others use no agent
        last = [row for row in ended if not row["retried"]]
        machine = sum(row["finished_at"] - row["started_at"] for row in ended)
        active = len(covered([(row["started_at"], row["finished_at"]) for row in last]))
        assert measured[build_times.machine_time][build] == (machine if ended else None)
        assert measured[build_times.active_time][build] == (active if last else None)
        of_last = sum(max(row["finished_at"] - row["started_at"], 0) for row in last)
        assert measured[build_times.parallelism][build] == (pytest.approx(of_last / active) if active else None)
        _, held, idle = span(own) or (None, None, None)
        assert measured[build_times.blocked_time][build] == (None if held is None else len(held))
        assert measured[build_times.idle_time][build] == (None if idle is None else len(idle))


@pytest.mark.long
@settings(deadline=None, max_examples=40)
@given(drawn_jobs)
def test_idle_blocked_and_running_time_make_up_the_span(rows):
    parts = {build: span([row for row in rows if row["build_id"] == build]) for build in ("a", "b")}
    idle, blocked = (minutes(metric(frame(*rows))) for metric in (build_times.idle_time, build_times.blocked_time))
    for build, found in parts.items():
        if found is not None:
            assert idle[build] + blocked[build] + len(found[0]) == len(set.union(*found))


def test_builds_whose_jobs_lie_apart_in_a_relation_are_whole(monkeypatch):
    monkeypatch.setattr(input_frames, "_BATCH_ROWS", 2)
    ids = ["b", "a", "c"]
    together = [job(start, start + 2, build_id=build) for build in ids for start in (0, 1, 5)]
    apart = [job(start, start + 2, build_id=build) for start in (0, 1, 5) for build in ids]
    for rows in (together, apart):
        found = build_times.active_time(in_duckdb(frame(*rows)))
        assert minutes(found) == dict.fromkeys(["a", "b", "c"], 5)
