"""Read and commit versions of Delta tables in a local folder or an object store. Does not know builds, jobs or syncs.

Data files are written before the commit that lists them, so readers see either the old version or the new one. A commit
raises CommitConflict if another writer committed the same version number first.
"""

from __future__ import annotations

import bisect
import datetime as dt
import itertools
import json
import math
import re
import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from buildframe.errors import StoreFailed
from buildframe.guards.secrets import confined
from buildframe.store import checksums
from buildframe.store.contained_paths import check_contained, check_log, delete_files, list_files
from buildframe.store.file_cache import FileCache
from buildframe.store.files import flush
from buildframe.store.location import Location, check_hard_links, import_deltalake, import_deltalake_for_use
from buildframe.store.log_entries import (
    LOG_FILE,
    LOG_FOLDER,
    DamagedEntry,
    damaged_entries,
    is_damaged,
    log_path,
    named_files,
)

if TYPE_CHECKING:
    import deltalake

_KEY = "buildframe"  # of our metadata in the commit info
_ID = "buildframe_change"  # key of the change id there; the writer uses it to recognize its own commit
_WRITE = b'"operation":"WRITE"'  # in an entry that adds or removes files, unlike new columns
_NO_DAY = "0001-01-01"  # of no rows
_NULL_DAY = "__HIVE_DEFAULT_PARTITION__"  # partition folder of rows with a null day, as query engines name it

_T = TypeVar("_T")

_MAX_ROWS = 10_000
"""Most rows per file, which form one row group. Smaller files mean less rewriting per changed build, but more files to
open for a full scan."""

_KEY_RANGES: FileCache[tuple[str, str] | None] = FileCache(100_000)
"""The least and greatest value of a column in a file, in about 30 MiB of memory."""

_KEYS: FileCache[pa.Array[Any]] = FileCache(1_000_000, len)
"""The distinct values of a column in a file, in about 40 MiB of memory."""

_COMPUTED_VERSION = re.compile(r"-v(\d+)\.parquet$")
_READER_VERSION = 1  # of the Delta protocol in tables of the store
_MAX_SMALL_FILES = 8  # per day; the next write to a day that has more merges them
_SAMPLE_ROWS = 500  # of a file, which show whether the values of a column repeat

_READERS = 16  # threads that read one column of many files in an object store, for which each waits most of the time

_WORKERS = 4
"""Days that are written at once, with one file each in memory: a flush to disk or an object store lets others wait."""

_ANY = pc.scalar(True)
_TABLE_CONFIGURATION = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "20",  # opening takes 0.3 ms longer for each commit since the last checkpoint
}


class CommitConflict(Exception):
    """Another writer committed this version first."""


@dataclass(frozen=True)
class DataFile:
    """A Parquet file of a table version: path within the table, size in bytes, number of rows, and their day.

    The day is an ISO date. It is None if the table has no days or the day is null.
    """

    path: str
    size: int
    rows: int
    day: str | None

    @property
    def computed_version(self) -> int:
        """The version of the computed columns, from the path; 0 if there is none."""
        match = _COMPUTED_VERSION.search(self.path)
        return 0 if match is None else int(match[1])

    @property
    def partition(self) -> dict[str, str | None]:
        """The partition values, as in the log."""
        return {"day": self.day} if self.path.startswith("day=") else {}


@dataclass(frozen=True)
class Recomputation:
    """
    The version of the computed columns that a table should have, and how older rows get it.

    `recompute` receives the rows of a file and their day, and returns the rows to store instead.
    """

    version: int
    recompute: Callable[[pa.Table, str | None], pa.Table]


class TableVersion:
    """One version of one Delta table, by default the newest."""

    @confined
    def __init__(self, location: Location, name: str, version: int | None = None) -> None:
        self.location, self.name = location, name
        check_log(location, name)
        with _naming_damaged_entries(location, name):
            self._delta: deltalake.DeltaTable = import_deltalake_for_use().DeltaTable(
                location.table_url(name), version=version, storage_options=dict(location.options)
            )
        if self._delta.protocol().min_reader_version > _READER_VERSION:
            raise StoreFailed(
                f"The table {name} of the store at {location.url} has features of Delta that the store never uses, "
                "such as deletion vectors, so another program has changed it. Restore the folder from a backup, or "
                "sync to another."
            )

    @classmethod
    def at(cls, location: Location, name: str, version: int | None = None) -> TableVersion | None:
        """Open a version of a table, by default the newest; return None if the table does not exist."""
        from deltalake.exceptions import TableNotFoundError

        try:
            return cls(location, name, version)
        except TableNotFoundError:
            return None

    @classmethod
    @confined
    def open_or_create(cls, location: Location, name: str, schema: pa.Schema) -> TableVersion:
        """Open the newest version; create an empty table if none exists."""
        existing = cls.at(location, name)
        if existing is not None:
            return existing
        check_log(location, name)
        if location.is_local:
            Path(location.table_url(name)).mkdir(parents=True, exist_ok=True)
        try:
            import_deltalake_for_use().DeltaTable.create(
                location.table_url(name),
                schema,
                mode="ignore",
                partition_by=["day"] if "day" in schema.names else None,
                name=name,
                configuration=_TABLE_CONFIGURATION,
                storage_options=dict(location.options),
            )
        except Exception:
            check_hard_links(location)
            raise
        return cls(location, name)

    @property
    def id(self) -> str:
        """The identity of the table."""
        return str(self._delta.metadata().id)

    @property
    def version(self) -> int:
        """The version number."""
        return int(self._delta.version())

    @cached_property
    def schema(self) -> pa.Schema:
        """The Arrow schema."""
        return pa.schema(self._delta.schema().to_arrow())  # type: ignore[arg-type]

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The name and type of each column in the words of the log, which do not depend on versions of libraries."""
        fields = json.loads(self._delta.schema().to_json())["fields"]
        return tuple(f"{column['name']} {json.dumps(column['type'], sort_keys=True)}" for column in fields)

    def files(self) -> list[DataFile]:
        """List the data files of this version."""
        return [*self._files]

    @cached_property
    def _files(self) -> tuple[DataFile, ...]:
        actions = pa.table(self._delta.get_add_actions(flatten=True))
        names = [name for name in ("path", "size_bytes", "num_records") if name in actions.column_names]
        columns = [actions[name].to_pylist() for name in names]
        if len(actions) and (len(columns) < 3 or any(None in column for column in columns)):
            raise self._damaged("a file without its size or its number of rows")
        has_days = "partition.day" in actions.column_names
        days = actions["partition.day"].cast(pa.string()).to_pylist() if has_days else [None] * len(actions)
        files = [DataFile(*values) for values in zip(*columns, days, strict=True)]
        check_contained(self.location, self.name, [file.path for file in files])
        return tuple(files)

    def _damaged(self, contents: str) -> StoreFailed:
        return StoreFailed(
            f"The store at {self.location.url} is damaged: the log of {self.name} has {contents}. "
            "Restore the folder from a backup."
        )

    @property
    def key(self) -> str:
        """The column by which rows are replaced: the id of the build."""
        return key_of(self.schema.names)

    def files_by_day(self) -> dict[str | None, list[DataFile]]:
        """Return the data files of each day."""
        files = defaultdict(list)
        for file in self.files():
            files[file.day].append(file)
        return files

    def uris(self) -> list[str]:
        """Return the paths or URLs of the data files, for programs that cannot read Delta tables."""
        return [f"{self.location.table_url(self.name)}/{file.path}" for file in self.files()]

    def outdated_files(self, version: int) -> list[DataFile]:
        """Return the files whose computed columns have an earlier version."""
        return [file for file in self.files() if file.computed_version < version]

    def dataset(self, first: str | None = None, last: str | None = None) -> ds.Dataset:
        """Return an Arrow dataset of this version, limited to files from day `first` to day `last`."""
        self.files()  # checks where they are
        days = [("day", sign, day) for sign, day in ((">=", first), ("<=", last)) if day is not None]
        files = self.location.files(self.name) if self.location.is_local else None
        whole = self._delta.to_pyarrow_dataset(filesystem=files, file_pruning_predicate=days or None)
        assert isinstance(whole, ds.FileSystemDataset)
        options = ds.ParquetFragmentScanOptions(pre_buffer=True, page_checksum_verification=True)
        whole.format.default_fragment_scan_options = options  # also of its files
        return whole

    def read(self, file: DataFile, columns: list[str] | None = None) -> pa.Table:
        """Read a file without its partition column. A file that is read as a whole is verified as a whole."""
        with self.location.files(self.name).open_input_file(file.path) as source:
            if columns is None:
                data = source.read_buffer()
                checksums.check(self.location, self.name, file.path, memoryview(data))
                source = pa.BufferReader(data)
            opened = pq.ParquetFile(source, page_checksum_verification=True)
            return opened.read(columns, use_threads=False)  # several days are read at once

    def check_local_files(self, first: str | None = None, last: str | None = None) -> None:
        """Raise StoreFailed if a local file from day `first` to day `last` is not as it was written."""
        files = [file for file in self.files() if _is_between(file.day, first, last)]
        checksums.check_local_files(self.location, self.name, [file.path for file in files])

    def read_days(
        self, days: Collection[str | None], columns: list[str] | None = None, condition: pc.Expression = _ANY
    ) -> pa.Table:
        """Read the rows of these days that meet a condition."""
        if not days:
            return self.schema.empty_table().select(columns or self.schema.names)
        dates = pa.array([day for day in days if day is not None], pa.string()).cast(pa.date32())
        in_days = pc.field("day").isin(dates)
        in_days = in_days | pc.field("day").is_null() if None in days else in_days
        return self.dataset(*_first_and_last(days)).to_table(columns, filter=in_days & condition)

    def read_rows(self, days: Collection[str | None], key: str, values: pa.Array[Any]) -> pa.Table:
        """Read the rows of these days whose `key` is one of the values, from files that contain such rows."""
        files = self.files_by_day()
        paths = {file.path for day in days for file in self.files_with(key, values, files.get(day, []))}
        found = of_files(self.dataset(*_first_and_last(days)), paths)
        return found.to_table(filter=pc.field(key).isin(values))

    def days_with(self, values: pa.Array[Any]) -> set[str | None]:
        """Return the days of files that contain rows whose key is one of the values.

        The ranges of keys exclude most files. A process reads the range of a file, or its keys,
        once.
        """
        return {file.day for file in self.files_with(self.key, values, self.files())}

    def keys(self) -> pa.ChunkedArray[Any]:
        """Return the keys of the rows, once for each file."""
        return pa.chunked_array(self._of_each(self._keys, self.files(), self.key), pa.string())

    def files_with(self, key: str, values: pa.Array[Any], files: Sequence[DataFile]) -> list[DataFile]:
        """Return the files that contain rows whose `key` is one of the values.

        Ids of builds begin with the time of creation, so most files are excluded by the range of their ids.
        """
        if not files or not len(values):
            return []
        ordered = sorted(str(value) for value in values.to_pylist())
        ranges = self._of_each(self._key_range, files, key)
        possible = [file for file, bounds in zip(files, ranges, strict=True) if _contains_any(bounds, ordered)]
        found = zip(possible, self._of_each(self._keys, possible, key), strict=True)
        return [file for file, keys in found if pc.any(pc.is_in(keys, values)).as_py()]

    def _of_each(self, read: Callable[[DataFile, str], _T], files: Sequence[DataFile], key: str) -> list[_T]:
        """Return what `read` returns for each file."""
        if self.location.is_local or len(files) < _READERS:
            return [read(file, key) for file in files]
        with ThreadPoolExecutor(_READERS) as pool:
            return list(pool.map(read, files, itertools.repeat(key)))

    def _keys(self, file: DataFile, key: str) -> pa.Array[Any]:
        """Return the distinct values of a column in a file."""
        name = (self.location.table_url(self.name), file.path, key)
        return _KEYS.get(name, lambda: pc.unique(self.read(file, [key])[key].combine_chunks()))

    def _key_range(self, file: DataFile, key: str) -> tuple[str, str] | None:
        """Return the least and greatest value of `key` in a file; None if its footer has none.

        A wrong range would leave rows in place that a commit replaces. So a local file is verified first. A file in an
        object store is not, because it would have to be downloaded.
        """

        def read() -> tuple[str, str] | None:
            checksums.check_local_files(self.location, self.name, [file.path])
            try:
                with self.location.files(self.name).open_input_file(file.path) as source:
                    return _range_in_footer(pq.ParquetFile(source).metadata, key)
            except ValueError:  # such as an id that is not UTF-8
                raise checksums.damaged_file(self.location, self.name, file.path) from None

        return _KEY_RANGES.get((self.location.table_url(self.name), file.path, key), read)

    def roll_back_to(self, version: int) -> TableVersion:
        """Commit a new version with the rows of an older one, unless this one has the same."""
        older = TableVersion(self.location, self.name, version)
        if {file.path for file in older.files()} == {file.path for file in self.files()}:
            return self
        following = self.version + 1  # not the newest: another writer may have committed since
        with self._committing(secrets.token_hex(8)) as properties:
            self._delta.restore(version, commit_properties=properties)
        return TableVersion(self.location, self.name, following)

    def add_columns(self, schema: pa.Schema) -> TableVersion:
        """Commit a new version with the columns of the schema that this one lacks; return this one if it has all."""
        fields = [entry for entry in schema if entry.name not in self.schema.names]
        if not fields:
            return self
        added = import_deltalake().Schema.from_arrow(pa.schema(fields)).fields
        following = self.version + 1
        with self._committing(secrets.token_hex(8)) as properties:
            self._delta.alter.add_columns(added, commit_properties=properties)
        return TableVersion(self.location, self.name, following)

    def commit(self, change: TableChange, metadata: Mapping[str, Any] | None = None) -> int:
        """Commit a change as the version after this one and return its number; raise CommitConflict if it exists."""
        self._check_written(change.added)
        version = change.attempted_version = self.version + 1
        actions, at = import_deltalake().transaction, int(time.time() * 1000)
        added = [
            actions.AddAction(file.path, file.size, file.partition, at, True, json.dumps({"numRecords": file.rows}))
            for file in change.added
        ]
        removed = [actions.RemoveAction(one.path, True, at, one.size, one.partition) for one in change.removed]
        schema, partitions = self._delta.schema(), self._delta.metadata().partition_columns
        with self._committing(change.id, metadata) as properties:
            self._delta.create_write_transaction(
                [*added, *removed], "append", schema, partitions, commit_properties=properties
            )
        return version

    def _check_written(self, files: Sequence[DataFile]) -> None:
        """Raise StoreFailed if a file that was just written is gone, because no version could be read with it."""
        infos = self.location.files(self.name).get_file_info([file.path for file in files])
        for info in infos:
            if not info.is_file:
                raise _deleted(self.location, self.name, info.path)

    @contextmanager
    def _committing(self, id: str, metadata: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Yield the properties of a commit of the next version, and verify the outcome in the log.

        An error does not prove that the commit failed: a checkpoint can fail after the commit, and the response of an
        object store can be lost.
        """
        following = self.version + 1  # adding columns updates self._delta, so compute this first
        own = {} if metadata is None else {_KEY: json.dumps(metadata)}
        try:
            yield import_deltalake().CommitProperties(custom_metadata={_ID: id, **own}, max_commit_retries=0)
        except Exception as why:
            entry = self.log_entry(following)
            if entry is None:
                check_hard_links(self.location)
                raise
            if id.encode() not in entry:
                raise CommitConflict(str(why)) from None
        if self.location.is_local:
            log = Path(self.location.table_url(self.name), log_path(following))
            flush(log, log.parent)

    def log_entry(self, version: int) -> bytes | None:
        """Return the bytes of a log entry; None if there is no such version."""
        try:
            with self.location.files(self.name).open_input_file(log_path(version)) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def metadata(self, version: int) -> Mapping[str, Any] | None:
        """Return our metadata of a commit; None if it has none.

        Raise StoreFailed if it is a commit of builds by this package, which always has metadata.
        """
        for info in self._actions(version, "commitInfo"):
            if _KEY in info:
                with self._reading_entry(version):
                    metadata = json.loads(info[_KEY])
                    if not isinstance(metadata, dict):
                        raise TypeError(type(metadata))
                    return metadata
        entry = self.log_entry(version) or b""
        if _ID.encode() in entry and _WRITE in entry:
            raise self._damaged(f"an entry without its metadata, {log_path(version)}")
        return None

    def committed_at(self, version: int) -> dt.datetime:
        """Return the commit time of a version, by the clock of the machine that committed it."""
        info = self._actions(version, "commitInfo")
        with self._reading_entry(version):
            ms = next((int(action["timestamp"]) for action in info), 0)
            return dt.datetime.fromtimestamp(ms / 1000, dt.UTC)

    @property
    def last_changed_at(self) -> dt.datetime:
        """When the log entry of the last version that added or removed files was written, by the clock of the disk."""
        files = self.location.files(self.name)
        for version in range(self.version, 0, -1):
            info = files.get_file_info(log_path(version))
            if info.mtime is None:  # deleted, so only a checkpoint has it
                break
            if self._actions(version, "add") or self._actions(version, "remove"):
                return info.mtime
        return dt.datetime.fromtimestamp(0, dt.UTC)

    def _actions(self, version: int, kind: str) -> list[dict[str, Any]]:
        with self._reading_entry(version):
            lines = (self.log_entry(version) or b"").splitlines()
            entries = [json.loads(line) for line in lines if kind.encode() in line]  # most are of files
            actions = [entry[kind] for entry in entries if kind in entry]
            if not all(isinstance(action, dict) for action in actions):
                raise TypeError(kind)
            return actions

    @contextmanager
    def _reading_entry(self, version: int) -> Iterator[None]:
        """Convert errors of a log entry that has another shape to StoreFailed."""
        try:
            yield
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as why:
            if isinstance(why, pa.ArrowException):  # of the disk or the object store
                raise
            if is_damaged(self.location.files(self.name), log_path(version)):
                raise DamagedEntry(self.location, f"{self.name}/{log_path(version)}") from None
            raise StoreFailed(
                f"The store at {self.location.url} is damaged: {self.name}/{log_path(version)} is not a log entry. "
                "Restore that file from a backup."
            ) from None

    def vacuum(self, first: int, before: dt.datetime) -> int:
        """Delete data files older than `before` that no version from `first` on needs, and return their number.

        Log entries are deleted, too, up to the last checkpoint from which version `first` can be read.
        """
        needed = {file.path for file in TableVersion(self.location, self.name, first).files()}
        needed.update(file.path for file in self.files())  # a lost log entry may have added them
        files = self.location.files(self.name)
        for version in range(first + 1, self.version + 1):
            # What a lost entry added is in this version, or a later entry removes it.
            with suppress(FileNotFoundError):
                needed |= named_files(files, log_path(version))
        check_contained(self.location, self.name, needed)
        written = list_files(self.location, self.name)
        unneeded = [path for path, at in written.items() if at < before and path not in needed]
        data = [path for path in unneeded if path.endswith(".parquet") and not path.startswith(LOG_FOLDER)]
        delete_files(self.location, self.name, [*data, *_log_before(first, list(written))])
        return len(data)


@dataclass
class TableChange:
    """Files that a commit adds and removes; added files are already written.

    `started_paths` are the files that were started or written. `attempted_version` is the version
    that a commit of this change tried to create. Rows of older files get the computed columns of
    `recomputation` when they are written again.
    """

    table: TableVersion
    recomputation: Recomputation | None = None
    added: list[DataFile] = field(default_factory=list)
    removed: list[DataFile] = field(default_factory=list)
    started_paths: list[str] = field(default_factory=list)
    attempted_version: int | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to commit."""
        return not self.added and not self.removed

    def files_after(self) -> list[DataFile]:
        """Return the files of the table after this change."""
        removed = {file.path for file in self.removed}
        return [*(file for file in self.table.files() if file.path not in removed), *self.added]

    def write(self, rows: pa.Table, day: str | None = None) -> None:
        """Write rows to a new file, in the partition of `day` if the table has days."""
        if not rows.num_rows:
            return
        folder = partition_folder(self.table.schema, day)
        version = "" if self.recomputation is None else f"-v{self.recomputation.version}"
        plain = rows.drop_columns(["day"]) if "day" in rows.column_names else rows
        data = _parquet(plain)
        checksum = checksums.checksum(memoryview(data))
        path = f"{folder}{time.time_ns():x}-{secrets.token_hex(6)}-{checksum}{version}.parquet"
        self.started_paths.append(path)
        _write_parquet(self.table.location, self.table.name, path, data)
        self.added.append(DataFile(path, data.size, rows.num_rows, day))

    def read(self, file: DataFile) -> pa.Table:
        """Read a file of the table without its day, with the computed columns of new files."""
        rows = self.table.read(file)
        rules = self.recomputation
        if rules is None or file.computed_version >= rules.version:
            return rows
        schema = pa.schema([entry for entry in self.table.schema if entry.name != "day"])
        return rules.recompute(with_schema(rows, schema), file.day)

    def discard(self) -> None:
        """Delete the files that were written, unless a commit lists them or may still list them."""
        if not self.started_paths or self._may_be_committed():
            return
        files = self.table.location.files(self.table.name)
        for path in self.started_paths:
            with suppress(Exception):  # Store.clean deletes it later
                files.delete_file(path)

    def _may_be_committed(self) -> bool:
        if self.attempted_version is None:
            return False
        try:
            entry = self.table.log_entry(self.attempted_version)
        except Exception:
            return True
        return self.id.encode() in entry if entry is not None else not self.table.location.is_local

    def replace(self, rows: pa.Table, key: str, ids: pa.Array[Any], days: Sequence[str | None]) -> None:
        """Replace the rows of these days whose `key` is in `ids` by `rows`."""
        if not days:
            return
        files, day_of_rows = self.table.files_by_day(), rows["day"].cast(pa.string())
        parts = [TableChange(self.table, self.recomputation, started_paths=self.started_paths) for _ in days]

        def replace_in(part: TableChange, day: str | None) -> None:
            new = rows.filter(pc.is_null(day_of_rows) if day is None else pc.equal(day_of_rows, pa.scalar(day)))
            part._replace_in_day(day, files.get(day, []), new.drop_columns(["day"]), key, ids)

        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(replace_in, parts, days))  # raises what a day raised
        for part in parts:
            self.added.extend(part.added)
            self.removed.extend(part.removed)

    def _replace_in_day(
        self, day: str | None, own: Sequence[DataFile], new: pa.Table, key: str, ids: pa.Array[Any]
    ) -> None:
        """Rewrite files without the replaced rows. A file that stays large remains separate.

        Only one large file is in memory at a time, and rows that change often end up in the same small file.
        """
        affected = self.table.files_with(key, ids, own)
        if not new.num_rows and not affected:
            return
        small = [file for file in own if file.rows < _MAX_ROWS // 2 and file not in affected]
        if len(small) >= _MAX_SMALL_FILES:
            affected += small
        small_tables = [new]
        for file in affected:
            rows = self.read(file)
            remaining = rows.filter(pc.invert(pc.is_in(rows[key], value_set=ids)))
            if remaining.num_rows < _MAX_ROWS // 2:
                small_tables.insert(0, remaining)
            else:
                self.write(remaining, day)
        self._write_sorted(day, small_tables)
        self.removed.extend(affected)

    def _write_sorted(self, day: str | None, tables: Sequence[pa.Table]) -> None:
        whole = pa.concat_tables(tables, promote_options="default")
        created = "build_created_at" if "build_created_at" in whole.column_names else "created_at"
        order = pc.sort_indices(whole, [("pipeline_id", "ascending"), (created, "descending")])  # a stable sort
        for batch in _split(whole.take(order)):
            self.write(batch, day)

    def compact_days(self) -> None:
        """Merge the files of each day into few, with the computed columns of new files."""
        outdated = self._outdated_days()
        for day, own in self.table.files_by_day().items():
            if len(own) > math.ceil(sum(file.rows for file in own) / _MAX_ROWS) or day in outdated:
                self._rewrite(day, own)

    def recompute_days(self, max_rows: int) -> None:
        """Rewrite days with files of older computed columns, until `max_rows` rows are written."""
        for day, own in self._outdated_days().items():
            if sum(file.rows for file in self.added) >= max_rows:
                return
            self._rewrite(day, own)

    def _outdated_days(self) -> dict[str | None, list[DataFile]]:
        """Return the files with older computed columns by day."""
        version = 0 if self.recomputation is None else self.recomputation.version
        outdated = defaultdict(list)
        for file in self.table.outdated_files(version):
            outdated[file.day].append(file)
        return outdated

    def write_newest(self, day: str | None, files: Sequence[DataFile]) -> None:
        """Write the rows of files of a day again, of several rows with one id the one that was fetched last."""
        if not files:
            return
        rows = pa.concat_tables([self.read(file) for file in files], promote_options="default")
        ages = rows.select(["id", "fetched_at"]).to_pandas().sort_values("fetched_at", kind="stable")
        newest = sorted(ages.index[~ages["id"].duplicated(keep="last")])  # the order of jobs is their position
        self._write_sorted(day, [rows.take(pa.array(newest, pa.int64()))])

    def _rewrite(self, day: str | None, files: Sequence[DataFile]) -> None:
        self._write_sorted(day, [self.read(file) for file in files])
        self.removed.extend(files)


@contextmanager
def _naming_damaged_entries(location: Location, table: str) -> Iterator[None]:
    """Raise DamagedEntry instead of an error that does not say which log entry cannot be read."""
    deltalake = import_deltalake()
    try:
        yield
    except deltalake.exceptions.TableNotFoundError:
        raise
    except deltalake.exceptions.DeltaError:
        damaged = next(damaged_entries(location.files(table)), None)
        if damaged is None:
            raise
        raise DamagedEntry(location, f"{table}/{damaged}") from None


def key_of(names: Sequence[str]) -> str:
    """Return the column with the id of the build."""
    return "build_id" if "build_id" in names else "id"


def of_files(whole: ds.Dataset, paths: Collection[str]) -> ds.FileSystemDataset:
    """Limit a dataset of a table to these files."""
    return of_fragments(whole, [fragment for path, fragment in fragments_by_path(whole) if path in paths])


def fragments_by_path(whole: ds.Dataset) -> list[tuple[str, ds.Fragment]]:
    """Return the files of a dataset with their paths in the table."""
    assert isinstance(whole, ds.FileSystemDataset)
    return [(unquote(fragment.path), fragment) for fragment in whole.get_fragments()]


def of_fragments(whole: ds.Dataset, fragments: Sequence[ds.Fragment]) -> ds.FileSystemDataset:
    """Return a dataset of some files of a dataset."""
    assert isinstance(whole, ds.FileSystemDataset)
    return ds.FileSystemDataset([*fragments], whole.schema, whole.format, whole.filesystem)


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return the rows of a file with these columns; those that the file lacks are null."""
    missing = [entry for entry in schema if entry.name not in rows.column_names]
    for entry in missing:
        rows = rows.append_column(entry, pa.nulls(rows.num_rows, entry.type))
    return rows.select(schema.names).cast(schema)


def _first_and_last(days: Collection[str | None]) -> tuple[str | None, str | None]:
    """Return the bounds of days: none if one of them is null, and those of a day without rows for no days."""
    known = [day for day in days if day is not None]
    return (min(known, default=_NO_DAY), max(known, default=_NO_DAY)) if len(known) == len(days) else (None, None)


def _is_between(day: str | None, first: str | None, last: str | None) -> bool:
    """Whether rows of a day can be between two days; a null day is between none."""
    if day is None:
        return first is None and last is None
    return (first is None or first <= day) and (last is None or day <= last)


def _range_in_footer(footer: pq.FileMetaData, key: str) -> tuple[str, str] | None:
    """Return the least and greatest value of a column in a file, if the footer has them for all row groups."""
    position = footer.schema.names.index(key)
    groups = [footer.row_group(n).column(position).statistics for n in range(footer.num_row_groups)]
    ranges = [(str(one.min), str(one.max)) for one in groups if one is not None and one.has_min_max]
    if not ranges or len(ranges) < len(groups):
        return None
    return min(least for least, _ in ranges), max(greatest for _, greatest in ranges)


def _contains_any(bounds: tuple[str, str] | None, ordered: Sequence[str]) -> bool:
    """Whether one of the sorted values lies within the bounds; True without bounds."""
    if bounds is None:
        return True
    position = bisect.bisect_left(ordered, bounds[0])
    return position < len(ordered) and ordered[position] <= bounds[1]


def partition_folder(schema: pa.Schema, day: str | None) -> str:
    """Return the folder of a day in a table, with a slash at its end; an empty text if the table has no days."""
    return f"day={day or _NULL_DAY}/" if "day" in schema.names else ""


def _log_before(first: int, paths: Sequence[str]) -> list[str]:
    """Return the log entries and checkpoints that no version from `first` on needs."""
    versions = {path: int(match[1]) for path in paths if (match := LOG_FILE.match(path))}
    checkpoints = [number for path, number in versions.items() if number <= first and path.endswith(".parquet")]
    return [path for path, number in versions.items() if number < max(checkpoints, default=0)]


def _parquet(rows: pa.Table) -> pa.Buffer:
    """Return the bytes of a Parquet file, of which a checksum is computed before it is written."""
    sink, repeating = pa.BufferOutputStream(), _repeating_columns(rows)
    pq.write_table(
        rows,
        sink,
        compression="zstd",
        use_dictionary=repeating,  # type: ignore[arg-type]
        store_schema=False,
        write_page_checksum=True,
    )
    return sink.getvalue()


def _write_parquet(location: Location, table: str, path: str, data: pa.Buffer) -> None:
    check_contained(location, table, [path])
    files, local = location.files(table), Path(location.table_url(table), path)
    if location.is_local:
        local.parent.mkdir(parents=True, exist_ok=True)
    with files.open_output_stream(path, buffer_size=data.size + 1) as sink:  # Arrow passes only buffered data as bytes
        sink.write(data)
    if location.is_local:
        flush(local, local.parent)


def _deleted(location: Location, table: str, path: str) -> StoreFailed:
    return StoreFailed(
        f"The store at {location.url} could not be written: {table}/{path} was deleted before it was committed. "
        "Check the clocks of all machines that clean the store, and try again. The store is as the last commit left it."
    )


def _repeating_columns(rows: pa.Table) -> list[str]:
    """Return the columns whose values repeat. Of others, such as ids and URLs, a dictionary would be a second copy."""
    if rows.num_rows < _SAMPLE_ROWS:
        return rows.column_names
    sample = rows.slice(0, _SAMPLE_ROWS)
    return [name for name in rows.column_names if pc.count_distinct(sample[name]).as_py() <= sample.num_rows // 2]


def _split(rows: pa.Table) -> Iterator[pa.Table]:
    """Split rows into files; jobs of a build stay in one file, because only their position stores their order."""
    build = rows[key_of(rows.column_names)]
    start = 0
    while start < rows.num_rows:
        end = min(start + _MAX_ROWS, rows.num_rows)
        while end < rows.num_rows and build[end] == build[end - 1]:
            end += 1
        yield rows.slice(start, end - start)
        start = end


def distinct_days(rows: pa.Table) -> list[str | None]:
    """Return the distinct days of rows in ascending order, null last."""
    days: list[str | None] = pc.unique(rows["day"].cast(pa.string())).to_pylist()
    return sorted(days, key=lambda day: (day is None, day or ""))
