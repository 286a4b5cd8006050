"""Theme that all plots share: colors, title, note, legend, axis formats, and labels for names.

Knows Matplotlib, but no builds or jobs.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import numpy as np
import pandas as pd
from matplotlib import colors, rcParams, rcParamsDefault
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PolyCollection
from matplotlib.dates import date2num
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import AutoLocator, MaxNLocator
from pandas.tseries.frequencies import to_offset

from buildframe.errors import BadInput
from buildframe.formatting import format_count
from buildframe.metrics.columns import Floats
from buildframe.plots.dates import format_dates as format_dates
from buildframe.plots.fonts import add_fallback_fonts
from buildframe.plots.header import SMALLER, TEXT_SIZE, TITLE_SIZE, draw_header
from buildframe.plots.layout import (
    apply_layout,
    axes_cell,
    character_width,
    choose_apart,
    font_points,
    is_narrow,
    is_small,
    label_height,
    labels_height,
    labels_width,
    max_characters,
    measured_text,
    plot_area,
    points_per_pixel,
    root_figure,
    text_size,
    wrap_text,
)
from buildframe.plots.names import NO_NAME as NO_NAME
from buildframe.plots.names import drawable as drawable
from buildframe.plots.names import prefix_if_several as prefix_if_several
from buildframe.plots.names import unique_labels as unique_labels
from buildframe.plots.names import wrap_label
from buildframe.plots.units import is_of_durations, set_lengths

BLUE, SKY, ORANGE, RED, GREEN, PURPLE, GRAY = (
    "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#999999",
)  # fmt: skip
"""Colors that color-blind readers can distinguish (Okabe and Ito, Color Universal Design, 2008)."""

BROWN = "#7A3300"
"""A darker red, for special cases of failure."""

SEQUENTIAL = colors.LinearSegmentedColormap.from_list("buildframe", ["#EEF5FA", "#9CCBE8", BLUE, "#00263F"])
"""Luminance decreases steadily, so that prints without color remain readable. Reverse it on a dark background."""

_SIZES: dict[Any, float] = {
    "axes.titlesize": TITLE_SIZE,
    "legend.fontsize": TEXT_SIZE,
    "xtick.labelsize": TEXT_SIZE,
    "ytick.labelsize": TEXT_SIZE,
}
"""Font sizes in points for the default `font.size`."""

_STYLE: dict[Any, Any] = {
    "axes.titleweight": "bold",
    "legend.frameon": False,
    "legend.borderaxespad": 0.3,
    "legend.borderpad": 0.2,
    "legend.handlelength": 1.6,
    "legend.columnspacing": 1.4,
    "hatch.linewidth": 0.8,
}
"""Settings of the plots, for those that still have Matplotlib's default, as for sizes."""

_ALWAYS: dict[Any, Any] = {"text.usetex": False, "text.parse_math": False, "legend.loc": "lower left"}
"""Names are drawn literally, and legends stand above the Axes."""

_LIGHT: dict[Any, Any] = {"text.color": "#333333", "grid.color": "#E4E4E4"}
_DARK: dict[Any, Any] = {"text.color": "#DDDDDD", "grid.color": "#444444"}
_BRIGHT = 0.179  # luminance from which black contrasts more than white, at least 4.5 : 1 (WCAG 2.1)
_LEAST_CONTRAST = 3.0  # of text with its background, as for large text in WCAG 2.1


@contextlib.contextmanager
def themed_axes(ax: Axes | None, width: float, height: float) -> Iterator[Axes]:
    """Yield Axes to draw on, with the theme active: `ax`, or those of a new figure of `width` by `height` inches."""
    with active_theme(ax):
        size = figure_size(width, height)
        yield plt.subplots(figsize=size, layout="constrained")[1] if ax is None else ax


@contextlib.contextmanager
def active_theme(ax: Axes | None) -> Iterator[None]:
    """Activate the theme for the background of `ax`, or of a new figure."""
    theme = _choose_style(_opaque(rcParams["figure.facecolor"]) if ax is None else background(ax))
    before = {name: rcParams[name] for name in theme}  # rc_context would undo the interactive mode of Jupyter's backend
    rcParams.update(theme)
    try:
        yield
    finally:
        rcParams.update(before)


def _choose_style(back: Any) -> dict[Any, Any]:
    """Return the settings of the theme; those that a user changed stay as they are, if text remains legible."""
    is_ours = {name: rcParams[name] == rcParamsDefault[name] for name in (*_STYLE, *_SIZES, *_LIGHT)}
    plain = _DARK if luminance(back) < 0.2 else _LIGHT
    whole = _STYLE | {name: font_points(size) for name, size in _SIZES.items()}
    style = {name: value for name, value in whole.items() if is_ours[name]} | _ALWAYS
    if is_ours["text.color"] or _contrast(rcParams["text.color"], back) < _LEAST_CONTRAST:
        style["text.color"] = plain["text.color"]
    if is_ours["grid.color"] or rcParams["grid.color"] == rcParams["text.color"]:
        style["grid.color"] = plain["grid.color"]
    return style


def figure_size(width: float, height: float) -> tuple[float, float]:
    """Return the size of a new figure in inches: the user's `figure.figsize`, or else the given one.

    That is higher for a larger font.
    """
    size = rcParams["figure.figsize"]
    is_default = [*size] == [*rcParamsDefault["figure.figsize"]]
    return (width, height * max(font_points(1), 1.0)) if is_default else (float(size[0]), float(size[1]))


_TWO_LINES = 2.1
"""Height of a row that has room for two lines, as a multiple of the height of a label."""

_TWO_LINES_INCHES = 0.42
"""Height of such a row in a new figure."""

_APART = 1.25
"""Distance between the centers of labels of places, as a multiple of the height of a label."""

_TOO_WIDE = 1.25  # as a multiple of the usual width of so many characters
_FEWEST = 6  # characters of a label
LEAST_SIZE = 5.0
"""Smallest legible size of a font."""


def check_positive(**numbers: int) -> None:
    """Raise BadInput, with the name of the argument, for a number below 1."""
    for name, number in numbers.items():
        if number < 1:
            raise BadInput(f"{name}={number}: pass a whole number of at least 1.")


def text_color() -> Any:
    """Return the color of text and marks of the active theme."""
    return rcParams["text.color"]


def grid_color() -> Any:
    """Return the color of grid lines of the active theme."""
    return rcParams["grid.color"]


def line_width(usual: float = 1.8) -> float:
    """Return the width in points of lines of data: the user's `lines.linewidth`, or else the usual one."""
    width: float = rcParams["lines.linewidth"]
    return usual if width == rcParamsDefault["lines.linewidth"] else width


def group_colors() -> tuple[Any, ...]:
    """Return the colors of groups: those of the user's `axes.prop_cycle`, or else those of the theme."""
    cycle = rcParams["axes.prop_cycle"]
    changed = () if cycle == rcParamsDefault["axes.prop_cycle"] else cycle.by_key().get("color", ())
    return tuple(changed) or (BLUE, ORANGE, GREEN, PURPLE, RED, SKY)


def is_light() -> bool:
    """Return whether the active theme has a light background."""
    return luminance(text_color()) < 0.5


def background(ax: Axes) -> Any:
    """Return the background color of the figure; of a transparent one what its text is legible on."""
    return _opaque(root_figure(ax).get_facecolor())


def _opaque(color: Any) -> Any:
    face = colors.to_rgba(color)
    return face if face[3] > 0.5 else colors.to_rgba("white" if is_light() else "black")


def luminance(color: Any) -> float:
    """Return the relative luminance of a color, from 0 to 1 (WCAG 2.1)."""
    parts = colors.to_rgb(tuple(color) if not isinstance(color, str) else color)
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)


def ink_on(color: Any) -> str:
    """Return the color of text that contrasts more with a color: black or white."""
    return "black" if luminance(color) > _BRIGHT else "white"


def sequential_map() -> colors.Colormap:
    """Return the colors of a scale, from the background to its opposite."""
    return SEQUENTIAL if is_light() else SEQUENTIAL.reversed()


def _contrast(color: Any, other: Any) -> float:
    """Return the contrast of two colors, from 1 to 21 (WCAG 2.1)."""
    low, high = sorted((luminance(color), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def darken(figure: Figure, background: str) -> None:
    """Change a finished figure with the light theme to the dark theme on this background.

    The figure must not use a light color of the theme for anything else, nor `SEQUENTIAL`.
    """
    light = [_LIGHT["text.color"], _LIGHT["grid.color"], figure.get_facecolor()]
    dark = [_DARK["text.color"], _DARK["grid.color"], background]
    change = {colors.to_rgb(old): colors.to_rgb(new) for old, new in zip(light, dark, strict=True)}
    artists = figure.findobj()
    boxes = [box for one in artists if isinstance(one, Text) and (box := one.get_bbox_patch()) is not None]
    for artist in [*artists, *boxes]:
        for name in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            get, put = getattr(artist, f"get_{name}", None), getattr(artist, f"set_{name}", None)
            if get is None or put is None:
                continue
            before = [tuple(color) for color in colors.to_rgba_array(get()).tolist()]
            after = [(*change.get(color[:3], color[:3]), color[3]) for color in before]
            if after != before:
                put(after if len(after) > 1 else after[0])


# Title, note and legend


def decorate(ax: Axes, title: str, note: str = "", grid: Literal["", "x", "y"] = "", scope: str = "") -> None:
    """
    Add title, note, legend and grid to finished Axes, and style their axes.

    From the top: title, note, legend. Small Axes get those that fit. `grid` is the axis of values, "x" or "y"; it has
    grid lines and plain numbers. `scope` follows the title if there is room for it.
    """
    style_axes(ax, grid)
    header = draw_header(ax, title, note, scope)
    _fit_axis_labels(ax, header)
    if root_figure(ax).get_layout_engine() is None:  # engines work when the figure is drawn
        apply_layout(ax)


def style_axes(ax: Axes, grid: Literal["", "x", "y"] = "") -> None:
    """Style the axes of finished Axes: grid lines of the axis of values, spines and tick labels."""
    if rcParams["axes.facecolor"] == rcParamsDefault["axes.facecolor"] or not is_light():
        ax.set_facecolor(background(ax))
    ax.grid(visible=False)
    if grid:
        ax.grid(axis=grid, color=grid_color(), linewidth=0.8)
        if not is_of_durations(ax.xaxis if grid == "x" else ax.yaxis):
            _format_numbers(ax, grid)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left" if grid == "y" else "bottom"]].set_visible(False)
    ax.spines[:].set_color(GRAY)
    for axis, size in ((ax.xaxis, rcParams["xtick.labelsize"]), (ax.yaxis, rcParams["ytick.labelsize"])):
        axis.set_tick_params(length=0, labelsize=size, labelcolor=text_color())
        axis.offsetText.set(fontsize=size, color=text_color())
    ax.tick_params(axis="x", pad=6)  # keeps the first label apart from the 0 of the other axis
    add_fallback_fonts(ax)


def _fit_axis_labels(ax: Axes, header: float) -> None:
    """Wrap the labels of both axes below a header of so many points; the x label makes way for the offset of dates."""
    for label in (ax.xaxis.label, ax.yaxis.label):
        label.set(color=text_color(), parse_math=False)
        if is_small(ax):
            label.set_text("")
        elif is_narrow(ax):
            label.set_fontsize(SMALLER * float(label.get_fontsize()))
    height = _final_length(ax, 1, header + labels_height(ax) + font_points(12))
    wrap_text(ax.yaxis.label, height)
    width = _final_length(ax, 0, labels_width(ax) + font_points(15))
    set_lengths(ax, width, height)
    offset = measured_text(ax, ax.xaxis.get_major_formatter().get_offset(), rcParams["xtick.labelsize"])
    beside = text_size(offset)[0] + 12 if offset.get_text() else 0.0
    wrap_text(ax.xaxis.label, width - beside)
    if beside and text_size(ax.xaxis.label)[0] > width - 2 * beside:
        ax.set_xlabel(ax.get_xlabel(), loc="left")


def _final_length(ax: Axes, side: int, beside: float) -> float:
    """Return the width (side 0) or height (1) in points that the Axes will have if so many are beside them."""
    whole = float(axes_cell(ax).size[side]) * points_per_pixel(ax)
    if ax.get_subplotspec() is None:
        return whole
    return whole - beside if len(root_figure(ax).axes) == 1 else min(whole - beside, plot_area(ax)[side])


def show_message(ax: Axes, sentence: str, title: str = "", scope: str = "") -> Axes:
    """Show a sentence in place of a plot, and return the Axes."""
    ax.set_axis_off()
    text = ax.text(0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", fontsize=font_points(11))
    wrap_text(text, min(ax.get_window_extent().width * points_per_pixel(ax), 400))
    if title:
        draw_header(ax, title, "", scope)
    return ax


# Axes


def _format_numbers(ax: Axes, which: str) -> None:
    """Format numbers of the axis "x" or "y" in full, 90,000 rather than 9e4, with as many ticks as fit."""
    width, height = plot_area(ax)
    axis, limit = (ax.xaxis, width / font_points(42)) if which == "x" else (ax.yaxis, height / font_points(16))
    if isinstance(axis.get_major_locator(), AutoLocator):  # others were chosen by the plot
        axis.set_major_locator(MaxNLocator(int(np.clip(limit, 1, 8)), steps=[1, 2, 5, 10]))
    axis.set_major_formatter("{x:,.6g}")


def bucket_label(freq: str, tz: str, at: str = "created_at") -> str:
    """Return the label of an axis of buckets of times: "Day created (UTC)", "Created (UTC), every 2 days"."""
    units = {"h": "hour", "D": "day", "W": "week", "M": "month", "Q": "quarter", "Y": "year"}
    count = "".join(char for char in freq if char.isdigit())
    name = freq.removeprefix(count).split("-")[0].removesuffix("S").removesuffix("E")
    when, unit = at.removesuffix("_at").replace("_", " "), units.get(name)
    if unit and count in ("", "1"):
        return f"{unit.capitalize()} {when} ({tz})"
    every = f"{count} {unit}s" if unit else freq
    return f"{when.capitalize()} ({tz}), every {every}"


def show_buckets(ax: Axes, buckets: pd.Series[Any], freq: str) -> None:
    """Format the dates of the x axis, and show all buckets on it, also those without values.

    A single one has room for three on both sides, so that its date can be read.
    """
    starts = buckets.drop_duplicates().dt.tz_localize(None)
    if len(starts):
        first, end, margin = starts.iloc[0], starts.iloc[-1] + to_offset(freq), 0.015
        if len(starts) == 1:
            apart = max(end - first, pd.Timedelta(1, "min"))
            first, end, margin = first - 3 * apart, first + 3 * apart, 0.0
        low, high = date2num([first, end])  # type: ignore[no-untyped-call]
        ax.set_xlim(min(low - margin * (high - low), ax.dataLim.x0), max(high + margin * (high - low), ax.dataLim.x1))
    format_dates(ax)


def row_height(names: Iterable[str], usual: float, most: int) -> float:
    """Return the inches of a row in a new figure: more than usual if a name is longer than `most` characters."""
    return max(usual, _TWO_LINES_INCHES) if any(len(name) > most for name in names) else usual


def label_rows(
    ax: Axes, places: Any, names: Iterable[str], most: int, counts: Iterable[int | str] | None = None,
    among: Iterable[str] = (),
) -> None:  # fmt: skip
    """Label rows with names of at most `most` characters, on two lines if rows are high, and counts in parentheses.

    Names of `among` are of rows that are not shown; shortened names keep where they differ from them, too.
    """
    names, among = list(names), list(among)
    width = room = max_characters(ax, most)
    lines = 2 if plot_area(ax)[1] / max(len(names), 3) >= _TWO_LINES * label_height() else 1
    while True:
        labels = unique_labels(names, lines * width, among=among)
        texts = [wrap_label(labels[name], width) for name in names]
        widest = max((text_width(ax, text) for text in texts), default=0.0) / (character_width() * room)
        if widest <= _TOO_WIDE or width <= _FEWEST:
            break
        width = max(int(width / widest), _FEWEST)  # characters of some scripts are wider
    if counts is not None:
        shown = (count if isinstance(count, str) else f"{count:,}" for count in counts)
        texts = [f"{text}  ({count})" for text, count in zip(texts, shown, strict=True)]
    ax.set_yticks(places, texts, parse_math=False)


def text_width(ax: Axes, content: str) -> float:
    """Return the width in points of a text as a tick label."""
    return text_size(measured_text(ax, content, rcParams["ytick.labelsize"]))[0]


def label_places(ax: Axes, places: Iterable[tuple[float, str]]) -> None:
    """Label places along the y axis from 0 to 1 with texts that have room beside the ones before."""
    least = _APART * label_height() / max(plot_area(ax)[1], 1)
    at, texts = zip(*places, strict=True)
    chosen = choose_apart(at, least)
    ax.set_yticks([at[k] for k in chosen], [texts[k] for k in chosen], parse_math=False)


def draw_bars(ax: Axes, rows: Any, start: Any, end: Any, height: float, **style: Any) -> None:
    """Draw horizontal bars as one artist, since thousands of patches take seconds."""
    if not len(start):
        return
    y, left, right = (np.asarray(one, np.float64) for one in (rows, start, end))
    low, high = y - height / 2, y + height / 2
    corners = np.array([(left, low), (left, high), (right, high), (right, low)])
    ax.add_collection(PolyCollection(corners.transpose(2, 0, 1), **style))  # type: ignore[arg-type]
    ax.autoscale_view()


def draw_cells(
    ax: Axes, values: Floats, limits: tuple[float, float], size: float, write: Callable[[float], str]
) -> None:
    """Draw a table as cells in the colors of a scale with these limits, none for NaN, and write the values into them.

    Texts have the color with more contrast. They are left out if they would be too small to be read.
    """
    norm, cmap, is_known = colors.Normalize(*limits), sequential_map(), ~np.isnan(values)
    ax.pcolormesh(np.ma.masked_invalid(values), cmap=cmap, norm=norm, edgecolors=[background(ax)], linewidth=1.2)
    inks = map(ink_on, ScalarMappable(norm, cmap).to_rgba(values[is_known]))
    for row, column, ink in zip(*np.nonzero(is_known), inks, strict=True) if size >= LEAST_SIZE else ():
        text = write(float(values[row, column]))
        ax.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=size, color=ink)
    ax.set(xlim=(0, values.shape[1]), ylim=(values.shape[0], 0))


def label_bars(ax: Axes, values: Iterable[float], texts: Iterable[str]) -> None:
    """Write a text beside the end of each horizontal bar, and leave room for three bars at least."""
    ends = list(zip(values, texts, strict=True))
    for row, (value, text) in enumerate(ends):
        ax.annotate(text, (max(value, 0), row), (4, 0), textcoords="offset points", va="center",
                    fontsize=font_points(TEXT_SIZE))  # fmt: skip
    ax.set_ylim(min(len(ends) - 3, 0) - 0.6, len(ends) - 0.4)


# Counts


def count_note(n: int, what: str, rest: str) -> str:
    """Return a number, a noun and the rest of a note, or "" if the number is 0."""
    return f"{format_count(n, what)} {rest}" if n else ""


def join_notes(*parts: str) -> str:
    """Join the notes that are not empty."""
    return "; ".join(part for part in parts if part)


def list_counts(**counts: int | pd.Series[int]) -> str:
    """Return "3 not finished, 1 negative" for counts or columns above zero; underscores in names become spaces."""
    totals = {word.replace("_", " "): int(np.sum(n)) for word, n in counts.items()}
    return ", ".join(f"{n:,} {word}" for word, n in totals.items() if n)


def column_total(frame: pd.DataFrame, name: str) -> int:
    """Return the sum of a column of counts, without missing values."""
    return int(frame[name].fillna(0).sum())
