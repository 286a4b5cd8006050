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
from typing import Any, Self

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe import metrics
from buildframe.errors import StoreFailed
from buildframe.spec import Moment
from buildframe.spec.flaky_tests import DEFAULT_PERIOD
from buildframe.store import computed_columns, duplicates, lost_entries, merge, retained_columns
from buildframe.store.delta import CommitConflict, Recomputation, TableChange, TableVersion, distinct_days
from buildframe.store.location import Location, store_errors
from buildframe.store.merge import EVENT_TIMES
from buildframe.store.retained_columns import GONE_AT, HAS_WEBHOOK_UPDATE, IS_OPEN, PERIOD, Retention
from buildframe.store.sync_state import NEVER, Coverage, SyncState
from buildframe.store.table_contents import TableContents
from buildframe.webhooks import WebhookFrames

GRACE = dt.timedelta(days=1)
"""Minimum age of files that `clean` deletes, because a running sync or reader may use younger ones. A sync ends after 6
hours by default, and writes the files of a commit shortly before it."""

_YEAR_1 = Moment(1, 1, 1, tzinfo=dt.UTC)
_MAX_ATTEMPTS = 100  # of one commit before it fails because of concurrent writers
_RECOMPUTED_ROWS = 200_000  # rows of a table that one commit rewrites because of older computed columns

LAST_COMMIT = "the last commit"
"""In what `restore` returns: its entry is lost, and nothing says which rows it had."""

_AddColumns = Callable[[pd.DataFrame], pd.DataFrame]


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
    the scope at that time. `start_state` is the state before the first commit of the sync. `local_time`, `confirmed`
    and `is_simulated` are those of `SyncState`. `is_import` marks exported builds, which no sync fetched.
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
    is_import: bool = False
    is_simulated: bool = True


@dataclass(frozen=True)
class CommitResult:
    """Result of a commit: the new state, the number of changed rows, and the bytes of written files."""

    state: SyncState
    builds: int = 0
    jobs: int = 0
    gone: int = 0
    bytes: int = 0


def commit(location: Location, retention: Retention, batch: SyncBatch) -> CommitResult:
    """Commit a batch of a sync; raise StoreFailed if the disk or the object store fails."""
    return _commit_with_retries(location, retention, lambda transaction: transaction.sync(batch))


def receive(location: Location, retention: Retention, received: WebhookFrames) -> CommitResult:
    """Commit rows of webhook deliveries: each build and job separately, if it is newer than the stored row."""
    return _commit_with_retries(location, retention, lambda transaction: transaction.receive(received))


def compact(location: Location) -> CommitResult:
    """Merge the files of each day into few, with the current version of computed columns."""
    return _commit_with_retries(location, Retention(), _Transaction.compact)


def recompute(location: Location) -> CommitResult | None:
    """Commit some files of older computed columns with the current ones.

    Return None if there are none.

    Each commit rewrites whole days of a limited size, so that a sync can stop after any of them.
    """
    done = _commit_with_retries(location, Retention(), _Transaction.recompute)
    return done if done.bytes else None


def repair(location: Location) -> None:
    """Store each build once, as every commit does first."""
    _commit_with_retries(location, Retention(), lambda transaction: CommitResult(transaction.state))


def restore(location: Location) -> list[str | None]:
    """Restore tables whose log lost an entry.

    Return what is lost: days to request again, names of lists, and `LAST_COMMIT`.
    """
    with store_errors("read", location):
        builds = _newest(location, "builds")
        is_damaged = builds is not None and _lost_entries(location, builds)
        is_last_commit_lost = lost_entries.is_last_commit_lost(location, builds)
    lost = drop(location, {}) if is_damaged else []
    return [*lost, LAST_COMMIT] if is_last_commit_lost else lost


def drop(location: Location, damaged: Mapping[str, Collection[str]]) -> list[str | None]:
    """Restore all tables without these files, which are paths by table. Return what is lost."""
    lost: list[str | None] = []

    def run(transaction: _Transaction) -> CommitResult:
        lost[:] = transaction.restore(damaged)
        return CommitResult(transaction.state)

    _commit_with_retries(location, Retention(), run, is_damaged=True)
    return lost


def _newest(location: Location, name: str) -> TableVersion | None:
    return lost_entries.newest_version(location, name, Retention().schema(name))


def _lost_entries(location: Location, builds: TableVersion) -> bool:
    """Whether a table of the newest state does not have the recorded files."""
    from deltalake.exceptions import DeltaError

    state = SyncState.newest(builds)
    try:
        state.checked(builds)  # also if newer: a checkpoint has what an entry lost
        for name in {*state.contents} - {"builds"}:
            state.table(location, name, _newest(location, name))
    except (DeltaError, StoreFailed):
        return True
    return False


def clean(location: Location, keep: dt.timedelta) -> int:
    """Delete files that only versions older than `keep` need and return their number; keep files younger than a day.

    A first commit records that those versions can no longer be read.
    """
    with store_errors("cleaned", location):
        builds = TableVersion.at(location, "builds")
        if builds is None or SyncState.newest(builds).as_of == NEVER:
            raise location.missing_store_error
        builds.files()  # checks where they are, before the first commit
        builds = _newest(location, "builds")
        is_last_commit_lost = lost_entries.is_last_commit_lost(location, builds)
        if builds is None or is_last_commit_lost or _lost_entries(location, builds):
            raise StoreFailed(
                f"The store at {location.url} cannot be cleaned, because its log lost an entry. Sync it first."
            )
        for name in [*SyncState.newest(builds).versions, "builds"]:
            lost_entries.set_older_aside(location, name, Retention().schema(name))
        now = _confirmed_now(builds)
        oldest = _oldest_readable(builds, keep, now)
        state = SyncState.newest(builds)
        before = (now if state.is_simulated else min(now, state.as_of)) - GRACE
        done = _commit_with_retries(location, Retention(), lambda transaction: transaction.forget(oldest.version))
        versions = {**dict.fromkeys(done.state.versions, 0), **oldest.versions, "builds": oldest.version}
        tables = ((TableVersion.at(location, name), version) for name, version in versions.items())
        return sum(table.vacuum(version, before) for table, version in tables if table is not None)


def _confirmed_now(builds: TableVersion) -> Moment:
    """Return a time that has certainly come: the earlier one of the local clock and the last commit with files.

    The local clock may be ahead. A commit of a cleaning changes no file, so that it does not confirm its own clock.
    """
    return Moment.of(min(dt.datetime.now(dt.UTC), builds.last_changed_at))


def _oldest_readable(builds: TableVersion, keep: dt.timedelta, confirmed_now: Moment) -> SyncState:
    """Return the oldest state within `keep` of the newest, or that was the newest within the last day.

    The service clock or the local clock may have been wrong. A state is therefore older than `keep` only if both clocks
    say so. A service time later than both current clocks is ignored. Versions before `ordered_from` may be younger.
    """
    now = Moment.of(dt.datetime.now(dt.UTC))
    newest = oldest = SyncState.newest(builds)
    latest = newest.as_of if newest.confirmed == NEVER else newest.confirmed
    first = latest - min(keep, latest - _YEAR_1)
    last, version = max(newest.as_of, now), newest.version - 1
    while (state := next(SyncState.all(builds, version), None)) is not None and state.version >= newest.first:
        is_young = first <= state.as_of <= last or builds.committed_at(state.version) >= now - keep
        if is_young or builds.committed_at(oldest.version) >= confirmed_now - GRACE:
            oldest = state
        version = state.ordered_from - 1 if state.as_of < first and oldest is not state else state.version - 1
    return oldest


def _commit_with_retries(
    location: Location,
    retention: Retention,
    commit: Callable[[_Transaction], CommitResult],
    *,
    is_damaged: bool = False,
) -> CommitResult:
    with store_errors("written", location):
        for attempt in range(_MAX_ATTEMPTS):
            try:
                with _Transaction(location, retention) as transaction:
                    if is_damaged or not transaction.check().repair():
                        return commit(transaction)
            except CommitConflict:
                time.sleep(random.uniform(0, 0.05) * min(attempt, 20))  # noqa: S311
    raise StoreFailed(
        f"Other writers changed the store at {location.url} during {_MAX_ATTEMPTS} attempts to commit. Try again."
    )


class _Transaction(ExitStack):
    """One attempt at a commit. Files that no commit lists are deleted when it ends."""

    def __init__(self, location: Location, retention: Retention) -> None:
        super().__init__()
        self._location, self._retention = location, retention
        schema = retention.schema("builds")
        builds = TableVersion.open_or_create(location, "builds", schema)
        self.state = SyncState.newest(builds)
        if self.state.version < 0:  # a new store
            self.state = replace(self.state, unique_ids=True)
        self._versions = dict(self.state.versions)
        self.state.check_columns(builds)
        self._builds = builds.add_columns(schema)
        self._changes: list[TableChange] = []

    def check(self) -> Self:
        """Raise StoreFailed if the log of the builds lost an entry."""
        self.state.checked(self._builds)
        return self

    def restore(self, damaged: Mapping[str, Collection[str]]) -> list[str | None]:
        """Commit a version with the recorded files that are not damaged. Return what is lost."""
        lists: list[str | None] = []
        lost: set[str | None] = set()
        for name in [*self.state.versions, "builds"]:
            table = self._builds if name == "builds" else self._newest(name)
            recorded = self.state.contents.get(name) or TableContents.of(table.files())
            restoration = lost_entries.Restoration(self._new_change(table), recorded)
            restoration.run(damaged.get(name, ()))
            if "day" in table.schema.names:
                lost.update(restoration.lost_days)
            elif restoration.lost_days:
                lists.append(name)
        state = self.state if not lost else replace(self.state, unique_ids=False)
        days = sorted(day for day in lost if day is not None)
        self._finish(state.read_again_from(days[0]) if days else state)
        return [*days, *([None] if None in lost else []), *lists]

    def _newest(self, name: str) -> TableVersion:
        """Open a table as the newest state lists it, or as far as its log reaches."""
        schema, version = self._retention.schema(name), self._versions[name]
        table = _newest(self._location, name)
        if table is None:
            return TableVersion.open_or_create(self._location, name, schema)
        self.state.check_columns(table)
        return table.roll_back_to(version) if table.version > version else table

    def repair(self) -> bool:
        """Commit a version in which each build is stored once.

        Return False if this is so already.
        """
        if self.state.unique_ids:
            return False
        repeated = duplicates.repeated_ids(self._builds)
        self.state = replace(self.state, unique_ids=True)
        if not len(repeated):
            return False
        stored = self._builds.read_rows(self._days_of(repeated), "id", repeated)
        days = distinct_days(stored)
        newest = computed_columns.recompute("builds", merge.newest_builds(stored))
        table = self._open_table("jobs")
        jobs = merge.jobs_of_builds(table.read_rows(days, "build_id", repeated), newest)
        jobs = computed_columns.recompute("jobs", jobs, newest)
        self._new_change(table).replace(jobs, "build_id", repeated, days)
        self._replace_builds(newest, days)
        self._finish(self.state)
        return True

    def sync(self, batch: SyncBatch) -> CommitResult:
        rows = self._rows(self._builds, batch.builds, lambda builds: retained_columns.builds(builds, batch.jobs))
        if batch.is_import:
            rows = merge.with_columns(rows, **{IS_OPEN: False})  # the service deletes builds that it exports
        marker = [HAS_WEBHOOK_UPDATE] if HAS_WEBHOOK_UPDATE in self._builds.schema.names else []
        days = self._days_of(rows["id"].combine_chunks(), distinct_days(rows))
        stored = self._stored_since(batch.base_state, days, ["id", "fetched_at", *marker])
        rows, superseded = merge.newer_builds(rows, stored), merge.superseded_builds(rows, stored)
        gone = self._gone(batch)
        later = [one for one in batch.lists if self._is_later(one, batch.base_state)]
        for name in dict.fromkeys(one.table for one in later):
            self._update_lists(name, [one for one in later if one.table == name])
        jobs = self._replace_jobs(batch.jobs, rows, superseded, days)
        self._replace_builds(pa.concat_tables([rows, gone]), [*days, *distinct_days(gone)])
        lists = {**self.state.lists, **{listed.name: listed.at for listed in later}}
        between_syncs = batch.is_import and bool(self.state.coverage)
        state = replace(self._dated(batch), lists=lists, has_webhook_updates=between_syncs)
        if batch.scope is not None and batch.coverage is not None:
            state = state.with_coverage(batch.scope, batch.coverage, batch.base)
        if batch.scope is not None and batch.start_state is not None:
            state = state.with_overlap(batch.scope, batch.confirmed, batch.start_state)
        return self._finish(state, rows.num_rows, jobs, gone.num_rows)

    def receive(self, received: WebhookFrames) -> CommitResult:
        """Store newer rows only; commit nothing if there are none."""
        self._builds = self._builds.add_columns(pa.schema([(HAS_WEBHOOK_UPDATE, pa.bool_())]))
        created = pd.concat([received.builds["created_at"], received.jobs["build_created_at"]])
        ids = pa.array(pd.concat([received.builds["id"], received.jobs["build_id"]]).unique(), pa.string())
        days = self._days_of(ids, [str(day) for day in sorted(set(created.dt.date))])
        stored = self._builds.read_rows(days, "id", ids)
        rows = self._rows(self._builds, received.builds, metrics.with_seconds)
        rows = rows.filter(merge.newest_mask(rows, merge.dated_by_deletion(stored), EVENT_TIMES["builds"]))
        present = merge.upsert(rows, stored.filter(pc.is_null(stored[GONE_AT])))
        jobs = self._receive_jobs(received.jobs, present, rows["id"].to_pylist(), days)
        if not rows.num_rows + jobs.num_rows:
            return CommitResult(self.state)
        updated = merge.builds_with_updates(present, rows, jobs)
        self._replace_builds(computed_columns.recompute("builds", updated), days)
        return self._finish(replace(self.state, has_webhook_updates=True), rows.num_rows, jobs.num_rows)

    def compact(self) -> CommitResult:
        for table in (self._open_table("jobs"), self._builds):
            self._new_change(table).compact_days()
        return self._finish_unless_empty()

    def recompute(self) -> CommitResult:
        """Rewrite some days with files of older computed columns."""
        for table in (self._open_table("jobs"), self._builds):
            self._new_change(table).recompute_days(_RECOMPUTED_ROWS)
        return self._finish_unless_empty()

    def _finish_unless_empty(self) -> CommitResult:
        is_empty = all(change.is_empty for change in self._changes)
        return CommitResult(self.state) if is_empty else self._finish(self.state)

    def forget(self, first: int) -> CommitResult:
        """Record that versions before this one can no longer be read."""
        self._new_change(self._builds)
        return self._finish(replace(self.state, first=max(first, self.state.first)))

    # --- the builds

    def _replace_builds(self, rows: pa.Table, days: Collection[str | None]) -> None:
        """Replace builds that are stored on these days, which include those of the rows."""
        change = self._new_change(self._builds)
        change.replace(rows, "id", rows["id"].combine_chunks(), list(dict.fromkeys(days)))

    def _days_of(self, ids: pa.Array[Any], days: Collection[str | None] = ()) -> list[str | None]:
        """Return these days and those on which the builds are stored: `created_at` can move."""
        return sorted({*days, *self._builds.days_with(ids)}, key=lambda day: (day is None, day or ""))

    def _stored_since(self, base_state: SyncState, days: Collection[str | None], columns: list[str]) -> pa.Table:
        """Return rows of these days that were stored after `base_state`."""
        if base_state.version == self.state.version:
            days = []
        rows = self._builds.read_days(days, columns)
        earlier = base_state.table(self._location, "builds") if days else None
        if earlier is None:
            return rows
        before = set(merge.fetch_times(earlier.read_days(days, ["id", "fetched_at"])))
        return rows.filter(merge.mask(one not in before for one in merge.fetch_times(rows)))

    def _is_later(self, listed: ListSnapshot, base_state: SyncState) -> bool:
        """Whether a list was read after the stored one, which is certain if the stored one has not changed since."""
        stored = self.state.lists.get(listed.name, NEVER)
        return stored == base_state.lists.get(listed.name, NEVER) or listed.at > stored

    def _dated(self, batch: SyncBatch) -> SyncState:
        """Return the state with the time of this sync, unless a concurrent sync has stored a later time."""
        stored = self.state.as_of
        is_earlier = batch.as_of < stored
        if is_earlier and stored != batch.base_state.as_of:
            return self.state
        ordered = self._builds.version + 1 if is_earlier else self.state.ordered_from
        return replace(
            self.state,
            as_of=batch.as_of,
            local_time=batch.local_time,
            confirmed=batch.confirmed,
            ordered_from=ordered,
            is_simulated=self.state.is_simulated if batch.is_import else batch.is_simulated,
        )

    def _gone(self, batch: SyncBatch) -> pa.Table:
        """Return the rows of deleted builds, except those that another sync has fetched since."""
        days = {None if pd.isna(day) else str(day) for day in batch.gone["day"]}
        stored = self._builds.read_days(days)
        seen = dict(zip(batch.gone["id"], batch.gone["fetched_at"], strict=True))
        rows = stored.filter(merge.mask(seen.get(id) == at for id, at in merge.fetch_times(stored)))
        rows = computed_columns.recompute("builds", rows)
        return merge.with_columns(rows, **{GONE_AT: batch.as_of, IS_OPEN: False})

    # --- the other tables

    def _open_table(self, name: str) -> TableVersion:
        """Open a table; roll it back if its newest version is not the one that the newest state lists."""
        schema, version = self._retention.schema(name), self._versions.get(name, 0)
        table = TableVersion.open_or_create(self._location, name, schema)
        table = table if table.version == version else table.roll_back_to(version)
        return self.state.checked(table).add_columns(schema)

    def _replace_jobs(self, jobs: pd.DataFrame, builds: pa.Table, superseded: pa.Table, days: list[str | None]) -> int:
        """Replace the jobs of these builds on these days, and return the number of new rows.

        In superseded builds, jobs that a webhook delivery has updated since stay as they are.
        """
        table, both = self._open_table("jobs"), pa.concat_tables([builds, superseded])
        ids = both["id"].combine_chunks()
        rows = self._rows(table, _jobs_of(jobs, ids), metrics.with_seconds)
        if superseded.num_rows:
            superseded_ids = superseded["id"].combine_chunks()
            stored = table.read_rows(days, "build_id", superseded_ids)
            rows = merge.upsert(merge.jobs_updated_since(stored, superseded), rows)
            rows = merge.with_build_columns(rows, self._builds.read_rows(days, "id", superseded_ids))
            rows = computed_columns.recompute("jobs", rows)
        self._new_change(table).replace(rows, "build_id", ids, days)
        return rows.num_rows

    def _receive_jobs(
        self, jobs: pd.DataFrame, builds: pa.Table, changed: Sequence[Any], days: list[str | None]
    ) -> pa.Table:
        """Store newer jobs of these builds and return them; jobs of `changed` builds get their new build columns."""
        table, ids = self._open_table("jobs"), builds["id"].combine_chunks()
        stored = table.read_rows(days, "build_id", ids)
        rows = self._rows(table, _jobs_of(jobs, ids), metrics.with_seconds)
        rows = rows.filter(merge.newest_mask(rows, stored, EVENT_TIMES["jobs"]))
        touched = pa.array({*changed, *rows["build_id"].to_pylist()}, pa.string())
        whole = merge.with_build_columns(merge.upsert(rows, stored), builds)
        jobs_of_touched = whole.filter(pc.is_in(whole["build_id"], value_set=touched))
        jobs_of_touched = computed_columns.recompute("jobs", jobs_of_touched)
        self._new_change(table).replace(jobs_of_touched, "build_id", touched, days if len(touched) else [])
        return rows

    def _update_lists(self, name: str, lists: Sequence[ListSnapshot]) -> None:
        """Apply lists to the history in one table."""
        table = self._open_table(name)
        stored = rows = _with_period(table.dataset().to_table())
        for listed in lists:
            frame = listed.frame.assign(**listed.keys, valid_from=pd.Timestamp(listed.at))
            rows = merge.update_history(rows, self._rows(table, frame), listed.keys, listed.at)
        change = self._new_change(table)
        if rows is not stored:
            change.write(rows)
            change.removed.extend(table.files())

    # --- writing

    def _rows(self, table: TableVersion, frame: pd.DataFrame, add_columns: _AddColumns = pd.DataFrame) -> pa.Table:
        if frame.empty:  # as are most time ranges of a quiet pipeline
            return table.schema.empty_table()
        excluded = self._retention.excluded_columns(table.name)
        return retained_columns.as_table(add_columns(frame), table.schema, excluded)

    def _new_change(self, table: TableVersion) -> TableChange:
        change = TableChange(table, self._recomputation(table.name))
        self.callback(change.discard)
        self._changes.append(change)
        return change

    def _recomputation(self, table: str) -> Recomputation | None:
        """Return how rows of older files of a table get its current computed columns."""
        if table not in computed_columns.VERSIONS:
            return None

        def recompute(rows: pa.Table, day: str | None) -> pa.Table:
            builds = self._builds.read_days([day], [*computed_columns.BUILD_COLUMNS]) if table == "jobs" else None
            return computed_columns.recompute(table, rows, builds)

        return Recomputation(computed_columns.VERSIONS[table], recompute)

    def _finish(self, state: SyncState, builds: int = 0, jobs: int = 0, gone: int = 0) -> CommitResult:
        """Commit all changes after all files are written, the builds table last."""
        *others, of_builds = self._changes
        for change in others:
            table = change.table
            self._versions[table.name] = table.version if change.is_empty else table.commit(change)
        contents = {
            change.table.name: TableContents.of(change.files_after(), change.table.columns) for change in self._changes
        }
        store_id = self.state.store_id or self._builds.id
        described = {**self.state.contents, **contents}
        state = replace(state, versions=self._versions, contents=described, store_id=store_id)
        version = of_builds.table.commit(of_builds, state.to_json())
        written = sum(file.size for change in self._changes for file in change.added)
        return CommitResult(replace(state, version=version), builds, jobs, gone, written)


def _with_period(stored: pa.Table) -> pa.Table:
    """Set the period of flaky tests in stores that did not record it."""
    if PERIOD not in stored.column_names:
        return stored
    return merge.with_columns(stored, **{PERIOD: pc.fill_null(stored[PERIOD], pa.scalar(DEFAULT_PERIOD))})


def _jobs_of(jobs: pd.DataFrame, builds: pa.Array[Any]) -> pd.DataFrame:
    """Return the jobs of these builds; the frame itself if it has no others."""
    is_of_builds = jobs["build_id"].isin(builds.to_pylist())
    return jobs if is_of_builds.all() else jobs[is_of_builds]
