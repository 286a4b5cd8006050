"""Plot a percentile of queue time by weekday and hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import timestamps
from buildframe.metrics.durations import is_script
from buildframe.metrics.grouping import Key
from buildframe.metrics.time_buckets import to_zone
from buildframe.plots import theme
from buildframe.plots.layout import font_points, label_height, plot_area
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.trend import percentile_name
from buildframe.plots.units import HOUR, MINUTE

_UNITS = (("seconds", 1.0, 2 * MINUTE), ("minutes", MINUTE, 12 * HOUR), ("hours", HOUR, np.inf))
"""Name and seconds of each unit, and up to which duration it is used."""

_LEFT = 70  # points for the weekday labels
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@checked_frames
def queue_times_by_hour(
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    tz: str = "UTC",
    q: float = 0.95,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
) -> Any:
    """
    Plot a percentile of queue time by weekday and hour as a heat map.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with `type`, `runnable_at` and `started_at`. Only script jobs count.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    tz : str, default "UTC"
        Time zone of weekdays and hours. A job belongs to the hour in which it became runnable.
    q : float, default 0.95
        Percentile as a fraction in (0, 1), over all jobs of a cell, whatever the week.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`). They have
        one scale of colors.
    title : str, optional
        Title. By default it says what is shown.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `tz` is unknown, `q` lies outside (0, 1), or `ax` is used with `col`
        or `row`.

    See Also
    --------
    queue_depth : How many jobs wait, over time.
    buildframe.metrics.percentiles : The numbers of this plot.

    Notes
    -----
    A cell needs 1 / (1 - q) jobs, 20 for the 95th percentile. A cell with fewer has a dot, and so has one in which too
    many jobs never started. A cell without jobs is empty. Jobs that never started count for as long as they were seen
    to wait; the note counts them. The note has the unit of the numbers: seconds, minutes or hours.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> ax = plots.queue_times_by_hour(jobs, tz="Europe/Berlin", q=0.5)
    >>> ax.get_xlabel()
    'hour in which the job became runnable (Europe/Berlin)'
    """
    name = percentile_name(q)

    def summarize(rows: pd.DataFrame) -> pd.DataFrame:
        return _compute_cells(rows, tz, q)

    def paint(cells: pd.DataFrame, panel: Panel[pd.DataFrame]) -> None:
        ax = panel.ax
        if cells["seconds"].isna().all():
            few = f"No hour of the week has enough jobs for a percentile of {q:.4g}."
            panel.show_message(few if len(cells) else "No job was runnable.")
            return
        everywhere = pd.concat([one["seconds"] for one in panel.summaries])
        low, high = min(0.0, float(everywhere.min())), max(float(everywhere.max()), 1e-9)
        unit, size = _choose_unit(high)
        _draw_cells(ax, cells.assign(value=cells["seconds"] / size), low / size, high / size)
        ax.set_xlabel(f"hour in which the job became runnable ({tz})")
        n = format_count(theme.column_total(cells, "n"), "job")
        excluded = theme.list_counts(never_started=cells["n_censored"], negative=cells["n_negative"])
        key = f"cell: {name} in {unit}, · = unknown"
        key += "" if ax.texts else f"; {_format_range(everywhere / size)}"
        panel.decorate(f"Queue time of {n} by hour and weekday", excluded, short=n, key=key)
        ax.spines[:].set_visible(False)

    place = Placement(ax, col, row, title, tz)
    return draw(summarize, paint, jobs[is_script(jobs)], place, "Queue time by hour and weekday,", (10, 3.6))


def _choose_unit(most: float) -> tuple[str, float]:
    """Return the unit of the cells, in which the longest has at most three digits."""
    return next((name, size) for name, size, limit in _UNITS if most < limit)


def _format_range(values: pd.Series[float]) -> str:
    """Return the range of the values, for cells that are too small for numbers."""
    shade = "darker" if theme.is_light() else "brighter"
    return f"from {values.min():,.2g} to {values.max():,.4g}, {shade} is longer"


def _compute_cells(jobs: pd.DataFrame, tz: str, q: float) -> pd.DataFrame:
    """Return one row per weekday and hour with jobs: `day`, `hour`, counts, and `seconds`."""
    runnable = jobs[is_script(jobs) & timestamps(jobs, "runnable_at").notna()]

    def local(part: Callable[[Any], Any], name: str) -> Callable[[pd.DataFrame], pd.Series[Any]]:
        return lambda frame: part(to_zone(timestamps(frame, "runnable_at"), tz).dt).rename(name)

    by = [local(lambda times: times.day_of_week, "day"), local(lambda times: times.hour, "hour")]
    cells = metrics.percentiles(runnable, of=metrics.queue_time, by=by, q=[q])
    return cells.assign(seconds=cells[f"p{100 * q:.10g}_s"])


def _draw_cells(ax: Axes, cells: pd.DataFrame, low: float, high: float) -> None:
    table = np.full((7, 24), np.nan)
    table[cells["day"], cells["hour"]] = cells["value"]
    few = cells[cells["value"].isna()]
    ax.plot(few["hour"] + 0.5, few["day"] + 0.5, ".", color=theme.GRAY, markersize=4)
    width, height = plot_area(ax, font_points(_LEFT))
    size = min(font_points(8), width / 24 / 2.6, height / 7 * 0.6)
    theme.draw_cells(ax, table, (low, high), size, _format)
    every = next(every for every in (1, 2, 3, 6, 12) if width / 24 * every > font_points(15) or every == 12)
    ax.set_xticks(np.arange(0, 24, every) + 0.5, [f"{hour}" for hour in range(0, 24, every)])
    days = _DAYS if width > font_points(200) else [day[:3] for day in _DAYS]
    apart = 1 if height > 7 * label_height() else 2
    ax.set_yticks(np.arange(0, 7, apart) + 0.5, days[::apart])


def _format(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:,.0f}"
