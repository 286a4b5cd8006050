"""Plot how long jobs of a queue wait with each number of agents, and what the agents cost."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count, format_duration, truncate_middle
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import Floats
from buildframe.plots import theme
from buildframe.plots.layout import choose_apart, font_points, is_small, plot_area
from buildframe.plots.predictions import describe_error_of_queue
from buildframe.plots.scope import describe_scope
from buildframe.plots.units import DAY, HOUR, MINUTE, format_in_unit, unit_of
from buildframe.spec.times import seconds_of

_SHARES = (0.56, 1.0)
_WAITS = (0.0, 0.44)
"""Parts of the height of the Axes: shares above, waits below."""

_WAIT_TICKS = (0.0, MINUTE, 3 * MINUTE, 10 * MINUTE, 30 * MINUTE, HOUR, 3 * HOUR, 10 * HOUR, DAY, 3 * DAY, 10 * DAY)
"""Waits that may be labeled on their axis, which is logarithmic above one minute."""


@checked_frames
def agents_needed(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    *,
    queue: str,
    within: str | dt.timedelta = "5min",
    target: float = 0.95,
    title: str | None = None,
    tz: str = "UTC",
) -> Axes:
    """
    Plot how many jobs of a queue would start in time, and how long they would wait, with each number of agents.

    The upper part has the share of jobs that start in time with its 95 % interval, and the target. The lower part has
    the median and the 95th percentile of the wait. Below each number of agents stand their hours per day. Lines
    mark today's number and the smallest one that meets the target; with a margin if its interval lies above the target.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns that `metrics.replay` needs.
    jobs : pandas.DataFrame
        All jobs of these builds, with every attempt (`include_retried_jobs=True`).
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    queue : str
        Queue whose number of agents changes, by key or `queue_id`. All other queues keep theirs.
    within : str or timedelta, default "5min"
        Longest wait that counts as in time.
    target : float, default 0.95
        Share of jobs that should start in time, in (0, 1).
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days in the title.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on.

    Raises
    ------
    BadInput
        As for `metrics.agents_needed`.

    See Also
    --------
    buildframe.metrics.agents_needed : The numbers of this plot.
    queue_depth : How many jobs waited.
    leverage : What faster steps would save instead.

    Notes
    -----
    All numbers are predictions of `metrics.replay`. The note says how far off it is: days that it has not seen, with
    the agents that they had, as they were and as it predicts them.

    Examples
    --------
    >>> builds, jobs = ci.history(created_from="7d", include_retried_jobs=True)
    >>> ax = plots.agents_needed(builds, jobs, queue="macos")
    >>> ax.get_ylabel()
    'wait, started in time'
    """
    rows = metrics.agents_needed(builds, jobs, queue, within, target)
    with theme.themed_axes(ax, 9, 4.6) as ax:
        scope = describe_scope(builds, tz) if title is None else ""
        if rows.empty:
            heading, name = "Queue times by number of agents", theme.drawable(queue, 40)
            return theme.show_message(ax, f"No job waited for an agent in {name}.", title or heading, scope)
        attrs = rows.attrs
        queue = rows.attrs["queue"]
        _draw_shares(ax, rows, target)
        _draw_waits(ax, rows)
        _mark_numbers(ax, attrs)
        _label_axes(ax, rows, attrs["days"])
        limit = format_duration(seconds_of(within, "within"))
        theme.decorate(ax, title or _title(attrs, queue, limit, target), _note(attrs, queue), scope=scope)
    return ax


def _title(attrs: Mapping[Any, Any], queue: str, limit: str, target: float) -> str:
    name, promise = truncate_middle(queue, 40), f"{_percent(target)} of jobs within {limit}"
    if attrs["smallest"] is None:
        return f"{name}: no number of agents starts {promise}"
    return f"{name}: {format_count(attrs['smallest'], 'agent')} start{'s' * (attrs['smallest'] == 1)} {promise}"


def _note(attrs: Mapping[Any, Any], queue: str) -> str:
    return theme.join_notes("line: 95 % interval", describe_error_of_queue(attrs["error"], queue))


def _draw_shares(ax: Axes, rows: pd.DataFrame, target: float) -> None:
    agents, share, low, high = rows[["agents", "share_within", "low", "high"]].to_numpy(np.float64, na_value=np.nan).T
    known = ~np.isnan(low)
    ax.plot([agents.min(), agents.max()], [_place_share(target)] * 2, "--", color=theme.text_color(), linewidth=1.2,
            label=f"target {_percent(target)}")  # fmt: skip
    ax.vlines(agents[known], _place_share(low[known]), _place_share(high[known]), color=theme.SKY, linewidth=4,
              alpha=0.7)  # fmt: skip
    ax.plot(agents, _place_share(share), "o-", color=theme.BLUE, label="in time", **_line_style())


def _draw_waits(ax: Axes, rows: pd.DataFrame) -> None:
    agents, most = rows["agents"].to_numpy(np.float64), _longest_wait(rows)
    for name, color, sign, label in (
        ("wait_p95_s", theme.ORANGE, "s-", "wait, p95"),
        ("wait_p50_s", theme.GREEN, "^-", "wait, median"),
    ):
        waits = rows[name].to_numpy(np.float64)
        ax.plot(agents, _place_wait(waits, most), sign, color=color, label=label, **_line_style())


def _line_style() -> dict[str, Any]:
    return {"markersize": 4.5, "linewidth": theme.line_width(1.2)}


def _mark_numbers(ax: Axes, attrs: Mapping[Any, Any]) -> None:
    """Mark today's number, and the smallest that meets the target, alone and with a margin."""
    smallest, careful = attrs["smallest"], attrs["smallest_with_margin"]
    ax.axvline(attrs["today"]["agents"], color=theme.GRAY, linestyle=":", linewidth=2,
               label=f"today: {attrs['today']['agents']:.3g}")  # fmt: skip
    if smallest is not None:
        ax.axvline(smallest, color=theme.PURPLE, linewidth=1.6, label=f"smallest: {smallest}")
    if careful is not None and careful != smallest:
        ax.axvline(careful, color=theme.PURPLE, linewidth=1.6, linestyle="-.", label=f"with a margin: {careful}")


def _label_axes(ax: Axes, rows: pd.DataFrame, days: float) -> None:
    agents, hours = rows["agents"].to_numpy(np.int64), rows["agent_hours"].to_numpy(np.float64) / days
    width, reach = plot_area(ax)[0], max(int(agents.max() - agents.min()), 1)
    chosen = choose_apart(agents, font_points(32) * reach / width)
    labels = [f"{agents[k]:,}" + ("" if is_small(ax) else f"\n{hours[k]:,.0f} h") for k in chosen]
    ax.set_xticks(agents[chosen], labels, parse_math=False)
    upper = [(_place_share(share), _percent(share)) for share in (1.0, 0.75, 0.5, 0.25, 0.0)]
    most = _longest_wait(rows)
    waits = [wait for wait in _WAIT_TICKS if wait <= most]
    lower = [(_place_wait(wait, most), format_in_unit(wait, *unit_of(2 * wait))) for wait in waits]
    theme.label_places(ax, [*upper, *lower])
    ax.axhline((_SHARES[0] + _WAITS[1]) / 2, color=theme.background(ax), linewidth=2)
    ax.set_ylim(-0.03, 1.03)
    ax.margins(x=0.04)
    ax.set(xlabel="agents, and their hours a day", ylabel="wait, started in time")


def _place_share(share: Any) -> Any:
    return _SHARES[0] + share * (_SHARES[1] - _SHARES[0])


def _place_wait(seconds: Any, most: float) -> Any:
    minutes = np.maximum(seconds, 0) / MINUTE
    return _WAITS[0] + np.log1p(minutes) / np.log1p(most / MINUTE) * (_WAITS[1] - _WAITS[0])


def _longest_wait(rows: pd.DataFrame) -> float:
    waits: Floats = rows[["wait_p50_s", "wait_p95_s"]].to_numpy(np.float64)
    return max(float(np.nanmax(waits, initial=0)), MINUTE)


def _percent(share: float) -> str:
    return f"{100 * share:.4g} %"
