"""Plot how many jobs run and how many wait, over time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import date2num
from matplotlib.ticker import MaxNLocator

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import Floats, timestamps
from buildframe.metrics.durations import is_script
from buildframe.metrics.grouping import Key
from buildframe.metrics.time_buckets import to_zone
from buildframe.plots import theme
from buildframe.plots.groups import GROUP, by_phrase, choose_groups, key_name
from buildframe.plots.layout import axes_cell, font_points, plot_area, points_per_pixel
from buildframe.plots.names import SEPARATOR
from buildframe.plots.panels import Panel, Placement, draw, draw_rows
from buildframe.plots.scope import describe_scope

_POINTS_PER_BIN = 9.0
_MOST_BINS = 65
_BESIDE = 70.0  # points beside the plot
_WIDTHS = {
    1: "1 s", 5: "5 s", 15: "15 s", 60: "1 min", 300: "5 min", 900: "15 min", 1800: "30 min", 3600: "1 h", 7200: "2 h",
    3 * 3600: "3 h", 6 * 3600: "6 h", 12 * 3600: "12 h", 86400: "1 day", 7 * 86400: "7 days", 28 * 86400: "28 days",
}  # fmt: skip
_ROW = 1.45  # inches
_SAME_AGENTS = 1.25
"""Agents are taken as a fixed number if there are at most so many times as many as jobs that ran at once."""


class _Kind(NamedTuple):
    """What is counted: the metric, its column, what jobs did to be counted, and from when."""

    measure: Callable[..., pd.DataFrame]
    column: str
    did: str
    begin: str


class _Load(NamedTuple):
    changes: pd.DataFrame
    n: int
    capacity: tuple[int, str] | None


_RUNNING = _Kind(metrics.concurrency, "running", "ran", "started_at")
_WAITING = _Kind(metrics.queue_depth, "waiting", "became runnable", "runnable_at")


@checked_frames
def concurrency(
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    by: Key | None = "queue",
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
    top: int = 8,
) -> Any:
    """
    Plot the number of running jobs over time, in a row of Axes for each queue.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with `type`, `queue`, `started_at`, `finished_at`, `fetched_at` and `build_created_at`. The number of
        agents needs `agent_id`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw the jobs of all queues on together. By default a new figure is created.
    by : str or function, default "queue"
        Key that defines the rows of Axes. None draws all jobs on one Axes.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`). Each
        shows the jobs of all queues together.
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the times.
    top : int, default 8
        Maximum number of rows of Axes: the groups with the most jobs. The note counts the others.

    Returns
    -------
    numpy.ndarray of matplotlib.axes.Axes
        One Axes for each queue, or for each group of `col` and `row`; one Axes with `ax`, or if `by` is None.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `tz` is unknown, or `ax` is used with `col` or `row`.

    See Also
    --------
    queue_depth : The number of waiting jobs.
    buildframe.metrics.concurrency : The exact step function.

    Notes
    -----
    The blue line is the peak of each bucket of time, the green one its mean over time, and the filled area its median;
    the note gives the length of the buckets. In long buckets with nights the median can be 0; the mean then shows how
    busy the agents were. The dashed line is the capacity: the number of agents that ran jobs, or, if agents come and
    go, the most jobs that ran at once. Where the plot is hatched, jobs of builds outside the frame may be missing. Each
    row has its own scale of jobs.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> axes = plots.concurrency(jobs)
    >>> axes[0].get_title(loc="left"), axes[0].get_ylabel()
    ('default', 'jobs')
    """
    return _draw(jobs, _RUNNING, by, Placement(ax, col, row, title, tz), top)


@checked_frames
def queue_depth(
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    by: Key | None = "queue",
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
    top: int = 8,
) -> Any:
    """
    Plot the number of script jobs that wait for an agent over time, in a row of Axes for each queue.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with `type`, `queue`, `runnable_at`, `started_at`, `finished_at`, `fetched_at` and `build_created_at`. The
        number of agents needs `agent_id`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw the jobs of all queues on together. By default a new figure is created.
    by : str or function, default "queue"
        Key that defines the rows of Axes. None draws all jobs on one Axes.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`). Each
        shows the jobs of all queues together.
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the times.
    top : int, default 8
        Maximum number of rows of Axes: the groups with the most jobs. The note counts the others.

    Returns
    -------
    numpy.ndarray of matplotlib.axes.Axes
        One Axes for each queue, or for each group of `col` and `row`; one Axes with `ax`, or if `by` is None.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `tz` is unknown, or `ax` is used with `col` or `row`.

    See Also
    --------
    concurrency : The number of running jobs, drawn in the same way.
    buildframe.metrics.queue_depth : The exact step function.

    Notes
    -----
    As for `concurrency`. The capacity is drawn if it is not far above the number of jobs that waited.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d")
    >>> ax = plots.queue_depth(jobs, by=None)
    >>> ax.get_ylabel()
    'jobs'
    """
    return _draw(jobs, _WAITING, by, Placement(ax, col, row, title, tz), top)


def _draw(jobs: pd.DataFrame, kind: _Kind, by: Key | None, place: Placement, top: int) -> Any:
    theme.check_positive(top=top)
    heading, hidden = f"{kind.column.capitalize()} jobs", ""

    def summarize(rows: pd.DataFrame) -> _Load:
        changes = kind.measure(rows, by=None)
        return _measure(rows, kind, changes, changes if kind is _RUNNING else metrics.concurrency(rows, by=None))

    def paint(one: _Load, panel: Panel[_Load]) -> None:
        _paint(one, panel, kind, place.tz, heading, hidden)

    if place.is_grid or place.ax is not None or by is None:
        if place.is_grid:  # steps that need no agent have no queue
            jobs = jobs[is_script(jobs)]
        return draw(summarize, paint, jobs, place, heading, (9, 4.2), "xy")
    groups = choose_groups(jobs[timestamps(jobs, kind.begin).notna() & is_script(jobs)], by, top)
    changes, rows = kind.measure(groups.frame, by=GROUP), groups.frame
    names = [name for name in groups.styles if (changes[kind.column][changes[GROUP] == name] > 0).any()]
    if len(names) < 2:
        if names:
            heading, hidden = f"{heading} of {key_name(by)} {groups.labels[names[0]].strip()}", groups.hidden
        own = rows[rows[GROUP].isin(names)] if names else jobs
        return np.array([draw(summarize, paint, own, place, heading, (9, 3.6))], dtype=object)
    running = changes if kind is _RUNNING else metrics.concurrency(rows, by=GROUP)
    parts = {name: [frame[frame[GROUP] == name] for frame in (rows, changes, running)] for name in names}
    each = [(groups.labels[name].strip(), _measure(own, kind, *both)) for name, (own, *both) in parts.items()]
    each = sorted(each, key=lambda one: -one[1].n)
    title = place.title or SEPARATOR.join(filter(None, [f"{heading}{by_phrase(by)}", describe_scope(jobs, place.tz)]))
    return draw_rows(each, paint, title, groups.hidden, _ROW)


def _measure(jobs: pd.DataFrame, kind: _Kind, changes: pd.DataFrame, running: pd.DataFrame) -> _Load:
    counted = timestamps(jobs, kind.begin).notna() & is_script(jobs)
    return _Load(changes, int(counted.sum()), _find_capacity(jobs, running["running"]))


def _find_capacity(jobs: pd.DataFrame, running: pd.Series[int]) -> tuple[int, str] | None:
    """Return the number of agents, and what it is; None if no job ran."""
    most = int(running.max()) if len(running) else 0
    ran = jobs[timestamps(jobs, "started_at").notna() & is_script(jobs)]
    agents = int(ran["agent_id"].nunique()) if "agent_id" in ran else 0
    if not most:
        return None
    return (agents, "agents") if most <= agents <= _SAME_AGENTS * most else (most, "most at once")


def _paint(one: _Load, panel: Panel[_Load], kind: _Kind, tz: str, heading: str, hidden: str) -> None:
    ax = panel.ax
    if not (one.changes[kind.column] > 0).any():
        panel.show_message(f"No job was {kind.column}.")
        return
    times = pd.concat([other.changes["at"] for other in panel.summaries])
    room = axes_cell(ax).width * points_per_pixel(ax) - _BESIDE
    edges, width = _choose_bins(times, int(np.clip(room / _POINTS_PER_BIN, 32, _MOST_BINS)))
    peaks, medians, means = summarize_bins(one.changes, kind.column, edges)
    at = date2num(_local(edges, tz))  # type: ignore[no-untyped-call]
    ax.stairs(medians, at, fill=True, color=theme.BLUE, alpha=0.5, linewidth=0, label="median")
    ax.stairs(means, at, color=theme.GREEN, linewidth=theme.line_width(1.2), label="mean")
    ax.stairs(peaks, at, color=theme.BLUE, linewidth=theme.line_width(1.2), label="peak")
    most = float(peaks.max())
    if one.capacity is not None and (kind is _RUNNING or one.capacity[0] <= 1.5 * most):
        label = "capacity" if panel.is_cell else f"capacity: {one.capacity[0]:,} ({one.capacity[1]})"
        ax.axhline(one.capacity[0], color=theme.ORANGE, linestyle="--", linewidth=1.4, label=label)
        most = max(most, one.capacity[0])
    ax.set_ylim(0, 1.12 * most)
    most_ticks = int(np.clip(plot_area(ax)[1] / font_points(22), 1, 6))
    ax.yaxis.set_major_locator(MaxNLocator(most_ticks, integer=True, steps=[1, 2, 5, 10]))
    ax.set_xlim(at[0], at[-1])
    _hatch_incomplete_times(ax, one.changes, tz)
    theme.format_dates(ax)
    ax.set(xlabel=tz, ylabel="jobs")
    n = f"{format_count(one.n, 'job')} {kind.did}"
    capacity = "" if one.capacity is None else f"capacity {one.capacity[0]:,} ({one.capacity[1]})"
    short = theme.join_notes(n, f"peak {peaks.max():,.0f}", capacity)
    key = f"peak, mean and median of each {width}"
    panel.decorate(heading, "" if panel.is_cell else theme.join_notes(short, hidden), "y", short, key)


def _local(seconds: Floats, tz: str) -> Any:
    """Return seconds since 1970 as naive times of the zone."""
    times: Any = pd.Series(pd.to_datetime(seconds, unit="s", utc=True))
    return to_zone(times, tz).dt.tz_localize(None).to_numpy()


def _choose_bins(at: pd.Series[Any], most: int) -> tuple[Floats, str]:
    """Return the bin edges in seconds since 1970, and the bin width as text."""
    first, last = at.min().timestamp(), at.max().timestamp()
    width = next((seconds for seconds in _WIDTHS if (last - first) / seconds <= most), max(_WIDTHS))
    start = first // width * width
    return start + width * np.arange(int((last - start) // width) + 2, dtype=np.float64), _WIDTHS[width]


def summarize_bins(changes: pd.DataFrame, count: str, edges: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the maximum, and the median and mean over time, of a step function in each bin; it is 0 outside."""
    ordered = changes.sort_values("at", kind="stable").drop_duplicates("at", keep="last")
    at, levels = ordered["at"].astype("int64").to_numpy() / 1e6, ordered[count].to_numpy(np.float64)
    begins = np.unique(np.concatenate([at, edges[:-1]]))
    begins = begins[begins < edges[-1]]
    place = np.searchsorted(at, begins, side="right") - 1
    level = np.where((place >= 0) & (begins < at[-1]), levels[np.maximum(place, 0)], 0.0)
    lasting = np.diff(np.append(begins, edges[-1]))
    bin_of = np.searchsorted(edges, begins, side="right") - 1
    peaks = np.zeros(len(edges) - 1)
    np.maximum.at(peaks, bin_of, level)
    order = np.lexsort((level, bin_of))
    passed = np.cumsum(lasting[order])
    middle = np.concatenate([[0.0], passed[np.flatnonzero(np.diff(bin_of[order]))]]) + np.diff(edges) / 2
    medians = level[order][np.minimum(np.searchsorted(passed, middle - 1e-9), len(order) - 1)]
    means: Floats = np.bincount(bin_of, level * lasting, len(edges) - 1) / np.diff(edges)
    return peaks, medians, means


def _hatch_incomplete_times(ax: Axes, changes: pd.DataFrame, tz: str) -> None:
    """Hatch the times in which jobs of builds outside the frame may be missing."""
    whole = changes.assign(whole=changes["whole"].fillna(False).astype(bool)).groupby("at")["whole"].first()
    seconds = np.append(whole.index.astype("int64").to_numpy() / 1e6, changes["at"].max().timestamp())
    at = _local(seconds, tz)
    turns = np.flatnonzero(np.diff(~whole.to_numpy(), prepend=False, append=False))
    for k, (begin, end) in enumerate(zip(at[turns[::2]], at[turns[1::2]], strict=True)):
        ax.axvspan(begin, end, facecolor="none", edgecolor=theme.text_color(), alpha=0.3, hatch="///", linewidth=0,
                   label="_" * k + "jobs may be missing")  # fmt: skip
