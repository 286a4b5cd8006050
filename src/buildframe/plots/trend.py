"""Plot the wall time of builds over time. Also has the line style that plots of a rate over time share."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_call
from buildframe.plots import theme


@checked_call
def duration_trend(builds: pd.DataFrame, ax: Axes | None = None, freq: str = "1D", tz: str = "UTC") -> Axes:
    """
    Plot the wall time of builds over time: median and 95th percentile per bucket.

    The line is the median. The band reaches from the median to the 95th percentile.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with `created_at`, `finished_at` and `fetched_at`. The columns `blocked` and `state` are used if present.
        Filter the frame first to compare like with like, for example `builds[builds["state"] == "passed"]`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    freq : str, default "1D"
        Pandas frequency of the buckets, such as "1h", "1D" or "W-MON". Builds are assigned by creation time.
    tz : str, default "UTC"
        Time zone in which buckets start.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, or `freq` or `tz` is unknown.

    See Also
    --------
    buildframe.metrics.trend : The numbers of this plot.
    distribution : All durations of a period.

    Notes
    -----
    A bucket needs 2 finished builds for a median and 20 for a 95th percentile. A hollow dot marks a bucket that had not
    ended when the builds were fetched. Unfinished and blocked builds count as censored; the title area gives their
    number.

    Examples
    --------
    >>> builds = ci.builds(created_from="14d")
    >>> ax = plots.duration_trend(builds)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('Day created (UTC)', 'wall time (minutes)')
    """
    buckets = metrics.trend(builds, freq=freq, tz=tz)
    n = theme.column_total(buckets, "n")
    with theme.themed_axes(ax, 9, 4.2) as ax:
        if buckets["p50_s"].isna().all():
            return theme.show_message(ax, no_median_message(n, "builds in a bucket"))
        _draw(ax, buckets)
        theme.widen_single_bucket(ax, buckets["bucket"], freq)
        theme.format_dates(ax)
        ax.set(xlabel=theme.created_label(freq, tz), ylabel="wall time (minutes)")
        excluded = theme.list_counts(not_finished=buckets["n_censored"], negative=buckets["n_negative"])
        theme.decorate(ax, f"Wall time of {format_count(n, 'build')}", excluded, grid="y")
    return ax


def no_median_message(n: int, what: str) -> str:
    """Return the sentence that replaces a plot of medians without data."""
    return f"A median needs two finished {what}." if n else "Nothing has finished."


def _draw(ax: Axes, buckets: pd.DataFrame) -> None:
    at = buckets["bucket"].dt.tz_localize(None).to_numpy()
    p50, p95 = buckets["p50_s"].to_numpy() / 60, buckets["p95_s"].to_numpy() / 60
    partial = buckets["partial"].fillna(False).to_numpy(bool)
    if not np.isnan(p95).all():
        draw_band(ax, at, p50, p95, "median to p95 (buckets of 20 or more)")
    draw_line(ax, at, p50, partial, "median")
    if np.nanmin(p50) >= 0:
        ax.set_ylim(bottom=0)


def draw_band(ax: Axes, at: Any, low: Any, high: Any, label: str) -> None:
    """Draw a band between two values per bucket, with a bar for each bucket that has no neighbor."""
    ax.fill_between(at, low, high, color=theme.SKY, alpha=0.35, linewidth=0, label=label)
    has_value = np.pad(~np.isnan(high), 1)
    alone = has_value[1:-1] & ~has_value[:-2] & ~has_value[2:]
    ax.vlines(at[alone], low[alone], high[alone], color=theme.SKY, alpha=0.6, linewidth=4)


def draw_line(ax: Axes, at: Any, values: Any, partial: npt.NDArray[np.bool_], label: str) -> None:
    """Draw a value per bucket as a line with dots; the dots of unfinished buckets are hollow."""
    ax.plot(at, values, color=theme.BLUE, linewidth=1.8, label=label)
    ax.plot(at[~partial], values[~partial], "o", color=theme.BLUE, markersize=5 if len(at) <= 60 else 2.5)
    if partial.any():
        ax.plot(at[partial], values[partial], "o", color=theme.BLUE, markerfacecolor=theme.background(ax), markersize=7,
                label="bucket not complete")  # fmt: skip
