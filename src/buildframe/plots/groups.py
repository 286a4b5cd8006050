"""Choose the groups that a plot distinguishes by color, the same in all of its cells."""

from __future__ import annotations

from typing import Any, NamedTuple

import pandas as pd

from buildframe.formatting import format_count
from buildframe.metrics.durations import RowMetric, is_script, span_of
from buildframe.metrics.grouping import Key, compute_key
from buildframe.plots import theme
from buildframe.plots.names import NO_NAME, unique_labels

GROUP = "group of the plot"
"""Column that holds the group of each row."""

_COLORS = (theme.BLUE, theme.ORANGE, theme.GREEN, theme.PURPLE, theme.RED, theme.SKY)
_LINES: tuple[Any, ...] = ("-", "--", ":", "-.")
_MARKERS = "os^DvPX*"


class GroupStyle(NamedTuple):
    """How a group is drawn; prints without color can be read by line and marker."""

    color: str
    line: Any
    marker: str


class ShownGroups(NamedTuple):
    """The rows of the groups that are shown, the style and label of each group, and how many are not shown."""

    frame: pd.DataFrame
    styles: dict[str, GroupStyle]
    labels: dict[str, str]
    hidden: str


def choose_groups(
    frame: pd.DataFrame, by: Key | None, top: int, width: int = 24, others: str | None = None
) -> ShownGroups:
    """Return the `top` groups with the most rows; without `by` one group, whose label is empty.

    The rows of the other groups are left out, or form the group `others`, which has no style.
    """
    theme.check_top(top)
    if by is None:
        return ShownGroups(frame.assign(**{GROUP: ""}), {"": style_of(0)}, {"": ""}, "")
    values = compute_key(frame, by)
    texts = values.astype("object").map(lambda value: NO_NAME if pd.isna(value) else str(value)).astype("str")
    counts = texts.value_counts()
    ranked = sorted(counts.index, key=lambda name: (-counts[name], name))
    shown = sorted(ranked[:top]) or [""]
    labels = {name: f" {text}" if text.startswith("_") else text for name, text in unique_labels(shown, width).items()}
    what = by if isinstance(by, str) else getattr(by, "__name__", "group")
    hidden = len(ranked) - len(shown)
    note = f"{format_count(hidden, f'{what} value')} with fewer rows not shown" if hidden else ""
    is_shown = texts.isin(shown).to_numpy(bool)
    rows = (
        frame.assign(**{GROUP: texts})[is_shown]
        if others is None
        else frame.assign(**{GROUP: texts.where(is_shown, others)})
    )
    return ShownGroups(rows, {name: style_of(k) for k, name in enumerate(shown)}, labels, note)


def measured_rows(frame: pd.DataFrame, of: RowMetric | str) -> pd.DataFrame:
    """Return the rows that a duration can be measured of: those of other types would form a group without values."""
    span = span_of(of)
    return frame[is_script(frame)] if span is not None and span.scripts_only else frame


def style_of(number: int) -> GroupStyle:
    """Return the style of a group by its number."""
    cycle = number // len(_COLORS)
    return GroupStyle(_COLORS[number % len(_COLORS)], _LINES[cycle % len(_LINES)], _MARKERS[number % len(_MARKERS)])


def by_phrase(by: Key | None) -> str:
    """Return " by queue", for a title."""
    name = None if by is None else by if isinstance(by, str) else getattr(by, "__name__", "group")
    return "" if name is None else f" by {name.replace('_', ' ')}"
