"""Estimate how long running builds still take, from builds of their group that ran as long."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import (
    NAT,
    TEXT,
    Floats,
    Integers,
    check_are_builds,
    seconds_between,
    timestamp_micros,
)
from buildframe.metrics.estimates import has_enough_rows
from buildframe.metrics.group_summaries import spark_keys, summarize_groups
from buildframe.metrics.grouping import By, join_keys
from buildframe.metrics.input_frames import Frame, column_names, read_rows
from buildframe.metrics.percentiles import check_percentiles, percentile_label
from buildframe.metrics.row_flags import is_any_of, is_set
from buildframe.metrics.validation import check_states
from buildframe.spec.builds import RUNNING_STATES

_NEEDS = ("id", "state", "blocked", "started_at", "finished_at", "fetched_at")
_COUNTS = ("n", "n_censored", "n_sooner", "n_negative")
_DTYPES: dict[str, Any] = {"id": TEXT, "elapsed_s": "float64", **dict.fromkeys(_COUNTS, "Int64")}
_ROUNDING = 1e-9


@checked_names
def remaining_time(
    builds: Frame,
    by: By = "pipeline",
    q: float | Sequence[float] = (0.5, 0.9),
) -> pd.DataFrame:
    """
    Estimate how long running builds still take, as percentiles of the time left.

    A build that has run for some time is compared with builds of its group that ran at least as
    long.

    Parameters
    ----------
    builds : DataFrame
        Builds of pandas, Polars (eager or lazy), DuckDB or PySpark with the columns `id`, `state`,
        `blocked`, `started_at`, `finished_at` and `fetched_at`. Pass running builds (state
        `running` or `failing`) together with the history of their group. Ids must be unique.
    by : str, function or list of these, default "pipeline"
        Keys that define the groups, as in `percentiles`. None puts all rows into one group.
    q : float or sequence of float, default (0.5, 0.9)
        Percentiles as fractions in (0, 1).

    Returns
    -------
    pandas.DataFrame
        One row per running build, ordered by key, longest elapsed time first. Without running
        builds no rows. After the keys:

        ========== ======= ======================================================================
        id         str     id of the build
        elapsed_s  float64 seconds from `started_at` until it was fetched
        n          Int64   builds of its group that ran longer and were seen to end
        n_censored Int64   builds of its group that ran longer and were not seen to end
        n_sooner   Int64   builds of its group that had ended by then; if `n` is 0, this build is
                           slower than all of them
        n_negative Int64   runs of its group below zero, from clocks that disagree; they stay
                           included
        p50_s, ... float64 seconds from now within which such a build ends with this probability;
                           NaN if fewer than 1 / (1 - p) of `n` lie beyond it, or too many are
                           censored
        ========== ======= ======================================================================

    Raises
    ------
    BadInput
        If a column is missing, a timestamp has no time zone, `q` lies outside (0, 1), or `state`
        holds states in an unknown spelling.

    Notes
    -----
    Time counts from `started_at`, including waits at block steps. With S the share of builds that
    run longer (Kaplan-Meier estimate [1]_), a build that has run for t ends within d with
    probability 1 - S(t + d) / S(t). Passed and failed builds both count as ended, because the
    outcome of a running build is unknown. Canceled, blocked and running builds are censored at
    `finished_at`, or else at `fetched_at`.

    References
    ----------
    .. [1] Kaplan, E. L., and Meier, P. (1958). Journal of the American Statistical Association 53,
       457-481.

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
    check_are_builds(column_names(builds), "remaining_time")
    by = spark_keys(builds, by)
    return summarize_groups(builds, functools.partial(_remaining_time, by, q), by)


def _remaining_time(by: By, q: Sequence[float], builds: Frame) -> pd.DataFrame:
    runs = read_rows(builds, _measure_runs, _NEEDS, by=by)
    measured = np.flatnonzero(runs.columns["elapsed_s"].notna())
    measured = measured[np.argsort(runs.codes[measured], kind="stable")]
    codes = runs.codes[measured]
    rows = runs.columns.take(measured)
    groups = np.unique(codes[rows["is_running"].to_numpy(bool)])
    starts = np.searchsorted(codes, groups)
    stops = np.searchsorted(codes, groups, "right")
    dtypes = _DTYPES | dict.fromkeys(map(percentile_label, q), "float64")
    no_rows = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in dtypes.items()})
    estimates = [_estimate(rows[start:stop], q) for start, stop in zip(starts, stops, strict=True)]
    n_running = [len(estimate) for estimate in estimates]
    keys = runs.keys.take(np.repeat(groups, n_running)).reset_index(drop=True)
    return join_keys(keys, pd.concat([no_rows, *estimates], ignore_index=True).astype(dtypes))


def _measure_runs(builds: pd.DataFrame) -> pd.DataFrame:
    """Return each build's elapsed seconds, whether it was seen to end, and whether it still runs.

    Only running builds have their id.
    """
    start = timestamp_micros(builds, "started_at")
    finished = timestamp_micros(builds, "finished_at")
    fetched = timestamp_micros(builds, "fetched_at")
    is_running = is_any_of(builds, "state", *RUNNING_STATES)
    goes_on = is_running | is_any_of(builds, "state", "canceling")
    until = np.where(goes_on, fetched, finished)
    is_measured = (start != NAT) & (until != NAT)
    has_outcome = is_any_of(builds, "state", "passed", "failed")
    columns = {
        "id": builds["id"].where(is_running),
        "has_ended": has_outcome & ~is_set(builds, "blocked"),
        "is_running": is_running & is_measured,
        "elapsed_s": seconds_between(start, until),
    }
    return pd.DataFrame(columns, index=builds.index)


def _estimate(builds: pd.DataFrame, q: Sequence[float]) -> pd.DataFrame:
    """Estimate the time left of one group's running builds."""
    running = builds.loc[builds["is_running"], ["id", "elapsed_s"]].astype({"id": TEXT})
    running = running.sort_values(["elapsed_s", "id"], ascending=[False, True])
    elapsed_s = running["elapsed_s"].to_numpy(np.float64)
    all_elapsed_s = builds["elapsed_s"].to_numpy(np.float64)
    has_ended = builds["has_ended"].to_numpy(bool)
    ended_s = np.sort(all_elapsed_s[has_ended])
    censored_s = np.sort(all_elapsed_s[~has_ended])
    n_sooner = np.searchsorted(ended_s, elapsed_s, "right")
    n = len(ended_s) - n_sooner
    left_s = _compute_quantiles_left(ended_s, censored_s, elapsed_s, q)
    left_s = np.where(has_enough_rows(n, q), left_s, np.nan)
    return running.assign(
        n=n,
        n_censored=len(censored_s) - np.searchsorted(censored_s, elapsed_s, "right"),
        n_sooner=n_sooner,
        n_negative=int((all_elapsed_s < 0).sum()),
        **{percentile_label(p): left_s[:, i] for i, p in enumerate(q)},
    )


def _compute_quantiles_left(
    ended_s: Floats,
    censored_s: Floats,
    elapsed_s: Floats,
    q: Sequence[float],
) -> Floats:
    """Return per elapsed time t (rows) the least d with S(t + d) / S(t) <= 1 - q.

    NaN if S ends above that.
    """
    from scipy.stats import CensoredData, ecdf  # slow to import

    survival = ecdf(CensoredData(ended_s, right=censored_s)).sf
    times = np.append(survival.quantiles, np.nan)
    shares = survival.probabilities
    # S just after each elapsed time, 1 before the first end.
    place = np.searchsorted(survival.quantiles, elapsed_s, "right")
    share_now = np.concatenate([[1.0], shares])[place]
    limits = share_now[:, None] * (1 - np.asarray(q)) * (1 + _ROUNDING)
    places: Integers = np.searchsorted(-shares, -limits, "left")  # shares decrease
    left_s: Floats = times[places] - elapsed_s[:, None]
    return left_s
