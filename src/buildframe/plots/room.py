"""The room that a picture has in its figure, and how its words fit there."""

from __future__ import annotations

import textwrap

import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure, SubFigure
from matplotlib.gridspec import SubplotSpec
from matplotlib.text import Text
from matplotlib.transforms import Bbox

POINTS_A_LABEL = 11.5
SIGN = 5.2  # points that one of a name is wide
_LEFT = 0.38  # of the width, at most for what is at the left of a picture


def figure_of(ax: Artist) -> Figure:
    """The whole figure that Axes or words are in."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def points_per_pixel(ax: Artist) -> float:
    """For what is measured in pixels, but set in points."""
    return 72 / figure_of(ax).dpi


def room(ax: Axes, left: float = 0, below: float = 40) -> tuple[float, float]:
    """Points, wide and high, that the Axes will have at least, when all around them has its place.

    `left` and `below`: points that the words there need. Axes in one grid share its rows and columns, so that each
    also gives way to the words of the others.
    """
    box, points = cell(ax), points_per_pixel(ax)
    width, height = box.width * points, box.height * points
    if ax.get_subplotspec() is None:
        return width, height
    if len(figure_of(ax).axes) > 1:
        left, below = max(left, _LEFT * width), max(below, 0.33 * height)
    return max(width - left - 25, 40), max(height - below - min(0.37 * height, 105), 20)


def at_left(ax: Axes, most: int) -> float:
    """Points that names at the left take, of so many signs at most."""
    return SIGN * signs(ax, most)


def signs(ax: Axes, most: int) -> int:
    """How many signs the names at the left may have, at most so many."""
    return int(np.clip(_LEFT * cell(ax).width * points_per_pixel(ax) / SIGN - 8, 9, most))


def is_small(ax: Axes) -> bool:
    """Whether the Axes have no room for more than the picture, its title, and numbers."""
    box, points = cell(ax), points_per_pixel(ax)
    return bool(box.width * points < 250 or box.height * points < 180)


def cell(ax: Axes) -> Bbox:
    """What of the figure belongs to the Axes, in pixels: in a grid up to the middle between them and the next."""
    figure, spec = ax.get_figure(root=False), ax.get_subplotspec()
    assert figure is not None
    if spec is None:
        return ax.get_window_extent()
    return _fraction(spec, figure).transformed(figure.transSubfigure)


def _fraction(spec: SubplotSpec, figure: Figure | SubFigure) -> Bbox:
    whole = spec.get_topmost_subplotspec()
    outer = Bbox.unit() if whole is spec else _fraction(whole, figure)
    bottoms, tops, lefts, rights = spec.get_gridspec().get_grid_positions(figure)  # type: ignore[arg-type]
    right = [outer.x0, *(rights[:-1] + lefts[1:]) / 2, outer.x1]
    down = [outer.y1, *(bottoms[:-1] + tops[1:]) / 2, outer.y0]
    return Bbox.from_extents(right[spec.colspan.start], down[spec.rowspan.stop], right[spec.colspan.stop],
                             down[spec.rowspan.start])  # fmt: skip


def settle(ax: Axes) -> None:
    """Gives what is around the Axes its place: by the figure's layout, or else by shrinking them in their cell."""
    if (engine := figure_of(ax).get_layout_engine()) is not None:
        engine.execute(figure_of(ax))
    elif ax.get_subplotspec() is not None:
        box, words, own = ax.get_window_extent(), ax.get_tightbbox(), cell(ax).padded(-4 / points_per_pixel(ax))
        assert words is not None
        x0, y0 = box.min + np.maximum(np.subtract(own.min, words.min), 0)
        x1, y1 = box.max + np.minimum(np.subtract(own.max, words.max), 0)
        if x1 > x0 and y1 > y0 and (figure := ax.get_figure(root=False)) is not None:
            ax.set_position(Bbox.from_extents(x0, y0, x1, y1).transformed(figure.transSubfigure.inverted()))
            ax.set_in_layout(True)  # which a position that is set undoes


def fill(text: Text, points: float) -> None:
    """Breaks a text into lines no longer than so many points, also where other resolutions make signs wider."""
    words, upright = text.get_text(), text.get_rotation() == 90
    width = len(words)
    while width > 8:
        extent = text.get_window_extent()
        if (extent.height if upright else extent.width) * points_per_pixel(text) <= 0.94 * points:
            break
        width = int(width * 0.92)
        text.set_text(textwrap.fill(words, width))
