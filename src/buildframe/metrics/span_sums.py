"""Sum flags of groups over eight equal spans of the time of each group.

How much these sums vary shows how far rows depend on each other. Which spans a group has depends on
its own rows alone: other rows of the frame never change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from buildframe.metrics.columns import NAT, Flags, Integers, first_and_last
from buildframe.metrics.input_frames import RowGroups
from buildframe.metrics.numbered import earliest_by, latest_by, sum_by
from buildframe.metrics.ranked_groups import N_SPANS
from buildframe.metrics.time_buckets import Buckets

_CELLS = 128
"""Least number of cells into which the time of all rows, or of a bucket, is divided."""

_CELLS_OF_GROUP = 32
"""Least number of cells from which spans are put together, so that one is at most a quarter longer than another."""

Counts = Mapping[str, npt.NDArray[np.bool_] | Integers]
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
    n_groups = len(rows.keys)
    cells, first_cell, n_cells = _number_cells(times, n_groups)
    cells += rows.codes * (n_cells + 1)  # the last cell of a group has its rows without a time
    in_cells = {name: _sum_in_table(cells, flags, n_groups, n_cells + 1) for name, flags in counts.items()}
    sums = pd.DataFrame({name: table.sum(axis=1) for name, table in in_cells.items()}, dtype="Int64")
    in_time = {name: table[:, :n_cells] for name, table in in_cells.items()}
    spans = _sum_spans(rows.codes, times, in_time, first_cell, counts, counted)
    return SpanSums(sums, spans)


def sum_by_bucket(rows: RowGroups, buckets: Buckets, at: str, counts: Counts, counted: Sequence[str]) -> SpanSums:
    """Sum flags in each bucket, and in each span of its time.

    Spans of a bucket consist of its 128 equal cells, or of microseconds if its rows lie in fewer than 32 cells.
    """
    times = rows.columns[at].to_numpy(np.int64)
    divided = buckets.divide(_CELLS)
    n_cells = len(divided) // max(len(buckets), 1)
    cells = divided.numbers_of(times)
    in_cells = {name: _sum_in_table(cells, flags, len(buckets), n_cells) for name, flags in counts.items()}
    sums = pd.DataFrame({name: table.sum(axis=1) for name, table in in_cells.items()}, dtype="Int64")
    spans = _sum_spans(cells // max(n_cells, 1), times, in_cells, 0, counts, counted)
    return SpanSums(sums, spans)


def sum_flags(codes: Integers, flags: npt.NDArray[np.bool_] | Integers, n_groups: int) -> Integers:
    """Sum flags or whole numbers in numbered groups."""
    if flags.dtype == np.bool_:
        return np.bincount(codes[flags], minlength=n_groups)
    return sum_by(codes, flags.astype(np.int64), n_groups)


def _number_cells(times: Integers, n_groups: int) -> tuple[Integers, int, int]:
    """Return the cell of each time, counted from the first one, which one that is, and how many there are.

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


def _sum_in_table(cells: Integers, flags: npt.NDArray[np.bool_] | Integers, n_groups: int, n_cells: int) -> Integers:
    """Sum flags in a table (groups x cells); those beyond the last cell are left out."""
    size = n_groups * n_cells
    return sum_flags(cells, flags, size + 1)[:size].reshape(n_groups, n_cells)


def _sum_spans(
    codes: Integers,
    times: Integers,
    in_cells: Mapping[str, Integers],
    first_cell: int,
    counts: Counts,
    counted: Sequence[str],
) -> dict[str, Integers]:
    """Put spans (groups x spans) together from cells; groups in few cells are counted by their times."""
    n_counted = np.sum([in_cells[name] for name in counted], axis=0)
    n_groups = len(n_counted)
    group, cell = np.nonzero(n_counted)
    cell_sums = {name: sums[group, cell] for name, sums in in_cells.items()}
    spans = _sum_by_span(group, cell + first_cell, cell_sums, n_groups)
    n_used = latest_by(group, cell, n_groups) - earliest_by(group, cell, n_groups) + 1
    has_enough_rows = n_counted.sum(axis=1) > N_SPANS / 2  # others have too few for an interval
    is_short = (n_used < _CELLS_OF_GROUP) & has_enough_rows
    if is_short.any():
        is_counted = np.logical_or.reduce([counts[name].astype(bool) for name in counted])
        timed = np.flatnonzero(is_counted & (times != NAT))
        chosen = timed[is_short[codes[timed]]]
        row_counts = {name: flags[chosen] for name, flags in counts.items()}
        exact = _sum_by_span(codes[chosen], times[chosen], row_counts, n_groups)
        for name, sums in exact.items():
            spans[name][is_short] = sums[is_short]
    return spans


def _sum_by_span(codes: Integers, times: Integers, counts: Counts, n_groups: int) -> dict[str, Integers]:
    """Sum counts in eighths of the time of each group.

    Times are counted in cells, whose length is a power of two, so that at least 32 of them hold a group.
    """
    first = earliest_by(codes, times, n_groups)
    last = latest_by(codes, times, n_groups)
    shift = _find_shifts(first, last, _CELLS_OF_GROUP)
    start = first >> shift
    n_cells = (last >> shift) - start + 1
    span = ((times >> shift[codes]) - start[codes]) * N_SPANS // n_cells[codes]
    place = codes * N_SPANS + span
    return {name: _sum_in_table(place, flags, n_groups, N_SPANS) for name, flags in counts.items()}


def _find_shifts(first: Integers, last: Integers, n_cells: int) -> Integers:
    """Return the largest power of two of which at least so many cells hold these times; at least 0.

    Cells of one power fit into those of a larger one. So those of a group do not depend on others.
    """
    shift = np.zeros(len(first), np.int64)
    while (fits := (last >> shift + 1) - (first >> shift + 1) + 1 >= n_cells).any():
        shift[fits] += 1
    return shift
