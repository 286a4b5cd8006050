"""How jobs and builds ended, as expressions for any engine; a null state is none of these."""

from __future__ import annotations

from collections.abc import Collection

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


BLOCKED = ("blocked", "state")
"""The columns that show whether a build is blocked: the flag, or the state of a webhook."""


def is_blocked(there: Collection[str]) -> nw.Expr:
    """Builds that wait at a block step, as far as the columns that are there show it."""
    by_column = {
        "blocked": nw.col("blocked").cast(nw.Boolean).fill_null(False),
        "state": (nw.col("state").cast(nw.String) == "blocked").fill_null(False),
    }
    return nw.any_horizontal(nw.lit(False), *(by_column[name] for name in BLOCKED if name in there), ignore_nulls=False)


def is_settled() -> nw.Expr:
    """Builds whose state is final as far as one can see: a blocked one only has the last that it had."""
    return ~is_blocked(("blocked",))


def between(start: str, end: str) -> nw.Expr:
    """Whole microseconds from one stamp to another, of rows that are `ticking`; negative where clocks disagree."""
    return nw.col(tick(end)) - nw.col(tick(start))


def seconds_of(span: Span, there: Collection[str]) -> nw.Expr:
    """What a metric of rows measures, in seconds, of rows that are `ticking`; null where it measures nothing."""
    seconds = unless_blocked(between(span.start, span.end) / 1e6, span, there)
    return nw.when(is_script()).then(seconds) if span.scripts_only else seconds


def unless_blocked(seconds: nw.Expr, span: Span, there: Collection[str]) -> nw.Expr:
    """The seconds of a metric; null for a blocked build if it measures until a build's end, as that has none yet."""
    return nw.when(~is_blocked(there)).then(seconds) if span.unless_blocked else seconds
