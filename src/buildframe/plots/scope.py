"""Describe what a frame contains, for titles: its pipeline, branch and period. Knows no Axes."""

from __future__ import annotations

from typing import Any

import pandas as pd

from buildframe.formatting import format_count
from buildframe.metrics.columns import timestamps
from buildframe.metrics.time_buckets import to_zone
from buildframe.plots.names import SEPARATOR, drawable

_CREATED = ("build_created_at", "created_at")
_WIDTH = 28
_NO_BREAK = "\N{NO-BREAK SPACE}"


def describe_scope(frame: pd.DataFrame, tz: str = "UTC") -> str:
    """Return "web · main · 1 to 28 Oct 2026", or "3 pipelines · …" of several; parts that are unknown are left out."""
    parts = [_describe_values(frame, "pipeline", "pipelines"), _describe_values(frame, "branch", "branches")]
    return SEPARATOR.join(part.replace(" ", _NO_BREAK) for part in [*parts, _describe_period(frame, tz)] if part)


def _describe_values(frame: pd.DataFrame, name: str, many: str) -> str:
    if name not in frame or not isinstance(frame[name], pd.Series):
        return ""
    values = frame[name].dropna().unique()
    if len(values) == 1:
        return drawable(str(values[0]), _WIDTH)
    return format_count(len(values), name, many) if len(values) else ""


def _describe_period(frame: pd.DataFrame, tz: str) -> str:
    """Return the days on which builds were created: "3 Oct 2026", "1 to 28 Oct 2026"."""
    name = next((name for name in _CREATED if name in frame), None)
    times: Any = timestamps(frame, name).dropna() if name else None
    if times is None or times.empty:
        return ""
    first, last = (to_zone(pd.Series([end]), tz).iloc[0] for end in (times.min(), times.max()))
    return format_days(first, last)


def format_days(first: pd.Timestamp, last: pd.Timestamp) -> str:
    """Return a range of days without what both ends share: "28 Sep to 3 Oct 2026"."""
    end = f"{last.day} {last:%b %Y}"
    if first.date() == last.date():
        return end
    begin = f"{first.day}" + (f" {first:%b}" if (first.year, first.month) != (last.year, last.month) else "")
    return f"{begin}{f' {first.year}' if first.year != last.year else ''} to {end}"
