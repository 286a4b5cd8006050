"""Since when: the one moment at which a duration most likely changed for good."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.metrics.columns import MOMENT
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines import GROUP, Floats, Frame, Integers, Rows, as_pandas, tally, tick, ticking
from buildframe.metrics.groups import By, beside
from buildframe.metrics.known import joined, with_known
from buildframe.metrics.measured import measured
from buildframe.metrics.ranks import at_ranks

_LEAST = 10
"""With fewer values the probability's approximation is not good to two digits."""

_AT, _BALANCE, _MANY, _CHANGED_AT = "at this time", "balance", "many", "at the change"
_CHANGE = [_AT, _BALANCE, _MANY]


@checked_names
def change_point(frame: Frame, of: RowMetric | str = wall_time, by: By = None, at: str = "created_at") -> pd.DataFrame:
    """The moment at which a duration most likely changed, and how likely chance alone makes such a moment.

    The rows of each group stand in the order of the column `at`, and a change lies between two of its times; by
    Pettitt's test (1979, Journal of the Royal Statistical Society C 28: 126-135), which goes by ranks, so that no
    distribution is supposed and outliers matter little. It supposes one change, rows that do not depend on each other,
    and ties that are few: a load that comes and goes by the hour makes small probabilities smaller than they are. `of`
    and `by` as in `percentiles`.

    One row a group, ordered by key, null keys last; columns: the keys, then
    `n` (Int64): rows with a duration and a time; `n_before` (Int64): those before the change;
    `at` (`datetime64[us, UTC]`): the time of the first row after it;
    `p_value` (float64): the probability of a change as clear where there is none;
    `p50_before_s`, `p50_after_s` (float64): the medians on both sides, in seconds.
    All but `n` are null with fewer than 10 rows, or where all have one time. BadInput as in `percentiles`.
    """
    found = measured(frame, of, by, needs=(at,))
    found = replace(found, frame=ticking(found.frame, [at])).having(**{_AT: nw.col(tick(at))})
    is_known = ~nw.col("value").is_null() & ~nw.col(_AT).is_null()
    counts = tally(found, n=is_known)
    n = counts.sums["n"].to_numpy(np.int64)
    known = replace(found, frame=found.frame.filter(is_known)).only("value", _AT)
    told = counts.groups.merge(_clearest(known), how="left", on=known.by)
    told.loc[n < _LEAST, _CHANGE] = pd.NA
    return beside(counts.keys, _told(known, counts.groups, n, told))


def _clearest(known: Rows) -> pd.DataFrame:
    """Of each group the first of its clearest changes: the time after it, and the sums of what lies before."""
    native = known.frame.to_native()
    if isinstance(native, pd.DataFrame):
        return _clearest_of_pandas(native)
    times = _balanced(known).group_by(*known.by, _AT).agg(nw.col(_BALANCE).sum().cast(nw.Int64), nw.len().alias(_MANY))
    upto = [nw.col(name).cum_sum().over(*known.by, order_by=_AT).cast(nw.Int64) for name in (_BALANCE, _MANY)]
    after = nw.col(_AT).shift(-1).over(*known.by, order_by=_AT)
    changes = times.with_columns(*upto, after.alias(_AT)).filter(~nw.col(_AT).is_null())
    changes = changes.with_columns(nw.col(_BALANCE).abs())
    clearest = changes.filter(nw.col(_BALANCE) == nw.col(_BALANCE).max().over(*known.by))
    return as_pandas(clearest.group_by(*known.by).agg(nw.col(*_CHANGE).min())).astype(dict.fromkeys(_CHANGE, "Int64"))


def _balanced(known: Rows) -> nw.LazyFrame[Any]:
    """Each row with how many values of its group are less than its own, less how many are more."""
    values = known.frame.group_by(*known.by, "value").agg(nw.len().cast(nw.Int64).alias(_MANY))
    upto = nw.col(_MANY).cum_sum().over(*known.by, order_by="value").cast(nw.Int64)
    more = nw.col(_MANY).sum().over(*known.by).cast(nw.Int64) - upto
    balances = values.select(*known.by, "value", (upto - nw.col(_MANY) - more).alias(_BALANCE))
    return joined(known.frame, balances, [*known.by, "value"])


def _clearest_of_pandas(known: pd.DataFrame) -> pd.DataFrame:
    values = known.groupby(GROUP)["value"]
    balances = (values.rank("min") - values.rank("min", ascending=False)).astype(np.int64)
    balanced = pd.DataFrame({GROUP: known[GROUP], _AT: known[_AT], _BALANCE: balances, _MANY: 1})
    changes = balanced.groupby([GROUP, _AT], as_index=False)[[_BALANCE, _MANY]].sum()
    groups = changes.groupby(GROUP)
    changes[[_BALANCE, _MANY]], changes[_AT] = groups[[_BALANCE, _MANY]].cumsum().abs(), groups[_AT].shift(-1)
    changes = changes.dropna(subset=_AT)
    clearest = changes.sort_values([GROUP, _BALANCE], ascending=[True, False], kind="stable").drop_duplicates(GROUP)
    return clearest.astype(dict.fromkeys(_CHANGE, "Int64"))


def _told(known: Rows, groups: pd.DataFrame, n: Integers, changes: pd.DataFrame) -> pd.DataFrame:
    """The columns of each group."""
    before = changes[_MANY].astype("Int64")
    medians = _medians(known, groups, changes[_AT], np.asarray(before.fillna(0), np.int64), n)
    return pd.DataFrame(
        {
            "n": pd.array(n, "Int64"),
            "n_before": before,
            "at": pd.Series(changes[_AT], dtype=MOMENT),
            "p_value": _p_value(changes[_BALANCE].to_numpy(np.float64, na_value=np.nan), n),
            "p50_before_s": medians[0],
            "p50_after_s": medians[1],
        }
    )


def _medians(
    known: Rows, groups: pd.DataFrame, at: pd.Series[Any], before: Integers, n: Integers
) -> tuple[Floats, Floats]:
    """Those of the values before the change of each group, and after it."""
    has_one = at.notna().to_numpy()
    changed = with_known(known, groups[has_one], {_CHANGED_AT: at[has_one].to_numpy(np.int64)})
    is_before = nw.col(_AT) < nw.col(_CHANGED_AT)
    return (
        _median(changed, is_before, groups, np.where(has_one, before, 0)),
        _median(changed, ~is_before, groups, np.where(has_one, n - before, 0)),
    )


def _median(rows: Rows, those: nw.Expr, groups: pd.DataFrame, n: Integers) -> Floats:
    middle = np.column_stack([(n + 1) // 2, np.where(n > 0, n // 2 + 1, 0)])
    found = replace(rows, frame=rows.frame.filter(those))
    median: Floats = at_ranks(found, "value", groups, n, middle).mean(axis=1)
    return median


def _p_value(balances: Floats, n: Integers) -> Floats:
    """Pettitt's approximation, of the most by which values before a change are below those of all."""
    size = np.maximum(n, 1).astype(np.float64)
    chance: Floats = 2 * np.exp(-6 * balances**2 / (size**3 + size**2))
    return np.minimum(1.0, chance)
