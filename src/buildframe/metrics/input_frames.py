"""Read frames of any library as pandas frames with the dtypes of fetched frames.

Takes pandas, Polars, Arrow, DuckDB and PySpark. Knows columns and their dtypes; does not know
metrics.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.guards.arrow_frames import arrow_to_pandas
from buildframe.metrics import spark_frames
from buildframe.metrics.columns import (
    TEXT,
    Flags,
    Integers,
    first_and_last,
    kind_of,
    require_columns,
    timestamp_micros,
    typed_column,
)
from buildframe.metrics.grouping import By, Key, as_key_list, compute_keys, key_name, number_groups
from buildframe.metrics.steps import step
from buildframe.spec.arrow_types import arrow_types

Frame = Any
"""A frame of pandas, Polars (eager or lazy), Arrow, DuckDB (a relation) or PySpark."""

_BATCH_ROWS = 500_000
"""Rows of a DuckDB relation in memory at once, besides what is kept of the rows before."""


_RECORDED: ContextVar[set[str] | None] = ContextVar("columns that are read", default=None)


class RowGroups(NamedTuple):
    """Columns that a summary needs of each row, the number of its group, and `keys` of the groups.

    Groups are in the order of their keys, null keys last. Texts in `columns` may be categories, in
    the order of the texts.
    """

    columns: pd.DataFrame
    codes: Integers
    keys: pd.DataFrame

    def filter(self, chosen: Flags) -> RowGroups:
        """Return the chosen rows, and only the groups that have some of them."""
        codes, keys = _drop_groups(self.codes[chosen], self.keys)
        return RowGroups(self.columns[chosen].reset_index(drop=True), codes, keys)


def is_spark(frame: Frame) -> bool:
    """Return whether the frame is one of PySpark, whose rows stay in the cluster."""
    return _library_of(frame) == "pyspark"


def is_relation(frame: Frame) -> bool:
    """Return whether the frame is a relation of DuckDB, which is read in batches."""
    return _library_of(frame) in ("duckdb", "_duckdb")  # the second is that of DuckDB 1


def _library_of(frame: Frame) -> str:
    return type(frame).__module__.partition(".")[0]


def column_names(frame: Frame) -> list[str]:
    """Return the names of the columns; raise BadInput if it is not a frame."""
    if isinstance(frame, pa.Table):
        return list(frame.column_names)
    if hasattr(frame, "collect_schema"):  # Polars
        return list(frame.collect_schema().names())
    if is_spark(frame):
        return spark_frames.check_frame(frame)
    if isinstance(frame, pd.DataFrame) or is_relation(frame):
        return list(frame.columns)
    known = "pandas, Polars, DuckDB or PySpark, or one with the Arrow interface `__arrow_c_stream__`"
    raise BadInput(f"A {type(frame).__name__} is not a frame. Pass one of {known}.")


def read_columns(frame: Frame, needs: Iterable[str], wants: Iterable[str] = ()) -> pd.DataFrame:
    """Return columns with their dtypes when fetched: all of `needs`, and those of `wants` that exist.

    Raise BadInput if a column is missing or holds other values.
    """
    names = _existing_names(frame, needs, wants)
    if isinstance(frame, pd.DataFrame):
        columns = {name: typed_column(frame, name).array for name in names}
        return pd.DataFrame(columns, index=pd.RangeIndex(len(frame)), copy=False)
    return to_typed_pandas(_to_arrow(frame, names))


def _existing_names(frame: Frame, needs: Iterable[str], wants: Iterable[str]) -> list[str]:
    available = column_names(frame)
    needed = list(dict.fromkeys(needs))
    require_columns(available, needed)
    optional = [name for name in dict.fromkeys(wants) if name in available and name not in needed]
    if (recorded := _RECORDED.get()) is not None:
        recorded.update(needed, optional)
    return [*needed, *optional]


@contextmanager
def recorded_columns() -> Iterator[set[str]]:
    """Collect the names of the columns that are read within this context."""
    names: set[str] = set()
    token = _RECORDED.set(names)
    try:
        yield names
    finally:
        _RECORDED.reset(token)


def read_rows(
    frame: Frame,
    of_rows: Callable[[pd.DataFrame], pd.DataFrame],
    needs: Iterable[str],
    wants: Iterable[str] = (),
    by: By = None,
) -> RowGroups:
    """Apply a function of single rows, and find their groups.

    `of_rows` receives the columns `needs`, and those of `wants` that exist. It returns numbers,
    flags and texts on the index of its argument, or on a part of it. Of a relation of DuckDB it
    receives a batch at a time, and only its results are kept, with codes in place of texts.
    """
    keys = as_key_list(by)
    frame = for_functions(frame, keys)
    names = _existing_names(frame, needs, wants)
    key_names = [key_name(key) for key in keys]
    if is_relation(frame):
        return _read_batches(frame, of_rows, names, keys)
    source = frame if isinstance(frame, pd.DataFrame) else read_columns(frame, [*names, *key_names])
    columns = of_rows(read_columns(source, names))
    codes, distinct = number_groups(compute_keys(source, keys))
    if len(columns) == len(codes):
        return RowGroups(columns, codes, distinct)
    codes, distinct = _drop_groups(codes[columns.index.to_numpy()], distinct)
    return RowGroups(columns.reset_index(drop=True), codes, distinct)


def _drop_groups(codes: Integers, keys: pd.DataFrame) -> tuple[Integers, pd.DataFrame]:
    """Return the codes and keys without groups that have no rows."""
    is_present = np.bincount(codes, minlength=len(keys)) > 0
    if is_present.all():
        return codes, keys
    return (np.cumsum(is_present) - 1)[codes], keys[is_present].reset_index(drop=True)


def _read_batches(
    relation: Any, of_rows: Callable[[pd.DataFrame], pd.DataFrame], names: list[str], keys: list[Key]
) -> RowGroups:
    key_names = [key_name(key) for key in keys]
    require_columns(relation.columns, key_names)
    tables = []
    with closing(_batches(relation, [*dict.fromkeys([*names, *key_names])])) as batches:
        for batch in batches:
            columns = of_rows(batch[names])
            key_columns = compute_keys(batch, keys)
            if len(columns) < len(batch):
                key_columns = key_columns.take(columns.index.to_numpy())
            numbered = {f"key {i}": key_columns[name].array for i, name in enumerate(key_columns)}
            tables.append(_encode_texts(columns.assign(**numbered)))
    rows = _to_categories(tables)
    key_columns = pd.DataFrame(index=rows.index)
    for i, name in enumerate(key_names):
        key_columns[name] = rows.pop(f"key {i}")
    codes, distinct = number_groups(key_columns)
    return RowGroups(rows, codes, distinct)


def for_functions(frame: Frame, functions: Iterable[Any]) -> Frame:
    """Return a pandas frame with all columns if one of these is a function that has to receive it.

    Only `metrics.step` reads one column, if the frame has it.
    """
    custom = [of for of in functions if callable(of) and not (of is step and "step" in column_names(frame))]
    if not custom or isinstance(frame, pd.DataFrame):
        return frame
    return read_columns(frame, column_names(frame))


def read_whole_groups(
    frame: Frame,
    keys: Sequence[str],
    needs: Iterable[str],
    wants: Iterable[str] = (),
    *,
    is_ordered: bool = False,
) -> Iterator[pd.DataFrame]:
    """Yield rows in which those of one group are together: all, or whole groups of a relation.

    If the relation `is_ordered`, rows with equal keys have to follow each other in it already.
    """
    names = _existing_names(frame, [*keys, *needs], wants)
    if not is_relation(frame):
        yield read_columns(frame, names)
        return
    ordered = frame if is_ordered else frame.order(", ".join(_order_of(frame, name) for name in keys))
    yield from join_groups(_batches(ordered, names), keys)


def _order_of(relation: Any, name: str) -> str:
    """Return the term of SQL that orders rows by a column; an ENUM by its texts."""
    quoted = '"' + name.replace('"', '""') + '"'
    is_enum = str(relation.types[relation.columns.index(name)]).startswith("ENUM")
    return f"{quoted}::VARCHAR" if is_enum else quoted


def join_groups(batches: Iterable[pd.DataFrame], keys: Sequence[str]) -> Iterator[pd.DataFrame]:
    """Yield the rows of batches again, many at a time, and whole groups of rows with equal keys.

    Rows with equal keys have to follow each other.
    """
    held: list[pd.DataFrame] = []
    n_complete = 0
    for batch in batches:
        start = _start_of_last_group(batch, keys)
        n_complete = sum(map(len, held)) + start if start else n_complete
        held.append(batch)
        if n_complete >= _BATCH_ROWS:
            rows = pd.concat(held, ignore_index=True)
            yield rows.iloc[:n_complete]
            held, n_complete = [rows.iloc[n_complete:].reset_index(drop=True)], 0
    if held:
        yield pd.concat(held, ignore_index=True)


def _start_of_last_group(batch: pd.DataFrame, keys: Sequence[str]) -> int:
    """Return the first row of the last run of rows with equal keys."""
    is_other = np.zeros(len(batch), bool)
    for name in keys if len(batch) else ():
        values = batch[name]
        is_equal = values.isna() if pd.isna(values.iloc[-1:]).all() else values.eq(values.iloc[-1])
        is_other |= ~is_equal.to_numpy(bool, na_value=False)
    others = np.flatnonzero(is_other)
    return int(others[-1]) + 1 if len(others) else 0


def time_limits(frame: Frame, names: Sequence[str]) -> list[tuple[int, int]]:
    """Return the first and the last timestamp of each column in microseconds; `NAT` if there is none."""
    if is_spark(frame):
        columns = to_typed_pandas(spark_frames.read_limits(frame, names))
    elif is_relation(frame):
        columns = _read_limits(frame, names)
    else:
        columns = read_columns(frame, names)
    return [first_and_last(timestamp_micros(columns, name)) for name in names]


def _read_limits(relation: Any, names: Sequence[str]) -> pd.DataFrame:
    """Return two rows with the least and the greatest value of each column."""
    from duckdb import ColumnExpression, FunctionExpression

    require_columns(relation.columns, names)
    ends = []
    for function in ("min", "max"):
        limits = [FunctionExpression(function, ColumnExpression(name)).alias(name) for name in names]
        ends.append(_to_arrow(relation.aggregate(limits), names))
    return to_typed_pandas(pa.concat_tables(ends))


def distinct_values(frame: Frame, name: str) -> list[Any]:
    """Return each value of a column once, and null if it occurs, in no order."""
    return list(distinct_rows(frame, [name])[name].unique())


def distinct_rows(frame: Frame, names: Sequence[str]) -> pd.DataFrame:
    """Return each combination of values of columns at least once, in no order."""
    _existing_names(frame, names, ())
    if is_spark(frame):
        return to_typed_pandas(spark_frames.read_distinct(frame, names))
    if is_relation(frame):
        from duckdb import ColumnExpression

        combinations = frame.select(*(ColumnExpression(name) for name in names)).distinct()
        return to_typed_pandas(_to_arrow(combinations, names))
    return read_columns(frame, names)


def collect_columns(frame: Frame, needs: Iterable[str], wants: Iterable[str] = ()) -> pd.DataFrame:
    """Return columns as `read_columns` does, also of PySpark: only for frames that are small."""
    if not is_spark(frame):
        return read_columns(frame, needs, wants)
    names = _existing_names(frame, needs, wants)
    spark_frames.check_names(names)
    return to_typed_pandas(spark_frames.collect_table(frame.select(*names)))


def read_matching(
    frame: Frame, key: str, values: Sequence[Any], needs: Iterable[str], wants: Iterable[str] = ()
) -> pd.DataFrame:
    """Return columns of the rows whose key is one of these values, also of PySpark.

    Only these rows have to fit into memory.
    """
    names = _existing_names(frame, [key, *needs], wants)
    if is_spark(frame):
        return to_typed_pandas(spark_frames.read_matching(frame, key, values, names))
    batches = _batches(frame, names) if is_relation(frame) else [read_columns(frame, names)]
    matching = [rows[rows[key].isin(values).to_numpy()] for rows in batches]
    return pd.concat(matching, ignore_index=True)


def _batches(relation: Any, names: Sequence[str]) -> Generator[pd.DataFrame]:
    """Yield the rows of columns, some at a time; no rows at least once."""
    from duckdb import ColumnExpression

    selected = relation.select(*(ColumnExpression(name) for name in names))
    read = getattr(selected, "to_arrow_reader", None) or selected.fetch_arrow_reader  # before DuckDB 1.5
    held: list[pa.RecordBatch] = []
    is_empty = True
    with read(_BATCH_ROWS) as reader:  # an open one blocks the connection
        for batch in reader:  # DuckDB's are as small as the row groups of files
            held.append(batch)
            if sum(part.num_rows for part in held) >= _BATCH_ROWS:
                yield to_typed_pandas(pa.Table.from_batches(held))
                held, is_empty = [], False
        if held or is_empty:
            yield to_typed_pandas(pa.Table.from_batches(held, reader.schema))


def _to_arrow(frame: Frame, names: Sequence[str]) -> pa.Table:
    if isinstance(frame, pa.Table):
        return frame.select(list(names))
    if is_relation(frame):
        from duckdb import ColumnExpression

        relation = frame.select(*(ColumnExpression(name) for name in names))
        table: pa.Table = (getattr(relation, "to_arrow_table", None) or relation.arrow)()
        return table
    if is_spark(frame):
        raise BadInput("This function needs all rows at once, and a frame of PySpark is divided. Use .toArrow().")
    selected = frame.select(list(names))
    return pa.table(selected.collect() if hasattr(selected, "collect") else selected)


def to_typed_pandas(table: pa.Table) -> pd.DataFrame:
    """Convert an Arrow table to pandas with the dtypes of fetched frames.

    Raise BadInput if a column of a known name holds values of another type.
    """
    names = list(table.column_names)
    typed = arrow_to_pandas(pa.table([_with_type(table[i], name) for i, name in enumerate(names)], names))
    return pd.DataFrame({name: typed_column(typed, name) for name in names}, copy=False)


def _with_type(column: Any, name: str) -> Any:
    """Return a column of nulls alone, which has no type, with the type of its name."""
    if not pa.types.is_null(column.type):
        return column
    types = {str(kind): arrow_type for kind, arrow_type in arrow_types(large=True).items()}
    return column.cast(types.get(kind_of(name) or "number", pa.float64()))


def _encode_texts(rows: pd.DataFrame) -> pa.Table:
    """Return rows with codes in place of texts."""
    columns = {}
    for name, values in rows.items():
        column = pa.array(values.array)
        columns[str(name)] = column.dictionary_encode() if values.dtype == TEXT else column
    return pa.table(columns)


def _to_categories(tables: list[pa.Table]) -> pd.DataFrame:
    """Return the rows of tables, with texts as categories in order."""
    table = pa.concat_tables(tables).unify_dictionaries()
    tables.clear()  # what follows needs the memory
    columns = {name: table[name] for name in table.column_names}
    del table
    rows: dict[str, Any] = {}
    for name in list(columns):
        column = columns.pop(name).combine_chunks()
        rows[name] = _to_ordered_categories(column) if pa.types.is_dictionary(column.type) else _to_array(column)
    return pd.DataFrame(rows, copy=False)


def _to_ordered_categories(column: Any) -> pd.Categorical:
    texts = column.dictionary.to_pandas().to_numpy(object)
    order = np.argsort(texts)
    place = np.empty(len(order), np.int32)
    place[order] = np.arange(len(order), dtype=np.int32)
    codes = column.indices.fill_null(-1).to_numpy()
    return pd.Categorical.from_codes(np.append(place, np.int32(-1))[codes], pd.Index(texts[order], dtype=TEXT))


def _to_array(column: Any) -> Any:
    """Return flags and numbers of numpy, or values of pandas that can be null."""
    is_plain = not column.null_count and (
        pa.types.is_boolean(column.type) or pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    )
    if is_plain:
        return column.to_numpy(zero_copy_only=False)
    return to_typed_pandas(pa.table({"": column}))[""].array
