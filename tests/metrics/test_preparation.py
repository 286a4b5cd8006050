from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests import spark_session
from tests.metrics.engine_frames import in_duckdb
from tests.metrics.random_frames import builds_of, jobs_of

import buildframe as bf
from buildframe import metrics
from buildframe.errors import BadInput


@pytest.mark.parametrize("kind", ["many", "none", "all null", "only waiters"])
def test_seconds_of_jobs_are_their_metrics(kind):
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


@pytest.mark.parametrize("name", ["type", "runnable_at", "created_at", "started_at", "finished_at", "step_key", "name"])
def test_a_missing_column_is_named(name):
    with pytest.raises(BadInput, match=f"no column '{name}'; it comes with"):
        metrics.with_seconds(jobs_of("few").drop(columns=name))


def test_an_id_that_stands_twice_is_refused_and_the_latest_kept():
    jobs = jobs_of("few")
    older = jobs.assign(state="running", fetched_at=jobs["fetched_at"] - pd.Timedelta(hours=1))
    both = pd.concat([older, jobs])
    with pytest.raises(BadInput, match=r"The id 'job-0' occurs in several rows\. Use metrics.latest\(frame\)"):
        metrics.with_seconds(both)
    assert metrics.latest(both).equals(jobs)
    assert metrics.latest(pd.concat([jobs, older])).equals(jobs)
    nameless = jobs.assign(id=pd.Series(None, index=jobs.index, dtype="str"))
    assert metrics.latest(nameless).equals(nameless)
    assert metrics.latest(jobs.iloc[:0]).empty


# --- in Spark


def in_spark(frame):
    return spark_session.get_session().createDataFrame(pa.Table.from_pandas(frame, preserve_index=False))


@pytest.mark.parametrize(
    ("of", "kind"),
    [
        *((builds_of, kind) for kind in ("many", "all null")),
        *((jobs_of, kind) for kind in ("many", "none", "only waiters")),
    ],
)
def test_spark_gives_the_same_to_the_last_digit(of, kind):
    frame = of(kind).assign(step=metrics.step) if of is jobs_of else of(kind)
    expected = metrics.with_seconds(frame)
    found = metrics.with_seconds(in_spark(frame))
    assert found.columns == list(expected)
    types = dict(found.dtypes)
    assert {types[name] for name in types if name.endswith("_s")} == {"double"}
    assert (types["day"], types.get("step", "string")) == ("date", "string")
    rows = found.toArrow()
    assert not any(pa.compute.is_nan(rows[name]).to_pylist().count(True) for name in types if name.endswith("_s"))
    found = rows.to_pandas(types_mapper=pd.ArrowDtype).astype(expected.dtypes)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)


def test_spark_replaces_columns_and_runs_nothing_before_rows_are_read():
    jobs = in_spark(metrics.with_seconds(jobs_of("few")).assign(run_time_s=-1.0, step="?"))
    context = spark_session.get_session().sparkContext
    context.setJobGroup("with_seconds", "")
    stored = metrics.with_seconds(jobs)
    assert not context.statusTracker().getJobIdsForGroup("with_seconds")
    assert stored.columns == jobs.columns
    assert stored.where("run_time_s = -1").count() == 0
    assert stored.where("step = '?'").count() == stored.count(), "a step needs the whole build, so it stays"


@pytest.mark.parametrize("name", ["created_at", "runnable_at", "step", "type"])
def test_a_column_that_spark_lacks_is_named_before_rows_are_read(name):
    with pytest.raises(BadInput, match=f"no column '{name}'; it comes with"):
        metrics.with_seconds(in_spark(jobs_of("few").assign(step=metrics.step).drop(columns=name)))


def test_times_without_a_zone_are_refused_in_spark():
    naive = in_spark(builds_of("few")).selectExpr("id", "created_at", "cast(finished_at as timestamp_ntz) finished_at")
    with pytest.raises(BadInput, match=r"The column 'finished_at' holds .*, not timestamps with a time zone"):
        metrics.with_seconds(naive)


def test_a_session_in_another_zone_is_refused():
    session = spark_session.get_session().newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    with pytest.raises(BadInput, match="The Spark session's time zone is 'Asia/Tokyo'"):
        metrics.with_seconds(session.createDataFrame(pa.Table.from_pandas(builds_of("few"), preserve_index=False)))


def test_days_stay_those_of_utc_when_the_session_changes_its_zone():
    session = spark_session.get_session().newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    texts = [
        "2026-10-25T23:30:00Z",
        "2026-10-25T00:00:00Z",
        "1969-12-31T23:59:59.999999Z",
        "0001-01-01T00:00:00Z",
        None,
    ]
    texts += ["9999-12-31T23:59:59.999999Z"]
    times = pd.Series([pd.Timestamp(text) if text else None for text in texts], dtype="datetime64[us, UTC]")
    builds = pd.DataFrame({"created_at": times, "finished_at": times})
    found = metrics.with_seconds(session.createDataFrame(pa.Table.from_pandas(builds, preserve_index=False)))
    for zone in ("UTC", "Asia/Tokyo", "America/New_York"):
        session.conf.set("spark.sql.session.timeZone", zone)
        days = [row.day for row in found.selectExpr("cast(day as string) day").collect()]
        assert days == [text and text[:10] for text in texts]


@pytest.mark.parametrize("made", [pl.from_pandas, in_duckdb])
def test_the_latest_of_other_frames_is_that_of_pandas(made):
    jobs = jobs_of("few")
    assert metrics.latest(made(jobs))["id"].tolist() == metrics.latest(jobs)["id"].tolist()


def test_the_latest_in_spark_is_taken_by_these():
    with pytest.raises(
        BadInput, match=r"which metrics\.latest needs.* a store hold each row once\. .*row_number"
    ) as result:
        metrics.latest(in_spark(jobs_of("few")))
    assert "with_seconds" not in str(result.value)


def test_what_keeps_the_latest_in_other_engines_does():
    jobs = jobs_of("few")
    both = pd.concat([jobs, jobs.assign(state="running", fetched_at=jobs["fetched_at"] - pd.Timedelta(hours=1))])
    polars = pl.from_pandas(both).sort("fetched_at").unique("id", keep="last").sort("id")
    number = "row_number() OVER (PARTITION BY id ORDER BY fetched_at DESC)"
    duck = in_duckdb(both).select("*", duckdb.SQLExpression(number).alias("of_it")).filter("of_it = 1").order("id")
    spark = in_spark(both).selectExpr("*", f"{number} of_it").where("of_it = 1").sort("id")
    expected = metrics.latest(both).sort_values("id")["state"].astype("object").where(lambda one: one.notna(), None)
    for found in (polars.to_arrow(), duck.to_arrow_table(), spark.toArrow()):
        assert found["state"].to_pylist() == expected.tolist()


@pytest.mark.parametrize("of", [metrics.queue_time, metrics.step, metrics.wall_time])
def test_metrics_of_rows_name_what_spark_has_instead(of):
    with pytest.raises(BadInput, match=r"metrics\.with_seconds\(frame\) adds them"):
        of(in_spark(builds_of("few")))
