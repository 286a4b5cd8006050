"""How long builds that run still take, going by those that ran as long before."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from buildframe.arguments import checked_names
from buildframe.metrics.columns import NAT, column
from buildframe.metrics.engines import GROUP, Floats, Frame, Integers, rows
from buildframe.metrics.groups import By
from buildframe.metrics.intervals import instants
from buildframe.metrics.percentiles import checked, enough, label
from buildframe.metrics.pieces import in_groups
from buildframe.metrics.states import check_states

RUNNING = ("running", "failing")
"""States of builds whose end is to come of itself; one that is `canceling` was told to end."""

_NEEDS = ("id", "state", "blocked", "started_at", "finished_at", "fetched_at")
_ROUNDING = 1e-9
_COUNTS = ("n", "n_censored", "n_sooner", "n_negative")
_DTYPES = {"id": "str", "elapsed_s": "float64", **dict.fromkeys(_COUNTS, "Int64")}


@checked_names
def remaining_time(builds: Frame, by: By = "pipeline", q: float | Sequence[float] = (0.5, 0.9)) -> pd.DataFrame:
    """How long builds that run may still take: percentiles of what was left to those that ran as long before.

    The frame holds both, those that run (state `running` or `failing`, with `started_at`) and the history of their
    group. Time counts from `started_at`; waiting before is not in it, waiting at a block step is. Of a build that has
    run for t, the chance that it ends within d is 1 - S(t + d) / S(t), with S, the share of builds that run longer, by
    Kaplan and Meier (1958, Journal of the American Statistical Association 53: 457-481). Builds that passed and those
    that failed end alike, since what will become of this one is not known. Those that were canceled, that wait at a
    block step, or run themselves, were not seen to end (censored): they ran at least until `finished_at`, where there
    is none until `fetched_at`.

    One row for each build that runs, in the order of keys, those that run longest first; columns: the keys of `by`
    (as in `percentiles`), then
    `id` (str); `elapsed_s` (float64): how long it has run, in seconds, when it was fetched;
    `n`, `n_censored` (Int64): builds of its group that ran longer than that, seen to end and not;
    `n_sooner` (Int64): those that had ended by then: where `n` is 0, it is slower than all of these;
    `n_negative` (Int64): runs of its group below zero, from clocks that disagree; they are kept and ended before any;
    `p50_s`, `p90_s`, ... (float64): from now on, in seconds: the least d within which such a build ends with this
    chance. NaN where fewer than 1 / (1 - p) of `n` lie beyond it, or too many were not seen to end.

    An empty frame, or one in which none runs, gives these
    columns and no rows. Each row counts: see `latest`. BadInput: a missing column, naive times, q outside (0, 1).
    """
    q = checked(q, "linear")
    check_states(builds, "state")
    return in_groups(rows(builds, _NEEDS, by), _NEEDS, functools.partial(_remaining, q))


def _remaining(q: Sequence[float], table: pd.DataFrame) -> pd.DataFrame:
    """The rows of each group's builds that run."""
    ran = _ran(table)
    codes = table[GROUP].to_numpy(np.int64)
    told = [_told(ran[codes == group], q) for group in np.unique(codes[ran["is_running"]])]
    columns = [*_DTYPES, *map(label, q)]
    found = pd.concat(told) if told else pd.DataFrame(columns=columns, index=pd.RangeIndex(0))
    dtypes = _DTYPES | dict.fromkeys(map(label, q), "float64")
    return found[columns].astype(dtypes).assign(**{GROUP: codes[found.index]}).reset_index(drop=True)


def _ran(table: pd.DataFrame) -> pd.DataFrame:
    """Of each build that ran, for how many seconds, whether it was seen to end, and whether it still runs."""
    state = column(table, "state")
    start, end, seen = (instants(table, name) for name in ("started_at", "finished_at", "fetched_at"))
    is_running = state.isin(RUNNING).to_numpy(bool)
    goes_on = state.isin([*RUNNING, "canceling"]).to_numpy(bool)
    until = np.where(goes_on, seen, end)
    blocked = column(table, "blocked").fillna(False).to_numpy(bool)
    ended = state.isin(["passed", "failed"]).to_numpy(bool) & ~blocked
    ran = pd.DataFrame({"id": table["id"], "ended": ended, "is_running": is_running})
    is_known = (start != NAT) & (until != NAT)
    return ran.assign(elapsed_s=np.where(is_known, (until - start) / 1e6, np.nan), is_running=is_running & is_known)


def _told(group: pd.DataFrame, q: Sequence[float]) -> pd.DataFrame:
    """The rows of those of a group that run."""
    known = group.dropna(subset=["elapsed_s"])
    running = known[known["is_running"]].sort_values(["elapsed_s", "id"], ascending=[False, True])
    ended = np.sort(known.loc[known["ended"], "elapsed_s"].to_numpy(np.float64))
    cut = np.sort(known.loc[~known["ended"], "elapsed_s"].to_numpy(np.float64))
    elapsed = running["elapsed_s"].to_numpy(np.float64)
    n = len(ended) - np.searchsorted(ended, elapsed, "right")
    quantiles = np.where(enough(n, q), _left(ended, cut, elapsed, q), np.nan)
    n_censored = len(cut) - np.searchsorted(cut, elapsed, "right")
    n_negative = int((known["elapsed_s"] < 0).sum())
    counts: dict[str, Any] = dict(zip(_COUNTS, (n, n_censored, len(ended) - n, n_negative), strict=True))
    return running.assign(**counts, **{label(p): quantiles[:, i] for i, p in enumerate(q)})


def _left(ended: Floats, cut: Floats, elapsed: Floats, q: Sequence[float]) -> Floats:
    """For each that has run so long (rows), the least d with S(t + d) / S(t) <= 1 - q; NaN where S ends above that."""
    from scipy.stats import CensoredData, ecdf  # which takes longer to import than all else here

    survival = ecdf(CensoredData(ended, right=cut)).sf
    times, shares = np.append(survival.quantiles, np.nan), survival.probabilities
    now = np.concatenate([[1.0], shares])[np.searchsorted(survival.quantiles, elapsed, "right")]
    limits = now[:, None] * (1 - np.asarray(q)) * (1 + _ROUNDING)
    places: Integers = np.searchsorted(-shares, -limits, "left")  # the shares fall
    left: Floats = times[places] - elapsed[:, None]
    return left
