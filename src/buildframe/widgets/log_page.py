"""Format the log of a job as HTML: in groups that fold, with colors, and with lines that report errors marked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from buildframe.formatting import format_count, truncate_middle, without_emoji
from buildframe.terminal import COLORS, NOT_COLORS
from buildframe.widgets import html
from buildframe.widgets.data_table import Row

if TYPE_CHECKING:
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

_HEADER = re.compile(r"(?:---|\+\+\+|~~~) (.+)")
_EXPAND_PREVIOUS = "^^^ +++"
_ERROR = re.compile(r"(?i)\b(?:error|errors|fatal|failed|failure|failures|exception|traceback|panic)\b")
_NO_ERROR = re.compile(r"(?i)\b(?:0|no|without) (?:errors?|failed|failures?|exceptions?)\b")
_RED = {"bf-fg-1", "bf-fg-9"}
_ATTRIBUTES = ("bold", "dim", "italic", "underline")
_MAX_LENGTH = 60_000
_MAX_LINE = 2000


class StyledText(NamedTuple):
    """Text in one style; `classes` are those of CSS."""

    text: str
    classes: str


class StyledLine(NamedTuple):
    """A line of a log."""

    segments: list[StyledText]
    is_error: bool


@dataclass
class LogGroup:
    """Lines below a header such as "--- Tests"; the lines before the first header have no title."""

    title: str
    is_expanded: bool
    lines: list[StyledLine] = field(default_factory=list)

    @property
    def n_errors(self) -> int:
        """Return the number of lines that report an error."""
        return sum(line.is_error for line in self.lines)


def render_log(job: Row, name: str, log: str) -> str:
    """Return the end of a log as HTML that contains only text."""
    raw = log[-4 * _MAX_LENGTH :]  # much of it may be escape sequences
    end = _cut(NOT_COLORS.sub("", raw.replace("\r\n", "\n")))
    groups = parse_log(end)
    n_errors = sum(group.n_errors for group in groups)
    shown = len(COLORS.sub("", end))
    cut = f" (last {shown:,} of {format_count(len(log), 'character')})" if len(log) > _MAX_LENGTH else ""
    if not any(group.is_expanded for group in groups):
        groups[-1].is_expanded = True
    return html.render("log", name=f"Log of {name}", cut=cut, url=job["web_url"], groups=groups, n_errors=n_errors)


def _cut(text: str) -> str:
    """Return the end of a text: at most so many characters, without those of escape sequences."""
    excess = len(COLORS.sub("", text)) - _MAX_LENGTH
    if excess <= 0:
        return text
    for match in COLORS.finditer(text):
        if match.start() >= excess:
            break
        excess += match.end() - match.start()
    return text[excess:]


def parse_log(text: str) -> list[LogGroup]:
    """Return the groups of a log without escape sequences other than colors."""
    groups = [LogGroup("", is_expanded=True)]
    for line in _parse_lines(text.removesuffix("\n")):
        plain = "".join(segment.text for segment in line.segments)
        if plain.startswith(_EXPAND_PREVIOUS):
            groups[-1].is_expanded = True
        elif header := _HEADER.fullmatch(plain):
            title = without_emoji(header[1]).strip() or header[1]
            groups.append(LogGroup(title, is_expanded=plain.startswith("+")))
        else:
            groups[-1].lines.append(line)
            groups[-1].is_expanded |= line.is_error
    is_empty = not groups[0].lines and len(groups) > 1
    return groups[1:] if is_empty else groups


def _parse_lines(text: str) -> Iterator[StyledLine]:
    from rich.ansi import AnsiDecoder

    decoder = AnsiDecoder()  # remembers the style at the end of a line
    for line in text.split("\n"):
        styled = decoder.decode_line(line.rpartition("\r")[2].expandtabs())
        is_long = len(styled.plain) > _MAX_LINE
        segments = [StyledText(truncate_middle(styled.plain, _MAX_LINE), "")] if is_long else [*_segments(styled)]
        yield StyledLine(segments, _is_error(styled.plain, segments))


def _segments(styled: Text) -> Iterator[StyledText]:
    at = 0
    for span in styled.spans:
        if span.start > at:
            yield StyledText(styled.plain[at : span.start], "")
        yield StyledText(styled.plain[span.start : span.end], _classes_of(span.style))
        at = span.end
    if at < len(styled.plain):
        yield StyledText(styled.plain[at:], "")


def _classes_of(style: Style | str) -> str:
    if isinstance(style, str):
        return ""  # the decoder sets none
    names = [f"bf-ansi-{name}" for name in _ATTRIBUTES if getattr(style, name)]
    colors = (style.color, style.bgcolor)[:: -1 if style.reverse else 1]
    for kind, color in zip(("fg", "bg"), colors, strict=True):
        names += [f"bf-{kind}-{_standard_number(color)}"] if color is not None and not color.is_default else []
    return " ".join(names)


def _standard_number(color: Color) -> int:
    """Return the nearest of the 16 standard colors, which the style sheet defines for light and dark themes."""
    from rich.color import ColorSystem

    return color.downgrade(ColorSystem.STANDARD).number or 0


def _is_error(plain: str, segments: list[StyledText]) -> bool:
    """Return whether a line names an error, or begins in red."""
    if not plain.strip() or _NO_ERROR.search(plain):
        return False
    first = next((segment for segment in segments if segment.text.strip()), None)
    return bool(_ERROR.search(plain)) or (first is not None and not _RED.isdisjoint(first.classes.split()))
