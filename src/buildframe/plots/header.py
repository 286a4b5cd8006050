"""Draw title, note and legend above Axes, or above all Axes of a figure.

Knows figures, texts and legends, but no builds or jobs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.container import Container
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.text import Text
from matplotlib.transforms import ScaledTranslation, Transform, blended_transform_factory

from buildframe.plots.fonts import add_fallback_font
from buildframe.plots.layout import (
    apply_layout,
    axes_cell,
    font_points,
    header_height,
    is_narrow,
    is_small,
    labels_width,
    measured_text,
    plot_area,
    points_per_pixel,
    root_figure,
    text_size,
    wrap_text,
)
from buildframe.plots.names import SEPARATOR, unique_labels

TITLE_SIZE, TEXT_SIZE = 11.5, 9.0
"""Font sizes of the title, and of the note and the legend, at the default `font.size`."""

SMALLER = 0.88
"""Size of a font in narrow Axes, as a multiple of the usual one."""

_TITLE_GAP, _LEGEND_GAP = 4.0, 6.0
"""Points below the title, and below the note, at the default `font.size`."""
_MOST_COLUMNS = 7
_SHORT_NAMES = (18, 12)  # characters, if there is too little room for all entries of a legend
_HANDLE = 2.4
"""Width of an entry of a legend beside its text, as a multiple of the font size: the handle and the gap after it."""


class _Place(NamedTuple):
    """The left end of a header, and its width in points."""

    left: Transform
    width: float


def draw_header(ax: Axes, title: str, note: str, scope: str) -> float:
    """
    Draw legend, note and title above the Axes, and return their height in points.

    They begin at the left end of the labels of the Axes. The title and the first entries of the legend are always
    drawn; `scope`, which follows the title, and the parts of the note if there is room.
    """
    place, limit, gap = _find_place(ax), header_height(ax), font_points(_TITLE_GAP)
    smaller = SMALLER if is_narrow(ax) else 1.0
    heading = ax.set_title(title, loc="left", color=rcParams["text.color"], parse_math=False)
    if rcParams["axes.titlesize"] == font_points(TITLE_SIZE):
        heading.set_fontsize(smaller * font_points(TITLE_SIZE))
    high = _set_wrapped(heading, title, place.width)
    between = font_points(_LEGEND_GAP)
    below = _draw_legend(ax, place, limit - high - gap - between, smaller) + between
    if scope and not is_small(ax):
        high = _add_scope(heading, title, scope, place.width, limit - below - gap)
    below += _draw_note(ax, note, place, below, limit - high - below - gap)
    heading.set_transform(_above(ax, place, below + gap))
    return high + below + gap


def _find_place(ax: Axes) -> _Place:
    """Return where the header begins: at the left end of the figure if the Axes are alone in it, or of their labels."""
    figure, points = root_figure(ax), points_per_pixel(ax)
    engine = figure.get_layout_engine()
    if not isinstance(engine, ConstrainedLayoutEngine):
        apply_layout(ax)
    elif _is_alone(ax):  # needs no layout, which takes long
        pad = 72 * float(engine.get()["w_pad"])
        return _Place(figure.transFigure + _shift(figure, pad, 0), axes_cell(ax).width * points - 2 * pad)
    extent, left = ax.get_window_extent(), labels_width(ax)
    width = extent.width * points
    if len(figure.axes) > 1:
        width = min(width, plot_area(ax)[0])
    left = min(left, float(extent.x0) * points)
    return _Place(ax.transAxes + _shift(figure, -left, 0), left + width)


def _is_alone(ax: Axes) -> bool:
    """Return whether the figure contains only these Axes, in a grid of one cell."""
    spec = ax.get_subplotspec()
    return len(root_figure(ax).axes) == 1 and spec is not None and spec.get_topmost_subplotspec() is spec and (
        spec.get_gridspec().get_geometry() == (1, 1)
    )  # fmt: skip


def _shift(figure: Figure, x: float, y: float) -> Transform:
    return ScaledTranslation(x / 72, y / 72, figure.dpi_scale_trans)


def _above(ax: Axes, place: _Place, points: float) -> Transform:
    """Return the transform whose point (0, 1) is at the left end of the header, so many points above the Axes."""
    return blended_transform_factory(place.left, ax.transAxes + _shift(root_figure(ax), 0, points))


def _set_wrapped(text: Text, content: str, width: float, strip: str = "") -> float:
    """Set the content of a text, wrap it, and return its height in points."""
    text.set_text(content)
    add_fallback_font(text)
    wrap_text(text, width, strip)
    return text_size(text)[1]


def _add_scope(heading: Text, title: str, scope: str, width: float, limit: float) -> float:
    """Add the scope to the title, or below it, if both are not higher than the limit, and return the height."""
    wrapped = heading.get_text()
    heading.set_text(f"{wrapped}{SEPARATOR}{scope}")
    add_fallback_font(heading)
    if "\n" in wrapped or text_size(heading)[0] > 0.94 * width:
        _set_wrapped(heading, scope, width, SEPARATOR)
        heading.set_text(f"{wrapped}\n{heading.get_text()}")
    high = text_size(heading)[1]
    return high if high <= limit else _set_wrapped(heading, title, width)


def _draw_note(ax: Axes, note: str, place: _Place, below: float, limit: float) -> float:
    """Draw the first parts of the note that are not higher than the limit, and return their height."""
    parts = note.split("; ") if note else []
    if not parts:
        return 0.0
    line = ax.annotate(note, (0, 1), xycoords=_above(ax, place, below), fontsize=font_points(TEXT_SIZE), alpha=0.85,
                       va="bottom", annotation_clip=False, in_layout=False)  # fmt: skip
    for number in range(len(parts), 0, -1):
        high = _set_wrapped(line, "; ".join(parts[:number]), place.width)
        if high <= limit:
            return high
    line.remove()
    return 0.0


# Legends


class _Label(NamedTuple):
    """A label of a legend: a name, which may be shortened, and numbers, the longest text first."""

    name: str
    numbers: tuple[str, ...]
    is_fixed: bool


_labels: WeakKeyDictionary[Any, _Label] = WeakKeyDictionary()
"""Labels of handles that may become shorter; all others are words of the plot."""


def mark_label(handle: Any, name: str, *numbers: str, is_fixed: bool = False) -> None:
    """Note that the label of a handle is a name with the first of these numbers, or a shorter one of them.

    A name that `is_fixed` is not shortened.
    """
    _labels[_first_artist(handle)] = _Label(name, numbers, is_fixed)


def _first_artist(handle: Any) -> Any:
    """Return a handle, or the first artist of a container, which has no weak references."""
    return handle[0] if isinstance(handle, Container) and len(handle) else handle


def _draw_legend(ax: Axes, place: _Place, limit: float, smaller: float) -> float:
    """Draw the legend with the entries that fit, lines before markers, and return its height in points."""
    handles, labels = ax.get_legend_handles_labels()
    order = sorted(range(len(labels)), key=lambda i: getattr(handles[i], "get_linestyle", str)() == "None")
    entries = {labels[i]: handles[i] for i in order}
    style: dict[str, Any] = {"bbox_to_anchor": (0, 1), "bbox_transform": _above(ax, place, 0)}
    legend = add_legend(ax, entries, place.width, limit, smaller, **style)
    height = 0.0 if legend is None else legend_height(legend)
    if legend is not None and height > limit and is_small(ax):
        legend.remove()
        return 0.0
    return height


def legend_height(legend: Legend) -> float:
    """Return the height of a legend in points."""
    return float(legend.get_window_extent().height) * points_per_pixel(legend)


def add_legend(
    owner: Axes | Figure, entries: Mapping[str, Any], width: float, limit: float = np.inf, smaller: float = 1.0,
    **style: Any,
) -> Legend | None:  # fmt: skip
    """
    Add a legend of handles by label in as many columns as fit into the width; None without entries.

    If they are higher than the limit, the last entry counts those that are left out.
    """
    if not entries:
        return None
    is_ours = rcParams["legend.fontsize"] == font_points(TEXT_SIZE)
    size = font_points(TEXT_SIZE) * smaller if is_ours else rcParams["legend.fontsize"]
    labels, columns, fitting = _fit_labels(owner, entries, size, width, limit)
    handles = [*entries.values()]
    if fitting < len(labels):
        handles = [*handles[: fitting - 1], Line2D([], [], linestyle="none")]
        labels = [*labels[: fitting - 1], f"and {len(labels) - fitting + 1:,} more"]
    legend = owner.legend(handles, labels, ncols=columns, fontsize=size, **style)
    legend.set_in_layout(False)  # the title above it takes the room
    for text in legend.get_texts():
        add_fallback_font(text)
    return legend


def _fit_labels(
    owner: Axes | Figure, entries: Mapping[str, Any], size: float | str, width: float, limit: float
) -> tuple[list[str], int, int]:
    """Return the labels, shorter if they are too many, in how many columns they fit, and how many of them."""
    texts, columns, fitting = [], 1, 0
    for labels in _shorten_labels(entries):
        texts = [measured_text(owner, label, size) for label in labels]
        columns = _count_columns(texts, width)
        for text in texts if columns == 1 else []:
            wrap_text(text, width - _HANDLE * float(text.get_fontsize()))
        fitting = _count_entries(texts, columns, limit)
        if fitting == len(labels):
            break
    return [text.get_text() for text in texts], columns, fitting


def _shorten_labels(entries: Mapping[str, Any]) -> Iterator[list[str]]:
    """Yield all labels, then shorter ones: with fewer numbers, then with shorter names, then without numbers."""
    yield [*entries]
    found = {label: _labels.get(_first_artist(handle)) for label, handle in entries.items()}
    known = {label: one for label, one in found.items() if one is not None}
    most = max((len(label.numbers) for label in known.values()), default=0)
    widths = (None, *_SHORT_NAMES) if any(not label.is_fixed for label in known.values()) else (None,)
    levels = [(None, k) for k in range(1, most)] + [(width, most - 1) for width in widths[1:]]
    for width, number in [*levels, *([(widths[-1], most)] if most else [])]:
        names = {label.name for label in known.values() if not label.is_fixed} if width else set()
        short = unique_labels(names, width or 1)
        texts = {
            text: short.get(label.name, label.name)
            + "".join(label.numbers[number : number + 1] or label.numbers[most:])
            for text, label in known.items()
        }
        # Matplotlib would leave out those that begin with a low line
        yield [f" {text}" if (text := texts.get(label, label)).startswith("_") else text for label in entries]


def _count_columns(texts: Sequence[Text], width: float) -> int:
    """Return the largest number of columns of a legend whose width is at most `width` points."""
    widths = [text_size(text)[0] + _HANDLE * float(text.get_fontsize()) for text in texts]
    between = rcParams["legend.columnspacing"] * float(texts[0].get_fontsize())
    for columns in range(min(len(texts), _MOST_COLUMNS), 1, -1):
        longest = [max(part) for part in np.array_split(widths, columns)]
        if sum(longest) + between * columns <= 0.96 * width:
            return columns
    return 1


def _count_entries(texts: Sequence[Text], columns: int, limit: float) -> int:
    """Return how many entries of a legend fit into so many points: one row at least."""
    between = rcParams["legend.labelspacing"] * float(texts[0].get_fontsize())
    rows = [max(text_size(text)[1] for text in texts[k : k + columns]) for k in range(0, len(texts), columns)]
    fitting = int((np.cumsum(np.add(rows, between)) <= limit).sum())
    return min(max(fitting, 1) * columns, len(texts))
