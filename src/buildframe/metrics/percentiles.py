"""Compute percentiles of durations per group or bucket of time, with intervals and counts of what they leave out."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import first_and_last
from buildframe.metrics.durations import RowMetric, queue_time, span_of, wall_time
from buildframe.metrics.estimates import Estimates, Sample
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.input_frames import Frame, RowGroups, column_names
from buildframe.metrics.measured_rows import limits_in_spark, measure_rows
from buildframe.metrics.ranked_groups import RankedGroups
from buildframe.metrics.time_buckets import Buckets
from buildframe.terminal import show

CONFIDENCE = 0.95
COUNTS = ["n", "n_censored", "n_negative"]


@checked_names
def percentiles(
    frame: Frame,
    of: RowMetric | str = queue_time,
    by: By = None,
    q: float | Sequence[float] = (0.5, 0.95),
) -> pd.DataFrame:
    """
    Compute percentiles of a duration per group, with confidence intervals.

    Rows are pooled before percentiles are taken. Intervals hold for dependent rows, such as jobs that wait in one
    queue. Rows that were not seen to end count for as long as they were seen; see Notes.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs: pandas, Polars (eager or lazy), DuckDB relation or PySpark. Intervals need the start of the
        duration, or else `created_at`. Censored rows need `fetched_at`, or `finished_at` if they were canceled.
    of : row metric or str, default queue_time
        Duration to summarize: a row metric such as `run_time`, or a column of timedeltas or of
        seconds (`..._s`). Your own function `frame -> Series` is a custom metric: for a pandas
        frame with all columns it returns a timedelta for each row on the frame's index, null
        without a value, or seconds in a Series whose name ends in `_s`. `n_censored` is then null.
    by : str, function or list of these, optional
        Keys that define the groups: columns, or functions `frame -> Series` such as `metrics.step`. In PySpark, a
        function is the column of its name. By default all rows form one group.
    q : float or sequence of float, default (0.5, 0.95)
        Percentiles as fractions in (0, 1).

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key, null keys last. An empty frame gives no rows. After the keys:

        =================== ======= ==========================================================================
        n                   Int64   rows with a duration
        n_censored          Int64   rows that began but were not seen to end: still waiting or running, or
                                    canceled before. Null if `of` is not a metric of this package
        n_negative          Int64   durations below zero, from clocks that disagree; included in `n`
        p50_s, ...          float64 percentile in seconds; NaN with fewer than 1 / (1 - p) rows (1 / p below
                                    the median), so p95 needs 20 rows and p99 needs 100, and if too many rows
                                    are censored
        p50_low_s, ...      float64 lower end of the 95 % interval; NaN if too little is known, see Notes
        p50_high_s, ...     float64 upper end of the 95 % interval; NaN as the lower end
        p50_at_least_s, ... float64 lower bound of the percentile in seconds if there are enough rows, but too
                                    many are censored for an estimate, see Notes; NaN otherwise
        p50_n_effective,    float64 number of independent rows with as much information about the percentile,
        ...                         at most `n`; NaN as the interval
        =================== ======= ==========================================================================

        If the frame has no column of times, all intervals are NaN, and `attrs["why_no_intervals"]` says which column
        it lacks.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `of` is not a duration or holds infinite values, or `q`
        lies outside (0, 1).

    See Also
    --------
    trend : The same per bucket of time.
    survival : The curve that shows all percentiles.
    percentile_change : Compare two periods.
    with_seconds : Add durations as columns.

    Notes
    -----
    For `queue_time` only script jobs are in a group: trigger, wait and block jobs wait for no agent.

    *Censored rows.* As soon as one row of a group is censored, the group's percentiles come from the curve of Kaplan
    and Meier [1]_. Without censored rows p95 would be that of the rows that ended, which is too low: jobs that have
    waited for two hours are not in it. The curve counts the censored rows by second. It assumes that they would have
    lasted as long as others that lasted as long. Jobs that people cancel because they wait too long do not. The lower
    bound `p95_at_least_s` assumes nothing: it is the percentile if each censored row had ended when it was last seen,
    rounded down to a second.

    *Intervals.* The time from the first to the last row of a group is split into eight equal spans. How much the share
    of rows up to the percentile varies between spans shows how many independent rows the group is worth:
    `n_effective`. With as many rows, corrected for the few spans by Student's t, the interval of the share is that of
    Clopper and Pearson. The durations at its ends are the interval of the percentile [2]_, [3]_. There is none if rows
    lie in fewer than five spans, if less than one effective row lies beyond the percentile, or if an end lies outside
    the rows.

    In simulations, nominal 95 % intervals cover the true percentile in 95 to 100 % of worlds with independent rows,
    ties, days that differ, a weekly rhythm, and rows that depend on the one before. In a queue at 83 % load, a thousand
    jobs are about one busy period: intervals of p50 cover in 93 %, those of p90 in 79 %, also if a tenth of the longest
    waits is censored. Eight spans do not show dependence that lasts longer than the frame, such as a trend or a season.

    References
    ----------
    .. [1] Kaplan, E. L., and Meier, P. (1958). Journal of the American Statistical Association 53, 457-481.
    .. [2] Woodruff, R. S. (1952). Journal of the American Statistical Association 47, 635-646.
    .. [3] Francisco, C. A., and Fuller, W. A. (1991). Annals of Statistics 19, 454-469.

    Examples
    --------
    >>> waits = metrics.percentiles(jobs, by="queue")
    >>> waits[["queue", "n", "n_censored", "p50_s", "p50_low_s", "p50_high_s", "p50_n_effective", "p95_s"]].round(1)
         queue     n  n_censored   p50_s  p50_low_s  p50_high_s  p50_n_effective   p95_s
    0  default  2270           1     1.8        1.7         1.9            800.1   326.7
    1   deploy    46           0     1.3        0.9         1.6             46.0     2.0
    2   docker   151           0     1.6        1.3         1.8            151.0   100.5
    3    macos   161           0  2504.4      772.6      4476.3             34.7  8746.5
    >>> metrics.percentiles(builds, of=metrics.wall_time, by="pipeline", q=0.9)[["pipeline", "n", "p90_s"]].round(0)
       pipeline   n    p90_s
    0       api  32   1418.0
    1   billing  11    690.0
    2      data  18    936.0
    3      docs  11    291.0
    4    mobile  23  12219.0
    5  platform  21   1046.0
    6   release   3      NaN
    7       web  39   1339.0
    """
    q = check_percentiles(q)
    by = spark_keys(frame, by)
    return summarize_groups(frame, functools.partial(_percentiles, of, by, q), by)


def _percentiles(of: RowMetric | str, by: By, q: Sequence[float], frame: Frame) -> pd.DataFrame:
    at = find_time_column(frame, of)
    rows = measure_rows(frame, of, by, [] if at is None else [at])
    summary = pd.concat([count_rows(rows), percentile_columns(RankedGroups(rows, at), q)], axis=1)
    return explain_missing_intervals(join_keys(rows.keys, summary), of, at)


@checked_names
def trend(
    frame: Frame,
    of: RowMetric | str = wall_time,
    by: By = None,
    q: float | Sequence[float] = (0.5, 0.95),
    freq: str = "1D",
    tz: str = "UTC",
    at: str = "created_at",
) -> pd.DataFrame:
    """
    Compute percentiles of a duration per bucket of time, and optionally per group.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs: pandas, Polars (eager or lazy), DuckDB relation or PySpark. Needs `fetched_at`, the column `at`,
        and the columns that `of` needs.
    of : row metric or str, default wall_time
        Duration to summarize: a row metric such as `run_time`, a column of timedeltas or of seconds (`..._s`), or your
        own function (custom metric), as in `percentiles`. `n_censored` is null for a column or your own function.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
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
        One row per bucket from the first to the last row's, including empty ones; with `by` these buckets of each
        group, after its keys. An empty frame gives no rows.

        =================== ================== ===================================================================
        bucket              datetime64[us, tz] start of the bucket; it ends before the next start
        n                   Int64              rows with a duration
        n_censored          Int64              rows that began but were not seen to end; null if `of` is not a
                                               metric of this package
        n_negative          Int64              durations below zero
        p50_s, ...          float64            percentile in seconds; NaN with too few rows, or too many that
                                               are censored
        p50_low_s, ...      float64            lower end of its 95 % interval
        p50_high_s, ...     float64            upper end of its 95 % interval
        p50_at_least_s, ... float64            lower bound of the percentile if too many rows are censored,
                                               see `percentiles`
        p50_n_effective,    float64            number of independent rows with as much information,
        ...                                    at most `n`; NaN as the interval
        partial             boolean            the bucket was not over at the latest `fetched_at`; null if unknown
        =================== ================== ===================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `of`, `by`, `q`, `freq`, `tz` or `at` is invalid.

    See Also
    --------
    percentiles : The same for the whole period, with details on the intervals.
    change_points : Find when a duration changed.

    Notes
    -----
    The intervals are those of `percentiles`, with eight spans of each bucket. They say how well a bucket's own
    percentile is known, not whether the next bucket will be alike.

    A frame does not show whether its first bucket is complete. Fetch from a midnight of `tz` to be sure.

    Examples
    --------
    >>> metrics.trend(builds, q=0.5)[["bucket", "n", "p50_s", "partial"]].round({"p50_s": 1})
                         bucket   n   p50_s  partial
    0 2026-10-26 00:00:00+00:00  25   932.7    False
    1 2026-10-27 00:00:00+00:00  26  1003.2    False
    2 2026-10-28 00:00:00+00:00  32   923.6    False
    3 2026-10-29 00:00:00+00:00  30   944.9    False
    4 2026-10-30 00:00:00+00:00  29  1018.4    False
    5 2026-10-31 00:00:00+00:00   8   871.9    False
    6 2026-11-01 00:00:00+00:00   8   960.3    False
    >>> by_queue = metrics.trend(jobs, of=metrics.queue_time, by="queue", q=0.95, freq="W-MON")
    >>> by_queue[["queue", "bucket", "n", "p95_s"]].round({"p95_s": 1})
         queue                    bucket     n   p95_s
    0  default 2026-10-26 00:00:00+00:00  2270   326.7
    1   deploy 2026-10-26 00:00:00+00:00    46     2.0
    2   docker 2026-10-26 00:00:00+00:00   151   100.5
    3    macos 2026-10-26 00:00:00+00:00   161  8746.5
    """
    q = check_percentiles(q)
    if not isinstance(at, str):
        raise BadInput(f"at={show(at)} is not a column name. Use a column of timestamps such as 'created_at'.")
    by = spark_keys(frame, by)
    limits = limits_in_spark(frame, of, [at, "fetched_at"])
    return summarize_groups(frame, functools.partial(_trend, of, by, q, freq, tz, at, limits), by)


def _trend(
    of: RowMetric | str,
    by: By,
    q: Sequence[float],
    freq: str,
    tz: str,
    at: str,
    limits: Sequence[tuple[int, int]] | None,
    frame: Frame,
) -> pd.DataFrame:
    rows = measure_rows(frame, of, by, [*dict.fromkeys([at, "fetched_at"])])
    times, fetched = limits or [first_and_last(rows.columns[name].to_numpy()) for name in (at, "fetched_at")]
    buckets = Buckets.between([times], freq, tz, fetched[1])
    split, keys = buckets.split(rows, at)
    summary = pd.concat([count_rows(split), percentile_columns(RankedGroups(split, at), q)], axis=1)
    return buckets.with_starts(summary, keys)


def find_time_column(frame: Frame, of: RowMetric | str) -> str | None:
    """Return the column that dates the rows of a duration: its start, or else their creation."""
    available = column_names(frame)
    return next((name for name in _time_columns(of) if name in available), None)


def explain_missing_intervals(result: pd.DataFrame, of: RowMetric | str, at: str | None) -> pd.DataFrame:
    """Return a result that says why it has no intervals if there is no column of times."""
    if at is None:
        columns = " or ".join(map(repr, _time_columns(of)))
        result.attrs["why_no_intervals"] = f"The frame has no column {columns} with the time of each row."
    return result


def _time_columns(of: RowMetric | str) -> tuple[str, ...]:
    """Return the columns that can date a row: the start of the duration, or else its creation."""
    span = span_of(of)
    return tuple(dict.fromkeys(["created_at"] if span is None else [span.start, "created_at"]))


def count_rows(rows: RowGroups) -> pd.DataFrame:
    """Count rows with a duration, censored rows (null if unknown) and negative durations per group."""
    value, n_groups = rows.columns["value"].to_numpy(np.float64), len(rows.keys)
    counts = {
        "n": np.bincount(rows.codes[~np.isnan(value)], minlength=n_groups),
        "n_censored": pd.array([pd.NA] * n_groups, "Int64"),
        "n_negative": np.bincount(rows.codes[value < 0], minlength=n_groups),
    }
    if "censored" in rows.columns:
        counts["n_censored"] = np.bincount(rows.codes[rows.columns["censored"].to_numpy(bool)], minlength=n_groups)
    return pd.DataFrame(counts, dtype="Int64")


def percentile_columns(rows: RankedGroups, q: Sequence[float]) -> pd.DataFrame:
    """Compute the columns `p50_s`, `p50_low_s`, `p50_high_s`, ... per group."""
    estimates = np.concatenate(Sample(rows).estimate(q, CONFIDENCE), axis=1)
    ends = ("", *Estimates._fields[1:])
    columns = [percentile_label(p, end) for end in ends for p in q]
    by_percentile = [percentile_label(p, end) for p in q for end in ends]
    return pd.DataFrame(estimates, columns=columns)[by_percentile]


def percentile_label(p: float, end: str = "") -> str:
    """Return the name of a percentile's column: `p99.9_s` for .999, or `p95_low_s` for an end of its interval."""
    unit = "" if end == "n_effective" else "_s"
    return f"p{100 * p:.10g}{'_' + end if end else ''}{unit}"


def check_percentiles(q: float | Sequence[float]) -> tuple[float, ...]:
    """Return the percentiles as fractions; raise BadInput for an invalid percentile."""
    try:
        shares = tuple(map(float, q)) if isinstance(q, Iterable) else (float(q),)
    except (TypeError, ValueError):
        raise BadInput(f"q={show(q)} is not a fraction or a list of them. Use one such as (0.5, 0.95).") from None
    if outside := [p for p in shares if not 0 < p < 1]:
        raise BadInput(f"q={outside[0]!r} lies outside (0, 1). Use a fraction such as 0.95.")
    if len({percentile_label(p) for p in shares}) < max(1, len(shares)):
        raise BadInput(f"q={show(q)} is empty or repeats a fraction. Pass at least one, and each once.")
    return shares
