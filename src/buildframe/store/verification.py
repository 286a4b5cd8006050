"""Read all files of a version of a store, to find damaged ones. Does not change anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.parquet as pq

from buildframe.errors import StoreFailed
from buildframe.formatting import format_count
from buildframe.store import STORED_TABLES, checksums
from buildframe.store.delta import DataFile, TableVersion
from buildframe.store.location import Location, one_line
from buildframe.store.log_entries import DamagedEntry
from buildframe.store.sync_state import SyncState
from buildframe.store.table_contents import TableContents

_WORKERS = 4
DAMAGED_LOG = "is a damaged part of a log"
_NO_DAY = "without created_at"


@dataclass(frozen=True)
class VerifyResult:
    """
    Result of `Store.verify`.

    Parameters
    ----------
    files : int
        Data files of the version.
    bytes : int
        Their size.
    damaged : mapping of str to str
        What is wrong with each damaged file, by its path in the store. A log that lost an entry is one of them.
    days : tuple of str
        Days whose rows are damaged, as ISO dates.
    without_checksum : int
        Files of earlier versions of the package. They were decoded, which finds less.
    """

    files: int
    bytes: int
    damaged: Mapping[str, str] = field(default_factory=dict)
    days: tuple[str, ...] = ()
    without_checksum: int = 0

    @property
    def intact(self) -> bool:
        """
        Whether no file is damaged.

        Returns
        -------
        bool
            False if `damaged` contains a file.
        """
        return not self.damaged

    def __str__(self) -> str:
        outcome = "intact" if self.intact else f"{format_count(len(self.damaged), 'file')} DAMAGED"
        older = f" ({self.without_checksum:,} of them without a checksum)" if self.without_checksum else ""
        return f"{format_count(self.files, 'data file')}{older}, {self.bytes / 1e6:,.1f} MB: {outcome}"


def verify(location: Location, state: SyncState, *, to_drop: bool = False) -> VerifyResult:
    """Read all files of a state of the store.

    Raise StoreFailed for a file that cannot be read if the damaged files are to be dropped.
    """
    files: list[tuple[str, DataFile]] = []
    damaged: dict[str, str] = {}
    days: set[str] = set()
    for name in STORED_TABLES:
        table = _open(location, name, state, damaged)
        if table is None:
            continue
        recorded, found = state.contents.get(name), TableContents.of(table.files())
        if recorded is not None and recorded != found:
            damaged[f"{name}/_delta_log"] = "an entry is empty or missing"
            days |= _names(recorded.differing_days(found)) if "day" in table.schema.names else set()
        if recorded is not None and not recorded.has_columns(table.columns):
            damaged[f"{name}/_delta_log"] = "columns are not as they were committed"
        files += [(name, file) for file in table.files()]
    with ThreadPoolExecutor(_WORKERS) as pool:
        reasons = list(pool.map(lambda named: _damage(location, named[0], named[1], to_drop), files))
    for (name, file), reason in zip(files, reasons, strict=True):
        if reason is not None:
            damaged[f"{name}/{file.path}"] = reason
            days |= _names([file.day]) if file.partition else set()
    older = sum(checksums.recorded_checksum(file.path) is None for _, file in files)
    return VerifyResult(len(files), sum(file.size for _, file in files), damaged, tuple(sorted(days)), older)


def _names(days: Iterable[str | None]) -> set[str]:
    return {day or _NO_DAY for day in days}


def _open(location: Location, name: str, state: SyncState, damaged: dict[str, str]) -> TableVersion | None:
    """Open a table without a comparison of its files; None if there is none, or its log cannot be read."""
    from deltalake.exceptions import DeltaError

    version = state.version if name == "builds" else state.versions.get(name, -1)
    try:
        table = None if version < 0 else TableVersion.at(location, name, version)
    except DamagedEntry as why:
        damaged[why.path] = DAMAGED_LOG
        return None
    except DeltaError as why:
        damaged[f"{name}/_delta_log"] = _reason(location, why)
        return None
    if table is None and name in state.contents:
        damaged[f"{name}/_delta_log"] = "is missing"
    return table


def _damage(location: Location, table: str, file: DataFile, to_drop: bool) -> str | None:
    """Return what is wrong with a file; None if nothing is."""
    try:
        with location.files(table).open_input_file(file.path) as source:
            data = source.read_buffer()
    except FileNotFoundError:
        return "is missing"
    except (OSError, pa.ArrowException) as why:  # the file may be intact, as after a timeout
        reason = _reason(location, why)
        if to_drop:
            raise StoreFailed(
                f"Nothing was dropped from the store at {location.url}, because {table}/{file.path} could not be read "
                f"and may be intact: {reason}. Try again. If the file stays unreadable, delete it first."
            ) from None
        return f"cannot be read: {reason}"
    try:
        if checksums.recorded_checksum(file.path) is not None:
            checksums.check(location, table, file.path, memoryview(data))
        else:
            pq.ParquetFile(pa.BufferReader(data), page_checksum_verification=True).read()
    except StoreFailed:
        return "is not as it was written"
    except (OSError, pa.ArrowException) as why:
        return f"cannot be decoded: {_reason(location, why)}"
    return None


def _reason(location: Location, why: Exception) -> str:
    return location.redacted(one_line(why))[:200]
