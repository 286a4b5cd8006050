"""Rank values of groups by counting in the engine, without a sort of all rows. The values are exact."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa

from buildframe.errors import BadInput
from buildframe.metrics.columns import NAT, Flags, Floats, Integers
from buildframe.metrics.durations import Span
from buildframe.metrics.engines import normal_scores
from buildframe.metrics.engines.dtypes import to_typed_pandas
from buildframe.metrics.engines.intervals import AT
from buildframe.metrics.engines.protocol import Engine
from buildframe.metrics.engines.rows import (
    N_SPANS,
    PLACE,
    ROWS,
    SECOND,
    SEEN_FOR,
    SPAN,
    Days,
    GroupedRows,
    GroupSums,
    RankedFunction,
    RankedRows,
    RankedValues,
    Rows,
    SplitBy,
    Splits,
)
from buildframe.metrics.engines.sorted_rows import CensoredRows, SortedRows, span_scale
from buildframe.metrics.grouping import find_groups
from buildframe.metrics.numbered import earliest_by, latest_by

_LEAVES, _ZONE, _LINE, _FIRST, _LAST, _SCALE = "leaves", "zone", "line", "first", "last", "scale"
_CENSORED = "n_censored"

_MAX_COUNTED = 10_000
"""Of more groups, seconds are no fewer than rows, and a sort takes less."""

_MAX_SECONDS = 5_000_000
"""With more seconds of groups, groups are counted first: a group of each few rows needs no seconds. Some 500 MB."""

_NO_SECOND = -(2**62)


class CountingEngine(Engine):
    """Engines whose memory is bounded: few groups are counted by second, many are sorted and streamed."""

    def _sum_flags(self, flags: nw.Expr) -> nw.Expr:
        return flags.cast(nw.Float64).sum().cast(nw.Int64)  # exact, and takes DuckDB half the time of integers

    def count_values(self, rows: GroupedRows, span: Span | None, at: SplitBy) -> GroupSums:
        """Count by second, which gives the sums of groups, too, without another pass over the rows."""
        counts = self.to_arrow(self._count_seconds(rows, span, at).head(_MAX_SECONDS + 1))
        if counts.num_rows > _MAX_SECONDS:
            return super().count_values(rows, span, at)
        codes, groups = find_groups(to_typed_pandas(counts.select(rows.by)), rows.by)
        seconds = _to_numbers(counts.drop_columns(rows.by)).assign(**{PLACE: codes})
        n, second = seconds[ROWS].to_numpy(), seconds[SECOND].to_numpy(np.float64)
        sums = {"n": np.where(np.isnan(second), 0, n), "n_negative": np.where(second < 0, n, 0)}
        if span is not None:
            sums["n_censored"] = seconds[_CENSORED].to_numpy()
        of_groups = {name: _sum_by(codes, own, len(groups)) for name, own in sums.items()}
        few = seconds if len(groups) <= _MAX_COUNTED else None
        return GroupSums(rows.name_keys(groups), groups, pd.DataFrame(of_groups, dtype="Int64"), few)

    def _count_seconds(self, rows: GroupedRows, span: Span | None, at: SplitBy) -> Rows:
        """Count the rows of each group by second, censored ones by when they leave, and find the limits of times."""
        limits = {_FIRST: nw.col(AT).min(), _LAST: nw.col(AT).max()} if isinstance(at, str) else {}
        censored = {} if span is None else {_CENSORED: self._sum_flags(nw.col("censored"))}
        names = [SECOND] if span is None else [SECOND, _LEAVES]
        return _count_rows(self._with_seconds(rows, span, at).frame, [*rows.by, *names], **censored, **limits)

    def _with_seconds(self, rows: GroupedRows, span: Span | None, at: SplitBy) -> GroupedRows:
        """Return what ranking needs, with the second of a value, or by which a censored row leaves: null if unknown.

        Rows with neither remain, because a filter takes longer.
        """
        columns = self.ranking_columns(rows, span, at).with_columns(**{SECOND: nw.col("value").floor().cast(nw.Int64)})
        if span is not None:
            columns = columns.with_columns(**{_LEAVES: (nw.col(SEEN_FOR).floor() + 1).cast(nw.Int64)})
        return replace(rows, frame=columns)

    def with_normal_scores(self, rows: GroupedRows) -> GroupedRows:
        """Score the distinct values, of which there are few if times are milliseconds, and not all rows.

        The value is the first key of the join: Spark sorts by its keys, and faster if rows differ in the first.
        """
        scores = normal_scores.score_values(rows.frame.select(*rows.by, "value"), rows.by)
        return replace(rows, frame=self._joined(rows.frame, scores, ["value", *rows.by]))

    def rank_values(self, rows: GroupedRows, counts: GroupSums) -> RankedValues:
        if counts.ranked is None and len(counts.groups) > _MAX_COUNTED:
            return _StreamedValues(functools.partial(self.map_ranked, rows, counts))
        return self.rank_rows(rows, counts, None, None)

    def rank_rows(self, rows: GroupedRows, counts: GroupSums, span: Span | None, at: SplitBy) -> RankedRows:
        if counts.ranked is not None:
            return counts.ranked
        if counts.seconds is None:
            table = self.to_arrow(self._count_seconds(rows, span, at))
            places = counts.groups.assign(**{PLACE: range(len(counts.groups))})
            own = to_typed_pandas(table.select(rows.by)).merge(places, how="left", on=rows.by)[PLACE]
            seconds = _to_numbers(table.drop_columns(rows.by)).assign(**{PLACE: own}).dropna(subset=PLACE)
            counts = replace(counts, seconds=seconds)
        return _CountedRows(self._with_seconds(rows, span, at), counts, span, at)

    def map_ranked(
        self, rows: GroupedRows, counts: GroupSums, of: RankedFunction, span: Span | None = None, at: SplitBy = None
    ) -> Floats:
        groups, n = counts.groups, counts.n_values
        if counts.ranked is not None or len(groups) <= _MAX_COUNTED:
            return super().map_ranked(rows, counts, of, span, at)
        placed = groups.assign(**{PLACE: range(len(groups))})
        columns = self.ranking_columns(rows, span, at)
        result = self.map_whole_groups(columns, rows.by, functools.partial(_map_sorted, rows.by, placed, of, at))
        place = result.pop(PLACE).to_numpy(np.int64)
        counted = np.zeros(len(groups), np.int64)
        counted[place] = result.pop(ROWS)
        check_same_rows(counted, n)
        mapped = np.full((len(groups), result.shape[1]), np.nan)
        mapped[place] = result.to_numpy(np.float64, na_value=np.nan)
        return mapped

    def filter_times(self, rows: Rows, at: str, ranges: Sequence[tuple[int, int]]) -> Rows:
        """Compare timestamps, because engines skip parts of tables and files by the limits of their columns."""
        time = nw.col(at)
        limits = (pd.to_datetime(own, unit="us", utc=True).to_pydatetime() for own in ranges)
        return rows.filter(functools.reduce(operator.or_, ((time >= start) & (time < end) for start, end in limits)))


class _CountedRows(RankedRows):
    """Few groups: rows are counted by second, and then by value within the seconds that hold ranks, which are few."""

    def __init__(self, rows: GroupedRows, counts: GroupSums, span: Span | None, at: SplitBy) -> None:
        assert counts.seconds is not None
        self.n, self._rows, self._groups, self._at = counts.n_values, rows, counts.groups, at
        self._n_spans = at.n if isinstance(at, Days) else N_SPANS
        self._leaves = [] if span is None else [_LEAVES]
        has_ended = counts.seconds[SECOND].notna().to_numpy()
        has_left = counts.seconds[self._leaves].notna().any(axis=1).to_numpy()
        ended = counts.seconds.loc[has_ended, [PLACE, SECOND, ROWS]].astype(np.int64)
        second = ended[SECOND].to_numpy()
        self._lowest, self._highest = second.min(initial=0), second.max(initial=0) + 1
        keys = self._number(ended[PLACE].to_numpy(), second)
        order = np.argsort(keys)  # takes half as long as a sort by two columns
        self._keys, self._seconds = keys[order], ended.take(order)
        check_same_rows(_sum_by(self._seconds[PLACE], self._seconds[ROWS], len(self.n)), self.n)
        self._cumulative = np.concatenate([[0], np.cumsum(self._seconds[ROWS].to_numpy())])
        left = counts.seconds[has_left].sort_values([PLACE, *self._leaves], kind="stable")
        self.leaving = _select_leaving(left, [PLACE, SECOND, ROWS])
        self._limits = self._find_limits(counts.seconds, has_ended | has_left) if isinstance(at, str) else {}

    def _collect(self, rows: Rows) -> pd.DataFrame:
        return _to_numbers(self._rows.engine.to_arrow(rows))

    def _find_limits(self, seconds: pd.DataFrame, is_counted: Flags) -> dict[str, Integers | Floats]:
        """Return the first time of each group, and the factor that makes spans."""
        is_known = is_counted & seconds[_FIRST].notna().to_numpy()
        place, of_first, of_last = (
            seconds[name].to_numpy()[is_known].astype(np.int64) for name in (PLACE, _FIRST, _LAST)
        )
        first, last = earliest_by(place, of_first, len(self.n)), latest_by(place, of_last, len(self.n))
        first, last = (np.where(ends == NAT, 0, ends) for ends in (first, last))
        return {_FIRST: first, _SCALE: span_scale(last - first + 1)}

    def values_at(self, ranks: Integers) -> Floats:
        if not ranks.any():
            return np.full(ranks.shape, np.nan)
        lines, within = self._find_lines(ranks)
        line = np.unique(lines[ranks > 0])
        selected = self._seconds.iloc[line]
        groups = self._groups.take(selected[PLACE].to_numpy()).reset_index(drop=True)
        seconds = groups.assign(**{SECOND: selected[SECOND].to_numpy()})
        rows = replace(self._rows, by=[*self._rows.by, SECOND]).select("value")
        numbered = rows.engine.with_group_values(rows, seconds, {_LINE: line}).frame
        counts = self._collect(_count_rows(numbered, [_LINE, "value"]))
        return self._find_values(counts, counts[_LINE].to_numpy(np.int64), lines, within, ranks)

    def split_at(self, ranks: Integers, others: Integers) -> tuple[Floats, Splits | None]:
        """Count by span and value in one query; other rows by how many seconds with ranks come before theirs."""
        if self._at is None:
            return self.values_at(others), None
        both = np.concatenate([ranks, others], axis=1)
        lines, within = self._find_lines(both)
        seconds = self._select_seconds(lines[both > 0])
        counted = self._count_zones(seconds)
        zones = counted.dropna(subset=_ZONE)
        check_same_rows(_sum_by(zones[PLACE], zones[ROWS], len(self.n)), self.n)
        counts = zones.dropna(subset="value")
        line = self._find_line(counts[PLACE].to_numpy(np.int64), np.floor(counts["value"]).astype(np.int64))
        values = self._find_values(counts, np.asarray(line), lines, within, both)
        limits, values = np.split(values, [ranks.shape[1]], axis=1)
        splits = self._split(zones.dropna(subset=SPAN), limits, seconds)
        return values, Splits(*splits, _select_leaving(counted, [PLACE, SPAN, SECOND, ROWS]))

    def _count_zones(self, seconds: Integers) -> pd.DataFrame:
        numbered = {str(i): second for i, second in enumerate(seconds.T)}
        places = {PLACE: np.arange(len(self.n)), **numbered, **self._limits}
        rows = self._rows.engine.with_group_values(self._rows, self._groups, places).frame
        zone = sum(((nw.col(name) < nw.col(SECOND)).cast(nw.Int64) for name in numbered), nw.lit(0))
        value = nw.when(_is_one_of(len(numbered))).then(nw.col("value"))
        zones = rows.select(PLACE, *self._leaves, value=value, **{SPAN: self._span(), _ZONE: zone})
        return self._collect(_count_rows(zones, [PLACE, SPAN, _ZONE, "value", *self._leaves]))

    def _span(self) -> nw.Expr:
        if isinstance(self._at, Days):
            return nw.col(AT).cast(nw.Int64)
        micros = (nw.col(AT) - nw.col(_FIRST)).cast(nw.Float64)
        return (micros * nw.col(_SCALE)).floor().cast(nw.Int64)

    def _split(self, zones: pd.DataFrame, limits: Floats, seconds: Integers) -> tuple[Integers, Integers]:
        """Count the rows in each span, and those up to each limit."""
        place, span, zone, rows = (zones[name].to_numpy(np.int64) for name in (PLACE, SPAN, _ZONE, ROWS))
        value, cell = zones["value"].to_numpy(np.float64, na_value=np.nan), place * self._n_spans + span
        shape = len(self.n), self._n_spans
        hits = np.zeros((len(self.n), limits.shape[1], shape[1]), np.int64)
        for i, limit in enumerate(limits.T):
            zone_of_limit = (seconds < np.floor(limit)[:, None]).sum(axis=1)
            is_up_to = np.where(np.isnan(value), zone <= zone_of_limit[place], value <= limit[place])
            is_up_to &= ~np.isnan(limit)[place]
            hits[:, i] = _sum_by(cell[is_up_to], rows[is_up_to], shape[0] * shape[1]).reshape(shape)
        return _sum_by(cell, rows, shape[0] * shape[1]).reshape(shape), hits

    def count_before(self, group: Integers, second: Integers) -> Integers:
        lines = self._find_line(group, second)
        counts: Integers = self._cumulative[lines] - self._cumulative[self._find_line(group, _NO_SECOND)]
        return counts

    def seconds_at(self, ranks: Integers) -> Floats:
        lines, _ = self._find_lines(ranks)
        seconds = np.append(self._seconds[SECOND].to_numpy(np.float64), np.nan)
        return np.where(ranks > 0, seconds[lines] + 1, np.nan)

    def _find_line(self, place: Any, second: Any) -> Integers:
        """Return the first line of the counts by second that is not before these seconds of groups."""
        return np.asarray(np.searchsorted(self._keys, self._number(place, second)), np.int64)

    def _number(self, place: Any, second: Any) -> Integers:
        """Number seconds of groups in their order."""
        numbers: Integers = place * (self._highest - self._lowest + 1) + np.clip(second, self._lowest, self._highest)
        return numbers

    def _find_lines(self, ranks: Integers) -> tuple[Integers, Integers]:
        """Return which counts by second hold these ranks, and the ranks within those."""
        return _find_ranks(self._cumulative, self._find_line(np.arange(len(self.n)), _NO_SECOND)[:, None], ranks)

    def _select_seconds(self, lines: Integers) -> Integers:
        """Return the seconds on these lines in order (groups x any); the last is repeated in groups with fewer."""
        selected = self._seconds.iloc[np.unique(lines)]
        place, second = selected[PLACE].to_numpy(np.int64), selected[SECOND].to_numpy(np.int64)
        number = np.arange(len(place)) - np.searchsorted(place, place)
        seconds = np.full((len(self.n), number.max(initial=0) + 1), _NO_SECOND)
        seconds[place, number] = second
        return np.maximum.accumulate(seconds, axis=1)

    def _find_values(
        self, counts: pd.DataFrame, line: Integers, lines: Integers, within: Integers, ranks: Integers
    ) -> Floats:
        """Return the values of ranks on these lines, from counts of the values there; `line` is that of each."""
        value = counts["value"].to_numpy(np.float64)
        order = np.lexsort((value, line))
        value, line, rows = value[order], line[order], counts[ROWS].to_numpy(np.int64)[order]
        selected = np.unique(lines[ranks > 0])
        in_lines = _sum_by(line, rows, len(self._seconds) + 1)[selected]
        check_same_rows(in_lines, self._seconds[ROWS].to_numpy(np.int64)[selected])
        found, _ = _find_ranks(np.concatenate([[0], np.cumsum(rows)]), np.searchsorted(line, lines), within)
        return np.where(ranks > 0, np.append(value, np.nan)[found], np.nan)


class _StreamedValues(RankedValues):
    """Values of many groups, which are sorted with each call, a bounded number of rows at a time."""

    def __init__(self, map_ranked: Callable[[RankedFunction], Floats]) -> None:
        self._map_ranked = map_ranked

    def values_at(self, ranks: Integers) -> Floats:
        return self._map_ranked(functools.partial(_values_at, ranks))


def _values_at(ranks: Integers, rows: RankedRows, places: Integers) -> Floats:
    return rows.values_at(ranks[places])


def check_same_rows(n: Integers, before: Integers) -> None:
    """Raise BadInput if groups have other numbers of rows than when they were counted."""
    if not np.array_equal(n, before):
        raise BadInput(
            "The frame gives other rows each time it is read, as a sample does, or a limit without an order. "
            "A summary reads it more than once. Store its rows first: as a table in DuckDB, by cache() in Spark."
        )


def _is_one_of(number: int) -> nw.Expr:
    """Match rows whose second is one of the group's numbered columns."""
    return nw.any_horizontal(*(nw.col(str(i)) == nw.col(SECOND) for i in range(number)), ignore_nulls=False)


def _count_rows(rows: Rows, names: list[str], **more: nw.Expr) -> Rows:
    return rows.group_by(*names).agg(nw.len().cast(nw.Int64).alias(ROWS), **more)


def _to_numbers(table: pa.Table) -> pd.DataFrame:
    """Return counts as plain numbers, which take less time than those of pandas that can be null."""
    return pd.DataFrame({name: table[name].to_numpy() for name in table.column_names})


def _select_leaving(counts: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    """Return the counts of censored rows, with the second by which they have left."""
    left = counts.drop(columns=SECOND, errors="ignore").rename(columns={_LEAVES: SECOND}).reindex(columns=names)
    return left.dropna().astype(np.int64).reset_index(drop=True)


def _sum_by(codes: Any, rows: Any, many: int) -> Integers:
    return np.bincount(np.asarray(codes, np.int64), np.asarray(rows, np.int64), many).astype(np.int64)


def _find_ranks(cumulative: Integers, first: Integers, ranks: Integers) -> tuple[Integers, Integers]:
    """Return the lines that hold the ranks counted from the lines `first`, and the ranks within those."""
    requested = cumulative[first] + ranks
    lines = np.clip(np.searchsorted(cumulative, requested) - 1, 0, max(len(cumulative) - 2, 0))
    return lines, requested - cumulative[lines]


def _map_sorted(
    by: Sequence[str], groups: pd.DataFrame, of: RankedFunction, at: SplitBy, rows: pd.DataFrame
) -> pd.DataFrame:
    """Apply `of` to whole groups; those that are not in `groups` are left out."""
    codes, keys = find_groups(rows, list(by))
    place = keys.merge(groups, how="left", on=list(by))[PLACE].to_numpy(np.int64, na_value=-1)
    is_group = place >= 0
    codes = np.where(is_group, np.cumsum(is_group) - 1, is_group.sum())[codes]
    values = rows["value"].to_numpy(np.float64, na_value=np.nan)
    n = np.bincount(codes[~np.isnan(values)], minlength=is_group.sum())[: is_group.sum()]
    times = rows[AT].to_numpy(np.int64, na_value=NAT) if AT in rows else None
    censored = None
    if SEEN_FOR in rows:
        censored = CensoredRows(codes, rows[SEEN_FOR].to_numpy(np.float64, na_value=np.nan), times)
    ranked = SortedRows(codes, values, n, times, censored, at)
    result = pd.DataFrame(of(ranked, place[is_group])).rename(columns=str)
    return result.assign(**{PLACE: place[is_group], ROWS: n})
