"""When jobs wait: by hour and weekday."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize

from buildframe import metrics
from buildframe.arguments import checked_call
from buildframe.metrics.buckets import zoned
from buildframe.metrics.columns import moments
from buildframe.metrics.durations import is_script
from buildframe.plots.look import (
    GREY,
    canvas,
    counted,
    dress,
    ground,
    is_day,
    joined,
    listed,
    luminance,
    say,
    shades,
    sum_of,
)  # fmt: skip
from buildframe.plots.room import POINTS_A_LABEL, room

_BRIGHT = 0.179  # brighter grounds have more contrast with black than with white, always 4.5 : 1 or more (WCAG 2.1)
_LEFT = 70  # points that the weekdays take
_LEAST = 5.0  # points that can be read
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@checked_call
def queue_times_by_hour(jobs: pd.DataFrame, ax: Axes | None = None, tz: str = "UTC", q: float = 0.95) -> Axes:
    """Queue time of script jobs by the hour and weekday, in the zone `tz`, at which they became runnable.

    `q` is the percentile that a cell shows, in minutes, over all its jobs at once, whatever the week.
    A cell with fewer than 1 / (1 - q) jobs (20 for .95) has none and is a dot; one without jobs is
    empty. Jobs that never started are left out and counted. Needs `type`, `runnable_at`, `started_at`.
    """
    cells = _cells(jobs, tz, q)
    with canvas(ax, 10, 3.6) as ax:
        if cells["minutes"].isna().all():
            few = f"A percentile of {q:.4g} needs more jobs in an hour than any here has."
            return say(ax, few if len(cells) else "No job here has become runnable.")
        _draw(ax, cells)
        ax.set_xlabel(f"hour in which the job became runnable ({tz})")
        n = sum_of(cells, "n")
        left_out = listed(never_started=sum_of(cells, "n_censored"), negative=sum_of(cells, "n_negative"))
        note = f"a cell is the p{100 * q:.4g} in minutes, a dot one of too few jobs"
        title = f"Queue time of {counted(n, 'job')} by hour and weekday"
        dress(ax, title, joined(note, "" if ax.texts else _range(cells["minutes"]), left_out))
        ax.spines[:].set_visible(False)
    return ax


def _range(minutes: pd.Series[float]) -> str:
    """For cells that have no room for their numbers."""
    return f"from {minutes.min():,.2g} to {minutes.max():,.4g}, the {'darker' if is_day() else 'brighter'} the more"


def _cells(jobs: pd.DataFrame, tz: str, q: float) -> pd.DataFrame:
    """One row an hour of a weekday in which a job became runnable: `day`, `hour`, counts, `minutes`."""
    came_up = jobs[is_script(jobs) & moments(jobs, "runnable_at").notna()]

    def local(part: Callable[[Any], Any], name: str) -> Callable[[pd.DataFrame], pd.Series[Any]]:
        return lambda frame: part(zoned(moments(frame, "runnable_at"), tz).dt).rename(name)

    by = [local(lambda times: times.day_of_week, "day"), local(lambda times: times.hour, "hour")]
    cells = metrics.percentiles(came_up, of=metrics.queue_time, by=by, q=[q])
    return cells.assign(minutes=cells[f"p{100 * q:.10g}_s"] / 60)


def _draw(ax: Axes, cells: pd.DataFrame) -> None:
    table = np.full((7, 24), np.nan)
    table[cells["day"], cells["hour"]] = cells["minutes"]
    most = max(float(np.nanmax(table)), 1e-9)
    norm, cmap = Normalize(min(0.0, float(np.nanmin(table))), most), shades()
    ax.pcolormesh(np.ma.masked_invalid(table), cmap=cmap, norm=norm, edgecolors=[ground(ax)], linewidth=1.2)
    few = cells[cells["minutes"].isna()]
    ax.plot(few["hour"] + 0.5, few["day"] + 0.5, ".", color=GREY, markersize=4)
    _write(ax, table, ScalarMappable(norm, cmap))
    width, height = room(ax, _LEFT)
    every = next(every for every in (1, 2, 3, 6, 12) if width / 24 * every > 15 or every == 12)
    ax.set_xticks(np.arange(0, 24, every) + 0.5, [f"{hour}" for hour in range(0, 24, every)])
    days = _DAYS if width > 200 else [day[:3] for day in _DAYS]
    apart = 1 if height > 7 * POINTS_A_LABEL else 2
    ax.set_yticks(np.arange(0, 7, apart) + 0.5, days[::apart])
    ax.set_xlim(0, 24)
    ax.set_ylim(7, 0)


def _write(ax: Axes, table: npt.NDArray[np.float64], scale: ScalarMappable) -> None:
    """The number in each cell, as large as it has room, in the ink that stands out more from it."""
    width, height = room(ax, _LEFT)
    size = min(8.0, width / 24 / 2.6, height / 7 * 0.6)
    bright = [luminance(colour) > _BRIGHT for colour in scale.to_rgba(table[~np.isnan(table)])]
    for day, hour, is_bright in zip(*np.nonzero(~np.isnan(table)), bright, strict=True) if size >= _LEAST else ():
        minutes = float(table[day, hour])
        text = f"{minutes:.1f}" if abs(minutes) < 9.95 else f"{minutes:,.0f}"
        colour = "black" if is_bright else "white"
        ax.text(hour + 0.5, day + 0.5, text, ha="center", va="center", fontsize=size, color=colour)
