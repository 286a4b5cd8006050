"""Percentiles over pooled rows, with what they leave out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import column, seconds
from buildframe.metrics.durations import RowMetric, censored, queue_time
from buildframe.metrics.groups import By, beside, groups_of

Method = Literal[
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
    "linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
]  # fmt: skip

Floats = npt.NDArray[np.float64]


def percentiles(
    frame: pd.DataFrame,
    of: RowMetric | str = queue_time,
    by: By = None,
    q: Sequence[float] = (0.5, 0.95),
    method: Method = "linear",
) -> pd.DataFrame:
    """Percentiles of a duration, over all rows of a group at once.

    `of` is a metric of rows or the name of a timedelta column; `by` a column, a function such as
    `metrics.step`, a list of these, or None for one group; `method` as in `numpy.quantile`, whose
    results these are (Hyndman and Fan 1996, The American Statistician 50: 361-365).

    One row a group, ordered by key, null keys kept; columns: the keys, then
    `n` (Int64): rows with a duration;
    `n_censored` (Int64): rows that began and were not seen to end (still waiting or running when they
    were fetched, or canceled before); they are in no percentile, so real ones are longer than these;
    null where `of` is not a metric of this package;
    `n_negative` (Int64): durations below zero, from clocks that disagree; they are in `n` and kept;
    `p50_s`, `p95_s`, ... (float64): seconds, NaN where fewer than 1 / (1 - p) rows (below the median:
    1 / p) lie beyond it on average: p95 wants 20 rows, p99 100.

    An empty frame gives these columns and no rows. BadInput: a missing column, naive times, `of` that
    is no duration, q outside (0, 1), an unknown method.
    """
    groups = groups_of(frame, by)
    return beside(groups.keys, summary(frame, of, groups.codes, len(groups.keys), q, method))


def summary(
    frame: pd.DataFrame,
    of: RowMetric | str,
    codes: npt.NDArray[np.intp],
    count: int,
    q: Sequence[float],
    method: Method,
) -> pd.DataFrame:
    """The columns `n`, `n_censored`, `n_negative` and percentiles of groups 0 to `count` - 1."""
    _check(q, method)
    values = _values(frame, of)
    measured = ~np.isnan(values)
    n = np.bincount(codes[measured], minlength=count)
    quantiles = _quantiles(values[measured], codes[measured], n, q, method)
    columns: dict[str, Any] = {
        "n": _integers(n),
        "n_censored": _n_censored(frame, of, codes, count),
        "n_negative": _integers(np.bincount(codes[values < 0], minlength=count)),
    }
    return pd.DataFrame(columns | {label(p): quantiles[:, i] for i, p in enumerate(q)})


def label(p: float) -> str:
    """The name of a percentile's column: `p95_s` for .95, `p99.9_s` for .999."""
    return f"p{100 * p:.10g}_s"


def _check(q: Sequence[float], method: Method) -> None:
    if outside := [p for p in q if not 0 < p < 1]:
        raise BadInput(f"q={outside[0]!r} is no percentile: give shares between 0 and 1, such as .95.")
    try:
        np.quantile([0.0], 0.5, method=method)
    except ValueError as why:
        raise BadInput(f"method={method!r}: {why}") from None


def _values(frame: pd.DataFrame, of: RowMetric | str) -> Floats:
    durations = column(frame, of) if isinstance(of, str) else of(frame)
    name = f"The column {of!r}" if isinstance(of, str) else f"The result of {getattr(of, '__name__', of)}"
    return np.asarray(seconds(durations, name), np.float64)


def _n_censored(frame: pd.DataFrame, of: RowMetric | str, codes: npt.NDArray[np.intp], count: int) -> Any:
    begun = None if isinstance(of, str) else censored(frame, of)
    if begun is None:
        return pd.array([pd.NA] * count, dtype="Int64")
    return _integers(np.bincount(codes[begun.to_numpy()], minlength=count))


def _integers(counts: npt.NDArray[np.intp]) -> Any:
    return pd.array(counts, dtype="Int64")


def _quantiles(
    values: Floats,
    codes: npt.NDArray[np.intp],
    n: npt.NDArray[np.intp],
    q: Sequence[float],
    method: Method,
) -> Floats:
    """Quantiles of each group (rows) and q (columns), NaN where a group is too small."""
    sorted_values = values[np.argsort(codes)]
    starts = np.cumsum(n) - n
    result = np.full((len(n), len(q)), np.nan)
    for size in np.unique(n[n > 0]):  # groups of one size make a matrix, so numpy is called once for all of them
        same = np.flatnonzero(n == size)
        block = sorted_values[starts[same][:, None] + np.arange(size)]
        result[same] = np.quantile(block, q, axis=1, method=method).T
    return np.where(_enough(n, q), result, np.nan)


def _enough(n: npt.NDArray[np.intp], q: Sequence[float]) -> npt.NDArray[np.bool_]:
    """Whether n rows carry a percentile: on average one of them lies beyond it."""
    tail = np.minimum(q, 1 - np.asarray(q))
    enough: npt.NDArray[np.bool_] = n[:, None] * tail >= 1 - 1e-9  # 10 * (1 - .9) is a little below 1
    return enough
