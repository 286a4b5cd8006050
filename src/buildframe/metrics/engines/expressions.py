"""Express outcomes and durations of jobs and builds for any engine. A null state matches no outcome."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import narwhals as nw

from buildframe.errors import BadInput
from buildframe.metrics.durations import BLOCKED, Span
from buildframe.metrics.engines.dtypes import micros_column

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
    return _has_failed_unless_soft() | (nw.col("state") == "timed_out").fill_null(False)


def was_lost() -> nw.Expr:
    """Match hard failures by infrastructure: the agent was lost or killed (exit status -1, or a signal)."""
    by_signal = ~nw.col("signal").is_null() | (nw.col("exit_status") == -1).fill_null(False)
    return _has_failed_unless_soft() & by_signal


def _has_failed_unless_soft() -> nw.Expr:
    return has_failed() & ~nw.col("soft_failed").fill_null(False)


def is_superseded() -> nw.Expr:
    """Match jobs that were retried, so that another attempt replaced them."""
    return nw.col("retried").fill_null(False)


def is_blocked(available: Collection[str]) -> nw.Expr:
    """Match builds that wait at a block step, as far as the available columns show it."""
    by_column = {
        "blocked": nw.col("blocked").cast(nw.Boolean).fill_null(False),
        "state": (nw.col("state").cast(nw.String) == "blocked").fill_null(False),
    }
    return nw.any_horizontal(
        nw.lit(False), *(by_column[name] for name in BLOCKED if name in available), ignore_nulls=False
    )


def is_settled() -> nw.Expr:
    """Match builds whose state is final: a blocked build only has the last state it had."""
    return ~is_blocked(("blocked",))


def micros_between(start: str, end: str) -> nw.Expr:
    """Return microseconds between two timestamps of rows with `with_micros`; negative if clocks disagree."""
    return nw.col(micros_column(end)) - nw.col(micros_column(start))


def seconds_of(span: Span, available: Collection[str]) -> nw.Expr:
    """Return the seconds of a row metric for rows with `with_micros`; null if it measures nothing."""
    seconds = unless_blocked(micros_between(span.start, span.end) / 1e6, span, available)
    return nw.when(is_script()).then(seconds) if span.scripts_only else seconds


def unless_blocked(seconds: nw.Expr, span: Span, available: Collection[str]) -> nw.Expr:
    """Return the seconds of a metric; null for blocked builds if it measures until a build's end."""
    return nw.when(~is_blocked(available)).then(seconds) if span.unless_blocked else seconds


def stored_seconds(name: str, dtype: Any) -> nw.Expr:
    """Return the seconds that a column of this type holds; raise BadInput if it is not a duration."""
    if dtype == nw.Unknown:  # nulls alone
        return nw.col(name).cast(nw.Float64)
    if dtype == nw.Duration:
        return nw.col(name).dt.total_microseconds() / 1e6
    if name.endswith("_s") and dtype.is_numeric():
        return nw.when(~nw.col(name).is_nan()).then(nw.col(name)) if dtype.is_float() else nw.col(name).cast(nw.Float64)
    raise BadInput(
        f"The column {name!r} is {dtype}, not a duration. Pass a metric such as metrics.run_time, or seconds."
    )
