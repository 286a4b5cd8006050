"""Run summaries on relations of DuckDB, which sorts and groups within its memory limit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import narwhals as nw
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import Integers
from buildframe.metrics.engines import expressions, group_map
from buildframe.metrics.engines.dtypes import check_zones, micros_column, to_typed_pandas
from buildframe.metrics.engines.protocol import GROUP, Frame, FrameFunction, Rows
from buildframe.metrics.engines.ranks import CountingEngine

_LISTS = {"int64": "BIGINT[]", "float64": "DOUBLE[]", "str": "VARCHAR[]"}
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

    def with_bucket_numbers(self, rows: Rows, at: str, edges: Integers, name: str = GROUP) -> Rows:
        others = [other for other in rows.to_native().columns if other != name]
        return self.read(rows.to_native().select(*others, _bucket_number(at, edges).alias(name)))

    def filter_times(self, rows: Rows, at: str, ranges: Sequence[tuple[int, int]]) -> Rows:
        """Compare timestamps, because DuckDB skips parts of a table by the limits of its columns."""
        time = nw.col(at)
        limits = (pd.to_datetime(own, unit="us", utc=True).to_pydatetime() for own in ranges)
        is_in = (((time >= start) & (time < end)) for start, end in limits)
        return rows.filter(nw.any_horizontal(*is_in, ignore_nulls=True))

    def _bucket_numbers(self, rows: Rows, at: str, edges: Integers, constants: Mapping[str, int]) -> Rows:
        from duckdb import ConstantExpression

        added = (ConstantExpression(one).alias(name) for name, one in constants.items())
        return self.read(rows.to_native().select(_bucket_number(at, edges).alias(GROUP), *added))


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
