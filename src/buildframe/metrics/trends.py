"""Compute percentiles of durations per bucket of time."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.protocol import Frame
from buildframe.metrics.percentiles import check_percentiles, count_rows, percentile_columns
from buildframe.metrics.time_buckets import Buckets, fill_empty_buckets


@checked_names
def trend(
    frame: Frame,
    of: RowMetric | str = wall_time,
    q: float | Sequence[float] = (0.5, 0.95),
    freq: str = "1D",
    tz: str = "UTC",
    at: str = "created_at",
) -> pd.DataFrame:
    """
    Compute percentiles of a duration per bucket of time.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs: pandas, Polars (eager or lazy), DuckDB relation or PySpark. Needs `fetched_at`, the column `at`,
        and the columns that `of` needs.
    of : row metric or str, default wall_time
        Duration to summarize: a row metric such as `run_time`, or a column of timedeltas or of seconds (`..._s`).
    q : float or sequence of float, default (0.5, 0.95)
        Percentiles as fractions in (0, 1).
    freq : str, default "1D"
        Length of a bucket as a pandas frequency that names its start: "1h", "1D", "W-MON", "MS" or "QS".
    tz : str, default "UTC"
        Time zone in which buckets start. A day on which the clocks change has 23 or 25 hours.
    at : str, default "created_at"
        Column of timestamps that assigns rows to buckets. Rows without it are in no bucket.

    Returns
    -------
    pandas.DataFrame
        One row per bucket from the first to the last row's, including empty ones. An empty frame gives no rows.

        =================== ================== ===================================================================
        bucket              datetime64[us, tz] start of the bucket; it ends before the next start
        n                   Int64              rows with a duration
        n_censored          Int64              rows that began but were not seen to end; null if `of` is not a
                                               metric of this package
        n_negative          Int64              durations below zero
        p50_s, ...          float64            percentile in seconds; NaN with too few rows
        p50_low_s, ...      float64            lower end of its 95 % interval
        p50_high_s, ...     float64            upper end of its 95 % interval
        partial             boolean            the bucket was not over at the latest `fetched_at`; null if unknown
        =================== ================== ===================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `of`, `q`, `freq`, `tz` or `at` is invalid.

    See Also
    --------
    percentiles : The same per group, with details on the intervals.
    change_point : Find when a duration changed.

    Notes
    -----
    A frame does not show whether its first bucket is complete. Fetch from a midnight of `tz` to be sure.

    Examples
    --------
    >>> metrics.trend(builds, q=0.5)[["bucket", "n", "p50_s", "partial"]].round({"p50_s": 1})
                         bucket   n   p50_s  partial
    0 2026-10-26 00:00:00+00:00  27   909.3    False
    1 2026-10-27 00:00:00+00:00  25   958.7    False
    2 2026-10-28 00:00:00+00:00  32   953.3    False
    3 2026-10-29 00:00:00+00:00  31   965.0    False
    4 2026-10-30 00:00:00+00:00  29  1014.4    False
    5 2026-10-31 00:00:00+00:00   8  1117.6    False
    6 2026-11-01 00:00:00+00:00  10   980.2    False
    """
    q = check_percentiles(q, "linear")
    if not isinstance(at, str):
        raise BadInput(f"at={at!r} is not a column name. Use a column of timestamps such as 'created_at'.")
    rows = engine_of(frame).measure(frame, of, needs=(at, "fetched_at"))
    buckets = Buckets.of(rows, [at], freq, tz)
    bucketed = buckets.group_by_bucket(rows, at)
    counts = fill_empty_buckets(count_rows(bucketed), len(buckets))
    summary = pd.concat([counts.sums, percentile_columns(bucketed, counts, q, "linear")], axis=1)
    return buckets.with_starts(summary)
