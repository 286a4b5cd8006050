"""Since when: the one moment at which a duration most likely changed for good."""

from __future__ import annotations

import functools

import numpy as np
import pandas as pd

from buildframe.metrics.columns import MOMENT, moments
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines import GROUP, Floats, Frame
from buildframe.metrics.groups import By
from buildframe.metrics.measured import measured
from buildframe.metrics.pieces import in_groups

_DTYPES = {
    "n": "Int64",
    "n_before": "Int64",
    "at": MOMENT,
    "p_value": "float64",
    "p50_before_s": "float64",
    "p50_after_s": "float64",
}

_LEAST = 10
"""With fewer values the probability's approximation is not good to two digits."""


def change_point(frame: Frame, of: RowMetric | str = wall_time, by: By = None, at: str = "created_at") -> pd.DataFrame:
    """The moment at which a duration most likely changed, and how likely chance alone makes such a moment.

    The rows of each group stand in the order of the column `at`; by Pettitt's test (1979, Journal of the Royal
    Statistical Society C 28: 126-135), which goes by ranks, so that no distribution is supposed and outliers matter
    little. It supposes one change, rows that do not depend on each other, and ties that are few: a load that
    comes and goes by the hour makes small probabilities smaller than they are. `of` and `by` as in `percentiles`.

    One row a group, ordered by key, null keys last; columns: the keys, then
    `n` (Int64): rows with a duration and a time; `n_before` (Int64): those before the change;
    `at` (`datetime64[us, UTC]`): the time of the first row after it;
    `p_value` (float64): the probability of a change as clear where there is none;
    `p50_before_s`, `p50_after_s` (float64): the medians on both sides, in seconds.
    All but `n` are null with fewer than 10 rows. BadInput as in `percentiles`.
    """
    found = measured(frame, of, by, needs=(at,))
    return in_groups(found, ["value", at], functools.partial(_changes, at))


def _changes(at: str, table: pd.DataFrame) -> pd.DataFrame:
    """That of each group."""
    rows = pd.DataFrame({"group": table[GROUP], "value": table["value"], "at": moments(table, at)}).dropna()
    rows = rows.sort_values(["at", "value"])
    parts = dict(iter(rows.groupby("group")))
    many = table[GROUP].max() + 1 if len(table) else 0
    told = [_change(parts.get(group, rows.iloc[:0])) for group in range(many)]
    return pd.DataFrame(told, columns=list(_DTYPES)).astype(_DTYPES).assign(**{GROUP: range(many)})


def _change(rows: pd.DataFrame) -> dict[str, object]:
    """That of one group, whose rows are in order."""
    n = len(rows)
    if n < _LEAST:
        return {"n": n}
    values = rows["value"].to_numpy(np.float64)
    before, p_value = pettitt(values)
    return {
        "n": n,
        "n_before": before,
        "at": rows["at"].iloc[before],
        "p_value": p_value,
        "p50_before_s": np.median(values[:before]),
        "p50_after_s": np.median(values[before:]),
    }


def pettitt(values: Floats) -> tuple[int, float]:
    """How many values stand before the change, and the probability of one as clear by chance."""
    n = len(values)
    ranks = pd.Series(values).rank().to_numpy()
    statistic = np.abs(2 * np.cumsum(ranks) - np.arange(1, n + 1) * (n + 1))[:-1]
    largest = statistic.max()
    return int(statistic.argmax()) + 1, min(1.0, 2 * float(np.exp(-6 * largest**2 / (n**3 + n**2))))
