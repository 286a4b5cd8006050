"""Measure how often a promise was met, and how much of its error budget is used."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import Flags, Floats, first_and_last
from buildframe.metrics.durations import RowMetric, span_of
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, as_key_list, join_keys
from buildframe.metrics.input_frames import Frame, RowGroups
from buildframe.metrics.measured_rows import limits_in_spark, measure_rows
from buildframe.metrics.rates import rate_columns
from buildframe.metrics.span_sums import SpanSums, sum_by_bucket, sum_by_span
from buildframe.metrics.time_buckets import Buckets
from buildframe.spec.times import seconds_of
from buildframe.terminal import show

_DECIDED = ["met", "missed"]


class _Promise(NamedTuple):
    """A share `target` of rows lasts `limit` seconds at most; `at` is the column of their times."""

    of: RowMetric | str
    limit: float
    target: float
    at: str


@checked_names
def objective(
    frame: Frame,
    of: RowMetric | str,
    within: str | dt.timedelta,
    target: float,
    by: By = None,
    freq: str | None = None,
    tz: str = "UTC",
    at: str | None = None,
) -> pd.DataFrame:
    """
    Compute how often a promise such as "95 % start within 5 minutes" was met, and its error budget.

    The interval of the share holds for rows that depend on each other. Rows that were not seen to
    end have missed the promise if they were seen for longer than it allows.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs: pandas, Polars (eager or lazy), DuckDB relation or PySpark, with the column
        `at`. Rows that were not seen to end need `fetched_at`, or `finished_at` if they were
        canceled.
    of : row metric or str
        Duration that is promised: a row metric such as `queue_time`, or a column of timedeltas or
        of seconds (`..._s`).
    within : str or timedelta
        Longest duration that meets the promise, such as "5m" or "90s".
    target : float
        Share of rows that are promised to meet it, a fraction in (0, 1) such as 0.95.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
    freq : str, optional
        Length of a bucket of time as a pandas frequency that names its start, as in `trend`, for
        rows per bucket.
    tz : str, default "UTC"
        Time zone in which buckets start.
    at : str, optional
        Column of timestamps that assigns rows to buckets, and to the spans of time for intervals.
        By default the start of the duration, such as `runnable_at`, or `created_at` if that is
        unknown.

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key. An empty frame gives no rows. After the keys:

        ================ ======= ===================================================================
        n                Int64   `met + missed`
        met              Int64   rows that ended within the limit
        missed           Int64   rows that took longer, or were not seen to end and were seen for
                                 longer
        undecided        Int64   other rows that were not seen to end; in neither
        n_negative       Int64   durations below zero, from clocks that disagree; they met it
        share            float64 `met / n`; NaN if `n` is 0
        low, high        float64 95 % interval of the share; NaN with rows in fewer than five of the
                                 eight spans of time
        n_effective      float64 number of independent rows with the same information; NaN as the
                                 interval
        budget_used      float64 part of the error budget that is used:
                                 `missed / ((1 - target) * n)`; above 1 if the promise is broken,
                                 NaN if `n` is 0
        budget_remaining float64 `1 - budget_used`
        ================ ======= ===================================================================

        With `freq` one row per bucket from the first to the last row's, including empty ones; with
        `by` these buckets of each group. Before and after the columns above:

        ======= ================== =================================================================
        bucket  datetime64[us, tz] start of the bucket
        partial boolean            the bucket was not over at the latest `fetched_at`; null if
                                   unknown
        ======= ================== =================================================================

        The budget is then that of all buckets of the group together: `budget_used` is the part that
        the misses of the bucket use, and `budget_remaining` is what remains after it. The parts add
        up to the result without `freq`.

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `of` is not a duration or holds
        infinite values, `within` is not a duration above 0, `target` lies outside (0, 1), or `by`,
        `freq`, `tz` or `at` is invalid.

    See Also
    --------
    percentiles : The duration that a given share of rows does not exceed.
    success_rate : The share of builds that passed, with the same interval.
    buildframe.plots.objective : Plot the error budget.

    Notes
    -----
    For `queue_time` only script jobs count. A job that was canceled while it waited has missed the
    promise if it had waited for longer than the limit; before that nobody knows, so it is
    undecided. A blocked build is not over.

    Undecided rows are left out of the share. If many rows of a group are undecided, look at
    `survival`.

    The interval is that of `success_rate`: Wilson's, with the effective number of rows, which the
    variance of the share between eight spans of the time shows. In simulations, nominal 95 %
    intervals contain shares of .5, .9 and .95 in 92 to 100 % of worlds with independent rows, days
    that differ, a weekly rhythm, and rows that depend on the one before. In a queue at 83 % load, a
    thousand jobs are about one busy period: intervals contain a share of .5 in 94 %, one of .9 in
    81 %, and one of .95, which a single burst decides, in 62 %.

    The error budget is the number of misses that the target allows [1]_. It is counted in rows, so
    its share after a part of the period uses the number of rows of the whole period.

    References
    ----------
    .. [1] Beyer, B., et al. (2016). Site Reliability Engineering, chapter 4. O'Reilly.

    Examples
    --------
    >>> promise = {"of": metrics.queue_time, "within": "5m", "target": 0.9}
    >>> by_queue = metrics.objective(jobs, **promise, by="queue")
    >>> columns = ["queue", "met", "missed", "undecided", "share", "low", "high", "budget_used"]
    >>> by_queue[columns].round(2)
         queue   met  missed  undecided  share   low  high  budget_used
    0  default  2130     140          1   0.94  0.90  0.96         0.62
    1   deploy    46       0          0   1.00  0.89  1.00         0.00
    2   docker   151       0          0   1.00  0.96  1.00         0.00
    3    macos    29     132          0   0.18  0.10  0.30         8.20
    >>> by_day = metrics.objective(jobs, **promise, freq="1D")
    >>> columns = ["share", "budget_used", "budget_remaining"]
    >>> by_day[["bucket", "n", *columns]].round(dict.fromkeys(columns, 2))
                         bucket    n  share  budget_used  budget_remaining
    0 2026-10-26 00:00:00+00:00  414   0.91         0.14              0.86
    1 2026-10-27 00:00:00+00:00  481   0.90         0.19              0.67
    2 2026-10-28 00:00:00+00:00  550   0.88         0.25              0.41
    3 2026-10-29 00:00:00+00:00  476   0.85         0.27              0.14
    4 2026-10-30 00:00:00+00:00  471   0.94         0.11              0.03
    5 2026-10-31 00:00:00+00:00  113   0.84         0.07             -0.04
    6 2026-11-01 00:00:00+00:00  123   1.00         0.00             -0.04
    """
    limit = seconds_of(within, "within")
    if not isinstance(target, float) or not 0 < target < 1:
        problem = f"target={show(target)} is not a fraction between 0 and 1."
        raise BadInput(f"{problem} Use one such as 0.95 for 95 %.")
    if not isinstance(at, str | None):
        raise BadInput(f"at={show(at)} is not a column name. Use a column of timestamps such as 'created_at'.")
    span = span_of(of)
    at = at or ("created_at" if span is None else span.start)
    promise = _Promise(of, limit, target, at)
    by = spark_keys(frame, by)
    if freq is None:
        return summarize_groups(frame, functools.partial(_objective, promise, by), by)
    has_groups = bool(as_key_list(by))  # a group of all rows shows their limits
    limits = limits_in_spark(frame, of, [at, "fetched_at"]) if has_groups else None
    summarize = functools.partial(_objective_by_bucket, promise, by, freq, tz, limits)
    return summarize_groups(frame, summarize, by)


def _objective(promise: _Promise, by: By, frame: Frame) -> pd.DataFrame:
    rows = measure_rows(frame, promise.of, by, [promise.at])
    sums = sum_by_span(rows, promise.at, _decide(rows, promise.limit), _DECIDED)
    return join_keys(rows.keys, _summarize(sums, promise.target))


def _objective_by_bucket(
    promise: _Promise,
    by: By,
    freq: str,
    tz: str,
    limits: Sequence[tuple[int, int]] | None,
    frame: Frame,
) -> pd.DataFrame:
    at = promise.at
    columns = [at, "fetched_at"]
    rows = measure_rows(frame, promise.of, by, [*dict.fromkeys(columns)])
    if limits is None:
        limits = [first_and_last(rows.columns[name].to_numpy()) for name in columns]
    times, fetched = limits
    buckets = Buckets.between([times], freq, tz, fetched[1])
    if not as_key_list(by):
        sums = sum_by_bucket(rows, buckets, at, _decide(rows, promise.limit), _DECIDED)
        keys = None
    else:
        split, keys = buckets.split(rows, at)
        sums = sum_by_span(split, at, _decide(split, promise.limit), _DECIDED)
    summary = _summarize(sums, promise.target)
    return buckets.with_starts(_spread_budget(summary, promise.target, len(buckets)), keys)


def _decide(rows: RowGroups, limit: float) -> dict[str, Flags]:
    """Return which rows met the promise, missed it, or are undecided, and which are negative."""
    value = rows.columns["value"].to_numpy(np.float64)
    met = value <= limit
    missed = value > limit
    undecided = np.zeros(len(value), bool)
    if "censored" in rows.columns:
        is_open = rows.columns["censored"].to_numpy(bool) & np.isnan(value)
        was_seen_longer = rows.columns["seen"].to_numpy(np.float64) > limit
        missed |= is_open & was_seen_longer
        undecided = is_open & ~was_seen_longer
    return {"met": met, "missed": missed, "undecided": undecided, "n_negative": value < 0}


def _summarize(sums: SpanSums, target: float) -> pd.DataFrame:
    n = sums.sums["met"] + sums.sums["missed"]
    rates = rate_columns(sums, "met", _DECIDED).rename(columns={"rate": "share"})
    used = _divide(sums.sums["missed"].to_numpy(np.float64), (1 - target) * n.to_numpy(np.float64))
    budget = pd.DataFrame({"budget_used": used, "budget_remaining": 1 - used}, rates.index)
    return pd.concat([n.rename("n"), sums.sums, rates, budget], axis=1)


def _spread_budget(summary: pd.DataFrame, target: float, n_buckets: int) -> pd.DataFrame:
    """Return the buckets of each group with the parts of the budget of all its buckets together."""
    shape = (-1, max(n_buckets, 1))  # groups x buckets
    n = summary["n"].to_numpy(np.float64).reshape(shape)
    missed = summary["missed"].to_numpy(np.float64).reshape(shape)
    used = _divide(missed, (1 - target) * n.sum(axis=1, keepdims=True))
    remaining = 1 - used.cumsum(axis=1)
    return summary.assign(budget_used=used.ravel(), budget_remaining=remaining.ravel())


def _divide(dividend: Floats, divisor: Floats) -> Floats:
    """Divide numbers; NaN if the divisor is 0."""
    unknown = np.full(dividend.shape, np.nan)
    quotient: Floats = np.divide(dividend, divisor, out=unknown, where=divisor > 0)
    return quotient
