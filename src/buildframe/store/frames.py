"""Read stored rows as frames of pandas, with the dtypes of fetched frames, or of PySpark. Does not know syncs."""

from __future__ import annotations

import concurrent.futures
import functools
import operator
import re
import tempfile
import threading
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from buildframe.errors import BadInput, StoreFailed
from buildframe.fetching.control_characters import replace_controls
from buildframe.formatting import format_count
from buildframe.guards.extras import needs_extra
from buildframe.metrics.spark_frames import check_session
from buildframe.spec import TABLES, Moment
from buildframe.spec.arrow_types import pandas_types
from buildframe.store import computed_columns, duplicates
from buildframe.store.delta import DataFile, TableVersion, fragments_by_path, of_files, of_fragments, with_schema
from buildframe.store.duplicates import OutdatedRows
from buildframe.store.retained_columns import PERIOD, Retention
from buildframe.terminal import nearest, show

if TYPE_CHECKING:
    import duckdb
    from pyspark.sql import DataFrame, SparkSession

_TIMESTAMP = pa.timestamp("us", "UTC")
_READ_ERRORS = ("reading the stream registered as", "get_next failed")  # of DuckDB 2, and of DuckDB 1

_DELTA_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")

_LISTING_TASKS = "spark.sql.sources.parallelPartitionDiscovery.parallelism"
"""Number of tasks that list files. By default Spark starts one task for each path that it receives."""

_FAIL_ON_BAD_FILES = {"ignoreCorruptFiles": "false", "ignoreMissingFiles": "false"}  # Spark must not skip rows

_DAY_OF_FILE = r"TRY_CAST(regexp_extract(filename, '.*[/\\]day=([^/\\]*)', 1) AS DATE)"
"""Day in the path, in SQL. Before version 2.0.1, DuckDB cannot read partitions if it is given a schema."""

_READING = (
    b"select from with pivot pivot_wider unpivot pivot_longer describe desc summarize show values table (".split()
)
"""First words of statements with a PIVOT that only read."""

# Words that a plain query does not contain
_WRITING = ("copy", "export", "install", "attach")
_CATALOGS = ("information_schema", "pg_", "sqlite_")  # they list all tables
_ONLY_READING = {"unnest", "range", "generate_series"}

_GLOB_CHARACTER = re.compile(r"[][{}*?\\]")
_MAX_MESSAGE = 600


def read(
    table: TableVersion,
    columns: Sequence[str] | None,
    conditions: Sequence[pc.Expression],
    created: str | None = None,
    first: Moment | None = None,
    last: Moment | None = None,
    builds: TableVersion | None = None,
) -> pd.DataFrame:
    """Read the rows that meet all conditions. By default all columns but those that the store computes.

    If `created` names a time column, rows are limited to times from `first` up to but excluding
    `last`, in descending order. Files of other days are not opened. Conditions must hold for whole
    builds. `builds` is the table of builds: jobs of older versions need it.
    """
    names = _default_columns(table) if columns is None else _checked(columns, table)
    missing = [name for name in names if name not in _schema(table).names]
    needed = [name for name in names if name not in missing]
    needed += [created] if created and created not in names else []
    expressions = [*conditions]
    if created and first is not None:
        expressions.append(pc.field(created) >= pa.scalar(first, _TIMESTAMP))
    if created and last is not None:
        expressions.append(pc.field(created) < pa.scalar(last, _TIMESTAMP))
    days = [None if moment is None else moment.date().isoformat() for moment in (first, last)]
    table.check_local_files(*days)
    dataset = table.dataset(*days)
    condition = functools.reduce(operator.and_, expressions, pc.scalar(True))
    rows = _read_rows(dataset, table, needed, condition, builds)
    if created is not None:
        rows = rows.take(pc.sort_indices(rows, [(created, "descending")]))
    if missing:  # the store is older than these columns
        declared = Retention().schema(table.name)
        for name in missing:
            rows = rows.append_column(declared.field(name), pa.nulls(rows.num_rows, declared.field(name).type))
    return as_frame(rows.select(names))


def _read_rows(
    dataset: ds.Dataset, table: TableVersion, columns: list[str], condition: pc.Expression, builds: TableVersion | None
) -> pa.Table:
    """Read columns, with the computed columns of older files as the current rules give them."""
    is_recomputed = not computed_columns.COMPUTED.get(table.name, frozenset()).isdisjoint(columns)
    outdated = {file.path: file for file in _outdated_files(table)} if is_recomputed else {}
    is_complete = set(columns) <= set(table.schema.names)
    if not outdated and is_complete:
        return dataset.to_table(columns, filter=condition)
    found = [_schema(table).empty_table().select(columns)]
    current = {file.path for file in table.files()}.difference(outdated)
    if is_complete and current:
        found.append(of_files(dataset, current).to_table(columns, filter=condition))
    for path, fragment in fragments_by_path(dataset):
        if path in outdated:
            older = of_fragments(dataset, [fragment])
            rows = _recomputed(older, outdated[path], table, condition, builds)
            found.append(rows.select(columns))
    return pa.concat_tables(found)


def _schema(table: TableVersion) -> pa.Schema:
    """Return the schema that readers see, with computed columns that older stores lack."""
    return computed_columns.full_schema(table.name, table.schema)


def _outdated_files(table: TableVersion) -> list[DataFile]:
    return table.outdated_files(computed_columns.VERSIONS.get(table.name, 0))


def _recomputed(
    dataset: ds.Dataset, file: DataFile, table: TableVersion, condition: pc.Expression, builds: TableVersion | None
) -> pa.Table:
    """Read the rows of one older file; jobs of a build are in one file."""
    rows = with_schema(dataset.to_table(filter=condition), _schema(table))
    of_jobs = None
    if table.name == "jobs" and builds is not None and rows.num_rows:
        of_jobs = builds.read_days([file.day], [*computed_columns.BUILD_COLUMNS])
    return computed_columns.recompute(table.name, rows, of_jobs)


def warn_of_outdated_files(table: TableVersion, outdated: OutdatedRows) -> None:
    """Warn that other programs read old values of computed columns, or rows that do not count."""
    n_files = len(_outdated_files(table))
    if n_files:
        warnings.warn(
            f"{format_count(n_files, 'file')} of {table.name} at {table.location.url} have computed columns of an "
            "earlier version of buildframe, such as `step`. Sync the store, or call store.compact(), to rewrite them.",
            stacklevel=5,
        )
    if outdated:
        warnings.warn(
            f"The store at {table.location.url} has {format_count(sum(map(len, outdated.values())), 'build')} twice, "
            "because their created_at moved. Sync the store, or call store.compact(), to repair it.",
            stacklevel=5,
        )


def _default_columns(table: TableVersion) -> list[str]:
    declared = [column.name for column in TABLES[table.name]]
    keys = [name for name in ("organization", "suite") if name not in declared]
    stored = _schema(table).names
    return [name for name in (*keys, *declared, PERIOD, "valid_from", "valid_to") if name in stored]


def _checked(columns: Sequence[str], table: TableVersion) -> list[str]:
    if not len(columns):
        raise BadInput(f'columns={show(columns)} is not a list of names. Pass a list, such as ["id"].')
    stored = _schema(table).names
    known = {*stored, *Retention().schema(table.name).names}
    for name in columns:
        if name not in known:
            raise BadInput(f"columns: {show(name)} is not a stored column of {table.name}.{nearest(str(name), stored)}")
    if len(set(columns)) < len(columns):
        raise BadInput(f"columns={list(columns)} contains a name twice. Name each column once.")
    return list(columns)


def as_frame(rows: pa.Table) -> pd.DataFrame:
    """Convert rows to a frame with the dtypes of fetched frames, and as safe to print."""
    return replace_controls(rows).to_pandas(types_mapper=pandas_types().get)


def last_read(frame: pd.DataFrame, table: str, lists: Mapping[str, Moment]) -> pd.Series[Any]:
    """Return the last time at which a list contained each row: of current rows, when the list was last read."""
    keys = [name for name in ("organization", "suite") if name in frame]
    names = ["/".join([table, *map(str, row)]) for row in frame[keys].itertuples(index=False)]
    at = pd.Series([lists.get(name) for name in names], frame.index, dtype=frame["fetched_at"].dtype)
    return at.where(frame["valid_to"].isna()).fillna(frame["fetched_at"])


def query(tables: Mapping[str, TableVersion], sql: str, outdated: OutdatedRows) -> pd.DataFrame:
    """Run a DuckDB query on these tables, without the rows that do not count.

    DuckDB runs in a thread of its own. In the main thread it ignores Ctrl-C while it makes a table
    of Arrow, and turns it into a RuntimeError during other statements. Waits for the thread are
    short, because Windows does not end a wait by Ctrl-C.
    """
    with needs_extra("store.sql()", "store"):
        import duckdb
    running: concurrent.futures.Future[pd.DataFrame] | None = None
    is_stopped = threading.Event()
    with duckdb.connect() as connection, concurrent.futures.ThreadPoolExecutor(1) as pool:
        try:
            running = pool.submit(_run, connection, tables, sql, outdated, is_stopped)
            while not running.done():
                concurrent.futures.wait([running], timeout=0.1)
            return running.result()
        finally:  # also if a handler of another signal raises an error
            is_stopped.set()
            while running is not None and not running.done():
                # once is not enough: between two statements, DuckDB ignores an interruption
                connection.interrupt()
                concurrent.futures.wait([running], timeout=0.1)


def _run(
    connection: duckdb.DuckDBPyConnection,
    tables: Mapping[str, TableVersion],
    sql: str,
    outdated: OutdatedRows,
    is_stopped: threading.Event,
) -> pd.DataFrame:
    import duckdb

    try:
        with _folder_for_recomputed(tables.values()) as folder:
            connection.execute("SET TimeZone = 'UTC'")
            is_plain = _is_plain(sql)
            named = [table for name, table in tables.items() if is_plain and name in sql.lower()] or tables.values()
            for table in named:
                table.check_local_files()
            opened = [_OpenedTable(table, tables["builds"], outdated, Path(folder)) for table in named]
            by_duckdb = [table for table in opened if table.name_in(connection, by_duckdb=is_plain)]
            folders = [table.table.location.table_url(table.table.name) for table in by_duckdb]
            folders += [folder] if any(table.recomputed for table in by_duckdb) else []
            connection.execute(f"SET allowed_directories = {_literal(folders)}")  # a list of files takes 40 ms
            if not is_plain:
                connection.execute("SET temp_directory = ''")  # into which it could write
            connection.execute("SET autoinstall_known_extensions = false; SET autoload_known_extensions = false")
            connection.execute("SET enable_external_access = false; SET lock_configuration = true")
            # DuckDB 1 would write its log into any folder
            if "enable_logging" in sql.lower() or not all(map(_only_reads, connection.extract_statements(sql))):
                raise BadInput("DuckDB rejects the query: it must consist of SELECT statements, which only read.")
            result = None if is_stopped.is_set() else connection.sql(sql)
            return as_frame(result.to_arrow_table()) if result is not None else pd.DataFrame()
    except duckdb.Error as why:
        is_damaged = any(table.location.url in str(why) for table in tables.values())
        is_of_query = isinstance(why, duckdb.ProgrammingError | duckdb.DataError)
        is_damaged |= any(error in str(why) for error in _READ_ERRORS) or not is_of_query
        if is_damaged and not isinstance(why, duckdb.PermissionException):
            message = str(why).split("\n\nLINE ")[0]  # of the query that opens a table, which users do not know
            raise StoreFailed(f"DuckDB could not run the query: {message}") from None
        raise BadInput(f"DuckDB rejects the query: {why}\nTables of this store: {', '.join(tables)}.") from None


@functools.cache
def _table_functions() -> frozenset[str]:
    """Return the names of DuckDB's functions that return tables or change settings."""
    import duckdb

    with duckdb.connect() as connection:
        types = "('scalar', 'aggregate', 'macro', 'window')"
        query = f"SELECT function_name FROM duckdb_functions() WHERE function_type NOT IN {types}"  # noqa: S608
        names = {str(name) for (name,) in connection.execute(query).fetchall()}
    return frozenset(names) - _ONLY_READING


def _is_plain(sql: str) -> bool:
    """Return whether a query can only read the tables that it names, so that DuckDB may open their folders.

    A statement can contain others, such as a COPY in a WITH, and some functions run a text as a query. DuckDB opens
    folders for reading and writing, so with such words it gets tables of Arrow, and no folder. Words in strings and
    comments count as well, because that is safe.
    """
    text = sql.lower()
    is_special = any(word in text for word in (*_WRITING, *_CATALOGS))
    return not is_special and _table_functions().isdisjoint(re.findall(r"\w+", text))


def _only_reads(statement: duckdb.Statement) -> bool:
    """Return whether a statement only reads. DuckDB reports the same type for a query with a PIVOT and for a CREATE."""
    import duckdb

    try:
        kind = statement.type.name
    except ValueError:  # a type that the Python package does not know
        return False
    if kind != "MULTI":
        return kind == "SELECT"
    tokens = duckdb.tokenize(statement.query)
    first = next(start for start, kind in tokens if kind is not duckdb.token_type.comment)
    word = re.match(rb"\w+|.", statement.query.encode()[first:])
    return word is not None and word[0].lower() in _READING


def _folder_for_recomputed(tables: Iterable[TableVersion]) -> AbstractContextManager[str]:
    """Return a temporary folder if a table has older files."""
    return tempfile.TemporaryDirectory() if any(map(_outdated_files, tables)) else nullcontext("")


class _OpenedTable:
    """A table in a query: current files, and a folder with the recomputed rows of older ones."""

    def __init__(self, table: TableVersion, builds: TableVersion, outdated: OutdatedRows, folder: Path) -> None:
        self.table = table
        older = _outdated_files(table)
        replaced = {file.path for file in older}
        self._current = [file.path for file in table.files() if file.path not in replaced]
        self._outdated = outdated if "day" in table.schema.names else {}
        paths = [self._write(file, builds, folder) for file in older]
        self.recomputed = [path for path in paths if path is not None]

    def _write(self, file: DataFile, builds: TableVersion, folder: Path) -> str | None:
        """Write the recomputed rows of an older file, and return the path."""
        dataset = of_files(self.table.dataset(file.day, file.day), {file.path})
        rows = _recomputed(dataset, file, self.table, pc.scalar(True), builds)
        path = folder / self.table.name / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows.drop_columns(["day"]), path, compression="zstd", store_schema=False)
        return str(path) if rows.num_rows else None

    def name_in(self, connection: duckdb.DuckDBPyConnection, *, by_duckdb: bool) -> bool:
        """Name the table. Return whether DuckDB reads its files itself, as `by_duckdb` permits.

        Its own reader of local files takes half the time of a dataset of Arrow, which reaches
        object stores as well.
        """
        table = self.table
        files = [f"{table.location.table_url(table.name)}/{path}" for path in self._current] + self.recomputed
        if not by_duckdb or not files or not table.location.is_local or any(map(_GLOB_CHARACTER.search, files)):
            connection.register(table.name, self._dataset())
            return False
        connection.execute(
            f"CREATE VIEW {table.name} AS {_select_from_files(table, files, self._outdated, connection)}"
        )
        return True

    def _dataset(self) -> ds.Dataset:
        whole = self.table.dataset()
        schema = _schema(self.table)
        if self.recomputed:
            days = ds.partitioning(pa.schema([("day", pa.date32())]), flavor="hive")
            recomputed = ds.dataset(self.recomputed, schema, format="parquet", partitioning=days)
            current = [of_files(whole, set(self._current))] if self._current else []
            whole = ds.dataset([*current, recomputed])
        elif whole.schema.names != schema.names:
            whole = ds.dataset(schema.empty_table())
        condition = duplicates.condition(self._outdated, self.table)
        return whole if condition is None else whole.filter(condition)


def _select_from_files(
    table: TableVersion, files: Sequence[str], outdated: OutdatedRows, connection: duckdb.DuckDBPyConnection
) -> str:
    """Return the query that reads local files of a table, without the rows that do not count."""
    empty = connection.from_arrow(_schema(table).empty_table())
    types = {name: kind for name, kind in zip(empty.columns, empty.types, strict=True) if name != "day"}
    # Old files can lack columns. Without a schema, DuckDB would open all files to find out, before
    # it runs the query.
    schema = ", ".join(
        f"{_quoted(name)}: {{name: {_quoted(name)}, type: '{kind}', default_value: NULL}}"
        for name, kind in types.items()
    )
    day = f", {_DAY_OF_FILE} AS day" if "day" in empty.columns else ""
    condition = duplicates.sql_condition(outdated, table)
    return (
        f"SELECT * FROM (SELECT *{day} "  # noqa: S608
        f"FROM read_parquet({_literal(files)}, schema = MAP {{{schema}}}, hive_partitioning = false))"
        f"{f' WHERE {condition}' if condition else ''}"
    )


def open_relation(
    table: TableVersion,
    builds: TableVersion,
    outdated: OutdatedRows,
    connection: duckdb.DuckDBPyConnection,
    columns: Sequence[str] | None,
) -> duckdb.DuckDBPyRelation:
    """Open columns of a table as a relation, without the rows that do not count.

    Rows of older files, whose computed columns have to be recomputed, are read into memory.
    """
    from duckdb import ColumnExpression

    names = _default_columns(table) if columns is None else _checked(columns, table)
    table.check_local_files()
    older = {file.path: file for file in _outdated_files(table)}
    current = [file.path for file in table.files() if file.path not in older]
    of_days = outdated if "day" in table.schema.names else {}
    urls = [f"{table.location.table_url(table.name)}/{path}" for path in current]
    can_read = table.location.is_local and not any(map(_GLOB_CHARACTER.search, urls))
    if urls and can_read and not older:
        relation = connection.sql(_select_from_files(table, urls, of_days, connection))
    else:
        dataset = _dataset_with_recomputed(table, current, older, builds)
        condition = duplicates.condition(of_days, table)
        relation = connection.from_arrow(dataset if condition is None else dataset.filter(condition))
    return relation.select(*map(ColumnExpression, names))


def _dataset_with_recomputed(
    table: TableVersion, current: Iterable[str], older: Mapping[str, DataFile], builds: TableVersion
) -> ds.Dataset:
    schema = _schema(table)
    parts: list[Any] = []
    if current:
        parts.append(of_files(table.dataset(), set(current)))
    for path, file in older.items():
        rows = _recomputed(of_files(table.dataset(file.day, file.day), {path}), file, table, pc.scalar(True), builds)
        parts.append(ds.dataset(rows.select(schema.names).cast(schema)))
    return ds.dataset(parts, schema) if parts else ds.dataset(schema.empty_table())


def _literal(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_quoted, texts))}]"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def check_spark(session: Any) -> None:
    """Raise BadInput unless `session` is a SparkSession whose time zone is UTC."""
    with needs_extra("store.spark()", "spark"):
        import pyspark  # noqa: F401
    if type(session).__name__ != "SparkSession":  # Spark Connect has its own class of this name
        raise BadInput(
            f"session is a {type(session).__name__}, not a SparkSession. Pass SparkSession.builder.getOrCreate()."
        )
    check_session(session)


def spark_frames(
    tables: Mapping[str, TableVersion], session: SparkSession, outdated: OutdatedRows
) -> dict[str, DataFrame]:
    """Open tables as Spark DataFrames by name, without the rows that do not count.

    Call `check_spark` first.
    """
    before = session.conf.get(_LISTING_TASKS)
    assert before is not None  # Spark has a default
    session.conf.set(_LISTING_TASKS, "100")
    try:
        return {name: _open_counted(table, session, outdated) for name, table in tables.items()}
    finally:
        session.conf.set(_LISTING_TASKS, before)


def _open_counted(table: TableVersion, session: SparkSession, outdated: OutdatedRows) -> DataFrame:
    table.check_local_files()
    warn_of_outdated_files(table, {})
    frame = _open_table(table, session)
    condition = duplicates.sql_condition(outdated, table) if "day" in table.schema.names else ""
    return frame.where(condition) if condition else frame


def _open_table(table: TableVersion, session: SparkSession) -> DataFrame:
    try:
        if not any("delta" in (session.conf.get(name, "") or "").lower() for name in _DELTA_SETTINGS):
            return _open_parquet(table, session)
        reader = session.read.format("delta").option("versionAsOf", table.version)
        return reader.load(_uri(table.location.table_url(table.name)))
    except Exception as why:  # from Spark, the JVM or a Spark Connect server
        message = " ".join(str(why).split("\n\tat ")[0].split())[:_MAX_MESSAGE]
        raise StoreFailed(
            f"Spark could not open the table {table.name!r} at {table.location.url}: {message} "
            "(every machine of the cluster must reach this location; an object store needs its own Spark settings)"
        ) from None


def _open_parquet(table: TableVersion, session: SparkSession) -> DataFrame:
    """Open the Parquet files with the table schema, so that Spark reads no footers and missing columns are null."""
    from pyspark.sql.pandas.types import from_arrow_schema

    schema, files = from_arrow_schema(table.schema), table.uris()
    if not files:
        return session.createDataFrame([], schema)
    reader = session.read.schema(schema).option("basePath", _uri(table.location.table_url(table.name)))
    reader = reader.options(**_FAIL_ON_BAD_FILES)
    return reader.parquet(*(_GLOB_CHARACTER.sub(r"\\\g<0>", _uri(file)) for file in files))


def _uri(path: str) -> str:
    """Return a URI with a scheme, because Spark resolves bare paths in the default file system of the cluster."""
    return path if "://" in path else f"file://{path}"
