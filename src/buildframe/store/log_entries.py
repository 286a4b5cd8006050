"""Names of log entries and checkpoints, and which of them cannot be read.

Does not know what an entry means.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import fs

from buildframe.errors import StoreFailed
from buildframe.store.location import Location

LOG_FOLDER = "_delta_log"
LOG_FILE = re.compile(rf"{LOG_FOLDER}/(\d{{20}})\.(?:json|checkpoint\.parquet)$")
_HINT = f"{LOG_FOLDER}/_last_checkpoint"  # without it, Delta lists the log
_FILES = ("add", "remove")  # actions that name a data file


class DamagedEntry(StoreFailed):
    """A log entry or a checkpoint is cut off or overwritten, as after a power cut.

    `path` is its path in the store.
    """

    def __init__(self, location: Location, path: str) -> None:
        super().__init__(
            f"The store at {location.url} could not be read, because {path} is damaged, "
            "as after a power cut. Copy the store again, or sync it: a sync restores the newest version, "
            "or the one before if this was the last commit."
        )
        self.path = path


def log_path(version: int) -> str:
    """Return the path of a log entry in a table."""
    return f"{LOG_FOLDER}/{version:020d}.json"


def checkpoint_path(version: int) -> str:
    """Return the path of a checkpoint in a table."""
    return f"{LOG_FOLDER}/{version:020d}.checkpoint.parquet"


def list_log(files: fs.FileSystem) -> tuple[dict[int, fs.FileInfo], int]:
    """Return the entries of a table since its last checkpoint by version, and the version of the checkpoint, or -1."""
    entries = list_versions(files, ".json")
    checkpoint = max(list_versions(files, ".parquet"), default=-1)
    return {version: file for version, file in entries.items() if version >= checkpoint}, checkpoint


def list_versions(files: fs.FileSystem, suffix: str) -> dict[int, fs.FileInfo]:
    """Return all entries of a table (`.json`), or its checkpoints (`.parquet`), by version."""
    found = files.get_file_info(fs.FileSelector(LOG_FOLDER, allow_not_found=True))
    matches = [(LOG_FILE.match(file.path), file) for file in found if file.path.endswith(suffix)]
    return {int(match[1]): file for match, file in matches if match is not None}


def damaged_entries(files: fs.FileSystem) -> Iterator[str]:
    """Yield the paths of entries since the last checkpoint, of it, and of its hint, if damaged.

    Delta ignores empty entries. But the first one creates the table, and the last one may hide
    behind its checkpoint. A checkpoint that cannot be read, or is newer than all entries, cannot be
    used, and neither can a hint that names another one.
    """
    entries, checkpoint = list_log(files)
    needed = (0, max(entries, default=0))
    for version, entry in sorted(entries.items()):
        if is_damaged(files, entry.path) or (version in needed and not entry.size):
            yield entry.path
    path = checkpoint_path(checkpoint)
    if checkpoint >= 0 and (not entries or not _is_table(_read(files, path))):
        yield path
    if files.get_file_info(_HINT).is_file:
        hinted = _hinted_version(_read(files, _HINT))
        if hinted not in (None, checkpoint):
            yield _HINT


def is_damaged(files: fs.FileSystem, path: str) -> bool:
    """Whether an entry has a line that is no JSON object."""
    return None in actions(files, path)


def has_entry(files: fs.FileSystem, version: int) -> bool:
    """Whether the entry of a version exists, is not empty, and can be read."""
    try:
        found = list(actions(files, log_path(version)))
    except FileNotFoundError:
        return False
    return bool(found) and None not in found


def named_files(files: fs.FileSystem, path: str) -> set[str]:
    """Return the data files that an entry adds or removes, as far as it can be read."""
    named = set()
    for action in actions(files, path):
        for kind in _FILES:
            file = (action or {}).get(kind)
            if isinstance(file, dict):
                named.add(unquote(str(file.get("path"))))
    return named


def actions(files: fs.FileSystem, path: str) -> Iterator[dict[str, Any] | None]:
    """Yield the actions of an entry; None for the rest of a line that is no JSON object."""
    for line in _read(files, path).decode(errors="replace").split("\n"):
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


def _read(files: fs.FileSystem, path: str) -> bytes:
    with files.open_input_file(path) as file:
        return bytes(file.read())


def _is_table(data: bytes) -> bool:
    """Whether these are the bytes of a Parquet file that can be read."""
    try:
        pq.read_table(pa.BufferReader(data)).validate(full=True)
    except (OSError, ValueError, pa.ArrowException):
        return False
    return True


def _hinted_version(data: bytes) -> int | None:
    """Return the version that the hint names; None if Delta ignores it, as it cannot be read."""
    try:
        return int(json.loads(data)["version"])
    except (ValueError, TypeError, KeyError):
        return None
