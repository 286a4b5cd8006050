"""Plot whether a promise was met over time, and how its error budget was used."""

from __future__ import annotations

import datetime as dt
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count, format_duration
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import Floats
from buildframe.metrics.durations import RowMetric
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.buckets import find_edges
from buildframe.plots.groups import measured_rows
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.trend import describe_metric
from buildframe.spec.times import seconds_of

_FLOORS = (99.0, 98.0, 95.0, 90.0, 80.0, 60.0, 40.0, 20.0, 0.0)
"""Percentages at which the axis of shares may begin."""


class _Band(NamedTuple):
    """A part of the Axes, from `bottom` to `top`, that shows values from `low` to `high`."""

    bottom: float
    top: float
    low: float
    high: float

    def place(self, values: Any) -> Any:
        return self.bottom + (values - self.low) / (self.high - self.low) * (self.top - self.bottom)


@checked_frames
def objective(
    frame: pd.DataFrame,
    ax: Axes | None = None,
    *,
    of: RowMetric | str,
    within: str | dt.timedelta,
    target: float,
    freq: str = "1D",
    tz: str = "UTC",
    at: str | None = None,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
) -> Any:
    """
    Plot a promise such as "95 % of jobs start within 5 minutes": the share that met it, and its error budget.

    The upper part has the share of each bucket with its 95 % interval, and the target. The lower part has the error
    budget that remains. It falls to zero if exactly as many rows missed the promise as the target allows.

    Parameters
    ----------
    frame : pandas.DataFrame
        Builds or jobs with the columns that `metrics.objective` needs. Select the rows of one queue or pipeline first
        to see theirs.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    of : row metric or str
        Duration that is promised, such as `metrics.queue_time`.
    within : str or timedelta
        Longest duration that meets the promise, such as "5m".
    target : float
        Share of rows that are promised to meet it, in (0, 1).
    freq : str, default "1D"
        Pandas frequency of the buckets, such as "1h", "1D" or "W-MON".
    tz : str, default "UTC"
        Time zone in which buckets start.
    at : str, optional
        Column of timestamps that assigns rows to buckets. By default the start of the duration.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, an argument is invalid, or `ax` is used with `col` or `row`.

    See Also
    --------
    buildframe.metrics.objective : The numbers of this plot.
    duration_trend : The duration of builds over time.

    Notes
    -----
    The budget is that of the whole plot, so it depends on the number of rows of all buckets. A bucket needs rows in
    five of eight spans of its time for an interval. A hollow dot marks a bucket that had not ended when the rows were
    fetched.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="14d")
    >>> ax = plots.objective(jobs, of=metrics.queue_time, within="5m", target=0.95)
    >>> ax.get_ylabel()
    'budget, share'
    """
    what = describe_metric(of)
    limit, promised = format_duration(seconds_of(within, "within")), _percent(target)

    def summarize(rows: pd.DataFrame) -> pd.DataFrame:
        return metrics.objective(rows, of, within, target, freq=freq, tz=tz, at=at)

    def paint(buckets: pd.DataFrame, panel: Panel[pd.DataFrame]) -> None:
        ax, n, missed = panel.ax, theme.column_total(buckets, "n"), theme.column_total(buckets, "missed")
        if not n:
            panel.show_message("No row met or missed the promise.")
            return
        _draw(ax, buckets, find_edges(buckets["bucket"], freq), target)
        theme.format_dates(ax)
        ax.set(xlabel=f"Time ({tz})", ylabel="budget, share")
        rows = format_count(n, "job" if "type" in frame else "build")
        met = f"{_percent((n - missed) / n)} of {rows}"
        used = f"error budget: {_percent(missed / ((1 - target) * n))} used"
        excluded = theme.list_counts(missed=missed, undecided=buckets["undecided"], negative=buckets["n_negative"])
        short, note = f"{met} within {limit}", theme.join_notes(used, excluded)
        panel.decorate(f"{short} of {what}, target {promised}", note, short=short)

    place, heading = Placement(ax, col, row, title, tz), f"{what.capitalize()} within {limit}, target {promised},"
    return draw(summarize, paint, measured_rows(frame, of), place, heading, (9, 4.6), "x")


def _draw(ax: Axes, buckets: pd.DataFrame, edges: pd.Series[Any], target: float) -> None:
    remaining = np.append(1.0, buckets["budget_remaining"].to_numpy(np.float64))
    shares = buckets[["share", "low", "high"]].to_numpy(np.float64)
    lowest = 100 * min(float(np.nanmin(shares)), target)
    floor = next(one for one in _FLOORS if one <= lowest - 0.1 * (100 - lowest) or one == 0) / 100
    above, below = _Band(0.5, 1.0, floor, 1.0), _Band(0.0, 0.4, min(float(remaining.min()), 0.0), 1.0)
    _draw_budget(ax, edges, below, remaining)
    _draw_shares(ax, buckets, edges, above, target)
    ax.axhline(0.45, color=theme.background(ax), linewidth=2)
    labels = [(above, 1.0), (above, target), (below, 1.0), (below, 0.0), (above, floor), (below, below.low)]
    theme.label_places(ax, [(band.place(value), _percent(value)) for band, value in labels])
    ax.set_ylim(-0.02, 1.03)


def _draw_budget(ax: Axes, edges: pd.Series[Any], band: _Band, remaining: Floats) -> None:
    zero, places = band.place(0.0), band.place(remaining)
    ax.fill_between(edges, zero, places, where=remaining >= 0, interpolate=True, color=theme.GREEN, alpha=0.35,
                    linewidth=0, label="error budget remaining")  # fmt: skip
    if (remaining < 0).any():
        ax.fill_between(edges, zero, places, where=remaining <= 0, interpolate=True, color=theme.RED, alpha=0.45,
                        linewidth=0, hatch="///", label="budget exceeded")  # fmt: skip
    ax.plot(edges, places, color=theme.text_color(), linewidth=1.2)
    ax.plot(edges.iloc[[0, -1]], [zero, zero], color=theme.GRAY, linewidth=0.8)


def _draw_shares(ax: Axes, buckets: pd.DataFrame, edges: pd.Series[Any], band: _Band, target: float) -> None:
    middle = edges.iloc[:-1] + edges.diff().iloc[1:].reset_index(drop=True) / 2
    low, share, high = (band.place(buckets[name]) for name in ("low", "share", "high"))
    ax.plot(edges.iloc[[0, -1]], [band.place(target)] * 2, "--", color=theme.text_color(), linewidth=1.2,
            label=f"target {_percent(target)}")  # fmt: skip
    known = low.notna()
    if known.any():
        ax.vlines(middle[known], low[known].clip(band.bottom), high[known], color=theme.SKY, linewidth=4, alpha=0.7,
                  label="95 % interval")  # fmt: skip
    partial = buckets["partial"].fillna(False).astype(bool)
    for kind, own, face in (("share that met it", ~partial, theme.BLUE), ("not complete", partial, "none")):
        if (own & share.notna()).any():
            ax.plot(middle[own], share[own], "o", color=theme.BLUE, markerfacecolor=face, label=kind,
                    markersize=5 if len(share) <= 60 else 2.5)  # fmt: skip


def _percent(share: float) -> str:
    """Return a share in percent, such as "95.8 %" or "99.95 %"; with decimals only near 100."""
    percent = 100 * share
    text = f"{percent:,.0f}" if not 90 < percent < 100 else f"{percent:.{3 if percent < 99 else 4}g}"
    return text.replace("-", "\N{MINUS SIGN}") + " %"
