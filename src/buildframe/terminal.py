"""Make text of others harmless for a terminal. Knows nothing of where the text comes from."""

from __future__ import annotations

import unicodedata

_STEERS = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Categories of characters that control a terminal or the characters around them, are invisible, or are half of one."""

_KEPT = {"\u200c", "\u200d", "\u2068", "\u2069"}
"""What joins the characters of scripts and emoji; and what isolates a name, so that it turns no words around it."""


def harmless(text: str, keep: str = "\n\t") -> str:
    """Return the text with a visible character for each that steers: "␛" for ESC, "‹U+202E›"; `keep` stays."""
    if text.isprintable():
        return text
    return text.translate({ord(sign): sign if sign in keep else _shown(sign) for sign in set(text)})


def _shown(sign: str) -> str:
    if sign in _KEPT or unicodedata.category(sign) not in _STEERS:
        return sign
    return chr(0x2400 + ord(sign)) if ord(sign) < 0x20 else code_of(sign)


def code_of(sign: str) -> str:
    """Return the code of a character, as in "‹U+202E›"."""
    return f"‹U+{ord(sign):04X}›"
