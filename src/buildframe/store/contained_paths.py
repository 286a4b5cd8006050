"""Check that the files of a table lie inside its folder, and delete only such. Does not know what a log or a file has.

Others may be able to write to the folder of a store. So a path in a log, a checkpoint or the metadata of a commit can
name any file, and a folder below the store can be a link. The folder of the store itself may be a link.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import stat
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from urllib.parse import unquote

from pyarrow import fs

from buildframe.errors import StoreFailed
from buildframe.store import STORED_TABLES
from buildframe.store.location import Location
from buildframe.terminal import show

_LOG = "_delta_log"
_SCHEME_OR_DRIVE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")


def check_contained(location: Location, table: str, paths: Iterable[str] = ()) -> None:
    """Raise StoreFailed unless this table and these paths of it lie inside the folder of the store.

    The store writes no path with a percent escape, which some readers decode. In a local folder no link leads to the
    paths, and they are plain files or do not exist.
    """
    if table not in STORED_TABLES:
        raise _damaged(location, f"its metadata names {show(table)}, which is not a table of a store")
    paths = list(paths)
    outside = next((path for path in paths if not _is_inside(path)), None)
    if outside is not None:
        raise _damaged(location, f"the log of {table} names {show(outside)}, which is no path inside that table")
    if not location.is_local:
        return
    folder = location.table_url(table)
    _check_no_link(location, folder)
    for path in (_LOG, *_folders_above(paths)):
        _check_no_link(location, f"{folder}/{path}")
    for path in paths:
        _check_no_link(location, f"{folder}/{path}", is_file=True)


def check_log(location: Location, table: str) -> None:
    """Raise StoreFailed if the folder of a table, its log, or an entry of the log is a link."""
    check_contained(location, table)
    log = os.path.join(location.table_url(table), _LOG)
    if not location.is_local or not os.path.isdir(log):
        return
    with os.scandir(log) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False) and not entry.is_dir(follow_symlinks=False):
                _check_no_link(location, entry.path, is_file=True)


def _is_inside(path: str) -> bool:
    """Whether a path is relative, and has no escape and no part that leads upwards."""
    parts = path.split("/")
    is_relative = bool(parts[0]) and not _SCHEME_OR_DRIVE.match(path)
    is_plain = "\\" not in path and "\0" not in path and ("%" not in path or unquote(path) == path)
    return is_relative and is_plain and bool(parts[-1]) and ".." not in parts


def _folders_above(paths: Iterable[str]) -> set[str]:
    """Return all folders in which these paths lie, apart from that of the table."""
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


def list_files(location: Location, table: str) -> dict[str, dt.datetime]:
    """Return the files of a table by path, with the times at which they were last written. Links are left out."""
    if not location.is_local:
        entries = location.files(table).get_file_info(fs.FileSelector("", recursive=True))
        return {entry.path: entry.mtime for entry in entries if entry.is_file and entry.mtime is not None}
    found = {}
    for path, name, folder in _files_below(location.table_url(table)):
        with suppress(FileNotFoundError):  # a writer has deleted it
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found[path] = dt.datetime.fromtimestamp(status.st_mtime, dt.UTC)
    return found


def delete_files(location: Location, table: str, paths: Collection[str]) -> None:
    """Delete files of a table. A folder that has become a link since they were listed is not followed."""
    if not location.is_local:
        files = location.files(table)
        for path in paths:
            files.delete_file(path)
        return
    deleted = set(paths)
    for path, name, folder in _files_below(location.table_url(table)):
        if path in deleted:
            os.unlink(name, dir_fd=folder)


def _files_below(root: str) -> Iterator[tuple[str, str, int | None]]:
    """Yield the files below a folder: path, and name in an open folder. No link is followed.

    Windows has no open folders, so the name is the whole path there.
    """
    if not hasattr(os, "fwalk"):
        for folder, _, names in os.walk(root):
            for name in names:
                path = os.path.join(folder, name)
                yield os.path.relpath(path, root).replace(os.sep, "/"), path, None
        return
    for folder, _, names, descriptor in os.fwalk(root):
        for name in names:
            yield os.path.relpath(os.path.join(folder, name), root), name, descriptor


def _check_no_link(location: Location, path: str, *, is_file: bool = False) -> None:
    """Raise StoreFailed if there is a link, or another thing than a plain file in the place of a file."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return  # readers name it
    if stat.S_ISLNK(mode):
        reason = "is a link, and the store follows no links in its folder"
    elif is_file and not stat.S_ISREG(mode):
        reason = "is not a file"
    else:
        return
    raise _damaged(location, f"{show(os.path.relpath(path, location.url))} {reason}")


def _damaged(location: Location, reason: str) -> StoreFailed:
    return StoreFailed(
        f"The store at {location.url} cannot be used: {reason}. Restore the folder from a backup, or sync to another."
    )
