"""Classify single builds and jobs: whether they failed, how jobs ended, and what ended failed ones.

Does not group or summarize.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import pandas as pd

from buildframe.guards.arguments import checked_names
from buildframe.metrics.columns import TEXT, Integers, check_is_pandas
from buildframe.metrics.durations import BLOCKED, is_script
from buildframe.metrics.input_frames import read_columns
from buildframe.metrics.row_flags import equals, flag_outcomes, is_set
from buildframe.metrics.validation import check_states

COMMAND, INFRASTRUCTURE, KILLED, PERSON = range(4)
"""Causes of failures.

A command that crashes or whose signature is rejected fails like others. Nobody knows who killed
`KILLED`.
"""

CAUSE_NEEDS = ("state", "exit_status", "signal")
"""Columns that show the cause of a failure."""

CAUSE_WANTS = ("signal_reason",)
"""Columns that show more about it if the frame has them."""

LOST = -1
"""Exit status of a job whose agent was lost or killed."""

_REASONS_OF_PERSONS = ("cancel",)
_REASONS_OF_INFRASTRUCTURE = (
    "agent_stop",
    "agent_refused",
    "agent_incompatible",
    "stack_error",
    "process_run_error",
)
_REASONS_OF_CONFIGURATION = ("signature_rejected",)
_CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP")

_STATES_THAT_ARE_OUTCOMES = ("passed", "timed_out", "expired", "canceled")
_OUTCOMES_BY_CAUSE = {
    COMMAND: "failed",
    INFRASTRUCTURE: "infrastructure",
    KILLED: "killed",
    PERSON: "canceled",
}


@checked_names
def failed(frame: pd.DataFrame) -> pd.Series[bool]:
    """
    Return whether each build or job failed.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds with the column `state`, and `blocked` if known; or jobs with `type`, `state` and
        `soft_failed`. A frame with `type` holds jobs.

    Returns
    -------
    pandas.Series
        `boolean` on the index of the frame: True if the build or job failed, False if it passed,
        and null otherwise: canceled, skipped, unfinished or blocked. A job that timed out failed. A
        soft failure, and a job that is not a script job, are null. An attempt that failed is True
        also if a retry of it passed; see Notes.

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
    Each attempt is judged by itself. `ws.history()` and `include_retried_jobs=True` return all
    attempts. To find the steps that made builds fail, keep only last attempts:
    `jobs[~jobs["retried"].fillna(False)]`.

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
    needs, wants = outcome_columns(frame.columns)
    has_failed, is_counted = flag_outcomes(read_columns(frame, needs, wants))
    known = pd.Series(has_failed, frame.index, dtype="boolean", name="failed")
    return known.where(is_counted)


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
    rows = read_columns(jobs, ["type", *CAUSE_NEEDS, "soft_failed"], CAUSE_WANTS)
    has_failed = equals(rows, "state", "failed")
    causes = pd.Series(number_causes(rows))
    is_soft = is_set(rows, "soft_failed")
    outcomes_of_failures = causes.map(_OUTCOMES_BY_CAUSE).mask(is_soft, "soft_failed")
    outcomes_of_others = rows["state"].where(rows["state"].isin(_STATES_THAT_ARE_OUTCOMES))
    outcomes = outcomes_of_others.mask(has_failed, outcomes_of_failures).where(is_script(rows))
    return outcomes.astype(TEXT).set_axis(jobs.index).rename("outcome")


def number_causes(jobs: pd.DataFrame) -> Integers:
    """Return what ended each failed job: its command, infrastructure, a person, or an unknown kill.

    `jobs` has typed columns, at least `CAUSE_NEEDS`. Jobs in other states have the cause `COMMAND`.
    """
    has_failed = equals(jobs, "state", "failed")
    causes = np.full(len(jobs), COMMAND)
    causes[has_failed] = _number_causes_of_failures(jobs[has_failed])  # which are few
    return causes


def _number_causes_of_failures(failures: pd.DataFrame) -> Integers:
    """Apply the rules from the weakest to the strongest: signals, exit statuses, stated reasons."""
    signals = failures["signal"]
    reasons = failures.get("signal_reason", pd.Series(None, failures.index, dtype=TEXT))
    is_lost = (failures["exit_status"] == LOST).to_numpy(bool, na_value=False)
    causes = np.full(len(failures), COMMAND)
    causes[signals.eq("SIGKILL") & reasons.isna()] = KILLED
    causes[is_lost & ~signals.isin(_CRASHES)] = INFRASTRUCTURE
    causes[reasons.isin(_REASONS_OF_CONFIGURATION)] = COMMAND
    causes[reasons.isin(_REASONS_OF_INFRASTRUCTURE)] = INFRASTRUCTURE
    causes[reasons.isin(_REASONS_OF_PERSONS)] = PERSON
    return causes


def outcome_columns(available: Collection[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the required and the optional columns that show whether builds or jobs failed."""
    if "type" in available:
        return ("type", "state", "soft_failed"), ()
    return ("state",), BLOCKED
