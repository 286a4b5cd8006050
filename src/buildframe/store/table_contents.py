"""Describe the files of a table version in few bytes, so that a lost log entry is noticed. Does not read any file.

A log entry can be empty or missing, as after a partial copy. Delta then ignores it: rows that it added are gone, and
rows that it removed come back.
"""

from __future__ import annotations

import datetime as dt
import zlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np

from buildframe.store.delta import DataFile

_MAX_FILES = 18  # of a day among which those of a checksum are searched: 2 ** 18 combinations
_MODULUS = 2**32
_PAIRS = np.dtype("<u4")
_BYTES_PER_DAY = 2 * _PAIRS.itemsize
_LAST_DAY = dt.date.max.toordinal()


@dataclass(frozen=True)
class TableContents:
    """Number of rows and files of a table version, and checksums of the paths for each day and of the columns.

    `days` holds pairs of 32-bit integers: the ordinal of the day, 0 if it is null, and the sum of the CRC-32 of the
    paths. It takes 11 characters in the log for each day. Paths are unique, so equal sums mean equal files.
    `columns` holds the number of columns, and the CRC-32 of their names and types. A table can have more columns later.
    Earlier versions of the package did not write it.
    """

    rows: int
    files: int
    days: bytes
    columns: tuple[int, int] | None = field(default=None, compare=False)

    @classmethod
    def of(cls, files: Sequence[DataFile], columns: Sequence[str] | None = None) -> Self:
        """Describe these files, and these names and types of columns."""
        sums: defaultdict[int, int] = defaultdict(int)
        for file in files:
            sums[_ordinal(file.day)] += zlib.crc32(file.path.encode())
        pairs = [(day, total % _MODULUS) for day, total in sorted(sums.items())]
        days = np.array(pairs, _PAIRS).tobytes()
        described = None if columns is None else (len(columns), _checksum(columns))
        return cls(sum(file.rows or 0 for file in files), len(files), days, described)

    def has_columns(self, columns: Sequence[str]) -> bool:
        """Whether these columns begin with the recorded ones."""
        return self.columns is None or self.columns == (self.columns[0], _checksum(columns[: self.columns[0]]))

    def check_ranges(self) -> None:
        """Raise ValueError for numbers that no commit writes."""
        if len(self.days) % _BYTES_PER_DAY or min(self.rows, self.files, *(self.columns or ())) < 0:
            raise ValueError("the description of a table has another shape")
        if max(self._checksums(), default=0) > _LAST_DAY:
            raise ValueError("a day is out of range")

    def differing_days(self, other: TableContents) -> list[str | None]:
        """Return the days whose files differ, null first."""
        mine, others = self._checksums(), other._checksums()
        return [_day(day) for day in sorted({*mine, *others}) if mine.get(day) != others.get(day)]

    def select(self, day: str | None, paths: Iterable[str]) -> list[str] | None:
        """Return those of the paths that are the files of a day; None if some of its files are not among them."""
        candidates = [*paths][:_MAX_FILES]
        sums = [0]
        for path in candidates:  # bit n of an index says whether path n is in the sum
            checksum = zlib.crc32(path.encode())
            sums += [(total + checksum) % _MODULUS for total in sums]
        wanted = self._checksums().get(_ordinal(day), 0)
        if wanted not in sums:
            return None
        index = sums.index(wanted)
        return [path for position, path in enumerate(candidates) if index >> position & 1]

    def _checksums(self) -> dict[int, int]:
        pairs = np.frombuffer(self.days, _PAIRS).reshape(-1, 2)
        return {int(day): int(total) for day, total in pairs}


def _checksum(columns: Sequence[str]) -> int:
    return zlib.crc32("\n".join(columns).encode())


def _ordinal(day: str | None) -> int:
    return 0 if day is None else dt.date.fromisoformat(day).toordinal()


def _day(ordinal: int) -> str | None:
    return None if ordinal == 0 else dt.date.fromordinal(ordinal).isoformat()
