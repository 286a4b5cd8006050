"""Ranges of time in which storms are searched for."""

from __future__ import annotations

from itertools import pairwise

import narwhals as nw
import pandas as pd

from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.storms import join_periods
from tests.metrics.local_engines import Engines, on_each_engine

HALF_HOUR = 1_800_000_000


def test_adjacent_periods_are_one_range() -> None:
    cases = [
        ([7], [(7, 8)]), ([7, 8, 9], [(7, 10)]), ([9, 3, 4, 3], [(3, 5), (9, 10)]), ([-1, 0, 5], [(-1, 1), (5, 6)]),
    ]  # fmt: skip
    found = [join_periods(pd.Series(periods).to_numpy()) for periods, _ in cases]
    assert found == [[(HALF_HOUR * a, HALF_HOUR * b) for a, b in ranges] for _, ranges in cases]


def test_many_gaps_give_few_ranges_that_leave_out_the_widest_gaps() -> None:
    periods = pd.Series([*range(0, 100, 2), 200, 400]).to_numpy()
    ranges = join_periods(periods)
    assert len(ranges) == 20
    assert all(any(start <= HALF_HOUR * period < end for start, end in ranges) for period in periods)
    assert ranges[-2:] == [(HALF_HOUR * a, HALF_HOUR * (a + 1)) for a in (200, 400)]
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


@on_each_engine
def test_times_are_filtered_to_the_microsecond(engines: Engines) -> None:
    micros = pd.array([99, 100, 149, 150, None, 200, 250], "Int64")
    frame = pd.DataFrame({"id": range(7), "finished_at": pd.to_datetime(micros, unit="us", utc=True)})
    for name, to in {name: to for name, to in engines.items() if name != "pandas"}.items():
        rows = engine_of(to(frame)).read(to(frame))
        engine = engine_of(to(frame))
        within = engine.filter_times(rows, "finished_at", [(100, 150), (200, 250)])
        assert sorted(engine.collect(within.select(nw.col("id")))["id"]) == [1, 2, 5], name
