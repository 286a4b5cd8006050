"""Score rows by the normal quantile of their rank in the group, by a query of any engine.

Engines lack the inverse of the normal distribution, so a rational approximation is part of the query (AS 241, exact to
16 digits: Wichura, M. J. (1988). Applied Statistics 37, 477-484).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import narwhals as nw

SCORE = "score"
_SHARE, _OFFSET, _CENTER, _TAIL, _ROWS = "share of rows", "offset", "in the center", "in the tail", "rows"

_CENTRAL = (
    (3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3, 1.3731693765509461125e4,
     4.5921953931549871457e4, 6.7265770927008700853e4, 3.3430575583588128105e4, 2.5090809287301226727e3),
    (1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4, 5.2264952788528545610e3),
)  # fmt: skip
_OUTER = (
    (1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0, 3.64784832476320460504e0,
     1.27045825245236838258e0, 2.41780725177450611770e-1, 2.27238449892691845833e-2, 7.74545014278341407640e-4),
    (1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4, 1.05075007164441684324e-9),
)  # fmt: skip
"""Numerator and denominator in the center, and outside of it down to a share of 1e-11."""


def with_normal_scores(rows: nw.LazyFrame[Any], by: Sequence[str]) -> nw.LazyFrame[Any]:
    """Add the normal score (`SCORE`) of `value`, which is not null, in its group; ties score equally."""
    rank = nw.col("value").rank("average").over(*by)
    share = rank / (nw.len().over(*by).cast(nw.Float64) + 1)
    return _add_scores(rows.with_columns(share.alias(_SHARE)))


def score_values(rows: nw.LazyFrame[Any], by: Sequence[str]) -> nw.LazyFrame[Any]:
    """Return the distinct values of each group with their scores, as `with_normal_scores` gives them to rows."""
    counts = rows.group_by(*by, "value").agg(nw.len().cast(nw.Float64).alias(_ROWS))
    up_to, n = nw.col(_ROWS).cum_sum().over(*by, order_by="value"), nw.col(_ROWS).sum().over(*by)
    share = (up_to - (nw.col(_ROWS) - 1) / 2) / (n + 1)
    return _add_scores(counts.with_columns(share.alias(_SHARE))).drop(_ROWS)


def _add_scores(rows: nw.LazyFrame[Any]) -> nw.LazyFrame[Any]:
    """Add the normal quantile of the share."""
    lesser = nw.min_horizontal(nw.col(_SHARE), 1 - nw.col(_SHARE))
    offset = nw.col(_SHARE) - 0.5
    prepared = rows.with_columns(offset.alias(_OFFSET), ((0.0 - lesser.log()).sqrt() - 1.6).alias(_TAIL))
    prepared = prepared.with_columns((0.180625 - nw.col(_OFFSET) * nw.col(_OFFSET)).alias(_CENTER))
    center, tail = nw.col(_OFFSET) * _ratio(_CENTRAL, nw.col(_CENTER)), _ratio(_OUTER, nw.col(_TAIL))
    outer = nw.when(nw.col(_OFFSET) < 0).then(0.0 - tail).otherwise(tail)
    scored = prepared.with_columns(nw.when(nw.col(_OFFSET).abs() <= 0.425).then(center).otherwise(outer).alias(SCORE))
    return scored.drop(_SHARE, _OFFSET, _CENTER, _TAIL)


def _ratio(coefficients: tuple[Sequence[float], Sequence[float]], x: nw.Expr) -> nw.Expr:
    above, below = (_polynomial(one, x) for one in coefficients)
    return above / below


def _polynomial(coefficients: Sequence[float], x: nw.Expr) -> nw.Expr:
    *others, highest = coefficients
    value: Any = highest
    for coefficient in reversed(others):
        value = value * x + coefficient
    result: nw.Expr = value
    return result
