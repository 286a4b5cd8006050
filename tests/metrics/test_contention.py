"""Which jobs wait for which: exact sums, known answers, a naive loop, and a planted monopolizer."""

from __future__ import annotations

import functools
import heapq
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buildframe import metrics
from tests.metrics.each_case import for_each
from tests.metrics.metric_frames import START, UTC, at
from tests.metrics.random_frames import jobs_of
from tests.refusals import columns_not_named, wrong_messages

DAY, MICRO = 86_400_000_000, pd.Timedelta(1, "us")
STAMPS = ["runnable_at", "started_at", "finished_at", "fetched_at"]


def jobs(*rows: tuple[Any, ...], **columns: object) -> pd.DataFrame:
    """Jobs of these pipelines that are runnable, start and finish so many minutes after START."""
    pipeline, *stamps = zip(*rows, strict=True) if rows else [()] * 4
    times = {name: at(*own) for name, own in zip(STAMPS, stamps, strict=False)}
    frame = {"type": "script", "queue": "default", "pipeline": pd.Series(pipeline, dtype="str"), **times}
    return pd.DataFrame({**frame, "fetched_at": at(*[1000] * len(rows)), **columns}).astype({"queue": "str"})


def minutes(frame: pd.DataFrame, **options: Any) -> dict[tuple[str, str], float]:
    found = metrics.contention(frame, **options)
    assert (found["explained"] == (found["holding"] != "unexplained")).all()
    return {(row.waiting, row.holding): round(row.wait_s / 60, 6) for row in found.itertuples()}


def total(frame: pd.DataFrame) -> pd.Timedelta:
    return metrics.queue_time(frame).sum()


def exactly(found: pd.DataFrame) -> np.ndarray:
    """Whole microseconds, of which the seconds are the nearest floats."""
    micros = (found["wait_s"] * 1e6).round().astype("int64")
    assert (micros / 1e6 == found["wait_s"]).all()
    return micros.to_numpy()


def test_time_is_split_equally_over_the_jobs_that_hold_agents():
    frame = jobs(("a", 0, 0, 12), ("b", 0, 0, 20), ("b", 0, 0, 20), ("c", 4, 12, 13))
    assert minutes(frame) == pytest.approx({("c", "a"): 8 / 3, ("c", "b"): 16 / 3}, abs=1e-6)


def test_jobs_wait_for_their_own_pipeline_and_for_jobs_of_their_queue_only():
    frame = jobs(("a", 0, 0, 10), ("a", 3, 10, 12), ("b", 0, 0, 9), queue=["x", "x", "y"])
    assert minutes(frame) == {("a", "a"): 7}


def test_a_wait_beside_idle_agents_is_unexplained():
    frame = jobs(("a", 0, 0, 10), ("a", 0, 0, 5), ("b", 2, 7, 9))  # two agents, of which one is idle from 5 on
    assert minutes(frame) == {("b", "a"): 3, ("b", "unexplained"): 2}
    assert minutes(jobs(("b", 2, 7, 9))) == {("b", "unexplained"): 5}  # nobody held an agent


def test_a_job_that_is_seen_to_end_late_makes_no_agent():
    held = [("a", 0, 0, 101), ("a", 100, 100, 200)]  # both hold the only agent for a minute, while b waits for 99
    assert minutes(jobs(*held, ("b", 20, 119, 120))) == {("b", "a"): 99}
    assert minutes(jobs(*held, ("b", 95, 104, 120))) == {("b", "a"): 1, ("b", "unexplained"): 8}  # 1 is a tenth of 9


def test_agents_are_those_of_the_day():
    night = 24 * 60
    two = [("a", 0, 0, 20), ("a", 0, 0, 20), ("b", 10, 20, 21)]
    one = [("a", night, night, night + 20), ("b", night + 10, night + 20, night + 21)]
    assert minutes(jobs(*two, *one)) == {("b", "a"): 20}
    across = jobs(("a", 0, 0, night + 5), ("a", 0, 0, night - 5), ("b", night - 10, night + 5, night + 9))
    assert minutes(across) == {("b", "a"): 10, ("b", "unexplained"): 5}  # one agent is idle for 5 minutes of the first


def test_jobs_that_wait_or_run_when_fetched_count_until_then():
    frame = jobs(("a", 0, 0, None), ("b", 900, None, None), ("c", 100, None, 160))
    assert minutes(frame) == {("b", "a"): 100, ("c", "a"): 60}
    assert metrics.contention(frame).attrs == {"n": 3, "n_censored": 2, "n_negative": 0, "n_no_queue": 0}


def test_negative_waits_are_kept_as_unexplained_and_negative_runs_hold_nothing():
    frame = jobs(("a", 0, 0, 10), ("b", 5, 3, 10), ("c", 5, 5, 2))
    assert minutes(frame) == {("b", "unexplained"): -2}
    assert metrics.contention(frame).attrs["n_negative"] == 1
    assert total(frame) == pd.Timedelta(-2, "min")


def test_waits_of_no_known_queue_are_unexplained_and_counted():
    frame = jobs(("a", 0, 0, 10), ("b", 2, 7, 9), ("b", 4, 10, 12), queue=[None, None, "x"])
    found = metrics.contention(frame)
    assert found["queue"].isna().tolist() == [False, True]
    assert found[["waiting", "holding"]].to_numpy().tolist() == [["b", "unexplained"]] * 2
    assert found["wait_s"].tolist() == [360, 300]
    assert found.attrs == {"n": 3, "n_censored": 0, "n_negative": 0, "n_no_queue": 2}


def test_only_script_jobs_wait_and_hold_agents():
    frame = jobs(("a", 0, 0, 10), ("b", 0, 5, 10), ("c", 0, 0, 10), type=["trigger", "script", "waiter"])
    assert minutes(frame) == {("b", "unexplained"): 5}


def test_null_groups_come_last_and_a_group_called_unexplained_is_another():
    frame = jobs((None, 0, 0, 10), ("unexplained", 0, 10, 20), (None, 5, 22, 30))
    found = metrics.contention(frame)
    assert found["waiting"].fillna("null").tolist() == ["unexplained", "null", "null", "null"]
    assert found["holding"].fillna("null").tolist() == ["null", "unexplained", "null", "unexplained"]
    assert found["explained"].tolist() == [True, True, True, False]


def test_groups_of_numbers_and_of_functions_are_texts():
    frame = jobs(("a", 0, 0, 10), ("b", 4, 10, 12), number=pd.array([10, 9], "Int64"))
    assert minutes(frame, by="number") == {("9", "10"): 6}
    assert minutes(frame, by=lambda rows: rows["pipeline"].str.upper()) == {("B", "A"): 6}
    assert minutes(frame, by="queue") == {("default", "default"): 6}


def test_organizations_have_queues_of_their_own():
    frame = jobs(("a", 0, 0, 10), ("b", 4, 10, 12), organization=["acme", "other"])
    found = metrics.contention(frame)
    assert list(found)[:2] == ["organization", "queue"]
    assert found[["organization", "holding"]].to_numpy().tolist() == [["other", "unexplained"]]


def test_no_rows_give_none_with_the_same_dtypes():
    none, some = metrics.contention(jobs()), metrics.contention(jobs(("a", 0, 1, 2)))
    assert none.empty
    assert none.dtypes.tolist() == some.dtypes.tolist()
    assert metrics.contention(jobs((None, None, None, None))).empty
    assert metrics.contention(jobs(("a", 0, 0, 1))).empty  # nobody waited


def test_times_without_a_zone_missing_columns_and_several_keys_are_refused():
    frame = jobs(("a", 0, 0, 10))
    naive = {name: frame.assign(**{name: frame[name].dt.tz_localize(None)}) for name in STAMPS}
    cases = [
        ("by=['pipeline', 'queue'] is not one key", lambda: metrics.contention(frame, by=["pipeline", "queue"])),
        ("no column 'team'", lambda: metrics.contention(frame, by="team")),
        *((f"'{name}' have no time zone", functools.partial(metrics.contention, naive[name])) for name in STAMPS),
    ]
    assert wrong_messages(cases) == {}
    assert columns_not_named(metrics.contention, frame, STAMPS) == set()


Span = tuple[str, int, int]
Segment = tuple[int, int, list[str], list[str]]


def spans(frame: pd.DataFrame) -> tuple[list[Span], list[Span]]:
    """The waits and the runs of positive length of script jobs, in microseconds after START."""
    waits, holds = [], []
    for row in frame[frame["type"] == "script"].itertuples():
        stamps = [getattr(row, name) for name in STAMPS]
        runnable, started, finished, fetched = (None if t is pd.NaT else (t - START) // MICRO for t in stamps)
        end = next((t for t in (started, finished, fetched) if t is not None), None)
        if runnable is not None and end is not None:
            waits.append((row.pipeline, runnable, end))
        until = fetched if finished is None else finished
        if started is not None and until is not None and until > started:
            holds.append((row.pipeline, started, until))
    return waits, holds


def segments_of(waits: list[Span], holds: list[Span]) -> Iterator[Segment]:
    """Day, length, who waits and who holds an agent, of each time range in which nothing changes."""
    edges = {t for _, *ends in waits + holds for t in ends}
    edges |= {t // DAY * DAY + day for t in edges for day in (0, DAY)}
    for begin, end in itertools.pairwise(sorted(edges)):
        waiting, holding = ([p for p, a, b in each if a <= begin < b] for each in (waits, holds))
        yield begin // DAY, end - begin, waiting, holding


def agents_of(segments: list[Segment]) -> int:
    """The most agents that are busy during a tenth of the time that jobs wait."""
    weight = sum(length * len(waiting) for _, length, waiting, _ in segments)

    def beside(n: int) -> int:
        return sum(length * len(waiting) for _, length, waiting, holding in segments if len(holding) >= n)

    return max((n for n in range(50) if beside(n) * 10 >= weight > 0), default=0)


def naive(frame: pd.DataFrame) -> dict[tuple[str, str], Fraction]:
    """Split each time range by a loop over all jobs."""
    result: dict[tuple[str, str], Fraction] = defaultdict(Fraction)
    for _, own in frame.groupby("queue"):
        waits, holds = spans(own)
        for pipeline, begin, end in waits:
            result[pipeline, "unexplained"] += min(end - begin, 0)
        for _, day in itertools.groupby(segments_of(waits, holds), key=lambda one: one[0]):
            segments = list(day)
            agents = max(agents_of(segments), 1)
            for _, length, waiting, holding in segments:
                others = holding if len(holding) >= agents else ["unexplained"]
                for pair in itertools.product(waiting, others):
                    result[pair] += Fraction(length, len(others))
    return result


times = st.integers(-20, 200) | st.integers(DAY - 50, DAY + 50) | st.none()
rows = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from("xy"), times, times, times, times, st.booleans()), max_size=12
)


@pytest.mark.long
@settings(max_examples=75, deadline=None)
@given(rows)
def test_it_is_what_a_naive_loop_finds_and_sums_to_queue_time_exactly(drawn):
    pipeline, queue, *stamps, script = zip(*drawn, strict=True) if drawn else [()] * 7
    after = [pd.to_timedelta(pd.Series(own, dtype="Int64"), unit="us") for own in stamps]
    micros = dict(zip(STAMPS, after, strict=True))
    frame = pd.DataFrame(
        {
            "type": pd.Series(["script" if one else "trigger" for one in script], dtype="str"),
            "queue": pd.Series(queue, dtype="str"), "pipeline": pd.Series(pipeline, dtype="str"),
            **{name: (START + own).astype(UTC) for name, own in micros.items()},
        }
    )  # fmt: skip
    found, expected = metrics.contention(frame), naive(frame)
    micros_found = exactly(found)
    sums = found.assign(us=micros_found).groupby(["waiting", "holding"])["us"].sum().to_dict()
    for pair in {*expected, *sums}:  # rounded once in each of two queues
        assert abs(sums.get(pair, 0) - expected[pair]) < (1e-9 if pair[1] == "unexplained" else 2)
    depth = metrics.queue_depth(frame.assign(build_created_at=frame["fetched_at"]), by=None)
    waited = (depth["waiting"] * -depth["at"].diff(-1).dt.total_seconds()).sum() * 1e6 if len(depth) else 0
    negative = sum(min(value, 0) for value in _waits(frame))
    assert micros_found.sum() == round(waited) + negative


def _waits(frame: pd.DataFrame) -> list[int]:
    """Waits of script jobs, until they started or ended; those that are over at an unknown time have none."""
    end = frame["started_at"].fillna(frame["finished_at"])
    if "state" in frame:
        is_over = frame["state"].isin(["passed", "failed", "timed_out", "canceled", "broken"])
        is_over |= frame["expired_at"] <= frame["fetched_at"]
        known = frame["expired_at"].fillna(frame["build_finished_at"])
        end = end.fillna(known.where(is_over, frame["fetched_at"]))
    end = end if "state" in frame else end.fillna(frame["fetched_at"])
    waits = (end - frame["runnable_at"])[frame["type"] == "script"].dropna()
    return (waits.dt.total_seconds() * 1e6).round().astype("int64").tolist()


@for_each({"pipeline": "pipeline", "build": "build_number", "step": metrics.step})
def test_rows_of_each_group_add_up_to_its_waits_to_the_microsecond(by):
    frame = jobs_of("many")
    found = metrics.contention(frame, by)
    assert exactly(found).sum() == sum(_waits(frame))
    if by == "pipeline":
        for name, own in frame.groupby(by):
            assert exactly(found[found["waiting"] == name]).sum() == sum(_waits(own))


def test_it_is_the_same_for_blocks_of_any_size(monkeypatch):
    whole = metrics.contention(jobs_of("many"))
    monkeypatch.setattr(sys.modules["buildframe.metrics.contention"], "_SEGMENTS", 7)
    pd.testing.assert_frame_equal(metrics.contention(jobs_of("many")), whole)


# --- a simulated queue


def simulate(seed: int, planted: int | None, *, agents: int = 4, n: int = 600, n_pipelines: int = 8) -> pd.DataFrame:
    """Jobs of a queue served in order; the planted pipeline starts bursts of long jobs, as much work as two others."""
    random = np.random.default_rng(seed)
    runnable = np.sort(random.uniform(0, n * 60 * 2 / agents, n))
    pipeline, ran = random.integers(0, n_pipelines, n), random.gamma(4, 22, n)
    if planted is not None:
        own = pipeline != planted
        bursts = np.repeat(random.uniform(0, runnable[-1], 6), agents * 2)
        runnable, pipeline = np.append(runnable[own], bursts), np.append(pipeline[own], np.full(len(bursts), planted))
        ran = np.append(ran[own], random.gamma(16, 22, len(bursts)))
    order = np.argsort(runnable, kind="stable")
    runnable, pipeline, ran = runnable[order], pipeline[order], ran[order]
    free = [0.0] * agents
    started = np.array([_start(free, when, length) for when, length in zip(runnable, ran, strict=True)])
    stamps = {name: at(*(own / 60)) for name, own in zip(STAMPS, (runnable, started, started + ran), strict=False)}
    return pd.DataFrame(
        {"type": "script", "queue": "q", "pipeline": [f"p{k}" for k in pipeline], **stamps}
        | {"fetched_at": at(*[1e6] * len(ran))}
    )


def _start(free: list[float], when: float, length: float) -> float:
    start = max(when, heapq.heappop(free))
    heapq.heappush(free, start + length)
    return start


@pytest.mark.parametrize("seeds", [range(2), pytest.param(range(2, 16), marks=pytest.mark.long)], ids=["few", "many"])
def test_a_planted_monopolizer_comes_first_for_everyone_who_waits(seeds):
    for seed in seeds:
        planted = f"p{seed % 8}"
        found = metrics.contention(simulate(seed, seed % 8))
        matrix = found.pivot_table(index="waiting", columns="holding", values="wait_s", aggfunc="sum").fillna(0.0)
        assert matrix.sum().idxmax() == planted, seed
        assert matrix.sum().max() > 2 * matrix.sum().nlargest(2).iloc[-1], seed
        others = matrix.drop(index=planted)
        assert (others.idxmax(axis=1) == planted).mean() >= 6 / 7, seed
        assert others[planted].sum() > others.drop(columns=planted).sum().max(), seed


@pytest.mark.long
def test_with_nothing_planted_no_pipeline_stands_out():
    shares = []
    for seed in range(10):
        found = metrics.contention(simulate(seed, None))
        explained = found[found["explained"]].groupby("holding")["wait_s"].sum()
        shares.append(explained.max() / explained.sum())
    assert np.mean(shares) < 0.3  # each of eight has an eighth


def test_a_busy_queue_whose_agents_take_the_next_job_at_once_leaves_nothing_unexplained():
    for seed in range(2):
        found = metrics.contention(simulate(seed, 1))
        assert found.loc[~found["explained"], "wait_s"].sum() < 1e-3 * found["wait_s"].sum()
