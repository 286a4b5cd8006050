"""Compute the seconds of a row metric and whether a row is censored, as columns for any engine."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import check_aligned, column, require_columns, seconds, timestamps
from buildframe.metrics.durations import NEVER_RUNNABLE, SPANS, RowMetric, Span, is_blocked, is_script
from buildframe.metrics.engines import (
    Floats,
    Frame,
    GroupedRows,
    column_names,
    expressions,
    group_rows,
    is_pandas,
    spark,
    to_lazy,
    with_micros,
)
from buildframe.metrics.grouping import By


def measure(frame: Frame, of: RowMetric | str, by: By = None, needs: tuple[str, ...] = ()) -> GroupedRows:
    """Return the rows with `value` (float64 seconds or null) and, if known, `censored`: it was not seen to end.

    Censoring is unknown for custom metrics and columns, and without the timestamps. For a metric of script jobs only
    their rows remain, so the null queue of a trigger job is no group.
    """
    if not isinstance(of, str) and not callable(of):
        raise BadInput(f"of={of!r} is neither a metric nor a column name. Pass one such as metrics.run_time.")
    available = column_names(frame)
    span = _span_of(of)
    has_stamps = not isinstance(of, str) or set(_stamps(span)) <= set(available)
    if is_pandas(frame):
        needs_type = ("type",) if has_stamps and span is not None and span.scripts_only else ()
        rows = group_rows(frame, (*needs, *needs_type), by, **_in_pandas(frame, of, span, has_stamps))
        return rows.filter(expressions.is_script()) if needs_type else rows
    frame, value = _in_engine(frame, of, span)
    if span is None or not has_stamps:
        return group_rows(frame, needs, by, value=value)
    rows = group_rows(frame, (*needs, *_stamps(span)), by, _optional_columns(span), value=value)
    rows = rows.with_columns(censored=_censored(span, available))
    return rows.filter(expressions.is_script()) if span.scripts_only else rows


def seconds_of(frame: pd.DataFrame, of: RowMetric | str) -> Floats:
    """Return the seconds of each row of a pandas frame, NaN if a row has none."""
    span = _span_of(of)
    value: Floats = _in_pandas(frame, of, span, span is None or set(_stamps(span)) <= set(frame))["value"]
    return value


def _span_of(of: RowMetric | str) -> Span | None:
    return next((span for metric, span in SPANS.items() if of in (metric, f"{metric.__name__}_s")), None)


def _stamps(span: Span | None) -> tuple[str, ...]:
    if span is None:
        return ()
    return (span.start, span.end, "type") if span.scripts_only else (span.start, span.end)


def _optional_columns(span: Span) -> tuple[str, ...]:
    """Return optional columns that show more about where a row ends."""
    if span.unless_blocked:
        return expressions.BLOCKED
    return ("state",) if span.end == "runnable_at" else ()


def _in_pandas(frame: pd.DataFrame, of: RowMetric | str, span: Span | None, has_stamps: bool) -> dict[str, Any]:
    """Compute the same as `_in_engine` and `_censored` directly from timestamps, in half the time."""
    if span is None:
        return {"value": _seconds(frame, of)}
    blocked = is_blocked(frame).to_numpy() if span.unless_blocked else np.zeros(len(frame), np.bool_)
    stored = np.where(blocked, np.nan, _seconds(frame, of)) if isinstance(of, str) else None
    if not has_stamps:
        return {"value": stored}
    start, end = (timestamps(frame, name).to_numpy("datetime64[us]") for name in (span.start, span.end))
    begun, ended = ~np.isnat(start), ~np.isnat(end) & ~blocked
    if span.scripts_only:
        begun &= is_script(frame).to_numpy()
    is_complete = begun & ended
    cut_off = begun & ~ended
    if span.end == "runnable_at" and "state" in frame:
        cut_off &= ~column(frame, "state").isin(NEVER_RUNNABLE).to_numpy(bool)
    if stored is not None:
        return {"value": stored, "censored": cut_off}
    return {
        "value": np.where(is_complete, (end.view("int64") - start.view("int64")) / 1e6, np.nan),
        "censored": cut_off,
    }


def _seconds(frame: pd.DataFrame, of: RowMetric | str) -> Any:
    if isinstance(of, str):
        return seconds(column(frame, of), f"The column {of!r}").to_numpy(np.float64, na_value=np.nan)
    name = f"The result of {getattr(of, '__name__', of)}"
    return seconds(check_aligned(of(frame), frame, f"of={getattr(of, '__name__', of)}"), name).to_numpy(
        np.float64, na_value=np.nan
    )


def _in_engine(frame: Frame, of: RowMetric | str, span: Span | None) -> tuple[Frame, nw.Expr]:
    """Return the frame and its expression of seconds, from timestamps as numbers if there is no such column."""
    rows = to_lazy(frame)
    schema = rows.collect_schema()
    name = of if isinstance(of, str) else f"{getattr(of, '__name__', 'of')}_s"
    if name in schema or span is None or isinstance(of, str):
        require_columns(schema.names(), [name])
        if spark.is_spark(rows):
            spark.check_names([name])
        stored = _of_column(name, schema[name])
        return frame, stored if span is None else expressions.unless_blocked(stored, span, schema)
    require_columns(schema.names(), _stamps(span))
    return with_micros(rows, (span.start, span.end)).to_native(), expressions.seconds_of(span, schema)


def _of_column(name: str, dtype: Any) -> nw.Expr:
    if dtype == nw.Unknown:  # nulls alone
        return nw.col(name).cast(nw.Float64)
    if dtype == nw.Duration:
        return nw.col(name).dt.total_microseconds() / 1e6
    if name.endswith("_s") and dtype.is_numeric():
        return nw.when(~nw.col(name).is_nan()).then(nw.col(name)) if dtype.is_float() else nw.col(name).cast(nw.Float64)
    raise BadInput(
        f"The column {name!r} is {dtype}, not a duration. Pass a metric such as metrics.run_time, or seconds."
    )


def _censored(span: Span, available: Collection[str]) -> nw.Expr:
    """Return whether a row began and was not seen to end: still under way when fetched, or canceled before.

    A blocked build is censored even if it has an end. For `dependency_wait`, rows that can never become runnable
    (broken, skipped) are not.
    """
    has_no_end = nw.col(span.end).is_null()
    if span.unless_blocked:
        has_no_end |= expressions.is_blocked(available)
    open_ended = ~nw.col(span.start).is_null() & has_no_end
    if span.end == "runnable_at" and "state" in available:
        open_ended &= ~nw.col("state").is_in(NEVER_RUNNABLE).fill_null(False)
    return open_ended & expressions.is_script() if span.scripts_only else open_ended
