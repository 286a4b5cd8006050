"""Represent and merge the time ranges in which builds were created. Does not know lists or pages."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from buildframe.spec import Moment

TRUNCATION = dt.timedelta(seconds=1)
"""How much earlier than the creation of a build its timestamp may be: a service may truncate it to seconds."""


@dataclass(frozen=True)
class TimeRange:
    """Builds created from `start` (inclusive) to `end` (exclusive); None leaves that end open."""

    start: Moment | None = None
    end: Moment | None = None

    def __str__(self) -> str:
        ends = (end.text() if end else "any time" for end in (self.start, self.end))
        return "builds created from {} to {}".format(*ends)

    @property
    def is_empty(self) -> bool:
        """Whether no time lies in the range."""
        return self.start is not None and self.end is not None and self.start >= self.end

    def may_contain(self, created: Moment) -> bool:
        """Whether a build with this timestamp, which may be truncated to seconds, can lie in the range."""
        after = self.start is None or self.start - created < TRUNCATION
        return after and (self.end is None or created <= self.end)  # rounding makes no timestamp later than this

    def nearest(self, time: Moment) -> Moment:
        """Return the time in the range that is nearest to this one."""
        latest = time if self.end is None else min(time, self.end)
        return latest if self.start is None else max(latest, self.start)

    def filters(self) -> dict[str, Moment]:
        """Return the range as filters of a list of builds."""
        ends = {"created_from": self.start, "created_to": self.end}
        return {name: end for name, end in ends.items() if end is not None}


def merge_ranges(ranges: Iterable[TimeRange]) -> list[TimeRange]:
    """Return the fewest ranges that cover the same times, newest first; empty ranges disappear."""
    merged: list[TimeRange] = []
    for each in sorted((each for each in ranges if not each.is_empty), key=_by_start):
        if merged and (merged[-1].end is None or each.start is None or each.start <= merged[-1].end):
            ends = (merged[-1].end, each.end)
            merged[-1] = replace(merged[-1], end=None if None in ends else max(filter(None, ends)))
        else:
            merged.append(each)
    return merged[::-1]


def _by_start(each: TimeRange) -> tuple[bool, Any]:
    return each.start is not None, each.start
