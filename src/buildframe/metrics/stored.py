"""Columns that stand beside the stamps where frames are stored, or taken to engines other than pandas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import overload

import pandas as pd
import pyarrow as pa

from buildframe.arguments import checked_names
from buildframe.metrics import outcomes, spark
from buildframe.metrics.columns import column, moments, require, seconds
from buildframe.metrics.durations import (
    SPANS,
    RowMetric,
    dependency_wait,
    queue_time,
    run_time,
    turnaround,
    wall_time,
)
from buildframe.metrics.engines import Frame, lazy, tick, ticking, typed_in
from buildframe.metrics.repeats import check_once
from buildframe.metrics.steps import OF_PARALLEL_JOBS, step

_OF_JOBS: tuple[RowMetric, ...] = (queue_time, dependency_wait, run_time, turnaround)

DAY = pd.ArrowDtype(pa.date32())
"""The dtype of days: a date in Parquet and in every engine."""


@overload
def with_seconds(frame: pd.DataFrame) -> pd.DataFrame: ...
@overload
def with_seconds(frame: Frame) -> Frame: ...
@checked_names
def with_seconds(frame: Frame) -> Frame:
    """The frame with what its rows measure, as columns that mean the same in every engine.

    A frame of jobs (it has `build_created_at`) gets `queue_time_s`, `dependency_wait_s`, `run_time_s`, `turnaround_s`
    (float64 seconds, NaN where there is none), `step` (str, as `metrics.step`) and `day` (date): the UTC day on which
    its build was created. A frame of builds gets `wall_time_s` and `day`. A timedelta would be read as a bare
    whole number elsewhere. Columns of these names are made anew. An empty frame gets them, too.

    A frame of PySpark gets the same, with null for NaN, when Spark is asked for rows; that an id stands in two rows
    cannot be seen before, and is not looked for. For `step` one of its workers gets all names that differ, and needs
    this package.

    BadInput: a column missing that these need, naive times, an id in two rows (see `latest`).
    """
    if type(frame).__module__.startswith("pyspark."):
        return _in_spark(frame)
    moments(frame, "created_at")
    check_once(frame)
    if "build_created_at" not in frame:
        return frame.assign(**_in_seconds(frame, (wall_time,)), day=_day(frame, "created_at"))
    of_step = ("step_key", "name", *(name for name in (OF_PARALLEL_JOBS,) if name in frame))
    names = {name: column(frame, name) for name in of_step}
    steps = step(pd.DataFrame(names, index=frame.index))
    return frame.assign(**_in_seconds(frame, _OF_JOBS), step=steps, day=_day(frame, "build_created_at"))


def _in_seconds(frame: pd.DataFrame, metrics: tuple[RowMetric, ...]) -> dict[str, pd.Series[float]]:
    return {f"{of.__name__}_s": seconds(of(frame), of.__name__) for of in metrics}


def _day(frame: pd.DataFrame, name: str) -> pd.Series[pd.Timestamp]:
    return moments(frame, name).dt.tz_localize(None).astype(DAY)


def _in_spark(frame: Frame) -> Frame:
    """Durations and days by Spark itself; names of steps by pandas, in a worker."""
    found = lazy(frame)
    schema = found.collect_schema()
    is_jobs = "build_created_at" in schema
    spans = {of.__name__: SPANS[of] for of in (_OF_JOBS if is_jobs else (wall_time,))}
    stamps = sorted({stamp for span in spans.values() for stamp in (span.start, span.end)})
    needs = [*stamps, *(("build_created_at", "type", "step_key", "name") if is_jobs else ())]
    require(schema, needs)
    wants = [name for name in ((OF_PARALLEL_JOBS,) if is_jobs else outcomes.BLOCKED) if name in schema]
    typed_rows = ticking(found.with_columns(*typed_in(schema, [*needs, *wants])), stamps)
    seconds_of = {f"{name}_s": outcomes.seconds_of(span, schema) for name, span in spans.items()}
    measured = typed_rows.with_columns(**seconds_of)
    native = measured.drop(map(tick, stamps)).to_native()
    if not is_jobs:
        return native.withColumns({"day": spark.day("created_at")})
    return _with_steps(native, wants).withColumns({"day": spark.day("build_created_at")})


_NAME, _STEP = "name of a step", "step of a name"


def _with_steps(jobs: Frame, wants: list[str]) -> Frame:
    """Add the steps: whether a name is a shard shows only beside the other names, of which there are few."""
    from pyspark.sql import functions

    names = jobs.where("name IS NOT NULL").select("name", *wants).distinct()
    steps = functions.broadcast(names.coalesce(1).mapInArrow(_steps, f"`{_NAME}` string, `{_STEP}` string"))
    key, name, of_name = (functions.col(f"`{one}`") for one in ("step_key", "name", _STEP))
    found = functions.when(key.isNotNull(), key).otherwise(of_name)
    is_own = key.isNull() & (name == functions.col(f"`{_NAME}`"))
    return jobs.join(steps, is_own, "left").withColumn("step", found).drop(_NAME, _STEP)


def _steps(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The names, each once, and their steps: what a worker of Spark runs."""
    if rows := list(batches):
        names = pa.Table.from_batches(rows).to_pandas(integer_object_nulls=True)
        told = pd.DataFrame({_NAME: names["name"], _STEP: step(names.assign(step_key=None))}).drop_duplicates(_NAME)
        texts = pa.schema([(_NAME, pa.string()), (_STEP, pa.string())])
        yield from pa.Table.from_pandas(told, texts, preserve_index=False).replace_schema_metadata().to_batches()
