"""Frames are prepared: seconds, steps and days of each row, and the latest row of each id."""

from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import buildframe as bf
from buildframe import metrics
from buildframe.errors import BadInput
from tests.metrics.any_frame import in_duckdb
from tests.metrics.random_frames import builds_of, jobs_of
from tests.refusals import columns_not_named


def test_seconds_of_jobs_are_their_metrics():
    for kind in ("many", "none", "all null", "only waiters"):
        jobs = jobs_of(kind)
        stored = metrics.with_seconds(jobs)
        for of in (metrics.queue_time, metrics.dependency_wait, metrics.run_time, metrics.turnaround):
            expected = of(jobs).dt.total_seconds()
            pd.testing.assert_series_equal(stored[f"{of.__name__}_s"], expected, check_names=False, rtol=1e-15)
            assert stored[f"{of.__name__}_s"].dtype == "float64"
        pd.testing.assert_series_equal(stored["step"], metrics.step(jobs))
        assert list(stored.columns[: jobs.shape[1]]) == list(jobs.columns)


def test_seconds_of_builds():
    builds = builds_of("many")
    stored = metrics.with_seconds(builds)
    expected = metrics.wall_time(builds).dt.total_seconds()
    pd.testing.assert_series_equal(stored["wall_time_s"], expected, check_names=False, rtol=1e-15)
    assert set(stored.columns) - set(builds.columns) == {"wall_time_s", "day"}


def test_the_day_is_that_of_utc_and_a_date_in_files(tmp_path):
    late = pd.to_datetime(["2026-10-25T23:30:00+00:00", "2026-10-26T00:30:00+02:00", None], utc=True).as_unit("us")
    builds = pd.DataFrame({"created_at": late.tz_convert("Asia/Tokyo"), "finished_at": late})
    stored = metrics.with_seconds(builds)
    assert stored["day"].astype("str").tolist()[:2] == ["2026-10-25", "2026-10-25"]
    assert stored["day"].isna().tolist() == [False, False, True]
    path = bf.save(tmp_path / "builds.parquet", stored)
    assert pl.read_parquet(path)["day"].dtype == pl.Date
    assert pa.parquet.read_schema(path).field("day").type == pa.date32()
    assert bf.load(path)["day"].dtype == stored["day"].dtype


def test_columns_are_replaced_and_the_frame_stays_as_it_was():
    jobs = jobs_of("few")
    before = jobs.copy()
    stored = metrics.with_seconds(jobs.assign(run_time_s=-1.0, step="?"))
    assert (stored["run_time_s"] != -1.0).all()
    assert jobs.equals(before)


def test_a_missing_column_is_named():
    needed = ("type", "runnable_at", "created_at", "started_at", "finished_at", "step_key", "name")
    assert columns_not_named(metrics.with_seconds, jobs_of("few"), needed, "it comes") == set()


def test_an_id_that_stands_twice_is_refused_and_the_latest_kept():
    jobs = jobs_of("few")
    older = jobs.assign(state="running", fetched_at=jobs["fetched_at"] - pd.Timedelta(hours=1))
    both = pd.concat([older, jobs])
    with pytest.raises(BadInput, match=r"'job-0' .*metrics\.latest"):
        metrics.with_seconds(both)
    assert metrics.latest(both).equals(jobs)
    assert metrics.latest(pd.concat([jobs, older])).equals(jobs)
    nameless = jobs.assign(id=pd.Series(None, index=jobs.index, dtype="str"))
    assert metrics.latest(nameless).equals(nameless)
    assert metrics.latest(jobs.iloc[:0]).empty


def test_the_latest_of_other_frames_is_that_of_pandas():
    jobs = jobs_of("few")
    expected = metrics.latest(jobs)["id"].tolist()
    assert [metrics.latest(made(jobs))["id"].tolist() for made in (pl.from_pandas, in_duckdb)] == [expected] * 2


def test_what_keeps_the_latest_in_other_libraries_does():
    jobs = jobs_of("few")
    both = pd.concat([jobs, jobs.assign(state="running", fetched_at=jobs["fetched_at"] - pd.Timedelta(hours=1))])
    polars = pl.from_pandas(both).sort("fetched_at").unique("id", keep="last").sort("id")
    number = duckdb.SQLExpression("row_number() OVER (PARTITION BY id ORDER BY fetched_at DESC)").alias("of_it")
    duck = in_duckdb(both).select("*", number).filter("of_it = 1").order("id")
    expected = metrics.latest(both).sort_values("id")["state"].astype("object").where(lambda one: one.notna(), None)
    for found in (polars.to_arrow(), duck.to_arrow_table()):
        assert found["state"].to_pylist() == expected.tolist()
