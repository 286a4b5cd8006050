"""Say what ended a failed job: its command, infrastructure, a person, or an unknown kill.

One rule holds for every engine.

A reason that the service gives says most. Without one, the signal and the exit status decide. Knows
single jobs that failed; does not group or summarize.
"""

from __future__ import annotations

from collections.abc import Collection

import narwhals as nw

from buildframe.metrics.outcomes import CAUSE_NEEDS as NEEDS
from buildframe.metrics.outcomes import CAUSE_WANTS as WANTS
from buildframe.metrics.outcomes import COMMAND, INFRASTRUCTURE, KILLED, LOST, PERSON, number_causes

__all__ = [
    "CAUSE",
    "COMMAND",
    "INFRASTRUCTURE",
    "KILLED",
    "LOST",
    "NEEDS",
    "PERSON",
    "WANTS",
    "number_cause",
    "number_causes",
]

CAUSE = "cause of the failure"

_BY_INFRASTRUCTURE = ("agent_stop", "agent_refused", "agent_incompatible", "stack_error", "process_run_error")
_BY_PERSON = ("cancel",)
_BY_CONFIGURATION = ("signature_rejected",)
_CRASHES = ("SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP")
_KILL = "SIGKILL"


def _by_reason(cause: nw.Expr) -> nw.Expr:
    """Return the cause that the reason of the signal states, else the given one."""
    reason = nw.col("signal_reason")
    cause = nw.when(reason.is_in(_BY_CONFIGURATION)).then(nw.lit(COMMAND)).otherwise(cause)
    cause = nw.when(reason.is_in(_BY_INFRASTRUCTURE)).then(nw.lit(INFRASTRUCTURE)).otherwise(cause)
    return nw.when(reason.is_in(_BY_PERSON)).then(nw.lit(PERSON)).otherwise(cause)


def number_cause(available: Collection[str]) -> nw.Expr:
    """Return the cause of each failure; `COMMAND` for jobs in other states."""
    signal = nw.col("signal")
    is_lost = (nw.col("exit_status") == LOST).fill_null(False)
    is_crash = signal.is_in(_CRASHES).fill_null(False)
    is_kill = (signal == _KILL).fill_null(False)
    has_reason = "signal_reason" in available
    if has_reason:
        is_kill &= nw.col("signal_reason").is_null()
    cause = nw.when(is_kill).then(nw.lit(KILLED)).otherwise(nw.lit(COMMAND))
    cause = nw.when(is_lost & ~is_crash).then(nw.lit(INFRASTRUCTURE)).otherwise(cause)
    if has_reason:
        cause = _by_reason(cause)
    return nw.when(nw.col("state") == "failed").then(cause).otherwise(nw.lit(COMMAND))
