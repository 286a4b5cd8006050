from __future__ import annotations

import datetime as dt

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pandas.testing import assert_frame_equal

from buildframe import metrics
from buildframe.metrics import load
from tests.metrics.each_case import for_each
from tests.metrics.metric_frames import START, at
from tests.refusals import columns_not_named, wrong_messages

STAMPS = ["runnable_at", "started_at", "finished_at", "build_created_at", "fetched_at"]
FETCHED = 20


def job(start: float | None = None, end: float | None = None, **other: object) -> dict[str, object]:
    """A script job in queue a of a build created at minute 0, runnable at 0, fetched at 20."""
    usual = {"type": "script", "queue": "a", "agent_id": "x", "runnable_at": 0, "build_created_at": 0}
    return {**usual, "fetched_at": FETCHED, "started_at": start, "finished_at": end, **other}


def frame(*rows: dict[str, object]) -> pd.DataFrame:
    table = pd.DataFrame(list(rows), columns=list(job()))
    return table.assign(**{name: at(*table[name]) for name in STAMPS}).astype(
        dict.fromkeys(["type", "queue", "agent_id"], "str")
    )


def minute(moment: pd.Timestamp) -> float:
    return (moment - START) / pd.Timedelta(1, "min")


def steps(result: pd.DataFrame, level: str = "running") -> list[tuple[object, float, int]]:
    keys = result["queue"] if "queue" in result else [None] * len(result)
    rows = zip(keys, result["at"], result[level], strict=True)
    return [(None if pd.isna(key) else key, minute(moment), count) for key, moment, count in rows]


def area(result: pd.DataFrame, level: str = "running") -> float:
    """Minutes under the step functions."""
    lasting = result.groupby("queue", dropna=False)["at"].diff().groupby(result["queue"], dropna=False).shift(-1)
    return (lasting / pd.Timedelta(1, "min") * result[level].astype(float)).sum()


def instant(minutes: float) -> dt.datetime:
    return START.to_pydatetime() + dt.timedelta(minutes=minutes)


def test_concurrency_of_a_few_runs():
    """Runs (1, 4), (2, 6), (4, 5) and one since 5; in queue b (3, 3), which covers nothing, and (7, 8)."""
    rows = [job(1, 4), job(2, 6), job(4, 5), job(5), job(3, 3, queue="b"), job(7, 8, queue="b"), job()]
    result = load.concurrency(frame(*rows))
    in_a = [("a", 1, 1), ("a", 2, 2), ("a", 6, 1), ("a", 20, 0)]
    assert steps(result) == [*in_a, ("b", 3, 0), ("b", 7, 1), ("b", 8, 0)]
    assert {name: str(dtype) for name, dtype in result.dtypes.items()} == {
        "queue": "str", "at": "datetime64[us, UTC]", "running": "Int64", "whole": "boolean", "n_negative": "Int64",
    }  # fmt: skip


def test_queue_depth_of_a_few_waits():
    """Waits (0, 2), (1, 5); (3, 4) canceled before an agent came, one since 6; others wait for no agent."""
    rows = [job(2, 9), job(5, 6, runnable_at=1), job(None, 4, runnable_at=3), job(runnable_at=6)]
    others = [job(None, 9, type="trigger"), job(type="waiter", runnable_at=None), job(runnable_at=None)]
    result = load.queue_depth(frame(*rows, *others))
    expected = [(0, 1), (1, 2), (2, 1), (3, 2), (4, 1), (5, 0), (6, 1), (20, 0)]
    assert steps(result, "waiting") == [("a", *step) for step in expected]
    assert list(result) == ["queue", "at", "waiting", "whole", "n_negative"]


def test_a_window_begins_and_ends_with_a_row():
    jobs = frame(job(1, 4), job(2, 6), job(9, 12), job(1, 2, queue="b"), job(15, 16, queue="c"), job(queue="d"))
    result = load.concurrency(jobs, start=instant(3), end=instant(9))
    in_a = [("a", 3, 2), ("a", 4, 1), ("a", 6, 0), ("a", 9, 1)]
    assert steps(result) == [*in_a, ("b", 3, 0), ("b", 9, 0), ("c", 3, 0), ("c", 9, 0)]
    assert steps(load.concurrency(jobs, start=instant(9), by=None)) == [
        (None, 9, 1), (None, 12, 0), (None, 15, 1), (None, 16, 0),
    ]  # fmt: skip
    assert steps(load.concurrency(jobs, end=instant(2)))[:3] == [("a", 1, 1), ("a", 2, 2), ("b", 1, 1)]


def test_ways_to_say_when():
    ways = [instant(5), "2026-03-01T00:05Z", "15m", dt.timedelta(minutes=15)]
    found = [steps(load.concurrency(frame(job(1, 9)), start=start)) for start in ways]
    assert found == [[("a", 5, 1), ("a", 9, 0)]] * 4


def test_windows_that_cannot_be():
    jobs = frame(job(1, 9))
    unknown = jobs.assign(fetched_at=None)
    assert wrong_messages([
        ("is not after start", lambda: load.concurrency(jobs, start=instant(3), end=instant(3))),
        ("has no time zone", lambda: load.queue_depth(jobs, end=dt.datetime(2026, 3, 1))),
        ("counts back from the service's time", lambda: load.concurrency(unknown, start="1h")),
    ]) == {}  # fmt: skip


def test_whole_depends_on_the_longest_build():
    """Builds of minutes 2, 5 and 30; the longest ended 6 minutes after its creation, so older ones until 8."""
    rows = [job(3, 7, build_created_at=2), job(6, 11, build_created_at=5), job(30, 31, build_created_at=30)]
    result = load.concurrency(frame(*rows))
    assert [minute(m) for m in result["at"][result["whole"]]] == [11, 30]
    cut = load.concurrency(frame(*rows), start=instant(7), end=instant(30.5))
    assert [minute(m) for m in cut["at"]] == [7, 11, 30, 30.5]
    assert cut["whole"].tolist() == [False, True, True, False]
    assert load.concurrency(frame(*rows), start=instant(8))["whole"].tolist() == [True, True, True, False]
    assert load.concurrency(frame(job(1, 2, build_created_at=None)))["whole"].isna().all()


def test_skew_covers_nothing_and_is_counted():
    jobs = frame(job(1, 4), job(9, 6), job(5, 3, queue="b"), job(25))
    result = load.concurrency(jobs)
    assert steps(result) == [("a", 1, 1), ("a", 4, 0), ("b", 5, 0)]
    assert result["n_negative"].tolist() == [2, 2, 1]
    depth = load.queue_depth(frame(job(2, 3, runnable_at=4), job(9, 10, runnable_at=8)))
    assert steps(depth, "waiting") == [("a", 4, 0), ("a", 8, 1), ("a", 9, 0)]
    assert depth["n_negative"].tolist() == [1, 1, 1]


def test_utilization_of_two_agents():
    """x ran 2 + 3 of its 9 minutes, y all of its 2; 4 ran 3 of 3 in queue b."""
    rows = [job(1, 3), job(7, 10), job(5, 7, agent_id="y"), job(0, 3, agent_id="4", queue="b")]
    rows += [job(12), job(13, agent_id="z"), job(1, 2, agent_id=None), job(), job(queue="c")]
    result = load.utilization(frame(*rows))
    numbers = ["agents", "busy_s", "seen_s", "share_used", "n_running", "n_no_end", "n_no_agent", "n_negative"]
    assert list(result) == ["queue", *numbers]
    assert result["queue"].tolist() == ["a", "b"]
    assert result[numbers].to_numpy(float).tolist() == [
        [2, 420, 660, 420 / 660, 2, 0, 1, 0], [1, 180, 180, 1, 0, 0, 0, 0],
    ]  # fmt: skip
    assert [str(result[name].dtype) for name in numbers] == ["Int64", *["float64"] * 3, *["Int64"] * 4]
    assert load.utilization(frame(*rows), by=None)["agents"].tolist() == [3]


def test_utilization_without_a_finished_run_and_with_skew():
    result = load.utilization(frame(job(3), job(4, 2, queue="b"), job(1, 1, queue="c")))
    assert result["agents"].tolist() == [0, 1, 1]
    assert result["busy_s"].tolist() == [0, -120, 0]
    assert result["share_used"].isna().all()
    assert result["n_negative"].tolist() == [0, 1, 0]
    assert result["n_running"].tolist() == [1, 0, 0]


LOADS = {"concurrency": load.concurrency, "queue_depth": load.queue_depth, "utilization": load.utilization}


@for_each(LOADS)
def test_frames_with_nothing_to_count(summary):
    some = summary(frame(job(1, 2)))
    nulls = pd.DataFrame({name: [None, None] for name in job()})
    for jobs in (frame(), nulls.iloc[:0], nulls, frame(job(type="waiter", runnable_at=None))):
        result = summary(jobs)
        assert result.empty
        assert result.drop(columns="queue").dtypes.equals(some.drop(columns="queue").dtypes)
        assert list(result) == list(some)
    assert summary(nulls, by=None).empty


@for_each(LOADS)
def test_only_running_jobs_and_null_keys(summary):
    result = summary(frame(job(3), job(4, queue=None)))
    assert result["queue"].iloc[0] == "a"
    assert pd.isna(result["queue"].iloc[-1])


@for_each(LOADS)
def test_keys_zones_and_no_change_of_the_frame(summary):
    jobs = frame(job(1, 4), job(2, 6, queue="b"), job(4, 5), job(5), job(1, 2, type=None, queue=None))
    jobs = jobs.assign(step_key=["s", "t", None, "s", "t"], name="n").assign(step=metrics.step)
    before, by = jobs.copy(deep=True), ["queue", metrics.step]
    expected = summary(jobs, by=by)
    assert list(expected)[:2] == ["queue", "step"]
    assert_frame_equal(jobs, before)
    there = {name: jobs[name].dt.tz_convert("Asia/Kathmandu").dt.as_unit("ns") for name in STAMPS}
    assert_frame_equal(summary(jobs.assign(**there), by=by), expected)


def test_missing_columns_are_named():
    needs = {"concurrency": STAMPS[1:], "queue_depth": STAMPS, "utilization": ["agent_id", "started_at", "finished_at"]}
    jobs = frame(job(1, 2))
    missing = {name: columns_not_named(LOADS[name], jobs, [*names, "queue"], "ws.jobs()")
               for name, names in needs.items()}  # fmt: skip
    assert missing == {name: set() for name in LOADS}


# Against plain definitions, minute by minute

moment = st.integers(-2, 18) | st.none()
drawn_jobs = st.lists(
    st.builds(job, moment, moment, runnable_at=moment, queue=st.sampled_from(["a", "b", None]),
              agent_id=st.sampled_from(["x", "y", None]), type=st.sampled_from(["script", "script", "trigger"])),
    max_size=10,
)  # fmt: skip


def runs(rows: list[dict]) -> list[tuple[object, int, int]]:
    begun = [row for row in rows if row["type"] == "script" and row["started_at"] is not None]
    return [(r["queue"], r["started_at"], FETCHED if r["finished_at"] is None else r["finished_at"]) for r in begun]


def waits(rows: list[dict]) -> list[tuple[object, int, int]]:
    found = []
    for row in rows:
        ends = [row["started_at"], row["finished_at"], FETCHED]
        if row["type"] == "script" and row["runnable_at"] is not None:
            found.append((row["queue"], row["runnable_at"], next(end for end in ends if end is not None)))
    return found


def level(result: list[tuple[object, float, int]], queue: object, minutes: float) -> int:
    return ([0] + [count for key, start, count in result if key == queue and start <= minutes])[-1]


CASES = pytest.mark.parametrize(
    ("summary", "name", "intervals"),
    [(load.concurrency, "running", runs), (load.queue_depth, "waiting", waits)],
)


@pytest.mark.long
@CASES
@settings(deadline=None, max_examples=40)
@given(rows=drawn_jobs, random=st.randoms())
def test_each_moment_against_the_definition(summary, name, intervals, rows, random):
    result = summary(frame(*rows))
    found, covered = steps(result, name), intervals(rows)
    for queue, minutes in [(queue, minutes) for queue in ("a", "b", None) for minutes in range(-3, 22)]:
        covering = sum(key == queue and start <= minutes < end for key, start, end in covered)
        assert level(found, queue, minutes) == covering
    changes = result.groupby("queue", dropna=False)[name].diff()
    assert (changes.dropna() != 0).all()
    assert all(own["at"].is_monotonic_increasing for _, own in result.groupby("queue", dropna=False))
    assert result.groupby("queue", dropna=False)[name].last().eq(0).all()
    random.shuffle(rows)
    assert_frame_equal(summary(frame(*rows)), result)


@pytest.mark.long
@CASES
@settings(deadline=None, max_examples=40)
@given(rows=drawn_jobs, edges=st.lists(st.integers(-3, 22), min_size=2, max_size=2, unique=True))
def test_it_integrates_to_the_time_spent_and_slices_add_up(summary, name, intervals, rows, edges):
    jobs, (start, end) = frame(*rows), sorted(edges)
    spent = sum(max(end - start, 0) for _, start, end in intervals(rows))
    assert area(summary(jobs), name) == pytest.approx(spent)
    cuts = [(None, start), (start, end), (end, None)]
    windows = [[None if edge is None else instant(edge) for edge in cut] for cut in cuts]
    parts = [summary(jobs, start=since, end=until) for since, until in windows]
    assert sum(area(part, name) for part in parts) == pytest.approx(spent)
    found, covered = steps(parts[1], name), intervals(rows)
    for minutes in range(start, end + 1):
        covering = sum(key == "a" and since <= minutes < until for key, since, until in covered)
        assert level(found, "a", minutes) == covering


@pytest.mark.long
@settings(deadline=None, max_examples=60)
@given(drawn_jobs)
def test_utilization_against_the_definition(rows):
    result = load.utilization(frame(*rows)).set_index("queue")
    rows = [row for row in rows if row["type"] == "script"]
    for queue in ("a", "b"):
        begun = [row for row in rows if row["queue"] == queue and row["started_at"] is not None]
        ended = [row for row in begun if row["finished_at"] is not None]
        known = [row for row in ended if row["agent_id"] is not None]
        if not begun:
            assert queue not in result.index
            continue
        agents = {row["agent_id"]: [one for one in known if one["agent_id"] == row["agent_id"]] for row in known}
        seen = sum(max(r["finished_at"] for r in own) - min(r["started_at"] for r in own) for own in agents.values())
        busy = sum(row["finished_at"] - row["started_at"] for row in known)
        found = result.loc[queue]
        assert found[["agents", "busy_s", "seen_s"]].tolist() == [len(agents), 60 * busy, 60 * seen]
        assert (found["share_used"] == pytest.approx(busy / seen)) if seen > 0 else pd.isna(found["share_used"])
        assert found["n_running"] + found["n_no_agent"] + len(known) == len(begun)
