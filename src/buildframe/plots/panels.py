"""Draw a plot on one Axes, or once per group as small multiples with shared axes and one header.

Knows frames and Axes, but not what a plot shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from buildframe.errors import BadInput
from buildframe.formatting import format_count
from buildframe.metrics.grouping import Key
from buildframe.plots import theme
from buildframe.plots.fonts import add_fallback_font
from buildframe.plots.groups import key_name, key_texts
from buildframe.plots.header import TEXT_SIZE, TITLE_SIZE, add_legend, legend_height
from buildframe.plots.layout import character_width, font_points, mark_as_cell, plot_area, text_size, wrap_text
from buildframe.plots.names import SEPARATOR, unique_labels
from buildframe.plots.scope import describe_scope, rows_name
from buildframe.terminal import show

M = TypeVar("M")
Share = Literal["", "x", "y", "xy"]

_MOST_CELLS, _MOST_COLUMNS, _MOST_ROWS = 12, 4, 6
_WIDTHS = {1: 9.0, 2: 10.0, 3: 12.0, 4: 13.0}
"""Width of a figure in inches by its number of columns."""

_LEAST_WIDTH = 2.4  # inches of a cell
_NAME = 30  # characters
_PAD = 6.0  # points around the header


@dataclass(frozen=True)
class Placement:
    """Where a plot is drawn: the arguments that all plots have in common."""

    ax: Axes | None = None
    col: Key | None = None
    row: Key | None = None
    title: str | None = None
    tz: str = "UTC"

    @property
    def is_grid(self) -> bool:
        """Whether the plot is drawn once per group."""
        return self.col is not None or self.row is not None


@dataclass
class Panel(Generic[M]):
    """Axes to draw on: those of a plot, or of a cell of small multiples, which has a name."""

    ax: Axes
    summaries: Sequence[M]
    """What is drawn in all cells, for scales that they share."""

    title: str | None = None
    scope: str = ""
    name: str | None = None
    key: str = ""
    heading: str = ""
    """The title if there is nothing to show."""

    @property
    def is_cell(self) -> bool:
        """Whether the Axes are one of several."""
        return self.name is not None

    def __post_init__(self) -> None:
        """Note that a cell needs less room for texts."""
        if self.is_cell:
            mark_as_cell(self.ax)

    def decorate(
        self, heading: str, note: str = "", grid: Literal["", "x", "y"] = "", short: str = "", key: str = ""
    ) -> None:
        """
        Add title and note, and style the axes.

        `heading` is the title of a plot of its own. A cell has its name instead, and `short` before the note. `key`
        explains marks; cells share it.
        """
        if not self.is_cell:
            title = heading if self.title is None else self.title
            theme.decorate(self.ax, title, theme.join_notes(key, note), grid, self.scope)
            return
        self.key = key
        theme.style_axes(self.ax, grid)
        _title_cell(self.ax, str(self.name), theme.join_notes(short, note))

    def show_message(self, sentence: str) -> None:
        """Show a sentence in place of a plot."""
        if self.is_cell:
            theme.show_message(self.ax, sentence)
            _title_cell(self.ax, str(self.name), "")
            return
        theme.show_message(self.ax, sentence, self.heading if self.title is None else self.title, self.scope)


class _Cell(NamedTuple):
    row: int
    column: int
    name: str
    frame: pd.DataFrame
    message: str = ""
    """What is shown in place of a plot."""


class _CellGrid(NamedTuple):
    """The cells of small multiples, and a note on groups without one."""

    cells: list[_Cell]
    hidden: str

    @property
    def n_rows(self) -> int:
        return max(cell.row for cell in self.cells) + 1

    @property
    def n_columns(self) -> int:
        return max(cell.column for cell in self.cells) + 1


def draw(
    summarize: Callable[[pd.DataFrame], M],
    paint: Callable[[M, Panel[M]], None],
    frame: pd.DataFrame,
    place: Placement,
    heading: str,
    size: tuple[float, float] | Callable[[M], tuple[float, float]],
    share: Share = "xy",
) -> Any:
    """
    Summarize and draw a frame on the Axes of `place`, or once per group of its `col` and `row`.

    `heading` is the title of small multiples; the keys of the groups follow it. `size` is that of one plot in inches,
    and `share` which axes have the same limits in all cells. Return the Axes, or an array of them.
    """
    if (place.row is not None and place.row is place.col) or (isinstance(place.row, str) and place.row == place.col):
        key = show(place.row)
        raise BadInput(f"row={key}, col={key}: both are the same key. Pass one of them, or another key for the other.")
    if not place.is_grid:
        summary = summarize(frame)
        with theme.themed_axes(place.ax, *(size(summary) if callable(size) else size)) as ax:
            scope = describe_scope(frame, place.tz)  # also validates the zone
            scope = scope if place.title is None else ""
            paint(summary, Panel(ax, [summary], place.title, scope, heading=heading.removesuffix(",")))
        return ax
    if place.ax is not None:
        raise BadInput(
            "ax= is one Axes, but col= and row= draw one for each group. Omit ax=, or call the plot once per group."
        )
    width = theme.figure_size(0, 0)[0] or None
    grid = _split(frame, place, width, 2 if share == "x" else 3)
    summaries = [summarize(cell.frame) for cell in grid.cells]
    sizes = [size(summary) if callable(size) else size for summary in summaries]
    part = 0.62 if share == "xy" else 0.8  # names of rows do not shrink
    high = float(np.clip(part * max(high for _, high in sizes), 2.3, 7)) * max(font_points(1), 1)
    with theme.active_theme(None):
        keys = " and ".join(key_name(key) for key in (place.row, place.col) if key is not None)
        title = place.title
        if title is None:
            title = SEPARATOR.join(filter(None, [f"{heading} by {keys}", describe_scope(frame, place.tz)]))
        axes = _draw_cells(grid, summaries, paint, title, (width or _WIDTHS[min(grid.n_columns, 4)], high), share)
    is_matrix = place.col is not None and place.row is not None
    return axes.reshape(grid.n_rows, grid.n_columns) if is_matrix else axes


def draw_rows(
    groups: Sequence[tuple[str, M]], paint: Callable[[M, Panel[M]], None], title: str, note: str, height: float
) -> Any:
    """Draw one row of Axes for each named summary, with one header, and return an array of the Axes."""
    cells = [_Cell(number, 0, name, pd.DataFrame()) for number, (name, _) in enumerate(groups)]
    summaries = [summary for _, summary in groups]
    with theme.active_theme(None):
        size = theme.figure_size(9, 0)[0], height
        return _draw_cells(_CellGrid(cells, note), summaries, paint, title, size, "x")


def _draw_cells(
    grid: _CellGrid, summaries: Sequence[M], paint: Callable[[M, Panel[M]], None], title: str,
    size: tuple[float, float], share: Share,
) -> Any:  # fmt: skip
    """Draw cells with one header, and return an array of their Axes; `size` is the width of all and a row's height."""
    figure = plt.figure(figsize=(size[0], size[1] * grid.n_rows), layout="constrained")
    spec = figure.add_gridspec(grid.n_rows, grid.n_columns)
    panels = [Panel(figure.add_subplot(spec[cell.row, cell.column]), summaries, name=cell.name) for cell in grid.cells]
    for cell, summary, panel in zip(grid.cells, summaries, panels, strict=True):
        if cell.message:
            panel.show_message(cell.message)
        else:
            paint(summary, panel)
    axes = [panel.ax for panel in panels]
    _share_axes(grid, axes, share)
    _add_header(figure, title, theme.join_notes(*dict.fromkeys(panel.key for panel in panels), grid.hidden), axes)
    return np.array(axes, dtype=object)


# Cells


def _split(frame: pd.DataFrame, place: Placement, width: float | None, most_columns: int) -> _CellGrid:
    """Return the cells of the groups with most rows, ordered by name."""
    row, column = (
        None if key is None else key_texts(frame, key, argument)
        for key, argument in ((place.row, "row"), (place.col, "col"))
    )
    if row is not None and column is not None:
        rows, columns = choose_pairs(row, column)
    else:
        rows, columns = ([""] if one is None else list(one.value_counts().index[:_MOST_CELLS]) for one in (row, column))
    rows, columns = sorted(rows) or [""], sorted(columns) or [""]
    hidden = [
        f"{format_count(n, 'more value')} of {key_name(key)} with fewer rows not shown"
        for key, values, shown in ((place.row, row, rows), (place.col, column, columns))
        if values is not None and (n := values.nunique() - len(shown)) > 0
    ]
    wrap = len(columns) if row is not None else _columns_of(len(columns), width, most_columns)
    cells, labels = [], unique_labels(rows, _NAME) | unique_labels(columns, _NAME)
    for i, name in enumerate(rows):
        for k, other in enumerate(columns):
            own = frame[_is_of(row, name, frame) & _is_of(column, other, frame)]
            label = SEPARATOR.join(labels[value] for value in (name, other) if value)
            message = f"No {rows_name(frame)}." if own.empty and len(frame) else ""
            cells.append(_Cell(i if row is not None else k // wrap, k % wrap, label, own, message))
    return _CellGrid(cells, theme.join_notes(*hidden))


def choose_pairs(rows: pd.Series[str], columns: pd.Series[str]) -> tuple[list[str], list[str]]:
    """Return the rows and columns of a matrix with few empty cells: those with most pairs, then those with most rows.

    Rows and columns are chosen in turn for those that the other ones have data for.
    """
    counts = pd.crosstab(rows, columns)
    chosen, others = counts.index, _rank(counts.T).index[:_MOST_COLUMNS]
    for _ in range(3):
        chosen = _rank(counts[others]).index[:_MOST_ROWS]
        others = _rank(counts.loc[chosen].T).index[:_MOST_COLUMNS]
    return list(chosen), list(others)


def _rank(counts: pd.DataFrame) -> pd.DataFrame:
    """Return how many pairs with rows, and how many rows, each group has, the most first."""
    sums = pd.DataFrame({"pairs": (counts > 0).sum(axis=1), "rows": counts.sum(axis=1)})
    return sums[sums["pairs"] > 0].sort_values(["pairs", "rows"], ascending=False, kind="stable")


def _is_of(key: pd.Series[str] | None, value: str, frame: pd.DataFrame) -> Any:
    return np.ones(len(frame), bool) if key is None or not len(frame) else (key == value).to_numpy(bool)


def _columns_of(cells: int, width: float | None, most: int) -> int:
    """Return in how many columns cells are arranged."""
    fitting = most if width is None else min(max(int(width / _LEAST_WIDTH), 1), most)
    return min(cells, fitting, 2 if cells == 4 else most)


def _title_cell(ax: Axes, name: str, note: str) -> None:
    """Write the name of a cell and its note above its Axes."""
    labels = [line for label in ax.get_yticklabels() for line in label.get_text().split("\n")]
    left = character_width() * (max(map(len, labels), default=0) + 4)  # with the label of the axis
    width, height = plot_area(ax, left)[0], 2.0
    if note:
        line = ax.annotate(note, (0, 1), (0, height), "axes fraction", "offset points", fontsize=font_points(8),
                           alpha=0.85, va="bottom", annotation_clip=False)  # fmt: skip
        add_fallback_font(line)
        wrap_text(line, width)
        height += text_size(line)[1]
    heading = ax.set_title(name, loc="left", fontsize=font_points(10), pad=height + 3, color=theme.text_color(),
                           parse_math=False)  # fmt: skip
    add_fallback_font(heading)
    wrap_text(heading, width)


# Shared axes


def _share_axes(grid: _CellGrid, axes: Sequence[Axes], share: Share) -> None:
    """Give cells the limits that hold all of them, and labels to the outer ones only."""
    drawn = [(cell, ax) for cell, ax in zip(grid.cells, axes, strict=True) if ax.axison]
    for which in ("x", "y"):
        if which in share and len(drawn) > 1:
            _unite_limits([ax for _, ax in drawn], which)
    lowest = {cell.column: cell.row for cell, _ in sorted(drawn, key=lambda one: one[0].row)}
    leftmost = {cell.row: cell.column for cell, _ in sorted(drawn, key=lambda one: -one[0].column)}
    for cell, ax in drawn:
        if cell.row != lowest[cell.column]:
            ax.set_xlabel("")
            ax.tick_params(axis="x", labelbottom="x" not in share)
            ax.xaxis.offsetText.set_visible("x" not in share)
        if cell.column != leftmost[cell.row]:
            ax.set_ylabel("")
            ax.tick_params(axis="y", labelleft="y" not in share)
        for label, length in zip((ax.xaxis.label, ax.yaxis.label), plot_area(ax), strict=True):
            label.set_color(theme.text_color())
            label.set_parse_math(False)
            label.set_fontsize(font_points(TEXT_SIZE))
            wrap_text(label, length)


def _unite_limits(axes: Sequence[Axes], which: str) -> None:
    limits = np.array([ax.get_xlim() if which == "x" else ax.get_ylim() for ax in axes])
    is_reversed = bool((limits[:, 0] > limits[:, 1]).all())
    low, high = limits.min(), limits.max()
    both = (high, low) if is_reversed else (low, high)
    first, *others = axes
    first.set_xlim(*both) if which == "x" else first.set_ylim(*both)
    for ax in others:
        ax.sharex(first) if which == "x" else ax.sharey(first)


# Header


def _add_header(figure: Figure, title: str, note: str, axes: Sequence[Axes]) -> None:
    """Write title, note and the legend of all cells above them, and make the figure so much higher."""
    width, height = figure.get_size_inches() * 72
    texts = [figure.text(0, 1, title, fontsize=font_points(TITLE_SIZE), fontweight="bold", va="top")]
    if note:
        texts.append(figure.text(0, 1, note, fontsize=font_points(TEXT_SIZE), va="top", alpha=0.85))
    heights = []
    for text in texts:
        text.set(parse_math=False, in_layout=False, color=theme.text_color())
        add_fallback_font(text)
        wrap_text(text, width - 2 * _PAD, strip=SEPARATOR if text is texts[0] else "")
        heights.append(text_size(text)[1] + 3)
    legend = _add_legend(figure, axes, width - 2 * _PAD)
    below = 0.0 if legend is None else legend_height(legend) + 3
    header = _PAD + sum(heights) + below + 2
    total = height + header
    figure.set_size_inches(width / 72, total / 72)
    at = total - _PAD
    for text, high in zip(texts, heights, strict=True):
        text.set_position((_PAD / width, at / total))
        at -= high
    if legend is not None:
        legend.set_bbox_to_anchor((_PAD / width, at / total), figure.transFigure)
    engine = figure.get_layout_engine()
    if isinstance(engine, ConstrainedLayoutEngine):
        engine.set(rect=(0, 0, 1, 1 - header / total))


def _add_legend(figure: Figure, axes: Iterable[Axes], width: float) -> Any:
    """Draw a legend of what the Axes contain, each label once; None without labels."""
    entries: dict[str, Any] = {}
    each = [dict(zip(*reversed(ax.get_legend_handles_labels()), strict=True)) for ax in axes]
    for own in sorted(each, key=len, reverse=True):
        for label, handle in own.items():
            entries.setdefault(label, handle)
    most = 0.4 * float(figure.get_size_inches()[1]) * 72
    return add_legend(figure, entries, width, most, loc="upper left", borderaxespad=0)
