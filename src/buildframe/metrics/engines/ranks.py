"""Find exact values at ranks of groups by counting in the engine, without a sort of all rows."""

from __future__ import annotations

import functools
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.columns import Floats, Integers
from buildframe.metrics.engines.pandas import sums_by_code
from buildframe.metrics.engines.protocol import Engine, GroupedRows, Rows
from buildframe.metrics.grouping import find_groups

_HASH, _COUNT, _PLACE, _SECOND = "hash", "count", "place", "second"

_MAX_COUNTED = 10_000
"""Of more groups, seconds are no fewer than rows, and a sort takes less."""


class CountingEngine(Engine):
    """Engines whose memory is bounded: few groups are counted by second, many are sorted and streamed."""

    @abstractmethod
    def with_hash(self, rows: Rows, names: Sequence[str], name: str) -> Rows:
        """Add a hash of these columns; nulls are equal."""

    @abstractmethod
    def having(self, rows: Rows, name: str, values: pd.Series[Any]) -> Rows:
        """Return the rows that have one of these integers in a column."""

    def values_at_ranks(self, rows: GroupedRows, groups: pd.DataFrame, n: Integers, ranks: Integers) -> Floats:
        known = rows.frame.filter(~nw.col("value").is_null()).select(*rows.by, "value")
        way = self._by_counts if len(groups) <= _MAX_COUNTED else self._by_stream
        return way(known, rows.by, groups, n, ranks)

    def _by_counts(self, rows: Rows, by: list[str], groups: pd.DataFrame, n: Integers, ranks: Integers) -> Floats:
        """Count rows by second, and then values within the seconds that hold the ranks: both are few."""
        rows, cell = rows.with_columns(nw.col("value").floor().alias(_SECOND)), [*by, _SECOND]
        seconds = self._with_places(self.with_hash(_count_rows(rows, cell), cell, _HASH), by, groups)
        check_same_rows(sums_by_code(seconds[_PLACE].to_numpy(np.int64), seconds[_COUNT], len(n)), n)
        places, within = _find_ranks(seconds, ranks)
        selected = seconds.iloc[np.unique(places[ranks > 0])]
        candidates = self.having(self.with_hash(rows, cell, _HASH), _HASH, selected[_HASH])
        values = self._with_places(_count_rows(candidates, [*cell, "value"]), by, groups)
        values = values.merge(selected[[_PLACE, _SECOND]].assign(line=selected.index), on=[_PLACE, _SECOND])
        values = values.sort_values(["line", "value"], ignore_index=True)
        lines = sums_by_code(values["line"].to_numpy(np.int64), values[_COUNT], len(seconds))
        check_same_rows(lines[selected.index], selected[_COUNT].to_numpy(np.int64))
        found, _ = _find_ranks(values.assign(**{_PLACE: values["line"]}), within, places)
        return np.where(ranks > 0, np.append(values["value"].to_numpy(np.float64), np.nan)[found], np.nan)

    def _with_places(self, counts: Rows, by: list[str], groups: pd.DataFrame) -> pd.DataFrame:
        """Return the counts, ordered by the place of their group in `groups` and by second."""
        placed = self.collect(counts).merge(groups.assign(**{_PLACE: range(len(groups))}), on=by)
        return placed.sort_values([_PLACE, _SECOND], ignore_index=True)

    def _by_stream(self, rows: Rows, by: list[str], groups: pd.DataFrame, n: Integers, ranks: Integers) -> Floats:
        """Rank whole groups, a bounded number of rows at a time."""
        requested = groups.assign(**{f"{_PLACE} {i}": ranks[:, i] for i in range(ranks.shape[1])})
        result = self.map_whole_groups(rows, by, functools.partial(_rank_groups, by, requested))
        result = groups.merge(result, how="left", on=by)
        check_same_rows(result[_COUNT].fillna(0).to_numpy(np.int64), n)
        return result[list(requested.columns[len(by) :])].to_numpy(np.float64, na_value=np.nan)


def check_same_rows(n: Integers, before: Integers) -> None:
    """Raise BadInput if groups have other numbers of rows than when they were counted."""
    if not np.array_equal(n, before):
        raise BadInput(
            "The frame gives other rows each time it is read, as a sample does, or a limit without an order. "
            "A summary reads it more than once. Store its rows first: as a table in DuckDB, by cache() in Spark."
        )


def _count_rows(rows: Rows, names: list[str]) -> Rows:
    return rows.group_by(*names).agg(nw.len().cast(nw.Int64).alias(_COUNT))


def _find_ranks(counts: pd.DataFrame, ranks: Integers, places: Integers | None = None) -> tuple[Integers, Integers]:
    """Return which ordered counts hold these ranks of the groups at `places`, and the ranks within those."""
    many, place = counts[_COUNT].to_numpy(np.int64), counts[_PLACE].to_numpy(np.int64)
    if places is None:
        places = np.broadcast_to(np.arange(len(ranks))[:, None], ranks.shape)
    cumulative = np.concatenate([[0], np.cumsum(many)])
    requested = cumulative[np.searchsorted(place, places)] + ranks
    rows = np.clip(np.searchsorted(cumulative, requested) - 1, 0, max(len(many) - 1, 0))
    return rows, requested - cumulative[rows]


def _rank_groups(by: list[str], requested: pd.DataFrame, rows: pd.DataFrame) -> pd.DataFrame:
    """Return for whole groups their number of rows, and the values of the requested ranks."""
    codes, keys = find_groups(rows, list(by))
    many = np.bincount(codes, minlength=len(keys))
    values = np.append(rows["value"].to_numpy(np.float64)[np.lexsort((rows["value"], codes))], np.nan)
    names = list(requested.columns[len(by) :])
    ranks = keys.merge(requested, how="left", on=by)[names].fillna(0).to_numpy(np.int64)
    is_there = (ranks > 0) & (ranks <= many[:, None])
    places = np.where(is_there, (np.cumsum(many) - many)[:, None] + ranks - 1, -1)
    found = np.where(is_there, values[places], np.nan)
    return keys.assign(**{_COUNT: many, **dict(zip(names, found.T, strict=True))})
