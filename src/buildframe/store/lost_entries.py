"""Restore a table whose log lost an entry, from the data files in its folder. Does not know the service."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from buildframe.errors import StoreFailed
from buildframe.store import checksums
from buildframe.store.contained_paths import check_contained
from buildframe.store.delta import (
    LOG_FILE,
    LOG_FOLDER,
    DataFile,
    TableChange,
    TableVersion,
    log_path,
    partition_folder,
)
from buildframe.store.location import Location
from buildframe.store.table_contents import TableContents


def newest_version(location: Location, name: str, version: int | None = None) -> TableVersion | None:
    """Open a version of a table, or the newest if its log does not reach so far. Fill gaps in the log."""
    from deltalake.exceptions import DeltaError

    try:
        return TableVersion.at(location, name, version)
    except DeltaError:
        last = _fill_gaps(location, name)
        return TableVersion.at(location, name, None if version is None else min(version, last))


def _fill_gaps(location: Location, name: str) -> int:
    """Write an empty entry for each missing one since the last checkpoint, and return the last version.

    Delta opens no table whose entries have a gap, and ignores empty entries.
    """
    files = location.files(name)
    found = files.get_file_info(fs.FileSelector(LOG_FOLDER, allow_not_found=True))
    matches = [match for file in found if (match := LOG_FILE.match(file.path))]
    entries = {int(match[1]) for match in matches if match[0].endswith(".json")}
    checkpoints = {int(match[1]) for match in matches if match[0].endswith(".parquet")}
    last = max(entries | checkpoints, default=-1)
    for version in sorted({*range(max(checkpoints, default=0), last)} - entries):
        with files.open_output_stream(log_path(version)):
            pass
    return last


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
            paths = self.recorded.select(day, [*own_paths, *unlisted])
            files = None if paths is None else _described(table, day, paths, own)
            if files is None:
                self._keep_what_is_left(day, own)
            else:
                self.change.added.extend(file for file in files if file not in own)
                self.change.removed.extend(file for file in listed.get(day, []) if file not in files)

    def _keep_what_is_left(self, day: str | None, own: Sequence[DataFile]) -> None:
        table, change = self.change.table, self.change
        self.lost_days.append(day)
        if "day" in table.schema.names:
            change.write_newest(day, own)
            change.removed.extend(file for file in table.files_by_day()[day] if file not in own)
            return
        newest = max((file.path for file in own), default=None)  # each commit of a list writes the whole table
        change.removed.extend(file for file in table.files() if file.path != newest)


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
    paths = set()
    for found in files.get_file_info(fs.FileSelector(LOG_FOLDER)):
        if not found.path.endswith(".json"):
            continue
        with files.open_input_file(found.path) as file:
            lines = bytes(file.read()).splitlines()
        for line in lines:
            action = json.loads(line)
            paths |= {unquote(action[kind]["path"]) for kind in ("add", "remove") if kind in action}
    return paths


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
