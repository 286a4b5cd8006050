"""Run a summary of a pandas frame in the workers of PySpark, group by group.

A summary runs once on all rows of any other frame. Knows groups and the columns that a summary
reads; does not know what it computes.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.metrics import spark_frames
from buildframe.metrics.columns import TEXT, require_columns
from buildframe.metrics.grouping import By, Key, as_key_list, key_name
from buildframe.metrics.input_frames import (
    Frame,
    column_names,
    is_spark,
    join_groups,
    recorded_columns,
    to_typed_pandas,
)

FrameSummary = Callable[[Frame], pd.DataFrame]
"""A function of a frame that is not of PySpark; for no rows it returns the same columns and no rows."""

MAX_GROUP_ROWS = 50_000_000
"""Rows of a group that one worker takes: some 2 to 4 GB of the columns that a summary reads."""

_MANY_GROUPS = 200
"""Of more groups, a call of Python for each takes longer than the work. Then a call gets many whole groups."""

_ATTRS = "attrs of the group"
_SHARD = "shard of the group"


def spark_keys(frame: Frame, by: By) -> By:
    """Return the keys; for a frame of PySpark the names of columns, because only pandas computes keys."""
    if not is_spark(frame):
        return by
    names = [key_name(key) for key in as_key_list(by)]
    require_columns(column_names(frame), names)
    spark_frames.check_names(names)
    spark_frames.check_keys(frame, names)
    return list(names)


def summarize_groups(
    frame: Frame,
    of: FrameSummary,
    together: By = None,
    combine: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
) -> pd.DataFrame:
    """Apply a summary to all rows, or in PySpark to each group of rows with equal keys `together`.

    The results of groups are concatenated, and sorted by those keys that are columns of the result,
    or `combine` puts them together. Numbers in their `attrs` are summed.
    """
    if not is_spark(frame):
        return of(frame)
    names = [key_name(key) for key in as_key_list(together)]
    empty, columns = _try_out(frame, of)
    n_groups = _check_sizes(frame, names)
    schema = _schema_of(empty.assign(**{_ATTRS: pd.Series(dtype=TEXT)}))
    of_group = functools.partial(_summarize_with_attrs, of, schema)
    if n_groups > _MANY_GROUPS:
        frame = spark_frames.with_shards(frame, _SHARD, names)
    lazy = _group(frame, [_SHARD] if n_groups > _MANY_GROUPS else names, columns, of_group, schema)
    result = _to_pandas(spark_frames.collect_table(lazy), empty)
    if combine is not None:
        combined = combine(result)
        combined.attrs |= result.attrs
        return combined
    return _sort(result, names)


def summarize_lazily(frame: Any, of: FrameSummary, together: Sequence[Key]) -> Any:
    """Return a lazy frame of PySpark with the results of a summary of each group, which are as long as the data."""
    empty, columns = _try_out(frame, of)
    schema = _schema_of(empty)
    names = [key_name(key) for key in together]
    return _group(frame, names, columns, functools.partial(_summarize, of, schema), schema)


def summarize_batches_lazily(frame: Any, of: FrameSummary, together: Sequence[Key]) -> Any:
    """Return a lazy frame of PySpark with the results of a summary of many small groups, such as builds.

    Each call of the summary gets the rows of many whole groups.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    empty, columns = _try_out(frame, of)
    schema = _schema_of(empty)
    names = [key_name(key) for key in together]
    selected = frame.select(*dict.fromkeys([*names, *columns]))
    partitions = selected.repartition(*names).sortWithinPartitions(*names)
    of_batches = functools.partial(_summarize_batches, of, names, schema)
    return partitions.mapInArrow(of_batches, from_arrow_schema(schema))


def _summarize_batches(
    of: FrameSummary, keys: list[str], schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Compute the results of the groups of a partition; runs in a worker."""
    rows = (to_typed_pandas(pa.Table.from_batches([batch])) for batch in batches if batch.num_rows)
    for whole_groups in join_groups(rows, keys):
        yield from _summarize(of, schema, whole_groups).to_batches()


def summarize_pairs(
    frame: Frame,
    other: Frame,
    of: Callable[[Frame, Frame], pd.DataFrame],
    together: Sequence[str],
    columns: Sequence[Collection[str]],
) -> pd.DataFrame:
    """Apply a summary to all rows of two frames, or in PySpark to both frames' rows of each group.

    `columns` are those that the summary reads of each frame, besides the keys `together`. Results
    are put together as by `summarize_groups`.
    """
    if is_spark(frame) != is_spark(other):
        raise BadInput(
            "One of builds and jobs is a frame of PySpark. Pass both as such, or collect it with .toPandas()."
        )
    if not is_spark(frame):
        return of(frame, other)
    keys = list(together)
    selected = [_select(side, [*keys, *names]) for side, names in zip((frame, other), columns, strict=True)]
    empty = of(*(spark_frames.collect_table(side.limit(0)) for side in selected))
    for side in selected:
        _check_sizes(side, keys)
    schema = _schema_of(empty.assign(**{_ATTRS: pd.Series(dtype=TEXT)}))
    lazy = _cogroup(selected, keys, functools.partial(_summarize_with_attrs, of, schema), schema)
    return _sort(_to_pandas(spark_frames.collect_table(lazy), empty), keys)


def concat_results(results: Sequence[pd.DataFrame], keys: Sequence[str]) -> pd.DataFrame:
    """Put the results of several sets of groups together, in the order of the keys.

    Their `attrs` are added up.
    """
    if len(results) == 1:
        return results[0]
    attrs: dict[Any, Any] = {}
    for result in results:
        _add_attrs(attrs, result.attrs)
    combined = _sort(pd.concat(results, ignore_index=True), keys)
    combined.attrs = attrs
    return combined


def _sort(result: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Sort a result by those keys that are among its columns."""
    order = [name for name in keys if name in result]
    return result.sort_values(order, kind="stable", ignore_index=True) if order else result


def _add_attrs(total: dict[Any, Any], attrs: Mapping[Any, Any]) -> None:
    """Add up numbers, and append lists to the lists of a dict; other values replace each other."""
    for name, value in attrs.items():
        if isinstance(value, Mapping) and all(isinstance(entries, list) for entries in value.values()):
            lists = total.setdefault(name, {})
            for key, entries in value.items():
                lists[key] = [*lists.get(key, []), *entries]
        elif isinstance(value, int | float) and not isinstance(value, bool):
            total[name] = value + total.get(name, 0)
        else:
            total[name] = value


def _try_out(frame: Any, of: FrameSummary) -> tuple[pd.DataFrame, list[str]]:
    """Return the result of a summary for no rows, and which columns of the frame it reads."""
    names = column_names(frame)
    no_rows = spark_frames.collect_table(frame.limit(0))
    with recorded_columns() as recorded:
        empty = of(no_rows)
    columns = [name for name in names if name in recorded]
    spark_frames.check_names(columns)
    return empty, columns


def _schema_of(result: pd.DataFrame) -> pa.Schema:
    """Return the types of a result, which Spark compares exactly."""
    schema = pa.Schema.from_pandas(result, preserve_index=False)
    return pa.schema([(field.name, _type_in_spark(field.type)) for field in schema])


def _type_in_spark(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.timestamp("us", "UTC") if pa.types.is_timestamp(kind) else kind


def _group(
    frame: Any, keys: list[str], columns: list[str], of: Callable[[pa.Table], pa.Table], schema: pa.Schema
) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    def of_group(rows: pa.Table) -> pa.Table:  # Spark reads the annotations
        return of(rows)

    selected = frame.select(*dict.fromkeys([*keys, *columns]))
    return selected.groupBy(*keys).applyInArrow(of_group, from_arrow_schema(schema))


def _select(frame: Any, names: Sequence[str]) -> Any:
    """Select those of the columns that the frame has."""
    available = column_names(frame)
    selected = [name for name in dict.fromkeys(names) if name in available]
    spark_frames.check_names(selected)
    return frame.select(*selected)


def _cogroup(frames: Sequence[Any], keys: list[str], of: Callable[..., pa.Table], schema: pa.Schema) -> Any:
    from pyspark.sql.pandas.types import from_arrow_schema

    def of_groups(rows: pa.Table, others: pa.Table) -> pa.Table:  # Spark reads the annotations
        return of(rows, others)

    grouped, others = (frame.groupBy(*keys) for frame in frames)
    return grouped.cogroup(others).applyInArrow(of_groups, from_arrow_schema(schema))


def _summarize(of: FrameSummary, schema: pa.Schema, rows: Frame) -> pa.Table:
    """Compute the results of one group; runs in a worker."""
    return pa.Table.from_pandas(of(rows), schema, preserve_index=False).replace_schema_metadata()


def _summarize_with_attrs(of: Callable[..., pd.DataFrame], schema: pa.Schema, *rows: pa.Table) -> pa.Table:
    """Compute the results of one group with its `attrs`, in a row of nulls; runs in a worker."""
    result = of(*rows)
    attrs = pd.Series([None] * len(result), result.index, dtype=TEXT)
    table = pa.Table.from_pandas(result.assign(**{_ATTRS: attrs}), schema, preserve_index=False)
    if result.attrs:
        nulls = {field.name: pa.nulls(1, field.type) for field in schema} | {_ATTRS: [json.dumps(result.attrs)]}
        table = pa.concat_tables([table.replace_schema_metadata(), pa.table(nulls, schema)])
    return table.replace_schema_metadata()


def _to_pandas(table: pa.Table, empty: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of groups with the dtypes of a summary, and the sums of numbers in their `attrs`."""
    texts = [text for text in table[_ATTRS].to_pylist() if text is not None]
    rows = table.filter(table[_ATTRS].is_null()).drop_columns([_ATTRS])
    result = pd.concat([empty, rows.to_pandas(types_mapper=pd.ArrowDtype).astype(empty.dtypes)], ignore_index=True)
    result.attrs = dict(empty.attrs)
    for attrs in map(json.loads, texts):
        _add_attrs(result.attrs, attrs)
    return result


def _check_sizes(frame: Any, keys: list[str]) -> int:
    """Return the number of groups; raise BadInput if one has more rows than one worker takes."""
    from pyspark.sql import functions

    counted = frame.groupBy(*keys).agg(functions.count("*").alias("rows"))
    sizes = counted.agg(functions.max("rows").alias("rows"), functions.count("*").alias("groups"))
    largest = spark_frames.collect_table(sizes).to_pylist()[0]
    n_rows: int = largest["rows"] or 0
    if n_rows > MAX_GROUP_ROWS:
        group = f"A group of {', '.join(keys)}" if keys else "The frame, which is one group,"
        raise BadInput(
            f"{group} has {n_rows:,} rows, and a worker of Spark takes at most {MAX_GROUP_ROWS:,}. "
            "Select a shorter period or fewer pipelines. Where by= divides the rows, add a key, "
            "such as by=['queue', 'step']."
        )
    n_groups: int = largest["groups"]
    return n_groups
