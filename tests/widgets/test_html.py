"""Escaped text, links that lead only to http and https, and readable colors."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from buildframe import widgets
from buildframe.widgets import html
from tests.report.untrusted import UNTRUSTED
from tests.widgets.widget_helpers import html_tags


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_text_contains_no_tag(hostile: str) -> None:
    assert [tag for tag, _ in html_tags(html.hint(hostile))] == ["div"]
    assert {tag for tag, _ in html_tags(html.message(hostile, is_error=True))} <= {"div", "br"}
    assert {tag for tag, _ in html_tags(html.component("property", hostile, hostile))} == {"tr", "th", "td"}


@pytest.mark.parametrize("value", [None, pd.NA, pd.NaT, float("nan"), np.float64("nan")])
def test_a_missing_value_is_empty(value: object) -> None:
    assert (html.plain(value), html.timestamp(value), html.cell(value)) == ("", "", "")
    assert html.hint(value) == html.hint("")
    assert html.component("property", "name", value) == ""


@pytest.mark.parametrize("value", [0, "", False, 0.0])
def test_zero_and_empty_values_are_not_missing(value: object) -> None:
    assert html.plain(value) == str(value)


def test_values_of_widgets_are_plain_text_of_html_and_links_are_inserted_unescaped() -> None:
    link = html.link("https://ci.example.com", "<b>")
    message = html.message("<i>", extra=link)
    assert str(link) in message
    assert {type(page) for page in (message, html.hint(1), html.component("heading", 1))} == {str}


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_a_link_leads_to_the_web_or_is_text(hostile: str) -> None:
    for tag, attributes in html_tags(html.link(hostile, hostile)):
        assert tag == "a"
        assert set(attributes) == {"href", "target", "rel"}
        assert str(attributes["href"]).startswith(("http://", "https://"))


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "//example.com", "http://", None, 7])
def test_other_urls_are_not_linked(url: object) -> None:
    assert html.link(url, "words") == "words"


def test_a_link_opens_in_a_new_tab() -> None:
    assert html_tags(html.link("https://ci.example.com/a?b=1&c=2", "<b>")) == [
        ("a", {"href": "https://ci.example.com/a?b=1&c=2", "target": "_blank", "rel": "noopener noreferrer"})
    ]


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_a_label_is_one_short_line_without_markup(hostile: str) -> None:
    label = html.label(hostile)
    assert "<" not in label
    assert len(label.splitlines()) <= 1
    assert len(html.label(1000 * hostile)) <= 300


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


@pytest.mark.long
@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_states_are_readable_in_both_themes_of_jupyterlab(theme: Any) -> None:
    mix = r"color-mix\(in srgb, var\(--bf-state-color\), var\(--jp-content-font-color0, #000\) (\d+)%"
    share = int(re.search(mix, STYLES)[1]) / 100
    backgrounds, text_color, state_colors = theme
    for background, state_color in itertools.product(backgrounds, state_colors):
        mixed = [(1 - share) * a + share * b for a, b in zip(rgb(state_color), rgb(text_color), strict=True)]
        low, high = sorted([luminance(mixed), luminance(rgb(background))])
        assert (high + 0.05) / (low + 0.05) >= 4.5
