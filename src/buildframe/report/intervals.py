"""Lay out changes and their intervals on a common scale, for the small plots in tables. Knows numbers, not markup."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

Format = Callable[[float], str]

_NONZERO = re.compile(r"[1-9]")
_SHARES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0)
_DURATIONS_S = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 28_800, 86_400)
_MOST_CUT = 0.9
"""Place of a value beyond the end of a plot, so that its point does not hide the arrow."""


@dataclass(frozen=True)
class IntervalMark:
    """
    Hold one small plot: a change with its interval, beside its text.

    Parameters
    ----------
    value : str
        Change with its sign; empty if it is unknown.
    text : str
        Text alternative: the change, its unit and its interval.
    x, low, high : float, optional
        Places of the change and of the ends of its interval, from -1 to 1. None if unknown.
    is_cut_low, is_cut_high : bool
        Whether the interval goes on beyond the plot: its end is unknown or too far away.
    mood : {"bad", "good", ""}
        Whether the change is reported, as a deterioration or an improvement.
    """

    value: str
    text: str
    x: float | None
    low: float | None
    high: float | None
    is_cut_low: bool
    is_cut_high: bool
    mood: str

    def as_text(self) -> IntervalMark:
        """Return the text of the change alone, for sums, which have no interval."""
        return IntervalMark(self.value, self.value, None, None, None, False, False, self.mood)


@dataclass(frozen=True)
class Scale:
    """Hold the change at the right end of the plots of a table, which is as far from zero as the one at the left."""

    limit: float

    @classmethod
    def of(cls, intervals: Iterable[tuple[float, float, bool]], *, is_share: bool = True) -> Scale:
        """
        Return the scale of a table: for the intervals of reported changes, and for three of four others.

        Parameters
        ----------
        intervals : iterable of tuple
            Ends of the intervals, and whether their changes are reported.
        is_share : bool, default True
            Whether the changes are shares, which a plot shows up to 2; otherwise seconds.
        """
        ends = [(np.nanmax(np.abs([low, high, 0.0])), is_reported) for low, high, is_reported in intervals]
        size = max(
            max((end for end, is_reported in ends if is_reported), default=0.0),
            float(np.quantile([end for end, _ in ends if end] or [0.0], 0.75)),
        )
        steps = _SHARES if is_share else _DURATIONS_S
        return cls(next((step for step in steps if step >= size), steps[-1]))

    def mark(
        self,
        change: float,
        low: float,
        high: float,
        mood: str,
        format: Format,
        describe: Format | None = None,
        unit: float = 1.0,
    ) -> IntervalMark:
        """
        Return the plot of a change.

        `format` returns the text of a number with its sign, `describe` the same with a unit. Numbers are divided by
        `unit` for the plot, which is that of their text alone if `unit` is not positive.
        """
        describe = describe or format
        if math.isnan(change):
            return IntervalMark("", "unknown: too little data", None, None, None, False, False, "")
        text = f"{describe(change)}, {describe_interval(low, high, describe, 'no interval: too little data')}"
        if not unit > 0:
            return IntervalMark(format(change), text, None, None, None, False, False, mood)
        x = float(np.clip(change / unit / self.limit, -_MOST_CUT, _MOST_CUT))
        if math.isnan(low) and math.isnan(high):
            return IntervalMark(format(change), text, x, None, None, False, False, mood)
        left, right = (self._end(end / unit, side) for end, side in ((low, -1.0), (high, 1.0)))
        return IntervalMark(format(change), text, x, left[0], right[0], left[1], right[1], mood)

    def _end(self, value: float, unknown: float) -> tuple[float, bool]:
        """Return the place of an end of an interval, and whether the interval goes on beyond it."""
        place = unknown if math.isnan(value) else float(np.clip(value / self.limit, -1, 1))
        return place, bool(math.isnan(value) or abs(value) > self.limit)


def signed(format: Format) -> Format:
    """Return a function that formats a number with its sign: "+3.9", "−2.1", "0.0"."""

    def with_sign(value: float) -> str:
        text = format(value)
        return f"+{text}" if value > 0 and _NONZERO.search(text) else text

    return with_sign


def describe_interval(low: float, high: float, format: Format, unknown: str) -> str:
    """Describe the known ends of an interval; `unknown` if there is none."""
    if math.isnan(low) and math.isnan(high):
        return unknown
    if math.isnan(high):
        return f"interval from {format(low)}"
    return f"interval up to {format(high)}" if math.isnan(low) else f"interval {format(low)} to {format(high)}"
