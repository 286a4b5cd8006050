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

from buildframe.arguments import checked_names
from buildframe.metrics import outcomes
from buildframe.metrics.days import Spread, by_days, dated, effective_sizes, spread_of
from buildframe.metrics.durations import RowMetric, wall_time
from buildframe.metrics.engines import GROUP, Floats, Frame, Integers, Rows, Tally, rows
from buildframe.metrics.groups import By, beside, listed
from buildframe.metrics.known import with_known
from buildframe.metrics.measured import measured
from buildframe.metrics.percentiles import CONFIDENCE, checked, count, label, percentiles_of
from buildframe.metrics.ranks import at_ranks
from buildframe.metrics.rates import wilson
from buildframe.metrics.states import check_states

_COUNTS = ["n", "n_censored", "n_negative"]
_SPREAD = ["rows", "days", "ratio"]


@checked_names
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
    columns |= _changed(sides, (one, other), shares, confidence)
    return beside(keys, pd.DataFrame(columns, index=keys.index))


@checked_names
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
    one, other = (_shares(frame, needs, by, counted, at, tz) for frame in (now, before))
    return _rates_compared(one, other, by, "passed", confidence)


@checked_names
def failure_change(
    now: Frame, before: Frame, by: By = None, at: str = "finished_at", tz: str = "UTC", confidence: float = 0.95
) -> pd.DataFrame:
    """How the share of executions that fail differs between two periods.

    `now` and `before` are frames of jobs. Counted are script jobs that passed or failed hard (failed or timed out, not
    softly), attempt by attempt; canceled, skipped and unfinished jobs are in neither. `by` as in `percentiles`; `at`,
    `tz` and `confidence` as in `percentile_change`. Needs `type`, `state`, `soft_failed`.

    One row a group of either that has script jobs, ordered by key, null keys last; columns: the keys, then
    `failed`, `n` and the same with `_before` (Int64), 0 where the group is not in one of them;
    `rate`, `rate_before` (float64 between 0 and 1, NaN where n is 0): failed / n;
    `rate_low`, `rate_high`, `change`, `low`, `high` (float64): as in `success_change`.
    """
    failed = outcomes.has_failed_hard()
    needs = ("type", "state", "soft_failed", at)
    counted = {"those": failed, "counted": failed | outcomes.has_passed()}
    one, other = (_shares(frame, needs, by, counted, at, tz, outcomes.is_script()) for frame in (now, before))
    return _rates_compared(one, other, by, "failed", confidence)


@checked_names
def newcombe(
    successes: npt.ArrayLike,
    n: npt.ArrayLike,
    successes_before: npt.ArrayLike,
    n_before: npt.ArrayLike,
    confidence: float = 0.95,
) -> tuple[Floats, Floats, Floats]:
    """The difference of two independent proportions and the limits of its interval, float64, NaN where an n is 0.

    From the Wilson intervals of both (Newcombe 1998, Statistics in Medicine 17: 873-890, method 10). Numbers or
    arrays of one shape. Missing counts and BadInput as in `wilson`.
    """
    one, other = wilson(successes, n, confidence), wilson(successes_before, n_before, confidence)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.asarray(successes, np.float64) / np.asarray(n, np.float64)
        rate_before = np.asarray(successes_before, np.float64) / np.asarray(n_before, np.float64)
    low, high = _square_and_add((rate, *one), (rate_before, *other))
    return rate - rate_before, low, high


def _shares(
    frame: Frame,
    needs: Sequence[str],
    by: By,
    counted: Mapping[str, nw.Expr],
    at: str,
    tz: str,
    only: nw.Expr | None = None,
) -> pd.DataFrame:
    """Of each group how many rows are `those`, how many are `counted` (`n`), and how they spread over days.

    With `only`, other rows are left out, and make no group.
    """
    check_states(frame, "state")
    found = rows(frame, needs, by)
    found = found if only is None else found.those(only)
    days, keys = by_days(dated(found.having(**counted), at, tz), *counted)
    days = days[days["counted"] > 0]
    sums = days.groupby(GROUP)[list(counted)].sum().reindex(range(len(keys)), fill_value=0).astype("Int64")
    summary = pd.DataFrame({"those": sums["those"], "n": sums["counted"]}).join(_spreads(days, "those"))
    return beside(keys, summary.rename_axis(None))


def _spreads(days: pd.DataFrame, those: str) -> pd.DataFrame:
    """Of groups with days on which rows are counted, how those among them spread over days."""
    spread = {group: spread_of(own[those], own["counted"]) for group, own in days.groupby(GROUP)}
    return pd.DataFrame.from_dict(spread, orient="index", columns=_SPREAD, dtype="float64")


def _rates_compared(one: pd.DataFrame, other: pd.DataFrame, by: By, those: str, confidence: float) -> pd.DataFrame:
    """Counts and rates of both, and the difference."""
    keys, one, other = _side_by_side(one, other, by)
    columns: dict[str, Any] = {}
    for end, side in (("", one), ("_before", other)):
        columns |= {f"{those}{end}": side["those"].fillna(0), f"n{end}": side["n"].fillna(0)}
    rate, rate_before = (_over(side["those"], side["n"]) for side in (one, other))
    wilson(0, 1, confidence)  # which refuses what is no share
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
    """One period: a `table` of its groups, with their `place` in `counts`."""

    found: Rows
    counts: Tally
    table: pd.DataFrame

    @classmethod
    def of(cls, frame: Frame, of: RowMetric | str, by: By, q: tuple[float, ...], at: str, tz: str) -> _Side:
        found = measured(frame, of, by, needs=(at,))
        counts = count(found)
        values = percentiles_of(found, counts, q)
        told = _spreads_up_to(dated(found.only("value", at), at, tz), counts, values)
        table = pd.concat([counts.sums, values, told], axis=1).assign(place=range(len(told)))
        return cls(found, counts, beside(counts.keys, table))

    def at_ranks(self, place: pd.Series[Any], ranks: Integers) -> Floats:
        """The durations of these ranks of the groups at these places; NaN where either is none."""
        is_there = place.notna().to_numpy()
        own = place[is_there].to_numpy(np.int64)
        wanted = np.zeros((len(self.counts.groups), ranks.shape[1]), np.int64)
        wanted[own] = ranks[is_there]
        n = self.counts.sums["n"].to_numpy(np.int64)
        values = np.full(ranks.shape, np.nan)
        values[is_there] = at_ranks(self.found, "value", self.counts.groups, n, wanted)[own]
        return values


def _spreads_up_to(found: Rows, counts: Tally, values: pd.DataFrame) -> pd.DataFrame:
    """Of each group how the rows up to each of its percentiles spread over days, in the order of `counts`."""
    names = list(map(str, values))
    known = with_known(found, counts.groups, {name: values[name].to_numpy(np.float64) for name in names})
    is_up_to = {f"up to {name}": nw.col("value") <= nw.col(name) for name in names}
    days, _ = by_days(known.having(counted=~nw.col("value").is_null(), **is_up_to), "counted", *is_up_to)
    days = days[days["counted"] > 0]
    told = [_spreads(days, f"up to {name}").reindex(values.index).where(values[name].notna()) for name in names]
    spreads = [one.add_prefix(f"{name} ") for name, one in zip(names, told, strict=True)]
    return pd.concat([values[[]], *spreads], axis=1)


def _changed(
    sides: Sequence[_Side], both: Sequence[pd.DataFrame], q: Sequence[float], confidence: float
) -> dict[str, Any]:
    """The columns of each percentile."""
    ranks: tuple[list[Integers], ...] = ([], [])
    for p in q:
        spreads = [_spread(table, f"{label(p)} ") for table in both]
        told = effective_sizes(spreads[0], spreads[1], confidence)
        own, _ = effective_sizes(spreads[0], spreads[1], CONFIDENCE)
        for side, table, size in zip(ranks, both, told, strict=True):
            side.append(_ranks(table, p, size, confidence))
        ranks[0].append(_ranks(both[0], p, own, CONFIDENCE))
    now, before = (
        side.at_ranks(table["place"], np.concatenate(own, axis=1)) if q else np.empty((len(table), 0))
        for side, table, own in zip(sides, both, ranks, strict=True)
    )
    columns: dict[str, Any] = {}
    for i, p in enumerate(q):
        columns |= _compared(both, p, now[:, 4 * i : 4 * i + 4].T, before[:, 2 * i : 2 * i + 2].T)
    return columns


def _compared(both: Sequence[pd.DataFrame], p: float, now: Floats, before: Floats) -> dict[str, Any]:
    """The columns of a percentile; `now` are the ends by the confidence asked for and then its own, `before` those."""
    name, (one, other) = label(p).removesuffix("_s"), (table[label(p)] for table in both)
    low, high = _square_and_add((one.to_numpy(np.float64), *now[:2]), (other.to_numpy(np.float64), *before))
    return {
        f"{name}_s": one,
        label(p, "low"): now[2],
        label(p, "high"): now[3],
        f"{name}_before_s": other,
        f"{name}_change_s": one - other,
        f"{name}_change_low_s": low,
        f"{name}_change_high_s": high,
    }


def _ranks(table: pd.DataFrame, p: float, told: Floats, confidence: float) -> Integers:
    """The ranks between which a percentile of each row's group lies, as sure as so many rows tell it; 0 for none."""
    low, high = wilson(p * told, told, confidence)
    n = table["n"].to_numpy(np.float64, na_value=0)
    ranks = np.column_stack([np.floor(low * n), np.ceil(high * n) + 1])
    return np.where((ranks >= 1) & (ranks <= n[:, None]), np.nan_to_num(ranks), 0).astype(np.int64)


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
