"""Choose the groups that a plot distinguishes by color, the same in all of its cells."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from buildframe.errors import BadInput
from buildframe.formatting import format_count, label_steps
from buildframe.metrics.columns import column, timestamps
from buildframe.metrics.durations import RowMetric, is_script, span_of
from buildframe.metrics.grouping import Key, compute_key
from buildframe.metrics.queues import name_queues
from buildframe.plots import theme
from buildframe.plots.names import NO_NAME, drawable, unique_labels
from buildframe.terminal import nearest_name, show

GROUP = "group of the plot"
"""Column that holds the group of each row."""

_LINES: tuple[Any, ...] = ("-", "--", ":", "-.")
_MARKERS = "os^DvPX*"
_MOST_BANDS = 3
"""Groups whose intervals can be distinguished."""

_LAMBDA = "<lambda>"


class GroupStyle(NamedTuple):
    """How a group is drawn; prints without color can be read by line and marker."""

    color: Any
    line: Any
    marker: str


class ShownGroups(NamedTuple):
    """The rows of the groups that are shown, the style and label of each group, and how many are not shown."""

    frame: pd.DataFrame
    styles: dict[str, GroupStyle]
    labels: dict[str, str]
    hidden: str

    @property
    def have_bands(self) -> bool:
        """Whether the groups are so few that the bands of their intervals can be distinguished."""
        return len(self.styles) <= _MOST_BANDS


def choose_groups(
    frame: pd.DataFrame, by: Key | None, top: int, cells: tuple[Key | None, ...] = (), width: int = 24,
    others: str | None = None,
) -> ShownGroups:  # fmt: skip
    """Return the `top` groups with the most rows; without `by` one group, whose label is empty.

    The rows of the other groups are left out, or form the group `others`, which has no style. A key that also chooses
    the `cells` of small multiples has one group in each cell, so none is left out.
    """
    theme.check_positive(top=top)
    if by is None:
        style = GroupStyle(theme.BLUE, _LINES[0], _MARKERS[0])
        return ShownGroups(frame.assign(**{GROUP: ""}), {"": style}, {"": ""}, "")
    texts = key_texts(frame, by, "by")
    counts = texts.value_counts()
    ranked = sorted(counts.index, key=lambda name: (-counts[name], name))
    shown = sorted(ranked if by in cells else ranked[:top]) or [""]
    labels = {name: f" {text}" if text.startswith("_") else text for name, text in unique_labels(shown, width).items()}
    hidden = len(ranked) - len(shown)
    note = f"{format_count(hidden, f'{key_name(by)} value')} with fewer rows not shown" if hidden else ""
    is_shown = texts.isin(shown).to_numpy(bool)
    lost = [_count_lost(frame, key, is_shown) for key in cells if key is not None and others is None]
    note += "".join(f", so no {what}" for what in lost if what)
    rows = frame.assign(**{GROUP: texts if others is None else texts.where(is_shown, others)})
    rows = rows[is_shown] if others is None else rows
    return ShownGroups(rows, {name: style_of(k) for k, name in enumerate(shown)}, labels, note)


def _count_lost(frame: pd.DataFrame, key: Key, is_shown: Any) -> str:
    """Return the names of cells that have only rows that are not shown, "queue macos", or their number."""
    texts = key_texts(frame, key, "col")
    lost = sorted(set(texts) - set(texts[is_shown]))
    if len(lost) == 1:
        return f"{key_name(key)} {drawable(lost[0], 24)}"
    return f"cell of {len(lost):,} {key_name(key)} values" if lost else ""


def group_and_cell(groups: ShownGroups, col: Key | None, row: Key | None) -> pd.Series[Any]:
    """Return the group of each row, with the cell of small multiples that shows it."""
    cells = [key_texts(groups.frame, key, name) for name, key in (("col", col), ("row", row)) if key is not None]
    whole = list(zip(groups.frame[GROUP], *cells, strict=True))
    return pd.Series(whole, index=groups.frame.index, dtype="object")


def measured_rows(frame: pd.DataFrame, of: RowMetric | str) -> pd.DataFrame:
    """Return the rows whose duration began and can be measured: others would form groups without values."""
    span = span_of(of)
    if span is None:
        return frame
    rows = frame[is_script(frame)] if span.scripts_only else frame
    return rows[timestamps(rows, span.start).notna()] if span.start in rows else rows


def style_of(number: int) -> GroupStyle:
    """Return the style of a group by its number."""
    colors = theme.group_colors()
    line = _LINES[number // len(colors) % len(_LINES)]
    return GroupStyle(colors[number % len(colors)], line, _MARKERS[number % len(_MARKERS)])


def by_phrase(by: Key | None) -> str:
    """Return " by queue", for a title."""
    return "" if by is None else f" by {key_name(by)}"


def key_name(key: Key | None) -> str:
    """Return the name of a key in words: "queue", or "group" for a lambda."""
    name = key if isinstance(key, str) else getattr(key, "__name__", _LAMBDA)
    return "group" if name == _LAMBDA else name.replace("_", " ")


def check_key(frame: pd.DataFrame, key: Any, argument: str) -> None:
    """Raise BadInput, with the argument, if the key is the name of a column that the frame does not have."""
    try:
        if isinstance(key, str):
            column(frame, key)
    except BadInput as why:
        near = nearest_name(key, [str(name) for name in frame])
        suggestion = f" Did you mean {near!r}?" if near and near != key else ""
        raise BadInput(f"{argument}={show(key)}: {why}{suggestion}") from None


def key_texts(frame: pd.DataFrame, key: Key, argument: str) -> pd.Series[str]:
    """Return the key of each row as text; raise BadInput for a key that the frame does not have."""
    check_key(frame, key, argument)
    values = name_queues(frame) if key == "queue" else compute_key(frame, key)
    values = (label_steps(values) if values.name == "step" else values).astype("object")
    return values.map(lambda value: NO_NAME if pd.isna(value) else str(value)).astype("str")
