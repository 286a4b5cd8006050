"""What a metric of rows measures, as columns for any engine: the seconds, and whether the end was not seen."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics import outcomes, spark
from buildframe.metrics.columns import aligned, column, moments, require, seconds
from buildframe.metrics.durations import NEVER_RUNNABLE, SPANS, RowMetric, Span, is_blocked, is_script
from buildframe.metrics.engines import Floats, Frame, Rows, columns_of, is_pandas, lazy, rows, ticking
from buildframe.metrics.groups import By


def measured(frame: Frame, of: RowMetric | str, by: By = None, needs: tuple[str, ...] = ()) -> Rows:
    """The rows with `value` (float64 seconds, or null) and, where that can be told, `begun`: it was not seen to end.

    It cannot be told of a metric, or a column, of another's making, nor without the stamps. Of a metric of script jobs
    only their rows are in it, so that the queue of a trigger job, which is null, is no group.
    """
    if not isinstance(of, str) and not callable(of):
        raise BadInput(f"of={of!r}: pass a metric such as metrics.run_time, or the name of a column.")
    there = columns_of(frame)
    span = _span_of(of)
    has_stamps = not isinstance(of, str) or set(_stamps(span)) <= set(there)
    if is_pandas(frame):
        own = ("type",) if has_stamps and span is not None and span.scripts_only else ()
        found = rows(frame, (*needs, *own), by, **_in_pandas(frame, of, span, has_stamps))
        return found.those(outcomes.is_script()) if own else found
    frame, value = _in_engine(frame, of, span)
    if span is None or not has_stamps:
        return rows(frame, needs, by, value=value)
    found = rows(frame, (*needs, *_stamps(span)), by, _tells_more(span), value=value)
    found = found.having(begun=_begun(span, there))
    return found.those(outcomes.is_script()) if span.scripts_only else found


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


def _tells_more(span: Span) -> tuple[str, ...]:
    """Columns that show more of where a row ends, and that a frame need not have."""
    if span.unless_blocked:
        return outcomes.BLOCKED
    return ("state",) if span.end == "runnable_at" else ()


def _in_pandas(frame: pd.DataFrame, of: RowMetric | str, span: Span | None, has_stamps: bool) -> dict[str, Any]:
    """What `_in_engine` and `_begun` say, from the stamps at once, which takes half as long as metrics of rows do."""
    if span is None:
        return {"value": _seconds(frame, of)}
    blocked = is_blocked(frame).to_numpy() if span.unless_blocked else np.zeros(len(frame), np.bool_)
    stored = np.where(blocked, np.nan, _seconds(frame, of)) if isinstance(of, str) else None
    if not has_stamps:
        return {"value": stored}
    start, end = (moments(frame, name).to_numpy("datetime64[us]") for name in (span.start, span.end))
    begun, ended = ~np.isnat(start), ~np.isnat(end) & ~blocked
    if span.scripts_only:
        begun &= is_script(frame).to_numpy()
    both = begun & ended
    cut_off = begun & ~ended
    if span.end == "runnable_at" and "state" in frame:
        cut_off &= ~column(frame, "state").isin(NEVER_RUNNABLE).to_numpy(bool)
    if stored is not None:
        return {"value": stored, "begun": cut_off}
    return {"value": np.where(both, (end.view("int64") - start.view("int64")) / 1e6, np.nan), "begun": cut_off}


def _seconds(frame: pd.DataFrame, of: RowMetric | str) -> Any:
    if isinstance(of, str):
        return seconds(column(frame, of), f"The column {of!r}").to_numpy(np.float64, na_value=np.nan)
    name = f"The result of {getattr(of, '__name__', of)}"
    return seconds(aligned(of(frame), frame, f"of={getattr(of, '__name__', of)}"), name).to_numpy(
        np.float64, na_value=np.nan
    )


def _in_engine(frame: Frame, of: RowMetric | str, span: Span | None) -> tuple[Frame, nw.Expr]:
    """The frame, and its column of these seconds; without one the stamps do, which the frame then has as numbers."""
    found = lazy(frame)
    schema = found.collect_schema()
    name = of if isinstance(of, str) else f"{getattr(of, '__name__', 'of')}_s"
    if name in schema or span is None or isinstance(of, str):
        require(schema.names(), [name])
        if spark.is_spark(found):
            spark.check_names([name])
        stored = _of_column(name, schema[name])
        return frame, stored if span is None else outcomes.unless_blocked(stored, span, schema)
    require(schema.names(), _stamps(span))
    return ticking(found, (span.start, span.end)).to_native(), outcomes.seconds_of(span, schema)


def _of_column(name: str, dtype: Any) -> nw.Expr:
    if dtype == nw.Unknown:  # nulls alone
        return nw.col(name).cast(nw.Float64)
    if dtype == nw.Duration:
        return nw.col(name).dt.total_microseconds() / 1e6
    if name.endswith("_s") and dtype.is_numeric():
        return nw.when(~nw.col(name).is_nan()).then(nw.col(name)) if dtype.is_float() else nw.col(name).cast(nw.Float64)
    raise BadInput(f"The column {name!r} is {dtype}, no duration; pass a metric such as metrics.run_time, or seconds.")


def _begun(span: Span, there: Collection[str]) -> nw.Expr:
    """Whether it began and was not seen to end: still at it when fetched, or canceled before the end came.

    A blocked build is among them, whatever end it has had. Of `dependency_wait`, rows that were never to become
    runnable (broken, skipped) are not.
    """
    has_no_end = nw.col(span.end).is_null()
    if span.unless_blocked:
        has_no_end |= outcomes.is_blocked(there)
    open_ended = ~nw.col(span.start).is_null() & has_no_end
    if span.end == "runnable_at" and "state" in there:
        open_ended &= ~nw.col("state").is_in(NEVER_RUNNABLE).fill_null(False)
    return open_ended & outcomes.is_script() if span.scripts_only else open_ended
