"""Plot how durations are distributed: in one or two periods, and by weekday and hour."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.ticker import PercentFormatter

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_call
from buildframe.metrics.columns import Floats, timestamps
from buildframe.metrics.durations import RowMetric, is_script
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.protocol import GROUP
from buildframe.metrics.time_buckets import to_zone
from buildframe.plots import theme
from buildframe.plots.layout import POINTS_PER_LABEL, plot_area
from buildframe.spec.times import When, when

_MOST_POINTS = 2000  # more than a screen can show
_PERIOD = "period"
_SHORT = 0.1  # minutes; the logarithmic scale is linear below, so that it can show zeros
_BRIGHT = 0.179  # brighter backgrounds contrast more with black than with white, at least 4.5 : 1 (WCAG 2.1)
_LEFT = 70  # points for the weekday labels
_LEAST = 5.0  # smallest legible font size
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


@checked_call
def distribution(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    of: RowMetric | str = metrics.wall_time,
    split: When | None = None,
    at: str = "created_at",
) -> Axes:
    """
    Plot the cumulative distribution of a duration, optionally before and after a time.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds or jobs with the columns that `of` needs, and with `at` if `split` is given.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    of : row metric or str, default wall_time
        Duration to plot: a row metric such as `metrics.queue_time`, or the name of a timedelta column.
    split : datetime or str, optional
        Draw one curve for rows before this time and one for the other rows. A datetime or ISO text with a zone, or a
        date (midnight UTC). By default all rows form one curve.
    at : str, default "created_at"
        Column that is compared with `split`. For jobs, `build_created_at` keeps the jobs of a build together.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on. Durations are in minutes.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, or `split` is not a time.

    See Also
    --------
    duration_trend : Median and 95th percentile over time.
    buildframe.metrics.percentiles : Percentiles with confidence intervals.

    Notes
    -----
    A dot marks each median. The x axis is logarithmic if the longest duration exceeds 50 medians. Rows that started but
    were not seen to end count for as long as they were seen (`metrics.survival`), and the legend counts them. A curve
    with many of them ends below 100 %.

    Examples
    --------
    >>> builds = ci.builds(created_from="14d")
    >>> ax = plots.distribution(builds)
    >>> ax.get_ylabel()
    'Cumulative share'
    """
    rows = frame.assign(**{_PERIOD: _assign_periods(frame, split, at)})
    rows = rows[rows[_PERIOD].notna()]
    lasting = metrics.survival(rows, of=of, by=_PERIOD, points=_MOST_POINTS)
    counts = metrics.percentiles(rows, of=of, by=_PERIOD, q=[0.5])  # also validates the frame
    engine = engine_of(rows)
    durations, _ = engine.number_groups(engine.measure(rows, of, _PERIOD), "value")
    minutes = durations["value"].to_numpy(np.float64) / 60
    with theme.themed_axes(ax, 9, 4.4) as ax:
        if np.isnan(minutes).all():
            return theme.show_message(ax, "No row has finished, so there is no duration.")
        curves = zip(counts.iterrows(), (theme.BLUE, theme.ORANGE), ("-", "--"), strict=False)
        for i, ((_, period), color, line) in enumerate(curves):
            own = minutes[durations[GROUP].eq(i).to_numpy(bool)]
            _draw_curve(ax, own, lasting[lasting[_PERIOD] == period[_PERIOD]], period, color, line)
        _set_scales(ax, minutes[~np.isnan(minutes)])
        what = (of if isinstance(of, str) else getattr(of, "__name__", "duration")).replace("_", " ")
        scale = f", logarithmic above {_SHORT}" if ax.get_xscale() == "symlog" else ""
        ax.set(xlabel=f"{what} (minutes{scale})", ylabel="Cumulative share")
        theme.decorate(ax, f"Distribution of {what}", theme.list_counts(negative=int((minutes < 0).sum())))
        ax.grid(color=theme.grid_color(), linewidth=0.8)
    return ax


def _assign_periods(frame: pd.DataFrame, split: When | None, at: str) -> pd.Series[str]:
    if split is None:
        return pd.Series("all", index=frame.index, dtype="str")
    moment = pd.Timestamp(when(split, "split"))
    times = timestamps(frame, at)
    text = f"{moment:%Y-%m-%d}" if moment == moment.normalize() else f"{moment:%Y-%m-%d %H:%M} UTC"
    names = pd.Series(np.where(times < moment, f"before {text}", f"from {text}"), index=frame.index, dtype="str")
    return names.where(times.notna())


def _draw_curve(
    ax: Axes, minutes: Floats, lasting: pd.DataFrame, period: pd.Series[Any], color: str, line: str
) -> None:
    ordered = np.sort(minutes[~np.isnan(minutes)])
    if not len(ordered):
        return
    ranks = np.unique(np.linspace(1, len(ordered), min(len(ordered), _MOST_POINTS)).astype(int))
    x, y = ordered[ranks - 1], ranks / len(ordered)
    if lasting["n_censored"].sum():
        lasting = lasting[lasting["n_ended"] > 0]
        x, y = lasting["after_s"].to_numpy(np.float64) / 60, 1 - lasting["share"].to_numpy(np.float64)
    excluded = theme.list_counts(not_seen_to_end=0 if pd.isna(period["n_censored"]) else int(period["n_censored"]))
    name = "" if period[_PERIOD] == "all" else f"{period[_PERIOD]}: "
    p50 = period["p50_s"] / 60
    median = "" if np.isnan(p50) else f", median {p50:{',.0f' if p50 >= 100 else '.3g'}} min"
    label = f"{name}{format_count(len(ordered), 'row')}{median}{f'; {excluded}' if excluded else ''}"
    ax.plot([x[0], *x], [0, *y], color=color, linestyle=line, linewidth=1.8, drawstyle="steps-post", label=label)
    ax.plot(p50, 0.5, "o", color=color, markerfacecolor=theme.background(ax), markersize=7)


def _set_scales(ax: Axes, minutes: Floats) -> None:
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    if minutes.max() > 50 * max(np.median(minutes), _SHORT):
        ax.set_xscale("symlog", linthresh=_SHORT)
    if minutes.min() >= 0:
        ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter("{x:,.6g}")


@checked_call
def queue_times_by_hour(jobs: pd.DataFrame, ax: Axes | None = None, tz: str = "UTC", q: float = 0.95) -> Axes:
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

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on. Cells show minutes.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `tz` is unknown, or `q` lies outside (0, 1).

    See Also
    --------
    queue_depth : How many jobs wait, over time.
    buildframe.metrics.percentiles : The numbers of this plot.

    Notes
    -----
    A cell needs 1 / (1 - q) jobs, 20 for the 95th percentile. A cell with fewer has a dot, and so has one in which too
    many jobs never started. A cell without jobs is empty. Jobs that never started count for as long as they were seen
    to wait; the note counts them.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> ax = plots.queue_times_by_hour(jobs, tz="Europe/Berlin", q=0.5)
    >>> ax.get_xlabel()
    'hour in which the job became runnable (Europe/Berlin)'
    """
    cells = _compute_cells(jobs, tz, q)
    with theme.themed_axes(ax, 10, 3.6) as ax:
        if cells["minutes"].isna().all():
            few = f"No hour of the week has enough jobs for a percentile of {q:.4g}."
            return theme.show_message(ax, few if len(cells) else "No job was runnable.")
        _draw_cells(ax, cells)
        ax.set_xlabel(f"hour in which the job became runnable ({tz})")
        n = theme.column_total(cells, "n")
        excluded = theme.list_counts(never_started=cells["n_censored"], negative=cells["n_negative"])
        note = f"cell: p{100 * q:.4g} in minutes, · = unknown"
        title = f"Queue time of {format_count(n, 'job')} by hour and weekday"
        theme.decorate(ax, title, theme.join_notes(note, "" if ax.texts else _format_range(cells["minutes"]), excluded))
        ax.spines[:].set_visible(False)
    return ax


def _format_range(minutes: pd.Series[float]) -> str:
    """Return the range of the values, for cells that are too small for numbers."""
    shade = "darker" if theme.is_light() else "brighter"
    return f"from {minutes.min():,.2g} to {minutes.max():,.4g}, {shade} is longer"


def _compute_cells(jobs: pd.DataFrame, tz: str, q: float) -> pd.DataFrame:
    """Return one row per weekday and hour with jobs: `day`, `hour`, counts, and `minutes`."""
    runnable = jobs[is_script(jobs) & timestamps(jobs, "runnable_at").notna()]

    def local(part: Callable[[Any], Any], name: str) -> Callable[[pd.DataFrame], pd.Series[Any]]:
        return lambda frame: part(to_zone(timestamps(frame, "runnable_at"), tz).dt).rename(name)

    by = [local(lambda times: times.day_of_week, "day"), local(lambda times: times.hour, "hour")]
    cells = metrics.percentiles(runnable, of=metrics.queue_time, by=by, q=[q])
    return cells.assign(minutes=cells[f"p{100 * q:.10g}_s"] / 60)


def _draw_cells(ax: Axes, cells: pd.DataFrame) -> None:
    table = np.full((7, 24), np.nan)
    table[cells["day"], cells["hour"]] = cells["minutes"]
    most = max(float(np.nanmax(table)), 1e-9)
    norm = Normalize(min(0.0, float(np.nanmin(table))), most)
    cmap = theme.SEQUENTIAL if theme.is_light() else theme.SEQUENTIAL.reversed()
    ax.pcolormesh(np.ma.masked_invalid(table), cmap=cmap, norm=norm, edgecolors=[theme.background(ax)], linewidth=1.2)
    few = cells[cells["minutes"].isna()]
    ax.plot(few["hour"] + 0.5, few["day"] + 0.5, ".", color=theme.GRAY, markersize=4)
    _write_values(ax, table, ScalarMappable(norm, cmap))
    width, height = plot_area(ax, _LEFT)
    every = next(every for every in (1, 2, 3, 6, 12) if width / 24 * every > 15 or every == 12)
    ax.set_xticks(np.arange(0, 24, every) + 0.5, [f"{hour}" for hour in range(0, 24, every)])
    days = _DAYS if width > 200 else [day[:3] for day in _DAYS]
    apart = 1 if height > 7 * POINTS_PER_LABEL else 2
    ax.set_yticks(np.arange(0, 7, apart) + 0.5, days[::apart])
    ax.set_xlim(0, 24)
    ax.set_ylim(7, 0)


def _write_values(ax: Axes, table: Floats, scale: ScalarMappable) -> None:
    """Write the value into each cell, as large as it fits, in the color with more contrast."""
    width, height = plot_area(ax, _LEFT)
    size = min(8.0, width / 24 / 2.6, height / 7 * 0.6)
    bright = [theme.luminance(color) > _BRIGHT for color in scale.to_rgba(table[~np.isnan(table)])]
    for day, hour, is_bright in zip(*np.nonzero(~np.isnan(table)), bright, strict=True) if size >= _LEAST else ():
        minutes = float(table[day, hour])
        text = f"{minutes:.1f}" if abs(minutes) < 9.95 else f"{minutes:,.0f}"
        color = "black" if is_bright else "white"
        ax.text(hour + 0.5, day + 0.5, text, ha="center", va="center", fontsize=size, color=color)
