"""Search the commits at which a failure rate changed.

This is for histories that are too short to compare days. Each segment of commits has a rate of its
own. Two rates are compared with one, over all rates that are possible (Beta-binomial model; Barry,
D., and Hartigan, J. A. (1993). J. of the American Statistical Association 88, 309-319).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from buildframe.metrics.change_search import Change, likely_range
from buildframe.metrics.columns import Floats, Integers

_PRIOR = (0.3, 0.5)
"""Beta distribution of rates of failure: low rates are most likely."""

_PRIOR_OF_RETRIES = (0.5, 0.5)
"""Beta distribution of the rate of failures of retries, which mostly help or never do."""

_LOG_PRIOR_OF_CHANGE = np.log(0.01)
"""Prior odds of a change at a commit."""


class Runs(NamedTuple):
    """Runs at each commit, in order.

    They are all, those with a failure, those that were retried, and those of these that failed
    again.
    """

    n: Integers
    failed: Integers
    retried: Integers
    failed_again: Integers

    def between(self, start: int, stop: int) -> Runs:
        """Return the commits from start to stop."""
        return Runs(*(counts[start:stop] for counts in self))


def find_commit_changes(runs: Runs) -> tuple[list[Change], float]:
    """Return the changes of a history, and the probability of one as clear if nothing changed."""
    cuts = []
    parts = [(0, len(runs.n))]
    while parts:
        start, stop = parts.pop()
        evidence = _weigh_splits(runs.between(start, stop))
        if evidence.max(initial=-np.inf) + _LOG_PRIOR_OF_CHANGE > 0:
            cut = start + 1 + int(evidence.argmax())
            cuts.append(cut)
            parts += [(start, cut), (cut, stop)]
    edges = [0, *sorted(cuts), len(runs.n)]
    segments = zip(edges, edges[1:], edges[2:], strict=False)
    return [_describe(runs, *segment) for segment in segments], _p_value(_weigh_splits(runs))


def _describe(runs: Runs, start: int, at: int, stop: int) -> Change:
    """Describe a change between the ones before and after it."""
    evidence = _weigh_splits(runs.between(start, stop))
    low, high = likely_range(evidence)
    position = at - start - 1
    return Change(
        at,
        low=start + 1 + min(low, position),
        high=start + 1 + max(high, position),
        p=_p_value(evidence),
    )


def _p_value(evidence: Floats) -> float:
    """Return an upper bound of the probability of this evidence if nothing changed.

    The mean of likelihood ratios has the expectation 1 then, so Markov's inequality holds.
    """
    if not len(evidence):
        return 1.0
    log_mean = evidence.max() + np.log(np.mean(np.exp(evidence - evidence.max())))
    return float(np.exp(-max(log_mean, 0.0)))


def _weigh_splits(runs: Runs) -> Floats:
    """Return the evidence for each split between two commits.

    It is the logarithm of how many times as likely the failures are with two rates.
    """
    evidence: Floats = np.zeros(max(len(runs.n) - 1, 0))
    if not len(evidence):
        return evidence
    of_runs = (runs.failed, runs.n, _PRIOR)
    of_retries = (runs.failed_again, runs.retried, _PRIOR_OF_RETRIES)
    for hits, trials, prior in (of_runs, of_retries):
        n_hits = hits.sum()
        n_trials = trials.sum()
        hits_before = np.cumsum(hits)[:-1]
        trials_before = np.cumsum(trials)[:-1]
        evidence += _log_likelihood(hits_before, trials_before, prior)
        evidence += _log_likelihood(n_hits - hits_before, n_trials - trials_before, prior)
        evidence -= _log_likelihood(n_hits, n_trials, prior)
    return evidence


def _log_likelihood(hits: Integers, trials: Integers, prior: tuple[float, float]) -> Floats:
    """Return the logarithm of the probability of these outcomes, over all rates of the prior."""
    from scipy.special import betaln

    of_outcomes = betaln(prior[0] + hits, prior[1] + trials - hits)
    return np.asarray(of_outcomes - betaln(*prior), np.float64)
