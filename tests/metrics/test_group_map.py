"""Groups stay whole in batches of any size; no row is missing or repeated."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import spark_session
from tests.metrics.engine_frames import PER_BUILD, as_series, in_duckdb, in_spark
from tests.metrics.random_frames import jobs_of

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.engines import duckdb, group_map

KEYS = st.sampled_from(["a", "b", None])
NUMBERS = st.sampled_from([0.0, 1.5, float("nan"), None])


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_map, "MAX_ROWS", 7)


@given(st.lists(st.tuples(KEYS, NUMBERS), max_size=40), st.integers(1, 9), st.integers(1, 12))
def test_groups_come_whole_in_their_order(keys: list[tuple[Any, Any]], cut: int, at_least: int) -> None:
    rows = pa.table({"key": pa.array([one for one, _ in keys], pa.string()),
                     "number": pa.array([one for _, one in keys], pa.float64())})  # fmt: skip
    rows = rows.sort_by([("key", "ascending"), ("number", "ascending")])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_map, "MAX_ROWS", at_least)
        found = list(group_map._whole_groups(rows.to_batches(max_chunksize=cut), ["key", "number"]))
    assert [repr(row) for part in found for row in part.to_pylist()] == [repr(row) for row in rows.to_pylist()]
    groups = [{repr(row) for row in part.to_pylist()} for part in found]
    assert sum(map(len, groups)) == len(set().union(*groups)) if groups else not keys
    assert all(part.num_rows >= at_least for part in found[:-1])


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("metric", sorted(PER_BUILD))
def test_builds_whose_jobs_stand_together_or_not(metric: str, together: bool, small: None) -> None:
    jobs = jobs_of("many")
    jobs = metrics.with_seconds(jobs[jobs["build_id"].isin(jobs["build_id"].unique()[:50])])  # dozens of batches
    rows = jobs.sort_values("build_id", ascending=False) if together else jobs
    of = getattr(metrics, metric)
    pd.testing.assert_series_equal(of(in_duckdb(rows)), of(jobs))


def test_rows_that_stand_together_are_not_sorted(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duckdb.DuckDBEngine, "map_whole_groups", None)  # sorts all rows
    jobs = metrics.with_seconds(jobs_of("many")).sort_values("build_id", ascending=False)
    pd.testing.assert_series_equal(metrics.active_time(in_duckdb(jobs)), metrics.active_time(jobs))


def test_an_error_in_a_spark_worker_is_the_same_as_on_other_engines() -> None:
    jobs = jobs_of("few")
    jobs["started_at"] = pd.Timestamp("0001-01-01", tz="UTC").as_unit("us")
    jobs["finished_at"] = pd.Timestamp("9999-12-31", tz="UTC").as_unit("us")
    jobs["build_id"] = [f"build-{i}" for i in range(len(jobs))]
    jobs = pd.concat([jobs] * 10, ignore_index=True).assign(retried=False)
    jobs["build_id"] = [f"build-{i}" for i in range(len(jobs))]
    with pytest.raises(BadInput, match="years apart"):
        metrics.active_time(jobs)
    from buildframe.metrics.engines import spark

    with pytest.raises(BadInput, match=r"years apart\. Correct them"):
        spark.collect_table(metrics.active_time(in_spark(jobs)))


@pytest.fixture
def small_in_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The same in Spark's workers, which get rows in small batches, too."""

    def few_at_once(*given: Any) -> Iterator[pa.RecordBatch]:  # in here, so that workers need not find this module
        from buildframe.metrics.engines import group_map

        before, group_map.MAX_ROWS = group_map.MAX_ROWS, 7
        try:
            yield from group_map.map_to_arrow(*given)
        finally:
            group_map.MAX_ROWS = before  # as workers are used again

    monkeypatch.setattr(group_map, "map_to_arrow", few_at_once)
    conf = spark_session.get_session().conf
    conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 5)
    yield
    conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


@pytest.mark.parametrize("metric", ["active_time", "time_to_pass"])
def test_groups_come_whole_in_workers_of_spark(metric: str, small_in_spark: None) -> None:
    jobs = metrics.with_seconds(jobs_of("many"))
    of = getattr(metrics, metric)
    pd.testing.assert_series_equal(as_series(of(in_spark(jobs))), of(jobs))


def test_a_session_of_another_zone_is_refused() -> None:
    session = spark_session.get_session()
    frame = in_spark(jobs_of("few"))
    session.conf.set("spark.sql.session.timeZone", "Europe/Berlin")
    try:
        with pytest.raises(BadInput, match=r"time zone is 'Europe/Berlin'.*session\.conf\.set"):
            metrics.waste(frame)
    finally:
        session.conf.set("spark.sql.session.timeZone", "UTC")


def test_two_columns_of_one_name_are_refused() -> None:
    jobs = in_spark(jobs_of("few"))
    queues = jobs.selectExpr("id as job", "queue")
    with pytest.raises(BadInput, match="Two columns of the frame are called 'queue', as after a join"):
        metrics.waste(jobs.join(queues, jobs.id == queues.job))
