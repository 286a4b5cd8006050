"""Count by queries how many intervals hold at once, and agents' busy time.

Each start counts 1 and each end counts -1, so the running sum is the level. All sums are of integers, so every engine
gives the same result as numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.metrics.engines.dtypes import micros_column
from buildframe.metrics.engines.expressions import is_script
from buildframe.metrics.engines.protocol import (
    Engine,
    Frame,
    GroupedRows,
    GroupSums,
    IntervalKind,
    Levels,
    Rows,
    TimeWindow,
)
from buildframe.metrics.grouping import By, find_groups

_AT, _CHANGE, _LEVEL, _FIRST = "at this time", "change", "level", "is first"


def intervals(engine: Engine, jobs: Frame, by: By, kind: IntervalKind) -> GroupedRows:
    """Implement `Engine.intervals` by queries."""
    rows = engine.group_rows(jobs, [*kind.stamps, *(["type"] if kind.scripts_only else [])], by)
    begin, finish = nw.col(micros_column(kind.begins)), nw.coalesce(*(micros_column(name) for name in kind.ends))
    begin = nw.when(is_script()).then(begin) if kind.scripts_only else begin
    return rows.with_micros(kind.stamps).with_columns(begin=begin, finish=finish)


def limits(spans: GroupedRows) -> Rows:
    """Return the values of `FrameCoverage` as columns."""
    created, fetched = (nw.col(micros_column(name)) for name in ("build_created_at", "fetched_at"))
    lasting = nw.when(_is_known()).then(nw.col("finish") - created)
    ends = spans.frame.select(latest=fetched, first=created, last=created, lasting=lasting)
    return ends.select(nw.col("latest").max(), nw.col("first").min(), nw.col("last").max(), nw.col("lasting").max())


def levels(spans: GroupedRows, window: TimeWindow) -> Levels:
    """Implement `Engine.levels` by queries."""
    spans = replace(spans, frame=spans.frame.filter(_is_known())).select("begin", "finish")
    steps = spans.engine.collect(_compute_levels(spans, window).sort(*spans.by, _AT, nulls_last=True))
    negative = spans.engine.group_sums(spans, n_negative=nw.col("finish") < nw.col("begin"))
    counts = pd.concat([negative.groups, negative.sums], axis=1)
    codes, groups = find_groups(steps, spans.by)
    of_steps = groups.merge(counts, how="left", on=spans.by).take(codes).reset_index(drop=True)
    keys = of_steps[spans.by].set_axis(spans.names, axis=1) if spans.names else of_steps[[]]
    at, level = (steps[name].to_numpy(np.int64) for name in (_AT, _LEVEL))
    return Levels(keys, at, level, of_steps["n_negative"])


def _is_known() -> nw.Expr:
    return ~nw.col("begin").is_null() & ~nw.col("finish").is_null()


def _compute_levels(spans: GroupedRows, window: TimeWindow) -> Rows:
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


def _changes(spans: GroupedRows, window: TimeWindow) -> Rows:
    """Return a row per start and end within the window, and a row without a change at each of its limits."""
    begin, finish = nw.col("begin"), nw.max_horizontal("begin", "finish")
    frame = spans.frame
    if window.start is not None:
        frame = frame.filter(finish > window.start)
        begin = nw.when(begin < window.start).then(nw.lit(window.start)).otherwise(begin)
    if window.end is not None:
        frame = frame.filter(nw.col("begin") <= window.end)
    groups = spans.frame.select(*spans.by).unique()
    edges = [_changes_at(groups, spans.by, nw.lit(edge), 0) for edge in window if edge is not None]
    return nw.concat([_changes_at(frame, spans.by, begin, 1), _changes_at(frame, spans.by, finish, -1), *edges])


def _changes_at(rows: Rows, by: Sequence[str], at: nw.Expr, change: int) -> Rows:
    return rows.select(*by, at.cast(nw.Int64).alias(_AT), nw.lit(change).cast(nw.Int64).alias(_CHANGE))


def agent_sums(engine: Engine, jobs: Frame, by: By) -> GroupSums:
    """Implement `Engine.agent_sums` by queries."""
    rows = engine.group_rows(jobs, ("agent_id", "started_at", "finished_at"), by)
    rows = rows.with_micros(("started_at", "finished_at"))
    begin, finish = nw.col(micros_column("started_at")), nw.col(micros_column("finished_at"))
    started, has_agent = ~begin.is_null(), ~nw.col("agent_id").is_null()
    ended = started & ~finish.is_null()
    counted = engine.group_sums(
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
    busy = engine.group_sums(replace(rows, frame=agents), **{name: nw.col(name) for name in ("agents", "busy", "seen")})
    return replace(counted, sums=pd.concat([counted.sums, counted.align(busy)], axis=1))
