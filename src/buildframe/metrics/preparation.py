"""Prepare frames: remove repeated rows, and add durations, steps and days as columns.

These columns mean the same in every library.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any, overload

import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import (
    check_is_pandas,
    check_unique_ids,
    column,
    require_columns,
    seconds,
    timestamps,
)
from buildframe.metrics.durations import (
    BLOCKED,
    SPANS,
    RowMetric,
    dependency_wait,
    queue_time,
    run_time,
    turnaround,
    wall_time,
)
from buildframe.metrics.input_frames import Frame, column_names, is_spark, to_typed_pandas
from buildframe.metrics.job_ends import COLUMNS as END_COLUMNS
from buildframe.metrics.steps import step

DAY = pd.ArrowDtype(pa.date32())
"""Dtype of days: a date in Parquet and in every library."""

_JOB_METRICS: tuple[RowMetric, ...] = (queue_time, dependency_wait, run_time, turnaround)


@overload
def with_seconds(frame: pd.DataFrame) -> pd.DataFrame: ...
@overload
def with_seconds(frame: Frame) -> Frame: ...
@checked_names
def with_seconds(frame: Frame) -> Frame:
    """
    Add the durations of each row, its step and its day as columns that other programs read.

    Many programs read a timedelta as a bare integer, so durations become seconds. Existing columns
    of these names are replaced, except `step`.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs of pandas or PySpark, with the timestamps that the durations need. A frame
        with `build_created_at` holds jobs. Ids must be unique. Jobs of PySpark need the column
        `step`, which fetched and stored jobs have.

    Returns
    -------
    DataFrame
        The frame with more columns. For PySpark they are computed when Spark reads rows, and are
        null instead of NaN.

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
    PySpark frames are not checked for repeated ids.

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
    if is_spark(frame):
        return _with_seconds_in_spark(frame)
    of_jobs = "build_created_at" in column_names(frame)
    timestamps(frame, "created_at")  # raises BadInput, also for frames that are not of pandas
    check_unique_ids(frame)
    added = _compute_columns(frame)
    day = added.pop("day")
    if of_jobs:
        added["step"] = step(frame)
    return frame.assign(**added, day=day)


def _compute_columns(frame: pd.DataFrame) -> dict[str, Any]:
    """Return the seconds of each row metric of builds or jobs, and the day."""
    of_jobs = "build_created_at" in frame
    added: dict[str, Any] = {}
    for metric in _JOB_METRICS if of_jobs else (wall_time,):
        added[f"{metric.__name__}_s"] = seconds(metric(frame), metric.__name__)
    created = timestamps(frame, "build_created_at" if of_jobs else "created_at")
    return added | {"day": created.dt.tz_localize(None).astype(DAY)}


def _with_seconds_in_spark(frame: Any) -> Any:
    """Return a lazy frame of PySpark, which computes the columns by batches when it reads rows.

    Fetched and stored jobs have their steps, which need whole builds.
    """
    from pyspark.sql.types import DateType, DoubleType, StructType

    names = column_names(frame)
    of_jobs = "build_created_at" in names
    metrics = _JOB_METRICS if of_jobs else (wall_time,)
    spans = [SPANS[metric] for metric in metrics]
    times = sorted({name for span in spans for name in (span.start, span.end)})
    needs = [*times, *(("build_created_at", "type", "step") if of_jobs else ())]
    require_columns(names, needs)
    _check_zones(frame, [*times, "build_created_at"])
    columns = [name for name in names if name in (*needs, *END_COLUMNS, *BLOCKED)]

    types = {f"{metric.__name__}_s": DoubleType() for metric in metrics} | {"day": DateType()}
    fields = {field.name: field.dataType for field in frame.schema.fields} | types
    schema = StructType()
    for name, kind in fields.items():
        schema = schema.add(name, kind)
    return frame.mapInArrow(functools.partial(_add_columns, columns), schema)


def _check_zones(frame: Any, names: list[str]) -> None:
    """Raise BadInput for a column of PySpark that does not hold timestamps with a time zone."""
    for field in frame.schema.fields:
        kind = field.dataType.typeName()
        if field.name in names and kind not in ("timestamp", "void"):
            column_type = f"The column {field.name!r} holds {kind}"
            raise BadInput(f"{column_type}, not timestamps with a time zone. Add the zone.")


def _add_columns(
    columns: list[str],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Add the computed columns to batches; runs in a worker."""
    for batch in batches:
        table = pa.Table.from_batches([batch])
        rows = to_typed_pandas(table.select(columns))
        for name, values in _compute_columns(rows).items():
            array = pa.array(values.array, from_pandas=True)
            if name in table.column_names:
                table = table.set_column(table.column_names.index(name), name, array)
            else:
                table = table.append_column(name, array)
        yield from table.to_batches()


@checked_names
def latest(frame: pd.DataFrame) -> pd.DataFrame:
    """
    Keep one row per `id`: the row that was fetched last.

    Fetched frames hold each id once. Frames that you concatenate may not, and summaries count every
    row.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds, jobs or other rows with the columns `id` and `fetched_at`.

    Returns
    -------
    pandas.DataFrame
        The remaining rows in their original order, with their original index. If rows of one id
        were fetched at the same time, the first one stays. Rows without an id all stay.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `frame` is not a pandas frame.

    Examples
    --------
    >>> both = pd.concat([builds, builds.head(3)])
    >>> len(metrics.latest(both)) == len(builds)
    True
    """
    check_is_pandas(
        frame,
        "metrics.latest needs. Frames of a store hold each row once. For others: "
        "in Polars "
        '.sort("fetched_at").unique("id", keep="last"), in DuckDB and Spark filter by '
        "row_number() OVER (PARTITION BY id ORDER BY fetched_at DESC) = 1.",
    )
    fetched = timestamps(frame, "fetched_at").reset_index(drop=True)
    newest_first = fetched.sort_values(ascending=False, kind="stable").index
    ids = column(frame, "id").reset_index(drop=True).loc[newest_first]
    places = newest_first[~ids.duplicated() | ids.isna()]
    return frame.iloc[places.sort_values()]
