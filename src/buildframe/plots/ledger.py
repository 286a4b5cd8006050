"""Plot what the wall time of builds consists of."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe.errors import BadInput
from buildframe.formatting import format_count, format_duration
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.columns import require_columns
from buildframe.metrics.grouping import Key
from buildframe.metrics.timeline import KIND_NAMES
from buildframe.plots import theme
from buildframe.plots.groups import GROUP, by_phrase, choose_groups, key_name
from buildframe.plots.layout import count_rows_that_fit, font_points, width_beside
from buildframe.plots.panels import Panel, Placement, draw
from buildframe.plots.units import show_durations

_KINDS = {
    "run": ("run", theme.BLUE, ""),
    "retry": ("retried run", theme.RED, "////"),
    "trigger": ("triggered build", theme.GREEN, ""),
    "queue": ("wait: agent", theme.ORANGE, ""),
    "concurrency": ("wait: limit", theme.ORANGE, "xxxx"),
    "dependency": ("wait: dependency", theme.SKY, "...."),
    "setup": ("setup", theme.SKY, ""),
    "blocked": ("wait: unblock", theme.PURPLE, ""),
    "manual_retry": ("wait: retry by a person", theme.PURPLE, "////"),
    "unknown": ("unknown", theme.GRAY, ""),
}
"""Label, color and hatch of each kind of segment: work first, then waits for agents, for other jobs, and for people."""

_CHARACTERS = 32
_BELOW = 75  # points for the time axis, and for a legend of several lines
_NAMED = 0.05  # least share of a kind that the note has
_NEEDED = ("build_id", "kind", "duration_s", "build_created_at")


class _Sums(NamedTuple):
    """Mean seconds per build by group (rows) and kind, builds by group, and the share of each kind in all."""

    means: pd.DataFrame
    builds: pd.Series[int]
    shares: pd.Series[float]


@checked_frames
def time_ledger(
    ledger: pd.DataFrame,
    ax: Axes | None = None,
    by: Key | None = "pipeline",
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
    top: int = 12,
) -> Any:
    """
    Plot what the mean wall time of builds consists of: runs, and waits for agents, other jobs and people.

    A bar is the mean wall time of a group of builds, divided by the kinds of segments of their critical chains.

    Parameters
    ----------
    ledger : pandas.DataFrame
        Segments of builds, from `metrics.time_ledger`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    by : str or function, default "pipeline"
        Key that defines a bar for each group, such as "branch". None draws one bar.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.
    tz : str, default "UTC"
        Time zone of the days in the title.
    top : int, default 12
        Maximum number of bars: the groups with the most segments. The note counts the others.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`. Durations are in seconds.

    Raises
    ------
    BadInput
        If a column is missing, `top` is below 1, or `ax` is used with `col` or `row`.

    See Also
    --------
    explain : What makes the wall times of two periods differ.
    time_spent : Steps by machine time, also of jobs that no build waited for.
    buildframe.metrics.time_ledger : The segments of this plot.

    Notes
    -----
    A group that divides builds, such as a step, has the mean over the builds in which it occurs. Groups are in the
    order of their mean. Negative segments, from clocks that disagree, shorten the bar of their kind.

    Examples
    --------
    >>> ledger = metrics.time_ledger(*ci.history(created_from="7d", include_retried_jobs=True))
    >>> ax = plots.time_ledger(ledger)
    >>> ax.get_xlabel()
    'mean wall time per build'
    """
    try:
        require_columns(ledger.columns, _NEEDED)
    except BadInput as wrong:
        raise BadInput(f"ledger: {wrong} Pass a ledger from metrics.time_ledger.") from None
    groups = choose_groups(ledger, by, top, (col, row))

    def paint(one: _Sums, panel: Panel[_Sums]) -> None:
        ax = panel.ax
        if one.means.empty:
            panel.show_message("No build has ended.")
            return
        shown = one.means.head(count_rows_that_fit(ax, top, below=_BELOW)).iloc[::-1]
        _draw_bars(ax, shown)
        names = [groups.labels[name].strip() or "all builds" for name in shown.index]
        theme.label_rows(ax, range(len(shown)), names, _CHARACTERS, one.builds[shown.index])
        totals = shown.sum(axis=1)
        theme.label_bars(ax, totals, map(format_duration, totals))
        width = width_beside(ax, _CHARACTERS)
        ax.set_xlim(0, max(float(totals.max()), 1.0) / max(1 - font_points(75) / width, 0.3))
        show_durations(ax, "x")
        ax.set(xlabel="mean wall time per build", ylabel=f"{'all' if by is None else key_name(by)} (builds)")
        n = format_count(int(one.builds.sum()), "build")
        most = (f"{100 * share:.0f} % {KIND_NAMES[str(kind)]}" for kind, share in one.shares.items() if share >= _NAMED)
        hidden = theme.count_note(len(one.means) - len(shown), "group", "with shorter builds not shown")
        panel.decorate(f"Where the time of {n} went", theme.join_notes(", ".join(most), hidden), "x", short=n,
                       key=groups.hidden)  # fmt: skip

    def size(one: _Sums) -> tuple[float, float]:
        return 9, 2.0 + 0.34 * float(np.clip(len(one.means), 3, top))

    place = Placement(ax, col, row, title, tz)
    return draw(_sum_kinds, paint, groups.frame, place, f"Where the time of builds went{by_phrase(by)},", size, "x")


def _sum_kinds(ledger: pd.DataFrame) -> _Sums:
    builds = ledger.groupby(GROUP)["build_id"].nunique()
    sums = ledger.groupby([GROUP, "kind"])["duration_s"].sum().unstack(fill_value=0)
    means = sums.div(builds, axis=0)[[kind for kind in _KINDS if kind in sums]]
    total = means.sum(axis=1).sort_index().sort_values(ascending=False, kind="stable")
    by_kind = sums.sum().clip(lower=0).sort_values(ascending=False, kind="stable")
    return _Sums(means.loc[total.index], builds, by_kind / max(float(by_kind.sum()), 1e-9))


def _draw_bars(ax: Axes, means: pd.DataFrame) -> None:
    rows, begin = np.arange(len(means)), np.zeros(len(means))
    for kind in means:
        label, color, hatch = _KINDS[str(kind)]
        part = means[kind].to_numpy(np.float64)
        if (part != 0).any():
            ax.barh(rows, part, 0.7, left=begin, color=color, hatch=hatch, edgecolor=theme.background(ax), linewidth=0,
                    label=label)  # fmt: skip
        begin = begin + part
