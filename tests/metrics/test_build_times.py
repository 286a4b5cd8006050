from __future__ import annotations

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_series_equal

from buildframe.errors import BadInput
from buildframe.metrics import build_times
from tests.metrics.engine_frames import ENGINES, as_series, in_spark
from tests.metrics.metric_frames import at

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


def of_b(metric, *rows: dict[str, object]) -> float | None:
    return minutes(metric(frame(*rows)))["b"]


def test_the_worked_example_of_active_time():
    """A (0, 2) retried as A' (2, 4), B (1, 3), C (6, 7): the union is (1, 4) and (6, 7)."""
    rows = [job(0, 2, retried=True), job(2, 4), job(1, 3), job(6, 7)]
    assert of_b(build_times.active_time, *rows) == 4
    assert of_b(build_times.machine_time, *rows) == 7
    assert of_b(build_times.parallelism, *rows) == 5 / 4
    assert of_b(build_times.idle_time, *rows) == 2


@pytest.mark.parametrize("engine", [lambda frame: frame, *ENGINES.values(), in_spark])
def test_a_strictly_serial_build_has_a_parallelism_of_one_also_with_a_retried_job(engine):
    serial = [job(0, 2, retried=True), job(2, 4), job(5, 6), job(8, 7)]
    rows = [*serial, *(row | {"build_id": "c"} for row in [job(0, 4), job(2, 6), job(1, 3, retried=True)])]
    result = build_times.parallelism(engine(frame(*rows)))
    assert (result if isinstance(result, pd.Series) else as_series(result)).to_dict() == {"b": 1.0, "c": 8 / 6}


def test_a_deployment_that_waits_for_somebody():
    """Queue 0-1, build 1-3, blocked 3-8, queue 8-9, deploy 9-10, a wait for the last job's agent 10-10.5."""
    rows = [job(1, 3), block(8), job(9, 10), job(10.5, 11)]
    assert of_b(build_times.blocked_time, *rows) == 5
    assert of_b(build_times.idle_time, *rows) == 1 + 1 + 0.5
    assert of_b(build_times.time_to_pass, *rows) == 11


@pytest.mark.parametrize(
    ("rows", "blocked", "idle"),
    [
        pytest.param([job(0, 3), block()], 12, 0, id="it waits still, up to fetched_at"),
        pytest.param([block(), job(0, None)], 0, 0, id="a job runs meanwhile"),
        pytest.param([block(2), job(4, 5)], 2, 2, id="before the first job"),
        pytest.param([job(0, 1), block(2), block(5), job(6, 7)], 4, 1, id="twice in one gap"),
        pytest.param([job(0, 1), block(2), job(3, 4), block(6), job(6, 7)], 3, 1, id="in two gaps"),
        pytest.param([job(0, 4), block(2), job(5, 6)], 0, 1, id="while a job ran"),
        pytest.param(
            [job(0, 1), block(5), job(None, 3, state="canceled"), job(5, 6)], 4, 0, id="another ends unstarted"
        ),
        pytest.param([job(0, 1), block(5), job(3, 2), job(5, 6)], 4, 0, id="a skewed run covers nothing"),
        pytest.param([job(None, 6, state="canceled")], 0, 6, id="canceled before an agent came"),
        pytest.param([job(0, 1), block(state="broken")], 0, 0, id="never unblocked, waits no more"),
        pytest.param([job(0, 1), job(state="blocked", type="script")], 0, 0, id="a job behind a block step"),
        pytest.param([job(-3, -2), job(-1, 2), job(3, 4)], 0, 1, id="runs before the creation"),
        pytest.param([job(-3, -2)], 0, 0, id="all before the creation"),
        pytest.param([block(-2), job(1, 2)], 0, 1, id="unblocked before the creation"),
        pytest.param([job(1, None), job()], 0, 1, id="still running"),
        pytest.param([job()], None, None, id="still waiting"),
        pytest.param([job(1, 2, build_created_at=None), block(1, build_created_at=None)], None, None, id="no creation"),
    ],
)
def test_gaps_by_hand(rows, blocked, idle):
    assert of_b(build_times.blocked_time, *rows) == blocked
    assert of_b(build_times.idle_time, *rows) == idle


def test_running_and_skewed_jobs():
    assert of_b(build_times.machine_time, job(1, None)) is None
    assert of_b(build_times.active_time, job(1, None), job(2, 3, retried=True)) is None
    rows = [job(2, 5), job(4, 3)]
    assert of_b(build_times.machine_time, *rows) == 2
    assert of_b(build_times.active_time, *rows) == 3
    assert of_b(build_times.active_time, job(4, 3)) == 0
    assert of_b(build_times.parallelism, job(4, 3)) is None


@pytest.mark.parametrize(
    ("rows", "first"),
    [
        ([job(1, 3, state="failed"), job(0, 2, state="timed_out"), job(0, 1)], 2),
        ([job(0, 2, state="failed", soft_failed=True), job(0, 1, state="canceled")], None),
        ([job(0, 2, state="failed", soft_failed=None), job(0, 9, state="failed")], 2),
        ([job(0, 2, state="failed", retried=True), job(3, 4)], 2),
        ([job(0, None, state="failed"), job(0, 1, state=None)], None),
        ([job(0, -2, state="failed")], -2),
        ([job(0, 2, state="failed", build_created_at=None)], None),
    ],
)
def test_time_to_first_failure(rows, first):
    assert of_b(build_times.time_to_first_failure, *rows) == first


@pytest.mark.parametrize(
    ("rows", "last"),
    [
        ([job(0, 2), job(1, 4), job(5, None)], 4),
        ([job(0, 2, build_state="failed"), job(1, 4, build_state="failed")], None),
        ([job(0, 2, build_state=None)], None),
        ([job(0, 2), block()], None),
        ([job(0, 2), block(3), job(4, 5)], 5),
        ([job()], None),
    ],
)
def test_time_to_pass(rows, last):
    assert of_b(build_times.time_to_pass, *rows) == last


def test_it_maps_onto_builds():
    jobs = frame(job(0, 2), job(1, 3, build_id="a"), job(3, 4), job(1, 9, build_id=None))
    builds = pd.DataFrame({"id": ["b", "x", "a"]})
    active = builds.assign(active=builds["id"].map(build_times.active_time(jobs)))["active"]
    assert active.dtype == "timedelta64[us]"
    assert minutes(active) == {"0": 3, "1": None, "2": 2}


@pytest.mark.parametrize("metric", NEEDS)
def test_shape_name_and_ugly_frames(metric):
    waiter = job(type="waiter", state=None, build_created_at=0)
    running = job(2, None, build_state="running", state="running", build_id="a")
    for rows in ([], [waiter], [job(0, 1)], [waiter, running]):
        result = metric(frame(*rows))
        assert result.name == metric.__name__
        assert result.dtype == ("float64" if metric is build_times.parallelism else "timedelta64[us]")
        assert result.index.name == "build_id"
        assert list(result.index) == sorted({row["build_id"] for row in rows})
    nothing = pd.DataFrame({name: [None, None] for name in job()})
    assert metric(nothing).empty
    assert metric(nothing.assign(build_id="b")).isna().tolist() == [True]


@pytest.mark.parametrize("metric", NEEDS)
def test_other_zones_units_and_engines_and_no_change_of_the_frame(metric):
    jobs = frame(
        job(1, 3), block(8), job(9, 10, state="failed"), job(build_id="a"), job(2, 4, build_id="a", retried=True)
    )
    before, expected = jobs.copy(deep=True), metric(jobs)
    pd.testing.assert_frame_equal(jobs, before)
    there = {name: jobs[name].dt.tz_convert("Asia/Kathmandu").dt.as_unit("ns") for name in jobs if name.endswith("_at")}
    for other in (jobs.assign(**there), pl.from_pandas(jobs), pl.from_pandas(jobs).lazy(), duckdb.from_df(jobs)):
        assert_series_equal(metric(other), expected)


@pytest.mark.parametrize("metric", NEEDS)
def test_a_missing_column_is_named(metric):
    for name in ("build_id", *NEEDS[metric]):
        with pytest.raises(BadInput, match=rf"no column '{name}'; it comes with .*ws\.jobs\(\)"):
            metric(frame(job(0, 1)).drop(columns=name))


def test_stamps_that_cannot_be_are_refused():
    far = pd.DatetimeIndex(np.full(20, "22026-03-01", "datetime64[us]"), tz="UTC")
    jobs = frame(*(job(0, 1, build_id=str(i)) for i in range(20))).assign(finished_at=far)
    with pytest.raises(BadInput, match="Timestamps of build 0 are 20000 years apart"):
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
