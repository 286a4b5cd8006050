"""Every summary gives the same result on every engine, whatever the rows."""

from __future__ import annotations

import datetime as dt
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests.metrics.engine_frames import (
    ALIKE_IN_SPARK,
    ENGINES,
    OF_BUILDS,
    OF_JOBS,
    PER_BUILD,
    ROWS_OF_BUILDS,
    ROWS_OF_JOBS,
    as_series,
    assert_same,
    cases,
    cases_in_spark,
    collected,
    expected_of,
    frame_on,
    function_of,
    in_spark,
)
from tests.metrics.random_frames import jobs_of

import buildframe as bf
from buildframe import metrics
from buildframe.errors import BadInput


@pytest.mark.long
@pytest.mark.parametrize(("summary", "engine", "kind"), cases(OF_JOBS, ROWS_OF_JOBS))
def test_of_jobs(summary: str, engine: str, kind: str) -> None:
    result = OF_JOBS[summary](frame_on(engine, "jobs", kind))
    assert_same(result, expected_of(OF_JOBS[summary], "jobs", kind))


@pytest.mark.parametrize(("summary", "engine", "kind"), cases(OF_BUILDS, ROWS_OF_BUILDS))
def test_of_builds(summary: str, engine: str, kind: str) -> None:
    result = OF_BUILDS[summary](frame_on(engine, "builds", kind))
    assert_same(result, expected_of(OF_BUILDS[summary], "builds", kind))


@pytest.mark.parametrize(("metric", "engine", "kind"), cases(sorted(PER_BUILD), ROWS_OF_JOBS))
def test_of_builds_from_their_jobs(metric: str, engine: str, kind: str) -> None:
    compute = getattr(metrics, metric)
    pd.testing.assert_series_equal(compute(frame_on(engine, "jobs", kind)), expected_of(compute, "jobs", kind))


@pytest.mark.parametrize(("summary", "kind"), cases_in_spark(OF_JOBS))
def test_of_jobs_in_spark(summary: str, kind: str) -> None:
    expected = expected_of(OF_JOBS[summary], "jobs", kind)
    assert_same(collected(OF_JOBS[summary](frame_on("spark", "jobs", kind)), expected), expected)


@pytest.mark.parametrize(("summary", "kind"), cases_in_spark(OF_BUILDS))
def test_of_builds_in_spark(summary: str, kind: str) -> None:
    result = OF_BUILDS[summary](frame_on("spark", "builds", kind))
    assert_same(result, expected_of(OF_BUILDS[summary], "builds", kind))


@pytest.mark.parametrize(("metric", "kind"), cases_in_spark(sorted(PER_BUILD)))
def test_of_builds_from_their_jobs_in_spark(metric: str, kind: str) -> None:
    compute = getattr(metrics, metric)
    result = compute(frame_on("spark", "jobs", kind))
    pd.testing.assert_series_equal(as_series(result), expected_of(compute, "jobs", kind))


@pytest.mark.parametrize("summary", OF_JOBS)
def test_of_jobs_in_the_streaming_engine_of_polars(summary: str) -> None:
    with pl.Config(engine_affinity="streaming"):
        result = OF_JOBS[summary](frame_on("polars, lazy", "jobs", "many"))
    assert_same(result, expected_of(OF_JOBS[summary], "jobs", "many"))


@pytest.mark.parametrize("summary", OF_BUILDS)
def test_of_builds_in_the_streaming_engine_of_polars(summary: str) -> None:
    with pl.Config(engine_affinity="streaming"):
        result = OF_BUILDS[summary](frame_on("polars, lazy", "builds", "many"))
    assert_same(result, expected_of(OF_BUILDS[summary], "builds", "many"))


@pytest.mark.parametrize("summary", [*OF_JOBS, *OF_BUILDS])
def test_columns_of_nulls_without_a_type_are_as_those_with_one(summary: str) -> None:
    table, of = ("jobs", OF_JOBS) if summary in OF_JOBS else ("builds", OF_BUILDS)
    untyped = pl.DataFrame({name: [] for name in frame_on("pandas", table, "none")})
    assert_same(of[summary](untyped), expected_of(of[summary], table, "none"))


@pytest.mark.long
def test_a_session_of_another_zone_changes_nothing() -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'America/New_York'")
    stored = pa.Table.from_pandas(frame_on("pandas", "jobs", "many"), preserve_index=False)
    relation = connection.from_arrow(stored)
    for name, summary in OF_JOBS.items():
        if name not in ALIKE_IN_SPARK or name.startswith("trend"):
            assert_same(summary(relation), expected_of(summary, "jobs", "many"))
    by_time = metrics.percentiles(relation, by="build_created_at")
    assert by_time["build_created_at"].dtype == "datetime64[us, UTC]"


@pytest.mark.long
@pytest.mark.parametrize("engine", [*ENGINES, "spark"])
def test_of_flaky_tests(engine: str) -> None:
    with bf.sandbox(builds=1, days=1) as ci:
        before = ci.flaky_tests(suite="rspec")
        ci.sandbox.clock.advance(dt.timedelta(days=5))
        after = ci.flaky_tests(suite="rspec")
    convert = ENGINES.get(engine, in_spark)
    assert_same(metrics.flaky_board(convert(after), convert(before)), metrics.flaky_board(after, before))


def test_no_summary_is_forgotten() -> None:
    rows = {"queue_time", "dependency_wait", "run_time", "turnaround", "wall_time"}
    rows |= {"step", "failed", "outcome"}
    others = {"with_seconds", "latest", "wilson", "newcombe", "flaky_board", "flaky_lifecycle", "detection_power"}
    others |= {"is_from_fork", "agents_needed", "explain", "leverage", "time_ledger", "replay"}  # take two frames
    named = {function_of(name) for name in (*OF_JOBS, *OF_BUILDS)}
    assert set(metrics.__all__) - rows - others - PER_BUILD <= named


@pytest.mark.parametrize("summary", OF_JOBS)
def test_the_order_of_rows_never_matters(summary: str) -> None:
    jobs = frame_on("pandas", "jobs", "many")
    shuffled = jobs.iloc[np.random.default_rng(3).permutation(len(jobs))]
    assert_same(OF_JOBS[summary](shuffled), expected_of(OF_JOBS[summary], "jobs", "many"))


@pytest.mark.long
def test_timestamps_replace_missing_columns_of_seconds() -> None:
    jobs = jobs_of("many")
    for engine in ENGINES.values():
        assert_same(metrics.percentiles(engine(jobs), by="queue"), metrics.percentiles(jobs, by="queue"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("by", [None, "queue"])
def test_a_custom_column(by: str | None, engine: str) -> None:
    jobs = jobs_of("many").assign(twice_s=2 * jobs_of("many").pipe(metrics.run_time).dt.total_seconds())
    result = metrics.percentiles(ENGINES[engine](jobs), of="twice_s", by=by)
    assert_same(result, metrics.percentiles(jobs, of="twice_s", by=by))
    assert result["n_censored"].isna().all()


@pytest.mark.parametrize("engine", ENGINES)
def test_an_error_names_the_missing_column(engine: str) -> None:
    jobs = ENGINES[engine](jobs_of("few").drop(columns="runnable_at"))
    with pytest.raises(BadInput, match=r"no column 'runnable_at'; it comes with ws\.jobs\(\)"):
        metrics.percentiles(jobs, of=metrics.queue_time)
    with pytest.raises(BadInput, match="no column 'step'"):
        metrics.percentiles(jobs, of=metrics.run_time, by=metrics.step)
    with pytest.raises(BadInput, match="no column 'nonsense'"):
        metrics.percentiles(jobs, of=metrics.run_time, by="nonsense")


@pytest.mark.parametrize("engine", [*ENGINES, "spark"])
@pytest.mark.parametrize("odd", [["a"], {"a": 1}], ids=["array", "struct"])
def test_keys_that_have_no_order_are_refused(odd: Any, engine: str) -> None:
    jobs = metrics.with_seconds(jobs_of("few"))
    frame = ENGINES.get(engine, in_spark)(jobs.assign(odd=[odd] * len(jobs)))
    for by in ("odd", ["queue", "odd"]):
        with pytest.raises(BadInput, match=r"The column 'odd' cannot be grouped by: it holds (List|Struct)"):
            metrics.percentiles(frame, of=metrics.run_time, by=by)


def test_maps_of_spark_are_no_keys() -> None:
    jobs = in_spark(jobs_of("few")).selectExpr("*", "map('a', queue) odd")
    with pytest.raises(BadInput, match="The column 'odd' cannot be grouped by: it holds Map"):
        metrics.retry_rate(jobs, by="odd")


@pytest.mark.parametrize("name", ["a.queue", "a`queue"])
def test_names_that_spark_reads_as_something_else_are_refused_if_they_are_used(name: str) -> None:
    jobs = jobs_of("few").assign(**{name: jobs_of("few")["queue"]})
    with pytest.raises(BadInput, match=r"has a dot or a backtick.*withColumnRenamed\(.*'a_queue'\)"):
        metrics.retry_rate(in_spark(jobs), by=name)
    assert_same(metrics.retry_rate(in_spark(jobs), by="queue"), metrics.retry_rate(jobs, by="queue"))
    renamed = in_spark(jobs).withColumnRenamed(name, "a_queue")
    assert metrics.retry_rate(renamed, by="a_queue").shape == metrics.retry_rate(jobs, by=name).shape


def test_seconds_of_such_a_name_are_refused_in_spark() -> None:
    jobs = jobs_of("few").assign(**{"a.b_s": 1.0})
    with pytest.raises(BadInput, match=r"The column 'a\.b_s' has a dot"):
        metrics.percentiles(in_spark(jobs), of="a.b_s")


def test_another_type_than_a_frame_is_refused() -> None:
    with pytest.raises(BadInput, match="A list is not a frame"):
        metrics.success_rate([1, 2])
