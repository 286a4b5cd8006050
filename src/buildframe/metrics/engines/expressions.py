"""Express outcomes of jobs and builds for any engine. A null state matches none of them."""

from __future__ import annotations

from collections.abc import Collection

import narwhals as nw

from buildframe.metrics.durations import Span
from buildframe.metrics.engines import micros_column

OUTCOME = ("state", "soft_failed", "exit_status", "signal")
"""Columns of jobs that determine the outcome."""


def is_script() -> nw.Expr:
    """Match jobs that run on an agent."""
    return (nw.col("type") == "script").fill_null(False)


def has_passed() -> nw.Expr:
    """Match jobs or builds that passed."""
    return (nw.col("state") == "passed").fill_null(False)


def has_failed() -> nw.Expr:
    """Match builds that failed; also jobs, including soft failures."""
    return (nw.col("state") == "failed").fill_null(False)


def has_failed_hard() -> nw.Expr:
    """Match jobs that failed or timed out, unless the failure is soft."""
    return _by_itself() | (nw.col("state") == "timed_out").fill_null(False)


def was_lost() -> nw.Expr:
    """Match hard failures by infrastructure: the agent was lost or killed (exit status -1, or a signal)."""
    by_signal = ~nw.col("signal").is_null() | (nw.col("exit_status") == -1).fill_null(False)
    return _by_itself() & by_signal


def _by_itself() -> nw.Expr:
    return has_failed() & ~nw.col("soft_failed").fill_null(False)


def is_superseded() -> nw.Expr:
    """Match jobs that were retried, so that another attempt replaced them."""
    return nw.col("retried").fill_null(False)


BLOCKED = ("blocked", "state")
"""Columns that show whether a build is blocked: the flag, or the state in a webhook."""


def is_blocked(there: Collection[str]) -> nw.Expr:
    """Match builds that wait at a block step, as far as the available columns show it."""
    by_column = {
        "blocked": nw.col("blocked").cast(nw.Boolean).fill_null(False),
        "state": (nw.col("state").cast(nw.String) == "blocked").fill_null(False),
    }
    return nw.any_horizontal(nw.lit(False), *(by_column[name] for name in BLOCKED if name in there), ignore_nulls=False)


def is_settled() -> nw.Expr:
    """Match builds whose state is final: a blocked build only has the last state it had."""
    return ~is_blocked(("blocked",))


def micros_between(start: str, end: str) -> nw.Expr:
    """Return microseconds between two timestamps of rows with `with_micros`; negative if clocks disagree."""
    return nw.col(micros_column(end)) - nw.col(micros_column(start))


def seconds_of(span: Span, there: Collection[str]) -> nw.Expr:
    """Return the seconds of a row metric for rows with `with_micros`; null if it measures nothing."""
    seconds = unless_blocked(micros_between(span.start, span.end) / 1e6, span, there)
    return nw.when(is_script()).then(seconds) if span.scripts_only else seconds


def unless_blocked(seconds: nw.Expr, span: Span, there: Collection[str]) -> nw.Expr:
    """Return the seconds of a metric; null for blocked builds if it measures until a build's end."""
    return nw.when(~is_blocked(there)).then(seconds) if span.unless_blocked else seconds
