"""Search the days at which a series changed, by shuffles of whole days. Knows scores of days, not what they measure.

Days are the unit because rows of a day depend on each other. If nothing changed, any order of the
days is as likely.
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

_LEVEL, _SHARE_OF_SPLITS = 0.05, 0.8
"""Probability of a change in a series that has none, and the share of it for splits in two; segments have the rest."""

_MAX_SEARCHES = 4
_CORRELATIONS, _SIMULATED = (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9), 200
"""Correlations of consecutive days, and number of series for each, that show how an estimate relates to them."""

_MAX_SHUFFLES, _MAX_FOR_TAIL = 1999, 9999
"""Shuffles that decide whether there is a change, and those that show how clear it is if few of the former are."""

_ENOUGH = 10
"""As clear shuffles whose share is a probability; fewer may be the same order of the days by luck."""

_TAIL = 200
"""The clearest shuffles, which show how fast the probability falls beyond them."""

_MAX_CELLS = 2_000_000
"""Cuts of shuffles that are compared before it is decided whether more shuffles are needed."""

_CACHED = 32_000
"""Sums of days of shuffles that are in memory at once. They and what follows from them fit in a processor's cache."""

_MAX_ENDS = 200
"""Places at which a segment of a longer series can begin or end; its changes are placed exactly afterwards."""


class Series(NamedTuple):
    """Score and weight of each day, in order."""

    score: Floats
    weight: Floats

    def between(self, start: int, stop: int) -> Series:
        """Return the days from start to stop."""
        return Series(self.score[start:stop], self.weight[start:stop])


class Change(NamedTuple):
    """The series changed before the day or commit `at`. The 95 % interval of `at` is from `low` to `high`."""

    at: int
    low: int
    high: int
    p: float


class Shuffles(NamedTuple):
    """Number of random orders of the days, and of those in which one kind of cuts explains as much as in the data.

    `share` is the share of the level that this kind has. `p` is the probability of as clear a cut
    if nothing changed.
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


def score_days(n: Floats, sums: Floats, squares: Floats) -> Series:
    """Score days by the mean of the normal scores of their rows, from sums of these and of their squares."""
    return Series(sums / n, _weigh_days(n, sums, squares))


def score_failures(n: Floats, failed: Floats) -> Series:
    """Score days by the transformed share of failures, whose variance hardly depends on the share."""
    score = np.arcsin(np.sqrt((failed + 3 / 8) / (n + 3 / 4)))
    return Series(score, _weigh_days(n, failed, failed))


def _weigh_days(n: Floats, sums: Floats, squares: Floats) -> Floats:
    """Return weights by the number of rows and by how much alike rows of a day are (intraclass correlation)."""
    total, days = n.sum(), len(n)
    if total <= days or days < 2:
        return np.ones(days)
    within = (squares - sums**2 / n).sum() / (total - days)
    between = (n * (sums / n - sums.sum() / total) ** 2).sum() / (days - 1)
    typical = (total - (n**2).sum() / total) / (days - 1)
    alike = max(0.0, (between - within) / (between + (typical - 1) * within)) if within > 0 else 1.0
    weights: Floats = n / (1 + (n - 1) * alike)
    return weights


def find_changes(series: Series, *, is_rate: bool = False) -> Search | None:
    """Search the changes of a series; None if it has too few days, or all are equal.

    Scores of few failures have no smooth tail, so `p` of a rate is at least the share of orders of
    the days that separate the same ones. The same series always gives the same result.
    """
    days = len(series.score)
    if days < 2 * MIN_DAYS or np.ptp(series.score) == 0:
        return None
    random, inflation = np.random.default_rng(0), 1.0
    cuts, shuffles = _search(series, inflation, random)
    for _ in range(_MAX_SEARCHES - 1):
        alike = _correlation(series, cuts)
        if not cuts or alike <= 1.28 / np.sqrt(days) or (1 + alike) / (1 - alike) <= inflation:
            break
        inflation = (1 + alike) / (1 - alike)
        cuts, shuffles = _search(series, inflation, random)
    p = shuffles.p_of_any
    if is_rate and cuts:
        ways = (_splits if shuffles.share == _SHARE_OF_SPLITS else _segments)(days)
        p = max(p, min(1.0, ways.share_of_orders(series) / shuffles.share))
    return Search(_with_p_of_series(series, _replace(series, cuts, inflation, random), p), p, inflation)


def _with_p_of_series(series: Series, changes: list[Change], p: float) -> list[Change]:
    """Return the changes with `p` for the clearest one, and for others at least that."""
    edges = [0, *(change.at for change in changes), len(series.score)]
    parts = [series.between(start, stop) for start, stop in zip(edges, edges[2:], strict=False)]
    clearest = [len(own.score) * _clarity(_splits(len(own.score)).explained(*own).max(), 1.0) for own in parts]
    first = int(np.argmax(clearest)) if changes else 0
    return [change._replace(p=p if i == first else max(change.p, p)) for i, change in enumerate(changes)]


def _search(series: Series, inflation: float, random: np.random.Generator) -> tuple[list[int], Shuffles]:
    """Return the cuts found by the best split, or else by the best inner segment, and within their parts.

    The shuffles are those of the whole series.
    """
    days = len(series.score)
    found, shuffles = _cut(series, _LEVEL, inflation, random)
    parts = list(zip([0, *found], [*found, days], strict=True)) if found else []
    while parts:
        start, stop = parts.pop()
        own, _ = _cut(series.between(start, stop), _LEVEL * (stop - start) / days, inflation, random)
        cuts = [start + cut for cut in own]
        found += cuts
        parts += zip([start, *cuts], [*cuts, stop], strict=True) if cuts else []
    return sorted(found), shuffles


def _cut(series: Series, level: float, inflation: float, random: np.random.Generator) -> tuple[list[int], Shuffles]:
    """Return the cuts that are significant at a level, and the shuffles of the clearer kind of cuts."""
    cuts: list[int] = []
    days, clearest = len(series.score), Shuffles(0, 0)
    if days < 2 * MIN_DAYS or np.ptp(series.score) == 0:
        return cuts, clearest
    for ways, share in ((_splits(days), _SHARE_OF_SPLITS), (_segments(days), 1 - _SHARE_OF_SPLITS)):
        if ways.cuts and not (cuts and _explains_less(series, ways, _splits(days))):
            allowed = level * share * (_MAX_SHUFFLES + 1) - 1
            shuffles = _shuffle(series, ways, allowed, inflation, random)._replace(share=share)
            if shuffles.p_of_any < clearest.p_of_any or not clearest.n:
                clearest = shuffles
                cuts = ways.best(series) if shuffles.is_within(level) else cuts
    return cuts, clearest


def _explains_less(series: Series, ways: _Ways, others: _Ways) -> bool:
    """Return whether the best of some ways cannot be clearer than the best of fewer others."""
    clarity = [len(series.score) / 2 * _clarity(one.explained(*series).max(), 1.0) for one in (ways, others)]
    return bool(clarity[0] - math.log(ways.cuts) <= clarity[1] - math.log(others.cuts))


class _Ways:
    """Ways to cut a series in two kinds of days; `first` and `stop` limit the days of one kind.

    `runs` are the same limits as pairs of slices, in any order.
    """

    def __init__(self, first: Integers, stop: Integers, days: int, runs: list[tuple[slice, slice]]) -> None:
        self._first, self._stop, self._days, self._runs = first, stop, days, runs
        self.cuts = len(first)

    def explained(self, score: Floats, weight: Floats) -> Floats:
        """Return the share of the variance that each way explains; days are the last axis."""
        total = weight.sum(-1, keepdims=True)
        centered = score - (score * weight).sum(-1, keepdims=True) / total
        sums, weights = (
            np.concatenate([np.zeros((*one.shape[:-1], 1)), np.cumsum(one, -1)], -1)
            for one in (centered * weight, weight)
        )
        inside = sums[..., self._stop] - sums[..., self._first]
        own = weights[..., self._stop] - weights[..., self._first]
        spread = own * (total - own) * (centered**2 * weight).sum(-1, keepdims=True)
        share: Floats = np.divide(inside**2 * total, spread, out=np.zeros_like(spread), where=spread > 0)
        return share  # 0 if the days do not differ

    def explained_by_best(self, series: Series, orders: Integers) -> Floats:
        """Return the share of the variance that the best way explains in each of several orders of the days."""
        score, weight = series
        total = weight.sum()
        centered = score - (score * weight).sum() / total
        most, rows = np.zeros(len(orders)), max(1, _CACHED // self._days)
        for at in range(0, len(orders), rows):
            order, best = orders[at : at + rows].T, most[at : at + rows]
            sums, weights = (np.zeros((self._days + 1, order.shape[1])) for _ in series)
            np.cumsum((centered * weight)[order], 0, out=sums[1:])
            np.cumsum(weight[order], 0, out=weights[1:])
            for first, stop in self._runs:
                own = weights[stop] - weights[first]
                np.maximum(best, ((sums[stop] - sums[first]) ** 2 / (own * (total - own))).max(0), out=best)
        share: Floats = most * (total / (centered**2 * weight).sum())
        return share

    def best(self, series: Series) -> list[int]:
        """Return the cuts of the way that explains most."""
        place = int(self.explained(*series).argmax())
        return [int(cut) for cut in (self._first[place], self._stop[place]) if 0 < cut < self._days]

    def share_of_orders(self, series: Series) -> float:
        """Return the share of all orders of the days in which some way separates the same days as the best one does."""
        lengths = self._stop - self._first
        own = int(lengths[self.explained(*series).argmax()])
        return int(np.isin(lengths, [own, self._days - own]).sum()) / math.comb(self._days, own)


@functools.cache
def _splits(days: int) -> _Ways:
    """Return the ways to split days in two."""
    stops = np.arange(MIN_DAYS, days - MIN_DAYS + 1)
    return _Ways(np.zeros_like(stops), stops, days, [(slice(1), slice(MIN_DAYS, days - MIN_DAYS + 1))])


@functools.lru_cache(64)
def _segments(days: int) -> _Ways:
    """Return the ways to separate an inner segment from the days on both sides."""
    last, step = days - MIN_DAYS, -(-days // _MAX_ENDS)
    ends = np.arange(MIN_DAYS, last + 1, step)
    first, stop = (ends[place] for place in np.triu_indices(len(ends), 1))
    long_enough = stop - first >= MIN_DAYS
    lengths = [length for length in range(step, last - MIN_DAYS + 1, step) if length >= MIN_DAYS]
    runs = [(slice(MIN_DAYS, last + 1 - own, step), slice(MIN_DAYS + own, last + 1, step)) for own in lengths]
    return _Ways(first[long_enough], stop[long_enough], days, runs)


def _shuffle(series: Series, ways: _Ways, allowed: float, inflation: float, random: np.random.Generator) -> Shuffles:
    """Count shuffles, and those that explain as much; they end once more of these than allowed have occurred."""
    observed = _clarity(ways.explained(*series).max(), 1.0)
    clarity, as_clear, most = np.zeros(0), 0, _MAX_SHUFFLES
    while len(clarity) < most and as_clear <= allowed:
        n = min(most - len(clarity), max(100, len(clarity)), max(1, _MAX_CELLS // ways.cuts))
        clarity = np.append(clarity, _clarity(_explained_by_chance(series, ways, n, random), inflation))
        as_clear = int((clarity >= observed * (1 - 1e-9)).sum())
        if len(clarity) == _MAX_SHUFFLES and as_clear < _ENOUGH:
            most = _MAX_FOR_TAIL
    return Shuffles(len(clarity), as_clear, _tail_probability(clarity, float(observed)))


def _explained_by_chance(series: Series, ways: _Ways, n: int, random: np.random.Generator) -> Floats:
    """Return how much the best way explains in random orders of the days."""
    order = random.permuted(np.tile(np.arange(len(series.score)), (n, 1)), axis=1)
    return ways.explained_by_best(series, order)


def _clarity(explained: Floats, inflation: float) -> Floats:
    """Return a scale on which the probability of values as high falls exponentially."""
    return np.log1p(explained / np.maximum(1 - explained, 1e-12) * inflation)


def _tail_probability(clarity: Floats, observed: float) -> float:
    """Return the probability of a value as high; beyond all shuffles from how fast it falls in the highest of these.

    A few shuffles that are as high give a rough bound only (Knijnenburg, T. A., et al. (2009).
    Bioinformatics 25).
    """
    n, as_clear = len(clarity), int((clarity >= observed * (1 - 1e-9)).sum())
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
    return next((few for few in range(MIN_DAYS, days // 2) if 2 / math.comb(days, few) <= level), days // 2)


def needed_distance(series: Series, p: float) -> float:
    """Return by how many standard errors the two parts of a split must differ for a probability `p` by chance.

    The series has no change.
    """
    days, random = len(series.score), np.random.default_rng(0)
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
    parts = [Series(*(values[None] for values in series.between(*ends))) for ends in itertools.pairwise(edges)]
    found = (
        np.interp(_lag_correlation(parts, more)[0], _expected_correlations(lengths, more), _CORRELATIONS)
        for more in (False, True)
    )
    return float(min(found))


def _lag_correlation(parts: list[Series], more: bool) -> Floats:
    """Return the correlation of consecutive days of each series beside the levels of its parts, or of their halves."""
    residuals = np.concatenate([_residuals(*part, more) for part in parts], axis=-1)
    squares = (residuals**2).sum(-1)
    products = (residuals[:, 1:] * residuals[:, :-1]).sum(-1)
    correlation: Floats = np.divide(products, squares, out=np.zeros_like(squares), where=squares > 0)
    return correlation


def _residuals(score: Floats, weight: Floats, more: bool) -> Floats:
    """Return what remains of each series beside its level, or the two levels of its best split."""
    days = score.shape[-1]
    ways = _splits(days)
    stop = np.zeros(len(score), np.int64)
    if more and ways.cuts:
        stop = ways.explained(score, weight).argmax(-1) + MIN_DAYS
    is_late = np.arange(days) >= stop[:, None]
    residuals: Floats = score.copy()
    for side in (is_late, ~is_late):
        own = np.where(side, weight, 0.0)
        mean = (own * score).sum(-1) / np.maximum(own.sum(-1), 1e-12)
        residuals -= side * mean[:, None]
    return residuals


@functools.lru_cache(1024)
def _expected_correlations(lengths: tuple[int, ...], more: bool) -> Floats:
    """Return what `_lag_correlation` gives on average for each of `_CORRELATIONS` and parts of these lengths."""
    noise = np.random.default_rng(0).standard_normal((_SIMULATED, sum(lengths)))
    means = []
    for alike in _CORRELATIONS:
        scores = noise.copy()
        for day in range(1, scores.shape[1]):
            scores[:, day] = alike * scores[:, day - 1] + math.sqrt(1 - alike**2) * noise[:, day]
        parts = np.split(scores, np.cumsum(lengths)[:-1], axis=1)
        means.append(_lag_correlation([Series(part, np.ones_like(part)) for part in parts], more).mean())
    return np.maximum.accumulate(np.array(means))


def _replace(series: Series, cuts: list[int], inflation: float, random: np.random.Generator) -> list[Change]:
    """Place each cut again between its neighbors, and keep those that are significant there."""
    changes: list[Change] = []
    start = 0
    for stop in [*cuts[1:], len(series.score)][: len(cuts)]:
        own = series.between(start, stop)
        ways = _splits(stop - start)
        if not ways.cuts or np.ptp(own.score) == 0:
            continue
        shuffles = _shuffle(own, ways, _LEVEL * (_MAX_SHUFFLES + 1) - 1, inflation, random)
        if shuffles.is_within(_LEVEL):
            low, high = _place_interval(own, ways)
            changes.append(Change(start + ways.best(own)[0], start + low, start + high, shuffles.p))
            start = changes[-1].at
    return changes


def likely_range(logs: Floats) -> tuple[int, int]:
    """Return the places between which 95 % of the probability lies, from logarithms of how likely each place is."""
    cumulative = np.cumsum(np.exp(logs - logs.max()))
    low, high = np.searchsorted(cumulative / cumulative[-1], [0.025, 0.975])
    return int(low), int(high)


def _place_interval(series: Series, ways: _Ways) -> tuple[int, int]:
    """Return the days between which the change lies with 95 % probability, each day being as likely before."""
    explained, weight = ways.explained(*series), np.cumsum(series.weight)[MIN_DAYS - 1 : -MIN_DAYS]
    logs = -(len(series.score) - 2) / 2 * np.log(np.maximum(1 - explained, 1e-12))
    logs -= np.log(weight * (series.weight.sum() - weight)) / 2
    low, high = likely_range(logs)
    return MIN_DAYS + low, MIN_DAYS + high
