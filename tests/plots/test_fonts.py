"""Fonts for characters that the usual font does not have."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.font_manager import fontManager

from buildframe import plots
from buildframe.plots import fonts
from tests.plots.plot_frames import flaky_tests, labels, laid_out

CHARACTERS = "日本語\N{FIRE}"


def write_font(path: Path, characters: str, family: str) -> None:
    """Write a font with a square for each character."""
    pen = TTGlyphPen(None)
    for point in ((0, 0), (0, 500), (500, 500), (500, 0)):
        (pen.lineTo if point != (0, 0) else pen.moveTo)(point)
    pen.closePath()
    names = [".notdef", *(f"glyph{ord(char)}" for char in characters)]
    builder = FontBuilder(1000, isTTF=True)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({ord(char): name for char, name in zip(characters, names[1:], strict=True)})
    builder.setupGlyf(dict.fromkeys(names, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (600, 0)))
    builder.setupHorizontalHeader(ascent=800, descent=-200)
    builder.setupNameTable({"familyName": family, "styleName": "Regular"})
    builder.setupOS2(sTypoAscender=800, usWinAscent=800, usWinDescent=200)
    builder.setupPost()
    builder.save(path)


@pytest.fixture
def _installed(tmp_path: Path):
    """A font with these characters, as if it were installed."""
    write_font(tmp_path / "squares.ttf", CHARACTERS, "Squares")
    before = list(fontManager.ttflist)
    fontManager.addfont(tmp_path / "squares.ttf")
    yield
    fontManager.ttflist[:] = before
    fontManager._findfont_cached.cache_clear()


def board() -> list[str]:
    """The labels of tests with such names, drawn without a warning."""
    frame = flaky_tests(2, name=["日本語のテスト", "\N{FIRE} works"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", category=DeprecationWarning)  # matplotlib 3.10.0 calls pyparsing by old names
        ax = plots.flaky_board(frame)
        laid_out(ax)
    return labels(ax)[::-1]


@pytest.mark.usefixtures("_installed")
def test_an_installed_font_draws_what_the_usual_one_does_not_have():
    assert fonts.find_fallbacks("日\N{FIRE}") == ["Squares"]
    assert [label[:3] for label in board()] == ["日本語", "\N{FIRE} w"]


def test_a_character_that_no_font_has_is_a_box():
    assert fonts.find_fallbacks("日") == []
    assert [label[0] for label in board()] == ["\N{WHITE VERTICAL RECTANGLE}"] * 2


def test_ascii_needs_no_search():
    assert fonts.missing_characters("plain", ["no such font"]) == set()
    assert fonts.missing_characters("Größe", ["no such font"]) == set()  # DejaVu Sans is always there
