"""A table that sorts, scrolls and is walked by keys, with thousands of rows; only texts and numbers go into it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anywidget
import traitlets

Cell = str | int | float | None
Kind = Literal["text", "number", "seconds", "state"]


class Column(NamedTuple):
    """A column: what stands above it, what it holds, how wide it is (of CSS: `90px`, `minmax(90px, 2fr)`)."""

    title: str
    kind: Kind = "text"
    width: str = "1fr"


class Table(anywidget.AnyWidget):
    """Rows of texts and numbers, drawn as they scroll into sight; `chosen` is the place of the chosen one in `rows`.

    `shown` are the places of the rows to show (None: all), `order` is [column, descending] or empty. Cells become
    text in the page, never HTML.
    """

    _esm = Path(__file__).parent / "table.js"
    _css = Path(__file__).parent / "table.css"

    label = traitlets.Unicode().tag(sync=True)
    columns: Any = traitlets.List().tag(sync=True)
    rows: Any = traitlets.List().tag(sync=True)
    shown: Any = traitlets.List(traitlets.Int(), allow_none=True, default_value=None).tag(sync=True)
    order: Any = traitlets.List().tag(sync=True)
    chosen = traitlets.Int(-1).tag(sync=True)

    def __init__(self, label: str, columns: Sequence[Column]) -> None:
        super().__init__(label=label, columns=[column._asdict() for column in columns])

    def fill(self, rows: Sequence[Sequence[Cell]], shown: Sequence[int] | None = None) -> None:
        """Show these rows; the chosen one stays where rows are only added at the end."""
        with self.hold_sync():
            if not _begins_with(rows, self.rows, self.chosen):
                self.chosen = -1
            self.rows = [list(row) for row in rows]
            self.shown = None if shown is None else list(shown)

    def visible_rows(self) -> list[list[Any]]:
        """The rows as they are shown, before sorting."""
        return [self.rows[place] for place in (range(len(self.rows)) if self.shown is None else self.shown)]


def _begins_with(rows: Sequence[Sequence[Cell]], before: Sequence[Sequence[Cell]], place: int) -> bool:
    """Whether the row at `place` is the same as before."""
    return 0 <= place < min(len(rows), len(before)) and rows[place][0] == before[place][0]
