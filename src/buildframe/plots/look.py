"""One look: colours, ground, titles, legends, and names that are drawn as they are."""

from __future__ import annotations

import contextlib
import functools
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC
from typing import Any

import numpy as np
import pandas as pd
from matplotlib import colors, rcParams
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
from matplotlib.font_manager import fontManager, get_font
from matplotlib.ft2font import FT2Font
from matplotlib.legend import Legend
from matplotlib.ticker import FuncFormatter, MaxNLocator
from pandas.tseries.frequencies import to_offset

from buildframe.arguments import checked_call
from buildframe.errors import BadInput
from buildframe.plots.room import cell, figure_of, fill, is_small, points_per_pixel, room, settle

BLUE, SKY, ORANGE, RED, GREEN, PURPLE, GREY = (
    "#0072B2", "#56B4E9", "#E69F00", "#D55E00", "#009E73", "#CC79A7", "#999999",
)  # fmt: skip
"""Colours that colour-blind readers tell apart (Okabe and Ito, Color Universal Design, 2008)."""

BROWN = "#7A3300"
"""The red, darker: for what is a case of it."""

_SHADES = colors.LinearSegmentedColormap.from_list("buildframe", ["#EEF5FA", "#9CCBE8", BLUE, "#00263F"])
"""Each darker than the one before, so that a print without colour tells them apart, too."""

NO_NAME = "(no name)"
_BOX = "\N{WHITE VERTICAL RECTANGLE}"
_RIGHT_TO_LEFT = {"R", "AL"}

_LOOK: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.usetex": False,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "legend.fontsize": 9,
    "legend.frameon": False,
    "hatch.linewidth": 0.8,
}
_DAY: dict[Any, Any] = {"text.color": "#333333", "grid.color": "#E4E4E4", "figure.facecolor": "white"}
_NIGHT: dict[Any, Any] = {"text.color": "#DDDDDD", "grid.color": "#444444", "figure.facecolor": "black"}


@contextlib.contextmanager
def canvas(ax: Axes | None, width: float, height: float) -> Iterator[Axes]:
    """Axes to draw on, and our look while the block lasts: a new figure of so many inches, where none are given.

    A new figure is white, also in a dark notebook, so that it can be copied anywhere. On the ground of Axes that
    are given, dark or bright, the ink stands out. A style context would also undo the settings by which a notebook
    shows pictures.
    """
    look: dict[Any, Any] = _LOOK | (_NIGHT if ax is not None and luminance(ground(ax)) < 0.2 else _DAY)
    before: dict[Any, Any] = {name: rcParams[name] for name in look}
    rcParams.update(look)
    try:
        yield plt.subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax
    finally:
        rcParams.update(before)


def most(top: int) -> int:
    """How many rows a plot shows at most, as its `top`; BadInput below 1."""
    if top < 1:
        raise BadInput(f"top={top}: pass a whole number from 1.")
    return top


def ink() -> Any:
    """The colour of text and marks, within a canvas."""
    return rcParams["text.color"]


def faint() -> Any:
    """The colour of what only guides the eye, within a canvas."""
    return rcParams["grid.color"]


def is_day() -> bool:
    """Whether the ink is dark, within a canvas."""
    return luminance(ink()) < 0.5


def shades() -> colors.Colormap:
    """From little, near the ground, to much, far from it; within a canvas."""
    return _SHADES if is_day() else _SHADES.reversed()


def ground(ax: Axes) -> Any:
    """The colour behind everything: of the figure; white where nobody knows, since it is transparent."""
    face = colors.to_rgba(figure_of(ax).get_facecolor())
    return face if face[3] > 0.5 else colors.to_rgba("white")


def luminance(colour: Any) -> float:
    """How bright a colour is, from 0 to 1 (relative luminance, WCAG 2.1)."""
    parts = colors.to_rgb(tuple(colour) if not isinstance(colour, str) else colour)
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)


# Title, note and legend


def dress(ax: Axes, title: str, note: str = "", grid: str = "") -> None:
    """What is the same in every picture; to be called when all is drawn.

    From the top: the title, a note of what is counted and left out, the legend, where it hides nothing. Of these
    small Axes have what fits. `grid` is the axis of the values, "x" or "y": it has lines across the picture, and
    plain numbers.
    """
    ax.set_facecolor(ground(ax))
    ax.grid(visible=False)
    if grid in ("x", "y"):
        ax.grid(axis="x" if grid == "x" else "y", color=faint(), linewidth=0.8)
        plain_numbers(ax, grid)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left" if grid == "y" else "bottom"]].set_visible(False)
    ax.spines[:].set_color(GREY)
    ax.tick_params(length=0, labelsize=9, labelcolor=ink())
    ax.tick_params(axis="x", pad=6)  # or the first meets the 0 of the other axis
    settle(ax)  # only now is it known how large the Axes are
    width, height = _sides(ax)
    _say_axes(ax, width, height)
    _head(ax, title, note, width)
    settle(ax)


def _sides(ax: Axes) -> tuple[float, float]:
    """Points wide and high, of Axes of a grid only what is left to them when the others have their words."""
    extent, points = ax.get_window_extent(), points_per_pixel(ax)
    width, height = extent.width * points, extent.height * points - 45
    if len(figure_of(ax).axes) == 1:
        return width, height
    return min(width, room(ax)[0]), min(height, room(ax)[1])


def _say_axes(ax: Axes, width: float, height: float) -> None:
    for label, length in ((ax.xaxis.label, width), (ax.yaxis.label, height)):
        label.set_color(ink())
        label.set_parse_math(False)
        if is_small(ax):
            label.set_text("")
        fill(label, length)


def _head(ax: Axes, title: str, note: str, width: float) -> None:
    """From the bottom to the top, as high as there is room; the title always."""
    points = points_per_pixel(ax)
    most = 0.45 * cell(ax).height * points
    heading = ax.set_title(title, loc="left", color=ink(), parse_math=False)
    fill(heading, width)
    most -= heading.get_window_extent().height * points + 8
    height = _legend_above(ax, width, most) + 6
    if note:
        line = ax.annotate(note, (0, 1), (0, height), "axes fraction", "offset points", fontsize=9, color=ink(),
                           alpha=0.85, va="bottom", annotation_clip=False, parse_math=False)  # fmt: skip
        fill(line, width)
        if (high := line.get_window_extent().height * points) + height > most and is_small(ax):
            line.remove()
        else:
            height += high
    ax.set_title(heading.get_text(), loc="left", pad=height + 4, color=ink(), parse_math=False)


def _legend_above(ax: Axes, width: float, most: float) -> float:
    """Its height in points; in as many columns as fit, marks behind areas and lines."""
    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return 0
    order = sorted(range(len(labels)), key=lambda i: getattr(handles[i], "get_linestyle", str)() == "None")
    entries = [handles[i] for i in order], [labels[i] for i in order]
    columns, points = min(len(labels), 7), points_per_pixel(ax)
    while (legend := _legend(ax, *entries, columns)).get_window_extent().width * points > 0.94 * width and columns > 1:
        columns -= 1
    for text in legend.get_texts() if columns == 1 else []:
        fill(text, width - 24)
    height = float(legend.get_window_extent().height * points)
    if height > most and is_small(ax):
        legend.remove()
        return 0
    return height


def _legend(ax: Axes, handles: list[Any], labels: list[str], columns: int) -> Legend:
    legend = ax.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.3,
                       borderpad=0.2, handlelength=1.6, columnspacing=1.4, labelcolor=ink())  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend


def say(ax: Axes, sentence: str) -> Axes:
    """The Axes with nothing but a sentence."""
    ax.set_axis_off()
    text = ax.text(0.5, 0.5, sentence, transform=ax.transAxes, ha="center", va="center", fontsize=11, color=ink(),
                   parse_math=False)  # fmt: skip
    fill(text, min(ax.get_window_extent().width * points_per_pixel(ax), 400))
    return ax


# Axes


def plain_numbers(ax: Axes, which: str) -> None:
    """Numbers as people write them: 90,000 instead of 9e4; as many as have room along the axis "x" or "y"."""
    width, height = room(ax)
    axis, most = (ax.xaxis, width / 42) if which == "x" else (ax.yaxis, height / 16)
    axis.set_major_locator(MaxNLocator(int(np.clip(most, 1, 8)), steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def dates(ax: Axes) -> None:
    """Naive times along the bottom are shown as they are, whatever zone is set for other pictures."""
    most = int(np.clip(room(ax)[0] / 34, 5, 9))  # of fewer it finds none for some spans
    locator = AutoDateLocator(tz=UTC, minticks=3 if most >= 7 else 2, maxticks=most)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


def around_one(ax: Axes, buckets: pd.Series[Any], freq: str) -> None:
    """Where there is but one bucket, the axis shows three more at each side, so that its date can be read."""
    if len(buckets) == 1:
        at = buckets.dt.tz_localize(None).iloc[0]
        apart = max(at + to_offset(freq) - at, pd.Timedelta(1, "min"))
        low, high = date2num([at - 3 * apart, at + 3 * apart])  # type: ignore[no-untyped-call]
        ax.set_xlim(min(low, ax.dataLim.x0), max(high, ax.dataLim.x1))


def minutes_from_zero(ax: Axes, least: float) -> None:
    """The y axis begins at 0, unless something is below it."""
    if least >= 0:
        ax.set_ylim(bottom=0)


# Words


@checked_call
def shortened(name: str, width: int) -> str:
    """A name on one line of at most `width` signs, wide ones counting twice: what is too long loses its middle."""
    if width < 1:
        raise BadInput(f"width={width}: pass a whole number from 1.")
    line = "".join(
        sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in " ".join(name.split()) or NO_NAME
    )
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in line)
    if len(line) + wide <= width:
        return line
    width = width * len(line) // (len(line) + wide)
    tail = (width - 1) // 2
    return f"{line[: width - 1 - tail]}…{line[len(line) - tail :]}"


def fitting(name: str, width: int) -> str:
    """The name `shortened`, with a box for each sign that no font has; else there would be a warning for each, too.

    One from right to left is isolated, so that it does not turn the words beside it.
    """
    fonts = _fonts(tuple(rcParams["font.sans-serif"]))
    line = shortened(name, width)
    shown = "".join(sign if any(font.get_char_index(ord(sign)) for font in fonts) else _BOX for sign in line)
    return f"\u2068{shown}\u2069" if _RIGHT_TO_LEFT.intersection(map(unicodedata.bidirectional, shown)) else shown


@functools.cache
def _fonts(families: tuple[str, ...]) -> list[FT2Font]:
    """The fonts of these families that are here; the others would give way to one of the first."""
    found = []
    for family in families:
        with contextlib.suppress(ValueError):
            found.append(get_font(fontManager.findfont(family, fallback_to_default=False)))
    return found or [get_font(fontManager.findfont("DejaVu Sans"))]


def labels(names: Iterable[str], width: int, short: Callable[[str, int], str] = fitting) -> dict[str, str]:
    """A label for each name, none twice: of names that look alike when they are shortened, the later are numbered."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    count: Counter[str] = Counter()
    for name in sorted(set(names), key=lambda name: (len(name), name)):
        plain = label = short(name, width)
        while label in taken:
            count[plain] += 1
            label = f"{short(name, width - 5)} ‹{count[plain] + 1}›"
        taken.add(label)
        found[name] = label
    return found


def counted(n: int, what: str) -> str:
    """ "1 job", "2,000 jobs"."""
    return f"{n:,} {what}{'s' if n != 1 else ''}"


def some(n: int, what: str, rest: str) -> str:
    """ "1 job not shown", "2 jobs not shown"; nothing of none."""
    return f"{counted(n, what)} {rest}" if n else ""


def joined(*parts: str) -> str:
    """Those parts of a note that say something."""
    return "; ".join(part for part in parts if part)


def listed(**counts: int | str) -> str:
    """ "3 not finished, 1 negative" of the counts that are not zero; underscores are blanks."""
    return ", ".join(f"{int(n):,} {word.replace('_', ' ')}" for word, n in counts.items() if n)


def sum_of(frame: pd.DataFrame, name: str) -> int:
    """The sum of a column of counts, unknown ones being none."""
    return int(frame[name].fillna(0).sum())
