"""Create msgspec's decoders and convert values. No other module may: see decision record 0038."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")

DecHook = Callable[[type, Any], Any]

_BUILDING = threading.Lock()
"""Held while msgspec builds its information on a type.

msgspec keeps it at the class before it is complete. A thread that reads it meanwhile crashes the
process.
"""

if hasattr(os, "register_at_fork"):  # a forked child must not inherit a half-built type
    os.register_at_fork(
        before=_BUILDING.acquire,
        after_in_parent=_BUILDING.release,
        after_in_child=_BUILDING.release,
    )


@overload
def decoder_of(kind: type[T], *, strict: bool = True, dec_hook: DecHook | None = None) -> msgspec.json.Decoder[T]: ...


@overload
def decoder_of(kind: Any, *, strict: bool = True, dec_hook: DecHook | None = None) -> msgspec.json.Decoder[Any]: ...


def decoder_of(kind: Any, *, strict: bool = True, dec_hook: DecHook | None = None) -> msgspec.json.Decoder[Any]:
    """Return the decoder of JSON for a type. Threads may call this at once."""
    with _BUILDING:
        return _build_decoder(kind, strict, dec_hook)


def convert(value: Any, kind: type[T], *, strict: bool = True, dec_hook: DecHook | None = None) -> T:
    """Convert decoded JSON to a type, as `msgspec.convert`. Threads may call this at once."""
    decoder_of(kind, strict=strict, dec_hook=dec_hook)  # builds what msgspec.convert reads
    return msgspec.convert(value, kind, strict=strict, dec_hook=dec_hook)


@functools.lru_cache(maxsize=4096)
def _build_decoder(kind: Any, strict: bool, dec_hook: DecHook | None) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, strict=strict, dec_hook=dec_hook)
