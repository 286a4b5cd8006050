"""Read widgets, and wait for them."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

from buildframe.widgets.background_tasks import TaskRunner
from buildframe.widgets.data_table import DataTable


def visible_text(widget: Any, starts_line: str = "no element") -> str:
    """Return the text of an HTML widget; elements of the class `starts_line` start a line."""
    page = re.sub(rf'(?=<\w+ class="{starts_line})', "\n", widget.value)
    return html.unescape(re.sub(r"<[^>]*>", "", page)).strip()


def displayed_rows(table: DataTable) -> list[list[Any]]:
    """Return the rows that a table shows, before sorting."""
    return table.rows if table.visible_rows is None else [table.rows[index] for index in table.visible_rows]


def wait_for(*runners: TaskRunner) -> None:
    """Wait until no task runs."""
    for runner in runners:
        assert runner.join(30)


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
