"""Layout: measure the room that Axes have in their figure, and wrap texts to fit.

Knows figures and texts, but no builds or jobs.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from weakref import WeakSet

import numpy as np
from matplotlib import rcParams
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.gridspec import SubplotSpec
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from buildframe.plots.fonts import add_fallback_font

_LABEL_HEIGHT, _CHARACTER_WIDTH = 1.28, 0.578
"""Height of a label of a row and width of a character, as multiples of the font size."""

_LEFT = 0.38  # largest share of the width for labels on the left
_HEADER, _MOST_HEADER = 0.41, 118.0
"""Largest share of the height for title, note and legend, and the largest height in points."""

_LONGEST = 4
"""Labels that are measured to find the widest one, as a measurement takes long."""

_NARROW = 330.0  # points of Axes with their labels

_BELOW = 40.0
"""Points for labels below the Axes."""


def font_points(points: float) -> float:
    """Return points that are meant for the default `font.size` of 10 at the `font.size` of the style."""
    return points * float(rcParams["font.size"]) / 10


def _label_size() -> float:
    return FontProperties(size=rcParams["ytick.labelsize"]).get_size_in_points()


def label_height() -> float:
    """Return the points that the label of a row needs."""
    return _LABEL_HEIGHT * _label_size()


def character_width() -> float:
    """Return the points that a character of the label of a row has on average."""
    return _CHARACTER_WIDTH * _label_size()


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


def header_height(ax: Axes) -> float:
    """Return the points above the Axes that title, note and legend may have together."""
    return min(_HEADER * axes_cell(ax).height * points_per_pixel(ax), font_points(_MOST_HEADER))


def plot_area(ax: Axes, left: float = 0, below: float = _BELOW) -> tuple[float, float]:
    """
    Return the minimum width and height in points that the Axes have once all texts around them are placed.

    `left` are the points that texts on the left need, and `below` those that texts below need at the default font size.
    Axes in a grid share rows and columns, so each also gives way to the texts of the others.
    """
    box, points, below = axes_cell(ax), points_per_pixel(ax), font_points(below)
    width, height = box.width * points, box.height * points
    if ax.get_subplotspec() is None:
        return width, height
    if ax in _cells:
        left = float(np.clip(left, font_points(45), 0.45 * width))
        return max(width - left - 12, 40), max(height - min(below, 0.5 * height) - font_points(36), 20)
    if len(root_figure(ax).axes) > 1:
        left, below = max(left, _LEFT * width), max(below, 0.33 * height)
    return max(width - left - font_points(25), 40), max(height - below - header_height(ax), 20)


def choose_apart(places: Iterable[float], least: float) -> list[int]:
    """Return which of the places to keep, the first ones first, so that they are at least so far apart."""
    chosen: dict[int, float] = {}
    for number, place in enumerate(places):
        if all(abs(place - other) >= least for other in chosen.values()):
            chosen[number] = place
    return [*chosen]


def label_width(ax: Axes, most: int) -> float:
    """Return the width in points of labels on the left that have at most `most` characters."""
    return character_width() * max_characters(ax, most)


def width_beside(ax: Axes, most: int) -> float:
    """Return the minimum width in points of Axes beside labels on the left of at most `most` characters."""
    return plot_area(ax, label_width(ax, most))[0]


def max_characters(ax: Axes, most: int) -> int:
    """Return how many characters a label on the left may have, at most `most`."""
    return int(np.clip(_LEFT * axes_cell(ax).width * points_per_pixel(ax) / character_width() - 8, 9, most))


def count_rows_that_fit(ax: Axes, most: int, points: float = 0.0, below: float = _BELOW) -> int:
    """
    Return how many rows fit above `below` points of text: at least one, at most `most`.

    A row has `points` at the default font size, or else the height of a label.
    """
    height = font_points(points) or label_height()
    return min(most, max(int(plot_area(ax, below=below)[1] / height), 1))


def is_small(ax: Axes) -> bool:
    """Return whether the Axes have room only for the plot, its title and numbers."""
    box, points = axes_cell(ax), points_per_pixel(ax)
    return bool(box.width * points < font_points(250) or box.height * points < font_points(180))


def is_narrow(ax: Axes) -> bool:
    """Return whether the Axes have room only for short labels, in a smaller font."""
    return bool(axes_cell(ax).width * points_per_pixel(ax) < font_points(_NARROW))


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


def text_size(text: Text) -> tuple[float, float]:
    """Return the width and height of a text in points."""
    extent, points = text.get_window_extent(), points_per_pixel(text)
    return float(extent.width) * points, float(extent.height) * points


def measured_text(owner: Axes | Figure, content: str, size: float | str) -> Text:
    """Return a text in the figure of the owner that can be measured, but is not drawn."""
    text = Text(0, 0, content, fontsize=size, parse_math=False)
    text.set_figure(root_figure(owner))
    add_fallback_font(text)
    return text


def wrap_text(text: Text, points: float, strip: str = "") -> None:
    """Wrap a text into lines of at most `points`, with a margin for other resolutions.

    Lines of a wrapped text neither begin nor end with a character of `strip`.
    """
    content, upright = text.get_text(), text.get_rotation() == 90
    width, limit = len(content), 0.94 * points
    while width > 8 and (length := text_size(text)[upright]) > limit:
        longest = max(map(len, text.get_text().split("\n")))
        width = min(int(0.96 * width), int(1.02 * longest * limit / length))
        text.set_text("\n".join(line.strip(strip) for line in textwrap.wrap(content, max(width, 8))))


def labels_width(ax: Axes) -> float:
    """Return the width in points of the labels on the left of the Axes."""
    return _extent_of_labels(ax.yaxis, 0)


def labels_height(ax: Axes) -> float:
    """Return the height in points of the labels below the Axes."""
    return _extent_of_labels(ax.xaxis, 1)


def _extent_of_labels(axis: Axis, side: int) -> float:
    """Return the width (side 0) or height (1) of tick labels and name, measured on the longest."""
    labels = sorted(axis.get_ticklabels(), key=lambda label: len(label.get_text()))[-_LONGEST:]
    sizes = [text_size(label)[side] for label in labels if label.get_text()]
    name = text_size(axis.label)[side] + 4 if axis.label.get_text() else 0.0
    return (max(sizes) + 6 if sizes else 0.0) + name
