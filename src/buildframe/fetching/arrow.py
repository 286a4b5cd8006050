"""Convert rows to Arrow tables and DataFrames with the dtypes that the spec declares. Does not know responses."""

from __future__ import annotations

import contextlib
import datetime as dt
import functools
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.errors import Malformed
from buildframe.fetching.control_characters import replace_controls
from buildframe.spec import BUILD_COLUMNS_OF_JOBS, TABLES, Column, Moment, job_columns
from buildframe.spec.arrow_types import arrow_types, pandas_types
from buildframe.spec.declare import Kind
from buildframe.spec.odd_values import OddValue, to_json
from buildframe.spec.rows import MORE
from buildframe.spec.times import VALID_YEARS

ARROW_TYPES = arrow_types(large=True)  # pandas holds large strings, so a frame takes them without a copy
_POOL = pa.system_memory_pool()
"""Arrow's own pools take several times as long for the arrays of a page after many pages."""

PANDAS_TYPES = pandas_types()
Names = tuple[str, ...]
Report = Callable[[OddValue], None]


def _ignore(odd: OddValue) -> None:
    """Drop a report."""


def select_columns(table: str, names: Names | None = None) -> list[Column]:
    """Return the columns of a table in the order of `names`, or all in the order of their declaration."""
    declared = {column.name: column for column in TABLES[table]}
    return [declared[name] for name in (declared if names is None else names)]


@functools.lru_cache
def source_columns(table: str, names: Names | None = None) -> list[Column]:
    """Return the selected columns and those that they are derived from."""
    columns = select_columns(table, names)
    sources = [need for column in columns if column.derived for need in column.derived.needs]
    if table == "jobs":
        sources += [need for column in columns for need in job_columns.SOURCES.get(column.name, ())]
    return select_columns(table, tuple(dict.fromkeys([*(column.name for column in columns), *sources])))


@functools.lru_cache
def schema(table: str, names: Names | None = None, additional: Names = ()) -> pa.Schema:
    """Return the Arrow schema of a table, with descriptions as field metadata.

    `names` selects declared columns; `additional` names text columns by path.
    """
    declared = [pa.field(c.name, ARROW_TYPES[c.kind], metadata={"doc": c.doc}) for c in select_columns(table, names)]
    return pa.schema([*declared, *(pa.field(name, ARROW_TYPES["text"]) for name in additional)])


def from_rows(
    table: str,
    rows: Sequence[Any],
    fetched_at: Moment,
    names: Names | None = None,
    additional: Names = (),
    report: Report = _ignore,
) -> pa.Table:
    """Return the rows of one page as an Arrow table.

    Values that do not fit their column are null, and reported.
    """
    repeated = pa.repeat(pa.scalar(fetched_at.us, pa.int64()), len(rows)).cast(ARROW_TYPES["timestamp"])

    def report_of(column: Column, position: int, value: Any) -> None:
        report(OddValue.of(column.path, value, rows[position]))

    return _table(table, {"fetched_at": repeated}, rows, names, additional, report_of)


def build_columns_of(names: Names | None = None) -> dict[str, str]:
    """Return the columns of jobs that come from their build, each with its name in the table of builds."""
    sources = {**BUILD_COLUMNS_OF_JOBS, "fetched_at": "fetched_at"}
    return {column.name: sources[column.name] for column in select_columns("jobs", names) if column.name in sources}


def jobs_of(
    builds: pa.Table,
    rows: Sequence[Any],
    names: Names | None = None,
    additional: Names = (),
    report: Report = _ignore,
) -> pa.Table:
    """Return the jobs in rows of builds, each with the columns of its build.

    `builds` is the table of the same rows, with at least the columns of `build_columns_of`.
    """
    jobs = [job for row in rows for job in row.jobs or ()]
    which = pa.array(np.repeat(np.arange(len(rows)), [len(row.jobs or ()) for row in rows]), pa.int64())
    build_columns = {name: builds.column(source).combine_chunks() for name, source in build_columns_of(names).items()}
    repeated = {name: pc.take(column, which, memory_pool=_POOL) for name, column in build_columns.items()}
    selected = {column.name for column in select_columns("jobs", names)}
    from_build = [name for name in job_columns.SOURCES if name in selected]

    def compute(columns: Mapping[str, pa.Array[Any]]) -> Mapping[str, pa.Array[Any]]:
        return job_columns.compute(columns, which.to_numpy(), from_build)

    def report_of(column: Column, position: int, value: Any) -> None:
        report(OddValue.of(column.path, value, rows[which[position].as_py()], jobs[position]))

    return _table("jobs", repeated, jobs, names, additional, report_of, compute)


def _table(
    table: str,
    computed: Mapping[str, pa.Array[Any]],
    rows: Sequence[Any],
    names: Names | None,
    additional: Names,
    report: Callable[[Column, int, Any], None],
    compute: Callable[[Mapping[str, pa.Array[Any]]], Mapping[str, pa.Array[Any]]] | None = None,
) -> pa.Table:
    """Return a table of `computed` columns, values in the rows, and what `compute` returns."""
    columns, needed = dict(computed), source_columns(table, names)
    fields = _FieldValues(type(rows[0]) if rows else None, map(msgspec.structs.astuple, rows), len(rows))
    columns |= {column.name: _received(column, fields, report) for column in needed if column.path}
    columns |= {column.name: derive(column, columns) for column in needed if column.derived}
    columns |= compute(columns) if compute else {}
    columns |= {name: _texts([(more or {}).get(name) for more in fields.of(MORE)]) for name in additional}
    selected = schema(table, names, additional)
    return pa.Table.from_arrays([columns[name] for name in selected.names], schema=selected)


class _FieldValues:
    """The values of structs of one type by field: slices of one long list, much faster than attributes."""

    def __init__(self, kind: type[msgspec.Struct] | None, rows: Iterable[tuple[Any, ...]], n: int) -> None:
        self._names: Names = kind.__struct_fields__ if kind else ()
        self._values = list(itertools.chain.from_iterable(rows))
        self._nested: dict[str, tuple[_FieldValues, list[str | None] | None]] = {}
        self.nulls = [None] * n

    def of(self, name: str) -> list[Any]:
        """Return the values of a field."""
        return self._values[self._names.index(name) :: len(self._names)] if self._names else self.nulls

    def nested(self, name: str) -> tuple[_FieldValues, list[str | None] | None]:
        """Return the fields of a field's objects, null if there is none, and those values that are text, if any."""
        if name not in self._nested:
            values, as_tuple = self.of(name), msgspec.structs.astuple
            kinds: set[Any] = set(map(type, values)) - {type(None)}
            texts = [value if type(value) is str else None for value in values] if str in kinds else None
            kind = next(iter(kinds - {str}), None)
            nothing = as_tuple(kind()) if kind else ()
            rows = (as_tuple(value) if type(value) is kind else nothing for value in values)
            self._nested[name] = _FieldValues(kind, rows, len(values)), texts
        return self._nested[name]


@functools.lru_cache(maxsize=16)  # empty columns share their memory
def _nulls(kind: Kind, n: int) -> pa.Array[Any]:
    nulls: pa.Array[Any] = pa.nulls(n).cast(ARROW_TYPES[kind])
    return nulls


def _received(column: Column, fields: _FieldValues, report: Callable[[Column, int, Any], None]) -> pa.Array[Any]:
    """Return the values of a column. Those that do not fit become null and are reported."""
    values = _values(column, fields)
    if values == fields.nulls:  # true for a third of the columns; otherwise the first value shows that it is false
        return _nulls(column.kind, len(values))
    read = _READERS[column.kind]
    try:
        return read(values)
    except _UNFIT:
        unfit = {value for value in set(values) if not _is_fit(column.kind, value)}
    for position, value in enumerate(values):
        if value in unfit:
            report(column, position, value)
    return read([None if value in unfit else value for value in values])


_UNFIT = (pa.ArrowInvalid, OverflowError, Malformed)


def _is_fit(kind: Kind, value: Any) -> bool:
    """Whether a value can be read. To refuse a text takes Arrow fifteen times as long as Python."""
    try:
        if kind == "timestamp" and value is not None:
            return Moment.parse(value).year in VALID_YEARS
        _READERS[kind]([value])
    except _UNFIT:
        return False
    return True


def _values(column: Column, fields: _FieldValues) -> list[Any]:
    first, *rest = column.path
    if not rest:
        return fields.of(first)
    inside, texts = fields.nested(first)
    values = inside.of(rest[0])
    if texts is None or column.name != first:
        return values
    return [value if text is None else text for value, text in zip(values, texts, strict=True)]


def _array(values: Iterable[Any], kind: pa.DataType) -> pa.Array[Any]:
    return pa.array(values, kind, memory_pool=_POOL)


def _texts(values: list[Any]) -> pa.Array[Any]:
    try:
        return _array(values, ARROW_TYPES["text"])
    except pa.ArrowTypeError:  # a number or bool in a column of text
        return _array([as_text(value) for value in values], ARROW_TYPES["text"])


def as_text(value: Any) -> str | None:
    """Return text as it is, anything else but None as JSON."""
    return value if value is None or isinstance(value, str) else to_json(value)


def _json(values: list[msgspec.Raw]) -> pa.Array[Any]:
    joined = b"".join(values)  # without an object for each value, which would take twice as long
    if joined == b"null" * len(values):
        return _nulls("json", len(values))
    ends = np.zeros(len(values) + 1, np.int64)
    np.fromiter(map(len, values), np.int64, len(values)).cumsum(out=ends[1:])
    is_there = np.frombuffer(joined, np.uint8)[ends[:-1]] != ord("n")  # only null begins with it
    valid = np.packbits(is_there, bitorder="little")
    buffers = [pa.py_buffer(valid.data), pa.py_buffer(ends.data), pa.py_buffer(joined)]
    texts = pa.Array.from_buffers(pa.large_binary(), len(values), [*buffers])
    return texts.cast(ARROW_TYPES["json"], memory_pool=_POOL)


def timestamps(values: list[str | None]) -> pa.Array[Any]:
    """Return texts as timestamps; raise Malformed if one is none."""
    texts, kind = _array(values, pa.string()), ARROW_TYPES["timestamp"]
    with contextlib.suppress(pa.ArrowInvalid):
        return texts.cast(kind, memory_pool=_POOL)
    with contextlib.suppress(pa.ArrowInvalid):  # records of old pipelines
        return pc.replace_substring(texts, " UTC", "Z").cast(kind, memory_pool=_POOL)
    # A rarer format, which the slower parser knows, or not a time
    read = [None if value is None else Moment.parse(value).us for value in values]
    return pa.array(read, pa.int64()).cast(kind)


_FIRST_US = Moment(VALID_YEARS.start, 1, 1, tzinfo=dt.UTC).us
_END_US = Moment(VALID_YEARS.stop, 1, 1, tzinfo=dt.UTC).us


def _valid_timestamps(values: list[str | None]) -> pa.Array[Any]:
    """Return texts as timestamps.

    Raise Malformed if one is not a timestamp, or of a year that no service has seen.
    """
    read = timestamps(values)
    limits = pc.min_max(read.cast(pa.int64()))
    first = limits["min"].as_py()
    last = limits["max"].as_py()
    if first is not None and not _FIRST_US <= first <= last < _END_US:
        raise Malformed(f"The service sent a timestamp of a year outside of {VALID_YEARS}.")
    return read


_READERS: dict[Kind, Callable[[list[Any]], pa.Array[Any]]] = {
    "text": _texts,
    "integer": functools.partial(_array, kind=ARROW_TYPES["integer"]),
    "number": functools.partial(_array, kind=ARROW_TYPES["number"]),
    "flag": functools.partial(_array, kind=ARROW_TYPES["flag"]),
    "timestamp": _valid_timestamps,
    "json": _json,
}


def derive(column: Column, columns: Mapping[str, pa.Array[Any]]) -> pa.Array[Any]:
    """Derive a column once for each combination of the values that it is derived from, since they repeat."""
    assert column.derived is not None
    received = columns.get(column.name)
    if received is not None and not received.null_count:
        return received
    needs = [columns[name].dictionary_encode(null_encoding="encode") for name in column.derived.needs]
    sizes = [max(1, len(need.dictionary)) for need in needs]
    combined = pa.array(np.ravel_multi_index([need.indices.to_numpy() for need in needs], sizes)).dictionary_encode()
    distinct = zip(needs, np.unravel_index(combined.dictionary.to_numpy(), sizes), strict=True)
    values = (need.dictionary.take(which).to_pylist() for need, which in distinct)
    of_distinct = _array(map(column.derived.of, *values), ARROW_TYPES[column.kind])
    computed = pc.take(of_distinct, combined.indices, memory_pool=_POOL)
    return computed if received is None else pc.coalesce(received, computed)


def to_frame(
    table: str, tables: Sequence[pa.Table], names: Names | None = None, additional: Names = ()
) -> pd.DataFrame:
    """Return the tables as one DataFrame with the declared dtypes, also if there are no rows.

    The dtypes are `str`, `Int64`, `float64`, `boolean` and `datetime64[us, UTC]`; the index counts
    from 0.
    """
    sizes = [part.num_rows for part in tables if part.num_rows]
    if not sizes:  # most listings of a sync
        return _empty_frame(table, names, additional).copy()
    frame = _to_pandas(pa.concat_tables([schema(table, names, additional).empty_table(), *tables]))
    return frame.copy() if len(sizes) == 1 else frame  # timestamps of a single table are read-only


@functools.lru_cache
def _empty_frame(table: str, names: Names | None, additional: Names) -> pd.DataFrame:
    return _to_pandas(schema(table, names, additional).empty_table())


def _to_pandas(table: pa.Table) -> pd.DataFrame:
    printable = replace_controls(table)
    return printable.to_pandas(types_mapper=PANDAS_TYPES.get, use_threads=False)  # with threads it takes twice as long


def split_paths(extra: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the keys of each path: of "meta_data.team", or of a sequence of keys, one of which may contain a dot."""
    return {name: tuple(path.split(".")) if isinstance(path, str) else tuple(path) for name, path in extra.items()}


def value_at(document: Any, path: Sequence[str]) -> str | None:
    """Return the value at a path in a decoded JSON document: text as it is, anything else as JSON text."""
    for key in path:
        if isinstance(document, Mapping):
            document = document.get(key)
        elif isinstance(document, list) and key.isdecimal() and int(key) < len(document):
            document = document[int(key)]
        else:
            return None
    return as_text(document)
