"""Express outcomes and durations of jobs and builds for any engine. A null state matches no outcome."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Collection
from typing import Any

import narwhals as nw
import numpy as np

from buildframe.errors import BadInput
from buildframe.metrics.columns import Integers
from buildframe.metrics.durations import BLOCKED, NEVER_RUNNABLE, Span
from buildframe.metrics.engines.dtypes import micros_column, nan_as_null

_FEW = 4


def is_any_of(name: str, *texts: str) -> nw.Expr:
    """Match texts, null if there is none: a few are compared faster than `is_in` searches a list in each row."""
    if not 0 < len(texts) <= _FEW:
        return nw.col(name).is_in(texts)
    return functools.reduce(operator.or_, (nw.col(name) == text for text in texts))


# Jobs that run on an agent; jobs or builds that passed; builds that failed, or jobs, including soft failures
IS_SCRIPT = (nw.col("type") == "script").fill_null(False)
HAS_PASSED = (nw.col("state") == "passed").fill_null(False)
HAS_FAILED = (nw.col("state") == "failed").fill_null(False)

_HAS_FAILED_UNLESS_SOFT = HAS_FAILED & ~nw.col("soft_failed").fill_null(False)
HAS_FAILED_HARD = _HAS_FAILED_UNLESS_SOFT | (nw.col("state") == "timed_out").fill_null(False)
"""Jobs that failed or timed out, unless the failure is soft."""

IS_ATTEMPT = (
    (nw.col("type") == "script")
    & is_any_of("state", "passed", "failed", "timed_out")
    & ~((nw.col("state") == "failed") & nw.col("soft_failed").fill_null(False))
)
"""Script jobs that passed or failed hard; null or False for others, because only filters use it."""

IS_SUPERSEDED = nw.col("retried").fill_null(False)
"""Jobs that were retried, so that another attempt replaced them."""

IS_HELD = ((nw.col("type") == "manual") & (nw.col("state") == "blocked")).fill_null(False)
"""Block steps that wait to be unblocked; jobs behind one are in this state, too."""

IS_SETTLED = ~nw.col("blocked").cast(nw.Boolean).fill_null(False)
"""Builds whose state is final: a blocked build only has the last state it had."""


def is_blocked(available: Collection[str]) -> nw.Expr:
    """Match builds that wait at a block step, as far as the available columns show it."""
    by_column = {
        "blocked": nw.col("blocked").cast(nw.Boolean).fill_null(False),
        "state": (nw.col("state").cast(nw.String) == "blocked").fill_null(False),
    }
    known = [by_column[name] for name in BLOCKED if name in available]
    return functools.reduce(operator.or_, known) if known else nw.lit(False)


def outcome(available: Collection[str]) -> tuple[nw.Expr, nw.Expr]:
    """Return which builds or jobs failed, and which passed or failed. Jobs have the column `type`."""
    if "type" in available:
        return IS_SCRIPT & HAS_FAILED_HARD, IS_SCRIPT & (HAS_FAILED_HARD | HAS_PASSED)
    settled = ~is_blocked(available)
    return settled & HAS_FAILED, settled & (HAS_FAILED | HAS_PASSED)


def seconds_of(span: Span, available: Collection[str]) -> nw.Expr:
    """Return the seconds of a row metric for rows with `with_micros`; null if it measures nothing."""
    micros = nw.col(micros_column(span.end)) - nw.col(micros_column(span.start))
    seconds = unless_blocked(micros / 1e6, span, available)
    return nw.when(IS_SCRIPT).then(seconds) if span.scripts_only else seconds


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
        return nan_as_null(name) if dtype.is_float() else nw.col(name).cast(nw.Float64)
    raise BadInput(
        f"The column {name!r} is {dtype}, not a duration. Pass a metric such as metrics.run_time, or seconds."
    )


def is_censored(span: Span, available: Collection[str]) -> nw.Expr:
    """Return whether a row began and was not seen to end: still under way when fetched, or canceled before.

    A blocked build is censored even if it has an end. For `dependency_wait`, rows that can never become runnable
    (broken, skipped) are not.
    """
    has_no_end = nw.col(span.end).is_null()
    if span.unless_blocked:
        has_no_end |= is_blocked(available)
    censored = ~nw.col(span.start).is_null() & has_no_end
    if span.end == "runnable_at" and "state" in available:
        censored &= ~is_any_of("state", *NEVER_RUNNABLE).fill_null(False)
    return censored


def seen_seconds(span: Span, available: Collection[str]) -> nw.Expr:
    """Return how long a censored row with `with_micros` was seen to last; null if unknown.

    It was seen until its end, as of a job that was canceled while it waited, or until it was fetched. A job that ended
    at an unknown time was seen for an unknown time.
    """
    known = [name for name in span.seen if name in available]
    ends = {name: nw.col(micros_column(name)) for name in known}
    if span.unless_blocked and "finished_at" in ends:
        ends["finished_at"] = nw.when(~is_blocked(available)).then(ends["finished_at"])
    start = nw.col(micros_column(span.start))
    last = nw.coalesce(*ends.values()) if ends else nw.when(start.is_null()).then(start)  # null in every row
    return (last - start) / 1e6


def _when(condition: nw.Expr, one: nw.Expr, other: nw.Expr) -> nw.Expr:
    return nw.when(condition).then(one).otherwise(other)


def bucket_number(time: Any, edges: Integers, either: Callable[[Any, Any, Any], Any] = _when) -> Any:
    """Express the number of a time's bucket, with a branch for each run of buckets of equal length."""
    if not len(edges):  # no time is known
        return time
    widths = np.diff(edges)
    starts = [0, *(np.flatnonzero(np.diff(widths)) + 1).tolist()]
    number, *others = ((time - int(edges[start])) // int(widths[start]) + start for start in starts)
    for start, in_run in zip(starts[1:], others, strict=True):
        number = either(time >= int(edges[start]), in_run, number)
    return number
