"""Plot which jobs wait for which, as a matrix."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from buildframe import metrics
from buildframe.formatting import format_count, format_duration
from buildframe.guards.arguments import checked_frames
from buildframe.metrics.contention import UNEXPLAINED
from buildframe.metrics.durations import is_script
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.groups import check_key
from buildframe.plots.layout import (
    axes_cell,
    character_width,
    font_points,
    label_width,
    max_characters,
    plot_area,
    points_per_pixel,
    width_beside,
)
from buildframe.plots.panels import Panel, Placement, draw

_CHARACTERS = 24
_NAMES = 0.28
"""Largest share of the height for upright names of columns."""

_UNITS = (("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
_SIDE = 20.0  # points; smallest height of a cell


@checked_frames
def contention(
    jobs: pd.DataFrame,
    ax: Axes | None = None,
    by: Key = "pipeline",
    top: int = 10,
    col: Key | None = None,
    row: Key | None = None,
    title: str | None = None,
    tz: str = "UTC",
) -> Any:
    """
    Plot which jobs wait for which: the time that each group waits while another one holds the agents.

    Rows are groups whose jobs wait, columns are groups whose jobs hold the agents meanwhile. The first column holds
    longest. The last column is unexplained time: agents were idle, starting or away.

    Parameters
    ----------
    jobs : pandas.DataFrame
        Jobs with the columns that `metrics.contention` needs. Select one queue first to see only its jobs.
    ax : matplotlib.axes.Axes, optional
        Axes to draw on. By default a new figure is created.
    by : str or function, default "pipeline"
        Column, or function such as `metrics.step`, that defines the groups.
    top : int, default 10
        Most groups that have a row and a column of their own: those that wait or hold longest. The others are summed.
    col, row : str or function, optional
        Keys of small multiples, such as "queue": one plot for each group, side by side (`col`) or one below the other
        (`row`). They have one scale of colors.
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
        If a column is missing, a time has no zone, `by` is not one key, `top` is below 1, or `ax` is used with `col`
        or `row`.

    See Also
    --------
    buildframe.metrics.contention : The numbers of this plot, by queue.
    queue_depth : The number of waiting jobs over time.

    Notes
    -----
    The note gives the total of all cells, which is the queue time. Cells are in hours, minutes or seconds, whichever
    suits the largest.

    Examples
    --------
    >>> jobs = ci.jobs(created_from="7d", include_retried_jobs=True)
    >>> ax = plots.contention(jobs)
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('held agents', 'waited')
    """
    theme.check_positive(top=top)
    check_key(jobs, by, "by")

    def summarize(rows: pd.DataFrame) -> _WaitTable:
        pairs = metrics.contention(rows, by)
        return _WaitTable(pairs, _sum_pairs(pairs, top))

    def paint(one: _WaitTable, panel: Panel[_WaitTable]) -> None:
        ax, pairs, table = panel.ax, one.pairs, one.table
        if table.empty:
            panel.show_message("No job waited for an agent.")
            return
        fitting = _count_fitting(ax, table)
        table = table if len(table) <= fitting else _sum_pairs(pairs, fitting - 1)
        most = max(float(other.table.abs().to_numpy().max(initial=0)) for other in panel.summaries)
        unit, seconds = _choose_unit(most)
        _draw_cells(ax, table / seconds, most / seconds)
        _label_axes(ax, table)
        n, total = format_count(pairs.attrs["n"], "job"), format_duration(float(pairs["wait_s"].sum()))
        excluded = theme.list_counts(not_started=pairs.attrs["n_censored"], negative=pairs.attrs["n_negative"])
        key = f"{unit} of queue time, {'darker' if theme.is_light() else 'brighter'} is longer"
        note = theme.join_notes("" if panel.is_cell else f"{total} in all", excluded)
        panel.decorate(f"Which jobs {n} waited for", note, short=f"{n}, {total}", key=key)
        ax.spines[:].set_visible(False)

    def size(one: _WaitTable) -> tuple[float, float]:
        return 9, 2.6 + 0.42 * max(len(one.table), 3)

    place, own = Placement(ax, col, row, title, tz), jobs[is_script(jobs)] if col or row else jobs
    return draw(summarize, paint, own, place, "Which jobs jobs waited for,", size, "")


class _WaitTable(NamedTuple):
    pairs: pd.DataFrame
    table: pd.DataFrame


def _sum_pairs(pairs: pd.DataFrame, top: int) -> pd.DataFrame:
    """Return seconds by waiting group (rows) and holding group (columns), of all queues, the longest first.

    Groups beyond the first `top` are one, the last; unexplained time is the column after it, named None.
    """
    names = pairs.assign(
        waiting=pairs["waiting"].fillna(theme.NO_NAME),
        holding=pairs["holding"].fillna(theme.NO_NAME).where(pairs["explained"].astype(bool)),
    )
    held = names.groupby("holding")["wait_s"].sum()
    waited = names.groupby("waiting")["wait_s"].sum()
    order = pd.DataFrame({"held": held, "waited": waited}).fillna(0.0)
    order = order.sort_values(["held", "waited"], ascending=False, kind="stable")
    if len(order) > top:
        chosen = order.max(axis=1).sort_values(ascending=False, kind="stable").index[:top]
        own = [name for name in order.index if name in {*chosen}]
        other = format_count(len(order) - top, "other")
        place = dict.fromkeys(order.index, top) | {name: k for k, name in enumerate(own)}
        labels: list[Any] = [*own, other]
    else:
        place, labels = {name: k for k, name in enumerate(order.index)}, [*order.index]
    table = np.zeros((len(labels), len(labels) + 1))
    column = names["holding"].map(place).fillna(len(labels)).astype("int64")
    np.add.at(table, (names["waiting"].map(place).astype("int64"), column), names["wait_s"].to_numpy(np.float64))
    rows, columns = ((table != 0).any(axis=axis).nonzero()[0] for axis in (1, 0))
    names_of_columns = pd.Index([[*labels, None][k] for k in columns], dtype="object")
    return pd.DataFrame(table[np.ix_(rows, columns)], index=[labels[k] for k in rows], columns=names_of_columns)


def _count_fitting(ax: Axes, table: pd.DataFrame) -> int:
    """Return how many rows have the height of a cell, at least two."""
    return max(min(len(table), int(_area(ax, table)[1] / font_points(_SIDE))), 2)


def _area(ax: Axes, table: pd.DataFrame) -> tuple[float, float]:
    """Return width and height of the cells in points, without the names of rows and columns."""
    texts, is_upright = _name_columns(ax, table)
    below = 40 + max(map(len, texts)) * character_width() / font_points(1) if is_upright else 50
    return plot_area(ax, label_width(ax, _CHARACTERS), below)


def _name_columns(ax: Axes, table: pd.DataFrame) -> tuple[list[str], bool]:
    """Return the names of columns, and whether they are upright: if they are longer than the columns are wide."""
    room = _NAMES * axes_cell(ax).height * points_per_pixel(ax) / character_width()
    most = int(np.clip(room, 8, _CHARACTERS))
    labels = theme.unique_labels({str(name) for name in table if name is not None}, most)
    texts = [theme.drawable(f"({UNEXPLAINED})", most) if name is None else labels[str(name)] for name in table]
    width = width_beside(ax, _CHARACTERS) / table.shape[1]
    return texts, max(map(len, texts)) * 1.04 * character_width() > width


def _choose_unit(most: float) -> tuple[str, float]:
    return next((one for one in _UNITS if most >= 2 * one[1]), _UNITS[-1])


def _draw_cells(ax: Axes, table: pd.DataFrame, most: float) -> None:
    values, (width, height) = table.to_numpy(np.float64), _area(ax, table)
    size = min(font_points(9), width / values.shape[1] / 3.4, height / values.shape[0] * 0.6)
    limits = min(0.0, float(values.min())), max(most, float(values.max()), 1e-9)
    theme.draw_cells(ax, np.where(values == 0, np.nan, values), limits, size, _format)


def _format(value: float) -> str:
    if 0 < abs(value) < 0.05:
        return "<0.1" if value > 0 else "\N{MINUS SIGN}0"
    return (f"{value:.1f}" if abs(value) < 9.95 else f"{value:,.0f}").replace("-", "\N{MINUS SIGN}")


def _label_axes(ax: Axes, table: pd.DataFrame) -> None:
    """Name rows and columns."""
    columns, is_upright = _name_columns(ax, table)
    labels = theme.unique_labels(map(str, table.index), max_characters(ax, _CHARACTERS))
    ax.set_xticks(np.arange(table.shape[1]) + 0.5, columns, rotation=90 if is_upright else 0, parse_math=False)
    ax.set_yticks(np.arange(len(table)) + 0.5, [labels[str(name)] for name in table.index], parse_math=False)
    ax.set(xlabel="held agents", ylabel="waited")
