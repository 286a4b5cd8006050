"""How much ran and waited at each moment, and how busy agents were, told by engines other than pandas.

What begins counts 1 at its moment and what is over counts -1; the sum up to a moment is how many are under way. All of
it are sums of whole numbers, so that each engine gives the same as `load` does in numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import narwhals as nw
import numpy as np
import pandas as pd

from buildframe.errors import BadInput
from buildframe.metrics.engines import Frame, Integers, Rows, Tally, as_arrow, as_pandas, rows, tally, tick, ticking
from buildframe.metrics.groups import By, beside, groups_of
from buildframe.metrics.outcomes import is_script
from buildframe.spec.times import Moment, When, when

_AT, _CHANGE, _LEVEL, _FIRST = "at this time", "change", "level", "is first"


class Window(NamedTuple):
    """From when to when, in microseconds; None where it is open."""

    start: int | None
    end: int | None

    @classmethod
    def of(cls, start: When | None, end: When | None, now: Moment | None) -> Self:
        """That which a user means; ages count back from `now`."""
        found = cls(*(None if at is None else when(at, name, now).us for name, at in (("start", start), ("end", end))))
        if found.start is not None and found.end is not None and found.end <= found.start:
            raise BadInput(f"end={end!r} is not after start={start!r}.")
        return found


class Kind(NamedTuple):
    """What is counted: from which stamp until the first of others that is known."""

    name: str
    begins: str
    ends: tuple[str, ...]
    scripts_only: bool = False


RUNNING = Kind("running", "started_at", ("finished_at", "fetched_at"))
WAITING = Kind("waiting", "runnable_at", ("started_at", "finished_at", "fetched_at"), scripts_only=True)


def load(jobs: Frame, by: By, kind: Kind, start: When | None, end: When | None) -> pd.DataFrame:
    """What `concurrency` and `queue_depth` give."""
    stamps = list(dict.fromkeys([kind.begins, *kind.ends, "fetched_at", "build_created_at"]))
    found = rows(jobs, [*stamps, *(["type"] if kind.scripts_only else [])], by)
    begun, over = nw.col(tick(kind.begins)), nw.coalesce(*(tick(name) for name in kind.ends))
    begun = nw.when(is_script()).then(begun) if kind.scripts_only else begun
    found = replace(found, frame=ticking(found.frame, stamps)).having(begun=begun, over=over)
    seen = _Seen.of(found)
    window = Window.of(start, end, None if seen.latest is None else Moment.from_us(seen.latest))
    spans = replace(found, frame=found.frame.filter(_is_known())).only("begun", "over")
    steps = as_pandas(_steps(spans, window).sort(*spans.by, _AT, nulls_last=True))
    at = steps[_AT].to_numpy(np.int64)
    told = {
        "at": pd.DatetimeIndex(at.view("datetime64[us]"), tz="UTC"),
        kind.name: steps[_LEVEL].astype("Int64"),
        "whole": seen.whole(at),
    }
    return _beside_groups(spans, steps, pd.DataFrame(told))


def _is_known() -> nw.Expr:
    return ~nw.col("begun").is_null() & ~nw.col("over").is_null()


def _steps(spans: Rows, window: Window) -> nw.LazyFrame[Any]:
    """The level of each group from each moment on at which it changes, and at the ends of the window."""
    summed = _changes(spans, window).group_by(*spans.by, _AT).agg(nw.col(_CHANGE).sum())
    summed = summed.with_columns(nw.col(_CHANGE).cast(nw.Int64))  # DuckDB's are decimals
    steps = summed.with_columns(
        nw.col(_CHANGE).cum_sum().over(*spans.by, order_by=_AT).cast(nw.Int64).alias(_LEVEL),
        nw.col(_AT).shift(1).over(*spans.by, order_by=_AT).is_null().alias(_FIRST),
    )
    kept = nw.col(_FIRST) | (nw.col(_CHANGE) != 0)
    if window.end is not None:
        kept = (kept | (nw.col(_AT) == window.end)) & (nw.col(_AT) <= window.end)
    return steps.filter(kept).select(*spans.by, _AT, _LEVEL)


def _changes(spans: Rows, window: Window) -> nw.LazyFrame[Any]:
    """A row for each begin and each end within the window, and one without a change at each of its own ends."""
    begun, over = nw.col("begun"), nw.max_horizontal("begun", "over")
    frame = spans.frame
    if window.start is not None:
        frame = frame.filter(over > window.start)
        begun = nw.when(begun < window.start).then(nw.lit(window.start)).otherwise(begun)
    if window.end is not None:
        frame = frame.filter(nw.col("begun") <= window.end)
    groups = spans.frame.select(*spans.by).unique()
    edges = [_at(groups, spans.by, nw.lit(edge), 0) for edge in window if edge is not None]
    return nw.concat([_at(frame, spans.by, begun, 1), _at(frame, spans.by, over, -1), *edges])


def _at(found: nw.LazyFrame[Any], by: Sequence[str], at: nw.Expr, change: int) -> nw.LazyFrame[Any]:
    return found.select(*by, at.cast(nw.Int64).alias(_AT), nw.lit(change).cast(nw.Int64).alias(_CHANGE))


def _beside_groups(spans: Rows, steps: pd.DataFrame, told: pd.DataFrame) -> pd.DataFrame:
    """The rows with the keys of their groups, and how many spans of these are negative."""
    negative = tally(spans, n_negative=nw.col("over") < nw.col("begun"))
    codes, keys = groups_of(steps, spans.by)
    counts = keys.merge(pd.concat([negative.groups, negative.sums], axis=1), how="left", on=spans.by)
    rows_of = counts.take(codes).reset_index(drop=True)
    named = rows_of[spans.by].set_axis(spans.names, axis=1) if spans.names else rows_of[[]]
    return beside(named, told.assign(n_negative=rows_of["n_negative"]))


class _Seen(NamedTuple):
    """The latest `fetched_at`; of builds the first and the last creation, and how long after it jobs were over."""

    latest: int | None
    first: int | None
    last: int | None
    lasting: int | None

    @classmethod
    def of(cls, found: Rows) -> Self:
        created, lasting = nw.col(tick("build_created_at")), nw.col("over") - nw.col(tick("build_created_at"))
        told = found.frame.select(
            latest=nw.col(tick("fetched_at")), first=created, last=created, lasting=nw.when(_is_known()).then(lasting)
        ).select(nw.col("latest").max(), nw.col("first").min(), nw.col("last").max(), nw.col("lasting").max())
        return cls(*(column[0].as_py() for column in as_arrow(told).columns))

    def whole(self, at: Integers) -> Any:
        """Whether neither a build before the frame's first nor one after its last can have had a job at that moment."""
        if self.first is None or self.last is None:
            return pd.array([pd.NA] * len(at), "boolean")
        return pd.array((at >= self.first + max(self.lasting or 0, 0)) & (at <= self.last), "boolean")


# --- agents


def utilisation(jobs: Frame, by: By) -> pd.DataFrame:
    """What `load.utilisation` gives."""
    found = rows(jobs, ("agent_id", "started_at", "finished_at"), by)
    found = replace(found, frame=ticking(found.frame, ("started_at", "finished_at")))
    begun, over = nw.col(tick("started_at")), nw.col(tick("finished_at"))
    started, has_agent = ~begun.is_null(), ~nw.col("agent_id").is_null()
    ended = started & ~over.is_null()
    counted = tally(
        found,
        started=started,
        n_running=started & over.is_null(),
        n_no_agent=ended & ~has_agent,
        n_negative=(ended & has_agent & (over < begun)).fill_null(False),
    )
    ran = found.frame.filter(ended & has_agent).select(*found.by, "agent_id", begun=begun, over=over, busy=over - begun)
    agents = ran.group_by(*found.by, "agent_id").agg(nw.col("busy").sum(), nw.col("begun").min(), nw.col("over").max())
    agents = agents.with_columns(agents=nw.lit(1), seen=nw.col("over") - nw.col("begun"))
    busy = tally(replace(found, frame=agents), **{name: nw.col(name) for name in ("agents", "busy", "seen")})
    return _of_started(counted, _beside(counted, busy))


def _beside(counted: Tally, busy: Tally) -> pd.DataFrame:
    """The sums over agents of each group, 0 where there is none."""
    known = pd.concat([busy.groups, busy.sums], axis=1)
    return counted.groups.merge(known, how="left", on=list(counted.groups.columns))[list(busy.sums)].fillna(0)


def _of_started(counted: Tally, sums: pd.DataFrame) -> pd.DataFrame:
    busy, seen = (sums[name].to_numpy(np.float64) / 1e6 for name in ("busy", "seen"))
    used = np.divide(busy, seen, out=np.full(len(seen), np.nan), where=seen > 0)
    told = pd.DataFrame({"agents": sums["agents"].astype("Int64"), "busy_s": busy, "seen_s": seen, "share_used": used})
    rest = counted.sums[["n_running", "n_no_agent", "n_negative"]]
    summary = beside(counted.keys, pd.concat([told, rest], axis=1))
    return summary[counted.sums["started"].to_numpy(np.int64) > 0].reset_index(drop=True)
