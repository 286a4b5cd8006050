"""Store: an incremental history of builds and jobs. Does not know Parquet files or HTTP."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.compute as pc

from buildframe.errors import BadInput, DeadlineExceeded
from buildframe.guards.arguments import checked, checked_names
from buildframe.guards.secrets import confined
from buildframe.http import protocol
from buildframe.http.budget import within_deadline
from buildframe.http.request_body import nearest
from buildframe.spec import TABLES, Moment, When, list_flaky_tests, when
from buildframe.spec.times import Deadline, check_time, parse_duration
from buildframe.store import STORED_TABLES, frames, spark, transactions, webhook_rows
from buildframe.store.delta import TableVersion
from buildframe.store.location import Location, import_deltalake, store_errors
from buildframe.store.retained_columns import Retention
from buildframe.store.sync import Sync, SyncResult, SyncScope
from buildframe.store.sync_state import NEVER, SyncState
from buildframe.store.webhook_rows import ReceiveResult
from buildframe.terminal import show
from buildframe.webhooks import Event
from buildframe.workspace import Pipeline, Workspace

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@checked
class Store:
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

    @checked_names
    @confined
    def __init__(
        self,
        url: str | os.PathLike[str],
        *,
        storage_options: Mapping[str, str] | None = None,
        as_of: When | int | None = None,
    ) -> None:
        import_deltalake()
        self._location = Location.of(url, storage_options)
        self._as_of = as_of

    def __repr__(self) -> str:
        return f"<Store at {self._location.url}{'' if self._as_of is None else f' as of {self._as_of}'}>"

    @property
    def url(self) -> str:
        """
        Folder or URL of the store.

        Returns
        -------
        str
            An absolute path, or the URL of an object store.
        """
        return self._location.url

    # --- writing

    def sync(
        self,
        ci: Workspace | Pipeline,
        *,
        since: When = "90d",
        suites: Sequence[str] = (),
        personal: bool = False,
        env: bool = False,
        progress: bool | None = None,
        deadline: Deadline = None,
    ) -> SyncResult:
        """
        Fetch what is new or changed on the service and store it.

        The first sync fetches all builds created since `since`. Later syncs fetch only what may have changed, and older
        builds if `since` reaches further back than the store. Long time ranges are committed in several steps.

        Parameters
        ----------
        ci : Workspace or Pipeline
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
            sync = Sync(self._location, SyncScope.of(ci), Retention(personal, env), progress)
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
        checked_events = _events(events)
        state = self._state()
        rows, left_out = webhook_rows.rows(checked_events, state.coverage, state.as_of or NEVER)
        done = transactions.receive(self._location, Retention(personal, env), rows)
        return ReceiveResult(done.builds, done.jobs, left_out, done.state.version)

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
        may use them.

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

    # --- reading

    def builds(
        self,
        *,
        created_from: When | None = None,
        created_to: When | None = None,
        pipeline: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """
        Return builds in descending order of creation.

        Includes builds that the service has deleted since.

        Parameters
        ----------
        created_from : str, date, datetime or timedelta, optional
            Return builds created at or after this time. Ages count back from the last sync.
        created_to : str, date, datetime or timedelta, optional
            Return builds created before this time.
        pipeline : str, optional
            Slug or id of a pipeline. A slug selects the pipeline that has it now, or had it last, with all its builds
            under earlier slugs.
        columns : sequence of str, optional
            Columns to return. By default those of `Workspace.builds`.

        Returns
        -------
        pandas.DataFrame
            One row per build, with the columns of `Workspace.builds` that the store retains. `columns` can also name

            ================== =================== ==============================================================
            wall_time_s        float64             seconds from start to end; NaN if unfinished
            day                date32[day]         UTC day of creation; null if `created_at` is null
            is_open            boolean             the build could still change when it was last stored
            gone_at            datetime64[us, UTC] when the service reported it as deleted; NaT if it exists
            has_webhook_update boolean             updated by a webhook after the last sync; null if not
            ================== =================== ==============================================================

            The column `has_webhook_update` exists only in stores that have received events.

        Raises
        ------
        BadInput
            If an argument is invalid or there is no store.
        StoreFailed
            If the store cannot be read.

        See Also
        --------
        jobs : Jobs of the same builds.
        """
        return self._read_builds("builds", created_from, created_to, pipeline, columns)

    def jobs(
        self,
        *,
        created_from: When | None = None,
        created_to: When | None = None,
        pipeline: str | None = None,
        columns: Sequence[str] | None = None,
    ) -> pd.DataFrame:
        """
        Return jobs of the builds that `builds` returns for the same arguments.

        Parameters
        ----------
        created_from : str, date, datetime or timedelta, optional
            Return jobs of builds created at or after this time.
        created_to : str, date, datetime or timedelta, optional
            Return jobs of builds created before this time.
        pipeline : str, optional
            Slug or id of a pipeline.
        columns : sequence of str, optional
            Columns to return. By default those of `Workspace.jobs`.

        Returns
        -------
        pandas.DataFrame
            One row per job, with the columns of `Workspace.jobs` that the store retains. `columns` can also name

            ================= =========== ===========================================================
            queue_time_s      float64     seconds waiting for an agent; NaN if unknown
            dependency_wait_s float64     seconds waiting for dependencies; NaN if unknown
            run_time_s        float64     seconds from start to end; NaN if unfinished
            turnaround_s      float64     seconds from creation to end; NaN if unfinished
            step              str         name of the step across builds; NaN if unknown
            day               date32[day] UTC day on which the build was created; null if unknown
            ================= =========== ===========================================================

        Raises
        ------
        BadInput
            If an argument is invalid or there is no store.
        StoreFailed
            If the store cannot be read.

        See Also
        --------
        builds : The builds themselves.
        """
        return self._read_builds("jobs", created_from, created_to, pipeline, columns)

    def pipelines(self, *, history: bool = False) -> pd.DataFrame:
        """
        Return the pipelines of the last sync, or their history.

        Parameters
        ----------
        history : bool, default False
            Return earlier states, too.

        Returns
        -------
        pandas.DataFrame
            One row per pipeline, with the columns of `Workspace.pipelines` that the store retains. With `history`, one
            row per state, with the additional columns

            ========== =================== ===================================================================
            valid_from datetime64[us, UTC] when a list first contained this state
            valid_to   datetime64[us, UTC] when a list first no longer contained it; NaT if it is current
            ========== =================== ===================================================================

            `fetched_at` is the last time at which a list is known to have contained the state.

        Raises
        ------
        BadInput
            If only single pipelines were synced, so that there is no list.
        StoreFailed
            If the store cannot be read.
        """
        return self._read_list("pipelines", history, {})

    def members(self, *, history: bool = False) -> pd.DataFrame:
        """
        Return the members of the organization, or their history.

        Parameters
        ----------
        history : bool, default False
            Return earlier states, too, with `valid_from` and `valid_to` as in `pipelines`.

        Returns
        -------
        pandas.DataFrame
            One row per member or state, with the columns of `Workspace.members`.

        Raises
        ------
        BadInput
            If no sync had ``personal=True``.
        StoreFailed
            If the store cannot be read.
        """
        return self._read_list("members", history, {})

    def flaky_tests(self, suite: str | None = None, *, history: bool = False) -> pd.DataFrame:
        """
        Return the flaky tests of one or all suites, or their history.

        `metrics.flaky_board` accepts the frame.

        Parameters
        ----------
        suite : str, optional
            Slug of a suite. By default all suites that were synced.
        history : bool, default False
            Return earlier states, too, with `valid_from` and `valid_to` as in `pipelines`.

        Returns
        -------
        pandas.DataFrame
            One row per test or state, with the columns of `Workspace.flaky_tests`. `fetched_at` is the time at which
            the list was last read.

        Raises
        ------
        BadInput
            If no sync stored this suite, or any suite.
        StoreFailed
            If the store cannot be read.
        """
        if suite is not None:
            self._check_suite(suite)
        return self._read_list("flaky_tests", history, {} if suite is None else {"suite": suite})

    def sql(self, query: str) -> pd.DataFrame:
        """
        Run a read-only DuckDB query on the tables.

        Parameters
        ----------
        query : str
            SQL that can use the tables `builds`, `jobs`, `pipelines`, `members` and `flaky_tests`, if they exist. Times
            are in UTC.

        Returns
        -------
        pandas.DataFrame
            The result, with the dtypes of fetched frames. Lists have one row per state; `valid_to` is null for current
            rows.

        Raises
        ------
        BadInput
            If DuckDB rejects the query.
        StoreFailed
            If a file cannot be read.
        MissingExtra
            If DuckDB is not installed.
        """
        with store_errors("read", self._location):
            return frames.query(self._tables(), query)

    def spark(self, session: SparkSession) -> dict[str, DataFrame]:
        """
        Open the tables as PySpark DataFrames of one version.

        Later syncs do not change the DataFrames. If the session supports Delta, Spark reads the Delta tables, else
        their Parquet files. Rows are read when you use them.

        Parameters
        ----------
        session : pyspark.sql.SparkSession
            Session whose time zone is UTC.

        Returns
        -------
        dict of str to pyspark.sql.DataFrame
            The existing tables by name, with the stored columns as in `sql`.

        Raises
        ------
        BadInput
            If `session` is not a SparkSession, or its time zone is not UTC.
        MissingExtra
            If PySpark is not installed. It also needs Java.
        StoreFailed
            If Spark cannot open a table.
        """
        spark.check(session)
        with store_errors("read", self._location):
            return spark.frames(self._tables(), session)

    def files(self, table: str) -> list[str]:
        """
        Return the Parquet files of a table, for programs that cannot read Delta tables.

        Each row is in exactly one file. The day of builds and jobs is only in the path, such as ``day=2026-10-30``.
        Read exactly these files, because a folder can contain others.

        Parameters
        ----------
        table : str
            Name of a table.

        Returns
        -------
        list of str
            Absolute paths, or URLs of an object store.

        Raises
        ------
        BadInput
            If the store has no such table.
        StoreFailed
            If the store cannot be read.
        """
        return self._table(table, self._state()).uris()

    @property
    def version(self) -> int:
        """
        Version that is read.

        Returns
        -------
        int
            Number of the newest version, or of that selected with `as_of`.
        """
        return self._state().version

    @property
    def as_of(self) -> Moment:
        """
        Service time of the last sync.

        Returns
        -------
        Moment
            A datetime in UTC.
        """
        as_of = self._state().as_of
        assert as_of is not None
        return as_of

    @property
    def covers(self) -> dict[str, tuple[Moment, Moment]]:
        """
        Time range that the store covers, by scope.

        Builds created since the first time are stored in their state at the second time or later.

        Returns
        -------
        dict of str to tuple of Moment
            Keys are organizations, or ``organization/pipeline id``. Values are the start and the end of the range.
        """
        return self._state().covers

    # --- private

    def _require_newest(self, action: str) -> None:
        if self._as_of is not None:
            raise BadInput(
                f"as_of={show(self._as_of)}: an earlier state cannot be {action}. Create the Store without as_of."
            )

    def _tables(self) -> dict[str, TableVersion]:
        """Open the tables that exist."""
        state = self._state()
        tables = ((name, state.table(self._location, name)) for name in STORED_TABLES)
        return {name: table for name, table in tables if table is not None}

    def _count_files(self) -> int:
        with store_errors("read", self._location):
            return sum(len(table.files()) for table in self._tables().values())

    def _state(self) -> SyncState:
        with store_errors("read", self._location):
            builds = TableVersion.at(self._location, "builds")
            newest = SyncState() if builds is None else SyncState.newest(builds)
            if builds is None or newest.as_of is None:
                raise BadInput(f"There is no store at {self._location.url!r}. Create one with store.sync(ws).")
            return newest if self._as_of is None else _state_as_of(self._as_of, builds, newest)

    def _table(self, name: str, state: SyncState) -> TableVersion:
        if not isinstance(name, str) or name not in STORED_TABLES:
            raise BadInput(f"{show(name)} is not a table of the store. Use one of {', '.join(STORED_TABLES)}.")
        with store_errors("read", self._location):
            table = state.table(self._location, name)
        if table is None:
            raise BadInput(f"The store at {self._location.url!r} has no table {name!r}{_HOW_TO_FILL.get(name, '')}.")
        return table

    def _read_builds(
        self, name: str, start: When | None, end: When | None, pipeline: str | None, columns: Sequence[str] | None
    ) -> pd.DataFrame:
        state = self._state()
        table = self._table(name, state)
        created = "created_at" if name == "builds" else "build_created_at"
        first, last = _moment(start, "created_from", state), _moment(end, "created_to", state)
        if first is not None and last is not None and first >= last:
            raise BadInput(
                f"The time range is empty: created_from={first.text()}, created_to={last.text()}. Swap them?"
            )
        with store_errors("read", self._location):
            conditions = [] if pipeline is None else [self._pipeline_condition(pipeline, state)]
            rows = frames.read(table, _declared(name), columns, conditions, created, first, last)
        return self._with_attrs(rows, name, state)

    def _pipeline_condition(self, pipeline: str, state: SyncState) -> pc.Expression:
        """Select by id, because slugs change; a slug without a pipeline means the one that had it last."""
        pipelines = self._listed_pipelines(state)
        matches = [row for row in pipelines if pipeline in (row["id"], row["slug"])]
        if not matches:
            pipelines = self._pipelines_of_builds(state)
            matches = [row for row in pipelines if pipeline in (row["id"], row["slug"])]
        if not matches:
            slugs = sorted({row["slug"] for row in pipelines if row["slug"] is not None})
            raise BadInput(f"pipeline={show(pipeline)} is not in the store.{nearest(pipeline, slugs)}")
        current = [row for row in matches if row["until"] is None]
        if len({row.get("organization") for row in current}) > 1:
            each = ", ".join(f"{row['id']} of {row['organization']}" for row in current)
            raise BadInput(f"pipeline={show(pipeline)} exists in several organizations. Pass its id: {each}.")
        ids = [row["id"] for row in current or [max(matches, key=lambda row: row["until"])]]
        return pc.field("pipeline_id").isin(ids)

    def _listed_pipelines(self, state: SyncState) -> list[dict[str, Any]]:
        """Return ids and slugs from lists, with the end of their validity; None if current."""
        table = state.table(self._location, "pipelines")
        if table is None:
            return []
        return table.dataset().to_table({name: pc.field(was) for name, was in _SLUGS.items()}).to_pylist()

    def _pipelines_of_builds(self, state: SyncState) -> list[dict[str, Any]]:
        """Return ids and slugs from builds, with the time of the last build, for pipelines in no list."""
        columns = {"id": pc.field("pipeline_id"), "slug": pc.field("pipeline"), "until": pc.field("created_at")}
        rows = self._table("builds", state).dataset().to_table(columns).group_by(["id", "slug"])
        return rows.aggregate([("until", "max")]).rename_columns(["id", "slug", "until"]).to_pylist()

    def _read_list(self, name: str, history: bool, keys: Mapping[str, str]) -> pd.DataFrame:
        state = self._state()
        table = self._table(name, state)
        extra = [*(n for n in ("organization", "suite") if n not in _declared(name) and n in table.column_names)]
        conditions = [pc.field(key) == value for key, value in keys.items()]
        conditions += [] if history else [pc.field("valid_to").is_null()]
        with store_errors("read", self._location):
            rows = frames.read(table, [*extra, *_declared(name), *_VALIDITY], None, conditions, None)
        last_read = frames.as_last_read(rows, name, state.lists)["fetched_at"]
        rows["fetched_at"] = last_read.where(rows["valid_to"].isna(), rows["fetched_at"])
        return self._with_attrs(rows if history else rows.drop(columns=_VALIDITY), name, state)

    def _check_suite(self, suite: str) -> None:
        lists = (name.split("/") for name in self._state().lists)
        suites = sorted({name[-1] for name in lists if name[0] == "flaky_tests"})
        if not isinstance(suite, str) or suite not in suites:
            raise BadInput(f"suite={show(suite)} is not in the store.{nearest(show(suite), suites)}")

    def _with_attrs(self, frame: pd.DataFrame, name: str, state: SyncState) -> pd.DataFrame:
        assert state.as_of is not None
        covers = {scope: [since.text(), until.text()] for scope, (since, until) in state.covers.items()}
        frame.attrs.update(covers=covers, table=name, source=self.url, as_of=state.as_of.text(), version=state.version)
        return frame


_VALIDITY = ["valid_from", "valid_to"]
_SLUGS = {"id": "id", "slug": "slug", "organization": "organization", "until": "valid_to"}

_HOW_TO_FILL = {
    "members": ". Sync with personal=True to store it",
    "flaky_tests": ". Name suites: store.sync(ws, suites=[...])",
    "pipelines": ". Sync a workspace, not only a pipeline",
}


def _declared(name: str) -> list[str]:
    return [column.name for column in TABLES[name]]


def _moment(value: When | None, name: str, state: SyncState) -> Moment | None:
    return None if value is None else when(value, name, state.as_of)


def _state_as_of(as_of: When | int, builds: TableVersion, newest: SyncState) -> SyncState:
    if isinstance(as_of, bool):
        raise BadInput(f"as_of={as_of} is not a time. Pass a time, an age such as '7d', or the number of a version.")
    if isinstance(as_of, int) and as_of > newest.version:
        raise BadInput(f"as_of={as_of} is not a version of the store. The newest version is {newest.version}.")
    state = SyncState.at(builds, as_of if isinstance(as_of, int) else when(as_of, "as_of", newest.as_of))
    if state is None:
        oldest = SyncState.oldest(builds)
        assert oldest.as_of is not None
        raise BadInput(
            f"as_of={as_of!r} is before the first readable sync: version {oldest.version} at {oldest.as_of.text()}. "
            "Use a later time."
        )
    return state


def _events(events: Iterable[Event]) -> Sequence[Event]:
    """Return the events as a list; raise BadInput for other values."""
    checked_events = list(events) if isinstance(events, Iterable) else [events]
    if wrong := [event for event in checked_events if not isinstance(event, Event)]:
        raise BadInput(
            f"events={show(wrong[0]):.80} is not an event. Pass a list of events, such as [webhooks.parse(...)]."
        )
    return checked_events


def _suites(suites: Sequence[str], ci: Any) -> list[str]:
    """Return the distinct slugs; raise BadInput for an invalid one."""
    names = list(dict.fromkeys(suites))
    for name in names:
        protocol.slug_segment(list_flaky_tests.parameters[-1], name)
    if names and isinstance(ci, Pipeline):
        raise BadInput(
            "suites requires a workspace, because test suites belong to an organization. Sync a workspace instead."
        )
    return names
