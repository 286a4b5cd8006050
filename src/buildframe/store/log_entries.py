"""Names of log entries, and which of them cannot be read. Does not know what an entry means."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from pyarrow import fs

from buildframe.errors import StoreFailed
from buildframe.store.location import Location

LOG_FOLDER = "_delta_log"
LOG_FILE = re.compile(rf"{LOG_FOLDER}/(\d{{20}})\.(?:json|checkpoint\.parquet)$")


class DamagedEntry(StoreFailed):
    """A log entry is cut off or overwritten, as after a power cut. `path` is its path in the store."""

    def __init__(self, location: Location, path: str) -> None:
        super().__init__(
            f"The store at {location.url} could not be read, because {path} is not a log entry, as after a power cut. "
            "Copy the store again, or sync it: a sync restores the newest version."
        )
        self.path = path


def log_path(version: int) -> str:
    """Return the path of a log entry in a table."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def list_log(files: fs.FileSystem) -> tuple[dict[int, fs.FileInfo], int]:
    """Return the entries of a table since its last checkpoint by version, and the version of the checkpoint, or -1."""
    found = files.get_file_info(fs.FileSelector(LOG_FOLDER, allow_not_found=True))
    matches = [(int(match[1]), file) for file in found if (match := LOG_FILE.match(file.path))]
    checkpoint = max((version for version, file in matches if file.path.endswith(".parquet")), default=-1)
    entries = {version: file for version, file in matches if file.path.endswith(".json")}
    return {version: file for version, file in entries.items() if version >= checkpoint}, checkpoint


def damaged_entries(files: fs.FileSystem) -> list[str]:
    """Return the paths of entries since the last checkpoint that have a line that is no JSON object, oldest first."""
    entries, _ = list_log(files)
    return [entries[version].path for version in sorted(entries) if None in actions(files, entries[version].path)]


def actions(files: fs.FileSystem, path: str) -> Iterator[dict[str, Any] | None]:
    """Yield the actions of an entry; None for the rest of a line that is no JSON object."""
    with files.open_input_file(path) as file:
        lines = bytes(file.read()).decode(errors="replace").split("\n")
    for line in lines:
        rest = line.strip()
        while rest:  # Delta needs no line break between two actions
            action, rest = _first_object(rest)
            yield action


def _first_object(text: str) -> tuple[dict[str, Any] | None, str]:
    try:
        value, end = json.JSONDecoder().raw_decode(text)
    except (ValueError, RecursionError):
        return None, ""
    return (value, text[end:].lstrip()) if isinstance(value, dict) else (None, "")
