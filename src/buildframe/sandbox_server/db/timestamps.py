"""Format timestamps as the service does."""

from __future__ import annotations

import datetime as dt
import functools


@functools.lru_cache(10_000)  # an object is serialized again at each change
def format_time(timestamp: int | None, legacy: bool = False) -> str | None:
    """Format a timestamp such as `2026-10-01T09:30:00.123Z`, or `2013-09-03 13:24:38 UTC` of a legacy record."""
    if timestamp is None:
        return None
    seconds = dt.datetime.fromtimestamp(timestamp // 1_000_000, dt.UTC).isoformat()[:19]
    return f"{seconds.replace('T', ' ')} UTC" if legacy else f"{seconds}.{timestamp // 1000 % 1000:03}Z"
