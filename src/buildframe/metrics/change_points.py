"""Find the time at which a duration most likely changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import TIMESTAMP
from buildframe.metrics.duration_columns import measure
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines import (
    GROUP,
    Floats,
    Frame,
    GroupedRows,
    Integers,
    as_pandas,
    group_sums,
    micros_column,
    with_micros,
)
from buildframe.metrics.engines.group_metadata import join_nulls_equal, with_group_values
from buildframe.metrics.engines.ranks import values_at_ranks
from buildframe.metrics.grouping import By, join_keys

_LEAST = 10
"""With fewer values the approximate p-value is not accurate to two digits."""

_AT, _BALANCE, _MANY, _CHANGED_AT = "at this time", "balance", "many", "at the change"
_CHANGE = [_AT, _BALANCE, _MANY]


@checked_names
def change_point(frame: Frame, of: RowMetric | str = wall_time, by: By = None, at: str = "created_at") -> pd.DataFrame:
    """
    Find the time at which a duration most likely changed, with its p-value.

    Parameters
    ----------
    frame : DataFrame
        Builds or jobs: pandas, Polars (eager or lazy), DuckDB relation or PySpark. Needs the column `at` and the
        columns that `of` needs.
    of : row metric or str, default wall_time
        Duration to examine: a row metric such as `run_time`, or a column of timedeltas or of seconds (`..._s`).
    by : str, function or list of these, optional
        Keys that define the groups, as in `percentiles`. By default all rows form one group.
    at : str, default "created_at"
        Column of timestamps that orders the rows.

    Returns
    -------
    pandas.DataFrame
        One row per group, ordered by key, null keys last. All columns but `n` are null with fewer than 10 rows, or if
        all rows have the same time. After the keys:

        ============ =================== ==============================================================
        n            Int64               rows with a duration and a time
        n_before     Int64               rows before the change
        at           datetime64[us, UTC] time of the first row after the change
        p_value      float64             probability of a change at least as clear if nothing changed
        p50_before_s float64             median before the change, in seconds
        p50_after_s  float64             median after the change, in seconds
        ============ =================== ==============================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, or `of` is not a duration.

    See Also
    --------
    percentile_change : Compare two periods that you choose.
    trend : Percentiles over time.

    Notes
    -----
    Pettitt's test [1]_ compares ranks, so it assumes no distribution, and outliers have little influence. It assumes
    one change, independent rows and few ties. Load that comes and goes by the hour makes small p-values smaller than
    they should be.

    References
    ----------
    .. [1] Pettitt, A. N. (1979). Journal of the Royal Statistical Society C 28, 126-135.

    Examples
    --------
    >>> metrics.change_point(builds, by="pipeline")[["pipeline", "n", "n_before", "p_value"]].round(2)
       pipeline   n  n_before  p_value
    0       api  33        13     0.32
    1   billing  11         7     1.00
    2      data  18         8     1.00
    3      docs  12         7     1.00
    4    mobile  23        10     0.20
    5  platform  21        12     0.60
    6   release   3      <NA>      NaN
    7       web  41        21     0.64
    """
    rows = measure(frame, of, by, needs=(at,))
    rows = replace(rows, frame=with_micros(rows.frame, [at])).with_columns(**{_AT: nw.col(micros_column(at))})
    is_known = ~nw.col("value").is_null() & ~nw.col(_AT).is_null()
    counts = group_sums(rows, n=is_known)
    n = counts.sums["n"].to_numpy(np.int64)
    dated = replace(rows, frame=rows.frame.filter(is_known)).select("value", _AT)
    changes = counts.groups.merge(_clearest(dated), how="left", on=dated.by)
    changes.loc[n < _LEAST, _CHANGE] = pd.NA
    return join_keys(counts.keys, _columns(dated, counts.groups, n, changes))


def _clearest(dated: GroupedRows) -> pd.DataFrame:
    """Return per group the first of its clearest changes: the time after it, and the sums of the rows before it."""
    native = dated.frame.to_native()
    if isinstance(native, pd.DataFrame):
        return _clearest_of_pandas(native)
    times = _balanced(dated).group_by(*dated.by, _AT).agg(nw.col(_BALANCE).sum().cast(nw.Int64), nw.len().alias(_MANY))
    cumulative = [nw.col(name).cum_sum().over(*dated.by, order_by=_AT).cast(nw.Int64) for name in (_BALANCE, _MANY)]
    after = nw.col(_AT).shift(-1).over(*dated.by, order_by=_AT)
    changes = times.with_columns(*cumulative, after.alias(_AT)).filter(~nw.col(_AT).is_null())
    changes = changes.with_columns(nw.col(_BALANCE).abs())
    clearest = changes.filter(nw.col(_BALANCE) == nw.col(_BALANCE).max().over(*dated.by))
    return as_pandas(clearest.group_by(*dated.by).agg(nw.col(*_CHANGE).min())).astype(dict.fromkeys(_CHANGE, "Int64"))


def _balanced(dated: GroupedRows) -> nw.LazyFrame[Any]:
    """Add to each row the number of smaller values of its group minus the number of larger ones."""
    values = dated.frame.group_by(*dated.by, "value").agg(nw.len().cast(nw.Int64).alias(_MANY))
    cumulative = nw.col(_MANY).cum_sum().over(*dated.by, order_by="value").cast(nw.Int64)
    more = nw.col(_MANY).sum().over(*dated.by).cast(nw.Int64) - cumulative
    balances = values.select(*dated.by, "value", (cumulative - nw.col(_MANY) - more).alias(_BALANCE))
    return join_nulls_equal(dated.frame, balances, [*dated.by, "value"])


def _clearest_of_pandas(dated: pd.DataFrame) -> pd.DataFrame:
    values = dated.groupby(GROUP)["value"]
    balances = (values.rank("min") - values.rank("min", ascending=False)).astype(np.int64)
    balanced = pd.DataFrame({GROUP: dated[GROUP], _AT: dated[_AT], _BALANCE: balances, _MANY: 1})
    changes = balanced.groupby([GROUP, _AT], as_index=False)[[_BALANCE, _MANY]].sum()
    groups = changes.groupby(GROUP)
    changes[[_BALANCE, _MANY]], changes[_AT] = groups[[_BALANCE, _MANY]].cumsum().abs(), groups[_AT].shift(-1)
    changes = changes.dropna(subset=_AT)
    clearest = changes.sort_values([GROUP, _BALANCE], ascending=[True, False], kind="stable").drop_duplicates(GROUP)
    return clearest.astype(dict.fromkeys(_CHANGE, "Int64"))


def _columns(dated: GroupedRows, groups: pd.DataFrame, n: Integers, changes: pd.DataFrame) -> pd.DataFrame:
    """Compute the columns of each group."""
    before = changes[_MANY].astype("Int64")
    medians = _medians(dated, groups, changes[_AT], np.asarray(before.fillna(0), np.int64), n)
    return pd.DataFrame(
        {
            "n": pd.array(n, "Int64"),
            "n_before": before,
            "at": pd.Series(changes[_AT], dtype=TIMESTAMP),
            "p_value": _p_value(changes[_BALANCE].to_numpy(np.float64, na_value=np.nan), n),
            "p50_before_s": medians[0],
            "p50_after_s": medians[1],
        }
    )


def _medians(
    dated: GroupedRows, groups: pd.DataFrame, at: pd.Series[Any], before: Integers, n: Integers
) -> tuple[Floats, Floats]:
    """Return the medians before and after the change of each group."""
    has_change = at.notna().to_numpy()
    changed = with_group_values(dated, groups[has_change], {_CHANGED_AT: at[has_change].to_numpy(np.int64)})
    is_before = nw.col(_AT) < nw.col(_CHANGED_AT)
    return (
        _median(changed, is_before, groups, np.where(has_change, before, 0)),
        _median(changed, ~is_before, groups, np.where(has_change, n - before, 0)),
    )


def _median(source: GroupedRows, selected: nw.Expr, groups: pd.DataFrame, n: Integers) -> Floats:
    middle = np.column_stack([(n + 1) // 2, np.where(n > 0, n // 2 + 1, 0)])
    rows = replace(source, frame=source.frame.filter(selected))
    median: Floats = values_at_ranks(rows, "value", groups, n, middle).mean(axis=1)
    return median


def _p_value(balances: Floats, n: Integers) -> Floats:
    """Return Pettitt's approximate p-value of the largest cumulative balance."""
    size = np.maximum(n, 1).astype(np.float64)
    chance: Floats = 2 * np.exp(-6 * balances**2 / (size**3 + size**2))
    return np.minimum(1.0, chance)
