"""Apply a pandas function to whole groups of any engine, a bounded number of rows at a time.

Polars passes all rows. DuckDB sorts rows by group and streams them. Spark calls the function in its workers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.metrics.engines import GROUP, GroupedRows, as_pandas, spark, to_typed_pandas
from buildframe.metrics.grouping import find_groups, join_keys

FrameFunction = Callable[[pd.DataFrame], pd.DataFrame]
"""A function of whole groups; for no rows it returns the same columns and no rows."""

_ROWS = 500_000
"""So many rows, or one group that has more, are in memory at once."""


def map_whole_groups(found: nw.LazyFrame[Any], by: Sequence[str], of: FrameFunction) -> pd.DataFrame:
    """Apply `of` to all rows, in no order; rows equal in the columns `by` are always in one call."""
    if spark.is_spark(found):
        return to_typed_pandas(spark.collect_table(map_in_spark(found, by, of)))
    if not found.implementation.is_duckdb():
        return of(as_pandas(found))
    return _sorted(found, by, of)


def map_clustered(found: nw.LazyFrame[Any], by: str, of: FrameFunction) -> pd.DataFrame:
    """The same where `of` makes one row of all that are alike in `by`, and these mostly stand together already.

    So do the jobs of a build in a store's files; a sort would have to hold all rows. Where some do not, it is done.
    """
    if not found.implementation.is_duckdb():
        return map_whole_groups(found, [by], of)
    result = _streamed(found.to_native(), [by], of)
    return result if result[by].is_unique else _sorted(found, [by], of)


def _sorted(found: nw.LazyFrame[Any], by: Sequence[str], of: FrameFunction) -> pd.DataFrame:
    return _streamed(found.to_native().order(", ".join(f'"{name}"' for name in by)), by, of)


def _streamed(rows: Any, by: Sequence[str], of: FrameFunction) -> pd.DataFrame:
    batches = rows.to_arrow_reader(_ROWS)
    pieces = list(map_batches(batches, by, of)) or [of(to_typed_pandas(batches.schema.empty_table()))]
    return pd.concat(pieces, ignore_index=True)


def map_in_spark(found: nw.LazyFrame[Any], by: Sequence[str], of: FrameFunction) -> Any:
    """Return the same as a lazy frame of PySpark."""
    rows = found.collect_schema().to_arrow().empty_table()
    schema = pa.Schema.from_pandas(of(to_typed_pandas(rows)), preserve_index=False).remove_metadata()
    return spark.map_partitions(found.to_native(), by, functools.partial(_in_arrow, by, of, schema), schema)


def _in_arrow(
    by: Sequence[str], of: FrameFunction, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What Spark's workers run."""
    for frame in map_batches(batches, by, of):
        yield from pa.Table.from_pandas(frame, schema, preserve_index=False).replace_schema_metadata().to_batches()


def map_batches(batches: Iterable[pa.RecordBatch], by: Sequence[str], of: FrameFunction) -> Iterator[pd.DataFrame]:
    """What `of` makes of rows of which those that are alike in the columns `by` come one after the other."""
    for rows in _whole_groups(batches, by):
        yield of(to_typed_pandas(rows))


def _whole_groups(batches: Iterable[pa.RecordBatch], by: Sequence[str]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    many = whole = 0  # rows held, and how many of them are of groups that have come to their end
    for batch in batches:
        start = _last_begins(batch, by)
        whole = many + start if start else whole
        held.append(pa.Table.from_batches([batch]))
        many += batch.num_rows
        if whole >= _ROWS:
            rows = pa.concat_tables(held)
            yield rows.slice(0, whole)
            held, many, whole = [rows.slice(whole)], many - whole, 0
    if held:
        yield pa.concat_tables(held)


def _last_begins(rows: pa.RecordBatch, by: Sequence[str]) -> int:
    """Return the row at which the last group begins."""
    if not rows.num_rows:
        return 0
    alike = functools.reduce(pc.and_, (_is_like_last(rows.column(name)) for name in by))
    return rows.num_rows - int(pc.index(alike[::-1], False).as_py()) if not pc.all(alike).as_py() else 0


def _is_like_last(column: Any) -> Any:
    last = column[-1]
    if not last.is_valid:
        return column.is_null()
    if pa.types.is_floating(column.type) and pc.is_nan(last).as_py():
        return pc.is_nan(column).fill_null(False)
    return pc.equal(column, last).fill_null(False)


def map_groups(found: GroupedRows, names: Sequence[str], of: FrameFunction) -> pd.DataFrame:
    """Group columns, and beside them what `of` makes of the columns `names`, in order of keys, null keys last.

    `of` gets rows with the number of their group (`GROUP`), and gives rows with that of theirs.
    """
    if found.keys is not None:
        made = of(as_pandas(found.frame.select(GROUP, *names)))
        return join_keys(found.keys.take(made.pop(GROUP).to_numpy(np.int64)).reset_index(drop=True), made)
    made = map_whole_groups(found.frame.select(*found.by, *names), found.by, functools.partial(_keyed, found.by, of))
    made = made.sort_values(found.by, kind="stable", ignore_index=True)
    keys = made[found.by].set_axis(found.names, axis=1) if found.names else made[[]]
    return join_keys(keys, made.drop(columns=found.by))


def _keyed(by: Sequence[str], of: FrameFunction, rows: pd.DataFrame) -> pd.DataFrame:
    codes, keys = find_groups(rows, list(by))
    made = of(rows.assign(**{GROUP: codes}))
    return join_keys(keys.take(made.pop(GROUP).to_numpy(np.int64)).reset_index(drop=True), made)
