"""Sum flags of groups over eight equal spans of the time of each group.

How much these sums vary shows how far rows depend on each other. Which spans a group has depends on
its own rows alone: other rows of the frame never change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from buildframe.metrics.columns import NAT, Flags, Integers, first_and_last
from buildframe.metrics.input_frames import RowGroups
from buildframe.metrics.numbered import earliest_by, latest_by, sum_by
from buildframe.metrics.ranked_groups import N_SPANS
from buildframe.metrics.time_buckets import Buckets

_CELLS = 128
"""Least number of cells into which the time of all rows, or of a bucket, is divided."""

_CELLS_OF_GROUP = 32
"""Least number of cells in the spans of a group, so that spans differ by a quarter at most."""

Counts = Mapping[str, Flags | Integers]
"""Flags or whole numbers of rows, by name."""


class SpanSums(NamedTuple):
    """Sums of groups (Int64, a row per group), and of the spans of their time (groups x spans)."""

    sums: pd.DataFrame
    spans: dict[str, Integers]

    def filter(self, chosen: Flags) -> SpanSums:
        """Return the sums of the chosen groups."""
        sums = self.sums[chosen].reset_index(drop=True)
        return SpanSums(sums, {name: spans[chosen] for name, spans in self.spans.items()})


def sum_by_span(rows: RowGroups, at: str, counts: Counts, counted: Sequence[str]) -> SpanSums:
    """Sum flags in each group, and in each span of its time, the column `at` (microseconds).

    This time reaches from the first to the last row that one of the flags `counted` counts, and
    only such rows are in spans.
    """
    times = rows.columns[at].to_numpy(np.int64)
    cells, first_cell, n_cells = _number_cells(times, len(rows.keys))
    cells += rows.codes * (n_cells + 1)  # the last cell of a group has its rows without a time
    shape = (len(rows.keys), n_cells + 1)
    tables = {name: _sum_in_table(cells, flags, shape) for name, flags in counts.items()}
    timed = {name: table[:, :n_cells] for name, table in tables.items()}
    spans = _sum_spans(timed, counted, first_cell)
    is_short = _find_short_groups(timed, counted)
    if is_short.any():
        spans = _recount_short_groups(spans, is_short, rows.codes, times, counts, counted)
    return SpanSums(_sum_cells(tables), spans)


def sum_by_bucket(
    rows: RowGroups,
    buckets: Buckets,
    at: str,
    counts: Counts,
    counted: Sequence[str],
) -> SpanSums:
    """Sum flags in each bucket, and in each span of its time.

    Spans of a bucket consist of its 128 equal cells, or of microseconds if its rows lie in fewer
    than 32 cells.
    """
    times = rows.columns[at].to_numpy(np.int64)
    divided = buckets.divide(_CELLS)
    cells = divided.numbers_of(times)
    shape = (len(buckets), len(divided) // max(len(buckets), 1))
    tables = {name: _sum_in_table(cells, flags, shape) for name, flags in counts.items()}
    spans = _sum_spans(tables, counted)
    is_short = _find_short_groups(tables, counted)
    if is_short.any():
        numbers = buckets.numbers_of(times)
        spans = _recount_short_groups(spans, is_short, numbers, times, counts, counted)
    return SpanSums(_sum_cells(tables), spans)


def sum_flags(codes: Integers, flags: Flags | Integers, n_groups: int) -> Integers:
    """Sum flags or whole numbers in numbered groups."""
    if flags.dtype != np.bool_:
        return sum_by(codes, flags.astype(np.int64), n_groups)
    rows = np.flatnonzero(flags)  # selects in half the time that the flags themselves need
    return np.bincount(codes[rows], minlength=n_groups)


def _sum_in_table(cells: Integers, flags: Flags | Integers, shape: tuple[int, int]) -> Integers:
    """Sum flags in a table (groups x cells), whose cells are numbered; leave out those beyond."""
    size = shape[0] * shape[1]
    return sum_flags(cells, flags, size + 1)[:size].reshape(shape)


def _sum_cells(tables: Mapping[str, Integers]) -> pd.DataFrame:
    return pd.DataFrame({name: table.sum(axis=1) for name, table in tables.items()}, dtype="Int64")


def _number_cells(times: Integers, n_groups: int) -> tuple[Integers, int, int]:
    """Return the cell of each time, from 0, the number of the first cell, and how many there are.

    Rows without a time get the number of cells. There is one cell for many groups, because a table
    of them would be larger than the rows.
    """
    first, last = first_and_last(times)
    if first == NAT or 2 * _CELLS * n_groups > len(times) + 2**16:
        return (times == NAT).astype(np.int64), 0, 1
    shift = _find_shifts(np.array([first]), np.array([last]), _CELLS)[0]
    first_cell = first >> shift
    n_cells = int((last >> shift) - first_cell + 1)
    cells = times >> shift
    cells -= first_cell
    cells[times == NAT] = n_cells
    return cells, int(first_cell), n_cells


def _sum_spans(
    tables: Mapping[str, Integers],
    counted: Sequence[str],
    first_cell: int = 0,
) -> dict[str, Integers]:
    """Put spans (groups x spans) together from those cells that have counted rows."""
    n_counted = np.sum([tables[name] for name in counted], axis=0)
    group, cell = np.nonzero(n_counted)
    counts = {name: table[group, cell] for name, table in tables.items()}
    return _sum_by_eighths(group, cell + first_cell, counts, len(n_counted))


def _find_short_groups(tables: Mapping[str, Integers], counted: Sequence[str]) -> Flags:
    """Return groups in too few cells for spans, unless they have too few rows for an interval."""
    n_counted = np.sum([tables[name] for name in counted], axis=0)
    group, cell = np.nonzero(n_counted)
    n_groups = len(n_counted)
    n_cells = latest_by(group, cell, n_groups) - earliest_by(group, cell, n_groups) + 1
    is_short: Flags = (n_cells < _CELLS_OF_GROUP) & (n_counted.sum(axis=1) > N_SPANS / 2)
    return is_short


def _recount_short_groups(
    spans: Mapping[str, Integers],
    is_short: Flags,
    codes: Integers,
    times: Integers,
    counts: Counts,
    counted: Sequence[str],
) -> dict[str, Integers]:
    """Return spans in which those of short groups consist of cells that are made for each one."""
    is_counted = np.logical_or.reduce([counts[name].astype(bool) for name in counted])
    timed = np.flatnonzero(is_counted & (times != NAT))
    chosen = timed[is_short[codes[timed]]]
    chosen_counts = {name: flags[chosen] for name, flags in counts.items()}
    exact = _sum_by_eighths(codes[chosen], times[chosen], chosen_counts, len(is_short))
    return {name: np.where(is_short[:, None], exact[name], spans[name]) for name in counts}


def _sum_by_eighths(
    codes: Integers,
    times: Integers,
    counts: Counts,
    n_groups: int,
) -> dict[str, Integers]:
    """Sum counts in eighths of the time of each group.

    Times are counted in cells, whose length is a power of two, so that at least 32 of them hold a
    group.
    """
    first = earliest_by(codes, times, n_groups)
    last = latest_by(codes, times, n_groups)
    shift = _find_shifts(first, last, _CELLS_OF_GROUP)
    start = first >> shift
    n_cells = (last >> shift) - start + 1
    span = ((times >> shift[codes]) - start[codes]) * N_SPANS // n_cells[codes]
    place = codes * N_SPANS + span
    shape = (n_groups, N_SPANS)
    return {name: _sum_in_table(place, flags, shape) for name, flags in counts.items()}


def _find_shifts(first: Integers, last: Integers, n_cells: int) -> Integers:
    """Return the largest power of two of which at least so many cells hold these times; at least 0.

    Cells of one power fit into those of a larger one. So those of a group do not depend on others.
    """
    shift = np.zeros(len(first), np.int64)
    while (fits := (last >> shift + 1) - (first >> shift + 1) + 1 >= n_cells).any():
        shift[fits] += 1
    return shift
