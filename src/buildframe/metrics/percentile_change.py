"""Compare percentiles between two periods, with intervals that allow for dependence within days."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.clustering import Level, Spread, effective_sizes, measure_ratio, subtract
from buildframe.metrics.columns import Floats
from buildframe.metrics.comparison import (
    align_groups,
    compute_p,
    join_groups,
    number_days,
    read_spread,
)
from buildframe.metrics.confidence import share_interval
from buildframe.metrics.discoveries import are_notable
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.estimates import Sample
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.input_frames import Frame, is_spark
from buildframe.metrics.measured_rows import limits_in_spark, measure_rows
from buildframe.metrics.percentiles import (
    CONFIDENCE,
    COUNTS,
    check_percentiles,
    count_rows,
    percentile_label,
)
from buildframe.metrics.ranked_groups import RankedGroups
from buildframe.metrics.rates import wilson
from buildframe.metrics.validation import check_order

_JEFFREYS = 0.5
"""Correction of intervals of shares.

Wilson's would be too short for single days, exact ones too long.
"""

_DAY = "number of the day"

_AT_LEAST = " at least"
_LOCATED = ("", _AT_LEAST, *(f" {name}" for name in Spread._fields))
"""What is known of each percentile of a period.

That is its value, a lower bound, and the spread of the rows up to it.
"""

_Ends = tuple[Floats, Floats]
"""The lower and the upper ends of intervals, per group."""


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
        Duration to compare: a row metric such as `run_time`, or a column of timedeltas or of
        seconds (`..._s`).
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

        ===================== ======= ============================================================
        n                     Int64   rows of `after` with a duration; 0 if the group is only in
                                      `before`
        n_censored            Int64   censored rows of `after`, as in `percentiles`
        n_negative            Int64   durations of `after` below zero
        n_before              Int64   the same counts of `before`
        n_censored_before     Int64
        n_negative_before     Int64
        p50_s                 float64 percentile of `after` in seconds; NaN with too few rows, or
                                      too many that are censored
        p50_low_s             float64 lower end of its 95 % interval
        p50_high_s            float64 upper end of its 95 % interval
        p50_at_least_s        float64 lower bound of the percentile in seconds, see `percentiles`;
                                      NaN if it is known, or with too few rows
        p50_before_s          float64 percentile of `before` in seconds
        p50_before_at_least_s float64 its lower bound
        p50_change_s          float64 `p50_s - p50_before_s`: above 0 if it became slower
        p50_change_low_s      float64 lower end of the interval of the change; NaN with too few
                                      days or rows
        p50_change_high_s     float64 upper end of the interval of the change
        p50_change_p          float64 two-sided p-value of the change, without regard to other
                                      groups; NaN without an interval
        p50_notable           boolean the change remains significant among all groups; False
                                      without an interval
        ===================== ======= ============================================================

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
    In each period the share of rows up to the percentile has Jeffreys's interval with an effective
    number of rows from the variance between days [1]_. The durations at its ends enclose the
    percentile [2]_. The interval of the difference adds the distances to the ends of both as
    squares [3]_.

    As soon as one row of a group is censored, its percentiles and their intervals come from the
    curve of Kaplan and Meier, as in `percentiles`. A censored row of an earlier time than the
    percentile counts as the share that would have ended by then. If too many rows are censored for
    one of the percentiles, the change has no value and no p.

    In simulations with up to a fifth of the rows censored and days that differ, nominal 95 %
    intervals cover the change in 93 to 99 % of worlds. It is assumed that censored rows would have
    lasted as long as others that lasted as long. Days are taken as independent: if they correlate
    by .3 from one day to the next, intervals cover the change in 89 % of worlds, and p is below .05
    in 11 % of those without any; at .6 it is 71 to 75 %, and 25 to 29 %.

    A period may be a single day: the other period and the other groups then show how much days
    vary. That needs six days or so, and assumes that the day varies as they do. If all durations of
    a day are longer or shorter, it is worth a few independent rows, and shows only large changes.

    The p-value belongs to the interval: it is below .05 if the 95 % interval excludes 0. With many
    groups some intervals exclude 0 by chance. Of the changes marked as `notable`, 5 % are found by
    chance [4]_.

    References
    ----------
    .. [1] Korn, E. L., and Graubard, B. I. (1998). Survey Methodology 24, 193-201.
    .. [2] Woodruff, R. S. (1952). Journal of the American Statistical Association 47, 635-646.
    .. [3] Zou, G. Y., and Donner, A. (2008). Statistics in Medicine 27, 1693-1702.
    .. [4] Benjamini, Y., and Hochberg, Y. (1995). Journal of the Royal Statistical Society B 57,
       289-300.

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
    period = _MeasuredPeriod(after, of, by, at, tz)
    period_before = _MeasuredPeriod(before, of, by, at, tz)
    located = period.summarize(functools.partial(_locate, q))
    located_before = period_before.summarize(functools.partial(_locate, q))
    check_order(before, after, at, allow_reversed=allow_reversed)
    keys = join_groups(located, located_before, by)
    now = align_groups(located, keys)
    then = align_groups(located_before, keys)
    percentile_shares = [_find_shares(p, now, then, confidence) for p in q]
    own_shares = [found.of_percentile for found in percentile_shares]
    change_shares = [found.of_change for found in percentile_shares]
    before_shares = [found.of_change_before for found in percentile_shares]
    ends = period.values_around(keys, own_shares + change_shares)
    ends_before = period_before.values_around(keys, before_shares)
    columns: dict[str, Any] = {name: now[name].fillna(0) for name in COUNTS}
    columns |= {f"{name}_before": then[name].fillna(0) for name in COUNTS}
    for i, p in enumerate(q):
        label = percentile_label(p)
        value = now[label].to_numpy(np.float64)
        percentile = Level(value, *ends[i])
        percentile_before = Level(then[label].to_numpy(np.float64), *ends_before[i])
        change = subtract(Level(value, *ends[len(q) + i]), percentile_before)
        p_value = compute_p(change, percentile_shares[i].freedom, confidence)
        name = label.removesuffix("_s")
        columns |= {
            f"{name}_s": percentile.value,
            f"{name}_low_s": percentile.low,
            f"{name}_high_s": percentile.high,
            f"{name}_at_least_s": now[f"{label}{_AT_LEAST}"],
            f"{name}_before_s": percentile_before.value,
            f"{name}_before_at_least_s": then[f"{label}{_AT_LEAST}"],
            f"{name}_change_s": change.value,
            f"{name}_change_low_s": change.low,
            f"{name}_change_high_s": change.high,
            f"{name}_change_p": p_value,
            f"{name}_notable": pd.array(are_notable(p_value), "boolean"),
        }
    return join_keys(keys, pd.DataFrame(columns, index=keys.index))


class _RankedRows(NamedTuple):
    """Rows of a period: the keys and counts of its groups, and the ranks of their durations."""

    keys: pd.DataFrame
    counts: pd.DataFrame
    sample: Sample


class _MeasuredPeriod:
    """Measured rows of a period.

    They are ranked once, but in PySpark for each summary, group by group in the workers.
    """

    def __init__(self, frame: Frame, of: RowMetric | str, by: By, at: str, tz: str) -> None:
        self._frame = frame
        self._by = spark_keys(frame, by)
        limits = limits_in_spark(frame, of, [at])
        self._rank = functools.partial(_rank_rows, of, self._by, at, tz, limits)
        self._ranked = None if is_spark(frame) else self._rank(frame)

    def summarize(self, summary: Callable[[_RankedRows], pd.DataFrame]) -> pd.DataFrame:
        """Return a summary of the groups, with their keys."""
        if self._ranked is not None:
            return summary(self._ranked)
        of_frame = functools.partial(_summarize_ranked, summary, self._rank)
        return summarize_groups(self._frame, of_frame, self._by)

    def values_around(self, keys: pd.DataFrame, shares: Sequence[_Ends]) -> list[_Ends]:
        """Return the durations that enclose percentiles between these shares of the rows.

        NaN if the period lacks the group, or outside of its rows.
        """
        requested: dict[str, Floats] = {}
        for i, (below, above) in enumerate(shares):
            requested |= {f"below {i}": below, f"above {i}": above}
        table = join_keys(keys, pd.DataFrame(requested, index=keys.index))
        values = align_groups(self.summarize(functools.partial(_enclose, table, len(shares))), keys)
        return [
            (values[f"below {i}"].to_numpy(np.float64), values[f"above {i}"].to_numpy(np.float64))
            for i in range(len(shares))
        ]


def _rank_rows(
    of: RowMetric | str,
    by: By,
    at: str,
    tz: str,
    limits: Sequence[tuple[int, int]] | None,
    frame: Frame,
) -> _RankedRows:
    rows = measure_rows(frame, of, by, [at])
    day, n_days = number_days(rows, at, tz, limits)
    dated = rows._replace(columns=rows.columns.drop(columns=at).assign(**{_DAY: day}))
    return _RankedRows(rows.keys, count_rows(rows), Sample(RankedGroups(dated, _DAY, n_days)))


def _summarize_ranked(
    summary: Callable[[_RankedRows], pd.DataFrame],
    rank: Callable[[Frame], _RankedRows],
    frame: Frame,
) -> pd.DataFrame:
    return summary(rank(frame))


def _locate(q: Sequence[float], period: _RankedRows) -> pd.DataFrame:
    """Return counts of rows, and the columns `_LOCATED` of each percentile.

    The spread is that of the rows up to the percentile. Its rows are as many as would say as much
    about the percentile if none was censored.
    """
    sample = period.sample
    value, at_least, ranks, splits = sample.locate(q, q)
    assert splits is not None  # rows have a day
    n, hits, variance = sample.split_hits(ranks, splits)
    share, greenwood = sample.curves.at_ranks(ranks)
    with np.errstate(invalid="ignore", divide="ignore"):
        rows_without_censoring = (1 - share) / (share * greenwood)
    n_days = np.broadcast_to((n > 0).sum(axis=1)[:, None], value.shape)
    ratio = measure_ratio(n[:, None], hits, variance)
    spread = Spread(rows_without_censoring, n_days, ratio)
    of_known = [np.where(np.isnan(value), np.nan, measure) for measure in spread]
    columns: dict[str, Floats] = {}
    for name, values in zip(_LOCATED, [value, at_least, *of_known], strict=True):
        columns |= {f"{percentile_label(p)}{name}": values[:, i] for i, p in enumerate(q)}
    return join_keys(period.keys, pd.concat([period.counts, pd.DataFrame(columns)], axis=1))


def _enclose(shares: pd.DataFrame, n_pairs: int, period: _RankedRows) -> pd.DataFrame:
    """Return the durations at the ends of each pair of shares, under the same names."""
    below = [f"below {i}" for i in range(n_pairs)]
    above = [f"above {i}" for i in range(n_pairs)]
    requested = align_groups(shares, period.keys)
    lower_shares = requested[below].to_numpy(np.float64)
    upper_shares = requested[above].to_numpy(np.float64)
    ends = period.sample.values_around(lower_shares, upper_shares)
    columns = pd.DataFrame(np.concatenate(ends, axis=1), columns=[*below, *above])
    return join_keys(period.keys, columns)


class _Shares(NamedTuple):
    """The shares of rows between which a percentile lies, per group, and how certain the change is.

    They are those of its own interval, and of that of the change in both periods. `freedom` has the
    degrees of freedom of the change.
    """

    of_percentile: _Ends
    of_change: _Ends
    of_change_before: _Ends
    freedom: Floats


def _find_shares(p: float, now: pd.DataFrame, then: pd.DataFrame, confidence: float) -> _Shares:
    prefix = f"{percentile_label(p)} "
    spread = read_spread(now, prefix)
    spread_before = read_spread(then, prefix)
    size, size_before, freedom = effective_sizes(spread, spread_before, confidence)
    usual_size, _, _ = effective_sizes(spread, spread_before, CONFIDENCE)
    return _Shares(
        of_percentile=share_interval(p, usual_size, CONFIDENCE, _JEFFREYS),
        of_change=share_interval(p, size, confidence, _JEFFREYS),
        of_change_before=share_interval(p, size_before, confidence, _JEFFREYS),
        # few independent rows have long tails
        freedom=np.fmin(freedom, np.fmin(size, size_before)),
    )
