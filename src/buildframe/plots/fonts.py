"""Find installed fonts for characters that the fonts of the style do not have.

Matplotlib draws a text with the first of its families that has a character. It looks for no others.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterable
from typing import Any

from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.font_manager import fontManager, get_font
from matplotlib.text import Text

_GENERIC = ("serif", "sans-serif", "cursive", "fantasy", "monospace")
_FALLBACK = "DejaVu Sans"
_BOXES = "Last Resort"  # a font of boxes, which Matplotlib adds to every text


def missing_characters(text: str, families: Iterable[str]) -> set[str]:
    """Return the characters of a text that none of these families has."""
    if text.isascii():
        return set()
    known = [_characters_of(path) for path in _paths_of(_named(families), len(fontManager.ttflist))]
    return {char for char in text if not any(ord(char) in codes for codes in known)}


def find_fallbacks(characters: Iterable[str]) -> list[str]:
    """Return installed families that have these characters, as few as a short search finds."""
    return list(_find_fallbacks(frozenset(characters), len(fontManager.ttflist)))


def style_families() -> list[str]:
    """Return the families of the active style, in the order in which they are tried."""
    return list(rcParams["font.family"])


def add_fallback_fonts(ax: Axes) -> None:
    """Give each text in and around the Axes the fonts that have its characters."""
    legend = ax.get_legend()
    for text in [*ax.texts, ax.title, getattr(ax, "_left_title", ax.title), ax.xaxis.label, ax.yaxis.label,
                 *(legend.get_texts() if legend else [])]:  # fmt: skip
        add_fallback_font(text)
    for axis, name in ((ax.xaxis, "x"), (ax.yaxis, "y")):
        labels = [label for label in axis.get_ticklabels() if not label.get_text().isascii()]
        if labels:
            families = labels[0].get_fontfamily()
            lacking = missing_characters("".join(label.get_text() for label in labels), families)
            if more := find_fallbacks(lacking):
                ax.tick_params(axis=name, labelfontfamily=[*families, *more])  # type: ignore[arg-type]


def add_fallback_font(text: Text) -> None:
    """Give a text the fonts that have its characters."""
    families = text.get_fontfamily()
    if more := find_fallbacks(missing_characters(text.get_text(), families)):
        text.set_fontfamily([*families, *more])


def _named(families: Iterable[str]) -> tuple[str, ...]:
    """Return the families with generic ones replaced by those of the style."""
    settings: Any = rcParams
    names = [name for family in families for name in (settings[f"font.{family}"] if family in _GENERIC else [family])]
    return tuple(dict.fromkeys([*names, _FALLBACK]))


@functools.cache
def _paths_of(families: tuple[str, ...], installed: int) -> tuple[str, ...]:
    paths = []
    for family in families:
        with contextlib.suppress(ValueError):
            paths.append(str(fontManager.findfont(family, fallback_to_default=False)))
    return tuple(dict.fromkeys(paths))


@functools.cache
def _characters_of(path: str) -> frozenset[int]:
    """Return the characters that a font file has; none if Matplotlib cannot draw it, such as color bitmaps."""
    try:
        font = get_font(path)
        return frozenset(font.get_charmap()) if font.scalable else frozenset()
    except (OSError, RuntimeError):
        return frozenset()


@functools.lru_cache(maxsize=256)
def _find_fallbacks(characters: frozenset[str], installed: int) -> tuple[str, ...]:
    left, chosen = {ord(char) for char in characters}, []
    for name in sorted({font.name for font in fontManager.ttflist}) if left else []:
        if not name.startswith(_BOXES) and (found := left & _characters_of_family(name, installed)):
            chosen.append(name)
            left -= found
            if not left:
                break
    return tuple(chosen)


@functools.cache
def _characters_of_family(name: str, installed: int) -> frozenset[int]:
    """Return the characters that all upright fonts of a family have, whatever their weight."""
    upright = [font for font in fontManager.ttflist if font.name == name and font.style == "normal"]
    return frozenset.intersection(*(_characters_of(font.fname) for font in upright)) if upright else frozenset()
