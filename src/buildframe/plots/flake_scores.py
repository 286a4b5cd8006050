"""Plot how often steps fail at random."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.layout import count_rows_that_fit, font_points, width_beside
from buildframe.plots.names import step_names
from buildframe.plots.panels import Panel, Placement, draw

_CHARACTERS = 44
_SURE = 0.95
"""Probability from which a step counts as surely flaky."""


@checked_frames
def flake_scores(
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    threshold: float = 0.01,
    retries: int = 1,
    top: int = 20,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
) -> Any:
    """
    Plot the rate at which steps fail at random, with 90 % credible intervals.

    Rows are the first `top` steps of `metrics.flake_score`, in its order. Orange steps exceed the threshold with at
    least 95 % probability. Each label gives this probability.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns that `metrics.flake_score` needs, fetched with `include_retried_jobs=True`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    threshold : float, default 0.01
        Rate above which a step counts as flaky; a line marks it.
    retries : int, default 1
        How often a failure is tried again, for the power in the note.
    top : int, default 20
        Maximum number of steps, at least 1.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days in the title.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, `threshold`, `retries` or `top` is out of range, or `ax` is used
        with `col` or `row`.

    See Also
    --------
    buildframe.metrics.flake_score : The rates.
    flips : The commits behind them.

    Notes
    -----
    The note counts steps whose commits could hardly have shown a rate at the threshold, if failures are tried again:
    their power is below 50 %.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="10d", include_retried_jobs=True)
    >>> ax = plots.flake_scores(jobs, top=5)
    >>> ax.get_xlabel()
    'attempts that fail at random (%)'
    """
    theme.check_positive(top=top)

    def summarize(rows: pd.DataFrame) -> pd.DataFrame:
        return metrics.flake_score(rows, threshold=threshold, retries=retries)

    def paint(scores: pd.DataFrame, panel: Panel[pd.DataFrame]) -> None:
        ax, known = panel.ax, scores.dropna(subset="rate")
        if known.empty:
            panel.show_message("No step passed, or no commit was tried more than once: no rate is known.")
            return
        shown = known.head(count_rows_that_fit(ax, top)).iloc[::-1].reset_index(drop=True)
        _draw_rates(ax, shown, threshold)
        unseen, above = int((known["power_retried"] < 0.5).sum()), int((known["p_above"] >= _SURE).sum())
        hidden = f"{len(shown):,} of {len(known):,} steps shown" if len(shown) < len(known) else ""
        few = theme.count_note(unseen, "step", f"with too few commits to show {100 * threshold:.3g} %")
        storms = theme.count_note(int(scores["n_storm"].sum()), "attempt", "in storms left out")
        heading = f"{format_count(above, 'step')} surely above {100 * threshold:.3g} %"
        note = theme.join_notes(hidden, few, storms)
        panel.decorate(heading, note, "x", short=heading, key="label: probability to be above")

    def size(scores: pd.DataFrame) -> tuple[float, float]:
        known = scores.dropna(subset="rate")
        each = theme.row_height(step_names(known.head(top)), 0.3, _CHARACTERS)
        return 9, 1.8 + each * float(np.clip(len(known), 3, top))

    place = Placement(ax, col, row, title, tz)
    return draw(summarize, paint, jobs, place, "Steps that fail at random", size, "x")


def _draw_rates(ax: Axes, shown: pd.DataFrame, threshold: float) -> None:
    """Draw each rate with its interval in percent, and the threshold."""
    percent = 100 * shown[["rate", "low", "high"]].to_numpy(np.float64)
    is_sure = (shown["p_above"] >= _SURE).to_numpy(bool)
    rows = np.arange(len(shown))
    for own, color, label in ((is_sure, theme.ORANGE, "surely above"), (~is_sure, theme.BLUE, "not surely")):
        if own.any():
            rate, low, high = percent[own].T
            reach = [rate - low, high - rate]
            ax.errorbar(rate, rows[own], xerr=reach, fmt="o", color=color, markersize=5, label=label)
    ax.axvline(100 * threshold, color=theme.GRAY, linestyle="--", linewidth=1, label="threshold")
    most = percent[:, 2].max()
    for row, (high, p) in enumerate(zip(percent[:, 2], shown["p_above"], strict=True)):
        beside = max(high, 100 * threshold)  # the line of the threshold does not lead through it
        ax.annotate(f"{100 * p:.0f} %", (beside, row), (5, 0), textcoords="offset points", va="center", size="small")
    theme.label_rows(ax, rows, step_names(shown), _CHARACTERS)
    ax.set(xlabel="attempts that fail at random (%)", ylim=(-0.6, max(len(shown), 3) - 0.4))
    ax.set_xlim(0, max(most, 100 * threshold) / max(1 - font_points(50) / width_beside(ax, _CHARACTERS), 0.15))
