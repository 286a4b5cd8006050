"""Find the time at which a duration most likely changed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import TIMESTAMP, Floats, Integers
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.dtypes import micros_column
from buildframe.metrics.engines.intervals import AT
from buildframe.metrics.engines.protocol import BALANCE, COUNT, Frame, GroupedRows
from buildframe.metrics.grouping import By, join_keys

_LEAST = 10
"""With fewer values the approximate p-value is not accurate to two digits."""

_CHANGED_AT = "at the change"


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
    engine = engine_of(frame)
    rows = engine.measure(frame, of, by, needs=(at,))
    rows = rows.with_micros([at]).with_columns(**{AT: nw.col(micros_column(at))})
    is_known = ~nw.col("value").is_null() & ~nw.col(AT).is_null()
    counts = engine.group_sums(rows, n=is_known)
    n = counts.sums["n"].to_numpy(np.int64)
    dated = replace(rows, frame=rows.frame.filter(is_known)).select("value", AT)
    changes = counts.groups.merge(engine.clearest_changes(dated), how="left", on=dated.by)
    changes.loc[n < _LEAST, [AT, BALANCE, COUNT]] = pd.NA
    before, balances = changes[COUNT].astype("Int64"), changes[BALANCE].to_numpy(np.float64, na_value=np.nan)
    medians = _compute_medians(dated, counts.groups, changes[AT], np.asarray(before.fillna(0), np.int64), n)
    size = np.maximum(n, 1).astype(np.float64)
    columns = {
        "n": pd.array(n, "Int64"),
        "n_before": before,
        "at": pd.Series(changes[AT], dtype=TIMESTAMP),
        "p_value": np.minimum(1.0, 2 * np.exp(-6 * balances**2 / (size**3 + size**2))),  # Pettitt's approximation
        "p50_before_s": medians[0],
        "p50_after_s": medians[1],
    }
    return join_keys(counts.keys, pd.DataFrame(columns))


def _compute_medians(
    dated: GroupedRows, groups: pd.DataFrame, at: pd.Series[Any], before: Integers, n: Integers
) -> tuple[Floats, Floats]:
    """Return the medians before and after the change of each group."""
    has_change = at.notna().to_numpy()
    times = {_CHANGED_AT: at[has_change].to_numpy(np.int64)}
    changed = dated.engine.with_group_values(dated, groups[has_change], times)
    is_before = nw.col(AT) < nw.col(_CHANGED_AT)
    return (
        _compute_median(changed, is_before, groups, np.where(has_change, before, 0)),
        _compute_median(changed, ~is_before, groups, np.where(has_change, n - before, 0)),
    )


def _compute_median(source: GroupedRows, selected: nw.Expr, groups: pd.DataFrame, n: Integers) -> Floats:
    middle = np.column_stack([(n + 1) // 2, np.where(n > 0, n // 2 + 1, 0)])
    rows = replace(source, frame=source.frame.filter(selected))
    median: Floats = source.engine.rank_values(rows, groups, n).values_at(middle).mean(axis=1)
    return median
