"""List and read the files of an export in a local folder or an object store. Does not know what the files contain.

A file that cannot be read is reported and does not end an import. Links in a local folder are not followed.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import fs

from buildframe.guards.secrets import without_frames
from buildframe.store.location import Location, one_line, store_errors

_IS_LINK = "it is a link, and links are not followed"
_MAX_REASON = 200
_OPEN_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_BINARY"))
"""Flags that open neither a link nor wait for the writer of a pipe."""


class UnreadableFile(Exception):
    """A file cannot be read, while others of the same export can; the message says why."""


class Entry(NamedTuple):
    """A file or folder: its path below the export, its size if it is a file, and why it is skipped, if it is."""

    path: str
    size: int | None = None
    problem: str | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.path)


class ExportFiles:
    """The files of an export."""

    def __init__(self, location: Location) -> None:
        self._location = location
        self._files = location.files("")

    def list_folder(self, folder: str) -> list[Entry]:
        """Return the files and folders in a folder, without those in its folders."""
        with self._reading():
            return self._list_local(folder) if self._location.is_local else self._list_store(folder)

    def list_below(self, folder: str) -> Iterator[Entry]:
        """Yield all files and folders below a folder."""
        if not self._location.is_local:
            with self._reading():
                yield from self._list_store(folder, recursive=True)
            return
        folders = [folder]
        while folders:
            for entry in self.list_folder(folders.pop()):
                yield entry
                if entry.size is None and entry.problem is None:
                    folders.append(entry.path)

    def read(self, path: str, max_bytes: int) -> bytes:
        """Return the first bytes of a file; raise UnreadableFile if only this file cannot be read."""
        with self._reading():
            try:
                return (
                    self._read_local(path, max_bytes) if self._location.is_local else self._read_store(path, max_bytes)
                )
            except (OSError, ValueError, pa.ArrowException) as why:
                self._check_reachable(path)
                raise UnreadableFile(self._reason(why)) from None

    def _list_local(self, folder: str) -> list[Entry]:
        try:
            with os.scandir(posixpath.join(self._location.url, folder)) as entries:
                return [_entry(posixpath.join(folder, entry.name), entry) for entry in entries]
        except FileNotFoundError:
            return []
        except OSError as why:
            if not folder:
                raise
            return [Entry(folder, None, f"it cannot be listed: {self._reason(why)}")]

    def _list_store(self, folder: str, *, recursive: bool = False) -> list[Entry]:
        infos = self._files.get_file_info(fs.FileSelector(folder, recursive=recursive, allow_not_found=True))
        return [Entry(info.path, info.size if info.is_file else None) for info in infos]

    def _read_local(self, path: str, max_bytes: int) -> bytes:
        descriptor = os.open(posixpath.join(self._location.url, path), _OPEN_FLAGS)
        with open(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise UnreadableFile("it is not a regular file")
            return file.read(max_bytes)

    def _read_store(self, path: str, max_bytes: int) -> bytes:
        with self._files.open_input_file(path) as file:
            return bytes(file.read(max_bytes))

    def _check_reachable(self, path: str) -> None:
        """Raise the error of the disk or the object store if not even a folder can be listed."""
        folder = "" if self._location.is_local else posixpath.dirname(path)
        self._files.get_file_info(fs.FileSelector(folder, allow_not_found=self._location.is_local is False))

    def _reason(self, why: Exception) -> str:
        if isinstance(why, OSError) and why.strerror and self._location.is_local:
            return why.strerror
        return self._location.redacted(one_line(without_frames(why)))[:_MAX_REASON]

    def _reading(self) -> Any:
        state = "What was imported stays; import again to continue."
        return store_errors("read", self._location, "The exports", state)


def _entry(path: str, entry: os.DirEntry[str]) -> Entry:
    """Return an entry of a local folder, of which links and devices have a problem."""
    if entry.is_symlink():
        return Entry(path, None, _IS_LINK)
    if entry.is_dir(follow_symlinks=False):
        return Entry(path)
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError as why:
        return Entry(path, None, f"it cannot be read: {why.strerror}")
    if not stat.S_ISREG(status.st_mode):
        return Entry(path, None, "it is not a regular file")
    return Entry(path, status.st_size)
