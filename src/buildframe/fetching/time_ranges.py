"""Ranges of time in which builds were created."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from buildframe.spec import Moment

CUT = dt.timedelta(seconds=1)
"""What a stamp may lack, as a service may cut stamps to seconds."""


@dataclass(frozen=True)
class Window:
    """Builds created from `start` (inclusive) to `end` (exclusive); None leaves that end open."""

    start: Moment | None = None
    end: Moment | None = None

    def __str__(self) -> str:
        ends = (end.text() if end else "any time" for end in (self.start, self.end))
        return "builds created from {} to {}".format(*ends)

    @property
    def is_empty(self) -> bool:
        """Whether nothing can lie in it."""
        return self.start is not None and self.end is not None and self.start >= self.end

    def holds(self, created: Moment) -> bool:
        """Whether a build of this stamp can lie in the window, given that stamps may be cut to seconds."""
        after = self.start is None or self.start - created < CUT
        return after and (self.end is None or created <= self.end)  # rounding makes no stamp later than this


def merged(windows: Iterable[Window]) -> list[Window]:
    """Windows as few as possible that hold the same, newest first; none where nothing can lie in them."""
    found: list[Window] = []
    for window in sorted((w for w in windows if not w.is_empty), key=_by_start):
        if found and (found[-1].end is None or window.start is None or window.start <= found[-1].end):
            ends = (found[-1].end, window.end)
            found[-1] = replace(found[-1], end=None if None in ends else max(filter(None, ends)))
        else:
            found.append(window)
    return found[::-1]


def _by_start(window: Window) -> tuple[bool, Any]:
    return window.start is not None, window.start
