"""Rates of success, with how sure they are."""

from __future__ import annotations

from statistics import NormalDist

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import column
from buildframe.metrics.groups import By, beside, groups_of

Floats = npt.NDArray[np.float64]


def success_rate(builds: pd.DataFrame, by: By = None) -> pd.DataFrame:
    """Passed builds among those that passed or failed, with the Wilson 95 % interval.

    Builds that are canceled, skipped, not run, running or waiting count for neither, nor do blocked
    ones, whose `state` is only the last they had. Needs `state` and `blocked`; `by` as in `percentiles`.

    One row a group, ordered by key; columns: the keys, `passed`, `failed`, `n` (Int64; their sum),
    `rate`, `low`, `high` (float64 between 0 and 1; NaN where n is 0). An empty frame gives no rows.
    """
    groups = groups_of(builds, by)
    settled = ~column(builds, "blocked").astype("boolean").fillna(False).to_numpy(bool)
    state = column(builds, "state")
    passed, failed = (
        np.bincount(groups.codes[settled & state.eq(one).fillna(False).to_numpy(bool)], minlength=len(groups.keys))
        for one in ("passed", "failed")
    )
    return beside(groups.keys, _rates(passed, failed))


def _rates(passed: npt.NDArray[np.intp], failed: npt.NDArray[np.intp]) -> pd.DataFrame:
    n = passed + failed
    counts = pd.DataFrame({"passed": passed, "failed": failed, "n": n}, dtype="Int64")
    low, high = wilson(passed, n)
    with np.errstate(invalid="ignore"):
        return counts.assign(rate=passed / n, low=low, high=high)


def wilson(successes: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """The score interval of a proportion: its lower and upper limit, float64, NaN where n is 0.

    `successes` and `n` are numbers or arrays of one shape. Wilson 1927, Journal of the American
    Statistical Association 22: 209-212; without correction for continuity. BadInput: successes not
    between 0 and n, confidence not between 0 and 1.
    """
    x, size = np.asarray(successes, np.float64), np.asarray(n, np.float64)
    if np.any((x < 0) | (x > size)):
        raise BadInput("There cannot be fewer than 0 successes, nor more than n.")
    if not 0 < confidence < 1:
        raise BadInput(f"confidence={confidence!r}: give a share between 0 and 1, such as .95.")
    return _limits(x, np.where(size > 0, size, np.nan), NormalDist().inv_cdf((1 + confidence) / 2))


def _limits(x: Floats, n: Floats, z: float) -> tuple[Floats, Floats]:
    middle = (x + z**2 / 2) / (n + z**2)
    half = z * np.sqrt(x * (n - x) / n + z**2 / 4) / (n + z**2)
    return middle - half, np.where(x == n, 1.0, middle + half)  # rounding would give 1 + 2e-16
