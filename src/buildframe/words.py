"""Numbers and names as words."""

from __future__ import annotations

import math
import unicodedata

import pandas as pd

from buildframe.terminal import code_of, harmless

_MOST = 300
"""Signs of a name that are shown; no name that a person chose is longer."""

_ISOLATE, _END = "\u2068", "\u2069"
_TURNS = {"R", "AL", "AN"}


def span(seconds: float) -> str:
    """A length of time with two units at most: "45 s", "4 min 10 s", "2 h 5 min", "3 d 2 h"; "unknown" for NaN."""
    if math.isnan(seconds):
        return "unknown"
    sign, whole = ("−" if seconds <= -0.05 else ""), abs(seconds)
    if whole < 9.95:
        return f"{sign}{whole:.1f} s"
    left = round(whole)
    parts: list[str] = []
    for name, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        many, left = divmod(left, size)
        if many or parts:
            parts.append(f"{many} {name}" if many else "")
        if len(parts) == 2:
            break
    return sign + " ".join(filter(None, parts))


def minutes(seconds: float) -> str:
    """A length of time in minutes, without the unit: "21.4"; "unknown" for NaN."""
    return "unknown" if math.isnan(seconds) else _plain(seconds / 60)


def percent(share: float) -> str:
    """A share: "81.3 %"; "unknown" for NaN."""
    return "unknown" if math.isnan(share) else f"{100 * share:.1f} %"


def points(share: float) -> str:
    """A difference of shares in percent points, without the unit: "−2.4"; "unknown" for NaN."""
    return "unknown" if math.isnan(share) else _plain(100 * share)


def _plain(number: float) -> str:
    text = f"{number:,.1f}".replace("-", "−")
    return "0.0" if text == "−0.0" else text


def day(time: pd.Timestamp) -> str:
    """A time, by the minute: "Mon 19 Oct 2026, 08:15 UTC"; "unknown" where there is none."""
    return "unknown" if pd.isna(time) else f"{date(time.tz_convert('UTC'))}, {time.tz_convert('UTC'):%H:%M} UTC"


def date(midnight: pd.Timestamp) -> str:
    """A day, as it is in its zone: "Mon 19 Oct 2026"; "unknown" where there is none."""
    return "unknown" if pd.isna(midnight) else f"{midnight:%a} {midnight.day} {midnight:%b %Y}"


def counted(n: int, one: str, many: str | None = None) -> str:
    """ "1 build", "2,510 builds"."""
    return f"{n:,} {one if n == 1 else many or one + 's'}"


def visible(text: str) -> str:
    """The text in one line, with a sign in place of each that steers others or is not to be seen: "␊", "‹U+202E›"."""
    return harmless(text, keep="")


def clipped(text: str, most: int = _MOST) -> str:
    """The text, without its middle where it is longer than `most` signs."""
    tail = (most - 1) // 2
    return text if len(text) <= most else f"{text[: most - 1 - tail]}…{text[-tail:]}"


def named(name: object) -> str:
    """A name for a sentence: `visible`, `clipped`, and isolated (U+2068, U+2069) where it is written from the right.

    "(no name)" where there is none.
    """
    if not isinstance(name, str) or not name.strip():
        return "(no name)"
    told = visible(clipped(name)).replace(_ISOLATE, code_of(_ISOLATE)).replace(_END, code_of(_END))
    turns = _TURNS.intersection(map(unicodedata.bidirectional, told))
    return f"{_ISOLATE}{told}{_END}" if turns else told
