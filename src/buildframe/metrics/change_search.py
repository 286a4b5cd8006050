"""Search the days at which a series changed, by shuffles of whole days.

Knows scores of days, and not what they measure. Days are the unit because rows of a day depend on
each other. If nothing changed, any order of the days is as likely.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

import numpy as np

from buildframe.metrics.columns import Floats, Integers

MIN_DAYS = 2
"""Days that a segment needs: one alone may be an outlier."""

_LEVEL = 0.05
"""Probability of a change in a series that has none."""

_SHARE_OF_SPLITS = 0.8
"""Share of the level for splits in two; inner segments have the rest."""

_MAX_SEARCHES = 4

_CORRELATIONS = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9)
"""Correlations of consecutive days that are simulated; those between are interpolated."""

_SIMULATED = 200
"""Number of series that are simulated for each correlation."""

_MAX_SHUFFLES = 1999
"""Shuffles that decide whether there is a change."""

_MAX_FOR_TAIL = 9999
"""Shuffles that show how clear a change is if few of the former are as clear."""

_ENOUGH = 10
"""Shuffles as clear whose share is a probability; fewer may be the same order of days by luck."""

_TAIL = 200
"""The clearest shuffles, which show how fast the probability falls beyond them."""

_MAX_CELLS = 2_000_000
"""Cuts of shuffles that are compared before it is decided whether more shuffles are needed."""

_CACHED = 32_000
"""Sums of days of shuffles that are in memory at once, so that they fit in a processor's cache."""

_MAX_ENDS = 200
"""Days at which a segment of a longer series can begin or end.

Its changes are placed exactly afterwards.
"""


class Series(NamedTuple):
    """Score and weight of each day, in order."""

    score: Floats
    weight: Floats

    def between(self, start: int, stop: int) -> Series:
        """Return the days from start to stop."""
        return Series(self.score[start:stop], self.weight[start:stop])


class Change(NamedTuple):
    """The series changed before the day or commit `at`, whose 95 % interval is `low` to `high`."""

    at: int
    low: int
    high: int
    p: float


class Shuffles(NamedTuple):
    """Number of random orders of the days, and of those in which cuts explain as much.

    `share` is the share of the level that this kind of cuts has. `p` is the probability of as clear
    a cut if nothing changed.
    """

    n: int
    as_clear: int
    p: float = 1.0
    share: float = 1.0

    def is_within(self, level: float) -> bool:
        """Return whether so few shuffles are as clear that the cut is significant."""
        return (self.as_clear + 1) / (self.n + 1) <= level * self.share

    @property
    def p_of_any(self) -> float:
        """Return the probability of as clear a cut of any kind if nothing changed."""
        return min(1.0, self.p / self.share)


class Search(NamedTuple):
    """Changes of a series, and the probability `p` of a series as clear if nothing changed.

    `inflation` is how many times the variance of a mean is that of days that do not depend on each
    other.
    """

    changes: list[Change]
    p: float
    inflation: float


def find_changes(series: Series, *, is_rate: bool = False) -> Search | None:
    """Search the changes of a series; None if it has too few days, or all are equal.

    Scores of few failures have no smooth tail, so `p` of a rate is at least the share of orders of
    the days that separate the same ones. The same series always gives the same result.
    """
    days = len(series.score)
    if days < 2 * MIN_DAYS or np.ptp(series.score) == 0:
        return None
    random = np.random.default_rng(0)
    inflation = 1.0
    cuts, shuffles = _search(series, inflation, random)
    for _ in range(_MAX_SEARCHES - 1):
        correlation = _correlation(series, cuts)
        inflation_by_correlation = (1 + correlation) / (1 - correlation)
        is_by_chance = correlation <= 1.28 / np.sqrt(days)
        if not cuts or is_by_chance or inflation_by_correlation <= inflation:
            break
        inflation = inflation_by_correlation
        cuts, shuffles = _search(series, inflation, random)
    p = shuffles.p_of_any
    if is_rate and cuts:
        ways = (_splits if shuffles.share == _SHARE_OF_SPLITS else _segments)(days)
        p = max(p, min(1.0, ways.share_of_orders(series) / shuffles.share))
    changes = _place_changes(series, cuts, inflation, random)
    return Search(_with_p_of_series(series, changes, p), p, inflation)


def _with_p_of_series(series: Series, changes: list[Change], p: float) -> list[Change]:
    """Return the changes with `p` for the clearest one, and for others at least that."""
    edges = [0, *(change.at for change in changes), len(series.score)]
    parts = [series.between(start, stop) for start, stop in zip(edges, edges[2:], strict=False)]
    clarity = [_clarity_of_best(part, _splits(len(part.score))) for part in parts]
    p_of_changes = [max(change.p, p) for change in changes]
    if changes:
        p_of_changes[int(np.argmax(clarity))] = p
    return [change._replace(p=value) for change, value in zip(changes, p_of_changes, strict=True)]


def _clarity_of_best(series: Series, ways: _Ways) -> float:
    """Return how clear the best way is, times the number of days."""
    return float(len(series.score) * _clarity(ways.explained(*series).max(), 1.0))


def _search(
    series: Series,
    inflation: float,
    random: np.random.Generator,
) -> tuple[list[int], Shuffles]:
    """Return the cuts found by the best split or else the best inner segment, and in their parts.

    The shuffles are those of the whole series.
    """
    days = len(series.score)
    found, shuffles = _cut(series, _LEVEL, inflation, random)
    parts = list(zip([0, *found], [*found, days], strict=True)) if found else []
    while parts:
        start, stop = parts.pop()
        level = _LEVEL * (stop - start) / days
        cuts_of_part, _ = _cut(series.between(start, stop), level, inflation, random)
        cuts = [start + cut for cut in cuts_of_part]
        found += cuts
        parts += zip([start, *cuts], [*cuts, stop], strict=True) if cuts else []
    return sorted(found), shuffles


def _cut(
    series: Series,
    level: float,
    inflation: float,
    random: np.random.Generator,
) -> tuple[list[int], Shuffles]:
    """Return the cuts that are significant at a level, and the shuffles of the clearer kind."""
    cuts: list[int] = []
    clearest = Shuffles(0, 0)
    days = len(series.score)
    if days < 2 * MIN_DAYS or np.ptp(series.score) == 0:
        return cuts, clearest
    for ways, share in ((_splits(days), _SHARE_OF_SPLITS), (_segments(days), 1 - _SHARE_OF_SPLITS)):
        if not ways.n_ways or (cuts and _explains_less(series, ways, _splits(days))):
            continue
        allowed = level * share * (_MAX_SHUFFLES + 1) - 1
        shuffles = _shuffle(series, ways, allowed, inflation, random)._replace(share=share)
        if shuffles.p_of_any < clearest.p_of_any or not clearest.n:
            clearest = shuffles
            cuts = ways.best(series) if shuffles.is_within(level) else cuts
    return cuts, clearest


def _explains_less(series: Series, ways: _Ways, splits: _Ways) -> bool:
    """Return whether the best way cannot be clearer than the best split, as there are more ways."""
    clarity = _clarity_of_best(series, ways) / 2 - math.log(ways.n_ways)
    clarity_of_splits = _clarity_of_best(series, splits) / 2 - math.log(splits.n_ways)
    return clarity <= clarity_of_splits


class _Ways:
    """Ways to cut a series in two kinds of days; `first` and `stop` limit the days of one kind.

    `runs` are the same limits as pairs of slices, in any order.
    """

    def __init__(
        self,
        first: Integers,
        stop: Integers,
        days: int,
        runs: list[tuple[slice, slice]],
    ) -> None:
        self._first = first
        self._stop = stop
        self._days = days
        self._runs = runs
        self.n_ways = len(first)

    def explained(self, score: Floats, weight: Floats) -> Floats:
        """Return the share of the variance that each way explains; days are the last axis."""
        total = weight.sum(-1, keepdims=True)
        centered = score - (score * weight).sum(-1, keepdims=True) / total
        sums = _cumulate(centered * weight)
        weights = _cumulate(weight)
        inside = sums[..., self._stop] - sums[..., self._first]
        weight_inside = weights[..., self._stop] - weights[..., self._first]
        squares = (centered**2 * weight).sum(-1, keepdims=True)
        spread = weight_inside * (total - weight_inside) * squares
        share: Floats = np.zeros_like(spread)  # 0 if the days do not differ
        np.divide(inside**2 * total, spread, out=share, where=spread > 0)
        return share

    def explained_by_best(self, series: Series, orders: Integers) -> Floats:
        """Return the share of the variance that the best way explains in each order of the days."""
        score, weight = series
        total = weight.sum()
        centered = score - (score * weight).sum() / total
        most = np.zeros(len(orders))
        n_at_once = max(1, _CACHED // self._days)
        for start in range(0, len(orders), n_at_once):
            order = orders[start : start + n_at_once].T
            best = most[start : start + n_at_once]
            sums = np.zeros((self._days + 1, order.shape[1]))
            weights = np.zeros((self._days + 1, order.shape[1]))
            np.cumsum((centered * weight)[order], 0, out=sums[1:])
            np.cumsum(weight[order], 0, out=weights[1:])
            for first, stop in self._runs:
                weight_inside = weights[stop] - weights[first]
                spread = weight_inside * (total - weight_inside)
                explained = (sums[stop] - sums[first]) ** 2 / spread
                np.maximum(best, explained.max(0), out=best)
        share: Floats = most * (total / (centered**2 * weight).sum())
        return share

    def best(self, series: Series) -> list[int]:
        """Return the cuts of the way that explains most."""
        best = int(self.explained(*series).argmax())
        return [int(cut) for cut in (self._first[best], self._stop[best]) if 0 < cut < self._days]

    def share_of_orders(self, series: Series) -> float:
        """Return the share of all orders of days that separate the same days as the best way."""
        lengths = self._stop - self._first
        length = int(lengths[self.explained(*series).argmax()])
        n_alike = int(np.isin(lengths, [length, self._days - length]).sum())
        return n_alike / math.comb(self._days, length)


def _cumulate(values: Floats) -> Floats:
    """Return the sums of the values before each day and of all, along the last axis."""
    none = np.zeros((*values.shape[:-1], 1))
    return np.concatenate([none, np.cumsum(values, -1)], -1)


@functools.cache
def _splits(days: int) -> _Ways:
    """Return the ways to split days in two."""
    stops = np.arange(MIN_DAYS, days - MIN_DAYS + 1)
    run = (slice(1), slice(MIN_DAYS, days - MIN_DAYS + 1))
    return _Ways(np.zeros_like(stops), stops, days, [run])


@functools.lru_cache(64)
def _segments(days: int) -> _Ways:
    """Return the ways to separate an inner segment from the days on both sides."""
    last = days - MIN_DAYS
    step = -(-days // _MAX_ENDS)
    ends = np.arange(MIN_DAYS, last + 1, step)
    earlier, later = np.triu_indices(len(ends), 1)  # of each pair of ends
    first = ends[earlier]
    stop = ends[later]
    long_enough = stop - first >= MIN_DAYS
    runs = []
    for length in range(step, last - MIN_DAYS + 1, step):
        if length >= MIN_DAYS:
            firsts = slice(MIN_DAYS, last + 1 - length, step)
            stops = slice(MIN_DAYS + length, last + 1, step)
            runs.append((firsts, stops))
    return _Ways(first[long_enough], stop[long_enough], days, runs)


def _shuffle(
    series: Series,
    ways: _Ways,
    allowed: float,
    inflation: float,
    random: np.random.Generator,
) -> Shuffles:
    """Count shuffles, and those that are as clear; end when more of these than allowed occurred."""
    observed = _clarity(ways.explained(*series).max(), 1.0)
    clarity = np.zeros(0)
    as_clear = 0
    most = _MAX_SHUFFLES
    while len(clarity) < most and as_clear <= allowed:
        n_at_once = min(max(100, len(clarity)), max(1, _MAX_CELLS // ways.n_ways))
        n = min(most - len(clarity), n_at_once)
        explained = _explained_by_chance(series, ways, n, random)
        clarity = np.append(clarity, _clarity(explained, inflation))
        as_clear = int((clarity >= observed * (1 - 1e-9)).sum())
        if len(clarity) == _MAX_SHUFFLES and as_clear < _ENOUGH:
            most = _MAX_FOR_TAIL
    return Shuffles(len(clarity), as_clear, _tail_probability(clarity, float(observed)))


def _explained_by_chance(
    series: Series,
    ways: _Ways,
    n: int,
    random: np.random.Generator,
) -> Floats:
    """Return how much the best way explains in random orders of the days."""
    order = random.permuted(np.tile(np.arange(len(series.score)), (n, 1)), axis=1)
    return ways.explained_by_best(series, order)


def _clarity(explained: Floats, inflation: float) -> Floats:
    """Return a scale on which the probability of values as high falls exponentially."""
    return np.log1p(explained / np.maximum(1 - explained, 1e-12) * inflation)


def _tail_probability(clarity: Floats, observed: float) -> float:
    """Return the probability of a value as high.

    Beyond all shuffles it follows from how fast it falls in the highest of these. A few shuffles
    that are as high give a rough bound only (Knijnenburg, T. A., et al. (2009). Bioinformatics 25).
    """
    n = len(clarity)
    as_clear = int((clarity >= observed * (1 - 1e-9)).sum())
    if as_clear >= _ENOUGH or n <= _MAX_SHUFFLES:
        return (as_clear + 1) / (n + 1)
    limit, excess = _tail(clarity)
    return _TAIL / n * float(np.exp(-(observed - limit) / excess)) if excess > 0 else 1 / (n + 1)


def _tail(clarity: Floats) -> tuple[float, float]:
    """Return the limit of the highest values, and by how much these exceed it on average."""
    highest = np.sort(clarity)[-_TAIL - 1 :]
    return float(highest[0]), float((highest[1:] - highest[0]).mean())


def fewest_days(days: int, p: float) -> int:
    """Return how many days a part of a split needs at least for a probability `p` by chance."""
    level = p * _SHARE_OF_SPLITS
    for length in range(MIN_DAYS, days // 2):
        if 2 / math.comb(days, length) <= level:
            return length
    return days // 2


def needed_distance(series: Series, p: float) -> float:
    """Return by how many standard errors the parts of a split must differ for `p` by chance.

    The series has no change.
    """
    days = len(series.score)
    random = np.random.default_rng(0)
    clarity = _clarity(_explained_by_chance(series, _splits(days), _MAX_FOR_TAIL, random), 1.0)
    limit, excess = _tail(clarity)
    share = p * _SHARE_OF_SPLITS * _MAX_FOR_TAIL / _TAIL
    far = limit - excess * np.log(share) if share < 1 else np.quantile(clarity, 1 - p)
    return float(np.sqrt(np.expm1(far) * (days - 2)))


def _correlation(series: Series, cuts: list[int]) -> float:
    """Return the correlation of consecutive days beside what the cuts explain.

    It is the lower one of two estimates. The second splits each part once more, where that explains
    most, so that a change in a part that is too short to be certain is not taken for a correlation.
    """
    edges = [0, *cuts, len(series.score)]
    lengths = tuple(np.diff(edges).tolist())
    parts = []
    for start, stop in itertools.pairwise(edges):
        part = series.between(start, stop)
        parts.append(Series(part.score[None], part.weight[None]))
    estimates = []
    for more in (False, True):
        expected = _expected_correlations(lengths, more)
        estimates.append(np.interp(_lag_correlation(parts, more)[0], expected, _CORRELATIONS))
    return float(min(estimates))


def _lag_correlation(parts: list[Series], more: bool) -> Floats:
    """Return the correlation of consecutive days of each series beside the levels of its parts.

    With `more` they are the levels of the two parts of the best split of each part.
    """
    residuals = np.concatenate([_residuals(*part, more) for part in parts], axis=-1)
    squares = (residuals**2).sum(-1)
    products = (residuals[:, 1:] * residuals[:, :-1]).sum(-1)
    correlation: Floats = np.zeros_like(squares)
    np.divide(products, squares, out=correlation, where=squares > 0)
    return correlation


def _residuals(score: Floats, weight: Floats, more: bool) -> Floats:
    """Return what remains of each series beside its level, or the two levels of its best split."""
    days = score.shape[-1]
    ways = _splits(days)
    stop = np.zeros(len(score), np.int64)
    if more and ways.n_ways:
        stop = ways.explained(score, weight).argmax(-1) + MIN_DAYS
    is_late = np.arange(days) >= stop[:, None]
    residuals: Floats = score.copy()
    for side in (is_late, ~is_late):
        weight_of_side = np.where(side, weight, 0.0)
        total = np.maximum(weight_of_side.sum(-1), 1e-12)
        mean = (weight_of_side * score).sum(-1) / total
        residuals -= side * mean[:, None]
    return residuals


@functools.lru_cache(1024)
def _expected_correlations(lengths: tuple[int, ...], more: bool) -> Floats:
    """Return the mean of `_lag_correlation` for each of `_CORRELATIONS`, by lengths of parts."""
    noise = np.random.default_rng(0).standard_normal((_SIMULATED, sum(lengths)))
    means = []
    for correlation in _CORRELATIONS:
        scores = noise.copy()
        rest = math.sqrt(1 - correlation**2)
        for day in range(1, scores.shape[1]):
            scores[:, day] = correlation * scores[:, day - 1] + rest * noise[:, day]
        scores_of_parts = np.split(scores, np.cumsum(lengths)[:-1], axis=1)
        parts = [Series(score, np.ones_like(score)) for score in scores_of_parts]
        means.append(_lag_correlation(parts, more).mean())
    return np.maximum.accumulate(np.array(means))


def _place_changes(
    series: Series,
    cuts: list[int],
    inflation: float,
    random: np.random.Generator,
) -> list[Change]:
    """Place each cut again between its neighbors, and keep those that are significant there."""
    changes: list[Change] = []
    start = 0
    for stop in [*cuts[1:], len(series.score)][: len(cuts)]:
        part = series.between(start, stop)
        ways = _splits(stop - start)
        if not ways.n_ways or np.ptp(part.score) == 0:
            continue
        shuffles = _shuffle(part, ways, _LEVEL * (_MAX_SHUFFLES + 1) - 1, inflation, random)
        if shuffles.is_within(_LEVEL):
            low, high = _find_interval(part, ways)
            at = start + ways.best(part)[0]
            changes.append(Change(at, start + low, start + high, shuffles.p))
            start = at
    return changes


def likely_range(logs: Floats) -> tuple[int, int]:
    """Return the positions between which 95 % of the probability lies.

    `logs` are the logarithms of how likely each position is.
    """
    cumulative = np.cumsum(np.exp(logs - logs.max()))
    low, high = np.searchsorted(cumulative / cumulative[-1], [0.025, 0.975])
    return int(low), int(high)


def _find_interval(series: Series, ways: _Ways) -> tuple[int, int]:
    """Return the days between which the change lies with 95 % probability.

    Each day is as likely before.
    """
    explained = ways.explained(*series)
    weight = np.cumsum(series.weight)[MIN_DAYS - 1 : -MIN_DAYS]
    logs = -(len(series.score) - 2) / 2 * np.log(np.maximum(1 - explained, 1e-12))
    logs -= np.log(weight * (series.weight.sum() - weight)) / 2
    low, high = likely_range(logs)
    return MIN_DAYS + low, MIN_DAYS + high
