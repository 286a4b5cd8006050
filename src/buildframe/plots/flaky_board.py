"""Plot the flaky tests of a suite."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.layout import count_rows_that_fit, font_points, width_beside
from buildframe.plots.panels import Panel, Placement, draw

_CHARACTERS = 48
_ONE_LINE = 36  # characters of a label that has one line in a figure of its own
_UNITS = (("day", 86400), ("hour", 3600), ("minute", 60))
_STATUS = {
    "new": ("new", theme.RED, ""),
    "came_back": ("came back", theme.ORANGE, "////"),
    "still": ("still flaky", theme.BLUE, ""),
    "quiet": ("quiet", theme.GRAY, "\\\\\\\\"),
    "resolved": ("resolved", theme.GREEN, "...."),
}


@checked_frames
def flaky_board(
    tests: pd.DataFrame,
    ax: Axes | None = None,
    before: pd.DataFrame | None = None,
    top: int = 20,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
) -> Any:
    """
    Plot the tests with the most instances of flaking, and when each flaked last.

    Tests that are still flaky come first, resolved tests last.

    Parameters
    ----------
    tests : pandas.DataFrame
        Result of `ws.flaky_tests(suite=...)`, with `id`, `scope`, `name`, `location`, `instances`,
        `latest_occurrence_at`, `last_resolved_at` and `fetched_at`.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    before : pandas.DataFrame, optional
        An earlier snapshot of the same list. Colors then separate tests that are new, came back,
        are still flaky, are quiet (no longer listed), or were resolved between the two snapshots.
    top : int, default 20
        Maximum number of tests, at least 1.
    col, row : str or function, optional
        Keys of small multiples: one plot for each group, side by side (`col`) or one below the other (`row`).
    title : str, optional
        Title. By default it says what is shown.

    Returns
    -------
    matplotlib.axes.Axes
        The Axes that were drawn on, or an array of them with `col` or `row`.

    Raises
    ------
    BadInput
        If a column is missing, a time has no zone, a test is listed twice, `before` is later than `tests`, `top` is
        below 1, or `ax` is used with `col` or `row`.

    See Also
    --------
    buildframe.metrics.flaky_board : The ranking of this plot.
    flips : Steps that both failed and passed on one commit.

    Notes
    -----
    With `before`, rows are shared among the statuses, so that no status hides another. Tests that were already resolved
    in `before` are counted in the note and not drawn.

    Examples
    --------
    >>> tests = ci.flaky_tests(suite="rspec")
    >>> ax = plots.flaky_board(tests, top=10)
    >>> ax.get_xlabel()
    'instances of flaking'
    """
    theme.check_positive(top=top)

    def summarize(rows: pd.DataFrame) -> _Board:
        place, then = Placement(None, col, row), before
        if place.is_grid and before is not None:
            then = before[before["id"].isin(rows["id"])]
        return _rank_tests(rows, then)

    def paint(one: _Board, panel: Panel[_Board]) -> None:
        ax, board = panel.ax, one.board
        if board.empty:
            earlier = f" {format_count(one.n_hidden, 'test')} already resolved." if one.n_hidden else ""
            panel.show_message(f"The service lists no flaky test.{earlier}")
            return
        shown = _select_tests(board, count_rows_that_fit(ax, top), before is not None)
        _draw_instances(ax, shown.iloc[::-1].reset_index(drop=True))
        ax.set_xlabel("instances of flaking")
        note = _note(board, len(shown), one.n_hidden, before is not None)
        heading = _count_tests(board)
        panel.decorate(heading, note, "x", short=heading, key="label: time since last flake")

    def size(one: _Board) -> tuple[float, float]:
        each = theme.row_height(_distinguish_names(one.board.head(top)), 0.3, _ONE_LINE)
        return 9, 1.8 + each * float(np.clip(len(one.board), 3, top))

    return draw(summarize, paint, tests, Placement(ax, col, row, title), "Flaky tests", size, "x")


class _Board(NamedTuple):
    board: pd.DataFrame
    n_hidden: int


def _rank_tests(tests: pd.DataFrame, before: pd.DataFrame | None) -> _Board:
    ranked = metrics.flaky_board(tests, before)
    if before is None:
        ranked["status"] = ranked["is_resolved"].map({True: "resolved", False: "still"}).astype("str")
    is_hidden = pd.Series(False, index=ranked.index) if before is None else _find_resolved_before(ranked, before)
    return _Board(ranked[~is_hidden], int(is_hidden.sum()))


def _find_resolved_before(ranked: pd.DataFrame, before: pd.DataFrame) -> pd.Series[bool]:
    """Return which tests are resolved and were already resolved in the earlier list."""
    then = metrics.flaky_board(before).set_index("id").reindex(ranked["id"])
    was = then["is_resolved"].fillna(False).to_numpy(bool)
    again = ranked["last_resolved_at"].to_numpy() > then["last_resolved_at"].to_numpy()
    return ranked["status"].eq("resolved") & was & ~again


def _select_tests(board: pd.DataFrame, top: int, has_before: bool) -> pd.DataFrame:
    """Return up to `top` tests grouped by status, in each those with most instances."""
    place = board["status"].map({status: k for k, status in enumerate(_STATUS)})
    turn = board.groupby("status").cumcount() + (0 if has_before else len(board) * board["status"].eq("resolved"))
    taken = board.assign(place=place, turn=turn).sort_values(["turn", "place"], kind="stable").head(top)
    return taken.sort_values(["place", "turn"])


def _count_tests(board: pd.DataFrame) -> str:
    """Return the number of flaky tests and instances; quiet and resolved tests are not included."""
    flaky = board[~board["status"].isin(["quiet", "resolved"])]
    if flaky.empty:
        n_quiet = int(board["status"].eq("quiet").sum())
        quiet = f", {n_quiet:,} quiet" if n_quiet else ""
        return f"No flaky test{quiet}, {len(board) - n_quiet:,} resolved"
    instances = int(flaky["instances"].fillna(0).sum())
    return f"{format_count(len(flaky), 'flaky test')}, {format_count(instances, 'instance')}"


def _note(board: pd.DataFrame, shown: int, resolved_then: int, has_before: bool) -> str:
    counts = board["status"].value_counts()
    by_status = {what: int(counts.get(status, 0)) for status, (what, *_) in _STATUS.items()}
    counted_by_status = theme.list_counts(**by_status) if has_before or by_status["resolved"] else ""
    earlier = theme.count_note(resolved_then, "test", "resolved before the earlier list not shown")
    hidden = f"{shown:,} of {len(board):,} shown" if shown < len(board) else ""
    return theme.join_notes(counted_by_status, earlier, hidden)


def _draw_instances(ax: Axes, shown: pd.DataFrame) -> None:
    instances = shown["instances"].fillna(0).to_numpy(np.float64)
    for key, (label, color, hatch) in _STATUS.items():
        if (own := shown["status"].eq(key).to_numpy(bool)).any():
            ax.barh(np.flatnonzero(own), instances[own], 0.7, color=color, hatch=hatch, edgecolor=theme.background(ax),
                    linewidth=0, label=label)  # fmt: skip
    theme.label_bars(ax, instances, map(_format_age, shown["last_seen_s"]))
    names = _distinguish_names(shown)
    theme.label_rows(ax, range(len(shown)), names, _CHARACTERS)
    beside = font_points(95) / width_beside(ax, _CHARACTERS)
    ax.set_xlim(0, max(instances.max(), 1) / max(1 - beside, 0.15))


def _distinguish_names(shown: pd.DataFrame) -> list[str]:
    """Return distinct names: the name, extended by scope, location and id where tests share it."""
    names = shown["name"].fillna(theme.NO_NAME)
    for more in ("scope", "location", "id"):
        twice = names.duplicated(keep=False) & shown[more].notna()
        names = names.mask(twice, names + " · " + shown[more])
    return list(names)


def _format_age(seconds: float) -> str:
    """Return an age such as "3 days ago", in the largest unit of which there is at least one."""
    if np.isnan(seconds):
        return "unknown"
    unit, length = next(((unit, length) for unit, length in _UNITS if seconds >= length), _UNITS[-1])
    return f"{format_count(max(int(seconds // length), 0), unit)} ago"
