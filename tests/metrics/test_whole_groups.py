"""Groups stay whole in batches of any size; no row is missing or repeated."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from buildframe import metrics
from buildframe.metrics.engines import duckdb, group_map
from tests.metrics.engine_frames import in_duckdb
from tests.metrics.random_frames import jobs_of

KEYS = st.sampled_from(["a", "b", None])
NUMBERS = st.sampled_from([0.0, 1.5, float("nan"), None])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_map, "MAX_ROWS", 7)


@given(st.lists(st.tuples(KEYS, NUMBERS), max_size=40), st.integers(1, 9), st.integers(1, 12))
def test_groups_come_whole_in_their_order(keys: list[tuple[Any, Any]], cut: int, at_least: int) -> None:
    rows = pa.table({"key": pa.array([one for one, _ in keys], pa.string()),
                     "number": pa.array([one for _, one in keys], pa.float64()),
                     "place": range(len(keys))})  # fmt: skip
    rows = rows.sort_by([("key", "ascending"), ("number", "ascending")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_map, "MAX_ROWS", at_least)
        parts = group_map.map_batches(rows.to_batches(max_chunksize=cut), ["key", "number"], lambda frame: frame)
        found = [frame["place"].tolist() for frame in parts]
    assert [place for part in found for place in part] == rows["place"].to_pylist()
    groups = [{repr(keys[place]) for place in part} for part in found]
    assert sum(map(len, groups)) == len(set().union(*groups)) if groups else not keys
    assert all(len(part) >= at_least for part in found[:-1])


def some_jobs() -> pd.DataFrame:
    """Return the jobs of twenty builds, which are more than twenty batches."""
    jobs = jobs_of("many")
    jobs = metrics.with_seconds(jobs[jobs["build_id"].isin(jobs["build_id"].unique()[:20])])
    assert len(jobs) > 20 * 7
    return jobs


@pytest.mark.parametrize("together", [True, False])
def test_builds_whose_jobs_stand_together_or_not(together: bool, small: None) -> None:
    jobs = some_jobs()
    rows = in_duckdb(jobs.sort_values("build_id", ascending=False) if together else jobs)
    for of in (metrics.active_time, metrics.time_to_pass):
        pd.testing.assert_series_equal(of(rows), of(jobs))


def test_rows_that_stand_together_are_not_sorted(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb.DuckDBEngine, "map_whole_groups", None)  # sorts all rows
    jobs = some_jobs().sort_values("build_id", ascending=False)
    pd.testing.assert_series_equal(metrics.active_time(in_duckdb(jobs)), metrics.active_time(jobs))
