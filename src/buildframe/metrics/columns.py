"""Read columns of a frame with the dtype that metrics need, and report missing ones with their source."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.guards.arrow_frames import plain_texts
from buildframe.spec import TABLES

TIMESTAMP = "datetime64[us, UTC]"

TEXT = pd.StringDtype(na_value=np.nan)
"""The dtype `str`, whatever the option `future.infer_string` makes of its name."""

NAT = np.iinfo(np.int64).min
"""NaT among whole microseconds; less than every timestamp."""

DAY_LENGTH = 86_400_000_000
"""Microseconds of a day."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_KINDS: dict[str, str] = {entry.name: entry.kind for table in TABLES.values() for entry in table}
_KINDS |= {"step": "text", "day": "date"}  # what `with_seconds` adds
_DTYPES: dict[str, Any] = {"text": TEXT, "json": TEXT, "integer": "Int64", "flag": "boolean"}

_SOURCES = {
    "builds": "ws.builds()",
    "jobs": "ws.jobs()",
    "pipelines": "ws.pipelines()",
    "flaky_tests": "ws.flaky_tests(suite=...)",
}


def check_is_pandas(frame: Any, hint: str) -> None:
    """Raise BadInput unless the frame is a pandas DataFrame; `hint` says what needs one, and what to do instead."""
    if not isinstance(frame, pd.DataFrame):
        raise BadInput(f"A {type(frame).__name__} is not a pandas DataFrame, which {hint}")


def check_are_builds(names: Collection[str], function: str) -> None:
    """Raise BadInput if the columns are those of jobs, which `function` would count as builds."""
    if "build_id" in names:
        raise BadInput(
            f"{function} needs builds, and this frame holds jobs: it has the column 'build_id'. Pass the builds, the "
            "first frame of ci.history(). For jobs use metrics.run_time, queue_time or turnaround."
        )


def has_column(frame: pd.DataFrame, name: str) -> bool:
    """Return whether the frame has a column; raise BadInput if it is not pandas."""
    check_is_pandas(
        frame,
        "row metrics need. Frames of a store have their results as columns, and metrics.with_seconds(frame) adds them "
        "in pandas and PySpark.",
    )
    return name in frame.columns


def column(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Return a column.

    Raise BadInput if it is missing or occurs twice, or the frame is not pandas.
    """
    if has_column(frame, name) and isinstance(values := frame[name], pd.Series):
        return values
    if (count := list(frame.columns).count(name)) > 1:
        raise BadInput(f"The frame has {count} columns named {name!r}. Keep one of them.")
    raise _missing_column(name)


def require_columns(there: Collection[str], needed: Iterable[str]) -> None:
    """Raise BadInput for the first required column that is missing."""
    for name in needed:
        if name not in there:
            raise _missing_column(name)


def kind_of(name: str) -> str | None:
    """Return what a fetched column of this name holds: text, json, integer, flag, timestamp or date."""
    return _KINDS.get(name)


def check_aligned(result: Any, frame: pd.DataFrame, what: str) -> pd.Series[Any]:
    """Return the result of a function of the frame; raise BadInput unless it is a Series with the frame's index."""
    if isinstance(result, pd.Series) and len(result) == len(frame) and result.index.equals(frame.index):
        return result
    raise BadInput(
        f"{what} must return a Series with one value per row of the frame, on the frame's index. "
        "Assign values per build to rows by frame['build_id'].map(...)."
    )


def check_unique_ids(frame: pd.DataFrame) -> None:
    """Raise BadInput if an id occurs in two rows; a frame without ids passes."""
    if "id" not in frame or (ids := column(frame, "id").dropna()).is_unique:
        return
    duplicate = ids[ids.duplicated()].iloc[0]
    raise BadInput(
        f"The id {duplicate!r} occurs in several rows. Use metrics.latest(frame) to keep the latest of each."
    )


def typed_column(frame: pd.DataFrame, name: str) -> pd.Series[Any]:
    """Return the column with the dtype it has when fetched, and any text as `str`."""
    kind = _KINDS.get(name)
    values = column(frame, name)
    if kind == "timestamp" or _is_of_times(values.dtype):
        return timestamps(frame, name)
    values = plain_texts(values)
    dtype = _DTYPES.get(kind or "")
    if dtype is None or values.dtype == dtype:
        return values
    try:
        return values.astype(dtype)
    except (TypeError, ValueError):
        raise BadInput(f"The column {name!r} holds {values.dtype}, not {dtype}. Convert it first.") from None


def _is_of_times(dtype: Any) -> bool:
    if isinstance(dtype, pd.ArrowDtype):  # whose dates are times for pandas, too
        return pa.types.is_timestamp(dtype.pyarrow_dtype)
    return pd.api.types.is_datetime64_any_dtype(dtype)


def timestamps(frame: pd.DataFrame, name: str) -> pd.Series[pd.Timestamp]:
    """Return the timestamps of a column in UTC to the microsecond; raise BadInput if they have no time zone."""
    values = column(frame, name)
    if isinstance(values.dtype, pd.DatetimeTZDtype):
        if values.dtype.unit == "us" and values.dtype.tz is dt.UTC:  # as in frames that are fetched
            return values
        converted: pd.Series[pd.Timestamp] = values.dt.tz_convert("UTC").astype(TIMESTAMP)
        return converted
    if isinstance(values.dtype, pd.ArrowDtype) and pa.types.is_timestamp(values.dtype.pyarrow_dtype):
        plain: Any = values.dtype.pyarrow_dtype.to_pandas_dtype()
        return timestamps(pd.DataFrame({name: values.astype(plain)}), name)
    if values.isna().all():  # a column of None that a user made has no dtype of times
        return pd.Series(pd.NaT, index=values.index, dtype=TIMESTAMP)
    if pd.api.types.is_datetime64_dtype(values.dtype):
        raise BadInput(f'The times in {name!r} have no time zone. Add it: frame[{name!r}].dt.tz_localize("UTC").')
    raise BadInput(
        f"The column {name!r} holds {values.dtype}, not timestamps. "
        f"Convert it: pd.to_datetime(frame[{name!r}], utc=True)."
    )


def microseconds(times: pd.Series[Any]) -> Integers:
    """Return timestamps as whole microseconds since 1970, `NAT` if missing."""
    return times.to_numpy("datetime64[us]").view(np.int64)


def timestamp_micros(table: pd.DataFrame, name: str) -> Integers:
    """Return the timestamps of a column as whole microseconds since 1970, `NAT` if missing."""
    return microseconds(timestamps(table, name))


def first_and_last(times: Integers) -> tuple[int, int]:
    """Return the first and the last of the known times, `NAT` if there is none."""
    first, last = (times.min(), times.max()) if len(times) else (NAT, NAT)
    if first == NAT != last:
        first = times[times != NAT].min()
    return int(first), int(last)


def seconds_between(begin: Integers, end: Integers) -> Floats:
    """Return the seconds from times to others, both in whole microseconds; NaN if one is missing."""
    seconds: Floats = (end - begin) / 1e6
    seconds[(begin == NAT) | (end == NAT)] = np.nan
    return seconds


def seconds(durations: pd.Series[Any], name: str) -> pd.Series[float]:
    """Return durations as float64 seconds, NaN if missing; raise BadInput, with `name`, for other values."""
    if isinstance(durations.dtype, pd.ArrowDtype) and pa.types.is_duration(durations.dtype.pyarrow_dtype):
        durations = durations.astype("timedelta64[us]")
    if pd.api.types.is_timedelta64_dtype(durations.dtype):  # ten times as fast as `total_seconds`
        exact = durations.to_numpy("timedelta64[us]")
        floats = np.where(np.isnat(exact), np.nan, exact.view("int64") / 1e6)
        return pd.Series(floats, durations.index, name=durations.name)
    if str(durations.name).endswith("_s") and pd.api.types.is_numeric_dtype(durations.dtype):
        return durations.astype("float64")
    raise BadInput(
        f"{name} is {durations.dtype}, not timedelta. "
        "Pass a metric such as metrics.run_time, or a column of seconds, whose name ends in _s."
    )


def _missing_column(name: str) -> BadInput:
    return BadInput(f"The frame has no column {name!r}{_describe_source(name)}.")


def _describe_source(name: str) -> str:
    sources = [source for table, source in _SOURCES.items() if any(entry.name == name for entry in TABLES[table])]
    if any(name == entry.name for table in ("builds", "jobs") for entry in TABLES[table]):
        sources.append("ws.history()")
    return f"; it comes with {' or '.join(filter(None, [', '.join(sources[:-1]), sources[-1]]))}" if sources else ""
