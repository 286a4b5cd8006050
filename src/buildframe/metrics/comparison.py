"""Compare two periods: differences of percentiles and rates, with intervals that allow for dependence within days."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.change_levels import Level, subtract
from buildframe.metrics.clustering import Spread, effective_sizes, measure_ratio, measure_spread, sum_by_day, with_days
from buildframe.metrics.columns import Floats, Integers
from buildframe.metrics.confidence import share_interval
from buildframe.metrics.discoveries import are_notable
from buildframe.metrics.durations import RowMetric, span_of, wall_time
from buildframe.metrics.engines import engine_of, expressions
from buildframe.metrics.engines.rows import GROUP, Frame, GroupedRows, GroupSums, RankedFunction, RankedRows, SplitBy
from buildframe.metrics.estimates import Sample
from buildframe.metrics.grouping import By, as_key_list, join_keys
from buildframe.metrics.percentiles import (
    CONFIDENCE,
    COUNTS,
    check_percentiles,
    percentile_label,
)
from buildframe.metrics.rates import shares, wilson
from buildframe.metrics.validation import check_finite, check_order, check_states


class MeasuredGroups(NamedTuple):
    """Measured rows of groups, their counts, what was measured, and by what they are split."""

    rows: GroupedRows
    counts: GroupSums
    of: RowMetric | str
    at: SplitBy


def count_rows(rows: GroupedRows, of: RowMetric | str, at: SplitBy) -> GroupSums:
    """Count rows with a duration, censored rows (null if unknown) and negative durations per group."""
    if span_of(of) is None:
        check_finite(rows)
    counts = rows.engine.count_values(rows, span_of(of) if "censored" in rows.frame.columns else None, at)
    unknown = pd.Series(pd.NA, counts.sums.index, dtype="Int64")
    return replace(counts, sums=counts.sums.assign(n_censored=counts.sums.get("n_censored", unknown))[COUNTS])


def map_ranked(groups: MeasuredGroups, of: RankedFunction) -> Floats:
    """Apply `of` to the ranked rows."""
    span = span_of(groups.of) if groups.counts.sums["n_censored"].sum() else None
    return groups.rows.engine.map_ranked(groups.rows, groups.counts, of, span, groups.at)


_SPREAD = ["rows", "days", "ratio"]
_JEFFREYS = 0.5
"""Correction of intervals of shares: Wilson's would be too short for single days, exact ones too long."""

_AT_LEAST = " at least"
_LOCATED = ("", _AT_LEAST, *(f" {name}" for name in _SPREAD))
"""What is known of each percentile of a period: its value, a lower bound, and the spread of the rows up to it."""


@checked_names
def percentile_change(
    before: Frame,
    after: Frame,
    of: RowMetric | str = wall_time,
    by: By = None,
    q: float | Sequence[float] = 0.5,
    at: str = "created_at",
    tz: str = "UTC",
    confidence: float = 0.95,
    *,
    allow_reversed: bool = False,
) -> pd.DataFrame:
    """
    Compare percentiles of a duration between two periods.

    Parameters
    ----------
    before : DataFrame
        Rows of the earlier period: pandas, Polars (eager or lazy), DuckDB relation or PySpark.
        Needs the column `at` and the columns that `of` needs.
    after : DataFrame
        Rows of the later period. No row may be in both.
    of : row metric or str, default wall_time
        Duration to compare: a row metric such as `run_time`, or a column of timedeltas or of seconds (`..._s`).
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
    q : float or sequence of float, default 0.5
        Percentiles as fractions in (0, 1).
    at : str, default "created_at"
        Column of timestamps that assigns rows to days.
    tz : str, default "UTC"
        Time zone of the days.
    confidence : float, default 0.95
        Confidence level of the interval of the change, as a fraction in (0, 1).
    allow_reversed : bool, default False
        Compare frames whose times overlap, or whose `before` is later. By default both are refused,
        because swapped frames turn a regression into an improvement.

    Returns
    -------
    pandas.DataFrame
        One row per group of either period, ordered by key, null keys last. After the keys:

        ========================================== ======= ==================================================
        n, n_censored, n_negative                  Int64   as in `percentiles`; 0 if the group is only in
                                                           `before`; these are the rows of `after`
        n_before, n_censored_before,               Int64   the same for `before`
        n_negative_before
        p50_s, p50_before_s                        float64 percentiles in seconds; NaN with too few rows, or too
                                                           many that are censored
        p50_low_s, p50_high_s                      float64 95 % interval of `p50_s`
        p50_at_least_s, p50_before_at_least_s      float64 lower bounds of the percentiles in seconds, see
                                                           `percentiles`; NaN if the percentiles are known, or
                                                           with too few rows
        p50_change_s                               float64 `p50_s - p50_before_s`: above 0 if it became slower
        p50_change_low_s, p50_change_high_s        float64 interval of the change; NaN with too few days or rows
        p50_change_p                               float64 two-sided p-value of the change, without regard to other
                                                           groups; NaN without an interval
        p50_notable                                boolean the change remains significant among all groups;
                                                           False without an interval
        ========================================== ======= ==================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `of`, `q`, `tz` or `confidence` is
        invalid, or the times of the frames overlap or are in the other order.

    See Also
    --------
    build_success_change : Compare success rates.
    change_points : Find when a duration changed.

    Notes
    -----
    In each period the share of rows up to the percentile has Jeffreys's interval with an effective number of rows from
    the variance between days [1]_. The durations at its ends enclose the percentile [2]_. The interval of the
    difference adds the distances to the ends of both as squares [3]_.

    As soon as one row of a group is censored, its percentiles and their intervals come from the curve of Kaplan and
    Meier, as in `percentiles`. A censored row of an earlier time than the percentile counts as the share that would
    have ended by then. If too many rows are censored for one of the percentiles, the change has no value and no p.

    In simulations with up to a fifth of the rows censored and days that differ, nominal 95 % intervals cover the change
    in 93 to 99 % of worlds. It is assumed that censored rows would have lasted as long as others that lasted as long.
    Days are taken as independent: if they correlate by .3 from one day to the next, intervals cover the change in 89 %
    of worlds, and p is below .05 in 11 % of those without any; at .6 it is 71 to 75 %, and 25 to 29 %.

    A period may be a single day: the other period and the other groups then show how much days vary. That needs six
    days or so, and assumes that the day varies as they do. If all durations of a day are longer or shorter, it is worth
    a few independent rows, and shows only large changes.

    The p-value belongs to the interval: it is below .05 if the 95 % interval excludes 0. With many groups some
    intervals exclude 0 by chance. Of the changes marked as `notable`, 5 % are found by chance [4]_.

    References
    ----------
    .. [1] Korn, E. L., and Graubard, B. I. (1998). Survey Methodology 24, 193-201.
    .. [2] Woodruff, R. S. (1952). Journal of the American Statistical Association 47, 635-646.
    .. [3] Zou, G. Y., and Donner, A. (2008). Statistics in Medicine 27, 1693-1702.
    .. [4] Benjamini, Y., and Hochberg, Y. (1995). Journal of the Royal Statistical Society B 57, 289-300.

    Examples
    --------
    >>> is_now = builds["created_at"] >= "2026-10-29"
    >>> change = metrics.percentile_change(builds[~is_now], builds[is_now])
    >>> change[["n", "n_before", "p50_change_s", "p50_change_low_s", "p50_change_high_s"]].round(0)
        n  n_before  p50_change_s  p50_change_low_s  p50_change_high_s
    0  75        83          22.0            -147.0              230.0
    """
    q = check_percentiles(q)
    wilson(0, 1, confidence)  # raises BadInput for an invalid confidence
    sides = [_Side.of(frame, of, by, q, at, tz) for frame in (after, before)]
    check_order(before, after, at, allow_reversed=allow_reversed)
    keys, one, other = _align_groups(sides[0].table, sides[1].table, by)
    columns: dict[str, Any] = {name: one[name].fillna(0) for name in COUNTS}
    columns |= {f"{name}_before": other[name].fillna(0) for name in COUNTS}
    columns |= _compute_changes(sides, (one, other), q, confidence)
    return join_keys(keys, pd.DataFrame(columns, index=keys.index))


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
        p                       float64 two-sided p-value of `change`, without regard to other groups
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
    newcombe : The interval of the change from counts.

    Notes
    -----
    Intervals use an effective number of builds from the variance between days [1]_ in place of `n`. Single days, days
    that depend on the day before, `p` and `notable` are as in `percentile_change`.

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
    passed = _ShareOfRows(
        name="passed",
        needs=("state", "blocked"),
        hits=expressions.IS_SETTLED & expressions.HAS_PASSED,
        trials=expressions.IS_SETTLED & (expressions.HAS_PASSED | expressions.HAS_FAILED),
    )
    shares = _compare_shares(passed, before, after, by, at, tz, confidence)
    check_order(before, after, at, allow_reversed=allow_reversed)
    return shares


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

    Script jobs that passed or failed hard (failed or timed out, not softly) count, attempt by attempt. Canceled,
    skipped and unfinished jobs do not.

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
        One row per group of either period with script jobs, ordered by key, null keys last. After the keys:

        ======================= ======= ===========================================================
        failed, n               Int64   jobs that failed hard, and that passed or failed hard
        failed_before, n_before Int64   the same for `before`
        rate, rate_before       float64 `failed / n`; NaN if `n` is 0
        rate_low, rate_high     float64 95 % interval of `rate`; NaN with too few days
        change                  float64 `rate - rate_before`
        low, high               float64 interval of `change`; NaN with too few days
        p                       float64 two-sided p-value of `change`, without regard to other groups
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
    failed = _ShareOfRows(
        name="failed",
        needs=("type", "state", "soft_failed"),
        hits=expressions.HAS_FAILED_HARD,
        trials=expressions.HAS_FAILED_HARD | expressions.HAS_PASSED,
        only=expressions.IS_SCRIPT,
    )
    shares = _compare_shares(failed, before, after, by, at, tz, confidence)
    check_order(before, after, at, allow_reversed=allow_reversed)
    return shares


@checked_names
def newcombe(
    successes: npt.ArrayLike,
    n: npt.ArrayLike,
    successes_before: npt.ArrayLike,
    n_before: npt.ArrayLike,
    confidence: float = 0.95,
) -> tuple[Floats, Floats, Floats]:
    """
    Compute the difference of two independent proportions, with its interval.

    Parameters
    ----------
    successes : array_like of float
        Number of successes of the first sample. NaN if unknown.
    n : array_like of float
        Number of trials of the first sample. NaN if unknown.
    successes_before : array_like of float
        Number of successes of the second sample.
    n_before : array_like of float
        Number of trials of the second sample.
    confidence : float, default 0.95
        Confidence level as a fraction in (0, 1).

    Returns
    -------
    difference, low, high : numpy.ndarray of float64
        First proportion minus second, and the limits of its interval. NaN if an n is 0 or a count is unknown.

    Raises
    ------
    BadInput
        As for `wilson`.

    See Also
    --------
    wilson : Interval of one proportion.

    Notes
    -----
    The interval combines the Wilson intervals of both proportions (method 10 in [1]_).

    References
    ----------
    .. [1] Newcombe, R. G. (1998). Statistics in Medicine 17, 873-890.

    Examples
    --------
    >>> difference, low, high = metrics.newcombe(56, 70, 48, 80)
    >>> round(difference.item(), 4), round(low.item(), 4), round(high.item(), 4)
    (0.2, 0.0524, 0.3339)
    """
    one, other = wilson(successes, n, confidence), wilson(successes_before, n_before, confidence)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.asarray(successes, np.float64) / np.asarray(n, np.float64)
        rate_before = np.asarray(successes_before, np.float64) / np.asarray(n_before, np.float64)
    change = subtract(Level(rate, *one), Level(rate_before, *other))
    return change.value, change.low, change.high


class _ShareOfRows(NamedTuple):
    """A share of rows: how many of the `trials` are `hits`, among rows that `only` matches.

    `name` is the column that counts the hits; `needs` are the columns that the expressions read.
    """

    name: str
    needs: tuple[str, ...]
    hits: nw.Expr
    trials: nw.Expr
    only: nw.Expr | None = None


def _compare_shares(
    share: _ShareOfRows,
    before: Frame,
    after: Frame,
    by: By,
    at: str,
    tz: str,
    confidence: float,
) -> pd.DataFrame:
    """Compare a share of rows between two periods."""
    of_after = _count_shares(after, share, by, at, tz)
    of_before = _count_shares(before, share, by, at, tz)
    return _compare_rates(of_after, of_before, by, share.name, confidence)


def _count_shares(frame: Frame, share: _ShareOfRows, by: By, at: str, tz: str) -> pd.DataFrame:
    """Count hits and trials (`n`) of each group and measure their spread over days."""
    check_states(frame, "state")
    engine = engine_of(frame)
    rows = engine.group_rows(frame, [*share.needs, at], by)
    rows = rows if share.only is None else engine.filter_groups(rows, share.only)
    counted = {"hits": share.hits, "counted": share.trials}
    by_day, _ = with_days(rows.with_columns(**counted), at, tz)
    days, keys = sum_by_day(by_day, *counted)
    days = days[days["counted"] > 0]
    sums = days.groupby(GROUP)[list(counted)].sum().reindex(range(len(keys)), fill_value=0).astype("Int64")
    summary = pd.DataFrame({"hits": sums["hits"], "n": sums["counted"]}).join(_measure_spreads(days, "hits"))
    return join_keys(keys, summary.rename_axis(None))


def _measure_spreads(days: pd.DataFrame, hits: str) -> pd.DataFrame:
    """Measure for each group how the hits spread over days."""
    spread = {group: measure_spread(own[hits], own["counted"]) for group, own in days.groupby(GROUP)}
    return pd.DataFrame.from_dict(spread, orient="index", columns=_SPREAD, dtype="float64")


def _compare_rates(one: pd.DataFrame, other: pd.DataFrame, by: By, hits: str, confidence: float) -> pd.DataFrame:
    """Compute counts and rates of both periods, and the difference."""
    keys, one, other = _align_groups(one, other, by)
    columns: dict[str, Any] = {}
    for end, side in (("", one), ("_before", other)):
        columns |= {f"{hits}{end}": side["hits"].fillna(0), f"n{end}": side["n"].fillna(0)}
    rate, rate_before = (shares(columns[f"{hits}{end}"], columns[f"n{end}"]) for end in ("", "_before"))
    wilson(0, 1, confidence)  # raises BadInput for an invalid confidence
    sizes, sizes_before, freedom = effective_sizes(_read_spread(one), _read_spread(other), confidence)
    _, low, high = newcombe(rate * sizes, sizes, rate_before * sizes_before, sizes_before, confidence)
    p = _compute_p(rate - rate_before, low, high, freedom, confidence)
    sizes, _, _ = effective_sizes(_read_spread(one), _read_spread(other), CONFIDENCE)
    rate_low, rate_high = wilson(rate * sizes, sizes, CONFIDENCE)
    columns |= {"rate": rate, "rate_low": rate_low, "rate_high": rate_high, "rate_before": rate_before}
    notable = pd.array(are_notable(p), "boolean")
    columns |= {"change": rate - rate_before, "low": low, "high": high, "p": p, "notable": notable}
    return join_keys(keys, pd.DataFrame(columns, index=keys.index))


def _read_spread(side: pd.DataFrame, name: str = "") -> Spread:
    rows, days, ratio = (side[f"{name}{column}"].to_numpy(np.float64, na_value=np.nan) for column in _SPREAD)
    return Spread(np.nan_to_num(rows), np.nan_to_num(days), ratio)


@dataclass(frozen=True)
class _Side:
    """One period: its groups, and a `table` of them with their `place`."""

    groups: MeasuredGroups
    table: pd.DataFrame

    @classmethod
    def of(cls, frame: Frame, of: RowMetric | str, by: By, q: tuple[float, ...], at: str, tz: str) -> _Side:
        rows, days = with_days(engine_of(frame).measure(frame, of, by, needs=(at,)), at, tz)
        groups = MeasuredGroups(rows, count_rows(rows, of, days), of, days)
        columns = [f"{percentile_label(p)}{name}" for name in _LOCATED for p in q]
        located = map_ranked(groups, functools.partial(_locate, q))
        measured = pd.DataFrame(located, columns=columns, index=groups.counts.sums.index)
        table = pd.concat([groups.counts.sums, measured], axis=1).assign(place=range(len(measured)))
        return cls(groups, join_keys(groups.counts.keys, table))

    def values_around(self, place: pd.Series[Any], shares: Floats) -> Floats:
        """Return the durations that enclose percentiles of the groups at these places; NaN if a group is missing.

        `shares` has those between which each percentile lies (2 x groups x any), and so has the result.
        """
        is_present = place.notna().to_numpy()
        own = place[is_present].to_numpy(np.int64)
        requested = np.full((2, len(self.table), shares.shape[2]), np.nan)
        requested[:, own] = shares[:, is_present]
        of_groups = map_ranked(self.groups._replace(at=None), functools.partial(_values_around, requested))
        values = np.full(shares.shape, np.nan)
        values[:, is_present] = np.stack(np.split(of_groups[own], 2, axis=1))
        return values


def _locate(q: Sequence[float], rows: RankedRows, _: Integers) -> Floats:
    """Return the columns `_LOCATED` of each percentile.

    The spread is that of the rows up to the percentile. Its rows are as many as would say as much about the percentile
    if none was censored.
    """
    sample = Sample(rows)
    value, at_least, ranks, splits = sample.locate(q, q)
    assert splits is not None
    n, hits, variance = sample.split_hits(ranks, splits)
    share, greenwood = sample.curves.at_ranks(ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        rows_without_censoring = (1 - share) / (share * greenwood)
    days = np.broadcast_to((n > 0).sum(axis=1)[:, None], value.shape)
    spread = (rows_without_censoring, days, measure_ratio(n[:, None], hits, variance))
    return np.concatenate([value, at_least, *(np.where(np.isnan(value), np.nan, one) for one in spread)], axis=1)


def _values_around(shares: Floats, rows: RankedRows, places: Integers) -> Floats:
    return np.concatenate(Sample(rows).values_around(*shares[:, places]), axis=1)


def _compute_changes(
    sides: Sequence[_Side], tables: Sequence[pd.DataFrame], q: Sequence[float], confidence: float
) -> dict[str, Any]:
    """Compute the columns of each percentile."""
    shares: tuple[list[Any], ...] = ([], [])
    freedoms: list[Floats] = []
    for p in q:
        spreads = [_read_spread(table, f"{percentile_label(p)} ") for table in tables]
        *sizes, freedom = effective_sizes(spreads[0], spreads[1], confidence)
        own, _, _ = effective_sizes(spreads[0], spreads[1], CONFIDENCE)
        freedoms.append(np.fmin(freedom, np.fmin(*sizes)))  # few independent rows have long tails
        for side, size in zip(shares, sizes, strict=True):
            side.append(share_interval(p, size, confidence, _JEFFREYS))
        shares[0].append(share_interval(p, own, CONFIDENCE, _JEFFREYS))
    now, before = (
        side.values_around(table["place"], np.stack(own, axis=2))
        for side, table, own in zip(sides, tables, shares, strict=True)
    )
    columns: dict[str, Any] = {}
    for i, p in enumerate(q):
        ends = now[:, :, 2 * i], now[:, :, 2 * i + 1], before[:, :, i]
        compared = _compare_percentile(tables, percentile_label(p), *ends)
        name = percentile_label(p).removesuffix("_s")
        change, low, high = (compared[f"{name}_change{end}_s"] for end in ("", "_low", "_high"))
        p_value = _compute_p(change, low, high, freedoms[i], confidence)
        notable = pd.array(are_notable(p_value), "boolean")
        columns |= compared | {f"{name}_change_p": p_value, f"{name}_notable": notable}
    return columns


def _compare_percentile(
    tables: Sequence[pd.DataFrame], label: str, ends: Floats, own_ends: Floats, ends_before: Floats
) -> dict[str, Any]:
    """Compute the columns of one percentile; the `own_ends` are for its own interval, the others for that of change."""
    name, (one, other) = label.removesuffix("_s"), (table[label].to_numpy(np.float64) for table in tables)
    change = subtract(Level(one, *ends), Level(other, *ends_before))
    return {
        f"{name}_s": one,
        f"{name}_low_s": own_ends[0],
        f"{name}_high_s": own_ends[1],
        f"{name}_at_least_s": tables[0][f"{label}{_AT_LEAST}"],
        f"{name}_before_s": other,
        f"{name}_before_at_least_s": tables[1][f"{label}{_AT_LEAST}"],
        f"{name}_change_s": change.value,
        f"{name}_change_low_s": change.low,
        f"{name}_change_high_s": change.high,
    }


def _compute_p(change: Floats, low: Floats, high: Floats, freedom: Floats, confidence: float) -> Floats:
    """Return the two-sided p-value at which an interval of this shape would end at 0; NaN without an interval."""
    from scipy.special import stdtr, stdtrit

    freedom = np.minimum(freedom, 1e9)
    margin = np.where(change > 0, change - low, high - change)
    with np.errstate(invalid="ignore", divide="ignore"):
        p: Floats = 2 * stdtr(freedom, -np.abs(change) / margin * stdtrit(freedom, (1 + confidence) / 2))
    return p


def _align_groups(one: pd.DataFrame, other: pd.DataFrame, by: By) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Return the keys of both tables, and both tables aligned with them."""
    n_keys = len(as_key_list(by))
    names = list(one.columns[:n_keys])
    if not names:
        index = range(max(len(one), len(other)))
        return pd.DataFrame(index=index), one.reindex(index), other.reindex(index)
    keys = pd.concat([one[names], other[names]]).drop_duplicates().sort_values(names, na_position="last")
    keys = keys.reset_index(drop=True)
    return keys, keys.merge(one, how="left", on=names), keys.merge(other, how="left", on=names)
