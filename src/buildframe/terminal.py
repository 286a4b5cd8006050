"""Replace control characters in untrusted text. Does not know where the text comes from."""

from __future__ import annotations

import unicodedata

_CONTROL = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of control, format and surrogate characters, and of line separators."""

_ALLOWED = {"\u200c", "\u200d", "\u2068", "\u2069"}
"""Joiners of scripts and emoji, and the isolates that keep bidirectional names apart from the text around them."""


def harmless(text: str, keep: str = "\n\t") -> str:
    """Return the text with visible substitutes for control characters, such as "␛" or "‹U+202E›", except for `keep`."""
    if text.isprintable():
        return text
    return text.translate({ord(char): char if char in keep else _substitute(char) for char in set(text)})


def _substitute(char: str) -> str:
    if char in _ALLOWED or unicodedata.category(char) not in _CONTROL:
        return char
    return chr(0x2400 + ord(char)) if ord(char) < 0x20 else code_point(char)


def code_point(char: str) -> str:
    """Return the code of a character, as in "‹U+202E›"."""
    return f"‹U+{ord(char):04X}›"
