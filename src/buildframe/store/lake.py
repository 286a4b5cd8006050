"""Delta tables on a local folder or an object store: which files make up a version, and one commit after the other.

Files are written first and named by one commit, so that a reader finds the version before or the one after. A commit
is refused where somebody else's came first (`Overtaken`): what it was made from is no longer the newest version.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import os
import re
import secrets
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from buildframe.errors import StoreFailed
from buildframe.secret import confined
from buildframe.store.files import sync_folder
from buildframe.store.place import Place, package, package_in_use

if TYPE_CHECKING:
    import deltalake

_KEY = "buildframe"
"""Under which a commit carries what is told with it."""

_ID = "buildframe_change"
"""Under which a commit carries the id of the change that it made, by which its maker knows it again."""

_UNDATED = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows without a day, as engines name it."""

_LOG = "_delta_log"
_NUMBERED = re.compile(rf"{_LOG}/(\d{{20}})\.(?:json|checkpoint\.parquet)$")

_ROWS = 10_000
"""Rows of a file at most, which are one group: the fewer, the less is written anew for a build that changed, and the
more there is to open for a reader of all."""

_MOST_FILES = 8
"""Small ones of a day: more are made one when the day is written the next time."""

_KEEP_LOG = {
    "delta.logRetentionDuration": "interval 36500 days",
    "delta.enableExpiredLogCleanup": "false",
    "delta.checkpointInterval": "20",  # each commit since a checkpoint adds a third of a millisecond to opening
}


class Overtaken(Exception):
    """Somebody else committed first."""


@dataclass(frozen=True)
class File:
    """A Parquet file of a version: its path within the table, its bytes and rows, its partition (a day, or nothing)."""

    path: str
    size: int
    rows: int
    partition: Mapping[str, str | None]

    @property
    def day(self) -> str | None:
        """The day of all of its rows; None where they have none."""
        return self.partition.get("day")


class Table:
    """One version of one table."""

    def __init__(self, place: Place, name: str, delta: deltalake.DeltaTable) -> None:
        self.place = place
        self.name = name
        self._delta = delta

    @classmethod
    @confined
    def at(cls, place: Place, name: str, version: int | None = None) -> Table | None:
        """A version of a table, or the newest; None where there is none."""
        from deltalake.exceptions import TableNotFoundError

        try:
            delta = package_in_use().DeltaTable(
                place.of_table(name), version=version, storage_options=dict(place.options)
            )
        except TableNotFoundError:
            return None
        return cls(place, name, delta)

    @classmethod
    def made(cls, place: Place, name: str, schema: pa.Schema) -> Table:
        """The newest version; of no rows where there is no table yet."""
        found = cls.at(place, name)
        if found is not None:
            return found
        if place.is_local:
            Path(place.of_table(name)).mkdir(parents=True, exist_ok=True)
        _create(place, name, schema)
        return cls.made(place, name, schema)

    @property
    def version(self) -> int:
        """Its number."""
        return int(self._delta.version())

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        found: pa.Schema = pa.schema(self._delta.schema().to_arrow())  # type: ignore[arg-type]
        return found

    @property
    def names(self) -> list[str]:
        """Their names."""
        return [entry.name for entry in self._delta.schema().fields]

    def files(self) -> list[File]:
        """The files of this version."""
        told = pa.table(self._delta.get_add_actions())
        columns = (told[name].to_pylist() for name in ("path", "size_bytes", "num_records"))
        days = told["partition"].to_pylist() if "partition" in told.column_names else [{}] * len(told)
        parts = ({name: None if day is None else str(day) for name, day in (one or {}).items()} for one in days)
        return [File(*one) for one in zip(*columns, parts, strict=True)]

    def uris(self) -> list[str]:
        """The addresses of its files, for readers that know no Delta."""
        return [f"{self.place.of_table(self.name)}/{file.path}" for file in self.files()]

    def dataset(self, first: str | None = None, last: str | None = None) -> ds.Dataset:
        """The version for Arrow, or its files of these days; groups of rows are skipped by what is told of them."""
        days = [("day", sign, day) for sign, day in ((">=", first), ("<=", last)) if day is not None]
        files = self.place.files(self.name) if self.place.is_local else None
        return self._delta.to_pyarrow_dataset(filesystem=files, file_pruning_predicate=days or None)

    def read(self, file: File, columns: Sequence[str] | None = None) -> pa.Table:
        """A file's rows, without the column of its partition; a column that it lacks is left out."""
        with self.place.files(self.name).open_input_file(file.path) as source:
            parquet = pq.ParquetFile(source)
            there = None if columns is None else [name for name in columns if name in parquet.schema_arrow.names]
            return parquet.read(there)

    def holding(self, key: str, ids: pa.Array[Any], days: Collection[str | None]) -> list[File]:
        """The files of these days with rows whose `key` is among `ids`."""
        return [file for file in self.files() if file.day in days and self._holds(file, key, ids)]

    def _holds(self, file: File, key: str, ids: pa.Array[Any]) -> bool:
        return bool(pc.any(pc.is_in(self.read(file, [key])[key], value_set=ids)).as_py())

    def rows_in(self, files: Sequence[File], key: str, ids: pa.Array[Any]) -> pa.Table:
        """The rows of these files whose `key` is among `ids`, with all columns."""
        parts = [self.schema.empty_table()]
        for file in files:
            rows = self.read(file)
            rows = rows.filter(pc.is_in(rows[key], value_set=ids))
            day = None if file.day is None else dt.date.fromisoformat(file.day)
            parts.append(rows.append_column("day", pa.repeat(pa.scalar(day, pa.date32()), rows.num_rows)))
        return pa.concat_tables(parts, promote_options="default")

    def rolled_back_to(self, version: int) -> Table:
        """A newer version that has the rows of an older one."""
        older = self.at(self.place, self.name, version)
        assert older is not None
        wanted, now = ({file.path: file for file in table.files()} for table in (older, self))
        change = Change(self)
        change.added = [_addition(file) for path, file in wanted.items() if path not in now]
        change.removed = [file for path, file in now.items() if path not in wanted]
        if change.is_none:
            return self
        self.commit(change)
        return self._newest()

    def widened(self, schema: pa.Schema) -> Table:
        """A newer version that has the columns, too, which the schema has beyond it; else this one."""
        there = set(self.names)
        fields = [entry for entry in schema if entry.name not in there]
        if not fields:
            return self
        wider = package().Schema.from_arrow(pa.schema(fields)).fields
        with self._committing(secrets.token_hex(8)) as properties:
            self._delta.alter.add_columns(wider, commit_properties=properties)
        return self._newest()

    def _newest(self) -> Table:
        found = self.at(self.place, self.name)
        assert found is not None
        return found

    def commit(self, change: Change, told: Mapping[str, Any] | None = None) -> int:
        """Make the change the newest version, which follows this one, and give its number; else Overtaken."""
        version = change.tried = self.version + 1
        with self._committing(change.id, told) as properties:
            self._delta.create_write_transaction(
                [*change.added, *map(_removal, change.removed)],
                "append",
                self._delta.schema(),
                self._delta.metadata().partition_columns,
                commit_properties=properties,
            )
        return version

    @contextmanager
    def _committing(self, id: str, told: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """What a commit takes that is to follow this version.

        Whether it came to be, and whether another did, is read from the log: an error does not tell, since a
        checkpoint may fail after the commit, and an object store's answer may be lost.
        """
        following = self.version + 1  # before a change of columns brings this up to date
        carried = {} if told is None else {_KEY: json.dumps(told)}
        try:
            yield package().CommitProperties(custom_metadata={_ID: id, **carried}, max_commit_retries=0)
        except Exception as why:
            entry = self.log_entry(following)
            if entry is None:
                raise
            if id.encode() not in entry:
                raise Overtaken(str(why)) from None
        if self.place.is_local:
            _settled(Path(self.place.of_table(self.name), _entry(following)))

    def log_entry(self, version: int) -> bytes | None:
        """What the log holds of a version; None where there is no such version."""
        try:
            with self.place.files(self.name).open_input_file(_entry(version)) as file:
                found: bytes = file.read()
                return found
        except FileNotFoundError:
            return None

    def told(self, version: int) -> Mapping[str, Any] | None:
        """What the commit of a version carries."""
        info = self._actions(version, "commitInfo")
        return next((json.loads(one[_KEY]) for one in info if _KEY in one), None)

    def committed_at(self, version: int) -> dt.datetime:
        """When a version was committed, by the clock of the machine that did."""
        us = next((int(one["timestamp"]) for one in self._actions(version, "commitInfo")), 0)
        return dt.datetime.fromtimestamp(us / 1000, dt.UTC)

    def _actions(self, version: int, kind: str) -> list[dict[str, Any]]:
        try:
            lines = map(json.loads, (self.log_entry(version) or b"").splitlines())
            return [line[kind] for line in lines if kind in line]
        except (ValueError, TypeError, KeyError):
            raise StoreFailed(
                f"The store at {self.place.url} is damaged: {self.name}/{_entry(version)} is no entry of a log. "
                "Bring that file back from a copy."
            ) from None

    def delete_unneeded(self, first: int, before: dt.datetime) -> int:
        """Delete files of rows that no version from `first` on has, and that were written before a time; how many.

        With them goes the log before the last checkpoint that `first` can be read from.
        """
        oldest = self.at(self.place, self.name, first)
        assert oldest is not None
        needed = {file.path for file in oldest.files()}
        for version in range(first + 1, self.version + 1):
            needed.update(unquote(action["path"]) for action in self._actions(version, "add"))
        files = self.place.files(self.name)
        there = files.get_file_info(fs.FileSelector("", recursive=True))
        old = [one.path for one in there if one.is_file and one.mtime is not None and one.mtime < before]
        rows = [path for path in old if path.endswith(".parquet") and not path.startswith(_LOG) and path not in needed]
        for path in [*rows, *_log_before(first, old)]:
            files.delete_file(path)
        return len(rows)


@dataclass
class Change:
    """Files that a commit adds (they are written already) and removes.

    `begun` are the paths of files written or begun, `tried` is the version that a commit was to make of it.
    """

    table: Table
    added: list[Any] = field(default_factory=list)
    removed: list[File] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    tried: int | None = None
    id: str = field(default_factory=lambda: secrets.token_hex(8))

    @property
    def is_none(self) -> bool:
        """Whether nothing is to be committed."""
        return not self.added and not self.removed

    @property
    def bytes_written(self) -> int:
        """The size of the files added."""
        return sum(action.size for action in self.added)

    def write(self, rows: pa.Table, day: str | None = None) -> None:
        """Write a file with these rows, of one day where the table has days."""
        if not rows.num_rows:
            return
        has_days = "day" in self.table.names
        folder = f"day={day or _UNDATED}/" if has_days else ""
        path = f"{folder}{time.time_ns():x}-{secrets.token_hex(6)}.parquet"
        plain = rows.drop_columns(["day"]) if "day" in rows.column_names else rows
        self.begun.append(path)
        size = _written(self.table.place, self.table.name, path, plain)
        self.added.append(_addition(File(path, size, rows.num_rows, {"day": day} if has_days else {})))

    def discard(self) -> None:
        """Delete the files that were written, unless a commit names them, or may yet come to."""
        if not self.begun or self._may_be_committed():
            return
        files = self.table.place.files(self.table.name)
        for path in self.begun:
            with suppress(Exception):  # the cleaning finds it later
                files.delete_file(path)

    def _may_be_committed(self) -> bool:
        if self.tried is None:
            return False
        try:
            entry = self.table.log_entry(self.tried)
        except Exception:
            return True
        return self.id.encode() in entry if entry is not None else not self.table.place.is_local

    def replace(self, rows: pa.Table, key: str, ids: pa.Array[Any], days: Sequence[str | None]) -> None:
        """Put `rows` in the place of those whose `key` is among `ids`, which lie in the days named."""
        by_day = _by_day(rows)
        files: dict[str | None, list[File]] = {}
        for file in self.table.files():
            files.setdefault(file.day, []).append(file)
        holding = {file.path for file in self.table.holding(key, ids, days)}
        for day in {**by_day, **dict.fromkeys(days)}:
            own = files.get(day, [])
            held = [file for file in own if file.path in holding]
            new = by_day.get(day)
            if new is None and not held:
                continue
            small = [file for file in own if file.rows < _ROWS // 2 and file not in held]
            if len(small) >= _MOST_FILES:
                held += small
            self._replace_in(day, held, new, key, ids)

    def _replace_in(
        self, day: str | None, held: Sequence[File], new: pa.Table | None, key: str, ids: pa.Array[Any]
    ) -> None:
        """Write the files anew without those rows. What is left of one stays a file of its own, if it is much.

        So memory holds a file at a time, and what changes again and again comes to lie together.
        """
        loose = [] if new is None else [new.drop_columns(["day"])]
        for file in held:
            rows = self.table.read(file)
            rest = rows.filter(pc.invert(pc.is_in(rows[key], value_set=ids)))
            if rest.num_rows < _ROWS // 2:
                loose.insert(0, rest)
            else:
                self.write(rest, day)
        self._write_sorted(day, loose)
        self.removed.extend(held)

    def _write_sorted(self, day: str | None, tables: Sequence[pa.Table]) -> None:
        if not tables:
            return
        whole = pa.concat_tables(tables, promote_options="default")
        created = "build_created_at" if "build_created_at" in whole.column_names else "created_at"
        order = pc.sort_indices(whole, [("pipeline_id", "ascending"), (created, "descending")])  # which is stable
        for part in _parts(whole.take(order)):
            self.write(part, day)

    def merge_days(self) -> None:
        """Make as few files of each day as its rows need."""
        files: dict[str | None, list[File]] = {}
        for file in self.table.files():
            files.setdefault(file.day, []).append(file)
        for day, own in files.items():
            if len(own) > math.ceil(sum(file.rows for file in own) / _ROWS):
                self._write_sorted(day, [self.table.read(file) for file in own])
                self.removed.extend(own)


@confined
def _create(place: Place, name: str, schema: pa.Schema) -> None:
    """Create a table of no rows, unless there is one."""
    package_in_use().DeltaTable.create(
        place.of_table(name),
        schema,
        mode="ignore",
        partition_by=["day"] if "day" in schema.names else None,
        name=name,
        configuration=_KEEP_LOG,
        storage_options=dict(place.options),
    )


def _addition(file: File) -> Any:
    counted = json.dumps({"numRecords": file.rows})
    return package().transaction.AddAction(
        file.path, file.size, dict(file.partition), int(time.time() * 1000), True, counted
    )


def _removal(file: File) -> Any:
    return package().transaction.RemoveAction(file.path, True, int(time.time() * 1000), file.size, dict(file.partition))


def _entry(version: int) -> str:
    return f"{_LOG}/{version:020d}.json"


def _log_before(first: int, paths: Sequence[str]) -> list[str]:
    """The entries and checkpoints among the paths that no version from `first` on is read from."""
    numbered = {path: int(match[1]) for path in paths if (match := _NUMBERED.match(path))}
    checkpoints = [number for path, number in numbered.items() if number <= first and path.endswith(".parquet")]
    return [path for path, number in numbered.items() if number < max(checkpoints, default=0)]


def _written(place: Place, table: str, path: str, rows: pa.Table) -> int:
    files = place.files(table)
    if place.is_local:
        Path(place.of_table(table), path).parent.mkdir(parents=True, exist_ok=True)
    with files.open_output_stream(path) as sink:
        pq.write_table(rows, sink, compression="zstd", store_schema=False)
    if place.is_local:
        _settled(Path(place.of_table(table), path))
    return int(files.get_file_info(path).size)


def _settled(path: Path) -> None:
    """See that a file is on the disk, name and content, before anything says that it is there."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    sync_folder(path.parent)


def _parts(rows: pa.Table) -> Iterator[pa.Table]:
    """The rows of each file; a build's jobs stay together, as their order is told by nothing else."""
    build = rows["build_id" if "build_id" in rows.column_names else "id"]
    start = 0
    while start < rows.num_rows:
        end = min(start + _ROWS, rows.num_rows)
        while end < rows.num_rows and build[end] == build[end - 1]:
            end += 1
        yield rows.slice(start, end - start)
        start = end


def _by_day(rows: pa.Table) -> dict[str | None, pa.Table]:
    return {day: rows.filter(_is_of(rows["day"], day)) for day in days_of(rows)}


def _is_of(days: pa.ChunkedArray[Any], day: str | None) -> Any:
    return pc.is_null(days) if day is None else pc.equal(days, pa.scalar(dt.date.fromisoformat(day)))


def days_of(rows: pa.Table) -> list[str | None]:
    """The days of rows, in their order; None, last, where some have none."""
    found = pc.unique(rows["day"]).to_pylist()
    return sorted((None if day is None else str(day) for day in found), key=lambda day: (day is None, day or ""))
