"""Layout: measure the room that Axes have in their figure, and wrap texts to fit.

Knows figures and texts, but no builds or jobs.
"""

from __future__ import annotations

import textwrap
from weakref import WeakSet

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.gridspec import SubplotSpec
from matplotlib.text import Text
from matplotlib.transforms import Bbox

POINTS_PER_LABEL = 11.5
CHARACTER_WIDTH = 5.2  # points
_LEFT = 0.38  # largest share of the width for labels on the left


def root_figure(ax: Artist) -> Figure:
    """Return the outermost figure that contains the artist."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def points_per_pixel(ax: Artist) -> float:
    """Return the number of points per pixel of the artist's figure."""
    return 72 / root_figure(ax).dpi


_cells: WeakSet[Axes] = WeakSet()
"""Axes of small multiples, whose titles are short and whose legend is that of the figure."""


def mark_as_cell(ax: Axes) -> None:
    """Note that the Axes are a cell of small multiples, which need less room for texts."""
    _cells.add(ax)


def is_cell(ax: Axes) -> bool:
    """Return whether the Axes are a cell of small multiples."""
    return ax in _cells


def plot_area(ax: Axes, left: float = 0, below: float = 40) -> tuple[float, float]:
    """
    Return the minimum width and height in points that the Axes have once all texts around them are placed.

    `left` and `below` are the points that texts on those sides need. Axes in a grid share rows and columns, so each
    also gives way to the texts of the others.
    """
    box, points = axes_cell(ax), points_per_pixel(ax)
    width, height = box.width * points, box.height * points
    if ax.get_subplotspec() is None:
        return width, height
    if ax in _cells:
        return max(width - np.clip(left, 45, 0.45 * width) - 12, 40), max(height - min(below, 0.5 * height) - 36, 20)
    if len(root_figure(ax).axes) > 1:
        left, below = max(left, _LEFT * width), max(below, 0.33 * height)
    return max(width - left - 25, 40), max(height - below - min(0.41 * height, 118), 20)


def label_width(ax: Axes, most: int) -> float:
    """Return the width in points of labels on the left that have at most `most` characters."""
    return CHARACTER_WIDTH * max_characters(ax, most)


def max_characters(ax: Axes, most: int) -> int:
    """Return how many characters a label on the left may have, at most `most`."""
    return int(np.clip(_LEFT * axes_cell(ax).width * points_per_pixel(ax) / CHARACTER_WIDTH - 8, 9, most))


def count_rows_that_fit(ax: Axes, most: int, points: float = POINTS_PER_LABEL, below: float = 40) -> int:
    """Return how many rows of `points` each fit above `below` points of text: at least one, at most `most`."""
    return min(most, max(int(plot_area(ax, below=below)[1] / points), 1))


def is_small(ax: Axes) -> bool:
    """Return whether the Axes have room only for the plot, its title and numbers."""
    box, points = axes_cell(ax), points_per_pixel(ax)
    return bool(box.width * points < 250 or box.height * points < 180)


def axes_cell(ax: Axes) -> Bbox:
    """Return the part of the figure that belongs to the Axes, in pixels; in a grid it ends midway to the next."""
    figure, spec = ax.get_figure(root=False), ax.get_subplotspec()
    assert figure is not None
    if spec is None:
        return ax.get_window_extent()
    if ax in _cells:
        rows, columns = spec.get_gridspec().get_geometry()
        return Bbox.from_bounds(0, 0, figure.bbox.width / columns, figure.bbox.height / rows)
    return _fraction(spec, figure).transformed(figure.transSubfigure)


def _fraction(spec: SubplotSpec, figure: Figure | SubFigure) -> Bbox:
    whole = spec.get_topmost_subplotspec()
    outer = Bbox.unit() if whole is spec else _fraction(whole, figure)
    bottoms, tops, lefts, rights = spec.get_gridspec().get_grid_positions(figure)  # type: ignore[arg-type]
    right = [outer.x0, *(rights[:-1] + lefts[1:]) / 2, outer.x1]
    down = [outer.y1, *(bottoms[:-1] + tops[1:]) / 2, outer.y0]
    return Bbox.from_extents(right[spec.colspan.start], down[spec.rowspan.stop], right[spec.colspan.stop],
                             down[spec.rowspan.start])  # fmt: skip


def apply_layout(ax: Axes) -> None:
    """Make room for texts around the Axes: with the figure's layout engine, or by shrinking the Axes in their cell."""
    if (engine := root_figure(ax).get_layout_engine()) is not None:
        engine.execute(root_figure(ax))
    elif ax.get_subplotspec() is not None:
        box, text_box, own = ax.get_window_extent(), ax.get_tightbbox(), axes_cell(ax).padded(-4 / points_per_pixel(ax))
        assert text_box is not None
        x0, y0 = box.min + np.maximum(np.subtract(own.min, text_box.min), 0)
        x1, y1 = box.max + np.minimum(np.subtract(own.max, text_box.max), 0)
        if x1 > x0 and y1 > y0 and (figure := ax.get_figure(root=False)) is not None:
            ax.set_position(Bbox.from_extents(x0, y0, x1, y1).transformed(figure.transSubfigure.inverted()))
            ax.set_in_layout(True)  # set_position turns it off


def wrap_text(text: Text, points: float) -> None:
    """Wrap a text into lines of at most `points`, with a margin for other resolutions."""
    content, upright = text.get_text(), text.get_rotation() == 90
    width = len(content)
    while width > 8:
        extent = text.get_window_extent()
        if (extent.height if upright else extent.width) * points_per_pixel(text) <= 0.94 * points:
            break
        width = int(width * 0.92)
        text.set_text(textwrap.fill(content, width))
