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


LARGEST_REPAIRED = 32 * 2**20
"""Bytes of a body that is repaired: 100 builds of 80 jobs each."""

_MOST_REPAIRED = 200_000
"""Values that are repaired in a body. A body of nothing else would take minutes."""


class TooLargeToRepair(msgspec.DecodeError):
    """A body may have values that only msgspec refuses, and is too large or has too many of them."""

    def __init__(self) -> None:
        super().__init__(
            "it is damaged, or has halves of emoji, NaN or numbers that are too large, which are replaced only in "
            f"a body of up to {LARGEST_REPAIRED:,} bytes with up to {_MOST_REPAIRED:,} of them. Request less at once"
        )


def decode_json(body: bytes, decode: Callable[[bytes], T], *, is_text: bool = False) -> T:
    """Decode a body with `decode` and raise its errors.

    A body that only msgspec refuses is repaired; of a text (`is_text`), also one of any size.
    """
    _check_utf8(body)  # msgspec skips unknown keys without decoding, so a damaged key would become a null
    return decode_repaired(body, decode, is_text=is_text)[1]


def decode_repaired(body: bytes, decode: Callable[[bytes], T], *, is_text: bool = False) -> tuple[bytes, T]:
    """Return a body, repaired if only msgspec refuses it, and what `decode` makes of it; raise its errors."""
    try:
        return body, decode(body)
    except msgspec.DecodeError as why:
        if isinstance(why, msgspec.ValidationError) and not str(why).startswith("Number out of range"):
            raise  # it is JSON, but of another type
        repaired = repair_json(body, is_text=is_text)
        if repaired is None:
            raise
    return repaired, decode(repaired)


def _check_utf8(body: bytes) -> None:
    """Raise UnicodeDecodeError if a body is not UTF-8. To decode it takes longer: an emoji makes each byte four."""
    ends = pa.py_buffer(struct.pack("=2q", 0, len(body)))
    try:
        pa.LargeStringArray.from_buffers(1, ends, pa.py_buffer(body)).validate(full=True)
    except pa.ArrowInvalid:
        body.decode()


_SURROGATE = re.compile(
    rb"""
    (\\(?<!\\\\)(?:\\\\)*+)  # an odd number of backslashes: the last one begins an escape
    u[dD](?:[89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]|([89a-fA-F]))[0-9a-fA-F]{2}
    """,
    re.VERBOSE,
)
"""A surrogate pair, or half of one without the other: only then there is a second group."""

_STRING_OR_ODD_NUMBER = re.compile(
    rb"""
    "[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)  # a string, also a cut one, in which nothing is replaced
    # a number, tried once however long it is
    | (-?(?:NaN|Infinity) | (?<![\d.])-?\d++(?:\.\d++)?[eE]\+?\d{3,})
    """,
    re.DOTALL | re.VERBOSE,
)


def repair_json(body: bytes, *, is_text: bool = False) -> bytes | None:
    """Repair values in a body that only msgspec refuses; return None if it has no such value.

    Half of a surrogate pair (a cut emoji) becomes U+FFFD. NaN, Infinity and numbers too large for a
    float, such as 1e999, become text. All other bytes stay. A body that is too large and no text, or
    has too many such values, raises TooLargeToRepair.
    """
    has_surrogate = rb"\ud" in body or rb"\uD" in body
    has_number = b"NaN" in body or b"Infinity" in body or re.search(rb"[eE]\+?\d{3}", body) is not None
    if not has_surrogate and not has_number:
        return None
    if len(body) > LARGEST_REPAIRED and not is_text:
        raise TooLargeToRepair
    repaired = _replace(_SURROGATE, body, _replace_half) if has_surrogate else body
    if has_number:
        repaired = _replace(_STRING_OR_ODD_NUMBER, repaired, _quote_odd_number)
    return repaired if repaired != body else None


def _replace(pattern: re.Pattern[bytes], body: bytes, change: Callable[[re.Match[bytes]], bytes | None]) -> bytes:
    """Return the body with changed matches; None leaves one as it is. Takes no memory for each match, as `sub` does."""
    changed, end, count = bytearray(), 0, 0
    for match in pattern.finditer(body):
        new = change(match)
        if new is not None:
            changed += body[end : match.start()]
            changed += new
            end = match.end()
            count += 1
            if count > _MOST_REPAIRED:
                raise TooLargeToRepair
    changed += body[end:]
    return bytes(changed)


def _replace_half(surrogate: re.Match[bytes]) -> bytes | None:
    """Return U+FFFD after the backslashes for half of a pair."""
    return surrogate[1] + b"ufffd" if surrogate[2] else None


def _quote_odd_number(token: re.Match[bytes]) -> bytes | None:
    """Return NaN, an infinity or a number too large for a float as text."""
    number = token[1]
    return b'"%s"' % number if number and not math.isfinite(float(number)) else None


def is_json(body: bytes) -> bool:
    """Whether a body is complete: a proxy has not cut it, and the next one would be the same."""
    try:
        decode_json(body, msgspec.json.Decoder(msgspec.Raw).decode)
    except TooLargeToRepair:
        return body.rstrip().endswith((b"]", b"}"))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    except RecursionError:
        return True
    return True
