"""Rows of any engine, some at a time and whole groups at once, for what takes more than sums and ranks.

A function of pandas is the one definition. Polars hands over all rows; DuckDB sorts them by their groups, if they do
not stand together yet, and hands them over bit by bit; Spark brings those of a group together and calls the function
where they are.
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

from buildframe.metrics import spark
from buildframe.metrics.engines import GROUP, Rows, as_pandas, typed_by_pandas
from buildframe.metrics.groups import beside, groups_of

Part = Callable[[pd.DataFrame], pd.DataFrame]
"""What is made of some rows; of none it is a frame with the same columns and no rows."""

_ROWS = 500_000
"""So many rows, or one group that has more, are in memory at once."""


def in_pieces(found: nw.LazyFrame[Any], by: Sequence[str], of: Part) -> pd.DataFrame:
    """What `of` makes of all rows, in no order; rows alike in the columns `by` are always in one piece."""
    if spark.is_spark(found):
        return typed_by_pandas(spark.collected(mapped(found, by, of)))
    if not found.implementation.is_duckdb():
        return of(as_pandas(found))
    return _sorted(found, by, of)


def as_they_come(found: nw.LazyFrame[Any], by: str, of: Part) -> pd.DataFrame:
    """The same where `of` makes one row of all that are alike in `by`, and these mostly stand together already.

    So do the jobs of a build in a store's files; a sort would have to hold all rows. Where some do not, it is done.
    """
    if not found.implementation.is_duckdb():
        return in_pieces(found, [by], of)
    told = _streamed(found.to_native(), [by], of)
    return told if told[by].is_unique else _sorted(found, [by], of)


def _sorted(found: nw.LazyFrame[Any], by: Sequence[str], of: Part) -> pd.DataFrame:
    return _streamed(found.to_native().order(", ".join(f'"{name}"' for name in by)), by, of)


def _streamed(rows: Any, by: Sequence[str], of: Part) -> pd.DataFrame:
    batches = rows.to_arrow_reader(_ROWS)
    pieces = list(made(batches, by, of)) or [of(typed_by_pandas(batches.schema.empty_table()))]
    return pd.concat(pieces, ignore_index=True)


def mapped(found: nw.LazyFrame[Any], by: Sequence[str], of: Part) -> Any:
    """The same as a frame of Spark, which has not computed it yet."""
    rows = found.collect_schema().to_arrow().empty_table()
    schema = pa.Schema.from_pandas(of(typed_by_pandas(rows)), preserve_index=False).remove_metadata()
    return spark.mapped(found.to_native(), by, functools.partial(_in_arrow, by, of, schema), schema)


def _in_arrow(
    by: Sequence[str], of: Part, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What Spark's workers run."""
    for frame in made(batches, by, of):
        yield from pa.Table.from_pandas(frame, schema, preserve_index=False).replace_schema_metadata().to_batches()


def made(batches: Iterable[pa.RecordBatch], by: Sequence[str], of: Part) -> Iterator[pd.DataFrame]:
    """What `of` makes of rows of which those that are alike in the columns `by` come one after the other."""
    for rows in _whole_groups(batches, by):
        yield of(typed_by_pandas(rows))


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
    """At which row the last group begins."""
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


def in_groups(found: Rows, names: Sequence[str], of: Part) -> pd.DataFrame:
    """Group columns, and beside them what `of` makes of the columns `names`, in order of keys, null keys last.

    `of` gets rows with the number of their group (`GROUP`), and gives rows with that of theirs.
    """
    if found.keys is not None:
        made = of(as_pandas(found.frame.select(GROUP, *names)))
        return beside(found.keys.take(made.pop(GROUP).to_numpy(np.int64)).reset_index(drop=True), made)
    made = in_pieces(found.frame.select(*found.by, *names), found.by, functools.partial(_keyed, found.by, of))
    made = made.sort_values(found.by, kind="stable", ignore_index=True)
    keys = made[found.by].set_axis(found.names, axis=1) if found.names else made[[]]
    return beside(keys, made.drop(columns=found.by))


def _keyed(by: Sequence[str], of: Part, rows: pd.DataFrame) -> pd.DataFrame:
    codes, keys = groups_of(rows, list(by))
    made = of(rows.assign(**{GROUP: codes}))
    return beside(keys.take(made.pop(GROUP).to_numpy(np.int64)).reset_index(drop=True), made)
