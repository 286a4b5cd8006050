"""What a test reads of a widget, and how it waits for one."""

from __future__ import annotations

import html
import re
from typing import Any

from buildframe.widgets.tasks import Lane


def words(widget: Any) -> str:
    """What an HTML widget says, as a reader sees it."""
    return html.unescape(re.sub(r"<[^>]*>", "", widget.value)).strip()


def settled(*lanes: Lane) -> None:
    """Until nothing is under way."""
    for lane in lanes:
        assert lane.wait(30)
