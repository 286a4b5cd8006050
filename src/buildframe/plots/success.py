"""Plot how often builds pass over time, with the outages of branches below."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import date2num

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.forks import without_forks
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.buckets import Begin, choose_buckets, find_middles, mark_begin
from buildframe.plots.groups import GROUP, GroupStyle, ShownGroups, by_phrase, choose_groups
from buildframe.plots.header import mark_label
from buildframe.plots.layout import font_points, label_height, max_characters, plot_area
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.trend import add_to_legend, draw_band
from buildframe.terminal import nearest_name

_MOST_LANES = 10
_LANE = 8  # minimum height of a lane in percentage points
_LEAST = 45  # minimum height of the rates in points
_BELOW = 56  # points for the labels of the time axis, and for a title of several lines
_PERCENTS = {20: 90.0, 50: 0.0}
"""Steps of the labels of rates, and the height in points from which they are used."""

_BUILDS = 10  # in most buckets
_LEAST_BUILDS = 5  # of a bucket on the line
_FEW = f"fewer than {_LEAST_BUILDS} builds"


@checked_frames
def success_trend(
    builds: pd.DataFrame,
    ax: Axes | None = None,
    freq: str | None = None,
    tz: str = "UTC",
    branch: str | None = None,
    pipelines: pd.DataFrame | None = None,
    by: Key | None = None,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    top: int = 6,
) -> Any:
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
    freq : str, optional
        Pandas frequency of the buckets, such as "1h", "1D" or "W-MON". Builds are assigned by creation time. By default
        the shortest buckets of which most have ten builds, or else fewer.
    tz : str, default "UTC"
        Time zone in which buckets start.
    branch : str, optional
        Count only builds of this branch, without those from forks, and show its outages.
    pipelines : pandas.DataFrame, optional
        Result of `ws.pipelines()`. Count only builds of each pipeline's default branch, and show its outages.
    by : str or function, optional
        Key that defines a line for each group. By default all builds form one group.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    top : int, default 6
        Maximum number of groups of `by`: those with the most builds. The note counts the others.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `freq`, `tz` or the branch is unknown, or `ax` is used with `col` or
        `row`.

    See Also
    --------
    buildframe.metrics.success_trend : The rates of this plot.
    buildframe.metrics.outages : The outages of this plot.

    Notes
    -----
    The rate is passed ÷ (passed + failed) builds. A bucket needs builds in five of eight spans of its time for an
    interval. The line leads over buckets with fewer than five builds, such as weekends; each is a small hollow point. A
    large hollow point marks a bucket that had not ended when the builds were fetched, or inside which they begin. An
    arrow ends an outage that is still open. Up to ten pipelines have a lane: those that fail now, then those that were
    failing longest. The note counts the others.

    Examples
    --------
    >>> builds = ci.builds(created_from="14d")
    >>> ax = plots.success_trend(builds, branch="main")
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('Day created (UTC)', 'builds that passed')
    """
    groups = choose_groups(_select_branches(builds, branch, pipelines), by, top, (col, row))
    nothing = _nothing(builds, branch)
    freq, begin = choose_buckets(groups, "created_at", freq, tz, _BUILDS, (col, row))
    has_outages = branch is not None or pipelines is not None

    def summarize(rows: pd.DataFrame) -> _Rates:
        outages = metrics.outages(rows, branch=branch, pipelines=pipelines) if has_outages else None
        each = [
            mark_begin(metrics.success_trend(own, freq=freq, tz=tz), begin).assign(**{GROUP: name})
            for name, own in [(name, rows[rows[GROUP] == name]) for name in groups.styles]
        ]
        return _Rates(pd.concat(each, ignore_index=True), outages, [] if outages is None else _choose_lanes(outages))

    def paint(one: _Rates, panel: Panel[_Rates]) -> None:
        if one.buckets["rate"].isna().all():
            panel.show_message(nothing)
        else:
            _paint(one, panel, groups, freq, begin, tz, branch, pipelines is not None)

    def size(one: _Rates) -> tuple[float, float]:
        return 9, 3.8 + 0.22 * len(one.lanes)

    place, heading = Placement(ax, col, row, title, tz), f"Success rate{by_phrase(by) and by_phrase(by) + ','}"
    return draw(summarize, paint, groups.frame, place, heading, size, "x" if has_outages else "xy")


class _Rates(NamedTuple):
    buckets: pd.DataFrame
    outages: pd.DataFrame | None
    lanes: list[str]


def _select_branches(builds: pd.DataFrame, branch: str | None, pipelines: pd.DataFrame | None) -> pd.DataFrame:
    """Return the builds of the branch, or of the default branches of the pipelines."""
    if branch is None and pipelines is None:
        return builds
    selected = metrics.recovery_time(builds, branch=branch, pipelines=pipelines)
    names = [name for name in ("organization", "pipeline", "branch") if name in selected]
    builds = without_forks(builds, pipelines)
    return builds[pd.MultiIndex.from_frame(builds[names]).isin(pd.MultiIndex.from_frame(selected[names]))]


def _nothing(builds: pd.DataFrame, branch: str | None) -> str:
    """Return the sentence that replaces a plot without outcomes; it suggests a branch if there is none of the name."""
    if branch is None:
        return "No build passed or failed."
    names = sorted(map(str, builds["branch"].dropna().unique())) if "branch" in builds else []
    near = nearest_name(branch, names) if branch not in names else None
    suggestion = f" Did you mean {theme.drawable(near, 40)}?" if near else ""
    return f"No build of the branch {theme.drawable(branch, 40)} passed or failed.{suggestion}"


def _paint(
    one: _Rates, panel: Panel[_Rates], groups: ShownGroups, freq: str, begin: Begin | None, tz: str,
    branch: str | None, by_default: bool,
) -> None:  # fmt: skip
    ax, buckets, outages = panel.ax, one.buckets, one.outages
    lanes = one.lanes[: max(int((plot_area(ax, below=_BELOW)[1] - font_points(_LEAST)) / label_height()), 0)]
    for name, style in groups.styles.items():
        own = buckets[buckets[GROUP] == name].reset_index(drop=True)
        if own["rate"].notna().any():
            at = find_middles(own["bucket"], freq, begin)
            if groups.have_bands:
                label = "95 % interval" if name == "" else "_nolegend_"
                draw_band(ax, at, 100 * own["low"], 100 * own["high"], style.color, (0.2, 0.35), label)
            _draw_line(ax, at, own, 100 * own["rate"], style, groups.labels[name] or "success rate")
    _set_percents(ax, {}, 0)
    if outages is not None:
        _draw_lanes(ax, outages, lanes, tz)
    theme.show_buckets(ax, buckets["bucket"], freq)
    ax.set(xlabel=theme.bucket_label(freq, tz), ylabel="builds that passed")
    passed, failed = theme.column_total(buckets, "passed"), theme.column_total(buckets, "failed")
    note = f"{passed:,} passed, {failed:,} failed" + ("" if outages is None else _note(outages, lanes))
    on = f" on {theme.drawable(branch, 30)}" if branch else " on default branches" if by_default else ""
    band = "band: 95 % interval" if groups.have_bands and "" not in groups.styles else ""
    heading = f"Success rate of {format_count(passed + failed, 'build')}{on}"
    panel.decorate(heading, note, key=theme.join_notes(band, groups.hidden))
    ax.grid(axis="y", color=theme.grid_color(), linewidth=0.8)


def _pipeline_names(frame: pd.DataFrame) -> pd.Series[str]:
    """Return pipeline names, prefixed with the organization if the frame has several."""
    if "organization" not in frame:
        return frame["pipeline"]
    return theme.prefix_if_several(frame["pipeline"], frame["organization"])


def _choose_lanes(outages: pd.DataFrame) -> list[str]:
    """Return the pipelines that fail now, then the others; in both, those that were failing longest first."""
    by_name = outages.groupby(_pipeline_names(outages))
    lanes = pd.DataFrame({"open": by_name["open"].any(), "seconds": by_name["seen_s"].sum()})
    return list(lanes.sort_values(["open", "seconds"], ascending=False, kind="stable").index)[:_MOST_LANES]


def _note(outages: pd.DataFrame, lanes: list[str]) -> str:
    if outages.empty:
        return "; no outage"
    n = _pipeline_names(outages).nunique()
    total = f"; {format_count(len(outages), 'outage')} of {format_count(n, 'pipeline')}"
    hidden = theme.count_note(n - len(lanes), "pipeline", "not shown")
    return ", ".join(part for part in (total, theme.list_counts(still_open=int(outages["open"].sum())), hidden) if part)


def _draw_lanes(ax: Axes, outages: pd.DataFrame, lanes: list[str], tz: str) -> None:
    height = plot_area(ax, below=_BELOW)[1]  # a lane has room for its label
    label = label_height()
    lane = max(_LANE, 103 * label / max(height - label * (len(lanes) + 0.7), 1))
    begin = outages["failed_at"].dt.tz_convert(tz).dt.tz_localize(None)
    ends = {"begin": begin, "end": begin + pd.to_timedelta(outages["seen_s"], unit="s"), "open": outages["open"]}
    ends["good"] = outages["last_good_at"].dt.tz_convert(tz).dt.tz_localize(None).clip(upper=begin)
    lane_of = {name: -lane * (k + 1) for k, name in enumerate(lanes)}
    spans = pd.DataFrame(ends).assign(y=_pipeline_names(outages).map(lane_of)).dropna(subset="y")
    suspect = spans[spans["good"] < spans["begin"]]
    if len(suspect):
        ax.hlines(suspect["y"], suspect["good"], suspect["begin"], color=theme.ORANGE, linewidth=2,
                  label="last good build to first failed one")  # fmt: skip
    first, last = (date2num(spans[name]) for name in ("begin", "end"))  # type: ignore[no-untyped-call]
    theme.draw_bars(ax, spans["y"], first, last, 0.6 * lane, color=theme.RED, linewidth=1, label="branch failing")
    still = spans[spans["open"].fillna(False).astype(bool)]
    if len(still):
        ax.plot(still["end"], still["y"], ">", color=theme.text_color(), markersize=5, label="still failing")
    names = theme.unique_labels(lanes, max_characters(ax, 24))
    ax.axhline(0, color=theme.grid_color(), linewidth=0.8)
    _set_percents(ax, {y: names[name] for name, y in lane_of.items()}, -lane * (len(lanes) + 0.7) if lanes else 0)


def _set_percents(ax: Axes, others: dict[float, str], bottom: float) -> None:
    """Label the y axis with percentages, and other places below them."""
    height = plot_area(ax, below=_BELOW)[1] * 103 / (103 - bottom)
    step = next(step for step, least in _PERCENTS.items() if height >= font_points(least))
    ticks = {float(percent): f"{percent} %" for percent in range(0, 101, step)} | others
    ax.set_yticks(list(ticks), list(ticks.values()), parse_math=False)
    ax.set_ylim(bottom, 103)


def _draw_line(ax: Axes, at: pd.Series[Any], buckets: pd.DataFrame, values: Any, style: GroupStyle, label: str) -> None:
    """Draw a rate per bucket as a line with markers; those of unfinished buckets are hollow.

    A bucket of few builds is a small hollow point beside the line: one build of a weekend is no trend.
    """
    has_enough = (buckets["passed"] + buckets["failed"]).fillna(0).to_numpy(np.int64) >= _LEAST_BUILDS
    known, few = values.notna() & has_enough, values.notna() & ~has_enough
    partial = known & buckets["partial"].fillna(False).astype(bool)
    size = 5 if len(at) <= 60 else 2.5
    is_whole = list(np.flatnonzero(~partial[known]))
    (drawn,) = ax.plot(at[known], values[known], color=style.color, linestyle=style.line, linewidth=theme.line_width(),
                       label=label, marker=style.marker, markersize=size, markevery=is_whole)  # fmt: skip
    mark_label(drawn, label)
    for rows, points, what in ((partial, 7.0, "bucket not complete"), (few, 0.75 * size, _FEW)):
        if rows.any():
            back = theme.background(ax)
            ax.plot(at[rows], values[rows], style.marker, color=style.color, markerfacecolor=back, markersize=points)
            add_to_legend(ax, "o", what, points)
