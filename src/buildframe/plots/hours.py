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
from buildframe.metrics.buckets import zoned
from buildframe.metrics.columns import moments
from buildframe.metrics.durations import is_script
from buildframe.plots.look import (
    GREY,
    canvas,
    dress,
    ground,
    listed,
    luminance,
    points_per_pixel,
    say,
    shades,
    sum_of,
)  # fmt: skip

_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


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
        dress(ax, f"Queue time of {n:,} jobs by hour and weekday", f"{note}; {left_out}" if left_out else note)
        ax.spines[:].set_visible(False)
    return ax


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
    ax.set_xticks(np.arange(24) + 0.5, [f"{hour}" for hour in range(24)])
    ax.set_yticks(np.arange(7) + 0.5, _DAYS)
    ax.set_xlim(0, 24)
    ax.set_ylim(7, 0)


def _write(ax: Axes, table: npt.NDArray[np.float64], scale: ScalarMappable) -> None:
    """The number in each cell, as large as it has room."""
    extent, points = ax.get_window_extent(), points_per_pixel(ax)
    size = min(8.0, extent.width / 24 * points / 2.9, extent.height / 7 * points * 0.6)
    bright = [luminance(colour) > 0.45 for colour in scale.to_rgba(table[~np.isnan(table)])]
    for day, hour, is_bright in zip(*np.nonzero(~np.isnan(table)), bright, strict=True):
        minutes = float(table[day, hour])
        text = f"{minutes:.1f}" if abs(minutes) < 9.95 else f"{minutes:,.0f}"
        colour = "#333333" if is_bright else "white"
        ax.text(hour + 0.5, day + 0.5, text, ha="center", va="center", fontsize=size, color=colour)
