"""Measure the rows of a frame: their durations, and for how long those were seen that did not end.

Does not group or summarize.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import (
    NAT,
    Flags,
    Floats,
    check_aligned,
    check_are_builds,
    microseconds,
    seconds,
    seconds_between,
    timestamp_micros,
)
from buildframe.metrics.durations import (
    NEVER_RUNNABLE,
    RowMetric,
    Span,
    check_column_of,
    is_blocked,
    is_script,
    span_of,
)
from buildframe.metrics.grouping import By
from buildframe.metrics.input_frames import (
    Frame,
    RowGroups,
    column_names,
    for_functions,
    is_spark,
    read_rows,
    time_limits,
)
from buildframe.metrics.job_ends import COLUMNS as END_COLUMNS
from buildframe.metrics.job_ends import SEEN_UNTIL, with_ends
from buildframe.metrics.row_flags import is_any_of

INFINITE = "The durations hold infinite values. Leave out these rows, or use NaN for unknown durations."

_VALUE = "custom duration_s"


def measure_rows(frame: Frame, of: RowMetric | str, by: By = None, needs: Sequence[str] = ()) -> RowGroups:
    """Return the durations of rows in groups, and the columns `needs`.

    `value` has seconds (float64), NaN if there are none. If the frame shows which rows are censored,
    that is, began but were not seen to end, `censored` flags them, and `seen` has the seconds for
    which each was seen, NaN if unknown and for other rows. Timestamps in `needs` become whole
    microseconds. For a metric of script jobs only their rows remain.

    Raise BadInput if `of` is no duration, or holds infinite values.
    """
    available = column_names(frame)
    check_column_of(of, available)
    span = span_of(of)
    if span is not None and span.is_of_builds:
        check_are_builds(available, "wall_time")
    stored = of if isinstance(of, str) else None
    if span is None and callable(of):
        name = getattr(of, "__name__", "of")
        frame = for_functions(frame, [of])
        durations = check_aligned(of(frame), frame, f"of={name}")
        frame, stored = frame.assign(**{_VALUE: seconds(durations, f"The result of {name}")}), _VALUE
    has_times = span is not None and {*span.needs} <= {*available}
    stored_name = f"{getattr(of, '__name__', of)}_s"
    if span is not None and not has_times and stored is None and stored_name in available:
        stored = stored_name
    columns = [*needs] if stored is None else [*needs, stored]
    wanted: list[str] = []
    if span is not None and (has_times or stored is None):
        columns += span.needs
        wanted += [*span.wants, "fetched_at", *(() if span.is_of_builds else END_COLUMNS)]
    elif span is not None:
        wanted += span.wants
    of_rows = functools.partial(_measure, span, stored, tuple(needs), has_times or stored is None)
    rows = read_rows(frame, of_rows, columns, wanted, by)
    if np.isinf(rows.columns["value"]).any():
        raise BadInput(INFINITE)
    return rows


def limits_in_spark(frame: Frame, of: RowMetric | str, names: Sequence[str]) -> list[tuple[int, int]] | None:
    """Return the first and last times of the rows that `measure_rows` returns; None unless in PySpark.

    A worker sees only one group, and needs those of the whole frame.
    """
    if not is_spark(frame):
        return None
    span = span_of(of)
    if span is not None and span.scripts_only and {*span.needs} <= {*column_names(frame)}:
        frame = frame.filter("type = 'script'")
    return time_limits(frame, names)


def _measure(
    span: Span | None, stored: str | None, needs: Sequence[str], has_times: bool, rows: pd.DataFrame
) -> pd.DataFrame:
    measured: dict[str, Floats | Flags] = {}
    if span is not None and has_times:
        measured = _measure_span(rows, span)
    if stored is not None:
        name = f"The column {stored!r}"
        value = seconds(rows[stored], name).to_numpy(np.float64, na_value=np.nan)
        blocked = is_blocked(rows).to_numpy() if span is not None and span.unless_blocked else False
        measured["value"] = np.where(blocked, np.nan, value)
    if "seen" in measured and stored is not None:  # an ended row counts for its value
        measured["seen"] = np.where(np.isnan(measured["value"]), measured["seen"], np.nan)
    columns = pd.DataFrame({name: to_numbers(rows[name]) for name in needs} | measured, copy=False)
    return columns[is_script(rows).to_numpy()] if span is not None and span.scripts_only and has_times else columns


def _measure_span(rows: pd.DataFrame, span: Span) -> dict[str, Any]:
    """Return the seconds of a row metric, which rows are censored, and for how long these were seen."""
    if span.is_of_builds:
        start = timestamp_micros(rows, span.start)
        end = np.where(is_blocked(rows).to_numpy(), NAT, timestamp_micros(rows, span.end))
        seen_until = timestamp_micros(rows, "fetched_at") if "fetched_at" in rows else np.full(len(rows), NAT)
    else:
        rows = with_ends(rows)
        start, end = timestamp_micros(rows, span.start), timestamp_micros(rows, span.end)
        seen_until = timestamp_micros(rows, SEEN_UNTIL)
    censored = (start != NAT) & (end == NAT)
    if span.end == "runnable_at" and "state" in rows:
        censored = censored & ~is_any_of(rows, "state", *NEVER_RUNNABLE)
    seen = np.full(len(rows), np.nan)
    few = np.flatnonzero(censored)
    seen[few] = seconds_between(start[few], seen_until[few])
    return {"value": seconds_between(start, end), "censored": censored, "seen": seen}


def to_numbers(values: pd.Series[Any]) -> Any:
    """Return timestamps as whole microseconds, `NAT` if missing; other values as they are."""
    return microseconds(values) if isinstance(values.dtype, pd.DatetimeTZDtype) else values.array
