"""Axes of durations: values are in seconds, and ticks are at round numbers of the unit that suits what is in sight."""

from __future__ import annotations

from typing import Any, Literal
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import Formatter, Locator, NullLocator

from buildframe.metrics.columns import Floats
from buildframe.plots.layout import choose_apart, font_points, points_per_pixel, root_figure

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

_UNITS = (("d", DAY, 2 * DAY), ("h", HOUR, 2 * HOUR), ("min", MINUTE, 2 * MINUTE), ("s", 1.0, 0.0))
"""Name and size of each unit, and from which duration on it is used, in seconds."""

_PARTS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
_STEPS = {
    "s": (*_PARTS, 1, 2, 5, 10, 15, 20, 30, 60),
    "min": (*_PARTS, 1, 2, 5, 10, 15, 20, 30, 60),
    "h": (*_PARTS, 1, 2, 3, 4, 6, 12, 24),
    "d": (*_PARTS, 1, 2, 5, 7, 10, 14, 20, 50, *(k * 10.0**power for power in range(2, 9) for k in (1, 2, 5))),
}
"""Distances between ticks, in the unit of the axis."""

_ROUND = (
    (1.0, MINUTE, HOUR, DAY),
    (10.0, 10 * MINUTE, 6 * HOUR, 7 * DAY),
    (5 * MINUTE, 30.0, 30 * MINUTE, 2 * HOUR, 12 * HOUR, 2 * DAY, 30 * DAY, 365 * DAY),
    (2.0, 5.0, 20.0, 2 * MINUTE, 20 * MINUTE, 4 * HOUR, 100 * DAY, 3650 * DAY),
    (0.1, 0.5, 0.01),
)
"""Ticks of a logarithmic axis, in the order in which they are preferred."""

_WIDTH, _HEIGHT = 46.0, 26.0
"""Points that a tick needs along the x axis, and along the y axis."""

_LEAST_VIEW = 1e-6


def unit_of(most: float) -> tuple[str, float]:
    """Return name and seconds of the unit in which durations of up to `most` seconds are read best."""
    return next((name, size) for name, size, least in _UNITS if most >= least)


def format_in_unit(seconds: float, name: str, size: float) -> str:
    """Return a duration as a number of one unit: "5 min", "−2 h", "0"."""
    number = f"{seconds / size:,.6g}".replace("-", "\N{MINUS SIGN}")
    return "0" if number in ("0", "\N{MINUS SIGN}0") else f"{number} {name}"


def show_durations(ax: Axes, which: Literal["x", "y"]) -> None:
    """Give an axis of seconds ticks and labels of durations. Set its scale before."""
    axis: Axis = ax.xaxis if which == "x" else ax.yaxis
    is_linear = axis.get_scale() == "linear"
    axis.set_major_locator(DurationLocator() if is_linear else LogDurationLocator())
    axis.set_major_formatter(DurationFormatter(each=not is_linear))
    if not is_linear:
        axis.set_minor_locator(NullLocator())


def is_of_durations(axis: Axis) -> bool:
    """Return whether the axis has labels of durations."""
    return isinstance(axis.get_major_formatter(), DurationFormatter)


_shares: WeakKeyDictionary[Axis, float] = WeakKeyDictionary()
"""Lengths of axes, as shares of the width or height of their figure."""


def set_lengths(ax: Axes, width: float, height: float) -> None:
    """Choose ticks for Axes of so many points.

    Their size changes while a layout is computed, and if ticks followed it, both could alternate.
    """
    whole = root_figure(ax).get_size_inches() * 72
    _shares[ax.xaxis], _shares[ax.yaxis] = width / whole[0], height / whole[1]


class DurationLocator(Locator):
    """Place ticks at round durations, as many as there is room for."""

    def __call__(self) -> Any:
        """Return the ticks in sight."""
        return self.tick_values(*self.axis.get_view_interval())  # type: ignore[union-attr]

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return the ticks between two values."""
        low, high = sorted((float(vmin), float(vmax)))
        if not np.isfinite([low, high]).all() or high - low < _LEAST_VIEW:
            return np.array([low])
        name, size = unit_of(max(abs(low), abs(high)))
        steps = size * np.array(_STEPS[name])
        fitting = steps[(high - low) / steps <= _count_ticks(self.axis)]
        step = float(fitting[0] if len(fitting) else steps[-1])
        slack = 1e-9 * (high - low) / step
        return step * np.arange(np.ceil(low / step - slack), np.floor(high / step + slack) + 1) + 0.0  # not -0.0


class LogDurationLocator(DurationLocator):
    """Place ticks at round durations on an axis that is not linear."""

    def tick_values(self, vmin: float, vmax: float) -> Any:
        """Return the ticks between two values."""
        low, high = sorted((float(vmin), float(vmax)))
        places = [0.0, *(tick for group in _ROUND for tick in group)]
        ticks = np.array([tick for tick in [*places, *(-tick for tick in places[1:])] if low <= tick <= high])
        if len(ticks) == 0 or high - low < _LEAST_VIEW:
            return np.array([high])
        axis: Any = self.axis
        ends = np.append(ticks, [low, high])
        at: Floats = ends if axis is None else axis.get_transform().transform(ends)
        apart = abs(at[-1] - at[-2]) / _count_ticks(self.axis)
        return np.sort(ticks[choose_apart(at[:-2], 0.9 * apart)])


class DurationFormatter(Formatter):
    """Label ticks with durations in the unit of what is in sight, or `each` in its own."""

    def __init__(self, each: bool = False) -> None:
        self._each = each

    def __call__(self, x: float, pos: int | None = None) -> str:
        """Return the label of a tick."""
        if self._each or self.axis is None:
            name, size = next(((name, size) for name, size, _ in _UNITS if abs(x) >= 0.999 * size), ("s", 1.0))
            return format_in_unit(x, name, size)
        return format_in_unit(x, *unit_of(max(map(abs, self.axis.get_view_interval()))))


def _count_ticks(axis: Any) -> int:
    """Return how many ticks the axis has room for, from 1 to 8."""
    if axis is None:
        return 5
    side, each = (0, _WIDTH) if axis.axis_name == "x" else (1, _HEIGHT)
    if axis in _shares:
        length = _shares[axis] * float(root_figure(axis).get_size_inches()[side]) * 72
    else:
        length = float(axis.axes.get_window_extent().size[side]) * points_per_pixel(axis)
    return int(np.clip(length / font_points(each), 1, 8))
