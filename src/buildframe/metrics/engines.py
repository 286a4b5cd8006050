"""Frames of any engine that narwhals knows (pandas, Polars, DuckDB): checked, counted in groups, or collected.

What needs only sums and ranks of groups runs inside the engine (`rows`, `tally`, `at_ranks`). What follows intervals or
sequences takes just the columns that it needs, as pandas (`collected`). In frames of pandas a function of rows, such
as `metrics.step`, is computed; in others it is the column that `metrics.with_seconds` has made of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.metrics.columns import require, typed
from buildframe.metrics.groups import By, groups_of, listed, named_apart

Frame = Any
"""A frame of pandas, Polars (eager or lazy) or DuckDB (a relation)."""

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

GROUP = "in group"
"""The column that holds the number of each row's group; in other engines those of its keys have this and a number."""

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
    try:
        found: nw.LazyFrame[Any] = nw.from_native(frame).lazy()
    except (TypeError, AttributeError):
        raise BadInput(f"A {type(frame).__name__} is no frame; give one of pandas, Polars or DuckDB.") from None
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
        return pd.DataFrame({name: typed(frame, name) for name in names}, index=frame.index)
    found, there = lazy(frame), columns_of(frame)
    require(there, needs)
    return as_pandas(found.select(*needs, *(name for name in wants if name in there)))


def as_pandas(found: nw.LazyFrame[Any]) -> pd.DataFrame:
    """What an engine found, with the dtypes of frames that are fetched."""
    whole = found.collect()
    if whole.implementation.is_pandas():
        return whole.to_pandas()
    return whole.to_arrow().to_pandas(types_mapper=_mapped)


def _mapped(kind: pa.DataType) -> Any:
    return pd.Int64Dtype() if pa.types.is_integer(kind) else _TYPES.get(kind)


# Times as numbers


def tick(name: str) -> str:
    """The column with the times of `name` as whole microseconds since 1970, UTC."""
    return f"{name} in microseconds"


def ticking(found: nw.LazyFrame[Any], names: Iterable[str]) -> nw.LazyFrame[Any]:
    """The rows with times as numbers, too: engines differ in what a difference of times is, and one is slow at it."""
    names, schema = list(dict.fromkeys(names)), found.collect_schema()
    for name in names:
        _check_zone(name, schema[name])
    native = found.to_native()
    if isinstance(native, pd.DataFrame):
        return nw.from_native(native.assign(**{tick(name): _ticks(native[name]) for name in names})).lazy()
    if found.implementation.is_duckdb():
        return nw.from_native(native.select("*", *(_in_duckdb(name) for name in names))).lazy()
    return found.with_columns(nw.col(name).dt.timestamp("us").alias(tick(name)) for name in names)


def _check_zone(name: str, dtype: Any) -> None:
    if dtype != nw.Datetime or dtype.time_zone is None:
        raise BadInput(f"The column {name!r} holds {dtype}, not times with a zone; say which zone they are in.")


def _ticks(times: pd.Series[Any]) -> Any:
    exact = times.to_numpy("datetime64[us]")
    return pd.arrays.IntegerArray(exact.view("int64"), np.isnat(exact))


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
    found, there = lazy(frame), columns_of(frame)
    names = [_name_of(key) for key in listed(by)]
    named_apart(names)
    require(there, [*needs, *names])
    keys = {f"{GROUP} {i}": nw.col(name) for i, name in enumerate(names)} or {GROUP: nw.lit(0)}
    wanted = [*needs, *(name for name in wants if name in there)]
    return Rows(found.select(*map(nw.col, dict.fromkeys(wanted)), **keys, **more), list(keys), names)


def _rows_of_pandas(frame: pd.DataFrame, needs: Sequence[str], by: By, more: dict[str, Any]) -> Rows:
    groups = groups_of(frame, by)
    columns = {name: typed(frame, name).array for name in needs}
    found = pd.DataFrame({**columns, **{name: np.asarray(new) for name, new in more.items()}, GROUP: groups.codes})
    return Rows(lazy(found), [GROUP], list(groups.keys.columns), groups.keys)


def _name_of(key: Any) -> str:
    return key if isinstance(key, str) else getattr(key, "__name__", "group")


def tally(found: Rows, **counts: nw.Expr) -> Tally:
    """The sums of these flags or whole numbers in each group, in the order of keys, null keys last."""
    numbers = {name: count.cast(nw.Int64).fill_null(0) for name, count in counts.items()}
    summed = found.frame.select(*found.by, **numbers).group_by(*found.by).agg(*(nw.col(name).sum() for name in counts))
    whole = as_pandas(summed.with_columns(nw.col(name).cast(nw.Int64) for name in counts))  # DuckDB's are decimals
    whole = whole.sort_values(found.by, na_position="last", ignore_index=True)
    sums = whole[list(counts)].astype("Int64")
    if found.keys is not None:
        return Tally(found.keys, whole[found.by], sums)
    keys = whole[found.by].set_axis(found.names, axis=1) if found.names else pd.DataFrame(index=whole.index)
    return Tally(keys, whole[found.by], sums)


def at_ranks(found: Rows, value: str, groups: pd.DataFrame, n: Integers, ranks: Integers) -> Floats:
    """Of each group (rows), the values of these ranks, 1 being the smallest; NaN where the rank is 0.

    `groups` and `n` (how many values are not null) as `tally` gives them; `ranks` is a matrix with one row a group.
    """
    native = found.frame.to_native()
    if isinstance(native, pd.DataFrame):
        return _at_ranks_of_pandas(native[GROUP].to_numpy(), native[value].to_numpy(), n, ranks)
    measured = found.frame.filter(~nw.col(value).is_null()).select(*found.by, value)
    return _at_ranks_in_engine(measured, found.by, value, groups, n, ranks)


def _at_ranks_of_pandas(codes: Integers, values: Floats, n: Integers, ranks: Integers) -> Floats:
    is_known = ~np.isnan(values)
    codes, values = codes[is_known], values[is_known]
    small = codes.astype(np.int16) if len(n) < 2**15 else codes  # whose sort takes no comparisons
    ordered = values[np.argsort(small, kind="stable")]
    starts = np.cumsum(n) - n
    for start, size in zip(starts, n, strict=True):
        ordered[start : start + size].sort()
    places = np.where(ranks > 0, starts[:, None] + ranks - 1, 0)
    return np.where(ranks > 0, ordered[places] if len(ordered) else np.nan, np.nan)


_MANY = 2**31


def _at_ranks_in_engine(
    measured: nw.LazyFrame[Any], by: list[str], value: str, groups: pd.DataFrame, n: Integers, ranks: Integers
) -> Floats:
    """Size and rank of a row tell whether it is wanted, so that no table need go into the engine to be joined."""
    wanted = np.unique((n[:, None] * _MANY + ranks)[ranks > 0])
    if not len(wanted):
        return np.full(ranks.shape, np.nan)
    size, rank = nw.col(value).count().over(*by), nw.col(value).rank("ordinal").over(*by)
    placed = measured.with_columns(size=size.cast(nw.Int64), rank=rank.cast(nw.Int64))
    picked = as_pandas(placed.filter((nw.col("size") * _MANY + nw.col("rank")).is_in(wanted.tolist())))
    numbered = picked.merge(groups.assign(number=range(len(groups))), on=by).set_index(["number", "rank"])[value]
    places = [np.repeat(np.arange(len(groups)), ranks.shape[1]), ranks.ravel()]
    return (
        numbered.reindex(pd.MultiIndex.from_arrays(places)).to_numpy(np.float64, na_value=np.nan).reshape(ranks.shape)
    )
