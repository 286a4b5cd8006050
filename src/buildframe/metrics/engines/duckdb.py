"""Run summaries on relations of DuckDB, which sorts and groups within its memory limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.errors import BadInput
from buildframe.metrics.columns import NAT, Floats, Integers
from buildframe.metrics.durations import Span
from buildframe.metrics.engines import expressions, group_map
from buildframe.metrics.engines.dtypes import check_zones, micros_column, to_typed_pandas
from buildframe.metrics.engines.intervals import AT
from buildframe.metrics.engines.ranks import CountingEngine
from buildframe.metrics.engines.rows import (
    GROUP,
    SEEN_FOR,
    Frame,
    FrameFunction,
    GroupedRows,
    GroupSums,
    Rows,
    SplitBy,
)
from buildframe.metrics.engines.sorted_rows import CensoredRows, SortedRows
from buildframe.metrics.grouping import find_groups

_LISTS = {"int64": "BIGINT[]", "float64": "DOUBLE[]", "str": "VARCHAR[]"}
MAX_IN_MEMORY = 4_000_000
"""Values that are ranked in memory, some 400 MB; more are counted by DuckDB, within its limit of memory."""

_LEFT_AT = "time of a censored row"
_SEPARATOR = "\x1f"


class DuckDBEngine(CountingEngine):
    """Engine for DuckDB."""

    def join_nulls_equal(self, rows: Rows, others: Rows, names: Mapping[str, str]) -> Rows:
        equal = (f'"{name}" IS NOT DISTINCT FROM "{other}"' for name, other in names.items())
        left, right = rows.to_native().set_alias("left rows"), others.to_native().set_alias("right rows")
        return self.read(left.join(right, " AND ".join(equal)))

    def append(self, rows: Rows, others: Rows) -> Frame:
        from duckdb import InvalidInputException

        try:
            return super().append(rows, others)
        except InvalidInputException:
            raise BadInput("The frames are relations of different DuckDB connections. Read them by one.") from None

    def bring(self, rows: Rows, small: pd.DataFrame) -> Rows:
        """Build a relation from constants, because a relation gives no access to its connection."""
        from duckdb import FunctionExpression

        one_row = rows.to_native().limit(0).aggregate([FunctionExpression("count_star").alias("one")])
        unnested = {str(name): FunctionExpression("unnest", _list_of(small[name])) for name in small}
        return self.read(one_row.select(*(values.alias(name) for name, values in unnested.items())))

    def with_micros(self, rows: Rows, names: Sequence[str]) -> Rows:
        check_zones(rows, names)
        added = (_micros(name).alias(micros_column(name)) for name in dict.fromkeys(names))
        return self.read(rows.to_native().select("*", *added))

    def map_whole_groups(self, rows: Rows, by: Sequence[str], of: FrameFunction) -> pd.DataFrame:
        order = ", ".join(f'"{name}"' for name in by)
        return _map_stream(rows.to_native().order(order), by, of)

    def map_values(
        self, frame: Frame, needs: Sequence[str], by: str, of: Callable[[pd.DataFrame], pd.Series[Any]]
    ) -> Any:
        """Read the rows in their order, and sort them only if the rows of a group are not adjacent."""
        rows = self.select_columns(frame, [by, *needs])

        def of_frame(table: pd.DataFrame) -> pd.DataFrame:
            return of(table).reset_index()

        result = _map_stream(rows.to_native(), [by], of_frame)
        result = result if result[by].is_unique else self.map_whole_groups(rows, [by], of_frame)
        return result.set_index(by).iloc[:, 0].sort_index()

    def count_values(self, rows: GroupedRows, span: Span | None, at: SplitBy) -> GroupSums:
        """Read few rows into memory, which takes a third of the time of queries that count and rank them."""
        counted = (own.select(nw.len()) for own in (rows.source, rows.frame) if own is not None)
        if any(self.to_arrow(n)[0][0].as_py() <= MAX_IN_MEMORY for n in counted):
            return self._read_ranked(rows, span, at)
        return super().count_values(rows, span, at)

    def _read_ranked(self, rows: GroupedRows, span: Span | None, at: SplitBy) -> GroupSums:
        """Read the values and times of each group as lists."""
        table = self._collect_lists(rows, span, at)
        codes, groups = find_groups(to_typed_pandas(table.select(rows.by)), rows.by)
        table, n_groups = table.take(np.argsort(codes)), len(groups)  # each group is one row
        places, values = _flatten(table["value"])
        n = np.bincount(places, minlength=n_groups)
        sums = {"n": n, "n_negative": np.bincount(places[values < 0], minlength=n_groups)}
        censored = None
        if span is not None:
            left, seen = _flatten(table[SEEN_FOR])
            sums["n_censored"] = np.bincount(left, minlength=n_groups)
            censored = CensoredRows(left, seen, _flatten_times(table, _LEFT_AT))
        ranked = SortedRows(places, values, n, _flatten_times(table, AT), censored, at)
        return GroupSums(rows.name_keys(groups), groups, pd.DataFrame(sums, dtype="Int64"), ranked=ranked)

    def _collect_lists(self, rows: GroupedRows, span: Span | None, at: SplitBy) -> pa.Table:
        """Return a row per group with lists of what ranking needs of its rows."""
        columns = self.ranking_columns(rows, span, at).to_native()
        is_value, is_left = '"value" IS NOT NULL', "censored"
        lists = {"value": ("value", is_value), AT: (AT, is_value), SEEN_FOR: (SEEN_FOR, is_left)}
        lists |= {_LEFT_AT: (AT, is_left)} if span is not None else {}
        keys, known = ", ".join(f'"{name}"' for name in rows.by), columns.columns
        collected = (f'list("{of}") FILTER ({those}) AS "{name}"' for name, (of, those) in lists.items() if of in known)
        table: pa.Table = columns.aggregate(f"{keys}, {', '.join(collected)}", keys).to_arrow_table()
        return table

    def with_bucket_numbers(self, rows: Rows, at: str, edges: Integers, name: str = GROUP) -> Rows:
        others = [other for other in rows.to_native().columns if other != name]
        return self.read(rows.to_native().select(*others, _bucket_number(at, edges).alias(name)))

    def _bucket_numbers(self, rows: Rows, at: str, edges: Integers) -> Rows:
        return self.read(rows.to_native().select(_bucket_number(at, edges).alias(GROUP)))


def _flatten(lists: Any) -> tuple[Integers, Floats]:
    """Return the rows of lists, null as NaN, and the place of the list of each."""
    sizes = pc.list_value_length(lists).fill_null(0).to_numpy()
    return np.repeat(np.arange(len(sizes)), sizes), pc.list_flatten(lists).to_numpy()


def _flatten_times(table: pa.Table, name: str) -> Integers | None:
    """Return the times in lists, if the table has them."""
    lists: Any = table[name] if name in table.column_names else None
    return None if lists is None else pc.list_flatten(lists).fill_null(NAT).to_numpy()


def _list_of(column: pd.Series[Any]) -> Any:
    """Return a list of constants; most are one text, because each constant takes as long as a thousand rows."""
    from duckdb import ConstantExpression, FunctionExpression

    values, kind = column.tolist(), _LISTS.get(str(column.dtype))
    if (
        kind is None
        or column.hasnans
        or not values
        or any(_SEPARATOR in text for text in values if kind == "VARCHAR[]")
    ):
        return ConstantExpression([None if pd.isna(value) else value for value in values])
    text = ConstantExpression(_SEPARATOR.join(values if kind == "VARCHAR[]" else map(repr, values)))
    return FunctionExpression("string_split", text, ConstantExpression(_SEPARATOR)).cast(kind)


def _micros(name: str) -> Any:
    from duckdb import ColumnExpression, FunctionExpression

    return FunctionExpression("epoch_us", ColumnExpression(name))


def _bucket_number(at: str, edges: Integers) -> Any:
    """Divide in DuckDB; the division of narwhals, right for negative numbers, takes as long as all else."""
    from duckdb import CaseExpression

    def either(condition: Any, one: Any, other: Any) -> Any:
        return CaseExpression(condition, one).otherwise(other)

    return expressions.bucket_number(_micros(at), edges, either)


def _map_stream(rows: Any, by: Sequence[str], of: FrameFunction) -> pd.DataFrame:
    read = getattr(rows, "to_arrow_reader", None) or rows.fetch_arrow_reader  # the name before DuckDB 1.5
    batches = read(group_map.MAX_ROWS)
    results = list(group_map.map_batches(batches, by, of)) or [of(to_typed_pandas(batches.schema.empty_table()))]
    return pd.concat(results, ignore_index=True)
