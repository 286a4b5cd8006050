"""Search the commits at which a failure rate changed, for histories that are too short to compare days.

Each segment of commits has a rate of its own. Two rates are compared with one, over all rates that
are possible (Beta-binomial model; Barry, D., and Hartigan, J. A. (1993). J. of the American
Statistical Association 88, 309-319).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from buildframe.metrics.change_search import Change, likely_range
from buildframe.metrics.columns import Floats, Integers

_PRIOR, _PRIOR_OF_RETRIES = (0.3, 0.5), (0.5, 0.5)
"""Beta distributions of the rates of failure: low rates are most likely, and retries mostly help or never do."""

_LOG_PRIOR_OF_CHANGE = np.log(0.01)
"""Prior odds of a change at a commit."""


class Runs(NamedTuple):
    """Runs at each commit, in order: all, those with a failure, those that were retried, and that then failed again."""

    n: Integers
    failed: Integers
    retried: Integers
    failed_again: Integers

    def between(self, start: int, stop: int) -> Runs:
        """Return the commits from start to stop."""
        return Runs(*(counts[start:stop] for counts in self))


def find_commit_changes(runs: Runs) -> tuple[list[Change], float]:
    """Return the changes of a history, and the probability `p` of one as clear if nothing changed."""
    cuts, parts = [], [(0, len(runs.n))]
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
    place = at - start - 1
    return Change(at, start + 1 + min(low, place), start + 1 + max(high, place), _p_value(evidence))


def _p_value(evidence: Floats) -> float:
    """Return an upper bound of the probability of this evidence if nothing changed.

    The mean of likelihood ratios has the expectation 1 then, so Markov's inequality holds.
    """
    if not len(evidence):
        return 1.0
    log_mean = evidence.max() + np.log(np.mean(np.exp(evidence - evidence.max())))
    return float(np.exp(-max(log_mean, 0.0)))


def _weigh_splits(runs: Runs) -> Floats:
    """Return for each split between two commits the logarithm of how many times as likely it makes the failures."""
    evidence: Floats = np.zeros(max(len(runs.n) - 1, 0))
    pairs = ((runs.failed, runs.n, _PRIOR), (runs.failed_again, runs.retried, _PRIOR_OF_RETRIES))
    for hits, trials, prior in pairs if len(evidence) else ():
        hits_before, trials_before = np.cumsum(hits)[:-1], np.cumsum(trials)[:-1]
        evidence += _log_likelihood(hits_before, trials_before, prior)
        evidence += _log_likelihood(hits.sum() - hits_before, trials.sum() - trials_before, prior)
        evidence -= _log_likelihood(hits.sum(), trials.sum(), prior)
    return evidence


def _log_likelihood(hits: Integers, trials: Integers, prior: tuple[float, float]) -> Floats:
    """Return the logarithm of the probability of these outcomes, over all rates as the prior distributes them."""
    from scipy.special import betaln

    return np.asarray(betaln(prior[0] + hits, prior[1] + trials - hits) - betaln(*prior), np.float64)
