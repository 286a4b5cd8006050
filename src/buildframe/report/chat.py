"""A report as a message for chat tools: what an incoming webhook of theirs takes."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import pandas as pd

from buildframe.report.content import Report
from buildframe.words import clipped, counted, visible

LONGEST = 3_000
"""Characters of a message; each tool that is named below takes at least so many."""

LONGEST_LINE = 500

_ACTIVE = str.maketrans(
    {"&": "＆", "<": "‹", ">": "›", "*": "∗", "_": "ˍ", "~": "∼", "`": "ˋ", "#": "♯", "|": "¦", "$": "＄"}
    | {"[": "［", "]": "］", "\\": "＼", "@": "(at)"}
)
_DOT = re.compile(r"\.(?=[^\s.])(?!\d+\b)")
"""As in an address; not that of a number, nor the one that ends a sentence."""
_COLON = re.compile(r":(?=\S)(?!(?<=\b\d\d:)\d\d\b)")
"""As in the code of an emoji and before two slashes; not that of a time of day."""
_ROOM = 40
"""For the line that counts what is left out."""


def body(report: Report) -> dict[str, object]:
    """What to post to an incoming webhook of Slack, Mattermost, Rocket.Chat or Google Chat: `{"text": ...}`.

    The text has a line for each limit that is exceeded and each piece of news, 3,000 characters at most; lines that
    are left out are counted. It holds nothing that would notify people, lead somewhere or format: signs that have such
    a meaning are replaced by others that look like them.
    """
    first, *others = [_line(line) for line in _lines(report)]
    return {"text": "\n".join([first, *_that_fit(others, LONGEST - len(first))])}


def _lines(report: Report) -> Iterator[str]:
    judged = {status: [v.text for v in report.verdicts if v.status == status] for status in _TOLD}
    first, last = report.period.start, report.period.end - pd.Timedelta(1, "h")
    over = counted(len(judged["over"]), "limit")
    yield f"CI of {report.name}, {first:%d %b %Y} to {last:%d %b %Y}: {over} exceeded."
    for why in report.why:
        yield f"INCOMPLETE: {why}"
    for text in judged["over"]:
        yield f"• Beyond its limit: {text}"
    for finding in report.findings:
        yield f"• {finding.text}"
    for text in report.broken:
        yield f"• Broken now: {text}"
    others = [f"{len(judged[status])} {told}" for status, told in _TOLD.items() if told and judged[status]]
    if others:
        yield f"Other limits: {', '.join(others)}."


_TOLD = {"over": "", "perhaps": "perhaps exceeded", "unknown": "with too little data", "within": "kept"}


def _line(text: str) -> str:
    """One line of text that means nothing but what it says."""
    usual = unicodedata.normalize("NFKC", visible(text))  # variants of a sign may mean the same to a tool
    inert = " ".join(usual.split()).translate(_ACTIVE)
    return clipped(_DOT.sub("·", _COLON.sub("∶", inert)), LONGEST_LINE)


def _that_fit(lines: Sequence[str], room: int) -> list[str]:
    """The first of the lines, as many as there is room for, and how many more there are."""
    kept: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < _ROOM:
            return [*kept, f"… and {counted(len(lines) - len(kept), 'more line')}; see the report."]
        kept.append(line)
    return kept
