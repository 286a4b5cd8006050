"""Prepare frames: remove repeated rows, and add durations, steps and days as columns that mean the same everywhere."""

from __future__ import annotations

from typing import overload

import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import check_is_pandas, column, timestamps
from buildframe.metrics.durations import RowMetric, dependency_wait, queue_time, run_time, turnaround, wall_time
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.rows import Frame

_JOB_METRICS: tuple[RowMetric, ...] = (queue_time, dependency_wait, run_time, turnaround)


@overload
def with_seconds(frame: pd.DataFrame) -> pd.DataFrame: ...
@overload
def with_seconds(frame: Frame) -> Frame: ...
@checked_names
def with_seconds(frame: Frame) -> Frame:
    """
    Add the durations of each row, its step and its day as columns that mean the same in every engine.

    Other engines read a timedelta as a bare integer, so durations become seconds. Existing columns of these names are
    replaced, except `step`.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs of pandas or PySpark, with the timestamps that the durations need. A frame
        with `build_created_at` holds jobs. Ids must be unique. Jobs of PySpark need the column
        `step`, which fetched and stored jobs have.

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
    engine = engine_of(frame)
    if "build_created_at" in engine.column_names(frame):
        return engine.with_durations(frame, _JOB_METRICS, "build_created_at", of_jobs=True)
    return engine.with_durations(frame, (wall_time,), "created_at", of_jobs=False)


@checked_names
def latest(frame: pd.DataFrame) -> pd.DataFrame:
    """
    Keep one row per `id`: the row that was fetched last.

    Fetched frames hold each id once. Frames that you concatenate may not, and summaries count every row.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds, jobs or other rows with the columns `id` and `fetched_at`.

    Returns
    -------
    pandas.DataFrame
        The remaining rows in their original order, with their original index. If rows of one id were fetched at the
        same time, the first one stays. Rows without an id all stay.

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
        "metrics.latest needs. Frames of a store hold each row once. For others use the engine: in Polars "
        '.sort("fetched_at").unique("id", keep="last"), in DuckDB and Spark filter by '
        "row_number() OVER (PARTITION BY id ORDER BY fetched_at DESC) = 1.",
    )
    fetched = timestamps(frame, "fetched_at").reset_index(drop=True)
    newest_first = fetched.sort_values(ascending=False, kind="stable").index
    ids = column(frame, "id").reset_index(drop=True).loc[newest_first]
    places = newest_first[~ids.duplicated() | ids.isna()]
    return frame.iloc[places.sort_values()]
