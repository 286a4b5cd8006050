"""Values as the cells of a CSV file, none of which a spreadsheet program runs as a formula."""

from __future__ import annotations

import json
import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import types

_RUN = r"[=+\-@＝＋－＠]"
_SKIPPED = '[" \u00a0\u3000\u200b\ufeff]*'
_ENDS = r"[;\t\r\n]"
"""What ends a cell for a program that takes another sign for the comma, and therefore sees no quotes either."""

_DANGER = f"(^|{_ENDS})'*{_SKIPPED}{_RUN}|^'*[\t\r\n]"
_BEFORE = re.compile(f"(?:^|(?<={_ENDS}))(?='*{_SKIPPED}{_RUN})|^(?='*[\t\r\n])")
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def named(schema: pa.Schema) -> list[str]:
    """The headers of columns: seconds say that they are."""
    headers = [f"{field.name}_s" if types.is_duration(field.type) else field.name for field in schema]
    if len(set(headers)) < len(headers):
        raise ValueError("two columns would have one header, as that of a timedelta gets '_s'")
    return [_harmless(header) for header in headers]


def as_written(column: Any) -> Any:
    """An Arrow array as cells: times in UTC with `Z`, timedeltas as seconds, nested values as JSON, texts harmless."""
    kind = column.type
    if types.is_dictionary(kind):
        return as_written(column.cast(kind.value_type))
    if types.is_timestamp(kind):
        utc = column if kind.tz is None else column.cast(pa.timestamp(kind.unit, "UTC"))
        return pc.strftime(utc, "%Y-%m-%dT%H:%M:%S" if kind.tz is None else "%Y-%m-%dT%H:%M:%SZ")
    if types.is_duration(kind):
        return pc.divide(column.cast(pa.int64()).cast(pa.float64()), float(_PER_SECOND[kind.unit]))
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return _harmless_texts(column.cast(pa.large_string()))
    if types.is_nested(kind):
        return _harmless_texts(_as_json(column))
    if types.is_binary(kind) or types.is_large_binary(kind) or types.is_fixed_size_binary(kind):
        raise TypeError("bytes are no text")
    return column


def _as_json(column: Any) -> Any:
    write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
    texts = [None if value is None else write(value) for value in column.to_pylist()]
    return pa.array(texts, pa.large_string())


def _harmless_texts(texts: Any) -> Any:
    whole: Any = pc.replace_substring(texts, "\0", "\ufffd")
    found: Any = pc.match_substring_regex(whole, _DANGER)
    dangerous = found.fill_null(False)
    if not pc.any(dangerous).as_py():
        return whole
    harmless = [_harmless(text) for text in whole.filter(dangerous).to_pylist()]
    return pc.replace_with_mask(whole, dangerous, pa.array(harmless, pa.large_string()))


def _harmless(text: str) -> str:
    """With an apostrophe before what a spreadsheet program would run, or would skip to run what follows."""
    return _BEFORE.sub("'", text)
