"""Plot which share of rows lasts longer than each duration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.durations import RowMetric
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.fonts import add_fallback_font
from buildframe.plots.groups import GROUP, GroupStyle, by_phrase, choose_groups, measured_rows
from buildframe.plots.layout import apply_layout, font_points, label_height, max_characters, plot_area, root_figure
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.trend import describe_metric
from buildframe.plots.units import MINUTE, show_durations

_SHORT = MINUTE  # the logarithmic scale is linear below
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
_MOST_CHARACTERS = 24


@checked_frames
def survival(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    of: RowMetric | str = metrics.queue_time,
    by: Key | None = None,
    top: int = 4,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
) -> Any:
    """
    Plot the share of rows that lasts longer than each duration, with its 95 % interval.

    Rows that were not seen to end count for as long as they were seen.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds or jobs with the columns that `metrics.survival` needs.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    of : row metric or str, default queue_time
        Duration to plot: a row metric such as `metrics.run_time`, or the name of a timedelta column.
    by : str or function, optional
        Key that defines a curve for each group. By default all rows form one curve.
    top : int, default 4
        Maximum number of groups to draw: those with the most rows. The note counts the others.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days in the title.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`. Durations are in seconds.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `of` is not a duration, `top` is below 1, or `ax` is used with `col`
        or `row`.

    See Also
    --------
    distribution : Share of the rows that were seen to end.
    buildframe.metrics.survival : The numbers of this plot.

    Notes
    -----
    A short vertical line marks a time at which rows were still under way when they were last seen. A band ends where
    the interval is unknown. The x axis is logarithmic if the longest duration exceeds 20 medians.

    Durations are counted by whole second. A curve falls at the end of this second: a row of exactly 60 s at 61 s.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> ax = plots.survival(jobs, by="queue")
    >>> ax.get_ylabel()
    'share that lasts longer'
    """
    groups, what = choose_groups(measured_rows(frame, of), by, top, (col, row)), describe_metric(of)

    def summarize(rows: pd.DataFrame) -> pd.DataFrame:
        return metrics.survival(rows, of=of, by=GROUP)

    def paint(curves: pd.DataFrame, panel: Panel[pd.DataFrame]) -> None:
        ax = panel.ax
        if curves.empty:
            panel.show_message("No row has begun, so there is no duration.")
            return
        ends = {}
        for number, (name, style) in enumerate(groups.styles.items()):
            curve = curves[curves[GROUP] == name]
            if len(curve):
                label = groups.labels[name] if panel.is_cell else ""
                ends[name] = _draw_curve(ax, curve, style, _STYLES[number % len(_STYLES)], label)
        _set_scales(ax, pd.concat(panel.summaries), what)
        n_censored = int(curves["n_censored"].sum())
        n = int((curves["n_ended"] + curves["n_censored"]).sum())
        count = format_count(n, "job" if "type" in frame else "build")
        note = f"|: {format_count(n_censored, 'row')} not seen to end" if n_censored else ""
        heading = f"Distribution of {what} of {count}{by_phrase(by)}"
        panel.decorate(heading, note, short=count, key=theme.join_notes("band: 95 % interval", groups.hidden))
        ax.grid(color=theme.grid_color(), linewidth=0.8)
        if by is not None and not panel.is_cell:
            _label_curves(ax, ends, groups.styles)

    place, comma = Placement(ax, col, row, title, tz), by_phrase(by) and by_phrase(by) + ","
    return draw(summarize, paint, groups.frame, place, f"Distribution of {what}{comma}", (9, 4.4))


def _draw_curve(ax: Axes, curve: pd.DataFrame, style: GroupStyle, line: Any, label: str) -> tuple[float, float]:
    """Draw a curve, its band and its marks; return where it ends."""
    seconds = np.concatenate([[0.0], curve["after_s"].to_numpy(np.float64)])
    share, low, high = (np.concatenate([[1.0], curve[name].to_numpy(np.float64)]) for name in ("share", "low", "high"))
    ax.fill_between(seconds, low, high, step="post", color=style.color, alpha=0.18, linewidth=0)
    ax.plot(seconds, share, color=style.color, linestyle=line, linewidth=theme.line_width(), drawstyle="steps-post",
            label=label or "_nolegend_")  # fmt: skip
    has_left = np.concatenate([[False], curve["n_censored"].to_numpy(np.int64) > 0])
    ax.plot(seconds[has_left], share[has_left], "|", color=style.color, markersize=7)
    return float(seconds[-1]), float(share[-1])


def _set_scales(ax: Axes, curves: pd.DataFrame, what: str) -> None:
    seconds, ended = curves["after_s"].to_numpy(np.float64), curves["n_ended"].to_numpy(np.int64)
    order = np.argsort(seconds)
    middle = np.searchsorted(np.cumsum(ended[order]), ended.sum() / 2)
    is_long = seconds.max() > 20 * max(seconds[order][min(middle, len(order) - 1)], _SHORT)
    if is_long:
        ax.set_xscale("symlog", linthresh=_SHORT, linscale=0.5)
    ax.set_xlim(min(0.0, seconds.min()), max(seconds.max(), 1.0))
    show_durations(ax, "x")
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0, symbol=" %"))
    ax.set(xlabel=f"{what}{', logarithmic' if is_long else ''}", ylabel="share that lasts longer")


def _label_curves(ax: Axes, ends: dict[str, tuple[float, float]], styles: dict[str, GroupStyle]) -> None:
    """Write the name of each curve beside the Axes at the height of its end, or as near as there is room."""
    labels = theme.unique_labels(ends, max_characters(ax, _MOST_CHARACTERS))
    step = 1.02 * label_height() / plot_area(ax)[1]
    height = -step
    numbers = {name: number for number, name in enumerate(styles)}
    for name in sorted(ends, key=lambda name: (ends[name][1], ends[name][0])):  # from the lowest up
        height = max(ends[name][1], height + step)
        ax.plot([1.01, 1.035], [height] * 2, transform=ax.get_yaxis_transform(), clip_on=False, scalex=False,
                scaley=False, color=styles[name].color, linestyle=_STYLES[numbers[name] % len(_STYLES)],
                linewidth=theme.line_width())  # fmt: skip
        text = ax.annotate(labels[name], (1.045, height), xycoords=ax.get_yaxis_transform(), va="center",
                           fontsize=font_points(9), color=theme.text_color(), annotation_clip=False)  # fmt: skip
        add_fallback_font(text)
    if root_figure(ax).get_layout_engine() is None:
        apply_layout(ax)
