"""Predict how long jobs of a queue wait with each number of agents, and find the smallest number that suffices."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pandas as pd

from buildframe.errors import BadInput
from buildframe.guards.arguments import checked_names
from buildframe.metrics.waits_by_agents import Waits, busy_hours, most_at_once, summarize_waits, try_numbers
from buildframe.spec.times import seconds_of

_COLUMNS = {
    "agents": "Int64", "started": "Int64", "canceled_waiting": "Int64", "undecided": "Int64", "wait_p50_s": "float64",
    "wait_p95_s": "float64", "share_within": "float64", "utilization": "float64", "agent_hours": "float64",
    "low": "float64", "high": "float64",
}  # fmt: skip


@checked_names
def agents_needed(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    queue: str,
    within: str | dt.timedelta = "5min",
    target: float = 0.95,
) -> pd.DataFrame:
    """
    Predict how long the jobs of a queue would wait with each number of agents.

    The recorded builds are replayed with fixed numbers of agents in this queue; all other queues keep theirs. So jobs
    that start earlier also end earlier, and let others start.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns that `replay` needs.
    jobs : pandas.DataFrame
        All jobs of these builds, fetched with `include_retried_jobs=True`, with the columns that `replay` needs.
    queue : str
        Queue whose number of agents changes.
    within : str or timedelta, default "5min"
        Longest wait that counts as in time.
    target : float, default 0.95
        Share of jobs that should start in time, a fraction in (0, 1).

    Returns
    -------
    pandas.DataFrame
        One row per number of agents that was tried, in ascending order. These include today's number, the numbers
        beside it, and the smallest that meets the target:

        ================ ======= ======================================================================
        agents           Int64   agents of the queue, at all times
        started          Int64   jobs that started
        canceled_waiting Int64   jobs that were canceled before they started; they missed the limit
        undecided        Int64   jobs that wait at the end of the record, for less than `within`;
                                 they do not count in `share_within`
        wait_p50_s       float64 median wait in seconds, from the curve of Kaplan and Meier if jobs did
                                 not start; NaN if it is unknown
        wait_p95_s       float64 the same for the 95th percentile
        share_within     float64 share of jobs that started within `within`
        utilization      float64 share of the agents' time in which they ran jobs
        agent_hours      float64 price: hours of all agents in the time of the record
        low, high        float64 95 % interval of `share_within`; NaN with jobs in fewer than five of
                                 eight spans of the time
        ================ ======= ======================================================================

        Its `attrs` have:

        - `smallest`: the smallest number of agents with `share_within >= target`, as all larger ones have. None if there
          is none.
        - `smallest_with_margin`: the same for `low >= target`, so that the target is probably met in other weeks, too.
        - `today`: the same columns, as a dict, with the fleet that the record shows; `agents` is its mean number.
        - `queue`, `within_s`, `target`; `days`, the length of the record.
        - `error`, `fleet` and `gap_share` of `replay`.

    Raises
    ------
    BadInput
        As for `replay`; if no job has this queue, `within` is not a duration above 0, or `target` lies outside (0, 1).

    See Also
    --------
    replay : The prediction behind each row, as frames.
    leverage : What faster steps would save instead.
    objective : The share of recorded jobs that started in time.
    buildframe.plots.agents_needed : Plot these numbers.

    Notes
    -----
    A wait that was canceled, or is open for longer than `within` at the end of the record, missed the limit. Nobody
    knows whether a shorter open one did. This differs from `objective`, which leaves out waits that were canceled before
    the limit: there they say nothing about the agents, but here each number of agents has its own cancellations. With
    few agents newer builds cancel more waiting jobs, and the number would look better than it is.

    Numbers between those that were tried are as good as their neighbors. At most as many agents are tried as jobs would
    run at once if no job had to wait. If even these do not meet the target, agents take longer than `within` to start a
    job.

    All numbers come from one record. `attrs["error"]` says how far off such predictions are; `low` and `high` say how
    much the share varies between parts of the record.

    Examples
    --------
    >>> needed = metrics.agents_needed(builds, jobs, "macos", within="5min", target=0.9)
    >>> needed.attrs["today"]["agents"], needed.attrs["smallest"]
    (1, 3)
    """
    limit = seconds_of(within, "within")
    if isinstance(target, bool) or not isinstance(target, float) or not 0 < target < 1:
        raise BadInput(f"target={target!r} is not a fraction between 0 and 1. Use one such as 0.95 for 95 %.")
    raise NotImplementedError
