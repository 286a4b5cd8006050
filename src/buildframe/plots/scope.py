"""Describe what a frame contains, for titles: its pipeline, branch and period. Knows no Axes."""

from __future__ import annotations

from collections.abc import Iterable
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
    return _join([*_describe_origin(frame), _describe_period(frame, tz)])


def describe_two_scopes(before: pd.DataFrame, after: pd.DataFrame, tz: str = "UTC") -> str:
    """Return "web · main · 15 to 28 Oct 2026 against 1 to 14 Oct 2026"; a period that both share is written once."""
    periods = [_describe_period(frame, tz) for frame in (after, before)]
    against = " against ".join(dict.fromkeys(filter(None, periods)))
    return _join([*_describe_origin(pd.concat([before, after])), against])


def _join(parts: Iterable[str]) -> str:
    return SEPARATOR.join(part for part in parts if part)


def _describe_origin(frame: pd.DataFrame) -> list[str]:
    """Return the pipeline and the branch, or how many there are."""
    return [_describe_values(frame, "pipeline", "pipelines"), _describe_values(frame, "branch", "branches")]


def rows_name(frame: pd.DataFrame) -> str:
    """Return what the rows of a frame are, if its columns say so: "builds", "jobs", or else "rows"."""
    if "type" in frame:
        return "jobs"
    return "builds" if "state" in frame else "rows"


def _describe_values(frame: pd.DataFrame, name: str, many: str) -> str:
    if name not in frame or not isinstance(frame[name], pd.Series):
        return ""
    values = frame[name].dropna().unique()
    if len(values) == 1:
        return drawable(str(values[0]), _WIDTH).replace(" ", _NO_BREAK)
    return format_count(len(values), name, many).replace(" ", _NO_BREAK) if len(values) else ""


def _describe_period(frame: pd.DataFrame, tz: str) -> str:
    """Return the days on which builds were created: "3 Oct 2026", "1 to 28 Oct 2026"."""
    name = next((name for name in _CREATED if name in frame), None)
    times: Any = timestamps(frame, name).dropna() if name else None
    if times is None or times.empty:
        return ""
    first, last = (to_zone(pd.Series([end]), tz).iloc[0] for end in (times.min(), times.max()))
    return format_days(first, last).replace(" ", _NO_BREAK)


def format_days(first: pd.Timestamp, last: pd.Timestamp) -> str:
    """Return a range of days without what both ends share: "28 Sep to 3 Oct 2026"."""
    end = f"{last.day} {last:%b %Y}"
    if first.date() == last.date():
        return end
    begin = f"{first.day}" + (f" {first:%b}" if (first.year, first.month) != (last.year, last.month) else "")
    return f"{begin}{f' {first.year}' if first.year != last.year else ''} to {end}"
