"""Apply a pandas function to whole groups in a stream of batches, with a bounded number of rows in memory."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.metrics.engines.dtypes import to_typed_pandas
from buildframe.metrics.engines.protocol import FrameFunction

MAX_ROWS = 500_000
"""Rows in memory at once, unless one group has more."""


def map_to_arrow(
    by: Sequence[str], of: FrameFunction, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Do the same as `map_batches` for batches of this schema; runs in a Spark worker."""
    for frame in map_batches(batches, by, of):
        yield from pa.Table.from_pandas(frame, schema, preserve_index=False).replace_schema_metadata().to_batches()


def map_batches(batches: Iterable[pa.RecordBatch], by: Sequence[str], of: FrameFunction) -> Iterator[pd.DataFrame]:
    """Return the results of `of` for rows in which those equal in the columns `by` follow each other."""
    for rows in _whole_groups(batches, by):
        yield of(to_typed_pandas(rows))


def _whole_groups(batches: Iterable[pa.RecordBatch], by: Sequence[str]) -> Iterator[pa.Table]:
    held: list[pa.Table] = []
    n_held = n_complete = 0  # rows in `held`, and how many of them belong to groups that have ended
    for batch in batches:
        start = _start_of_last_group(batch, by)
        n_complete = n_held + start if start else n_complete
        held.append(pa.Table.from_batches([batch]))
        n_held += batch.num_rows
        if n_complete >= MAX_ROWS:
            rows = pa.concat_tables(held)
            yield rows.slice(0, n_complete)
            held, n_held, n_complete = [rows.slice(n_complete)], n_held - n_complete, 0
    if held:
        yield pa.concat_tables(held)


def _start_of_last_group(rows: pa.RecordBatch, by: Sequence[str]) -> int:
    if not rows.num_rows:
        return 0
    equal = functools.reduce(pc.and_, (_equals_last(rows.column(name)) for name in by))
    return rows.num_rows - int(pc.index(equal[::-1], False).as_py()) if not pc.all(equal).as_py() else 0


def _equals_last(column: Any) -> Any:
    last = column[-1]
    if not last.is_valid:
        return column.is_null()
    if pa.types.is_floating(column.type) and pc.is_nan(last).as_py():
        return pc.is_nan(column).fill_null(False)
    return pc.equal(column, last).fill_null(False)
