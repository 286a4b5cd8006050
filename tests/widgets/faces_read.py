"""What a test reads of a widget, and how it waits for one."""

from __future__ import annotations

import html
import re
import time
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

from buildframe.widgets.background_tasks import Lane


def words(widget: Any) -> str:
    """What an HTML widget says, as a reader sees it."""
    return html.unescape(re.sub(r"<[^>]*>", "", widget.value)).strip()


def settled(*lanes: Lane) -> None:
    """Until nothing is under way."""
    for lane in lanes:
        assert lane.wait(30)


def until(holds: Callable[[], bool]) -> None:
    """Until it holds."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(page: str) -> list[tuple[str, dict[str, str | None]]]:
    """The tags of a piece of HTML, each with its attributes."""
    reader = _Tags()
    reader.feed(page)
    reader.close()
    return reader.found


_SHOWING = re.compile("a|b|br|caption|div|figcaption|figure|i|pre|span|table|td|th|tr")
_SAYING = re.compile("aria-label|class|data-state|href|id|rel|role|scope|style|tabindex|target|title")
_PLACE = re.compile(r"(left:-?[\d.]+%(;width:-?[\d.]+%)?)?")


def is_harmless(page: str) -> bool:
    """Whether it holds but tags that only show, and links to the web."""
    return all(
        _SHOWING.fullmatch(tag)
        and all(map(_SAYING.fullmatch, attributes))
        and str(attributes.get("href", "https://")).startswith(("http://", "https://"))
        and _PLACE.fullmatch(attributes.get("style") or "")
        for tag, attributes in tags(page)
    )
