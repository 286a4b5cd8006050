"""Decide which fetched rows replace stored rows. Pure functions of tables; does not know files or the service."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.spec import BUILD_COLUMNS_OF_JOBS, Moment
from buildframe.store.retained_columns import GONE_AT, HAS_WEBHOOK_UPDATE, IS_OPEN

EVENT_TIMES = {
    "builds": ("created_at", "started_at", "failing_at", "finished_at"),
    "jobs": ("created_at", "runnable_at", "started_at", "finished_at", "unblocked_at"),
}
"""Columns with times of past events. `scheduled_at` and `expired_at` may lie in the future, so they are left out."""

_METADATA_COLUMNS = frozenset({"fetched_at", "valid_from", "valid_to"})


def latest_builds(listings: Sequence[tuple[pd.DataFrame, pd.DataFrame]]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return each build once, from the last listing that contains it, with its jobs from the same listing."""
    listings = [listing for listing in listings if len(listing[0])] or listings[:1]  # most of a sync are empty
    if len(listings) == 1:
        only_builds, only_jobs = listings[0]
        return pd.DataFrame(only_builds), pd.DataFrame(only_jobs)  # without attrs
    builds, jobs = (pd.concat(frames, ignore_index=True) for frames in zip(*listings, strict=True))
    builds.attrs, jobs.attrs = {}, {}  # pandas would copy them for each column that is read
    of_build, of_job = (np.repeat(range(len(listings)), [*map(len, frames)]) for frames in zip(*listings, strict=True))
    is_last = ~builds["id"].duplicated(keep="last")
    last = pd.Series(of_build[is_last], builds.loc[is_last, "id"])
    return builds[is_last], jobs[(jobs["build_id"].map(last) == of_job).to_numpy()]


def newer_builds(new: pa.Table, stored: pa.Table) -> pa.Table:
    """Return the builds of `new` that are not stored, or were not fetched before the stored rows.

    The service reports whole seconds. Of two rows of the same second, the one that is stored last wins.
    """
    at = dict(fetch_times(stored))
    return new.filter(mask(id not in at or at[id] <= fetched for id, fetched in fetch_times(new)))


def newest_builds(rows: pa.Table) -> pa.Table:
    """Return each build once: the row that was fetched last, of these the one of the last day.

    Stores of earlier versions have a build once for each day on which it was said to be created.
    """
    ages = rows.select(["id", "fetched_at", "day"]).to_pandas()
    newest: Any = ages.sort_values(["fetched_at", "day"], ascending=False).drop_duplicates("id").index
    positions: Any = pa.array(newest)
    return rows.take(positions)


def jobs_of_builds(jobs: pa.Table, builds: pa.Table) -> pa.Table:
    """Return the jobs that are stored on the day of their build in `builds`."""
    day_of = dict(zip(builds["id"].to_pylist(), builds["day"].to_pylist(), strict=True))
    pairs = zip(jobs["build_id"].to_pylist(), jobs["day"].to_pylist(), strict=True)
    return jobs.filter(mask(id in day_of and day_of[id] == day for id, day in pairs))


def newest_mask(rows: pa.Table, stored: pa.Table, event_times: Sequence[str]) -> pa.Array[Any]:
    """Return a mask that selects, for each id, the newest row if it is newer than the stored one.

    Of two rows of the same second, the one with the later event time is newer, then the one with more event times.
    """
    newest: dict[Any, tuple[Any, int | None]] = {id: (age, None) for id, age in _row_ages(stored, event_times)}
    for position, (id, age) in enumerate(_row_ages(rows, event_times)):
        if id not in newest or age > newest[id][0]:
            newest[id] = age, position
    selected = {position for _, position in newest.values()}
    return mask(position in selected for position in range(rows.num_rows))


def _row_ages(rows: pa.Table, event_times: Sequence[str]) -> Iterator[tuple[Any, tuple[int, int, int]]]:
    """Yield each id with a sort key: fetch time, latest event time, number of event times."""
    fetched, *columns = (rows[name].cast(pa.int64()).to_pylist() for name in ("fetched_at", *event_times))
    for id, second, *times in zip(rows["id"].to_pylist(), fetched, *columns, strict=True):
        present = [time for time in times if time is not None]
        yield id, (second, max(present, default=0), len(present))


def superseded_builds(new: pa.Table, stored: pa.Table) -> pa.Table:
    """Return the builds of `new` that a webhook delivery has updated since they were fetched."""
    if HAS_WEBHOOK_UPDATE not in stored.column_names:
        return new.slice(0, 0)
    at = dict(fetch_times(stored.filter(pc.field(HAS_WEBHOOK_UPDATE))))
    return new.filter(mask(id in at and at[id] > fetched for id, fetched in fetch_times(new)))


def jobs_updated_since(jobs: pa.Table, builds: pa.Table) -> pa.Table:
    """Return the stored jobs that a webhook delivery has updated since their builds were fetched."""
    at = dict(fetch_times(builds))
    return jobs.filter(mask(updated > at[id] for id, updated in fetch_times(jobs, "build_id")))


def fetch_times(rows: pa.Table, key: str = "id") -> list[tuple[Any, Any]]:
    """Return the id and `fetched_at` of each row."""
    return list(zip(rows[key].to_pylist(), rows["fetched_at"].to_pylist(), strict=True))


def mask(values: Iterable[bool]) -> pa.Array[Any]:
    """Return a filter that selects the rows whose value is true."""
    return pa.array(values, pa.bool_())


def with_columns(rows: pa.Table, **values: Any) -> pa.Table:
    """Replace columns, each by an array or by one value in all rows."""
    for name, value in values.items():
        field, is_array = rows.schema.field(name), isinstance(value, pa.Array | pa.ChunkedArray)
        column = value if is_array else pa.repeat(pa.scalar(value, field.type), rows.num_rows)
        rows = rows.set_column(rows.column_names.index(name), field, column)
    return rows


def dated_by_deletion(builds: pa.Table) -> pa.Table:
    """Set `fetched_at` of deleted builds to the time of their deletion, so that no earlier update replaces them."""
    seen, gone = builds["fetched_at"], builds[GONE_AT]
    return with_columns(builds, fetched_at=pc.coalesce(pc.if_else(pc.greater(gone, seen), gone, seen), seen))


def builds_with_updates(builds: pa.Table, new: pa.Table, jobs: pa.Table) -> pa.Table:
    """Return the builds that are new or have updated jobs, marked so that the next sync fetches them completely."""
    at = dict(sorted(fetch_times(jobs, "build_id")))  # of several jobs of a build, the latest time comes last
    ids = pa.array({*at, *new["id"].to_pylist()}, builds.schema.field("id").type)
    rows = builds.filter(pc.is_in(builds["id"], value_set=ids))
    times = pa.array([max(time, at.get(id, time)) for id, time in fetch_times(rows)], rows["fetched_at"].type)
    return with_columns(rows, fetched_at=times, **{IS_OPEN: True, HAS_WEBHOOK_UPDATE: True})


def upsert(new: pa.Table, rows: pa.Table) -> pa.Table:
    """Return the rows with those of `new` added, which replace rows of the same id."""
    others = rows.filter(pc.invert(pc.is_in(rows["id"], value_set=new["id"].combine_chunks())))
    return pa.concat_tables([others, new.select(rows.column_names)])


def with_build_columns(jobs: pa.Table, builds: pa.Table) -> pa.Table:
    """Update the build columns of jobs, such as `build_state`, and their day from these builds."""
    index = pc.index_in(jobs["build_id"], value_set=builds["id"].combine_chunks())
    updated = {
        name: pc.if_else(pc.is_valid(index), builds[source].take(index), jobs[name])
        for name, source in {**BUILD_COLUMNS_OF_JOBS, "day": "day"}.items()
    }
    return with_columns(jobs, **updated)


def update_history(stored: pa.Table, listed: pa.Table, keys: Mapping[str, str], at: Moment) -> pa.Table:
    """Apply a list that was read at `at` to its stored history; return `stored` itself if nothing changed.

    New and changed rows are valid from `at`. Rows that they replace, and rows that are no longer listed, are valid
    until `at`.
    """
    rows = stored.to_pylist()
    is_current = [row["valid_to"] is None and all(row[name] == key for name, key in keys.items()) for row in rows]
    before = {row["id"]: row for row, current in zip(rows, is_current, strict=True) if current}
    now = {row["id"]: row for row in listed.to_pylist()}
    same = {id for id, row in now.items() if id in before and _content(row) == _content(before[id])}
    if len(same) == len(before) == len(now):
        return stored
    ended = mask(current and row["id"] not in same for row, current in zip(rows, is_current, strict=True))
    valid_to = stored["valid_to"]
    old = with_columns(stored, valid_to=pc.if_else(ended, pa.scalar(at, valid_to.type), valid_to))
    fresh = listed.filter(mask(id not in same for id in listed["id"].to_pylist()))
    return pa.concat_tables([old, fresh.select(old.column_names)])


def _content(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _METADATA_COLUMNS}
