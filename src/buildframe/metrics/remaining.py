"""Estimate how long running builds still take, from builds of their group that ran as long."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import NAT, Floats, Integers, check_are_builds, column, timestamp_micros
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.rows import GROUP, Frame
from buildframe.metrics.estimates import has_enough_rows
from buildframe.metrics.grouping import By
from buildframe.metrics.percentiles import check_percentiles, percentile_label
from buildframe.metrics.validation import check_states
from buildframe.spec.builds import RUNNING_STATES

_NEEDS = ("id", "state", "blocked", "started_at", "finished_at", "fetched_at")
_ROUNDING = 1e-9
_COUNTS = ("n", "n_censored", "n_sooner", "n_negative")
_DTYPES = {"id": "str", "elapsed_s": "float64", **dict.fromkeys(_COUNTS, "Int64")}


@checked_names
def remaining_time(builds: Frame, by: By = "pipeline", q: float | Sequence[float] = (0.5, 0.9)) -> pd.DataFrame:
    """
    Estimate how long running builds still take, as percentiles of the time left.

    A build that has run for some time is compared with builds of its group that ran at least as long.

    Parameters
    ----------
    builds : DataFrame
        Builds of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `id`, `state`, `blocked`,
        `started_at`, `finished_at` and `fetched_at`. Pass running builds (state `running` or `failing`) together with
        the history of their group. Ids must be unique.
    by : str, function or list of these, default "pipeline"
        Keys that define the groups, as in `percentiles`. None puts all rows into one group.
    q : float or sequence of float, default (0.5, 0.9)
        Percentiles as fractions in (0, 1).

    Returns
    -------
    pandas.DataFrame
        One row per running build, ordered by key, longest elapsed time first. Without running builds no rows. After the
        keys:

        ========== ======= ===========================================================================
        id         str     id of the build
        elapsed_s  float64 seconds from `started_at` until it was fetched
        n          Int64   builds of its group that ran longer and were seen to end
        n_censored Int64   builds of its group that ran longer and were not seen to end
        n_sooner   Int64   builds of its group that had ended by then; if `n` is 0, this build is
                           slower than all of them
        n_negative Int64   runs of its group below zero, from clocks that disagree; they stay included
        p50_s, ... float64 seconds from now within which such a build ends with this probability;
                           NaN if fewer than 1 / (1 - p) of `n` lie beyond it, or too many are censored
        ========== ======= ===========================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `q` lies outside (0, 1), or `state` holds states in an
        unknown spelling.

    Notes
    -----
    Time counts from `started_at`, including waits at block steps. With S the share of builds that run longer
    (Kaplan-Meier estimate [1]_), a build that has run for t ends within d with probability 1 - S(t + d) / S(t). Passed
    and failed builds both count as ended, because the outcome of a running build is unknown. Canceled, blocked and
    running builds are censored at `finished_at`, or else at `fetched_at`.

    References
    ----------
    .. [1] Kaplan, E. L., and Meier, P. (1958). Journal of the American Statistical Association 53, 457-481.

    Examples
    --------
    >>> history = builds.copy()
    >>> history.loc[0, "state"], history.loc[0, "finished_at"] = "running", pd.NaT
    >>> history.loc[0, "fetched_at"] = history.loc[0, "started_at"] + pd.Timedelta("10min")
    >>> metrics.remaining_time(history)[["pipeline", "elapsed_s", "n", "p50_s", "p90_s"]].round(0)
      pipeline  elapsed_s   n  p50_s  p90_s
    0      api      600.0  27  561.0  818.0
    """
    q = check_percentiles(q)
    check_states(builds, "state")
    engine = engine_of(builds)
    check_are_builds(engine.column_names(builds), "remaining_time")
    return engine.map_groups(engine.group_rows(builds, _NEEDS, by), _NEEDS, functools.partial(_estimate_groups, q))


def _estimate_groups(q: Sequence[float], table: pd.DataFrame) -> pd.DataFrame:
    """Estimate the time left of each group's running builds."""
    ran = _measure_runs(table)
    codes = table[GROUP].to_numpy(np.int64)
    rows = [_estimate(ran[codes == group], q) for group in np.unique(codes[ran["is_running"]])]
    columns = [*_DTYPES, *map(percentile_label, q)]
    result = pd.concat(rows) if rows else pd.DataFrame(columns=columns, index=pd.RangeIndex(0))
    dtypes = _DTYPES | dict.fromkeys(map(percentile_label, q), "float64")
    return result[columns].astype(dtypes).assign(**{GROUP: codes[result.index]}).reset_index(drop=True)


def _measure_runs(table: pd.DataFrame) -> pd.DataFrame:
    """Return each build's elapsed seconds, whether it was seen to end, and whether it still runs."""
    state = column(table, "state")
    start, end, fetched = (timestamp_micros(table, name) for name in ("started_at", "finished_at", "fetched_at"))
    is_running = state.isin(RUNNING_STATES).to_numpy(bool)
    goes_on = state.isin([*RUNNING_STATES, "canceling"]).to_numpy(bool)
    until = np.where(goes_on, fetched, end)
    blocked = column(table, "blocked").fillna(False).to_numpy(bool)
    ended = state.isin(["passed", "failed"]).to_numpy(bool) & ~blocked
    is_measured = (start != NAT) & (until != NAT)
    elapsed = np.where(is_measured, (until - start) / 1e6, np.nan)
    ran = {"id": table["id"], "ended": ended, "is_running": is_running & is_measured, "elapsed_s": elapsed}
    return pd.DataFrame(ran)


def _estimate(group: pd.DataFrame, q: Sequence[float]) -> pd.DataFrame:
    """Estimate the time left of one group's running builds."""
    measured = group.dropna(subset=["elapsed_s"])
    running = measured[measured["is_running"]].sort_values(["elapsed_s", "id"], ascending=[False, True])
    ended = np.sort(measured.loc[measured["ended"], "elapsed_s"].to_numpy(np.float64))
    cut = np.sort(measured.loc[~measured["ended"], "elapsed_s"].to_numpy(np.float64))
    elapsed = running["elapsed_s"].to_numpy(np.float64)
    n = len(ended) - np.searchsorted(ended, elapsed, "right")
    quantiles = np.where(has_enough_rows(n, q), _compute_quantiles_left(ended, cut, elapsed, q), np.nan)
    n_censored = len(cut) - np.searchsorted(cut, elapsed, "right")
    n_negative = int((measured["elapsed_s"] < 0).sum())
    counts: dict[str, Any] = dict(zip(_COUNTS, (n, n_censored, len(ended) - n, n_negative), strict=True))
    return running.assign(**counts, **{percentile_label(p): quantiles[:, i] for i, p in enumerate(q)})


def _compute_quantiles_left(ended: Floats, cut: Floats, elapsed: Floats, q: Sequence[float]) -> Floats:
    """Return per elapsed time (rows) the least d with S(t + d) / S(t) <= 1 - q; NaN if S ends above that."""
    from scipy.stats import CensoredData, ecdf  # slow to import

    survival = ecdf(CensoredData(ended, right=cut)).sf
    times, shares = np.append(survival.quantiles, np.nan), survival.probabilities
    now = np.concatenate([[1.0], shares])[np.searchsorted(survival.quantiles, elapsed, "right")]
    limits = now[:, None] * (1 - np.asarray(q)) * (1 + _ROUNDING)
    places: Integers = np.searchsorted(-shares, -limits, "left")  # negated, because the shares decrease
    return times[places] - elapsed[:, None]
