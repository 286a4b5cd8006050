"""Estimate the rate at which each of many steps fails at random, from counts of their attempts.

A Beta-binomial model, in which some steps never fail. Its prior is integrated over a grid, because what the steps have
in common is uncertain, too. Knows counts, not jobs.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from buildframe.metrics.columns import Floats, Integers

MAX_FAILURES = 3
"""More failures of a commit that never passed say no more of its step."""

_EDGES = np.concatenate([[0.0], 1 / (1 + np.exp(-np.linspace(np.log(1e-5), np.log(99.0), 640))), [1.0]])
"""Edges of the cells of rates, 2.5 % wide. Within the first, a rate counts as 0."""

_COARSE = np.linspace(0, len(_EDGES) - 2, 81).round().astype(int)
"""Cells at which the share of broken commits is integrated; between them it is interpolated."""

_STEADY = (0.0, 0.4, 0.8)
"""Shares of steps that never fail at random, in the priors."""

_MEANS, _SHAPES = np.geomspace(5e-4, 0.5, 16), np.geomspace(0.15, 30, 14)
"""Means of the rates of other steps, and first parameters of their distributions: from most near 0 to all alike."""

_UNLIKE = 0.05
"""Share of steps that may be unlike all others, at any rate: one flaky step among steady ones is not drawn to them."""

_TINY = 1e-300
"""Instead of 0 for a prior that excludes what a step did."""

_NODES, _MAX_CELLS = 24, 2**22
"""Shares of broken commits that are summed for each rate, and how many of these sums are in memory at once."""


class AttemptCounts(NamedTuple):
    """Attempts of each step at commits that it passed at some time, and commits at which it never passed.

    `failures` and `passes` are attempts, not always whole. `passed` are commits. `failed` are commits by the number of
    failures, from 1 to `MAX_FAILURES` (columns).
    """

    failures: Floats
    passes: Floats
    passed: Integers
    failed: Integers


class Posterior:
    """Distribution of each step's rate, as the probabilities of cells between 0 and 1."""

    def __init__(self, cells: Floats) -> None:
        self._cells = cells
        self._below = np.concatenate([np.zeros((len(cells), 1)), np.cumsum(cells, axis=1)], axis=1)

    def mean(self) -> Floats:
        """Return the mean rate."""
        return self._cells @ _middles()

    def above(self, threshold: float) -> Floats:
        """Return the probability of a rate above the threshold."""
        place = np.interp(threshold, _EDGES, np.arange(len(_EDGES)))
        cell = min(int(place), len(_EDGES) - 2)
        above = 1 - self._below[:, cell] - (place - cell) * self._cells[:, cell]
        return np.clip(above, 0, 1)

    def interval(self, confidence: float) -> tuple[Floats, Floats]:
        """Return the shortest interval that has this probability; it begins at 0 for a step without failures."""
        tails = np.linspace(0, 1 - confidence, 41)
        ends = [self._quantiles(np.concatenate([tails, tails + confidence]), own) for own in range(len(self._cells))]
        low, high = np.split(np.reshape(ends, (-1, 2 * len(tails))), 2, axis=1)
        low = np.where(low <= _EDGES[1], 0.0, low)
        best = np.argmin(high - low, axis=1)[:, None]
        return np.take_along_axis(low, best, 1)[:, 0], np.take_along_axis(high, best, 1)[:, 0]

    def _quantiles(self, levels: Floats, row: int) -> Floats:
        quantiles: Floats = np.interp(levels, self._below[row], _EDGES)
        return quantiles


def estimate_rates(steps: AttemptCounts) -> Posterior:
    """Return the distribution of each step's rate, given the attempts of all steps."""
    likelihood = _likelihood(steps)
    prior = _priors()
    fits = np.maximum(likelihood @ prior, _TINY)
    logs = np.log(fits).sum(axis=0)
    weights = np.exp(logs - logs.max(initial=-np.inf)) if len(likelihood) else np.ones(prior.shape[1])
    weights /= weights.sum()
    cells = likelihood * ((weights / fits) @ prior.T)
    return Posterior(cells)


def _middles() -> Floats:
    middles: Floats = (_EDGES[1:] + _EDGES[:-1]) / 2
    return middles


@functools.cache
def _priors() -> Any:
    """Return the probability of each cell of rates (rows) in each distribution of the grid (columns)."""
    from scipy.special import betainc

    steady, mean, shape = (grid.ravel() for grid in np.meshgrid(_STEADY, _MEANS, _SHAPES))
    below = betainc(shape, shape * (1 / mean - 1), _EDGES[:, None])
    prior = (1 - steady) * np.diff(below, axis=0)
    prior[0] += steady
    return (1 - _UNLIKE) * prior + _UNLIKE / len(prior)


def _likelihood(steps: AttemptCounts) -> Floats:
    """Return the likelihood of each cell of rates, with a maximum of 1 for each step."""
    rate = _middles()
    logs = steps.failures[:, None] * np.log(rate) + steps.passes[:, None] * np.log1p(-rate)
    is_open = np.flatnonzero(steps.failed.sum(axis=1))
    at_once = max(_MAX_CELLS // (len(_COARSE) * _NODES), 1)
    for start in range(0, len(is_open), at_once):
        own = is_open[start : start + at_once]
        logs[own] += _interpolate(_broken_commits(steps.passed[own], steps.failed[own]))
    likelihood: Floats = np.exp(logs - logs.max(axis=1, initial=-np.inf, keepdims=True))
    return likelihood


def _broken_commits(passed: Integers, failed: Integers) -> Floats:
    """Return the log-likelihood of the coarse rates, given the commits at which a step passed or not.

    A commit at which k attempts failed and none passed is broken, or unlucky with chance rate^k. The share of broken
    commits is unknown and integrated, with the prior of an unknown proportion (Jeffreys) for small shares.
    """
    from scipy.special import betaincinv, logsumexp

    rate = _middles()[_COARSE]
    most = betaincinv(failed.sum(axis=1) + 1.0, passed + 1.0, 0.9999)
    broken = (most[:, None] * ((np.arange(_NODES) + 0.5) / _NODES) ** 2)[:, None, :]
    logs = np.repeat(passed[:, None, None] * np.log1p(-broken), len(rate), axis=1)
    for k in np.flatnonzero(failed.any(axis=0)):
        chance = broken + (1 - broken) * rate[:, None] ** (k + 1)
        logs += failed[:, k, None, None] * np.log(chance)
    return logsumexp(logs, axis=2)


def _interpolate(values: Floats) -> Floats:
    """Return values at the coarse cells for all cells."""
    cells = np.arange(len(_EDGES) - 1)
    upper = np.clip(np.searchsorted(_COARSE, cells), 1, len(_COARSE) - 1)
    weight = (cells - _COARSE[upper - 1]) / (_COARSE[upper] - _COARSE[upper - 1])
    interpolated: Floats = values[:, upper - 1] * (1 - weight) + values[:, upper] * weight
    return interpolated
