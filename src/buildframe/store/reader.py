"""Read the tables of a store, as the last sync or an earlier one left them. Does not know Parquet files or HTTP."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow.compute as pc

from buildframe.errors import BadInput, StoreFailed
from buildframe.guards.arguments import checked, checked_names
from buildframe.guards.extras import needs_extra
from buildframe.guards.secrets import confined
from buildframe.spec import Moment, When, when
from buildframe.spec.flaky_tests import DEFAULT_PERIOD
from buildframe.store import STORED_TABLES, duplicates, frames
from buildframe.store.delta import TableVersion
from buildframe.store.duplicates import OutdatedRows
from buildframe.store.location import Location, import_deltalake, store_errors
from buildframe.store.retained_columns import PERIOD
from buildframe.store.sync_state import NEVER, SyncState
from buildframe.terminal import nearest, show

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection, DuckDBPyRelation
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["StoreReader"]

_HOW_TO_FILL = {
    "members": ". Sync with personal=True to store it",
    "flaky_tests": ". Name suites: store.sync(ws, suites=[...])",
    "pipelines": ". Sync a workspace, not only a pipeline",
}


@checked
class StoreReader:
    """
    The methods of a `Store` that read its tables, as of the last sync or an earlier one.

    Parameters
    ----------
    url : str or path-like
        Folder, or URL of an object store.
    storage_options : mapping of str to str, optional
        Options that the package `deltalake` uses to open the URL. They never appear in messages.
    as_of : str, datetime, timedelta or int, optional
        State to read, as for a `Store`. By default the newest.
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
            Slug or id of a pipeline. A slug selects the pipeline that has it now, with all its
            builds under earlier slugs, and deleted pipelines that had it last: `pipeline_id`
            distinguishes them.
        columns : sequence of str, optional
            Columns to return. By default those of `Workspace.builds`.

        Returns
        -------
        pandas.DataFrame
            One row per build, with the columns of `Workspace.builds` that the store retains. `columns` can also name

            ================== =================== ==============================================================
            wall_time_s        float64             seconds: finished_at - created_at; NaN if it is not over
            day                date32[day]         UTC day of creation; null if `created_at` is null
            is_open            boolean             the build could still change when it was last stored
            gone_at            datetime64[us, UTC] when a list first lacked it; NaT if it was not missing
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
            queue_time_s      float64     script jobs: seconds, started_at - runnable_at
            dependency_wait_s float64     seconds: runnable_at - created_at
            run_time_s        float64     script jobs: seconds, finished_at - started_at
            turnaround_s      float64     seconds: finished_at - runnable_at
            day               date32[day] UTC day on which the build was created; null if unknown
            ================= =========== ===========================================================

            A duration is NaN if one of its timestamps is missing.

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
        return self._read_list("pipelines", history)

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
        return self._read_list("members", history)

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
            One row per test or state, with the columns of `Workspace.flaky_tests`. `fetched_at` is
            the time at which the list was last read. The additional column `period`, such as
            ``"28days"``, says in which time before each reading the listed tests flaked; a test
            that is not listed was quiet for that long.

        Raises
        ------
        BadInput
            If no sync stored this suite, or any suite.
        StoreFailed
            If the store cannot be read.
        """
        return self._read_list("flaky_tests", history, suite)

    def sql(self, query: str) -> pd.DataFrame:
        """
        Run a read-only DuckDB query on the tables.

        Parameters
        ----------
        query : str
            SELECT statement that can use the tables `builds`, `jobs`, `pipelines`, `members` and `flaky_tests`, if they
            exist. Times are in UTC.

        Returns
        -------
        pandas.DataFrame
            The result, with the dtypes of fetched frames. Lists have one row per state; `valid_to` is null for current
            rows.

        Raises
        ------
        BadInput
            If DuckDB rejects the query, or it does more than read.
        StoreFailed
            If a file cannot be read.
        MissingExtra
            If DuckDB is not installed.
        """
        if not isinstance(query, str):
            raise BadInput(f"query={show(query)} is not a text. Pass a statement of SQL.")
        with store_errors("read", self._location):
            tables, outdated = self._tables()
            return frames.query(tables, query, outdated)

    def relation(
        self, table: str, connection: DuckDBPyConnection, *, columns: Sequence[str] | None = None
    ) -> DuckDBPyRelation:
        """
        Open a table as a DuckDB relation of one version, for more rows than memory holds.

        Every summary of `buildframe.metrics` reads a relation in batches and keeps a few numbers of
        each row. Later syncs do not change what the relation reads. Its rows are read when you use
        it.

        Parameters
        ----------
        table : str
            Name of a table, such as "jobs".
        connection : duckdb.DuckDBPyConnection
            Your connection, which has to stay open.
        columns : sequence of str, optional
            Columns of the relation. By default those that the method of the table's name returns.

        Returns
        -------
        duckdb.DuckDBPyRelation
            The rows, in no order. Lists have one row per state; `valid_to` is null for current rows.

        Raises
        ------
        BadInput
            If the store has no such table or column, or `connection` is none of DuckDB.
        StoreFailed
            If the store cannot be read.
        MissingExtra
            If DuckDB is not installed.

        See Also
        --------
        sql : Run a query on all tables.
        spark : The tables for more than one machine.

        Examples
        --------
        >>> connection = duckdb.connect()
        >>> waits = metrics.percentiles(store.relation("jobs", connection), by="queue")
        >>> waits.equals(metrics.percentiles(store.jobs(), by="queue"))
        True
        """
        with needs_extra("store.relation()", "store"):
            import duckdb
        if not isinstance(connection, duckdb.DuckDBPyConnection):
            raise BadInput(f"connection={show(connection)} is not a DuckDB connection. Pass duckdb.connect().")
        state, newest = self._open()
        opened = self._table(table, state, newest)
        with store_errors("read", self._location):
            outdated = self._outdated_rows(state, newest) if "day" in opened.schema.names else {}
            builds = self._table("builds", state, newest)
            return frames.open_relation(opened, builds, outdated, connection, columns)

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
        frames.check_spark(session)
        with store_errors("read", self._location):
            tables, outdated = self._tables()
            return frames.spark_frames(tables, session, outdated)

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
        state, newest = self._open()
        opened = self._table(table, state, newest)
        with store_errors("read", self._location):
            outdated = self._outdated_rows(state, newest) if "day" in opened.schema.names else {}
            frames.warn_of_outdated_files(opened, outdated)
            opened.check_local_files()
        return opened.uris()

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
        return self._state().as_of

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

    def _tables(self) -> tuple[dict[str, TableVersion], OutdatedRows]:
        """Open the tables that exist, and return them with the rows of builds that do not count."""
        state, newest = self._open()
        tables = ((name, state.table(self._location, name, newest)) for name in STORED_TABLES)
        opened = {name: table for name, table in tables if table is not None}
        return opened, self._outdated_rows(state, newest)

    def _outdated_rows(self, state: SyncState, newest: TableVersion) -> OutdatedRows:
        """Return the rows of builds that an earlier version stored on several days."""
        builds = None if state.unique_ids else state.table(self._location, "builds", newest)
        return {} if builds is None else duplicates.outdated_rows(builds)

    def _state(self) -> SyncState:
        return self._open()[0]

    def _open(self) -> tuple[SyncState, TableVersion]:
        """Return the state that is read, and the newest version of the builds table."""
        with store_errors("read", self._location):
            builds = TableVersion.at(self._location, "builds")
            newest = SyncState() if builds is None else SyncState.newest(builds)
            if builds is None or newest.as_of == NEVER:
                raise self._location.missing_store_error
            if self._as_of is None and builds.version > newest.version:
                newest.checked(builds)  # a checkpoint has what a lost entry changed
            return newest if self._as_of is None else _state_as_of(self._as_of, builds, newest), builds

    def _table(self, name: str, state: SyncState, newest: TableVersion) -> TableVersion:
        if not isinstance(name, str) or name not in STORED_TABLES:
            raise BadInput(f"{show(name)} is not a table of the store. Use one of {', '.join(STORED_TABLES)}.")
        with store_errors("read", self._location):
            table = state.table(self._location, name, newest)
        if table is None:
            raise BadInput(f"The store at {self._location.url!r} has no table {name!r}{_HOW_TO_FILL.get(name, '')}.")
        return table

    def _read_builds(
        self, name: str, start: When | None, end: When | None, pipeline: str | None, columns: Sequence[str] | None
    ) -> pd.DataFrame:
        state, newest = self._open()
        table = self._table(name, state, newest)
        first = None if start is None else when(start, "created_from", state.as_of)
        last = None if end is None else when(end, "created_to", state.as_of)
        if first is not None and last is not None and first >= last:
            raise BadInput(
                f"The time range is empty: created_from={first.text()}, created_to={last.text()}. Swap them?"
            )
        created = "created_at" if name == "builds" else "build_created_at"
        with store_errors("read", self._location):
            conditions = [] if pipeline is None else [self._pipeline_condition(pipeline, state, newest)]
            counts = duplicates.condition(self._outdated_rows(state, newest), table)
            conditions += [] if counts is None else [counts]
            builds = state.table(self._location, "builds", newest)
            rows = frames.read(table, columns, conditions, created, first, last, builds)
        return self._with_attrs(rows, name, state)

    def _pipeline_condition(self, pipeline: str, state: SyncState, newest: TableVersion) -> pc.Expression:
        """Select by id, because slugs change.

        A slug means all pipelines of one organization that had it last.
        """
        listed = self._listed_pipelines(state, newest)
        named = _named(listed, pipeline)
        condition = pc.field("pipeline_id").isin([row["id"] for row in named])
        if not named:
            built = self._pipelines_of_builds(state, newest)
            named = _named(built, pipeline)
            condition = pc.field("pipeline_id").isin([row["id"] for row in named])
            if not named:
                slugs = sorted({row["slug"] for row in [*listed, *built] if row["slug"] is not None})
                raise BadInput(f"pipeline={show(pipeline)} is not in the store.{nearest(pipeline, slugs)}")
        elif any(row["slug"] == pipeline for row in named):
            # A pipeline that was deleted before the first list is known by its builds only.
            is_listed = pc.field("pipeline_id").isin([row["id"] for row in listed])
            is_of_organization = pc.field("organization") == named[0]["organization"]
            condition |= (pc.field("pipeline") == pipeline) & is_of_organization & ~is_listed
        return condition

    def _listed_pipelines(self, state: SyncState, newest: TableVersion) -> list[dict[str, Any]]:
        """Return ids and slugs from lists, with the end of their validity; None if current."""
        table = state.table(self._location, "pipelines", newest)
        if table is None:
            return []
        names = ["id", "slug", "organization"]
        return table.dataset().to_table([*names, "valid_to"]).rename_columns([*names, "until"]).to_pylist()

    def _pipelines_of_builds(self, state: SyncState, newest: TableVersion) -> list[dict[str, Any]]:
        """Return ids and slugs from builds, with the time of the last build, for pipelines in no list."""
        names = ["pipeline_id", "pipeline", "organization"]
        rows = self._table("builds", state, newest).dataset().to_table([*names, "created_at"])
        latest = rows.group_by(names).aggregate([("created_at", "max")])
        return latest.rename_columns(["id", "slug", "organization", "until"]).to_pylist()

    def _read_list(self, name: str, history: bool, suite: str | None = None) -> pd.DataFrame:
        state, newest = self._open()
        suites = sorted({one.split("/")[-1] for one in state.lists if one.startswith("flaky_tests/")})
        if suite is not None and suite not in suites:
            raise BadInput(f"suite={show(suite)} is not in the store.{nearest(show(suite), suites)}")
        table = self._table(name, state, newest)
        conditions = [] if suite is None else [pc.field("suite") == suite]
        conditions += [] if history else [pc.field("valid_to").is_null()]
        with store_errors("read", self._location):
            rows = frames.read(table, None, conditions)
        if name == "flaky_tests":
            rows = _with_period(rows)
        rows["fetched_at"] = frames.last_read(rows, name, state.lists)
        return self._with_attrs(rows if history else rows.drop(columns=["valid_from", "valid_to"]), name, state)

    def _with_attrs(self, frame: pd.DataFrame, name: str, state: SyncState) -> pd.DataFrame:
        covers = {scope: [since.text(), until.text()] for scope, (since, until) in state.covers.items()}
        frame.attrs.update(covers=covers, table=name, source=self.url, as_of=state.as_of.text(), version=state.version)
        return frame


def id_of(store: StoreReader) -> str:
    """Return the identity of a store, which it has from its first sync on, wherever its folder is moved."""
    state, builds = store._open()
    return state.store_id or builds.id


def _with_period(tests: pd.DataFrame) -> pd.DataFrame:
    """Return flaky tests with their period, which was the default before stores recorded it."""
    if PERIOD in tests:
        return tests.assign(**{PERIOD: tests[PERIOD].fillna(DEFAULT_PERIOD)})
    periods = pd.Series(DEFAULT_PERIOD, tests.index, dtype="str")
    position = list(tests).index("valid_from")
    tests.insert(position, PERIOD, periods)
    return tests


def _named(pipelines: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """
    Return the pipelines with this id, or whose last slug this is; `until` is None for the current
    slug.

    Several pipelines of an organization had a slug if one was deleted and created again. If no
    pipeline has the slug last, the one that had it latest counts.
    """
    last: dict[str, dict[str, Any]] = {}
    for row in pipelines:
        before = last.get(row["id"])
        if before is None or _end(row) > _end(before):
            last[row["id"]] = row
    found = [row for row in last.values() if name in (row["id"], row["slug"])]
    if not found:
        earlier = [row for row in pipelines if row["slug"] == name]
        return [max(earlier, key=_end)] if earlier else []
    current = [row for row in found if row["until"] is None]
    if len({row["organization"] for row in current}) > 1:
        ids = ", ".join(f"{row['id']} of {row['organization']}" for row in current)
        raise BadInput(f"pipeline={show(name)} exists in several organizations. Pass its id: {ids}.")
    newest = max(found, key=_end)
    return [newest, *(row for row in found if row["organization"] == newest["organization"] and row is not newest)]


def _end(row: dict[str, Any]) -> dt.datetime:
    """Return until when a pipeline had a slug."""
    until: dt.datetime | None = row["until"]
    return dt.datetime.max.replace(tzinfo=dt.UTC) if until is None else until


def _state_as_of(as_of: When | int, builds: TableVersion, newest: SyncState) -> SyncState:
    if isinstance(as_of, bool):
        raise BadInput(f"as_of={as_of} is not a time. Pass a time, an age such as '7d', or the number of a version.")
    if isinstance(as_of, int) and as_of > newest.version:
        raise BadInput(f"as_of={as_of} is not a version of the store. The newest version is {newest.version}.")
    if isinstance(as_of, int) and as_of >= newest.first and not builds.log_entry(as_of):
        raise _lost_entry(builds, as_of)
    state = SyncState.at(builds, as_of if isinstance(as_of, int) else when(as_of, "as_of", newest.as_of))
    if state is None:
        oldest = SyncState.oldest(builds)
        raise BadInput(
            f"as_of={as_of!r} is before the first readable sync: version {oldest.version} at {oldest.as_of.text()}. "
            "Use a later time."
        )
    lost = None if isinstance(as_of, int) else SyncState.lost_version(builds, state.version)
    if lost is not None:
        raise _lost_entry(builds, lost)
    return state


def _lost_entry(builds: TableVersion, version: int) -> StoreFailed:
    return StoreFailed(
        f"The store at {builds.location.url} is damaged: the log entry of version {version} is empty or missing. "
        "Restore it from a backup, or read another version by its number."
    )
