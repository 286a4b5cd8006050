"""Limit how many values and rows a response may have, before it is decoded. Does not know lists."""

from __future__ import annotations

import threading
from typing import Any, TypeAlias

import msgspec

from buildframe.http.json_bodies import decode_json
from buildframe.http.response import TooLarge
from buildframe.spec.decoders import decoder_of
from buildframe.spec.odd_values import MAX_ROWS

MAX_VALUES = 10_000_000
"""Values of a response, with its lists and objects. A list takes at least 100 bytes of memory."""


class _Counter(threading.local):
    """The rows that this thread has counted in a response."""

    rows = 0


_COUNTER = _Counter()


class _CountedRow(msgspec.Struct, gc=False):
    """A row without its values. It is counted as soon as it is decoded."""

    def __post_init__(self) -> None:
        _COUNTER.rows += 1
        if _COUNTER.rows > MAX_ROWS:
            raise _too_large(f"{MAX_ROWS:,} rows, counted with jobs of builds,")


_Other: TypeAlias = list[Any] | str | int | float | bool | None
_Items: TypeAlias = list[_CountedRow | _Other] | _CountedRow | str | int | float | bool | None


class _CountedBuild(_CountedRow, gc=False):
    jobs: _Items = None


_Body: TypeAlias = list[_CountedBuild | _Other] | _CountedBuild | str | int | float | bool | None


def check_size(body: bytes) -> None:
    """Raise TooLarge if a body has too many values, rows or jobs of builds.

    40 KB of gzip may be 89 million empty rows, which would take gigabytes. Rows are counted
    one by one only if there may be too many.
    """
    if body.count(b",") + body.count(b"[") + body.count(b"{") >= MAX_VALUES:
        raise _too_large(f"{MAX_VALUES:,} values, lists and objects")
    if body.count(b"{") <= MAX_ROWS:
        return
    _COUNTER.rows = 0
    try:
        decode_json(body, decoder_of(_Body).decode)
    except msgspec.ValidationError as why:
        raise TooLarge(f"The rows of the response cannot be counted: {why}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # the error is raised when the body is decoded


def _too_large(limit: str) -> TooLarge:
    return TooLarge(
        f"The response has more than {limit} and was not decoded. "
        "Request less at once: a shorter time range, fewer builds, or builds without jobs."
    )
