"""One look: colours, ground, titles, legends, and names that are drawn as they are."""

from __future__ import annotations

import contextlib
import functools
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC
from typing import Any

import pandas as pd
from matplotlib import colors, rcParams
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.font_manager import fontManager, get_font
from matplotlib.ft2font import FT2Font
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import Bbox

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

POINTS_A_LABEL = 11.5

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
    look: dict[Any, Any] = _LOOK | (_NIGHT if ax is not None and luminance(ground(ax)) < 0.4 else _DAY)
    before: dict[Any, Any] = {name: rcParams[name] for name in look}
    rcParams.update(look)
    try:
        yield plt.subplots(figsize=(width, height), layout="constrained")[1] if ax is None else ax
    finally:
        rcParams.update(before)


def figure_of(ax: Axes) -> Figure:
    """The whole figure that the Axes are in."""
    figure = ax.get_figure(root=True)
    assert figure is not None
    return figure


def points_per_pixel(ax: Axes) -> float:
    """For what is measured in pixels, but set in points."""
    return 72 / figure_of(ax).dpi


def ink() -> Any:
    """The colour of text and marks, within a canvas."""
    return rcParams["text.color"]


def faint() -> Any:
    """The colour of what only guides the eye, within a canvas."""
    return rcParams["grid.color"]


def shades() -> colors.Colormap:
    """From little, near the ground, to much, far from it; within a canvas."""
    return _SHADES if luminance(ink()) < 0.5 else _SHADES.reversed()


def ground(ax: Axes) -> Any:
    """The colour behind everything: of the figure; white where nobody knows, since it is transparent."""
    face = colors.to_rgba(figure_of(ax).get_facecolor())
    return face if face[3] > 0.5 else colors.to_rgba("white")


def luminance(colour: Any) -> float:
    """How bright a colour is, from 0 to 1."""
    red, green, blue = colors.to_rgb(tuple(colour) if not isinstance(colour, str) else colour)
    return float(0.2126 * red + 0.7152 * green + 0.0722 * blue)


# Title, note and legend


def dress(ax: Axes, title: str, note: str = "", grid: str = "") -> None:
    """What is the same in every picture; to be called when all is drawn.

    From the top: the title, a note of what is counted and left out, the legend, where it hides nothing.
    `grid` is the axis of the values, "x" or "y": it has lines across the picture, and plain numbers.
    """
    ax.set_facecolor(ground(ax))
    ax.grid(visible=False)
    if grid in ("x", "y"):
        ax.grid(axis="x" if grid == "x" else "y", color=faint(), linewidth=0.8)
        plain_numbers(ax.xaxis if grid == "x" else ax.yaxis)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left" if grid == "y" else "bottom"]].set_visible(False)
    ax.spines[:].set_color(GREY)
    ax.tick_params(length=0, labelsize=9, labelcolor=ink())
    ax.tick_params(axis="x", pad=6)  # or the first meets the 0 of the other axis
    ax.xaxis.label.set_color(ink())
    ax.yaxis.label.set_color(ink())
    _head(ax, title, note)


def _head(ax: Axes, title: str, note: str) -> None:
    if (engine := figure_of(ax).get_layout_engine()) is not None:
        engine.execute(figure_of(ax))  # only now is it known how wide the Axes are
    width = ax.get_window_extent().width * points_per_pixel(ax)
    height = _legend_above(ax, width) + 6
    if note:
        lines = textwrap.fill(note, max(int(width / 4.7), 20))
        ax.annotate(lines, (0, 1), (0, height), "axes fraction", "offset points", fontsize=9, color=ink(),
                    alpha=0.85, va="bottom", annotation_clip=False, parse_math=False)  # fmt: skip
        height += 11.5 * (lines.count("\n") + 1) + 2
    lines = textwrap.fill(title, max(int(width / 6.6), 20))
    ax.set_title(lines, loc="left", pad=height, color=ink(), parse_math=False)


def _legend_above(ax: Axes, width: float) -> float:
    """Its height in points; in as many columns as fit, marks behind areas and lines."""
    handles, labels = ax.get_legend_handles_labels()
    if not labels:
        return 0
    order = sorted(range(len(labels)), key=lambda i: getattr(handles[i], "get_linestyle", str)() == "None")
    entries = [handles[i] for i in order], [labels[i] for i in order]
    columns = min(len(labels), 7)
    while (extent := _legend(ax, *entries, columns)).width * points_per_pixel(ax) > width and columns > 1:
        columns -= 1
    return float(extent.height * points_per_pixel(ax))


def _legend(ax: Axes, handles: list[Any], labels: list[str], columns: int) -> Bbox:
    legend = ax.legend(handles, labels, loc="lower left", bbox_to_anchor=(0, 1), ncols=columns, borderaxespad=0.3,
                       borderpad=0.2, handlelength=1.6, columnspacing=1.4, labelcolor=ink())  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
    return legend.get_window_extent()


def say(ax: Axes, sentence: str) -> Axes:
    """The Axes with nothing but a sentence."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, textwrap.fill(sentence, 60), transform=ax.transAxes, ha="center", va="center", fontsize=11,
            color=ink(), parse_math=False)  # fmt: skip
    return ax


# Axes


def plain_numbers(axis: Axis) -> None:
    """Numbers as people write them: 90,000 instead of 9e4."""
    axis.set_major_locator(MaxNLocator(8, steps=[1, 2, 5, 10]))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))


def dates(ax: Axes) -> None:
    """Naive times along the bottom are shown as they are, whatever zone is set for other pictures."""
    locator = AutoDateLocator(tz=UTC, minticks=3, maxticks=9)  # type: ignore[no-untyped-call]
    ax.xaxis.set_major_locator(locator)
    ax.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=UTC))  # type: ignore[no-untyped-call]


def minutes_from_zero(ax: Axes, least: float) -> None:
    """The y axis begins at 0, unless something is below it."""
    if least >= 0:
        ax.set_ylim(bottom=0)


# Words


def shortened(name: str, width: int) -> str:
    """A name on one line of at most `width` signs, wide ones counting twice: what is too long loses its middle."""
    line = "".join(
        sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in " ".join(name.split()) or NO_NAME
    )
    wide = sum(unicodedata.east_asian_width(sign) in "WF" for sign in line)
    if len(line) + wide <= width:
        return line
    width = width * len(line) // (len(line) + wide)
    tail = (width - 1) // 2
    return f"{line[: width - 1 - tail]}…{line[-tail:]}"


def fitting(name: str, width: int) -> str:
    """The name `shortened`, with a box for each sign that no font has; else there would be a warning for each, too."""
    fonts = _fonts(tuple(rcParams["font.sans-serif"]))
    line = shortened(name, width)
    return "".join(sign if any(font.get_char_index(ord(sign)) for font in fonts) else _BOX for sign in line)


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


def listed(**counts: int | str) -> str:
    """ "3 not finished, 1 negative" of the counts that are not zero; underscores are blanks."""
    return ", ".join(f"{int(n):,} {word.replace('_', ' ')}" for word, n in counts.items() if n)


def sum_of(frame: pd.DataFrame, name: str) -> int:
    """The sum of a column of counts, unknown ones being none."""
    return int(frame[name].fillna(0).sum())
