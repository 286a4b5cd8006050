"""Escaped text, links that lead only to http and https, and readable colors."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np
import pandas as pd

from buildframe import widgets
from buildframe.widgets import html
from tests.report.untrusted import UNTRUSTED
from tests.widgets.widget_helpers import html_tags


def test_text_contains_no_tag() -> None:
    pages = {
        "hint": ({"div"}, html.hint),
        "message": ({"div", "br"}, lambda text: html.message(text, is_error=True)),
        "property": ({"tr", "th", "td"}, lambda text: html.component("property", text, text)),
    }
    wrong = {
        (name, text): found
        for name, (tags, render) in pages.items()
        for text in UNTRUSTED
        if not (found := {tag for tag, _ in html_tags(render(text))}) <= tags or not found
    }
    assert wrong == {}


def test_a_missing_value_is_empty_and_a_zero_is_not_missing() -> None:
    for value in (None, pd.NA, pd.NaT, float("nan"), np.float64("nan")):
        assert (html.plain(value), html.timestamp(value), html.cell(value)) == ("", "", "")
        assert html.hint(value) == html.hint("")
        assert html.component("property", "name", value) == ""
    assert [html.plain(value) for value in (0, "", False, 0.0)] == ["0", "", "False", "0.0"]


def test_values_of_widgets_are_plain_text_of_html_and_links_are_inserted_unescaped() -> None:
    link = html.link("https://ci.example.com", "<b>")
    message = html.message("<i>", extra=link)
    assert str(link) in message
    assert {type(page) for page in (message, html.hint(1), html.component("heading", 1))} == {str}


def test_a_link_leads_to_the_web_or_is_text() -> None:
    tags = [tag for text in UNTRUSTED for tag in html_tags(html.link(text, text))]
    assert {tag for tag, _ in tags} == {"a"}
    assert {*map(frozenset, (attributes for _, attributes in tags))} == {frozenset({"href", "target", "rel"})}
    addresses = [str(attributes["href"]) for _, attributes in tags]
    assert [one for one in addresses if not one.startswith(("http://", "https://"))] == []
    others = ["javascript:alert(1)", "data:text/html,x", "//example.com", "http://", None, 7]
    assert {html.link(url, "words") for url in others} == {"words"}


def test_a_link_opens_in_a_new_tab() -> None:
    assert html_tags(html.link("https://ci.example.com/a?b=1&c=2", "<b>")) == [
        ("a", {"href": "https://ci.example.com/a?b=1&c=2", "target": "_blank", "rel": "noopener noreferrer"})
    ]


def test_a_label_is_one_short_line_without_markup() -> None:
    labels = [html.label(text) for text in UNTRUSTED]
    assert [label for label in labels if "<" in label or len(label.splitlines()) > 1] == []
    assert max(len(html.label(1000 * text)) for text in UNTRUSTED) <= 300


STYLES = (Path(widgets.__file__).parent / "widgets.css").read_text(encoding="utf-8")
LIGHT = (["#fff"], "#000", ["#388e3c", "#d32f2f", "#f57c00"])
DARK = (["#212121", "#111"], "#fff", ["#4caf50", "#f44336", "#ff9800"])
"""Backgrounds, text color, and the colors of success, failure and warning."""


def luminance(color: list[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def rgb(color: str) -> list[float]:
    long = color[1:] if len(color) == 7 else "".join(2 * digit for digit in color[1:])
    return [int(long[index : index + 2], 16) / 255 for index in (0, 2, 4)]


def test_states_are_readable_in_both_themes_of_jupyterlab() -> None:
    mix = r"color-mix\(in srgb, var\(--bf-state-color\), var\(--jp-content-font-color0, #000\) (\d+)%"
    share = int(re.search(mix, STYLES)[1]) / 100
    for backgrounds, text_color, state_colors in (LIGHT, DARK):
        for background, state_color in itertools.product(backgrounds, state_colors):
            mixed = [(1 - share) * a + share * b for a, b in zip(rgb(state_color), rgb(text_color), strict=True)]
            low, high = sorted([luminance(mixed), luminance(rgb(background))])
            assert (high + 0.05) / (low + 0.05) >= 4.5, (background, state_color)
