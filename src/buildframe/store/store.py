"""Store: an incremental history of builds and jobs. Does not know Parquet files or HTTP."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from buildframe.errors import BadInput, DeadlineExceeded
from buildframe.guards.arguments import checked
from buildframe.guards.secrets import confined
from buildframe.http import protocol
from buildframe.http.budget import within_deadline
from buildframe.spec import When, list_flaky_tests
from buildframe.spec.times import Deadline, check_time, parse_duration
from buildframe.store import transactions, verification, webhook_rows
from buildframe.store.export_folders import BuildExports
from buildframe.store.imports import ExportImport, ImportResult
from buildframe.store.location import store_errors
from buildframe.store.log_entries import DamagedEntry
from buildframe.store.reader import StoreReader
from buildframe.store.retained_columns import Retention
from buildframe.store.sync import Sync, SyncResult
from buildframe.store.verification import VerifyResult
from buildframe.store.webhook_rows import ReceiveResult
from buildframe.terminal import show
from buildframe.webhooks import Event, check_events
from buildframe.workspace import PipelineWorkspace, Workspace


@checked
class Store(StoreReader):
    """
    Incremental history of builds, jobs and lists, stored as Delta tables.

    Creating a `Store` reads and writes nothing. Call `sync` to create or update the tables.

    Parameters
    ----------
    url : str or path-like
        Folder, such as ``"ci-history"``, or URL of an object store, such as ``"s3://bucket/ci-history"``.
    storage_options : mapping of str to str, optional
        Options that the package `deltalake` uses to open the URL. They never appear in messages.
    as_of : str, datetime, timedelta or int, optional
        Read the store as an earlier sync left it: the last state at or before a service time, an age such as ``"7d"``
        before the last sync, or the number of a version. Such a store is read-only. By default the newest state.

    Raises
    ------
    BadInput
        If `url` is not a store location or `storage_options` is not a dict of strings.
    MissingExtra
        If the extra `store` is not installed.

    See Also
    --------
    buildframe.save : Write one frame to one file.

    Notes
    -----
    Methods raise `StoreFailed` if the disk or the object store fails, and `BadInput` if there is no store yet or it
    lacks a requested table, column, pipeline or suite.

    Frames have the dtypes of fetched frames. Their `attrs` contain `table`, `source`, `version`, `as_of` (service time
    of the last sync) and `covers` (time range for each organization or pipeline).

    Examples
    --------
    >>> import tempfile, buildframe as bf
    >>> folder = tempfile.TemporaryDirectory()
    >>> with bf.sandbox(builds=50, days=2) as ci:
    ...     result = bf.Store(folder.name).sync(ci, since="2d")
    >>> result.complete
    True
    >>> builds = bf.Store(folder.name).builds(columns=["number", "state"])
    >>> len(builds) == result.builds
    True
    >>> folder.cleanup()
    """

    def __repr__(self) -> str:
        return f"<Store at {self._location.url}{'' if self._as_of is None else f' as of {self._as_of}'}>"

    def sync(
        self,
        ci: Workspace | PipelineWorkspace,
        *,
        since: When = "90d",
        suites: Sequence[str] = (),
        personal: bool = False,
        env: bool = False,
        progress: bool | None = None,
        deadline: Deadline = None,
        page_size: int | None = None,
    ) -> SyncResult:
        """
        Fetch what is new or changed on the service and store it.

        The first sync fetches all builds created since `since`. Later syncs fetch only what may have changed, and older
        builds if `since` reaches further back than the store. Long time ranges are committed in several steps.

        Parameters
        ----------
        ci : Workspace or PipelineWorkspace
            Workspace of an organization, or one of its pipelines.
        since : str, date, datetime or timedelta, default "90d"
            Fetch builds created at or after this time. A string is an ISO time or an age.
        suites : sequence of str, default ()
            Slugs of test suites whose flaky tests are stored with their history. Requires a workspace.
        personal : bool, default False
            Store names, e-mail addresses and the table of members. By default people are stored as ids.
        env : bool, default False
            Store columns that may contain secrets: variables, steps and YAML.
        progress : bool, optional
            Show a progress bar. By default only in an interactive session.
        deadline : str or timedelta, optional
            Stop after this duration, such as ``"2h"``. A commit that has started is finished.
        page_size : int, optional
            Builds to request per page, from 1 to 100. By default 100, and fewer if the service
            cannot send so many.

        Returns
        -------
        SyncResult
            Counts, version and completeness. If something could not be read, `why` says so, and the next sync requests
            it again.

        Raises
        ------
        BadInput
            If an argument is invalid, or the store belongs to another service.
        DeadlineExceeded
            If the deadline passes. Committed data stays, and the next sync continues from there.
        StoreFailed
            If the store cannot be read or written.

        See Also
        --------
        receive : Store webhook events between syncs.

        Notes
        -----
        A process that is killed leaves the store as of the last commit.
        """
        self._require_newest("synced")
        names = _suites(suites, ci)
        check_time(since, "since")
        with within_deadline(deadline):
            sync = Sync(self._location, ci, Retention(personal, env), progress, page_size)
            try:
                return sync.run(since, names)
            except DeadlineExceeded as late:
                late.add_note(sync.progress_summary)
                raise

    def receive(self, events: Iterable[Event], *, personal: bool = False, env: bool = False) -> ReceiveResult:
        """
        Store the builds and jobs of webhook events, in one commit.

        Events may arrive late, twice or not at all. The next sync therefore fetches these builds again, and its result
        takes precedence. Until then the builds have `is_open`, and only those jobs that had events.

        Parameters
        ----------
        events : iterable of Event
            Events from `webhooks.parse`.
        personal : bool, default False
            Store names and e-mail addresses.
        env : bool, default False
            Store columns that may contain secrets.

        Returns
        -------
        ReceiveResult
            Number of changed builds and jobs, events left out, and the version.

        Raises
        ------
        BadInput
            If `events` contains something else, or there was no sync before.
        StoreFailed
            If the store cannot be read or written.

        See Also
        --------
        sync : Fetch builds and jobs completely.
        """
        self._require_newest("updated")
        checked_events = check_events(events)
        state = self._state()
        rows, left_out = webhook_rows.rows(checked_events, state.coverage, state.as_of)
        done = transactions.receive(self._location, Retention(personal, env), rows)
        return ReceiveResult(done.builds, done.jobs, left_out, done.state.version)

    @confined
    def import_exports(
        self,
        path: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        personal: bool = False,
        env: bool = False,
        progress: bool | None = None,
    ) -> ImportResult:
        """
        Import builds that the hosted service exported past retention, without a request to the service.

        An import that stopped continues when it is started again. A stored build is replaced only if the export has a
        later state of it, or jobs that the store lacks. Folders that cannot be read are skipped and reported, and links
        are not followed.

        Parameters
        ----------
        path : str or path-like
            Folder or URL that contains the folders ``org=…`` of an export, or a folder in it, such as one day.
        storage_options : mapping of str to str, optional
            Options that the package `deltalake` uses to open the URL. By default only the environment gives access.
        personal : bool, default False
            Store names and e-mail addresses.
        env : bool, default False
            Store columns that may contain secrets.
        progress : bool, optional
            Show a progress bar. By default only in an interactive session.

        Returns
        -------
        ImportResult
            Counts, skipped folders with reasons, and the version.

        Raises
        ------
        BadInput
            If an argument is invalid, or there are no exports at `path`.
        StoreFailed
            If the store cannot be read or written, or the disk or object store with the exports fails. Committed builds
            stay.

        See Also
        --------
        sync : Fetch builds that the service still has.

        Notes
        -----
        `covers` does not change: an export does not prove that it contains all builds of a time range. `fetched_at` of
        an imported row is the latest time in its build and jobs. `is_open` is False, so no sync requests the build.

        Examples
        --------
        >>> import tempfile, buildframe as bf
        >>> folder = tempfile.TemporaryDirectory()
        >>> with bf.sandbox(builds=50, days=2) as ci:
        ...     written = ci.sandbox.write_exports(f"{folder.name}/exports")
        >>> result = bf.Store(f"{folder.name}/history").import_exports(f"{folder.name}/exports")
        >>> result.complete, result.builds == written
        (True, True)
        >>> folder.cleanup()
        """
        self._require_newest("updated")
        exports = BuildExports(path, storage_options)
        return ExportImport(self._location, Retention(personal, env), exports).run(progress)

    def compact(self) -> int:
        """
        Merge small files.

        Each sync writes a file for each day that it changes, and many small files are slow to read. Older versions stay
        readable.

        Returns
        -------
        int
            Number of files by which the current version shrank.

        See Also
        --------
        clean : Delete files of old versions.
        """
        self._require_newest("compacted")
        before = self._count_files()
        transactions.compact(self._location)
        return before - self._count_files()

    def clean(self, keep: str | dt.timedelta = "30d") -> int:
        """
        Delete files that only old versions need.

        The newest version always stays readable. Files younger than one day are kept, because a running sync or reader
        may use them. Their age does not count from the local clock alone, which may be ahead.

        Parameters
        ----------
        keep : str or timedelta, default "30d"
            Versions within this duration before the last sync stay readable; older ones do not.

        Returns
        -------
        int
            Number of deleted files.

        See Also
        --------
        compact : Merge small files.
        """
        self._require_newest("cleaned")
        length = parse_duration(keep, "keep")
        check_time(length, "keep")
        return transactions.clean(self._location, length)

    def verify(self, *, drop: bool = False) -> VerifyResult:
        """
        Read all files of the version and find those that are not as they were written.

        Each file has a checksum in its name. Files of earlier versions of the package have none; they are decoded.

        Parameters
        ----------
        drop : bool, default False
            Commit a version without the damaged files and the rows in them. The next sync requests all builds created
            since the first damaged day again. Builds that the service no longer has are then lost, so restore files
            from a backup instead if there is one.

        Returns
        -------
        VerifyResult
            Number of files, the damaged ones, and their days.

        Raises
        ------
        BadInput
            If there is no store.
        StoreFailed
            If the builds table cannot be opened, or the metadata of the version is damaged. With `drop`, also if a file
            cannot be read because of another error, such as a timeout.

        See Also
        --------
        sync : Restore a log that lost an entry, and fetch days of damaged files again.

        Examples
        --------
        >>> import tempfile, buildframe as bf
        >>> folder = tempfile.TemporaryDirectory()
        >>> with bf.sandbox(builds=50, days=2) as ci:
        ...     result = bf.Store(folder.name).sync(ci, since="2d")
        >>> bf.Store(folder.name).verify().intact
        True
        >>> folder.cleanup()
        """
        if drop:
            self._require_newest("changed")
        with store_errors("read", self._location):
            try:
                state = self._state()
            except DamagedEntry as why:  # of the builds, so nothing says which files belong to the version
                if drop:
                    raise
                return VerifyResult(0, 0, {why.path: verification.DAMAGED_LOG})
            result = verification.verify(self._location, state, to_drop=drop)
        if drop and not result.intact:
            damaged: dict[str, list[str]] = {}
            for path in result.damaged:
                table, _, name = path.partition("/")
                damaged.setdefault(table, []).append(name)
            transactions.drop(self._location, damaged)
        return result

    def _require_newest(self, action: str) -> None:
        if self._as_of is not None:
            raise BadInput(
                f"as_of={show(self._as_of)}: an earlier state cannot be {action}. Create the Store without as_of."
            )

    def _count_files(self) -> int:
        with store_errors("read", self._location):
            return sum(len(table.files()) for table in self._tables()[0].values())


def _suites(suites: Sequence[str], ci: Any) -> list[str]:
    """Return the distinct slugs; raise BadInput for an invalid one."""
    names = list(dict.fromkeys(suites))
    for name in names:
        protocol.slug_segment(list_flaky_tests.parameters[-1], name)
    if names and isinstance(ci, PipelineWorkspace):
        raise BadInput(
            "suites requires a workspace, because test suites belong to an organization. Sync a workspace instead."
        )
    return names
