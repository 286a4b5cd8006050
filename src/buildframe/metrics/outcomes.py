"""Classify single builds and jobs: whether they failed, and how jobs ended.

Does not group or summarize.
"""

from __future__ import annotations

from collections.abc import Collection

import narwhals as nw
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics import failure_causes
from buildframe.metrics.columns import check_is_pandas, typed_column
from buildframe.metrics.durations import BLOCKED, is_script
from buildframe.metrics.engines import expressions
from buildframe.metrics.validation import check_states

_OF_STATES = ("passed", "timed_out", "expired", "canceled")
_OF_FAILURES = {
    failure_causes.COMMAND: "failed",
    failure_causes.INFRASTRUCTURE: "infrastructure",
    failure_causes.KILLED: "killed",
    failure_causes.PERSON: "canceled",
}


@checked_names
def failed(frame: pd.DataFrame) -> pd.Series[bool]:
    """
    Return whether each build or job failed.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds with the column `state`, and `blocked` if known; or jobs with `type`, `state` and `soft_failed`. A frame
        with `type` holds jobs.

    Returns
    -------
    pandas.Series
        `boolean` on the index of the frame: True if the build or job failed, False if it passed, and null otherwise:
        canceled, skipped, unfinished or blocked. A job that timed out failed. A soft failure, and a job that is not a
        script job, are null. An attempt that failed is True also if a retry of it passed; see Notes.

    Raises
    ------
    BadInput
        If a column is missing, or `state` holds states in an unknown spelling.

    See Also
    --------
    change_points : Find when the share of failures changed.
    success_rate : Share of builds that passed.

    Notes
    -----
    Each attempt is judged by itself. `ws.history()` and `include_retried_jobs=True` return all attempts. To find the
    steps that made builds fail, keep only last attempts: `jobs[~jobs["retried"].fillna(False)]`.

    Examples
    --------
    >>> jobs.assign(failed=metrics.failed).groupby("queue")["failed"].mean().round(3)
    queue
    default    0.021
    deploy     0.043
    docker      0.04
    macos      0.006
    Name: failed, dtype: Float64
    """
    check_is_pandas(frame, "row metrics need.")
    check_states(frame, "state")
    needs, wants = outcome_columns(list(frame.columns))
    names = [*needs, *(name for name in wants if name in frame)]
    typed = pd.DataFrame({name: typed_column(frame, name).array for name in names})
    has_failed, is_counted = expressions.outcome(names)
    outcome = nw.from_native(typed, eager_only=True).select(failed=has_failed, counted=is_counted).to_pandas()
    known = outcome["failed"].astype("boolean").where(outcome["counted"].astype(bool))
    return known.set_axis(frame.index)


@checked_names
def outcome(jobs: pd.DataFrame) -> pd.Series[str]:
    """
    Return how each script job ended: by its command, by infrastructure, a timeout or a person.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns `type`, `state`, `soft_failed`, `exit_status` and `signal`. Uses
        `signal_reason` if the frame has it.

    Returns
    -------
    pandas.Series
        `str` on the index of the frame; null for jobs that are not over, or never could run, and
        for other types than script. See Notes for the values.

    Raises
    ------
    BadInput
        If a column is missing, or `state` holds states in an unknown spelling.

    See Also
    --------
    failed : Whether builds and jobs failed, whatever the cause.
    outcomes_by_commit : Outcomes of all attempts of a step at a commit.

    Notes
    -----
    - `passed`, `soft_failed`, `timed_out`, `expired`: as the service says in `state` and
      `soft_failed`.
    - `canceled`: a person canceled the job (state `canceled`, or `signal_reason` `cancel`).
    - `infrastructure`: the job failed because its agent was lost or stopped, or never ran it. The
      `signal_reason` is `agent_stop`, `agent_refused`, `agent_incompatible`, `stack_error` or
      `process_run_error`, whatever the exit status; or the exit status is -1, unless a reason or a
      crash explains it.
    - `killed`: SIGKILL without a reason. The system killed the command because memory ran out, or a
      person did.
    - `failed`: all other failures. A command that crashes, as by SIGSEGV or SIGABRT, fails like
      others, and so does a job whose signature was rejected.

    Examples
    --------
    >>> metrics.outcome(jobs).value_counts().head(3)
    outcome
    passed      2564
    failed        38
    canceled      24
    Name: count, dtype: int64
    """
    check_is_pandas(jobs, "row metrics need.")
    check_states(jobs, "state")
    needs = ("type", *failure_causes.NEEDS, "soft_failed")
    names = [*needs, *(name for name in failure_causes.WANTS if name in jobs)]
    typed = pd.DataFrame({name: typed_column(jobs, name).array for name in names})
    has_failed = (typed["state"] == "failed").fillna(False)
    is_soft = typed["soft_failed"].fillna(False).astype(bool)
    causes = nw.from_native(typed, eager_only=True).select(cause=failure_causes.number_cause(names)).to_pandas()
    of_failures = causes["cause"].map(_OF_FAILURES).mask(is_soft, "soft_failed")
    of_others = typed["state"].where(typed["state"].isin(_OF_STATES))
    outcomes = of_others.mask(has_failed, of_failures).where(is_script(typed))
    return outcomes.astype("str").set_axis(jobs.index).rename("outcome")


def outcome_columns(available: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the columns of builds or jobs that show whether they failed: required ones, and those used if present."""
    return (("type", "state", "soft_failed"), ()) if "type" in available else (("state",), BLOCKED)
