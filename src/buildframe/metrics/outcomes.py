"""How jobs and builds ended, as expressions for any engine; a null state is none of these."""

from __future__ import annotations

import narwhals as nw

from buildframe.metrics.durations import Span
from buildframe.metrics.engines import tick

OUTCOME = ("state", "soft_failed", "exit_status", "signal")
"""The columns of jobs that tell how they ended."""


def is_script() -> nw.Expr:
    """Jobs that run on an agent."""
    return (nw.col("type") == "script").fill_null(False)


def has_passed() -> nw.Expr:
    """Jobs or builds that passed."""
    return (nw.col("state") == "passed").fill_null(False)


def has_failed() -> nw.Expr:
    """Builds that failed; jobs, too, be it softly."""
    return (nw.col("state") == "failed").fill_null(False)


def has_failed_hard() -> nw.Expr:
    """Jobs that failed or ran out of time, unless the failure is soft."""
    return _by_itself() | (nw.col("state") == "timed_out").fill_null(False)


def was_lost() -> nw.Expr:
    """Hard failures by infrastructure: the agent was lost or killed (exit status -1, or a signal)."""
    by_signal = ~nw.col("signal").is_null() | (nw.col("exit_status") == -1).fill_null(False)
    return _by_itself() & by_signal


def _by_itself() -> nw.Expr:
    return has_failed() & ~nw.col("soft_failed").fill_null(False)


def is_superseded() -> nw.Expr:
    """Jobs that were retried: another attempt took their place."""
    return nw.col("retried").fill_null(False)


def is_settled() -> nw.Expr:
    """Builds whose state is final as far as one can see: a blocked one only has the last that it had."""
    return ~nw.col("blocked").fill_null(False)


def between(start: str, end: str) -> nw.Expr:
    """Whole microseconds from one stamp to another, of rows that are `ticking`; negative where clocks disagree."""
    return nw.col(tick(end)) - nw.col(tick(start))


def seconds_of(span: Span) -> nw.Expr:
    """What a metric of rows measures, in seconds, of rows that are `ticking`; null where it measures nothing."""
    seconds = between(span.start, span.end) / 1e6
    return nw.when(is_script()).then(seconds) if span.scripts_only else seconds
