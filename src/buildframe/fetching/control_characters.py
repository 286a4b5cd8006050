"""Replace control characters in the texts of Arrow tables, so that a printed frame cannot control a terminal."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.terminal import replace_terminal_controls

# Those of `terminal.TERMINAL_CONTROLS`, for RE2. pandas prints tabs, newlines and carriage returns as "\t", "\n", "\r".
_CONTROLS = r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x{80}-\x{9f}]"
_OFFSETS: dict[pa.DataType, Any] = {pa.string(): np.int32, pa.large_string(): np.int64}
_FIRST_PRINTABLE = 0x20
_DELETE = 0x7F


def replace_controls(table: pa.Table) -> pa.Table:
    """Return the table with visible substitutes for control characters in its text columns, such as "␛"."""
    for position, field in enumerate(table.schema):
        chunks = table.column(position).chunks
        if field.type in _OFFSETS and not all(map(_is_printable_ascii, chunks)):
            texts = pa.chunked_array(list(map(_replaced, chunks)), field.type)
            table = table.set_column(position, field, texts)
    return table


def _is_printable_ascii(texts: pa.Array[Any]) -> bool:
    """Whether no character needs a closer look. The bytes are scanned at once, 30 times as fast as by an expression."""
    ends: Any
    characters: Any
    _, ends, characters = texts.buffers()
    if ends is None or characters is None or not len(texts):
        return True
    offsets = np.frombuffer(ends, _OFFSETS[texts.type])[texts.offset : texts.offset + len(texts) + 1]
    used = np.frombuffer(characters, np.uint8)[offsets[0] : offsets[-1]]
    return not used.size or bool(used.min() >= _FIRST_PRINTABLE and used.max() < _DELETE)


def _replaced(texts: pa.Array[Any]) -> pa.Array[Any]:
    matches: Any = pc.match_substring_regex(texts, _CONTROLS)
    dangerous = matches.fill_null(False)
    if not pc.any(dangerous).as_py():
        return texts
    found: Any = texts.filter(dangerous)
    safe = [replace_terminal_controls(text) for text in found.to_pylist()]
    replaced: pa.Array[Any] = pc.replace_with_mask(texts, dangerous, pa.array(safe, texts.type))
    return replaced
