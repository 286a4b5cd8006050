"""Search the days at which a series changed, by shuffles of whole days. Knows scores of days, not what they measure.

Days are the unit because rows of a day depend on each other. If nothing changed, any order of the days is as likely.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import numpy as np

from buildframe.metrics.columns import Floats, Integers

MIN_DAYS = 2
"""Days that a stretch needs: one alone may be an outlier."""

_MAX_SHUFFLES = 1999
_LEVEL_OF_SPLIT, _LEVEL_OF_STRETCH, _LEVEL_KEPT = 0.04, 0.01, 0.05
_MAX_CELLS = 2_000_000
"""Numbers in memory at once during shuffles."""


class Series(NamedTuple):
    """Score and weight of each day, in order."""

    score: Floats
    weight: Floats

    def between(self, start: int, stop: int) -> Series:
        """Return the days from start to stop."""
        return Series(self.score[start:stop], self.weight[start:stop])


class Change(NamedTuple):
    """The series changed before the day `at`. The 95 % interval of `at` is from `low` to `high`."""

    at: int
    low: int
    high: int
    p: float


def score_durations(day: Integers, value: Floats) -> Series:
    """Score days by the normal scores of the ranks of their rows; `day` has numbers from 0 on."""
    from scipy.special import ndtri
    from scipy.stats import rankdata

    scores = ndtri(rankdata(value) / (len(value) + 1))
    n = np.bincount(day).astype(np.float64)
    return Series(np.bincount(day, scores) / n, _weigh_days(n, np.bincount(day, scores), np.bincount(day, scores**2)))


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


def find_changes(series: Series, random: np.random.Generator) -> list[Change]:
    """Return the changes of a series, in order."""
    if len(series.score) < 2 * MIN_DAYS:
        return []
    cuts = _search(series, 1.0, random)
    alike = _correlation(series, cuts)
    inflation = 1.0
    if alike > 1.28 / np.sqrt(len(series.score)):  # a clear correlation of consecutive days
        inflation = (1 + alike) / (1 - alike)
        cuts = _search(series, inflation, random)
    return _replace(series, cuts, inflation, random)


def _search(series: Series, inflation: float, random: np.random.Generator) -> list[int]:
    """Return the cuts found by the best split, or else by the best inner stretch, and within their parts."""
    found: list[int] = []
    parts = [(0, len(series.score))]
    while parts:
        start, stop = parts.pop()
        own = series.between(start, stop)
        cuts = [start + cut for cut in _cut(own, (stop - start) / len(series.score), inflation, random)]
        found += cuts
        parts += zip([start, *cuts], [*cuts, stop], strict=True) if cuts else []
    return sorted(found)


def _cut(series: Series, share: float, inflation: float, random: np.random.Generator) -> list[int]:
    days = len(series.score)
    if days < 2 * MIN_DAYS or np.ptp(series.score) == 0:
        return []
    for ways, level in ((_splits(days), _LEVEL_OF_SPLIT), (_stretches(days), _LEVEL_OF_STRETCH)):
        if ways.cuts and _p_value(series, ways, level * share, inflation, random) <= level * share:
            return ways.best(series)
    return []


class _Ways:
    """Ways to cut a series in two kinds of days; `first` and `stop` limit the days of one kind."""

    def __init__(self, first: Integers, stop: Integers, days: int) -> None:
        self._first, self._stop, self._days = first, stop, days
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
        variance = (centered**2 * weight).sum(-1, keepdims=True)
        share: Floats = inside**2 * total / (own * (total - own) * variance)
        return share

    def best(self, series: Series) -> list[int]:
        """Return the cuts of the way that explains most."""
        place = int(self.explained(*series).argmax())
        return [int(cut) for cut in (self._first[place], self._stop[place]) if 0 < cut < self._days]


@functools.cache
def _splits(days: int) -> _Ways:
    """Return the ways to split days in two."""
    stops = np.arange(MIN_DAYS, days - MIN_DAYS + 1)
    return _Ways(np.zeros_like(stops), stops, days)


@functools.cache
def _stretches(days: int) -> _Ways:
    """Return the ways to separate an inner stretch from the days on both sides."""
    first, stop = np.triu_indices(days + 1, MIN_DAYS)
    inner = (first >= MIN_DAYS) & (stop <= days - MIN_DAYS)
    return _Ways(first[inner], stop[inner], days)


def _p_value(series: Series, ways: _Ways, level: float, inflation: float, random: np.random.Generator) -> float:
    """Return the share of shuffles that explain as much; shuffles end once that exceeds the level for certain."""
    observed = _odds(ways.explained(*series).max())
    done = as_clear = 0
    allowed = level * (_MAX_SHUFFLES + 1) - 1
    while done < _MAX_SHUFFLES and as_clear <= allowed:
        n = min(_MAX_SHUFFLES - done, max(100, done), max(1, _MAX_CELLS // ways.cuts))
        order = random.permuted(np.tile(np.arange(len(series.score)), (n, 1)), axis=1)
        explained = ways.explained(series.score[order], series.weight[order]).max(-1)
        as_clear += int((_odds(explained) * inflation >= observed * (1 - 1e-9)).sum())
        done += n
    return (as_clear + 1) / (done + 1)


def _odds(explained: Floats) -> Floats:
    return explained / np.maximum(1 - explained, 1e-12)


def _correlation(series: Series, cuts: list[int]) -> float:
    """Return the correlation of consecutive days, beside what the cuts explain."""
    residuals = np.concatenate(
        [
            score - np.average(score, weights=weight)
            for score, weight in (series.between(*ends) for ends in zip([0, *cuts], [*cuts, None], strict=True))
        ]
    )
    squares = (residuals**2).sum()
    return float((residuals[1:] * residuals[:-1]).sum() / squares) if squares > 0 else 0.0


def _replace(series: Series, cuts: list[int], inflation: float, random: np.random.Generator) -> list[Change]:
    """Place each cut again between its neighbors, and keep those that are significant there."""
    changes = []
    edges = [0, *cuts, len(series.score)]
    for start, stop in zip(edges, edges[2:], strict=False):
        own = series.between(start, stop)
        ways = _splits(stop - start)
        p = _p_value(own, ways, _LEVEL_KEPT, inflation, random) if ways.cuts else 1.0
        if p <= _LEVEL_KEPT:
            low, high = _place_interval(own, ways)
            changes.append(Change(start + ways.best(own)[0], start + low, start + high, p))
    return changes


def _place_interval(series: Series, ways: _Ways) -> tuple[int, int]:
    """Return the days between which the change lies with 95 % probability, each day being as likely before."""
    explained, weight = ways.explained(*series), np.cumsum(series.weight)[MIN_DAYS - 1 : -MIN_DAYS]
    logs = -(len(series.score) - 2) / 2 * np.log(np.maximum(1 - explained, 1e-12))
    logs -= np.log(weight * (series.weight.sum() - weight)) / 2
    likely = np.exp(logs - logs.max())
    cumulative = np.cumsum(likely) / likely.sum()
    low, high = np.searchsorted(cumulative, [0.025, 0.975])
    return MIN_DAYS + int(low), MIN_DAYS + int(high)
