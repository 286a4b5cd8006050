"""Every summary gives the same on every engine that it claims, whatever the rows."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable
from typing import Any

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from tests import sparks
from tests.metrics.worlds import builds_of, jobs_of

import buildframe as bf
from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.metrics.engines.dtypes import to_typed_pandas

Summary = Callable[[Any], pd.DataFrame]


def halves(frame: Any) -> tuple[Any, Any]:
    """Two periods, of rows by the last sign of their ids, on any engine."""
    found = nw.from_native(frame)
    is_now = nw.col("id").cast(nw.String).str.slice(-1).is_in(list("02468ace")).fill_null(False)
    return found.filter(is_now).to_native(), found.filter(~is_now).to_native()


def pipelines() -> pd.DataFrame:
    slugs = pd.Series(["web", "api", None], dtype="str")
    return pd.DataFrame({"slug": slugs, "default_branch": pd.Series(["main", "topic", "main"], dtype="str")})


OF_JOBS: dict[str, Summary] = {
    "percentiles": lambda jobs: metrics.percentiles(jobs, by=["pipeline", metrics.step]),
    "percentiles of all": lambda jobs: metrics.percentiles(jobs, of=metrics.run_time),
    "percentiles by a null key": lambda jobs: metrics.percentiles(jobs, of=metrics.turnaround, by="queue"),
    "percentiles by day": lambda jobs: metrics.percentiles(jobs, of=metrics.run_time, by="day"),
    "percentiles of seconds": lambda jobs: metrics.percentiles(jobs, of="dependency_wait_s", by="state"),
    "percentiles, hazen": lambda jobs: metrics.percentiles(jobs, by="queue", q=(0.1, 0.5, 0.99), method="hazen"),
    "percentiles, averaged": lambda jobs: metrics.percentiles(jobs, by="queue", method="averaged_inverted_cdf"),
    "trend": lambda jobs: metrics.trend(jobs, of=metrics.run_time),
    "trend in Berlin": lambda jobs: metrics.trend(jobs, of=metrics.queue_time, tz="Europe/Berlin", at="runnable_at"),
    "trend by hours": lambda jobs: metrics.trend(jobs, of=metrics.queue_time, freq="6h", tz="America/New_York"),
    "trend by weeks": lambda jobs: metrics.trend(jobs, of=metrics.run_time, freq="W-MON", tz="Asia/Kathmandu"),
    "retry_rate": lambda jobs: metrics.retry_rate(jobs, by="queue"),
    "flips": metrics.flips,
    "outcomes_by_commit": metrics.outcomes_by_commit,
    "waste": lambda jobs: metrics.waste(jobs, by="pipeline"),
    "concurrency": metrics.concurrency,
    "concurrency in a window": lambda jobs: metrics.concurrency(jobs, start="2026-10-22", end="2026-10-23"),
    "concurrency of all": lambda jobs: metrics.concurrency(jobs, by=None, end="2026-10-25"),
    "queue_depth": lambda jobs: metrics.queue_depth(jobs, by=["pipeline", "queue"]),
    "utilization": metrics.utilization,
    "percentile_change": lambda jobs: metrics.percentile_change(*halves(jobs), metrics.run_time, ["pipeline", "queue"]),
    "failure_change": lambda jobs: metrics.failure_change(*halves(jobs), "queue", tz="Europe/Berlin"),
    "change_point": lambda jobs: metrics.change_point(jobs, metrics.run_time, by="queue"),
    "trend by months": lambda jobs: metrics.trend(jobs, of=metrics.run_time, freq="MS", tz="America/Sao_Paulo"),
}
OF_BUILDS: dict[str, Summary] = {
    "success_rate": lambda builds: metrics.success_rate(builds, by="pipeline"),
    "success_rate of all": metrics.success_rate,
    "success_trend": metrics.success_trend,
    "throughput": lambda builds: metrics.throughput(builds, freq="1h", tz="Australia/Lord_Howe"),
    "wall time": lambda builds: metrics.percentiles(builds, of=metrics.wall_time, by="branch"),
    "trend of wall time": metrics.trend,
    "success_change": lambda builds: metrics.success_change(*halves(builds), by="pipeline"),
    "change_point of wall time": metrics.change_point,
    "outages": lambda builds: metrics.outages(builds, branch="main"),
    "outages of default branches": lambda builds: metrics.outages(builds, pipelines=pipelines()),
    "recovery_time": lambda builds: metrics.recovery_time(builds, branch="main"),
    "red_share": lambda builds: metrics.red_share(builds, branch="main"),
    "remaining_time": metrics.remaining_time,
    "remaining_time of all": lambda builds: metrics.remaining_time(builds, by=None, q=0.25),
}
ROWS_OF_BUILDS = {"active_time", "blocked_time", "idle_time", "machine_time", "parallelism"}
ROWS_OF_BUILDS |= {"time_to_first_failure", "time_to_pass"}


def in_duckdb(frame: pd.DataFrame) -> Any:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("CREATE TABLE rows_of_it AS SELECT * FROM frame")
    return connection.table("rows_of_it")


def in_spark(frame: pd.DataFrame) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    table = pa.Table.from_pandas(frame, preserve_index=False)
    return sparks.session().createDataFrame(table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True))


ENGINES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": pl.from_pandas,
    "polars, lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "duckdb": in_duckdb,
}
IN_SPARK = ("many", "none", "all null")
"""Of what Spark is given: the rest tells functions of ours apart, and not engines."""


def assert_same(found: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Counts and keys exactly; seconds within what their last digits may differ by."""
    pd.testing.assert_frame_equal(found, expected, check_exact=False, rtol=1e-12, atol=1e-9)


@pytest.fixture(scope="module", params=["many", "few", "one", "none", "all null", "only waiters", "only running"])
def jobs(request: pytest.FixtureRequest) -> pd.DataFrame:
    return metrics.with_seconds(jobs_of(request.param))


@pytest.fixture(scope="module", params=["many", "few", "one", "none", "all null", "only running"])
def builds(request: pytest.FixtureRequest) -> pd.DataFrame:
    return metrics.with_seconds(builds_of(request.param))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("summary", OF_JOBS)
def test_of_jobs(summary: str, engine: str, jobs: pd.DataFrame) -> None:
    assert_same(OF_JOBS[summary](ENGINES[engine](jobs)), OF_JOBS[summary](jobs))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("summary", OF_BUILDS)
def test_of_builds(summary: str, engine: str, builds: pd.DataFrame) -> None:
    assert_same(OF_BUILDS[summary](ENGINES[engine](builds)), OF_BUILDS[summary](builds))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("metric", sorted(ROWS_OF_BUILDS))
def test_of_builds_from_their_jobs(metric: str, engine: str, jobs: pd.DataFrame) -> None:
    of = getattr(metrics, metric)
    pd.testing.assert_series_equal(of(ENGINES[engine](jobs)), of(jobs))


@functools.cache
def made(table: str, kind: str) -> tuple[pd.DataFrame, Any]:
    """A frame of pandas, and the same of Spark."""
    frame = metrics.with_seconds(jobs_of(kind) if table == "jobs" else builds_of(kind))
    return frame, in_spark(frame)


@pytest.mark.parametrize("kind", IN_SPARK)
@pytest.mark.parametrize("summary", OF_JOBS)
def test_of_jobs_in_spark(summary: str, kind: str) -> None:
    jobs, in_it = made("jobs", kind)
    expected = OF_JOBS[summary](jobs)
    assert_same(in_order(OF_JOBS[summary](in_it), expected), expected)


def in_order(told: Any, expected: pd.DataFrame) -> pd.DataFrame:
    """What Spark has not computed yet, as pandas."""
    if isinstance(told, pd.DataFrame):
        return told
    assert told.columns == list(expected)
    found = to_typed_pandas(told.toArrow())
    return found.sort_values(list(expected)[:6], ignore_index=True)


@pytest.mark.parametrize("kind", IN_SPARK)
@pytest.mark.parametrize("summary", OF_BUILDS)
def test_of_builds_in_spark(summary: str, kind: str) -> None:
    builds, in_it = made("builds", kind)
    assert_same(OF_BUILDS[summary](in_it), OF_BUILDS[summary](builds))


@pytest.mark.parametrize("kind", IN_SPARK)
@pytest.mark.parametrize("metric", sorted(ROWS_OF_BUILDS))
def test_of_builds_from_their_jobs_in_spark(metric: str, kind: str) -> None:
    jobs, in_it = made("jobs", kind)
    of = getattr(metrics, metric)
    pd.testing.assert_series_equal(as_series(of(in_it)), of(jobs))


def as_series(told: Any) -> pd.Series:
    """What Spark tells in seconds as pandas does."""
    name = told.columns[1]
    values = told.toArrow().to_pandas(types_mapper={pa.string(): pd.StringDtype(na_value=np.nan)}.get)
    values = values.set_index("build_id")[name].sort_index()
    if not name.endswith("_s"):
        return values
    return pd.to_timedelta((values * 1e6).round(), unit="us").astype("timedelta64[us]").rename(name.removesuffix("_s"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", [*ENGINES, "spark"])
def test_of_flaky_tests(engine: str) -> None:
    with bf.sandbox(builds=1, days=1) as ci:
        before = ci.flaky_tests(suite="rspec")
        ci.sandbox.clock.advance(dt.timedelta(days=5))
        after = ci.flaky_tests(suite="rspec")
    made = ENGINES.get(engine, in_spark)
    assert_same(metrics.flaky_board(made(after), made(before)), metrics.flaky_board(after, before))


def test_no_summary_is_forgotten() -> None:
    rows = {"queue_time", "dependency_wait", "run_time", "turnaround", "wall_time", "step"}
    others = {"with_seconds", "latest", "wilson", "newcombe", "flaky_board", "flaky_lifecycle"}
    named = {name.split()[0].strip(",") for name in (*OF_JOBS, *OF_BUILDS)}
    assert set(metrics.__all__) - rows - others - ROWS_OF_BUILDS <= named


@pytest.mark.parametrize("summary", OF_JOBS)
def test_the_order_of_rows_never_matters(summary: str) -> None:
    jobs = metrics.with_seconds(jobs_of("many"))
    shuffled = jobs.iloc[np.random.default_rng(3).permutation(len(jobs))]
    assert_same(OF_JOBS[summary](shuffled), OF_JOBS[summary](jobs))


def test_stamps_do_where_there_are_no_seconds() -> None:
    jobs = jobs_of("many")
    for engine in ENGINES.values():
        assert_same(metrics.percentiles(engine(jobs), by="queue"), metrics.percentiles(jobs, by="queue"))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("by", [None, "queue"])
def test_a_column_of_ones_own(by: str | None, engine: str) -> None:
    jobs = jobs_of("many").assign(twice_s=2 * jobs_of("many").pipe(metrics.run_time).dt.total_seconds())
    told = metrics.percentiles(ENGINES[engine](jobs), of="twice_s", by=by)
    assert_same(told, metrics.percentiles(jobs, of="twice_s", by=by))
    assert told["n_censored"].isna().all()


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_missing_is_named(engine: str) -> None:
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
    made = ENGINES.get(engine, in_spark)(jobs.assign(odd=[odd] * len(jobs)))
    for by in ("odd", ["queue", "odd"]):
        with pytest.raises(BadInput, match=r"The column 'odd' cannot be grouped by: it holds (List|Struct)"):
            metrics.percentiles(made, of=metrics.run_time, by=by)


def test_maps_of_spark_are_no_keys() -> None:
    jobs = in_spark(jobs_of("few")).selectExpr("*", "map('a', queue) odd")
    with pytest.raises(BadInput, match="The column 'odd' cannot be grouped by: it holds Map"):
        metrics.retry_rate(jobs, by="odd")


@pytest.mark.parametrize("name", ["a.queue", "a`queue"])
def test_names_that_spark_reads_as_something_else_are_refused_where_they_are_used(name: str) -> None:
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


def test_what_is_no_frame_is_refused() -> None:
    with pytest.raises(BadInput, match="A list is not a frame"):
        metrics.success_rate([1, 2])
