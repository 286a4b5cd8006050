"""Estimate the rate at which each of many steps fails at random, from counts of their attempts.

A Beta-binomial model, in which some steps never fail. Its prior is integrated over a grid, because
what the steps have in common is uncertain, too. Knows counts, not jobs.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import numpy as np

from buildframe.metrics.columns import Floats, Integers

MAX_FAILURES = 3
"""More failures of a commit that never passed say no more of its step."""

_LOG_ODDS = np.linspace(np.log(1e-5), np.log(99.0), 640)
_EDGES = np.concatenate([[0.0], 1 / (1 + np.exp(-_LOG_ODDS)), [1.0]])
"""Edges of the cells of rates, 2.5 % wide. Within the first, a rate counts as 0."""

_COARSE = np.linspace(0, len(_EDGES) - 2, 81).round().astype(int)
"""Cells at which the share of broken commits is integrated; between them it is interpolated."""

_STEADY = (0.0, 0.4, 0.8)
"""Shares of steps that never fail at random, in the priors."""

_MEANS = np.geomspace(5e-4, 0.5, 16)
"""Means of the rates of other steps."""

_SHAPES = np.geomspace(0.15, 30, 14)
"""First parameters of the distributions of these rates: from most near 0 to all alike."""

_UNLIKE = 0.05
"""Share of steps that may be unlike all others: one flaky step is not drawn to steady ones."""

_TINY = 1e-300
"""Instead of 0 for a prior that excludes what a step did."""

_NODES = 24
"""Shares of broken commits that are summed for each rate."""

_MAX_CELLS = 2**22
"""How many of these sums are in memory at once."""


class AttemptCounts(NamedTuple):
    """Attempts of each step at commits that it passed, and commits at which it never passed.

    `failures` and `passes` are attempts, not always whole. `passed` are commits. `failed` are
    commits by the number of failures, from 1 to `MAX_FAILURES` (columns).
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
        position = np.interp(threshold, _EDGES, np.arange(len(_EDGES)))
        cell = min(int(position), len(_EDGES) - 2)
        above = 1 - self._below[:, cell] - (position - cell) * self._cells[:, cell]
        return np.clip(above, 0, 1)

    def interval(self, confidence: float) -> tuple[Floats, Floats]:
        """Return the shortest interval that has this probability.

        It begins at 0 for a step without failures.
        """
        tails = np.linspace(0, 1 - confidence, 41)
        levels = np.concatenate([tails, tails + confidence])
        quantiles = np.empty((len(self._cells), len(levels)))
        for step, below in enumerate(self._below):
            quantiles[step] = np.interp(levels, below, _EDGES)
        low, high = np.split(quantiles, 2, axis=1)
        low = np.where(low <= _EDGES[1], 0.0, low)
        shortest = np.argmin(high - low, axis=1)
        steps = np.arange(len(shortest))
        return low[steps, shortest], high[steps, shortest]


def estimate_rates(steps: AttemptCounts) -> Posterior:
    """Return the distribution of each step's rate, given the attempts of all steps."""
    likelihood = _likelihood(steps)
    prior = _priors()
    fits = np.maximum(likelihood @ prior, _TINY)
    logs = np.log(fits).sum(axis=0)  # 0 for each prior if there are no steps
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    cells = likelihood * ((weights / fits) @ prior.T)
    return Posterior(cells)


def _middles() -> Floats:
    middles: Floats = (_EDGES[1:] + _EDGES[:-1]) / 2
    return middles


@functools.cache
def _priors() -> Any:
    """Return the probability of each cell of rates (rows) in each distribution (columns)."""
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
    has_broken_commits = np.flatnonzero(steps.failed.sum(axis=1))
    batch_size = max(_MAX_CELLS // (len(_COARSE) * _NODES), 1)
    for start in range(0, len(has_broken_commits), batch_size):
        batch = has_broken_commits[start : start + batch_size]
        broken_commits = _broken_commits(steps.passed[batch], steps.failed[batch])
        logs[batch] += _interpolate(broken_commits)
    likelihood: Floats = np.exp(logs - logs.max(axis=1, initial=-np.inf, keepdims=True))
    return likelihood


def _broken_commits(passed: Integers, failed: Integers) -> Floats:
    """Return the log-likelihood of the coarse rates, given commits at which a step passed or not.

    A commit at which k attempts failed and none passed is broken, or unlucky with chance rate^k.
    The share of broken commits is unknown and integrated, with the prior of an unknown proportion
    (Jeffreys) for small shares.
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
