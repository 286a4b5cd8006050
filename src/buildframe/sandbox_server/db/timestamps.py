"""Format timestamps as the service does: with milliseconds, or to the second in legacy records."""

from __future__ import annotations

import datetime as dt
from typing import overload


@overload
def format_time(timestamp: int) -> str: ...
@overload
def format_time(timestamp: None) -> None: ...
@overload
def format_time(timestamp: int | None) -> str | None: ...
def format_time(timestamp: int | None) -> str | None:
    """Format a timestamp such as `2026-10-01T09:30:00.123Z`."""
    if timestamp is None:
        return None
    return f"{_seconds(timestamp)}.{timestamp // 1000 % 1000:03}Z"


def format_legacy_time(timestamp: int | None) -> str | None:
    """Format a timestamp of a legacy record, such as `2013-09-03 13:24:38 UTC`."""
    return None if timestamp is None else _seconds(timestamp).replace("T", " ") + " UTC"


def _seconds(timestamp: int) -> str:
    return dt.datetime.fromtimestamp(timestamp // 1_000_000, dt.UTC).isoformat()[:19]
