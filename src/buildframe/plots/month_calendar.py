"""Plot the days of a few months as a calendar."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, LinearSegmentedColormap, Normalize

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.durations import RowMetric
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.layout import font_points, plot_area
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.trend import describe_metric, percentile_name
from buildframe.plots.units import DAY, HOUR, MINUTE

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_MOST_WEEKS = 27
_LEFT = 62  # points for the labels of weeks
_FAILURES = {True: ["#E3F1EC", "#F6CFA8", theme.RED, "#6B2400"], False: ["#173A30", "#8A5A2B", theme.RED, "#FFB27A"]}
"""Colors of shares of failures, from none to all, on a light and on a dark background."""


@checked_frames
def calendar(
    builds: pd.DataFrame,
    ax: Axes | None = None,
    of: RowMetric | str = metrics.failed,
    q: float = 0.5,
    tz: str = "UTC",
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
) -> Any:
    """
    Plot each day as a cell of a calendar: the share of builds that failed, or a percentile of a duration.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with `created_at`, `fetched_at` and the columns that `of` needs: `state` and `blocked` for failures,
        `finished_at` for wall times.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    of : row metric or str, default failed
        What the color shows: `metrics.failed` for the share of builds that failed, or a duration such as
        `metrics.wall_time`.
    q : float, default 0.5
        Percentile of a duration, as a fraction in (0, 1).
    tz : str, default "UTC"
        Time zone of the days. A build belongs to the day on which it was created.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`). They have
        one scale of colors.
    title : str, optional
        Title. By default it says what is shown.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `of`, `q` or `tz` is invalid, or `ax` is used with `col` or `row`.

    See Also
    --------
    success_trend : The success rate over time, with its interval.
    queue_times_by_hour : Hours of the week.

    Notes
    -----
    Rows are weeks from Monday to Sunday, at most the latest 27. A cell has the day of the month, the number of builds
    that the value is computed from, and below them the value. If cells are too small for numbers, the note has their
    ranges. A cell without a value had builds, but none that passed or failed, or too few for the percentile. A line
    separates months. Small multiples have the same weeks.

    Examples
    --------
    >>> ax = plots.calendar(ci.builds(created_from="28d"))
    >>> [label.get_text() for label in ax.get_xticklabels()][:3]
    ['Mon', 'Tue', 'Wed']
    """
    is_rate = of is metrics.failed

    def summarize(rows: pd.DataFrame) -> pd.DataFrame:
        return _failures_by_day(rows, tz) if is_rate else _durations_by_day(rows, of, q, tz)

    def paint(days: pd.DataFrame, panel: Panel[pd.DataFrame]) -> None:
        ax, weeks = panel.ax, _find_weeks(panel.summaries)
        shown = days[_mondays(days).isin(weeks)]
        if shown["value"].isna().all():
            panel.show_message("No build passed or failed." if is_rate else "No day has enough builds that have ended.")
            return
        everywhere = pd.concat([other["value"] for other in panel.summaries])
        most = 1.0 if is_rate else max(float(everywhere.max()), 1e-9)
        unit, size = ("percent", 0.01) if is_rate else _choose_unit(most)
        least = 0.0 if is_rate else 0.9 * float(everywhere.min())
        is_written = _draw_days(ax, shown, weeks, ScalarMappable(Normalize(least, most), _colors(is_rate)), size)
        n = format_count(int(days["n"].sum()), "build")
        what = "share of builds that failed" if is_rate else f"{percentile_name(q)} of {describe_metric(of)}"
        values = f", from {_format(everywhere.min() / size)} to {_format(everywhere.max() / size)}"
        has_dot = any(bool((other["value"].isna() & (other["n"] > 0)).any()) for other in panel.summaries)
        dot = "; dot: too few builds" if has_dot else ""
        key = f"{what} in {unit}{f'; top right: builds{dot}' if is_written else values}"
        hidden = theme.count_note(_mondays(days).nunique() - _mondays(shown).nunique(), "earlier week", "not shown")
        counts = "" if is_written else _describe_counts(shown["n"])
        heading = f"{'Failures' if is_rate else what[0].upper() + what[1:]} of {n} by day"
        panel.decorate(heading, theme.join_notes(counts, hidden), short=n, key=key)
        ax.spines[:].set_visible(False)

    def height(days: pd.DataFrame) -> tuple[float, float]:
        return 7, 1.6 + 0.42 * float(np.clip(len(days) / 7, 3, _MOST_WEEKS))

    heading = f"{'Failures' if is_rate else describe_metric(of).capitalize()} by day,"
    return draw(summarize, paint, builds, Placement(ax, col, row, title, tz), heading, height, "xy")


def _failures_by_day(builds: pd.DataFrame, tz: str) -> pd.DataFrame:
    """Return midnight, share of failures and number of builds of each day."""
    days = metrics.success_trend(builds, freq="1D", tz=tz)
    passed, failed = (days[name].to_numpy(np.float64) for name in ("passed", "failed"))
    n = passed + failed
    share = np.divide(failed, n, out=np.full(len(n), np.nan), where=n > 0)
    return pd.DataFrame({"day": days["bucket"].dt.tz_localize(None), "value": share, "n": n})


def _durations_by_day(builds: pd.DataFrame, of: RowMetric | str, q: float, tz: str) -> pd.DataFrame:
    """Return midnight, seconds and number of durations of each day."""
    days = metrics.trend(builds, of=of, q=[q], freq="1D", tz=tz)
    values = days[f"p{100 * q:.10g}_s"].to_numpy(np.float64)
    n = days["n"].fillna(0).to_numpy(np.float64)
    return pd.DataFrame({"day": days["bucket"].dt.tz_localize(None), "value": values, "n": n})


def _choose_unit(most: float) -> tuple[str, float]:
    units = (("seconds", 1.0, 2 * MINUTE), ("minutes", MINUTE, 12 * HOUR), ("hours", HOUR, 4 * DAY))
    return next(((name, size) for name, size, limit in units if most < limit), ("days", DAY))


def _colors(is_rate: bool) -> Colormap:
    if not is_rate:
        return theme.sequential_map()
    return LinearSegmentedColormap.from_list("failures", _FAILURES[theme.is_light()])


def _mondays(days: pd.DataFrame) -> pd.Series[Any]:
    mondays: pd.Series[Any] = days["day"].dt.normalize() - pd.to_timedelta(days["day"].dt.day_of_week, unit="D")
    return mondays


def _find_weeks(summaries: Sequence[pd.DataFrame]) -> pd.DatetimeIndex:
    """Return the Mondays of the weeks that all cells show: from the first to the last of any, or the latest."""
    mondays = pd.concat([_mondays(days) for days in summaries])
    if mondays.empty:
        return pd.DatetimeIndex([])
    return pd.date_range(mondays.min(), mondays.max(), freq="7D")[-_MOST_WEEKS:]


def _describe_counts(n: pd.Series[float]) -> str:
    """Return "3 to 90 builds a day" of days with builds."""
    known = n[n > 0]
    least, most = f"{known.min():,.0f}", format_count(int(known.max()), "build")
    return f"{least} to {most} a day" if known.min() < known.max() else f"{most} a day"


def _draw_days(ax: Axes, days: pd.DataFrame, weeks: pd.DatetimeIndex, scale: ScalarMappable, size: float) -> bool:
    """Draw a cell for each day in the row of its week, and return whether the cells have room for numbers."""
    week = weeks.get_indexer(pd.DatetimeIndex(_mondays(days))).astype(np.int64)
    weekday = days["day"].dt.day_of_week.to_numpy(np.int64)
    table = np.full((len(weeks), 7), np.nan)
    table[week, weekday] = days["value"].to_numpy(np.float64)
    ax.pcolormesh(np.ma.masked_invalid(table), cmap=scale.get_cmap(), norm=Normalize(*scale.get_clim()),
                  edgecolors=[theme.background(ax)], linewidth=1.5)  # fmt: skip
    is_written = _write_days(ax, days.assign(week=week, weekday=weekday), scale, size, len(table))
    _draw_months(ax, days["day"], week, weekday)
    ax.set_xticks(np.arange(7) + 0.5, _WEEKDAYS)
    every = max(int(np.ceil(font_points(14) / (plot_area(ax, font_points(_LEFT))[1] / len(table)))), 1)
    labels = [f"{start.day} {start:%b}" if k % every == 0 else "" for k, start in enumerate(weeks)]
    ax.set_yticks(np.arange(len(table)) + 0.5, labels)
    ax.set(xlim=(0, 7), ylim=(max(len(table), 3), 0), ylabel="week of")
    return is_written


def _write_days(ax: Axes, days: pd.DataFrame, scale: ScalarMappable, size: float, weeks: int) -> bool:
    """Write day of the month, number of builds and value into each cell, and return whether there is room for them."""
    width, height = plot_area(ax, font_points(_LEFT))
    wide, high = width / 7, height / max(weeks, 3)
    font = min(font_points(9), wide / 3.6, high * 0.42)
    small: dict[str, Any] = {"va": "top", "fontsize": 0.72 * font, "alpha": 0.8}
    if font < theme.LEAST_SIZE:
        return False
    for day, value, n, week, weekday in days[["day", "value", "n", "week", "weekday"]].itertuples(index=False):
        color = theme.text_color()
        if not np.isnan(value):
            color = theme.ink_on(scale.to_rgba(value))
            text = _format(value / size)
            ax.text(weekday + 0.5, week + 0.66, text, ha="center", va="center", fontsize=font, color=color)
        elif n:
            ax.text(weekday + 0.5, week + 0.66, "·", ha="center", va="center", fontsize=font, color=color)
        ax.text(weekday + 0.06, week + 0.08, str(day.day), ha="left", color=color, **small)
        if n:
            ax.text(weekday + 0.94, week + 0.08, f"{n:,.0f}", ha="right", color=color, **small)
    return True


def _format(value: float) -> str:
    return (f"{value:.1f}" if 0 < abs(value) < 9.95 else f"{value:,.0f}").replace("-", "\N{MINUS SIGN}")


def _draw_months(ax: Axes, days: pd.Series[Any], week: Any, weekday: Any) -> None:
    """Draw a line around the first day of each month: above it and the rest of its week, and below those before."""
    for row, column in zip(week[days.dt.day == 1], weekday[days.dt.day == 1], strict=True):
        if row == week.min() and column == weekday[0]:
            continue
        style: dict[str, Any] = {"color": theme.text_color(), "linewidth": 1.4, "solid_capstyle": "butt"}
        ax.plot([0, column, column, 7], [row + 1, row + 1, row, row], **style)
