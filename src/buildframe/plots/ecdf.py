"""Plot how durations are distributed, and compare two periods."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_call
from buildframe.metrics.columns import Floats, timestamps
from buildframe.metrics.durations import RowMetric
from buildframe.metrics.engines import engine_of
from buildframe.metrics.engines.protocol import GROUP
from buildframe.plots import theme
from buildframe.spec.times import When, when

_MOST_POINTS = 2000  # more than a screen can show
_PERIOD = "period"
_SHORT = 0.1  # minutes; the logarithmic scale is linear below, so that it can show zeros


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
    were not seen to end are in no curve, which makes the curves too optimistic; the legend counts these rows.

    Examples
    --------
    >>> builds = ci.builds(created_from="14d")
    >>> ax = plots.distribution(builds)
    >>> ax.get_ylabel()
    'Cumulative share'
    """
    rows = frame.assign(**{_PERIOD: _assign_periods(frame, split, at)})
    rows = rows[rows[_PERIOD].notna()]
    counts = metrics.percentiles(rows, of=of, by=_PERIOD, q=[0.5])  # also validates the frame
    engine = engine_of(rows)
    durations, _ = engine.number_groups(engine.measure(rows, of, _PERIOD), "value")
    minutes = durations["value"].to_numpy(np.float64) / 60
    with theme.themed_axes(ax, 9, 4.4) as ax:
        if np.isnan(minutes).all():
            return theme.show_message(ax, "No row has finished, so there is no duration.")
        curves = zip(counts.iterrows(), (theme.BLUE, theme.ORANGE), ("-", "--"), strict=False)
        for i, ((_, period), color, line) in enumerate(curves):
            _draw(ax, minutes[durations[GROUP].eq(i).to_numpy(bool)], period, color, line)
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


def _draw(ax: Axes, minutes: Floats, period: pd.Series[Any], color: str, line: str) -> None:
    ordered = np.sort(minutes[~np.isnan(minutes)])
    if not len(ordered):
        return
    ranks = np.unique(np.linspace(1, len(ordered), min(len(ordered), _MOST_POINTS)).astype(int))
    x, y = ordered[ranks - 1], ranks / len(ordered)
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
