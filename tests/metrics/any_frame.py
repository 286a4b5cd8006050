"""Summaries by name, and frames of each library to call them with."""

from __future__ import annotations

import datetime as dt
import functools
import inspect
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from buildframe import metrics
from buildframe.metrics.input_frames import to_typed_pandas
from tests import spark_session, worlds
from tests.metrics.random_frames import builds_of, jobs_of

Summary = Callable[[Any], Any]
Case = tuple[str, str, str]
"""The name of a summary, a way to make rows, and the kind of rows."""


def halves(frame: Any) -> tuple[Any, Any]:
    """Split a frame of any library into two periods, by the last character of the ids."""
    later = list("02468ace")
    if isinstance(frame, pd.DataFrame):
        is_later = frame["id"].str[-1].isin(later).fillna(False).astype(bool)
        return frame[~is_later], frame[is_later]
    if isinstance(frame, pa.Table):
        is_later = pc.fill_null(pc.is_in(pc.utf8_slice_codeunits(frame["id"], -1), pa.array(later)), False)
        return frame.filter(pc.invert(is_later)), frame.filter(is_later)
    if isinstance(frame, pl.DataFrame | pl.LazyFrame):
        is_later = pl.col("id").cast(pl.String).str.slice(-1).is_in(later).fill_null(False)
        return frame.filter(~is_later), frame.filter(is_later)
    condition = f"coalesce(right(cast(id as string), 1) IN ({', '.join(map(repr, later))}), false)"
    return frame.filter(f"NOT {condition}"), frame.filter(condition)


def pipelines() -> pd.DataFrame:
    slugs = pd.Series(["web", "api", None], dtype="str")
    return pd.DataFrame({"slug": slugs, "default_branch": pd.Series(["main", "topic", "main"], dtype="str")})


OF_JOBS: dict[str, Summary] = {
    "percentiles": lambda jobs: metrics.percentiles(jobs, by=["pipeline", metrics.step]),
    "percentiles of all": lambda jobs: metrics.percentiles(jobs, of=metrics.run_time),
    "percentiles by a null key": lambda jobs: metrics.percentiles(jobs, of=metrics.turnaround, by="queue"),
    "percentiles by day": lambda jobs: metrics.percentiles(jobs, of=metrics.run_time, by="day"),
    "percentiles of seconds": lambda jobs: metrics.percentiles(jobs, of="dependency_wait_s", by="state"),
    "trend": lambda jobs: metrics.trend(jobs, of=metrics.run_time),
    "trend in Berlin": lambda jobs: metrics.trend(jobs, of=metrics.queue_time, tz="Europe/Berlin", at="runnable_at"),
    "trend by hours": lambda jobs: metrics.trend(jobs, of=metrics.queue_time, freq="6h", tz="America/New_York"),
    "trend by queue": lambda jobs: metrics.trend(jobs, of=metrics.queue_time, by=["queue", "pipeline"], freq="2D"),
    "trend by weeks": lambda jobs: metrics.trend(jobs, of=metrics.run_time, freq="W-MON", tz="Asia/Kathmandu"),
    "survival": lambda jobs: metrics.survival(jobs, by="queue", points=20),
    "survival of all": lambda jobs: metrics.survival(jobs, of="run_time_s"),
    "retry_rate": lambda jobs: metrics.retry_rate(jobs, by="queue"),
    "flips": metrics.flips,
    "flake_score": metrics.flake_score,
    "flake_score of a branch": lambda jobs: metrics.flake_score(jobs, branch="main"),
    "flake_score of default branches": lambda jobs: metrics.flake_score(jobs, pipelines=pipelines()),
    "outcomes_by_commit": metrics.outcomes_by_commit,
    "step_graph": metrics.step_graph,
    "waste": lambda jobs: metrics.waste(jobs, by="pipeline"),
    "cost": lambda jobs: metrics.cost(jobs, {"macos": 0.1, "*": 0.03}, by=["pipeline", metrics.step]),
    "cost of all": lambda jobs: metrics.cost(jobs, {"macos": 0.1}),
    "objective": lambda jobs: metrics.objective(jobs, metrics.queue_time, "30s", 0.5, by="queue"),
    "objective of all": lambda jobs: metrics.objective(jobs, metrics.run_time, "10m", 0.9),
    "objective of seconds": lambda jobs: metrics.objective(jobs, "turnaround_s", "10m", 0.9, by=["pipeline", "queue"]),
    "objective by day": lambda jobs: metrics.objective(
        jobs, metrics.queue_time, "30s", 0.5, freq="1D", tz="Europe/Berlin"
    ),
    "objective by queue and day": lambda jobs: metrics.objective(
        jobs, metrics.run_time, "2m", 0.8, by=["pipeline", "queue"], freq="1D", tz="America/New_York"
    ),
    "concurrency": metrics.concurrency,
    "concurrency in a window": lambda jobs: metrics.concurrency(jobs, start="2026-10-22", end="2026-10-23"),
    "concurrency of all": lambda jobs: metrics.concurrency(jobs, by=None, end="2026-10-25"),
    "contention": metrics.contention,
    "contention of steps": lambda jobs: metrics.contention(jobs, by=metrics.step),
    "contention of builds": lambda jobs: metrics.contention(jobs, by="build_number"),
    "queue_depth": lambda jobs: metrics.queue_depth(jobs, by=["pipeline", "queue"]),
    "utilization": metrics.utilization,
    "percentile_change": lambda jobs: metrics.percentile_change(
        *halves(jobs), metrics.run_time, ["pipeline", "queue"], allow_reversed=True
    ),
    "percentile_change of waits": lambda jobs: metrics.percentile_change(
        *halves(jobs), metrics.queue_time, "queue", (0.5, 0.95), allow_reversed=True
    ),
    "job_failure_change": lambda jobs: metrics.job_failure_change(
        *halves(jobs), "queue", tz="Europe/Berlin", allow_reversed=True
    ),
    "change_points": lambda jobs: metrics.change_points(jobs, metrics.run_time, by="queue", tz="Europe/Berlin"),
    "change_points of failures": lambda jobs: metrics.change_points(jobs, metrics.failed, ["pipeline", "queue"]),
    "change_points of commits": lambda jobs: metrics.change_points(jobs, metrics.failed, "queue", unit="commit"),
    "days_to_see": lambda jobs: metrics.days_to_see(jobs, metrics.run_time, "queue", 0.5, tz="Europe/Berlin"),
    "days_to_see of failures": lambda jobs: metrics.days_to_see(jobs, metrics.failed, "queue", 2.0, days=14),
    "trend by months": lambda jobs: metrics.trend(jobs, of=metrics.run_time, freq="MS", tz="America/Sao_Paulo"),
}
OF_BUILDS: dict[str, Summary] = {
    "success_rate": lambda builds: metrics.success_rate(builds, by="pipeline"),
    "success_rate of all": metrics.success_rate,
    "success_trend": metrics.success_trend,
    "objective of wall time": lambda builds: metrics.objective(builds, metrics.wall_time, "15m", 0.5, by="branch"),
    "objective by weeks": lambda builds: metrics.objective(builds, metrics.wall_time, "15m", 0.5, freq="W-MON"),
    "throughput": lambda builds: metrics.throughput(builds, freq="1h", tz="Australia/Lord_Howe"),
    "percentiles of wall time": lambda builds: metrics.percentiles(builds, of=metrics.wall_time, by="branch"),
    "trend of wall time": metrics.trend,
    "build_success_change": lambda builds: metrics.build_success_change(
        *halves(builds), by="pipeline", allow_reversed=True
    ),
    "survival of wall time": lambda builds: metrics.survival(builds, of=metrics.wall_time, by="branch"),
    "change_points of wall time": metrics.change_points,
    "change_points of failed builds": lambda builds: metrics.change_points(builds, metrics.failed, "pipeline"),
    "outages": lambda builds: metrics.outages(builds, branch="main"),
    "outages of default branches": lambda builds: metrics.outages(builds, pipelines=pipelines()),
    "recovery_time": lambda builds: metrics.recovery_time(builds, branch="main"),
    "red_share": lambda builds: metrics.red_share(builds, branch="main"),
    "remaining_time": metrics.remaining_time,
    "remaining_time of all": lambda builds: metrics.remaining_time(builds, by=None, q=0.25),
}
PER_BUILD: dict[str, Summary] = {
    name: getattr(metrics, name)
    for name in (
        "active_time", "blocked_time", "idle_time", "machine_time", "parallelism", "time_to_first_failure",
        "time_to_pass",
    )
}  # fmt: skip
"""Metrics of builds from their jobs, whose results are Series."""


def calls_without_options() -> Iterable[tuple[str, str, Summary]]:
    """Yield each public function of one frame of any library that needs no option, by the kind of its rows."""
    for name in metrics.__all__:
        function = getattr(metrics, name)
        frame, *options = inspect.signature(function).parameters.values()
        needs_more = any(option.default is inspect.Parameter.empty for option in options)
        if frame.annotation == "Frame" and not needs_more and name not in OF_OTHER_ROWS:
            yield name, frame.name, function


OF_OTHER_ROWS = {"flaky_board", "flaky_lifecycle", "with_seconds"}
"""Functions of other rows than jobs and builds, or with a result for each row."""

for _name, _frame, _function in calls_without_options():
    if _name not in {**OF_JOBS, **OF_BUILDS, **PER_BUILD}:
        (OF_BUILDS if _frame == "builds" else OF_JOBS)[_name] = _function

SUMMARIES: dict[str, Summary] = {**OF_JOBS, **OF_BUILDS, **PER_BUILD}
_KEPT: deque[duckdb.DuckDBPyConnection] = deque(maxlen=8)


def connect_duckdb(zone: str = "UTC") -> duckdb.DuckDBPyConnection:
    """Return a connection that is kept for a while: before DuckDB 1.5, a relation did not keep its own."""
    connection = duckdb.connect()
    connection.execute(f"SET TimeZone = '{zone}'")
    _KEPT.append(connection)
    return connection


def in_duckdb(frame: pd.DataFrame, zone: str = "UTC") -> Any:
    connection = connect_duckdb(zone)
    connection.execute("CREATE TABLE rows_of_it AS SELECT * FROM frame")
    return connection.table("rows_of_it")


def in_spark(frame: pd.DataFrame) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    table = pa.Table.from_pandas(frame, preserve_index=False)
    return spark_session.get_session().createDataFrame(
        table, from_arrow_schema(table.schema, prefer_timestamp_ntz=True)
    )


LIBRARIES: dict[str, Callable[[pd.DataFrame], Any]] = {
    "polars": pl.from_pandas,
    "polars, lazy": lambda frame: pl.from_pandas(frame).lazy(),
    "duckdb": in_duckdb,
}


def in_another_order(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.iloc[np.random.default_rng(3).permutation(len(frame))]


def with_categories(frame: pd.DataFrame) -> pd.DataFrame:
    texts = [name for name, dtype in frame.dtypes.items() if dtype == "str"]
    return frame.astype(dict.fromkeys(texts, "category"))


def with_objects(frame: pd.DataFrame) -> pd.DataFrame:
    """Return texts as Python objects, and an index that is named like a column and not in order."""
    texts = [name for name, dtype in frame.dtypes.items() if dtype == "str"]
    odd = frame.astype(dict.fromkeys(texts, object)).where(frame.notna(), None)
    odd = odd.astype({name: dtype for name, dtype in frame.dtypes.items() if name not in texts})
    return odd.set_axis(pd.Index([7] * len(frame), name="queue"), axis=0)


def with_enums(frame: pd.DataFrame) -> Any:
    """Return a relation of DuckDB with texts as ENUM."""
    connection = connect_duckdb()
    connection.execute("CREATE TABLE plain AS SELECT * FROM frame")
    columns = []
    for place, (name, dtype) in enumerate(frame.dtypes.items()):
        if dtype == "str" and frame[name].notna().any():
            connection.execute(
                f'CREATE TYPE enum_{place} AS ENUM (SELECT DISTINCT "{name}" FROM plain WHERE "{name}" IS NOT NULL)'
            )
            columns.append(f'"{name}"::enum_{place} AS "{name}"')
        else:
            columns.append(f'"{name}"')
    return connection.sql(f"SELECT {', '.join(columns)} FROM plain")


WAYS: dict[str, Callable[[pd.DataFrame], Any]] = {
    **LIBRARIES,
    "duckdb in New York": lambda frame: in_duckdb(frame, "America/New_York"),
    "duckdb, enums": with_enums,
    "spark": in_spark,
    "arrow, in another order": lambda frame: pa.Table.from_pandas(in_another_order(frame), preserve_index=False),
    "categories": with_categories,
    "objects": with_objects,
    "columns without a type": lambda frame: pl.DataFrame({name: [None] * len(frame) for name in frame}),
}
"""What makes rows from a frame of pandas, whose result has to be the same."""


def function_of(summary: str) -> str:
    """Return the function of a summary whose name begins with it."""
    return summary.split()[0].strip(",")


FUNCTIONS = sorted({*map(function_of, SUMMARIES)})
SMALL = ("few", "one", "none", "all null", "only waiters", "only running")
"""Kinds of frames with few rows; all but one are those of builds, too."""


def names_of(function: str) -> list[str]:
    """Return the summaries of a function, with its options."""
    return [name for name in SUMMARIES if function_of(name) == function]


def plain_of(function: str) -> list[str]:
    """Return the first summary of a function, of jobs and of builds, and those without groups.

    Other options do not change what becomes of few rows.
    """
    names = names_of(function)
    first = {table_of(name): name for name in reversed(names)}.values()
    return [name for name in names if name in first or name.endswith(" of all")]


def table_of(summary: str) -> str:
    return "builds" if summary in OF_BUILDS else "jobs"


@functools.cache
def frame_on(way: str, table: str, kind: str) -> Any:
    """Return rows that are made in one of `WAYS`; pandas is the reference."""
    if way == "pandas":
        return metrics.with_seconds(jobs_of(kind) if table == "jobs" else builds_of(kind))
    return WAYS[way](frame_on("pandas", table, kind))


@functools.cache
def expected_of(summary: str, kind: str) -> Any:
    """Return the result on pandas."""
    return SUMMARIES[summary](frame_on("pandas", table_of(summary), kind))


def assert_same(result: pd.DataFrame, expected: pd.DataFrame) -> None:
    """Assert equal counts and keys, and seconds that differ by rounding at most."""
    pd.testing.assert_frame_equal(result, expected, check_exact=False, rtol=1e-12, atol=1e-9)


def collected(result: Any, expected: pd.DataFrame) -> pd.DataFrame:
    """Return a result as pandas, in the order of `expected`; PySpark computes long ones lazily."""
    if isinstance(result, pd.DataFrame):
        return result
    assert result.columns == list(expected)
    return to_typed_pandas(result.toArrow()).sort_values(list(expected)[:6], ignore_index=True)


def as_series(result: Any) -> pd.Series:
    """Return a lazy frame of builds and seconds as the Series that pandas gives."""
    name = result.columns[1]
    values = result.toArrow().to_pandas(types_mapper={pa.string(): pd.StringDtype(na_value=np.nan)}.get)
    values = values.set_index("build_id")[name].sort_index()
    if not name.endswith("_s"):
        return values
    return pd.to_timedelta((values * 1e6).round(), unit="us").astype("timedelta64[us]").rename(name.removesuffix("_s"))


@functools.cache
def flaky_tests() -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the flaky tests of a suite, and those five days later."""
    with worlds.sandbox(builds=1, days=1) as ci:
        before = ci.flaky_tests(suite="rspec")
        ci.sandbox.clock.advance(dt.timedelta(days=5))
        return before, ci.flaky_tests(suite="rspec")


def differences(cases: Iterable[Case]) -> dict[Case, str]:
    """Return the cases whose result is not that of pandas, and how it differs."""
    return {case: text for case in cases if (text := difference(*case))}


def difference(summary: str, way: str, kind: str) -> str:
    """Return how a result differs from that of pandas, or the error; "" if both are the same."""
    expected = expected_of(summary, kind)
    try:
        result = SUMMARIES[summary](frame_on(way, table_of(summary), kind))
        if isinstance(expected, pd.DataFrame):
            assert_same(collected(result, expected), expected)
        else:
            result = result if isinstance(result, pd.Series) else as_series(result)
            pd.testing.assert_series_equal(result, expected)
    except Exception as error:  # of any library
        return f"{type(error).__name__}: {error}"
    return ""
