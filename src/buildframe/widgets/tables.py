"""A table that sorts, scrolls and is walked by keys, with thousands of rows; only texts and numbers go into it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anywidget
import traitlets

Cell = str | int | float | None
Kind = Literal["text", "number", "seconds", "state", "time", "share"]
"""A `time` is a text such as "2026-10-31 08:15:30.5", shown by the minute. A `share` is a text that may begin with a
percentage, which is drawn as a bar behind it."""


_LESS = "\x01"


class Column(NamedTuple):
    """A column: what stands above it, what it holds, how wide it is (of CSS: `90px`, `minmax(90px, 2fr)`)."""

    title: str
    kind: Kind = "text"
    width: str = "1fr"


def _sent(rows: Sequence[Sequence[Cell]], widget: object = None) -> list[list[Cell]]:
    """Rows as the page gets them: without "<", as "<!--<script" amid the state would break an exported page."""
    return [[cell.replace("<", _LESS) if isinstance(cell, str) else cell for cell in row] for row in rows]


class Table(anywidget.AnyWidget):
    """Rows of texts and numbers, drawn as they scroll into sight; `chosen` is the place of the chosen one in `rows`.

    `shown` are the places of the rows to show (None: all), `order` is [column, descending] or empty, `former` marks
    the rows as those of a question before. Cells become text in the page, never HTML. A page that shows it sets
    `answered` to `calls`, which tells one that is there from one that was closed.
    """

    _esm = Path(__file__).parent / "table.js"
    _css = Path(__file__).parent / "table.css"

    label = traitlets.Unicode().tag(sync=True)
    columns: Any = traitlets.List().tag(sync=True)
    rows: Any = traitlets.List().tag(sync=True, to_json=_sent)
    count = traitlets.Int(0).tag(sync=True)
    shown: Any = traitlets.List(traitlets.Int(), allow_none=True, default_value=None).tag(sync=True)
    order: Any = traitlets.List().tag(sync=True)
    chosen = traitlets.Int(-1).tag(sync=True)
    former = traitlets.Bool(False).tag(sync=True)
    calls = traitlets.Int(0).tag(sync=True)
    answered = traitlets.Int(0).tag(sync=True)

    def __init__(self, label: str, columns: Sequence[Column]) -> None:
        super().__init__(label=label, columns=[column._asdict() for column in columns])
        self.on_msg(self._hand_over)

    def fill(
        self, rows: Sequence[Sequence[Cell]], shown: Sequence[int] | None = None, chosen: int | None = None
    ) -> None:
        """Show these rows. Where they begin with those that are there, the page asks for the others only.

        `chosen` is the place of the chosen one; None keeps it where its first cell is the same as before.
        """
        before, new = self.rows, [list(row) for row in rows]
        place = chosen if chosen is not None else self.chosen if _is_same(new, before, self.chosen) else -1
        with self.hold_sync():
            self.chosen = place
            if before and new[: len(before)] == before:
                before.extend(new[len(before) :])  # unlike an assignment this sends nothing
            else:
                self.rows = new
            self.count = len(new)
            self.shown = None if shown is None else list(shown)

    def visible_rows(self) -> list[list[Any]]:
        """The rows as they are shown, before sorting."""
        return [self.rows[place] for place in (range(len(self.rows)) if self.shown is None else self.shown)]

    def _hand_over(self, widget: Any, content: Mapping[str, Any], buffers: Any) -> None:
        """The page has so many rows, and asks for the others."""
        if isinstance(have := content.get("have"), int):
            self.send({"at": have, "more": _sent(self.rows[have:])})


def _is_same(rows: Sequence[Sequence[Cell]], before: Sequence[Sequence[Cell]], place: int) -> bool:
    return 0 <= place < min(len(rows), len(before)) and rows[place][0] == before[place][0]
