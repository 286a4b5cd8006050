"""Text stays text, and links only lead to http and https."""

from __future__ import annotations

from html.parser import HTMLParser

import pytest

from buildframe.widgets import faces
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
    assert Seen(faces.text(hostile)).tags == []
    message = faces.Message()
    message.fail(hostile)
    assert {tag for tag, _ in Seen(message.value).tags} <= {"div", "br"}
    assert {tag for tag, _ in Seen(faces.facts([(hostile, faces.text(hostile))], hostile)).tags} <= {
        "table", "caption", "tr", "th", "td",
    }  # fmt: skip


@pytest.mark.parametrize("hostile", UNTRUSTED)
def test_a_link_leads_to_the_web_or_is_none(hostile: str) -> None:
    for tag, attributes in Seen(faces.link(hostile, hostile)).tags:
        assert tag == "a"
        assert set(attributes) == {"href", "target", "rel"}
        assert str(attributes["href"]).startswith(("http://", "https://"))


@pytest.mark.parametrize("address", ["javascript:alert(1)", "data:text/html,x", "//example.com", "http://", None, 7])
def test_no_link(address: object) -> None:
    assert faces.link(address, "words") == "words"


def test_a_link() -> None:
    shown = Seen(faces.link("https://ci.example.com/a?b=1&c=2", "<b>")).tags
    assert shown == [
        ("a", {"href": "https://ci.example.com/a?b=1&c=2", "target": "_blank", "rel": "noopener noreferrer"})
    ]


def test_errors_in_callbacks_show() -> None:
    message = faces.Message()
    faces.button("Press", "", lambda: 1 / 0, message).click()
    assert "ZeroDivisionError: division by zero" in message.value
    assert 'role="alert"' in message.value


def test_no_name_of_ipywidgets_is_taken() -> None:
    """It has methods such as `_send` and attributes such as `log`, which would break without a word."""
    from buildframe.widgets import board, browser, buttons, detail, form, monitor

    meant = {"close", "__init__", "__module__", "__doc__"}
    for made in (
        board.FlakyBoard,
        browser.BuildBrowser,
        buttons.Actions,
        detail.Detail,
        form.CreateForm,
        monitor.BuildMonitor,
    ):
        assert {name for name in vars(made) if hasattr(faces.Face, name)} - meant <= {
            name for name in vars(made) if name.startswith(("__", "_trait")) or name == "holds"
        } | {"_all_trait_default_generators", "_descriptors", "_instance_inits", "_static_immutable_initial_values"}
