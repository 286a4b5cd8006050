"""Plot the wall time of builds over time, and how often they pass, with the outages of branches below."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_call
from buildframe.metrics.columns import column, timestamps
from buildframe.plots import theme
from buildframe.plots.layout import POINTS_PER_LABEL, max_characters, plot_area

_MOST_LANES = 10
_LANE = 8  # minimum height of a lane in percentage points
_LEAST = 70  # minimum height of the rates in points
_PERCENTS = range(0, 101, 20)


@checked_call
def duration_trend(
    builds: pd.DataFrame,
    ax: Axes | None = None,
    freq: str = "1D",
    tz: str = "UTC",
    changes: pd.DataFrame | None = None,
) -> Axes:
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
    changes : pandas.DataFrame, optional
        Result of `metrics.change_points` of these builds. A dashed line marks each change, and a shaded span its 95 %
        interval.

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
    buildframe.metrics.change_points : When the wall time changed.
    distribution : All durations of a period.

    Notes
    -----
    A bucket needs 2 builds for a median and 20 for a 95th percentile. A hollow dot marks a bucket that had not ended
    when the builds were fetched. Unfinished and blocked builds count for as long as they were seen; the title area
    gives their number. If there are too many of them, a percentile is unknown, and the note counts these buckets.

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
            return theme.show_message(ax, theme.no_median_message(n, "builds in a bucket"))
        p50, p95 = buckets["p50_s"] / 60, buckets["p95_s"] / 60
        if p95.notna().any():
            _draw_band(ax, buckets, p50, p95, "median to p95 (buckets of 20 or more)")
        _draw_line(ax, buckets, p50, "median")
        if changes is not None:
            _draw_changes(ax, changes, tz)
        if p50.min() >= 0:
            ax.set_ylim(bottom=0)
        theme.widen_single_bucket(ax, buckets["bucket"], freq)
        theme.format_dates(ax)
        ax.set(xlabel=theme.created_label(freq, tz), ylabel="wall time (minutes)")
        excluded = theme.list_counts(not_finished=buckets["n_censored"], negative=buckets["n_negative"])
        n_unknown = int(buckets["p95_at_least_s"].notna().sum())
        unknown = f"p95 unknown in {format_count(n_unknown, 'bucket')} for that reason" if n_unknown else ""
        note = theme.join_notes(excluded, unknown)
        theme.decorate(ax, f"Wall time of {format_count(n, 'build')}", note, grid="y")
    return ax


@checked_call
def success_trend(
    builds: pd.DataFrame,
    ax: Axes | None = None,
    freq: str = "1D",
    tz: str = "UTC",
    branch: str | None = None,
    pipelines: pd.DataFrame | None = None,
) -> Axes:
    """
    Plot the success rate of builds over time, with the outages of a branch below.

    The band around the rate is its 95 % interval. With `branch` or `pipelines`, each pipeline has a lane below the
    rate. Red spans mark the times when its branch was failing. The orange line before a span begins at the end of the
    last build that passed. If a commit caused the outage, it was pushed after the commit of that build; if builds
    overlap, this can be before the line begins.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with `state`, `blocked`, `created_at` and `fetched_at`. Outages also need `pipeline`, `branch`, `number`
        and `finished_at`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    freq : str, default "1D"
        Pandas frequency of the buckets, such as "1h", "1D" or "W-MON". Builds are assigned by creation time.
    tz : str, default "UTC"
        Time zone in which buckets start.
    branch : str, optional
        Count only builds of this branch, and show its outages.
    pipelines : pandas.DataFrame, optional
        Result of `ws.pipelines()`. Count only builds of each pipeline's default branch, and show its outages.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, or `freq`, `tz` or the branch is unknown.

    See Also
    --------
    buildframe.metrics.success_trend : The rates of this plot.
    buildframe.metrics.outages : The outages of this plot.

    Notes
    -----
    The rate is passed ÷ (passed + failed) builds. A bucket needs builds in five of eight spans of its time for an
    interval. A hollow dot marks a bucket that had not ended when the builds were
    fetched. An arrow ends an outage that is still open. Up to ten pipelines have a lane: those that were failing
    longest. The note counts the others.

    Examples
    --------
    >>> builds = ci.builds(created_from="14d")
    >>> ax = plots.success_trend(builds, branch="main")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('Day created (UTC)', 'builds that passed')
    """
    outages = None
    if branch is not None or pipelines is not None:
        outages = metrics.outages(builds, branch=branch, pipelines=pipelines)
        names = [name for name in ("organization", "pipeline", "branch") if name in outages]
        selected = metrics.recovery_time(builds, branch=branch, pipelines=pipelines)[names]
        builds = builds[pd.MultiIndex.from_frame(builds[names]).isin(pd.MultiIndex.from_frame(selected))]
    buckets = metrics.success_trend(builds, freq=freq, tz=tz)
    lanes = [] if outages is None else _choose_lanes(outages)
    with theme.themed_axes(ax, 9, 3.8 + 0.22 * len(lanes)) as ax:
        lanes = lanes[: max(int((plot_area(ax)[1] - _LEAST) / POINTS_PER_LABEL), 0)]
        if buckets["rate"].isna().all():
            return theme.show_message(ax, "No build passed or failed.")
        _draw_band(ax, buckets, 100 * buckets["low"], 100 * buckets["high"], "95% interval")
        _draw_line(ax, buckets, 100 * buckets["rate"], "success rate")
        _set_percents(ax, {}, 0)
        if outages is not None:
            _draw_lanes(ax, outages, lanes, tz)
        theme.widen_single_bucket(ax, buckets["bucket"], freq)
        theme.format_dates(ax)
        ax.set(xlabel=theme.created_label(freq, tz), ylabel="builds that passed")
        passed, failed = theme.column_total(buckets, "passed"), theme.column_total(buckets, "failed")
        note = f"{passed:,} passed, {failed:,} failed" + ("" if outages is None else _note(outages, lanes))
        on = f" on {theme.drawable(branch, 30)}" if branch else "" if pipelines is None else " on default branches"
        theme.decorate(ax, f"Success rate of {format_count(passed + failed, 'build')}{on}", note)
        ax.grid(axis="y", color=theme.grid_color(), linewidth=0.8)
    return ax


def _pipeline_names(frame: pd.DataFrame) -> pd.Series[str]:
    """Return pipeline names, prefixed with the organization if the frame has several."""
    if "organization" not in frame:
        return frame["pipeline"]
    return theme.prefix_if_several(frame["pipeline"], frame["organization"])


def _choose_lanes(outages: pd.DataFrame) -> list[str]:
    """Return the pipelines that were failing longest, the longest first."""
    seconds = outages["seen_s"].groupby(_pipeline_names(outages)).sum()
    return list(seconds.sort_values(ascending=False, kind="stable").index)[:_MOST_LANES]


def _note(outages: pd.DataFrame, lanes: list[str]) -> str:
    if outages.empty:
        return "; no outage"
    n = _pipeline_names(outages).nunique()
    total = f"; {format_count(len(outages), 'outage')} of {format_count(n, 'pipeline')}"
    hidden = theme.count_note(n - len(lanes), "pipeline", "not shown")
    return ", ".join(part for part in (total, theme.list_counts(still_open=int(outages["open"].sum())), hidden) if part)


def _draw_lanes(ax: Axes, outages: pd.DataFrame, lanes: list[str], tz: str) -> None:
    height = plot_area(ax)[1]  # a lane has room for its label
    lane = max(_LANE, 103 * POINTS_PER_LABEL / max(height - POINTS_PER_LABEL * (len(lanes) + 0.7), 1))
    begin = outages["failed_at"].dt.tz_convert(tz).dt.tz_localize(None)
    ends = {"begin": begin, "end": begin + pd.to_timedelta(outages["seen_s"], unit="s"), "open": outages["open"]}
    ends["good"] = outages["last_good_at"].dt.tz_convert(tz).dt.tz_localize(None).clip(upper=begin)
    lane_of = {name: -lane * (k + 1) for k, name in enumerate(lanes)}
    spans = pd.DataFrame(ends).assign(y=_pipeline_names(outages).map(lane_of)).dropna(subset="y")
    suspect = spans[spans["good"] < spans["begin"]]
    if len(suspect):
        ax.hlines(suspect["y"], suspect["good"], suspect["begin"], color=theme.ORANGE, linewidth=2,
                  label="last good build to first failed one")  # fmt: skip
    if len(spans):
        ax.barh(spans["y"], spans["end"] - spans["begin"], 0.6 * lane, left=spans["begin"], color=theme.RED,
                edgecolor=theme.RED, linewidth=1, label="branch failing")  # fmt: skip
    still = spans[spans["open"].fillna(False).astype(bool)]
    if len(still):
        ax.plot(still["end"], still["y"], ">", color=theme.text_color(), markersize=5, label="still failing")
    names = theme.unique_labels(lanes, max_characters(ax, 24))
    ax.axhline(0, color=theme.grid_color(), linewidth=0.8)
    _set_percents(ax, {y: names[name] for name, y in lane_of.items()}, -lane * (len(lanes) + 0.7) if lanes else 0)


def _set_percents(ax: Axes, others: dict[float, str], bottom: float) -> None:
    """Label the y axis with percentages, and other places below them."""
    ticks = {float(percent): f"{percent}%" for percent in _PERCENTS} | others
    ax.set_yticks(list(ticks), list(ticks.values()), parse_math=False)
    ax.set_ylim(bottom, 103)


def _draw_changes(ax: Axes, changes: pd.DataFrame, tz: str) -> None:
    """Mark changes of a duration, with the intervals of their times."""
    local = {
        name: timestamps(changes, name).dt.tz_convert(tz).dt.tz_localize(None) for name in ("at", "at_low", "at_high")
    }
    is_longer = column(changes, "p50_change_s") > 0
    for at, low, high, longer in zip(*local.values(), is_longer, strict=True):
        ax.axvspan(low, high, color=theme.text_color(), alpha=0.12, linewidth=0)
        label = f"{'longer' if longer else 'shorter'} since {at.day} {at:%b}"
        ax.axvline(at, color=theme.text_color(), linestyle="--", linewidth=1.2, label=label)


def _draw_band(ax: Axes, buckets: pd.DataFrame, low: Any, high: Any, label: str) -> None:
    """Draw a band between two values per bucket, with a bar for each bucket that has no neighbor."""
    at = buckets["bucket"].dt.tz_localize(None)
    ax.fill_between(at, low, high, color=theme.SKY, alpha=0.35, linewidth=0, label=label)
    has_value = np.pad(high.notna(), 1)
    alone = has_value[1:-1] & ~has_value[:-2] & ~has_value[2:]
    ax.vlines(at[alone], low[alone], high[alone], color=theme.SKY, alpha=0.6, linewidth=4)


def _draw_line(ax: Axes, buckets: pd.DataFrame, values: Any, label: str) -> None:
    """Draw a value per bucket as a line with dots; the dots of unfinished buckets are hollow."""
    at, partial = buckets["bucket"].dt.tz_localize(None), buckets["partial"].fillna(False).astype(bool)
    ax.plot(at, values, color=theme.BLUE, linewidth=1.8, label=label)
    ax.plot(at[~partial], values[~partial], "o", color=theme.BLUE, markersize=5 if len(at) <= 60 else 2.5)
    if (partial & values.notna()).any():
        ax.plot(at[partial], values[partial], "o", color=theme.BLUE, markerfacecolor=theme.background(ax), markersize=7,
                label="bucket not complete")  # fmt: skip
