"""Plot how durations are distributed: of groups, or in two periods."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from buildframe import metrics
from buildframe.errors import BadInput
from buildframe.formatting import format_count, format_duration
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import Floats, timestamps
from buildframe.metrics.durations import RowMetric
from buildframe.metrics.grouping import Key
from buildframe.metrics.measured_rows import measure_rows
from buildframe.plots import theme
from buildframe.plots.groups import GROUP, GroupStyle, by_phrase, choose_groups, measured_rows
from buildframe.plots.header import mark_label
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.trend import describe_metric
from buildframe.plots.units import show_durations
from buildframe.spec.times import When, when

_NUMBER = "number of the group"
_CHARACTERS = 30
_MOST_POINTS = 2000  # more than a screen can show
_SHORT = 6.0  # seconds; the logarithmic scale is linear below, so that it can show zeros


class _Distributions(NamedTuple):
    """Seconds by number of the group; and by group the remaining shares, and counts with the median."""

    durations: pd.DataFrame
    lasting: pd.DataFrame
    counts: pd.DataFrame


@checked_frames
def distribution(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    of: RowMetric | str = metrics.wall_time,
    split: When | None = None,
    at: str = "created_at",
    by: Key | None = None,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
    top: int = 6,
) -> Any:
    """
    Plot the cumulative distribution of a duration, optionally by group, or before and after a time.

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
    by : str or function, optional
        Key that defines a curve for each group. Use `col` or `row` to combine groups with `split`.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days in the title.
    top : int, default 6
        Maximum number of curves of `by`: the groups with the most rows. The note counts the others.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`. Durations are in seconds.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `split` is not a time, `split` is used with `by`, or `ax` with `col`
        or `row`.

    See Also
    --------
    duration_trend : Median and 95th percentile over time.
    buildframe.metrics.percentiles : Percentiles with confidence intervals.

    Notes
    -----
    A dot marks each median. The x axis is logarithmic if the longest duration exceeds 50 times the
    smallest median. Rows that started but
    were not seen to end count for as long as they were seen (`metrics.survival`), and the legend counts them. A curve
    with many of them ends below 100 %.

    Examples
    --------
    >>> builds = ci.builds(created_from="14d")
    >>> ax = plots.distribution(builds, by="pipeline")
    >>> ax.get_ylabel()
    'cumulative share'
    """
    if split is not None and by is not None:
        raise BadInput("split= and by= both choose the curves. Use col= or row= for the groups.")
    frame = measured_rows(frame, of)
    if split is not None:
        frame = frame.assign(**{_PERIOD: _assign_periods(frame, split, at)})
        frame = frame[frame[_PERIOD].notna()]
    groups = choose_groups(frame, by if split is None else _PERIOD, top, (col, row), _CHARACTERS)
    what = describe_metric(of)

    def summarize(rows: pd.DataFrame) -> _Distributions:
        lasting = metrics.survival(rows, of=of, by=GROUP, points=_MOST_POINTS)
        counts = metrics.percentiles(rows, of=of, by=GROUP, q=[0.5])  # also validates the frame
        measured = measure_rows(rows, of, GROUP)
        durations = measured.columns[["value"]].assign(**{_NUMBER: measured.codes})
        return _Distributions(durations, lasting, counts)

    def paint(one: _Distributions, panel: Panel[_Distributions]) -> None:
        ax, seconds = panel.ax, one.durations["value"].to_numpy(np.float64)
        if np.isnan(seconds).all():
            panel.show_message("No row has finished, so there is no duration.")
            return
        for i, (_, group) in enumerate(one.counts.iterrows()):
            own = seconds[one.durations[_NUMBER].eq(i).to_numpy(bool)]
            style, name = groups.styles[group[GROUP]], groups.labels[group[GROUP]]
            numbers = () if panel.is_cell else _numbers(group, name)
            curve = _draw_curve(ax, own, one.lasting[one.lasting[GROUP] == group[GROUP]], group, style)
            if curve is not None:
                curve.set_label((name + numbers[0] if numbers else name) or what)
                mark_label(curve, name, *numbers, is_fixed=split is not None or not name)
        everywhere = np.concatenate([other.durations["value"].to_numpy(np.float64) for other in panel.summaries])
        medians = pd.concat([other.counts["p50_s"] for other in panel.summaries]).dropna()
        _set_scales(ax, everywhere[~np.isnan(everywhere)], float(medians.min()) if len(medians) else 0.0)
        scale = ", logarithmic" if ax.get_xscale() == "symlog" else ""
        ax.set(xlabel=f"{what}{scale}", ylabel="cumulative share")
        note = theme.list_counts(negative=int((seconds < 0).sum()))
        n = format_count(int((~np.isnan(seconds)).sum()), "job" if "type" in frame else "build")
        each = [(group, groups.labels[group[GROUP]]) for _, group in one.counts.iterrows()]
        short = "; ".join(name + _numbers(group, name)[0] for group, name in each)
        panel.decorate(f"Distribution of {what} of {n}{by_phrase(by)}", note, short=short if by is None else n,
                       key=groups.hidden)  # fmt: skip
        ax.grid(color=theme.grid_color(), linewidth=0.8)

    place, comma = Placement(ax, col, row, title, tz), by_phrase(by) and by_phrase(by) + ","
    return draw(summarize, paint, groups.frame, place, f"Distribution of {what}{comma}", (9, 4.4))


_PERIOD = "period"


def _assign_periods(frame: pd.DataFrame, split: When, at: str) -> pd.Series[str]:
    moment = pd.Timestamp(when(split, "split"))
    times = timestamps(frame, at)
    text = f"{moment:%Y-%m-%d}" if moment == moment.normalize() else f"{moment:%Y-%m-%d %H:%M} UTC"
    names = pd.Series(np.where(times < moment, f"before {text}", f"from {text}"), index=frame.index, dtype="str")
    return names.where(times.notna())


def _numbers(group: pd.Series[Any], name: str) -> tuple[str, ...]:
    """Return what follows the name in the legend: ": 20 rows, median 5 min; 2 not seen to end", and a shorter text."""
    n_censored = 0 if pd.isna(group["n_censored"]) else int(group["n_censored"])
    excluded = theme.list_counts(not_seen_to_end=n_censored)
    median = "" if np.isnan(group["p50_s"]) else f", median {format_duration(group['p50_s'])}"
    whole = f"{format_count(int(group['n']), 'row')}{median}{f'; {excluded}' if excluded else ''}"
    return (f": {whole}", median) if name else (whole,)


def _draw_curve(
    ax: Axes, seconds: Floats, lasting: pd.DataFrame, group: pd.Series[Any], style: GroupStyle
) -> Line2D | None:
    """Draw the curve of a group and its median; None without durations."""
    ordered = np.sort(seconds[~np.isnan(seconds)])
    if not len(ordered):
        return None
    ranks = np.unique(np.linspace(1, len(ordered), min(len(ordered), _MOST_POINTS)).astype(int))
    x, y = ordered[ranks - 1], ranks / len(ordered)
    if lasting["n_censored"].sum():
        lasting = lasting[lasting["n_ended"] > 0]
        x, y = lasting["after_s"].to_numpy(np.float64), 1 - lasting["share"].to_numpy(np.float64)
    (curve,) = ax.plot([x[0], *x], [0, *y], color=style.color, linestyle=style.line, linewidth=theme.line_width(),
                       drawstyle="steps-post")  # fmt: skip
    ax.plot(group["p50_s"], 0.5, "o", color=style.color, markerfacecolor=theme.background(ax), markersize=7)
    return curve


def _set_scales(ax: Axes, seconds: Floats, least_median: float) -> None:
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    if seconds.max() > 50 * max(least_median, _SHORT):
        ax.set_xscale("symlog", linthresh=_SHORT, linscale=0.5)
    if seconds.min() >= 0:
        ax.set_xlim(left=0)
    show_durations(ax, "x")
