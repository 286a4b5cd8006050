"""Show untrusted text and any value in messages without control characters, and suggest names of a similar spelling."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

_CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of control, format and surrogate characters, and of line separators."""

_ALLOWED = {"\u200c", "\u200d", "\u2068", "\u2069"}
"""Joiners of scripts and emoji, and the isolates that keep bidirectional names apart from the text around them."""


_COLOR = r"\x1b\[[0-9;:]{0,64}m"
COLORS = re.compile(_COLOR)
"""Escape sequences that set colors and styles."""

NOT_COLORS = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-ln-~]"  # cursor movements
    r"|\x1b[\]_PX^][^\x07\x1b\n]*(?:\x07|\x1b\\|(?=\n)|$)"  # links, titles, timestamps of agents
    rf"|(?!{_COLOR})\x1b[ -/]*[0-~]?"
)
"""All other escape sequences."""

TERMINAL_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
"""Characters with which a terminal runs escape sequences, and other control characters except tabs and line ends."""

_MAX_LENGTH = 200
"""Characters of a value that are shown in a message."""


def show(value: Any) -> str:
    """Return the value as in code, for a message; if it is long, has several lines or cannot be shown, its type."""
    try:
        if isinstance(value, str) and len(value) > _MAX_LENGTH:
            return f"{value[: _MAX_LENGTH // 2]!r}… ({len(value):,} characters)"
        text = repr(value)
    except ValueError as why:
        if "set_int_max_str_digits" in str(why):  # the checks of arguments explain it
            raise
        text = ""
    except Exception:  # of any kind: RecursionError if it is nested deeply, or what its class raises
        text = ""
    return text if text and text.isprintable() and len(text) <= _MAX_LENGTH else f"<{type(value).__name__}>"


_MAX_QUOTED = 1_000
"""Characters of a server's text that a message quotes."""


def shorten(text: str) -> str:
    """Return the text of a server for a message, without its end if it is long."""
    if len(text) <= _MAX_QUOTED:
        return text
    return f"{text[:_MAX_QUOTED]}… (cut: it has {len(text):,} characters)"


def nearest_name(given: str, known: Sequence[str]) -> str | None:
    """Return the name of the most similar spelling; None if none is similar."""
    return next(iter(difflib.get_close_matches(given.lower(), known, n=1)), None)


def nearest(given: str, known: Sequence[str]) -> str:
    """Return a sentence that suggests the nearest name, or lists all names if none is near."""
    near = nearest_name(given, known)
    return f" Did you mean {near!r}?" if near else f" Valid names: {', '.join(known) or 'none'}."


def escape_control_characters(text: str, keep: str = "\n\t") -> str:
    """Return the text with visible substitutes for control characters, such as "␛" or "‹U+202E›", except for `keep`."""
    if text.isprintable():
        return text
    return text.translate({ord(char): char if char in keep else _substitute(char) for char in set(text)})


def replace_terminal_controls(text: str) -> str:
    """Return the text with visible substitutes for TERMINAL_CONTROLS. Marks of scripts and emoji stay."""
    return TERMINAL_CONTROLS.sub(lambda match: _substitute(match[0]), text)


def remove_escape_sequences(text: str) -> str:
    """Return the text of a terminal without colors, and of lines that were overwritten only what was written last."""
    shown = COLORS.sub("", NOT_COLORS.sub("", text.replace("\r\n", "\n")))
    return escape_control_characters(re.sub(r"(?m)^[^\n]*\r", "", shown))


def _substitute(char: str) -> str:
    if char in _ALLOWED or unicodedata.category(char) not in _CONTROL:
        return char
    return chr(0x2400 + ord(char)) if ord(char) < 0x20 else code_point(char)


def code_point(char: str) -> str:
    """Return the code of a character, as in "‹U+202E›"."""
    return f"‹U+{ord(char):04X}›"
