"""Plot which share of rows lasts longer than each duration."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_call
from buildframe.metrics.durations import RowMetric
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.layout import POINTS_PER_LABEL, apply_layout, max_characters, plot_area

_COLORS = (theme.BLUE, theme.ORANGE, theme.GREEN, theme.PURPLE, theme.RED, theme.SKY)
_STYLES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)))
_SHORT = 1.0  # minutes; the logarithmic scale is linear below
_MOST_CHARACTERS = 24


@checked_call
def survival(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    of: RowMetric | str = metrics.queue_time,
    by: Key | None = None,
    top: int = 4,
) -> Axes:
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
        Most groups to draw, at most 6: those with the most rows. The note counts the others.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on. Durations are in minutes.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `of` is not a duration, or `top` is below 1.

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
    'Share that lasts longer'
    """
    theme.check_top(top)
    curves = metrics.survival(frame, of=of, by=None if by is None else [by])
    curves = curves.rename(columns={curves.columns[0]: "group"}) if by is not None else curves.assign(group="")
    totals = (curves["n_ended"] + curves["n_censored"]).groupby(curves["group"], dropna=False, sort=False).sum()
    shown = totals.sort_values(ascending=False, kind="stable").head(min(top, len(_COLORS)))
    with theme.themed_axes(ax, 9, 4.4) as ax:
        if curves.empty:
            return theme.show_message(ax, "No row has begun, so there is no duration.")
        ends = [
            _draw_curve(ax, curves[curves["group"].isna() if pd.isna(group) else curves["group"] == group], i)
            for i, group in enumerate(shown.index)
        ]
        what = (of if isinstance(of, str) else getattr(of, "__name__", "duration")).replace("_", " ")
        _set_scales(ax, curves, what)
        others, n_censored = len(totals) - len(shown), int(curves["n_censored"].sum())
        note = theme.join_notes(
            "band: 95 % interval",
            f"|: {format_count(n_censored, 'row')} not seen to end" if n_censored else "",
            f"{format_count(others, 'smaller group')} not shown" if others else "",
        )
        censored = ", with rows that were not seen to end" if n_censored else ""
        theme.decorate(ax, f"Distribution of {what}{censored}", note)
        ax.grid(color=theme.grid_color(), linewidth=0.8)
        if by is not None:
            _label_curves(ax, ends, [theme.NO_NAME if pd.isna(name) else str(name) for name in shown.index])
    return ax


def _draw_curve(ax: Axes, curve: pd.DataFrame, number: int) -> tuple[float, float]:
    """Draw a curve, its band and its marks; return where it ends."""
    minutes = np.concatenate([[0.0], curve["after_s"].to_numpy(np.float64) / 60])
    share, low, high = (np.concatenate([[1.0], curve[name].to_numpy(np.float64)]) for name in ("share", "low", "high"))
    color = _COLORS[number]
    ax.fill_between(minutes, low, high, step="post", color=color, alpha=0.18, linewidth=0)
    ax.plot(minutes, share, color=color, linestyle=_STYLES[number], linewidth=1.8, drawstyle="steps-post")
    has_left = np.concatenate([[False], curve["n_censored"].to_numpy(np.int64) > 0])
    ax.plot(minutes[has_left], share[has_left], "|", color=color, markersize=7)
    return float(minutes[-1]), float(share[-1])


def _set_scales(ax: Axes, curves: pd.DataFrame, what: str) -> None:
    minutes, ended = curves["after_s"].to_numpy(np.float64) / 60, curves["n_ended"].to_numpy(np.int64)
    order = np.argsort(minutes)
    middle = np.searchsorted(np.cumsum(ended[order]), ended.sum() / 2)
    is_long = minutes.max() > 20 * max(minutes[order][min(middle, len(order) - 1)], _SHORT)
    if is_long:
        ax.set_xscale("symlog", linthresh=_SHORT)
    ax.set_xlim(min(0.0, minutes.min()), max(minutes.max(), 1 / 60))
    ax.xaxis.set_major_formatter("{x:,.6g}")
    ax.set_ylim(0, 1.02)
    ax.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    scale = f", logarithmic above {_SHORT:g}" if is_long else ""
    ax.set(xlabel=f"{what} (minutes{scale})", ylabel="Share that lasts longer")


def _label_curves(ax: Axes, ends: list[tuple[float, float]], names: list[str]) -> None:
    """Write the name of each curve beside the Axes at the height of its end, or as near as there is room."""
    labels = theme.unique_labels(names, max_characters(ax, _MOST_CHARACTERS))
    step = 1.02 * POINTS_PER_LABEL / plot_area(ax)[1]
    order = sorted(range(len(ends)), key=lambda i: (ends[i][1], ends[i][0]))
    height = -step
    for i in order:  # from the lowest up
        height = max(ends[i][1], height + step)
        ax.plot([1.01, 1.035], [height] * 2, transform=ax.get_yaxis_transform(), clip_on=False, scalex=False,
                scaley=False, color=_COLORS[i], linestyle=_STYLES[i], linewidth=1.8)  # fmt: skip
        ax.annotate(labels[names[i]], (1.045, height), xycoords=ax.get_yaxis_transform(), va="center", fontsize=9,
                    color=theme.text_color(), annotation_clip=False)  # fmt: skip
    apply_layout(ax)
