"""How the service writes moments: with milliseconds, and in old records cut to seconds."""

from __future__ import annotations

import datetime as dt
from typing import overload


@overload
def modern(moment: int) -> str: ...
@overload
def modern(moment: None) -> None: ...
@overload
def modern(moment: int | None) -> str | None: ...
def modern(moment: int | None) -> str | None:
    """Such as `2026-10-01T09:30:00.123Z`."""
    if moment is None:
        return None
    return f"{_seconds(moment)}.{moment // 1000 % 1000:03}Z"


def old(moment: int | None) -> str | None:
    """Such as `2013-09-03 13:24:38 UTC`."""
    return None if moment is None else _seconds(moment).replace("T", " ") + " UTC"


def _seconds(moment: int) -> str:
    return dt.datetime.fromtimestamp(moment // 1_000_000, dt.UTC).isoformat()[:19]
