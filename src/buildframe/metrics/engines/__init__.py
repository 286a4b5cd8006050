"""Frames of any engine that narwhals knows (pandas, Polars, DuckDB, PySpark): checked, and counted in groups.

What needs only sums and ranks of groups runs inside the engine (`rows`, `tally`, and `at_ranks` of the module `ranks`).
What follows intervals or sequences takes just the columns that it needs, group by group (module `pieces`). In frames of
pandas a function of rows, such as `metrics.step`, is computed; in others it is the column that `metrics.with_seconds`
has made of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.metrics.columns import NAT, kind_of, microseconds, require_columns, timestamps, typed_column
from buildframe.metrics.engines import spark
from buildframe.metrics.grouping import By, as_key_list, check_distinct_names, compact_codes, find_groups

Frame = Any
"""A frame of pandas, Polars (eager or lazy), DuckDB (a relation) or PySpark."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

GROUP = "in group"
"""The column that holds the number of each row's group; in other engines those of its keys have this and a number."""

_ENGINES = (nw.Implementation.PANDAS, nw.Implementation.POLARS, nw.Implementation.DUCKDB, *spark.FRAMES)

_TEXT = pd.StringDtype(na_value=np.nan)
_TYPES: dict[pa.DataType, Any] = {
    pa.string(): _TEXT,
    pa.large_string(): _TEXT,
    pa.string_view(): _TEXT,
    pa.bool_(): pd.BooleanDtype(),
    pa.date32(): pd.ArrowDtype(pa.date32()),
}


@dataclass(frozen=True)
class GroupedRows:
    """Columns of a frame, and which of them (`by`) tell its groups apart.

    `keys` is a frame with one row a group where that is known before (pandas: groups are numbered); else `names` are
    what the columns `by` are to be called.
    """

    frame: nw.LazyFrame[Any]
    by: list[str]
    names: list[str]
    keys: pd.DataFrame | None = None

    def select(self, *names: str) -> GroupedRows:
        """The same rows with these columns, and those that tell groups apart."""
        return GroupedRows(self.frame.select(*self.by, *names), self.by, self.names, self.keys)

    def with_columns(self, **columns: nw.Expr) -> GroupedRows:
        """The same rows with more columns."""
        return GroupedRows(self.frame.with_columns(**columns), self.by, self.names, self.keys)

    def filter(self, chosen: nw.Expr) -> GroupedRows:
        """Return the chosen rows, and only the groups that have some of them."""
        frame = self.frame.filter(chosen)
        if self.keys is None:
            return GroupedRows(frame, self.by, self.names)
        rows = frame.to_native()
        codes = rows[GROUP].to_numpy(np.intp)
        present = np.flatnonzero(np.bincount(codes, minlength=len(self.keys)))
        numbered = rows.assign(**{GROUP: compact_codes(codes, len(self.keys))[0]})
        return GroupedRows(to_lazy(numbered), self.by, self.names, self.keys.take(present).reset_index(drop=True))


@dataclass(frozen=True)
class GroupSums:
    """Sums of groups: `keys` as users see them, `groups` as the engine tells them apart, `sums` Int64; row by row."""

    keys: pd.DataFrame
    groups: pd.DataFrame
    sums: pd.DataFrame


def to_lazy(frame: Frame) -> nw.LazyFrame[Any]:
    """The frame for narwhals; BadInput where it is no frame."""
    refusal = BadInput(f"A {type(frame).__name__} is no frame; give one of pandas, Polars, DuckDB or PySpark.")
    try:
        found: nw.LazyFrame[Any] = nw.from_native(frame).lazy()
    except (TypeError, AttributeError):
        raise refusal from None
    if found.implementation not in _ENGINES:
        raise refusal
    if spark.is_spark(found):
        spark.check(found.to_native())
    return found


def is_pandas(frame: Frame) -> bool:
    """Whether functions of rows can be computed on it."""
    return isinstance(frame, pd.DataFrame)


def column_names(frame: Frame) -> list[str]:
    """The names of its columns."""
    return list(frame.columns) if is_pandas(frame) else to_lazy(frame).collect_schema().names()


def collect_columns(frame: Frame, needs: Sequence[str], wants: Sequence[str] = ()) -> pd.DataFrame:
    """These columns as pandas: all of `needs`, else BadInput says which is missing; of `wants` those that are there."""
    if is_pandas(frame):
        names = [*needs, *(name for name in wants if name in frame)]
        return pd.DataFrame({name: typed_column(frame, name) for name in names}, index=frame.index, copy=False)
    return as_pandas(select_columns(frame, needs, wants))


def select_columns(frame: Frame, needs: Sequence[str], wants: Sequence[str] = ()) -> nw.LazyFrame[Any]:
    """The same inside the engine."""
    found = to_lazy(frame)
    schema = found.collect_schema()
    require_columns(schema, needs)
    return found.select(*typed_columns(schema, [*needs, *(name for name in wants if name in schema)]))


def as_pandas(found: nw.LazyFrame[Any]) -> pd.DataFrame:
    """What an engine found, with the dtypes of frames that are fetched."""
    if found.implementation.is_pandas():
        return found.collect().to_pandas()
    return to_typed_pandas(as_arrow(found))


def as_arrow(found: nw.LazyFrame[Any]) -> pa.Table:
    """What an engine found."""
    return spark.collect_table(found.to_native()) if spark.is_spark(found) else found.collect().to_arrow()


def to_typed_pandas(table: pa.Table) -> pd.DataFrame:
    """The table with the dtypes of frames that are fetched."""
    frame = table.to_pandas(types_mapper=_mapped)
    times = [name for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.DatetimeTZDtype)]
    return frame.assign(**{name: timestamps(frame, name) for name in map(str, times)}) if times else frame


def _mapped(kind: pa.DataType) -> Any:
    return pd.Int64Dtype() if pa.types.is_integer(kind) else _TYPES.get(kind)


def typed_columns(schema: Mapping[str, Any], names: Iterable[str]) -> list[nw.Expr]:
    """These columns, each once, of the type that they have when they are fetched; BadInput for another one."""
    return [_typed_as(name, schema[name]) for name in dict.fromkeys(names)]


def _typed_as(name: str, dtype: Any) -> nw.Expr:
    kind = kind_of(name)
    if kind == "moment" and dtype != nw.Unknown:
        check_zone(name, dtype)
    if isinstance(dtype, (nw.Categorical, nw.Enum)):  # which are ordered by something else than their texts
        return nw.col(name).cast(nw.String)
    wanted = _KINDS.get(kind or "")
    if wanted is None or isinstance(dtype, type(wanted)) or (kind == "integer" and dtype.is_integer()):
        return nw.col(name)
    if kind == "date" and dtype != nw.Unknown:  # a column of one's own may be called so, too
        return nw.col(name)
    if dtype == nw.Unknown or (dtype.is_integer() and kind in ("flag", "text", "json")):
        return nw.col(name).cast(wanted)  # nulls alone have no type of their own, or, in some engines, that of numbers
    raise BadInput(f"The column {name!r} holds {dtype}, not {wanted}; convert it before.")


_KINDS: dict[str, Any] = {
    "text": nw.String(),
    "json": nw.String(),
    "flag": nw.Boolean(),
    "integer": nw.Int64(),
    "moment": nw.Datetime("us", "UTC"),
    "date": nw.Date(),
}


# Times as numbers


def micros_column(name: str) -> str:
    """The column with the times of `name` as whole microseconds since 1970, UTC."""
    return f"{name} in microseconds"


def with_micros(found: nw.LazyFrame[Any], names: Iterable[str]) -> nw.LazyFrame[Any]:
    """The rows with times as numbers, too: engines differ in what a difference of times is, and one is slow at it."""
    names = list(dict.fromkeys(names))
    check_zones(found, names)
    native = found.to_native()
    if isinstance(native, pd.DataFrame):
        return to_lazy(native.assign(**{micros_column(name): _ticks(native[name]) for name in names}))
    if found.implementation.is_duckdb():
        return to_lazy(native.select("*", *(_in_duckdb(name) for name in names)))
    if spark.is_spark(found):
        return to_lazy(native.withColumns({micros_column(name): spark.microseconds(name) for name in names}))
    return found.with_columns(nw.col(name).dt.timestamp("us").alias(micros_column(name)) for name in names)


def check_zones(found: nw.LazyFrame[Any], names: Iterable[str]) -> None:
    """BadInput for the first of the columns that holds no times with a zone; `typed_in` has checked those fetched."""
    if unchecked := [name for name in names if kind_of(name) != "moment"]:
        schema = found.collect_schema()  # which asks DuckDB about each column
        for name in unchecked:
            check_zone(name, schema[name])


def check_zone(name: str, dtype: Any) -> None:
    """BadInput where a column of this type holds no times with a zone."""
    if not isinstance(dtype, nw.Datetime) or dtype.time_zone is None:
        raise BadInput(f"The column {name!r} holds {dtype}, not times with a zone; say which zone they are in.")


def _ticks(times: pd.Series[Any]) -> Any:
    exact = microseconds(times)
    return pd.arrays.IntegerArray(exact, exact == NAT)


def _in_duckdb(name: str) -> Any:
    from duckdb import ColumnExpression, FunctionExpression

    return FunctionExpression("epoch_us", ColumnExpression(name)).alias(micros_column(name))


# In groups


def group_rows(
    frame: Frame, needs: Collection[str], by: By = None, wants: Collection[str] = (), **more: Any
) -> GroupedRows:
    """The columns of a frame that a summary needs, those of `wants` that are there, and its groups.

    `more` are columns to add: a Series or array of pandas, or an expression for other engines.
    """
    if is_pandas(frame):
        return _rows_of_pandas(frame, [*needs, *(name for name in wants if name in frame)], by, more)
    found = to_lazy(frame)
    schema = found.collect_schema()  # which asks DuckDB each time
    names = [key_name(key) for key in as_key_list(by)]
    check_distinct_names(names)
    require_columns(schema, [*needs, *names])
    if spark.is_spark(found):
        spark.check_names([*needs, *names])
    _check_keys(schema, names)
    keys = {f"{GROUP} {i}": key for i, key in enumerate(typed_columns(schema, names))} or {GROUP: nw.lit(0)}
    wanted = typed_columns(schema, [*needs, *(name for name in wants if name in schema)])
    return GroupedRows(found.select(*wanted, **keys, **more), list(keys), names)


def _check_keys(schema: Mapping[str, Any], names: Iterable[str]) -> None:
    for name in names:
        if schema[name].is_nested():
            raise BadInput(f"The column {name!r} cannot be grouped by: it holds {schema[name]}.")


def _rows_of_pandas(frame: pd.DataFrame, needs: Sequence[str], by: By, more: dict[str, Any]) -> GroupedRows:
    groups = find_groups(frame, by)
    columns = {name: _quick(typed_column(frame, name)) for name in needs}
    columns |= {name: np.asarray(new) for name, new in more.items()} | {GROUP: groups.codes}
    found = pd.DataFrame(columns, copy=False)
    return GroupedRows(to_lazy(found), [GROUP], list(groups.keys.columns), groups.keys)


def _quick(column: pd.Series[Any]) -> Any:
    """The values; flags without a mask where none is null, since that takes a fifth of the time."""
    if isinstance(column.dtype, pd.BooleanDtype) and not column.hasnans:
        return column.to_numpy(bool)
    return column.array


def number_groups(found: GroupedRows, *names: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """These columns as pandas with the number of each row's group (`GROUP`), and the keys of the groups."""
    table = as_pandas(found.frame.select(*found.by, *names))
    if found.keys is not None:
        return table, found.keys
    codes, keys = find_groups(table, found.by)
    return table.assign(**{GROUP: codes}), keys.set_axis(found.names, axis=1) if found.names else keys[[]]


def key_name(key: Any) -> str:
    """What the column of a key is called."""
    return key if isinstance(key, str) else getattr(key, "__name__", "group")


def group_sums(found: GroupedRows, **counts: nw.Expr) -> GroupSums:
    """The sums of these flags or whole numbers in each group, in the order of keys, null keys last."""
    if found.keys is not None and found.frame.implementation.is_pandas():
        return _tally_of_pandas(found.frame.select(GROUP, **counts).to_native(), found.keys)
    sums = {name: count.cast(nw.Int64).sum().cast(nw.Int64) for name, count in counts.items()}  # DuckDB's are decimals
    whole = as_arrow(found.frame.group_by(*found.by).agg(**sums))
    whole = whole.sort_by([(name, "ascending") for name in found.by])
    groups, summed = (to_typed_pandas(whole.select(names)) for names in (found.by, list(counts)))
    keys = groups.set_axis(found.names, axis=1) if found.names else pd.DataFrame(index=groups.index)
    return GroupSums(keys, groups, summed.fillna(0))


def _tally_of_pandas(found: pd.DataFrame, keys: pd.DataFrame) -> GroupSums:
    """The groups are numbered, so that no hashing is needed."""
    codes = found.pop(GROUP).to_numpy(np.int64)
    sums = pd.DataFrame({name: sums_by_code(codes, one, len(keys)) for name, one in found.items()}, dtype="Int64")
    return GroupSums(keys, pd.DataFrame({GROUP: range(len(keys))}), sums)


def sums_by_code(codes: Integers, counts: pd.Series[Any], many: int) -> Integers:
    """The sums of flags or whole numbers in groups that are numbered."""
    if pd.api.types.is_bool_dtype(counts.dtype):
        those = counts.to_numpy(bool, na_value=False)
        return np.bincount(codes if those.all() else codes[those], minlength=many)
    sums = np.zeros(many, np.int64)
    np.add.at(sums, codes, counts.to_numpy(np.int64, na_value=0))
    return sums
