"""One period against another: differences with intervals, so that noise is not taken for news.

Rows of one day depend on each other, so intervals go by days: a day that is unlike the others makes them wide, however
many rows it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.metrics import outcomes
from buildframe.metrics.days import Spread, day_of, effective_sizes, spread_of
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines import GROUP, Floats, Frame, Integers, Rows, numbered, rows
from buildframe.metrics.groups import By, beside, listed
from buildframe.metrics.measured import measured
from buildframe.metrics.percentiles import CONFIDENCE, checked, count, enough, label
from buildframe.metrics.rates import wilson

_COUNTS = ["n", "n_censored", "n_negative"]
_SPREAD = ["rows", "days", "ratio"]


def percentile_change(
    now: Frame,
    before: Frame,
    of: RowMetric | str = wall_time,
    by: By = None,
    q: float | Sequence[float] = 0.5,
    at: str = "created_at",
    tz: str = "UTC",
    confidence: float = 0.95,
) -> pd.DataFrame:
    """How percentiles of a duration differ between two periods.

    `now` and `before` are frames of their rows, which no row may be in twice; `of`, `by` and `q` as in `percentiles`;
    the day of a row is that of the column `at` in the zone `tz`.

    One row a group of either, ordered by key, null keys last; columns: the keys, then
    `n`, `n_censored`, `n_negative` and the same with `_before` (Int64), as in `percentiles`, 0 where the group is not
    in one of them;
    `p50_s`, `p50_before_s` (float64): seconds, NaN where too few rows tell them;
    `p50_low_s`, `p50_high_s` (float64): an interval of `p50_s`, by days as below;
    `p50_change_s` (float64): the one less the other: above 0 where it has become slower;
    `p50_change_low_s`, `p50_change_high_s` (float64): an interval of that, by days. Of each period the share of rows
    up to its percentile has a Wilson interval of as many rows as the days tell (Korn and Graubard 1998, Survey
    Methodology 24: 193-201), and the durations at its ends enclose the percentile (Woodruff 1952, Journal of the
    American Statistical Association 47: 635-646); the interval of the difference adds the distances to the ends of
    both as squares (Zou and Donner 2008, Statistics in Medicine 27: 1693-1702). NaN where a period has fewer than two
    days, or too few rows. Of many groups compared some lie outside 0 by chance: raise `confidence` to
    1 - .05 / groups to have none by chance in 19 of 20 comparisons.
    BadInput as in `percentiles`, for a zone that is none, and for a confidence that is no share.
    """
    shares = checked(q, "linear")
    wilson(0, 1, confidence)  # which refuses what is no share
    sides = [_Side.of(frame, of, by, shares, at, tz) for frame in (now, before)]
    keys, one, other = _side_by_side(sides[0].table, sides[1].table, by)
    columns: dict[str, Any] = {name: one[name].fillna(0) for name in _COUNTS}
    columns |= {f"{name}_before": other[name].fillna(0) for name in _COUNTS}
    for p in shares:
        columns |= _changed(sides, one, other, p, confidence)
    return beside(keys, pd.DataFrame(columns, index=keys.index))


def success_change(
    now: Frame, before: Frame, by: By = None, at: str = "created_at", tz: str = "UTC", confidence: float = 0.95
) -> pd.DataFrame:
    """How the success rate differs between two periods.

    `now` and `before` are frames of builds; `by` as in `success_rate`, whose columns this needs; `at`, `tz` and
    `confidence` as in `percentile_change`.

    One row a group of either, ordered by key, null keys last; columns: the keys, then
    `passed`, `n` and the same with `_before` (Int64), 0 where the group is not in one of them;
    `rate`, `rate_before` (float64 between 0 and 1, NaN where nothing settled): passed / n;
    `rate_low`, `rate_high`: the interval of `rate` by days: Wilson's for as many builds as the days tell (Korn and
    Graubard 1998); NaN where the period has fewer than two days;
    `change`, `low`, `high` (float64 between -1 and 1): the difference and its interval as in `newcombe`, of the same.
    """
    settled, passed = outcomes.is_settled(), outcomes.has_passed()
    needs = ("state", "blocked", at)
    counted = {"those": settled & passed, "counted": settled & (passed | outcomes.has_failed())}
    one, other = (_shares(rows(frame, needs, by), counted, at, tz) for frame in (now, before))
    return _rates_compared(one, other, by, "passed", confidence)


def failure_change(
    now: Frame, before: Frame, by: By = None, at: str = "finished_at", tz: str = "UTC", confidence: float = 0.95
) -> pd.DataFrame:
    """How the share of executions that fail differs between two periods.

    `now` and `before` are frames of jobs. Counted are script jobs that passed or failed hard (failed or timed out, not
    softly), attempt by attempt; canceled, skipped and unfinished jobs are in neither. `by` as in `percentiles`; `at`,
    `tz` and `confidence` as in `percentile_change`. Needs `type`, `state`, `soft_failed`.

    One row a group of either, ordered by key, null keys last; columns: the keys, then
    `failed`, `n` and the same with `_before` (Int64), 0 where the group is not in one of them;
    `rate`, `rate_before` (float64 between 0 and 1, NaN where n is 0): failed / n;
    `rate_low`, `rate_high`, `change`, `low`, `high` (float64): as in `success_change`.
    """
    script, failed = outcomes.is_script(), outcomes.has_failed_hard()
    needs = ("type", "state", "soft_failed", at)
    counted = {"those": script & failed, "counted": script & (failed | outcomes.has_passed())}
    one, other = (_shares(rows(frame, needs, by), counted, at, tz) for frame in (now, before))
    return _rates_compared(one, other, by, "failed", confidence)


def newcombe(
    successes: npt.ArrayLike,
    n: npt.ArrayLike,
    successes_before: npt.ArrayLike,
    n_before: npt.ArrayLike,
    confidence: float = 0.95,
) -> tuple[Floats, Floats, Floats]:
    """The difference of two independent proportions and the limits of its interval, float64, NaN where an n is 0.

    From the Wilson intervals of both (Newcombe 1998, Statistics in Medicine 17: 873-890, method 10). Numbers or
    arrays of one shape. BadInput as in `wilson`.
    """
    one, other = wilson(successes, n, confidence), wilson(successes_before, n_before, confidence)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.asarray(successes, np.float64) / np.asarray(n, np.float64)
        rate_before = np.asarray(successes_before, np.float64) / np.asarray(n_before, np.float64)
    low, high = _square_and_add((rate, *one), (rate_before, *other))
    return rate - rate_before, low, high


def _shares(found: Rows, counted: Mapping[str, nw.Expr], at: str, tz: str) -> pd.DataFrame:
    """Of each group how many rows are `those`, how many are counted (`n`), and how they spread over days."""
    table, keys = numbered(found.having(**counted), *counted, at)
    table = table[table["counted"].to_numpy(bool)]
    by_day = table["those"].groupby([table[GROUP], day_of(table, at, tz)]).agg(["sum", "size"]).astype("float64")
    sums = by_day.groupby(level=0).sum().reindex(range(len(keys)), fill_value=0).astype("Int64")
    spread = {group: spread_of(days["sum"], days["size"]) for group, days in by_day.groupby(level=0)}
    summary = pd.DataFrame({"those": sums["sum"], "n": sums["size"]}).join(
        pd.DataFrame.from_dict(spread, orient="index", columns=_SPREAD, dtype="float64")
    )
    return beside(keys, summary.rename_axis(None))


def _rates_compared(one: pd.DataFrame, other: pd.DataFrame, by: By, those: str, confidence: float) -> pd.DataFrame:
    """Counts and rates of both, and the difference."""
    keys, one, other = _side_by_side(one, other, by)
    columns: dict[str, Any] = {}
    for end, side in (("", one), ("_before", other)):
        columns |= {f"{those}{end}": side["those"].fillna(0), f"n{end}": side["n"].fillna(0)}
    rate, rate_before = (_over(side["those"], side["n"]) for side in (one, other))
    told, told_before = effective_sizes(_spread(one), _spread(other), confidence)
    _, low, high = newcombe(rate * told, told, rate_before * told_before, told_before, confidence)
    told, _ = effective_sizes(_spread(one), _spread(other), CONFIDENCE)
    rate_low, rate_high = wilson(rate * told, told, CONFIDENCE)
    columns |= {"rate": rate, "rate_low": rate_low, "rate_high": rate_high, "rate_before": rate_before}
    columns |= {"change": rate - rate_before, "low": low, "high": high}
    return beside(keys, pd.DataFrame(columns, index=keys.index))


def _spread(side: pd.DataFrame, name: str = "") -> Spread:
    rows, days, ratio = (side[f"{name}{column}"].to_numpy(np.float64, na_value=np.nan) for column in _SPREAD)
    return Spread(np.nan_to_num(rows), np.nan_to_num(days), ratio)


def _over(those: pd.Series[Any], n: pd.Series[Any]) -> Floats:
    """The share, NaN of nothing."""
    whole = n.to_numpy(np.float64, na_value=0)
    return those.to_numpy(np.float64, na_value=0) / np.where(whole > 0, whole, np.nan)


@dataclass(frozen=True)
class _Side:
    """One period: a `table` of its groups, and the durations of each `group` in order."""

    table: pd.DataFrame
    groups: list[Floats]

    @classmethod
    def of(cls, frame: Frame, of: RowMetric | str, by: By, q: tuple[float, ...], at: str, tz: str) -> _Side:
        found = measured(frame, of, by, needs=(at,))
        counts = count(found)
        table, keys = numbered(found.only("value", at), "value", at)
        table = table.assign(day=day_of(table, at, tz)).dropna(subset="value").sort_values("value", ignore_index=True)
        values, days = table["value"].to_numpy(np.float64), table["day"].to_numpy(np.int64)
        places, none = table.groupby(GROUP).indices, np.empty(0, np.int64)
        groups = [places.get(group, none) for group in range(len(keys))]
        told = [[number for p in q for number in _percentile(values[own], days[own], p)] for own in groups]
        names = [name for p in q for name in (label(p), *(f"{label(p)} {column}" for column in _SPREAD))]
        summary = pd.DataFrame(told, columns=names, dtype="float64").assign(group=range(len(keys)))
        return cls(beside(keys, pd.concat([counts.sums, summary], axis=1)), [values[own] for own in groups])


def _percentile(values: Floats, days: Integers, p: float) -> tuple[float, ...]:
    """A percentile of values that are in order, and how the rows up to it spread over days."""
    if not enough(np.array([len(values)]), [p]).all():
        return np.nan, len(values), 0, np.nan
    value = float(np.quantile(values, p))
    sizes, up_to_it = np.bincount(days), np.bincount(days[values <= value], minlength=days.max() + 1)
    return value, *spread_of(up_to_it[sizes > 0], sizes[sizes > 0])


def _changed(
    sides: Sequence[_Side], one: pd.DataFrame, other: pd.DataFrame, p: float, confidence: float
) -> dict[str, Any]:
    name, both = label(p).removesuffix("_s"), (one, other)
    spreads = [_spread(table, f"{label(p)} ") for table in both]
    sizes = effective_sizes(spreads[0], spreads[1], confidence)
    ends = [_ends(side, table, p, told, confidence) for side, table, told in zip(sides, both, sizes, strict=True)]
    values = [table[label(p)].to_numpy(np.float64) for table in both]
    low, high = _square_and_add((values[0], *ends[0]), (values[1], *ends[1]))
    told, _ = effective_sizes(spreads[0], spreads[1], CONFIDENCE)
    own_low, own_high = _ends(sides[0], one, p, told, CONFIDENCE)
    return {
        f"{name}_s": one[label(p)],
        label(p, "low"): own_low,
        label(p, "high"): own_high,
        f"{name}_before_s": other[label(p)],
        f"{name}_change_s": one[label(p)] - other[label(p)],
        f"{name}_change_low_s": low,
        f"{name}_change_high_s": high,
    }


def _ends(side: _Side, table: pd.DataFrame, p: float, told: Floats, confidence: float) -> tuple[Floats, Floats]:
    """The durations between which a percentile of each row's group lies, as sure as so many rows tell it."""
    low, high = wilson(p * told, told, confidence)
    groups = [side.groups[int(group)] if group >= 0 else np.empty(0) for group in table["group"].fillna(-1)]
    lows = [_at(values, np.floor(start * len(values))) for values, start in zip(groups, low, strict=True)]
    highs = [_at(values, np.ceil(stop * len(values)) + 1) for values, stop in zip(groups, high, strict=True)]
    return np.array(lows, np.float64), np.array(highs, np.float64)


def _at(values: Floats, rank: Floats) -> float:
    return float(values[int(rank) - 1]) if 1 <= rank <= len(values) else np.nan  # no comparison holds for NaN


def _side_by_side(one: pd.DataFrame, other: pd.DataFrame, by: By) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """The keys of both, and the two with a row for each."""
    many = len(listed(by))
    names = list(one.columns[:many])
    if not names:
        index = range(max(len(one), len(other)))
        return pd.DataFrame(index=index), one.reindex(index), other.reindex(index)
    keys = pd.concat([one[names], other[names]]).drop_duplicates().sort_values(names, na_position="last")
    keys = keys.reset_index(drop=True)
    return keys, keys.merge(one, how="left", on=names), keys.merge(other, how="left", on=names)


def _square_and_add(one: tuple[Floats, ...], other: tuple[Floats, ...]) -> tuple[Floats, Floats]:
    """The limits of a difference, from two values, each with its limits."""
    (value, low, high), (value_before, low_before, high_before) = one, other
    difference = value - value_before
    return (
        difference - np.hypot(value - low, high_before - value_before),
        difference + np.hypot(high - value, value_before - low_before),
    )
