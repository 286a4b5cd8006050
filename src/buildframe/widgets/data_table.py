"""A table for thousands of rows that sorts, scrolls and is operated by keyboard. Cells are text and numbers only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import anywidget
import pandas as pd
import traitlets

from buildframe.widgets import html

CellValue = str | int | float | None
Rows = Sequence[Sequence[CellValue]]
Row = dict[Any, Any]  # of a frame; missing values are None
# "time" is text such as "2026-10-31 08:15:30.5", shown to the minute. "percent" is text that may begin with a
# percentage, which is drawn as a bar behind it. "commit" is shown with 8 characters. If there is no room for it, a
# "name" loses its middle and a "path" its start.
ColumnKind = Literal["text", "name", "path", "number", "seconds", "state", "time", "percent", "commit"]
_TEXTS = ("text", "name", "path", "state", "percent", "commit")

_ESCAPED_LESS_THAN = "\x01"
_FOLDER = Path(__file__).parent
_SCRIPTS = ("table_cells.js", "table_columns.js", "data_table.js")  # together one module


class TableColumn(NamedTuple):
    """
    A column: its title, its value as a name in a row or a function of it, its kind, and its CSS width.

    Fractions of the width are whole numbers: CSS leaves space empty if those of the remaining columns sum to less than
    1.

    In a narrow table the columns with the highest `rank` are left out first, and those of rank 0 never. An `optional`
    column is shown only if the user chooses it.
    """

    title: str
    value: str | Callable[[Row], object]
    kind: ColumnKind = "text"
    width: str = "1fr"
    rank: int = 0
    optional: bool = False


def to_rows(frame: pd.DataFrame) -> list[Row]:
    """Return the rows of a frame, with None for missing values."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")


def to_cells(row: Row, columns: Sequence[TableColumn]) -> list[CellValue]:
    """Return the cells of a row."""
    values = [row[column.value] if isinstance(column.value, str) else column.value(row) for column in columns]
    return [_to_cell(value, column.kind) for value, column in zip(values, columns, strict=True)]


def _to_cell(value: Any, kind: ColumnKind) -> CellValue:
    if kind in _TEXTS:
        return html.cell(value)
    if value is None or pd.isna(value):
        return None
    if kind == "time":
        return f"{value:%Y-%m-%d %H:%M:%S.%f}"
    seconds = value.total_seconds() if isinstance(value, pd.Timedelta) else value
    return round(seconds) if kind == "seconds" else seconds


def _serialize(rows: Rows, widget: object = None) -> list[list[CellValue]]:
    """Return rows without "<", because "<!--<script" within the saved state would break an exported page."""
    return [[cell.replace("<", _ESCAPED_LESS_THAN) if isinstance(cell, str) else cell for cell in row] for row in rows]


class DataTable(anywidget.AnyWidget):
    """
    Rows of text and numbers, drawn as they scroll into view.

    `selected` is the index of the selected row in `rows`, -1 for none. With `has_marks` the user can mark rows, and
    `marked` are their indexes. `visible_rows` are the indexes of the rows to show (None: all), `search` shows only rows
    that contain each of its words, `sort_order` is [column, is_descending] or empty, and `is_stale` marks rows of an
    earlier query. The user's choice of columns is in `column_order` (titles), `column_widths` (pixels by title) and
    `column_choices` (whether to show it, by title). Cells become text in the page, never HTML. A page that shows the
    table copies `ping` to `pong`, which distinguishes an open page from a closed one.
    """

    _esm = "\n".join((_FOLDER / name).read_text(encoding="utf-8") for name in _SCRIPTS)
    _css = _FOLDER / "data_table.css"

    label = traitlets.Unicode().tag(sync=True)
    columns: Any = traitlets.List().tag(sync=True)
    rows: Any = traitlets.List().tag(sync=True, to_json=_serialize)
    row_count = traitlets.Int(0).tag(sync=True)
    visible_rows: Any = traitlets.List(traitlets.Int(), allow_none=True, default_value=None).tag(sync=True)
    sort_order: Any = traitlets.List().tag(sync=True)
    has_search = traitlets.Bool(False).tag(sync=True)
    search = traitlets.Unicode().tag(sync=True)
    has_marks = traitlets.Bool(False).tag(sync=True)
    marked: Any = traitlets.List(traitlets.Int()).tag(sync=True)
    column_order: Any = traitlets.List(traitlets.Unicode()).tag(sync=True)
    column_widths: Any = traitlets.Dict().tag(sync=True)
    column_choices: Any = traitlets.Dict().tag(sync=True)
    selected = traitlets.Int(-1).tag(sync=True)
    is_stale = traitlets.Bool(False).tag(sync=True)
    ping = traitlets.Int(0).tag(sync=True)
    pong = traitlets.Int(0).tag(sync=True)

    def __init__(self, label: str, columns: Sequence[TableColumn], *, has_search: bool = False) -> None:
        super().__init__(label=label, has_search=has_search)
        self.set_columns(columns)
        self.on_msg(self._send_missing_rows)

    def set_columns(self, columns: Sequence[TableColumn]) -> None:
        """Replace the columns, and sort by none of them if they differ."""
        described = [{key: value for key, value in column._asdict().items() if key != "value"} for column in columns]
        if described != self.columns:
            self.columns, self.sort_order = described, []

    def set_rows(
        self,
        rows: Rows,
        visible_rows: Sequence[int] | None = None,
        selected: int | None = None,
        marked: Sequence[int] = (),
    ) -> None:
        """
        Replace the rows. If they begin with the present ones, the page requests only the others.

        By default the selected row stays selected if its first cell is unchanged.
        """
        before, new = self.rows, [list(row) for row in rows]
        if selected is None:
            index = self.selected
            is_same = 0 <= index < min(len(new), len(before)) and new[index][0] == before[index][0]
            selected = index if is_same else -1
        with self.hold_sync():
            self.marked = list(marked)
            self.selected = selected
            if before and new[: len(before)] == before:
                before.extend(new[len(before) :])  # unlike an assignment this sends nothing
            else:
                self.rows = new
            self.row_count = len(new)
            self.visible_rows = None if visible_rows is None else list(visible_rows)

    def _send_missing_rows(self, widget: Any, content: Mapping[str, Any], buffers: Any) -> None:
        if isinstance(loaded := content.get("loaded"), int):
            self.send({"offset": loaded, "rows": _serialize(self.rows[loaded:])})
