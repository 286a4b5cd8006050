"""Buckets of time: stretches that start at the midnights of a zone, or at equal distances, for any engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
from pandas.tseries.frequencies import to_offset
from pandas.tseries.offsets import BaseOffset, Day, MonthBegin, QuarterBegin, Tick, Week, YearBegin

from buildframe.errors import BadInput
from buildframe.metrics.columns import NAT, TIMESTAMP, microseconds
from buildframe.metrics.engines import (
    GROUP,
    GroupedRows,
    GroupSums,
    Integers,
    as_arrow,
    check_zones,
    group_sums,
    micros_column,
    to_lazy,
    with_micros,
)

_MOST = 1_000_000


@dataclass(frozen=True)
class Buckets:
    """`edges`: starts of buckets and the end of the last, in the zone; `fetched`: when the rows were last seen."""

    edges: pd.DatetimeIndex
    fetched: pd.Timestamp

    @classmethod
    def of(cls, found: nw.LazyFrame[Any], at: Sequence[str], freq: str, tz: str, seen: str = "fetched_at") -> Self:
        """Those that hold all times in the columns `at`, the rows having been seen at `seen`; none without times."""
        offset = _offset(freq)
        check_zones(found, (*at, seen))
        *ends, fetched = _ends(found, at, seen)
        known: pd.Series[Any] = pd.Series([time for time in ends if pd.notna(time)], dtype=TIMESTAMP)
        return cls(_edges(known, offset, tz), fetched)

    def __len__(self) -> int:
        return max(len(self.edges) - 1, 0)

    def group_by_bucket(self, found: GroupedRows, at: str) -> GroupedRows:
        """The rows in groups by bucket, and one more, the last or that of null, of those without this time."""
        numbered = self.with_bucket_numbers(found.frame, at, GROUP)
        return replace(found, frame=numbered, by=[GROUP], keys=pd.DataFrame(index=range(len(self) + 1)))

    def with_bucket_numbers(self, found: nw.LazyFrame[Any], at: str, name: str) -> nw.LazyFrame[Any]:
        """The rows with the number of their bucket as a column, null or how many there are without this time."""
        edges, native = self._edges(), found.to_native()
        if isinstance(native, pd.DataFrame):
            return to_lazy(native.assign(**{name: _numbers(microseconds(native[at]), edges)}))
        if found.implementation.is_duckdb():
            kept = [other for other in native.columns if other != name]
            return to_lazy(_numbered_in_duckdb(native, kept, at, edges, {}, name))
        return with_micros(found, [at]).with_columns(_number(nw.col(micros_column(at)), edges, _either).alias(name))

    def count_by_bucket(self, found: GroupedRows, at: Mapping[str, str]) -> pd.DataFrame:
        """How many rows have a time in each bucket (Int64): `at` tells the name of the count and the time's column."""
        native = found.frame.to_native()
        if isinstance(native, pd.DataFrame):
            edges = self._edges()
            numbers = {name: _numbers(microseconds(native[stamp]), edges) for name, stamp in at.items()}
            counts = {name: np.bincount(one, minlength=len(self))[: len(self)] for name, one in numbers.items()}
            return pd.DataFrame(counts, dtype="Int64")
        each = [self._alone(found, stamp, {name: int(name == own) for name in at}) for own, stamp in at.items()]
        both = replace(found, frame=nw.concat(each), by=[GROUP])
        return fill_empty_buckets(group_sums(both, **{name: nw.col(name) for name in at}), len(self)).sums

    def _alone(self, found: GroupedRows, at: str, more: Mapping[str, int]) -> nw.LazyFrame[Any]:
        """The number of the bucket of each row that has this time, with these constants beside it."""
        if found.frame.implementation.is_duckdb():
            return to_lazy(_numbered_in_duckdb(found.frame.to_native(), (), at, self._edges(), more))
        known = replace(found, frame=found.frame.filter(~nw.col(at).is_null()))
        return self.group_by_bucket(known, at).frame.select(GROUP, **{name: nw.lit(one) for name, one in more.items()})

    def _edges(self) -> Integers:
        return np.asarray(self.edges.tz_convert("UTC").as_unit("us").asi8, np.int64)

    def with_starts(self, summary: pd.DataFrame) -> pd.DataFrame:
        """The starts of the buckets, the summary, and which bucket was not over when the rows were fetched."""
        over = [pd.NA] * len(self) if pd.isna(self.fetched) else self.edges[1:] > self.fetched
        return pd.concat([pd.DataFrame({"bucket": self.edges[:-1]}), summary], axis=1).assign(
            partial=pd.array(over, "boolean")
        )


def fill_empty_buckets(counts: GroupSums, number: int) -> GroupSums:
    """The counts of all buckets, 0 where there was nothing."""
    numbers = counts.groups[GROUP].to_numpy(np.int64, na_value=number)
    known = [name for name in counts.sums if counts.sums[name].notna().any()]  # other counts stay null in every bucket
    whole = counts.sums.set_axis(numbers).reindex(range(number)).fillna(dict.fromkeys(known, 0)).astype("Int64")
    return GroupSums(pd.DataFrame(index=whole.index), pd.DataFrame({GROUP: range(number)}), whole)


def _ends(found: nw.LazyFrame[Any], at: Sequence[str], seen: str) -> list[Any]:
    """The first and the last time of each column, and the latest `seen`; NaT where there is none."""
    native = found.to_native()
    if isinstance(native, pd.DataFrame):
        ends = [end for name in at for end in _first_and_last(microseconds(native[name]))]
        ends.append(_first_and_last(microseconds(native[seen]))[1])
        return [pd.NaT if end == NAT else pd.Timestamp(end, unit="us", tz="UTC") for end in ends]
    times = [nw.col(name) for name in at]
    both = [end for time in times for end in (time.min(), time.max().name.suffix(" at last"))]
    row = as_arrow(found.select(*both, nw.col(seen).max().name.suffix(" of all")))
    return [_moment(column) for column in row.columns]


def _moment(column: pa.ChunkedArray[Any]) -> Any:
    """The one time in it, or NaT."""
    ticks = column.cast(pa.timestamp("us", "UTC")).cast(pa.int64())[0].as_py()
    return pd.NaT if ticks is None else pd.Timestamp(ticks, unit="us", tz="UTC")


def _first_and_last(times: Integers) -> tuple[int, int]:
    first, last = (times.min(), times.max()) if len(times) else (NAT, NAT)
    if first == NAT != last:
        unsigned = times.view(np.uint64)  # in which "none" is greater than all since 1970, less than all before
        first = unsigned.min() if unsigned.max() == 2**63 else times[times != NAT].min()
    return int(first), int(last)


def _numbers(times: Integers, edges: Integers) -> Integers:
    """Of each time the number of its bucket, or, where there is none, how many buckets there are.

    A division takes a third of the time of a search, but is right only where buckets are equally long.
    """
    widths, number = np.diff(edges), max(len(edges) - 1, 0)
    if not number:
        return np.zeros(len(times), np.int64)
    if np.any(widths != widths[0]):
        numbers = np.searchsorted(edges, times, side="right") - 1
    else:
        numbers = times - edges[0]  # the one array that is made: memory takes longer than sums
        numbers //= widths[0]
    unsigned = numbers.view(np.uint64)  # in which what comes before the first bucket is large
    np.minimum(unsigned, np.uint64(number), out=unsigned)
    return numbers


def _number(time: Any, edges: Integers, either: Callable[[Any, Any, Any], Any]) -> Any:
    """The number of the bucket: a branch for each run of edges that lie equally far apart, as clocks change seldom."""
    if not len(edges):  # then no time is known
        return time
    widths = np.diff(edges)
    number = _in_run(time, edges, widths, 0)
    for start in (np.flatnonzero(np.diff(widths)) + 1).tolist():
        number = either(time >= int(edges[start]), _in_run(time, edges, widths, start), number)
    return number


def _in_run(time: Any, edges: Integers, widths: Integers, start: int) -> Any:
    return (time - int(edges[start])) // int(widths[start]) + start


def _either(condition: nw.Expr, one: nw.Expr, other: nw.Expr) -> nw.Expr:
    return nw.when(condition).then(one).otherwise(other)


def _numbered_in_duckdb(
    rows: Any, kept: Sequence[str], at: str, edges: Integers, more: Mapping[str, int], name: str = GROUP
) -> Any:
    """By its own division; that of narwhals, which is right for negative numbers, too, takes as long as the rest."""
    import duckdb

    def either(condition: Any, one: Any, other: Any) -> Any:
        return duckdb.CaseExpression(condition, one).otherwise(other)

    time = duckdb.FunctionExpression("epoch_us", duckdb.ColumnExpression(at))
    number = _number(time, edges, either).alias(name)
    return rows.select(*kept, number, *(duckdb.ConstantExpression(one).alias(name) for name, one in more.items()))


def _offset(freq: str) -> BaseOffset:
    if not isinstance(freq, str):
        raise BadInput(f"freq={freq!r}: give a text such as '1h', '1D', 'W-MON', 'MS' or 'QS'.")
    try:
        offset = to_offset(freq)
    except (ValueError, OverflowError) as why:
        raise BadInput(f"freq={freq!r}: {why}") from None
    if offset.n < 1 or not isinstance(offset, (Tick, Day, Week, MonthBegin, QuarterBegin, YearBegin)):
        raise BadInput(f"freq={freq!r} does not name the start of a bucket; take '1h', '1D', 'W-MON', 'MS' or 'QS'.")
    return offset


def _edges(times: pd.Series[pd.Timestamp], offset: BaseOffset, tz: str) -> pd.DatetimeIndex:
    """Starts of the buckets that hold all times, and the end of the last; empty for no times."""
    local = to_zone(times, tz)
    if local.empty:
        return pd.DatetimeIndex(local)
    last = local.max()
    first_day = local.min().tz_localize(None).normalize()
    _check_many(first_day, last.tz_localize(None), offset)
    if isinstance(offset, Tick):  # equally long, whatever the clocks do after the first midnight
        edges = pd.date_range(_in_zone(pd.DatetimeIndex([first_day]), tz)[0], last + 2 * offset, freq=offset)
    else:
        days = pd.date_range(offset.rollback(first_day), last.tz_localize(None) + 2 * offset, freq=offset)
        edges = _in_zone(days, tz)
    return edges.as_unit("us")[: edges.searchsorted(last, side="right") + 1]


def _check_many(first: pd.Timestamp, last: pd.Timestamp, offset: BaseOffset) -> None:
    try:
        many = (last + 4 * offset - first) / (first + offset - first)  # date_range looks ahead
    except (OverflowError, ValueError):
        raise BadInput(f"freq={offset.freqstr!r}: such a bucket would end after the last time that there is.") from None
    if many > _MOST:
        raise BadInput(f"freq={offset.freqstr!r} would make {many:,.0f} buckets; take longer ones.")


def to_zone(times: pd.Series[pd.Timestamp], tz: str) -> pd.Series[pd.Timestamp]:
    """The times in the zone; BadInput where it is none."""
    try:
        if not isinstance(tz, str):
            raise TypeError
        return times.dt.tz_convert(tz)
    except (LookupError, ValueError, TypeError):
        raise BadInput(f"tz={tz!r} is no time zone; take a name such as 'UTC' or 'Europe/Berlin'.") from None


def _in_zone(midnights: pd.DatetimeIndex, tz: str) -> pd.DatetimeIndex:
    """Where the clocks skip midnight the day starts at 1:00; where they pass it twice, at the first."""
    return midnights.tz_localize(tz, ambiguous=np.ones(len(midnights), bool), nonexistent="shift_forward")
