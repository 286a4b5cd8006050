"""Count jobs that ran or waited over time, and agents' busy time, inside engines other than pandas.

Each start counts 1 and each end counts -1, so the running sum is the level. All sums are of integers, so every engine
gives the same result as `load` does in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.engines import (
    Frame,
    GroupedRows,
    GroupSums,
    Integers,
    as_arrow,
    as_pandas,
    group_rows,
    group_sums,
    micros_column,
    with_micros,
)
from buildframe.metrics.engines.expressions import is_script
from buildframe.metrics.grouping import By, find_groups, join_keys
from buildframe.spec.times import Moment, When, when

_AT, _CHANGE, _LEVEL, _FIRST = "at this time", "change", "level", "is first"


class TimeWindow(NamedTuple):
    """Limits of a time window in microseconds; None if open."""

    start: int | None
    end: int | None

    @classmethod
    def of(cls, start: When | None, end: When | None, now: Moment | None) -> Self:
        """Resolve limits that a user passed; ages count back from `now`."""
        window = cls(*(None if at is None else when(at, name, now).us for name, at in (("start", start), ("end", end))))
        if window.start is not None and window.end is not None and window.end <= window.start:
            raise BadInput(f"end={end!r} is not after start={start!r}. Use a later end.")
        return window


class IntervalKind(NamedTuple):
    """What to count: intervals from the timestamp `begins` to the first of `ends` that is not null."""

    name: str
    begins: str
    ends: tuple[str, ...]
    scripts_only: bool = False


RUNNING = IntervalKind("running", "started_at", ("finished_at", "fetched_at"))
WAITING = IntervalKind("waiting", "runnable_at", ("started_at", "finished_at", "fetched_at"), scripts_only=True)


def load(jobs: Frame, by: By, kind: IntervalKind, start: When | None, end: When | None) -> pd.DataFrame:
    """Compute the result of `concurrency` or `queue_depth`."""
    stamps = list(dict.fromkeys([kind.begins, *kind.ends, "fetched_at", "build_created_at"]))
    rows = group_rows(jobs, [*stamps, *(["type"] if kind.scripts_only else [])], by)
    begin, finish = nw.col(micros_column(kind.begins)), nw.coalesce(*(micros_column(name) for name in kind.ends))
    begin = nw.when(is_script()).then(begin) if kind.scripts_only else begin
    rows = replace(rows, frame=with_micros(rows.frame, stamps)).with_columns(begin=begin, finish=finish)
    coverage = _Coverage.of(rows)
    window = TimeWindow.of(start, end, None if coverage.latest is None else Moment.from_us(coverage.latest))
    spans = replace(rows, frame=rows.frame.filter(_is_known())).select("begin", "finish")
    steps = as_pandas(_steps(spans, window).sort(*spans.by, _AT, nulls_last=True))
    at = steps[_AT].to_numpy(np.int64)
    result = {
        "at": pd.DatetimeIndex(at.view("datetime64[us]"), tz="UTC"),
        kind.name: steps[_LEVEL].astype("Int64"),
        "whole": coverage.whole(at),
    }
    return _with_keys(spans, steps, pd.DataFrame(result))


def _is_known() -> nw.Expr:
    return ~nw.col("begin").is_null() & ~nw.col("finish").is_null()


def _steps(spans: GroupedRows, window: TimeWindow) -> nw.LazyFrame[Any]:
    """Return the level of each group at each change and at the limits of the window."""
    summed = _changes(spans, window).group_by(*spans.by, _AT).agg(nw.col(_CHANGE).sum())
    summed = summed.with_columns(nw.col(_CHANGE).cast(nw.Int64))  # sums are decimals in DuckDB
    steps = summed.with_columns(
        nw.col(_CHANGE).cum_sum().over(*spans.by, order_by=_AT).cast(nw.Int64).alias(_LEVEL),
        nw.col(_AT).shift(1).over(*spans.by, order_by=_AT).is_null().alias(_FIRST),
    )
    retained = nw.col(_FIRST) | (nw.col(_CHANGE) != 0)
    if window.end is not None:
        retained = (retained | (nw.col(_AT) == window.end)) & (nw.col(_AT) <= window.end)
    return steps.filter(retained).select(*spans.by, _AT, _LEVEL)


def _changes(spans: GroupedRows, window: TimeWindow) -> nw.LazyFrame[Any]:
    """Return a row per start and end within the window, and a row without a change at each of its limits."""
    begin, finish = nw.col("begin"), nw.max_horizontal("begin", "finish")
    frame = spans.frame
    if window.start is not None:
        frame = frame.filter(finish > window.start)
        begin = nw.when(begin < window.start).then(nw.lit(window.start)).otherwise(begin)
    if window.end is not None:
        frame = frame.filter(nw.col("begin") <= window.end)
    groups = spans.frame.select(*spans.by).unique()
    edges = [_at(groups, spans.by, nw.lit(edge), 0) for edge in window if edge is not None]
    return nw.concat([_at(frame, spans.by, begin, 1), _at(frame, spans.by, finish, -1), *edges])


def _at(rows: nw.LazyFrame[Any], by: Sequence[str], at: nw.Expr, change: int) -> nw.LazyFrame[Any]:
    return rows.select(*by, at.cast(nw.Int64).alias(_AT), nw.lit(change).cast(nw.Int64).alias(_CHANGE))


def _with_keys(spans: GroupedRows, steps: pd.DataFrame, result: pd.DataFrame) -> pd.DataFrame:
    """Join the keys of the groups and their number of negative intervals."""
    negative = group_sums(spans, n_negative=nw.col("finish") < nw.col("begin"))
    codes, keys = find_groups(steps, spans.by)
    counts = keys.merge(pd.concat([negative.groups, negative.sums], axis=1), how="left", on=spans.by)
    rows_of = counts.take(codes).reset_index(drop=True)
    named = rows_of[spans.by].set_axis(spans.names, axis=1) if spans.names else rows_of[[]]
    return join_keys(named, result.assign(n_negative=rows_of["n_negative"]))


class _Coverage(NamedTuple):
    """Latest `fetched_at`, first and last creation of builds, and how long after their build's creation jobs ended."""

    latest: int | None
    first: int | None
    last: int | None
    lasting: int | None

    @classmethod
    def of(cls, rows: GroupedRows) -> Self:
        created, lasting = (
            nw.col(micros_column("build_created_at")),
            nw.col("finish") - nw.col(micros_column("build_created_at")),
        )
        result = rows.frame.select(
            latest=nw.col(micros_column("fetched_at")),
            first=created,
            last=created,
            lasting=nw.when(_is_known()).then(lasting),
        ).select(nw.col("latest").max(), nw.col("first").min(), nw.col("last").max(), nw.col("lasting").max())
        return cls(*(column[0].as_py() for column in as_arrow(result).columns))

    def whole(self, at: Integers) -> Any:
        """Return whether no build outside the frame can have had a job at each time."""
        if self.first is None or self.last is None:
            return pd.array([pd.NA] * len(at), "boolean")
        return pd.array((at >= self.first + max(self.lasting or 0, 0)) & (at <= self.last), "boolean")


# --- agents


def utilization(jobs: Frame, by: By) -> pd.DataFrame:
    """Compute the result of `load.utilization`."""
    rows = group_rows(jobs, ("agent_id", "started_at", "finished_at"), by)
    rows = replace(rows, frame=with_micros(rows.frame, ("started_at", "finished_at")))
    begin, finish = nw.col(micros_column("started_at")), nw.col(micros_column("finished_at"))
    started, has_agent = ~begin.is_null(), ~nw.col("agent_id").is_null()
    ended = started & ~finish.is_null()
    counted = group_sums(
        rows,
        started=started,
        n_running=started & finish.is_null(),
        n_no_agent=ended & ~has_agent,
        n_negative=(ended & has_agent & (finish < begin)).fill_null(False),
    )
    ran = rows.frame.filter(ended & has_agent).select(
        *rows.by, "agent_id", begin=begin, finish=finish, busy=finish - begin
    )
    agents = ran.group_by(*rows.by, "agent_id").agg(nw.col("busy").sum(), nw.col("begin").min(), nw.col("finish").max())
    agents = agents.with_columns(agents=nw.lit(1), seen=nw.col("finish") - nw.col("begin"))
    busy = group_sums(replace(rows, frame=agents), **{name: nw.col(name) for name in ("agents", "busy", "seen")})
    return _summarize(counted, _align_busy(counted, busy))


def _align_busy(counted: GroupSums, busy: GroupSums) -> pd.DataFrame:
    """Align the sums over agents with the groups, 0 if a group has none."""
    sums = pd.concat([busy.groups, busy.sums], axis=1)
    return counted.groups.merge(sums, how="left", on=list(counted.groups.columns))[list(busy.sums)].fillna(0)


def _summarize(counted: GroupSums, sums: pd.DataFrame) -> pd.DataFrame:
    busy_s, seen_s = (sums[name].to_numpy(np.float64) / 1e6 for name in ("busy", "seen"))
    used = np.divide(busy_s, seen_s, out=np.full(len(seen_s), np.nan), where=seen_s > 0)
    columns = {"agents": sums["agents"].astype("Int64"), "busy_s": busy_s, "seen_s": seen_s, "share_used": used}
    rest = counted.sums[["n_running", "n_no_agent", "n_negative"]]
    summary = join_keys(counted.keys, pd.concat([pd.DataFrame(columns), rest], axis=1))
    return summary[counted.sums["started"].to_numpy(np.int64) > 0].reset_index(drop=True)
