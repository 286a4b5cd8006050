"""Compute the seconds of a row metric for rows of pandas, and which rows were not seen to end."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.metrics.columns import check_aligned, column, seconds, timestamps
from buildframe.metrics.durations import NEVER_RUNNABLE, RowMetric, is_blocked, is_script, span_of


class MeasuredRows(NamedTuple):
    """Seconds of each row (NaN if it has none), whether it is censored (None if unknown), and which rows count."""

    value: npt.NDArray[np.float64]
    censored: npt.NDArray[np.bool_] | None
    scripts_only: bool


def seconds_of(frame: pd.DataFrame, of: RowMetric | str) -> npt.NDArray[np.float64]:
    """Return the seconds of each row, NaN if a row has none."""
    return seconds_and_censoring(frame, of).value


def seconds_and_censoring(frame: pd.DataFrame, of: RowMetric | str) -> MeasuredRows:
    """Measure rows from timestamps, in half the time of queries, or from a stored column."""
    span = span_of(of)
    if span is None:
        return MeasuredRows(_seconds(frame, of), None, scripts_only=False)
    blocked = is_blocked(frame).to_numpy() if span.unless_blocked else np.zeros(len(frame), np.bool_)
    stored = np.where(blocked, np.nan, _seconds(frame, of)) if isinstance(of, str) else None
    if stored is not None and not set(span.needs) <= set(frame):
        return MeasuredRows(stored, None, scripts_only=False)
    start, end = (timestamps(frame, name).to_numpy("datetime64[us]") for name in (span.start, span.end))
    begun, ended = ~np.isnat(start), ~np.isnat(end) & ~blocked
    if span.scripts_only:
        begun &= is_script(frame).to_numpy()
    censored = begun & ~ended
    if span.end == "runnable_at" and "state" in frame:
        censored &= ~column(frame, "state").isin(NEVER_RUNNABLE).to_numpy(bool)
    if stored is None:
        stored = np.where(begun & ended, (end.view("int64") - start.view("int64")) / 1e6, np.nan)
    return MeasuredRows(stored, censored, span.scripts_only)


def _seconds(frame: pd.DataFrame, of: RowMetric | str) -> Any:
    if isinstance(of, str):
        return seconds(column(frame, of), f"The column {of!r}").to_numpy(np.float64, na_value=np.nan)
    name = getattr(of, "__name__", of)
    aligned = check_aligned(of(frame), frame, f"of={name}")
    return seconds(aligned, f"The result of {name}").to_numpy(np.float64, na_value=np.nan)
