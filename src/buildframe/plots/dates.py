"""Axes of times: ticks at round times, as many as there is room for, and at least two. Knows no builds or jobs."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.dates import ConciseDateFormatter, DateLocator, num2date

from buildframe.metrics.columns import Floats
from buildframe.plots.layout import font_points, plot_area

_SECOND, _HOUR = 1 / 86400, 1 / 24
_OF_DAY = (*(k * _SECOND for k in (1, 5, 15, 30, 60, 300, 900, 1800)), *(k * _HOUR for k in (1, 3, 6, 12)))
_DAYS, _MONTHS, _YEARS = (1, 2, 4, 7, 14), (1, 2, 3, 6), (1, 2, 5, 10, 20, 50, 100)
"""Distances between ticks: parts of a day; days, counted from the first of a month; months of a year; and years."""

_EACH = 34.0
"""Points that a tick needs."""


def format_dates(ax: Axes) -> None:
    """Format naive times along the x axis as they are, whatever time zone Matplotlib is set to."""
    locator = RoundTimeLocator(int(np.clip(plot_area(ax)[0] / font_points(_EACH), 2, 9)))
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(_SharedDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


class _SharedDateFormatter(ConciseDateFormatter):
    """Label ticks concisely, with what all of them share at the end of the axis, not what only the last one has."""

    _shared: str | None = None

    def format_ticks(self, values: Any) -> list[str]:
        """Return the labels of all ticks."""
        labels: list[str] = super().format_ticks(values)  # type: ignore[no-untyped-call]
        times = num2date(values)  # type: ignore[no-untyped-call]
        ends = [f"{time:%Y-%b-%d}".split("-") for time in times[:: max(len(times) - 1, 1)]]
        pairs = list(zip(*ends, strict=True))
        n_shared = next((k for k, pair in enumerate(pairs) if len({*pair}) > 1), None)
        self._shared = None if n_shared is None else "-".join(ends[0][:n_shared])
        if n_shared == 0 and not any(year in label for year in pairs[0] for label in labels):
            self._shared = " to ".join(pairs[0])
        return labels

    def get_offset(self) -> str:
        """Return what all ticks share, or both years if no label has one."""
        offset: str = super().get_offset()  # type: ignore[no-untyped-call]
        return offset if self._shared is None or not offset else self._shared


class RoundTimeLocator(DateLocator):
    """Place at most so many ticks at round times, but two if there are two round times in sight."""

    def __init__(self, most: int) -> None:
        super().__init__(tz=UTC)  # type: ignore[no-untyped-call]
        self._most = most

    def __call__(self) -> Any:
        """Return the ticks in sight, in days since 1970."""
        return self.tick_values(*self.axis.get_view_interval())  # type: ignore[union-attr]

    def tick_values(self, vmin: Any, vmax: Any) -> Any:
        """Return the ticks between two times in days since 1970."""
        low, high = sorted((float(vmin), float(vmax)))
        finer: Floats = np.array([low])
        for kind, steps, length in (("", _OF_DAY, 1.0), ("D", _DAYS, 1.0), ("M", _MONTHS, 30.5), ("Y", _YEARS, 366.0)):
            for step in steps:
                if (high - low) / (step * length) > 2 * self._most + 2:
                    continue
                ticks = _multiples(low, high, kind, step)
                if len(ticks) <= self._most:
                    return ticks if len(ticks) > 1 or len(finer) < 2 else finer[:: -(-len(finer) // self._most)]
                finer = ticks
        return finer[:: -(-len(finer) // self._most)]


def _multiples(low: float, high: float, kind: str, step: float) -> Floats:
    """Return the multiples of a step in a range: of parts of a day, or of days, months or years of the calendar."""
    if not kind:
        slack = 1e-7 * (high - low) / step
        return step * np.arange(np.ceil(low / step - slack), np.floor(high / step + slack) + 1)
    first, last = (np.datetime64(int(end), "D").astype(f"datetime64[{kind}]") for end in (np.floor(low), np.ceil(high)))
    every = np.arange(first, last + 1)
    if kind == "D":
        day = (every - every.astype("datetime64[M]")).astype(int)
        chosen = every[(day % int(step) == 0) & (day + step <= 31)]  # the last is not beside the first of a month
    else:
        chosen = every[(every.astype(int) + (1970 if kind == "Y" else 0)) % int(step) == 0]
    days: Floats = chosen.astype("datetime64[D]").astype(np.float64)
    return days[(days >= low) & (days <= high)]
