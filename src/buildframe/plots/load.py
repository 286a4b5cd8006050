"""Plot how many jobs run and how many wait, over time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_call
from buildframe.metrics.columns import Floats, timestamps
from buildframe.metrics.durations import is_script
from buildframe.plots import theme
from buildframe.plots.layout import plot_area

_FILLS = (
    (theme.BLUE, ""),
    (theme.ORANGE, ""),
    (theme.GREEN, "////"),
    (theme.SKY, "...."),
    (theme.RED, "xxxx"),
    (theme.PURPLE, "\\\\\\\\"),
)
"""Color and hatch of each queue; colors of similar luminance differ by hatch, for prints without color."""

_OTHERS = theme.GRAY, "----"
_BINS = 500  # about one per pixel
_WIDTHS = {
    1: "1 s", 5: "5 s", 15: "15 s", 60: "1 min", 300: "5 min", 900: "15 min", 1800: "30 min", 3600: "1 h", 7200: "2 h",
    4 * 3600: "4 h", 8 * 3600: "8 h", 86400: "1 day", 7 * 86400: "7 days", 28 * 86400: "28 days",
}  # fmt: skip


@checked_call
def concurrency(jobs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """
    Plot the number of running jobs over time, stacked by queue.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with `type`, `queue`, `started_at`, `finished_at`, `fetched_at` and `build_created_at`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on. Times are in UTC.

    Raises
    ------
    BadInput
        If a column is missing or a time has no zone.

    See Also
    --------
    queue_depth : The number of waiting jobs.
    buildframe.metrics.concurrency : The exact step function.

    Notes
    -----
    Areas are time-weighted means over short bins; the y axis gives the bin width. The line is the peak of all queues
    together in each bin. The legend gives the peak of all queues and of each queue. The six busiest queues have a color
    each, and the others share one. Where the plot is hatched, jobs of builds outside the frame may be missing.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> ax = plots.concurrency(jobs)
    >>> ax.get_ylabel()
    'running jobs (mean of 30 min)'
    """
    ran = timestamps(jobs, "started_at").notna() & is_script(jobs)
    return _draw_areas(metrics.concurrency(jobs), "running", ax, int(ran.sum()), "ran")


@checked_call
def queue_depth(jobs: pd.DataFrame, ax: Axes | None = None) -> Axes:
    """
    Plot the number of script jobs that wait for an agent over time, stacked by queue.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with `type`, `queue`, `runnable_at`, `started_at`, `finished_at`, `fetched_at` and `build_created_at`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on. Times are in UTC.

    Raises
    ------
    BadInput
        If a column is missing or a time has no zone.

    See Also
    --------
    concurrency : The number of running jobs, drawn in the same way.
    buildframe.metrics.queue_depth : The exact step function.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> ax = plots.queue_depth(jobs)
    >>> ax.get_ylabel()
    'waiting jobs (mean of 30 min)'
    """
    waited = timestamps(jobs, "runnable_at").notna() & is_script(jobs)
    return _draw_areas(metrics.queue_depth(jobs), "waiting", ax, int(waited.sum()), "became runnable")


def _draw_areas(changes: pd.DataFrame, count: str, ax: Axes | None, n: int, did: str) -> Axes:
    changes = changes.assign(queue=changes["queue"].fillna(theme.NO_NAME))
    with theme.themed_axes(ax, 10, 4.2) as ax:
        if not (changes[count] > 0).any():
            return theme.show_message(ax, f"No job was {count}.")
        edges, width = _choose_bins(changes["at"])
        means = _compute_means(changes, count, edges)
        _draw_stack(ax, edges, means, changes.groupby("queue")[count].max())
        peaks, at = _compute_peaks(changes, count, edges), pd.to_datetime(edges, unit="s")
        ax.hlines(peaks, at[:-1], at[1:], color=theme.text_color(), linewidth=1, label=f"peak, max {peaks.max():,.0f}")
        ax.set_ylim(0, 1.05 * peaks.max())
        _hatch_incomplete_times(ax, changes)
        theme.format_dates(ax)
        ax.set(xlabel="UTC", ylabel=f"{count} jobs (mean of {width})")
        theme.decorate(ax, f"{count.capitalize()} jobs by queue", f"{format_count(n, 'job')} {did}", grid="y")
    return ax


def _choose_bins(at: pd.Series[Any]) -> tuple[Floats, str]:
    """Return the bin edges in seconds since 1970, and the bin width as text."""
    first, last = at.min().timestamp(), at.max().timestamp()
    width = next((seconds for seconds in _WIDTHS if (last - first) / seconds <= _BINS), max(_WIDTHS))
    start = first // width * width
    return start + width * np.arange(int((last - start) // width) + 2, dtype=np.float64), _WIDTHS[width]


def _compute_means(changes: pd.DataFrame, count: str, edges: Floats) -> pd.DataFrame:
    """Return the mean of each bin (rows) and queue (columns), the queue with the largest area first."""
    end = changes["at"].max().timestamp()
    means = {}
    for queue, own in changes.sort_values("at", kind="stable").groupby("queue"):
        at = np.append(own["at"].astype("int64").to_numpy() / 1e6, end)
        area = np.append(0, np.cumsum(own[count].to_numpy(np.float64) * np.diff(at)))
        means[queue] = np.diff(np.interp(edges, at, area)) / np.diff(edges)
    by_queue = pd.DataFrame(means)
    return by_queue[by_queue.sum().sort_values(ascending=False, kind="stable").index]


def _compute_peaks(changes: pd.DataFrame, count: str, edges: Floats) -> Floats:
    """Return the maximum of all queues together in each bin."""
    ordered = changes.sort_values("at", kind="stable")
    steps = ordered.groupby("queue")[count].diff().fillna(ordered[count]).astype("float64")
    levels = steps.groupby(ordered["at"]).sum().cumsum()
    at = levels.index.astype("int64").to_numpy() / 1e6
    bin_of, level = np.searchsorted(edges, at, side="right") - 1, levels.to_numpy()
    last = np.searchsorted(at, edges[:-1], side="right") - 1  # the level at which each bin starts
    peaks = np.where(last >= 0, level[last], 0.0)
    np.maximum.at(peaks, bin_of, level)
    return peaks


def _draw_stack(ax: Axes, edges: Floats, means: pd.DataFrame, peaks: pd.Series[int]) -> None:
    own, others = list(means.columns[: len(_FILLS)]), list(means.columns[len(_FILLS) :])
    names = theme.unique_labels(means.columns, 24 if plot_area(ax)[0] > 300 else 14)
    areas = [means[queue] for queue in own] + ([means[others].sum(axis=1)] if others else [])
    labels = {queue: f" {name}" if name.startswith("_") else name for queue, name in names.items()}  # legends drop "_"
    texts = [f"{labels[queue]}, max {peaks[queue]:,}" for queue in own]
    texts += [f"{format_count(len(others), 'other queue')}"] if others else []
    fills = dict(zip(sorted(own), _FILLS, strict=False))  # by name, so that a queue has the same color in all plots
    colors, hatches = zip(*(fills[queue] for queue in own), *([_OTHERS] if others else []), strict=True)
    at = pd.to_datetime(edges, unit="s").to_numpy()
    ax.stackplot(at, [np.append(area, area.iloc[-1]) for area in areas], labels=texts, step="post",
                 colors=colors, hatch=hatches, edgecolor=theme.background(ax), alpha=0.85, linewidth=0)  # fmt: skip
    ax.set_xlim(at[0], at[-1])


def _hatch_incomplete_times(ax: Axes, changes: pd.DataFrame) -> None:
    """Hatch the times in which jobs of builds outside the frame may be missing."""
    whole = changes.assign(whole=changes["whole"].fillna(False).astype(bool)).groupby("at")["whole"].first()
    at = whole.index.tz_localize(None).append(pd.DatetimeIndex([changes["at"].max().tz_localize(None)]))  # type: ignore[attr-defined]
    turns = np.flatnonzero(np.diff(~whole.to_numpy(), prepend=False, append=False))
    for k, (begin, end) in enumerate(zip(at[turns[::2]], at[turns[1::2]], strict=True)):
        ax.axvspan(begin, end, facecolor="none", edgecolor=theme.text_color(), alpha=0.35, hatch="///", linewidth=0,
                   label="_" * k + "jobs of other builds may be missing")  # fmt: skip
