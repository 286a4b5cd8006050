"""Rates of success, with how sure they are, and how many builds come and end."""

from __future__ import annotations

from statistics import NormalDist

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.errors import BadInput
from buildframe.metrics import outcomes
from buildframe.metrics.buckets import Buckets, filled
from buildframe.metrics.engines import Floats, Frame, Rows, Tally, columns_of, rows, tally
from buildframe.metrics.groups import By, beside
from buildframe.metrics.states import check_states


@checked_names
def success_rate(builds: Frame, by: By = None) -> pd.DataFrame:
    """Passed builds among those that passed or failed, with the Wilson 95 % interval.

    Builds that are canceled, skipped, not run, running or waiting count for neither, nor do blocked
    ones, whose `state` is only the last they had. A state in another spelling, such as "Passed" or "success", would
    count for neither, too, so it is refused; a new state of the service beside known ones is not. Needs `state` and
    `blocked`; `by` as in `percentiles`.

    One row a group, ordered by key; columns: the keys, `passed`, `failed`, `n` (Int64; their sum),
    `rate`, `low`, `high` (float64 between 0 and 1; NaN where n is 0). An empty frame gives no rows.
    """
    check_states(builds, "state")
    counts = _settled(rows(builds, ("state", "blocked"), by))
    return beside(counts.keys, _rates(counts.sums))


@checked_names
def success_trend(builds: Frame, freq: str = "1D", tz: str = "UTC") -> pd.DataFrame:
    """`success_rate` in buckets of time, by creation.

    `freq` and `tz` as in `trend`, and so are `bucket` and `partial`; between them the columns of
    `success_rate`. Needs `state`, `blocked`, `created_at`, `fetched_at`. An empty frame gives no rows.
    """
    check_states(builds, "state")
    found = rows(builds, ("state", "blocked", "created_at", "fetched_at"))
    buckets = Buckets.of(found.frame, ["created_at"], freq, tz)
    counts = filled(_settled(buckets.number(found, "created_at")), len(buckets))
    return buckets.beside(_rates(counts.sums))


@checked_names
def throughput(builds: Frame, freq: str = "1D", tz: str = "UTC") -> pd.DataFrame:
    """How many builds are asked for and how many end, in buckets of time.

    One row a bucket from the first build's creation to the last creation or end; columns:
    `bucket` and `partial` as in `trend`;
    `demand` (Int64): builds created in it;
    `served` (Int64): builds of any outcome that finished in it.
    Builds that have not ended, among them blocked ones (see `wall_time`), are in `demand` only; the first buckets
    lack in `served` what was created before the frame begins. The last bucket is `partial` unless it was over when the
    builds were fetched. Needs `created_at`, `finished_at`, `fetched_at`. An empty frame gives no rows.
    """
    at = {"demand": "created_at", "served": "finished_at"}
    found = rows(builds, (*at.values(), "fetched_at"), wants=outcomes.BLOCKED)
    ended = nw.when(~outcomes.is_blocked(columns_of(builds))).then(nw.col("finished_at"))
    found = found.having(finished_at=ended)
    buckets = Buckets.of(found.frame, list(at.values()), freq, tz)
    return buckets.beside(buckets.sizes(found, at))


@checked_names
def wilson(successes: npt.ArrayLike, n: npt.ArrayLike, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """The score interval of a proportion: its lower and upper limit, float64, NaN where n is 0 or a count is missing.

    `successes` and `n` are numbers or arrays of one shape. Wilson 1927, Journal of the American
    Statistical Association 22: 209-212; without correction for continuity. BadInput: successes not
    between 0 and n, an infinite count, confidence not between 0 and 1.
    """
    try:
        x, size = np.broadcast_arrays(np.asarray(successes, np.float64), np.asarray(n, np.float64))
    except (TypeError, ValueError) as why:
        raise BadInput(f"Successes and n must be numbers, or arrays of one shape: {why}.") from None
    if np.any(np.isinf(x) | np.isinf(size)):
        raise BadInput("Successes and n must be finite; leave a count that is not known as NaN.")
    if np.any((x < 0) | (x > size)):
        raise BadInput("There cannot be fewer than 0 successes, nor more than n.")
    if not isinstance(confidence, float) or not 0 < confidence < 1 - 1e-12:
        raise BadInput(f"confidence={confidence!r}: give a share between 0 and 1, such as .95.")
    return _limits(x, np.where(size > 0, size, np.nan), NormalDist().inv_cdf((1 + confidence) / 2))


def shares(successes: pd.Series, n: pd.Series) -> pd.DataFrame:
    """`rate`, `low` and `high` (float64): the share of successes with its Wilson 95 % interval, NaN where n is 0."""
    x, size = successes.to_numpy(np.float64), n.to_numpy(np.float64)
    low, high = wilson(x, size)
    with np.errstate(invalid="ignore"):
        return pd.DataFrame({"rate": x / size, "low": low, "high": high}, index=n.index)


def _settled(found: Rows) -> Tally:
    settled = outcomes.is_settled()
    return tally(found, passed=settled & outcomes.has_passed(), failed=settled & outcomes.has_failed())


def _rates(counts: pd.DataFrame) -> pd.DataFrame:
    whole = counts.assign(n=counts["passed"] + counts["failed"])
    return pd.concat([whole, shares(whole["passed"], whole["n"])], axis=1)


def _limits(x: Floats, n: Floats, z: float) -> tuple[Floats, Floats]:
    middle = (x + z**2 / 2) / (n + z**2)
    half = z * np.sqrt(x * (n - x) / n + z**2 / 4) / (n + z**2)
    return middle - half, np.where(x == n, 1.0, middle + half)  # rounding would give 1 + 2e-16
