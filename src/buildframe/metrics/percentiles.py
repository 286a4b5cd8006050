"""Percentiles over pooled rows, with what they leave out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.errors import BadInput
from buildframe.metrics.durations import RowMetric, queue_time
from buildframe.metrics.engines import Floats, Frame, Integers, Rows, Tally, tally
from buildframe.metrics.groups import By, beside
from buildframe.metrics.measured import measured
from buildframe.metrics.ranks import at_ranks

Method = Literal[
    "inverted_cdf", "averaged_inverted_cdf", "closest_observation", "interpolated_inverted_cdf", "hazen", "weibull",
    "linear", "median_unbiased", "normal_unbiased", "lower", "higher", "midpoint", "nearest",
]  # fmt: skip

CONFIDENCE = 0.95
_COUNTED = ["n", "n_censored", "n_negative"]


@checked_names
def percentiles(
    frame: Frame,
    of: RowMetric | str = queue_time,
    by: By = None,
    q: float | Sequence[float] = (0.5, 0.95),
    method: Method = "linear",
) -> pd.DataFrame:
    """Percentiles of a duration, over all rows of a group at once, and how sure they are.

    `of` is a metric of rows, or the name of a column of timedeltas or of seconds (`..._s`); `by` a column, a function
    such as `metrics.step`, a list of these, or None for one group; `method` as in `numpy.quantile`, whose
    results these are (Hyndman and Fan 1996, The American Statistician 50: 361-365). In frames of other engines a
    function stands for the column that `metrics.with_seconds` makes of it.

    Rows that the metric does not measure are in no group if it is `queue_time`: trigger, wait and block jobs wait for
    no agent.

    One row a group, ordered by key, null keys kept; columns: the keys, then
    `n` (Int64): rows with a duration;
    `n_censored` (Int64): rows that began and were not seen to end (still waiting or running when they
    were fetched, or canceled before); they are in no percentile, so real ones are longer than these;
    null where `of` is not a metric of this package;
    `n_negative` (Int64): durations below zero, from clocks that disagree; they are in `n` and kept;
    `p50_s`, `p95_s`, ... (float64): seconds, NaN where fewer than 1 / (1 - p) rows (below the median:
    1 / p) lie beyond it on average: p95 wants 20 rows, p99 100;
    `p50_low_s`, `p50_high_s`, ... (float64): an interval that holds the percentile of what the rows are a sample of, in
    at least 95 % of samples, whatever the distribution: two of the rows' own durations (order statistics; David and
    Nagaraja 2003, Order Statistics, section 7.1). NaN at an end where no row lies far enough out; p95 has both from 72.

    An empty frame gives these columns and no rows. BadInput: a missing column, naive times, `of` that
    is no duration, q outside (0, 1), an unknown method.
    """
    q = checked(q, method)
    found = measured(frame, of, by)
    counts = count(found)
    return beside(counts.keys, pd.concat([counts.sums, quantiles(found, counts, q, method)], axis=1))


def count(found: Rows) -> Tally:
    """How many rows of each group have a duration, were cut off (null where that cannot be told), and are negative."""
    value = nw.col("value")
    found_of = {"n": ~value.is_null(), "n_negative": value < 0}
    if "begun" in found.frame.collect_schema():
        found_of["n_censored"] = nw.col("begun")
    counts = tally(found, **found_of)
    unknown = pd.Series(pd.NA, counts.sums.index, dtype="Int64")
    return replace(counts, sums=counts.sums.assign(n_censored=counts.sums.get("n_censored", unknown))[_COUNTED])


def quantiles(found: Rows, counts: Tally, q: Sequence[float], method: Method) -> pd.DataFrame:
    """The columns `p50_s`, `p50_low_s`, `p50_high_s`, ... of each group, in the order of `counts`."""
    n = counts.sums["n"].to_numpy(np.int64)
    neighbours, share = _neighbours(n, q, method)
    ends = _ends(n, q)
    values = at_ranks(found, "value", counts.groups, n, np.concatenate([neighbours, ends], axis=1))
    below, above, low, high = np.split(values, 4, axis=1)
    middle = np.where(enough(n, q), below + (above - below) * share, np.nan)
    columns = {label(p): middle[:, i] for i, p in enumerate(q)}
    for i, p in enumerate(q):
        columns |= {label(p, "low"): low[:, i], label(p, "high"): high[:, i]}
    return pd.DataFrame(columns, index=counts.sums.index)


def percentiles_of(found: Rows, counts: Tally, q: Sequence[float]) -> pd.DataFrame:
    """The columns `p50_s`, ... of each group alone, NaN where too few rows tell them, in the order of `counts`."""
    n = counts.sums["n"].to_numpy(np.int64)
    ranks, share = _neighbours(n, q, "linear")
    below, above = np.split(at_ranks(found, "value", counts.groups, n, ranks), 2, axis=1)
    values = np.where(enough(n, q), below + (above - below) * share, np.nan)
    return pd.DataFrame(values, columns=[label(p) for p in q], index=counts.sums.index)


def label(p: float, end: str = "") -> str:
    """The name of a percentile's column: `p95_s` for .95, `p99.9_s` for .999; `p95_low_s` for the interval's end."""
    return f"p{100 * p:.10g}_{end}_s" if end else f"p{100 * p:.10g}_s"


def checked(q: float | Sequence[float], method: Method) -> tuple[float, ...]:
    """The percentiles as shares; BadInput for one, or a method, that is none."""
    try:
        shares = tuple(map(float, q)) if isinstance(q, Iterable) else (float(q),)
    except (TypeError, ValueError):
        raise BadInput(f"q={q!r}: give shares between 0 and 1, such as (.5, .95).") from None
    if outside := [p for p in shares if not 0 < p < 1]:
        raise BadInput(f"q={outside[0]!r} is no percentile: give shares between 0 and 1, such as .95.")
    if len({label(p) for p in shares}) < max(1, len(shares)):
        raise BadInput(f"q={q!r}: give at least one share, and each once.")
    if method not in get_args(Method):
        raise BadInput(f"method={method!r} is none; take one of {', '.join(get_args(Method))}.")
    return shares


def _neighbours(n: Integers, q: Sequence[float], method: Method) -> tuple[Integers, Floats]:
    """Between which ranks each percentile lies (those below, then those above), and what share of the way it is.

    numpy tells it: the percentile of 1 to n, by the same method, is a rank, or lies between two. That of the usual
    method is written out, since numpy would take as long as for all rows.
    """
    if method == "linear":
        ranks = np.where(n[:, None] > 0, 1 + (n[:, None] - 1) * np.asarray(q), 0.0)
    else:
        sizes, places = np.unique(n, return_inverse=True)
        found = [np.quantile(np.arange(1, size + 1), q, method=method) if size else np.zeros(len(q)) for size in sizes]
        ranks = np.array(found, np.float64).reshape(len(sizes), len(q))[places]
    below = np.floor(ranks)
    return np.concatenate([below, np.ceil(ranks)], axis=1).astype(np.int64), ranks - below


def _ends(n: Integers, q: Sequence[float]) -> Integers:
    """The ranks that enclose each percentile with confidence, first the lower ones; 0 where none lies so far out."""
    size, p = n[:, None], np.asarray(q)
    low = _binomial_quantile((1 - CONFIDENCE) / 2, size, p)
    high = _binomial_quantile((1 + CONFIDENCE) / 2, size, p) + 1
    ends = np.concatenate([low, np.where(high <= size, high, 0)], axis=1)
    return np.where(np.tile(enough(n, q), 2), ends, 0).astype(np.int64)


def _binomial_quantile(share: float, n: Integers, p: Floats) -> Floats:
    """The least k of which n draws of probability p give at most k with at least this share."""
    from scipy.special import bdtr, bdtrik

    k = np.ceil(np.where(n > 0, bdtrik(share, np.maximum(n, 1), p), 0.0))
    before = np.maximum(k - 1, 0.0)
    return np.where(bdtr(before, np.maximum(n, 1), p) >= share, before, k)


def enough(n: Integers, q: Sequence[float]) -> Any:
    """Whether n rows carry a percentile: on average one of them lies beyond it."""
    tail = np.minimum(q, 1 - np.asarray(q))
    return n[:, None] * tail >= 1 - 1e-9  # 10 * (1 - .9) is a little below 1
