"""Verify data files by the checksum in their names. Does not know tables.

Parquet's page checksums do not cover headers of pages and the footer, and DuckDB and Polars ignore them. So the name of
a file contains the CRC-32 of all its bytes.
"""

from __future__ import annotations

import functools
import os
import re
import zlib
from collections.abc import Iterable

from buildframe.errors import StoreFailed
from buildframe.store.file_cache import FileCache
from buildframe.store.location import Location

_CHECKSUM = re.compile(r"-([0-9a-f]{8})(?:-v\d+)?\.parquet$")

_VERIFIED: FileCache[bool] = FileCache(100_000)
"""Local files that this process has verified, with their size and time."""


def checksum(data: bytes | memoryview) -> str:
    """Return the checksum of a file as its name contains it."""
    return f"{zlib.crc32(data):08x}"


def recorded_checksum(path: str) -> str | None:
    """Return the checksum in the name of a file; None if an earlier version wrote the file."""
    match = _CHECKSUM.search(path)
    return None if match is None else match[1]


def check(location: Location, table: str, path: str, data: bytes | memoryview) -> None:
    """Raise StoreFailed if these are not the bytes that were written to a file."""
    if recorded_checksum(path) not in (None, checksum(data)):
        raise damaged_file(location, table, path) from None


def damaged_file(location: Location, table: str, path: str) -> StoreFailed:
    """Return the error that a file is damaged."""
    return StoreFailed(
        f"The store at {location.url} is damaged: {table}/{path} is not as it was written. The disk or another "
        "program changed it. Restore the file from a backup, or list all damaged files with `buildframe verify`."
    )


def check_local_files(location: Location, table: str, paths: Iterable[str]) -> None:
    """Raise StoreFailed if a file is damaged. A process reads a file again if its size or time has changed."""
    for path in paths if location.is_local else ():
        file = os.path.join(location.table_url(table), path)
        status = os.stat(file)
        key = (file, str(status.st_size), str(status.st_mtime_ns))
        _VERIFIED.get(key, functools.partial(_check_file, location, table, path, file))


def _check_file(location: Location, table: str, path: str, file: str) -> bool:
    if recorded_checksum(path) is not None:
        with open(file, "rb") as source:
            check(location, table, path, source.read())
    return True
