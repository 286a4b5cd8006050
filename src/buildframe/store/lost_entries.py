"""Restore a table whose log lost an entry, from the data files in its folder. Does not know the service."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from buildframe.errors import StoreFailed
from buildframe.store import checksums
from buildframe.store.contained_paths import check_contained, list_files
from buildframe.store.delta import DataFile, TableChange, TableVersion, partition_folder
from buildframe.store.location import Location
from buildframe.store.log_entries import (
    LOG_FILE,
    DamagedEntry,
    checkpoint_path,
    damaged_entries,
    has_entry,
    is_damaged,
    list_log,
    list_versions,
    log_path,
    named_files,
)
from buildframe.store.table_contents import TableContents

_MAX_GAP = 1_000  # versions that are missing in a row; more is an entry of another program


def newest_version(location: Location, name: str, schema: pa.Schema) -> TableVersion | None:
    """Open the newest version of a table as far as its log reaches. Repair a log that cannot be read."""
    from deltalake.exceptions import DeltaError

    with suppress(DeltaError, DamagedEntry):
        table = TableVersion.at(location, name)
        if table is None or has_entry(location.files(name), table.version):
            return table
    _repair_log(location, name, schema)
    return TableVersion.at(location, name)


def is_last_commit_lost(location: Location, builds: TableVersion | None) -> bool:
    """Whether the entry or checkpoint of the next version was set aside."""
    version = 0 if builds is None else builds.version + 1
    paths = [f"{path}.damaged" for path in (log_path(version), checkpoint_path(version))]
    return any(found.is_file for found in location.files("builds").get_file_info(paths))


def set_older_aside(location: Location, name: str, schema: pa.Schema) -> None:
    """Set damaged entries of any age aside: Delta can then open later versions."""
    files = location.files(name)
    for version, entry in list_versions(files, ".json").items():
        if is_damaged(files, entry.path):
            _set_aside(location, name, entry.path)
            _fill(location, name, schema, version)


def _set_aside(location: Location, name: str, path: str) -> None:
    location.files(name).move(path, f"{path}.damaged")


def _repair_log(location: Location, name: str, schema: pa.Schema) -> None:
    """Set damaged entries aside, and write an empty one for each that is missing since the last checkpoint.

    Delta opens no table whose entries have a gap, and ignores empty entries. Without a checkpoint it needs the first
    one, which creates the table.
    """
    files = location.files(name)
    reached = max(list_versions(files, ".parquet"), default=0)  # entries before may be cleaned
    # List them again each time, because another process may replace an entry meanwhile.
    while (path := next(damaged_entries(files), None)) is not None:
        _set_aside(location, name, path)
    entries, checkpoint = list_log(files)
    before = max(checkpoint, 0)
    missing: list[int] = []
    for version in sorted(entries):
        if version - max(before, reached) > _MAX_GAP:
            raise StoreFailed(
                f"The store at {location.url} is damaged: {name}/{entries[version].path} has a version far beyond the "
                f"one before it, {before}, so another program wrote it. Delete this file, or copy the store again."
            )
        missing += range(before, version)
        before = version + 1
    for version in missing:
        _fill(location, name, schema, version)


def _fill(location: Location, name: str, schema: pa.Schema, version: int) -> None:
    """Write an empty entry, or a first one that creates the table.

    On a disk, an entry that appeared meanwhile stays.
    """
    data = b"" if version else _first_entry(name, schema)
    if location.is_local:
        path = Path(location.table_url(name), log_path(version))
        with suppress(FileExistsError), path.open("xb") as file:
            file.write(data)
        return
    with location.files(name).open_output_stream(log_path(version)) as sink:
        sink.write(data)


def _first_entry(name: str, schema: pa.Schema) -> bytes:
    """Return a log entry that creates a table."""
    with tempfile.TemporaryDirectory(prefix="buildframe-") as folder:
        return TableVersion.open_or_create(Location.of(folder, None), name, schema).log_entry(0) or b""


@dataclass
class Restoration:
    """Changes that give a table the recorded files again, and the days of which some are lost."""

    change: TableChange
    recorded: TableContents
    lost_days: list[str | None] = field(default_factory=list)

    def run(self, damaged: Collection[str] = ()) -> None:
        """Add and remove files. Of days with lost files, keep each row once; `damaged` are paths not to use."""
        table = self.change.table
        days = {*self.recorded.differing_days(TableContents.of(table.files()))}
        days |= {file.day for file in table.files() if file.path in damaged}
        if not days:
            return
        in_order = sorted(days, key=lambda day: (day is None, day or ""))
        written = list_files(table.location, table.name)
        paths = [path for path in written if path.isascii()]  # as are all of the store
        named = _paths_in_log(table, paths)
        folders: defaultdict[str, set[str]] = defaultdict(set)
        for path in paths:
            if path.endswith(".parquet") and path not in damaged:
                folders[path.rpartition("/")[0]].add(path)
        for day in in_order:
            self._restore_day(day, folders, named)
        if self.lost_days or TableContents.of(self.change.files_after()) == self.recorded:
            return
        self.change.added.clear()  # other files, with the same checksum by chance
        self.change.removed.clear()
        for day in in_order:
            self._restore_day(day, folders, named, is_lost=True)

    def _restore_day(
        self,
        day: str | None,
        folders: Mapping[str, set[str]],
        named: Collection[str],
        *,
        is_lost: bool = False,
    ) -> None:
        """Restore the files of a day, or what is left of them.

        Unlisted files that the log names were removed.
        """
        table = self.change.table
        listed = table.files_by_day().get(day, [])
        folder = partition_folder(table.schema, day)
        check_contained(table.location, table.name, [f"{folder}file"])  # the folder may be a link
        on_disk = folders.get(folder.rstrip("/"), set())
        own = [file for file in listed if file.path in on_disk]
        own_paths = [file.path for file in own]
        unlisted = sorted(on_disk - {*named, *own_paths}, reverse=True)  # newest first
        selected = None if is_lost else self.recorded.select(day, own_paths, unlisted)
        files = None if selected is None else _described(table, day, selected, own)
        if files is None:
            single = (_described(table, day, [path], own) for path in [*own_paths, *reversed(unlisted)])
            self._keep_what_is_left(day, [file for found in single for file in found or ()])
        else:
            self.change.added.extend(file for file in files if file not in own)
            self.change.removed.extend(file for file in listed if file not in files)

    def _keep_what_is_left(self, day: str | None, intact: Sequence[DataFile]) -> None:
        """Keep the newest row of each id in these files, also in those that the log does not list."""
        table, change = self.change.table, self.change
        self.lost_days.append(day)
        if "day" in table.schema.names:
            change.write_newest(day, intact)
            change.removed.extend(table.files_by_day().get(day, []))
            return
        # Each commit of a list writes all of it.
        newest = max(intact, key=lambda file: file.path, default=None)
        if newest is not None and newest not in table.files():
            change.write(change.read(newest))  # a running sync that wrote this file may delete it
        change.removed.extend(file for file in table.files() if file != newest)


def _paths_in_log(table: TableVersion, paths: Collection[str]) -> set[str]:
    """Return the paths that log entries name: an unlisted file of one of these was removed."""
    files = table.location.files(table.name)
    entries = (path for path in paths if LOG_FILE.match(path) and path.endswith(".json"))
    return {path for entry in entries for path in named_files(files, entry)}


def _described(
    table: TableVersion, day: str | None, paths: Sequence[str], own: Sequence[DataFile]
) -> list[DataFile] | None:
    """Return these files with sizes and rows; None if one of them cannot be read."""
    described = {file.path: file for file in own}
    files = table.location.files(table.name)
    for path in paths:
        if path in described:
            continue
        try:
            with files.open_input_file(path) as source:
                data = source.read_buffer()
            checksums.check(table.location, table.name, path, memoryview(data))
            rows = pq.read_metadata(pa.BufferReader(data)).num_rows
        except (OSError, pa.ArrowException, StoreFailed):
            return None
        described[path] = DataFile(path, data.size, rows, day)
    return [described[path] for path in paths]
