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

from buildframe.metrics.columns import NAT, Flags, Integers
from buildframe.metrics.input_frames import RowGroups
from buildframe.metrics.numbered import earliest_by, latest_by, sum_by
from buildframe.metrics.ranked_groups import N_SPANS
from buildframe.metrics.time_buckets import Buckets

_CELLS = 128
"""Cells into which a bucket is divided, if they are of whole microseconds."""

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
    chosen = _find_timed(times, counts, counted)
    codes, n_groups = rows.codes[chosen], len(rows.keys)
    spans = _number_spans(codes, times[chosen], n_groups)
    return _sum(rows, counts, chosen, codes * N_SPANS + spans)


def sum_by_bucket(rows: RowGroups, buckets: Buckets, at: str, counts: Counts, counted: Sequence[str]) -> SpanSums:
    """Sum flags in each bucket, and in each span of its time.

    Spans of a bucket consist of its 128 equal cells, or of microseconds if its rows lie in fewer than 32 cells.
    """
    times = rows.columns[at].to_numpy(np.int64)
    cells = buckets.divide(_CELLS)
    per_bucket = len(cells) // max(len(buckets), 1)
    number, cell = np.divmod(cells.numbers_of(times), max(per_bucket, 1))
    split = RowGroups(rows.columns, number, pd.DataFrame(index=range(len(buckets) + 1)))  # the last one has no time
    chosen = _find_timed(times, counts, counted)
    codes, n_groups = number[chosen], len(split.keys)
    first, last = earliest_by(codes, cell[chosen], n_groups), latest_by(codes, cell[chosen], n_groups)
    is_short = last - first < _CELLS_OF_GROUP - 1
    of_cells = _number_spans(codes, cell[chosen], n_groups)
    of_times = _number_spans(codes, times[chosen], n_groups)
    spans = np.where(is_short[codes], of_times, of_cells)
    summed = _sum(split, counts, chosen, codes * N_SPANS + spans)
    return summed.filter(np.arange(n_groups) < len(buckets))


def sum_flags(codes: Integers, flags: npt.NDArray[np.bool_] | Integers, n_groups: int) -> Integers:
    """Sum flags or whole numbers in numbered groups."""
    if flags.dtype == np.bool_:
        return np.bincount(codes[flags], minlength=n_groups)
    return sum_by(codes, flags.astype(np.int64), n_groups)


def _find_timed(times: Integers, counts: Counts, counted: Sequence[str]) -> Integers:
    """Return the places of the rows that have a time and are counted."""
    is_counted = np.logical_or.reduce([counts[name].astype(bool) for name in counted])
    return np.flatnonzero(is_counted & (times != NAT))


def _number_spans(codes: Integers, times: Integers, n_groups: int) -> Integers:
    """Return the number of each row's span among those of its group.

    Times are counted in cells, whose length is a power of two, so that at least 32 of them hold a group.
    """
    first, last = earliest_by(codes, times, n_groups), latest_by(codes, times, n_groups)
    shift = np.zeros(n_groups, np.int64)
    while (fits := (last >> shift + 1) - (first >> shift + 1) + 1 >= _CELLS_OF_GROUP).any():
        shift[fits] += 1
    start = first >> shift
    n_cells = (last >> shift) - start + 1
    spans: Integers = ((times >> shift[codes]) - start[codes]) * N_SPANS // n_cells[codes]
    return spans


def _sum(rows: RowGroups, counts: Counts, chosen: Integers, cells: Integers) -> SpanSums:
    n_groups = len(rows.keys)
    sums = {name: sum_flags(rows.codes, flags, n_groups) for name, flags in counts.items()}
    spans = {
        name: sum_flags(cells, flags[chosen], n_groups * N_SPANS).reshape(-1, N_SPANS) for name, flags in counts.items()
    }
    return SpanSums(pd.DataFrame(sums, dtype="Int64"), spans)
