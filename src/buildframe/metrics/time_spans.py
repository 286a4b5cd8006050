"""Sum flags of groups over eight equal spans of the time of each group, in one pass over the rows.

Rows are counted in cells of time, from which spans are put together. Which cells a group has depends on its own rows
alone: other rows of the frame never change its spans. Groups that are short for the cells of a pass take further ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.columns import NAT, TIMESTAMP, Flags, Integers, microseconds
from buildframe.metrics.engines.dtypes import micros_column
from buildframe.metrics.engines.rows import GROUP, N_SPANS, PLACE, GroupedRows, GroupSums, Rows
from buildframe.metrics.time_buckets import Buckets

_CELLS = 128
"""Least number of cells in the time of all rows. Sums of twice as many cost little beside the pass over the rows."""

_CELLS_OF_GROUP = 32
"""Least number of cells from which spans are put together, so that one is at most a quarter longer than another."""

_CELL, _WIDTH = "cell", "width of a cell"
_FIRST, _LAST = "first cell", "last cell"


class SpanSums(NamedTuple):
    """Sums of flags: of groups, and (groups x spans) of the spans of their time."""

    groups: GroupSums
    spans: dict[str, Integers]

    def filter(self, chosen: Flags) -> SpanSums:
        """Return the sums of the chosen groups."""
        return SpanSums(self.groups.filter(chosen), {name: own[chosen] for name, own in self.spans.items()})


def sum_by_span(
    rows: GroupedRows, at: str, counts: Mapping[str, nw.Expr], counted: Sequence[str], source: Rows | None = None
) -> SpanSums:
    """Sum flags in each group, and in each span of its time `at`.

    This time reaches from the first to the last row that one of the flags `counted` counts, and only such rows are in
    spans. `source` has at least the same times, if the rows take longer to compute.
    """
    (ends,) = rows.engine.time_ranges(rows.frame if source is None else source, [at])
    first, last = microseconds(pd.Series(ends, dtype=TIMESTAMP))[:, None]
    shift = _find_shifts(first, last, _CELLS)
    edges = np.arange(first[0] >> shift[0], (last[0] >> shift[0]) + 2) << shift[0] if first[0] != NAT else first[:0]
    numbered = replace(rows, frame=rows.engine.with_bucket_numbers(rows.frame, at, edges, _CELL))
    n_cells = max(len(edges) - 1, 0)
    groups, cells = rows.engine.part_sums(numbered, _CELL, n_cells, **counts)
    cells = cells[cells[_CELL] < n_cells]
    cells = cells.assign(**{_CELL: cells[_CELL].to_numpy(np.int64) + (first[0] >> shift[0])})
    return _put_together(lambda: rows, groups, cells, at, counts, counted)


def sum_by_group_and_bucket(
    rows: GroupedRows, buckets: Buckets, at: str, counts: Mapping[str, nw.Expr], counted: Sequence[str]
) -> SpanSums:
    """Sum flags in each bucket of each group, 0 in empty ones, and in the spans of its time.

    The keys of the result have a row per group, and its sums one per group and bucket.
    """
    present, spans = sum_by_span(buckets.split_groups(rows, at), at, counts, counted)
    place, keys = buckets.place_groups(present.keys, rows.names)
    size = len(keys) * len(buckets)
    sums = present.sums.set_axis(place).reindex(range(size), fill_value=0)
    filled = {name: np.zeros((size, N_SPANS), np.int64) for name in spans}
    for name, own in spans.items():
        filled[name][place] = own
    return SpanSums(GroupSums(keys, pd.DataFrame({GROUP: range(size)}), sums), filled)


def sum_by_bucket(
    rows: GroupedRows, buckets: Buckets, at: str, counts: Mapping[str, nw.Expr], counted: Sequence[str]
) -> SpanSums:
    """Sum flags in each bucket, and in each span of its time."""
    cells, n_buckets = buckets.divide(_CELLS), len(buckets)
    summed = rows.engine.group_sums(cells.group_by_bucket(rows, at), **counts)
    number = summed.groups[GROUP].to_numpy(np.int64, na_value=len(cells))
    is_timed = number < len(cells)
    place, cell = np.divmod(number[is_timed], len(cells) // max(n_buckets, 1))
    parts = {name: summed.sums[name].to_numpy(np.int64)[is_timed] for name in counts}
    of_buckets = {name: np.bincount(place, own, n_buckets).astype(np.int64) for name, own in parts.items()}
    groups = GroupSums.numbered(pd.DataFrame(index=range(n_buckets)), of_buckets)
    own_cells = pd.DataFrame(parts | {PLACE: place, _CELL: cell})
    return _put_together(lambda: buckets.group_by_bucket(rows, at), groups, own_cells, at, counts, counted)


def _put_together(
    group: Callable[[], GroupedRows],
    groups: GroupSums,
    cells: pd.DataFrame,
    at: str,
    counts: Mapping[str, nw.Expr],
    counted: Sequence[str],
) -> SpanSums:
    """Return sums of spans from those of cells; groups that have few cells are counted again.

    `group` returns the rows, which only these need.
    """
    n_groups, n = len(groups.sums), np.sum([groups.sums[name].to_numpy(np.int64) for name in counted], axis=0)
    has_counted = np.flatnonzero(np.sum([cells[name].to_numpy() for name in counted], axis=0))
    own = {name: cells[name].to_numpy()[has_counted] for name in (PLACE, _CELL, *counts)}
    place, cell = own[PLACE], own[_CELL]
    first, last = np.full(n_groups, np.iinfo(np.int64).max), np.full(n_groups, -1)
    np.minimum.at(first, place, cell)
    np.maximum.at(last, place, cell)
    shift = _find_shifts(first, last, _CELLS_OF_GROUP)
    start = first >> shift
    n_cells = (last >> shift) - start + 1
    span = ((cell >> shift[place]) - start[place]) * N_SPANS // n_cells[place]
    spans = {name: _sum_spans(place, span, own[name], n_groups) for name in counts}
    short = np.flatnonzero((last - first < _CELLS_OF_GROUP - 1) & (n > N_SPANS / 2))  # others have too few spans anyway
    if len(short):
        rows = group()
        is_counted = nw.any_horizontal(*(counts[name] for name in counted), ignore_nulls=True)
        own_rows = replace(rows, frame=rows.frame.filter(is_counted & ~nw.col(at).is_null()))
        for name, exact in _sum_short(own_rows, groups.groups.iloc[short], at, counts).items():
            spans[name][short] = exact
    return SpanSums(groups, spans)


def _sum_short(rows: GroupedRows, groups: pd.DataFrame, at: str, counts: Mapping[str, nw.Expr]) -> dict[str, Integers]:
    """Sum flags in the spans of these groups, by cells that are made for each group."""
    engine, micros, groups = rows.engine, nw.col(micros_column(at)), groups.reset_index(drop=True)
    timed = engine.with_group_values(rows.with_micros([at]), groups, {})
    limits = engine.collect(timed.frame.group_by(*rows.by).agg(**{_FIRST: micros.min(), _LAST: micros.max()}))
    first, last = groups.merge(limits, how="left", on=rows.by)[[_FIRST, _LAST]].fillna(0).to_numpy(np.int64).T
    shift = _find_shifts(first, last, _CELLS_OF_GROUP)
    first, n_cells = first >> shift, (last >> shift) - (first >> shift) + 1
    fitted = engine.with_group_values(timed, groups, {_WIDTH: 1 << shift, _FIRST: first})
    fitted, size = fitted.with_columns(**{_CELL: micros // nw.col(_WIDTH) - nw.col(_FIRST)}), int(n_cells.max())
    present, cells = engine.part_sums(fitted, _CELL, size, **counts)
    cells = cells[cells[[*counts]].sum(axis=1) > 0]
    places = present.groups.merge(groups.assign(**{_FIRST: range(len(groups))}), how="left", on=rows.by)[_FIRST]
    place = places.to_numpy(np.float64)[cells[PLACE]].astype(np.int64)  # some engines return groups without rows, too
    span = cells[_CELL].to_numpy(np.int64) * N_SPANS // n_cells[place]
    return {name: _sum_spans(place, span, cells[name].to_numpy(np.int64), len(groups)) for name in counts}


def _find_shifts(first: Integers, last: Integers, n_cells: int) -> Integers:
    """Return the largest power of two of which at least so many cells hold these times; at least 0.

    Cells of one power fit into those of a larger one, so that shorter groups have the cells that they have alone.
    """
    shift = np.zeros(len(first), np.int64)
    while (fits := (last >> shift + 1) - (first >> shift + 1) + 1 >= n_cells).any():
        shift[fits] += 1
    return shift


def _sum_spans(place: Integers, span: Integers, sums: Integers, n_groups: int) -> Integers:
    of_spans = np.bincount(place * N_SPANS + span, sums, n_groups * N_SPANS)
    return of_spans.astype(np.int64).reshape(-1, N_SPANS)
