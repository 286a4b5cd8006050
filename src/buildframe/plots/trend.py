"""Plot a percentile of a duration over time, by group."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.durations import RowMetric, span_of
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.buckets import Begin, choose_buckets, find_middles, mark_begin
from buildframe.plots.groups import GROUP, ShownGroups, by_phrase, choose_groups, measured_rows
from buildframe.plots.header import mark_label
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.units import show_durations

VARIED = 12.0
"""How many times as long as that of another group the values of a group are if the scale is logarithmic."""

_MOST_ABOVE = 1.6
"""How far above all values the y axis reaches for their intervals."""


@checked_frames
def trend(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    of: RowMetric | str = metrics.wall_time,
    by: Key | None = None,
    q: float = 0.5,
    freq: str | None = None,
    tz: str = "UTC",
    at: str | None = None,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    top: int = 6,
) -> Any:
    """
    Plot a percentile of a duration over time, with a line for each group.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds or jobs with `fetched_at`, the column `at`, and the columns that `of` needs.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    of : row metric or str, default wall_time
        Duration to plot: a row metric such as `metrics.queue_time`, the name of a timedelta column, or your own
        function `frame -> Series` of timedeltas (custom metric), as in `metrics.percentiles`.
    by : str or function, optional
        Column, or function such as `metrics.step`, that defines the groups. By default all rows form one group.
    q : float, default 0.5
        Percentile as a fraction in (0, 1).
    freq : str, optional
        Pandas frequency of the buckets, such as "1h", "1D" or "W-MON". By default the shortest buckets of which most
        have enough rows for the percentile.
    tz : str, default "UTC"
        Time zone in which buckets start.
    at : str, optional
        Column of timestamps that assigns rows to buckets. By default the start of the duration, or else `created_at`.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    top : int, default 6
        Maximum number of lines: the groups with the most rows. The note counts the others.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`. Durations are in seconds.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, an argument is invalid, or `ax` is used with `col` or `row`.

    See Also
    --------
    duration_trend : The wall time of builds, with a point for each build.
    buildframe.metrics.trend : The numbers of this plot.

    Notes
    -----
    A percentile needs 1 / (1 - q) rows in a bucket. The line leads over buckets without one. Up to three groups have a
    band, the 95 % interval of the percentile. A hollow marker is a bucket that had not ended when the rows were
    fetched, or inside which the rows begin. A hollow triangle is a lower bound: too many rows of the bucket were not
    seen to end.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="14d")
    >>> ax = plots.trend(jobs, of=metrics.queue_time, by="queue", q=0.95)
    >>> ax.get_xlabel()
    'Day runnable (UTC)'
    """
    span = span_of(of)
    at = at or (span.start if span else "created_at")
    groups = choose_groups(measured_rows(frame, of), by, top, (col, row))
    freq, begin = choose_buckets(groups, at, freq, tz, _rows_needed(q), (col, row))
    what, name = describe_metric(of), percentile_name(q)
    shown_name = name.replace("median", "Median")

    def summarize(rows: pd.DataFrame) -> pd.DataFrame:
        return mark_begin(metrics.trend(rows, of=of, q=[q], freq=freq, tz=tz, at=at, by=GROUP), begin)

    def paint(buckets: pd.DataFrame, panel: Panel[pd.DataFrame]) -> None:
        ax, p, n_rows = panel.ax, f"p{100 * q:.10g}", theme.column_total(buckets, "n")
        if buckets[[f"{p}_s", f"{p}_at_least_s"]].isna().all(axis=None):
            few = f"No bucket has the {format_count(_rows_needed(q), 'row')} that {name} needs."
            panel.show_message(few if n_rows else "Nothing has finished.")
            return
        is_log = set_scale(ax, pd.concat(panel.summaries), p)
        draw_groups(ax, buckets, groups, p, freq, begin)
        theme.show_buckets(ax, buckets["bucket"], freq)
        ax.set(xlabel=theme.bucket_label(freq, tz, at), ylabel=f"{what}, {name}{', logarithmic' * is_log}")
        show_durations(ax, "y")
        note = theme.list_counts(not_ended=buckets["n_censored"], negative=buckets["n_negative"])
        n = format_count(n_rows, "job" if "type" in frame else "build")
        key = theme.join_notes(groups.hidden, _band_note(buckets, groups, p))
        heading = f"{shown_name} of {what} of {n}{by_phrase(by)}"
        panel.decorate(heading, note, "y", short=n, key=key)

    heading = f"{shown_name} of {what}{by_phrase(by) and by_phrase(by) + ','}"
    place = Placement(ax, col, row, title, tz)
    return draw(summarize, paint, groups.frame, place, heading, (9, 4.2))


def describe_metric(of: RowMetric | str) -> str:
    """Return the name of a duration in words: "queue time"."""
    name = of if isinstance(of, str) else getattr(of, "__name__", "duration")
    return name.removesuffix("_s").replace("_", " ")


def percentile_name(q: float) -> str:
    """Return the name of a percentile: "p95", or "median"."""
    return "median" if q == 0.5 else f"p{100 * q:.10g}"


def set_scale(ax: Axes, buckets: pd.DataFrame, p: str) -> bool:
    """Set scale and limits of the y axis for percentiles of all groups, and return whether it is logarithmic.

    It is if the values of some groups are so much smaller that they could not be distinguished. Intervals and lower
    bounds that are far above all values end at the upper end of the plot.
    """
    values = buckets[f"{p}_s"].to_numpy(np.float64)
    known = values[~np.isnan(values)]
    known = known if len(known) else buckets[f"{p}_at_least_s"].dropna().to_numpy(np.float64)
    highs = buckets[f"{p}_high_s"].dropna().to_numpy(np.float64)
    most, least = float(known.max()), float(known.min())
    top = 1.08 * max(most, min(float(highs.max(initial=0)), _MOST_ABOVE * most), 1.0)
    typical = buckets.groupby(GROUP)[f"{p}_s"].median().dropna()
    positive = typical[typical > 0]
    if len(positive) and least >= 0 and positive.max() > VARIED * positive.min():
        ax.set_yscale("symlog", linthresh=max(float(positive.min()) / 2, 1.0), linscale=0.4)
        ax.set_ylim(0, 1.5 * top)
        return True
    ax.set_ylim(0 if least >= 0 else 1.05 * least, top)
    return False


def _rows_needed(q: float) -> int:
    """Return how many rows a percentile needs."""
    return max(math.ceil(1 / (1 - q) - 1e-9), 2) if 0 < q < 1 else 2


def _band_note(buckets: pd.DataFrame, groups: ShownGroups, p: str) -> str:
    has_bands = groups.have_bands and buckets[f"{p}_low_s"].notna().any()
    return "band: 95 % interval" if has_bands else ""


def draw_groups(ax: Axes, buckets: pd.DataFrame, groups: ShownGroups, p: str, freq: str, begin: Begin | None) -> None:
    """Draw a percentile of each group that has one, as a line."""
    at = find_middles(buckets["bucket"], freq, begin)
    for name, style in groups.styles.items():
        own = buckets[buckets[GROUP] == name]
        if own.empty or (name == "" and own[[f"{p}_s", f"{p}_at_least_s"]].isna().all(axis=None)):
            continue
        label = groups.labels[name] or percentile_name(float(p[1:]) / 100)
        draw_line(ax, at[own.index], own, p, label, style.color, style.line, style.marker, groups.have_bands)


def draw_line(
    ax: Axes, at: pd.Series[Any], buckets: pd.DataFrame, p: str, label: str, color: str, line: Any = "-",
    marker: str = "o", band: bool = True,
) -> None:  # fmt: skip
    """Draw a percentile per bucket as a line with markers, its interval as a band, and lower bounds as triangles."""
    values, bounds = buckets[f"{p}_s"], buckets[f"{p}_at_least_s"]
    known, partial = values.notna(), buckets["partial"].fillna(False).astype(bool)
    size = 5 if len(at) <= 60 else 2.5
    back = theme.background(ax)
    (drawn,) = ax.plot(at[known], values[known], color=color, linestyle=line, linewidth=theme.line_width(), label=label,
                       marker=marker, markersize=size, markevery=list(np.flatnonzero(~partial[known])))  # fmt: skip
    mark_label(drawn, label)
    if band:
        draw_band(ax, at, buckets[f"{p}_low_s"], buckets[f"{p}_high_s"], color)
    if (own := known & partial).any():
        ax.plot(at[own], values[own], marker, color=color, markerfacecolor=back, markersize=7)
        add_to_legend(ax, "o", "bucket not complete")
    if (own := bounds.notna()).any():
        top = float(ax.transData.inverted().transform(ax.transAxes.transform((0, 0.96)))[1])
        ax.plot(at[own], bounds[own].clip(upper=top), "^", color=color, markerfacecolor="none", markersize=7)
        add_to_legend(ax, "^", "at least")


def draw_band(
    ax: Axes, at: pd.Series[Any], low: pd.Series[float], high: pd.Series[float], color: str,
    alphas: tuple[float, float] = (0.18, 0.3), label: str = "_nolegend_",
) -> None:  # fmt: skip
    """Draw a band between two values per bucket, with a bar for each bucket that has no neighbor."""
    ax.fill_between(at, low, high, color=color, alpha=alphas[0], linewidth=0, label=label)
    has_value = np.pad(low.notna(), 1)
    alone = has_value[1:-1] & ~has_value[:-2] & ~has_value[2:]
    ax.vlines(at[alone], low[alone], high[alone], color=color, alpha=alphas[1], linewidth=4)


def add_to_legend(ax: Axes, marker: str, label: str, size: float = 7) -> None:
    """Explain a hollow marker once, in the color of text."""
    if label not in ax.get_legend_handles_labels()[1]:
        ax.plot([], [], marker, color=theme.text_color(), markerfacecolor="none", markersize=size, label=label)
