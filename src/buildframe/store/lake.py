"""Delta tables on a local folder or an object store: which files make up a version, and one commit after the other.

Files are written first and named by one commit, so that a reader finds the version before or the one after. A commit
is refused where somebody else's came first (`Overtaken`): what it was made from is no longer the newest version.
"""

from __future__ import annotations

import json
import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from buildframe.errors import BadInput, MissingExtra, StoreFailed

if TYPE_CHECKING:
    import deltalake

_KEY = "buildframe"
"""Under which a commit carries what is told with it."""

_ROWS = 20_000
"""Rows of a group within a file: small enough that one pipeline's week skips most, large enough to compress."""

_MOST_FILES = 8
"""Of a day: more are made one when the day is written the next time."""

_KEEP_LOG = {"delta.logRetentionDuration": "interval 36500 days", "delta.enableExpiredLogCleanup": "false"}


class Overtaken(Exception):
    """Somebody else committed first."""


def package() -> Any:
    """The package `deltalake`, loaded at first use."""
    try:
        import deltalake
    except ImportError:
        raise MissingExtra("The store", "store") from None
    return deltalake


@contextmanager
def told_plainly(what: str, where: str) -> Iterator[None]:
    """What the disk or the object store says, as StoreFailed."""
    package()
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError, pa.ArrowException) as why:
        said = next(iter(str(why).strip().splitlines()), type(why).__name__)
        raise StoreFailed(f"The store at {where} could not be {what}: {said}") from why


@dataclass(frozen=True)
class Place:
    """Where a store lies: a folder or an object store's URL, and how to get in."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, url: str | os.PathLike[str], options: Mapping[str, str] | None) -> Place:
        """The place that a user means."""
        text = os.fspath(url)
        if not isinstance(text, str) or not text.strip():
            raise BadInput(f"{url!r} is no place for a store; give a folder, such as 'ci-history', or a URL.")
        if "://" in text:
            return cls(text.rstrip("/"), dict(options or {}))
        if Path(text).exists() and not Path(text).is_dir():
            raise BadInput(f"{text!r} is a file; a store needs a folder.")
        return cls(str(Path(text).absolute()), dict(options or {}))

    @property
    def is_local(self) -> bool:
        """Whether it is a folder of this machine."""
        return "://" not in self.url

    def of_table(self, name: str) -> str:
        """Where a table of it lies."""
        return f"{self.url}/{name}"

    def files(self, name: str) -> fs.FileSystem:
        """The files of a table."""
        if self.is_local:
            return fs.SubTreeFileSystem(self.of_table(name), fs.LocalFileSystem())
        from deltalake.fs import DeltaStorageHandler

        handler: Any = DeltaStorageHandler(self.of_table(name), dict(self.options))
        return fs.PyFileSystem(handler)


@dataclass(frozen=True)
class File:
    """A Parquet file of a version: its path within the table, and its partition (a day, or nothing)."""

    path: str
    size: int
    partition: Mapping[str, str | None]

    @property
    def day(self) -> str | None:
        """The day of all of its rows."""
        return self.partition.get("day")


class Table:
    """One version of one table."""

    def __init__(self, place: Place, name: str, delta: deltalake.DeltaTable) -> None:
        self.place = place
        self.name = name
        self._delta = delta

    @classmethod
    def at(cls, place: Place, name: str, version: int | None = None) -> Table | None:
        """A version of a table, or the newest; None where there is none."""
        from deltalake.exceptions import TableNotFoundError

        try:
            delta = package().DeltaTable(place.of_table(name), version=version, storage_options=dict(place.options))
        except TableNotFoundError:
            return None
        return cls(place, name, delta)

    @classmethod
    def made(cls, place: Place, name: str, schema: pa.Schema) -> Table:
        """The newest version; of no rows where there is no table yet."""
        partitions = ["day"] if "day" in schema.names else None
        if place.is_local:
            Path(place.of_table(name)).mkdir(parents=True, exist_ok=True)
        package().DeltaTable.create(
            place.of_table(name),
            schema,
            mode="ignore",
            partition_by=partitions,
            name=name,
            configuration=_KEEP_LOG,
            storage_options=dict(place.options),
        )
        found = cls.at(place, name)
        assert found is not None
        return found

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
        columns = (told[name].to_pylist() for name in ("path", "size_bytes"))
        days = told["partition"].to_pylist() if "partition" in told.column_names else [{}] * len(told)
        parts = ({name: None if day is None else str(day) for name, day in (one or {}).items()} for one in days)
        return [File(*one) for one in zip(*columns, parts, strict=True)]

    def uris(self) -> list[str]:
        """The addresses of its files, for readers that know no Delta."""
        return list(self._delta.file_uris())

    def dataset(self) -> ds.Dataset:
        """The version for Arrow, which skips files and groups of rows by what is told of them."""
        return self._delta.to_pyarrow_dataset()

    def read(self, file: File, columns: Sequence[str] | None = None) -> pa.Table:
        """A file's rows, without the column of its partition; a column that it lacks is left out."""
        with self.place.files(self.name).open_input_file(file.path) as source:
            parquet = pq.ParquetFile(source)
            there = None if columns is None else [name for name in columns if name in parquet.schema_arrow.names]
            return parquet.read(there)

    def rolled_back_to(self, version: int) -> Table:
        """A newer version that has the rows of an older one."""
        with _conflicts():
            self._delta.restore(version)
        return self._newest()

    def widened(self, schema: pa.Schema) -> Table:
        """A newer version that has the columns, too, which the schema has beyond it; else this one."""
        fields = [entry for entry in schema if entry.name not in self.names]
        if not fields:
            return self
        with _conflicts():
            self._delta.alter.add_columns(package().Schema.from_arrow(pa.schema(fields)).fields)
        return self._newest()

    def _newest(self) -> Table:
        found = self.at(self.place, self.name)
        assert found is not None
        return found

    def commit(self, change: Change, told: Mapping[str, Any] | None = None) -> int:
        """Make the change the newest version, which follows this one, and give its number; else Overtaken."""
        deltalake = package()
        told_with = deltalake.CommitProperties(
            custom_metadata={_KEY: json.dumps(told)} if told is not None else None, max_commit_retries=0
        )
        with _conflicts():
            self._delta.create_write_transaction(
                [*change.added, *map(_removal, change.removed)],
                "append",
                self._delta.schema(),
                self._delta.metadata().partition_columns,
                commit_properties=told_with,
            )
        return self.version + 1

    def told(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """What commits up to this version carry, the newest first, each with its version."""
        log = self.place.files(self.name)
        for version in range(self.version, -1, -1):
            try:
                with log.open_input_file(f"_delta_log/{version:020d}.json") as file:
                    lines = file.read().splitlines()
            except FileNotFoundError:  # cleaned
                return
            for entry in map(json.loads, lines):
                if _KEY in entry.get("commitInfo", {}):
                    yield version, json.loads(entry["commitInfo"][_KEY])

    def forget(self, keep_versions: Sequence[int], hours: int) -> int:
        """Delete files that no version needs but those before `hours` which are not to be kept; how many."""
        return len(
            self._delta.vacuum(
                hours, dry_run=False, enforce_retention_duration=False, full=True, keep_versions=list(keep_versions)
            )
        )


@dataclass
class Change:
    """Files that a commit adds (they are written already) and removes."""

    table: Table
    added: list[Any] = field(default_factory=list)
    removed: list[File] = field(default_factory=list)

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
        folder = f"day={day}/" if day is not None else ""
        path = f"{folder}{time.time_ns():x}-{secrets.token_hex(6)}.parquet"
        plain = rows.drop_columns(["day"]) if "day" in rows.column_names else rows
        size = _written(self.table.place, self.table.name, path, plain)
        now = int(time.time() * 1000)
        partition = {"day": day} if day is not None else {}
        action = package().transaction.AddAction(
            path, size, partition, now, True, json.dumps({"numRecords": rows.num_rows})
        )
        self.added.append(action)

    def discard(self) -> None:
        """Delete the files that were written, as no commit will name them."""
        files = self.table.place.files(self.table.name)
        for action in self.added:
            try:
                files.delete_file(action.path)
            except OSError:  # the cleaning finds it later
                continue

    def replace(self, rows: pa.Table, key: str, ids: pa.Array[Any], days: Sequence[str]) -> None:
        """Put `rows` in the place of those whose `key` is among `ids`, which lie in the days named."""
        by_day = _by_day(rows)
        files: dict[str | None, list[File]] = {}
        for file in self.table.files():
            files.setdefault(file.day, []).append(file)
        for day in sorted({*by_day, *days}):
            own = files.get(day, [])
            held = [file for file in own if self._holds(file, key, ids)] if day in days else []
            new = by_day.get(day)
            if new is None and not held:
                continue
            if len(own) - len(held) >= _MOST_FILES:
                held = own
            self._rewrite(day, held, new, key, ids)

    def _holds(self, file: File, key: str, ids: pa.Array[Any]) -> bool:
        there = self.table.read(file, [key])[key]
        return bool(pc.any(pc.is_in(there, value_set=ids)).as_py())

    def _rewrite(self, day: str, held: Sequence[File], new: pa.Table | None, key: str, ids: pa.Array[Any]) -> None:
        kept = [rows.filter(pc.invert(pc.is_in(rows[key], value_set=ids))) for rows in map(self.table.read, held)]
        parts = [*kept, *([] if new is None else [new.drop_columns(["day"])])]
        whole = pa.concat_tables(parts, promote_options="default")
        created = "build_created_at" if "build_created_at" in whole.column_names else "created_at"
        order = pc.sort_indices(whole, [("pipeline_id", "ascending"), (created, "descending")])  # which is stable
        self.write(whole.take(order), day)
        self.removed.extend(held)

    def merge_days(self) -> None:
        """Make one file of each day that has several."""
        files: dict[str | None, list[File]] = {}
        for file in self.table.files():
            files.setdefault(file.day, []).append(file)
        nothing = pa.array([], pa.string())
        for day, own in files.items():
            if day is not None and len(own) > 1:
                self._rewrite(day, own, None, self.table.names[0], nothing)


def _removal(file: File) -> Any:
    return package().transaction.RemoveAction(file.path, True, int(time.time() * 1000), file.size, dict(file.partition))


@contextmanager
def _conflicts() -> Iterator[None]:
    from deltalake.exceptions import CommitFailedError

    try:
        yield
    except CommitFailedError as why:
        raise Overtaken(str(why)) from None


def _written(place: Place, table: str, path: str, rows: pa.Table) -> int:
    files = place.files(table)
    if place.is_local:
        Path(place.of_table(table), path).parent.mkdir(parents=True, exist_ok=True)
    with files.open_output_stream(path) as sink:
        pq.write_table(rows, sink, compression="zstd", row_group_size=_ROWS, store_schema=False)
    if place.is_local:
        with open(Path(place.of_table(table), path), "rb") as file:
            os.fsync(file.fileno())
    return int(files.get_file_info(path).size)


def _by_day(rows: pa.Table) -> dict[str, pa.Table]:
    days = pc.unique(rows["day"])
    return {str(day): rows.filter(pc.equal(rows["day"], day)) for day in days}
