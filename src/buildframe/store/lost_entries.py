"""Restore a table whose log lost an entry, from the data files in its folder. Does not know the service."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from buildframe.errors import StoreFailed
from buildframe.store import checksums
from buildframe.store.contained_paths import check_contained
from buildframe.store.delta import DataFile, TableChange, TableVersion, partition_folder
from buildframe.store.location import Location
from buildframe.store.log_entries import LOG_FOLDER, DamagedEntry, actions, damaged_entries, list_log, log_path
from buildframe.store.table_contents import TableContents

_FILES = ("add", "remove")  # actions that name a data file
_MAX_GAP = 1_000  # versions that are missing in a row; more is an entry of another program


def newest_version(location: Location, name: str, schema: pa.Schema) -> TableVersion | None:
    """Open the newest version of a table as far as its log reaches. Repair a log that cannot be read."""
    from deltalake.exceptions import DeltaError

    try:
        return TableVersion.at(location, name)
    except (DeltaError, DamagedEntry):
        _repair_log(location, name, schema)
        return TableVersion.at(location, name)


def _repair_log(location: Location, name: str, schema: pa.Schema) -> None:
    """Set damaged entries aside, and write an empty one for each that is missing since the last checkpoint.

    Delta opens no table whose entries have a gap, and ignores empty entries. Without a checkpoint it needs the first
    one, which creates the table.
    """
    files = location.files(name)
    for path in damaged_entries(files):
        files.move(path, f"{path}.damaged")
    entries, checkpoint = list_log(files)
    before = max(checkpoint, 0)
    missing: list[int] = []
    for version in sorted(entries):
        if version - before > _MAX_GAP:
            raise StoreFailed(
                f"The store at {location.url} is damaged: {name}/{entries[version].path} has a version far beyond the "
                f"one before it, {before}, so another program wrote it. Delete this file, or copy the store again."
            )
        missing += range(before, version)
        before = version + 1
    for version in missing:
        with files.open_output_stream(log_path(version)):
            pass
    if entries and checkpoint < 0 and (0 not in entries or not entries[0].size):
        with files.open_output_stream(log_path(0)) as file:
            file.write(_first_entry(name, schema))


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
        listed = table.files_by_day()
        known = _paths_in_log(table)
        days = {*self.recorded.differing_days(TableContents.of(table.files()))}
        days |= {file.day for file in table.files() if file.path in damaged}
        for day in sorted(days, key=lambda day: (day is None, day or "")):
            on_disk = _files_on_disk(table, day)
            own = [file for file in listed.get(day, []) if file.path in on_disk and file.path not in damaged]
            own_paths = [file.path for file in own]
            unlisted = sorted(on_disk - known - {*own_paths} - {*damaged}, reverse=True)  # newest first
            paths = self.recorded.select(day, own_paths, unlisted)
            files = None if paths is None else _described(table, day, paths, own)
            if files is None:
                single = (_described(table, day, [path], own) for path in [*own_paths, *reversed(unlisted)])
                self._keep_what_is_left(day, [file for found in single for file in found or ()])
            else:
                self.change.added.extend(file for file in files if file not in own)
                self.change.removed.extend(file for file in listed.get(day, []) if file not in files)

    def _keep_what_is_left(self, day: str | None, intact: Sequence[DataFile]) -> None:
        """Keep the newest row of each id in these files, also in those that the log does not list."""
        table, change = self.change.table, self.change
        self.lost_days.append(day)
        if "day" in table.schema.names:
            change.write_newest(day, intact)
            change.removed.extend(table.files_by_day().get(day, []))
            return
        kept = [max(intact, key=lambda file: file.path)] if intact else []  # each commit of a list writes all of it
        change.added.extend(file for file in kept if file not in table.files())
        change.removed.extend(file for file in table.files() if file not in kept)


def _files_on_disk(table: TableVersion, day: str | None) -> set[str]:
    """Return the paths of the data files in the folder of a day."""
    folder = partition_folder(table.schema, day).rstrip("/")
    found = table.location.files(table.name).get_file_info(fs.FileSelector(folder, allow_not_found=True))
    paths = {file.path for file in found if file.is_file and file.path.endswith(".parquet")}
    check_contained(table.location, table.name, paths)  # the folder may be a link
    return paths


def _paths_in_log(table: TableVersion) -> set[str]:
    """Return the paths that log entries name: an unlisted file of one of these was removed."""
    files = table.location.files(table.name)
    found = files.get_file_info(fs.FileSelector(LOG_FOLDER))
    entries = [file.path for file in found if file.path.endswith(".json")]
    named = (action.get(kind) for path in entries for action in actions(files, path) if action for kind in _FILES)
    return {unquote(str(file.get("path"))) for file in named if isinstance(file, dict)}


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
