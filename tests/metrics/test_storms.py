"""Ranges of time in which storms are searched for."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import narwhals as nw
import pandas as pd
import pytest
from tests.metrics.engine_frames import ENGINES, in_spark

from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.storms import join_periods

HALF_HOUR = 1_800_000_000


@pytest.mark.parametrize(
    ("periods", "ranges"),
    [([7], [(7, 8)]), ([7, 8, 9], [(7, 10)]), ([9, 3, 4, 3], [(3, 5), (9, 10)]), ([-1, 0, 5], [(-1, 1), (5, 6)])],
)
def test_adjacent_periods_are_one_range(periods: list[int], ranges: list[tuple[int, int]]) -> None:
    assert join_periods(pd.Series(periods).to_numpy()) == [(HALF_HOUR * a, HALF_HOUR * b) for a, b in ranges]


def test_many_gaps_give_few_ranges_that_leave_out_the_widest_gaps() -> None:
    periods = pd.Series([*range(0, 100, 2), 200, 400]).to_numpy()
    ranges = join_periods(periods)
    assert len(ranges) == 20
    assert all(any(start <= HALF_HOUR * period < end for start, end in ranges) for period in periods)
    assert ranges[-2:] == [(HALF_HOUR * a, HALF_HOUR * (a + 1)) for a in (200, 400)]
    assert all(end <= start for (_, end), (start, _) in pairwise(ranges))


@pytest.mark.parametrize("to", [*ENGINES.values(), in_spark], ids=[*ENGINES, "spark"])
def test_times_are_filtered_to_the_microsecond(to: Any) -> None:
    micros = pd.array([99, 100, 149, 150, None, 200, 250], "Int64")
    frame = to(pd.DataFrame({"id": range(7), "finished_at": pd.to_datetime(micros, unit="us", utc=True)}))
    rows = engine_of(frame).filter_times(engine_of(frame).read(frame), "finished_at", [(100, 150), (200, 250)])
    assert sorted(engine_of(frame).collect(rows.select(nw.col("id")))["id"]) == [1, 2, 5]
