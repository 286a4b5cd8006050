"""Compute exact values at ranks of groups, on any engine."""

from __future__ import annotations

import functools
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.metrics.engines import (
    GROUP,
    Floats,
    GroupedRows,
    Integers,
    as_pandas,
    spark,
    sums_by_code,
    to_lazy,
    to_typed_pandas,
)
from buildframe.metrics.engines.group_map import map_whole_groups
from buildframe.metrics.grouping import find_groups

_HASH, _MANY, _PLACE, _SECOND = "number", "many", "place", "second"

_FEW = 10_000
"""Of more groups than these, seconds are no fewer than rows, and a sort takes less."""


def values_at_ranks(found: GroupedRows, value: str, groups: pd.DataFrame, n: Integers, ranks: Integers) -> Floats:
    """Of each group (rows), the values of these ranks, 1 being the smallest; NaN where the rank is 0.

    `groups` and `n` (how many values are not null) as `tally` gives them; `ranks` is a matrix with one row a group.
    """
    native = found.frame.to_native()
    if isinstance(native, pd.DataFrame):
        return _at_ranks_of_pandas(native[GROUP].to_numpy(), native[value].to_numpy(), n, ranks)
    measured = found.frame.filter(~nw.col(value).is_null()).select(*found.by, value)
    many = _at_ranks_of_counts if len(groups) <= _FEW else _at_ranks_of_pieces
    way = _at_ranks_of_lists if found.frame.implementation.is_polars() else many
    return way(measured, found.by, value, groups, n, ranks)


def _check_same(many: Integers, before: Integers) -> None:
    """Raise BadInput if groups have other rows than when they were counted."""
    if not np.array_equal(many, before):
        raise BadInput(
            "The frame gives other rows each time that it is read, as a sample does, or a limit without an order; "
            "a summary reads it more than once. Keep its rows before: as a table in DuckDB, by cache() in Spark."
        )


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


def _at_ranks_of_lists(
    measured: nw.LazyFrame[Any], by: list[str], value: str, groups: pd.DataFrame, n: Integers, ranks: Integers
) -> Floats:
    """Polars sorts each group into a list."""
    column = measured.implementation.to_native_namespace().col(value)
    table: pa.Table = measured.to_native().group_by(by).agg(column.sort()).collect().to_arrow()
    lists: Any = table[value].combine_chunks()
    keys = to_typed_pandas(table.drop_columns([value]))
    keys = keys.assign(start=lists.offsets.to_numpy()[:-1], **{_MANY: lists.value_lengths().to_numpy()})
    own = groups.merge(keys, how="left", on=by)[["start", _MANY]].fillna(0).astype(np.int64)
    _check_same(own[_MANY].to_numpy(), n)
    is_there = (ranks > 0) & (n > 0)[:, None]
    places = np.where(is_there, own["start"].to_numpy()[:, None] + ranks - 1, -1)
    values = np.append(lists.values.to_numpy(), np.nan)  # so that there is one
    return np.where(is_there, values[places], np.nan)


# Of many rows, without a sort: first how many lie in each second, then those of the few seconds in which the ranks are


def _at_ranks_of_counts(
    measured: nw.LazyFrame[Any], by: list[str], value: str, groups: pd.DataFrame, n: Integers, ranks: Integers
) -> Floats:
    """The engine counts rows by seconds, and then values within the seconds that hold the ranks: both are few."""
    rows, cell = measured.with_columns(nw.col(value).floor().alias(_SECOND)), [*by, _SECOND]
    seconds = _placed(_hashed(_counted(rows, cell), cell), by, groups)
    _check_same(sums_by_code(seconds[_PLACE].to_numpy(np.int64), seconds[_MANY], len(n)), n)
    places, within = _holding(seconds, ranks)
    wanted = seconds.iloc[np.unique(places[ranks > 0])]
    values = _placed(_counted(_among(_hashed(rows, cell), wanted[_HASH]), [*cell, value]), by, groups)
    values = values.merge(wanted[[_PLACE, _SECOND]].assign(line=wanted.index), on=[_PLACE, _SECOND])
    values = values.sort_values(["line", value], ignore_index=True)
    lines = sums_by_code(values["line"].to_numpy(np.int64), values[_MANY], len(seconds))
    _check_same(lines[wanted.index], wanted[_MANY].to_numpy(np.int64))
    found, _ = _holding(values.assign(**{_PLACE: values["line"]}), within, places)
    return np.where(ranks > 0, np.append(values[value].to_numpy(np.float64), np.nan)[found], np.nan)


def _counted(rows: nw.LazyFrame[Any], kinds: list[str]) -> nw.LazyFrame[Any]:
    return rows.group_by(*kinds).agg(nw.len().cast(nw.Int64).alias(_MANY))


def _placed(counts: nw.LazyFrame[Any], by: list[str], groups: pd.DataFrame) -> pd.DataFrame:
    """The counts by the place of their group in `groups` and by second."""
    placed = as_pandas(counts).merge(groups.assign(**{_PLACE: range(len(groups))}), on=by)
    return placed.sort_values([_PLACE, _SECOND], ignore_index=True)


def _holding(counts: pd.DataFrame, ranks: Integers, places: Integers | None = None) -> tuple[Integers, Integers]:
    """Which of the rows, that stand in order, hold these ranks of the groups at `places`, and their ranks in there."""
    many, place = counts[_MANY].to_numpy(np.int64), counts[_PLACE].to_numpy(np.int64)
    if places is None:
        places = np.broadcast_to(np.arange(len(ranks))[:, None], ranks.shape)
    upto = np.concatenate([[0], np.cumsum(many)])
    wanted = upto[np.searchsorted(place, places)] + ranks
    rows = np.clip(np.searchsorted(upto, wanted) - 1, 0, max(len(many) - 1, 0))
    return rows, wanted - upto[rows]


def _hashed(rows: nw.LazyFrame[Any], names: list[str]) -> nw.LazyFrame[Any]:
    """Add a hash of these columns; nulls are equal."""
    if spark.is_spark(rows):
        return to_lazy(spark.with_hash(rows.to_native(), names, _HASH))
    from duckdb import ColumnExpression, ConstantExpression, FunctionExpression

    unsigned = FunctionExpression("hash", *map(ColumnExpression, names))
    number = FunctionExpression(">>", unsigned, ConstantExpression(1)).cast("BIGINT").alias(_HASH)
    return to_lazy(rows.to_native().select("*", number))


def _among(rows: nw.LazyFrame[Any], numbers: pd.Series[Any]) -> nw.LazyFrame[Any]:
    """Return the rows with one of these hashes."""
    if spark.is_spark(rows):
        return to_lazy(spark.semi_join(rows.to_native(), _HASH, numbers))
    return rows.filter(nw.col(_HASH).is_in(numbers.tolist()))


# Of many groups, each of few rows: sorted by groups, and ranked some at a time


def _at_ranks_of_pieces(
    measured: nw.LazyFrame[Any], by: list[str], value: str, groups: pd.DataFrame, n: Integers, ranks: Integers
) -> Floats:
    """Rows of a group come together, and leave the values of its ranks."""
    wanted = groups.assign(**{f"{_PLACE} {i}": ranks[:, i] for i in range(ranks.shape[1])})
    result = map_whole_groups(measured, by, functools.partial(_ranked, by, value, wanted))
    result = groups.merge(result, how="left", on=by)
    _check_same(result[_MANY].fillna(0).to_numpy(np.int64), n)
    return result[list(wanted.columns[len(by) :])].to_numpy(np.float64, na_value=np.nan)


def _ranked(by: list[str], value: str, wanted: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Of whole groups how many rows they have, and the values of the ranks that are wanted."""
    codes, keys = find_groups(rows, list(by))
    many = np.bincount(codes, minlength=len(keys))
    values = np.append(rows[value].to_numpy(np.float64)[np.lexsort((rows[value], codes))], np.nan)
    names = list(wanted.columns[len(by) :])
    ranks = keys.merge(wanted, how="left", on=by)[names].fillna(0).to_numpy(np.int64)
    is_there = (ranks > 0) & (ranks <= many[:, None])
    places = np.where(is_there, (np.cumsum(many) - many)[:, None] + ranks - 1, -1)
    found = np.where(is_there, values[places], np.nan)
    return keys.assign(**{_MANY: many, **dict(zip(names, found.T, strict=True))})
