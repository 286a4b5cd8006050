"""Decode JSON that other decoders accept and msgspec refuses.

It may contain half of an emoji, or numbers that are not finite.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable
from typing import TypeVar

import msgspec
import pyarrow as pa

T = TypeVar("T")


def decode_json(body: bytes, decode: Callable[[bytes], T]) -> T:
    """Decode a body with `decode` and raise its errors.

    A body that only msgspec refuses is repaired.
    """
    try:
        _check_utf8(body)  # msgspec skips unknown keys without decoding, so a damaged key would become a null
        return decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        repaired = repair_json(body)
        if repaired is None:
            raise
        return decode_json(repaired, decode)


def _check_utf8(body: bytes) -> None:
    """Raise UnicodeDecodeError if a body is not UTF-8. To decode it takes longer: an emoji makes each byte four."""
    ends = pa.py_buffer(struct.pack("=2q", 0, len(body)))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(body)).validate(full=True)
    except pa.ArrowInvalid:
        body.decode()


_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
"""An escape in a string. The group is one half of a surrogate pair without the other one."""

_STRING_OR_ODD_NUMBER = re.compile(
    rb"""
    "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)  # a string, also a cut one, in which nothing is replaced
    # a number, tried once however long it is
    | (-?(?:NaN|Infinity) | (?<![\d.])-?\d++(?:\.\d++)?[eE]\+?\d{3,})
    """,
    re.DOTALL | re.VERBOSE,
)


def repair_json(body: bytes) -> bytes | None:
    """Repair values in a body that only msgspec refuses; return None if it has no such value.

    Half of a surrogate pair (a cut emoji) becomes U+FFFD. NaN, Infinity and numbers too large for a
    float, such as 1e999, become text. All other bytes stay.
    """
    repaired = _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], body)
    if re.search(rb"NaN|Infinity|[eE]\+?\d{3}", repaired):
        repaired = _STRING_OR_ODD_NUMBER.sub(_quote_odd_number, repaired)
    return repaired if repaired != body else None


def _quote_odd_number(token: re.Match[bytes]) -> bytes:
    """Return NaN, an infinity or a number too large for a float as text, other tokens unchanged."""
    number = token[1]
    return b'"%s"' % number if number and not math.isfinite(float(number)) else token[0]


def is_json(body: bytes) -> bool:
    """Whether a body is complete: a proxy has not cut it, and the next one would be the same."""
    try:
        decode_json(body, msgspec.json.Decoder(msgspec.Raw).decode)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    except RecursionError:
        return True
    return True
