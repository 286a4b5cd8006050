"""Import exported builds into a store. Decides which builds are new or newer than stored ones; does not know files.

A row is dated by the latest time in its build and jobs, because nothing in an export says when it was written: whatever
was fetched at that time or later shows the same state, or a later one.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from buildframe.fetching import arrow
from buildframe.fetching.progress import ProgressBar
from buildframe.formatting import format_count
from buildframe.spec import Moment
from buildframe.spec.odd_values import OddValue
from buildframe.store import retained_columns, transactions
from buildframe.store.delta import TableVersion
from buildframe.store.export_folders import (
    Bounds,
    BuildExports,
    DamagedExport,
    ExportedBuild,
    ExportFolder,
    ExportTooLarge,
)
from buildframe.store.location import Location, store_errors
from buildframe.store.merge import EVENT_TIMES
from buildframe.store.retained_columns import HAS_WEBHOOK_UPDATE, IS_OPEN, Retention
from buildframe.store.sync_state import SyncState
from buildframe.store.transactions import SyncBatch
from buildframe.terminal import escape_control_characters

_WORKERS = 16  # threads that read files; each waits for an object store most of the time
_BUILDS_PER_BATCH = 500
_BYTES_PER_BATCH = 64 * 2**20
_JOBS_PER_BATCH = 50_000
_SHARED = Bounds(file_bytes=2**20, build_bytes=4 * 2**20, jobs=1_000)
"""Bounds of a build that one of the threads reads. Larger builds are read one at a time, so that memory is bounded."""

_SHOWN = 3  # skipped folders in the text of a result


@dataclass(frozen=True)
class ImportResult:
    """
    Result of `Store.import_exports`.

    An import does not change what `Store.covers` reports: exports do not prove that a time range is complete.

    Parameters
    ----------
    builds : int
        Imported builds: new ones, and those that the store had in an earlier state.
    jobs : int
        Jobs of these builds.
    unchanged : int
        Builds that the store had in the same or a later state.
    skipped : dict of str to str
        Folders and links that were not imported, by their path in the export, each with the reason.
    bytes : int
        Size of the written files.
    version : int
        Version of the store after the import; -1 if there is no store.
    odd : int
        Values of imported builds and jobs that did not fit their columns and became null, or text; also times after the
        day of the import, which became null.

    See Also
    --------
    Store.import_exports : Import exported builds.
    """

    builds: int
    jobs: int
    unchanged: int
    skipped: Mapping[str, str]
    bytes: int
    version: int
    odd: int = 0

    @property
    def complete(self) -> bool:
        """
        Whether every folder of a build could be read.

        Returns
        -------
        bool
            False if `skipped` contains a folder.
        """
        return not self.skipped

    @property
    def why(self) -> str | None:
        """
        Which folders were skipped, and why.

        Returns
        -------
        str or None
            The first folders with their reasons, and how many there are; None if no folder was skipped.
        """
        if not self.skipped:
            return None
        shown = [f"{folder}: {why}" for folder, why in itertools.islice(self.skipped.items(), _SHOWN)]
        more = [f"and {len(self.skipped) - _SHOWN:,} more"] if len(self.skipped) > _SHOWN else []
        return f"{format_count(len(self.skipped), 'folder')} skipped: {'; '.join([*shown, *more])}"

    def __str__(self) -> str:
        odd = f", {self.odd:,} odd values became null or text" if self.odd else ""
        reach = "every folder was read" if self.complete else f"INCOMPLETE: {self.why}"
        return (
            f"{self.builds:,} builds and {self.jobs:,} jobs imported, {self.unchanged:,} builds unchanged{odd}; "
            f"{reach}; covered time ranges are unchanged (version {self.version})"
        )


class _StoredBuild(NamedTuple):
    """What a store has of a build: `latest` is the latest event in it and its jobs, `jobs` are their ids."""

    fetched_at: Moment
    latest: Moment
    is_partial: bool
    jobs: set[str]

    def is_current(self, build: ExportedBuild) -> bool:
        """Whether an export of this build can be left unread: nothing in it is later, and no job is missing."""
        return not self.is_partial and build.latest <= self.fetched_at and self._has_jobs_of(build)

    def is_later(self, build: ExportedBuild, exported_at: Moment) -> bool:
        """Whether this is a later state than that of an export.

        Without some of the exported jobs it must have a later event, because it was not fetched like this.
        """
        return exported_at < (self.fetched_at if self._has_jobs_of(build) else self.latest)

    def _has_jobs_of(self, build: ExportedBuild) -> bool:
        return build.folder.job_files.keys() <= self.jobs


@dataclass
class ExportImport:
    """One import of exported builds into a store."""

    location: Location
    retention: Retention
    exports: BuildExports
    builds: int = 0
    jobs: int = 0
    unchanged: int = 0
    bytes: int = 0
    odd: int = 0
    skipped: dict[str, str] = field(default_factory=dict)

    def run(self, progress: bool | None) -> ImportResult:
        """Import day by day, in batches with a commit each."""
        self._state = self._newest_state()
        with ProgressBar("builds", progress) as bar, ThreadPoolExecutor(_WORKERS) as pool:
            days = self.exports.days()
            for place, day in enumerate(days):
                folders = self.exports.builds(day)
                for start in range(0, len(folders), _BUILDS_PER_BATCH):
                    self._import(folders[start : start + _BUILDS_PER_BATCH], pool)
                    share = (place + min(1.0, (start + _BUILDS_PER_BATCH) / len(folders))) / len(days)
                    bar.show(self.builds + self.unchanged, place + 1, share, "folders of days")
            bar.end()
        skipped = {_readable(path): _readable(why) for path, why in {**self.exports.skipped, **self.skipped}.items()}
        return ImportResult(self.builds, self.jobs, self.unchanged, skipped, self.bytes, self._state.version, self.odd)

    def _newest_state(self) -> SyncState:
        with store_errors("read", self.location):
            builds = TableVersion.at(self.location, "builds")
            return SyncState() if builds is None else SyncState.newest(builds)

    # --- reading

    def _import(self, folders: Sequence[ExportFolder], pool: ThreadPoolExecutor) -> None:
        """Import the builds in these folders that are new or newer, in one commit if they are not too large."""
        self._state = self._base_state = self._newest_state()
        first = {folder.build_id: folder for folder in reversed(folders)}
        for folder in folders:
            if first[folder.build_id] is not folder:
                self._skip(folder, f"{first[folder.build_id].path} is of the same build")
        heads: list[tuple[ExportFolder, ExportedBuild]] = []
        for head in self._read(self.exports.read_build, [(one, one) for one in first.values()], pool):
            heads.append(head)
            if sum(build.size for _, build in heads) >= _BYTES_PER_BATCH:
                self._import_builds(heads, pool)
                heads = []
        self._import_builds(heads, pool)

    def _import_builds(self, heads: Sequence[tuple[ExportFolder, ExportedBuild]], pool: ThreadPoolExecutor) -> None:
        """Import those of these builds that are new or newer, whose jobs are not read yet."""
        stored = self._stored([build for _, build in heads])
        changed = [(folder, build) for folder, build in heads if not _is_current(build, stored)]
        self.unchanged += len(heads) - len(changed)
        batch: list[ExportedBuild] = []
        for _, build in self._read(self.exports.read_jobs, changed, pool):
            batch.append(build)
            n_jobs = sum(len(one.row.jobs) for one in batch)
            if sum(one.size for one in batch) >= _BYTES_PER_BATCH or n_jobs >= _JOBS_PER_BATCH:
                self._commit(batch, stored)
                batch = []
        self._commit(batch, stored)

    def _read(
        self, read: Callable[..., ExportedBuild], items: Sequence[tuple[ExportFolder, Any]], pool: ThreadPoolExecutor
    ) -> Iterator[tuple[ExportFolder, ExportedBuild]]:
        """Yield what `read` returns for each item, some items ahead; skip damaged folders."""
        for start in range(0, len(items), 2 * _WORKERS):
            ahead = items[start : start + 2 * _WORKERS]
            futures = [pool.submit(read, item, _SHARED) for _, item in ahead]
            for (folder, item), future in zip(ahead, futures, strict=True):
                try:
                    try:
                        build = future.result()
                    except ExportTooLarge:
                        build = read(item)
                except DamagedExport as why:
                    self._skip(folder, why)
                else:
                    yield folder, build

    def _skip(self, folder: ExportFolder, why: Exception | str) -> None:
        self.skipped[folder.path or self.exports.location.url] = str(why)

    def _stored(self, builds: Sequence[ExportedBuild]) -> dict[str, _StoredBuild]:
        """Return what the store has of these builds, by id."""
        ids = pa.array([build.row.id for build in builds], pa.string())
        with store_errors("read", self.location):
            table, jobs = (self._base_state.table(self.location, name) for name in ("builds", "jobs"))
            if table is None:
                return {}
            days = table.days_with(ids)
            marker = [HAS_WEBHOOK_UPDATE] if HAS_WEBHOOK_UPDATE in table.schema.names else []
            columns = ["id", "fetched_at", IS_OPEN, *marker, *EVENT_TIMES["builds"]]
            rows = table.read_days(days, columns, pc.field("id").isin(ids))
            columns = ["build_id", "id", *EVENT_TIMES["jobs"]]
            of_builds = pc.field("build_id").isin(ids)
            of_jobs = [] if jobs is None else _with_latest("jobs", jobs.read_days(days, columns, of_builds))
        jobs_of: dict[str, set[str]] = defaultdict(set)
        latest_of: dict[str, int] = defaultdict(int)
        for job in of_jobs:
            jobs_of[job["build_id"]].add(job["id"].lower())
            latest_of[job["build_id"]] = max(latest_of[job["build_id"]], job["latest"] or 0)
        return {
            row["id"]: _StoredBuild(
                Moment.of(row["fetched_at"]),
                Moment.from_us(max(latest_of[row["id"]], row["latest"] or 0)),
                bool(row[IS_OPEN] or row.get(HAS_WEBHOOK_UPDATE)),
                jobs_of[row["id"]],
            )
            for row in _with_latest("builds", rows)
        }

    # --- writing

    def _commit(self, read: Sequence[ExportedBuild], stored: Mapping[str, _StoredBuild]) -> None:
        """Commit those builds that are not older than the stored ones, if there are any."""
        read = self._with_own_jobs(read)
        if not read:
            return
        builds, jobs = self._frames(read)
        self.odd += sum(build.odd for build in read)
        pairs = zip(read, builds["fetched_at"], strict=True)
        is_older = [build.row.id in stored and stored[build.row.id].is_later(build, at) for build, at in pairs]
        self.unchanged += sum(is_older)
        builds = builds[~np.array(is_older, bool)]
        if builds.empty:
            return
        done = transactions.commit(self.location, self.retention, self._batch(builds, jobs))
        self._state = done.state
        self.builds += done.builds
        self.unchanged += len(builds) - done.builds
        self.jobs += done.jobs
        self.bytes += done.bytes

    def _with_own_jobs(self, read: Sequence[ExportedBuild]) -> list[ExportedBuild]:
        """Skip each build with a job that an earlier build, or a stored one of these days, also has."""
        owners = self._stored_owners(read)
        own: list[ExportedBuild] = []
        for build in read:
            jobs = [job.id for job in build.row.jobs]
            other = next((owners[id] for id in jobs if owners.get(id, build.row.id) != build.row.id), None)
            if other is None:
                own.append(build)
                owners.update(dict.fromkeys(jobs, build.row.id))
            else:
                self._skip(build.folder, f"its jobs are also those of build {other}")
        return own

    def _stored_owners(self, read: Sequence[ExportedBuild]) -> dict[str, str]:
        """Return the id of the build of each of these jobs that is stored on a day of these builds.

        A copy of a build is on the same day. Ids of jobs are random, so each file of other days would have to be read.
        """
        ids = pa.array([job.id for build in read for job in build.row.jobs], pa.string())
        days = {build.created.date().isoformat() for build in read}
        with store_errors("read", self.location):
            table = self._state.table(self.location, "jobs") if len(ids) else None
            if table is None:
                return {}
            rows = table.read_rows(days, "id", ids)
        return {row["id"]: row["build_id"] for row in rows.select(["id", "build_id"]).to_pylist()}

    def _batch(self, builds: pd.DataFrame, jobs: pd.DataFrame) -> SyncBatch:
        """Return the input of a commit. The store's time is that of syncs; before the first, the latest of builds."""
        state, times = self._state, builds[list(EVENT_TIMES["builds"])]
        latest = Moment.of(pd.Timestamp(times.max().max()).ceil("s").to_pydatetime())
        return SyncBatch(
            builds,
            jobs[jobs["build_id"].isin(builds["id"])],
            as_of=state.as_of if state.coverage else max(state.as_of, latest),
            base_state=self._base_state,
            local_time=state.local_time,
            confirmed=state.confirmed,
            is_import=True,
        )

    def _frames(self, read: Sequence[ExportedBuild]) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return the frames of builds and jobs; count values that do not fit their columns."""
        rows = [build.row for build in read]
        odd: list[OddValue] = []
        builds = arrow.from_rows("builds", rows, Moment.from_us(0), report=odd.append)
        jobs = arrow.to_frame("jobs", [arrow.jobs_of(builds, rows, report=odd.append)])
        self.odd += len(odd)
        return _dated(arrow.to_frame("builds", [builds]), retained_columns.as_list_rows(jobs))


def _readable(path: str) -> str:
    """Return a path without bytes that are not UTF-8 and without control characters, so that it can be printed."""
    return escape_control_characters(path.encode("utf-8", "surrogateescape").decode("utf-8", "replace"), keep="")


def _is_current(build: ExportedBuild, stored: Mapping[str, _StoredBuild]) -> bool:
    return build.row.id in stored and stored[build.row.id].is_current(build)


def _with_latest(name: str, rows: pa.Table) -> list[dict[str, Any]]:
    """Return rows of a table with their latest event time in microseconds instead of all event times."""
    times = EVENT_TIMES[name]
    latest: Any = pc.max_element_wise(*(rows[time].cast(pa.int64()) for time in times))
    return rows.drop_columns([*times]).append_column("latest", latest).to_pylist()


def _dated(builds: pd.DataFrame, jobs: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Set `fetched_at` to the latest time in a build and its jobs, in whole seconds like the times of responses."""
    of_build = builds.set_index("id")[list(EVENT_TIMES["builds"])].max(axis=1)
    of_jobs = jobs.set_index("build_id")[list(EVENT_TIMES["jobs"])].max(axis=1)
    at = pd.concat([of_build, of_jobs]).groupby(level=0).max().dt.ceil("s").astype(builds["fetched_at"].dtype)
    return (
        builds.assign(fetched_at=at.reindex(builds["id"]).array),
        jobs.assign(fetched_at=at.reindex(jobs["build_id"]).array),
    )
