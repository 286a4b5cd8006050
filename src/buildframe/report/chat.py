"""Format a report as a message for the incoming webhooks of chat tools. Sends nothing."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import pandas as pd

from buildframe.formatting import escape_invisible, format_count, truncate_middle
from buildframe.report.content import Report

MAX_MESSAGE = 3_000
"""Characters of a message. All supported tools accept at least this many."""

MAX_LINE = 500

_LOOKALIKES = str.maketrans(
    {"&": "＆", "<": "‹", ">": "›", "*": "∗", "_": "ˍ", "~": "∼", "`": "ˋ", "#": "♯", "|": "¦", "$": "＄"}
    | {"[": "［", "]": "］", "\\": "＼", "@": "(at)"}
)
_DOT = re.compile(r"\.(?=[^\s.])(?!\d+\b)")
"""Dots that could be part of a URL: not those of numbers, and not at the end of a sentence."""
_COLON = re.compile(r":(?=\S)(?!(?<=\b\d\d:)\d\d\b)")
"""Colons that could be part of an emoji or a URL: not those of a time of day."""
_RESERVED = 40
"""Characters for the line that counts the omitted lines."""


def body(report: Report) -> dict[str, object]:
    """
    Return the JSON body for an incoming webhook of Slack, Mattermost, Rocket.Chat or Google Chat.

    The text has at most 3,000 characters: a line for each exceeded limit and each finding, and a count of the lines
    that are omitted. Characters that could mention people, link or format are replaced by similar ones.

    Parameters
    ----------
    report : Report
        Content, as returned by `read`.

    Returns
    -------
    dict
        `{"text": ...}`.
    """
    first, *others = [_line(line) for line in _lines(report)]
    return {"text": "\n".join([first, *_fitting(others, MAX_MESSAGE - len(first))])}


def _lines(report: Report) -> Iterator[str]:
    texts = {status: [v.text for v in report.verdicts if v.status == status] for status in _LABELS}
    first, last = report.period.start, report.period.end - pd.Timedelta(1, "h")
    over = format_count(len(texts["over"]), "limit")
    yield f"CI of {report.name}, {first:%d %b %Y} to {last:%d %b %Y}: {over} exceeded."
    for why in report.why:
        yield f"INCOMPLETE: {why}"
    for text in texts["over"]:
        yield f"• Limit exceeded: {text}"
    for finding in report.findings:
        yield f"• {finding.text}"
    for text in report.broken:
        yield f"• Broken now: {text}"
    others = [f"{len(texts[status])} {label}" for status, label in _LABELS.items() if label and texts[status]]
    if others:
        yield f"Other limits: {', '.join(others)}."


_LABELS = {"over": "", "perhaps": "perhaps exceeded", "unknown": "with too little data", "within": "met"}


def _line(text: str) -> str:
    """Return the text on one line without active characters."""
    normalized = unicodedata.normalize("NFKC", escape_invisible(text))  # tools may treat variants of a character alike
    inert = " ".join(normalized.split()).translate(_LOOKALIKES)
    return truncate_middle(_DOT.sub("·", _COLON.sub("∶", inert)), MAX_LINE)


def _fitting(lines: Sequence[str], space: int) -> list[str]:
    """Return the first lines that fit, and a line that counts the others."""
    shown: list[str] = []
    for line in lines:
        space -= len(line) + 1
        if space < _RESERVED:
            return [*shown, f"… and {format_count(len(lines) - len(shown), 'more line')}; see the report."]
        shown.append(line)
    return shown
