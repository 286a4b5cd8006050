"""Plot which steps would save most time if they were faster."""

from __future__ import annotations

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.plots import theme
from buildframe.plots.layout import count_rows_that_fit, width_beside
from buildframe.plots.names import step_names
from buildframe.plots.predictions import describe_error_of_builds
from buildframe.plots.scope import describe_scope
from buildframe.plots.units import HOUR, show_durations

_CHARACTERS = 40
_POINTS = 18.0  # height of a row
_KINDS = (
    ("", theme.BLUE, 0.19, "", "agents as recorded"),
    ("_unlimited", theme.ORANGE, -0.19, "///", "enough agents for all"),
)
"""Suffix of columns, color, offset of the bar, hatch and label."""

_WHY = "blue also counts less waiting for agents; orange is the critical path alone"


@checked_frames
def leverage(
    builds: pd.DataFrame,
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    faster: float = 0.1,
    pipeline: str | None = None,
    top: int = 10,
    title: str | None = None,
    tz: str = "UTC",
) -> Axes:
    """
    Plot how many hours of wall time builds would save if a step took less time, for the steps that save most.

    Each step has two bars: with the agents that were recorded, and with enough agents for all jobs. Steps whose saving
    is clear come in full color. A thin line is the 95 % interval.

    Parameters
    ----------
    builds : pandas.DataFrame
        Builds with the columns that `metrics.replay` needs.
    jobs : pandas.DataFrame
        All jobs of these builds, with every attempt (`include_retried_jobs=True`).
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    faster : float, default 0.1
        Share of its run time that a step saves, in (0, 1].
    pipeline : str, optional
        Slug of the pipeline whose steps are tried. By default those of all pipelines.
    top : int, default 10
        Maximum number of steps, at least 1.
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
        As for `metrics.leverage`.

    See Also
    --------
    buildframe.metrics.leverage : The numbers of this plot.
    agents_needed : What more agents would save instead.

    Notes
    -----
    The two savings differ, because a faster step frees its agents, too. With few agents, other jobs wait less, so a
    step that is on no critical path can save time. But time that is saved before a busy queue may be spent waiting
    there, so the saving can also be smaller than with enough agents.

    All numbers are predictions of `metrics.replay`. The note says how far off it is.

    Examples
    --------
    >>> builds, jobs = ci.history(created_from="7d", include_retried_jobs=True)
    >>> ax = plots.leverage(builds, jobs, top=5)
    >>> ax.get_xlabel()
    'wall time saved, of all builds'
    """
    theme.check_positive(top=top)
    rows = metrics.leverage(builds, jobs, faster, pipeline, top)
    each = theme.row_height(step_names(rows), 0.36, _CHARACTERS)
    with theme.themed_axes(ax, 9, 1.9 + each * float(np.clip(len(rows), 3, top))) as ax:
        heading = title or f"What builds save if one step takes {100 * faster:.3g} % less time"
        own = builds if pipeline is None else builds[builds["pipeline"] == pipeline]
        scope = describe_scope(own, tz) if title is None else ""
        if not rows[[f"hours_saved{kind[0]}" for kind in _KINDS]].any(axis=None):
            message = "No step ran in a build that ended." if rows.empty else "No step would save time."
            return theme.show_message(ax, message, heading, scope)
        shown = rows.head(count_rows_that_fit(ax, top, _POINTS)).iloc[::-1].reset_index(drop=True)
        _draw_bars(ax, shown)
        ax.set_xlabel("wall time saved, of all builds")
        show_durations(ax, "x")
        hidden = f"{len(shown):,} of {format_count(len(rows), 'step')} shown" if len(shown) < len(rows) else ""
        lows = shown[[f"low_h{kind[0]}" for kind in _KINDS]]
        pale = "" if (lows > 0).all(axis=None) else "pale: may be chance"
        error = describe_error_of_builds(rows.attrs["error"], shown["pipeline"])
        note = theme.join_notes(_WHY, "line: 95 % interval", pale, hidden, error)
        theme.decorate(ax, heading, note, "x", scope)
    return ax


def _draw_bars(ax: Axes, shown: pd.DataFrame) -> None:
    y, edge = np.arange(len(shown)), theme.background(ax)
    for suffix, color, offset, hatch, label in _KINDS:
        columns = [f"hours_saved{suffix}", f"low_h{suffix}", f"high_h{suffix}"]
        saved, low, high = HOUR * shown[columns].to_numpy(np.float64).T
        bars = ax.barh(y + offset, saved, 0.36, color=color, hatch=hatch, edgecolor=edge, linewidth=0)
        ax.barh(0, 0, color=color, hatch=hatch, edgecolor=edge, linewidth=0, label=label)
        for bar, is_clear in zip(bars, low > 0, strict=True):
            bar.set_alpha(1 if is_clear else 0.45)
        known = ~np.isnan(low)
        ax.hlines(y[known] + offset, low[known], high[known], color=theme.text_color(), linewidth=1)
    ax.axvline(0, color=theme.GRAY, linewidth=0.8)
    theme.label_rows(ax, y, step_names(shown), _CHARACTERS)
    ax.set_ylim(min(len(shown) - 3, 0) - 0.6, len(shown) - 0.4)
    ax.margins(x=max(0.04, 20 / width_beside(ax, _CHARACTERS)))
