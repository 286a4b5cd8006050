"""Plot the wall time of builds over time: each build, the median with its interval, and the 95th percentile."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.dates import date2num

from buildframe import metrics
from buildframe.formatting import format_count, format_duration
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import check_are_builds, column, timestamps
from buildframe.metrics.grouping import Key
from buildframe.metrics.time_buckets import to_zone
from buildframe.plots import theme
from buildframe.plots.buckets import choose_buckets, find_middles, mark_begin
from buildframe.plots.groups import GROUP, ShownGroups, by_phrase, choose_groups
from buildframe.plots.layout import font_points, plot_area
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.trend import VARIED, draw_groups, draw_line
from buildframe.plots.units import show_durations

_OF_P95 = 20  # rows that a 95th percentile needs
_STATES = {"passed": theme.GREEN, "failed": theme.RED}
_OTHER = "other state"
_LEVELS = ("p50_s", "p50_high_s", "p95_s")
_OUTLIERS = 0.99
"""Share of the builds that the y axis shows at least; the others are at its upper end."""

_FEW = 10
"""Builds whose points are larger, as there may be no line."""

_ROOM = 1.25
"""Height of the y axis, as a multiple of the largest percentile."""


class _Durations(NamedTuple):
    """Percentiles per bucket and group; and the time, seconds, state and group of each build."""

    buckets: pd.DataFrame
    builds: pd.DataFrame
    changes: pd.DataFrame | None


@checked_frames
def duration_trend(
    builds: pd.DataFrame,
    ax: Axes | None = None,
    freq: str | None = None,
    tz: str = "UTC",
    changes: pd.DataFrame | bool | None = None,
    by: Key | None = None,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    top: int = 6,
) -> Any:
    """
    Plot the wall time of builds over time: each build, the median, and the 95th percentile.

    A faint point is a build, colored by its state. The line is the median, and the band its 95 % interval. The dashed
    line is the 95th percentile. Up to three groups of `by` have a band.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with `created_at`, `finished_at` and `fetched_at`. The columns `blocked` and `state` are used if present.
        Filter the frame first to compare like with like, for example `builds[builds["state"] == "passed"]`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    freq : str, optional
        Pandas frequency of the buckets, such as "1h", "1D" or "W-MON". Builds are assigned by creation time. By default
        the shortest buckets of which most have the 20 builds that a 95th percentile needs, or else fewer.
    tz : str, default "UTC"
        Time zone in which buckets start.
    changes : pandas.DataFrame or bool, optional
        Result of `metrics.change_points` of these builds, or True to compute it. A vertical line marks each change with
        its size, and a shaded span its 95 % interval.
    by : str or function, optional
        Key that defines a median line for each group, with points of the same color and no 95th percentile.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    top : int, default 6
        Maximum number of groups of `by`: those with the most builds. The note counts the others.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`. Durations are in seconds.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `freq` or `tz` is unknown, or `ax` is used with `col` or `row`.

    See Also
    --------
    trend : Percentiles of any duration, by group.
    buildframe.metrics.trend : The numbers of this plot.
    buildframe.metrics.change_points : When the wall time changed.
    distribution : All durations of a period.

    Notes
    -----
    A bucket needs two builds for a median and 20 for a 95th percentile. A hollow marker is a bucket that had not ended
    when the builds were fetched, or inside which the builds begin. Unfinished and blocked builds count for as long as
    they were seen; the note gives their number. If there are too many of them, a percentile is unknown, and a hollow
    triangle is a lower bound.

    Few builds that are much longer than the others are triangles at the upper end of the plot, and the note counts
    them.

    Examples
    --------
    >>> builds = ci.builds(created_from="14d")
    >>> ax = plots.duration_trend(builds[builds["pipeline"] == "web"], changes=True)
    >>> ax.get_ylabel()
    'wall time'
    """
    check_are_builds(builds.columns, "duration_trend")
    groups = choose_groups(builds, by, top, (col, row))
    freq, begin = choose_buckets(groups, "created_at", freq, tz, _OF_P95, (col, row))

    def summarize(rows: pd.DataFrame) -> _Durations:
        q = [0.5, 0.95] if by is None else [0.5]
        buckets = mark_begin(metrics.trend(rows, q=q, freq=freq, tz=tz, by=GROUP), begin)
        found = metrics.change_points(rows, tz=tz) if changes is True else None
        return _Durations(buckets, _measure_builds(rows, tz), changes if isinstance(changes, pd.DataFrame) else found)

    def paint(one: _Durations, panel: Panel[_Durations]) -> None:
        ax, n = panel.ax, format_count(theme.column_total(one.buckets, "n"), "build")
        if one.builds.empty:
            panel.show_message("No build has finished.")
            return
        each = [other.builds["seconds"] for other in panel.summaries]
        top_s = _find_top([other.buckets for other in panel.summaries], each)
        is_log = _set_scale(ax, one.buckets, each, top_s)
        above = _draw_builds(ax, one.builds, groups, top_s)
        draw_groups(ax, one.buckets, groups, "p50", freq, begin)
        if "p95_s" in one.buckets and one.buckets[["p95_s", "p95_at_least_s"]].notna().any(axis=None):
            at = find_middles(one.buckets["bucket"], freq, begin)
            draw_line(ax, at, one.buckets, "p95", "p95", theme.PURPLE, "--", "s", band=False)
        if one.changes is not None:
            _draw_changes(ax, one.changes, tz)
        theme.show_buckets(ax, one.buckets["bucket"], freq)
        ax.set(xlabel=theme.bucket_label(freq, tz), ylabel=f"wall time{', logarithmic' * is_log}")
        show_durations(ax, "y")
        excluded = theme.list_counts(not_finished=one.buckets["n_censored"], negative=one.buckets["n_negative"])
        beyond = f"{format_count(above, 'build')} beyond {format_duration(top_s)}, at the upper end" if above else ""
        has_median = bool(one.buckets["p50_s"].notna().any())
        few = "" if has_median else "no bucket has the two finished builds that a median needs"
        has_band = groups.have_bands and bool(one.buckets["p50_low_s"].notna().any())
        band = "band along the line: 95 % interval of the median" if has_band else ""
        note, key = theme.join_notes(few, excluded, beyond), theme.join_notes("point: a build", band, groups.hidden)
        panel.decorate(f"Wall time of {n}{by_phrase(by)}", note, "y", short=n, key=key)

    place = Placement(ax, col, row, title, tz)
    return draw(summarize, paint, groups.frame, place, f"Wall time of builds{by_phrase(by)}", (9, 4.4))


def _measure_builds(builds: pd.DataFrame, tz: str) -> pd.DataFrame:
    """Return naive time of creation, seconds, state and group of each build that has finished, in order of time."""
    at = to_zone(timestamps(builds, "created_at"), tz).dt.tz_localize(None)
    states = builds["state"].astype("object") if "state" in builds else pd.Series("", index=builds.index)
    states, seconds = states.where(states.isin([*_STATES]), _OTHER), metrics.wall_time(builds).dt.total_seconds()
    rows = pd.DataFrame({"at": at, "seconds": seconds, "state": states, "group": builds[GROUP]})
    return rows.dropna(subset=["at", "seconds"]).sort_values(["at", "seconds", "state"], ignore_index=True)


def _set_scale(ax: Axes, buckets: pd.DataFrame, seconds: list[pd.Series[float]], top: float) -> bool:
    """Set scale and limits of the y axis, and return whether it is logarithmic, as in `trend`."""
    typical = [float(one.median()) for one in seconds if len(one)]
    typical += list(buckets.groupby(GROUP)["p50_s"].median().dropna())
    least = min(float(one.min()) for one in seconds if len(one))
    positive = [one for one in typical if one > 0]
    if positive and least >= 0 and max(positive) > VARIED * min(positive):
        ax.set_yscale("symlog", linthresh=max(min(positive) / 2, 1.0), linscale=0.4)
        ax.set_ylim(0, top)
        return True
    ax.set_ylim(min(least, 0.0) * 1.05, top)
    return False


def _find_top(buckets: list[pd.DataFrame], builds: list[pd.Series[float]]) -> float:
    """Return the upper end of the y axis: all percentiles and almost all builds are below it."""
    levels = [frame[[name for name in frame if str(name) in _LEVELS]].to_numpy(np.float64) for frame in buckets]
    lengths: Any = np.concatenate([one.to_numpy(np.float64) for one in builds])
    most = max((float(np.nanmax(one)) for one in levels if not np.isnan(one).all()), default=0.0)
    usual = float(np.quantile(lengths, _OUTLIERS)) if len(lengths) else 0.0
    longest = float(lengths.max()) if len(lengths) else 0.0
    return max(1.05 * longest if longest <= 1.5 * max(most, usual) else _ROOM * max(most, usual), 1.0)


def _draw_builds(ax: Axes, builds: pd.DataFrame, groups: ShownGroups, top: float) -> int:
    """Draw a point for each build, and return how many are beyond the upper end of the axis."""
    is_above = builds["seconds"] > top
    seconds = builds["seconds"].clip(upper=0.985 * top)
    alpha = float(np.clip(12 / max(len(builds), 1) ** 0.5, 0.2, 0.6))
    point, size = (".", 5) if len(builds) > _FEW else ("o", 7)
    if len(groups.styles) > 1:
        kinds = [(name, builds["group"] == name, style.color, "") for name, style in groups.styles.items()]
    else:
        colors = _STATES | {_OTHER: theme.GRAY}
        kinds = [(name, builds["state"] == name, color, name) for name, color in colors.items()]
    for _, own, color, label in kinds:
        for marker, rows in ((point, own & ~is_above), ("^", own & is_above)):
            if rows.any():
                ax.plot(builds["at"][rows], seconds[rows], marker, color=color, alpha=alpha, markersize=size,
                        markeredgewidth=0, rasterized=len(builds) > 5000, zorder=1.5)  # fmt: skip
        if label and own.any():
            ax.plot([], [], ".", color=color, alpha=0.7, markersize=8, markeredgewidth=0, label=label)
    return int(is_above.sum())


def _draw_changes(ax: Axes, changes: pd.DataFrame, tz: str) -> None:
    """Mark changes of a duration with their sizes, and the intervals of their times."""
    local = {
        name: timestamps(changes, name).dt.tz_convert(tz).dt.tz_localize(None) for name in ("at", "at_low", "at_high")
    }
    sizes = column(changes, "p50_change_s").to_numpy(np.float64)
    before = changes["p50_before_s"].to_numpy(np.float64) if "p50_before_s" in changes else np.full(len(sizes), np.nan)
    heights = _stagger(ax, local["at"])
    for at, low, high, size, level, height in zip(*local.values(), sizes, before, heights, strict=True):
        ax.axvspan(low, high, color=theme.text_color(), alpha=0.12, linewidth=0)
        ax.axvline(at, color=theme.text_color(), linestyle="--", linewidth=1.2)
        day = float(date2num(at))  # type: ignore[no-untyped-call]
        is_late = day > 0.3 * ax.get_xlim()[0] + 0.7 * ax.get_xlim()[1]
        ax.annotate(_describe_change(size, level), (day, height), xycoords=ax.get_xaxis_transform(),
                    xytext=(-4 if is_late else 4, 0), ha="right" if is_late else "left", textcoords="offset points",
                    va="top", fontsize=font_points(9), fontweight="bold", color=theme.text_color(),
                    bbox={"facecolor": theme.background(ax), "alpha": 0.75, "linewidth": 0, "pad": 1})  # fmt: skip
    if len(changes):
        ax.plot([], [], "--", color=theme.text_color(), linewidth=1.2, label="change of the median")
        ax.fill_between([], [], color=theme.text_color(), alpha=0.12, linewidth=0, label="when (95 % interval)")


def _describe_change(size: float, before: float) -> str:
    """Return "+1 min 20 s (+14 %)"."""
    sign = "+" if size > 0 else "\N{MINUS SIGN}"
    share = f" ({sign}{100 * abs(size) / before:.0f} %)" if before > 0 else ""
    return f"{sign}{format_duration(abs(size))}{share}"


def _stagger(ax: Axes, times: pd.Series[Any]) -> list[float]:
    """Return a height for the text of each change, so that texts of changes that are near do not overlap."""
    low, high = ax.get_xlim()
    span = max(high - low, 1e-9)
    width, height = plot_area(ax)
    apart, line = font_points(120) / max(width, 1), font_points(14) / max(height, 1)
    days = (times - pd.Timestamp(0)).dt.total_seconds().to_numpy(np.float64) / 86400
    heights: list[float] = []
    for k, day in enumerate(days):
        near = [heights[j] for j in range(k) if abs(days[j] - day) / span < apart]
        heights.append(next(h for h in (0.985 - line * i for i in range(len(near) + 1)) if h not in near))
    return heights
