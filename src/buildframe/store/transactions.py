"""Commit changes to all tables of a store in one transaction, also with concurrent writers. Does not know the service.

The commit of the builds table is the commit of the store. It comes last and lists the versions of the other tables.
Versions that a killed or superseded sync left in those tables belong to no version of the store. The next transaction
rolls them back.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe import metrics
from buildframe.errors import BadInput, StoreFailed
from buildframe.spec import Moment
from buildframe.store import merge, retained_columns
from buildframe.store.delta import CommitConflict, TableChange, TableVersion, distinct_days
from buildframe.store.location import Location, store_errors
from buildframe.store.merge import EVENT_TIMES
from buildframe.store.retained_columns import GONE_AT, HAS_WEBHOOK_UPDATE, IS_OPEN, Retention
from buildframe.store.sync_state import NEVER, Coverage, SyncState
from buildframe.webhooks import WebhookFrames

GRACE = dt.timedelta(days=1)
"""Minimum age of files that `clean` deletes. A running sync or reader may still use younger ones."""

_MAX_ATTEMPTS = 100
"""Attempts of one commit before it fails because of concurrent writers."""


@dataclass(frozen=True)
class ListSnapshot:
    """A complete list at one time: its table, the key values that identify the list there, and its rows."""

    table: str
    keys: Mapping[str, str]
    frame: pd.DataFrame

    @property
    def at(self) -> Moment:
        """The service time at which the list was read."""
        return Moment.parse(self.frame.attrs["as_of"])

    @property
    def name(self) -> str:
        """The name of the list in `SyncState.lists`."""
        return "/".join([self.table, *self.keys.values()])


@dataclass(frozen=True)
class SyncBatch:
    """Input of one commit of a sync: builds with all their jobs, deleted builds, lists, and the new coverage.

    `base_state` is the state before the requests of this batch; every row was read after it. `base` is the coverage of
    the scope at that time. `start_state` is the state before the first commit of the sync. `local_time` and `confirmed`
    are those of `SyncState`.
    """

    builds: pd.DataFrame
    jobs: pd.DataFrame
    as_of: Moment
    gone: pd.DataFrame = field(default_factory=lambda: pd.DataFrame({"id": [], "day": [], "fetched_at": []}))
    lists: tuple[ListSnapshot, ...] = ()
    scope: str | None = None
    coverage: Coverage | None = None
    base: Coverage | None = None
    base_state: SyncState = field(default_factory=SyncState)
    local_time: Moment | None = None
    confirmed: Moment = NEVER
    start_state: SyncState | None = None


@dataclass(frozen=True)
class CommitResult:
    """Result of a commit: the new state, the number of changed rows, and the bytes of written files."""

    state: SyncState
    builds: int
    jobs: int
    gone: int
    bytes: int


def commit(location: Location, retention: Retention, batch: SyncBatch) -> CommitResult:
    """Commit a batch of a sync; raise StoreFailed if the disk or the object store fails."""
    return _commit_with_retries(location, lambda transaction: transaction.sync(retention, batch))


def receive(location: Location, retention: Retention, received: WebhookFrames) -> CommitResult:
    """Commit rows of webhook deliveries: each build and job separately, if it is newer than the stored row."""
    return _commit_with_retries(location, lambda transaction: transaction.receive(retention, received))


def compact(location: Location) -> CommitResult:
    """Merge the files of each day into as few as possible; rows do not change."""
    return _commit_with_retries(location, lambda transaction: transaction.compact())


def clean(location: Location, keep: dt.timedelta) -> int:
    """Delete files that only versions older than `keep` need and return their number; keep files younger than a day.

    A first commit records that those versions can no longer be read.
    """
    with store_errors("cleaned", location):
        builds = TableVersion.at(location, "builds")
        if builds is None:
            raise BadInput(f"There is no store at {location.url!r}. Create one with store.sync(ws).")
        oldest = _oldest_readable(builds, keep)
        before = dt.datetime.now(dt.UTC) - GRACE
        state = _commit_with_retries(location, lambda transaction: transaction.forget(oldest.version)).state
        versions = {**dict.fromkeys(state.versions, 0), **oldest.versions, "builds": oldest.version}
        tables = ((TableVersion.at(location, name), version) for name, version in versions.items())
        return sum(table.vacuum(version, before) for table, version in tables if table is not None)


def _oldest_readable(builds: TableVersion, keep: dt.timedelta) -> SyncState:
    """Return the oldest state within `keep` of the newest, or that was the newest within the last day.

    The service clock or the local clock may have been wrong. A state is therefore older than `keep` only if both clocks
    say so. A service time later than both current clocks is ignored. Versions before `ordered_from` may be younger.
    """
    now = Moment.of(dt.datetime.now(dt.UTC))
    newest = oldest = SyncState.newest(builds)
    assert newest.as_of is not None
    first = (newest.as_of if newest.confirmed == NEVER else newest.confirmed) - keep
    last, version = max(newest.as_of, now), newest.version - 1
    while (state := next(SyncState.all(builds, version), None)) is not None and state.version >= newest.first:
        assert state.as_of is not None
        is_young = first <= state.as_of <= last or builds.committed_at(state.version) >= now - keep
        if is_young or builds.committed_at(oldest.version) >= now - GRACE:
            oldest = state
        version = state.ordered_from - 1 if state.as_of < first and oldest is not state else state.version - 1
    return oldest


def _commit_with_retries(location: Location, commit: Callable[[_Transaction], CommitResult]) -> CommitResult:
    with store_errors("written", location):
        for attempt in range(_MAX_ATTEMPTS):
            try:
                with _Transaction(location) as transaction:
                    return commit(transaction)
            except CommitConflict:
                time.sleep(random.uniform(0, 0.05) * min(attempt, 20))  # noqa: S311
    raise StoreFailed(
        f"Other writers changed the store at {location.url} during {_MAX_ATTEMPTS} attempts to commit. Try again."
    )


class _Transaction(ExitStack):
    """One attempt at a commit. Files that no commit lists are deleted when it ends."""

    def __init__(self, location: Location) -> None:
        super().__init__()
        self._location = location
        self._state = SyncState()
        self._versions: dict[str, int] = {}
        self._changes: list[TableChange] = []

    def sync(self, retention: Retention, batch: SyncBatch) -> CommitResult:
        builds = self._builds(retention.schema("builds"))
        rows = self._rows(builds, retained_columns.builds(batch.builds, batch.jobs), retention)
        marker = [HAS_WEBHOOK_UPDATE] if HAS_WEBHOOK_UPDATE in builds.column_names else []
        stored = self._stored_since(builds, batch.base_state, distinct_days(rows), ["id", "fetched_at", *marker])
        rows, superseded = merge.newer_builds(rows, stored), merge.superseded_builds(rows, stored)
        gone = self._gone(builds, batch)
        later = [one for one in batch.lists if self._is_later(one, batch.base_state)]
        for name in dict.fromkeys(one.table for one in later):
            self._update_lists(name, [one for one in later if one.table == name], retention)
        jobs = self._replace_jobs(batch.jobs, rows, retention, superseded, builds)
        lists = {**self._state.lists, **{listed.name: listed.at for listed in later}}
        change = self._new_change(builds)
        both = pa.concat_tables([rows, gone])
        change.replace(both, "id", both["id"].combine_chunks(), distinct_days(both))
        state = replace(self._dated(batch, builds.version + 1), lists=lists, has_webhook_updates=False)
        if batch.scope is not None and batch.coverage is not None:
            state = state.with_coverage(batch.scope, batch.coverage, batch.base)
        if batch.scope is not None and batch.start_state is not None:
            state = state.with_overlap(batch.scope, batch.confirmed, batch.start_state)
        return self._finish(state, rows.num_rows, jobs, gone.num_rows)

    def receive(self, retention: Retention, received: WebhookFrames) -> CommitResult:
        """Store newer rows only; commit nothing if there are none."""
        builds = self._builds(retention.webhook_schema)
        days = _days_received(received)
        ids = pd.concat([received.builds["id"], received.jobs["build_id"]]).unique()
        stored = _read_rows(builds, "id", pa.array(ids, pa.string()), days)
        rows = self._rows(builds, metrics.with_seconds(received.builds), retention)
        rows = rows.filter(merge.newest_mask(rows, merge.dated_by_deletion(stored), EVENT_TIMES["builds"]))
        present = merge.upsert(rows, stored.filter(pc.is_null(stored[GONE_AT])))
        jobs = self._receive_jobs(received.jobs, present, rows["id"].to_pylist(), days, retention)
        if not rows.num_rows + jobs.num_rows:
            return CommitResult(self._state, 0, 0, 0, 0)
        both = merge.builds_with_updates(present, rows, jobs)
        self._new_change(builds).replace(both, "id", both["id"].combine_chunks(), distinct_days(both))
        return self._finish(replace(self._state, has_webhook_updates=True), rows.num_rows, jobs.num_rows, 0)

    def compact(self) -> CommitResult:
        builds = self._builds()
        if (jobs := self._open_table("jobs")) is not None:
            self._new_change(jobs).compact_days()
        self._new_change(builds).compact_days()
        if all(change.is_empty for change in self._changes):
            return CommitResult(self._state, 0, 0, 0, 0)
        return self._finish(self._state, 0, 0, 0)

    def forget(self, first: int) -> CommitResult:
        """Record that versions before this one can no longer be read."""
        self._new_change(self._builds())
        return self._finish(replace(self._state, first=max(first, self._state.first)), 0, 0, 0)

    # --- the builds

    def _builds(self, schema: pa.Schema | None = None) -> TableVersion:
        """Open the builds and read the newest state. With a schema, create the table or add missing columns."""
        builds = self._newest("builds", schema)
        assert builds is not None
        self._state = SyncState.newest(builds)
        self._versions = dict(self._state.versions)
        return builds if schema is None else builds.add_columns(schema)

    def _newest(self, name: str, schema: pa.Schema | None) -> TableVersion | None:
        if schema is None:
            return TableVersion.at(self._location, name)
        return TableVersion.open_or_create(self._location, name, schema)

    def _stored_since(
        self, builds: TableVersion, base_state: SyncState, days: Collection[str | None], columns: list[str]
    ) -> pa.Table:
        """Return rows of these days that were stored after `base_state`."""
        if base_state.version == self._state.version:
            return _stored(builds, [], columns)
        rows = _stored(builds, days, columns)
        if base_state.version < 0:
            return rows
        earlier = TableVersion.at(self._location, "builds", base_state.version)
        assert earlier is not None
        before = set(map(tuple, _stored(earlier, days, ["id", "fetched_at"]).to_pandas().to_numpy()))
        now = rows.select(["id", "fetched_at"]).to_pandas().to_numpy()
        return rows.filter(merge.mask(tuple(one) not in before for one in now))

    def _is_later(self, listed: ListSnapshot, base_state: SyncState) -> bool:
        """Whether a list was read after the stored one, which is certain if the stored one has not changed since."""
        stored = self._state.lists.get(listed.name, NEVER)
        return stored == base_state.lists.get(listed.name, NEVER) or listed.at > stored

    def _dated(self, batch: SyncBatch, version: int) -> SyncState:
        """Return the state with the time of this sync, unless a concurrent sync has stored a later time."""
        stored = self._state.as_of
        is_earlier = stored is not None and batch.as_of < stored
        if is_earlier and stored != batch.base_state.as_of:
            return self._state
        ordered = version if is_earlier else self._state.ordered_from
        return replace(
            self._state, as_of=batch.as_of, local_time=batch.local_time, confirmed=batch.confirmed, ordered_from=ordered
        )

    def _rows(self, table: TableVersion, frame: pd.DataFrame, retention: Retention) -> pa.Table:
        return retained_columns.as_table(frame, table.schema, retention.excluded_columns(table.name))

    def _gone(self, builds: TableVersion, batch: SyncBatch) -> pa.Table:
        """Return the rows of deleted builds, except those that another sync has fetched since."""
        days = {None if pd.isna(day) else str(day) for day in batch.gone["day"]}
        stored = _stored(builds, days, builds.column_names)
        seen = dict(zip(batch.gone["id"], batch.gone["fetched_at"], strict=True))
        rows = stored.filter(merge.mask(seen.get(id) == at for id, at in merge.fetch_times(stored)))
        return merge.with_constant(merge.with_constant(rows, GONE_AT, batch.as_of), IS_OPEN, False)

    # --- the other tables

    def _open_table(self, name: str, schema: pa.Schema | None = None) -> TableVersion | None:
        """Open a table; roll it back if its newest version is not the one that the newest state lists."""
        table = self._newest(name, schema)
        if table is None:
            return None
        version = self._versions.get(name, 0)
        if table.version != version:
            table = table.roll_back_to(version)
        return table if schema is None else table.add_columns(schema)

    def _replace_jobs(
        self,
        jobs: pd.DataFrame,
        builds: pa.Table,
        retention: Retention,
        superseded: pa.Table,
        builds_table: TableVersion,
    ) -> int:
        """Replace the stored jobs of these builds and return the number of new rows.

        In superseded builds, jobs that a webhook delivery has updated since stay as they are.
        """
        table = self._open_table("jobs", retention.schema("jobs"))
        assert table is not None
        both = pa.concat_tables([builds, superseded])
        ids = both["id"].combine_chunks()
        selected = jobs[jobs["build_id"].isin(ids.to_pylist())]
        rows = self._rows(table, metrics.with_seconds(selected), retention)
        if superseded.num_rows:
            days, theirs = distinct_days(superseded), superseded["id"].combine_chunks()
            since = merge.jobs_updated_since(_read_rows(table, "build_id", theirs, days), superseded)
            rows = merge.with_build_columns(merge.upsert(since, rows), _read_rows(builds_table, "id", theirs, days))
        self._new_change(table).replace(rows, "build_id", ids, distinct_days(both))
        return rows.num_rows

    def _receive_jobs(
        self, jobs: pd.DataFrame, builds: pa.Table, changed: Sequence[Any], days: list[str | None], retention: Retention
    ) -> pa.Table:
        """Store newer jobs of these builds and return them; jobs of `changed` builds get their new build columns."""
        table = self._open_table("jobs", retention.schema("jobs"))
        assert table is not None
        ids = builds["id"].combine_chunks()
        stored = _read_rows(table, "build_id", ids, days)
        rows = self._rows(table, metrics.with_seconds(jobs[jobs["build_id"].isin(ids.to_pylist())]), retention)
        rows = rows.filter(merge.newest_mask(rows, stored, EVENT_TIMES["jobs"]))
        touched = pa.array({*changed, *rows["build_id"].to_pylist()}, pa.string())
        whole = merge.with_build_columns(merge.upsert(rows, stored), builds)
        theirs = whole.filter(pc.is_in(whole["build_id"], value_set=touched))
        self._new_change(table).replace(theirs, "build_id", touched, days if len(touched) else [])
        return rows

    def _update_lists(self, name: str, lists: Sequence[ListSnapshot], retention: Retention) -> None:
        """Apply lists to the history in one table."""
        table = self._open_table(name, retention.schema(name))
        assert table is not None
        stored = rows = table.dataset().to_table()
        for listed in lists:
            frame = listed.frame.assign(**listed.keys, valid_from=pd.Timestamp(listed.at))
            rows = merge.update_history(rows, self._rows(table, frame, retention), listed.keys, listed.at)
        change = self._new_change(table)
        if rows is not stored:
            change.write(rows)
            change.removed.extend(table.files())

    # --- committing

    def _new_change(self, table: TableVersion) -> TableChange:
        change = TableChange(table)
        self.callback(change.discard)
        self._changes.append(change)
        return change

    def _finish(self, state: SyncState, builds: int, jobs: int, gone: int) -> CommitResult:
        """Commit all changes after all files are written, the builds table last."""
        *others, of_builds = self._changes
        for change in others:
            table = change.table
            self._versions[table.name] = table.version if change.is_empty else table.commit(change)
        state = replace(state, versions=self._versions)
        version = of_builds.table.commit(of_builds, state.to_json())
        written = sum(change.bytes_written for change in self._changes)
        return CommitResult(replace(state, version=version), builds, jobs, gone, written)


def _stored(table: TableVersion, days: Collection[str | None], columns: list[str]) -> pa.Table:
    """Read columns of the rows of these days."""
    day = pa.array([day for day in days if day is not None], pa.string()).cast(pa.date32())
    in_days = pc.field("day").isin(day)
    return table.dataset().to_table(columns, filter=in_days | pc.field("day").is_null() if None in days else in_days)


def _read_rows(table: TableVersion, key: str, ids: pa.Array[Any], days: Collection[str | None]) -> pa.Table:
    """Read the rows of these days whose `key` is in `ids`."""
    return table.read_rows(table.files_with(key, ids, days), key, ids)


def _days_received(received: WebhookFrames) -> list[str | None]:
    """Return the days of all builds in the deliveries."""
    created = pd.concat([received.builds["created_at"], received.jobs["build_created_at"]])
    return [str(day) for day in sorted(set(created.dt.date))]
