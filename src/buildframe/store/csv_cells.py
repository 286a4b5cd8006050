"""Convert Arrow columns to CSV cells that no spreadsheet program runs as a formula. Does not know files or frames."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_FORMULA_SIGN = r"[=+\-@＝＋－＠]"
_IGNORED = '[" \u00a0\u3000\u200b\ufeff]*'
_CELL_ENDS = r"[;\t\r\n]"
"""Characters that end a cell in a program that does not use the comma as its separator and so ignores our quotes."""

_FORMULA = f"(^|{_CELL_ENDS})'*{_IGNORED}{_FORMULA_SIGN}|^'*[\t\r\n]"
_FORMULA_START = re.compile(f"(?:^|(?<={_CELL_ENDS}))(?='*{_IGNORED}{_FORMULA_SIGN})|^(?='*[\t\r\n])")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def csv_headers(schema: pa.Schema) -> list[str]:
    """Return the column headers; timedelta columns get the suffix `_s`."""
    headers = [f"{field.name}_s" if types.is_duration(field.type) else field.name for field in schema]
    if len(set(headers)) < len(headers):
        raise ValueError(
            "two columns would have the same header, because timedelta columns get the suffix '_s'; rename one of them"
        )
    return [_escape(header) for header in headers]


def csv_cells(column: Any) -> Any:
    """Convert an Arrow array: times in UTC with `Z`, timedeltas in seconds, nested values as JSON, text escaped."""
    kind = column.type
    if types.is_dictionary(kind):
        return csv_cells(column.cast(kind.value_type))
    if types.is_timestamp(kind):
        utc = column if kind.tz is None else column.cast(pa.timestamp(kind.unit, "UTC"))
        return pc.strftime(utc, "%Y-%m-%dT%H:%M:%S" if kind.tz is None else "%Y-%m-%dT%H:%M:%SZ")
    if types.is_duration(kind):
        return pc.divide(column.cast(pa.int64()).cast(pa.float64()), float(_PER_SECOND[kind.unit]))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _escape_texts(column.cast(pa.large_string()))
    if types.is_nested(kind):
        return _escape_texts(_to_json(column))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        raise TypeError("columns of bytes cannot be written as text; decode or drop them")
    return column


def _to_json(column: Any) -> Any:
    write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    texts = [None if value is None else write(value) for value in column.to_pylist()]
    return pa.array(texts, pa.large_string())


def _escape_texts(texts: Any) -> Any:
    whole: Any = pc.replace_substring(texts, "\0", "\ufffd")
    matches: Any = pc.match_substring_regex(whole, _FORMULA)
    dangerous = matches.fill_null(False)
    if not pc.any(dangerous).as_py():
        return whole
    escaped = [_escape(text) for text in whole.filter(dangerous).to_pylist()]
    return pc.replace_with_mask(whole, dangerous, pa.array(escaped, pa.large_string()))


def _escape(text: str) -> str:
    """Put an apostrophe before each character at which a spreadsheet program would start a formula."""
    return _FORMULA_START.sub("'", text)
