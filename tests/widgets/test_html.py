"""Text stays text, and links only lead to http and https."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from typing import Any

import pytest

from buildframe.widgets import detail, html
from tests.report.untrusted import UNTRUSTED


class Seen(HTMLParser):
    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_no_tag_comes_of_a_text(hostile: str) -> None:
    assert Seen(html.text(hostile)).tags == []
    message = html.Message()
    message.fail(hostile)
    assert {tag for tag, _ in Seen(message.value).tags} <= {"div", "br"}
    assert {tag for tag, _ in Seen(html.facts([(hostile, html.text(hostile))], hostile)).tags} <= {
        "table", "caption", "tr", "th", "td",
    }  # fmt: skip


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_a_link_leads_to_the_web_or_is_none(hostile: str) -> None:
    for tag, attributes in Seen(html.link(hostile, hostile)).tags:
        assert tag == "a"
        assert set(attributes) == {"href", "target", "rel"}
        assert str(attributes["href"]).startswith(("http://", "https://"))


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "//example.com", "http://", None, 7])
def test_no_link(address: object) -> None:
    assert html.link(address, "words") == "words"


def test_a_link() -> None:
    shown = Seen(html.link("https://ci.example.com/a?b=1&c=2", "<b>")).tags
    assert shown == [
        ("a", {"href": "https://ci.example.com/a?b=1&c=2", "target": "_blank", "rel": "noopener noreferrer"})
    ]


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_a_label_is_one_short_line_that_opens_nothing(hostile: str) -> None:
    told = html.label(hostile)
    assert "<" not in told
    assert len(told.splitlines()) <= 1
    assert len(html.label(1000 * hostile)) <= 300


LIGHT = (["#fff"], "#000", ["#388e3c", "#d32f2f", "#f57c00"])
DARK = (["#212121", "#111"], "#fff", ["#4caf50", "#f44336", "#ff9800"])
"""Pages, their ink, and the colours of success, failure and warning."""


def light_of(colour: list[float]) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in colour]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def parts_of(colour: str) -> list[float]:
    long = colour[1:] if len(colour) == 7 else "".join(2 * sign for sign in colour[1:])
    return [int(long[place : place + 2], 16) / 255 for place in (0, 2, 4)]


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_states_can_be_read_in_both_themes_of_jupyterlab(theme: Any) -> None:
    mix = r"color-mix\(in srgb, var\(--bf-hue\), var\(--jp-content-font-color0, #000\) (\d+)%"
    share = int(re.search(mix, detail._STYLE)[1]) / 100
    pages, ink, hues = theme
    for page, hue in itertools.product(pages, hues):
        mixed = [(1 - share) * a + share * b for a, b in zip(parts_of(hue), parts_of(ink), strict=True)]
        low, high = sorted([light_of(mixed), light_of(parts_of(page))])
        assert (high + 0.05) / (low + 0.05) >= 4.5


def test_errors_in_callbacks_show() -> None:
    message = html.Message()
    html.button("Press", "", lambda: 1 / 0, message).click()
    assert "ZeroDivisionError: division by zero" in message.value
    assert 'role="alert"' in message.value


def test_no_name_of_ipywidgets_is_taken() -> None:
    """It has methods such as `_send` and attributes such as `log`, which would break without a word."""
    from buildframe.widgets import browser, buttons, flaky_board, form, monitor

    meant = {"close", "__init__", "__module__", "__doc__"}
    for made in (
        flaky_board.FlakyBoard,
        browser.BuildBrowser,
        buttons.Actions,
        detail.Detail,
        form.CreateForm,
        monitor.BuildMonitor,
    ):
        assert {name for name in vars(made) if hasattr(html.Face, name)} - meant <= {
            name for name in vars(made) if name.startswith(("__", "_trait")) or name == "holds"
        } | {"_all_trait_default_generators", "_descriptors", "_instance_inits", "_static_immutable_initial_values"}
