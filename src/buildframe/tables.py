"""Rows of an answer to Arrow tables to DataFrames, with the dtypes that the spec declares."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.errors import Malformed
from buildframe.spec import BESIDE_A_JOB, TABLES, Column, Moment
from buildframe.spec.rows import MORE

ARROW_TYPES: dict[str, pa.DataType] = {
    "text": pa.string(),
    "integer": pa.int64(),
    "flag": pa.bool_(),
    "moment": pa.timestamp("us", tz="UTC"),
    "json": pa.string(),
}
_PANDAS_TYPES: dict[pa.DataType, Any] = {
    pa.string(): pd.StringDtype(na_value=np.nan),
    pa.int64(): pd.Int64Dtype(),
    pa.bool_(): pd.BooleanDtype(),
    ARROW_TYPES["moment"]: pd.DatetimeTZDtype("us", dt.UTC),  # not zoneinfo's UTC, which datetimes fail to compare with
}


def schema(table: str, more: Iterable[str] = ()) -> pa.Schema:
    """The Arrow schema of a table, meanings as field metadata; `more` names text columns asked for by path."""
    declared = [pa.field(c.name, ARROW_TYPES[c.kind], metadata={"doc": c.doc}) for c in TABLES[table]]
    return pa.schema([*declared, *(pa.field(name, pa.string()) for name in more)])


def from_rows(table: str, rows: Sequence[Any], fetched_at: Moment, more: Iterable[str] = ()) -> pa.Table:
    """Rows of one answer as an Arrow table; a value that cannot be of its column's type raises Malformed."""
    columns: dict[str, pa.Array[Any]] = {"fetched_at": _constant(fetched_at, len(rows))}
    for column in TABLES[table]:
        if column.path:
            columns[column.name] = _sent(column, rows)
    return _finish(table, columns, rows, more)


def jobs_of(builds: pa.Table, rows: Sequence[Any], more: Iterable[str] = ()) -> pa.Table:
    """The jobs inside rows of builds, each beside its build's columns; `builds` is the table of those same rows."""
    counts = [len(row.jobs or ()) for row in rows]
    which = np.repeat(np.arange(len(rows)), counts)
    jobs = [job for row in rows for job in row.jobs or ()]
    beside = {name: builds.column(source).take(which).combine_chunks() for name, source in BESIDE_A_JOB.items()}
    columns = beside | {"fetched_at": builds.column("fetched_at").take(which).combine_chunks()}
    columns |= {c.name: _sent(c, jobs) for c in TABLES["jobs"] if c.path}
    return _finish("jobs", columns, jobs, more)


def _finish(table: str, columns: dict[str, pa.Array[Any]], rows: Sequence[Any], more: Iterable[str]) -> pa.Table:
    for column in TABLES[table]:
        if column.derived is not None:
            columns[column.name] = _derive(column, columns)
    for name in more:
        columns[name] = pa.array([(getattr(row, MORE) or {}).get(name) for row in rows], pa.string())
    wanted = schema(table, more)
    return pa.Table.from_arrays([columns[name] for name in wanted.names], schema=wanted)


def _constant(moment: Moment, n: int) -> pa.Array[Any]:
    return pa.repeat(pa.scalar(moment.us, pa.int64()), n).cast(ARROW_TYPES["moment"])


def _sent(column: Column, rows: Sequence[Any]) -> pa.Array[Any]:
    try:
        return _READERS.get(column.kind, _plain)(column, _values(column, rows))
    except (pa.ArrowInvalid, OverflowError) as why:
        raise Malformed(f"The service sent a value for `{'.'.join(column.path)}` that does not fit: {why}") from None


def _values(column: Column, rows: Sequence[Any]) -> list[Any]:
    first, *rest = column.path
    values = [getattr(row, first) for row in rows]
    if not rest:
        return values
    key, named = rest[0], column.name == first  # a bare text in place of an object is its name
    return [
        value if value is None else (value if named else None) if type(value) is str else getattr(value, key)
        for value in values
    ]


def _plain(column: Column, values: list[Any]) -> pa.Array[Any]:
    return pa.array(values, ARROW_TYPES[column.kind])


def _texts(column: Column, values: list[Any]) -> pa.Array[Any]:
    try:
        return _plain(column, values)
    except pa.ArrowTypeError:  # a number or a flag where a text is declared
        return _plain(column, [_as_text(value) for value in values])


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else msgspec.json.encode(value).decode()


def _json(column: Column, values: list[Any]) -> pa.Array[Any]:
    texts = [None if value is None or (text := bytes(value)) == b"null" else text for value in values]
    return pa.array(texts, pa.binary()).cast(pa.string())


def _moments(column: Column, values: list[str | None]) -> pa.Array[Any]:
    texts = pc.replace_substring_regex(pa.array(values, pa.string()), r" UTC$", "Z")
    try:
        return texts.cast(ARROW_TYPES["moment"])
    except pa.ArrowInvalid:  # a rarer form, which the slower reader knows, or no time at all
        read = [None if value is None else Moment.parse(value).us for value in values]
        return pa.array(read, pa.int64()).cast(ARROW_TYPES["moment"])


_READERS: dict[str, Callable[[Column, list[Any]], pa.Array[Any]]] = {"json": _json, "moment": _moments, "text": _texts}


def _derive(column: Column, columns: Mapping[str, pa.Array[Any]]) -> pa.Array[Any]:
    assert column.derived is not None
    needs = [columns[name].to_pylist() for name in column.derived.needs]
    made = pa.array([column.derived.of(*values) for values in zip(*needs, strict=True)], ARROW_TYPES[column.kind])
    return pc.coalesce(columns[column.name], made) if column.name in columns else made


def to_frame(table: str, parts: Sequence[pa.Table], more: Iterable[str] = ()) -> pd.DataFrame:
    """Tables of one kind as one DataFrame with the declared dtypes, also where there are no rows.

    `str`, `Int64`, `boolean` and `datetime64[us, UTC]`; the index counts from 0.
    """
    whole = pa.concat_tables([schema(table, more).empty_table(), *parts])
    return whole.to_pandas(types_mapper=_PANDAS_TYPES.get)


def paths_of(extra: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """The keys to follow for each extra column: "meta_data.team", or a sequence of keys where one holds a dot."""
    return {name: tuple(path.split(".")) if isinstance(path, str) else tuple(path) for name, path in extra.items()}


def at_path(document: Any, path: Sequence[str]) -> str | None:
    """The value at `path` inside a decoded JSON document: text as it is, anything else as JSON text."""
    for key in path:
        if isinstance(document, Mapping):
            document = document.get(key)
        elif isinstance(document, list) and key.isdecimal() and int(key) < len(document):
            document = document[int(key)]
        else:
            return None
    return _as_text(document)
