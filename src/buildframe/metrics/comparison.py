"""Compare rates between two periods, with intervals that allow for dependence within days."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.clustering import Level, Segments, Spread, effective_sizes, subtract
from buildframe.metrics.columns import Flags, Floats, Integers, first_and_last
from buildframe.metrics.discoveries import are_notable
from buildframe.metrics.durations import is_script
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, as_key_list, join_keys, number_groups
from buildframe.metrics.input_frames import Frame, RowGroups, is_spark, read_rows, time_limits
from buildframe.metrics.measured_rows import to_numbers
from buildframe.metrics.percentiles import CONFIDENCE
from buildframe.metrics.rates import shares, wilson
from buildframe.metrics.row_flags import equals, has_failed_hard, is_set
from buildframe.metrics.time_buckets import Buckets
from buildframe.metrics.validation import check_order, check_states


@checked_names
def build_success_change(
    before: Frame,
    after: Frame,
    by: By = None,
    at: str = "created_at",
    tz: str = "UTC",
    confidence: float = 0.95,
    *,
    allow_reversed: bool = False,
) -> pd.DataFrame:
    """
    Compare success rates between two periods.

    Parameters
    ----------
    before : DataFrame
        Builds of the earlier period: pandas, Polars (eager or lazy), DuckDB or PySpark. Needs the
        columns `state`, `blocked` and `at`.
    after : DataFrame
        Builds of the later period. No build may be in both.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
    at : str, default "created_at"
        Column of timestamps that assigns builds to days.
    tz : str, default "UTC"
        Time zone of the days.
    confidence : float, default 0.95
        Confidence level of the interval of the change, as a fraction in (0, 1).
    allow_reversed : bool, default False
        Compare frames that overlap or are in the other order, as in `percentile_change`.

    Returns
    -------
    pandas.DataFrame
        One row per group of either period, ordered by key, null keys last. After the keys:

        ======================= ======= ===========================================================
        passed, n               Int64   builds that passed, and that passed or failed
        passed_before, n_before Int64   the same for `before`
        rate, rate_before       float64 `passed / n`; NaN if `n` is 0
        rate_low, rate_high     float64 95 % interval of `rate`; NaN with too few days
        change                  float64 `rate - rate_before`
        low, high               float64 interval of `change`; NaN with too few days
        p                       float64 two-sided p-value of `change`, without regard to other
                                        groups
        notable                 boolean the change remains significant among all groups;
                                        False without an interval
        ======================= ======= ===========================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `state` holds states in an unknown
        spelling, `tz` or `confidence` is invalid, or the times of the frames overlap or are in the
        other order.

    See Also
    --------
    success_rate : The definition of the rate.
    job_failure_change : The same for jobs.

    Notes
    -----
    Intervals use an effective number of builds from the variance between days [1]_ in place of `n`.
    Single days, days that depend on the day before, `p` and `notable` are as in
    `percentile_change`.

    References
    ----------
    .. [1] Korn, E. L., and Graubard, B. I. (1998). Survey Methodology 24, 193-201.

    Examples
    --------
    >>> is_now = builds["created_at"] >= "2026-10-29"
    >>> change = metrics.build_success_change(builds[~is_now], builds[is_now])
    >>> change[["rate", "rate_before", "change", "low", "high"]].round(3)
        rate  rate_before  change    low   high
    0  0.865         0.79   0.075 -0.149  0.286
    """
    passed = _Share("passed", ("state", "blocked"), _flag_passed)
    result = _compare_shares(passed, before, after, by, at, tz, confidence)
    check_order(before, after, at, allow_reversed=allow_reversed)
    return result


@checked_names
def job_failure_change(
    before: Frame,
    after: Frame,
    by: By = None,
    at: str = "finished_at",
    tz: str = "UTC",
    confidence: float = 0.95,
    *,
    allow_reversed: bool = False,
) -> pd.DataFrame:
    """
    Compare the share of executions that fail between two periods.

    Script jobs that passed or failed hard (failed or timed out, not softly) count, attempt by
    attempt. Canceled, skipped and unfinished jobs do not.

    Parameters
    ----------
    before : DataFrame
        Jobs of the earlier period: pandas, Polars (eager or lazy), DuckDB or PySpark. Needs the
        columns `type`, `state`, `soft_failed` and `at`.
    after : DataFrame
        Jobs of the later period. No job may be in both.
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
    at : str, default "finished_at"
        Column of timestamps that assigns jobs to days.
    tz : str, default "UTC"
        Time zone of the days.
    confidence : float, default 0.95
        Confidence level of the interval of the change, as a fraction in (0, 1).
    allow_reversed : bool, default False
        Compare frames that overlap or are in the other order, as in `percentile_change`.

    Returns
    -------
    pandas.DataFrame
        One row per group of either period with script jobs, ordered by key, null keys last. After
        the keys:

        ======================= ======= ===========================================================
        failed, n               Int64   jobs that failed hard, and that passed or failed hard
        failed_before, n_before Int64   the same for `before`
        rate, rate_before       float64 `failed / n`; NaN if `n` is 0
        rate_low, rate_high     float64 95 % interval of `rate`; NaN with too few days
        change                  float64 `rate - rate_before`
        low, high               float64 interval of `change`; NaN with too few days
        p                       float64 two-sided p-value of `change`, without regard to other
                                        groups
        notable                 boolean the change remains significant among all groups;
                                        False without an interval
        ======================= ======= ===========================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `state` holds states in an unknown
        spelling, `tz` or `confidence` is invalid, or the times of the frames overlap or are in the
        other order.

    See Also
    --------
    build_success_change : The same for builds, with notes on the intervals.

    Examples
    --------
    >>> is_now = jobs["build_created_at"] >= "2026-10-29"
    >>> change = metrics.job_failure_change(jobs[~is_now], jobs[is_now], by="queue")
    >>> change[["queue", "failed", "n", "change"]].round(3)
         queue  failed     n  change
    0  default      19  1005  -0.003
    1   deploy       2    21   0.095
    2   docker       2    66  -0.017
    3    macos       0    85  -0.013
    """
    failed = _Share("failed", ("type", "state", "soft_failed"), _flag_failed)
    result = _compare_shares(failed, before, after, by, at, tz, confidence)
    check_order(before, after, at, allow_reversed=allow_reversed)
    return result


def newcombe(
    successes: npt.ArrayLike,
    n: npt.ArrayLike,
    successes_before: npt.ArrayLike,
    n_before: npt.ArrayLike,
    confidence: float = CONFIDENCE,
) -> tuple[Floats, Floats, Floats]:
    """Compute the difference of two independent proportions, with the ends of its interval.

    It combines the Wilson intervals of both (method 10 of Newcombe, R. G. (1998). Statistics in
    Medicine 17, 873-890). NaN if an n is 0 or a count is unknown.
    """
    interval = wilson(successes, n, confidence)
    interval_before = wilson(successes_before, n_before, confidence)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.asarray(successes, np.float64) / np.asarray(n, np.float64)
        rate_before = np.asarray(successes_before, np.float64) / np.asarray(n_before, np.float64)
    change = subtract(Level(rate, *interval), Level(rate_before, *interval_before))
    return change.value, change.low, change.high


def number_days(
    rows: RowGroups,
    at: str,
    tz: str,
    limits: Sequence[tuple[int, int]] | None,
) -> tuple[Integers, int]:
    """Return the number of each row's day in the zone, and that of days.

    Rows without a time are a day of their own. `limits` are those of the frame if it is divided.
    """
    times = rows.columns[at].to_numpy(np.int64)
    buckets = Buckets.between(limits or [first_and_last(times)], "1D", tz)
    return buckets.numbers_of(times), len(buckets) + 1


def read_spread(period: pd.DataFrame, prefix: str = "") -> Spread:
    """Return the columns of a spread, which nulls mean to have no rows."""
    columns = [f"{prefix}{name}" for name in Spread._fields]
    rows, days, ratio = period[columns].to_numpy(np.float64, na_value=np.nan).T
    return Spread(np.nan_to_num(rows), np.nan_to_num(days), ratio)


def compute_p(change: Level, freedom: Floats, confidence: float) -> Floats:
    """Return the two-sided p-value at which an interval of this shape would end at 0.

    NaN without an interval.
    """
    from scipy.special import stdtr, stdtrit

    freedom = np.minimum(freedom, 1e9)
    value, low, high = change
    margin = np.where(value > 0, value - low, high - value)
    student_t = stdtrit(freedom, (1 + confidence) / 2)
    with np.errstate(invalid="ignore", divide="ignore"):
        p: Floats = 2 * stdtr(freedom, -np.abs(value) / margin * student_t)
    return p


class _Share(NamedTuple):
    """A share of rows. `name` is the column that counts its hits.

    `flag_rows` receives the column of times and a frame with the columns `needs`, and returns the
    rows that form groups, with the columns of `_flag`.
    """

    name: str
    needs: tuple[str, ...]
    flag_rows: Callable[[str, pd.DataFrame], pd.DataFrame]


def _flag(rows: pd.DataFrame, at: str, is_hit: Flags, is_miss: Flags) -> pd.DataFrame:
    columns = {"is hit": is_hit, "is counted": is_hit | is_miss, at: to_numbers(rows[at])}
    return pd.DataFrame(columns, rows.index, copy=False)


def _flag_passed(at: str, builds: pd.DataFrame) -> pd.DataFrame:
    is_settled = ~is_set(builds, "blocked")
    has_passed = is_settled & equals(builds, "state", "passed")
    has_failed = is_settled & equals(builds, "state", "failed")
    return _flag(builds, at, has_passed, has_failed)


def _flag_failed(at: str, jobs: pd.DataFrame) -> pd.DataFrame:
    scripts = jobs[is_script(jobs)]
    return _flag(scripts, at, has_failed_hard(scripts), equals(scripts, "state", "passed"))


def _compare_shares(
    share: _Share, before: Frame, after: Frame, by: By, at: str, tz: str, confidence: float
) -> pd.DataFrame:
    """Compare a share of rows between two periods."""
    measured = _measure_shares(after, share, by, at, tz)
    measured_before = _measure_shares(before, share, by, at, tz)
    wilson(0, 1, confidence)  # raises BadInput for an invalid confidence
    keys = join_groups(measured, measured_before, by)
    now = align_groups(measured, keys)
    then = align_groups(measured_before, keys)
    columns: dict[str, Any] = {
        share.name: now["hits"].fillna(0),
        "n": now["n"].fillna(0),
        f"{share.name}_before": then["hits"].fillna(0),
        "n_before": then["n"].fillna(0),
    }
    rate = shares(columns[share.name], columns["n"])
    rate_before = shares(columns[f"{share.name}_before"], columns["n_before"])
    spread = read_spread(now)
    spread_before = read_spread(then)
    size, size_before, freedom = effective_sizes(spread, spread_before, confidence)
    _, low, high = newcombe(rate * size, size, rate_before * size_before, size_before, confidence)
    change = Level(rate - rate_before, low, high)
    p = compute_p(change, freedom, confidence)
    usual_size, _, _ = effective_sizes(spread, spread_before, CONFIDENCE)
    rate_low, rate_high = wilson(rate * usual_size, usual_size, CONFIDENCE)
    columns |= {
        "rate": rate,
        "rate_low": rate_low,
        "rate_high": rate_high,
        "rate_before": rate_before,
        "change": change.value,
        "low": low,
        "high": high,
        "p": p,
        "notable": pd.array(are_notable(p), "boolean"),
    }
    return join_keys(keys, pd.DataFrame(columns, index=keys.index))


def _measure_shares(frame: Frame, share: _Share, by: By, at: str, tz: str) -> pd.DataFrame:
    """Count `hits` and rows `n` of each group, and measure how they spread over days."""
    check_states(frame, "state")
    by = spark_keys(frame, by)
    limits = time_limits(frame, [at]) if is_spark(frame) else None
    return summarize_groups(frame, functools.partial(_sum_days, share, by, at, tz, limits), by)


def _sum_days(
    share: _Share, by: By, at: str, tz: str, limits: Sequence[tuple[int, int]] | None, frame: Frame
) -> pd.DataFrame:
    rows = read_rows(frame, functools.partial(share.flag_rows, at), [*share.needs, at], (), by)
    day, _ = number_days(rows, at, tz, limits)
    is_counted = rows.columns["is counted"].to_numpy(bool)
    is_hit = rows.columns["is hit"].to_numpy(bool)[is_counted]
    day_of_group = pd.DataFrame({"group": rows.codes, "day": day})[is_counted]
    codes, days = number_groups(day_of_group)
    n = np.bincount(codes, minlength=len(days)).astype(np.float64)
    hits = np.bincount(codes[is_hit], minlength=len(days)).astype(np.float64)
    segments = Segments(days["group"].to_numpy(np.int64), n, hits, len(rows.keys))
    counts = pd.DataFrame({"hits": segments.total(hits), "n": segments.total(n)}).astype("Int64")
    return join_keys(rows.keys, counts.assign(**segments.spread()._asdict()))


def join_groups(one: pd.DataFrame, other: pd.DataFrame, by: By) -> pd.DataFrame:
    """Return the keys of the groups of two tables, in order."""
    names = list(one.columns[: len(as_key_list(by))])
    if not names:
        return pd.DataFrame(index=range(max(len(one), len(other))))
    keys = pd.concat([one[names], other[names]]).drop_duplicates()
    return keys.sort_values(names, na_position="last", ignore_index=True)


def align_groups(table: pd.DataFrame, keys: pd.DataFrame) -> pd.DataFrame:
    """Return the row of each group in a table with the columns of the keys; nulls without one."""
    if keys.columns.empty:
        return table.reindex(range(len(keys)))
    return keys.merge(table, how="left", on=list(keys.columns))
