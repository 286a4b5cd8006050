"""Apply a pandas function to whole groups in a stream of batches, with a bounded number of rows in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.metrics.engines.dtypes import to_typed_pandas
from buildframe.metrics.engines.rows import GROUP, FrameFunction
from buildframe.metrics.grouping import find_groups, join_keys

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
    runs = (pc.run_end_encode(_without_nan(rows.column(name))).run_ends for name in by)  # type: ignore[attr-defined]
    return max((ends[-2].as_py() for ends in runs if len(ends) > 1), default=0)


def _without_nan(column: Any) -> Any:
    """Return the column with nulls for NaN, which equals no value."""
    return pc.if_else(pc.is_nan(column), None, column) if pa.types.is_floating(column.type) else column


def with_keys(by: Sequence[str], of: FrameFunction, rows: pd.DataFrame) -> pd.DataFrame:
    """Apply `of` to rows with the number of their group, and return its result beside the columns of groups."""
    codes, keys = find_groups(rows, list(by))
    result = of(rows.assign(**{GROUP: codes}))
    return join_keys(keys.take(result.pop(GROUP).to_numpy(np.int64)).reset_index(drop=True), result)
