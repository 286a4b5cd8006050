"""Add durations, steps and days as columns, so that they mean the same in stored files and in every engine."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

import pandas as pd
import pyarrow as pa

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import column, require_columns, seconds, timestamps
from buildframe.metrics.duplicates import check_unique_ids
from buildframe.metrics.durations import (
    SPANS,
    RowMetric,
    dependency_wait,
    queue_time,
    run_time,
    turnaround,
    wall_time,
)
from buildframe.metrics.engines import Frame, expressions, micros_column, spark, to_lazy, typed_columns, with_micros
from buildframe.metrics.steps import OF_PARALLEL_JOBS, step

_OF_JOBS: tuple[RowMetric, ...] = (queue_time, dependency_wait, run_time, turnaround)

DAY = pd.ArrowDtype(pa.date32())
"""Dtype of days: a date in Parquet and in every engine."""


@overload
def with_seconds(frame: pd.DataFrame) -> pd.DataFrame: ...
@overload
def with_seconds(frame: Frame) -> Frame: ...
@checked_names
def with_seconds(frame: Frame) -> Frame:
    """
    Add the durations of each row, its step and its day as columns that mean the same in every engine.

    Other engines read a timedelta as a bare integer, so durations become seconds. Existing columns of these names are
    replaced.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs of pandas or PySpark, with the timestamps that the durations need. A frame with
        `build_created_at` holds jobs. Ids must be unique.

    Returns
    -------
    DataFrame
        The frame with more columns. For PySpark they are computed when Spark reads rows, and are null instead of NaN.

        ================== ======= =======================================================================
        queue_time_s       float64 jobs: seconds of `queue_time`; NaN if there is none
        dependency_wait_s  float64 jobs: seconds of `dependency_wait`; NaN if there is none
        run_time_s         float64 jobs: seconds of `run_time`; NaN if there is none
        turnaround_s       float64 jobs: seconds of `turnaround`; NaN if there is none
        step               str     jobs: see `metrics.step`
        wall_time_s        float64 builds: seconds of `wall_time`; NaN if there is none
        day                date    UTC day on which the build was created; null if unknown
        ================== ======= =======================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or an id occurs twice (see `latest`).

    Notes
    -----
    PySpark frames are not checked for repeated ids. For `step` one Spark worker receives all distinct names, and needs
    this package.

    Examples
    --------
    >>> stored = metrics.with_seconds(jobs)
    >>> stored[["queue_time_s", "run_time_s", "step", "day"]].dtypes
    queue_time_s                 float64
    run_time_s                   float64
    step                             str
    day             date32[day][pyarrow]
    dtype: object
    """
    if type(frame).__module__.startswith("pyspark."):
        return _in_spark(frame)
    timestamps(frame, "created_at")
    check_unique_ids(frame)
    if "build_created_at" not in frame:
        return frame.assign(**_in_seconds(frame, (wall_time,)), day=_day(frame, "created_at"))
    of_step = ("step_key", "name", *(name for name in (OF_PARALLEL_JOBS,) if name in frame))
    names = {name: column(frame, name) for name in of_step}
    steps = step(pd.DataFrame(names, index=frame.index))
    return frame.assign(**_in_seconds(frame, _OF_JOBS), step=steps, day=_day(frame, "build_created_at"))


def _in_seconds(frame: pd.DataFrame, metrics: tuple[RowMetric, ...]) -> dict[str, pd.Series[float]]:
    return {f"{of.__name__}_s": seconds(of(frame), of.__name__) for of in metrics}


def _day(frame: pd.DataFrame, name: str) -> pd.Series[pd.Timestamp]:
    return timestamps(frame, name).dt.tz_localize(None).astype(DAY)


def _in_spark(frame: Frame) -> Frame:
    """Compute durations and days in Spark, and steps by pandas in a worker."""
    rows = to_lazy(frame)
    schema = rows.collect_schema()
    is_jobs = "build_created_at" in schema
    spans = {of.__name__: SPANS[of] for of in (_OF_JOBS if is_jobs else (wall_time,))}
    stamps = sorted({stamp for span in spans.values() for stamp in (span.start, span.end)})
    needs = [*stamps, *(("build_created_at", "type", "step_key", "name") if is_jobs else ())]
    require_columns(schema, needs)
    wants = [name for name in ((OF_PARALLEL_JOBS,) if is_jobs else expressions.BLOCKED) if name in schema]
    typed_rows = with_micros(rows.with_columns(*typed_columns(schema, [*needs, *wants])), stamps)
    seconds_of = {f"{name}_s": expressions.seconds_of(span, schema) for name, span in spans.items()}
    measured = typed_rows.with_columns(**seconds_of)
    native = measured.drop(map(micros_column, stamps)).to_native()
    if not is_jobs:
        return native.withColumns({"day": spark.utc_day("created_at")})
    return _with_steps(native, wants).withColumns({"day": spark.utc_day("build_created_at")})


_NAME, _STEP = "name of a step", "step of a name"


def _with_steps(jobs: Frame, wants: list[str]) -> Frame:
    """Add the steps of the distinct names: a name shows to be a shard only beside the others."""
    from pyspark.sql import functions

    names = jobs.where("name IS NOT NULL").select("name", *wants).distinct()
    steps = functions.broadcast(names.coalesce(1).mapInArrow(_steps, f"`{_NAME}` string, `{_STEP}` string"))
    key, name, of_name = (functions.col(f"`{one}`") for one in ("step_key", "name", _STEP))
    of_job = functions.when(key.isNotNull(), key).otherwise(of_name)
    is_own = key.isNull() & (name == functions.col(f"`{_NAME}`"))
    return jobs.join(steps, is_own, "left").withColumn("step", of_job).drop(_NAME, _STEP)


def _steps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return distinct names and their steps; runs in a Spark worker."""
    if received := list(batches):
        names = pa.Table.from_batches(received).to_pandas(integer_object_nulls=True)
        steps = pd.DataFrame({_NAME: names["name"], _STEP: step(names.assign(step_key=None))}).drop_duplicates(_NAME)
        texts = pa.schema([(_NAME, pa.string()), (_STEP, pa.string())])
        yield from pa.Table.from_pandas(steps, texts, preserve_index=False).replace_schema_metadata().to_batches()
