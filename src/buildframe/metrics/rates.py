"""Compute success rates with confidence intervals, and throughput."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import NAT, Flags, Floats, check_are_builds, first_and_last
from buildframe.metrics.confidence import design_effect, size_for_interval
from buildframe.metrics.durations import BLOCKED, is_blocked
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.input_frames import Frame, RowGroups, column_names, read_rows
from buildframe.metrics.measured_rows import to_numbers
from buildframe.metrics.percentiles import CONFIDENCE
from buildframe.metrics.row_flags import equals, is_set
from buildframe.metrics.span_sums import SpanSums, sum_by_bucket, sum_by_span
from buildframe.metrics.time_buckets import Buckets
from buildframe.metrics.validation import check_states
from buildframe.terminal import show

_SETTLED = ["passed", "failed"]
"""States of builds that a success rate counts."""

_THROUGHPUT_NEEDS = ["created_at", "finished_at", "fetched_at"]


@checked_names
def success_rate(builds: Frame, by: By = None) -> pd.DataFrame:
    """
    Compute the share of builds that passed, with a 95 % interval that holds for dependent builds.

    The share is `passed / (passed + failed)`. Canceled, skipped, running and waiting builds count
    in neither. Blocked builds count in neither, too, because their state is only the last one they
    had.

    Parameters
    ----------
    builds : DataFrame
        Builds of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `state`,
        `blocked` and `created_at`.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key. An empty frame gives no rows. After the keys:

        =========== ======= ===============================================================
        passed      Int64   builds that passed
        failed      Int64   builds that failed
        n           Int64   `passed + failed`
        rate        float64 `passed / n`; NaN if `n` is 0
        low, high   float64 95 % interval; NaN with builds in fewer than five of the eight spans of
                            time, see Notes
        n_effective float64 number of independent builds with the same information; NaN as the
                            interval
        =========== ======= ===============================================================

    Raises
    ------
    BadInput
        If a column is missing, `created_at` has no time zone, or `state` holds states in an unknown
        spelling such as "Passed" or "success", which would count in neither. A new state of the
        service beside known ones is accepted.

    See Also
    --------
    success_trend : The same per bucket of time.
    build_success_change : Compare two periods.

    Notes
    -----
    Builds of one day break together, so a hundred builds may say as much as twenty independent
    ones. The time from the first to the last build of a group is split into eight almost equal
    spans. How much the rate varies between them shows the design effect, as in the method of batch
    means [1]_: `n_effective` is `n` divided by it, and at most `n`. With this number, corrected for
    the few spans by Student's t [2]_, the interval is Wilson's [3]_.

    In simulations of 7 to 28 days with 15 builds a day, nominal 95 % intervals contain the true
    rate in 94 to 99 % of cases, for rates of .5 to .99 and with a correlation of up to .15 within
    days. Intervals that take builds for independent do so in 71 to 77 % of cases with that
    correlation. Dependence that lasts longer than the frame, such as a trend, does not show.

    References
    ----------
    .. [1] Schmeiser, B. (1982). Operations Research 30, 556-568.
    .. [2] Korn, E. L., and Graubard, B. I. (1998). Survey Methodology 24, 193-201.
    .. [3] Wilson, E. B. (1927). Journal of the American Statistical Association 22, 209-212.

    Examples
    --------
    >>> metrics.success_rate(builds, by="pipeline").round(3)
       pipeline  passed  failed   n   rate    low   high  n_effective
    0       api      25       5  30  0.833  0.624  0.938       30.000
    1   billing      10       1  11  0.909  0.534  0.989       10.583
    2      data      15       3  18  0.833  0.556  0.952       18.000
    3      docs      10       1  11  0.909  0.491  0.990       11.000
    4    mobile      20       2  22  0.909  0.612  0.984       16.080
    5  platform      15       6  21  0.714  0.449  0.885       21.000
    6   release       3       0   3  1.000    NaN    NaN          NaN
    7       web      30       9  39  0.769  0.462  0.928       14.733
    """
    check_states(builds, "state")
    check_are_builds(column_names(builds), "success_rate")
    by = spark_keys(builds, by)
    return summarize_groups(builds, functools.partial(_success_rate, by), by)


def _success_rate(by: By, builds: Frame) -> pd.DataFrame:
    rows = read_rows(builds, _flag_settled, ["state", "blocked", "created_at"], by=by)
    sums = sum_by_span(rows, "created_at", _settled_flags(rows), _SETTLED)
    return join_keys(rows.keys, _with_rates(sums))


def _flag_settled(builds: pd.DataFrame) -> pd.DataFrame:
    """Return which builds passed and which failed, unless they are blocked, and their times."""
    is_final = ~is_set(builds, "blocked")  # a blocked build only has the last state it had
    rows = {state: is_final & equals(builds, "state", state) for state in _SETTLED}
    names = [name for name in ("created_at", "fetched_at") if name in builds]
    times = {name: to_numbers(builds[name]) for name in names}
    return pd.DataFrame(rows | times, builds.index, copy=False)


def _settled_flags(rows: RowGroups) -> dict[str, Flags]:
    return {state: rows.columns[state].to_numpy(bool) for state in _SETTLED}


@checked_names
def success_trend(builds: Frame, freq: str = "1D", tz: str = "UTC") -> pd.DataFrame:
    """
    Compute `success_rate` per bucket of time, by creation of the builds.

    Parameters
    ----------
    builds : DataFrame
        Builds of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `state`,
        `blocked`, `created_at` and `fetched_at`.
    freq : str, default "1D"
        Length of a bucket as a pandas frequency that names its start: "1h", "1D", "W-MON", "MS" or
        "QS".
    tz : str, default "UTC"
        Time zone in which buckets start.

    Returns
    -------
    pandas.DataFrame
        One row per bucket, in order. An empty frame gives no rows. The columns are those of
        `success_rate` between

        ======= ================== =================================================================
        bucket  datetime64[us, tz] start of the bucket
        partial boolean            the bucket was not over at the latest `fetched_at`; null if
                                   unknown
        ======= ================== =================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `state` holds states in an unknown
        spelling, or `freq` or `tz` is invalid.

    See Also
    --------
    success_rate : The same per group, with details on the intervals.
    trend : Percentiles of a duration per bucket.

    Notes
    -----
    The intervals are those of `success_rate`, with eight spans of each bucket. They say how well a
    bucket's own rate is known, not whether the next bucket will be alike.

    Examples
    --------
    >>> by_day = metrics.success_trend(builds)
    >>> by_day[["bucket", "passed", "n", "rate", "partial"]].round({"rate": 2})
                         bucket  passed   n  rate  partial
    0 2026-10-26 00:00:00+00:00      22  24  0.92    False
    1 2026-10-27 00:00:00+00:00      22  26  0.85    False
    2 2026-10-28 00:00:00+00:00      20  31  0.65    False
    3 2026-10-29 00:00:00+00:00      26  29  0.90    False
    4 2026-10-30 00:00:00+00:00      25  29  0.86    False
    5 2026-10-31 00:00:00+00:00       8   8  1.00    False
    6 2026-11-01 00:00:00+00:00       5   8  0.62    False
    """
    check_states(builds, "state")
    check_are_builds(column_names(builds), "success_trend")
    return summarize_groups(builds, functools.partial(_success_trend, freq, tz))


def _success_trend(freq: str, tz: str, builds: Frame) -> pd.DataFrame:
    rows = read_rows(builds, _flag_settled, ["state", "blocked", "created_at", "fetched_at"])
    limits = first_and_last(rows.columns["created_at"].to_numpy())
    _, fetched = first_and_last(rows.columns["fetched_at"].to_numpy())
    buckets = Buckets.between([limits], freq, tz, fetched)
    sums = sum_by_bucket(rows, buckets, "created_at", _settled_flags(rows), _SETTLED)
    return buckets.with_starts(_with_rates(sums))


@checked_names
def throughput(builds: Frame, freq: str = "1D", tz: str = "UTC") -> pd.DataFrame:
    """
    Count builds that were created and builds that finished, per bucket of time.

    Parameters
    ----------
    builds : DataFrame
        Builds of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `created_at`,
        `finished_at` and `fetched_at`.
    freq : str, default "1D"
        Length of a bucket as a pandas frequency that names its start: "1h", "1D", "W-MON", "MS" or
        "QS".
    tz : str, default "UTC"
        Time zone in which buckets start.

    Returns
    -------
    pandas.DataFrame
        One row per bucket, from the first creation to the last creation or end. An empty frame
        gives no rows.

        ======= ================== =================================================================
        bucket  datetime64[us, tz] start of the bucket
        demand  Int64              builds created in the bucket
        served  Int64              builds of any outcome that finished in the bucket
        partial boolean            the bucket was not over at the latest `fetched_at`; null if
                                   unknown
        ======= ================== =================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `freq` or `tz` is invalid.

    Notes
    -----
    Builds that have not ended count in `demand` only, and so do blocked builds (see `wall_time`).
    In the first buckets `served` lacks builds that were created before the frame begins.

    Examples
    --------
    >>> metrics.throughput(builds)
                         bucket  demand  served  partial
    0 2026-10-26 00:00:00+00:00      25      25    False
    1 2026-10-27 00:00:00+00:00      26      26    False
    2 2026-10-28 00:00:00+00:00      33      30    False
    3 2026-10-29 00:00:00+00:00      30      32    False
    4 2026-10-30 00:00:00+00:00      29      29    False
    5 2026-10-31 00:00:00+00:00       8       8    False
    6 2026-11-01 00:00:00+00:00       8       8    False
    """
    check_are_builds(column_names(builds), "throughput")
    return summarize_groups(builds, functools.partial(_throughput, freq, tz))


def _throughput(freq: str, tz: str, builds: Frame) -> pd.DataFrame:
    times = read_rows(builds, _find_times, _THROUGHPUT_NEEDS, BLOCKED).columns
    created, finished, fetched = (times[name].to_numpy(np.int64) for name in _THROUGHPUT_NEEDS)
    _, last_fetched = first_and_last(fetched)
    limits = [first_and_last(created), first_and_last(finished)]
    buckets = Buckets.between(limits, freq, tz, last_fetched)
    counts = {"demand": buckets.count(created), "served": buckets.count(finished)}
    return buckets.with_starts(pd.DataFrame(counts, dtype="Int64"))


def _find_times(builds: pd.DataFrame) -> pd.DataFrame:
    """Return the times of builds in microseconds; blocked ones have not finished."""
    times = {name: to_numbers(builds[name]) for name in _THROUGHPUT_NEEDS}
    times["finished_at"] = np.where(is_blocked(builds), NAT, times["finished_at"])
    return pd.DataFrame(times, builds.index, copy=False)


def rate_columns(sums: SpanSums, hits: str, trials: Sequence[str]) -> pd.DataFrame:
    """Compute `rate`, `low`, `high` and `n_effective` (float64) of groups with dependent trials.

    `hits` is the column that counts hits. The columns `trials` together count the trials.
    """
    n_trials = np.sum([sums.sums[name].to_numpy(np.float64) for name in trials], axis=0)
    trials_in_spans = np.sum([sums.spans[name] for name in trials], axis=0)
    hits_in_spans = sums.spans[hits].astype(np.float64)
    rate = shares(sums.sums[hits], n_trials)
    effect = design_effect(trials_in_spans, hits_in_spans, rate * (1 - rate))
    n_effective = n_trials / effect
    size = size_for_interval(n_effective, trials_in_spans, CONFIDENCE)
    low, high = wilson(rate * size, size, CONFIDENCE)
    columns = {"rate": rate, "low": low, "high": high, "n_effective": n_effective}
    return pd.DataFrame(columns, sums.sums.index)


def wilson(
    successes: npt.ArrayLike,
    n: npt.ArrayLike,
    confidence: float = CONFIDENCE,
) -> tuple[Floats, Floats]:
    """Compute the score interval of a proportion [1]_; NaN if `n` is 0 or a count is unknown.

    Trials are independent, or `n` is the number of independent ones with the same information.

    References
    ----------
    .. [1] Wilson, E. B. (1927). Journal of the American Statistical Association 22, 209-212.
    """
    if not isinstance(confidence, float) or not 0 < confidence < 1 - 1e-12:
        problem = f"confidence={show(confidence)} is not a fraction between 0 and 1."
        raise BadInput(f"{problem} Use one such as 0.95.")
    x = np.asarray(successes, np.float64)
    size = np.asarray(n, np.float64)
    size = np.where(size > 0, size, np.nan)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = (x + z**2 / 2) / (size + z**2)
    half = z * np.sqrt(x * (size - x) / size + z**2 / 4) / (size + z**2)
    high = np.where(x == size, 1.0, middle + half)  # rounding errors would give 1 + 2e-16
    return np.asarray(middle - half), high


def shares(hits: npt.ArrayLike, n: npt.ArrayLike) -> Floats:
    """Compute hits per trial; NaN if n is 0."""
    with np.errstate(invalid="ignore"):
        return np.asarray(np.asarray(hits, np.float64) / np.asarray(n, np.float64))


def _with_rates(sums: SpanSums) -> pd.DataFrame:
    """Return how many builds passed and failed, and the columns of `rate_columns`."""
    n = sums.sums["passed"] + sums.sums["failed"]
    return pd.concat([sums.sums.assign(n=n), rate_columns(sums, "passed", _SETTLED)], axis=1)
