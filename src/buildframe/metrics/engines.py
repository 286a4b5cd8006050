"""Frames of any engine that narwhals knows (pandas, Polars, DuckDB): checked, counted in groups, or collected.

What needs only sums and ranks of groups runs inside the engine (`rows`, `tally`, `at_ranks`). What follows intervals or
sequences takes just the columns that it needs, as pandas (`collected`). In frames of pandas a function of rows, such
as `metrics.step`, is computed; in others it is the column that `metrics.with_seconds` has made of it.
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
from buildframe.metrics.columns import NAT, kind_of, microseconds, moments, require, typed
from buildframe.metrics.groups import By, groups_of, listed, named_apart

Frame = Any
"""A frame of pandas, Polars (eager or lazy) or DuckDB (a relation)."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

GROUP = "in group"
"""The column that holds the number of each row's group; in other engines those of its keys have this and a number."""

_ENGINES = (nw.Implementation.PANDAS, nw.Implementation.POLARS, nw.Implementation.DUCKDB)

_TEXT = pd.StringDtype(na_value=np.nan)
_TYPES: dict[pa.DataType, Any] = {
    pa.string(): _TEXT,
    pa.large_string(): _TEXT,
    pa.string_view(): _TEXT,
    pa.bool_(): pd.BooleanDtype(),
    pa.date32(): pd.ArrowDtype(pa.date32()),
}


@dataclass(frozen=True)
class Rows:
    """Columns of a frame, and which of them (`by`) tell its groups apart.

    `keys` is a frame with one row a group where that is known before (pandas: groups are numbered); else `names` are
    what the columns `by` are to be called.
    """

    frame: nw.LazyFrame[Any]
    by: list[str]
    names: list[str]
    keys: pd.DataFrame | None = None

    def only(self, *names: str) -> Rows:
        """The same rows with these columns, and those that tell groups apart."""
        return Rows(self.frame.select(*self.by, *names), self.by, self.names, self.keys)

    def having(self, **columns: nw.Expr) -> Rows:
        """The same rows with more columns."""
        return Rows(self.frame.with_columns(**columns), self.by, self.names, self.keys)


@dataclass(frozen=True)
class Tally:
    """Sums of groups: `keys` as users see them, `groups` as the engine tells them apart, `sums` Int64; row by row."""

    keys: pd.DataFrame
    groups: pd.DataFrame
    sums: pd.DataFrame


def lazy(frame: Frame) -> nw.LazyFrame[Any]:
    """The frame for narwhals; BadInput where it is no frame."""
    refusal = BadInput(f"A {type(frame).__name__} is no frame; give one of pandas, Polars or DuckDB.")
    try:
        found: nw.LazyFrame[Any] = nw.from_native(frame).lazy()
    except (TypeError, AttributeError):
        raise refusal from None
    if found.implementation not in _ENGINES:
        raise refusal
    return found


def is_pandas(frame: Frame) -> bool:
    """Whether functions of rows can be computed on it."""
    return isinstance(frame, pd.DataFrame)


def columns_of(frame: Frame) -> list[str]:
    """The names of its columns."""
    return list(frame.columns) if is_pandas(frame) else lazy(frame).collect_schema().names()


def collected(frame: Frame, needs: Sequence[str], wants: Sequence[str] = ()) -> pd.DataFrame:
    """These columns as pandas: all of `needs`, else BadInput says which is missing; of `wants` those that are there."""
    if is_pandas(frame):
        names = [*needs, *(name for name in wants if name in frame)]
        return pd.DataFrame({name: typed(frame, name) for name in names}, index=frame.index, copy=False)
    found = lazy(frame)
    schema = found.collect_schema()
    require(schema, needs)
    return as_pandas(found.select(*typed_in(schema, [*needs, *(name for name in wants if name in schema)])))


def as_pandas(found: nw.LazyFrame[Any]) -> pd.DataFrame:
    """What an engine found, with the dtypes of frames that are fetched."""
    whole = found.collect()
    if whole.implementation.is_pandas():
        return whole.to_pandas()
    return _typed_by_pandas(whole.to_arrow())


def _typed_by_pandas(table: pa.Table) -> pd.DataFrame:
    """The table with the dtypes of frames that are fetched."""
    frame = table.to_pandas(types_mapper=_mapped)
    times = [name for name, dtype in frame.dtypes.items() if isinstance(dtype, pd.DatetimeTZDtype)]
    return frame.assign(**{name: moments(frame, name) for name in map(str, times)}) if times else frame


def _mapped(kind: pa.DataType) -> Any:
    return pd.Int64Dtype() if pa.types.is_integer(kind) else _TYPES.get(kind)


def typed_in(schema: Mapping[str, Any], names: Iterable[str]) -> list[nw.Expr]:
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
    if dtype == nw.Unknown or (dtype.is_integer() and kind in ("flag", "text", "json")):
        return nw.col(name).cast(wanted)  # nulls alone have no type of their own, or, in some engines, that of numbers
    raise BadInput(f"The column {name!r} holds {dtype}, not {wanted}; convert it before.")


_KINDS: dict[str, Any] = {
    "text": nw.String(),
    "json": nw.String(),
    "flag": nw.Boolean(),
    "integer": nw.Int64(),
    "moment": nw.Datetime("us", "UTC"),
}


# Times as numbers


def tick(name: str) -> str:
    """The column with the times of `name` as whole microseconds since 1970, UTC."""
    return f"{name} in microseconds"


def ticking(found: nw.LazyFrame[Any], names: Iterable[str]) -> nw.LazyFrame[Any]:
    """The rows with times as numbers, too: engines differ in what a difference of times is, and one is slow at it."""
    names = list(dict.fromkeys(names))
    check_zones(found, names)
    native = found.to_native()
    if isinstance(native, pd.DataFrame):
        return lazy(native.assign(**{tick(name): _ticks(native[name]) for name in names}))
    if found.implementation.is_duckdb():
        return lazy(native.select("*", *(_in_duckdb(name) for name in names)))
    return found.with_columns(nw.col(name).dt.timestamp("us").alias(tick(name)) for name in names)


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

    return FunctionExpression("epoch_us", ColumnExpression(name)).alias(tick(name))


# In groups


def rows(frame: Frame, needs: Collection[str], by: By = None, wants: Collection[str] = (), **more: Any) -> Rows:
    """The columns of a frame that a summary needs, those of `wants` that are there, and its groups.

    `more` are columns to add: a Series or array of pandas, or an expression for other engines.
    """
    if is_pandas(frame):
        return _rows_of_pandas(frame, [*needs, *(name for name in wants if name in frame)], by, more)
    found = lazy(frame)
    schema = found.collect_schema()  # which asks DuckDB each time
    names = [name_of(key) for key in listed(by)]
    named_apart(names)
    require(schema, [*needs, *names])
    keys = {f"{GROUP} {i}": key for i, key in enumerate(typed_in(schema, names))} or {GROUP: nw.lit(0)}
    wanted = typed_in(schema, [*needs, *(name for name in wants if name in schema)])
    return Rows(found.select(*wanted, **keys, **more), list(keys), names)


def _rows_of_pandas(frame: pd.DataFrame, needs: Sequence[str], by: By, more: dict[str, Any]) -> Rows:
    groups = groups_of(frame, by)
    columns = {name: _quick(typed(frame, name)) for name in needs}
    columns |= {name: np.asarray(new) for name, new in more.items()} | {GROUP: groups.codes}
    found = pd.DataFrame(columns, copy=False)
    return Rows(lazy(found), [GROUP], list(groups.keys.columns), groups.keys)


def _quick(column: pd.Series[Any]) -> Any:
    """The values; flags without a mask where none is null, since that takes a fifth of the time."""
    if isinstance(column.dtype, pd.BooleanDtype) and not column.hasnans:
        return column.to_numpy(bool)
    return column.array


def numbered(found: Rows, *names: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """These columns as pandas with the number of each row's group (`GROUP`), and the keys of the groups."""
    table = as_pandas(found.frame.select(*found.by, *names))
    if found.keys is not None:
        return table, found.keys
    codes, keys = groups_of(table, found.by)
    return table.assign(**{GROUP: codes}), keys.set_axis(found.names, axis=1) if found.names else keys[[]]


def name_of(key: Any) -> str:
    """What the column of a key is called."""
    return key if isinstance(key, str) else getattr(key, "__name__", "group")


def tally(found: Rows, **counts: nw.Expr) -> Tally:
    """The sums of these flags or whole numbers in each group, in the order of keys, null keys last."""
    if found.keys is not None and found.frame.implementation.is_pandas():
        return _tally_of_pandas(found.frame.select(GROUP, **counts).to_native(), found.keys)
    sums = {name: count.cast(nw.Int64).sum().cast(nw.Int64) for name, count in counts.items()}  # DuckDB's are decimals
    whole = found.frame.group_by(*found.by).agg(**sums).collect().to_arrow()
    whole = whole.sort_by([(name, "ascending") for name in found.by])
    groups, summed = (_typed_by_pandas(whole.select(names)) for names in (found.by, list(counts)))
    keys = groups.set_axis(found.names, axis=1) if found.names else pd.DataFrame(index=groups.index)
    return Tally(keys, groups, summed.fillna(0))


def _tally_of_pandas(found: pd.DataFrame, keys: pd.DataFrame) -> Tally:
    """The groups are numbered, so that no hashing is needed."""
    codes = found.pop(GROUP).to_numpy(np.int64)
    sums = pd.DataFrame({name: _sums(codes, one, len(keys)) for name, one in found.items()}, dtype="Int64")
    return Tally(keys, pd.DataFrame({GROUP: range(len(keys))}), sums)


def _sums(codes: Integers, counts: pd.Series[Any], many: int) -> Integers:
    if pd.api.types.is_bool_dtype(counts.dtype):
        those = counts.to_numpy(bool, na_value=False)
        return np.bincount(codes if those.all() else codes[those], minlength=many)
    sums = np.zeros(many, np.int64)
    np.add.at(sums, codes, counts.to_numpy(np.int64, na_value=0))
    return sums


def at_ranks(found: Rows, value: str, groups: pd.DataFrame, n: Integers, ranks: Integers) -> Floats:
    """Of each group (rows), the values of these ranks, 1 being the smallest; NaN where the rank is 0.

    `groups` and `n` (how many values are not null) as `tally` gives them; `ranks` is a matrix with one row a group.
    """
    native = found.frame.to_native()
    if isinstance(native, pd.DataFrame):
        return _at_ranks_of_pandas(native[GROUP].to_numpy(), native[value].to_numpy(), n, ranks)
    measured = found.frame.filter(~nw.col(value).is_null()).select(*found.by, value)
    return _at_ranks_in_engine(measured, found.by, value, groups, ranks)


def _at_ranks_of_pandas(codes: Integers, values: Floats, n: Integers, ranks: Integers) -> Floats:
    """By a partition of each group, after a sort by groups that takes no comparisons where they are few."""
    is_known = ~np.isnan(values)
    codes, values = codes[is_known], values[is_known]
    ordered = values[np.argsort(codes.astype(np.int16) if len(n) < 2**15 else codes, kind="stable")]
    found = np.full(ranks.shape, np.nan)
    for i, (stop, size) in enumerate(zip(np.cumsum(n).tolist(), n.tolist(), strict=True)):
        wanted = ranks[i] > 0
        if wanted.any():
            places = ranks[i, wanted] - 1
            part = ordered[stop - size : stop]
            part.partition(np.unique(places))
            found[i, wanted] = part[places]
    return found


def _at_ranks_in_engine(
    measured: nw.LazyFrame[Any], by: list[str], value: str, groups: pd.DataFrame, ranks: Integers
) -> Floats:
    """The engine sorts each group into a list; ranks by a window took it two to three times as long."""
    table = _sorted_lists(measured, by, value)
    lists: Any = table[value].combine_chunks()
    keys = as_pandas(nw.from_native(table.drop_columns([value])).lazy()).assign(start=lists.offsets.to_numpy()[:-1])
    starts = groups.merge(keys, how="left", on=by)["start"].to_numpy(np.float64)
    is_there = (ranks > 0) & ~np.isnan(starts)[:, None]
    places = np.where(is_there, np.nan_to_num(starts)[:, None] + ranks - 1, 0).astype(np.int64)
    values = np.append(lists.values.to_numpy(), np.nan)  # so that there is one
    return np.where(is_there, values[places], np.nan)


def _sorted_lists(measured: nw.LazyFrame[Any], by: list[str], value: str) -> pa.Table:
    native = measured.to_native()
    if measured.implementation.is_duckdb():
        groups = ", ".join(f'"{name}"' for name in by)
        sorted_list = f'list_sort(list("{value}")) AS "{value}"'
        lists: pa.Table = native.aggregate(f"{groups}, {sorted_list}", groups).to_arrow_table()
    else:
        column = measured.implementation.to_native_namespace().col(value)
        lists = native.group_by(by).agg(column.sort()).collect().to_arrow()
    return lists
