"""Kaplan and Meier's curves: equal to scipy's, and to the published ones."""

from __future__ import annotations

import numpy as np
from scipy.stats import CensoredData, ecdf

from buildframe.metrics.kaplan_meier import Curves, Leaving

REMISSION = [6, 6, 6, 7, 10, 13, 16, 22, 23]
STILL_IN_REMISSION = [6, 9, 10, 11, 17, 19, 20, 25, 32, 32, 34, 35]
"""Weeks of the 21 patients with 6-MP (Freireich, E. J., et al. (1963). Blood 21, 699-716)."""


def curves_of(ended: list[np.ndarray], censored: list[np.ndarray]) -> Curves:
    """The curves of groups, from sorted ends and the seconds for which other rows were seen."""
    rows = []
    for group, (ends, seen) in enumerate(zip(ended, censored, strict=True)):
        seconds, n = np.unique(np.floor(seen) + 1, return_counts=True)
        rows += [(group, many, np.searchsorted(ends, second)) for second, many in zip(seconds, n, strict=True)]
    leaving = Leaving(*np.array(rows, dtype=np.int64).reshape(-1, 3).T)
    return Curves(np.array([len(ends) for ends in ended]), leaving)


def test_patients_with_6_mp() -> None:
    curves = curves_of([np.array(REMISSION, float)], [np.array(STILL_IN_REMISSION, float)])
    shares, _ = curves.at_ranks(np.array([[3, 4, 5, 6, 7, 8, 9]]))
    assert shares[0].round(3).tolist() == [0.857, 0.807, 0.753, 0.690, 0.627, 0.538, 0.448]
    assert curves.first_ranks(np.array([[0.5, 0.4]])).tolist() == [[9, 0]]


def test_curves_equal_those_of_scipy() -> None:
    for seed in range(30):
        random = np.random.default_rng(seed)
        ended, censored = [], []
        for n in random.integers(0, 30, random.integers(1, 6)):
            seconds = random.integers(1, 20, n).astype(float) if seed % 2 else random.random(n) * 20
            is_censored = random.random(n) < random.choice([0, 0.3, 0.9])
            ended.append(np.sort(seconds[~is_censored]))
            censored.append(seconds[is_censored])
        assert_equal_to_scipy(ended, censored)


def assert_equal_to_scipy(ended: list[np.ndarray], censored: list[np.ndarray]) -> None:
    curves, levels = curves_of(ended, censored), np.tile([0.5, 0.1, 0.9], (len(ended), 1))
    ranks = curves.first_ranks(levels)
    for group, (ends, seen) in enumerate(zip(ended, censored, strict=True)):
        requested = np.zeros((len(ended), len(ends)), np.int64)
        requested[group] = np.arange(len(ends)) + 1
        shares, greenwood = (values[group] for values in curves.at_ranks(requested))
        is_last = np.append(np.diff(ends) > 0, True)[: len(ends)]
        if len(ends):
            leaving = np.nextafter(np.floor(seen) + 1, 0)  # events of the second come before
            oracle = ecdf(CensoredData(uncensored=ends, right=leaving)).sf
            np.testing.assert_allclose(shares[is_last], oracle.evaluate(ends[is_last]), atol=1e-12)
            np.testing.assert_allclose(_greenwood(ends, leaving)[is_last], greenwood[is_last], rtol=1e-9)
        for level, rank in zip(levels[group], ranks[group], strict=True):
            is_low = shares <= level + 1e-9
            assert rank == (is_low.argmax() + 1 if is_low.any() else 0)


def _greenwood(ends: np.ndarray, leaving: np.ndarray) -> np.ndarray:
    """Greenwood's sum after each end, by its definition (infinite after the last row)."""
    sums = []
    for end in ends:
        times = np.unique(ends[ends <= end])
        died = np.array([(ends == time).sum() for time in times])
        at_risk = np.array([(ends >= time).sum() + (leaving >= time).sum() for time in times])
        with np.errstate(divide="ignore"):
            sums.append((died / (at_risk * (at_risk - died))).sum())
    return np.array(sums)
