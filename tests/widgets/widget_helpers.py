"""Read and operate widgets as a page does, and wait for them."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

import buildframe as bf
from buildframe.widgets.background_tasks import TaskRunner
from buildframe.widgets.components import AccessibilityHelper
from buildframe.widgets.data_table import DataTable
from buildframe.workspace import Workspace
from tests.conftest import Scripted
from tests.report.untrusted import UNTRUSTED

HOSTILE_TEXTS = (
    "javascript:alert(1)",
    "https://evil.example.com/\"onclick='alert(1)'",
    '"><img src=x onerror=alert(1)>',
    *(" ".join(UNTRUSTED[first::4]) for first in range(4)),
)
"""The untrusted texts, all of them in four long ones, and three that attack a link or an attribute only if alone.

For widgets, which insert texts by the templates and functions that other tests call with each text.
"""


BLOCK_STEPS = """\
steps:
  - command: make
  - wait
  - block: ":rocket: Deploy?"
    key: deploy
    prompt: Fill in the form
    fields:
      - {text: Reason, key: reason, hint: for the log}
      - select: Region
        key: region
        default: eu
        options: [{label: Europe, value: eu}, {label: America, value: us}]
      - select: Teams
        key: teams
        multiple: true
        required: false
        options: [{label: Web, value: web}, {label: Data, value: data}]
      - {text: Note, key: note, required: false}
  - command: make deploy
"""
"""A pipeline's configuration with a block step that has fields."""


def workspace_of(server: Scripted) -> Workspace:
    """Return a workspace of a scripted server."""
    return bf.connect("acme", base_url=server.url, token="a-test-token" * 20)


def parts(widget: Any) -> Iterator[Any]:
    """Yield a widget and all that is in it."""
    yield widget
    for child in getattr(widget, "children", ()):
        yield from parts(child)


def accessibility(widget: Any) -> dict[str, dict[str, str]]:
    """Return the attributes for screen readers by selector, as the page sets them."""
    return next(part.attributes for part in widget.children if isinstance(part, AccessibilityHelper))


def css_classes(widget: Any) -> tuple[str, ...]:
    return tuple(widget.get_state("_dom_classes")["_dom_classes"])


def is_shown(widget: Any) -> bool:
    return widget.layout.display != "none"


def press_enter(text: Any) -> None:
    """Send what the page sends when Enter is pressed in a text input."""
    send_content(text, {"event": "submit"})


def send_content(widget: Any, content: dict[str, Any]) -> None:
    """Send a message of the page to a widget."""
    widget.comm.handle_msg({"content": {"data": {"method": "custom", "content": content}}, "buffers": []})


def set_views(widget: Any, count: int) -> None:
    """Send in how many places a page shows the widget."""
    widget.comm.handle_msg({"content": {"data": {"method": "update", "state": {"_view_count": count}}}, "buffers": []})


def running_threads() -> list[threading.Thread]:
    """Return the threads of widgets."""
    return [thread for thread in threading.enumerate() if thread.name == "buildframe-widget"]


def visible_text(widget: Any, starts_line: str = "no element") -> str:
    """Return the text of an HTML widget; elements of the class `starts_line` start a line."""
    page = re.sub(rf'(?=<\w+ class="{starts_line})', "\n", widget.value)
    return html.unescape(re.sub(r"<[^>]*>", "", page)).strip()


def displayed_rows(table: DataTable) -> list[list[Any]]:
    """Return the rows that a table shows, before sorting."""
    return table.rows if table.visible_rows is None else [table.rows[index] for index in table.visible_rows]


def wait_for(*tasks: Any) -> None:
    """Wait until no task runs of these runners, or of these widgets and those in them."""
    runners = [runner for each in tasks for runner in _runners(each)]

    def is_done() -> bool:
        return all(runner.join(0) for runner in runners)

    while not (is_done() and is_done()):  # the end of one task may start another
        assert all(runner.join(30) for runner in runners)


def is_busy(widget: Any) -> bool:
    """Return whether a result of this widget is still to be delivered; not of those in it."""
    return any(runner.is_busy for runner in widget.closables)


def _runners(tasks: Any) -> list[TaskRunner]:
    if isinstance(tasks, TaskRunner):
        return [tasks]
    return [runner for part in parts(tasks) for runner in getattr(part, "closables", ())]


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class _TagParser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def html_tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """Return the tags in HTML, each with its attributes."""
    parser = _TagParser()
    parser.feed(page)
    parser.close()
    return parser.tags


_SAFE_TAGS = re.compile("a|b|br|caption|details|div|figcaption|figure|i|pre|span|summary|table|td|th|tr")
_SAFE_ATTRIBUTES = re.compile("aria-label|class|data-state|href|id|open|rel|role|scope|style|tabindex|target|title")
_SAFE_STYLE = re.compile(r"(left:-?[\d.]+%(;width:-?[\d.]+%)?)?")


def is_safe(page: str) -> bool:
    """Return whether HTML contains only tags that display something, and links to the web."""
    return all(
        _SAFE_TAGS.fullmatch(tag)
        and all(map(_SAFE_ATTRIBUTES.fullmatch, attributes))
        and str(attributes.get("href", "https://")).startswith(("http://", "https://"))
        and _SAFE_STYLE.fullmatch(attributes.get("style") or "")
        for tag, attributes in html_tags(page)
    )
