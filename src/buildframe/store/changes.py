"""How what was fetched changes what is stored: pure functions of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.spec import BESIDE_A_JOB, Moment
from buildframe.store.kept import GONE_AT, IS_OPEN, IS_TOLD

STAMPS = {
    "builds": ("created_at", "started_at", "failing_at", "finished_at"),
    "jobs": ("created_at", "runnable_at", "started_at", "finished_at", "unblocked_at"),
}
"""Times of what has happened. Of `scheduled_at` and `expired_at` that is not sure, so they date nothing."""

_BESIDE = frozenset({"fetched_at", "valid_from", "valid_to"})


def latest_of(
    walks: Sequence[tuple[pd.DataFrame, pd.DataFrame]],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Of walks, in their order, each build once, as it was fetched last, with the jobs that came with it."""
    builds, jobs = (pd.concat(frames, ignore_index=True) for frames in zip(*walks, strict=True))
    of_build, of_job = (np.repeat(range(len(walks)), [*map(len, frames)]) for frames in zip(*walks, strict=True))
    is_last = ~builds["id"].duplicated(keep="last")
    last = pd.Series(of_build[is_last], builds.loc[is_last, "id"])
    return builds[is_last], jobs[(jobs["build_id"].map(last) == of_job).to_numpy()]


def later(new: pa.Table, stored: pa.Table) -> pa.Table:
    """The builds of `new` that are not stored, or that were not fetched earlier than what is.

    The service tells its time in whole seconds: of two of one second the one that comes to be stored last is taken.
    """
    at: dict[Any, Any] = dict(zip(stored["id"].to_pylist(), stored["fetched_at"].to_pylist(), strict=True))
    rows: Any = zip(new["id"].to_pylist(), new["fetched_at"].to_pylist(), strict=True)
    return new.filter(pa.array([id not in at or at[id] <= fetched for id, fetched in rows], pa.bool_()))


def is_news(told: pa.Table, stored: pa.Table, stamps: Sequence[str]) -> list[bool]:
    """Which rows that deliveries told to choose: for each id the latest, if it is later than what is stored.

    Of one second that row is the later one which has the later stamp, or more of them.
    """
    latest: dict[Any, tuple[Any, int | None]] = {id: (age, None) for id, age in _aged(stored, stamps)}
    for place, (id, age) in enumerate(_aged(told, stamps)):
        if id not in latest or age > latest[id][0]:
            latest[id] = age, place
    chosen = {place for _, place in latest.values()}
    return [place in chosen for place in range(told.num_rows)]


def _aged(rows: pa.Table, stamps: Sequence[str]) -> Iterator[tuple[Any, tuple[int, int, int]]]:
    """Each id, and how late the row is."""
    at, *own = (rows[name].cast(pa.int64()).to_pylist() for name in ("fetched_at", *stamps))
    for id, second, *moments in zip(rows["id"].to_pylist(), at, *own, strict=True):
        known = [moment for moment in moments if moment is not None]
        yield id, (second, max(known, default=0), len(known))


def overtaken(new: pa.Table, stored: pa.Table) -> pa.Table:
    """The builds of `new` of which a delivery has told later than they were read, and no sync has read them since."""
    if IS_TOLD not in stored.column_names:
        return new.slice(0, 0)
    told = stored.filter(pc.field(IS_TOLD))
    at: dict[Any, Any] = dict(zip(told["id"].to_pylist(), told["fetched_at"].to_pylist(), strict=True))
    rows: Any = zip(new["id"].to_pylist(), new["fetched_at"].to_pylist(), strict=True)
    return new.filter(pa.array([id in at and at[id] > fetched for id, fetched in rows], pa.bool_()))


def told_since(jobs: pa.Table, read: pa.Table) -> pa.Table:
    """The stored jobs that deliveries told of later than their builds were read."""
    at: dict[Any, Any] = dict(zip(read["id"].to_pylist(), read["fetched_at"].to_pylist(), strict=True))
    rows: Any = zip(jobs["build_id"].to_pylist(), jobs["fetched_at"].to_pylist(), strict=True)
    return jobs.filter(pa.array([told > at[id] for id, told in rows], pa.bool_()))


def until_gone(builds: pa.Table) -> pa.Table:
    """Stored builds as of when they were found to be gone, those that are: nothing from before is news."""
    seen, gone = builds["fetched_at"], builds[GONE_AT]
    last = pc.coalesce(pc.if_else(pc.greater(gone, seen), gone, seen), seen)
    return builds.set_column(builds.column_names.index("fetched_at"), builds.schema.field("fetched_at"), last)


def told_of(builds: pa.Table, new: pa.Table, jobs: pa.Table) -> pa.Table:
    """The builds that are new, or of whose jobs there is news; a sync has to read these, too, as they may have more."""
    at: dict[Any, Any] = {}
    told: Any = zip(jobs["build_id"].to_pylist(), jobs["fetched_at"].to_pylist(), strict=True)
    for id, moment in told:
        at[id] = max(moment, at.get(id, moment))
    ids = pa.array({*at, *new["id"].to_pylist()}, builds.schema.field("id").type)
    rows = builds.filter(pc.is_in(builds["id"], value_set=ids))
    known: Any = zip(rows["id"].to_pylist(), rows["fetched_at"].to_pylist(), strict=True)
    seen = [max(moment, at.get(id, moment)) for id, moment in known]
    for name, values in (("fetched_at", seen), (IS_OPEN, [True] * len(seen)), (IS_TOLD, [True] * len(seen))):
        field = rows.schema.field(name)
        rows = rows.set_column(rows.column_names.index(name), field, pa.array(values, field.type))
    return rows


def put_in(new: pa.Table, rows: pa.Table) -> pa.Table:
    """The rows, with those of `new` in the place of those of the same id, or beside them."""
    others = rows.filter(pc.invert(pc.is_in(rows["id"], value_set=new["id"].combine_chunks())))
    return pa.concat_tables([others, new.select(rows.column_names)])


def beside(jobs: pa.Table, builds: pa.Table) -> pa.Table:
    """The jobs with what these builds, as far as they are theirs, have that jobs have, too, such as `build_state`."""
    place = pc.index_in(jobs["build_id"], value_set=builds["id"].combine_chunks())
    for name, source in BESIDE_A_JOB.items():
        own = pc.if_else(pc.is_valid(place), builds[source].take(place), jobs[name])
        jobs = jobs.set_column(jobs.column_names.index(name), jobs.schema.field(name), own)
    return jobs


def changed(stored: pa.Table, listed: pa.Table, whose: Mapping[str, str], at: Moment) -> pa.Table:
    """What is stored of a list that is kept as it changes, after it was read at `at`; the same where nothing changed.

    Rows that are new or other than before are valid from then on; those that they replace, and those no longer
    listed, are valid until then.
    """
    rows = stored.to_pylist()
    is_own = [row["valid_to"] is None and all(row[name] == value for name, value in whose.items()) for row in rows]
    before = {row["id"]: row for row, own in zip(rows, is_own, strict=True) if own}
    now = {row["id"]: row for row in listed.to_pylist()}
    same = {id for id, row in now.items() if id in before and _content(row) == _content(before[id])}
    if len(same) == len(before) == len(now):
        return stored
    ended = pa.array([own and row["id"] not in same for row, own in zip(rows, is_own, strict=True)], pa.bool_())
    closed = pc.if_else(ended, pa.scalar(at, stored["valid_to"].type), stored["valid_to"])
    old = stored.set_column(stored.column_names.index("valid_to"), "valid_to", closed)
    fresh = listed.filter(pa.array([id not in same for id in listed["id"].to_pylist()], pa.bool_()))
    return pa.concat_tables([old, fresh.select(old.column_names)])


def _content(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _BESIDE}
